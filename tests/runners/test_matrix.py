"""`runners.toml` and `contribbot runners matrix`: faults, cells, what a record answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contribbot.errors import ExitCode, QueueError, UsageError
from contribbot.model.evidence import Outcome
from contribbot.runners.actions import templates_folder
from contribbot.runners.plan import Plan, is_version, load_fleet
from tests.runners.conftest import CHECKS, DIGEST, HOSTED, MI300, Ranged, run_matrix

ROCM = MI300[MI300.index("[[runners.rocm]]") :]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MI300.replace(f"@sha256:{DIGEST}", ":latest"), "rocm[0].image: name the image by its dig"),
        (MI300.removesuffix(ROCM), "runners[0].rocm: this key is missing"),
        (MI300 + MI300, "runners: mi300 is there twice"),
        (MI300 + ROCM, "rocm: 7.1 is there twice"),
        (MI300.replace('"self-hosted", "gfx942"', ""), "runners[0].labels: "),
        (MI300.replace('"mi300"', '"mi300_1"'), "runners[0].name: 'mi300_1' is not a short name"),
        ("[hosted]\ncount = 2\n" + HOSTED[9:], "hosted.count is gone"),
        (MI300.replace('"7.1"', '"7.1; echo"'), "runners[0].rocm[0].version: "),
        (MI300.replace("target =", "targte ="), "targte: there is no such key (did you mean"),
        (MI300.replace('name = "mi300"', 'name = "hosted"'), "hosted is the set that compiles"),
        ("[[runners]\n", "not TOML"),
        *((MI300 + f'flags = ["{flag}"]\n', "runners[0].rocm[0].flags[0]: ")
          for flag in ("a b", "$(id)", "--user;id")),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_key(ranged: Ranged, text: str, said: str) -> None:
    path = ranged.put(text)
    done = run_matrix(ranged.folder)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert str(path) in done.err
    assert said in done.err


def test_which_sets_are_planned_for(ranged: Ranged) -> None:
    path = ranged.folder / "runners.toml"
    path.write_text(path.read_text().replace('"gfx942"]', '"pool-a"]'))
    for name, kinds in (("GFX942", {"gpu"}), ("pool-a", {"gpu"}), ("hosted", {"compile"})):
        plan = ranged.plan(on=(name,))
        # A cell that the other sets could run is neither planned nor called open.
        assert ({job.kind for job in plan.jobs}, plan.open) == (kinds, ())
    with pytest.raises(UsageError, match=r"gfx94: no set of .*did you mean gfx942") as raised:
        ranged.plan(on=("gfx94",))
    assert raised.value.hint == "it has hosted, mi300"
    path.unlink()
    with pytest.raises(QueueError, match=r"runners\.toml: no such file") as missing:
        load_fleet(ranged.folder)
    assert "docs/runners.md" in missing.value.hint


@pytest.mark.parametrize(
    ("wanted", "seen", "same"),
    [
        ("7.1", "7.1.0-84", True), ("7.1", "7.1", True), ("7.1", "7.10.0-1", False),
        ("7.1.1", "7.1.0-84", False), ("7.1", "", False), ("7.1", "17.1.0", False),
    ],
)  # fmt: skip
def test_versions(wanted: str, seen: str, same: bool) -> None:
    assert is_version(wanted, seen) is same


COMPILED, RAN = "compile/area/gfx942/rocm7.1", "gpu/area/gfx942/rocm7.1"


def keys(plan: Plan) -> list[str]:
    return [cell.key for cell in plan.cells]


def test_a_patch_is_compiled_and_then_run(ranged: Ranged) -> None:
    stated = CHECKS + (
        '[[build]]\nname = "b"\nway = "extension"\nsources = ["a.cu"]\ntargets = ["gfx942"]\n'
        'expect = "pass-to-pass"\n'
        '[[bench]]\nname = "c"\nfile = "bench_c.py"\nat_least = 1\nrequires = ["gfx942"]\n'
    )
    ranged.patch("more", stated)
    ranged.toy.put("patches/more/checks/bench_c.py", "")
    compiles, runs, _ = ranged.plan().jobs
    assert (compiles.id, runs.id) == ("compile-rocm7.1-1", "gfx942-mi300-rocm7.1-1")
    assert (compiles.patches, compiles.require) == (("area", "more"), ("compile:gfx942",))
    assert (compiles.flags, compiles.labels) == ((), ("ubuntu-24.04",))
    assert (runs.artifact, runs.minutes) == ("contribbot-gfx942-mi300-rocm7.1-1", 120)
    assert runs.require == ("reproduce:gfx942",)
    (more,) = [cell for cell in ranged.plan("more").cells if cell.kind == "gpu"]
    assert more.require == ("build:gfx942", "reproduce:gfx942", "bench:gfx942")


def test_what_no_runner_has_is_open_with_the_reason(ranged: Ranged) -> None:
    ranged.patch("wide", CHECKS.replace("gfx942", "gfx950"))
    ranged.patch("host", CHECKS[CHECKS.index("[[checks]]") :].replace("gfx942", "cpu"))
    ranged.put(MI300.replace("7.1", "7.0") + HOSTED)
    plan = ranged.plan()
    assert plan.without == ("host",)
    assert {(each.patch, each.kind, each.target, each.rocm): each.reason for each in plan.open} == {
        ("area", "compile", "gfx942", "7.0"):
            "no runner compiles for gfx942 with ROCm 7.0",
        ("area", "gpu", "gfx942", "7.1"): "no runner has gfx942 with ROCm 7.1",
        ("wide", "compile", "gfx950", ""): "no runner compiles for gfx950",
        ("wide", "gpu", "gfx950", ""): "no runner has gfx950",
    }  # fmt: skip
    assert keys(plan) == [COMPILED, "gpu/area/gfx942/rocm7.0"]


def test_what_a_fresh_record_answers_is_left_out(ranged: Ranged) -> None:
    path = ranged.record("area")
    plan = ranged.plan()
    assert plan.jobs == ()
    assert {each.record for each in plan.fresh} == {path.relative_to(ranged.folder).as_posix()}
    assert [each.passed for each in plan.fresh] == [True, True]
    assert keys(ranged.plan(everything=True)) == [COMPILED, RAN]


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({"rocm": "7.0.2-1"}, [COMPILED, RAN]),
        ({"rocm": ""}, [COMPILED, RAN]),
        # What another GPU's machine compiled is compiled; it ran nothing for gfx942.
        ({"target": "gfx90a"}, [RAN]),
        ({"outcomes": {"reproduce": Outcome.UNAVAILABLE}}, [RAN]),
    ],
)
def test_a_record_of_something_else_does_not_count(
    ranged: Ranged, how: dict[str, str], left: list[str]
) -> None:
    ranged.record("area", **how)  # type: ignore[arg-type]  # as it takes them
    assert keys(ranged.plan()) == left


def test_a_record_that_says_no_is_an_answer_and_shown_as_one(ranged: Ranged) -> None:
    ranged.record("area", outcomes={"reproduce": Outcome.FAILED})
    ranged.record("area", cores=16)
    passed = {each.kind: each.passed for each in ranged.plan().fresh}
    assert passed == {"compile": True, "gpu": False}
    assert "fresh  area gfx942 ROCm 7.1: failed" in run_matrix(ranged.folder).out


def test_a_stale_or_altered_record_does_not_count(ranged: Ranged) -> None:
    path = ranged.record("area")
    assert ranged.plan().jobs == ()
    path.write_text(path.read_text(encoding="utf-8").replace("made up", "made  up"))
    assert keys(ranged.plan()) == [COMPILED, RAN]
    ranged.record("area")
    assert ranged.plan().jobs == ()
    ranged.toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    assert keys(ranged.plan()) == [COMPILED, RAN]


def test_the_first_set_that_can_gets_a_cell(ranged: Ranged) -> None:
    other = MI300.replace("mi300", "other")
    assert run_matrix(ranged.folder, "area").out.splitlines() == [
        "compile-rocm7.1-1       1 cell on hosted: area",
        "gfx942-mi300-rocm7.1-1  1 cell on mi300: area",
        "2 jobs for 2 cells",
    ]
    ranged.put(other + MI300 + HOSTED)
    assert ranged.plan().of_kind("gpu")[0].runners == "other"
    assert ranged.plan(on=("mi300", "hosted")).of_kind("gpu")[0].runners == "mi300"


def test_patches_share_jobs(ranged: Ranged) -> None:
    for number in range(9):
        ranged.patch(f"p{number}")
    assert [len(job.patches) for job in ranged.plan().of_kind("gpu")] == [8, 2]


def test_under_actions_the_matrices_are_outputs(ranged: Ranged, tmp_path: Path) -> None:
    outputs, written = tmp_path / "outputs", tmp_path / "plan.json"
    outputs.write_text("before=1\n", encoding="utf-8")
    done = run_matrix(ranged.folder, "--json", "--output", written, GITHUB_OUTPUT=str(outputs))
    assert done.code == ExitCode.OK, done.err
    assert json.loads(done.out) == json.loads(written.read_text(encoding="utf-8"))
    told = dict(line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())
    text = (templates_folder() / "verify.yml").read_text(encoding="utf-8")
    assert set(json.loads(told["gpu"])[0]) == set(re.findall(r"\bmatrix\.(\w+)", text))
    assert Plan.model_validate_json(done.out) == ranged.plan()
    assert list(told) == ["before", "compile", "gpu", "any"]
    assert told["any"] == "true"
    assert json.loads(told["gpu"]) == [
        {
            "id": "gfx942-mi300-rocm7.1-1", "artifact": "contribbot-gfx942-mi300-rocm7.1-1",
            "labels": ["self-hosted", "gfx942"],
            "image": f"example.com/rocm/run@sha256:{DIGEST}",
            "options": "--device /dev/kfd --device /dev/dri --group-add video",
            "minutes": 120, "patches": "area", "require": "reproduce:gfx942",
        }
    ]  # fmt: skip


def test_without_runners_it_shows_what_waits_for_which_target(ranged: Ranged) -> None:
    (ranged.folder / "runners.toml").unlink()
    ranged.patch("wide", CHECKS.replace("gfx942", "gfx950"))
    ranged.patch("host", CHECKS[CHECKS.index("[[checks]]") :].replace("gfx942", "cpu"))
    done = run_matrix(ranged.folder)
    assert (done.code, done.err) == (ExitCode.OK, "")
    assert done.out.splitlines() == [
        "waits for compile:gfx942: area", "waits for gfx942: area",
        "waits for compile:gfx950: wide", "waits for gfx950: wide",
        "no AMD target asked for: host",
        ("no runners.toml says which runners there are (docs/runners.md has one to copy); on a "
         "machine with the GPU: contribbot verify NAME --require TARGET"),
    ]  # fmt: skip
    # What a machine showed under any ROCm version waits no more, until it is to be shown again.
    ranged.record("area")
    assert [(cell.key, cell.passed) for cell in ranged.plan().fresh] == [
        ("compile/area/gfx942/rocm", True), ("gpu/area/gfx942/rocm", True),
    ]  # fmt: skip
    assert {cell.patch for cell in ranged.plan().open} == {"wide"}
    assert {cell.patch for cell in ranged.plan(everything=True).open} == {"area", "wide"}


def test_a_run_needs_runners(ranged: Ranged, tmp_path: Path) -> None:
    (ranged.folder / "runners.toml").unlink()
    for args, env in (
        ((), {"GITHUB_OUTPUT": str(tmp_path / "outputs")}),
        (("--output", str(tmp_path / "plan.json")), {}),
        (("--on", "mi300"), {}),
    ):
        done = run_matrix(ranged.folder, *args, **env)
        assert (done.code, done.out) == (ExitCode.USAGE, "")
        assert "runners.toml: no such file" in done.err
    assert list(tmp_path.glob("[op]*")) == []


def test_the_example_of_one_machine_with_one_gpu(ranged: Ranged) -> None:
    """The first block of docs/runners.md is a whole file."""
    text = (Path(__file__).parents[2] / "docs" / "runners.md").read_text(encoding="utf-8")
    block = re.search(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert (
        text.index("## One machine with one GPU") < block.start() < text.index("## Setting it up")
    )
    ranged.put(block[1])
    (job,) = ranged.plan().jobs
    assert (job.id, job.minutes) == ("gfx942-workstation-rocm7.1-1", 120)
    assert [cell.reason for cell in ranged.plan().open] == ["no runner compiles for gfx942"]
