from __future__ import annotations

import logging
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.pins import Provided
from contribbot.model.patch import GitSource

from .conftest import Kit, git


class Remote:
    """A bare repository with two commits; `v1.0` is annotated, `v1.1` is lightweight."""

    def __init__(self, folder: Path) -> None:
        work = folder / "work"
        work.mkdir(parents=True)
        git(work, "init", "-q", "-b", "main")
        (work / "a.txt").write_bytes(b"one\n")
        git(work, "add", ".")
        git(work, "commit", "-q", "-m", "one")
        (work / "sub").mkdir()
        (work / "sub" / "crlf.txt").write_bytes(b"two\r\n")
        (work / "run.sh").write_bytes(b"#!/bin/sh\n")
        (work / "run.sh").chmod(0o755)
        (work / "link").symlink_to("sub/crlf.txt")
        (work / ".gitattributes").write_bytes(b"*.txt text eol=lf\n")
        # In the index as the file is, whatever the attributes say.
        git(work, "-c", "core.attributesFile=/dev/null", "add", "--no-renormalize", ".")
        git(work, "commit", "-q", "-m", "two")
        git(work, "tag", "-a", "v1.0", "-m", "release")
        git(work, "tag", "v1.1")
        self.commit = git(work, "rev-parse", "HEAD")
        self.parent = git(work, "rev-parse", "HEAD~1")
        self.tree = git(work, "rev-parse", "HEAD^{tree}")
        self.path = folder / "owner" / "demo"
        git(work, "clone", "-q", "--bare", work, self.path)


@pytest.fixture
def remote(kit: Kit, patch: pytest.MonkeyPatch) -> Remote:
    home = kit.folder / "git-home"
    home.mkdir()
    patch.setenv("HOME", str(home))
    for name in ("GITHUB_SERVER_URL", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "XDG_CONFIG_HOME"):
        patch.delenv(name, raising=False)
    return Remote(kit.folder / "remote")


def bring(kit: Kit, remote: str, *, tag: str = "v1.0", commit: str | None = None) -> Provided:
    return kit.provide(GitSource(kind="git", remote=remote), tag=tag, commit=commit)


@pytest.mark.parametrize("tag", ["v1.0", "v1.1"])
@pytest.mark.parametrize("scheme", ["file://", ""])
def test_a_tag_gives_the_upstreams_own_commit(
    kit: Kit, remote: Remote, tag: str, scheme: str
) -> None:
    found = bring(kit, f"{scheme}{remote.path}", tag=tag, commit=remote.commit)
    assert (found.commit, found.tree, found.fresh) == (remote.commit, remote.tree, True)
    assert found.detail == f"{scheme}{remote.path} commit {remote.commit}"
    assert not bring(kit, f"{scheme}{remote.path}", tag=tag, commit=remote.commit).fresh


def test_the_tree_is_complete_and_alone_when_the_remote_is_gone(kit: Kit, remote: Remote) -> None:
    found = bring(kit, f"file://{remote.path}")
    remote.path.rename(remote.path.with_name("gone"))
    files = kit.files(found.tree)
    assert files["run.sh"][0] == "100755"
    assert files["link"] == ("120000", b"sub/crlf.txt")
    assert not kit.store.has(remote.parent)  # shallow
    assert kit.store.git("for-each-ref", "--format=%(refname)").stdout.count(b"\n") == 1


def test_the_default_remote_is_the_upstreams_on_the_configured_server(
    kit: Kit, remote: Remote, patch: pytest.MonkeyPatch
) -> None:
    # No tag names the commit any more: it is fetched by its id.
    git(remote.path, "tag", "-d", "v1.0")
    patch.setenv("GITHUB_SERVER_URL", f"file://{remote.path.parent.parent}/")
    assert bring(kit, "", commit=remote.commit).commit == remote.commit


def test_a_moved_tag_is_refused_before_anything_is_fetched(kit: Kit, remote: Remote) -> None:
    with pytest.raises(IntegrityError) as caught:
        bring(kit, f"file://{remote.path}", commit=remote.parent)
    assert f"expected {remote.parent}, got {remote.commit}" in caught.value.message
    assert kit.nothing_landed()


def test_a_tag_that_moved_since_it_was_fetched_is_an_error(kit: Kit, remote: Remote) -> None:
    held = bring(kit, f"file://{remote.path}")
    assert not bring(kit, f"file://{remote.path}").fresh
    git(remote.path, "tag", "-f", "v1.0", remote.parent)

    with pytest.raises(IntegrityError) as caught:
        bring(kit, f"file://{remote.path}")
    assert f"v1.0 was moved from {held.commit}" in caught.value.message
    assert caught.value.message.endswith(f"to {remote.parent}")
    assert "pin the commit" in caught.value.hint

    assert bring(kit, f"file://{remote.path}", commit=remote.parent).commit == remote.parent
    remote.path.rename(remote.path.with_name("gone"))
    assert bring(kit, f"file://{remote.path}") == replace(held, fresh=False)


@pytest.mark.parametrize(
    ("url", "commit", "words"),
    [("", None, r"no tag v9\.9"), ("", "0" * 40, "0" * 40), ("file:///nowhere", None, "/nowhere")],
    ids=["tag", "commit", "repository"],
)
def test_what_is_missing_is_named(
    kit: Kit, remote: Remote, url: str, commit: str | None, words: str
) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        bring(kit, url or f"file://{remote.path}", tag="v9.9", commit=commit)
    assert "\n" not in caught.value.message
    assert kit.nothing_landed()


def test_an_unreachable_server_is_named_without_its_password(
    kit: Kit, remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    assert remote.path.is_dir()
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SourceError, match=f"http://127.0.0.1:{port}/x") as caught:
        bring(kit, f"http://me:s3cr%40et@127.0.0.1:{port}/x.git")
    shown = caught.value.message + caught.value.hint + caplog.text
    assert "s3cr" not in shown
    assert "me:" not in shown


def test_the_users_configuration_reaches_the_network_and_nothing_else(
    kit: Kit, remote: Remote
) -> None:
    home = kit.folder / "git-home"
    hooks = home / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {home}/ran\n")
        (hooks / name).chmod(0o755)
    bring(kit, f"file://{remote.path}", tag="v1.1")
    (home / ".gitconfig").write_text(
        f'[url "file://{remote.path}"]\n\tinsteadOf = https://mirrored.invalid/demo\n'
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n\tfsmonitor = true\n"
        "[fetch]\n\tprune = true\n\tpruneTags = true\n\trecurseSubmodules = true\n"
        "\twriteCommitGraph = true\n[remote]\n\tpushDefault = origin\n"
    )
    found = bring(kit, "https://mirrored.invalid/demo")
    assert found.tree == remote.tree
    assert not (home / "ran").exists()
    refs = kit.store.git("for-each-ref", "--format=%(refname)").stdout.decode().split()
    assert [ref.rpartition("/")[0] for ref in refs] == ["refs/pins/v1.0", "refs/pins/v1.1"]
    assert not list(kit.store.path.glob("objects/info/commit-graph*"))
    assert kit.files(found.tree)["sub/crlf.txt"][1] == kit.files(remote.tree)["sub/crlf.txt"][1]


def test_locks_that_a_killed_fetch_left_do_not_stop_the_next(kit: Kit, remote: Remote) -> None:
    store = kit.store
    (store.path / "shallow.lock").write_bytes(b"")
    (store.path / "refs" / "incoming").mkdir()
    (store.path / "refs" / "incoming" / "pin.lock").write_bytes(b"")
    assert bring(kit, f"file://{remote.path}").commit == remote.commit
