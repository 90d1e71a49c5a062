"""Whatever a job sends, collect takes only what answers what was asked, as it was sent."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from contribbot.runners.model import CellState
from tests.runners.homing import (
    COMPILED,
    RAN,
    Home,
    Json,
    assert_refused,
    details,
    packed,
    sealed,
    states,
    unpacked,
    why,
)


def test_altered_on_the_way_its_seal_made_anew(home: Home) -> None:
    one = home.send(RAN)
    files = unpacked(one.stored)
    (path,) = (name for name in files if name != "job.json")
    document = json.loads(files[path])
    document.pop("contribbot_seal")
    details(document)["command"] = "contribbot verify area --force"
    one.stored = packed({**files, path: sealed(document)})
    assert_refused(home, "what came is not what was sent: GitHub saw [0-9a-f]{12}…, this is")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_damaged_on_the_way(home: Home, damage: str) -> None:
    one = home.send(RAN)
    half = len(one.stored) // 2
    one.stored = {
        "cut": one.stored[:half],
        "flip": one.stored[:half] + bytes([one.stored[half] ^ 1]) + one.stored[half + 1 :],
        "empty": b"",
    }[damage]
    assert_refused(home, "what came is not what was sent")


Change = Callable[[Json], None]


def put(key: str, value: JsonValue) -> Change:
    """Return what changes a key of contribbot's part of a record."""

    def change(document: Json) -> None:
        details(document)[key] = value

    return change


def put_run(key: str, value: JsonValue) -> Change:
    """Return what changes a key of the run that a record names."""

    def change(document: Json) -> None:
        run = details(document)["run"]
        assert isinstance(run, dict)
        run[key] = value

    return change


def put_machine(key: str, value: JsonValue) -> Change:
    """Return what changes a key of the machine that a record names."""

    def change(document: Json) -> None:
        machine = details(document)["machine"]
        assert isinstance(machine, dict)
        machine[key] = value

    return change


def gpu(target: str) -> JsonValue:
    """Return a GPU as a record has it."""
    return [{"vendor": "amd", "target": target, "name": "made up", "driver": ""}]


def repeat_tree(document: Json) -> None:
    """Say that the patched tree is another, wherever it is said."""
    text = json.dumps(document).replace("1" * 40, "2" * 40)
    document.clear()
    document.update(json.loads(text))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("patch_sha256", "1" * 64), "subject is not|the patch has changed"),
        (put("checks_sha256", "1" * 64), "stale: the checks have changed|configuration is not"),
        (put("pin_sha256", "1" * 64), "stale: the pin or"),
        (put("pin", "v9"), "tampered: subject is not"),
        (put("below", {"other": "1" * 64}), "stale: what it depends on"),
        (put("upstream", "other"), "foreign: about a patch for other|subject is not"),
        (put("base_commit", "1" * 40), "it was applied on another commit|configuration is not"),
        (put("patch", "other"), "job gfx942-rocm7.1-1 was not asked for other"),
        (put("run", None), "it names no run"),
        (put_run("run_id", 7), r"it is of run 7, not \d+"),
        (put_run("attempt", 2), "attempt 2, which was not yet"),
        (put_run("job", COMPILED), "it is of job compile-rocm7.1-1"),
        (put_run("repository", "evil/queue"), "it is of evil/queue"),
        (put_run("commit", "1" * 40), "it is of commit 111111111111"),
        (put("container", None), "its container is not the plan's: none"),
        (put("container", {"image": f"evil.example/x@sha256:{'1' * 64}", "flags": []}),
         "its container is not the plan's: evil"),
        (put_machine("gpus", gpu("gfx1100")), "it was made on gfx1100, and gfx942 was asked"),
        (put_machine("gpus", []), "it says what ran on gfx942, and its machine has none"),
        (put_machine("rocm", "6.4.1-83"), "ROCm 6.4.1-83, and 7.1 was asked"),
        (put_machine("system", "../../../../home"), "a name that cannot be a file's"),
        (put_machine("system", ""), "a name that cannot be a file's"),
        (put_machine("cores", 9), "foreign: its place is area/"),
        (put("started", "2026-01-01T00:00:00"), "its times name no time zone"),
        (put("finished", "2199-01-01T00:00:00Z"), "it was seen in the future"),
        (put("verdict", "proved"), "tampered: .*verdict is not"),
        (put("stages", []), "tampered"),
        (put("surprise", 1), "not a record that contribbot writes"),
    ],
)  # fmt: skip
def test_a_sound_seal_around_something_else(home: Home, change: Change, reason: str) -> None:
    path, document = home.record(RAN)
    document.pop("contribbot_seal")
    change(document)
    home.send(RAN, {"job.json": home.done(RAN), path: sealed(document)})
    found = assert_refused(home, reason)
    assert [one.merged for one in found.records] == ["refused"]


def test_the_seal_is_not_made_anew(home: Home) -> None:
    path, document = home.record(RAN)
    home.send(RAN, {"job.json": home.done(RAN), path: json.dumps(document).encode()})
    assert_refused(home, "tampered: its content does not match its seal")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a record"),
        (b"\xff\xfe", "not a record"),
        (b"[" * 100_000, "recursion limit exceeded"),
        (b'{"predicate": NaN}', "not a record"),
        (b'{"a": "\\ud800"}', "not a record"),
        (b"1" * 5000, "not a record"),
    ],
)
def test_what_is_no_record(home: Home, content: bytes, reason: str) -> None:
    path, _ = home.record(RAN)
    home.send(RAN, {"job.json": home.done(RAN), path: content})
    assert_refused(home, reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"job": COMPILED}, "it is of job compile-rocm7.1-1"),
        ({"run": None}, "it names no run"),
        ({"asked": [{"patch": "area", "require": ["bench:gfx942"]}]}, "was asked something else"),
        ({"exit_code": 1}, "it says exit code 1, and GitHub says success"),
        ({"exit_code": 256}, "exit_code"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_a_job_says_of_itself(home: Home, changed: Json, reason: str) -> None:
    home.send(RAN, {**home.files(RAN), "job.json": home.done(RAN, changed=changed)})
    assert_refused(home, reason)


def test_without_its_job_file(home: Home) -> None:
    files = home.files(RAN)
    del files["job.json"]
    home.send(RAN, files)
    assert_refused(home, "it has no job.json")


def test_records_that_were_not_asked_for(home: Home) -> None:
    files = home.files(RAN)
    extra = next(content for name, content in files.items() if name != "job.json")
    home.send(RAN, {**files, "records/other/x86_64-gfx942-00000000.json": extra})
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.PROVED
    assert {one.path: one.merged for one in found.records if "other" in one.path} == {
        "evidence/other/x86_64-gfx942-00000000.json": "refused"
    }
    assert not found.complete


def test_two_records_of_a_patch(home: Home) -> None:
    files = home.files(RAN)
    more = home.files(RAN, cores=16)
    home.send(RAN, {**more, **files})
    assert_refused(home, "it has two records of area")


def test_the_same_base_became_different_trees(home: Home) -> None:
    home.send(COMPILED)
    path, document = home.record(RAN)
    document.pop("contribbot_seal")
    repeat_tree(document)
    home.send(RAN, {"job.json": home.done(RAN), path: sealed(document)})
    found = home.collected()
    assert set(states(found).values()) == {CellState.REFUSED}
    assert "two records say that the same base became different trees" in why(found)
    assert home.evidence() == []
