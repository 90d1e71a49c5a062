"""vLLM's own tests of Triton kernels, unchanged, on emulated AMD GPUs: what each file comes to.

    pip install -r requirements/common.txt    # vLLM's, beside contribbot[emulate]; no vllm itself
    python -m benchmarks.vllm_tests ../vllm-0.33.0 gfx942 gfx1201 --cases 2

Runs every test file of a source tree that reaches a Triton kernel by what it imports. What imports
vLLM's compiled extension, or a package that is not there, is listed with the reason. Of each
function's cases at most so many run, by a fixed seed; the shares are those of what ran.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.table import Table

from contribbot.emulate.outcomes import OUTCOMES, EmulationReport

#: What tells the plug-in, in the processes of the tests, how many cases, and how long each.
_CASES: Final = "VLLM_TESTS_CASES"
_SECONDS: Final = "VLLM_TESTS_SECONDS"
_PLUGIN: Final = "sampled_vllm_tests"
#: What a case wants that is not here, by what it says; such cases say nothing of a kernel.
_WANTS: Final = {
    "an operator of the compiled extension": r"the operator \S+ of an extension is not there",
    "a model or data of a hub": r"Invalid repository ID|LocalEntryNotFound|[oO]ffline ?[mM]ode",
    "aiter": r"\baiter\b",
    "more time": r"the case took too long",
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


# --- The plug-in, in the processes of the tests ----------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave a sample of each function's cases."""
    if _CASES not in os.environ:
        return
    functions = dict[str, list[pytest.Item]]()
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = set[pytest.Item]()
    for name, cases in functions.items():
        chance = random.Random(f"20261123 {name}")  # noqa: S311  a sample
        chosen |= {*chance.sample(cases, min(int(os.environ[_CASES]), len(cases)))}
    items[:] = [item for item in items if item in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """End a case that takes too long."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(int(os.environ.get(_SECONDS, "0")))
    try:
        return (yield)
    finally:
        signal.alarm(0)


def _late(number: int, frame: object) -> None:
    del number, frame
    raise TimeoutError("the case took too long")


# --- The runs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What a file came to: outcomes, and what was said of them."""

    file: str
    said: Counter[tuple[str, str]]
    error: str = ""

    @property
    def told(self) -> str:
        """The row as a line of JSON."""
        said = [[*key, count] for key, count in self.said.items()]
        return json.dumps({"file": self.file, "said": said, "error": self.error})

    @classmethod
    def read(cls, line: str) -> Row:
        """Return the row of a line."""
        found = json.loads(line)
        said = Counter({(outcome, text): count for outcome, text, count in found["said"]})
        return cls(found["file"], said, found["error"])

    def count(self) -> Counter[str]:
        """Return how many cases came to each outcome."""
        counts = Counter[str]()
        for (outcome, _), number in self.said.items():
            counts[outcome] += number
        return counts


def run(checkout: Path, file: str, target: str, most: int, seconds: int) -> Row:
    """Run a file's sample on a target."""
    with tempfile.TemporaryDirectory() as folder:
        # Under a name of its own: vLLM has a folder `benchmarks`, too.
        shutil.copy(__file__, Path(folder, f"{_PLUGIN}.py"))
        paths = [str(checkout), folder, str(Path(__file__).parent.parent)]
        environment = {
            **os.environ, _CASES: str(most), _SECONDS: str(seconds),
            "PYTHONPATH": os.pathsep.join(paths),
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "contribbot", "emulate", "--json", target, "--", "pytest", "-q",
            "-p", _PLUGIN, "-p", "no:cacheprovider", "--tb=line", file,
        ]  # fmt: skip
        try:
            ran = subprocess.run(
                command, cwd=checkout, env=environment, capture_output=True, text=True,
                timeout=3600, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Row(file, Counter(), "an hour was not enough")
    if not ran.stdout:
        return Row(file, Counter(), ran.stderr.strip()[-300:])
    [report] = EmulationReport.model_validate_json(ran.stdout).targets
    if not report.tests:
        lines = [line[4:].strip() for line in ran.stderr.splitlines() if line.startswith("E  ")]
        return Row(file, Counter(), lines[-1] if lines else report.error)
    return Row(file, Counter((test.outcome, test.said) for test in report.tests))


def show(console: Console, target: str, rows: Sequence[Row]) -> None:
    """Print the table of a target, the shares, and what stopped cases."""
    table = Table("file", *OUTCOMES, title=f"{target}, emulated")
    total = Counter[str]()
    said = Counter[tuple[str, str]]()
    for row in rows:
        if not row.error:
            counts = row.count()
            table.add_row(row.file, *(str(counts[name]) for name in OUTCOMES))
            total += counts
            said += row.said
    console.print(table)
    ran = sum(total.values()) - total["skipped"]
    wants = Counter[str]()
    for (outcome, text), number in said.items():
        why = next((why for why, pattern in _WANTS.items() if re.search(pattern, text)), "")
        if why and outcome not in {"passed", "skipped"}:
            wants[why] += number
            total[outcome] -= number
    console.print(f"{ran} cases of {len(rows)} files are not skipped")
    for why, number in wants.most_common():
        console.print(f"{number} of them want {why}")
    ran -= sum(wants.values())
    shares = (f"{name} {total[name] / max(ran, 1):.1%}" for name in OUTCOMES if name != "skipped")
    console.print(f"of the other {ran}: {', '.join(shares)}")
    for (outcome, text), number in said.most_common():
        if outcome not in {"passed", "skipped"}:
            console.print(f"{outcome}, {number} cases: {text[:300]}", markup=False)
    for row in rows:
        if row.error:
            console.print(f"not run: {row.file}: {row.error}", markup=False)


def main() -> None:
    """Run the sample on each target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="an unpacked source archive of vLLM")
    parser.add_argument("targets", nargs="+", help="such as gfx942")
    parser.add_argument("--cases", type=int, default=1, help="of each function (1)")
    parser.add_argument("--seconds", type=int, default=120, help="for a case (120)")
    parser.add_argument("--files", default="*", help="a pattern of paths, such as tests/kernels/*")
    parser.add_argument(
        "--rows", type=Path, help="where to keep what was run: none of it runs again"
    )
    parser.add_argument("--list", action="store_true", help="print the files, run nothing")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    names = [name for name in files(checkout) if fnmatch.fnmatch(name, options.files)]
    if options.list:
        print("\n".join(names))
        return
    console = Console(width=140)
    for target in options.targets:
        rows = dict[str, Row]()
        kept = options.rows and options.rows.with_suffix(f".{target}.jsonl")
        if kept and kept.is_file():
            found = map(Row.read, kept.read_text("utf-8").splitlines())
            rows = {row.file: row for row in found if row.file in names}
        for name in names:
            if name in rows:
                continue
            rows[name] = run(checkout, name, target, options.cases, options.seconds)
            counts = rows[name].error or dict(rows[name].count())
            print(f"{target} {name}: {counts}", file=sys.stderr, flush=True)
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(rows[name].told + "\n")
        show(console, target, [*rows.values()])


if __name__ == "__main__":
    main()
