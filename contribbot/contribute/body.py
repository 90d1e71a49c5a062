"""The text of a pull request: the upstream's sections, filled from prose and evidence."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue, ValidationError

from contribbot import upstreams
from contribbot.contribute.figures import (
    COLUMNS,
    Figures,
    Seen,
    Source,
    gather,
    grid_of,
    not_run,
    other_release,
)
from contribbot.contribute.markdown import cell, clean, code, fence, plain, prose
from contribbot.contribute.model import (
    GITHUB_LIMIT,
    Block,
    Rules,
    Searched,
    Section,
    Template,
    Tick,
)
from contribbot.errors import GitHubError, QueueError, UsageError
from contribbot.git.patch_format import parse, plain_path
from contribbot.github.git_data import read_file
from contribbot.github.waits import Waits
from contribbot.model.base import Model
from contribbot.model.patch import Contribution, Patch
from contribbot.numerics.records import CellRecord, OutputRecord
from contribbot.numerics.words import number
from contribbot.queue.load import Queue, read_model

#: Characters of a failure's message, by how short the text must be.
_MESSAGE: Final = (120, 90, 60, 0)


@dataclass(frozen=True)
class Context:
    """What a block is made from.

    Attributes:
        figures: The evidence.
        rules: The upstream's rules.
        section: The section that it stands in.
        level: How short it must be: 0 is long.
        searched: The look for duplicates that found none; None: nothing is said of one.
    """

    figures: Figures
    rules: Rules
    section: Section
    level: int
    searched: Searched | None = None


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table as one paragraph; nothing without rows."""
    used = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = [
        "| " + " | ".join(row[place] for place in used) + " |" for row in (head, *rows) if used
    ]
    return ["\n".join([lines[0], "|---" * len(used) + "|", *lines[1:]])] if rows else []


def tests(context: Context) -> list[str]:
    """Return what the checks did without the change and with it."""
    found = context.figures.of("hipify", "build", "reproduce")
    red, green = ([one for one in found if one.red is wanted] for wanted in (True, False))
    if context.level < len(_MESSAGE) - 2:
        red, green = [*red, *green], []
    rows = [
        (code(one.name), one.result.target, _before(one, context.level), _after(one), one.labels)
        for one in red
    ]
    if green:
        labels = ", ".join(source.label for source in _sources(context, green))
        on = ", ".join(dict.fromkeys(one.result.target for one in green))
        total = sum(one.count("patched", "passed") for one in green)
        rows.append((f"{len(green)} more", on, f"{total} pass", f"{total} pass", labels))
    shown = table(("check", "on", "without the change", "with it", "record"), rows)
    return [_base(context), *shown] if shown else []


def _base(context: Context) -> str:
    """Say what `without the change` means."""
    figures = context.figures
    patch = figures.patch
    below = " with " + ", ".join(map(code, figures.below)) + " below" if figures.below else ""
    over = "; ".join(
        f"in {source.label} its Python files over {plain(one)}"
        for source in figures.sources
        for one in _over(source)
    )
    laid = any(one.result.details.get("laid_over_base") for one in figures.of("reproduce"))
    tests = ", with the tests that the change brings" if laid else ""
    return (
        f"Without the change: {patch.upstream.repository} at {code(patch.pin.tag)}{below}"
        f"{tests}{f' ({over})' if over else ''}."
    )


def _over(source: Source) -> list[str]:
    """Return the installed releases that things ran over, where those are not the pin's."""
    return sorted({other_release(one) for one in source.stages} - {""})


def _before(one: Seen, level: int) -> str:
    """Say what the base did."""
    if not one.red:
        return _counted(one, "base")
    failed = one.count("base", "failed")
    said = f"{failed} fail" if one.result.stage == "reproduce" else "fails"
    message = next(one.messages(), "")
    limit = _MESSAGE[level]
    return f"{said}: {cell(message, limit=limit)}" if message and limit else said


def _after(one: Seen) -> str:
    if one.result.stage == "hipify":
        return plain(one.summary)
    return _counted(one, "patched")


def _counted(one: Seen, side: str) -> str:
    if one.result.stage != "reproduce":
        return "builds" if one.result.stage == "build" else "passes"
    skipped = one.count(side, "skipped")
    return f"{one.count(side, 'passed')} pass" + (f", {skipped} skipped" if skipped else "")


def _sources(context: Context, seen: Sequence[Seen]) -> list[Source]:
    return [one for one in context.figures.sources if any(one in each.sources for each in seen)]


def numerics(context: Context) -> list[str]:
    """Return how far results are from float64, against a reference of the same precision."""
    lines: list[str] = []
    judged: list[OutputRecord] = []
    for one in context.figures.of("numerics"):
        judged += [output for _, output in _judged(one, "patched")]
        text = f"- {code(one.name)} on {one.result.target}, {plain(one.summary)} ({one.labels})"
        if context.level == 0:
            # Two records may say the same in one line, and not have the same worst result.
            whose = f", {one.source.label}" if len(one.sources) > 1 else ""
            for title, side in (("with it", "patched"), ("without", "base")):
                worst = _worst(one, side)
                text += f"\n  - worst {title}: {worst}{whose}" if worst else ""
        lines.append(text)
    floor = ", or of the floor where that is larger" if any(x.by_floor for x in judged) else ""
    meaning = (
        "Errors are against float64, as multiples of the error that the same precision makes on "
        f"the same input{floor}."
    )
    said = ["\n".join(lines)] if lines else []
    return [meaning, *said] if judged else said


def _judged(one: Seen, side: str) -> list[tuple[CellRecord, OutputRecord]]:
    """Return the results of a side that are judged by their error."""
    found: list[CellRecord] = []
    cells = one.table("cells").get(side)
    for raw in cells if isinstance(cells, list) else []:
        # Of a record of another version, the one line still says what came of it.
        with contextlib.suppress(ValidationError):
            found.append(CellRecord.model_validate(raw))
    return [(cell, output) for cell in found for output in cell.outputs if output.ratio is not None]


def _worst(one: Seen, side: str) -> str | None:
    """Describe the finite result of a side that errs most; None where none errs beyond 1."""
    ranked = _judged(one, side)
    where, output = max(ranked, key=lambda pair: pair[1].ratio or 0.0, default=(None, None))
    if where is None or output is None or (output.ratio or 0.0) <= 1:
        return None
    return (
        f"{code(where.cell, limit=80)}, {code(output.name, limit=40)}: max abs error "
        f"{number(output.max_abs)}, {output.multiple}"
    )


def compiled(context: Context) -> list[str]:
    """Return what the compiler made for each AMD target."""
    found = context.figures.of("compile")
    if not found:
        return []
    rows = []
    told = ""
    for one in found:
        before = _compiled_before(one, context.level)
        again = "the same" if before == told and one.red else before
        told = before
        rows.append((code(one.name), one.result.target, again, plain(one.summary), one.labels))
    tools: dict[str, list[str]] = {}
    for one in found:
        if made := one.table("toolchain"):
            tool = code(str(made.get("name", "")))
            headers = made.get("headers")
            tool += f" with the headers {code(str(headers))}" if headers else ""
            tools.setdefault(tool, []).append(one.result.target)
    head = ("kernels", "for", "without the change", "with it (before -> after)", "record")
    # Figures of two compilers are not compared: whose are whose must be seen.
    by = (
        f"{tool} ({', '.join(dict.fromkeys(targets))})" if len(tools) > 1 else tool
        for tool, targets in tools.items()
    )
    how = f"Compiled by {', '.join(by)}; this is code that was read, not run." if tools else ""
    return [*([how] if how else []), *table(head, rows)]


def _compiled_before(one: Seen, level: int) -> str:
    if not one.red:
        return "compiles"
    message, limit = next(one.messages(), "").replace("<tree>/", ""), _MESSAGE[level]
    return f"fails: {cell(message, limit=limit)}" if message and limit else "fails"


def witness(context: Context) -> list[str]:
    """Return how many of the added statements ran."""
    said = []
    for one in context.figures.of("witness"):
        details = one.result.details
        said.append(
            f"{details.get('executed')} of {details.get('added')} on {one.result.target} "
            f"({one.labels})"
        )
    return (
        [f"Added Python statements that ran, tests not counted: {'; '.join(said)}."] if said else []
    )


def grid(context: Context) -> list[str]:
    """Return targets against what ran on them."""
    rows = grid_of(context.figures, context.rules)
    head = ("target", *(title for title, _, _ in COLUMNS))
    return table(head, [(", ".join(row.targets), *(one.text for one in row.cells)) for row in rows])


def records(context: Context) -> list[str]:
    """Return where each figure is from, and the command that shows it again."""
    place = context.figures.patch.spec.contribution.records
    lines = [_record(source, place) for source in context.figures.sources]
    return ["Records, in the queue that this patch is kept in:", "\n".join(lines)]


def _file(source: Source, place: str) -> str:
    """Name the file of a record; as a link, where the queue's files can be read somewhere."""
    named = code(source.file)
    # One that does not lie in the queue is not there either.
    if not place or source.file.startswith("/"):
        return named
    return f"[{named}]({place.rstrip('/')}/{quote(source.file)})"


def _record(source: Source, place: str) -> str:
    statement = source.record.statement
    assert statement is not None  # noqa: S101  gather takes only records that can be read
    details = statement.predicate.contribbot
    machine = details.machine
    gpus = [
        code(name) + (f" x{len(list(same))}" if len(machine.gpus) > 1 else "")
        for name, same in itertools.groupby(gpu.name for gpu in machine.gpus)
    ]
    cuda = {
        str(table_.get("CUDA_VERSION"))
        for table_ in (one.details.get("accelerator") for one in source.stages)
        if isinstance(table_, dict) and table_.get("CUDA_VERSION") and gpus
    }
    parts = [
        f"processor {code(machine.cpu)}",
        ", ".join(gpus) or "no GPU",
        *(f"CUDA {plain(version)}" for version in sorted(cuda)),
        *([f"ROCm {plain(machine.rocm)}"] if machine.rocm else []),
        *(
            f"{name} {plain(machine.packages[name])}"
            for name in ("torch", "triton")
            if name in machine.packages
        ),
        plain(machine.python),
        *(
            f"the tree's Python files over {plain(one)}, not the pin's release"
            for one in _over(source)
        ),
    ]
    return (
        f"- {source.label}: {_file(source, place)}, seal {code(statement.seal[:12])}, "
        f"{details.finished:%Y-%m-%d}: {', '.join(parts)}. Again: {code(details.command)}"
    )


_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def rules_of(queue: Queue, upstream: str) -> Rules:
    """Return what an upstream asks of a contribution."""
    known = upstreams.contributing(queue.folder)
    wanted = queue.folder / "upstreams" / "contributing" / f"{upstream}.toml"
    if upstream not in known:
        raise QueueError(
            f"{upstream}: no rules for contributions are known",
            hint=f"write them in {wanted}; those of vllm show every key",
        )
    rules = read_model(known[upstream], Rules)
    if rules.upstream != upstream:
        raise QueueError(
            f"{known[upstream]}: upstream is {rules.upstream}, and the file's is {upstream}",
            hint="make them the same",
        )
    return rules


def template_of(queue: Queue, rules: Rules, version: str = "") -> Template:
    """Return the template of an upstream's pull requests."""
    known = upstreams.templates(queue.folder, rules.upstream)
    wanted = version or rules.body.template
    if wanted not in known:
        there = ", ".join(known) or "none"
        if version:
            raise UsageError(f"{rules.upstream}: no template {version}", hint=f"there are: {there}")
        raise QueueError(
            f"{rules.upstream}: its rules name the template {wanted}, which is not there",
            hint=f"there are: {there}",
        )
    template = read_model(known[wanted], Template)
    if (template.upstream, template.version) != (rules.upstream, wanted):
        raise QueueError(
            f"{known[wanted]}: it says {template.upstream} {template.version}, and its place says "
            f"{rules.upstream} {wanted}",
            hint="make them the same",
        )
    return template


@dataclass(frozen=True)
class Comparison:
    """How a template's headings differ from those of the live one.

    Attributes:
        gone: Headings of ours that the live one has not.
        new: Headings of the live one that ours has not.
        moved: Whether those that both have stand in another order.
    """

    gone: tuple[str, ...]
    new: tuple[str, ...]
    moved: bool

    @property
    def lines(self) -> tuple[str, ...]:
        """What has changed, a line each; none when nothing has."""
        return (
            *(f"the live template has no `{one}` any more" for one in self.gone),
            *(f"the live template has `{one}`, which is new" for one in self.new),
            *(("the live template has its headings in another order",) if self.moved else ()),
        )


def compare_with_live(template: Template, live: str) -> Comparison:
    """Compare a template's headings with those of the upstream's file as it is now."""
    ours, theirs = list(template.headings), headings(live)
    here = [one for one in ours if one in theirs]
    there = [one for one in theirs if one in ours]
    return Comparison(
        gone=tuple(one for one in ours if one not in theirs),
        new=tuple(one for one in theirs if one not in ours),
        moved=list(dict.fromkeys(here)) != list(dict.fromkeys(there)),
    )


def headings(text: str) -> list[str]:
    """Return the headings of a Markdown text, with their number signs.

    What stands in a comment or a fenced block is none.
    """
    found = []
    fenced = ""
    for row in _COMMENT.sub("", text).splitlines():
        mark = _FENCE.match(row)
        if mark:
            fenced = "" if fenced == mark[1] else fenced or mark[1]
        heading = _HEADING.match(row)
        if heading and not fenced:
            found.append(f"{heading[1]} {heading[2].strip()}")
    return found


#: Cases of a benchmark that are shown one by one, by how short the text must be.
_CASES: Final = (4, 2, 0, 0)
#: Seconds in a unit, and its name.
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
#: A factor of memory that is worth a word.
_SAME_MEMORY: Final = 1.005


def speed(context: Context) -> list[str]:
    """Return how long the change takes against what it replaces."""
    found = context.figures.of("bench")
    if not found:
        # Nothing is claimed of it, and nobody should read silence as "no slower".
        return ["Speed: **not measured**."]
    lines, rows = [], []
    for one in found:
        lines.append(
            f"- {code(one.name)} {device(one)}: {plain(one.summary)}{_memory(one)} ({one.labels})"
        )
        cases = one.rows("cases")
        if len(cases) <= _CASES[context.level]:
            rows += [_case(one, each) for each in cases]
    # Some of many would look like a choice of the best.
    rows = rows if len(rows) <= _CASES[context.level] else []
    meaning = (
        "Speed is the time without the change divided by the time with it, measured in turns: "
        "above 1 is faster."
    )
    head = ("case", "on", "without", "with", "speed (interval)", "record")
    measured = {one.result.target for one in found}
    named = [target for row in grid_of(context.figures, context.rules) for target in row.targets]
    rest = [target for target in named if target not in {*measured, "cpu"}]
    lines += [f"- **not measured** on {', '.join(rest)}"] if rest else []
    return [meaning, "\n".join(lines), *table(head, rows)]


def device(one: Seen) -> str:
    """Name the hardware that something ran on."""
    ceilings = one.table("ceilings").get("device")
    statement = one.source.record.statement
    machine = statement.predicate.contribbot.machine if statement else None
    if one.result.target == "cpu":
        threads = one.result.details.get("threads")
        processor = machine.cpu if machine else ""
        return f"on processor {code(processor)}, {threads} thread{'s' if threads != 1 else ''}"
    name = machine.gpus[0].name if machine and machine.gpus else str(ceilings or "")
    return f"on {one.result.target}, {code(name)}"


def _memory(one: Seen) -> str:
    ratios = [float(value) for value in _numbers(one, "memory_ratio")]
    if not ratios or max(ratios) <= _SAME_MEMORY:
        return ""
    return f"; peak memory up to {max(ratios):.2f} times as much"


def _numbers(one: Seen, key: str) -> list[float]:
    found = (each.get(key) for each in one.rows("cases"))
    return [float(value) for value in found if isinstance(value, int | float)]


def _case(one: Seen, case: dict[str, JsonValue]) -> tuple[str, ...]:
    text = str(case.get("text", "")).partition(";")[0]
    return (
        cell(str(case.get("case")), limit=60),
        one.result.target,
        _time(case.get("base")),
        _time(case.get("patched")),
        plain(text),
        one.labels,
    )


def _time(side: JsonValue) -> str:
    seconds = side.get("seconds") if isinstance(side, dict) else None
    if not isinstance(seconds, int | float):
        return ""
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


#: What Markdown knows only at the start of a line.
_BLOCK: Final = re.compile(r"```|~~~|[-+*>|]|[0-9]+[.)]|\\#|\t")
#: How `ai` says that none was used, as `docs` says that none is needed: "None.", "no AI was
#: used", "none: and why". "None of it by hand" is something else.
_NO_AI: Final = re.compile(
    r"(?i)\s*(?:none|no ai|not used)(?:\s+(?:was\s+)?used)?(?:\s+at\s+all)?\s*(?:[.:;,(]|$)"
)
#: Claims that are worth a line, at most.
_CLAIMS: Final = 8
#: Limits of a look that are worth naming.
_LIMITS: Final = 3


def words(context: Context) -> list[str]:
    """Return what the person says in their own words."""
    text = context.figures.patch.spec.contribution.words
    return [prose(text)] if text else []


def problem(context: Context) -> list[str]:
    """Return what is wrong."""
    return [prose(context.figures.patch.spec.problem)]


def cause(context: Context) -> list[str]:
    """Return why."""
    return _led("**Root cause.**", context.figures.patch.spec.root_cause)


def solution(context: Context) -> list[str]:
    """Return what the patch does about it."""
    return _led("**Change.**", context.figures.patch.spec.solution)


def issue(context: Context) -> list[str]:
    """Return the issue that it fixes, so that GitHub closes it."""
    patch = context.figures.patch
    reference = patch.spec.contribution.issue
    if reference is None:
        return []
    return [f"Fixes {reference.removeprefix(patch.upstream.repository)}"]


def waits(context: Context) -> list[str]:
    """Return the pull requests that must be merged first."""
    first = context.figures.waits
    return [f"Stacked on {', '.join(first)}, to be merged first."] if first else []


def related(context: Context) -> list[str]:
    """Return what else a reader should know."""
    spec = context.figures.patch.spec
    told = {spec.contribution.issue, *spec.contribution.different}
    left = [one for one in spec.related if one not in told]
    return [f"Related: {', '.join(left)}"] if left else []


def duplicates(context: Context) -> list[str]:
    """Return why it is no duplicate of what others do."""
    different = context.figures.patch.spec.contribution.different
    if not different:
        return _none_found(context)
    lines = [
        f"- {reference}: {' '.join(prose(why).split())}" for reference, why in different.items()
    ]
    return ["**Not a duplicate of:**", "\n".join(lines)]


def _none_found(context: Context) -> list[str]:
    """Say what a look for duplicates looked at that found none, where the upstream asks."""
    found, patch = context.searched, context.figures.patch
    if found is None or not context.rules.body.duplicates:
        return []
    by = f"{'the issue, ' if patch.spec.contribution.issue else ''}files, functions and patch-id"
    rest = len(found.limits) - _LIMITS
    limits = [*map(plain, found.limits[:_LIMITS]), *([f"and {rest} more"] if rest > 0 else [])]
    told = f" Limits of that look: {'; '.join(limits)}." if limits else ""
    text = (
        f"**No duplicate was found** on {found.time:%Y-%m-%d}, compared by {by}, among the open "
        f"pull requests of {patch.upstream.repository} and those merged in the {found.days} days "
        f"before: {found.seen} were listed or found, and {found.looked_into} of them looked into."
    )
    return [text + told]


def docs(context: Context) -> list[str]:
    """Return what becomes of the documentation."""
    text = context.figures.patch.spec.contribution.docs
    return _led("**Documentation**:", text) if text else []


def disclosure(context: Context) -> list[str]:
    """Return how AI was used."""
    text = context.figures.patch.spec.contribution.ai
    return _led("**Use of AI.**", text) if text else []


def ai_used(contribution: Contribution) -> bool:
    """Say whether a contribution says that AI was used."""
    return bool(contribution.ai) and not _NO_AI.match(contribution.ai)


def _led(title: str, text: str) -> list[str]:
    """Return prose behind a title; below it, where it begins with a list or a block."""
    shown = prose(text)
    if _BLOCK.match(shown):
        return [title, shown]
    return [f"{title} {shown}"]


def breaking(context: Context) -> list[str]:
    """Return what stops working for users."""
    contribution = context.figures.patch.spec.contribution
    text = prose(contribution.breaking) if contribution.breaking else ""
    if not (text and ai_used(contribution) and context.rules.ai.contained):
        return [text] if text else []
    # A quote is how text by a machine is kept apart where no heading says so.
    return ["\n".join(f"> {row}".rstrip() for row in ("(machine-written)", "", *text.splitlines()))]


def claims(context: Context) -> list[str]:
    """Return what the change was shown to do, a line each."""
    figures = context.figures
    lines = [
        f"- {code(one.name)}: {one.count('base', 'failed')} tests fail without the change and "
        f"pass with it, on {one.result.target} ({one.labels})"
        for one in figures.of("reproduce")
        if one.red
    ]
    lines += [
        f"- {code(one.name)} compiled for {one.result.target}, not run there: "
        f"{plain(one.summary)} ({one.labels})"
        for one in figures.of("compile")
        if one.red
    ]
    lines += [
        f"- {code(one.name)} on {one.result.target}: {plain(one.summary)} ({one.labels})"
        for one in figures.of("numerics")
    ]
    fast = {entry.name for entry in figures.patch.spec.bench if entry.at_least >= 1}
    lines += [
        f"- {code(one.name)} {device(one)}: {plain(one.summary)} ({one.labels})"
        for one in figures.of("bench")
        if one.name in fast
    ]
    left = len(lines) - _CLAIMS
    more = [f"- and {left} more, under Validation"] if left > 0 else []
    return ["\n".join([*lines[:_CLAIMS], *more])] if lines else []


def commands(context: Context) -> list[str]:
    """Return the commands that run it all again, and the tests that the change adds."""
    patch = context.figures.patch
    # Others are no tests of pytest's.
    touched = [one for one in test_files(patch, context.rules) if one.endswith(".py")]
    lines = [
        "# in the queue that keeps the records",
        f"contribbot verify {patch.name}",
        *(["# in a checkout with the change; no record is of this"] if touched else []),
        *(f"python -m pytest {shlex.quote(file)}" for file in touched),
    ]
    return [fence("\n".join(lines), language="sh")]


def test_files(patch: Patch, rules: Rules) -> list[str]:
    """Return the tests in the upstream's tree that a patch adds or changes."""
    folders = (*rules.tests, *patch.upstream.tests)
    gone: dict[str, bool] = {}
    for file in patch.files:
        for one in parse(file.name, file.content):
            gone[plain_path(one.source_file)] = bool(one.is_removed_file or one.is_rename)
            gone[plain_path(one.target_file)] = bool(one.is_removed_file)
    return [
        path
        for path in patch.spec.files
        if not gone.get(path)
        and any(path.startswith(f"{folder}/") for folder in folders)
        and PurePosixPath(path).name.startswith("test_")
    ]


def evaluation(context: Context) -> list[str]:
    """Say what a person says of a model's evaluation: no record of contribbot holds one."""
    said = context.figures.patch.spec.contribution.model_evaluation
    if not said:
        return ["Model evaluation: **not run**."]
    return _led("**Model evaluation**, as a person says; no record is of it:", said)


def checklist(context: Context) -> list[str]:
    """Return the checklist; only what is known is ticked."""
    rows = [
        f"- [{'x' if _ticked(context, item.tick) else ' '}] {item.text}"
        for item in context.section.items
    ]
    return ["\n".join(rows)] if rows else []


def _ticked(context: Context, tick: Tick) -> bool:
    patch = context.figures.patch
    if tick == "ai":
        return ai_used(patch.spec.contribution)
    if tick == "tests":
        return bool(test_files(patch, context.rules))
    if tick == "benchmarks":
        return bool(context.figures.of("bench"))
    return tick == "docs" and bool(patch.spec.contribution.docs)


#: A function for each block.
BLOCKS: Final[dict[Block, Callable[[Context], list[str]]]] = {
    "words": words,
    "problem": problem,
    "cause": cause,
    "solution": solution,
    "waits": waits,
    "related": related,
    "issue": issue,
    "claims": claims,
    "commands": commands,
    "tests": tests,
    "numerics": numerics,
    "compile": compiled,
    "witness": witness,
    "speed": speed,
    "grid": grid,
    "evaluation": evaluation,
    "duplicates": duplicates,
    "breaking": breaking,
    "ai": disclosure,
    "checklist": checklist,
    "records": records,
    "docs": docs,
}


#: How short a text can be made.
LEVELS: Final = 4
#: What GitHub takes as a title, in characters.
_LONGEST_TITLE: Final = 256
#: Reads a file of the upstream's default branch: repository and path to its text, or to None
#: where there is no such file. It may raise `GitHubError`.
ReadLive = Callable[[str, str], str | None]
_NOT_COMPARED: Final = "not compared with the live template"


class RecordRef(Model):
    """A record that figures are from.

    Attributes:
        label: How the text names it.
        file: Where it lies, seen from the queue.
        seal: Its seal.
    """

    label: str
    file: str
    seal: str


class Body(Model):
    """The text of a pull request, and what is still to be done about it.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        title: The pull request's title.
        template: The version of the template.
        text: The text (Markdown).
        sha256: Digest of the text.
        characters: Its length.
        budget: The length that the upstream's rules ask for.
        records: Where the figures are from.
        not_run: Targets on whose hardware nothing ran.
        wants: What a person still has to write.
        live: How the live template differs, a line each; or that it was not looked at.
    """

    patch: str
    upstream: str
    repository: str
    title: str
    template: str
    text: str
    sha256: str
    characters: int
    budget: int
    records: tuple[RecordRef, ...]
    not_run: tuple[str, ...]
    wants: tuple[str, ...]
    live: tuple[str, ...]


def make_body(
    queue: Queue,
    name: str,
    *,
    version: str = "",
    read_live: ReadLive | None = None,
    searched: Searched | None = None,
) -> Body:
    """Make the text of a patch's pull request."""
    figures = gather(queue, name)
    rules = rules_of(queue, figures.patch.spec.upstream)
    template = template_of(queue, rules, version)
    text = _within(figures, rules, template, searched)
    upstream = figures.patch.upstream
    return Body(
        patch=name,
        upstream=upstream.name,
        repository=upstream.repository,
        title=_title(figures),
        template=template.version,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        characters=len(text),
        budget=rules.body.budget,
        records=tuple(
            RecordRef(
                label=one.label,
                file=one.file,
                seal=one.record.statement.seal if one.record.statement else "",
            )
            for one in figures.sources
        ),
        not_run=not_run(grid_of(figures, rules)),
        wants=_wants(figures, rules, template),
        live=_live(rules, template, upstream.repository, read_live),
    )


def _title(figures: Figures) -> str:
    """Return the title, if GitHub takes it."""
    title = clean(figures.patch.spec.title)
    if not 0 < len(title) <= _LONGEST_TITLE:
        raise QueueError(
            f"{figures.patch.folder / 'patch.toml'}: title: {len(title)} characters that print; "
            f"GitHub takes 1 to {_LONGEST_TITLE}",
            hint="write a title that a list of pull requests can show",
        )
    return title


def _within(figures: Figures, rules: Rules, template: Template, searched: Searched | None) -> str:
    """Return the longest form of the text that keeps within the budget."""
    text = ""
    for level in range(LEVELS):
        text = render(figures, rules, template, level, searched)
        if len(text) <= rules.body.budget:
            return text
    limit = "GitHub takes" if len(text) > GITHUB_LIMIT else f"the rules of {rules.upstream} allow"
    most = min(rules.body.budget, GITHUB_LIMIT) if len(text) <= GITHUB_LIMIT else GITHUB_LIMIT
    raise QueueError(
        f"{figures.patch.folder / 'patch.toml'}: the text of the pull request has {len(text):,} "
        f"characters, and {limit} {most:,}",
        hint="shorten problem, root_cause or solution, or raise `budget` in "
        f"upstreams/contributing/{rules.upstream}.toml of the queue",
    )


def render(
    figures: Figures,
    rules: Rules,
    template: Template,
    level: int = 0,
    searched: Searched | None = None,
) -> str:
    """Return the text at one level of shortness."""
    paragraphs: list[str] = []
    for section in template.sections:
        context = Context(figures, rules, section, level, searched)
        if section.heading:
            paragraphs.append(section.heading)
        paragraphs += [section.text] if section.text else []
        for block in section.blocks:
            paragraphs += _block(context, template, block)
        paragraphs += _folded(context, section)
    return "\n\n".join(paragraphs) + "\n"


def _block(context: Context, template: Template, block: Block) -> list[str]:
    made = BLOCKS[block](context)
    # What a person wrote stands above the line from which on a machine speaks.
    if template.machine and block == "words":
        return [*made, template.machine]
    return made


def _folded(context: Context, section: Section) -> list[str]:
    inside = [line for block in section.folded for line in BLOCKS[block](context)]
    if not inside:
        return []
    return [f"<details>\n<summary>{section.summary}</summary>", *inside, "</details>"]


def _wants(figures: Figures, rules: Rules, template: Template) -> tuple[str, ...]:
    """Return what the upstream asks for and nobody has written."""
    contribution = figures.patch.spec.contribution
    used = {block for one in template.sections for block in (*one.blocks, *one.folded)}
    table = "[contribution] of patch.toml"
    told = (
        (
            rules.issue == "required" and contribution.issue is None,
            f"the issue that it fixes: `issue` in {table}",
        ),
        (rules.ai.disclosed and not contribution.ai, f"how AI was used: `ai` in {table}"),
        (
            rules.ai.contained and not contribution.words,
            f"your own words on it, beside what a machine wrote: `words` in {table}",
        ),
        (
            "breaking" in used and not contribution.breaking,
            f"whether something stops working for users: `breaking` in {table}",
        ),
    )
    return tuple(text for missing, text in told if missing)


def _live(
    rules: Rules, template: Template, repository: str, read_live: ReadLive | None
) -> tuple[str, ...]:
    if read_live is None:
        return (_NOT_COMPARED,)
    try:
        live = read_live(repository, rules.body.live)
    except GitHubError as error:
        return (clean(f"{_NOT_COMPARED}: {error.message}"),)
    if live is None:
        return (f"{_NOT_COMPARED}: {repository} has no {rules.body.live}",)
    return tuple(clean(line) for line in compare_with_live(template, live).lines)


#: A text is worth having without the comparison: nobody is to wait for that.
_AT_ONCE: Final = Waits(attempts=1, longest=0.0)


def live_reader(cache: Path) -> ReadLive:
    """Return what reads a file of an upstream's default branch.

    It raises `GitHubError` where GitHub cannot be asked, for want of a token too.
    """

    def read(repository: str, path: str) -> str | None:
        from contribbot.github.client import connect  # noqa: PLC0415  start-up time

        with connect(cache, waits=_AT_ONCE) as github:
            content = read_file(github, repository, path, "")
        return None if content is None else content.decode("utf-8", "replace")

    return read
