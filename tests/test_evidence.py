"""Evidence: what a record holds, and how stale, tampered and foreign ones are told apart."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from pydantic import JsonValue

from contribbot.model.evidence import seal_of
from tests.conftest import dig
from tests.toy import FAIL_TO_PASS, FIXED, one_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Program
    from tests.toy import Toy

pytestmark = pytest.mark.usefixtures("outcome_cache")
SCHEMA = Path(__file__).parent.parent / "contribbot/schemas/evidence-v1.json"


@pytest.fixture
def record(toy: Toy, program: Program) -> Path:
    """The record of a proved patch."""
    toy.put_patch()
    toy.put_queue(["area"])
    ran = program("verify", "area")
    assert ran.code == 0, ran.out
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    return path


def check(program: Program) -> tuple[int, str, str]:
    """Return exit code, and state and reason of the first record."""
    ran = program("evidence", "check")
    state, _, rest = ran.out.splitlines()[0].partition(" ")
    return ran.code, state, rest


def test_a_record_is_a_valid_statement(record: Path, toy: Toy) -> None:
    document = json.loads(record.read_text())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)

    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    predicate = document["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == [
        "source@any", "apply@any", "style@any", "reproduce/red@cpu", "reproduce/same@cpu",
        "witness@cpu",
    ]  # fmt: skip
    details = predicate["contribbot"]
    assert details["command"] == "contribbot verify area"
    assert details["base_commit"] == toy.commit
    assert details["machine"]["packages"]["pytest"]
    patched = next(one for one in details["stages"] if one["stage"] == "apply")["details"]
    assert document["subject"][1]["digest"] == {"gitTree": patched["patched_tree"]}


def test_a_record_says_nothing_of_the_machines_owner_or_folders(record: Path, toy: Toy) -> None:
    text = record.read_text()
    import socket

    assert socket.gethostname() not in text
    without_remote = text.replace(toy.upstream.as_uri(), "")
    assert str(toy.root) not in without_remote


def test_a_fresh_record(record: Path, program: Program) -> None:
    assert check(program)[:2] == (0, "fresh")
    shown = program("evidence", "show", "area").out
    assert "fresh (proved on " in shown
    assert "again     contribbot verify area" in shown
    document = program("evidence", "show", "area", "--json").json()
    assert document["missing"] == []
    del record


def test_the_run_and_the_container_of_a_record_are_shown(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    told = {
        "GITHUB_RUN_ID": "123", "GITHUB_RUN_ATTEMPT": "2", "CONTRIBBOT_JOB": "gfx942-rocm7.1-1",
        "GITHUB_REPOSITORY": "example/queue", "GITHUB_SHA": "1" * 40,
        "CONTRIBBOT_IMAGE": f"example.com/rocm@sha256:{'2' * 64}",
        "CONTRIBBOT_CONTAINER_FLAGS": "--device /dev/kfd --group-add video",
    }  # fmt: skip
    program.env |= told
    assert program("verify", "area").code == 0
    rows = program("evidence", "show", "area").out.splitlines()
    start = next(number for number, row in enumerate(rows) if row.startswith("  run "))
    assert rows[start : start + 4] == [
        "  run       job gfx942-rocm7.1-1 of example/queue run 123, attempt 2, as the job was told",
        "            https://github.com/example/queue/actions/runs/123",
        f"  in        example.com/rocm@sha256:{'2' * 64}, as the job was told",
        "            with --device /dev/kfd --group-add video",
    ]
    # Pages of another GitHub are elsewhere.
    shown = program("evidence", "show", "area", GITHUB_API_URL="https://git.example/api/v3").out
    assert "            https://git.example/example/queue/actions/runs/123\n" in shown


def test_a_record_of_no_run_names_none(record: Path, program: Program) -> None:
    shown = program("evidence", "show", "area").out
    assert not {"  run", "  in "} & {row[:5] for row in shown.splitlines()}
    del record


def test_a_changed_pin_makes_a_record_stale(record: Path, toy: Toy, program: Program) -> None:
    toy.put_queue(["area"], commit="2" * 40)
    code, state, rest = check(program)
    assert (code, state) == (1, "stale")
    assert "the pin or the upstream's description has changed since" in rest
    toy.put_queue(["area"])
    assert check(program)[:2] == (0, "fresh")
    toy.put("upstreams/toy.toml", toy.upstream_toml("sign_off = true"))
    assert check(program)[:2] == (1, "stale")
    del record


def test_messages_and_logs_hold_no_folder_of_this_machine(toy: Toy, program: Program) -> None:
    telling = (
        "import os, sys, pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    tree, home = os.environ['CONTRIBBOT_TREE'], pathlib.Path.home()\n"
        "    where = [tree, sys.prefix, os.getcwd(), home]\n"
        "    assert rectangle(2, 3) == 6, f'red at {where}'\n"
    )
    toy.put_patch(checks=one_check(reason="red at"), check_files={"test_red.py": telling})
    toy.put_queue(["area"])
    assert program("verify", "area").code == 0
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    text = path.read_text().replace(toy.upstream.as_uri(), "")
    assert "red at ['<tree>', '<python>'" in text
    for folder in (str(toy.root.parent), sys.prefix, str(Path(__file__).parents[1])):
        assert folder not in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q: (q / "patches/area/checks/test_red.py").write_text(FAIL_TO_PASS + "#\n"),
         "the checks have changed since"),
        (lambda q: (q / "patches/area/0001-change.patch").write_bytes(
            (q / "patches/area/0001-change.patch").read_bytes().replace(b"Adding", b"Putting")),
         "the patch has changed since"),
    ],
)  # fmt: skip
def test_a_stale_record(
    record: Path, toy: Toy, program: Program, change: Callable[[Path], object], said: str
) -> None:
    change(toy.queue)
    ran = program("evidence", "check")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"stale     {record.relative_to(toy.queue)}: {said}",
        "missing   area: no fresh record",
    ]


def test_prose_does_not_make_a_record_stale(record: Path, toy: Toy, program: Program) -> None:
    path = toy.queue / "patches/area/patch.toml"
    path.write_text(path.read_text().replace("Areas are sums.", "Areas were sums."))
    assert check(program)[:2] == (0, "fresh")
    del record


DETAILS = ("predicate", "contribbot")


def rewrite(record: Path, keys: tuple[str | int, ...], value: JsonValue, *, seal: bool) -> None:
    """Change a record in one place, with a new seal or the old one."""
    document = json.loads(record.read_text())
    place = dig(document, *keys[:-1])
    assert isinstance(place, dict)
    assert isinstance(keys[-1], str)
    place[keys[-1]] = value
    if seal:
        document["contribbot_seal"] = seal_of(document)
    record.write_text(json.dumps(document))


#: What is changed, to what, and what is said of it.
TAMPERINGS: dict[str, tuple[tuple[str | int, ...], JsonValue, str]] = {
    "seconds": (
        (*DETAILS, "stages", 3, "seconds"),
        0.001,
        "its content does not match its seal",
    ),
    "verdict": ((*DETAILS, "verdict"), "refuted", "the verdict is not what its stages say"),
    "open": ((*DETAILS, "open"), ["gfx942"], "the open targets are not its own"),
    "result": (("predicate", "result"), "FAILED", "the result is not the verdict"),
    "passed": (
        ("predicate", "passedTests"),
        ["reproduce/x@gfx942"],
        "the passed tests differ",
    ),
    "subject": (
        ("subject", 0, "digest", "sha256"),
        "0" * 64,
        "the subject is not the patch that the details name",
    ),
    "tree": (
        ("subject", 1, "digest", "gitTree"),
        "0" * 40,
        "the subject is not the tree that was made",
    ),
    "key": ((*DETAILS, "extra"), 1, "not valid: predicate.contribbot.extra"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_record(record: Path, program: Program, name: str) -> None:
    keys, value, said = TAMPERINGS[name]
    rewrite(record, keys, value, seal=name != "seconds")
    code, state, rest = check(program)
    assert (code, state) == (1, "tampered")
    assert said in rest


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "9" * 5000, '{"a": "\\ud800"}'])
def test_a_record_that_cannot_be_read(record: Path, program: Program, content: str) -> None:
    record.write_text(content)
    assert check(program)[:2] == (1, "tampered")


def test_a_record_that_is_no_file(record: Path, program: Program) -> None:
    record.unlink()
    os.mkfifo(record)
    code, state, rest = check(program)
    assert (code, state) == (1, "foreign")
    assert "not a file" in rest


def test_a_proof_whose_base_did_not_fail_is_tampered(record: Path, program: Program) -> None:
    rewrite(record, (*DETAILS, "stages", 3, "details", "base", "failed"), [], seal=True)
    code, state, rest = check(program)
    assert (code, state) == (1, "tampered")
    assert "did not fail on the base" in rest


@pytest.mark.parametrize("side", ["base", "patched"])
def test_a_pass_of_what_failed_is_tampered(record: Path, program: Program, side: str) -> None:
    failed: JsonValue = [{"test": "test_same.py::test_others", "when": "call", "message": "no"}]
    rewrite(record, (*DETAILS, "stages", 4, "details", side, "failed"), failed, seal=True)
    code, state, rest = check(program)
    assert (code, state) == (1, "tampered")
    assert "a check that passed did fail" in rest


def test_foreign_records(record: Path, toy: Toy, program: Program) -> None:
    other = toy.queue / "evidence/volume/x.json"
    other.parent.mkdir()
    record.rename(other)
    code, state, rest = check(program)
    assert (code, state) == (1, "foreign")
    assert f"its place is area/{record.name}" in rest
    toy.put_patch("volume")
    toy.put_queue(["volume"])
    (toy.queue / "patches/area/patch.toml").unlink()
    assert "about area, which is no patch of this queue" in check(program)[2]
    other.write_text(json.dumps({"_type": "https://in-toto.io/Statement/v1", "predicate": {}}))
    assert check(program)[1:] == (
        "foreign",
        "  evidence/volume/x.json: not a record that contribbot writes",
    )


def test_no_record(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    ran = program("evidence", "check")
    assert (ran.code, ran.out) == (1, "missing   area: no fresh record\n")
    assert "no record; make one with" in program("evidence", "show", "area").out


def test_a_refuted_patch_has_a_record_that_says_so(toy: Toy, program: Program) -> None:
    toy.put_patch(checks=one_check(reason="Nonsense"))
    toy.put_queue(["area"])
    program("verify", "area")
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    predicate = json.loads(path.read_text())["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == ["reproduce/red@cpu"]


def test_a_repaired_patch_replaces_its_record(toy: Toy, program: Program) -> None:
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": FIXED.replace("*", "-")}))
    toy.put_queue(["area"])
    assert program("verify", "area").code == 1
    toy.put_patch()
    assert program("verify", "area").code == 0
    assert check(program)[:2] == (0, "fresh")


def test_the_shipped_schema_is_the_models() -> None:
    from contribbot.schemas import evidence_schema

    assert json.loads(SCHEMA.read_text()) == evidence_schema()
