"""The judge, measured over patches of all kinds: what is true is proved, what is false refuted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from contribbot import process
from tests.buildtoy import with_sources
from tests.judge_cases import exceptions, falsehoods, other_reasons, style, text, world
from tests.judge_cases.case import PATH, Case, Kind
from tests.toy import one_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Program
    from tests.toy import Toy

ALL: Final = [
    case
    for module in (style, exceptions, text, other_reasons, world, falsehoods)
    for case in module.CASES
]


def _param(case: Case) -> object:
    marks = [] if case.quick else [pytest.mark.slow]
    if case.kind is Kind.OPEN:
        marks.append(pytest.mark.xfail(reason=f"open: {case.about}", raises=AssertionError))
    return pytest.param(case, id=case.name.replace(" ", "-"), marks=marks)


@pytest.fixture
def _room(request: pytest.FixtureRequest, case: Case) -> None:
    """Give a case its sandbox, or none where it is about what runs share without one."""
    if not case.sandbox:
        request.getfixturevalue("unsandboxed")
    elif why := process.no_sandbox():
        pytest.skip(why)


def put_case(toy: Toy, case: Case) -> None:
    """Make a queue of one patch: the case's."""
    with_sources(toy, {PATH: case.base, **case.beside})
    for path in case.runnable:
        toy.write(path, "")
        (toy.upstream / path).chmod(0o755)
    reason = case.reason.replace("\\", "\\\\")
    toy.put_patch(
        "case",
        patch=toy.format_patch(case.changes),
        files=tuple(case.changes),
        checks=one_check(case.expect, reason * (case.expect == "fail-to-pass"), case.more),
        check_files={"test_red.py": case.check},
    )
    toy.put_queue(["case"])


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("case", [_param(case) for case in ALL])
def test_the_verdict(
    toy: Toy, program: Program, case: Case, record_property: Callable[[str, object], None]
) -> None:
    put_case(toy, case)
    # One child at a time: which of two runs comes first decides nothing.
    ran = program("verify", "case", "--json", "--jobs", "1")
    told = "\n".join([ran.err, *(f"{name}: {row.reason}" for name, row in ran.stages().items())])
    verdict = str(ran.report().verdict)
    record_property("verdict", verdict)
    accepted = {"incomplete", "refuted"} if case.verdict == "unproved" else {case.verdict}
    assert verdict in accepted, f"{case.about}\n{told}"
    assert re.search(case.said, told, re.IGNORECASE), told


def test_the_set_is_large_and_says_what_it_is_about() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 80
    for case in ALL:
        assert "\n" not in case.about, case.name
        assert case.check.startswith(("import ", "from ")), case.name
        assert (case.kind is Kind.HONEST) <= (case.verdict == "proved" or bool(case.said))
        assert (case.kind is Kind.FALSE) == (case.verdict == "refuted"), case.name
