"""What the client reads is what git and the server have; what it writes, they have after."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from githubkit_schemas.v2022_11_28.models import PullRequestReviewComment

from contribbot.errors import GitHubError, NotFoundError, RefusedError
from contribbot.github.client import Client
from contribbot.github.objects import blob_id
from contribbot.github.protocol import GitHub as Protocol
from contribbot.github.rehearsal import UNKNOWN, Rehearsal
from contribbot.model.gitdata import NewCommit, Person, TreeChange
from tests.github.handle import GitHub
from tests.github.ours import client
from tests.github.scene import make_scene
from tests.github.validate import Validation
from tests.github.world import FILES, World, make_world, run_git

ZONE = timezone(timedelta(hours=5, minutes=30))
ADA = Person(
    name="Ada Größe", email="ada@example.org", date=datetime(2026, 2, 3, 4, 5, tzinfo=ZONE)
)
BOB = Person(name="Bob", email="bob@example.org", date=datetime(2026, 2, 4, tzinfo=UTC))


@pytest.fixture
def world(github: GitHub, tmp_path: Path) -> World:
    github.hooks.append(Validation())
    return make_world(github, tmp_path / "source")


@pytest.fixture
def ours(world: World) -> Iterator[Client]:
    with client(world.github, world.ada.tokens[0].text) as made:
        yield made


def test_repositories(world: World, ours: Client) -> None:
    assert ours.me().login == "ada"
    upstream = ours.repository("org/tool")
    assert (upstream.full_name, upstream.default_branch, upstream.fork) == (
        "org/tool",
        "main",
        False,
    )
    mine = ours.repository("ada/tool")
    assert mine.forked_from("ORG/tool")
    assert not mine.forked_from("org/other")
    assert mine.permissions is not None
    assert mine.permissions.push
    with pytest.raises(NotFoundError, match="GET /repos/org/nothing: Not Found"):
        ours.repository("org/nothing")
    for odd in ("tool", "org/tool/x", "../user", "org/", "org/.."):
        before = len(world.github.requests)
        with pytest.raises(GitHubError, match="not a repository"):
            ours.repository(odd)
        assert len(world.github.requests) == before


def test_branches_and_refs(world: World, ours: Client) -> None:
    found = ours.branch("org/tool", "main")
    assert found.sha == world.tip()
    assert found.tree == run_git(world.source, "rev-parse", "HEAD^{tree}")
    assert ours.ref("org/tool", "main") == world.tip()
    assert ours.ref("org/tool", "mai") is None
    sha = world.change("topic/a#b%20")
    assert ours.ref("ada/tool", "topic/a#b%20") == sha
    assert ours.branch("ada/tool", "topic/a#b%20").sha == sha
    with pytest.raises(NotFoundError):
        ours.branch("org/tool", "gone")


def git_entry(world: World, path: str) -> tuple[str, str]:
    mode, _, sha, _ = run_git(world.source, "ls-tree", "HEAD", path).split(maxsplit=3)
    return mode, sha


@pytest.mark.parametrize("truncated", [False, True])
def test_trees(world: World, ours: Client, truncated: bool) -> None:
    world.upstream.truncate_trees = truncated
    tree = ours.branch("org/tool", "main").tree
    wanted = ["src/core.py", "bin/run", "link", "src", "no/such", "README.md/x", "README.md"]
    found = ours.tree("org/tool", tree, wanted)
    assert set(found) == {"src/core.py", "bin/run", "link", "src", "README.md"}
    for path, entry in found.items():
        assert (entry.mode, entry.sha) == git_entry(world, path)
        assert entry.path == path
    # The whole at once; or the root, bin, src (README.md is no folder), after that was tried.
    assert world.github.count("GET", "git/trees") == (4 if truncated else 1)
    assert ours.tree("org/tool", tree, []) == {}


def test_blobs_in_one_request_where_they_are_text(world: World, ours: Client) -> None:
    ids = {blob_id(content): content for name, content in FILES.items() if name != "README.md"}
    assert ours.blobs("org/tool", list(ids)) == ids
    assert world.github.count("POST", "/graphql") == 1
    assert world.github.count("GET", "git/blobs") == 1  # data.bin
    with pytest.raises(NotFoundError):
        ours.blobs("org/tool", ["1" * 40])
    before = len(world.github.requests)
    assert ours.blobs("org/tool", []) == {}
    assert len(world.github.requests) == before


def test_files(world: World, ours: Client) -> None:
    assert ours.file("org/tool", "src/naïve name.py", "main") == FILES["src/naïve name.py"]
    assert ours.file("org/tool", "data.bin", world.tip()) == FILES["data.bin"]
    assert ours.file("org/tool", "data.bin") == FILES["data.bin"]
    assert ours.file("org/tool", "none", "main") is None
    assert ours.file("org/tool", "src", "main") is None


def test_commits_and_comparisons(world: World, ours: Client) -> None:
    first, second = run_git(world.source, "rev-parse", "HEAD^"), world.tip()
    commit = ours.commit("org/tool", second)
    assert (commit.sha, commit.parents, commit.message) == (second, (first,), "second")
    assert commit.author.name == "Grace"
    assert ours.compare("org/tool", "main", first).reachable
    assert ours.compare("org/tool", "main", second).status == "identical"
    topic = world.change("topic")
    ahead = ours.compare("org/tool", "main", "ada:topic")
    assert (ahead.status, ahead.ahead_by, ahead.merge_base) == ("ahead", 1, second)
    # The fork's commit can be read through the upstream, and is not in it.
    assert ours.commit("org/tool", topic).sha == topic
    assert not ours.compare("org/tool", "main", topic).reachable


def write_branch(github: Protocol, repository: str, base: str, tree: str) -> tuple[str, ...]:
    """Write a branch as open-pr does, and return what it has."""
    blobs = github.create_blobs(repository, [b"new\n", b"\x00\xff", b"#!/bin/sh\n"])
    made = github.create_tree(
        repository,
        tree,
        [
            TreeChange(path="src/deep/new.py", sha=blobs[0]),
            TreeChange(path="data.bin", sha=blobs[1]),
            TreeChange(path="bin/tool", mode="100755", sha=blobs[2]),
            TreeChange(path="bin/run", sha=None),
            TreeChange(path="src.txt", sha=blobs[0]),
        ],
    )
    one = github.create_commit(
        repository,
        NewCommit(message="One\n\nGröße.\n", tree=made, parents=(base,), author=ADA, committer=BOB),
    )
    last = github.create_tree(repository, made, [TreeChange(path="bin/tool", sha=None)])
    two = github.create_commit(
        repository, NewCommit(message="Two", tree=last, parents=(one,), author=ADA)
    )
    github.create_ref(repository, "mine", two)
    return (*blobs, made, one, last, two)


def test_a_branch_is_written_and_rehearsed_alike(world: World, ours: Client) -> None:
    tip = ours.branch("org/tool", "main")
    rehearsal = Rehearsal(ours.caller)
    rehearsal.tree("org/tool", tip.tree, ["README.md"])
    expected = write_branch(rehearsal, "ada/tool", tip.sha, tip.tree)
    assert {one.method for one in world.github.requests} == {"GET"}
    assert rehearsal.ref("ada/tool", "mine") == expected[-1]
    assert ours.ref("ada/tool", "mine") is None
    sent = len(world.github.requests)

    assert write_branch(ours, "ada/tool", tip.sha, tip.tree) == expected
    assert world.github.state.repositories["ada/tool"].git.ref("refs/heads/mine") == expected[-1]
    # What was shown is what was sent, in this order but for the blobs.
    really = [f"{one.method} {one.path}" for one in world.github.requests[sent:]]
    assert [f"{one.method} {one.path}" for one in rehearsal.planned] == really
    commit = ours.commit("ada/tool", expected[-3])
    assert (commit.author.name, commit.message) == ("Ada Größe", "One\n\nGröße.")
    assert commit.author.date == ADA.date


def test_blobs_are_sent_four_at_a_time_and_in_order(world: World, ours: Client) -> None:
    contents = [f"{number}\n".encode() for number in range(20)]
    made = ours.create_blobs("ada/tool", contents)
    assert made == tuple(blob_id(one) for one in contents)
    assert world.github.count("POST", "git/blobs") == 20
    assert 1 < len(ours.caller._links) <= 5
    assert ours.create_blobs("ada/tool", []) == ()


def test_refs_that_are_there(world: World, ours: Client) -> None:
    first = run_git(world.source, "rev-parse", "HEAD^")
    ours.create_ref("ada/tool", "b", first)
    ours.create_ref("ada/tool", "b", first)
    with pytest.raises(RefusedError, match="already exists") as caught:
        ours.create_ref("ada/tool", "b", world.tip())
    assert caught.value.status == 422
    ours.update_ref("ada/tool", "b", world.tip())
    with pytest.raises(RefusedError, match="fast forward"):
        ours.update_ref("ada/tool", "b", first)
    ours.update_ref("ada/tool", "b", first, force=True)
    assert ours.ref("ada/tool", "b") == first


def test_forks(world: World) -> None:
    with client(world.github, world.bob.tokens[0].text) as ours:
        rehearsal = Rehearsal(ours.caller)
        assert rehearsal.fork("org/tool").full_name == "bob/tool"
        assert rehearsal.repository("bob/tool").forked_from("org/tool")
        assert rehearsal.ref("bob/tool", "main") is None
        with pytest.raises(NotFoundError):
            ours.repository("bob/tool")
        made = ours.fork("org/tool")
        assert made.forked_from("org/tool")
        world.github.commit(world.upstream, "main", {"x": b"x\n"})
        ours.sync_fork("bob/tool", "main")
        assert ours.ref("bob/tool", "main") == world.tip()


def test_pull_requests_from_first_to_last(world: World, ours: Client) -> None:
    sha = world.change("topic")
    assert ours.pulls_from("org/tool", "ada", "topic").value == ()
    rehearsal = Rehearsal(ours.caller)
    for github in (rehearsal, ours):
        made = github.create_pull(
            "org/tool", title="Add", body="Text", head="ada:topic", base="main", draft=True
        )
        assert (made.title, made.draft, made.head.ref) == ("Add", True, "topic")
    assert made.head.sha == sha
    assert made.user == "ada"
    assert [one.number for one in ours.pulls_from("org/tool", "ada", "topic").value] == [
        made.number
    ]
    with pytest.raises(RefusedError, match="already exists"):
        ours.create_pull("org/tool", title="2", body="", head="ada:topic", base="main", draft=True)
    for github in (rehearsal, ours):
        assert github.update_pull("org/tool", made.number, title="Sum").title == "Sum"
    assert ours.pull("org/tool", made.number).value.body == "Text"
    assert ours.count_open_pulls("org/tool", "ada") == 1
    assert [one.number for one in ours.recent_pulls("org/tool")] == [made.number]
    later = made.updated_at + timedelta(days=1)
    assert ours.recent_pulls("org/tool", since=later) == ()
    files = ours.pull_files("org/tool", made.number)
    assert [one.filename for one in files] == ["src/core.py"]
    diff = ours.pull_diff("org/tool", made.number)
    assert diff.startswith(b"diff --git a/src/core.py b/src/core.py\n")
    commits = ours.pull_commits("org/tool", made.number)
    assert commits.startswith(f"From {made.head.sha} ".encode())
    assert diff.partition(b"\n@@")[2].partition(b"\n")[2] in commits
    assert ours.issue("org/tool", made.number).is_pull_request
    found = ours.search_issues("repo:org/tool is:pr Sum in:title")
    assert [one.number for one in found.items] == [made.number]
    assert [one.summary for one in rehearsal.planned] == [
        "open a draft of a pull request of ada:topic to org/tool: Add",
        f"change title of org/tool#{made.number}",
    ]


def test_discussion_and_ci(github: GitHub) -> None:
    scene = make_scene(github)
    where, number = scene.upstream.full_name, scene.pull.number
    said = PullRequestReviewComment.model_validate(
        scene.json(
            "POST",
            f"{scene.here}/comments",
            {"body": "Why?", "commit_id": scene.pull.head_sha, "path": "file.txt", "line": 10},
            who=scene.reviewer,
        )
    )
    with client(github, scene.author.tokens[0].text) as ours:
        assert ours.reply(where, number, said.id, "Because").in_reply_to_id == said.id
        first, second = ours.review_comments(where, number)
        assert (first.body, first.line, first.path) == ("Why?", 10, "file.txt")
        assert first.diff_hunk.startswith("@@ ")
        assert second.user == "author"
        assert ours.review_comments(where, number, second.created_at) == (second,)
        (thread,) = ours.review_threads(where, number) or ()
        assert (thread.first, thread.is_resolved, thread.is_outdated) == (said.id, False, False)
        comment = ours.create_comment(where, number, "Hello")
        assert ours.comments(where, number) == (comment,)
        assert ours.comments(where, number, comment.created_at + timedelta(seconds=1)) == ()
        assert ours.reviews(where, number)[0].user == "reviewer"
        assert ours.check_runs(where, scene.pull.head_sha).value == ()
        assert ours.statuses(where, scene.pull.head_sha).value == ()
        assert ours.issue_events(where, number) == ()


def test_an_unread_base_gives_no_false_id(ours: Client) -> None:
    assert Rehearsal(ours.caller).create_tree("ada/tool", "1" * 40, []) == UNKNOWN
