"""The report of a queue as static pages: first all files are rendered, then put into a folder."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import contribbot
from contribbot.errors import MachineError, UsageError, install
from contribbot.files import write_atomically
from contribbot.github.auth import find_server
from contribbot.markdown import seconds, shortened, times
from contribbot.model.base import Model
from contribbot.model.evidence import ON_HARDWARE, RAN
from contribbot.model.record import MeasuredCase
from contribbot.queue.load import Queue
from contribbot.report import story as stories
from contribbot.report.story import PatchStory, PatchSummary, RecordRow
from contribbot.sweep.findings import SWEEP_OUTCOMES, Sweep, SweepComparison
from contribbot.verify.evidence import Record, State, missing, read_records
from contribbot.verify.verdict import too_noisy

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes


#: The most rows of a sweep's table of tests.
_MOST: Final = 200
#: The file that marks a folder as a report and lists the report's files.
_MARKER: Final = ".contribbot-report"
_TEMPLATES: Final = Path(__file__).with_name("templates")
#: Placeholders for the page's colours, replaced by CSS variables in the finished picture.
_TEXT, _QUIET, _PATCHED, _LIMIT, _GROUND = (f"#01010{number}" for number in range(1, 6))
_CSS: Final = {
    _TEXT: "currentColor",
    _QUIET: "var(--rule)",
    _PATCHED: "var(--patched)",
    _LIMIT: "var(--limit)",
    _GROUND: "var(--ground)",
}
_STYLE: Final[dict[str, object]] = {
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _TEXT,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.size": 11.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "contribbot",
    "text.color": _TEXT,
    "text.parse_math": False,
    "xtick.color": _QUIET,
    "xtick.labelcolor": _TEXT,
}
#: The width of a picture in inches, which a phone shows nearly unscaled.
_WIDTH: Final = 4.6
_LABEL: Final = 52
#: Up to this number, cases have rows with names; more cases have a line each, by speed.
_NAMED: Final = 16
#: Ratios of the largest to the smallest value: above the first, an axis is logarithmic; below the
#: second, a logarithmic axis has ticks at 1, 2 and 5.
_WIDE, _DECADES = 4.0, 50.0
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]+>")
_IDS: Final = re.compile(r' id="|url\(#|href="#')


class Report(Model):
    """The document of `evidence report --json`: the folder, the pages and the table of patches."""

    folder: str
    pages: tuple[str, ...]
    patches: tuple[PatchSummary, ...]
    records: dict[str, int]
    missing: tuple[str, ...]


class Survey(NamedTuple):
    """The content of all pages: of each patch, of records without a patch, and of the report."""

    stories: list[PatchStory]
    others: list[RecordRow]  # records of no patch of the queue
    report: Report


def make_report(queue: Queue, folder: Path) -> Report:
    """Write the report of a queue into a new or empty folder, or over an earlier report."""
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder}: not a folder", hint="name a folder for the report")
    if place.is_dir() and not (place / _MARKER).is_file() and any(place.iterdir()):
        why = "it has files in it, and none says that they are a report's"
        raise UsageError(f"{folder}: {why}", hint="name an empty folder, or a new one")
    survey = survey_of(queue, str(folder))
    files = _rendered(survey)
    marker = place / _MARKER
    old = marker.read_text("utf-8", "replace").splitlines() if marker.is_file() else []
    # Write the marker first: after a killed run, it still lists all files of the report.
    write_atomically(marker, "\n".join({*old, *files}).encode())
    for gone in (place / name for name in {*old} - {*files}):
        if gone.resolve().is_relative_to(place):
            gone.unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: name == "index.html"):
        write_atomically(place / name, files[name])
    write_atomically(marker, "\n".join(sorted(files)).encode())
    return survey.report


def survey_of(queue: Queue, folder: str = "") -> Survey:
    """Return the content of all pages, from the queue and its judged evidence records."""
    records, own = read_records(queue, queue.evidence), defaultdict[str, list[Record]](list)
    for record in records:
        own[record.path.parent.name].append(record)
    others = [each for name in own if name not in queue.specs for each in own[name]]
    patches = [queue.patch(name) for name in queue.own]
    columns = stories.columns_of(patches)
    told = [stories.patch_story(queue, patch, columns, own[patch.name]) for patch in patches]
    states = Counter(record.state for record in records)
    report = Report(
        folder=folder,
        pages=("index.html", *map(_page, told)),
        patches=tuple(story.row for story in told),
        records={str(state): states[state] for state in State},
        missing=tuple(missing(queue, records)),
    )
    return Survey(told, stories.rows_of(queue, others), report)


def _page(story: PatchStory) -> str:
    return f"patches/{story.patch.name}.html"


def _rendered(survey: Survey) -> dict[str, bytes]:
    """Return the content of every file of the report, by path, without writing a file."""
    environment = page_environment()
    told = sorted(survey.stories, key=lambda story: story.urgency)
    ran = (entry for story in told for stage in ON_HARDWARE for entry in story.of(stage))
    common = {
        **survey._asdict(),
        "version": contribbot.__version__,
        "web": find_server().web,
        "with_tests": RAN,
        "on_amd": any(entry.result.target.startswith("gfx") for entry in ran),
        "stories": told,
        "places": tuple(stories.PLACES),
    }
    index, page = map(environment.get_template, ("index.html.j2", "patch.html.j2"))
    files = {"index.html": index.render(common, top="").encode()}
    for story in told:
        files[_page(story)] = page.render(common, story=story, top="../").encode()
        shown = [row for row in story.records if row.published]
        files |= {row.file: row.record.path.read_bytes() for row in shown}
    return files


@contextlib.contextmanager
def _needed() -> Iterator[None]:
    """Raise MachineError, with the command that installs the package, for a failed import."""
    try:
        yield
    except ImportError as error:
        missing = f"{error.name} is not installed, and a report needs it"
        raise MachineError(missing, hint=install("report")) from error


def page_environment() -> Environment:
    """Return the environment of the page templates, which escapes all text."""
    with _needed():
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  start-up
        from markdown_it import MarkdownIt  # noqa: PLC0415  the same
        from markupsafe import Markup  # noqa: PLC0415  the same

    def shown(value: object) -> object:
        """Return a text with U+FFFD for control characters and marks of text direction."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in value)

    # Authors write Markdown; this preset shows HTML as text, and allows only safe links.
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
        "count": "{:,}".format,
        "seconds": seconds,
    }
    environment.tests["noisy"] = too_noisy
    environment.globals |= {
        "style": Markup((_TEMPLATES / "style.css").read_text("utf-8")),  # noqa: S704  our own
        "intervals": lambda *args: Markup(intervals(*args)),  # noqa: S704  matplotlib escapes
    }
    return environment


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


def intervals(key: str, cases: Sequence[MeasuredCase], at_least: float) -> str:
    """Return an SVG of cases' speeds and intervals, and of the claim; ids begin with `key`."""
    with _needed():
        import matplotlib as mpl  # noqa: PLC0415  start-up
        from matplotlib.figure import Figure  # noqa: PLC0415  the same

    named, stream = len(cases) <= _NAMED, io.StringIO()
    shown = cases if named else sorted(cases, key=lambda case: case.ratio.median)
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # its type lists all 300 keys
        size = (_WIDTH, len(shown) * (0.5 if named else 0.11) + 0.75)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.set_yticks([])
        for row, case in enumerate(shown):
            _draw(axes, row, case, named=named)
        axes.axvline(1.0, color=_TEXT, linewidth=1)
        axes.axvline(at_least, color=_LIMIT, linewidth=1.5, linestyle="--")
        ends = [end for case in cases for end in (case.ratio.low, case.ratio.high)]
        _scale(axes, [*ends, 1.0, at_least])
        axes.set_xlabel("x the base's speed")
        axes.set_ylim(len(shown) - 0.5, -0.75)
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=empty)
    return _element(stream.getvalue(), key, "Speed with the patch, as a multiple of the base's")


def _draw(axes: Axes, row: int, case: MeasuredCase, *, named: bool) -> None:
    """Draw a case's median and interval in a row; with `named`, also the case's name above."""
    ratio = case.ratio
    axes.plot([ratio.low, ratio.high], [row, row], color=_PATCHED, linewidth=2.5)
    axes.plot([ratio.median], [row], "o", color=_PATCHED, markersize=6 if named else 3)
    if named:
        text = shortened(f"{ratio.median:.3f}{', noise' * ratio.noise}: {case.case}", _LABEL)
        ground = {"facecolor": _GROUND, "edgecolor": "none", "pad": 1.0}
        place = axes.get_yaxis_transform()
        label = axes.text(0.0, row - 0.4, text, transform=place, va="center", zorder=5, bbox=ground)
        label.set_in_layout(False)


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Set the scale of the x axis: logarithmic if the values are far apart."""
    from matplotlib import ticker  # noqa: PLC0415  start-up

    low, high = min(values), max(values)
    if high > _WIDE * low:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.2, high * 1.2)
        ticks = (1, 2, 5) if high < _DECADES * low else (1,)
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=ticks))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    else:
        room = max((high - low) * 0.06, 0.03 * high)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _place: times(value)))


def _element(svg: str, key: str, title: str) -> str:
    """Return an SVG for use inside a page: with ids unique by `key`, and colours by CSS."""

    def adapted(tag: re.Match[str]) -> str:
        text = tag[0]
        for stand_in, colour in _CSS.items():
            text = text.replace(stand_in, colour)
        return _IDS.sub(lambda found: found[0] + key + "-", text)

    drawing = _TAG.sub(adapted, _METADATA.sub("", svg[svg.index("<svg") :]))
    return drawing.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
