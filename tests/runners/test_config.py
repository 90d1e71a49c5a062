"""`runners.toml`: a fault is named with file, key and the next step; `--on` chooses sets."""

from __future__ import annotations

import pytest

from contribbot.errors import ExitCode, QueueError, UsageError
from contribbot.runners.plan import is_version, load_fleet
from tests.runners.conftest import DIGEST, HOSTED, MI300, Ranged, run_matrix

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
