"""`runners.toml`: what is wrong with it is said, with file, key and the next step."""

from __future__ import annotations

import pytest

from contribbot.errors import ExitCode, QueueError, UsageError
from contribbot.runners.fleet import is_version, load_fleet
from tests.runners.conftest import DIGEST, HOSTED, MI300, Ranged, run_matrix


def test_it_is_read(ranged: Ranged) -> None:
    fleet = load_fleet(ranged.folder)
    each = fleet.runners.runners[0]
    assert each.minutes_limit == 120
    assert " ".join(each.rocm[0].flags) == "--device /dev/kfd --device /dev/dri --group-add video"
    assert fleet.runners.versions == ("7.1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MI300.replace(f"@sha256:{DIGEST}", ":latest"), "rocm[0].image: name the image by its dig"),
        (MI300[: MI300.index("[[runners.rocm]]")], "runners[0].rocm: this key is missing"),
        (HOSTED.replace(f'image = "example.com/rocm/dev@sha256:{DIGEST}"\n', ""),
         "hosted.rocm[0].image: this key is missing"),
        (MI300 + MI300, "runners: mi300 is there twice"),
        (MI300 + MI300[MI300.index("[[runners.rocm]]"):], "rocm: 7.1 is there twice"),
        (MI300.replace('"self-hosted", "gfx942"', ""), "runners[0].labels: "),
        (MI300.replace('"mi300"', '"mi300_1"'), "runners[0].name: 'mi300_1' is not a short name"),
        (MI300 + "cost = 2\n", "runners[0].rocm[0].cost: there is no such key"),
        ("[hosted]\ncount = 2\n" + HOSTED[9:], "hosted.count is gone"),
        (MI300.replace('"gfx942"\nlabels', '"mi300x"\nlabels'), "runners[0].target: "),
        (MI300.replace('"7.1"', '"7.1; echo"'), "runners[0].rocm[0].version: "),
        (MI300.replace("target =", "targte ="), "targte: there is no such key (did you mean"),
        (MI300.replace('name = "mi300"', 'name = "hosted"'), "hosted is the set that compiles"),
        ("[[runners]\n", "not TOML"),
        ("\N{BYTE ORDER MARK}" + MI300, "runners.toml:1: not TOML"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_key(ranged: Ranged, text: str, said: str) -> None:
    path = ranged.put(text)
    done = run_matrix(ranged.folder)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert str(path) in done.err
    assert said in done.err
    steps = ("docs/", "add a [[runners]]", "not TOML", "delete it", "UTF-8 without one")
    assert any(step in done.err for step in steps)


@pytest.mark.parametrize("flag", ["", "a b", "$(id)", "--user;id", "x" * 201])
def test_a_flag_is_one_word(ranged: Ranged, flag: str) -> None:
    ranged.put(MI300 + f'flags = ["--device", "{flag}"]\n')
    done = run_matrix(ranged.folder)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "runners[0].rocm[0].flags[1]: " in done.err


def test_without_the_file_the_next_step_is_said(ranged: Ranged) -> None:
    (ranged.folder / "runners.toml").unlink()
    with pytest.raises(QueueError, match=r"runners\.toml: no such file") as raised:
        load_fleet(ranged.folder)
    assert "docs/runners.md" in raised.value.hint


def test_a_label_that_no_set_has(ranged: Ranged) -> None:
    with pytest.raises(UsageError, match=r"gfx94: no set of .*did you mean gfx942") as raised:
        ranged.plan(on=("gfx94",))
    assert raised.value.hint == "it has hosted, mi300"


def test_a_target_that_is_no_label_means_its_sets(ranged: Ranged) -> None:
    path = ranged.folder / "runners.toml"
    path.write_text(path.read_text().replace('"gfx942"]', '"pool-a"]'))
    assert "gfx942" not in {
        label for each in load_fleet(ranged.folder).runners.runners for label in each.labels
    }
    assert {job.kind for job in ranged.plan(on=("gfx942",)).jobs} == {"gpu"}


def test_only_some_sets(ranged: Ranged) -> None:
    assert {job.kind for job in ranged.plan(on=("GFX942",)).jobs} == {"gpu"}
    assert {job.kind for job in ranged.plan(on=("hosted",)).jobs} == {"compile"}
    # What the others could run is neither planned nor called open.
    assert ranged.plan(on=("hosted",)).open == ()


@pytest.mark.parametrize(
    ("wanted", "seen", "same"),
    [
        ("7.1", "7.1.0-84", True), ("7.1", "7.1", True), ("7.1.1", "7.1.1-12", True),
        ("7.1", "7.10.0-1", False), ("7.1.1", "7.1.0-84", False), ("7.1", "", False),
        ("7.1", "17.1.0", False),
    ],
)  # fmt: skip
def test_versions(wanted: str, seen: str, same: bool) -> None:
    assert is_version(wanted, seen) is same
