"""Pictures as SVG for a page: text stays text, and colours are the page's, in light and in dark."""

from __future__ import annotations

import importlib
import io
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from contribbot.errors import MachineError, install
from contribbot.files import cache_folder
from contribbot.markdown import shortened
from contribbot.model.record import MeasuredCase
from contribbot.numerics.words import times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of the page, and what stands for each until the picture is drawn.
_TEXT, _QUIET, _BASE, _PATCHED, _LIMIT, _GROUND = (f"#01010{number}" for number in range(1, 7))
_CSS: Final = {
    _TEXT: "currentColor",
    _QUIET: "var(--rule)",
    _BASE: "var(--base)",
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
#: Inches: a phone shows it at nearly its own size.
_WIDTH: Final = 4.6
_ROW: Final = 0.5
_LABEL: Final = 52
#: Cases that get a row with their name; of more a line each, in the order of their speed.
_NAMED: Final = 16
#: Factors between smallest and largest: from the first on an axis is logarithmic, up to the second
#: with ticks at 1, 2 and 5.
_WIDE, _DECADES = 4.0, 50.0
_SVG: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"


def intervals(key: str, cases: Sequence[MeasuredCase], at_least: float) -> str:
    """Draw the speed of each case with its interval, and the claim."""
    named = len(cases) <= _NAMED
    shown = cases if named else sorted(cases, key=lambda case: case.ratio.median)

    def paint(axes: Axes) -> None:
        for row, case in enumerate(shown):
            ratio = case.ratio
            axes.plot([ratio.low, ratio.high], [row, row], color=_PATCHED, linewidth=2.5)
            axes.plot([ratio.median], [row], "o", color=_PATCHED, markersize=6 if named else 3)
            if named:
                _label(axes, row, f"{ratio.median:.3f}{', noise' * ratio.noise}: {case.case}")
        axes.axvline(1.0, color=_TEXT, linewidth=1)
        ends = [end for case in cases for end in (case.ratio.low, case.ratio.high)]
        _scale(axes, [*ends, 1.0], at_least, "x the base's speed")

    title = "Speed with the patch, as a multiple of the base's"
    return _drawn(key, title, len(shown), _ROW if named else 0.11, paint)


def _label(axes: Axes, row: int, text: str) -> None:
    """Write a row's name above it, so that the picture can be narrow."""
    ground = {"facecolor": _GROUND, "edgecolor": "none", "pad": 1.0}
    place = axes.get_yaxis_transform()
    text = shortened(text, _LABEL)
    written = axes.text(0.0, row - 0.4, text, transform=place, va="center", zorder=5, bbox=ground)
    written.set_in_layout(False)


def _scale(axes: Axes, values: Sequence[float], limit: float, label: str) -> None:
    """Draw the limit, and set a scale: a logarithmic one for what lies far apart."""
    axes.axvline(limit, color=_LIMIT, linewidth=1.5, linestyle="--")
    low, high = min(*values, limit), max(*values, limit)
    if high > _WIDE * low:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.2, high * 1.2)
        ticks = (1, 2, 5) if high < _DECADES * low else (1,)
        axes.xaxis.set_major_locator(_ticker().LogLocator(subs=ticks))
        axes.xaxis.set_minor_locator(_ticker().NullLocator())
    else:
        room = max((high - low) * 0.06, 0.03 * high)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(_ticker().MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(_ticker().FuncFormatter(lambda value, _place: times(value)))
    axes.set_xlabel(label)


def _drawn(key: str, title: str, rows: int, row: float, paint: Callable[[Axes], None]) -> str:
    """Return a picture as an element of a page: its ids are the page's, its colours CSS."""
    matplotlib, stream = _matplotlib(), io.StringIO()
    with matplotlib.rc_context(_STYLE):
        size = (_WIDTH, rows * row + 0.75)
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.set_yticks([])
        paint(axes)
        axes.set_ylim(rows - 0.5, -0.75)
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=empty)
    ET.register_namespace("", _SVG)
    drawing = ET.fromstring(stream.getvalue().encode())  # noqa: S314  matplotlib wrote it just now
    drawing.remove(drawing[0])  # metadata
    for element in drawing.iter():
        for name, value in [*element.attrib.items()]:
            for stand_in, colour in _CSS.items():
                value = value.replace(stand_in, colour)  # noqa: PLW2901  one after the other
            value = value.replace("url(#", f"url(#{key}-")  # noqa: PLW2901  the same
            element.set(name, f"{key}-{value}" if name == "id" else value)
        if link := element.attrib.pop(_LINK, ""):
            element.set("href", f"#{key}-{link[1:]}")
    box = {"viewBox": drawing.attrib["viewBox"], "role": "img", "aria-label": title}
    page = ET.Element(f"{{{_SVG}}}svg", box)
    ET.SubElement(page, f"{{{_SVG}}}title").text = title
    page.extend([*drawing])
    return ET.tostring(page, encoding="unicode")


def lacking(error: ImportError) -> MachineError:
    """Return the error that says what a report needs, and how to have it."""
    what = f"{error.name} is not installed, and a report needs it"
    return MachineError(what, hint=install("report"))


def _matplotlib() -> ModuleType:
    """Import matplotlib; what it keeps on disk, such as a list of fonts, lies in our cache."""
    chosen = os.environ.get("MPLCONFIGDIR")
    os.environ["MPLCONFIGDIR"] = chosen or str(cache_folder() / "matplotlib")
    try:
        importlib.import_module("matplotlib.figure")
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise lacking(error) from error
    finally:
        if chosen is None:
            del os.environ["MPLCONFIGDIR"]


def _ticker() -> ModuleType:
    return importlib.import_module("matplotlib.ticker")
