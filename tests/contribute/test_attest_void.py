from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from contribbot.contribute.attest import ask_all, differences, questions_of, read, require
from contribbot.contribute.body import rules_of
from contribbot.contribute.model import Basis, Question, RowState
from contribbot.errors import AttestationError
from contribbot.files import write_atomically
from tests.conftest import Program
from tests.contribute.gatetoy import Table, edit
from tests.contribute.opening import written

PATCH, TOML = "patches/area/0001-change.patch", "patches/area/patch.toml"
RULES, CHECK = "upstreams/contributing/toy.toml", "patches/area/checks/test_red.py"
#: What is said, and what is changed afterwards: a file, before, and after.
AFTERWARDS = [
    ("the text can no longer be made: area: no fresh evidence", PATCH, "no area", "no areas"),
    ("the text can no longer be made", CHECK, "2, 3", "2, 4"),
    ("the title was “[Bugfix] Multiply the sides”", TOML, "Multiply the sides", "Multiply"),
    ("the text of the pull request has changed", TOML, "Areas are sums", "Areas were sums"),
    ("[contribution] of patch.toml has changed", TOML, "nothing that users see", "nothing"),
    ("the rules of toy have changed", RULES, "every changed", "a"),
    ("the text can no longer be made: area: no fresh evidence", "", "", ""),
]


@pytest.mark.parametrize(("words", "path", "before", "after"), AFTERWARDS)
def test_what_changes_afterwards_makes_it_void_and_is_named(
    table: Table, words: str, path: str, before: str, after: str
) -> None:
    table.attest()
    if path:
        edit(table.toy, before, after, path)
    else:
        patch = table.toy.queue / PATCH
        patch.with_name("0002-more.patch").write_bytes(patch.read_bytes())
    shown = table.run("attest", "area", "--show")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("area: void")
    assert words in shown.stdout
    with pytest.raises(AttestationError) as caught:
        require(table.queue, written("t", "b"))
    assert caught.value.exit_code == 1
    assert "contribbot attest area" in caught.value.hint


def test_another_text_than_the_attested_one_and_new_evidence_are_not_posted(table: Table) -> None:
    table.attest()
    queue, text = table.queue, table.body()
    assert require(queue, text).intact
    with pytest.raises(AttestationError, match="the text of the pull request has changed"):
        require(queue, written(text.title, text.text + " "))
    with pytest.raises(AttestationError, match="the title was"):
        require(queue, text.model_copy(update={"title": text.title + "!"}))
    assert Program(table.toy.queue)("verify", "area").code == 0
    shown = table.run("attest", "area", "--show")
    assert shown.exit_code == 1
    assert re.search(r"the record evidence/area/\S+ has changed", shown.stdout)


def test_after_a_day_what_github_said_no_longer_holds(table: Table) -> None:
    made = table.attest()
    queue, text = table.queue, table.body()
    assert require(queue, text, now=made.looked + timedelta(hours=23, minutes=59)) == made
    with pytest.raises(AttestationError, match="asked GitHub 24 hours ago"):
        require(queue, text, now=made.looked + timedelta(hours=24, seconds=1))
    with pytest.raises(AttestationError, match="a time to come"):
        require(queue, text, now=made.looked - timedelta(hours=1))


def others(value: JsonValue) -> Iterator[JsonValue]:
    """Yield the document with each value in turn another of its kind."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in others(inner))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from ([*value[:number], other, *value[number + 1 :]] for other in others(inner))
    elif isinstance(value, bool):
        yield not value
    else:
        text = str(value)
        yield ("1" if text[:1] == "0" else "0") + text[1:]


def test_every_value_of_the_file_counts(table: Table) -> None:
    table.attest()
    queue, content = table.queue, table.attestation.read_bytes()
    documents = list(others(json.loads(content)))
    assert len(documents) > 100
    for document in documents:
        table.attestation.write_text(json.dumps(document))
        with pytest.raises(AttestationError):
            read(queue, "area")
    table.attestation.write_bytes(content)
    assert read(queue, "area").intact


def test_every_digest_is_compared_even_where_the_seal_was_made_anew(table: Table) -> None:
    made = table.attest()
    was, zero = made.basis, "0" * 64
    state = next(row for row in was.gate if not row.github)
    rest = [row for row in was.gate if row is not state]
    unseen = tuple(
        row.model_copy(update={"state": RowState.UNKNOWN}) if row.rule == "duplicates" else row
        for row in was.gate
    )
    forged: list[tuple[str, dict[str, object]]] = [
        ("patch file", {"files": (was.files[0].model_copy(update={"sha256": zero}),)}),
        ("patch below lower is gone",
         {"below": (was.files[0].model_copy(update={"name": "lower"}),)}),
        ("checks", {"checks": zero}),
        ("text", {"body": zero}),
        ("title", {"title": "Other"}),
        ("record", {"records": (was.records[0].model_copy(update={"sha256": zero}),)}),
        (r"\[contribution\]", {"contribution": zero}),
        ("rules", {"rules": zero}),
        ("gate's title", {"gate": (state.model_copy(update={"state": RowState.FAILED}), *rest)}),
        ("the gate's title is new", {"gate": tuple(rest)}),
        ("duplicates was not known when", {"gate": unseen}),
        ("contribbot was 0", {"tool": "0"}),
        ("it was about", {"repository": "other/toy"}),
    ]  # fmt: skip
    fields = {key for _, update in forged for key in update}
    assert set(Basis.model_fields) - fields == {"patch", "upstream"}
    fakes = [
        (words, made.model_copy(update={"basis": was.model_copy(update=update)}))
        for words, update in forged
    ]
    # What nobody could have attested is void, however it is sealed.
    no = made.answers[0].model_copy(update={"answer": "no"})
    for words, answers in (("read", (no, *made.answers[1:])), ("ai", made.answers[:1])):
        fake = made.model_copy(update={"answers": answers})
        fakes.append((f"the question {words} is not answered", fake))
    for words, fake in fakes:
        write_atomically(table.attestation, fake.sealed().model_dump_json().encode())
        with pytest.raises(AttestationError, match=words):
            require(table.queue, table.body())
    assert list(differences(was, was)) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 5000, b'{"kind": "other"}'])
def test_what_is_no_attestation_is_said(table: Table, content: bytes) -> None:
    table.attestation.parent.mkdir()
    table.attestation.write_bytes(content)
    done = table.run("attest", "area", "--show")
    assert done.exit_code == 1
    assert "no attestation that can be read" in done.stderr


def test_the_upstreams_questions_come_first_and_ours_are_not_asked_twice(table: Table) -> None:
    rules = rules_of(table.queue, "toy")
    gate = table.gate(now=datetime.now(UTC))
    assert [row.name for row in questions_of(rules, gate)] == ["read", "ai", "where", "stand"]
    where = Question(name="where", text="Where?", answer="text")
    asked = questions_of(rules.model_copy(update={"questions": (where,)}), gate)
    assert [row.text for row in asked] == ["Where?", asked[1].text]
    with pytest.raises(AttestationError, match="at most 2000 characters"):
        ask_all([where], lambda _: "a" * 2001)
