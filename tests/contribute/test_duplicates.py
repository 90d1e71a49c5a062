from __future__ import annotations

import json
import tomllib
from datetime import timedelta

import pytest

from contribbot.contribute import duplicates
from contribbot.contribute.duplicates import look_file
from contribbot.contribute.model import Candidate, Gate
from contribbot.queue.toml_edit import set_different
from tests.contribute.gatetoy import (
    CHANGES,
    NOW,
    Table,
    close,
    edit,
)
from tests.toy import AREA, FIXED

SAME = {path: str(text) for path, text in CHANGES.items()}
#: The same function, another way.
OTHERWISE = AREA.replace("return width + height", "return height * width")
#: The same file, another function.
BESIDE = AREA.replace("return base * height / 2", "return 0.5 * base * height")

SQUARED = AREA.replace("return side * side", "return side**2")


def found(table: Table) -> dict[str, Candidate]:
    return {one.reference: one for one in table.gate().candidates}


def said(table: Table) -> list[tuple[int, tuple[str, ...]]]:
    """Return number and what is in common, in the order that is shown."""
    return [
        (int(one.reference.partition("#")[2]), one.in_common) for one in table.gate().candidates
    ]


@pytest.mark.usefixtures("cached")
def test_each_kind_of_likeness_is_found_and_the_most_alike_comes_first(table: Table) -> None:
    table.pull("beside", {"src/toy/area.py": BESIDE}, title="Triangles")
    table.pull("issue", {"docs/x.md": "x\n"}, title="Write about it", body="Closes #1.")
    table.pull("far", {"docs/y.md": "y\n"}, title="Nothing", body="See #11 and bob/toy#1.")
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE}, title="Rectangles")
    table.pull("same", SAME, title="Multiply")
    assert said(table) == [
        (6, ("the same change (patch-id)", "functions rectangle, test_area",
             "files src/toy/area.py, tests/test_area.py")),
        (3, ("mentions example/toy#1",)),
        (5, ("function rectangle", "file src/toy/area.py")),
        (2, ("file src/toy/area.py",)),
    ]  # fmt: skip


@pytest.mark.usefixtures("cached")
def test_a_squash_and_one_commit_of_several_are_known_again(table: Table) -> None:
    toy = table.toy
    more = FIXED.replace("side * side", "side**2")
    base = toy.queue / "patches/area/0001-change.patch"
    git_again = toy.format_patch({"src/toy/area.py": AREA.replace("side * side", "side**2")})
    (base.parent / "0002-more.patch").write_bytes(git_again)
    table.pull("squash", {**SAME, "src/toy/area.py": more}, title="All of it")
    table.pull("one", SAME, title="Half of it")
    assert [common[0] for _, common in said(table)] == [
        "the same change (patch-id)",
        "one of the patch's commits (patch-id)",
    ]


def commits(table: Table, branch: str, *changes: dict[str, bytes | None]) -> None:
    """Let the other person open a pull request of several commits."""
    fork = table.github.state.repository("bob/toy") or table.github.fork(
        table.upstream, table.other
    )
    for number, change in enumerate(changes, start=1):
        table.github.commit(fork, branch, change, f"Step {number}\n", who=table.other)
    table.github.pull(table.upstream, fork, branch, title="A series", user=table.other)


@pytest.mark.usefixtures("cached")
def test_the_same_change_as_one_commit_of_a_larger_pull_request_is_known_again(
    table: Table,
) -> None:
    same: dict[str, bytes | None] = {path: text.encode() for path, text in SAME.items()}
    commits(table, "series", {"docs/x.md": b"x\n"}, same, {"docs/y.md": b"y\n"})
    assert said(table) == [
        (2, ("a commit of it is the same change (patch-id)", "functions rectangle, test_area",
             "files src/toy/area.py, tests/test_area.py")),
    ]  # fmt: skip


@pytest.mark.usefixtures("cached")
def test_what_was_not_compared_whole_is_said(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "SERIES", 1)
    table.pull("beside", {"src/toy/area.py": BESIDE})
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE}, user=table.github.add_user("eve"))
    assert "the commits of 1 of 2 pull requests were compared" in table.gate().limits


def test_without_the_pin_commits_are_compared_one_by_one_and_it_is_said(table: Table) -> None:
    more = table.toy.format_patch({"src/toy/area.py": AREA.replace("side * side", "side**2")})
    (table.toy.queue / "patches/area/0002-more.patch").write_bytes(more)
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE})
    assert said(table) == [(2, ("function rectangle", "file src/toy/area.py"))]
    assert any("toy v1.0 is not on this machine" in one for one in table.gate().limits)


def test_merged_counts_closed_does_not_and_a_bots_landing_is_merged(table: Table) -> None:
    table.github.merge(table.pull("squashed", {"src/toy/area.py": BESIDE}), "squash")
    landed = table.pull("landed", {"src/toy/area.py": SQUARED}, title="By a bot")
    table.github.merge(landed, "bot")
    closed = table.pull("closed", {"src/toy/area.py": BESIDE + "\n\nY = 1\n"})
    close(closed)
    draft = table.pull("draft", {"src/toy/area.py": BESIDE + "\n\nZ = 1\n"})
    draft.draft = True
    states = {one.reference: one.state for one in table.gate().candidates}
    assert states == {
        "example/toy#2": "merged", "example/toy#3": "merged", "example/toy#5": "draft",
    }  # fmt: skip
    later = NOW + timedelta(days=duplicates.DAYS + 5)
    assert [one.state for one in table.gate(now=later).candidates] == ["draft"]


def test_what_the_patch_names_is_a_candidate_unless_it_is_an_issue(table: Table) -> None:
    elsewhere = table.github.add_repository("bob/lib", members={"bob": "admin"})
    table.github.commit(elsewhere, "main", {"a": b"a\n"})
    table.github.commit(elsewhere, "fix", {"a": b"b\n"})
    table.github.pull(elsewhere, elsewhere, "fix", title="There", user=table.other)
    closed = table.pull("closed", {"docs/x.md": "x\n"}, title="Given up")
    close(closed)
    related = 'related = ["bob/lib#1", "example/toy#2", "example/toy#1", "bob/gone#3"]\n'
    edit(table.toy, "problem =", related + "problem =")
    gate = table.gate()
    assert {one.reference: one.state for one in gate.candidates} == {
        "bob/lib#1": "open",
        "example/toy#2": "closed",
    }
    assert any("bob/gone#3 could not be read" in one for one in gate.limits)


def test_without_an_answer_it_blocks_and_an_answer_is_written_where_people_write(
    table: Table,
) -> None:
    table.pull("beside", {"src/toy/area.py": BESIDE})
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE}, user=table.github.add_user("eve"))
    row = table.row("duplicates")
    assert (row.state, "2 without an answer: example/toy#3, example/toy#2" in row.seen) == (
        "failed",
        True,
    )
    before = (table.toy.queue / "patches/area/patch.toml").read_text()
    reason = 'example/toy#3=It only swaps "the sides" and has no test.'
    done = table.run("gate", "area", "--different", reason)
    assert done.exit_code == 1
    other = "Example/Toy#2=It is about triangles, not rectangles."
    assert table.run("gate", "area", "--different", other).exit_code == 0
    text = (table.toy.queue / "patches/area/patch.toml").read_text()
    assert text.startswith(before.rstrip("\n"))
    assert "# and a person read it" in text
    assert tomllib.loads(text)["contribution"]["different"] == {
        "example/toy#3": 'It only swaps "the sides" and has no test.',
        "Example/Toy#2": "It is about triangles, not rectangles.",
    }
    shown = table.run("gate", "area").stdout
    assert "different: It is about triangles" in shown
    again = table.run("gate", "area", "--different", "example/toy#3=Another and far better reason.")
    assert again.exit_code == 0
    assert "swaps" not in (table.toy.queue / "patches/area/patch.toml").read_text()


STRANGER = "example/toy#99=It is about circles, and this is not."


def test_an_answer_to_what_is_no_candidate_is_refused_and_the_candidates_are_named(
    table: Table,
) -> None:
    table.pull("beside", {"src/toy/area.py": BESIDE})
    assert table.run("gate", "area").exit_code == 1
    path = table.toy.queue / "patches/area/patch.toml"
    before = path.read_bytes()
    done = table.run("gate", "area", "--different", STRANGER)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "example/toy#99: it is no candidate of area; these are: example/toy#2" in done.stderr
    assert "`related`" in done.stderr
    assert path.read_bytes() == before
    # One that a person found goes into `related`; that is another question, and is asked anew.
    closed = table.pull("far", {"docs/y.md": "y\n"}, title="Circles", user=table.me)
    close(closed)
    edit(table.toy, "problem =", 'related = ["example/toy#3"]\nproblem =')
    named = STRANGER.replace("99", "3")
    shown = table.run("gate", "area", "--different", named, "--json").stdout
    answers = {one["reference"]: one["answer"] for one in json.loads(shown)["candidates"]}
    assert answers == {"example/toy#2": "", "example/toy#3": named.partition("=")[2]}


@pytest.mark.parametrize("how", ["offline", "no token"])
def test_an_answer_that_could_not_be_checked_is_said_to_be_none(table: Table, how: str) -> None:
    path = table.toy.queue / "patches/area/patch.toml"
    if how == "offline":
        done = table.run("gate", "area", "--offline", "--different", STRANGER)
        why = "GitHub was not asked (--offline)"
    else:
        env = {"GITHUB_TOKEN": "", "PATH": "/nonexistent:/usr/bin:/bin"}
        done = table.run("gate", "area", "--different", STRANGER, **env)
        why = "no GitHub token for "
    assert "area: written, but not checked against the candidates: " in done.stderr
    assert why in done.stderr
    assert STRANGER.partition("=")[2] in path.read_text()


def test_an_answer_to_what_is_a_candidate_no_more_is_said_to_answer_nothing(table: Table) -> None:
    # Nobody has looked yet, so nobody can say that it is no candidate.
    done = table.run("gate", "area", "--offline", "--different", STRANGER)
    assert done.exit_code == 0
    row = table.row("duplicates")
    assert row.state == "passed"
    assert "example/toy#99 in `different` answers nothing now" in row.seen
    table.pull("beside", {"src/toy/area.py": BESIDE})
    later = table.gate(now=NOW + timedelta(hours=2))
    row = next(one for one in later.rows if one.rule == "duplicates")
    assert row.state == "failed"
    assert "1 without an answer: example/toy#2" in row.seen
    assert "example/toy#99 in `different` answers nothing now" in row.seen


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("example/toy#3=no", "too short"),
        ("example/toy#3=it is not, it is not", "too short"),
        ("example/toy#3=1 2 3 4 5 6 7 8", "too short"),
        ("example/toy#3", "no pull request and a reason"),
        ("#3=a reason of several words", "no pull request and a reason"),
        ("example/toy#0=a reason of several words", "no pull request and a reason"),
        ("example/toy#3=a reason of several words\x1b[2J", "plain text"),
    ],
)
def test_what_is_no_reason_is_refused_and_nothing_is_written(
    table: Table, given: str, match: str
) -> None:
    path = table.toy.queue / "patches/area/patch.toml"
    before = path.read_bytes()
    done = table.run("gate", "area", "--different", given)
    assert done.exit_code == 2
    assert match in done.stderr
    assert "\x1b" not in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "toml",
    [
        'title = "x"\n',
        'title = "x"\n\n[[checks]]\nname = "a"  # kept\n',
        '[contribution]\nai = "y"\n\n[contribution.different]\n"a/b#1" = "z"\n[[checks]]\nn = 1\n',
        '[contribution]\nai = "y"\ndifferent = { "a/b#1" = "z" }\n',
        'contribution = { ai = "y" }\n',
        '[contribution.different]\n"a/b#1" = "z"\n',
        'contribution.ai = "y"\n[other]\n',
    ],
)
def test_a_reason_is_added_to_any_layout(toml: str) -> None:
    changed = set_different(toml.encode(), {"o/n#7": 'Because of "that".'}).decode()
    wanted = tomllib.loads(toml)
    wanted.setdefault("contribution", {}).setdefault("different", {})["o/n#7"] = (
        'Because of "that".'
    )
    assert tomllib.loads(changed) == wanted
    assert all(one in changed for one in toml.split() if one.startswith("#"))


def test_a_look_is_remembered_for_an_hour_and_for_the_same_question(table: Table) -> None:
    table.pull("beside", {"src/toy/area.py": BESIDE})
    first = table.gate()
    # What it holds may be of a repository that is not public.
    assert look_file(table.queue, "area").parent.stat().st_mode & 0o777 == 0o700
    table.pull("otherwise", {"src/toy/area.py": OTHERWISE}, user=table.github.add_user("eve"))
    assert table.gate(now=NOW + timedelta(minutes=59)).candidates == first.candidates
    assert table.gate(now=NOW + timedelta(minutes=59)).looked == NOW
    assert len(table.gate(now=NOW + timedelta(minutes=61)).candidates) == 2
    # A clock that was wrong once.
    assert table.gate(now=NOW).looked == NOW
    assert table.requests() == 5
    edit(table.toy, 'issue = "example/toy#1"', 'issue = "example/toy#2"')
    assert table.requests() > 5
    look_file(table.queue, "area").write_text("{")
    assert len(table.gate().candidates) == 2


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u202c [x](https://evil.example) <img> " + "A" * 150


def test_a_hostile_pull_request_is_shown_and_does_nothing(table: Table) -> None:
    eve = table.github.add_user("eve")
    path = "src/toy/area.py"
    table.pull("x", {path: BESIDE, "a\u202eb": "\x1b[2J"}, title=HOSTILE, body="#1", user=eve)
    done = table.run("gate", "area")
    assert done.exit_code == 1
    assert all(char.isprintable() or char == "\n" for char in done.output)
    assert "example/toy#2 (open, eve)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 400
    document = table.run("gate", "area", "--json").stdout
    assert Gate.model_validate_json(document, strict=False).candidates[0].reference
    assert json.loads(document)["candidates"][0]["title"].startswith("\x1b]0;owned")


def test_a_look_at_a_busy_upstream_takes_a_bounded_number_of_requests(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "FILES_OF", 4)
    for number in range(7):
        text = BESIDE + f"\n\nX{number} = {number}\n"
        table.pull(f"b{number}", {"src/toy/area.py": text}, title=f"Work {number}")
    # 5 for the other rules, 2 lists, 4 searches, 4 for files, 4 diffs.
    assert table.requests() == 5 + 2 + 4 + 4 + 4
    gate = table.gate()
    assert len(gate.candidates) == 4
    assert any("the files of 4 of 7 pull requests were compared" in one for one in gate.limits)


def test_what_mentions_the_issue_is_looked_into_before_what_is_only_new(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "FILES_OF", 1)
    table.pull("issue", {"docs/x.md": "x\n"}, title="Old", body="Fixes example/toy#1")
    table.pull("new", {"src/toy/area.py": BESIDE}, title="New")
    assert said(table) == [(2, ("mentions example/toy#1",))]


def test_a_fault_in_the_middle_is_not_known_and_remembers_nothing(table: Table) -> None:
    table.pull("beside", {"src/toy/area.py": BESIDE})
    table.github.state.rate_limits["search"] = 0
    assert table.row("duplicates").state == "not known"
    assert not look_file(table.queue, "area").exists()
