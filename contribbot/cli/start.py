"""`contribbot init`, `pin add` and `check`: what a new queue and a new patch begin with."""

from __future__ import annotations

import contextlib
import enum
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchArgument,
    argument,
    chosen_queue,
    command,
    live_lines,
    open_patch,
    open_queue,
    option,
    print_report,
)
from contribbot.cli.refusal import echo
from contribbot.cli.render import Code
from contribbot.errors import UsageError
from contribbot.model.base import Model
from contribbot.model.checks import stated_line
from contribbot.model.evidence import Outcome
from contribbot.queue.new import AddedPin, BegunQueue, add_pin, init_queue
from contribbot.verify import one_tree
from contribbot.verify.one_tree import TreeRun
from contribbot.verify.pytest_run import FailedTest


@command
def init(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        argument("DIR", "An empty folder, or a repository.", default="the current folder"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a queue: patches/queue.toml, runners.toml, .gitignore."""
    place = folder or chosen_queue(context) or Path()
    begun = BegunQueue(folder=str(place.resolve()), written=tuple(init_queue(place)))
    lines = [f"{begun.folder}: an empty queue, with {', '.join(begun.written)}"]
    if place.resolve() != Path.cwd():
        lines.append(Code(f"  cd {shlex.quote(str(place))}"))
    if not any((above / ".git").exists() for above in (place.resolve(), *place.resolve().parents)):
        lines.append(
            "  not in git: after `git init`, each operation on it is logged and can be undone"
        )
    lines.append("  pin a release: contribbot pin add sglang VERSION (or newest; or vllm, torch)")
    print_report(begun, lines, as_json=as_json)


@command
def pin_add(
    context: typer.Context,
    upstream: Annotated[str, argument("UPSTREAM", "Its name: sglang, vllm, torch, ….")],
    release: Annotated[str, argument("RELEASE", "The version, its tag, or newest.")],
    as_json: JsonOption = False,
) -> None:
    """Pin a release: look it up at pip's package index, check it, write it into queue.toml."""
    queue = open_queue(context)
    with live_lines() as lines:
        added = add_pin(queue, upstream, release, progress=lines.download())
    print_report(added, pin_lines(added), as_json=as_json)


def pin_lines(added: AddedPin) -> list[str]:
    """Return what a pin trusts, as lines."""
    lines = [f"{added.upstream} {added.tag}: pinned in patches/queue.toml"]
    if added.file:
        how = {
            "sdist": "computed from the file",
            "wheel": "computed from the file",
            "installed": f"from the index; the tree is that of the installed {added.upstream}",
        }.get(added.kind, "from the index")
        lines += [
            f"  file    {added.file}",
            f"  from    {added.place}",
            f"  sha256  {added.sha256} ({how})",
            "  From now on any other file is refused; that this one is genuine, the index says.",
        ]
        if added.file.endswith(".whl"):
            lines.append("  A wheel of any platform will do: it is read, not installed.")
    return [*lines, f"  begin a patch: contribbot new NAME --title T --pin {added.tag}"]


class On(enum.StrEnum):
    """The trees that a check runs on."""

    BASE = one_tree.BASE
    PATCHED = one_tree.PATCHED
    BOTH = "both"

    @property
    def sides(self) -> tuple[str, ...]:
        """Which they are, in the order in which they run."""
        return (self.value,) if self is not On.BOTH else (one_tree.BASE, one_tree.PATCHED)


@command
def check(
    context: typer.Context,
    patch: PatchArgument,
    arguments: Annotated[
        list[str] | None,
        argument("[-- PYTEST ARGS]", "What pytest gets: -k, -x, --pdb, test_red.py::test_one, …."),
    ] = None,
    on: Annotated[On, option("base|patched|both", "The trees to run on.")] = On.BOTH,
    only: Annotated[
        list[str] | None,
        option("NAME", "The check, or a target that is emulated.", "--check", default="all"),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run the checks of one patch in this terminal, as often as you like; records nothing."""
    queue, name = open_patch(context, patch)
    words = arguments or []
    checks = one_tree.selected(queue, name, words, only=only or ())
    seen: list[TreeRun] = []
    with contextlib.ExitStack() as stack:
        with live_lines() as lines:
            alone = one_tree.prepared(queue, name, checks, progress=lines.download())
            job = stack.enter_context(alone)
        for stated in checks:
            for side in on.sides:
                echo(f"== {name}: {stated.title} on the {_SIDES[side]} ==", stderr=as_json)
                sys.stdout.flush()
                seen.append(one_tree.run_side(job, stated, side, words, to_stderr=as_json))
    last = f"Nothing is recorded; that is for: contribbot verify {name}"
    if words and seen and all(run.not_run == one_tree.UNSELECTED for run in seen):
        raise UsageError(
            f"{name}: no test matches {shlex.join(words)}",
            hint=f"`contribbot check {name} -- --collect-only -q` lists them",
        )
    report = CheckReport(patch=name, runs=tuple(map(RunView.of, seen)))
    print_report(report, [*seen_lines(seen), last], as_json=as_json)
    return one_tree.exit_code(seen)


class FailureView(Model):
    """Tests that failed with one message."""

    message: str
    #: The line of it that holds the stated reason, where it is a later line.
    line: str
    tests: tuple[str, ...]
    stated: bool  # whether the stated reason is found in it
    broken: bool  # whether it shows nothing of the patch


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
        """View a run."""
        run, reason = ran.run, ran.check.reason
        groups: dict[str, list[FailedTest]] = {}
        for failure in run.failed:
            groups.setdefault(failure.first, []).append(failure)
        failures = tuple(
            FailureView(
                message=first,
                line=_later_line(reason, tests[-1].message),
                tests=tuple(failure.test for failure in tests),
                stated=bool(re.search(reason, tests[-1].message)),
                broken=any(failure.kind for failure in tests),
            )
            for first, tests in groups.items()
        )
        return cls(
            check=ran.check.title,
            side=ran.side,
            outcome=ran.outcome,
            passed=len(run.passed),
            skipped=len(run.skipped),
            failures=failures,
            trouble=run.detail,
            not_run=ran.not_run,
        )


def _later_line(reason: str, message: str) -> str:
    """Return the line that holds the stated reason, or nothing where that is the first."""
    line = stated_line(reason, message)
    return "" if line == message.partition("\n")[0].strip() else line


class CheckReport(Model):
    """The document of `check --json`."""

    patch: str
    runs: tuple[RunView, ...]


_SIDES = {one_tree.BASE: "base", one_tree.PATCHED: "patched tree"}
_MOST = 5  # messages that are shown of one run
_WORDS = {
    Outcome.PASSED: "as expected",
    Outcome.FAILED: "NOT as expected, it must {wanted}",
    Outcome.UNAVAILABLE: "it shows nothing",
}


def seen_lines(seen: Sequence[TreeRun]) -> list[str]:
    """Return what each check was expected to do and did, its stated reason beside the seen one."""
    lines = [""]
    for ran in seen:
        run = RunView.of(ran)
        if run.not_run:
            lines.append(f"{run.check} on the {_SIDES[run.side]}: not run: {run.not_run}")
            continue
        red = run.side == one_tree.BASE and ran.check.expect == "fail-to-pass"
        failed = sum(len(failure.tests) for failure in run.failures)
        counts = [
            f"{count} {word}"
            for count, word in (
                (failed, "failed"),
                (run.passed, "passed"),
                (run.skipped, "skipped"),
            )
            if count
        ]
        wanted = "fail, for the stated reason" if red else "pass"
        word = _WORDS[run.outcome].format(wanted=wanted)
        what = ", ".join(counts) or "nothing ran"
        lines.append(f"{run.check} on the {_SIDES[run.side]}: {what}: {word}")
        if red and run.failures:
            lines.append(f"  stated  {ran.check.reason}")
        for failure in run.failures[:_MOST]:
            word = "broken" if failure.broken else "as stated" if failure.stated else "not stated"
            more = f" and {len(failure.tests) - 1} more" if failure.tests[1:] else ""
            said = "" if not red and not failure.broken else f" ({word})"
            lines.append(f"  seen    {failure.message}{said}")
            if failure.line and failure.stated and red:
                lines.append(f"          its line: {failure.line}")
            lines.append(f"          in {failure.tests[0]}{more}")
        if run.failures[_MOST:]:
            lines.append(f"  and {len(run.failures) - _MOST} other messages, above")
        if run.trouble:
            lines.append(f"  why     {run.trouble}")
    return lines
