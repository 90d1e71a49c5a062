"""One patch's checks, run in the terminal for whoever writes them. Nothing of it is recorded."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import ExitCode, MachineError, NotProvedError, UsageError
from contribbot.files import log_path
from contribbot.git.source import Progress
from contribbot.hardware.needs import missing_here
from contribbot.model.checks import Check, EmulatedCheck, stated_line
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import Queue
from contribbot.verify.check import Way
from contribbot.verify.emulated import NoCodeError, emulated_way
from contribbot.verify.emulated import missing_here as missing_to_emulate
from contribbot.verify.job import Job
from contribbot.verify.pipeline import Options, Run, open_run
from contribbot.verify.placement import OverlayError, unplaceable
from contribbot.verify.pytest_run import (
    CHECK_CHILD,
    REPORT,
    CheckRun,
    Scrub,
    Trouble,
    child_environment,
    child_options,
    child_orders,
    lay_out,
    read_report,
)
from contribbot.verify.stages.apply import ApplyStage
from contribbot.verify.stages.build import BuildStage
from contribbot.verify.stages.numerics import way_of
from contribbot.verify.stages.source import SourceStage

BASE: Final = "base"
PATCHED: Final = "patched"
#: pytest's status where a person, or a debugger, ended the session.
_INTERRUPTED: Final = 2
#: Its status where it does not take its arguments.
_USAGE: Final = 4
UNSELECTED: Final = "no test of it was asked for"


@dataclass(frozen=True)
class _Quiet:
    """Shows downloads alone."""

    progress: Progress

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        """Show nothing."""

    def ended(self, patch: str, result: StageResult) -> None:
        """Show nothing."""

    def finished(self, patch: str) -> None:
        """Say nothing."""

    def download(self) -> Progress:
        """Return what a download reports to."""
        return self.progress


@dataclass(frozen=True)
class FailureGroup:
    """Tests that failed with one message."""

    message: str
    #: The line of it that holds the stated reason, where it is a later line.
    line: str
    tests: tuple[str, ...]
    stated: bool  # whether the stated reason is found in it
    broken: bool  # whether it shows nothing of the patch


@dataclass(frozen=True)
class SideSeen:
    """What a check did on one tree."""

    check: Check
    side: str
    passed: int = 0
    skipped: int = 0
    failures: tuple[FailureGroup, ...] = ()
    trouble: str = ""  # why the run shows nothing, or not all
    not_run: str = ""  # why nothing of it was run here; or empty
    log: Path | None = None

    @property
    def outcome(self) -> Outcome:
        """Whether it did what `expect` says of this tree."""
        if self.not_run:
            return Outcome.SKIPPED
        if self.trouble or any(failure.broken for failure in self.failures):
            return Outcome.UNAVAILABLE
        if not self.passed and not self.failures:
            return Outcome.UNAVAILABLE
        red = self.side == BASE and self.check.expect == "fail-to-pass"
        stated = all(failure.stated for failure in self.failures)
        good = (stated and not self.passed) if red else not self.failures
        return Outcome.PASSED if good else Outcome.FAILED


def exit_code(seen: Sequence[SideSeen]) -> ExitCode:
    """Return 0 where all that ran did what is stated, 1 where one did not, 3 where none could."""
    outcomes = {side.outcome for side in seen} - {Outcome.SKIPPED}
    if Outcome.FAILED in outcomes:
        return ExitCode.NO
    return ExitCode.OK if outcomes == {Outcome.PASSED} else ExitCode.MACHINE


def selected(queue: Queue, name: str, arguments: Sequence[str], *, only: str | None) -> list[Check]:
    """Return the checks that a user means: one, those whose files are named to pytest, or all."""
    spec = queue.specs[name]
    stated = stated_checks(spec)
    if not stated:
        others = {"compile": spec.compile, "hipify": spec.hipify, "build": spec.build}
        if there := " and ".join(key for key, entry in others.items() if entry):
            raise UsageError(
                f"{name}: patch.toml states nothing that runs in a test, only {there}",
                hint=f"`contribbot verify {name}` runs that",
            )
        raise UsageError(
            f"{name}: patch.toml states no check",
            hint=f"write patches/{name}/checks/test_red.py, and state it in [[checks]]",
        )
    known = dict.fromkeys(each.name for each in stated)
    if only and only not in known:
        raise UsageError(f"{name}: no check {only}", hint=f"it has {', '.join(known)}")
    wanted = [check for check in stated if only in {None, check.name}]
    return [check for check in wanted if _named(check, arguments)] or wanted


def stated_checks(spec: PatchSpec) -> list[Check]:
    """Return the checks of a patch, one for each target that is emulated."""
    emulated = (check for entry in spec.emulated for check in entry.checks)
    return [*spec.checks, *spec.numerics, *emulated]


def _named(check: Check, arguments: Sequence[str]) -> list[str]:
    return [word for word in arguments if word.partition("::")[0] == check.file]


@contextlib.contextmanager
def prepared(
    queue: Queue, name: str, checks: Sequence[Check], *, progress: Progress
) -> Iterator[Job]:
    """Give a patch with its two trees made, and built where a check needs it."""
    with open_run(queue, patches=1, options=Options(), watcher=_Quiet(progress)) as run:
        patch = queue.patch(name)
        job = run.job(patch, tuple(map(queue.patch, queue.below(name))), name)
        _settle(run, job, SourceStage())
        if patch.files or job.below:
            _settle(run, job, ApplyStage())
        else:
            # Nothing is changed yet: a check can be written all the same.
            trees = job.trees
            trees.base = trees.tested = trees.patched = job.store.tree_of(trees.pin_commit)
        if any(check.build for check in checks):
            _settle(run, job, BuildStage())
        yield job


def _settle(run: Run, job: Job, stage: SourceStage | ApplyStage | BuildStage) -> None:
    results = [run.outcome(job, stage.name, unit) for unit in stage.units(job)]
    job.results[stage.name] = results
    for result in results:
        if result.outcome is not Outcome.PASSED:
            error = NotProvedError if result.outcome is Outcome.FAILED else MachineError
            if stage.name != "build":
                raise error(f"{job.patch.name}: {stage.name}: {result.reason}")
    stage.settle(job, results)


def run_side(
    job: Job, check: Check, side: str, arguments: Sequence[str], *, to_stderr: bool = False
) -> SideSeen:
    """Run a check on a tree in this terminal."""
    if side == PATCHED and not job.patch.files:
        name = job.patch.name
        why = f"no commits yet; contribbot edit {name}, commit there, and contribbot refresh {name}"
        return SideSeen(check, side, not_run=why)
    tree = job.trees.base if side == BASE else job.trees.patched
    try:
        if missing := _missing(job, check):
            return SideSeen(check, side, not_run=missing)
        way = _way(job, check, tree)
        where = way.layout(job, check, tree)
    except (OverlayError, NoCodeError) as error:
        return SideSeen(check, side, trouble=str(error))
    folder, checks = job.fresh_folder(), job.patch.folder.resolve() / "checks"
    lay_out(folder, ())
    orders = {
        **child_orders(check, where, folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(checks), process.own_path()])),
        "CONTRIBBOT_LOG": str(folder / "log"),
        **{name: os.environ[name] for name in ("TERM", "NO_COLOR") if name in os.environ},
    }
    argv = [
        sys.executable, "-B", "-P", "-c", CHECK_CHILD,
        *child_options(folder, checks, "--no-header"),
        *_words(check, job, arguments),
    ]  # fmt: skip
    env = child_environment(
        where, {**check.env, **way.env}, threads=job.machine.cores, folder=folder, more=orders
    )
    started = time.monotonic()
    status = process.attached(
        argv,
        cwd=checks,
        env=env,
        sandbox=None if process.no_sandbox() else folder,
        stdout=2 if to_stderr else None,
    )
    done = process.Supervised(
        returncode=status, timed_out=False, flooded=False, starved=False, stuck=False, output=b"",
        seconds=time.monotonic() - started,
    )  # fmt: skip
    scrub = Scrub(where.tree, folder, *where.python)
    run = read_report(folder / REPORT, done, {}, limit=check.timeout, scrub=scrub)
    if run.trouble is Trouble.STOPPED and status == _INTERRUPTED:
        raise KeyboardInterrupt
    if status == _USAGE:
        raise UsageError(
            "pytest does not take these arguments, as it says above", hint="see pytest --help"
        )
    log = folder / "log"
    text = log.read_text("utf-8", "replace") if log.is_file() else ""
    return _seen(check, side, run, log_path(job.logs, job.keep_log(scrub(text))))


def _missing(job: Job, check: Check) -> str:
    if isinstance(check, EmulatedCheck):
        return missing_to_emulate(job, check)
    return missing_here(job.machine, check) or unplaceable(job, check)


def _way(job: Job, check: Check, tree: str) -> Way:
    if isinstance(check, EmulatedCheck):
        return emulated_way(job, check, [tree])
    return way_of(check)


def _words(check: Check, job: Job, arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments for one check: what names the file of another is left out."""
    others = [other for other in stated_checks(job.patch.spec) if other.file != check.file]
    left_out = {word for other in others for word in _named(other, arguments)}
    words = [word for word in arguments if word not in left_out]
    return [*words, *([] if _named(check, words) else [check.file])]


def _seen(check: Check, side: str, run: CheckRun, log: Path) -> SideSeen:
    by_message: dict[str, list[str]] = {}
    for failure in run.failed:
        by_message.setdefault(failure.first, []).append(failure.test)
    of_message: Mapping[str, str] = {failure.first: failure.message for failure in run.failed}
    broken = {failure.first for failure in run.failed if failure.broken or failure.fault}
    failures = tuple(
        FailureGroup(
            message, _later_line(check, of_message[message]), tuple(tests),
            stated=bool(re.search(check.reason, of_message[message])), broken=message in broken,
        )
        for message, tests in by_message.items()
    )  # fmt: skip
    # With -x or -k, what did not run was not asked for.
    if run.trouble is Trouble.EMPTY and not run.skipped:
        return SideSeen(check, side, not_run=UNSELECTED)
    trouble = "" if run.trouble is Trouble.STOPPED and run.ran else run.told
    return SideSeen(check, side, len(run.passed), len(run.skipped), failures, trouble, log=log)


def _later_line(check: Check, message: str) -> str:
    """Return the line that holds the stated reason, or nothing where that is the first."""
    line = stated_line(check.reason, message)
    return "" if line == message.partition("\n")[0].strip() else line
