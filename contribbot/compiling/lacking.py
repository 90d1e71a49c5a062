"""What this machine did not give a compiler, told from what is wrong with a source."""

from __future__ import annotations

import re
from typing import Final

from contribbot import process

STARVED: Final = "killed, or out of memory"
_FULL_DISK: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: What clang's driver says of a compiler that was killed, and those that got no memory.
_NO_MEMORY: Final = re.compile(
    r"unable to execute command: Killed|LLVM ERROR: out of memory|std::bad_alloc"
    r"|[Cc]annot allocate memory|^MemoryError\b",
    re.MULTILINE,
)


def lacking(done: process.Supervised, said: str, timeout: float) -> str:
    """Say what this machine lacked for a compiler that failed, or nothing."""
    if _FULL_DISK.search(said):
        raise process.no_space("what a compiler writes")
    if done.timed_out:
        return f"not finished after {timeout:g} s"
    # Killed by whom counts: a kernel's file runs under Triton, and can end its own process.
    return STARVED if done.starved or _NO_MEMORY.search(said) else ""
