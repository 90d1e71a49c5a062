"""`open-pr --dry-run`: all that is missing in one look, and nobody is asked."""

from __future__ import annotations

import re
import shutil

import pytest

from contribbot.cli.contribute import OpeningView
from contribbot.contribute.open_pr import Preview
from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent
from tests.contribute.place import BESIDE, MESSAGE, NOW, TITLE, Change, Table, both, changing, edit

NO_TOKEN = {"GITHUB_TOKEN": "", "GH_TOKEN": ""}
UNKNOWN = ["GitHub", "fork", "base"]


def preview(table: Table, *args: str, **env: str) -> Preview:
    """Return the preview of the patch; check that no request was sent and no file changed."""
    before = {path: path.stat().st_mtime_ns for path in table.toy.queue.rglob("*")}
    asked = len(table.github.requests)
    ran = table.run("open-pr", "area", "--dry-run", "--json", *args, **env)
    assert ran.code == 0, ran.output
    assert len(table.github.requests) == asked
    assert before == {path: path.stat().st_mtime_ns for path in table.toy.queue.rglob("*")}
    said = OpeningView.model_validate_json(ran.out)
    assert (said.dry_run, said.patches) == (True, ())
    (only,) = said.previews
    return only


def unproved(table: Table) -> None:
    shutil.rmtree(table.toy.queue / "evidence")


unwritten = changing("Areas are sums.", "TODO: say it")
bare = both(unproved, unwritten)
badly_titled = changing(TITLE, "no form")
too_long = changing("Areas are sums.", "long " * 14_000)
changed = both(Table.attest, changing("Areas are sums.", "Areas are not sums."))
CASES: dict[str, tuple[Change, dict[str, str], list[str]]] = {
    "nothing is there": (lambda _: None, NO_TOKEN, ["not-run", "token", *UNKNOWN, "attestation"]),
    "a token alone": (lambda _: None, {}, ["not-run", *UNKNOWN, "attestation"]),
    "an attestation alone": (Table.attest, NO_TOKEN, ["not-run", "token", *UNKNOWN]),
    "a token and an attestation": (Table.attest, {}, ["not-run", *UNKNOWN]),
    "a void attestation": (changed, {}, ["not-run", *UNKNOWN, "attestation"]),
    "no evidence": (unproved, {}, ["evidence", *UNKNOWN, "attestation"]),
    "no prose": (unwritten, {}, ["text", *UNKNOWN, "attestation"]),
    "nothing but commits": (bare, {}, ["text", "evidence", *UNKNOWN, "attestation"]),
    "a title of another form": (badly_titled, {}, ["title", "not-run", *UNKNOWN, "attestation"]),
    "a text that is too long": (too_long, {}, ["text", *UNKNOWN, "attestation"]),
    "a pull request": (Table.publish, {}, ["not-run", "GitHub", "base", "attestation"]),
}


@pytest.mark.parametrize(("prepare", "env", "lacking"), CASES.values(), ids=CASES)
def test_all_that_is_missing_is_said_at_once(
    table: Table, prepare: Change, env: dict[str, str], lacking: list[str]
) -> None:
    prepare(table)
    missing = preview(table, **env).missing
    assert [row.what for row in missing] == lacking
    assert all(row.next for row in missing)


def test_lines_of_a_preview(table: Table) -> None:
    ran = table.run("open-pr", "area", "--dry-run", **NO_TOKEN)
    assert ran.code == 0, ran.output
    rows = ran.out.splitlines()
    assert max(map(len, rows[:12])) <= 100
    for row in (
        "  what     a draft pull request",
        "  to       example/toy, its default branch",
        "  from     contribbot/area, a branch of your fork",
        f"  title    {TITLE}",
        "  commits  Multiply the sides of a rectangle",
        "             src/toy/area.py",
        "             tests/test_area.py",
        "GitHub was not asked; nothing was written, and nothing was sent",
    ):
        assert row in rows
    assert "contribbot body area" in ran.out
    assert any(
        re.fullmatch(r"  text     [0-9,]+ characters: contribbot body area", row) for row in rows
    )
    unproved(table)
    ran = table.run("open-pr", "area", "--dry-run", **NO_TOKEN)
    assert "  text     cannot be made yet" in ran.out.splitlines()


@pytest.mark.parametrize(
    ("args", "state", "reference", "said"),
    [
        ((), "draft", "", "a draft pull request"),
        (("--ready",), "open", "", "a pull request, ready for review"),
        (("--handoff",), "to be opened", "", "a branch; you open its pull request"),
        ((), "draft", "example/toy#", " brought up to date, a "),
        (("--ready",), "open", "example/toy#", " brought up to date, a "),
    ],
)
def test_what_would_be_opened(
    table: Table, args: tuple[str, ...], state: str, reference: str, said: str
) -> None:
    if reference:
        table.publish()
    now = preview(table, *args, **NO_TOKEN)
    assert (now.state, now.pull_request[:-1]) == (state, reference)
    assert said in table.run("open-pr", "area", "--dry-run", *args, **NO_TOKEN).out


def test_a_branch_has_the_commits_below_until_the_upstream_has_them(table: Table) -> None:
    toy = table.toy
    toy.put_patch("low", patch=toy.format_patch(BESIDE, "Halve it", MESSAGE), checks="")
    toy.put_queue(["low", "area"])
    edit(toy, 'problem = "Areas', 'depends_on = ["low"]\nproblem = "Areas')

    now = preview(table, **NO_TOKEN)
    said = [(commit.patch, commit.subject) for commit in now.commits]
    assert said == [("low", "Halve it"), ("area", "Multiply the sides of a rectangle")]
    assert "stack" in [row.what for row in now.missing]
    for state in ("open", "merged"):
        event = PullRequestEvent(time=NOW, summary=state, reference="example/toy#9", state=state)
        history.append(toy.queue, "low", event)
        below = [commit.patch for commit in preview(table, **NO_TOKEN).commits]
        assert below == (["area"] if state == "merged" else ["low", "area"])


def test_an_unknown_patch_and_a_wrong_token_have_their_exit_codes(table: Table) -> None:
    table.attest()
    for args, env, code in (
        (["nothing"], {}, 2),
        (["area", "--ready", "--handoff"], {}, 2),
        (["area"], {"GITHUB_TOKEN": "ghp_nobodys"}, 3),
    ):
        ran = table.run("open-pr", *args, **env)
        assert (ran.code, "ghp_nobodys" in ran.output) == (code, False)
    assert table.upstream.pulls() == []
