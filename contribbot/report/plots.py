"""Pictures as SVG for a page: text stays text, and colours are the page's, in light and in dark."""

from __future__ import annotations

import importlib
import io
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final

from contribbot.contribute.figures import Case
from contribbot.errors import MachineError
from contribbot.files import cache_folder
from contribbot.numerics.words import times
from contribbot.report.story import Errors, Kernels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What installs what a report needs.
INSTALL: Final = "python -m pip install 'contribbot[report]'"
#: Colours that stand for those of the page until the picture is drawn.
_TEXT, _QUIET, _BASE, _PATCHED, _LIMIT, _GROUND = (
    "#010101", "#010102", "#010103", "#010104", "#010105", "#010106",
)  # fmt: skip
_CSS: Final = {
    _TEXT: "currentColor", _QUIET: "var(--rule)", _BASE: "var(--base)",
    _PATCHED: "var(--patched)", _LIMIT: "var(--limit)", _GROUND: "var(--ground)",
}  # fmt: skip
_STYLE: Final[dict[str, object]] = {
    "axes.edgecolor": _QUIET, "axes.labelcolor": _TEXT, "axes.spines.left": False,
    "axes.spines.right": False, "axes.spines.top": False, "font.family": "sans-serif",
    "font.size": 11.0, "grid.color": _QUIET, "legend.frameon": False, "svg.fonttype": "none",
    "svg.hashsalt": "contribbot", "text.color": _TEXT, "text.parse_math": False,
    "xtick.color": _QUIET, "xtick.labelcolor": _TEXT,
}  # fmt: skip
#: Inches: a phone shows it at nearly its own size.
_WIDTH: Final = 4.6
_ROW: Final = 0.5
#: Cases that get a row with their name; of more a line each, in the order of their speed.
_NAMED: Final = 16
#: The part of what is allowed below which an error stands at the edge.
_SMALL: Final = 0.05
#: From this factor between smallest and largest on, an axis is logarithmic.
_WIDE: Final = 4.0
#: Up to this factor its ticks are 1, 2 and 5, beyond it powers of ten.
_DECADES: Final = 50.0
_SVG: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"


def intervals(key: str, cases: Sequence[Case], at_least: float) -> str:
    """Draw the speed of each case with its interval, and the claim."""
    named = len(cases) <= _NAMED
    shown = cases if named else sorted(cases, key=lambda case: case.ratio.median)
    pitch = _ROW if named else 0.11
    with _drawn(key, "Speed with the patch, as a multiple of the base's", len(shown) * pitch) as (
        drawing, axes,
    ):  # fmt: skip
        for row, case in enumerate(shown):
            ratio = case.ratio
            axes.plot([ratio.low, ratio.high], [row, row], color=_PATCHED, linewidth=2.5)
            axes.plot([ratio.median], [row], "o", color=_PATCHED, markersize=6 if named else 3)
            if named:
                said = f"{case.case}: {ratio.median:.3f}{' (noise)' if ratio.noise else ''}"
                _label(axes, row, said)
        axes.axvline(1.0, color=_TEXT, linewidth=1)
        axes.axvline(at_least, color=_LIMIT, linewidth=1.5, linestyle="--")
        ends = [*(case.ratio.low for case in cases), *(case.ratio.high for case in cases)]
        _scale(axes, [*ends, 1.0, at_least], len(shown), "x the base's speed")
    return drawing.text


def errors(key: str, groups: Sequence[Errors], allowed: float) -> str:
    """Draw the errors of a grid on both trees, and what is allowed."""
    with _drawn(key, "Errors as multiples of what decides", len(groups) * _ROW * 1.2) as (
        drawing, axes,
    ):  # fmt: skip
        # How small an error is that is far from the limit is of no interest.
        least = allowed * _SMALL
        values = [max(value, least) for group in groups for value in (*group.base, *group.patched)]
        for row, group in enumerate(groups):
            for side, offset, face, edge in (
                (group.base, 0.0, "none", _BASE), (group.patched, 0.22, _PATCHED, _PATCHED),
            ):  # fmt: skip
                shown = [max(value, least) for value in side]
                axes.plot(shown, [row + offset] * len(shown), "o", markerfacecolor=face,
                          markeredgecolor=edge, markersize=5)  # fmt: skip
            _label(axes, row, f"{group.name}, {group.dtype}")
        axes.axvline(allowed, color=_LIMIT, linewidth=1.5, linestyle="--")
        _scale(axes, [*values, allowed], len(groups), "x the error of plain code")
    return drawing.text


def instructions(key: str, rows: Sequence[Kernels]) -> str:
    """Draw the instructions of all kernels, before and after, target by target."""
    with _drawn(key, "Instructions before and after", len(rows) * _ROW * 1.2) as (drawing, axes):
        for row, kernels in enumerate(rows):
            before, after = kernels.instructions
            axes.barh(row - 0.02, before, 0.2, facecolor="none", edgecolor=_BASE, linewidth=1.2)
            axes.barh(row + 0.22, after, 0.2, color=_PATCHED)
            old = f"{before:,}" if before else "none"
            name = f"{kernels.entry.result.target} {kernels.entry.name}"
            _label(axes, row, f"{name}: {old} \N{RIGHTWARDS ARROW} {after:,}")
        axes.set_ylim(len(rows) - 0.4, -0.75)
        axes.xaxis.set_major_locator(_ticker().MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(_ticker().StrMethodFormatter("{x:,.0f}"))
        axes.set_xlabel("instructions")
    return drawing.text


class _Drawing:
    """A picture's text, once it is drawn."""

    text = ""


@contextmanager
def _drawn(key: str, title: str, height: float) -> Iterator[tuple[_Drawing, Axes]]:
    """Give axes to draw on; afterwards the drawing has its text."""
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra of the package

    drawing = _Drawing()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height + 0.75), layout="constrained")
        axes = figure.add_subplot()
        axes.set_yticks([])
        yield drawing, axes
        drawing.text = _svg(figure, key, title)


def _label(axes: Axes, row: int, text: str) -> None:
    """Write a row's name above it, so that the picture can be narrow."""
    ground = {"facecolor": _GROUND, "edgecolor": "none", "pad": 1.0}
    place = axes.get_yaxis_transform()
    axes.text(0.0, row - 0.4, text, transform=place, va="center", zorder=5, bbox=ground)


def _scale(axes: Axes, values: Sequence[float], rows: int, label: str) -> None:
    """Set both axes: rows from the top, and a logarithmic scale for what lies far apart."""
    low, high = min(values), max(values)
    if high > _WIDE * low:
        axes.set_xscale("log")
        few = high < _DECADES * low
        axes.xaxis.set_major_locator(_ticker().LogLocator(subs=(1, 2, 5) if few else (1,)))
        axes.xaxis.set_minor_locator(_ticker().NullLocator())
        axes.set_xlim(low / 1.2, high * 1.2)
    else:
        room = max((high - low) * 0.06, 0.03 * high)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(_ticker().MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(_ticker().FuncFormatter(lambda value, _place: times(value)))
    axes.set_ylim(rows - 0.5, -0.75)
    axes.set_xlabel(label)


def _svg(figure: Figure, key: str, title: str) -> str:
    """Return a figure as an element of a page: its ids are the page's, its colours CSS."""
    stream = io.StringIO()
    empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=empty)
    ET.register_namespace("", _SVG)
    root = ET.fromstring(stream.getvalue().encode())  # noqa: S314  matplotlib wrote it just now
    for child in [*root]:
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
    for element in root.iter():
        for name, value in [*element.attrib.items()]:
            if name == "id":
                element.set(name, f"{key}-{value}")
            elif name == _LINK:
                element.set("href", f"#{key}-{value[1:]}")
                del element.attrib[name]
            else:
                element.set(name, _coloured(value).replace("url(#", f"url(#{key}-"))
    ET.SubElement(root, f"{{{_SVG}}}title").text = title
    root.insert(0, root[-1])
    del root[-1]
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.set("role", "img")
    root.set("aria-label", title)
    return ET.tostring(root, encoding="unicode")


def _coloured(value: str) -> str:
    for stand_in, colour in _CSS.items():
        value = value.replace(stand_in, colour)
    return value


def _matplotlib() -> ModuleType:
    """Import matplotlib; what it keeps on disk lies in contribbot's cache."""
    before = os.environ.get("MPLCONFIGDIR")
    os.environ["MPLCONFIGDIR"] = before or str(cache_folder() / "matplotlib")
    try:
        # All that looks for fonts, too, which it keeps.
        importlib.import_module("matplotlib.backends.backend_svg")
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise MachineError(
            "matplotlib is not installed: it draws a report", hint=INSTALL
        ) from error
    finally:
        if before is None:
            del os.environ["MPLCONFIGDIR"]


def _ticker() -> ModuleType:
    return importlib.import_module("matplotlib.ticker")
