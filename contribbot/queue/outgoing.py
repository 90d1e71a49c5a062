"""Writing an export to where a user wants it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from contribbot.errors import UsageError
from contribbot.files import write_atomically


def write_export(files: Mapping[str, bytes], place: Path | None, *, stdout: IO[bytes]) -> None:
    """Write an export to a file, or, where it is several, to a folder."""
    if "" in files:
        if place is None:
            stdout.write(files[""])
            stdout.flush()
        elif place.is_dir():
            raise UsageError(f"{place}: a folder", hint="name a file")
        else:
            write_atomically(place, files[""])
        return
    if place is None:
        raise UsageError("a quilt series is a folder", hint="name it: -o patches")
    _write_folder(files, place)


def _write_folder(files: Mapping[str, bytes], place: Path) -> None:
    """Make a folder of files, all of it or nothing."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{place}: there is something already", hint="name a new folder")
    if place.is_dir() and place.samefile(os.curdir):
        # It would be taken away from under the shell.
        raise UsageError(f"{place}: you are in it", hint="name a new folder")
    target = place.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
        made = Path(aside) / "made"
        made.mkdir()
        for name, content in files.items():
            (made / name).write_bytes(content)
        # An empty folder gives way.
        made.replace(target)
