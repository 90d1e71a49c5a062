"""The report's pages: rendered whole, then put into their folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import contribbot
from contribbot.contribute.body import seconds
from contribbot.errors import UsageError
from contribbot.files import lock
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import ON_HARDWARE
from contribbot.numerics.words import count, times
from contribbot.queue.load import Queue
from contribbot.report import plots
from contribbot.report.grid import TargetCell, TargetColumn, columns_of
from contribbot.report.story import PatchStory, RecordRow, rows_of, tell
from contribbot.runners.model import load_fleet
from contribbot.verify.evidence import State, missing, read_records

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: The file that says that a folder is a report's, and which files of it are.
MARKER: Final = ".contribbot-report"
_TEMPLATES: Final = Path(__file__).with_name("templates")


class PatchSummary(Model):
    """A patch's row of the grid."""

    patch: str
    title: str
    upstream: str
    pin: str
    verdict: str
    cells: tuple[TargetCell, ...]


class Report(Model):
    """What `report --json` prints: the grid, and where the pages are."""

    folder: str
    pages: tuple[str, ...]
    patches: tuple[PatchSummary, ...]
    records: dict[str, int]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What the pages are made of."""

    columns: list[TargetColumn]
    stories: list[PatchStory]
    others: list[RecordRow]  # records that are of no patch of the queue
    report: Report


def make_report(queue: Queue, folder: Path) -> Report:
    """Write the report of a queue into a folder."""
    place = folder.resolve()
    _refuse_foreign(folder, place)
    survey = survey_of(queue, str(folder))
    files = _rendered(survey)
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "report.lock", "a report"):
        _put(place, files)
    return survey.report


def survey_of(queue: Queue, folder: str = "") -> Survey:
    """Read the queue and its records, and judge what is there."""
    records = read_records(queue, queue.evidence)
    patches = [queue.patch(name) for name in queue.specs]
    columns = columns_of(patches, records, load_fleet(queue.folder, needed=False).runners)
    stories = [tell(queue, patch, columns, records) for patch in patches]
    known = {row.file for story in stories for row in story.records}
    others = [row for row in rows_of(queue, records) if row.file not in known]
    states = Counter(str(record.state) for record in records)
    report = Report(
        folder=folder, pages=("index.html", *map(_page, stories)),
        patches=tuple(
            PatchSummary(
                patch=story.patch.name, title=story.spec.title, upstream=story.spec.upstream,
                pin=story.spec.pin, verdict=story.verdict, cells=story.cells,
            )
            for story in stories
        ),
        records={str(state): states[state] for state in State},
        missing=tuple(missing(queue, records)),
    )  # fmt: skip
    return Survey(columns, stories, others, report)


def _page(story: PatchStory) -> str:
    return f"patches/{story.patch.name}.html"


def _rendered(survey: Survey) -> dict[str, bytes]:
    """Return every file of the report; nothing is written yet."""
    environment = _environment()
    common = {
        **vars(survey), "version": contribbot.__version__, "web": find_server().web,
        "hardware": ON_HARDWARE, "on_amd": _ran_on_amd(survey.stories),
    }  # fmt: skip
    index, page = map(environment.get_template, ("index.html.j2", "patch.html.j2"))
    files = {"index.html": index.render(common, top="").encode()}
    for story in survey.stories:
        files[_page(story)] = page.render(common, story=story, top="../").encode()
        files |= {
            row.file: row.source.record.path.read_bytes()
            for row in story.records
            if row.published and row.source is not None
        }
    return files


def _ran_on_amd(stories: Sequence[PatchStory]) -> bool:
    """Say whether a record that holds saw something run on an AMD GPU."""
    return any(
        entry.result.target.startswith("gfx")
        for story in stories
        for stage in ON_HARDWARE
        for entry in story.of(stage)
    )


def _environment() -> Environment:
    """Return what fills the pages: all text is escaped, and can obey nobody."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  start-up
    from markupsafe import Markup  # noqa: PLC0415  the same

    def shown(value: object) -> object:
        """Return text without control characters, and without those that turn a line round."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in value)

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=shown,
    )  # fmt: skip
    drawn = {draw.__name__: draw for draw in (plots.intervals, plots.errors, plots.instructions)}
    environment.globals |= {
        # What matplotlib draws is markup; the text in it was escaped there.
        name: lambda *args, draw=draw: Markup(draw(*args))  # noqa: S704
        for name, draw in drawn.items()
    }
    environment.globals["style"] = Markup((_TEMPLATES / "style.css").read_text("utf-8"))  # noqa: S704  ours
    environment.filters |= {
        "prose": _prose, "times": times, "count": count, "seconds": seconds, "clean": shown,
    }  # fmt: skip
    return environment


def _prose(text: str) -> Markup:
    """Return an author's Markdown as paragraphs, lists and code: no HTML, no image, no heading."""
    from markdown_it import MarkdownIt  # noqa: PLC0415  start-up time
    from markupsafe import Markup  # noqa: PLC0415  the same

    parser = MarkdownIt("js-default", {"linkify": False})
    parser.disable(["heading", "lheading", "image", "table"])
    return Markup(parser.render(text))  # noqa: S704  its preset escapes HTML


def _refuse_foreign(name: Path, place: Path) -> None:
    """Refuse a folder with files in it that no report has written."""
    if place.exists() and not place.is_dir():
        raise UsageError(f"{name}: not a folder", hint="name a folder for the report")
    if place.is_dir() and any(place.iterdir()) and not (place / MARKER).is_file():
        why = "it has files in it, and none says that they are a report's"
        raise UsageError(f"{name}: {why}", hint="name an empty folder, or a new one")


def _put(place: Path, files: dict[str, bytes]) -> None:
    """Put files into a folder: a new one in one move, into one that is there file by file.

    All of them are on the disk before the first takes its place. What an earlier report wrote,
    and this one does not, goes.
    """
    there = place.is_dir()
    parent = place if there else place.parent
    parent.mkdir(parents=True, exist_ok=True)
    marker = "".join(f"{name}\n" for name in sorted(files))
    with tempfile.TemporaryDirectory(prefix=".contribbot-", dir=parent) as scratch:
        made = Path(scratch, "report")
        for name, content in {**files, MARKER: marker.encode()}.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        if not there:
            made.rename(place)
            return
        old = _listed(place)
        # The index last: what it links to is there.
        for name in (MARKER, *sorted(files, key=lambda name: name == "index.html")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).replace(place / name)
        for name in old - {*files}:
            (place / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others' files are in it
                (place / name).parent.rmdir()


def _listed(place: Path) -> set[str]:
    """Return the files of the report that is there, as its marker names them."""
    marker = place / MARKER
    names = marker.read_text("utf-8", "replace").splitlines() if marker.is_file() else []
    return {
        name for name in names
        if (place / name).resolve().is_relative_to(place) and (place / name).is_file()
    }  # fmt: skip
