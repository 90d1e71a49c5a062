"""Applying the files of a patch in the object store, without a work tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import CommandError, QueueError
from contribbot.model.patch import PatchFile
from contribbot.store.conflict import Conflict, explain
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
    everywhere.

    Args:
        store: Holds the base; gets the new objects.
        base: The commit to start from.
        files: The `git format-patch` files.
        pin: How to call the base in a message.
        scratch: A folder for temporary files.

    Raises:
        QueueError: A file is no mail that git can read, or is corrupt.
        CommandError: git failed for another reason.
    """
    applied: list[Applied] = []
    commit = base
    for file in files:
        mail = _read_mail(store, file, scratch)
        # What mailinfo took out of the mail: it may have been encoded for the way.
        diff = PatchFile(file.name, mail.diff)
        outcome = _apply_one(store, commit, diff, pin=pin, scratch=scratch)
        if isinstance(outcome, tuple):
            return Series(base, tuple(applied), outcome)
        env = {
            **mail.author,
            "GIT_COMMITTER_NAME": "contribbot",
            "GIT_COMMITTER_EMAIL": "contribbot@localhost",
            "GIT_COMMITTER_DATE": mail.author["GIT_AUTHOR_DATE"],
        }
        try:
            made = store.git(
                "commit-tree", outcome.tree, "-p", commit, stdin=mail.message.encode(), env=env
            )
        except CommandError as error:
            # The author or the date of the patch: all else is contribbot's own.
            raise QueueError(
                f"{file.name}: {error.stderr.splitlines()[-1]}",
                hint="write it again with `git format-patch`",
            ) from error
        commit = made.stdout.decode().strip()
        applied.append(
            Applied(
                file.name, mail.subject, mail.message, commit, outcome.tree, outcome.adjustments
            )
        )
    return Series(base, tuple(applied), ())


@dataclass(frozen=True)
class _Mail:
    subject: str
    message: str
    author: dict[str, str]
    diff: bytes


@dataclass(frozen=True)
class _Fitted:
    tree: str
    adjustments: tuple[Adjustment, ...]


def _read_mail(store: Store, file: PatchFile, scratch: Path) -> _Mail:
    """Read author, date and message with the program that `git am` uses for it."""
    body_path, diff_path = scratch / "message", scratch / "diff"
    try:
        done = store.git("mailinfo", "-b", body_path, diff_path, stdin=file.content, cwd=scratch)
    except CommandError as error:
        raise QueueError(
            f"{file.name}: git cannot read it as a mail: {error.stderr}",
            hint="write it again with `git format-patch`",
        ) from error
    try:
        rows = done.stdout.decode("utf-8").splitlines()
        body = body_path.read_bytes().decode("utf-8").strip("\n")
    except UnicodeDecodeError as error:
        raise QueueError(
            f"{file.name}: its author or message is not UTF-8",
            hint="write it again with `git format-patch`",
        ) from error
    head: dict[str, str] = {}
    for row in rows:
        key, _, value = row.partition(": ")
        head[key] = value
    for key in ("Author", "Email", "Subject", "Date"):
        if not head.get(key, "").strip():
            raise QueueError(
                f"{file.name}: no {key.lower()} in its header",
                hint="write it again with `git format-patch`",
            )
    message = head["Subject"] + ("\n\n" + body if body else "") + "\n"
    author = {
        "GIT_AUTHOR_NAME": head["Author"],
        "GIT_AUTHOR_EMAIL": head["Email"],
        "GIT_AUTHOR_DATE": head["Date"],
    }
    return _Mail(head["Subject"], message, author, diff_path.read_bytes())


def _apply_one(
    store: Store, commit: str, file: PatchFile, *, pin: str, scratch: Path
) -> _Fitted | tuple[Conflict, ...]:
    """Apply one file to an index of the commit's tree; with less context only if need be."""
    index = {"GIT_INDEX_FILE": str(scratch / "index")}
    store.git("read-tree", commit, env=index)
    for context in _CONTEXTS:
        done = store.git(
            "apply", "--cached", "--verbose", "--whitespace=nowarn", f"-C{context}", "-",
            stdin=file.content, env=index, accept=(0, 1, 128),
        )  # fmt: skip
        said = done.stderr.decode("utf-8", "replace")
        if done.returncode == 0:
            tree = store.git("write-tree", env=index).stdout.decode().strip()
            return _Fitted(tree, _adjustments(said))
        if "corrupt patch" in said or "No valid patches" in said or done.returncode != 1:
            raise QueueError(
                f"{file.name}: {said.strip().splitlines()[-1]}",
                hint="write it again with `git format-patch`",
            )
    return explain(store, commit, file, pin=pin, scratch=scratch)


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
