"""What the local GitHub says of git is what git says, and what it refuses is refused."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.github.world import FILES, FIXED, World, run_git

GIT = "/repos/ada/tool/git"


def test_a_branch_made_here_is_the_one_that_git_makes(world: World, tmp_path: Path) -> None:
    ask = world.raw(world.ada)
    rows: list[JsonValue] = []
    new = {"src/core.py": FIXED.encode(), "new/deep/file.bin": bytes(range(256)), "bin/run": b"#\n"}
    for path, content in new.items():
        blob = ask(
            "POST",
            f"{GIT}/blobs",
            {"content": base64.b64encode(content).decode(), "encoding": "base64"},
        )
        assert blob.status == 201
        mode = "100755" if path == "bin/run" else "100644"
        rows.append({"path": path, "mode": mode, "type": "blob", "sha": blob.at("sha")})
    rows.append({"path": "data.bin", "mode": "100644", "type": "blob", "sha": None})
    base = world.raw()("GET", "/repos/org/tool/branches/main")
    tree = ask(
        "POST",
        f"{GIT}/trees",
        {"base_tree": base.at("commit", "commit", "tree", "sha"), "tree": rows},
    )
    message = "Fix größe\n\nA body.\n\nSigned-off-by: Ada <ada@example.org>\n"
    who: JsonValue = {"name": "Ada Löve", "email": "ada@example.org",
                      "date": "2025-05-06T07:08:09+02:00"}  # fmt: skip
    commit = ask(
        "POST",
        f"{GIT}/commits",
        {
            "message": message,
            "tree": tree.at("sha"),
            "parents": [base.at("commit", "sha")],
            "author": who,
            "committer": who,
        },
    )
    ref = ask("POST", f"{GIT}/refs", {"ref": "refs/heads/a/b", "sha": commit.at("sha")})
    assert (tree.status, commit.status, ref.status) == (201, 201, 201)

    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "--quiet", str(world.source), str(clone))
    for path, content in new.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(content)
    (clone / "data.bin").unlink()
    run_git(clone, "add", "--all")
    assert run_git(clone, "write-tree") == tree.at("sha")
    raw = (
        f"tree {tree.at('sha')}\nparent {world.tip()}\n"
        "author Ada Löve <ada@example.org> 1746508089 +0200\n"
        f"committer Ada Löve <ada@example.org> 1746508089 +0200\n\n{message}"
    ).encode()
    same = hashlib.sha1(b"commit %d\0" % len(raw) + raw).hexdigest()  # noqa: S324  git's
    assert same == commit.at("sha") == run_git(world.fork.git.path, "rev-parse", "a/b")
    run_git(world.fork.git.path, "fsck", "--strict", "--no-dangling")


def test_forks_share_objects_but_no_refs(world: World) -> None:
    sha = world.change("mine")
    for path in (f"/repos/org/tool/commits/{sha}", f"/repos/org/tool/git/commits/{sha}"):
        assert world.raw()("GET", path).at("sha") == sha
    assert world.raw()("GET", "/repos/org/tool/git/ref/heads/mine").status == 404
    compared = world.raw()("GET", f"/repos/org/tool/compare/main...{sha}")
    assert compared.at("status") == "ahead", "it opens, and yet it is not reachable from main"


def test_a_lagging_fork_sees_upstream_after_merge_upstream(world: World) -> None:
    world.github.state.lagging_forks = True
    world.github.fork(world.upstream, world.bob)
    world.github.commit(world.upstream, "main", {"NEWS": b"new\n"})
    tip = world.raw()("GET", "/repos/org/tool/branches/main").at("commit", "commit", "tree", "sha")
    ask = world.raw(world.bob)
    row: JsonValue = {"path": "a", "mode": "100644", "type": "blob", "content": "a"}
    tree: JsonValue = {"base_tree": tip, "tree": [row]}
    refused = ask("POST", "/repos/bob/tool/git/trees", tree)
    assert (refused.status, refused.words()) == (422, "base_tree is not a valid tree oid")
    synced = ask("POST", "/repos/bob/tool/merge-upstream", {"branch": "main"})
    assert synced.at("merge_type") == "fast-forward"
    made = ask("POST", "/repos/bob/tool/git/trees", tree)
    assert made.status == 201
    commit: JsonValue = {"message": "m", "tree": made.at("sha"), "parents": [world.tip()]}
    sha = ask("POST", "/repos/bob/tool/git/commits", commit).at("sha")
    assert ask("GET", f"/repos/org/tool/git/commits/{sha}").status == 200, "upstream sees the fork"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"path": "a", "mode": "100644", "sha": "f" * 40}, "tree.sha f+ is not a valid blob"),
        ({"path": "a", "mode": "644", "content": ""}, "not a valid mode"),
        ({"path": "/a", "mode": "100644", "content": ""}, "malformed path component"),
        ({"path": "a/../b", "mode": "100644", "content": ""}, "malformed path component"),
        ({"path": ".GIT/config", "mode": "100644", "content": ""}, "malformed path component"),
        ({"path": "gone", "mode": "100644", "sha": None}, "BadObjectState"),
        ({"path": "a", "mode": "100644"}, "Must supply"),
        ({"mode": "100644", "content": ""}, '"path" wasn\'t supplied'),
    ],
)
def test_a_bad_row_of_a_tree(world: World, row: JsonValue, words: str) -> None:
    world.github.hooks.clear()  # what is sent here is not what GitHub describes
    before = world.fork.git.entries(world.tip())
    base = world.fork.git.commit(world.tip()).tree
    answer = world.raw(world.ada)("POST", f"{GIT}/trees", {"base_tree": base, "tree": [row]})
    assert answer.status == 422
    assert words.replace("f+", "f" * 40) in answer.words()
    assert world.fork.git.entries(world.tip()) == before


def test_trees_take_folders_deletions_and_replacements(world: World) -> None:
    git = world.fork.git
    base = git.commit(world.tip()).tree
    source = next(one.sha for one in git.entries(base) if one.path == "src")
    rows: list[JsonValue] = [
        {"path": "copy", "mode": "040000", "type": "tree", "sha": source},
        {"path": "bin", "mode": "040000", "type": "tree", "sha": None},
        {"path": "README.md/inside", "mode": "100644", "type": "blob", "content": "x"},
    ]
    made = world.raw(world.ada)("POST", f"{GIT}/trees", {"base_tree": base, "tree": rows})
    paths = {one.path for one in git.entries(str(made.at("sha")), recursive=True)}
    assert {"copy/core.py", "README.md/inside", "src/core.py"} <= paths
    assert not any(path.startswith("bin") for path in paths)


def test_refs_refuse_what_git_would(world: World) -> None:
    ask, tip = world.raw(world.ada), world.tip()
    old = run_git(world.source, "rev-parse", "v1")
    for body, words in (
        ({"ref": "heads/x", "sha": tip}, "not a valid ref name"),
        ({"ref": "refs/heads/..", "sha": tip}, "not a valid ref name"),
        ({"ref": "refs/heads/main", "sha": tip}, "Reference already exists"),
        ({"ref": "refs/heads/main/x", "sha": tip}, "Reference update failed"),
        ({"ref": "refs/heads/x", "sha": "e" * 40}, "Object does not exist"),
    ):
        answer = ask("POST", f"{GIT}/refs", dict(body))
        assert (answer.status, words in answer.words()) == (422, True), answer.words()
    back = ask("PATCH", f"{GIT}/refs/heads/main", {"sha": old})
    assert (back.status, back.words()) == (422, "Update is not a fast forward")
    assert ask("PATCH", f"{GIT}/refs/heads/main", {"sha": old, "force": True}).status == 200
    assert ask("PATCH", f"{GIT}/refs/heads/main", {"sha": tip}).status == 200
    missing = ask("PATCH", f"{GIT}/refs/heads/nothing", {"sha": tip})
    assert (missing.status, missing.words()) == (422, "Reference does not exist")
    commit: JsonValue = {"message": "m", "tree": tip, "parents": []}
    assert ask("POST", f"{GIT}/commits", commit).words() == "Tree SHA does not exist"
    commit = {"message": "m", "tree": world.fork.git.commit(tip).tree, "parents": ["a" * 40]}
    assert "Parent SHA does not exist" in ask("POST", f"{GIT}/commits", commit).words()


def test_names_with_spaces_and_accents_travel(world: World) -> None:
    ask = world.raw(world.ada)
    name = "fix/größe-ß"
    made = ask("POST", f"{GIT}/refs", {"ref": f"refs/heads/{name}", "sha": world.tip()})
    assert made.status == 201
    assert (
        ask("GET", f"{GIT}/ref/heads/fix%2Fgr%C3%B6%C3%9Fe-%C3%9F")
        .at("ref")
        .__str__()
        .endswith(name)
    )
    assert ask("GET", "/repos/ada/tool/branches/fix/gr%C3%B6%C3%9Fe-%C3%9F").at("name") == name
    file = ask(
        "GET",
        "/repos/org/tool/contents/src/na%C3%AFve%20name.py",
        Accept="application/vnd.github.raw",
    )
    assert file.body == FILES["src/naïve name.py"]


def test_blobs_as_they_are(world: World) -> None:
    sha = next(one.sha for one in world.upstream.git.entries(world.tip()) if one.path == "data.bin")
    path = f"/repos/org/tool/git/blobs/{sha}"
    raw = world.raw()("GET", path, Accept="application/vnd.github.v3.raw")
    assert raw.body == FILES["data.bin"]
    whole = world.raw()("GET", path)
    assert base64.b64decode(str(whole.at("content"))) == FILES["data.bin"]
    assert world.raw()("GET", f"/repos/org/tool/git/blobs/{world.tip()}").status == 404


def test_a_truncated_tree_says_so(world: World) -> None:
    world.upstream.truncate_trees = True
    path = f"/repos/org/tool/git/trees/{world.tip()}"
    recursive = world.raw()("GET", f"{path}?recursive=1")
    assert recursive.at("truncated") is True
    plain = world.raw()("GET", path)
    assert plain.at("truncated") is False
    names = {one.path for one in world.upstream.git.entries(world.tip())}
    rows = plain.at("tree")
    assert isinstance(rows, list)
    assert {one["path"] for one in rows if isinstance(one, dict)} == names


def test_an_empty_repository(world: World) -> None:
    world.github.add_repository("ada/empty")
    ask = world.raw(world.ada)
    answer = ask("POST", "/repos/ada/empty/git/blobs", {"content": "", "encoding": "utf-8"})
    assert (answer.status, answer.words()) == (409, "Git Repository is empty.")
    assert world.raw(world.bob)("POST", "/repos/ada/empty/forks").status == 403


def test_forks_that_take_their_time_and_names_that_are_taken(world: World) -> None:
    world.github.state.forks_ready_after = 2
    world.github.add_repository("bob/tool")
    ask = world.raw(world.bob)
    made = ask("POST", "/repos/org/tool/forks")
    assert (made.status, made.at("full_name")) == (202, "bob/tool-1")
    assert [ask("GET", "/repos/bob/tool-1").status for _ in range(3)] == [404, 404, 200]
    again = ask("POST", "/repos/org/tool/forks")
    assert again.at("full_name") == "bob/tool-1", "there is one already"
    assert ask("GET", "/repos/bob/tool").at("fork") is False


def test_merge_upstream_merges_or_conflicts(world: World) -> None:
    world.github.commit(world.fork, "main", {"mine": b"1\n"}, who=world.ada)
    world.github.commit(world.upstream, "main", {"theirs": b"1\n"})
    ask, path = world.raw(world.ada), "/repos/ada/tool/merge-upstream"
    assert ask("POST", path, {"branch": "main"}).at("merge_type") == "merge"
    assert len(world.fork.git.commit(world.tip(where=world.fork)).parents) == 2
    world.github.commit(world.fork, "main", {"same": b"1\n"}, who=world.ada)
    world.github.commit(world.upstream, "main", {"same": b"2\n"})
    tip = world.tip(where=world.fork)
    conflict = ask("POST", path, {"branch": "main"})
    assert (conflict.status, conflict.words()) == (409, "There are merge conflicts")
    assert world.tip(where=world.fork) == tip
    assert ask("POST", path, {"branch": "nothing"}).status == 404
