"""Applying the files of a patch in the object store, without a work tree.

The patches are read and applied in memory wherever their hunks fit exactly;
one process reads what they touch, and one writes all commits. `git apply` is
asked only about the rest, on an index that holds what the patch names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError
from contribbot.model.patch import PatchFile
from contribbot.store.commits import Commit, committer, write_commits
from contribbot.store.conflict import Conflict, explain
from contribbot.store.difftext import Part, read_diff
from contribbot.store.fit import apply_parts
from contribbot.store.indexed import Indexed
from contribbot.store.mail import Mail, author_line, read_mail
from contribbot.store.overlay import Change, Overlay
from contribbot.store.repository import Store

_CHECKING: Final = re.compile(r"^Checking patch (?P<path>.*?)\.\.\.$")
_OFFSET: Final = re.compile(
    r"^Hunk #(?P<hunk>\d+) succeeded at (?P<line>\d+) \(offset (?P<offset>-?\d+) lines?\)\.$"
)
_FUZZ: Final = re.compile(
    r"^Context reduced to \((?P<before>\d+)/(?P<after>\d+)\) to apply fragment at (?P<line>\d+)$"
)
#: git format-patch writes three lines of context; fewer is a guess that must be said.
_CONTEXTS: Final = (3, 2, 1)


@dataclass(frozen=True)
class Adjustment:
    """Something that git had to allow for so that a hunk fits.

    Attributes:
        path: The file.
        line: Where the hunk went, from 1.
        offset: Lines between that and where the patch says; 0 for fuzz.
        fuzz: Lines of context that did not match and were ignored.
    """

    path: str
    line: int
    offset: int
    fuzz: int

    @property
    def phrase(self) -> str:
        """Say it in one phrase."""
        if self.fuzz:
            return f"{self.path}:{self.line} with fuzz {self.fuzz}"
        return f"{self.path}:{self.line} at offset {self.offset:+d}"


@dataclass(frozen=True)
class Applied:
    """One patch file as a commit.

    Attributes:
        file: The patch file's name.
        subject: The commit's subject.
        message: The commit's whole message.
        commit: The commit's id.
        tree: Its tree.
        adjustments: What did not fit exactly.
    """

    file: str
    subject: str
    message: str
    commit: str
    tree: str
    adjustments: tuple[Adjustment, ...]


@dataclass(frozen=True)
class Series:
    """What came of applying patch files in order.

    Attributes:
        base: The commit that they were applied on.
        applied: The commits that were made.
        conflicts: Why the next one did not apply; empty when all did.
    """

    base: str
    applied: tuple[Applied, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def commit(self) -> str:
        """The last commit."""
        return self.applied[-1].commit if self.applied else self.base


def apply_series(
    store: Store, base: str, files: Sequence[PatchFile], *, pin: str, scratch: Path
) -> Series:
    """Apply patch files in order, each as one commit as `git am` would make it.

    Author, date and message come from the patch; the committer is contribbot at
    the author's date, so that the same series gives the same commit ids
    everywhere. Call it inside `store.exclusive()`.
    """
    read, unreadable = _read(store, files, scratch)
    run = _Run(store, base, pin, scratch)
    run.tree.prefetch(part.path for one in read for part in one.parts or ())
    for one in read:
        conflicts = run.apply(one)
        if conflicts:
            return Series(base, tuple(run.applied), conflicts)
    if unreadable is not None:
        raise unreadable
    run.write()
    return Series(base, tuple(run.applied), ())


@dataclass(frozen=True)
class _Read:
    """A patch file, read."""

    file: PatchFile
    mail: Mail
    parts: tuple[Part, ...] | None


def _read(
    store: Store, files: Sequence[PatchFile], scratch: Path
) -> tuple[list[_Read], QueueError | None]:
    """Read patch files up to the first that cannot be read."""
    found: list[_Read] = []
    for file in files:
        try:
            mail = read_mail(store, file, scratch)
        except QueueError as error:
            # Those before it are tried first: one may be the reason.
            return found, error
        # What was taken out of the mail: it may have been encoded for the way.
        found.append(_Read(PatchFile(file.name, mail.diff), mail, read_diff(mail.diff)))
    return found, None


class _Run:
    """The tree, and the commits on the way."""

    def __init__(self, store: Store, base: str, pin: str, scratch: Path) -> None:
        self.tree = Overlay(store, base)
        self.applied: list[Applied] = []
        self._store = store
        self._tip = base
        self._pin = pin
        self._scratch = scratch
        self._commits: list[Commit] = []

    def apply(self, one: _Read) -> tuple[Conflict, ...]:
        """Apply a patch; return why it does not apply, or nothing."""
        adjustments: tuple[Adjustment, ...] = ()
        changes = apply_parts(self.tree, one.parts) if one.parts else None
        if changes is None:
            outcome = self._ask_git(one.file)
            if outcome is None:
                return explain(
                    self._store, self._tip, one.file, pin=self._pin, scratch=self._scratch
                )
            changes, adjustments = outcome
        author = author_line(self._store, one.file.name, one.mail)
        message = one.mail.stored_message
        made = Commit(
            self.tree.tree(), self._tip, author, committer(author), message, tuple(changes)
        )
        self._commits.append(made)
        self._tip = made.id
        self.applied.append(
            Applied(
                one.file.name, one.mail.subject, one.mail.message, made.id, made.tree, adjustments
            )
        )
        return ()

    def write(self) -> None:
        """Write the commits that were made so far."""
        write_commits(self._store, self._commits)
        self._commits.clear()

    def _ask_git(self, file: PatchFile) -> tuple[list[Change], tuple[Adjustment, ...]] | None:
        """Apply with `git apply`; with less context only if need be."""
        # git must see what the patches before it made.
        self.write()
        index = Indexed(self._store, self.tree, file.content, self._scratch / "index")
        for context in _CONTEXTS:
            done = index.apply(file.content, f"-C{context}")
            said = done.stderr.decode("utf-8", "replace")
            if done.returncode == 0:
                return index.take(), _adjustments(said)
            if "corrupt patch" in said or "No valid patches" in said or done.returncode != 1:
                raise QueueError(
                    f"{file.name}: {said.strip().splitlines()[-1]}",
                    hint="write it again with `git format-patch`",
                )
        return None


def _adjustments(said: str) -> tuple[Adjustment, ...]:
    """Read what `git apply --verbose` says that it allowed for."""
    found: list[Adjustment] = []
    path = ""
    for row in said.splitlines():
        if checking := _CHECKING.match(row):
            path = checking["path"]
        elif offset := _OFFSET.match(row):
            found.append(Adjustment(path, int(offset["line"]), int(offset["offset"]), 0))
        elif fuzz := _FUZZ.match(row):
            ignored = max(_CONTEXTS) - min(int(fuzz["before"]), int(fuzz["after"]))
            # The offset that git gives just before is that of the shortened hunk: no news.
            if found and (found[-1].path, found[-1].line) == (path, int(fuzz["line"])):
                found.pop()
            found.append(Adjustment(path, int(fuzz["line"]), 0, ignored))
    return tuple(found)
