"""A client that is not ours drives every endpoint; its models judge each answer."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from github import Auth
from github import Github as PyGithub
from githubkit import GitHub as Kit
from githubkit import TokenAuthStrategy
from githubkit.exception import RequestFailed
from githubkit_schemas.v2022_11_28.models import (
    Commit,
    CommitPropStats,
    ContentFile,
    DiffEntry,
    FullRepositoryPropPermissions,
    Repository,
)
from githubkit_schemas.v2022_11_28.types import ReposOwnerRepoGitCommitsPostBodyPropAuthorType

from tests.github.state import User
from tests.github.world import FILES, FIXED, World, run_git

ADA: ReposOwnerRepoGitCommitsPostBodyPropAuthorType = {
    "name": "Ada Löve",
    "email": "ada@example.org",
    "date": dt.datetime.fromisoformat("2025-05-06T07:08:09+02:00"),
}
Clients = Callable[[User], "Kit[TokenAuthStrategy]"]


@pytest.fixture
def kit(world: World) -> Clients:
    def client(user: User) -> Kit[TokenAuthStrategy]:
        token = user.tokens[0].text
        return Kit(token, base_url=world.github.base, auto_retry=False, http_cache=False)

    return client


def make_branch(kit: Kit[TokenAuthStrategy], world: World, branch: str) -> str:
    """Make a branch on ada's fork with one commit, all through the Git Data API."""
    base = kit.rest("2022-11-28").repos.get_branch("org", "tool", "main").parsed_data.commit
    blob = (
        kit.rest("2022-11-28")
        .git.create_blob(
            "ada", "tool", content=base64.b64encode(FIXED.encode()).decode(), encoding="base64"
        )
        .parsed_data
    )
    tree = (
        kit.rest("2022-11-28")
        .git.create_tree(
            "ada",
            "tool",
            base_tree=base.commit.tree.sha,
            tree=[{"path": "src/core.py", "mode": "100644", "type": "blob", "sha": blob.sha}],
        )
        .parsed_data
    )
    commit = (
        kit.rest("2022-11-28")
        .git.create_commit(
            "ada",
            "tool",
            message="Add, as it says\n\nSigned-off-by: Ada <ada@example.org>\n",
            tree=tree.sha,
            parents=[base.sha],
            author=ADA,
        )
        .parsed_data
    )
    made = kit.rest("2022-11-28").git.create_ref(
        "ada", "tool", ref=f"refs/heads/{branch}", sha=commit.sha
    )
    assert made.parsed_data.object_.sha == commit.sha
    assert world.fork.git.ref(f"refs/heads/{branch}") == commit.sha
    return str(commit.sha)


def test_users_and_repositories(world: World, kit: Clients) -> None:
    ada = kit(world.ada)
    me = ada.rest("2022-11-28").users.get_authenticated()
    assert me.parsed_data.login == "ada"
    assert me.headers["X-OAuth-Scopes"] == "repo, workflow"
    assert ada.rest("2022-11-28").users.get_by_username("mia").parsed_data.login == "mia"
    upstream = ada.rest("2022-11-28").repos.get("org", "tool").parsed_data
    assert upstream.forks_count == 1
    assert isinstance(upstream.permissions, FullRepositoryPropPermissions)
    assert not upstream.permissions.push
    fork = ada.rest("2022-11-28").repos.get("ada", "tool").parsed_data
    assert isinstance(fork.source, Repository)
    assert isinstance(fork.parent, Repository)
    assert (fork.source.full_name, fork.parent.full_name) == ("org/tool", "org/tool")
    assert isinstance(fork.permissions, FullRepositoryPropPermissions)
    assert fork.permissions.push
    bob = kit(world.bob)
    made = bob.rest("2022-11-28").repos.create_fork("org", "tool")
    assert (made.status_code, made.parsed_data.full_name) == (202, "bob/tool")


def test_a_branch_through_the_git_data_api(world: World, kit: Clients) -> None:
    ada = kit(world.ada)
    sha = make_branch(ada, world, "contribbot/add")
    read = ada.rest("2022-11-28").git.get_commit("ada", "tool", sha).parsed_data
    assert read.author.date.isoformat() == "2025-05-06T05:08:09+00:00"
    assert read.message.endswith("<ada@example.org>")
    assert [one.sha for one in read.parents] == [world.tip()]
    got = ada.rest("2022-11-28").git.get_ref("ada", "tool", "heads/contribbot/add").parsed_data
    assert got.object_.sha == sha
    found = (
        ada.rest("2022-11-28")
        .git.list_matching_refs("ada", "tool", "heads/contribbot/")
        .parsed_data
    )
    assert [one.ref for one in found] == ["refs/heads/contribbot/add"]
    moved = ada.rest("2022-11-28").git.update_ref(
        "ada", "tool", "heads/contribbot/add", sha=world.tip(), force=True
    )
    assert moved.parsed_data.object_.sha == world.tip()
    with pytest.raises(RequestFailed) as failed:
        ada.rest("2022-11-28").git.create_ref(
            "ada", "tool", ref="refs/heads/contribbot/add", sha=sha
        )
    assert failed.value.response.status_code == 422
    assert (
        ada.rest("2022-11-28").git.delete_ref("ada", "tool", "heads/contribbot/add").status_code
        == 204
    )


def test_objects_are_read(world: World, kit: Clients) -> None:
    bob = kit(world.bob)
    tree = (
        bob.rest("2022-11-28").git.get_tree("org", "tool", world.tip(), recursive="1").parsed_data
    )
    assert not tree.truncated
    rows = {one.path: one for one in tree.tree}
    assert rows["bin/run"].mode == "100755"
    assert rows["link"].mode == "120000"
    assert rows["src"].type == "tree"
    assert rows["data.bin"].size == 256
    blob = (
        bob.rest("2022-11-28").git.get_blob("org", "tool", rows["data.bin"].sha or "").parsed_data
    )
    assert base64.b64decode(blob.content) == FILES["data.bin"]
    file = (
        bob.rest("2022-11-28").repos.get_content("org", "tool", "src/core.py", ref="v1").parsed_data
    )
    assert isinstance(file, ContentFile)
    assert base64.b64decode(file.content) == FILES["src/core.py"]
    folder = bob.rest("2022-11-28").repos.get_content("org", "tool", "src").parsed_data
    assert isinstance(folder, list)
    assert {one.path for one in folder} == {"src/core.py", "src/naïve name.py"}
    commit = bob.rest("2022-11-28").repos.get_commit("org", "tool", "main").parsed_data
    assert commit.sha == world.tip()
    assert isinstance(commit.stats, CommitPropStats)
    assert commit.files
    assert (commit.stats.total, commit.files[0].filename) == (1, "README.md")


def test_a_pull_request_from_opening_to_merging(world: World, kit: Clients) -> None:
    ada, mia = kit(world.ada), kit(world.mia)
    sha = make_branch(ada, world, "fix")
    opened = (
        ada.rest("2022-11-28")
        .pulls.create(
            "org",
            "tool",
            title="Add, as it says",
            head="ada:fix",
            base="main",
            body="Why",
            draft=True,
        )
        .parsed_data
    )
    assert (opened.draft, opened.head.sha, opened.base.sha) == (True, sha, world.tip())
    listed = (
        mia.rest("2022-11-28").pulls.list("org", "tool", head="ada:fix", state="all").parsed_data
    )
    assert [one.number for one in listed] == [opened.number]
    read = mia.rest("2022-11-28").pulls.get("org", "tool", opened.number).parsed_data
    assert (read.mergeable, read.mergeable_state, read.changed_files) == (True, "draft", 1)
    pulls, number = mia.rest("2022-11-28").pulls, opened.number
    # In their classes `list` names a method, so that the types of lists are lost.
    files = cast("Sequence[DiffEntry]", pulls.list_files("org", "tool", number).parsed_data)
    assert [one.filename for one in files] == ["src/core.py"]
    assert (files[0].additions, files[0].deletions) == (1, 1)
    commits = cast("Sequence[Commit]", pulls.list_commits("org", "tool", number).parsed_data)
    assert [one.sha for one in commits] == [sha]
    assert commits[0].author
    changed = ada.rest("2022-11-28").pulls.update(
        "org", "tool", opened.number, title="Add", body=None
    )
    assert (changed.parsed_data.title, changed.parsed_data.body) == ("Add", None)
    world.upstream.pulls()[0].draft = False
    merged = (
        mia.rest("2022-11-28")
        .pulls.merge("org", "tool", opened.number, merge_method="squash")
        .parsed_data
    )
    assert merged.sha == world.tip()
    after = ada.rest("2022-11-28").pulls.get("org", "tool", opened.number).parsed_data
    assert (after.state, after.merged, after.merge_commit_sha) == ("closed", True, world.tip())
    assert run_git(world.upstream.git.path, "show", "main:src/core.py") == FIXED.strip()


def test_comparing_and_catching_up(world: World, kit: Clients) -> None:
    ada = kit(world.ada)
    sha = make_branch(ada, world, "fix")
    for basehead, status, ahead, behind in (
        (f"main...{sha}", "ahead", 1, 0),
        (f"{sha}...main", "behind", 0, 1),
        ("main...main", "identical", 0, 0),
        ("main...ada:fix", "ahead", 1, 0),
    ):
        base, _, head = basehead.partition("...")
        found = (
            ada.rest("2022-11-28")
            .repos.compare_commits("org", "tool", f"{base}...{head}")
            .parsed_data
        )
        assert (found.status, found.ahead_by, found.behind_by) == (status, ahead, behind)
    new = world.github.commit(world.upstream, "main", {"NEWS": b"new\n"})
    assert world.tip(where=world.fork) != new
    synced = ada.rest("2022-11-28").repos.merge_upstream("ada", "tool", branch="main").parsed_data
    assert (synced.merge_type, world.tip(where=world.fork)) == ("fast-forward", new)
    again = ada.rest("2022-11-28").repos.merge_upstream("ada", "tool", branch="main").parsed_data
    assert again.merge_type == "none"


def test_the_library_that_contribbot_uses_reads_it_too(world: World) -> None:
    world.change("fix")
    opened = world.github.pull(world.upstream, world.fork, "fix")
    token = Auth.Token(world.ada.tokens[0].text)
    ada = PyGithub(auth=token, base_url=world.github.base, retry=None)
    try:
        upstream = ada.get_repo("org/tool")
        assert (upstream.default_branch, upstream.archived, upstream.fork) == ("main", False, False)
        source = ada.get_repo("ada/tool").source
        assert source is not None
        assert (ada.get_user().login, source.full_name) == ("ada", "org/tool")
        branch = upstream.get_branch("main")
        assert branch.commit.commit.tree.sha == world.upstream.git.commit(world.tip()).tree
        tree = upstream.get_git_tree(branch.commit.sha, recursive=True)
        assert {one.path: one.mode for one in tree.tree}["bin/run"] == "100755"
        pull = upstream.get_pull(opened.number)
        assert (pull.mergeable, pull.head.repo.full_name, pull.draft) == (True, "ada/tool", False)
        assert [one.filename for one in pull.get_files()] == ["src/core.py"]
        found = upstream.get_pulls(state="all", head="ada:fix")
        assert [one.number for one in found] == [opened.number]
        assert upstream.compare("main", pull.head.sha).status == "ahead"
        contents = upstream.get_contents("README.md")
        assert not isinstance(contents, list)
        assert contents.decoded_content == b"A tool.\nIt adds.\n"
    finally:
        ada.close()
