"""Show foreign text as Markdown or in a terminal, so that the text has no other effect."""

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


def clean(text: str) -> str:
    """Return one line without control characters, terminal escapes and writing directions."""
    spaced = re.sub(r"\s+", " ", _ANSI.sub("", text)).strip()
    return "".join(char for char in spaced if char.isprintable())


def inert(text: str) -> str:
    """Return one line in which GitHub finds no mention and no reference, also in plain text."""
    return _LIVE.sub(lambda found: found.group() + JOINER, clean(text))


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
    """Return one line as a code span, whatever backticks the text has."""
    line = inert(shortened(text, limit) if limit else text) or " "
    ticks = "`" * (max(map(len, _TICKS.findall(line)), default=0) + 1)
    edge = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{edge}{line}{edge}{ticks}"


def cell(text: str, *, limit: int = 0) -> str:
    """Return one line as a code span for a cell of a table."""
    # Markdown splits the row of a table at bars before it looks for code spans.
    return code(text, limit=limit).replace("|", "\\|")


def fence(text: str, *, language: str = "", lines: int = 0) -> str:
    """Return text as a fenced block that nothing in the text can close."""
    rows = [
        "".join(char for char in _ANSI.sub("", row).expandtabs(4) if char.isprintable()).rstrip()
        for row in text.splitlines()
    ]
    if lines and len(rows) > lines:
        rows = [*rows[:lines], f"… {len(rows) - lines} more lines"]
    shown = [_LIVE.sub(lambda found: found.group() + JOINER, row) for row in rows]
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
    """Return an author's Markdown, a line for each paragraph, without effect on other text."""
    shown: list[str] = []
    # Whether the row above is text of a paragraph, or of another block that a blank row ends.
    text_above = block = False
    fenced = ""
    # Whether a code span may have begun above in the paragraph: then no text is surely code.
    begun = False
    for raw in text.strip().splitlines():
        row = "".join(
            char for char in _ANSI.sub("", raw).expandtabs(4) if char.isprintable()
        ).rstrip()
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
    """Return a line without headings and HTML, and whether a code span may be open at its end."""
    row = re.sub(r"^( {0,3})(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)", r"\1\\\2", row)
    spans = [] if begun else list(_SPAN.finditer(row))
    ends = [0, *(place for span in spans for place in span.span()), len(row)]
    # Text and code spans alternate, and text is first.
    parts = [row[start:end] for start, end in itertools.pairwise(ends)]
    parts[::2] = [re.sub(r"<(?=[A-Za-z/!?])", "&lt;", part) for part in parts[::2]]
    return "".join(parts), begun or any("`" in part for part in parts[::2])


#: The largest numbers of characters of a line and of a text, and of lines of a text.
LINE: Final = 300
_TEXT: Final = 6000
_ROWS: Final = 60


def line_of(text: str, limit: int = LINE) -> str:
    """Return foreign text as one clean line of limited length, for a terminal."""
    # The text is cut before the cleaning, which would take too long for a huge text.
    return shortened(text[: 8 * limit], limit)


def row_of(text: str) -> str:
    """Return foreign text as one clean line that keeps its indentation."""
    wide = text[: 8 * LINE].expandtabs(4)
    depth = min(len(wide) - len(wide.lstrip(" ")), 40)
    line = line_of(wide)
    return f"{' ' * depth}{line}" if line else ""


def rows_of(text: str, *, rows: int = _ROWS, characters: int = _TEXT) -> list[str]:
    """Return foreign text as clean lines, limited in number and length."""
    # A terminal knows no other line ends than these, unlike `splitlines`.
    cut = text[:characters].replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    lines = [row_of(row) for row in cut.split("\n")]
    if len(lines) > rows or len(text) > characters:
        lines = [*lines[:rows], "… (more on its page)"]
    return lines
