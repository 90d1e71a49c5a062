"""Benchmarks as SVG for a page: text stays text, and colours are the page's."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final

from contribbot.errors import MachineError, install
from contribbot.markdown import shortened
from contribbot.model.record import MeasuredCase
from contribbot.numerics.words import times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of the page, and what stands for each until the picture is drawn.
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
#: Inches: a phone shows it at nearly its own size.
_WIDTH: Final = 4.6
_LABEL: Final = 52
#: Cases that get a row with their name; of more a line each, in the order of their speed.
_NAMED: Final = 16
#: Factors between smallest and largest: from the first on an axis is logarithmic, up to the second
#: with ticks at 1, 2 and 5.
_WIDE, _DECADES = 4.0, 50.0
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]+>")
_IDS: Final = re.compile(r' id="|url\(#|href="#')


def intervals(key: str, cases: Sequence[MeasuredCase], at_least: float) -> str:
    """Draw the speed of each case with its interval, and the claim; `key` begins the ids."""
    matplotlib, stream = _module("matplotlib"), io.StringIO()
    named = len(cases) <= _NAMED
    shown = cases if named else sorted(cases, key=lambda case: case.ratio.median)
    with matplotlib.rc_context(_STYLE):
        size = (_WIDTH, len(shown) * (0.5 if named else 0.11) + 0.75)
        figure = _module("matplotlib.figure").Figure(figsize=size, layout="constrained")
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
    """Draw a case; its name stands above the row, so that the picture can be narrow."""
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
    """Set the scale: a logarithmic one for what lies far apart."""
    ticker = _module("matplotlib.ticker")
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
    """Return a picture as an element of a page: its ids are the page's, its colours CSS."""

    def adapted(tag: re.Match[str]) -> str:
        text = tag[0]
        for stand_in, colour in _CSS.items():
            text = text.replace(stand_in, colour)
        return _IDS.sub(lambda found: found[0] + key + "-", text)

    drawing = _TAG.sub(adapted, _METADATA.sub("", svg[svg.index("<svg") :]))
    return drawing.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _module(name: str) -> ModuleType:
    """Import what a report needs beyond contribbot's own dependencies."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise lacking(error) from error


def lacking(error: ImportError) -> MachineError:
    """Return the error that says what a report needs, and how to have it."""
    what = f"{error.name} is not installed, and a report needs it"
    return MachineError(what, hint=install("report"))
