"""Running one check on one tree in a child pytest."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.files import write_atomically
from contribbot.model.check import Check
from contribbot.model.outcome import HOST_TARGETS
from contribbot.model.patch import PatchFile
from contribbot.verify.childreport import read_report
from contribbot.verify.childrun import CheckRun, Trouble
from contribbot.verify.missing import missing_modules
from contribbot.verify.places import Place
from contribbot.verify.runnerfault import suspicion
from contribbot.verify.scrub import Scrub

#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
_REPORT: Final = "report.jsonl"
#: Starts the child: nothing of the tree is on Python's path yet.
_START: Final = "from contribbot.verify.child import main; main()"


def run_check(
    check: Check,
    support: Sequence[PatchFile],
    *,
    place: Place,
    env: Mapping[str, str],
    threads: int,
    folder: Path,
    logs: Path,
) -> CheckRun:
    """Run a check on a tree."""
    on_host = check.target in HOST_TARGETS
    checks = lay_out(folder, support)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    sandbox = None if process.no_sandbox() else folder
    lines = folder / "coverage.ini"
    lines.write_text(_coverage(folder, place.witnessed), encoding="utf-8")
    argv = [
        "-p", "no:cacheprovider", "-c", str(folder / "pytest.ini"), "--rootdir", str(checks),
        "-q", "--color=no", "--tb=native",
        # What a GPU's runtime writes before it aborts must be out, and not in pytest's keeping.
        *([] if on_host else ["--capture=sys"]), check.file,
    ]  # fmt: skip
    done = process.supervise(
        [sys.executable, "-B", "-P", "-c", _START, *argv],
        cwd=checks,
        env=child_environment(
            place,
            {**check.env, **env},
            threads=threads,
            folder=folder,
            more={
                "CONTRIBBOT_PATH": place.python_path,
                "PYTHONPATH": process.own_path(),
                "CONTRIBBOT_REPORT": str(folder / _REPORT),
                "CONTRIBBOT_WITNESS": str(lines) if place.witnessed else "",
                "CONTRIBBOT_KERNELS": ("cpu" if on_host else "cuda") if check.kernels else "",
                # Only what contribbot depends on may take part, not what else is installed.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        ),
        timeout=check.timeout,
        sandbox=sandbox,
    )
    scrub = Scrub(place.tree, folder, *place.python)
    run = read_report(folder / _REPORT, done, place.witnessed, limit=check.timeout, scrub=scrub)
    run.command = scrub(process.describe(["python", "-m", "pytest", *argv]))
    text = scrub(done.output.decode("utf-8", "replace"))
    run.suspicion = suspicion(run, text)
    if run.trouble is Trouble.UNCOLLECTED or any(failure.broken for failure in run.failed):
        env = child_environment(
            place, {**check.env, **env}, threads=threads, folder=folder, more={}
        )
        run.missing = missing_modules(check.file, cwd=checks, env=env, sandbox=sandbox)
    _keep_log(run, text, logs)
    return run


def _coverage(folder: Path, files: Iterable[str]) -> str:
    """Return coverage's configuration: these files alone, in all processes of a run."""
    # coverage takes patterns and knows no escapes: `?` stands for what would be one.
    include = "\n    ".join(re.sub(r"[][*!{}%$]", "?", path) for path in files)
    return (
        f"[run]\ndata_file = {folder / 'lines'}\nparallel = true\n"
        f"patch = subprocess, fork, _exit\nsigterm = true\ninclude =\n    {include}\n"
    )


def lay_out(folder: Path, support: Sequence[PatchFile]) -> Path:
    """Write what a run may use into its folder, and return the folder of the checks."""
    checks = folder / "checks"
    for file in support:
        target = checks / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return checks


def child_environment(
    place: Place,
    stated: Mapping[str, str],
    *,
    threads: int,
    folder: Path,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the whole environment of something that runs on a tree."""
    return process.clean_environment(
        {
            # Checks run side by side: each gets its share of the cores.
            "OMP_NUM_THREADS": str(threads),
            **stated,
            **place.env,
            "CONTRIBBOT_TREE": str(place.tree),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(filter(None, [place.python_path, process.own_path()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What a check prints must be out before it crashes.
            "PYTHONUNBUFFERED": "1",
            **more,
        }
    )


def _keep_log(run: CheckRun, text: str, logs: Path) -> None:
    """Keep the whole output under its digest."""
    content = text.encode()
    run.log = hashlib.sha256(content).hexdigest()
    run.tail = text[-_TAIL:]
    write_atomically(logs / f"{run.log}.log", content)
