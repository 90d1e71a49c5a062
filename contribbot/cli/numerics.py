"""`contribbot numerics`: the arithmetic by which two results differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from contribbot.cli.command import Reply, argument, command
from contribbot.numerics import explanation, recordings


@command("numerics explain cpu.safetensors gpu.safetensors")
def explain(
    a: Annotated[Path, argument("A", "A record of a computation, by contribbot.numerics.record.")],
    b: Annotated[Path, argument("B", "A record of the same computation and inputs.")],
) -> Reply:
    """Say how two results differ, and which arithmetic makes them differ; exit 1 if none does."""
    found = explanation.explain(recordings.read(a), recordings.read(b))
    return Reply(found, found.lines((a.name, b.name)), int(not found.complete))
