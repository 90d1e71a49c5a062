"""vLLM's own tests of Triton kernels, unchanged, swept on emulated AMD GPUs.

    pip install -r requirements/common.txt tblib    # vLLM's, beside contribbot[emulate]; no vllm
    python -m benchmarks.vllm_tests ../vllm-0.33.0 sweep gfx942 gfx1201 --cases 2

Runs every test file of a source tree that reaches a Triton kernel by what it imports, with
`contribbot emulate --report`; what was run does not run again. The shares are those of what ran.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from contribbot.sweep.findings import SWEEP_OUTCOMES, SweepRow
from contribbot.sweep.folder import read_sweep

#: What a case wants that is not here, by what it says; such cases say nothing of a kernel.
_WANTS: Final = {
    "an operator of the compiled extension": r"the operator \S+ of an extension is not there",
    "a model or data of a hub": r"Invalid repository ID|LocalEntryNotFound|[oO]ffline ?[mM]ode",
    "aiter": r"\baiter\b",
    "more time": r"it took longer than",
}
#: Imports between a test file and a kernel: one is a module that calls the kernel's own.
_FAR: Final = 1


# --- The files -------------------------------------------------------------------------------


def modules(checkout: Path) -> dict[str, Path]:
    """Return vLLM's modules and tests by name."""
    paths = [*checkout.glob("vllm/**/*.py"), *checkout.glob("tests/**/*.py")]
    return {_module(path.relative_to(checkout)): path for path in paths}


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, path: Path) -> Iterator[str]:
    """Yield what a module imports, at its top and in its functions."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parts, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def files(checkout: Path) -> list[str]:
    """Return the test files that reach a Triton kernel, by their paths in the tree."""
    found = modules(checkout)
    near = {name for name, path in found.items() if "@triton.jit" in path.read_text("utf-8")}
    needs = {name: {*imports(name, path)} & found.keys() for name, path in found.items()}
    for _ in range(_FAR):
        near |= {name for name, needed in needs.items() if needed & near}
    tests = (found[name] for name in near if name.startswith("tests."))
    return sorted(str(path.relative_to(checkout)) for path in tests if path.match("test_*.py"))


# --- The runs --------------------------------------------------------------------------------


def sweep(checkout: Path, folder: Path, targets: Sequence[str], words: Sequence[str]) -> None:
    """Run pytest in the tree, as a release of vLLM that is installed."""
    with tempfile.TemporaryDirectory() as name:
        # vLLM asks for its own version.
        release = checkout.name.rpartition("-")[2]
        place = Path(name, f"vllm-{release}.dist-info")
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}\n")
        paths = [str(checkout), name, str(Path(__file__).parent.parent)]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "contribbot", "emulate", *targets, "--report", str(folder), "--",
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *words,
        ]  # fmt: skip
        subprocess.run(command, cwd=checkout, env=environment, check=False)


def shares(rows: Sequence[SweepRow]) -> Iterator[str]:
    """Yield what the tests that ran want that is not here, and what the others came to."""
    ran = [row for row in rows if row.outcome != "skipped" and "::" in row.test]
    wants = Counter[str]()
    total = Counter[str]()
    for row in ran:
        why = next((why for why, pattern in _WANTS.items() if re.search(pattern, row.said)), "")
        if why and row.outcome != "passed":
            wants[why] += 1
        else:
            total[row.outcome] += 1
    yield f"{len(ran)} cases are not skipped"
    yield from (f"{number} of them want {why}" for why, number in wants.most_common())
    others = sum(total.values())
    told = (f"{name} {total[name] / max(others, 1):.1%}" for name in SWEEP_OUTCOMES if total[name])
    yield f"of the other {others}: {', '.join(told)}"


def main() -> None:
    """Sweep, and print the shares of each target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="an unpacked source archive: vllm-VERSION")
    parser.add_argument("folder", type=Path, help="where the sweep is kept")
    parser.add_argument("targets", nargs="+", help="such as gfx942")
    parser.add_argument("--cases", type=int, default=1, help="of each function (1)")
    parser.add_argument("--seconds", type=int, default=120, help="for a case (120)")
    parser.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist (none)")
    parser.add_argument("--files", default="*", help="a pattern of paths, such as tests/kernels/*")
    options = parser.parse_args()
    checkout, folder = options.checkout.resolve(), options.folder.resolve()
    names = [name for name in files(checkout) if fnmatch.fnmatch(name, options.files)]
    words = [f"--emulate-cases={options.cases}", f"--emulate-seconds={options.seconds}", *names]
    if options.workers:
        words += ["-n", str(options.workers), "--dist", "worksteal"]
    sweep(checkout, folder, options.targets, words)
    found = read_sweep(folder)
    for target in options.targets:
        for line in shares([row for row in found.tests if row.target == target]):
            print(f"{target}: {line}")


if __name__ == "__main__":
    main()
