"""`contribbot verify`, and `check`, which records nothing."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal

from contribbot.cli import command as cli
from contribbot.cli.outcomes import closing_blocks
from contribbot.cli.refusal import current_settings, echo
from contribbot.cli.render import Code, count
from contribbot.errors import UsageError
from contribbot.files import log_path
from contribbot.model.base import Model
from contribbot.model.checks import stated_line
from contribbot.model.evidence import Outcome, VerifyReport
from contribbot.verify import one_tree
from contribbot.verify.one_tree import TreeRun
from contribbot.verify.pipeline import Options, exit_code, refuse_unknown
from contribbot.verify.pipeline import verify as verify_patches
from contribbot.verify.pytest_run import FailedTest
from contribbot.verify.verdict import RunSide


@cli.command("verify rmsnorm --require cpu")
def verify(
    patches: list[str] | None = cli.SOME_PATCHES,
    everything: bool = cli.flag("--all", "Verify every patch."),
    require: list[str] | None = cli.option(
        None, "TARGET", "Fail unless it is proved here on this target: cpu, cuda, gfx942, …"
    ),
    force: bool = cli.flag("--force", "Repeat what is remembered."),
    jobs: int | None = cli.option(
        None, "N", "Checks that run at the same time.", default="cores", least=1
    ),
    evidence: Path | None = cli.option(None, "DIR", "Where records go.", default="evidence/"),
) -> cli.Reply:
    """Test patches: checks fail without them and pass with them, or it says what could not run.

    check: shows; verify: records, with the run without the change that a proof needs.
    """
    if everything and patches:
        hint = f"leave out --all, or {', '.join(patches)}"
        raise UsageError("--all names every patch already", hint=hint)
    queue, names = cli.open_patches(patches, everything=everything)
    options = Options(jobs=jobs, force=force) if jobs else Options(force=force)
    required, folder = require or [], evidence or queue.evidence
    refuse_unknown(queue, names, required)
    as_json = current_settings().as_json
    with cli.live_lines(stderr=as_json, order=names) as lines:
        reports, records = verify_patches(
            queue, names, options=options, folder=folder, watcher=lines
        )
    blocks = closing_blocks(reports, records, required)
    code, report = exit_code(reports, required), VerifyReport(patches=tuple(reports))
    # With --json, the lines go to standard error, for a person who watches.
    return cli.Reply(report, blocks, code, blocks if as_json else ())


@cli.command("check rmsnorm -- -k layout -x")
def check(
    patch: str = cli.PATCH,
    arguments: list[str] | None = cli.argument(
        "[-- PYTEST ARGS]", "What pytest gets: -k, -x, --pdb, test_red.py::test_one, ….", None
    ),
    on: Literal["base", "patched", "both"] = cli.option(
        "both", "base|patched|both", "The trees to run on."
    ),
    only: list[str] | None = cli.option(
        None, "NAME", "The check, or a target that is emulated.", "--check", default="all"
    ),
    launch: bool = cli.flag(
        "--launch", "Show how Triton kernels were launched, as [[compile]] states it."
    ),
) -> cli.Reply:
    """Run the checks of one patch in this terminal, as often as you like.

    check: shows; verify: records, with the run without the change that a proof needs.
    """
    queue, name = cli.open_patch(patch)
    words, as_json = arguments or [], current_settings().as_json
    checks = one_tree.selected(queue, name, words, only=only or ())
    seen: list[TreeRun] = []
    sides = [side for side in (RunSide.BASE, RunSide.PATCHED) if on in {side.name.lower(), "both"}]
    units = [(stated, side) for stated in checks for side in sides]
    titles = [f"== {name}: {stated.title} on the {side} ==" for stated, side in units]
    with contextlib.ExitStack() as stack:
        with cli.live_lines(stderr=as_json) as lines:
            alone = one_tree.prepared(queue, name, checks, progress=lines.download())
            run, job = stack.enter_context(alone)
            ask = partial(one_tree.run_side, job, launches=launch)
            futures = [] if words else [run.units.submit(ask, *unit) for unit in units]
            for title, future in zip(titles, futures, strict=False):
                with lines.working(title.strip("= ")):
                    seen.append(future.result())
                log = seen[-1].run.log_sha256
                text = log_path(job.logs, log).read_text(encoding="utf-8") if log else ""
                for row in (title, *text.splitlines()):
                    lines.say(Code(row))
        for title, unit in zip(titles, units if words else (), strict=False):
            echo(title, stderr=as_json)
            sys.stdout.flush()
            seen.append(ask(*unit, words, to_stderr=as_json))
    if words and seen and all(run.not_run == one_tree.UNSELECTED for run in seen):
        raise UsageError(
            f"{name}: no test matches {shlex.join(words)}",
            hint=f"`contribbot check {name} -- --collect-only -q` lists them",
        )
    report = CheckReport(patch=name, runs=tuple(map(RunView.of, seen)))
    rows = [row for ran, run in zip(seen, report.runs, strict=True) for row in _lines(ran, run)]
    if (code := one_tree.exit_code(seen)) == 0:
        rows.append(f"check: shows; verify: records. To record it: contribbot verify {name}")
    return cli.Reply(report, ["", *rows], code)


class FailureView(Model):
    """Tests that failed with the same message."""

    message: str
    #: The message's line with the stated reason, if this is not the first line; or empty.
    line: str
    tests: tuple[str, ...]
    stated: bool  # whether the message has the stated reason
    broken: bool  # whether the failure shows nothing about the patch


class RunView(Model):
    """The run of a check on one tree, as `check --json` prints it."""

    check: str
    side: str
    outcome: Outcome
    passed: int
    skipped: int
    failures: tuple[FailureView, ...]
    trouble: str
    not_run: str

    @classmethod
    def of(cls, ran: TreeRun) -> RunView:
        """Return the JSON model of a check's run on one tree."""
        run, reason = ran.run, ran.check.reason
        groups: dict[str, list[FailedTest]] = {}
        for failure in run.failed:
            groups.setdefault(failure.first, []).append(failure)
        failures = []
        for first, tests in groups.items():
            message = tests[-1].message
            line, is_stated = stated_line(reason, message), bool(re.search(reason, message))
            later = "" if line == message.partition("\n")[0].strip() else line
            names, broken = tuple(each.test for each in tests), any(each.kind for each in tests)
            failures.append(
                FailureView(message=first, line=later, tests=names, stated=is_stated, broken=broken)
            )
        return cls(
            check=ran.check.title,
            side=ran.side.name.lower(),
            outcome=ran.outcome,
            passed=len(run.passed),
            skipped=len(run.skipped),
            failures=tuple(failures),
            trouble=run.trouble,
            not_run=ran.not_run,
        )


class CheckReport(Model):
    """The document of `check --json`."""

    patch: str
    runs: tuple[RunView, ...]


_MOST: Final = 5  # the most messages to show of one run


def _lines(ran: TreeRun, run: RunView) -> Iterator[str]:
    """Yield lines on a check's run: test counts, whether as expected, failure messages."""
    title = f"{run.check} on the {ran.side}"
    if run.not_run:
        yield f"{title}: not run: {run.not_run}"
        return
    red = ran.side is RunSide.BASE and ran.check.expect == "fail-to-pass"
    failed = sum(len(failure.tests) for failure in run.failures)
    counts = (("failed", failed), ("passed", run.passed), ("skipped", run.skipped))
    seen = ", ".join(f"{number} {word}" for word, number in counts if number) or "nothing ran"
    if run.outcome is Outcome.PASSED and all(failure.stated for failure in run.failures):
        # All went as stated: one line with the counts and the reason is enough.
        reasons = [failure.line or failure.message for failure in run.failures[:1]]
        yield ": ".join((title, seen, "as expected", *reasons))
        return
    must = "fail, for the stated reason" if red else "pass"
    words = {
        Outcome.PASSED: "as expected",
        Outcome.FAILED: f"NOT as expected, it must {must}",
        Outcome.UNAVAILABLE: "it shows nothing",
    }
    yield f"{title}: {seen}: {words[run.outcome]}"
    if red and run.failures:
        yield f"  stated  {ran.check.reason}"
    for failure in run.failures[:_MOST]:
        word = "broken" if failure.broken else "as stated" if failure.stated else "not stated"
        yield f"  seen    {failure.message}{f' ({word})' if red or failure.broken else ''}"
        if failure.line and failure.stated and red:
            yield f"          its line: {failure.line}"
        more = f" and {len(failure.tests) - 1} more" if failure.tests[1:] else ""
        yield f"          in {failure.tests[0]}{more}"
    if run.failures[_MOST:]:
        yield f"  and {count(len(run.failures) - _MOST, 'other message')}, above"
    if run.trouble:
        yield f"  why     {run.trouble}"
