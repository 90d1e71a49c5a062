"""Finding and reading what somebody wants to import."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.queue.mails import Given, read_mbox, read_one
from contribbot.queue.ranges import is_repository, read_range

#: What a quilt series may say behind a patch's name: how many folders to strip.
_LEVELS: Final = {"-p1": 1, "-p0": 0, "-pab": 1}


def read_series(places: Sequence[Path], scratch: Path, given: Given) -> tuple[PatchFile, ...]:
    """Read files and folders of patches, in the order in which they are named.

    A folder with a file `series` is quilt's or StGit's; of any other the `*.patch` and
    `*.mbox` files are read by name. A file called `series` means the folder around it.
    """
    found: list[PatchFile] = []
    for place in places:
        if place.is_dir() and (place / "series").is_file():
            found += _quilt(place / "series", given)
        elif place.is_dir():
            inside = sorted(
                path for path in place.iterdir() if path.suffix in {".patch", ".mbox", ".eml"}
            )
            if not inside:
                hint = (
                    f"name the commits too: contribbot import NAME {place} A..B"
                    if is_repository(place)
                    else "name a folder of patches, an mbox, or a clone and a range"
                )
                raise UsageError(f"{place}: no patches in it", hint=hint)
            for path in inside:
                found += read_mbox(path.read_bytes(), path.name, scratch, given)
        elif place.name == "series" and place.is_file():
            found += _quilt(place, given)
        elif place.is_file():
            found += read_mbox(place.read_bytes(), place.name, scratch, given)
        else:
            raise UsageError(f"{place}: no such file or folder")
    return tuple(found)


def _quilt(series: Path, given: Given) -> list[PatchFile]:
    """Read the patches that a quilt series names, in its order."""
    found = []
    for number, row in enumerate(series.read_text("utf-8", "replace").splitlines(), start=1):
        words = re.sub(r"(^|\s)#.*", "", row).split()
        if not words:
            continue
        name, options = words[0], words[1:]
        unknown = [one for one in options if one not in _LEVELS]
        if unknown:
            raise QueueError(
                f"{series}:{number}: {name} has {unknown[0]}, which is not understood here",
                hint="write it for one folder to strip: quilt refresh -p ab",
            )
        path = series.parent / name
        if not path.is_file():
            raise QueueError(f"{series}:{number}: {name}: no such file")
        level = _LEVELS[options[-1]] if options else 1
        found.append(read_one(name, path.read_bytes(), level, given))
    if not found:
        raise UsageError(f"{series}: no patches in it")
    return found


def read_sources(
    sources: Sequence[str],
    *,
    pin: Pin,
    stdin: Callable[[], bytes],
    given: Given,
    scratch: Path,
) -> tuple[PatchFile, ...]:
    """Read what a user named: `REPO A..B`, `REPO BRANCH`, files and folders, or `-`."""
    if list(sources) in ([], ["-"]):
        return read_mbox(stdin(), "standard input", scratch, given)
    if "-" in sources:
        raise UsageError("- stands alone", hint="name files, or standard input")
    first = Path(sources[0])
    if len(sources) == 2 and is_repository(first) and not Path(sources[1]).exists():  # noqa: PLR2004  a clone and a range
        return read_range(first, sources[1], pin=pin, scratch=scratch)
    if len(sources) == 2 and ".." in sources[1] and not Path(sources[1]).exists():  # noqa: PLR2004  see above
        raise UsageError(f"{first}: not a git repository", hint="name a clone, then the range")
    return read_series([Path(one) for one in sources], scratch, given)
