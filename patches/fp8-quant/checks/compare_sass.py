"""Say whether two CUDA libraries or cubins hold the same machine code.

    python compare_sass.py BASE PATCHED

BASE and PATCHED are the libraries that contribbot built (`CACHE/builds/*/*.so`), or cubins
made with `nvcc -cubin -arch=sm_90 …`. Needs `cuobjdump` (CUDA, or the triton wheel). Kernels
are compared by their code, not by their names: the patch renames a template argument.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path


def kernels(file: Path, tool: str) -> Counter[tuple[str, ...]]:
    """Return how often each kernel's code occurs in a library or cubin."""
    text = subprocess.run(  # noqa: S603  no shell; a file that the person names
        [tool, "-sass", file], capture_output=True, text=True, check=True
    ).stdout
    found: list[list[str]] = []
    for line in text.splitlines():
        if re.search(r"Function : \S+", line):
            found.append([])
        elif found and "/*" in line:
            found[-1].append(line.strip())
    return Counter(tuple(rows) for rows in found)


def main() -> int:
    """Compare, print, and return 0 for the same code."""
    tool = shutil.which("cuobjdump")
    if tool is None or len(sys.argv) != 3:
        sys.stderr.write("usage: compare_sass.py BASE PATCHED, with cuobjdump on PATH\n")
        return 2
    base, patched = (kernels(Path(name), tool) for name in sys.argv[1:])
    same = base == patched and base.total() > 0
    sys.stdout.write(
        f"{base.total()} and {patched.total()} kernels: {'the same' if same else 'other'} code\n"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
