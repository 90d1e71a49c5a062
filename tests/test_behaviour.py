"""What a release does without a patch: its fail-to-pass entries on the unpatched tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contribbot.model.lifecycle import Behaviour, Entry, Need, Says
from contribbot.model.patch import GitSource
from contribbot.queue.load import load_queue
from contribbot.verify.one_tree import Ask, behaviours
from contribbot.verify.pipeline import Options
from tests.buildtoy import with_sources
from tests.releases import Seen, release, says, told
from tests.test_verify import put
from tests.toy import AREA, CHECKS, FAIL_TO_PASS, FIXED, Toy, one_check

HALF = AREA.replace("return width + height", "return width * height if width > 1 else 5")
AREA_PY = "src/toy/area.py"
OTHERWISE = AREA.replace("return width + height", "raise KeyError(width)")


@pytest.mark.parametrize(
    ("changes", "verdict", "said", "reason"),
    [
        ({AREA_PY: FIXED}, Need.SUPERSEDED, "passes", "2 tests pass"),
        ({AREA_PY: AREA}, Need.NEEDED, "fails",
         "2 of 2 tests fail as stated: test_red.py::test_rectangle: AssertionError: assert 5 == 6"),
        # Fixed for some, and for the rest the fault is the stated one.
        ({AREA_PY: HALF}, Need.NEEDED, "fails",
         "1 of 2 tests fail as stated: test_red.py::test_flat: AssertionError: assert 5 == 4"),
        ({AREA_PY: OTHERWISE}, Need.UNCLEAR, "other",
         ("fails on the release for another reason than stated: "
         "test_red.py::test_rectangle: KeyError: 2")),
        # An import that fails says nothing.
        ({AREA_PY: None, "src/toy/areas.py": FIXED}, Need.UNCLEAR, "other",
         ("ModuleNotFoundError: No module named 'toy.area'")),
    ],
    ids=["fixed", "not fixed", "fixed in part", "broken otherwise", "no such module"],
)  # fmt: skip
def test_what_a_release_does_decides(
    area: Toy, changes: dict[str, str | None], verdict: Need, said: str, reason: str
) -> None:
    answer = told(area, release(area, changes))
    assert (answer.verdict, says(answer)) == (verdict, {"check red": said})
    assert reason in answer.entries[0].reason
    assert answer.trouble == ""


def test_it_is_remembered_until_something_changes_or_it_is_forced(area: Toy) -> None:
    pin = release(area, {AREA_PY: FIXED})
    first, again, forced = Seen(), Seen(), Seen()

    answers = [told(area, pin, seen=first), told(area, pin, seen=again)]
    told(area, pin, seen=forced, force=True)

    assert (first.started, again.started, forced.started) == (["check red"], [], ["check red"])
    assert [answer.entries[0].cached for answer in answers] == [False, True]
    assert answers[1].entries[0].reason == answers[0].entries[0].reason
    assert Behaviour.model_validate_json(answers[1].model_dump_json()) == answers[1]
    folder = area.queue / "patches/area"
    for path, old, new in (
        (folder / "checks/test_red.py", "(1, 4) == 4", "(1, 4) == 5"),
        (folder / "0001-change.patch", "no area", "not an area"),
    ):
        path.write_text(path.read_text().replace(old, new))
        seen = Seen()
        told(area, pin, seen=seen)
        assert seen.started == ["check red"], path


BOTH = """\
import os
from pathlib import Path


def test_both():
    text = (Path(os.environ["CONTRIBBOT_TREE"]) / "tests/test_area.py").read_text()
    assert "# Both" in text and text.endswith("# Rectangles.\\n"), "no test"
"""


def test_a_test_that_release_and_patch_both_change_is_merged(toy: Toy) -> None:
    with_sources(toy, {"tests/test_area.py": "# Areas.\n\n\n\n\n\n# The end.\n"})
    changes: dict[str, str | bytes] = {
        AREA_PY: FIXED,
        "tests/test_area.py": "# Areas.\n\n\n\n\n\n# The end.\n# Rectangles.\n",
    }
    put(toy, BOTH, reason="no test", change=changes)
    pin = release(toy, {"tests/test_area.py": "# Areas. # Both\n\n\n\n\n\n# The end.\n"})
    assert says(told(toy, pin)) == {"check red": "passes"}


NAMED = """\
import os, pathlib


def test_named():
    path = pathlib.Path(os.environ["CONTRIBBOT_TREE"], os.environ["CHECK_FILE"])
    assert "width * height" in path.read_text(), "a sum"
"""


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("src/toy/shapes/area.py", "passes"),
        # Rewritten: less than half of it is what it was, but no other file has its name.
        ("src/toy/flat/area.py", "passes"),
        (None, "other"),
    ],
    ids=["moved", "moved and rewritten", "gone"],
)
def test_a_file_that_a_check_names_is_followed(toy: Toy, now: str | None, said: str) -> None:
    named = 'env = { CHECK_FILE = "src/toy/area.py" }'
    put(toy, NAMED, reason="a sum", more=named)
    text = FIXED if now != "src/toy/flat/area.py" else FIXED + "".join(
        f"\n\ndef shape_{number}(side):\n    return {number} * side\n" for number in range(8)
    )  # fmt: skip
    moves: dict[str, str | None] = {"src/toy/area.py": None, **({now: text} if now else {})}
    answer = told(toy, release(toy, moves))
    assert says(answer) == {"check red": said}
    assert answer.moved == ({"src/toy/area.py": now} if now else {})
    if now is None:
        assert answer.entries[0].reason == (
            "src/toy/area.py is not there, and git knows of no file that it became"
        )


@pytest.mark.slow
def test_what_is_below_is_applied(toy: Toy) -> None:
    low = AREA.replace("return base * height / 2", "return base * height / 2.0")
    toy.put_patch("low", patch=toy.format_patch({AREA_PY: low}))
    toy.put_patch(extra='depends_on = ["low"]')
    toy.put_queue(["low", "area"])
    clashing = AREA.replace("return base * height / 2", "return height * base / 2")
    clash = release(toy, {AREA_PY: clashing}, "v2.1")
    queue = load_queue(toy.queue)
    (file,) = queue.patch("low").files
    content = file.content.replace(b"-    return base * height", b"-    return height * base")
    carried = {"low": (replace(file, content=content),)}

    fine = told(toy, release(toy, {AREA_PY: AREA}), "low")
    stuck, without = told(toy, clash, "low"), told(toy, clash)
    ask = Ask("area", clash, ("low",), carried)
    (moved,) = behaviours(queue, [ask], options=Options(jobs=2), watcher=Seen().watch())

    assert (fine.verdict, fine.below) == (Need.NEEDED, ("low",))
    assert (stuck.verdict, stuck.entries) == (Need.UNCLEAR, ())
    assert stuck.why.startswith("low, which is below it, does not apply: 0001-change.patch: hunk")
    assert without.verdict is Need.NEEDED
    assert (moved.verdict, moved.trouble) == (Need.NEEDED, "")


def test_a_release_that_cannot_be_had_is_unclear(area: Toy) -> None:
    source = GitSource(kind="git", remote=(area.root / "nowhere").as_uri())
    answer = told(area, release(area, {}).model_copy(update={"sources": (source,)}))
    assert answer.verdict is Need.UNCLEAR
    assert "no source can provide it" in answer.why


def test_what_this_machine_lacks_decides_nothing(toy: Toy) -> None:
    gpu = one_check(more='requires = ["gfx999"]').replace('"red"', '"gpu"')
    toy.put_area(
        checks=CHECKS + gpu.replace("test_red.py", "test_gpu.py"),
        check_files={
            "test_red.py": FAIL_TO_PASS,
            "test_same.py": "def test_same(): pass\n",
            "test_gpu.py": FAIL_TO_PASS,
        },
    )
    answer = told(toy, release(toy, {AREA_PY: FIXED}))
    assert says(answer) == {"check red": "passes", "check gpu": "cannot"}
    assert answer.why == "1 of 2 pass without the patch; 1 cannot run here"
    assert answer.verdict is Need.PARTLY


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ({Says.PASSES}, Need.SUPERSEDED),
        *(({Says.PASSES, other}, Need.PARTLY) for other in (Says.FAILS, Says.OTHER, Says.CANNOT)),
        ({Says.FAILS, Says.OTHER}, Need.NEEDED),
        ({Says.OTHER, Says.CANNOT}, Need.UNCLEAR),
        (set(), Need.UNCLEAR),
    ],
)
def test_superseded_is_what_every_entry_passes_without(said: set[Says], verdict: Need) -> None:
    entries = tuple(Entry(label=str(each), target="cpu", says=each, reason="") for each in said)
    assert Behaviour(patch="area", pin="v2", entries=entries).verdict is verdict


CRASHES_ONCE = """\
import os, pathlib


def test_area():
    mark = pathlib.Path(os.environ["CHECK_MARK"])
    mark.exists() or mark.touch() or os.abort()
"""


@pytest.mark.parametrize("crashes", ["once", "always"])
@pytest.mark.usefixtures("unsandboxed")
def test_a_crash_is_believed_when_it_comes_back(toy: Toy, tmp_path: Path, crashes: str) -> None:
    text = CRASHES_ONCE if crashes == "once" else CRASHES_ONCE.replace("mark.touch()", "None")
    named = f'env = {{ CHECK_MARK = "{tmp_path / "mark"}" }}'
    put(toy, text, more=named)
    pin = release(toy, {})
    again = Seen()
    answer = told(toy, pin)
    told(toy, pin, seen=again)
    assert says(answer) == {"check red": "passes" if crashes == "once" else "other"}
    # What may be this machine's doing is asked anew the next time.
    assert again.started == ([] if crashes == "once" else ["check red"])


def test_numerics_that_judge_nothing_say_nothing(toy: Toy) -> None:
    table = (
        '[[numerics]]\nname = "grid"\nfile = "test_red.py"\nexpect = "fail-to-pass"\n'
        'reason = "AssertionError: assert 5"\nfudge = 1.0\nfloor = 1.0\nwhy = "It is a sum."\n'
    )
    toy.put_area(checks=table, check_files={"test_red.py": FAIL_TO_PASS})
    fixed = told(toy, release(toy, {AREA_PY: FIXED}))
    same = told(toy, release(toy, {}, "v2.1"))
    assert says(fixed) == {"numerics grid": "other"}
    assert "judges no cell" in fixed.why
    assert says(same) == {"numerics grid": "fails"}
