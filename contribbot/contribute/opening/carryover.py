"""A patch's commits merged onto the newest commit of its upstream's branch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from contribbot.contribute.opening.base import Base, Blocked, Target, make_base
from contribbot.errors import OpeningError, UsageError
from contribbot.files import run_folder
from contribbot.git.apply import Conflict, Series
from contribbot.git.merge import Fate, Moving, Picked, move
from contribbot.git.patch_format import changes, raw_changes
from contribbot.git.repository import GONE, Store, content_of, read_commit
from contribbot.git.source import Progress
from contribbot.github.git_objects import SUBMODULE, Author, Entry
from contribbot.lifecycle.stack import land, own_pin, series_of, with_dependencies
from contribbot.queue.load import Queue

_REBASE: Final = "move it to a newer release: contribbot rebase; nothing was written"
_AUTHOR: Final = re.compile(
    rb"(?P<name>.*?) ?<(?P<email>[^>]*)> (?P<seconds>-?[0-9]+) (?P<sign>[+-])(?P<zone>[0-9]{4})",
    re.DOTALL,
)


@dataclass(frozen=True)
class Made:
    """A commit that is to be made on GitHub."""

    patch: str
    file: str
    author: Author
    message: str
    #: What it changes in the tree of the commit before it.
    changes: tuple[Entry, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class Carried:
    """A patch on the upstream's branch."""

    #: The commits, in order; of a stack those below it first.
    commits: tuple[Made, ...]
    #: The bytes of every blob that the branch may not have, by id.
    contents: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def carry_onto(queue: Queue, name: str, target: Target, *, progress: Progress) -> Carried:
    """Carry a patch, and what it depends on, onto a branch of its upstream.

    GitHub is read, and nothing outside the cache is written.
    """
    landed = land(queue, own_pin(queue, name), progress=progress)
    store = landed.store
    names = with_dependencies(queue, [name])
    where = f"{target.repository}@{target.tip.name}"
    with run_folder() as scratch:
        series = series_of(queue, names, landed, scratch=scratch)
        _check(series, name)
        chain = [one.commit for found in series.values() for one in found.applied]
        paths = sorted({path for _, _, path in raw_changes(store, chain)})
        base = make_base(store, landed.commit, paths, target)
        if isinstance(base, Blocked):
            file = series[name].applied[0].file
            raise _moved(name, Conflict(file, base.path, where, 0, base.why))
        moving = [Moving(one, tuple(queue.below(one)), series[one]) for one in names]
        with store.exclusive():
            moved = move(
                store, moving, old=landed.commit, new=base.commit, pin=where, scratch=scratch,
                files=False,
            )  # fmt: skip
        by_name = {one.name: one for one in moved}
        conflict = next((one.conflicts[0] for one in moved if one.conflicts), None)
        if conflict is not None:
            raise _moved(name, conflict)
        if by_name[name].fate is Fate.BLOCKED:
            raise OpeningError(f"{name}: {by_name[name].why}", hint=_REBASE)
        if by_name[name].fate is Fate.UPSTREAM:
            raise OpeningError(
                f"{name}: {where} has all of it: it is upstream already",
                hint="see `contribbot status --against` a newer release",
            )
        notes = tuple(
            f"{where} has all of {one.name} already" if one.fate is Fate.UPSTREAM else one.why
            for one in moved
            if one.fate is Fate.UPSTREAM or (one.commits and one.why)
        )
        return _read(store, base, by_name[name].row, frozenset(paths), notes, where=where)


def _check(series: Mapping[str, Series], name: str) -> None:
    """Refuse a patch that does not apply to its own pin, or has nothing to give."""
    for one, found in series.items():
        if found.conflicts:
            raise UsageError(
                f"{one} does not apply to its own pin: {found.conflicts[0].headline}",
                hint=f"mend it first: contribbot verify {one}",
            )
    if not series[name].applied:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")


def _read(
    store: Store,
    base: Base,
    row: Sequence[Picked],
    paths: frozenset[str],
    notes: tuple[str, ...],
    *,
    where: str,
) -> Carried:
    """Describe commits, with the bytes of the blobs that are new with them."""
    made: list[Made] = []
    contents: dict[str, bytes] = {}
    below = base.commit
    with store.open() as repo:
        for one in row:
            found = changes(store, below, one.commit)
            stray = next((change.path for change in found if change.path not in paths), "")
            if stray:
                why = f"a rename there would take it to {stray}"
                raise _moved(row[-1].patch, Conflict(one.file, stray, where, 0, why))
            contents |= {
                change.blob: content_of(repo, change.blob)
                for change in found
                if change.mode not in {GONE, SUBMODULE} and change.blob not in base.blobs
            }
            origin = read_commit(content_of(repo, one.commit))
            # What goes comes first: a file may take the place of a folder.
            ordered = sorted(found, key=lambda change: change.mode != GONE)
            entries = tuple(
                Entry(change.path)
                if change.mode == GONE
                else Entry(change.path, change.mode, change.blob)
                for change in ordered
            )
            message = origin.message.decode("utf-8")
            made.append(Made(one.patch, one.file, _person(origin.author), message, entries))
            below = one.commit
    return Carried(tuple(made), contents, notes)


def _person(author: bytes) -> Author:
    """Read an author line of a commit."""
    found = _AUTHOR.fullmatch(author)
    assert found is not None  # noqa: S101  git wrote the line
    zone = found["zone"]
    offset = timedelta(hours=int(zone[:2]), minutes=int(zone[2:]))
    place = timezone(-offset if found["sign"] == b"-" else offset) if offset else UTC
    return Author(
        name=found["name"].decode("utf-8"),
        email=found["email"].decode("utf-8"),
        date=datetime.fromtimestamp(int(found["seconds"]), place),
    )


def _moved(name: str, conflict: Conflict) -> OpeningError:
    """Return the error for a patch that the branch moved away from."""
    place = f"hunk {conflict.hunk} of {conflict.path}" if conflict.hunk else conflict.path
    line = f", near line {conflict.line}" if conflict.line else ""
    return OpeningError(
        f"{name}: {conflict.pin} moved so that the patch no longer applies:"
        f" {conflict.patch_file}: {place}{line}: {conflict.why}",
        hint=_REBASE,
    )
