"""A disposable work tree: a git repository of its own over the objects of a store.

A person works in it with plain git; `treemake` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import MachineError, UsageError
from contribbot.files import write_atomically
from contribbot.model.base import Model, ObjectId
from contribbot.store.repository import Store, git_environment

_STATE: Final = "contribbot.json"
BASE_REF: Final = "refs/contribbot/base"
#: What git keeps while something waits for the person, and what it is called.
_UNFINISHED: Final = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("MERGE_HEAD", "merge"),
    ("sequencer", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
)  # fmt: skip


class State(Model):
    """What a tree is for, kept in its `.git`.

    Attributes:
        patch: The patch.
        kind: `edit`: its commits as they are. `replay`: carried to another base.
        base: The commit below the patch's.
        opened: The digest of the patch when the tree was made.
        known: The commits that stand for a state of the patch, by the patch's digest:
            as it was opened, and as refresh took it.
        replayed: Of a replay: the commits that are carried over.
        skipped: Of a replay: those of which nothing was left.
    """

    patch: str
    kind: Literal["edit", "replay"]
    base: ObjectId
    opened: str
    known: dict[str, tuple[ObjectId, ...]] = Field(default_factory=dict)
    replayed: tuple[ObjectId, ...] = ()
    skipped: tuple[ObjectId, ...] = ()


@dataclass(frozen=True)
class Commit:
    """A commit of a tree.

    Attributes:
        id: Its id.
        subject: Its subject.
    """

    id: str
    subject: str

    def __str__(self) -> str:
        return f"{self.id[:12]} {self.subject}"


@dataclass(frozen=True)
class Pending:
    """What in a tree is in no commit.

    Attributes:
        changed: Paths that git follows and that differ from the last commit.
        unmerged: Those of them with a conflict that is not resolved.
        unstaged: Those of them that differ from what is staged.
        untracked: Paths that git does not follow.
    """

    changed: tuple[str, ...]
    unmerged: tuple[str, ...]
    unstaged: tuple[str, ...]
    untracked: tuple[str, ...]


class Tree:
    """An open work tree."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.state = state

    @classmethod
    def read(cls, path: Path) -> Tree:
        """Read the tree in a folder."""
        try:
            state = State.model_validate_json((path / ".git" / _STATE).read_bytes())
        except (OSError, ValidationError) as error:
            raise MachineError(
                f"{path}: not a work tree of contribbot any more: .git/{_STATE} cannot be read",
                hint="save what you need from it, and remove the folder",
            ) from error
        return cls(path, state)

    def save(self, state: State) -> None:
        """Write what the tree is for."""
        write_atomically(
            self.path / ".git" / _STATE, state.model_dump_json(indent=2).encode() + b"\n"
        )
        self.state = state

    def git(
        self,
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        accept: Sequence[int] = (0,),
    ) -> process.Completed:
        """Run git on the tree, with no setting but those that the tree was made with."""
        return process.run(
            ["git", f"--git-dir={self.path / '.git'}", f"--work-tree={self.path}", *args],
            cwd=self.path,
            env=git_environment({"GIT_NO_REPLACE_OBJECTS": "1", **(env or {})}),
            stdin=stdin,
            timeout=timeout,
            accept=accept,
        )

    def head(self) -> str:
        """Return the commit that is checked out."""
        return self.git("rev-parse", "--verify", "HEAD^{commit}").stdout.decode().strip()

    def resolve(self, name: str) -> str:
        """Return the commit that a name stands for, or nothing."""
        done = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", accept=(0, 1))
        return done.stdout.decode().strip()

    def unfinished(self) -> str:
        """Return what git operation waits for the person, such as `rebase`; or nothing."""
        for mark, name in _UNFINISHED:
            if (self.path / ".git" / mark).exists():
                return name
        return ""

    def pending(self) -> Pending:
        """Look for what is in no commit."""
        said = self.git(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal",
            "--ignore-submodules=dirty",
        ).stdout.decode("utf-8", "surrogateescape")  # fmt: skip
        rows = [(row[:2], row[3:]) for row in said.split("\0") if row]
        changed = [row for row in rows if row[0] != "??"]
        return Pending(
            changed=tuple(path for _, path in changed),
            unmerged=tuple(path for mark, path in changed if "U" in mark or mark in {"AA", "DD"}),
            unstaged=tuple(path for mark, path in changed if mark[1] != " "),
            untracked=tuple(path for mark, path in rows if mark == "??"),
        )

    def commits(self, *revisions: str) -> list[Commit]:
        """Return commits, oldest first."""
        said = self.git(
            "log", "-z", "--reverse", "--topo-order", "--encoding=UTF-8", "--format=%H %s",
            *revisions, "--",
        ).stdout.decode("utf-8", "replace")  # fmt: skip
        return [Commit(row[:40], row[41:]) for row in said.split("\0") if row]

    def own(self) -> list[Commit]:
        """Return the commits between the base and what is checked out, oldest first."""
        base = self.state.base
        held = self.git("merge-base", "--is-ancestor", base, "HEAD", accept=(0, 1, 128))
        if held.returncode:
            raise UsageError(
                f"{self.path}: what is checked out does not stand on {base[:12]} any more",
                hint=f"`git switch` to a branch that does, or `git rebase {BASE_REF}`",
            )
        return self.commits(f"{base}..HEAD")

    def lend(self, store: Store, tip: str) -> None:
        """Copy the commits above the base into the store, so that it can read them.

        Call it inside `store.exclusive()`.
        """
        listed = self.git(
            "rev-list", "--objects", "--no-object-names", tip, f"^{self.state.base}"
        ).stdout
        pack = self.git("pack-objects", "--stdout", "-q", stdin=listed).stdout
        store.git("unpack-objects", "-q", stdin=pack)
