"""The report's pages: rendered whole, then put into their folder."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import contribbot
from contribbot.errors import UsageError
from contribbot.files import lock, write_atomically
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import ON_HARDWARE, RAN
from contribbot.numerics.words import count, seconds, times
from contribbot.queue.load import Queue
from contribbot.report import plots
from contribbot.report.coverage import PLACES, columns_of
from contribbot.report.story import (
    PatchStory,
    PatchSummary,
    RecordRow,
    rows_of,
    tell,
)
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison
from contribbot.verify.evidence import Record, State, missing, read_records
from contribbot.verify.patch_verdict import too_noisy

if TYPE_CHECKING:
    from jinja2 import Environment


#: Rows of a sweep's table of tests.
_MOST: Final = 200
#: The file that says that a folder is a report's, and which files of it are.
_MARKER: Final = ".contribbot-report"
_TEMPLATES: Final = Path(__file__).with_name("templates")


class Report(Model):
    """The document of `evidence report --json`: the grid, and where the pages are."""

    folder: str
    pages: tuple[str, ...]
    patches: tuple[PatchSummary, ...]
    records: dict[str, int]
    missing: tuple[str, ...]


class Survey(NamedTuple):
    """The content of the pages."""

    stories: list[PatchStory]
    others: list[RecordRow]  # of no patch of the queue
    report: Report


def make_report(queue: Queue, folder: Path) -> Report:
    """Write the report of a queue into a folder: a new one, an empty one, or an earlier report."""
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder}: not a folder", hint="name a folder for the report")
    if place.is_dir() and not (place / _MARKER).is_file() and any(place.iterdir()):
        why = "it has files in it, and none says that they are a report's"
        raise UsageError(f"{folder}: {why}", hint="name an empty folder, or a new one")
    survey = survey_of(queue, str(folder))
    files = _rendered(survey)
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / "report.lock", "a report"):
        _put(place, files)
    return survey.report


def survey_of(queue: Queue, folder: str = "") -> Survey:
    """Read the queue and its records, and judge what is there."""
    records = read_records(queue, queue.evidence)
    own: dict[str, list[Record]] = {name: [] for name in queue.specs}
    others: list[Record] = []
    for record in records:
        own.get(record.path.parent.name, others).append(record)
    rows = {name: rows_of(queue, found) for name, found in own.items()}
    patches = [queue.patch(name) for name in queue.specs]
    columns = columns_of(patches)
    stories = [tell(queue, patch, columns, rows[patch.name]) for patch in patches]
    states = Counter(record.state for record in records)
    report = Report(
        folder=folder,
        pages=("index.html", *map(_page, stories)),
        patches=tuple(story.row for story in stories),
        records={str(state): states[state] for state in State},
        missing=tuple(missing(queue, records)),
    )
    return Survey(stories, rows_of(queue, others), report)


def _page(story: PatchStory) -> str:
    return f"patches/{story.patch.name}.html"


def _rendered(survey: Survey) -> dict[str, bytes]:
    """Return every file of the report; nothing is written yet."""
    environment = page_environment()
    stories = sorted(survey.stories, key=lambda story: story.urgency)
    # Verdicts first, upstreams last.
    places = zip(*(story.labels for story in stories), strict=True)
    labels = Counter(label for place in places for label in place if label)
    on_amd = any(
        entry.result.target.startswith("gfx")
        for story in stories
        for stage in ON_HARDWARE
        for entry in story.of(stage)
    )
    common = {
        **survey._asdict(),
        "version": contribbot.__version__,
        "web": find_server().web,
        "with_tests": RAN,
        "on_amd": on_amd,
        "labels": labels,
        "stories": stories,
        "places": tuple(PLACES),
    }
    index, page = map(environment.get_template, ("index.html.j2", "patch.html.j2"))
    files = {"index.html": index.render(common, top="").encode()}
    for story in stories:
        files[_page(story)] = page.render(common, story=story, top="../").encode()
        shown = [row for row in story.records if row.published]
        files |= {row.file: row.record.path.read_bytes() for row in shown}
    return files


def page_environment() -> Environment:
    """Return what fills the pages: all text is escaped, and can obey nobody."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  start-up
        from markdown_it import MarkdownIt  # noqa: PLC0415  the same
        from markupsafe import Markup  # noqa: PLC0415  the same
    except ImportError as error:
        raise plots.lacking(error) from error

    def shown(value: object) -> object:
        """Return text without control characters, and without those that turn a line round."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in value)

    # Authors write Markdown; this preset shows HTML as text, and takes links to the web alone.
    markdown = MarkdownIt("js-default").disable(["heading", "lheading", "image", "table"])
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters |= {
        "prose": lambda text: Markup(markdown.render(str(shown(text)))),  # noqa: S704  as said above
        "times": times,
        "count": count,
        "seconds": seconds,
    }
    environment.tests["noisy"] = too_noisy
    environment.globals |= {
        "style": Markup((_TEMPLATES / "style.css").read_text("utf-8")),  # noqa: S704  our own
        "intervals": lambda *args: Markup(plots.intervals(*args)),  # noqa: S704  matplotlib escapes
    }
    return environment


def _put(place: Path, files: dict[str, bytes]) -> None:
    """Put files into a folder, the index last: what it links to is there; old files go."""
    marker = place / _MARKER
    old = marker.read_text("utf-8", "replace").splitlines() if marker.is_file() else []
    # A run that is killed leaves a folder that says whose its files are.
    names = "".join(f"{name}\n" for name in sorted({*old, *files}))
    write_atomically(marker, names.encode())
    for name in sorted(files, key=lambda name: name == "index.html"):
        write_atomically(place / name, files[name])
    for gone in (place / name for name in {*old} - {*files}):
        if gone.resolve().is_relative_to(place) and gone.is_file():
            gone.unlink()
            with contextlib.suppress(OSError):  # others' files are in it
                gone.parent.rmdir()
    write_atomically(marker, "".join(f"{name}\n" for name in sorted(files)).encode())


def sweep_page(sweep: Sweep, comparison: SweepComparison | None) -> bytes:
    """Return the page of a sweep, and of its comparison with an earlier sweep."""
    template = page_environment().get_template("sweep.html.j2")
    troubled = [row for row in sweep.tests if row.outcome not in {"passed", "skipped"}]
    return template.render(
        sweep=sweep,
        compared=comparison,
        names=SWEEP_OUTCOMES,
        troubled=troubled[:_MOST],
        left_out=max(0, len(troubled) - _MOST),
        version=contribbot.__version__,
    ).encode()
