"""Blocks of figures: tests, numbers, code, and where each figure is from."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pydantic import ValidationError

from contribbot.contribute.text.escape import cell, code, plain
from contribbot.contribute.text.figures import Figures
from contribbot.contribute.text.grid import COLUMNS, grid_of
from contribbot.contribute.text.seen import Seen, Source, other_release
from contribbot.model.gate import Searched
from contribbot.model.rules import Rules, Section
from contribbot.numerics.records import CellRecord, OutputRecord
from contribbot.numerics.words import number

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
