"""What proves a patch end to end, and what does not; tests/test_judgement.py has the table."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from contribbot import process
from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.test_verify import PATH, put
from tests.tools import kinds
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, one_check

SAME = '[[checks]]\nname = "same"\nfile = "test_same.py"\nexpect = "pass-to-pass"\n'
NEVER = AREA + "\n\ndef never():\n    return 1\n"
EXISTS = "import toy.area\n\n\ndef test_it():\n    assert hasattr(toy.area, 'never'), 'lacks'\n"
READS = (
    "import os, pathlib\n\n\ndef test_it():\n"
    "    text = pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'README').read_text()\n"
    "    assert text == 'better\\n', 'lacks'\n"
)
TWICE = "import inspect\nfrom toy.more import twice\n\n\ndef test_it():\n    assert {}\n"
OLD = {
    "head": "def twice(value, times=1):\n    return value * times\n",
    "more": "def twice(value):\n    value += 1\n    return value * 2\n",
}
NEW = {
    "head": "def twice(value, times=2):\n    return value * times\n",
    "more": "def twice(value):\n    return value * 2\n",
}


@pytest.mark.parametrize(
    ("change", "text", "verdict"),
    [
        pytest.param({PATH: NEVER}, EXISTS, "incomplete", id="named alone"),
        pytest.param({"README": "better\n"}, READS, "incomplete", id="read as text",
                     marks=pytest.mark.slow),
        pytest.param({"src/toy/head.py": NEW["head"]},
                     TWICE.replace("more", "head").format("twice(3) == 6, 'lacks'"),
                     "proved", id="a head alone changes", marks=pytest.mark.slow),
        pytest.param({"src/toy/more.py": NEW["more"]}, TWICE.format("twice(3) == 6, 'lacks'"),
                     "proved", id="deleted and run"),
        pytest.param({"src/toy/more.py": NEW["more"]},
                     TWICE.format("'+= 1' not in inspect.getsource(twice), 'lacks'"),
                     "incomplete", id="deleted and read", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_proof_needs_what_the_patch_changes(
    toy: Toy, program: Program, change: dict[str, str | bytes], text: str, *, verdict: str
) -> None:
    with_sources(toy, {f"src/toy/{name}.py": text for name, text in OLD.items()})
    put(toy, text, reason="lacks", change=change)

    ran = program("verify", "area", "--json")

    assert ran.report().verdict == verdict, ran.out
    assert ran.stages()["reproduce red"].outcome == "passed"


@pytest.mark.usefixtures("unsandboxed")
def test_what_changes_from_run_to_run_is_flaky(toy: Toy, program: Program, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    put(toy, (
        "import pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        f"    runs = pathlib.Path({str(runs)!r})\n"
        "    runs.write_text('x' + (runs.read_text() if runs.exists() else ''))\n"
        "    assert rectangle(2, 3) == 6 or len(runs.read_text()) > 2\n"
    ))  # fmt: skip

    ran = program("verify", "area", "--json")

    assert (ran.code, ran.report().verdict) == (3, "incomplete")
    red = ran.stages()["reproduce red"]
    assert (dig(red.details, "cause"), red.outcome) == ("flaky", "unavailable")
    assert not program("verify", "area", "--json").stages()["reproduce red"].cached


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
    toy.put_patch(
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
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    red = ran.stages()["reproduce red"]
    assert (ran.report().verdict, dig(red.details, "laid_over_base")) == (verdict, [path])
    assert red.reason.startswith(f"red: {said}")
    assert red.reason.endswith("laid over it)") == (check is ASKS)


ELSEWHERE = {
    "a subprocess": (
        "    code = 'from toy.area import rectangle; print(rectangle(2, 3))'\n"
        "    out = subprocess.run([sys.executable, '-c', code], stdout=-1, check=True).stdout\n"
        "    assert int(out) == 6\n"
    ),
    "a spawned process": (
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:\n"
        "        assert pool.submit(area.rectangle, 2, 3).result() == 6\n"
    ),
    "a fork": (
        "    child = os.fork()\n"
        "    if not child:\n        os._exit(area.rectangle(2, 3))\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6\n"
    ),
    "torch.compile": (
        "    import torch\n"
        "    compiled = torch.compile(area.rectangle, backend='eager', fullgraph=True)\n"
        "    assert int(compiled(torch.tensor(2), torch.tensor(3))) == 6\n"
    ),
    "a thread": (
        "    with concurrent.futures.ThreadPoolExecutor(1) as pool:\n"
        "        assert pool.submit(area.rectangle, 2, 3).result() == 6\n"
    ),
}


@pytest.mark.parametrize("where", kinds(ELSEWHERE, "a subprocess".__eq__))
def test_the_change_is_taken_out_wherever_it_runs(toy: Toy, program: Program, where: str) -> None:
    put(toy, (
        "import concurrent.futures, multiprocessing, os, subprocess, sys\n"
        f"from toy import area\n\n\ndef test_it():\n{ELSEWHERE[where]}"
    ))  # fmt: skip

    ran = program("verify", "area", "--json")

    assert ran.report().verdict == "proved", ran.out
    assert dig(ran.stages()["reproduce red"].details, "proof") is True


NETWORK, READ_ONLY, BROKEN = "it needs the network", "it writes where", "the check is broken"
NOT_TESTED = {
    "network": ("urllib.request.urlopen('http://no-such.invalid')", NETWORK),
    "address": ("socket.create_connection(('192.0.2.1', 80))", NETWORK),
    "tree": ("pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'x').write_text('x')", READ_ONLY),
    "name": ("rectangel(2, 3)", BROKEN),
    "async": ("assert rectangle(2, 3) == 6\n\n\nasync def test_more():\n    pass", BROKEN),
    "fixture": ("assert rectangle(2, 3) == 6\n\n\ndef test_more(nothing):\n    pass", BROKEN),
    "root": ("assert pathlib.Path('wrong', 'area.py').read_text()", BROKEN),
}


@pytest.mark.tool("bwrap")
@pytest.mark.parametrize(
    ("side", "name"),
    kinds(
        itertools.product(["base", "patched tree"], NOT_TESTED),
        lambda case: case[0] == "base" and case[1] in {"network", "tree", "name"},
    ),
)
def test_what_tests_nothing_refutes_nothing(
    toy: Toy, program: Program, side: str, name: str
) -> None:
    if why := process.no_sandbox():
        pytest.skip(why)
    head = (
        "import os, pathlib, socket, urllib.request\nfrom toy.area import rectangle\n\n\n"
        "def test_it():\n" + ("" if side == "base" else "    assert rectangle(2, 3) == 6\n")
    )
    text, said = NOT_TESTED[name]
    put(toy, f"{head}    {text}\n    assert rectangle(2, 3) == 6\n")

    ran = program("verify", "area", "--json")

    assert ran.code == 3
    red = ran.stages()["reproduce red"]
    assert (red.outcome, dig(red.details, "cause")) == ("unavailable", "broken")
    assert red.reason.startswith(f"red: {said}")
    assert ("the base" if name in {"async", "fixture"} else f"the {side}") in red.reason


NOT_GREEN = {
    "skipped on one side": (
        "def test_it(subtests):\n"
        "    found = rectangle(2, 3)\n    with subtests.test():\n"
        "        if found == 6:\n            pytest.skip('no')\n        assert found == 6\n"
    ),
    "broken": (
        "@pytest.fixture\ndef end():\n"
        "    yield\n    if rectangle(2, 3) == 6:\n        pytest.exit('bye', returncode=0)\n\n\n"
        "def test_it(end):\n    assert rectangle(2, 3) == 6\n"
    ),
}


@pytest.mark.parametrize("cause", NOT_GREEN, ids=["a skipped subtest", "an aborted teardown"])
def test_what_looks_green_and_is_not(toy: Toy, program: Program, cause: str) -> None:
    put(toy, f"import pytest\nfrom toy.area import rectangle\n\n\n{NOT_GREEN[cause]}")

    ran = program("verify", "area", "--json")

    assert ran.report().verdict == "incomplete", ran.out
    assert dig(ran.stages()["reproduce red"].details, "cause") == cause


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
    toy.put_patch(patch=toy.format_patch(change), files=(PATH, "README", path), checks="")
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    style = ran.stages()["style"]
    assert (ran.report().verdict, style.outcome) == (
        ("refuted", "failed") if said else ("incomplete", "passed")
    )
    assert (f"{path}: {said}" if said else "") in style.reason


IN_A_THREAD = """\
import threading
from toy.area import rectangle


def seen():
    assert rectangle(2, 3) == 5


def test_it():
    thread = threading.Thread(target=seen)
    thread.start()
    thread.join()
    assert rectangle(2, 3) == 6
"""


def test_an_assertion_in_a_thread_fails_the_test(toy: Toy, program: Program) -> None:
    put(toy, IN_A_THREAD)
    assert program("verify", "area", "--json").report().verdict == "refuted"
    assert "refuted: cpu" in program("status", "area").out


@pytest.mark.parametrize("name", ["PYTEST_ADDOPTS", "PYTHONOPTIMIZE", "LD_PRELOAD"])
def test_a_check_gives_no_orders_to_what_runs_it(toy: Toy, program: Program, name: str) -> None:
    put(toy, "def test_it(): pass\n", more=f'env = {{ {name} = "1" }}')
    ran = program("verify", "area")
    assert ran.code == 2
    assert f"{name}: a check may not give orders" in ran.err


@pytest.mark.parametrize("before", [True, False])
def test_a_reviewer_minds_that_a_file_gets_crlf(
    toy: Toy, program: Program, *, before: bool
) -> None:
    def crlf(text: str) -> bytes:
        return text.replace("\n", "\r\n").encode()

    with_sources(toy, {PATH: crlf(AREA) if before else AREA})
    toy.put_patch(patch=toy.format_patch({PATH: crlf(FIXED)}), checks="")
    toy.put_queue(["area"])

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
    assert program("verify", "area").code == 0
    broken.touch()
    assert program("verify", "area", "--force").code == 1

    assert "refuted" in program("evidence", "check").out
