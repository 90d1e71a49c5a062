"""`contribbot numerics`: why two results differ, and how far they may."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from contribbot.cli.command import JsonOption, argument, command, print_report
from contribbot.cli.text import clean, table
from contribbot.numerics.limits import TORCH_DEFAULTS, NoiseFloor
from contribbot.numerics.words import number


@command
def explain(
    a: Annotated[Path, argument("A", "A record of a computation, by contribbot.numerics.record.")],
    b: Annotated[Path, argument("B", "Another one of the same computation and inputs.")],
    as_json: JsonOption = False,
) -> int:
    """Say how two results differ, and which arithmetic would make it; exit 1 if none would."""
    from contribbot.numerics import explanation, recordings  # noqa: PLC0415  torch takes seconds

    found = explanation.explain(recordings.read(a), recordings.read(b))
    print_report(found, map(clean, found.lines((a.name, b.name))), as_json=as_json)
    return 1 if found.confidence is explanation.Confidence.NONE else 0


@command
def floor(
    record: Annotated[Path, argument("RECORD", "A record of a computation, with its inputs.")],
    as_json: JsonOption = False,
) -> None:
    """Measure how far orders of summation and other arithmetics move a recorded result.

    A tolerance reads what --json prints.
    """
    from contribbot.numerics import explanation, recordings  # noqa: PLC0415  torch takes seconds

    measured = explanation.noise_floor(recordings.read(record))
    print_report(measured, floor_lines(measured), as_json=as_json)


def floor_lines(measured: NoiseFloor) -> list[str]:
    """Return a noise floor as a table, with torch.testing's tolerance beside it."""
    rows = [("", "max abs", "max rel", "max ULPs")]
    named = {f"{measured.orders} orders of summation": measured.floor, **measured.arithmetics}
    for name, spread in named.items():
        if not spread.max_ulps:
            continue
        relative = "" if spread.max_rel is None else number(spread.max_rel)
        rows.append((f"  {name}", number(spread.max_abs), relative, f"{spread.max_ulps:,}"))
    usual = TORCH_DEFAULTS.get(measured.dtype)
    said = f"{measured.computation} {measured.dtype}, values up to {number(measured.largest)}"
    last = [f"  torch.testing allows: rtol {usual[0]:g}, atol {usual[1]:g}"] if usual else []
    return [f"{clean(said)}, {clean(measured.device)}", *table(rows), *last]
