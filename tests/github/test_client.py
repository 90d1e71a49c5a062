"""What is read through PyGithub's objects is what git and the server have; what is written, too."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from contribbot.contribute.branch import (
    Author,
    Carried,
    Made,
    Place,
    Tip,
    make_commits,
    put_ref,
)
from contribbot.errors import GitHubError, NotFoundError, RefusedError
from contribbot.github.client import GitHub as Client
from contribbot.github.fields import login_of, may_push
from contribbot.github.git_data import TreeEntry, head_of, read_blobs, read_file, read_tree
from contribbot.github.pull_state import read_pull_state
from tests.github.faults import FORBIDDEN
from tests.github.gitdata import blob_id
from tests.github.ours import client
from tests.github.state_social import add_review_comment
from tests.github.world import FILES, World, run_git

ZONE = timezone(timedelta(hours=5, minutes=30))
ADA = Author("Ada Größe", "ada@example.org", datetime(2026, 2, 3, 4, 5, tzinfo=ZONE))


@pytest.fixture
def ours(world: World) -> Iterator[Client]:
    with client(world.github, world.ada.tokens[0].text) as ours:
        yield ours


def test_repositories_and_who_asks(world: World, ours: Client) -> None:
    assert (ours.me, ours.me) == ("ada", "ada")
    mine = ours.repository("ada/tool").complete()
    assert (mine.full_name, mine.default_branch, mine.fork) == ("ada/tool", "main", True)
    assert may_push(mine)
    assert not may_push(ours.repository("org/tool").complete())
    with pytest.raises(NotFoundError, match="GET /repos/org/nothing: Not Found"):
        ours.repository("org/nothing").complete()
    assert len(world.github.requests) == 4
    for odd in ("tool", "org/tool/x", "../user", "org/", "org/.."):
        with pytest.raises(GitHubError, match="not a repository"):
            ours.repository(odd)
    assert len(world.github.requests) == 4


def test_branches_commits_and_comparisons(world: World, ours: Client) -> None:
    upstream, first, second = ours.repository("org/tool"), "", world.tip()
    first = run_git(world.source, "rev-parse", "HEAD^")
    tip = upstream.get_branch("main").commit
    assert (tip.sha, tip.commit.tree.sha) == (
        second, run_git(world.source, "rev-parse", "HEAD^{tree}"),
    )  # fmt: skip
    assert (head_of(upstream, "main"), head_of(upstream, "mai")) == (second, None)
    topic = world.change("topic/a#b%20")
    assert head_of(ours.repository("ada/tool"), "topic/a#b%20") == topic
    commit = upstream.get_git_commit(second)
    assert ([it.sha for it in commit.parents], commit.message) == ([first], "second")
    ahead = upstream.compare("main", "ada:topic/a#b%20", comparison_commits_per_page=1)
    assert (ahead.status, ahead.ahead_by, ahead.base_commit.sha) == ("ahead", 1, second)
    # The fork's commit can be read through the upstream, and is not in it.
    assert upstream.get_git_commit(topic).sha == topic


@pytest.mark.parametrize("truncated", [False, True])
def test_trees(world: World, ours: Client, truncated: bool) -> None:
    world.upstream.truncate_trees = truncated
    tree, place = run_git(world.source, "rev-parse", "HEAD^{tree}"), ours.repository("org/tool")
    wanted = ["src/core.py", "bin/run", "link", "src", "no/such", "README.md/x", "README.md"]
    found = read_tree(place, tree, wanted)
    assert set(found) == {"src/core.py", "bin/run", "link", "src", "README.md"}
    for path, entry in found.items():
        mode, _, sha, _ = run_git(world.source, "ls-tree", "HEAD", path).split(maxsplit=3)
        assert entry == TreeEntry(path, mode, sha)
    # The whole at once; or the root, bin, src (README.md is no folder), after that was tried.
    assert world.github.count("GET", "git/trees") == (4 if truncated else 1)
    assert read_tree(place, tree, []) == {}


def test_blobs(world: World, ours: Client) -> None:
    ids = {blob_id(content): content for name, content in FILES.items() if name != "README.md"}
    assert read_blobs(ours.repository("org/tool"), ids) == ids
    assert world.github.count("GET", "git/blobs") == len(ids)
    with pytest.raises(NotFoundError):
        read_blobs(ours.repository("org/tool"), ["1" * 40])
    stored = ours.repository("ada/tool").create_git_blob(base64.b64encode(b"x").decode(), "base64")
    assert stored.sha == blob_id(b"x")
    assert world.fork.git.blob(stored.sha) == b"x"


@pytest.mark.parametrize(
    ("path", "ref", "content"),
    [
        ("src/naïve name.py", "main", FILES["src/naïve name.py"]),
        ("data.bin", "", FILES["data.bin"]),
        ("none", "main", None),
        ("src", "main", None),
    ],
)
def test_files(ours: Client, path: str, ref: str, content: bytes | None) -> None:
    assert read_file(ours.repository("org/tool"), path, ref) == content


def carried() -> Carried:
    contents = {blob_id(it): it for it in (b"new\n", b"\x00\xff", b"#!/bin/sh\n")}
    text, data, script = contents
    changes = (
        TreeEntry("bin/run"), TreeEntry("data.bin", sha=data), TreeEntry("src.txt", sha=text),
        TreeEntry("bin/tool", "100755", script), TreeEntry("src/deep/new.py", sha=text),
    )  # fmt: skip
    return Carried(
        (
            Made("area", "0001", ADA, "One\n\nGröße.\n", changes),
            Made("area", "0002", ADA, "Two", (TreeEntry("bin/tool"),)),
        ),
        contents,
    )


def test_a_branch_is_written(world: World, ours: Client) -> None:
    tip = ours.repository("org/tool").get_branch("main").commit
    place = Place("org/tool", "ada/tool", Tip("main", tip.sha, tip.commit.tree.sha))
    commits = make_commits(ours, place, carried())
    put_ref(ours, place, "mine", commits[-1], was=None, ours=frozenset())
    assert head_of(ours.repository("ada/tool"), "mine") == commits[-1]
    assert world.fork.git.ref("refs/heads/mine") == commits[-1]
    commit = ours.repository("ada/tool").get_git_commit(commits[0])
    assert (commit.author.name, commit.message) == ("Ada Größe", "One\n\nGröße.")
    assert commit.author.date == ADA.date


def test_branches_are_made_moved_and_forced(world: World, ours: Client) -> None:
    first, second = run_git(world.source, "rev-parse", "HEAD^"), world.tip()
    fork = ours.repository("ada/tool")
    fork.create_git_ref("refs/heads/b", first)
    with pytest.raises(RefusedError, match="already exists") as caught:
        fork.create_git_ref("refs/heads/b", second)
    assert caught.value.status == 422
    ours.ref("ada/tool", "b").edit(second)
    with pytest.raises(RefusedError, match="fast forward"):
        ours.ref("ada/tool", "b").edit(first)
    node = fork.complete().node_id
    for old, new in ((first, first), (second, first)):  # the first is not its commit
        ours.move_ref(node, "b", old=old, new=new)
        assert head_of(fork, "b") == (first if old == second else second)


def test_forks(world: World) -> None:
    with client(world.github, world.bob.tokens[0].text) as ours:
        with pytest.raises(NotFoundError):
            ours.repository("bob/tool").complete()
        fork = ours.repository("org/tool").create_fork(default_branch_only=True)
        world.github.commit(world.upstream, "main", {"x": b"x\n"})
        assert head_of(fork, "main") != world.tip()
        fork.merge_upstream("main")
        assert head_of(fork, "main") == world.tip()


def test_pull_requests_from_first_to_last(world: World, ours: Client) -> None:
    sha = world.change("topic")
    assert ours.pulls_from("org/tool", "ada", "topic") == ()
    upstream = ours.repository("org/tool")
    made = upstream.create_pull("main", "ada:topic", title="Add", body="Text", draft=True)
    assert (made.title, made.draft, made.head.ref) == ("Add", True, "topic")
    assert (made.head.sha, login_of(made.user)) == (sha, "ada")
    assert [it.number for it in ours.pulls_from("org/tool", "ada", "topic")] == [made.number]
    with pytest.raises(RefusedError, match="already exists"):
        upstream.create_pull("main", "ada:topic", title="2", body="", draft=True)
    pull = ours.pull("org/tool", made.number).complete()
    pull.edit(title="Sum")
    assert (pull.title, pull.body) == ("Sum", "Text")
    assert not ours.mark_ready(pull).draft
    assert ours.search("repo:org/tool is:pr is:open author:ada", 1).total == 1
    assert [it.filename for it in pull.get_files()] == ["src/core.py"]
    diff, commits = ours.diff("org/tool", 1), ours.diff("org/tool", 1, commits=True)
    assert diff.startswith(b"diff --git a/src/core.py b/src/core.py\n")
    assert commits.startswith(f"From {sha} ".encode())
    assert diff.partition(b"\n@@")[2].partition(b"\n")[2] in commits
    (found,) = ours.search("repo:org/tool is:pr Sum in:title").items
    assert found.number == 1


def test_discussion_and_ci(world: World, ours: Client) -> None:
    number, sha = world.pull.number, world.pull.head_sha
    question = add_review_comment(
        world.github.state, world.pull, world.mia, "Why?", path="src/core.py", line=2
    )
    pull = ours.pull("org/tool", number)
    (first,) = pull.get_review_comments()
    assert (first.body, first.line, first.path) == ("Why?", 2, "src/core.py")
    (thread,) = read_pull_state(ours, "org/tool", number).threads or ()
    assert (thread.first, thread.resolved, thread.outdated) == (question.id, False, False)
    comment = pull.create_issue_comment("Hello")
    issue = ours.issue("org/tool", number)
    assert [it.id for it in issue.get_comments(comment.created_at)] == [comment.id]
    assert list(issue.get_comments(comment.created_at + timedelta(seconds=1))) == []
    assert [login_of(it.user) for it in pull.get_reviews()] == ["mia"]
    assert list(ours.commit("org/tool", sha).get_check_runs(filter="latest")) == []
    assert list(ours.statuses(ours.commit("org/tool", sha))) == []
    assert list(issue.get_events()) == []
    world.faults.arm(FORBIDDEN, path="^/graphql$")
    assert read_pull_state(ours, "org/tool", number).threads is None
