"""Reading `runners.toml`."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import QueueError, UsageError
from contribbot.queue.load import read_model
from contribbot.runners.model import HOSTED, RUNNERS_FILE, Runners


@dataclass(frozen=True)
class Fleet:
    """The runners of a queue."""

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path, *, needed: bool = True) -> Fleet:
    """Read the runners of a queue; where there is no such file, and none is needed: no runners."""
    path = folder / RUNNERS_FILE
    if not needed and not (path.exists() or path.is_symlink()):
        return Fleet(path, Runners(), hashlib.sha256(b"").hexdigest())
    if not path.is_file():
        what = "not a file" if path.exists() or path.is_symlink() else "no such file"
        raise QueueError(
            f"{path}: {what}, and nothing else says which runners there are",
            hint="describe them as docs/runners.md shows",
        )
    try:
        runners = read_model(path, Runners)
    except QueueError as error:
        hint = "correct the file; docs/runners.md lists every key"
        raise QueueError(error.message, hint=hint) from error
    if not runners.sets:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def restricted(fleet: Fleet, wanted: Sequence[str]) -> Runners:
    """Return the runners of a fleet that a user means, by name of the set, target or label."""
    runners = fleet.runners
    if not wanted:
        return runners
    words = {each.name: {each.name.casefold(), each.target, *map(str.casefold, each.labels)} - {""}
             for each in runners.sets}  # fmt: skip
    meant: set[str] = set()
    for item in wanted:
        names = {name for name, known in words.items() if item.casefold() in known}
        if not names:
            close = difflib.get_close_matches(item.casefold(), set[str]().union(*words.values()), 1)
            raise UsageError(
                f"--on {item}: no set of {fleet.path} has this name, target or label"
                + (f" (did you mean {close[0]}?)" if close else ""),
                hint=f"it has {', '.join(words)}",
            )
        meant |= names
    return Runners(
        runners=tuple(each for each in runners.runners if each.name in meant),
        hosted=runners.hosted if HOSTED in meant else None,
    )
