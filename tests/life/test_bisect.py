"""`contribbot bisect`."""

from __future__ import annotations

import pytest

from tests.conftest import Program, dig
from tests.life.conftest import SHIFTED, TAKEN, WRONG
from tests.releases import release
from tests.toy import Toy, git


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("args", "first"),
    [
        (["1.0", "v1.5"], "v1.3"),
        pytest.param(["v1.0", "v1.5", "--unneeded"], "v1.4", marks=pytest.mark.slow),
        pytest.param(["v1.2", "v1.3"], "v1.3", marks=pytest.mark.slow),
    ],
)
def test_the_first_release_that_changes_it_is_found(
    program: Program, args: list[str], first: str
) -> None:
    ran = program.ok("bisect", "area", *args, "--json")
    assert dig(ran.json(), "first") == first
    assert first in ran.err


def test_commits_are_looked_through_where_git_can(releases: Toy, program: Program) -> None:
    ran = program.ok("bisect", "area", "v1.0", "v1.5", "--commits", "--json")
    expected = git(releases.upstream, "rev-parse", "v1.3").decode().strip()
    assert dig(ran.json(), "first") == expected


def test_what_cannot_be_told_is_passed_over_and_said(releases: Toy, program: Program) -> None:
    # At v1.3 the sum is written otherwise: the check fails in a way that is not stated.
    stated = "patches/area/patch.toml"
    releases.edit(stated, "^AssertionError: assert 5 == ", r"\\(2 \\+ 3\\) == 6")
    releases.put(
        "patches/area/checks/test_red.py",
        "import inspect\n\nfrom toy import area\n\n\ndef test_it():\n"
        "    source = inspect.getsource(area)\n"
        "    assert '+ 0' not in source, 'untestable'\n"
        "    assert area.rectangle(2, 3) == 6, '(2 + 3) == 6'\n",
    )
    ran = program("bisect", "area", "v1.0", "v1.4", "--unneeded", "--json")
    assert ran.code == 1, ran.err
    assert dig(ran.json(), "first") == ""
    assert dig(ran.json(), "suspects") == ["v1.3", "v1.4"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["v1.5", "v1.0"], 2, "v1.0 does not come after v1.5"),
        (["v1.0", "v7"], 2, "v7: no release of toy"),
        (["v1.3", "v1.5"], 2, "v1.3: the answer is yes already there"),
        (["v1.0", "v1.2"], 2, "area still applies at v1.2; there is nothing to find; name a"),
        (["v1.0", "v1.1", "--unneeded"], 2, "area is still needed at v1.1: "),
        (
            ["v1.3", "v1.0", "--commits"],
            2,
            "does not come after v1.3; write them the other way round",
        ),
        (["v1.3", "v1.3", "--commits"], 2, "both ends are v1.3"),
        # As where each release has a branch of its own.
        (
            ["stable", "v1.3", "--commits"],
            2,
            "two branches of the history; begin where they part: git merge-base stable v1.3",
        ),
        (["v1.0^", "v1.3", "--commits"], 2, "v1.0^: neither a tag nor a commit; name a tag, or a"),
        (["", "v1.3", "--commits"], 2, "neither a tag nor a commit"),
        (["0ab1234", "v1.3", "--commits"], 3, "no tag 0ab1234; name a tag, or a commit by its 40"),
    ],
)
def test_a_range_that_makes_no_sense_is_named(
    releases: Toy, program: Program, args: list[str], code: int, words: str
) -> None:
    aside = git(releases.upstream, "commit-tree", "-p", "v1.1", "-m", "aside", "v1.1^{tree}")
    git(releases.upstream, "tag", "stable", aside.decode().strip())
    start, end, *more = args
    ran = program("bisect", "area", start, end, *more)
    assert (ran.code, words in ran.err) == (code, True), ran.err


def test_what_has_the_text_already_is_not_called_broken(area: Toy, program: Program) -> None:
    release(area, {"src/toy/area.py": SHIFTED}, "v1.1")
    release(area, {"src/toy/area.py": TAKEN}, "v1.2")
    ran = program.ok("bisect", "area", "v1.0", "v1.2")
    assert ran.out == (
        "area: v1.2 is the first that has all of its text already: it is upstream there,"
        " not broken\n"
    )
    assert "v1.2: upstream already (toy v1.2 has all of it)" in ran.err
    assert "does not apply" not in ran.err
    told = program("bisect", "area", "v1.0", "v1.2", "--json").json()
    assert dig(told, "taken") is True
    assert dig(told, "steps", 1, "taken") is True


def test_an_end_may_be_a_pre_release(releases: Toy, program: Program) -> None:
    git(releases.upstream, "tag", "v1.3rc1", "v1.2")
    git(releases.upstream, "tag", "v1.3rc2", "v1.2")
    ran = program.ok("bisect", "area", "v1.3rc1", "v1.3", "--json")
    assert dig(ran.json(), "first") == "v1.3"
    assert dig(ran.json(), "left") == 0


def test_an_end_that_cannot_be_had_is_no_wrong_usage(releases: Toy, program: Program) -> None:
    program.ok("status", "--against", "v1.1", "--text-only")
    release(releases, {"src/toy/area.py": WRONG + "# lost\n"}, "v1.6")
    lost = git(releases.upstream, "rev-parse", "v1.6:src/toy/area.py").decode().strip()
    (releases.upstream / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    ran = program("bisect", "area", "v1.0", "v1.6")
    assert ran.code == 3
    last = ran.err.splitlines()[-1]
    assert last.startswith("contribbot: v1.6: it cannot be decided there: toy v1.6: no source")
