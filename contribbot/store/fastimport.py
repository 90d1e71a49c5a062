"""Writing a tree into a store as one commit, with `git fast-import`.

Nothing is unpacked to a disk and no index is kept: each file goes from its
archive straight into one pack. The commit depends on nothing but the files and
the message, so the same archive gives the same commit on every machine.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import IO, Final

from contribbot import process
from contribbot.errors import CommandError
from contribbot.store.repository import Store, git_environment

_IDENTITY: Final = b"contribbot <contribbot@localhost> 0 +0000"
_ARGV: Final = (
    # Stored, not deflated: deflating costs as much again as everything else of an
    # import, and every stage that reads the tree would inflate it again
    # (benchmarks/import_tree.py). The price is disk: about twice the bytes.
    "-c", "core.compression=0",
    # One pack whatever the number of files; loose objects are slow to write and read.
    "-c", "fastimport.unpackLimit=0",
    "fast-import", "--done", "--quiet", "--date-format=raw",
    # No deltas: consecutive files of a tree have little in common.
    "--depth=0",
    # A ref that is there already comes from a pack that was lost; write it anew.
    "--force",
)  # fmt: skip


class Mode(enum.Enum):
    """What git knows about a file besides its bytes."""

    FILE = b"100644"
    EXECUTABLE = b"100755"
    #: The bytes are the target of the link.
    SYMLINK = b"120000"


class TreeWriter:
    """Takes the files of one tree, in any order, each path once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def add(self, path: str, mode: Mode, size: int, pieces: Iterable[bytes]) -> None:
        """Write a file."""
        head = b"M %s inline %s\ndata %d\n" % (mode.value, quoted(path), size)
        left = size
        for piece in pieces:
            left -= len(piece)
            # The first piece goes out with its header: one write for nearly every file.
            self._stream.write(head + piece)
            head = b""
        if left:
            raise ValueError(f"{path}: announced {size} bytes, got {size - left}")
        self._stream.write(head + b"\n")

    def copy(self, source: str, path: str) -> None:
        """Write a file that equals one that was written before (a hard link)."""
        self._stream.write(b"C %s %s\n" % (quoted(source), quoted(path)))


@contextlib.contextmanager
def import_tree(
    store: Store, *, ref: str, message: str, timeout: float = 600.0
) -> Iterator[TreeWriter]:
    """Write one commit without parents, and name it by a ref.

    The ref is written by fast-import when all else is on the disk. When the
    block raises, or this process is killed inside it, there is no ref. Call it
    inside `store.exclusive()`.
    """
    text = message.encode()
    try:
        with process.feed(
            ["git", f"--git-dir={store.path}", *_ARGV],
            cwd=store.path,
            env=git_environment(),
            timeout=timeout,
        ) as stream:
            _widen(stream)
            stream.write(
                b"commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n"
                % (ref.encode(), _IDENTITY, _IDENTITY, len(text), text)
            )
            yield TreeWriter(stream)
            stream.write(b"\ndone\n")
    except CommandError as error:
        _sweep(store)
        # fast-import has words of its own for a full disk.
        if "Out of diskspace" in error.stderr:
            raise process.no_space(str(store.path)) from error
        raise
    except BaseException:
        _sweep(store)
        raise


def _sweep(store: Store) -> None:
    """Remove what a failed import leaves beside the packs, and git's report of the crash."""
    for pattern in ("objects/pack/tmp_*", "fast_import_crash_*"):
        for leftover in store.path.glob(pattern):
            leftover.unlink(missing_ok=True)


def quoted(path: str) -> bytes:
    """Return a path as fast-import reads it: in quotes, byte for byte."""
    raw = path.encode("utf-8", "surrogateescape")
    return b'"%s"' % raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _widen(stream: IO[bytes]) -> None:
    """Let the pipe hold more, so that reader and writer wait less for each other."""
    import fcntl  # noqa: PLC0415  not on every platform

    # A limit of the machine may forbid it, and the import works all the same.
    with contextlib.suppress(OSError):
        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, 2**20)
