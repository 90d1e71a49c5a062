"""From an empty queue to a merged and retired patch, through the command line alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contribute.flow import TITLE, Person, make_person
from tests.github.handle import GitHub
from tests.github.state import Pull
from tests.toy import AREA, FIXED

RED = "from toy.area import rectangle\n\n\ndef test_area():\n    assert rectangle(2, 3) == 6\n"
CHANGES = {"src/toy/area.py": FIXED, "tests/test_area.py": RED}
SHORTER = {"src/toy/area.py": AREA.replace("return width + height", "return width * height")}
LINE = FIXED.splitlines().index("    area = width * height") + 1


@pytest.fixture
def person(github: GitHub, tmp_path: Path) -> Person:
    return make_person(tmp_path, github)


@pytest.fixture
def ready(person: Person) -> Person:
    person.begin(CHANGES)
    person.table.toy.put("patches/area/checks/test_red.py", RED)
    person("verify", "area")
    return person


def test_from_an_empty_queue_to_a_retired_patch(ready: Person) -> None:
    person, table = ready, ready.table
    assert "nobody has read it and run it" in person("gate", "area", code=1).out
    refused = person("open-pr", "area", code=1).err
    assert "nobody has attested it" in refused
    assert "contribbot attest area" in refused
    # The shown text is the attested text, and the posted text.
    shown, body = person.attest(), person("body", "area").out
    assert "| `test_area` | CPU | fails: `AssertionError: assert 5 == 6`" in body
    assert "ran `python -m pytest` on" in body
    assert body.strip() in shown
    person("open-pr", "area")
    (pull,) = table.upstream.pulls()
    assert (pull.issue.title, (pull.issue.body or "").strip()) == (TITLE, body.strip())
    assert pull.draft
    assert person.followed().state == "draft"

    answer_reviewer(person, pull)
    bring_up_to_date(person, pull)

    # The pull request is squashed onto the default branch, and the patch is retired.
    commit = table.github.merge(pull, "squash", table.other)
    found = person.followed()
    assert (found.state, found.commit, found.change) == ("merged", commit, "draft")
    assert "#2 merged" in person("status").out
    person("edit", "--abort", "area")
    retired = person("queue", "retire", "area")
    assert retired.out == f"area: retired: example/toy#2 merged as {commit[:12]}\n"
    assert_gone(person)
    assert "nothing to follow" in person("follow").out
    log = person.log()
    assert log[-2:] == [
        f"pull-request  example/toy#2 was merged as {commit[:12]}",
        f"retired       retired: example/toy#2 merged as {commit[:12]}",
    ]
    assert len(log) == len(set(log)) + 1  # the same verdict, of two versions


def answer_reviewer(person: Person, pull: Pull) -> None:
    """Let a reviewer comment; check that `follow` shows each remark once, and answer."""
    table = person.table
    github, other = table.github, table.other
    github.add_check(pull, "mi300: kernels", "success")
    github.add_review_comment(pull, other, "Why the name?", path="src/toy/area.py", line=LINE)
    github.add_comment(pull.issue, other, "Thanks!")
    table.upstream.members[other.login] = "write"  # who may not write decides nothing
    github.add_review(pull, other, "CHANGES_REQUESTED", body="Shorter, please.")
    told = person("follow").out
    assert f"bob src/toy/area.py:{LINE}: Why the name?" in told
    assert "gfx942 passed (1 job)" in told
    assert "changes requested by bob; threads: 1 open" in told
    assert "new: " not in person("follow").out
    (root,) = pull.review_comments
    github.add_review_comment(pull, table.me, "It goes.\n", root=root)
    assert "threads: 0 open, 1 answered" in person("follow").out


def bring_up_to_date(person: Person, pull: Pull) -> None:
    """Change the patch as the reviewer asks, prove and attest the patch, and open-pr again."""
    upstream = person.table.upstream
    person.commit(SHORTER, amend=True)
    person("refresh", "area")
    assert "the patch has changed since" in person("open-pr", "area", code=1).err
    person("verify", "area")
    assert "void: the text" in person("open-pr", "area", code=1).err
    person.attest()
    person("open-pr", "area")
    assert upstream.pulls() == [pull]
    assert person.fork.git.ref("refs/heads/contribbot/area") == pull.head_sha
    person("open-pr", "area")
    assert len(pull.issue.comments) == 1
    assert "its pull request example/toy#2 is open" in person("queue", "retire", "area", code=1).err


def assert_gone(person: Person) -> None:
    assert not (person.folder / "patches/area").exists()
    for kept in (
        "history/area/journal.jsonl", "history/area/retired/patch.toml",
        "history/area/retired/checks/test_red.py", "attestations/area.json",
    ):  # fmt: skip
        assert (person.folder / kept).is_file(), kept
    assert list((person.folder / "evidence/area").glob("*.json"))
