from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.contribute.body import make_body, rules_of
from contribbot.contribute.figures import gather, grid_of, not_run
from contribbot.contribute.reproducer import make_reproducer
from contribbot.model.evidence import Statement, seal_of
from contribbot.queue.load import load_queue
from tests.conftest import dig
from tests.contribute.bodytoy import describe
from tests.contribute.gatetoy import Proved, verify
from tests.contribute.tracked import tracked_queue
from tests.toy import CHECKS, Toy

CUDA = """
[[checks]]
name = "red-cuda"
file = "test_red_cuda.py"
expect = "fail-to-pass"
reason = "^AssertionError"
requires = ["cuda"]
"""


@pytest.fixture(scope="module")
def figured(tmp_path_factory: pytest.TempPathFactory) -> Proved:
    """A toy patch with a check for a GPU, proved."""
    root = tmp_path_factory.mktemp("figured")
    toy = Toy(root / "toy")
    describe(toy)
    test = "\n\n\ndef test_it():\n    assert rectangle(2, 3) == 6, 5\n"
    files = {
        "test_red.py": "from toy.area import rectangle" + test,
        "test_red_cuda.py": "def test_it():\n    raise AssertionError\n",
        "test_same.py": "def test_it():\n    assert True\n",
    }
    toy.put_patch(checks=CHECKS.replace("assert 5 == ", "5") + CUDA, check_files=files)
    toy.put_queue(["area"])
    return verify(toy, root)


@pytest.fixture
def toy(figured: Proved, tmp_path: Path) -> Toy:
    return figured.copy(tmp_path)


@pytest.fixture
def record(toy: Toy) -> Path:
    return next((toy.queue / "evidence/area").glob("*.json"))


def another(record: Path, change: Callable[[dict[str, JsonValue]], None]) -> Path:
    """Write a record of another machine: what a second verification there would have left."""
    document: dict[str, JsonValue] = json.loads(record.read_text(encoding="utf-8"))
    details = dig(document, "predicate", "contribbot")
    assert isinstance(details, dict)
    dig_machine(details)["cpu"] = "Another"
    change(details)
    document["contribbot_seal"] = seal_of(document)
    slug = Statement.model_validate(document).predicate.contribbot.machine.slug
    path = record.with_name(f"{slug}.json")
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_two_records_that_say_the_same_are_one_figure(toy: Toy, record: Path) -> None:
    another(record, lambda _: None)
    figures = gather(load_queue(toy.queue), "area")
    assert {one.label for one in figures.sources} == {"R1", "R2"}
    assert {one.labels for one in figures.of("reproduce")} == {"R1, R2"}
    assert len(figures.of("reproduce")) == 2


def test_two_records_that_differ_are_two_figures(toy: Toy, record: Path) -> None:
    def change(details: dict[str, JsonValue]) -> None:
        (one,) = stages_of(details, "witness")
        one["reason"] = "1 of 2 added statements ran (50%)"
        told, seen = dig(one, "details"), dig(one, "details", "files", "src/toy/area.py")
        assert isinstance(told, dict)
        assert isinstance(seen, dict)
        told["executed"], seen["executed"], seen["not_executed"] = 1, [10], [11]
        for check in stages_of(details, "reproduce"):
            seen = dig(check, "details")
            if isinstance(seen, dict) and seen.get("witness"):
                seen["witness"] = {"src/toy/area.py": [10]}

    another(record, change)
    figures = gather(load_queue(toy.queue), "area")
    assert sorted(one.labels for one in figures.of("witness")) == ["R1", "R2"]


def test_what_ran_on_an_earlier_version_is_no_pass_and_is_told(toy: Toy, record: Path) -> None:
    def change(details: dict[str, JsonValue]) -> None:
        details["checks_sha256"] = "0" * 64
        stages = details["stages"]
        assert isinstance(stages, list)
        for each in stages:
            if isinstance(each, dict) and each["target"] == "cuda":
                each["outcome"] = "passed"
        gpu: JsonValue = {"vendor": "nvidia", "target": "sm_90", "name": "none", "driver": ""}
        dig_machine(details)["gpus"] = [gpu]

    path = another(record, change)
    document = json.loads(path.read_text(encoding="utf-8"))
    details = document["predicate"]["contribbot"]
    # What a machine with that GPU would have written: nothing open, one test more.
    details["open"] = []
    red = next(one for one in details["stages"] if one["details"].get("check") == "red")
    cuda = next(one for one in details["stages"] if one["target"] == "cuda")
    cuda["details"] = {**red["details"], "check": "red-cuda"}
    names = document["predicate"]["passedTests"]
    names.insert(names.index("reproduce/same@cpu") + 1, "reproduce/red-cuda@cuda")
    document["predicate"]["configuration"][1]["digest"]["sha256"] = "0" * 64
    document["contribbot_seal"] = seal_of(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    queue = load_queue(toy.queue)
    figures = gather(queue, "area")
    assert figures.stale == {"cuda"}
    rows = {row.targets: row for row in grid_of(figures, rules_of(queue, "toy"))}
    assert rows["cuda",].cells[0].text == "**not run on this version**"
    assert rows["gfx942",].cells[0].text == "**not run**"
    assert rows["cpu",].cells[0].text == "passed (R1)"
    assert not_run(list(rows.values())) == ("cuda", "gfx942")


def details_of(stage: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the details of an outcome."""
    details = stage["details"]
    assert isinstance(details, dict)
    return details


def real_copy(folder: Path, name: str) -> Path:
    """Copy the real queue, with the records of one patch; return where those lie."""
    shutil.copytree(tracked_queue() / "patches", folder / "patches")
    shutil.copytree(tracked_queue() / "evidence" / name, folder / "evidence" / name)
    return folder / "evidence" / name


def dig_machine(details: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the machine in a record's details."""
    machine = details["machine"]
    assert isinstance(machine, dict)
    return machine


def stages_of(details: dict[str, JsonValue], stage: str) -> list[dict[str, JsonValue]]:
    """Return the outcomes of a stage in a record's details."""
    stages = details["stages"]
    assert isinstance(stages, list)
    found = [one for one in stages if isinstance(one, dict) and one["stage"] == stage]
    assert found
    return found


#: A change of a record, the figures that then differ, and the stage.
def another_message(details: dict[str, JsonValue]) -> None:
    for one in stages_of(details, "reproduce"):
        if one["outcome"] != "passed":
            continue
        for side in ("base", "again"):
            run = details_of(one).get(side)
            failed = run["failed"] if isinstance(run, dict) else []
            assert isinstance(failed, list)
            for each in failed:
                assert isinstance(each, dict)
                each["message"] = f"{each['message']} and more"


def another_compiler(details: dict[str, JsonValue]) -> None:
    for one in stages_of(details, "compile"):
        if one["outcome"] == "passed":
            details_of(one)["toolchain"] = {"name": "clang 20.1.0", "headers": ""}


@pytest.mark.parametrize(
    ("change", "figure"),
    [
        (another_message, "rmsnorm reproduce layout"),
        (another_compiler, "fp8-hw-convert compile fnuz-instruction"),
        # A time is one machine's.
        (lambda _: None, "rmsnorm bench contiguous"),
    ],
)
def test_what_another_record_says_otherwise_is_another_figure(
    tmp_path: Path, change: Callable[[dict[str, JsonValue]], None], figure: str
) -> None:
    name, stage, check = figure.split()
    another(real_copy(tmp_path, name) / "x86_64-cpu-57ede66c.json", change)
    found = [one for one in gather(load_queue(tmp_path), name).of(stage) if one.name == check]
    assert len(found) == 2
    assert len({one.labels for one in found}) == 2
    assert make_body(load_queue(tmp_path), name).text


def test_a_report_names_the_machine_that_it_quotes(tmp_path: Path) -> None:
    records = real_copy(tmp_path, "stable-softmax")
    own = records / "x86_64-cpu-57ede66c.json"
    another(own, lambda details: dig_machine(details).update(system="Linux z86"))
    own.unlink()
    report = make_reproducer(load_queue(tmp_path), "stable-softmax").report
    assert "Processor `Another`, no GPU, torch 2.13.0+cpu" in report
    assert "seal" not in report
