from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from contribbot.contribute.attest import ask_all, changes, differences, questions_of, read, require
from contribbot.contribute.body import rules_of
from contribbot.contribute.model import Basis, Question, RowState
from contribbot.errors import AttestationError
from contribbot.files import write_atomically
from tests.conftest import Program
from tests.contribute.attesttoy import attested, file, posted
from tests.contribute.gatetoy import Table, edit
from tests.contribute.opening import written

PATCH = "patches/area/0001-change.patch"


def put(path: str, before: str, after: str) -> Callable[[Table], None]:
    return lambda table: edit(table.toy, before, after, path)


def more_file(table: Table) -> None:
    path = table.toy.queue / PATCH
    path.with_name("0002-more.patch").write_bytes(path.read_bytes())


TOML = "patches/area/patch.toml"
#: What is changed afterwards, and what is said of it.
AFTERWARDS: list[tuple[str, Callable[[Table], None]]] = [
    ("the text can no longer be made: area: no fresh evidence", put(PATCH, "no area", "no areas")),
    ("the text can no longer be made: area: no fresh evidence", more_file),
    ("the text can no longer be made", put("patches/area/checks/test_red.py", "2, 3", "2, 4")),
    ("the title was “[Bugfix] Multiply the sides”", put(TOML, "Multiply the sides", "Multiply")),
    ("the text of the pull request has changed", put(TOML, "Areas are sums", "Areas were sums")),
    ("[contribution] of patch.toml has changed", put(TOML, "nothing that users see", "nothing")),
    ("the rules of toy have changed", put("upstreams/contributing/toy.toml", "every changed", "a")),
]  # fmt: skip


@pytest.mark.parametrize(("said", "change"), AFTERWARDS)
def test_what_changes_afterwards_makes_it_void_and_is_named(
    table: Table, said: str, change: Callable[[Table], None]
) -> None:
    attested(table)
    change(table)
    shown = table.run("attest", "area", "--show")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("area: void")
    assert said in shown.stdout
    with pytest.raises(AttestationError) as caught:
        require(table.queue, written("t", "b"))
    assert caught.value.exit_code == 1
    assert "contribbot attest area" in caught.value.hint


def test_another_text_than_the_attested_one_is_not_posted(table: Table) -> None:
    attested(table)
    queue, text = table.queue, posted(table)
    assert require(queue, text).intact
    for other, said in (
        (written(text.title, text.text + " "), "the text of the pull request has changed"),
        (text.model_copy(update={"title": text.title + "!"}), "the title was"),
    ):
        with pytest.raises(AttestationError, match=said):
            require(queue, other)


def test_after_a_day_what_github_said_no_longer_holds(table: Table) -> None:
    made = attested(table)
    queue, text = table.queue, posted(table)
    assert require(queue, text, now=made.looked + timedelta(hours=23, minutes=59)) == made
    with pytest.raises(AttestationError, match="asked GitHub 24 hours ago"):
        require(queue, text, now=made.looked + timedelta(hours=24, seconds=1))
    with pytest.raises(AttestationError, match="a time to come"):
        require(queue, text, now=made.looked - timedelta(hours=1))


def leaves(value: JsonValue, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of everything in a document that is no table and no list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*place, number))
    else:
        yield place


def turned(value: JsonValue) -> JsonValue:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    text = str(value)
    return ("1" if text[:1] == "0" else "0") + text[1:]


def changed_at(document: JsonValue, place: tuple[str | int, ...]) -> None:
    for key in place[:-1]:
        assert isinstance(document, dict | list)
        document = document[key]  # type: ignore[index]  # the place came from it
    document[place[-1]] = turned(document[place[-1]])  # type: ignore[index]  # the same


def test_every_value_of_the_file_counts(table: Table) -> None:
    attested(table)
    queue, content = table.queue, file(table).read_bytes()
    places = list(leaves(json.loads(content)))
    assert len(places) > 100
    for place in places:
        document = json.loads(content)
        changed_at(document, place)
        file(table).write_text(json.dumps(document))
        with pytest.raises(AttestationError):
            read(queue, "area")
    file(table).write_bytes(content)
    assert read(queue, "area").intact


def test_every_digest_is_compared_even_where_the_seal_was_made_anew(table: Table) -> None:
    made = attested(table)
    queue, text = table.queue, posted(table)
    was = made.basis
    one = "0" * 64
    lower = was.files[0].model_copy(update={"name": "lower"})
    state = next(row for row in was.gate if not row.github)
    others = [row for row in was.gate if row is not state]
    forged: dict[str, dict[str, object]] = {
        "patch file": {"files": (was.files[0].model_copy(update={"sha256": one}),)},
        "patch below lower is gone": {"below": (lower,)},
        "checks": {"checks": one},
        "text": {"body": one},
        "title": {"title": "Other"},
        "record": {"records": (was.records[0].model_copy(update={"sha256": one}),)},
        r"\[contribution\]": {"contribution": one},
        "rules": {"rules": one},
        "gate's title": {"gate": (state.model_copy(update={"state": RowState.FAILED}), *others)},
        "the gate's title is new": {"gate": tuple(others)},
        "contribbot was 0": {"tool": "0"},
        "it was about": {"repository": "other/toy"},
    }  # fmt: skip
    assert set(Basis.model_fields) - {key for one in forged.values() for key in one} == {
        "patch", "upstream",
    }  # fmt: skip
    for said, update in forged.items():
        fake = made.model_copy(update={"basis": was.model_copy(update=update)}).sealed()
        write_atomically(file(table), fake.model_dump_json().encode())
        with pytest.raises(AttestationError, match=said):
            require(queue, text)
        assert changes(queue, "area", fake)
    assert list(differences(was, was)) == []


def test_what_nobody_could_have_attested_is_void_however_it_is_sealed(table: Table) -> None:
    made = attested(table)
    unseen = tuple(
        row.model_copy(update={"state": RowState.UNKNOWN}) if row.rule == "duplicates" else row
        for row in made.basis.gate
    )
    no = made.answers[0].model_copy(update={"answer": "no"})
    for said, fake in {
        "duplicates was not known when": made.model_copy(
            update={"basis": made.basis.model_copy(update={"gate": unseen})}
        ),
        "the question read is not answered": made.model_copy(
            update={"answers": (no, *made.answers[1:])}
        ),
        "the question ai is not answered": made.model_copy(update={"answers": made.answers[:1]}),
    }.items():
        write_atomically(file(table), fake.sealed().model_dump_json().encode())
        with pytest.raises(AttestationError, match=said):
            require(table.queue, posted(table))


def test_evidence_that_is_made_anew_needs_a_person_anew(table: Table) -> None:
    attested(table)
    ran = Program(table.toy.queue)("verify", "area")
    assert ran.code == 0
    shown = table.run("attest", "area", "--show")
    assert shown.exit_code == 1
    assert "the record evidence/area/" in shown.stdout
    assert "has changed" in shown.stdout


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 5000, b'{"kind": "other"}'])
def test_what_is_no_attestation_is_said(table: Table, content: bytes) -> None:
    file(table).parent.mkdir()
    file(table).write_bytes(content)
    done = table.run("attest", "area", "--show")
    assert done.exit_code == 1
    assert "no attestation that can be read" in done.stderr


def test_the_upstreams_questions_come_first_and_ours_are_not_asked_twice(table: Table) -> None:
    rules = rules_of(table.queue, "toy")
    gate = table.gate(now=datetime.now(UTC))
    assert [one.name for one in questions_of(rules, gate)] == ["read", "ai", "where", "stand"]
    where = Question(name="where", text="Where?", answer="text")
    asked = questions_of(rules.model_copy(update={"questions": (where,)}), gate)
    assert [one.text for one in asked] == ["Where?", asked[1].text]
    with pytest.raises(AttestationError, match="at most 2000 characters"):
        ask_all([where], lambda _: "a" * 2001)
