"""Reading `runners.toml`."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import QueueError, UsageError
from contribbot.model.runners import HOSTED, RUNNERS_FILE, Runners
from contribbot.queue.toml import read_model


@dataclass(frozen=True)
class Fleet:
    """The runners of a queue.

    Attributes:
        path: The file that describes them.
        runners: Its content.
        sha256: Its digest.
    """

    path: Path
    runners: Runners
    sha256: str


def load_fleet(folder: Path) -> Fleet:
    """Read the runners of a queue.

    Args:
        folder: The queue's folder.

    Raises:
        QueueError: There is no `runners.toml`, or it is invalid.
    """
    path = folder / RUNNERS_FILE
    if not path.is_file():
        raise QueueError(
            f"{path}: no such file, and nothing else says which runners there are",
            hint="describe them as docs/runners.md shows",
        )
    try:
        runners = read_model(path, Runners)
    except QueueError as error:
        hint = "correct the file; docs/runners.md lists every key"
        raise QueueError(error.message, hint=hint) from error
    if not runners.runners and runners.hosted is None:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def restricted(fleet: Fleet, wanted: Sequence[str]) -> Runners:
    """Return the runners of a fleet that a user means.

    Args:
        fleet: The fleet.
        wanted: Names of sets, targets, or labels; `hosted` is the one that compiles. None: all.

    Raises:
        UsageError: No set has such a name, target or label.
    """
    runners = fleet.runners
    if not wanted:
        return runners
    names = {one.name.casefold(): {one.target, *(label.casefold() for label in one.labels)}
             for one in runners.runners}  # fmt: skip
    if runners.hosted is not None:
        names[HOSTED] = {label.casefold() for label in runners.hosted.labels}
    meant: set[str] = set()
    for item in wanted:
        word = item.casefold()
        found = {name for name, labels in names.items() if word == name or word in labels}
        if not found:
            known = sorted({*names, *(label for labels in names.values() for label in labels)})
            close = difflib.get_close_matches(word, known, n=1)
            raise UsageError(
                f"--on {item}: no set of {fleet.path} has this name, target or label"
                + (f" (did you mean {close[0]}?)" if close else ""),
                hint=f"it has {', '.join(names)}",
            )
        meant |= found
    return Runners(
        runners=tuple(one for one in runners.runners if one.name.casefold() in meant),
        hosted=runners.hosted if HOSTED in meant else None,
    )
