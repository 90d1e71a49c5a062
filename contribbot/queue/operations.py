"""The operation log: each change of a queue as commits on a ref of its own git repository."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from contribbot import process
from contribbot.errors import CommandError, QueueError, UsageError
from contribbot.git.repository import git_environment, quoted
from contribbot.model.base import Model
from contribbot.model.patch import PatchFile, digest_of

#: A ref of one work tree: branches that are checked out side by side have a log each.
_REF: Final = "refs/worktree/contribbot/queue"
_CACHES: Final = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_JOURNAL: Final = re.compile(r"history/[^/]+/journal\.jsonl")
_FORMAT: Final = "%x1e%H%x1f%P%x1f%at%x1f%s%x1f%(trailers:key=Kind,valueonly,separator=)%x1f"
_WITHOUT_GIT: Final = "git init there; from then on each operation is logged"

#: A state before an operation, an operation, or a state that a version is read from.
Kind = Literal["state", "operation", "version"]


class Operation(Model):
    """One line of `queue log`: an operation, or files that somebody changed by hand."""

    commit: str
    time: datetime
    summary: str
    #: The patches whose folders differ by the operation.
    patches: tuple[str, ...] = ()


class OperationList(Model):
    """The document of `queue log --json`, newest first."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Inverse:
    """The files that take an operation back; None: the file goes."""

    summary: str
    files: Mapping[str, bytes | None]
    #: Files that were changed by hand since the operation.
    edited: tuple[str, ...]


@dataclass(frozen=True)
class _LogEntry:
    commit: str
    parent: str
    operation: Operation
    kind: Kind
    #: Whether a file of `patches/` differs from the commit before.
    differs: bool


@dataclass(frozen=True)
class OperationLog:
    """The log of one queue; all that is called takes the queue's lock before."""

    folder: Path
    git_dir: Path
    ref: str

    @classmethod
    def find(cls, folder: Path) -> OperationLog | None:
        """Find the git repository around a queue; None: the queue is not in git."""
        command = ["git", "rev-parse", "--absolute-git-dir", "--show-prefix"]
        try:
            done = process.run(command, cwd=folder, env=git_environment())
        except CommandError:
            return None
        git_dir, _, prefix = done.stdout.decode("utf-8", "surrogateescape").partition("\n")
        prefix = prefix.rstrip("\n")
        # A repository may hold several queues.
        suffix = f"-{hashlib.sha256(prefix.encode()).hexdigest()[:8]}" if prefix else ""
        return cls(folder, Path(git_dir), _REF + suffix)

    @classmethod
    def require(cls, folder: Path) -> OperationLog:
        """Return the log of a queue, or fail where the queue is not in git."""
        if found := cls.find(folder):
            return found
        why = "the queue is in no git repository, so that its operations are not logged"
        raise UsageError(f"{folder}: {why}", hint=_WITHOUT_GIT)

    def _git(self, *args: str, stdin: bytes = b"", accept: Iterable[int] = (0,)) -> bytes:
        # No hook of the user's runs, and names come as they are.
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
        done = process.run(
            ["git", f"--git-dir={self.git_dir}", *settings, *args],
            cwd=self.folder, env=git_environment(), stdin=stdin, accept=tuple(accept),
        )  # fmt: skip
        return done.stdout

    def record(self, kind: Kind, summary: str, extra: Iterable[str]) -> None:
        """Commit the files of `patches/`, with other files that an operation changes."""
        message = f"{summary}\n\nKind: {kind}\n".encode()
        person = f"contribbot <contribbot@localhost> {int(time.time())} +0000"
        rows = [f"commit {self.ref}\nauthor {person}\ncommitter {person}\n".encode()]
        rows.append(b"data %d\n%s" % (len(message), message))
        if self._tip():
            rows.append(f"from {self.ref}^0\n".encode())
        rows.append(b"deleteall\n")
        others = (path for path in extra if not path.startswith((".contribbot/", "patches/")))
        for path in (*self._owned(), *others):
            place = self.folder / path
            if place.is_file():
                mode = b"100755" if os.access(place, os.X_OK) else b"100644"
                content = place.read_bytes()
                rows.append(b"M %s inline %s\n" % (mode, quoted(path)))
                rows.append(b"data %d\n%s\n" % (len(content), content))
        self._git("fast-import", "--quiet", "--done", stdin=b"".join([*rows, b"\ndone\n"]))

    def _owned(self) -> Iterator[str]:
        """Give the files of `patches/`, without caches of checks."""
        for around, folders, files in os.walk(self.folder / "patches", followlinks=True):
            folders[:] = sorted(set(folders) - _CACHES)
            inside = Path(around).relative_to(self.folder).as_posix()
            yield from (f"{inside}/{name}" for name in sorted(files) if not name.endswith(".pyc"))

    def _tip(self) -> str:
        done = self._git("rev-parse", "--verify", "--quiet", self.ref, accept=(0, 1))
        return done.decode().strip()

    def _entries(self, *options: str) -> Iterator[_LogEntry]:
        """Give the commits of the log, newest first."""
        if not self._tip():
            return
        output = self._git("log", f"--format={_FORMAT}", "--name-only", "--no-renames",
                           self.ref, *options).decode("utf-8", "replace")  # fmt: skip
        for row in output.split("\x1e")[1:]:
            commit, parent, seconds, summary, kind, names = row.split("\x1f")
            parts = [name.split("/") for name in names.split("\n")]
            changed = {part[1] for part in parts if part[0] == "patches" and len(part) > 2}  # noqa: PLR2004  a folder and a file in it
            done = Operation(
                commit=commit, time=datetime.fromtimestamp(int(seconds), UTC), summary=summary,
                patches=tuple(sorted(changed)),
            )  # fmt: skip
            known: dict[str, Kind] = {"state": "state", "version": "version"}
            yield _LogEntry(
                commit,
                parent,
                done,
                known.get(kind, "operation"),
                any(part[0] == "patches" for part in parts),
            )

    def operations(self, patch: str = "") -> list[Operation]:
        """Return the operations of all patches, or of one, newest first."""
        done = []
        for entry in self._entries():
            operation = entry.operation
            if entry.kind != "operation":
                # A state differs from what is before where files were changed by hand.
                if not entry.parent or not entry.differs:
                    continue
                operation = operation.model_copy(update={"summary": "changed by hand"})
            if not patch or patch in operation.patches:
                done.append(operation)
        return done

    def unfinished(self) -> bool:
        """Tell whether the last operation was cut short."""
        return any(entry.kind == "state" for entry in self._entries("-1"))

    def inverse(self) -> Inverse:
        """Return the files that take back the last operation, or that which was cut short."""
        entry = next((each for each in self._entries() if each.kind != "version"), None)
        if entry is None:
            hint = "the first change of the queue begins the log"
            raise UsageError("no operation is logged yet, so that there is nothing to undo",
                             hint=hint)  # fmt: skip
        if entry.kind == "state":
            before, after = self._tree(entry.commit), dict.fromkeys(self._owned(), b"")
            wanted: dict[str, bytes | None] = dict.fromkeys(after)
            return Inverse(entry.operation.summary, wanted | before, ())
        before, after = self._tree(entry.parent), self._tree(entry.commit)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        now = {path: self._content(path) for path in changed}
        files = {path: before.get(path) for path in changed if not _JOURNAL.fullmatch(path)}
        # A journal is only ever added to: where it moved, it moves back with what it has now.
        moved = [path for path in changed if _JOURNAL.fullmatch(path)]
        gone = [path for path in moved if path not in after]
        come = [path for path in moved if path not in before]
        for old, new in zip(gone, come, strict=False):
            files |= {old: now[new], new: None}
        edited = tuple(path for path in files if path not in moved and now[path] != after.get(path))
        return Inverse(entry.operation.summary, files, edited)

    def _content(self, path: str) -> bytes | None:
        place = self.folder / path
        return place.read_bytes() if place.is_file() else None

    def _listed(self, commit: str, *paths: str) -> list[tuple[str, str, int]]:
        """Return path, blob and size of the files of a commit."""
        rows = self._git("ls-tree", "-r", "-l", "-z", commit, *paths).decode().split("\0")
        parts = [row.partition("\t") for row in rows if row]
        return [(path, *_blob(facts)) for facts, _, path in parts]

    def _tree(self, commit: str) -> dict[str, bytes]:
        """Return the files of a commit."""
        return {path: self._read(blob) for path, blob, _ in self._listed(commit)}

    def _read(self, blob: str) -> bytes:
        return self._git("cat-file", "blob", blob)

    def patch_files(self, sizes: Mapping[str, int], digest: str) -> tuple[PatchFile, ...]:
        """Find the patch files that have a digest, under whatever name the patch had then."""
        for entry in self._entries("--", ":(glob)patches/*/*.patch"):
            folders: dict[str, dict[str, tuple[str, int]]] = {}
            for path, blob, size in self._listed(entry.commit, "patches/"):
                folder, _, name = path.rpartition("/")
                if folder.count("/") == 1 and name.endswith(".patch"):
                    folders.setdefault(folder, {})[name] = (blob, size)
            for found in folders.values():
                if {name: size for name, (_, size) in found.items()} != sizes:
                    continue
                files = tuple(PatchFile(name, self._read(found[name][0])) for name in sizes)
                if digest_of(files) == digest:
                    return files
        raise QueueError(
            f"the patch files of sha256 {digest[:12]} are not in the operation log",
            hint="a former release recorded them, perhaps as history/NAME/vN.mbox",
        )


def _blob(facts: str) -> tuple[str, int]:
    """Read mode, type, id and size of a file as ls-tree prints them."""
    _, _, blob, size = facts.split()
    return blob, int(size)
