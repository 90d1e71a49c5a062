"""What a person is shown before they attest; nothing in it can make a terminal misbehave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contribbot.contribute.asking import Shown
from contribbot.model.attestation import Attestation
from contribbot.model.rules import Question
from contribbot.report.gate import gate_lines
from contribbot.report.text import clean


def visible(text: str) -> str:
    """Return a line in which what does not print is written as an escape of Python's."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def shown_lines(shown: Shown) -> list[str]:
    """Return the diff, the body and the gate, every line of them."""
    return [
        *_diff(shown),
        *_body(shown),
        *_heading("the gate"),
        *gate_lines(shown.gate, everything=True),
        "",
    ]


def _diff(shown: Shown) -> Iterator[str]:
    for file in shown.patch.files:
        yield from _heading(file.name)
        text = file.content.decode("utf-8", "backslashreplace")
        yield from (visible(row) for row in text.removesuffix("\n").split("\n"))


def _body(shown: Shown) -> Iterator[str]:
    yield from _heading(f"the pull request to {shown.basis.repository}")
    yield f"title: {visible(shown.basis.title)}"
    yield ""
    yield from (visible(row) for row in shown.body.text.removesuffix("\n").split("\n"))


def _heading(text: str) -> tuple[str, str, str]:
    return "", f"==== {visible(text)} ====", ""


def question_line(number: int, total: int, question: Question) -> str:
    """Return a question as it is asked."""
    how = "yes, or anything else to end" if question.answer == "yes" else "in your own words"
    return f"[{number}/{total}] {clean(question.text)} ({how}) "


def attested_lines(name: str, found: Attestation, changes: Sequence[str]) -> list[str]:
    """Return who attested a patch, and whether it still holds."""
    who = clean(f"{found.person.name} <{found.person.email}>")
    state = "void" if changes else "valid"
    return [
        f"{name}: {state}; attested by {who}, {found.time:%Y-%m-%d %H:%M} UTC",
        *(f"  {clean(change)}" for change in changes),
        *([f"  contribbot attest {name}"] if changes else []),
    ]
