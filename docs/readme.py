"""README's table and pictures of this repository's queue; `make readme` writes both."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image

from contribbot.markdown import plain
from contribbot.queue.load import Queue, load_queue
from contribbot.report import Survey, make_report, survey_of
from contribbot.report.story import RUN, CellLine, Mark, PatchSummary
from tests.browser import chromium, picture, show

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs/images"
_MARKED: Final = re.compile(r"(<!-- grid: make readme -->\n).*?(<!-- grid: end -->)", re.DOTALL)


def main() -> None:
    """Write README.md and its pictures."""
    queue, readme = load_queue(ROOT), ROOT / "README.md"
    readme.write_text(rewritten(readme.read_text("utf-8"), queue), "utf-8")
    draw(queue)


def rewritten(text: str, queue: Queue) -> str:
    """Return README.md with the table of what the records say."""
    shown = table(survey_of(queue))
    return _MARKED.sub(lambda found: found[1] + shown + found[2], text)


def table(survey: Survey) -> str:
    """Return the grid of the report's first page as Markdown."""
    head = "| patch | what it does | verdict | ran on | compiled, not run | emulated |"
    rule = re.sub(r"[^|]+", "---", head)
    return "\n".join([head, rule, *(_row(patch) for patch in survey.report.patches)]) + "\n"


def _row(patch: PatchSummary) -> str:
    lines: dict[str, dict[str, CellLine]] = {}
    for cell in patch.cells:
        for line in cell.lines:
            lines.setdefault(line.title, {})[cell.target] = line
    names = {"cpu": "CPU", "cuda": "CUDA"}
    ran = [
        names.get(target, target) + ("" if line.mark is Mark.PASSED else f": {line.text}")
        for target, line in lines[RUN].items()
        if line.mark is not Mark.OPEN
    ]
    made = [
        ", ".join(
            target.removeprefix("emulated:")
            for target, line in lines.get(stage, {}).items()
            if line.mark is Mark.PASSED
        )
        for stage in ("compile", "emulate")
    ]
    state = "superseded" if patch.superseded else ""
    state = "turned down" if patch.turned_down else state
    cells = (f"`{patch.patch}`, {patch.upstream} {patch.pin}", plain(patch.title),
             f"{state}; {patch.verdict}" if state else patch.verdict,
             *(targets or "-" for targets in (", ".join(ran), *made)))  # fmt: skip
    return f"| {' | '.join(cells)} |"


def draw(queue: Queue) -> None:
    """Take how a patch was proved, from its page, as pictures."""
    with tempfile.TemporaryDirectory() as name, chromium(Path(name, "profile")) as browser:
        make_report(queue, Path(name, "site"))
        for scheme in ("light", "dark"):
            show(browser, Path(name, "site/patches/rmsnorm.html"), 1040, scheme)
            image = Image.open(io.BytesIO(picture(browser, ".proof .sides")))
            # Flat colours: a palette is a third of the size.
            image.quantize(128).save(IMAGES / f"proof-{scheme}.png", optimize=True)


if __name__ == "__main__":
    main()
