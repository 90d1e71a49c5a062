"""What the program says of a queue that is not right: the thing, the place, the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from contribbot.cli.show import PatchList
from contribbot.contribute.model import Rules
from contribbot.errors import QueueError
from contribbot.git.patch_format import check_form, paths
from contribbot.model.base import FORMS
from contribbot.model.evidence import Outcome
from contribbot.model.patch import CommitRules, PatchSpec, QueueSpec, Upstream
from contribbot.model.record import StyleDetails
from contribbot.queue.load import find_line, load_queue
from contribbot.runners.plan import Runners
from contribbot.verify.stages.style import message_problems
from tests.buildtoy import with_sources
from tests.conftest import Program
from tests.toy import FIXED, Toy

ROOT = Path(__file__).parent.parent


def assert_refused(toy: Toy, *said: str) -> None:
    """The queue, or its patch `area`, is refused with all of this in one line."""
    with pytest.raises(QueueError) as caught:
        load_queue(toy.queue).patch("area")
    assert "\n" not in caught.value.message
    for part in said:
        assert part in caught.value.message


@pytest.fixture
def good(area: Toy) -> Toy:
    """A queue that is right."""
    load_queue(area.queue).patch("area")
    return area


RED = 'reason = "^AssertionError: assert 5 == "'
FILES = 'files = ["src/toy/area.py"]'
SAME = 'name = "same"'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('pin = "v1.0"', 'pin = "v1.0', ":3: not TOML: "),
        ('pin = "v1.0"', "pin = 1.0", ":3: pin: "),
        ('pin = "v1.0"', 'pin = "v1.1"', ":3: unknown pin v1.1 of toy (did you mean v1.0?)"),
        ('upstream = "toy"', 'upstream = "tay"', ":2: unknown upstream tay (did you mean toy?)"),
        ('problem = "Areas are sums."', 'problem = " "', ":5: problem: "),
        (
            'file = "test_red.py"',
            'file = "../red.py"',
            ":11: checks[0].file: '../red.py' is not test_NAME.py, a file in checks/",
        ),
        ('file = "test_red.py"', 'file = "test_x.py"', " the check red names test_x.py"),
        ('file = "test_red.py"', 'file = "test_rd.py"', "no such file (did you mean test_red.py?)"),
        ('expect = "pass-to-pass"', 'expect = "maybe"', ":18: checks[1].expect: "),
        (SAME, f'{SAME}\nrequires = "cpu"', "checks[1].requires: write a list: ['cpu']"),
        (SAME, f"{SAME}\n[emulated]", "emulated: write [[emulated]]"),
        (SAME, f"{SAME}\ntypo = 1", ":17: checks[1].typo: there is no such key"),
        (SAME, f'{SAME}\nrequires = ["cpu", "gfx942"]', "name exactly one of cpu, cuda or a gfx"),
        (SAME, 'name = "red"', "checks: red is there twice"),
        (
            'file = "test_same.py"',
            'file = "test_red.py"',
            ":9: checks: test_red",
        ),
        (RED, 'reason = ".*"', "matches 'Error: x' too"),
        (RED, 'reason = "."', "matches 'Error: x' too"),
        (RED, 'reason = "("', "not a regular expression"),
        (RED, "", "must state why the base fails"),
        (FILES, 'files = ["/etc/passwd"]', "files[0]: "),
        (SAME, f'{SAME}\nrequires = ["gpu"]', "requires[0]: 'gpu' is not cpu, cuda, a target such"),
        (SAME, f'{SAME}\nbuild = "B"', "checks[1].build: 'B' is not a name of a-z, 0-9 and . _ -"),
        (
            SAME,
            f'{SAME}\n[checks.env]\n"A-B" = ""',
            "checks[1].env.A-B: 'A-B' is not the name of a",
        ),
        (
            FILES,
            f'{FILES}\nrelated = ["#7"]',
            "related[0]: '#7' is not OWNER/REPOSITORY#NUMBER",
        ),
        (FILES, 'files = ["a/../../b"]', "files[0]: "),
    ],
)
def test_a_patch_toml_that_is_not_right(good: Toy, old: str, new: str, said: str) -> None:
    good.edit("patches/area/patch.toml", old, new)
    assert_refused(good, "patches/area/patch.toml:", said)


@pytest.mark.parametrize("model", [PatchSpec, QueueSpec, Upstream, Rules, Runners])
def test_every_pattern_of_a_file_has_words(model: type[BaseModel]) -> None:
    def patterns(schema: object) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
            yield from schema.get("patternProperties", {})
        if isinstance(schema, dict | list):
            for part in schema.values() if isinstance(schema, dict) else schema:
                yield from patterns(part)

    found = {*patterns(model.model_json_schema())}
    assert found
    assert found <= {*FORMS}


def test_not_utf8_toml(good: Toy) -> None:
    path = good.queue / "patches/area/patch.toml"
    path.write_bytes(path.read_bytes().replace(b"A plus.", b"A pl\xfcs."))
    assert_refused(good, "patch.toml:6: not UTF-8")


def test_a_queue_toml_that_is_not_right(good: Toy) -> None:
    path = good.queue / "patches/queue.toml"
    for order, said in (
        (["area", "volume"], "order names volume"),
        (["area", "area"], "area is there twice"),
    ):
        good.put_queue(order)
        assert_refused(good, said)
    for text in ("a = " + "[" * 5000, "a = " + "9" * 5000):
        path.write_text(text)
        assert_refused(good, "queue.toml")
    good.put_queue(["area"])
    good.edit("patches/queue.toml", 'upstream = "toy"', 'upstream = "vlm"')
    assert_refused(good, "queue.toml: pins: unknown upstream vlm (did you mean vllm?)")
    good.put_queue(["area"])
    good.edit("upstreams/toy.toml", 'name = "toy"', 'name = "other"')
    assert_refused(good, "toy.toml: name is other, and the file's is toy")


def test_an_upstream_whose_tests_hold_its_sources_is_named(good: Toy) -> None:
    good.edit("upstreams/toy.toml", 'tests = ["tests"]', 'tests = ["src"]')
    assert_refused(good, "area/patch.toml: every changed file counts as a test of toy")


def test_dependencies_are_there_and_stand_first_and_in_no_circle(good: Toy) -> None:
    good.put_patch("two", extra='depends_on = ["area"]')
    good.put_queue(["two", "area"])
    assert_refused(good, "two stands before area, on which it depends")
    good.put_queue(["area", "two"])
    load_queue(good.queue)
    good.edit("patches/area/patch.toml", 'too."\n', 'too."\ndepends_on = ["two"]\n')
    assert_refused(good, "depends_on goes in a circle: ", "area", "two")
    good.edit("patches/two/patch.toml", 'depends_on = ["area"]', 'depends_on = ["aera"]')
    assert_refused(good, "patch.toml:8: depends_on: no such patch aera (did you mean area?)")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(b"\n", b"\r\n"), "0001-change.patch:1: CRLF line endings"),
        (lambda text: text.replace(b"area.py\n@@", b"area.py\r\n@@"), "CRLF line endings"),
        (lambda text: text.replace(b"b/src/toy/area.py", b'"b/\\377.py"'), "is not UTF-8"),
        (lambda text: text.rstrip(b"\n"), "no newline at the end"),
        (lambda text: text.replace(b"Adding", b"Add\xefng"), ":6: the message is not UTF-8"),
        (lambda text: text.replace(b"b/src/toy/area.py", b"b/../area.py"), "'../area.py' leaves"),
        (lambda text: text.replace(b"+++ b/src/toy/area.py", b"+++ /etc/x"), "leaves the tree"),
        (lambda text: text.replace(b"src/toy/area.py", b".GIT/config"), "is git's own"),
        (lambda text: text.partition(b"diff --git")[0], "no `diff --git` in it"),
    ],
)  # fmt: skip
def test_a_patch_file_that_is_not_right(good: Toy, change: object, said: str) -> None:
    path = good.queue / "patches/area/0001-change.patch"
    assert callable(change)
    path.write_bytes(change(path.read_bytes()))
    assert_refused(good, said)


def test_quoted_paths_are_read_as_git_writes_them(toy: Toy) -> None:
    patch = toy.format_patch({'src/ä "quoted".py': "X = 1\n"})
    assert '"b/src/' in patch.decode()
    assert [*paths(patch)] == ['src/ä "quoted".py']
    escaping = patch.replace(b'"b/src/', b'"b/\\056\\056/')
    with pytest.raises(QueueError, match="leaves the tree"):
        check_form("x.patch", escaping)


def test_a_patch_file_with_another_name(good: Toy) -> None:
    (good.queue / "patches/area/0001-change.patch").rename(good.queue / "patches/area/x.patch")
    assert_refused(good, "not a name that git format-patch gives")


def test_no_such_patch_and_no_queue(good: Toy, program: Program) -> None:
    ran = program("verify", "aera")
    assert (ran.code, ran.out) == (2, "")
    see = "; see `contribbot queue list`\n"
    assert ran.err == f"contribbot: no such patch: aera (did you mean area?){see}"
    for name in ("arena", "areas", "volume"):
        good.put_patch(name)
    ran = program("verify", "aera")
    assert ran.err == f"contribbot: no such patch: aera (did you mean area, arena or areas?){see}"
    outside = program("queue", "list", cwd=good.root)
    assert outside.code == 2
    assert "no patches/queue.toml here or above" in outside.err
    named = program("--queue", good.root, "queue", "list")
    assert named.code == 2
    program.ok("--queue", good.queue, "queue", "list", cwd=good.root)


def test_an_empty_queue(toy: Toy, program: Program) -> None:
    del toy
    assert program("queue", "list").out == "the queue is empty; it pins toy v1.0\n"


@pytest.mark.usefixtures("good", "outcome_cache")
def test_list(program: Program) -> None:
    assert program("queue", "list").out == "1  area  no fresh record  Multiply the sides\n"
    assert program("queue", "list", "--json").json() == {
        "patches": [
            {"patch": "area", "upstream": "toy", "pin": "v1.0", "depends_on": [],
             "title": "Multiply the sides", "commits": 1, "unproved": False,
             "verdict": "no fresh record", "targets": [], "pull_request": ""}
        ],
        "pins": ["toy v1.0"],
    }  # fmt: skip
    program("verify", "area")
    listed = program("queue", "list").out
    assert listed == "1  area  proved on cpu  Multiply the sides\n"
    (program.cwd / "patches/area/checks/test_red.py").unlink()
    ran = program.ok("queue", "list")
    first, why = ran.out.splitlines()
    assert first == "1  area  not known  Multiply the sides"
    assert why.startswith("no verdict is known: ")
    document = program("queue", "list", "--json").json()
    assert f"no verdict is known: {document['unread']}" == why


def test_the_list_names_targets_where_something_is_proved() -> None:
    document = Program(ROOT)("queue", "list", "--json").out
    listed = {row.patch: row for row in PatchList.model_validate_json(document).patches}
    # Its H200's record is incomplete, and what runs on a processor passes on the base, too.
    assert listed["fp8-hw-convert"].verdict == "proved"
    assert not {"cpu", "cuda"} & {*listed["fp8-hw-convert"].targets}


@pytest.mark.usefixtures("good")
def test_show(program: Program) -> None:
    shown = program("show", "area").out
    for part in ("example/toy at v1.0", "src/toy/area.py", "Areas are sums.", "red: fail-to-pass"):
        assert part in shown
    document = program("show", "area", "--json").json()
    assert re.fullmatch(r"[0-9a-f]{64}", str(document["patch_sha256"]))
    assert program("verify", "area", "--require", "gpu").code == 2


def test_lines_of_keys() -> None:
    text = "a = 1\n[[t]]\nb = 1\n[[t]]\nb = 2\n[[t.u]]\nc = 3\n[v.w]\nd = 4\n"
    for location, line in {
        ("a",): 1, ("t", 0, "b"): 3, ("t", 1, "b"): 5, ("t", 1, "u", 0, "c"): 7,
        ("v", "w", "d"): 9, ("t", 1, "missing"): 4, ("missing",): 1,
    }.items():  # fmt: skip
        assert find_line(text, location) == line, location


def test_style_looks_at_the_message() -> None:
    rules = CommitRules(sign_off=True, subject_pattern=r"^\[\w+\] ", subject_max=40)
    good = "[ROCm] Fix it\n\nWhy.\n\nSigned-off-by: A B <a@b.example>\n"
    assert message_problems(good, rules) == []
    bad = "Fix everything there is to fix, and then some more.\n\nSigned-off-by: A B\n"
    assert len(message_problems(bad, rules)) == 3
    assert message_problems(bad, CommitRules()) == []


AREA = "src/toy/area.py"


@pytest.mark.parametrize(
    ("changes", "files", "expected"),
    [
        ({AREA: FIXED + "x = 1 \n"}, (AREA,), ("passed", "area.py:16: trailing whitespace")),
        ({AREA: FIXED, "b.txt": "b\n"}, (AREA,), ("failed", "b.txt: touched, but not in `files`")),
        ({AREA: FIXED}, (AREA, "c.py"), ("failed", "c.py: in `files` of patch.toml, but not")),
        (
            {AREA: FIXED, "d.py": "def f(:\n"},
            (AREA, "d.py"),
            ("passed", "d.py:1: does not compile"),
        ),
        (
            {AREA: FIXED, "e.py": b"# \xff\n"},
            (AREA, "e.py"),
            ("passed", "a line that is not UTF-8"),
        ),
        ({AREA: FIXED}, (AREA,), ("passed", "no Signed-off-by, which this upstream asks for")),
    ],
)
def test_style_looks_at_the_change(
    toy: Toy,
    program: Program,
    changes: dict[str, str | bytes],
    files: tuple[str, ...],
    expected: tuple[str, str],
) -> None:
    outcome, said = expected
    if "Signed-off-by" in said:
        toy.put("upstreams/toy.toml", toy.upstream_toml("sign_off = true"))
    toy.put_patch(patch=toy.format_patch(changes), files=files, checks="")
    toy.put_queue(["area"])
    style = program("verify", "area", "--json").stages()["style"]
    assert said in style.reason
    assert style.outcome == outcome


def test_a_source_that_the_patched_tree_lacks_ends_before_anything_runs(
    toy: Toy, program: Program
) -> None:
    kernel = '[[compile]]\nname = "k"\nexpect = "pass-to-pass"\nsource = "src/toy/arae.py"\n'
    toy.put_area(checks=kernel)
    ran = program("verify", "area")
    assert ran.code == 2
    assert "k: the patched tree has no src/toy/arae.py (did you mean area.py?)" in ran.err
    assert not (toy.queue / "evidence").exists()


def test_style_goes_by_gitattributes_and_the_line_endings_of_a_file(
    toy: Toy, program: Program
) -> None:
    rules = "*.md whitespace=-blank-at-eol\n*.raw -text\n*.bat text eol=crlf\n"
    rules += "*.tab whitespace=tab-in-indent\n"
    dos, unix = b"a\r\nb\n", b"z\n"
    before = dict.fromkeys(("run.bat", "a.md", "plain.txt", "a.tab"), unix)
    before |= dict.fromkeys(("mixed.txt", "worse.txt", "kept.raw"), dos)
    (toy.upstream / "link").symlink_to("README")
    with_sources(toy, {**before, ".gitattributes": rules})
    (toy.upstream / "link").unlink()
    after: dict[str, str | bytes] = {
        "mixed.txt": b"a\r\nc\r\nb\n", "kept.raw": b"x\r\ny\r\n", "run.bat": b"echo\r\nmore\r\n",
        "a.md": b"a \n", "plain.txt": b"a\r\n", "worse.txt": b"a \r\nb\n", "a.tab": b"\tx\n",
        "link": "toy\n",
    }  # fmt: skip
    toy.put_patch(patch=toy.format_patch(after), files=(*after,), checks="")
    toy.put_queue(["area"])
    style = program("verify", "area", "--json").stages()["style"]
    assert style.outcome is Outcome.PASSED, style.reason
    assert isinstance(style.details, StyleDetails)
    assert sorted(style.details.minded) == [
        "a.tab:1: tab in indent", "link: a link of the pin is a file now",
        "plain.txt:1: trailing whitespace", "worse.txt:1: trailing whitespace",
    ]  # fmt: skip
