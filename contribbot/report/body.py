"""What a person should know beside a text that was made: a pull request's, an issue's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contribbot.contribute.text.body import Body
from contribbot.contribute.text.reproducer import Reproducer
from contribbot.report.text import clean


def note_lines(body: Body) -> list[str]:
    """Return what is still to be written, what did not run, and how long the text is."""
    length = f"{body.characters:,} of {body.budget:,} characters"
    lines = [f"{body.patch}: {length}; template {body.upstream} {body.template}"]
    lines += [f"{body.patch}: still to write: {clean(one)}" for one in body.wants]
    lines += [f"{body.patch}: {clean(one)}" for one in body.live]
    if body.not_run:
        lines.append(f"{body.patch}: not run: {', '.join(body.not_run)}")
    return lines


def reproducer_lines(made: Reproducer, written: Sequence[Path]) -> list[str]:
    """Return what was written, and what it runs."""
    return [
        *(clean(str(path)) for path in written),
        f"{made.patch}: runs {clean(made.test)} of the check {made.check}; it fails on the base",
    ]
