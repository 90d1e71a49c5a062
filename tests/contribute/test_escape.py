from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from contribbot.markdown import JOINER, cell, clean, code, fence, inert, plain, shortened

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\x1b]0;title\x07c\x1b\\d", "abcd"),
        ("a\u202eb\u2066c\u200bd\x00e\x7f", "abcde"),
        (" a\r\n\tb  ", "a b"),
        ("a\ud800b", "ab"),
    ],
)
def test_a_line_has_no_characters_that_act(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    "text", ["x", "`", "``", "a`b", "a``b`c", "`a", "a`", " ", "", "a|b", "\\"]
)
def test_a_code_span_holds_what_it_is_given(text: str) -> None:
    tokens = MARKDOWN.parse(f"before {code(text)} after")[1].children
    assert tokens is not None
    assert [row.type for row in tokens] == ["text", "code_inline", "text"]
    assert tokens[1].content.strip() == text.strip()


def test_a_cell_with_bars_and_backticks_stays_one_cell() -> None:
    text = "a | `b` || c"
    tokens = MARKDOWN.parse(f"| x | y |\n|---|---|\n| {cell(text)} | z |")
    cells = [row.children for row in tokens if row.type == "inline"][2:]
    assert len(cells) == 2
    assert cells[0] is not None
    assert [row.content for row in cells[0] if row.type == "code_inline"] == [text]


@pytest.mark.parametrize(
    "text",
    [
        "**a** _b_ ~~c~~ `d` [e](http://f) <b>g</b> & &lt; @h #1 GH-2",
        "http://i.example www.j.example",
        "![x](y) \\* <https://k.example> a|b",
    ],
)
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    tokens = MARKDOWN.parse(f"x {plain(text)} y")[1].children
    assert tokens is not None
    assert {row.type for row in tokens} <= {"text", "text_special"}
    assert "".join(row.content for row in tokens) == f"x {text} y"


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("ask @octocat", f"ask @{JOINER}octocat"),
        ("Fixes #12", f"Fixes #{JOINER}12"),
        ("a/b#3", f"a/b#{JOINER}3"),
        ("gh-4", f"gh-{JOINER}4"),
        ("https://x/a/b/pull/5", f"https://x/a/b/pull/{JOINER}5"),
        ("user@example.com a#b", "user@example.com a#b"),
    ],
)
def test_nothing_is_a_reference(text: str, broken: str) -> None:
    assert inert(text) == broken


def test_nothing_closes_a_fence_but_its_own_end() -> None:
    inside = "a\n```\nb\n~~~\n`````\n\x1b[1mc\u202e"
    tokens = MARKDOWN.parse(fence(inside, language="sh"))
    assert [row.type for row in tokens] == ["fence"]
    assert tokens[0].content == "a\n```\nb\n~~~\n`````\nc\n"
    # A text that was cut ends with a mark.
    assert (shortened("abcdef", 4), shortened("abcd", 4)) == ("abc…", "abcd")
    assert fence("1\n2\n3", lines=2) == "```\n1\n2\n… 1 more lines\n```"
