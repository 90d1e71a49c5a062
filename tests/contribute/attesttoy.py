"""Attesting the toy patch without a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from contribbot.contribute.attest import ask_all, attestation_file, conclude, prepare, read
from contribbot.contribute.body import make_body
from contribbot.contribute.model import Attestation, Attester, Body
from tests.contribute.gatetoy import Table

ANSWERS = ("yes", "It drafted the change.", "lint --all, on my desk", "yes")


def file(table: Table) -> Path:
    """Return where the attestation is."""
    return attestation_file(table.queue, "area")


def posted(table: Table) -> Body:
    """Return the text that is posted."""
    return make_body(table.queue, "area")


def attested(table: Table) -> Attestation:
    """Attest it, without a terminal; the gate asks GitHub."""
    shown = prepare(table.queue, "area", table.gate(now=datetime.now(UTC).replace(microsecond=0)))
    typed = iter(ANSWERS)
    answers = ask_all(shown.questions, lambda _: next(typed))
    person = Attester(name="Ada Example", email="ada@example.com")
    assert conclude(table.queue, shown, answers, person) == file(table)
    return read(table.queue, "area")
