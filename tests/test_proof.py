"""What proves a patch end to end, beside the cases of tests/judge_cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.test_verify import PATH, put
from tests.tools import kinds
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, one_check

SAME = '[[checks]]\nname = "same"\nfile = "test_same.py"\nexpect = "pass-to-pass"\n'
ASKS = (
    "import os, pathlib, runpy\n\n\ndef test_it():\n"
    "    path = pathlib.Path(os.environ['CONTRIBBOT_TREE']) / '{path}'\n"
    "    assert path.is_file(), 'no test'\n"
)
RUNS = f"{ASKS}    runpy.run_path(str(path))['test_rectangle']()\n"


@pytest.mark.parametrize(
    ("path", "check", "verdict", "said"),
    kinds([
        ("tests/test_area.py", RUNS, "refuted", "fails on the base for another reason than stated"),
        ("tests/area/rectangles.py", ASKS, "refuted", "passes on the base, so it shows nothing"),
        # Outside of the folders that the upstream's description names.
        ("src/toy/test_area.py", RUNS, "refuted", "fails on the base for another reason"),
        ("tests/test_area.py", RUNS.replace("no test", "a sum"), "proved", "1 test: fail on the"),
    ], lambda case: case[2] == "proved"),
)  # fmt: skip
def test_the_base_has_the_tests_that_the_patch_brings(
    toy: Toy, program: Program, path: str, check: str, *, verdict: str, said: str
) -> None:
    own = FAIL_TO_PASS.replace("== 6", "== 6, 'a sum'")
    toy.put_area(
        patch=toy.format_patch({PATH: FIXED, path: own}),
        files=(PATH, path),
        checks=one_check(reason="a sum" if verdict == "proved" else "no test") + SAME,
        check_files={
            "test_red.py": check.format(path=path),
            # It runs what the patch adds, and cannot stand in for a red that does not.
            "test_same.py": (
                "from toy.area import rectangle\n\n\n"
                "def test_same():\n    assert rectangle(2, 2) == 4\n"
            ),
        },
    )

    ran = program("verify", "area", "--json")

    red = ran.stages()["reproduce red"]
    assert (ran.report().verdict, dig(red.details, "laid_over_base")) == (verdict, [path])
    assert red.reason.startswith(f"red: {said}")
    assert red.reason.endswith("laid over it)") == (check is ASKS)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    kinds([
        ("src/sitecustomize.py", "pass\n", "hides the sitecustomize.py of what judges it"),
        ("src/json.py", "def loads(text):\n    return {}\n", "hides the json.py of what judges"),
        ("src/torch.py", "", "hides the torch.py of what judges it"),
        ("src/toy/area.pyc", b"\0", "compiled Python, which nobody can read"),
        ("src/away", Path("../../elsewhere"), "a link out of the tree, to ../../elsewhere"),
        ("src/away", Path("toy/../.."), "a link out of the tree, to toy/../.."),
        # A folder without Python hides nothing.
        ("src/profile/README.md", "How to profile.\n", ""),
    ], lambda case: case[0] in {"src/json.py", "src/toy/area.pyc", "src/profile/README.md"}),
)  # fmt: skip
def test_what_could_take_over_the_judge_is_refused(
    toy: Toy, program: Program, path: str, content: str | bytes | Path, said: str
) -> None:
    change: dict[str, str | bytes] = {PATH: FIXED, "README": f"{content!r}\n"}
    if isinstance(content, Path):
        (toy.upstream / path).symlink_to(content)
    else:
        change[path] = content
    toy.put_area(patch=toy.format_patch(change), files=(PATH, "README", path), checks="")
    ran = program("verify", "area", "--json")
    style = ran.stages()["style"]
    assert (ran.report().verdict, style.outcome) == (
        ("refuted", "failed") if said else ("incomplete", "passed")
    )
    assert (f"{path}: {said}" if said else "") in style.reason


@pytest.mark.parametrize("name", ["PYTEST_ADDOPTS", "PYTHONOPTIMIZE", "LD_PRELOAD"])
def test_a_check_gives_no_orders_to_what_runs_it(toy: Toy, program: Program, name: str) -> None:
    put(toy, "def test_it(): pass\n", more=f'env = {{ {name} = "1" }}')
    ran = program("verify", "area")
    assert ran.code == 2
    assert f"{name}: a check may not give orders" in ran.err


@pytest.mark.parametrize("before", [True, False])
def test_a_reviewer_minds_crlf(toy: Toy, program: Program, *, before: bool) -> None:
    def crlf(text: str) -> bytes:
        return text.replace("\n", "\r\n").encode()

    with_sources(toy, {PATH: crlf(AREA) if before else AREA})
    toy.put_area(patch=toy.format_patch({PATH: crlf(FIXED)}), checks="")
    ran = program("verify", "area", "--json")
    style = ran.stages()["style"]
    assert (style.outcome, bool(dig(style.details, "minded"))) == ("passed", not before), (
        style.reason
    )


@pytest.mark.slow
@pytest.mark.usefixtures("unsandboxed")
def test_the_newest_verdict_is_what_counts(toy: Toy, program: Program, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    put(toy, (
        "import pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        f"    assert rectangle(2, 3) == 6 and not pathlib.Path({str(broken)!r}).exists()\n"
    ))  # fmt: skip
    program.ok("verify", "area")
    broken.touch()
    assert program("verify", "area", "--force").code == 1
    assert "refuted" in program("evidence", "check").out
