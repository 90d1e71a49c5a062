"""Reading `runners.toml`."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError, UsageError
from contribbot.model.runners import HOSTED, RUNNERS_FILE, Runners
from contribbot.queue.load import read_model

#: Where jobs that have a token run, and all others of a queue without hosted runners.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: Linux releases whose runners GitHub keeps: those of even years with long support. 20.04 and
#: older are retired. Larger runners have names that their organisation gives them.
_RELEASE: Final = re.compile(r"ubuntu-(\d{2})\.(\d{2})(?:-arm)?", re.IGNORECASE)
_OLDEST: Final = 22


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
    """Read the runners of a queue."""
    path = folder / RUNNERS_FILE
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
    if not runners.runners and runners.hosted is None:
        raise QueueError(
            f"{path}: it names no runners", hint="add a [[runners]] or a [hosted] table"
        )
    _check_labels(path, runners)
    return Fleet(path, runners, hashlib.sha256(path.read_bytes()).hexdigest())


def _check_labels(path: Path, runners: Runners) -> None:
    """Refuse a label of GitHub's that no runner with Linux has: its jobs would wait for a day."""
    named = [(f"runners[{number}]", one.labels) for number, one in enumerate(runners.runners)]
    if runners.hosted is not None:
        named.append((HOSTED, runners.hosted.labels))
    for where, labels in named:
        for label in labels:
            if not _has_runner(label):
                own = f"one of GitHub's, such as {GITHUBS_OWN}, or of your own"
                raise QueueError(
                    f"{path}: {where}.labels: {label} is a label that no runner with Linux has",
                    hint=f"name {own if where == HOSTED else 'one of your own'}",
                )


def _has_runner(label: str) -> bool:
    release = _RELEASE.fullmatch(label)
    if release:
        year, month = int(release[1]), release[2]
        return year >= _OLDEST and year % 2 == 0 and month == "04"
    return not re.match(r"(?:windows|macos)(?:-|$)", label, re.IGNORECASE)


def restricted(fleet: Fleet, wanted: Sequence[str]) -> Runners:
    """Return the runners of a fleet that a user means."""
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
