"""The operation log: commits, on a ref of the queue's git repository, of each change."""

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
from contribbot.errors import CommandError, UsageError
from contribbot.git.repository import Store, git_environment, quoted
from contribbot.model.base import Model
from contribbot.model.patch import PatchFile, digest_of

#: A ref under `refs/worktree`, so that each work tree of the repository has its own log.
_REF: Final = "refs/worktree/contribbot/queue"
_CACHES: Final = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_JOURNAL: Final = re.compile(r"history/[^/]+/journal\.jsonl")
_FORMAT: Final = "%x1e%H%x1f%P%x1f%at%x1f%s%x1f%(trailers:key=Kind,valueonly,separator=)%x1f"
_WITHOUT_GIT: Final = "git init there; from then on each operation is logged"

#: A commit's kind: the state before an operation, after one, or with a version's files.
Kind = Literal["state", "operation", "version"]
_KINDS: Final[dict[str, Kind]] = {"state": "state", "version": "version"}


class Operation(Model):
    """A line of `queue log`: an operation of contribbot, or changes made by hand."""

    commit: str
    time: datetime
    summary: str
    #: The patches in whose folders the operation changed a file.
    patches: tuple[str, ...] = ()


class OperationList(Model):
    """The JSON document of `queue log`: the operations, newest first."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Inverse:
    """The file contents that undo an operation; None: the file must be deleted."""

    summary: str
    files: Mapping[str, bytes | None]


@dataclass(frozen=True)
class _LogEntry:
    commit: str
    parent: str
    operation: Operation
    kind: Kind
    #: Whether a file in `patches/` differs from the previous commit of the log.
    differs: bool


@dataclass(frozen=True)
class OperationLog:
    """The operation log of one queue; a caller that writes holds the queue's lock."""

    folder: Path
    store: Store
    ref: str
    #: The queue's folder in the repository, with a slash at the end; empty: the top folder.
    prefix: str

    @classmethod
    def find(cls, folder: Path) -> OperationLog | None:
        """Return a queue's operation log; None: the queue is in no git repository."""
        command = ["git", "rev-parse", "--absolute-git-dir", "--show-prefix"]
        try:
            done = process.run(command, cwd=folder, env=git_environment())
        except CommandError:
            return None
        git_dir, _, prefix = done.stdout.decode("utf-8", "surrogateescape").partition("\n")
        prefix = prefix.rstrip("\n")
        # Several queues in one repository have a ref each.
        suffix = f"-{hashlib.sha256(prefix.encode()).hexdigest()[:8]}" if prefix else ""
        return cls(folder, Store(Path(git_dir)), _REF + suffix, prefix)

    @classmethod
    def require(cls, folder: Path) -> OperationLog:
        """Return a queue's operation log; raise UsageError if no git repository has the queue."""
        if found := cls.find(folder):
            return found
        why = "the queue is in no git repository, so that its operations are not logged"
        raise UsageError(f"{folder}: {why}", hint=_WITHOUT_GIT)

    def _git(self, *args: str, stdin: bytes = b"") -> bytes:
        # Run no hook of the user, and do not quote file names.
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
        return self.store.git(*settings, *args, stdin=stdin, cwd=self.folder).stdout

    def record(self, kind: Kind, summary: str, extra: Iterable[str]) -> None:
        """Commit the files in `patches/`, and the `extra` files of an operation, to the log."""
        others = [path for path in extra if not path.startswith((".contribbot/", "patches/"))]
        message = f"{summary}\n\nKind: {kind}\n".encode()
        person = f"contribbot <contribbot@localhost> {int(time.time())} +0000"
        rows = [f"commit {self.ref}\nauthor {person}\ncommitter {person}\n".encode()]
        rows.append(b"data %d\n%s" % (len(message), message))
        if self.store.resolve(self.ref):
            rows.append(f"from {self.ref}^0\n".encode())
        rows.append(b"deleteall\n")
        for path in (*self._owned(), *others):
            place = self.folder / path
            if place.is_file():
                mode = b"100755" if os.access(place, os.X_OK) else b"100644"
                content = place.read_bytes()
                rows.append(b"M %s inline %s\n" % (mode, quoted(path)))
                rows.append(b"data %d\n%s\n" % (len(content), content))
        self._git("fast-import", "--quiet", "--done", stdin=b"".join([*rows, b"\ndone\n"]))

    def _owned(self) -> Iterator[str]:
        """Yield the paths of all files in `patches/`, except caches of Python and its tools."""
        for around, folders, files in os.walk(self.folder / "patches", followlinks=True):
            folders[:] = sorted(set(folders) - _CACHES)
            inside = Path(around).relative_to(self.folder).as_posix()
            yield from (f"{inside}/{name}" for name in sorted(files) if not name.endswith(".pyc"))

    def _entries(self, *options: str) -> Iterator[_LogEntry]:
        """Yield the commits of the log, newest first."""
        if not self.store.resolve(self.ref):
            return
        shown = ("log", f"--format={_FORMAT}", "--name-only", "--no-renames")
        output = self._git(*shown, self.ref, *options, "--").decode("utf-8", "replace")
        for row in output.split("\x1e")[1:]:
            commit, parent, seconds, summary, kind, names = row.split("\x1f")
            parts = [name.split("/") for name in names.split("\n")]
            operation = Operation(
                commit=commit,
                time=datetime.fromtimestamp(int(seconds), UTC),
                summary=summary,
                patches=tuple(
                    sorted({part[1] for part in parts if part[0] == "patches" and part[2:]})
                ),
            )
            differs = any(part[0] == "patches" for part in parts)
            yield _LogEntry(commit, parent, operation, _KINDS.get(kind, "operation"), differs)

    def operations(self, patch: str = "") -> list[Operation]:
        """Return the operations on all patches, or on one patch, newest first."""
        done = []
        for entry in self._entries():
            operation = entry.operation
            if entry.kind in {"state", "version"}:
                # A state that differs from the previous commit shows changes by hand.
                if not entry.parent or not entry.differs:
                    continue
                operation = operation.model_copy(update={"summary": "changed by hand"})
            if not patch or patch in operation.patches:
                done.append(operation)
        return done

    def inverse(self) -> Inverse:
        """Return the changes of files that undo the last operation."""
        entry = next((each for each in self._entries() if each.kind == "operation"), None)
        if entry is None:
            raise UsageError(
                "no operation is logged yet, so that there is nothing to undo",
                hint="the first change of the queue begins the log",
            )
        before, after = self._tree(entry.parent), self._tree(entry.commit)
        changed = _differing(before, after)
        now = self._present(changed)
        files = {path: before.get(path) for path in changed if not _JOURNAL.fullmatch(path)}
        if edited := [path for path in files if now.get(path) != after.get(path)]:
            raise UsageError(
                f"{edited[0]} has changed since {entry.operation.summary!r}, by hand or by git: "
                "nothing was taken back",
                hint=f"git show {entry.commit[:12]}:{edited[0]} prints the file as the operation "
                "left it; with that content, undo goes on",
            )
        # Undo removes no line of a journal: a renamed journal moves back with all its lines.
        moved = [path for path in changed if _JOURNAL.fullmatch(path)]
        gone = [path for path in moved if path not in after]
        come = [path for path in moved if path not in before]
        for old, new in zip(gone, come, strict=False):
            files |= {old: now.get(new), new: None}
        return Inverse(entry.operation.summary, files)

    def _present(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the present contents of the files among some paths."""
        places = {path: self.folder / path for path in paths if path}
        return {path: place.read_bytes() for path, place in places.items() if place.is_file()}

    def _listed(self, tree: str, *paths: str) -> list[tuple[str, str, int]]:
        """Return path, blob id and size of each file in a tree."""
        rows = self._git("ls-tree", "-r", "-l", "-z", tree, *paths).decode().split("\0")
        listed = []
        for row in filter(None, rows):
            facts, _, path = row.partition("\t")
            _, _, blob, size = facts.split()
            listed.append((path, blob, int(size)))
        return listed

    def _tree(self, commit: str) -> dict[str, bytes]:
        """Return the contents of all files of a commit, by path."""
        return {path: self.store.read(blob) for path, blob, _ in self._listed(commit)}

    def _patch_trees(self) -> Iterator[str]:
        """Yield the trees of commits to patch files: the operation log's, then the user's."""
        for ref, prefix in ((self.ref, ""), ("HEAD", self.prefix)):
            if self.store.resolve(ref):
                changed = ("--full-history", ref, "--", f":(glob){prefix}patches/*/*.patch")
                for commit in self._git("log", "--format=%H", *changed).decode().split():
                    yield f"{commit}:{prefix}"

    def patch_files(self, sizes: Mapping[str, int], digest: str) -> tuple[PatchFile, ...] | None:
        """Return the patch files with these sizes and digest, of any patch; None: not found."""
        for tree in self._patch_trees():
            folders: dict[str, dict[str, tuple[str, int]]] = {}
            for path, blob, size in self._listed(tree, "patches/"):
                folder, _, name = path.rpartition("/")
                if folder.count("/") == 1 and name.endswith(".patch"):
                    folders.setdefault(folder, {})[name] = (blob, size)
            for found in folders.values():
                if {name: size for name, (_, size) in found.items()} != sizes:
                    continue
                files = tuple(PatchFile(name, self.store.read(found[name][0])) for name in sizes)
                if digest_of(files) == digest:
                    return files
        return None


def _differing(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
