"""Evidence: what a record holds, and how stale, tampered and foreign ones are told apart."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from pydantic import JsonValue

from contribbot.model.evidence import Outcome, StageResult, names_of, seal_of
from contribbot.queue.load import Queue, load_queue
from contribbot.verify.evidence import State, judge_record
from tests.conftest import Program, dig
from tests.contribute.tracked import tracked_queue
from tests.toy import FAIL_TO_PASS, FIXED, Toy, git, one_check

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


def test_a_moved_tag_makes_a_record_stale(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    path = toy.queue / "patches/queue.toml"
    path.write_text(path.read_text().replace(f'commit = "{toy.commit}"\n', ""))
    assert program("verify", "area").code == 0
    assert check(program)[:2] == (0, "fresh")
    git(toy.upstream, "commit", "-q", "--allow-empty", "-m", "Another 1.0")
    git(toy.upstream, "tag", "-f", "v1.0")
    code, state, rest = check(program)
    assert (code, state) == (1, "stale")
    assert f"toy v1.0 is commit {git(toy.upstream, 'rev-parse', 'v1.0').decode()[:12]} now" in rest
    # Offline, what the store knows stands.
    toy.upstream.rename(toy.root / "gone")
    assert check(program)[:2] == (0, "fresh")


def test_an_empty_queue_says_that_it_has_no_records(toy: Toy, program: Program) -> None:
    toy.put_queue([])
    ran = program("evidence", "check")
    assert (ran.code, ran.out) == (0, "no records\n")
    document = program("evidence", "check", "--json").json()
    assert (document["records"], document["missing"]) == ([], [])


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


Json = dict[str, JsonValue]
Stages = dict[str, Json]
Forge = Callable[[Json, Stages], object]


def at(value: JsonValue, *path: str | int) -> Json:
    """Return a table inside a document."""
    found = dig(value, *path)
    assert isinstance(found, dict)
    return found


def forged(content: bytes, forge: Forge) -> bytes:
    """Change a record and seal it again."""
    document: Json = json.loads(content)
    found = dig(document, "predicate", "contribbot", "stages")
    assert isinstance(found, list)
    stages: Stages = {}
    for one in found:
        assert isinstance(one, dict)
        label = at(one, "details").get("check")
        stages[f"{one['stage']} {label or one['target']}"] = one
    forge(document, stages)
    document["contribbot_seal"] = seal_of(document)
    return json.dumps(document).encode()


def put(*path: str | int, to: JsonValue) -> Forge:
    """Return a forgery: another value in a record's own part."""

    def forge(document: Json, _stages: Stages) -> None:
        at(document, "predicate", "contribbot", *path[:-1])[str(path[-1])] = to

    return forge


def outer(*path: str | int, to: JsonValue) -> Forge:
    """Return a forgery: another value in what in-toto reads."""

    def forge(document: Json, _stages: Stages) -> None:
        at(document, *path[:-1])[str(path[-1])] = to

    return forge


def say(stage: str, *path: str | int, to: JsonValue) -> Forge:
    """Return a forgery: another value in an outcome."""

    def forge(_document: Json, stages: Stages) -> None:
        at(stages[stage], *path[:-1])[str(path[-1])] = to

    return forge


def both(*forgeries: Forge) -> Forge:
    """Return a forgery that does several things."""

    def forge(document: Json, stages: Stages) -> None:
        for one in forgeries:
            one(document, stages)

    return forge


def without(stage: str) -> Forge:
    """Return a forgery that leaves an outcome out, in all places."""

    def forge(document: Json, stages: Stages) -> None:
        kept = [one for name, one in stages.items() if name != stage]
        at(document, "predicate", "contribbot")["stages"] = [*kept]
        results = [StageResult.model_validate(one) for one in kept]
        names = names_of(tuple(results), Outcome.PASSED)
        at(document, "predicate")["passedTests"] = [*names]

    return forge


FAILURE: JsonValue = [{"test": "test_same.py::test_others", "when": "call", "message": "no"}]
OTHER = "0" * 40
RED, SAME, WITNESS = "reproduce red", "reproduce same", "witness cpu"
#: What is forged in a record of the toy's proof, and sealed again.
FORGERIES: dict[str, Forge] = {
    "another verdict": put("verdict", to="refuted"),
    "an open target": put("open", to=["gfx942"]),
    "another result": outer("predicate", "result", to="FAILED"),
    "another passed test": outer("predicate", "passedTests", to=["reproduce/x@gfx942"]),
    "a failed test": outer("predicate", "failedTests", to=["reproduce/x@cpu"]),
    "a warned test": outer("predicate", "warnedTests", to=["reproduce/x@cpu"]),
    "no configuration": outer("predicate", "configuration", to=[]),
    "another commit configured": outer(
        "predicate", "configuration", 0, "digest", "gitCommit", to=OTHER
    ),
    "another subject's name": outer("subject", 0, "name", to="patches/other"),
    "another subject": outer("subject", 0, "digest", "sha256", to="0" * 64),
    "another tree": outer("subject", 1, "digest", "gitTree", to=OTHER),
    "a key of its own": put("extra", to=1),
    "it ended before it began": put("finished", to="2020-01-01T00:00:00Z"),
    "it began later": put("started", to="2020-01-01T00:00:00Z"),
    "another command": put("command", to="contribbot verify --all"),
    "another base": put("base_commit", to=OTHER),
    "seen before it began": say(RED, "details", "seen", to="2020-01-01T00:00:00+00:00"),
    "never seen": lambda _, stages: at(stages[RED], "details").pop("seen"),
    "seconds below zero": say(RED, "seconds", to=-1.0),
    "endless seconds": say(RED, "seconds", to=1e400),
    "other seconds than its runs": say(RED, "seconds", to=4000.0),
    "a run of seconds below zero": say(RED, "details", "base", "seconds", to=-1.0),
    "more threads than cores": say(RED, "details", "threads", to=4096),
    "no threads": say(RED, "details", "threads", to=0),
    "another sentence": say(RED, "reason", to="red: 400 tests pass on gfx942"),
    "more tests in the sentence": say(
        RED, "reason",
        to="red: 9 tests: fail on the base as stated, pass on the patched tree",
    ),
    "a base that did not fail": say(RED, "details", "base", "failed", to=[]),
    "a base that passed": say(RED, "details", "base", "passed", to=["test_red.py::test_flat"]),
    "a base that failed otherwise": say(
        RED, "details", "base", "failed", 0, "message", to="KeyError: 'x'"
    ),
    "a base that is broken": say(RED, "details", "base", "failed", 0, "broken", to=True),
    "a base that died": say(RED, "details", "base", "kind", to="crashed"),
    "a base that could not run": say(RED, "details", "base", "failed", 0, "fault", to="device"),
    "a run that failed otherwise the second time": say(RED, "details", "again", "failed", to=[]),
    "a run that was not done twice": lambda _, stages: at(stages[RED], "details").pop("again"),
    "a patched tree that failed": say(SAME, "details", "patched", "failed", to=FAILURE),
    "a base that failed too": say(SAME, "details", "base", "failed", to=FAILURE),
    "a patched tree without tests": say(RED, "details", "patched", "passed", to=[]),
    "a test that was skipped": say(
        RED, "details", "patched", "skipped", to=["test_red.py::test_flat"]
    ),
    "another cause": say(RED, "details", "cause", to="fails on the base"),
    "another expectation": say(SAME, "details", "expect", to="fail-to-pass"),
    "another reason than the patch states": say(RED, "details", "stated_reason", to="x"),
    "another check's file": say(RED, "details", "file", to="test_same.py"),
    "a target that is not stated": say(SAME, "target", to="any"),
    "a GPU that is not there": both(
        say(SAME, "target", to="gfx942"),
        outer("predicate", "passedTests", to=[
            "source@any", "apply@any", "style@any", "reproduce/red@cpu", "reproduce/same@gfx942",
            "witness@cpu",
        ]),
    ),
    "a GPU that nobody stated": both(
        say(SAME, "target", to="gfx942"),
        put("machine", "gpus", to=[
            {"vendor": "amd", "target": "gfx942", "name": "MI300X", "driver": "6.12"}
        ]),
    ),
    "the runner at fault, and counted": say(
        SAME, "details", "runner_fault", to={"kind": "hip-error", "said": "a hang"}
    ),
    "a check that the patch does not state": say(SAME, "details", "check", to="more"),
    "a check twice": both(
        say(SAME, "details", "check", to="red"), say(SAME, "reason", to="red: 1 test"),
    ),
    "a check left out": without(SAME),
    "style left out": without("style any"),
    "the witness left out": without(WITNESS),
    "a stage skipped though nothing was in its way": both(
        say("style any", "outcome", to="skipped"), say("style any", "details", to={}),
    ),
    "a stage skipped and passed": say("style any", "outcome", to="skipped"),
    "an incomplete check in a proof": say(RED, "outcome", to="unavailable"),
    "style passed with problems": say("style any", "details", "problems", to=["a.py:1: no"]),
    "a source that the pin does not have": say("source any", "details", "kind", to="wheel"),
    "a source of another commit": say("source any", "details", "commit", to=OTHER),
    "a source of another tree": say("source any", "details", "tree", to=OTHER),
    "applied on another tree": say("apply any", "details", "base_tree", to=OTHER),
    "a patched tree that is the base": lambda document, stages: (
        say("apply any", "details", "patched_tree",
            to=at(stages["apply any"], "details")["base_tree"])(document, stages)
    ),
    "another patch file": say("apply any", "details", "commits", 0, "file", to="0001-x.patch"),
    "another patched commit": say("apply any", "details", "patched_commit", to=OTHER),
    "applied with adjustments": say("apply any", "details", "adjustments", to=["a line moved"]),
    "statements of another file": say(
        RED, "details", "witness", to={"src/toy/other.py": [10, 11]}
    ),
    "statements where no line ran": say(RED, "details", "executed", to={}),
    "no statements in a proof": say(RED, "details", "witness", to={}),
    "no statements counted": both(
        say(WITNESS, "details", "added", to=0), say(WITNESS, "details", "executed", to=0),
    ),
    "more statements than there are": say(WITNESS, "details", "executed", to=40),
    "another share of statements": say(WITNESS, "reason", to="9 of 9 added statements ran (100%)"),
    "statements of a file that the patch lacks": say(
        WITNESS, "details", "files", to={"setup.py": {"executed": [1, 2], "not_executed": []}}
    ),
    "a test file that the patch lacks": say(
        RED, "details", "laid_over_base", to=["tests/test_other.py"]
    ),
    "a digest that is none": say(RED, "details", "base", "log_sha256", to="f00"),
    "no facts": say(RED, "details", to={"check": "red", "expect": "fail-to-pass"}),
    "facts of another kind": say(RED, "details", "base", to=7),
}  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a proof, in its queue."""
    toy = Toy(tmp_path_factory.mktemp("proved"))
    toy.put_patch()
    toy.put_queue(["area"])
    assert Program(toy.queue)("verify", "area").code == 0
    return next((toy.queue / "evidence/area").glob("*.json"))


def judged(path: Path, content: bytes, queue: Queue) -> State:
    """Judge a record with another content."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        return judge_record(queue, path).state
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_record_is_tampered(proved: Path, forge: Forge) -> None:
    queue, content = load_queue(proved.parents[2]), proved.read_bytes()
    assert judged(proved, forged(content, lambda _, __: None), queue) is State.FRESH
    # A GPU more is another machine, whose record has another name.
    assert judged(proved, forged(content, forge), queue) in {State.TAMPERED, State.FOREIGN}


GRID, COST = "numerics grid", "bench contiguous"
#: What is forged in records of this repository, of stages that the toy does not have.
REAL_FORGERIES: dict[str, tuple[str, Forge]] = {
    "fewer cells than it lists": ("rmsnorm", say(
        GRID, "details", "totals", "patched", "cells", to=1)),
    "an error beyond what is allowed": ("rmsnorm", say(
        GRID, "details", "cells", "patched", 0, "outputs", 0, "max_abs", to=9.0)),
    "more mismatches than elements": ("rmsnorm", say(
        GRID, "details", "cells", "patched", 0, "outputs", 0, "mismatches", to=10**12)),
    "elements below zero": ("rmsnorm", say(
        GRID, "details", "cells", "patched", 0, "outputs", 0, "elements", to=-1)),
    "a cell that failed": ("rmsnorm", say(
        GRID, "details", "cells", "patched", 0, "failed", to="too large")),
    "limits that the patch does not state": ("rmsnorm", say(GRID, "details", "fudge", to=99.0)),
    "a base of cells that passed": ("rmsnorm", say(GRID, "details", "base", "failed", to=[])),
    "another speed": ("rmsnorm", say(
        COST, "details", "cases", 0, "ratio", "median", to=3.29)),
    "another speed in words": ("rmsnorm", say(
        COST, "reason", to="contiguous: 2 cases: 3.290x; at least 0.7 is claimed")),
    "faster pairs": ("rmsnorm", say(COST, "details", "cases", 0, "pairs", to=[3.0, 3.1, 3.2])),
    "slower rounds": ("rmsnorm", say(
        COST, "details", "cases", 0, "patched", "rounds", to=[1.0] * 9)),
    "rounds below zero": ("rmsnorm", say(
        COST, "details", "cases", 0, "patched", "rounds", to=[-1.0] * 9)),
    "other results": ("rmsnorm", say(COST, "details", "cases", 0, "results", to="different")),
    "no cases": ("rmsnorm", say(COST, "details", "cases", to=[])),
    "another claim": ("rmsnorm", say(COST, "details", "at_least", to=0.1)),
    "a faster copy": ("rmsnorm", say(
        COST, "details", "ceilings", "copy_bytes_per_second", to=1.0)),
    "a compile that failed": ("fp8-hw-convert", say(
        "compile fnuz-instruction", "details", "patched", "failed", to=FAILURE)),
    "a base that compiled": ("fp8-hw-convert", both(
        say("compile fnuz-instruction", "details", "base", "failed", to=[]),
        say("compile fnuz-instruction", "details", "base", "passed", to=["fnuz"]))),
    "kernels without the instruction": ("fp8-hw-convert", say(
        "compile fnuz-instruction", "details", "patched", "named", to={})),
    "fewer instructions": ("fp8-hw-convert", say(
        "compile fnuz-instruction", "details", "patched", "instructions", to=7)),
    "fewer registers in words": ("fp8-hw-convert", both(
        say("compile fnuz-instruction", "details", "patched", "listed", to=144),
        say("compile fnuz-instruction", "reason", to="fnuz-instruction: compiles on both"))),
    "a source that is not stated": ("fp8-hw-convert", say(
        "compile fnuz-instruction", "details", "source", to="csrc/other.cu")),
    "a step that left includes": ("fp8-hw-convert", say(
        "hipify any", "details", "patched", "cuda_only",
        to=[{"file": "a.hip", "line": 1, "header": "cuda.h"}])),
    "more outputs in words": ("fp8-hw-convert", say("hipify any", "reason", to="9 outputs")),
    "a build that failed": ("fp8-quant", say(
        "build group-quant", "details", "patched", "failed", to=FAILURE)),
    "no product": ("fp8-quant", say("build group-quant", "details", "patched", "product", to="")),
    "no GPU": ("fp8-quant", put("machine", "gpus", to=[])),
}  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository's queue."""
    return Path(shutil.copytree(tracked_queue(), tmp_path_factory.mktemp("real") / "queue"))


@pytest.mark.parametrize("name", REAL_FORGERIES)
def test_a_forged_record_of_every_stage_is_not_believed(real: Path, name: str) -> None:
    patch, forge = REAL_FORGERIES[name]
    queue = load_queue(real)
    (path,) = (
        one
        for one in (real / "evidence" / patch).glob("*.json")
        if ("sm_" in one.name) is (patch == "fp8-quant")
    )
    content = path.read_bytes()
    assert judged(path, forged(content, lambda _, __: None), queue) is State.FRESH
    assert judged(path, forged(content, forge), queue) is not State.FRESH


def test_a_record_that_was_not_sealed_again_is_tampered(record: Path, program: Program) -> None:
    record.write_bytes(record.read_bytes().replace(b"Linux", b"Minix"))
    assert "its content does not match its seal" in check(program)[2]


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
