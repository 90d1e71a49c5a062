"""`contribbot demo`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

from contribbot.cli.command import Reply, argument, command, print_lines
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Code, width
from contribbot.demo import Demo, DemoStep, demo_folder, walk

_FIRST, _LAST = 10, 8
#: The width in columns of the commands' output if the demo's output is a pipe.
_PAGE = 100
_NEXT = "your first patch, in ten minutes: docs/first-patch.md; it begins with contribbot init DIR"


@command("demo look-around")
def demo(
    keep: Annotated[
        Path | None,
        argument("DIR", "A new folder, which keeps everything.", default="a temporary folder"),
    ] = None,
) -> Reply:
    """Take a toy patch from an empty queue to its pull request; nothing leaves this machine."""
    as_json = current_settings().as_json
    start, steps = time.monotonic(), list[DemoStep]()

    def begin(about: str, line: str) -> None:
        if not as_json:
            print_lines([*(["", f"# {about}"] if about else []), Code(f"$ {line}")])

    with demo_folder(keep) as folder:
        for step in walk(folder, columns=width() or _PAGE, begin=begin):
            steps.append(step)
            if not as_json:
                print_lines(_shortened(step))
    ended = Demo(steps=tuple(steps), kept=str(folder) if keep else "", next=_NEXT)
    return Reply(ended, _end_lines(ended, time.monotonic() - start))


def _shortened(step: DemoStep) -> list[str]:
    rows = step.output.splitlines()
    left_out = len(rows) - _FIRST - _LAST
    if left_out > 1:
        rows[_FIRST:-_LAST] = [f"[… {left_out} lines that the demo leaves out …]"]
    rows += [f"[exit code {step.exit_code}]"] if step.exit_code else []
    return [Code(row) for row in rows]


def _end_lines(ended: Demo, seconds: float) -> list[Block]:
    lines: list[Block] = [
        "",
        f"All of this ran here in {seconds:.0f} s, on a toy, and nothing left this machine.",
    ]
    if ended.kept:
        place = shlex.quote(ended.kept)
        lines += ["Kept:", Code(f"  cd {place}/my-queue")]
        lines.append(Code(f"  CONTRIBBOT_CACHE={place}/cache contribbot verify waves"))
    else:
        lines.append("It is removed again; `contribbot demo DIR` leaves it for you to look at.")
    return [*lines, f"next: {ended.next}"]
