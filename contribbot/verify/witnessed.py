"""Which lines of a running file are the lines that a patch adds."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What coverage calls the lines that run under a test, and those that run before one.
TESTING: Final = "test"
IMPORTING: Final = "import"


@dataclass(frozen=True)
class Witnessed:
    """A file of which the executed lines are wanted.

    Attributes:
        path: Its path in the tree.
        lines: The lines that the patch adds to it: the number of each in the file that
            runs, and in the tree's. They differ where the change was merged onto
            another release's file.
    """

    path: str
    lines: Mapping[int, int]


def find_again(wanted: Sequence[int], file: Path, runs: Path) -> dict[int, int]:
    """Return the numbers of a tree's lines in the file that runs in its place, and their own."""
    there, here = (one.read_bytes().splitlines() if wanted else [] for one in (runs, file))
    if there == here:
        return {line: line for line in wanted}
    same = difflib.SequenceMatcher(None, there, here, autojunk=False).get_matching_blocks()
    again = {b + step + 1: a + step + 1 for a, b, size in same for step in range(size)}
    return {again[line]: line for line in wanted if line in again}
