"""Questions that PyGithub's objects do not ask; the others are seen where commands ask them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contribbot.errors import GitHubError, NotFoundError
from contribbot.github.client import GitHub as Client
from contribbot.github.objects import TreeEntry, head_of, read_blobs, read_file, read_tree
from tests.github.gitdata import blob_id
from tests.github.ours import client
from tests.github.world import FILES, World, run_git


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


def test_blobs_and_files(ours: Client) -> None:
    place = ours.repository("org/tool")
    ids = {blob_id(content): content for name, content in FILES.items() if name != "README.md"}
    assert read_blobs(place, ids) == ids
    with pytest.raises(NotFoundError):
        read_blobs(place, ["1" * 40])
    for path, ref, content in (
        ("src/naïve name.py", "main", FILES["src/naïve name.py"]),
        ("data.bin", "", FILES["data.bin"]),
        ("none", "main", None),
        ("src", "main", None),
    ):
        assert read_file(place, path, ref) == content


def test_a_branch_moves_from_its_commit_alone(world: World, ours: Client) -> None:
    first, second = run_git(world.source, "rev-parse", "HEAD^"), world.tip()
    fork = ours.repository("ada/tool")
    fork.create_git_ref("refs/heads/topic/a#b%20", second)
    node = fork.complete().node_id
    for old, new, head in ((first, first, second), (second, first, first)):
        ours.move_ref(node, "topic/a#b%20", old=old, new=new)
        assert head_of(fork, "topic/a#b%20") == head
    assert (head_of(fork, "mai"), head_of(fork, "topic")) == (None, None)
