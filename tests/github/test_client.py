"""Questions that PyGithub's objects do not ask; the others are seen where commands ask them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contribbot.contribute.branch import TreeEntry, head_of, read_tree
from contribbot.errors import GitHubError
from contribbot.github.client import GitHub as Client
from tests.github.ours import client
from tests.github.world import World, run_git


@pytest.fixture
def ours(world: World) -> Iterator[Client]:
    with client(world.github, world.ada.tokens[0].text) as ours:
        yield ours


def test_what_is_no_repository_is_not_asked_for(world: World, ours: Client) -> None:
    assert (ours.me, ours.me) == ("ada", "ada")
    for odd in ("tool", "org/tool/x", "../user", "org/", "org/.."):
        with pytest.raises(GitHubError, match="not a repository"):
            ours.repository(odd)
    assert len(world.github.requests) == 1


def test_a_tree_is_read_folder_by_folder(world: World, ours: Client) -> None:
    tree, place = run_git(world.source, "rev-parse", "HEAD^{tree}"), ours.repository("org/tool")
    wanted = ["src/core.py", "bin/run", "link", "src", "no/such", "README.md/x", "README.md"]
    found = read_tree(place, tree, wanted)
    assert set(found) == {"src/core.py", "bin/run", "link", "src", "README.md"}
    for path, entry in found.items():
        mode, _, sha, _ = run_git(world.source, "ls-tree", "HEAD", path).split(maxsplit=3)
        assert entry == TreeEntry(path, mode, sha)
    # The root, bin, src; README.md is no folder.
    assert world.github.count("GET", "git/trees") == 3


def test_a_branch_moves_from_its_commit_alone(world: World, ours: Client) -> None:
    first, second = run_git(world.source, "rev-parse", "HEAD^"), world.tip()
    fork = ours.repository("ada/tool")
    fork.create_git_ref("refs/heads/topic/a#b%20", second)
    node = fork.complete().node_id
    for old, new, head in ((first, first, second), (second, first, first)):
        ours.move_ref(node, "topic/a#b%20", old=old, new=new)
        assert head_of(fork, "topic/a#b%20") == head
    assert (head_of(fork, "mai"), head_of(fork, "topic")) == (None, None)
