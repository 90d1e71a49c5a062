from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.compile.compare import worse_in
from contribbot.contribute.body import make_body, rules_of
from contribbot.contribute.figures import comment_rows, gather, not_run, other_tritons
from contribbot.model.evidence import Statement, seal_of
from contribbot.model.patch import PinnedToolchain
from contribbot.model.record import ListingRow, Numbers
from contribbot.queue.load import load_queue
from contribbot.verify.evidence import triton_of
from tests.conftest import once
from tests.contribute.bodytoy import describe
from tests.contribute.place import Proved, verify
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
def figured(shared: Path) -> Proved:
    """A toy patch with a check for a GPU, proved."""
    return once(shared / "figured", make_figured)


def make_figured(root: Path) -> Proved:
    toy = Toy(root / "toy")
    describe(toy)
    test = "\n\n\ndef test_it():\n    assert rectangle(2, 3) == 6, 5\n"
    files = {
        "test_red.py": "from toy.area import rectangle" + test,
        "test_red_cuda.py": "def test_it():\n    raise AssertionError\n",
        "test_same.py": "def test_it():\n    assert True\n",
    }
    toy.put_area(checks=CHECKS.replace("assert 5 == ", "5") + CUDA, check_files=files)
    return verify(toy, root)


@pytest.fixture
def toy(figured: Proved, tmp_path: Path) -> Toy:
    return figured.copy(tmp_path)


@pytest.fixture
def record(toy: Toy) -> Path:
    return next((toy.queue / "evidence/area").glob("*.json"))


#: A pattern in a record, and the text to put in its place.
Change = tuple[str, str]


def another(record: Path, *changes: Change) -> Path:
    """Write a record of another machine: what a second verification there would have left."""
    text = record.read_text(encoding="utf-8")
    for pattern, instead in (*changes, (r'"cpu": "[^"]*"', '"cpu": "Another"')):
        text, count = re.subn(pattern, instead, text)
        assert count, pattern
    return sealed(record, json.loads(text))


def sealed(record: Path, document: dict[str, JsonValue]) -> Path:
    """Seal a record, and write it beside another under its machine's name."""
    document["contribbot_seal"] = seal_of(document)
    slug = Statement.model_validate(document).predicate.contribbot.machine.slug
    path = record.with_name(f"{slug}.json")
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


LONG = "KernelError: utils.py:42: count_expert_num_tokens_kernel+0x1b8: global_load_dword v[1], "
LONG += "v[2], s[0:1]: out of bounds: 4 bytes at offset 16 of argument 4 (map)"


@pytest.mark.parametrize("reason", ["^KernelError: .*: out of bounds: ", "global_load", "out of"])
def test_a_quoted_fault_says_what_the_kernel_did(toy: Toy, record: Path, reason: str) -> None:
    document = json.loads(record.read_text(encoding="utf-8"))
    stages = document["predicate"]["contribbot"]["stages"]
    details = next(row["details"] for row in stages if row["label"] == "red")
    details["stated_reason"] = reason
    for failure in details["base"]["failed"]:
        failure["message"] = LONG
    sealed(record, document)
    told = comment_rows(gather(load_queue(toy.queue), "area"))
    assert "KernelError: … out of bounds: 4 bytes at offset 16 of argument 4" in told[0].before


def test_two_records_that_say_the_same_are_one_figure(toy: Toy, record: Path) -> None:
    another(record)
    figures = gather(load_queue(toy.queue), "area")
    assert {source.label for source in figures.sources} == {"R1", "R2"}
    assert [len(figure.sources) for figure in figures.of("reproduce")] == [2, 2]


@pytest.mark.parametrize("cpu", ["A", "D"])
def test_a_record_that_proves_is_quoted_first(toy: Toy, record: Path, cpu: str) -> None:
    document = json.loads(record.read_text(encoding="utf-8"))
    predicate = document["predicate"]
    details = predicate["contribbot"]
    details["machine"]["cpu"] = cpu  # their names come before and after the other's
    red = next(row for row in details["stages"] if row["label"] == "red")
    red |= {"outcome": "unavailable", "details": None}
    predicate["passedTests"].remove("reproduce/red@cpu")
    details["verdict"], predicate["result"] = "incomplete", "WARNED"
    details["open"] = ["cpu", *details["open"]]
    sealed(record, document)
    first, last = gather(load_queue(toy.queue), "area").sources
    assert (first.label, first.details.verdict, first.record.path) == ("R1", "proved", record)
    assert (last.label, last.details.verdict) == ("R2", "incomplete")


def test_what_ran_on_an_earlier_version_is_no_pass(toy: Toy, record: Path) -> None:
    document = json.loads(record.read_text(encoding="utf-8"))
    details = document["predicate"]["contribbot"]
    details["checks_sha256"] = "0" * 64
    document["predicate"]["configuration"][1]["digest"]["sha256"] = "0" * 64
    details["machine"]["cpu"] = "Another"
    # The record of a machine with a GPU: nothing is open, and one more test has passed.
    gpu = {"vendor": "nvidia", "target": "sm_90", "name": "none", "driver": ""}
    details["machine"]["gpus"] = [gpu]
    details["open"] = []
    red = next(row for row in details["stages"] if row["label"] == "red")
    cuda = next(row for row in details["stages"] if row["target"] == "cuda")
    cuda["outcome"] = "passed"
    cuda |= {"details": red["details"], "seen": red["seen"]}
    names = document["predicate"]["passedTests"]
    names.insert(names.index("reproduce/same@cpu") + 1, "reproduce/red-cuda@cuda")
    sealed(record, document)
    queue = load_queue(toy.queue)
    assert not_run(gather(queue, "area"), rules_of(queue, "toy")) == ("cuda", "gfx942")


def real_copy(folder: Path, name: str) -> Path:
    """Copy the real queue, with the records of one patch; return where those lie."""
    shutil.copytree(tracked_queue() / "patches", folder / "patches")
    shutil.copytree(tracked_queue() / "evidence" / name, folder / "evidence" / name)
    return folder / "evidence" / name


MESSAGE: Change = (r'("message": "(?:[^"\\]|\\.)*)"', r'\1 and more"')
COMPILER: Change = (r'"toolchain": \{[^}]*\}', '"toolchain": {"name": "clang 20", "headers": ""}')


@pytest.mark.parametrize(
    ("changes", "figure"),
    [
        ((MESSAGE,), "rmsnorm reproduce layout"),
        ((COMPILER,), "fp8-hw-convert compile fnuz-instruction"),
    ],
)
def test_what_another_record_says_otherwise_is_another_figure(
    tmp_path: Path, changes: tuple[Change, ...], figure: str
) -> None:
    name, stage, check = figure.split()
    [own] = real_copy(tmp_path, name).glob("x86_64-cpu-*.json")
    another(own, *changes)
    figures = [row for row in gather(load_queue(tmp_path), name).of(stage) if row.name == check]
    assert len(figures) == len({row.source.file for row in figures}) == 2
    assert make_body(load_queue(tmp_path), name).text


def test_a_pin_states_another_triton_than_a_records(tmp_path: Path) -> None:
    real_copy(tmp_path, "fp8-softmax-weights")
    path = tmp_path / "patches/queue.toml"
    path.write_text(re.sub(r"\[\[pins\.toolchains]]\n([^\[]+\n)+", "", path.read_text()))
    seen = gather(load_queue(tmp_path), "fp8-softmax-weights")
    [made] = {triton_of(figure.facts) for figure in seen.of("emulate")}
    assert made.startswith("triton 3.")
    assert other_tritons(seen) == ()
    for release, others in ((made.removeprefix("triton "), ()), ("9.9", (made,))):
        stated = PinnedToolchain(triton=release, source="Dockerfile", date="2026-11-29")
        pin = seen.patch.pin.model_copy(update={"toolchains": (stated,)})
        assert other_tritons(replace(seen, patch=replace(seen.patch, pin=pin))) == others


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({}, ()),
        ({"vgprs": 17, "instructions": 90}, ("VGPRs 14 → 17 at most in 4 kernels",)),
        ({"occupancy": 7, "spills": 2}, ("spills 0 → 2 at most in 4 kernels",
                                         "waves 8 → 7 at most in 4 kernels")),
        ({"occupancy": None, "sgprs": 8}, ()),
    ],
)  # fmt: skip
def test_what_got_worse_in_a_compile_is_said(after: dict[str, int], said: tuple[str, ...]) -> None:
    base = Numbers(14, 0, 10, 0, 0, 0, 64, 8, 400, 100)
    gone = ListingRow("empty", 1, base._replace(vgprs=0, instructions=1), base)
    row = ListingRow("k", 2, base, base._replace(**after))
    assert worse_in([row, row, ListingRow("new", 1, None, base), gone]) == said
