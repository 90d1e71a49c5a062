"""Change files of a queue together, and log each operation on a ref of the queue's git."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import Field

from contribbot import process
from contribbot.errors import (
    CommandError,
    ContribbotError,
    MachineError,
    NoSpaceError,
    QueueError,
    UsageError,
)
from contribbot.files import lock
from contribbot.git.patch_format import commit_changes
from contribbot.git.repository import Store, git_environment, quoted
from contribbot.model.base import Model
from contribbot.model.patch import PatchFile, digest_of

T = TypeVar("T")

#: A ref under `refs/worktree`, so that each work tree of the repository has its own log.
_REF: Final = "refs/worktree/contribbot/queue"
_CACHES: Final = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
#: Suffixes of files that Python, or a killed change, leaves behind.
_LEFT: Final = (".pyc", ".partial")
_JOURNAL: Final = re.compile(r"history/[^/]+/journal\.jsonl")
_FORMAT: Final = "%x1e%H%x1f%P%x1f%at%x1f%s%x1f%(trailers:key=Kind,valueonly,separator=)%x1f"
_WITHOUT_GIT: Final = "git init there; from then on each operation is logged"

#: A commit's kind: the state before an operation or before a version's event, or after one.
Kind = Literal["state", "operation"]


class Operation(Model):
    """A line of `queue log`: an operation of contribbot, or changes made by hand."""

    commit: str
    time: datetime
    summary: str
    #: The patches in whose folders the operation changed a file.
    patches: tuple[str, ...] = ()
    by_hand: bool = Field(default=False, exclude=True)


class OperationList(Model):
    """The JSON document of `queue log`: the operations, newest first."""

    operations: tuple[Operation, ...]


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
            yield from (f"{inside}/{name}" for name in sorted(files) if not name.endswith(_LEFT))

    def operations(self, patch: str = "") -> list[Operation]:
        """Return the operations on all patches, or on one patch, newest first."""
        done: list[Operation] = []
        if not self.store.resolve(self.ref):
            return done
        shown = ("log", f"--format={_FORMAT}", "--name-only", "--no-renames")
        output = self._git(*shown, self.ref, "--").decode("utf-8", "replace")
        for row in output.split("\x1e")[1:]:
            commit, parent, seconds, summary, kind, names = row.split("\x1f")
            parts = [name.split("/") for name in names.split("\n")]
            patches = {part[1] for part in parts if part[0] == "patches" and part[2:]}
            # Logs of older releases also have commits of the kind `version`.
            by_hand = kind in {"state", "version"}
            differs = any(part[0] == "patches" for part in parts)
            # A state that differs from the previous commit shows changes by hand.
            if (by_hand and not (parent and differs)) or (patch and patch not in patches):
                continue
            operation = Operation(
                commit=commit,
                time=datetime.fromtimestamp(int(seconds), UTC),
                summary="changed by hand" if by_hand else summary,
                patches=tuple(sorted(patches)),
                by_hand=by_hand,
            )
            done.append(operation)
        return done

    def inverse(self) -> tuple[str, dict[str, bytes | None]]:
        """Return the last operation, and the contents of files that undo the operation.

        None instead of a content: the file must be deleted.
        """
        last = next((each for each in self.operations() if not each.by_hand), None)
        if last is None:
            raise UsageError(
                "no operation is logged yet, so that there is nothing to undo",
                hint="the first change of the queue begins the log",
            )
        files: dict[str, bytes | None] = {}
        deleted: list[str] = []
        added: list[str] = []
        for change in commit_changes(self.store, [last.commit]):
            path = change.path
            if _JOURNAL.fullmatch(path):
                added += [path] if change.status == "A" else []
                deleted += [path] if change.status == "D" else []
                continue
            if _content(self.folder / path) != self._blob(change.blob):
                raise UsageError(
                    f"{path} has changed since {last.summary!r}, by hand or by git: "
                    "nothing was taken back",
                    hint=f"git show {last.commit[:12]}:{path} prints the file as the operation "
                    "left it; with that content, undo goes on",
                )
            files[path] = self._blob(change.old_blob)
        # Undo removes no line of a journal: a renamed journal moves back with all its lines.
        for before, after in zip(deleted, added, strict=False):
            files |= {before: _content(self.folder / after), after: None}
        return last.summary, files

    def _blob(self, object_id: str) -> bytes | None:
        # An id of nothing but zeros names no object; its length depends on the repository.
        return self.store.read(object_id) if object_id.strip("0") else None

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
            rows = self._git("ls-tree", "-r", "-l", "-z", tree, "patches/").decode().split("\0")
            for row in filter(None, rows):
                facts, _, path = row.partition("\t")
                _, _, blob, size = facts.split()
                folder, _, name = path.rpartition("/")
                if folder.count("/") == 1 and name.endswith(".patch"):
                    folders.setdefault(folder, {})[name] = (blob, int(size))
            for found in folders.values():
                if {name: size for name, (_, size) in found.items()} != sizes:
                    continue
                files = tuple(PatchFile(name, self.store.read(found[name][0])) for name in sizes)
                if digest_of(files) == digest:
                    return files
        return None


def _content(place: Path) -> bytes | None:
    return place.read_bytes() if place.is_file() else None


#: Whether this thread has a queue's lock.
_holding: Final[ContextVar[bool]] = ContextVar("_holding", default=False)


class Transaction:
    """Changes of a queue's files that take effect together; `transaction` makes this object."""

    def __init__(self, folder: Path, operation: str = "") -> None:
        self._folder, self._operation = folder, operation
        self._contents: dict[str, bytes | None] = {}
        #: Whether a journal gets a version: then the operation log must get the version's files.
        self.has_version = False

    def write(self, path: str, content: bytes | None) -> None:
        """Note a file's new content (None: see `delete`); its permissions and links stay."""
        self._contents[path] = content

    def edit(self, path: str, edited: Callable[[bytes], bytes]) -> None:
        """Note a file's new content, which the function `edited` makes of the present content."""
        content = self.read(path)
        if content is None:
            # Another process may have taken out the patch before this process got the lock.
            raise QueueError(f"{path} is gone: nothing was changed", hint="run the same again")
        self.write(path, edited(content))

    def delete(self, path: str) -> None:
        """Note that a file must be deleted, and its folder if the folder becomes empty."""
        self._contents[path] = None

    def replace_files(
        self, folder: str, old: Sequence[PatchFile], new: Sequence[PatchFile]
    ) -> None:
        """Note that a folder's old files must be deleted and new files written."""
        for file in old:
            self.delete(f"{folder}/{file.name}")
        for file in new:
            self.write(f"{folder}/{file.name}", file.content)

    def read(self, path: str) -> bytes | None:
        """Return a file's noted content, or else the content on the disk; None: no such file."""
        return self._contents[path] if path in self._contents else _content(self._folder / path)

    def commit(self) -> None:
        """Make all noted changes now."""
        changed = {
            path: new
            for path, new in self._contents.items()
            if _content(self._folder / path) != new
        }
        if changed:
            self._make(changed)

    def _make(self, changed: Mapping[str, bytes | None]) -> None:
        """Write all new files beside the old ones, then rename and delete; log the operation."""
        operation = any(path.startswith("patches/") for path in changed)
        log = OperationLog.find(self._folder) if operation or self.has_version else None
        summary = self._operation or f"change of {', '.join(changed)}"
        deleted = [path for path, content in changed.items() if content is None]
        renames: dict[Path, Path] = {}
        folders: list[Path] = []
        try:
            if log is not None:
                log.record("state", summary, changed)
            for path, content in changed.items():
                _check_writable(self._folder / path)
                if content is not None:
                    place = (self._folder / path).resolve()
                    partial = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.partial")
                    renames[partial] = place
                    folders += [each for each in reversed(place.parents) if not each.exists()]
                    _write(partial, content, place)
        except BaseException as error:
            _clean(renames, folders)
            if isinstance(error, OSError):
                raise _unchanged(error, self._folder) from error
            raise
        for partial, place in renames.items():
            partial.replace(place)
        for path in deleted:
            _delete(self._folder, path)
        if log is not None and operation:
            log.record("operation", summary, changed)


def _clean(partials: Iterable[Path], folders: Sequence[Path]) -> None:
    """Delete unfinished files, and the folders that were made for these files."""
    for partial in partials:
        with contextlib.suppress(OSError):
            partial.unlink()
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _check_writable(place: Path) -> None:
    """Raise an error for a place where no file can be written or deleted."""
    if place.is_dir():
        raise QueueError(f"{place}: a folder, where a file belongs", hint="move it away")
    folder = place.resolve().parent
    if folder.exists() and not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(folder))


def _delete(folder: Path, path: str) -> None:
    """Delete a file, and folders that become empty, except top folders such as `patches`."""
    (folder / path).unlink()
    with contextlib.suppress(OSError):
        for around in Path(path).parents[:-2]:
            (folder / around).rmdir()


def _write(partial: Path, content: bytes, place: Path) -> None:
    """Write a new file, flushed to disk, with the permissions of the old file at `place`."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("xb") as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
        os.fsync(file.fileno())


def _unchanged(error: OSError, folder: Path) -> ContribbotError:
    """Return the error for an OSError that came before any file of the queue changed."""
    place = error.filename2 or error.filename or folder
    message = f"{place}: {error.strerror or error}; the queue is as it was"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpaceError(message, hint="free some space there")
    return MachineError(message, hint="check that the folder is yours and can be written")


@contextlib.contextmanager
def hold_queue(folder: Path) -> Iterator[None]:
    """Hold the queue's lock, unless this thread holds the lock already."""
    with contextlib.ExitStack() as stack:
        try:
            if not _holding.get():
                place = folder / ".contribbot" / "queue.lock"
                stack.enter_context(lock(place, f"the queue {folder}"))
        except OSError as error:
            raise _unchanged(error, folder) from error
        token = _holding.set(True)
        try:
            yield
        finally:
            _holding.reset(token)


@contextlib.contextmanager
def transaction(folder: Path, operation: str = "") -> Iterator[Transaction]:
    """Hold the queue's lock, yield a transaction, and commit it if the block raises nothing."""
    with hold_queue(folder):
        changes = Transaction(folder, operation)
        yield changes
        changes.commit()


def consistent(folder: Path, read: Callable[[], T]) -> T:
    """Return what `read` returns; after a failure beside a writer, read again with the lock."""
    if (stage := folder / ".contribbot" / "change").exists():
        raise QueueError(
            f"{stage}: an earlier release left a change of the queue half made",
            hint="put the queue right, as git status shows it; then delete that folder",
        )
    try:
        return read()
    except (QueueError, OSError):
        if _holding.get() or not (folder / ".contribbot" / "queue.lock").exists():
            raise
    with hold_queue(folder):
        return read()
