"""`contribbot bisect`."""

from __future__ import annotations

import pytest

from tests.conftest import Program, dig
from tests.toy import Toy, git


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("args", "first"),
    [
        (["--from", "v1.0", "--to", "v1.5"], "v1.3"),
        (["--from", "v1.0", "--to", "v1.5", "--unneeded"], "v1.4"),
        (["--from", "v1.2", "--to", "v1.3"], "v1.3"),
    ],
)
def test_the_first_release_that_changes_it_is_found(
    program: Program, args: list[str], first: str
) -> None:
    ran = program("bisect", "area", *args, "--json")
    assert ran.code == 0, ran.err
    assert dig(ran.json(), "first") == first
    assert first in ran.err
    steps = dig(ran.json(), "steps")
    assert isinstance(steps, list)
    failures = [one for one in steps if isinstance(one, dict) and one["again"]]
    assert failures  # a failure is looked at twice before it is believed


def test_commits_are_looked_through_where_git_can(releases: Toy, program: Program) -> None:
    ran = program("bisect", "area", "--from", "v1.0", "--to", "v1.5", "--commits", "--json")
    assert ran.code == 0, ran.err
    expected = git(releases.upstream, "rev-parse", "v1.3").decode().strip()
    assert dig(ran.json(), "first") == expected


def test_what_cannot_be_told_is_passed_over_and_said(releases: Toy, program: Program) -> None:
    stated = releases.queue / "patches/area/patch.toml"
    # At v1.3 the sum is written otherwise: the check fails in a way that is not stated.
    stated.write_text(stated.read_text().replace("assert 5 == ", r"assert \\(2 \\+ 3\\) == "))
    checks = releases.queue / "patches/area/checks/test_red.py"
    checks.write_text(
        "import inspect\n\nfrom toy import area\n\n\ndef test_it():\n"
        "    source = inspect.getsource(area)\n"
        "    assert '+ 0' not in source, 'untestable'\n"
        "    assert area.rectangle(2, 3) == 6, '(2 + 3) == 6'\n"
    )
    stated.write_text(
        stated.read_text().replace(
            r"^AssertionError: assert \\(2 \\+ 3\\) == ", r"\\(2 \\+ 3\\) == 6"
        )
    )
    ran = program("bisect", "area", "--from", "v1.0", "--to", "v1.4", "--unneeded", "--json")
    assert ran.code == 1, ran.err
    assert dig(ran.json(), "first") == ""
    assert dig(ran.json(), "suspects") == ["v1.3", "v1.4"]


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--from", "v1.5", "--to", "v1.0"], "v1.0 does not come after v1.5"),
        (["--from", "v1.0", "--to", "v7"], "v7: no release of toy"),
        (["--from", "v1.3", "--to", "v1.5"], "--from v1.3: the answer is yes already there"),
        (["--from", "v1.0", "--to", "v1.2"], "--to v1.2: the answer is no"),
    ],
)
def test_a_range_that_makes_no_sense_is_named(
    program: Program, args: list[str], words: str
) -> None:
    ran = program("bisect", "area", *args)
    assert ran.code == 2
    assert words in ran.err
