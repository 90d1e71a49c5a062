"""Running one check on one tree in a child pytest."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.files import write_atomically
from contribbot.model.patch import Check, PatchFile
from contribbot.verify.childreport import CheckRun, Scrub, read_report

#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
_REPORT: Final = "report.jsonl"


def run_check(
    check: Check,
    support: Sequence[PatchFile],
    *,
    tree: Path,
    python_roots: Sequence[str],
    witness: Sequence[str],
    threads: int,
    folder: Path,
    logs: Path,
) -> CheckRun:
    """Run a check on an exported tree.

    Args:
        check: The check.
        support: The files of the patch's `checks/`; written afresh for each run.
        tree: The exported tree.
        python_roots: Folders of the tree that go on Python's path.
        witness: Paths in the tree whose executed lines are wanted.
        threads: Threads that numerical libraries may use.
        folder: An empty folder for this run.
        logs: Where the whole output is kept, named by its digest.

    Raises:
        MachineError: The child could not be started.
    """
    checks = folder / "checks"
    for file in support:
        target = checks / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    argv = [
        "-B", "-m", "pytest", "-p", "contribbot.verify.child", "-p", "no:cacheprovider",
        "-c", str(folder / "pytest.ini"), "--rootdir", str(checks),
        "-q", "--color=no", "--tb=native", check.file,
    ]  # fmt: skip
    done = process.supervise(
        [sys.executable, *argv],
        cwd=checks,
        env=_environment(
            check,
            tree=tree,
            python_roots=python_roots,
            witness=witness,
            threads=threads,
            folder=folder,
        ),
        timeout=check.timeout,
    )
    scrub = Scrub(tree, folder)
    run = read_report(folder / _REPORT, done, tree, limit=check.timeout, scrub=scrub)
    run.command = scrub(process.describe(["python", *argv]))
    _keep_log(run, scrub(done.output.decode("utf-8", "replace")), logs)
    return run


def _environment(
    check: Check,
    *,
    tree: Path,
    python_roots: Sequence[str],
    witness: Sequence[str],
    threads: int,
    folder: Path,
) -> dict[str, str]:
    return process.clean_environment(
        {
            # Checks run side by side: each gets its share of the cores.
            "OMP_NUM_THREADS": str(threads),
            **check.env,
            "CONTRIBBOT_TREE": str(tree),
            "CONTRIBBOT_REPORT": str(folder / _REPORT),
            "CONTRIBBOT_WITNESS": json.dumps([str(tree / path) for path in witness]),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(str(tree / root) for root in python_roots),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What a check prints must be out before it crashes.
            "PYTHONUNBUFFERED": "1",
            # Only what contribbot depends on may take part, not what else is installed.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
    )


def _keep_log(run: CheckRun, text: str, logs: Path) -> None:
    """Keep the whole output under its digest."""
    content = text.encode()
    run.log = hashlib.sha256(content).hexdigest()
    run.tail = text[-_TAIL:]
    write_atomically(logs / f"{run.log}.log", content)
