"""Format numbers, and make foreign text harmless, for Markdown or a terminal."""

from __future__ import annotations

import itertools
import re
from typing import Final

_ANSI: Final = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
#: Text that GitHub links or acts on: `@name`, `#1`, `GH-1`, the address of an issue.
_LIVE: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_])@(?=[A-Za-z0-9])"
    r"|#(?=[0-9])"
    r"|(?<![A-Za-z0-9_])GH-(?=[0-9])"
    r"|/(?:issues|pull|pulls|discussions|commit)/(?=[0-9a-f]))",
    re.IGNORECASE,
)
#: An invisible character that allows no line break; it splits a word in two.
JOINER: Final = "\N{WORD JOINER}"
_MARKDOWN: Final = {ord(char): f"\\{char}" for char in "\\`*_[]|~"} | {
    ord("<"): "&lt;",
    ord("&"): "&amp;",
    ord("@"): "&#64;",
    ord("#"): "&#35;",
}
#: Text that GitHub turns into a link without markup.
_ADDRESS: Final = re.compile(r"(?i)(\b(?:https?|ftp|mailto|xmpp)):|\b(www)\.|\bGH-(?=[0-9])")
_TICKS: Final = re.compile(r"`+")
#: From `_WHOLE` on, a factor is shown without decimals, from `_MANY` on with an exponent.
_WHOLE: Final = 100
_MANY: Final = 10**6
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def clean(text: str) -> str:
    """Return one line without control characters, terminal escapes and writing directions."""
    spaced = re.sub(r"\s+", " ", _ANSI.sub("", text)).strip()
    return "".join(char for char in spaced if char.isprintable())


def inert(line: str) -> str:
    """Return a line in which GitHub finds no mention and no reference."""
    return _LIVE.sub(lambda found: found.group() + JOINER, line)


def plain(text: str) -> str:
    """Return one line that is escaped for use within a line of Markdown."""
    return _ADDRESS.sub(
        lambda found: found.group()[:-1] + f"&#{ord(found.group()[-1])};",
        clean(text).translate(_MARKDOWN),
    )


def shortened(text: str, limit: int) -> str:
    """Return one line of at most `limit` characters, with an ellipsis in place of the rest."""
    line = clean(text)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def code(text: str, *, limit: int = 0) -> str:
    """Return text as a Markdown code span on one line, even if the text has backticks."""
    line = shortened(text, limit) if limit else clean(text)
    line = inert(line) or " "
    ticks = "`" * (max(map(len, _TICKS.findall(line)), default=0) + 1)
    edge = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{edge}{line}{edge}{ticks}"


def cell(text: str, *, limit: int = 0) -> str:
    """Return text as a Markdown code span that fits into a cell of a table."""
    # Markdown splits the row of a table at bars before it looks for code spans.
    return code(text, limit=limit).replace("|", "\\|")


def _row(text: str) -> str:
    """Return a line without control characters and terminal escapes, but with leading blanks."""
    wide = _ANSI.sub("", text).expandtabs(4)
    return "".join(char for char in wide if char.isprintable()).rstrip()


def fence(text: str, *, language: str = "", lines: int = 0) -> str:
    """Return text as a fenced block that nothing in the text can close."""
    rows = [*map(_row, text.splitlines())]
    if lines and len(rows) > lines:
        rows = [*rows[:lines], f"… {len(rows) - lines} more lines"]
    shown = [*map(inert, rows)]
    runs = (len(run) for row in shown for run in _TICKS.findall(row))
    ticks = "`" * max(3, max(runs, default=0) + 1)
    return "\n".join((ticks + language, *shown, ticks))


#: A row that is no text of a paragraph: of a list, quote, table, heading or definition.
_NO_TEXT: Final = re.compile(
    r" {4}|\s*(?:(?:[-+*]|[0-9]+[.)])(?:\s|$)|[>|]|\\[#=-]|:?-+:? *\||(?:[*_] *){3,}$|\[[^]]+\]:)"
)
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
#: A code span of CommonMark within one line: runs of as many backticks at both ends.
_SPAN: Final = re.compile(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)")


def prose(text: str) -> str:
    """Return Markdown with escaped headings and HTML, closed fences, and one line a paragraph."""
    shown: list[str] = []
    # Whether the row above is text of a paragraph, or of another block that a blank row ends.
    text_above = block = False
    fenced = ""
    # Whether a code span may have begun above in the paragraph: then no text is surely code.
    begun = False
    for raw in text.strip().splitlines():
        row = _row(raw)
        found = _FENCE.match(row)
        if fenced:
            closes = found and found[1].startswith(fenced) and not found[2].strip()
            fenced = "" if closes else fenced
        elif found and "`" not in found[2]:
            fenced, text_above = found[1], False
        else:
            row, begun = _tamed(row, begun=begun and bool(row))
            block = bool(row) and (block or bool(_NO_TEXT.match(row)))
            is_text = bool(row) and not block
            if is_text and text_above and not shown[-1].endswith("\\"):
                shown[-1] += f" {row.lstrip()}"
                continue
            text_above = is_text
        shown.append(row)
    if fenced:
        shown.append(fenced)
    return "\n".join(shown)


def _tamed(row: str, *, begun: bool) -> tuple[str, bool]:
    """Return a line with escaped headings and HTML, and whether a code span may go on below."""
    row = re.sub(r"^( {0,3})(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)", r"\1\\\2", row)
    spans = [] if begun else list(_SPAN.finditer(row))
    ends = [0, *(place for span in spans for place in span.span()), len(row)]
    # Text and code spans alternate, and text is first.
    parts = [row[start:end] for start, end in itertools.pairwise(ends)]
    parts[::2] = [re.sub(r"<(?=[A-Za-z/!?])", "&lt;", part) for part in parts[::2]]
    return "".join(parts), begun or any("`" in part for part in parts[::2])


#: The largest number of characters of a line.
_LINE: Final = 300


def line_of(text: str, limit: int = _LINE) -> str:
    """Return foreign text as one clean line of limited length, for a terminal."""
    # The text is cut before the cleaning, which would take too long for a huge text.
    return shortened(text[: 8 * limit], limit)


def number(value: float) -> str:
    """Return a number with two digits, such as `1.9` or `1.1e-3`."""
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{value:.2g}")


def times(ratio: float) -> str:
    """Return a factor as text, such as `2`, `1.3`, `1,700` or `3e12`."""
    if ratio >= _MANY:
        return number(ratio)
    return f"{ratio:,.0f}" if ratio >= _WHOLE else f"{ratio:.3g}"


def multiple(ratio: float, reference_abs: float, floor: float) -> str:
    """Return an error in words, as a multiple of the reference's error or of a larger floor."""
    if reference_abs >= floor:
        return f"{times(ratio)} times the same-precision reference's {number(reference_abs)}"
    reference = f"(same-precision reference: {number(reference_abs)})"
    return f"{times(ratio)} times the floor {number(floor)} {reference}"


def seconds(value: float) -> str:
    """Return seconds with three digits in a fitting unit, such as `1.25 ms`."""
    rounded = float(f"{value:.3g}")
    size, unit = next((pair for pair in _UNITS if rounded >= pair[0]), _UNITS[-1])
    return f"{value / size:.3g} {unit}"
