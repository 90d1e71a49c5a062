"""A change that an upstream has is proposed nowhere: every place says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contribbot.errors import OpeningError
from contribbot.model.lifecycle import Behaviour, Entry, PatchStatus, Says, Text
from contribbot.queue import history
from contribbot.queue.history import (
    PullRequestEvent,
    Supersession,
    remember_superseded,
    superseded,
    superseded_by_release,
)
from contribbot.queue.load import load_queue
from contribbot.report import survey_of
from docs.readme import table as readme_table
from tests.conftest import Program
from tests.contribute.place import NOW, Desk, Table, edit
from tests.contribute.tracked import tracked_queue


def kept(table: Table) -> None:
    edit(table.toy, "problem =", 'kept = "v2 has it."\nproblem =')


def turned_down(table: Table) -> None:
    edit(table.toy, "problem =", 'turned_down = "#7 says so."\nproblem =')


def released(table: Table) -> None:
    edit(table.toy, "problem =", 'expires_when = [{ release = "v1.0" }]\nproblem =')


def merged(table: Table) -> None:
    reference = "example/toy#9"
    edit(table.toy, "problem =", f'expires_when = [{{ pull_request = "{reference}" }}]\nproblem =')
    event = PullRequestEvent(time=NOW, summary="m", reference=reference, state="merged")
    history.append(table.toy.queue, "area", event)


def seen(table: Table) -> None:
    remember_superseded(
        table.queue, {"area": Supersession(why="1 of 1 pass without the patch", by="toy v2")}
    )


CASES: dict[str, tuple[Callable[[Table], None], str]] = {
    "kept": (kept, "superseded: v2 has it."),
    "turned down": (turned_down, "turned down by toy: #7 says so."),
    "a release": (released, "superseded by toy v1.0: release v1.0: this is it"),
    "a pull request": (merged, "superseded by example/toy#9: example/toy#9 is merged: "),
    "the newest release": (seen, "superseded by toy v2: 1 of 1 pass without the patch"),
}


@pytest.mark.parametrize(("prepare", "words"), CASES.values(), ids=CASES)
def test_every_place_says_so(table: Table, prepare: Callable[[Table], None], words: str) -> None:
    assert superseded(table.queue, "area") is None
    prepare(table)
    program = Program(table.toy.queue)
    assert words.partition(":")[0].partition(" by ")[0] in program("queue", "list").out
    assert program("show", "area").out.startswith(f"area: {words}")
    ran = program("open-pr", "--dry-run", "area")
    assert (ran.code, "open-pr refuses it" in ran.out) == (1, True)
    summary = survey_of(table.queue).report.patches[0]
    assert summary.superseded.startswith(words)
    first = table.body().text.partition("\n")[0]
    assert first.startswith(f"**{words[0].upper()}{words[1:]}")
    assert first.endswith("** Do not propose it.")
    row = table.offline("superseded")
    assert (row.state, row.github, row.seen.startswith(words)) == ("failed", False, True)
    dry = table.run("open-pr", "area", "--dry-run", GITHUB_TOKEN="", GH_TOKEN="")
    assert words in " ".join(dry.out.split("\n")[:3])
    assert "open-pr refuses it" in " ".join(dry.out.split())


def test_the_readme_and_the_pages_say_it_of_the_examples() -> None:
    survey = survey_of(load_queue(tracked_queue()))
    rows = readme_table(survey).splitlines()[2:]
    gone = [row.split("`")[1] for row in rows if "| superseded; proved |" in row]
    assert gone == ["rmsnorm", "fp8-quant"]
    assert [row.split("`")[1] for row in rows if "| turned down; " in row] == ["stable-softmax"]
    words = [story.row.superseded for story in survey.stories if story.row.superseded]
    assert words[0].startswith("superseded by sgl-project/sglang#23974: v0.5.23 has the fix")
    assert words[1].startswith("turned down by pytorch: #60940 and #176559 did not want the cast")
    assert words[2].startswith("superseded by vllm-project/vllm#42758: v0.33.0 has it")


def test_open_pr_refuses_and_says_what_to_do(desk: Desk) -> None:
    edit(desk.toy, "problem =", 'kept = "v2 has it."\nproblem =')
    error: OpeningError = desk.refused(r"^area: superseded: v2 has it\.$")
    assert error.exit_code == 1
    assert "contribbot queue retire area" in error.hint


def test_what_was_seen_is_of_that_version_alone_and_can_be_unseen(table: Table) -> None:
    seen(table)
    remember_superseded(table.queue, {"area": None})
    assert superseded(table.queue, "area") is None
    seen(table)
    path = table.toy.queue / "patches/area/0001-change.patch"
    path.write_bytes(path.read_bytes() + b"\n")
    assert superseded(load_queue(table.toy.queue), "area") is None


@pytest.mark.parametrize(
    ("text", "says", "found"),
    [
        (Text.UPSTREAM, (), True), (Text.CLEAN, (Says.PASSES,), True),
        (Text.CONFLICT, (Says.PASSES, Says.CANNOT), True), (Text.CLEAN, (Says.FAILS,), False),
        (Text.CONFLICT, (), False),
    ],
)  # fmt: skip
def test_what_a_release_makes_of_it(text: Text, says: tuple[Says, ...], found: bool) -> None:
    entries = tuple(Entry(label="red", target="cpu", says=each, reason="r") for each in says)
    behaviour = Behaviour(patch="area", pin="toy v2", entries=entries) if says else None
    status = PatchStatus(
        patch="area", upstream="toy", pin="v1", against="v2", text=text, text_why="",
        behaviour=behaviour, evidence=(), contribution="none", due=(), versions=0,
    )  # fmt: skip
    assert (superseded_by_release(status) is not None) is found
