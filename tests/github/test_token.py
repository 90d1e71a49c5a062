"""Tokens are found without a prompt, and never shown; servers are chosen safely."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from contribbot.errors import TokenError, UsageError
from contribbot.github import auth as token_module
from contribbot.github.auth import Secret, Server, Token, find_server, find_token
from tests.github.faults import says
from tests.github.world import World, client

TEXT = "ghp_0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def home(tmp_path: Path) -> Mapping[str, str]:
    """An environment of a person who has nothing configured; programs go to bin/."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "person").mkdir()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path / "person"), "GIT_CONFIG_NOSYSTEM": "1"}


def program(home: Mapping[str, str], name: str, script: str) -> None:
    path = Path(home["PATH"].split(os.pathsep)[0]) / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def helper(home: Mapping[str, str], script: str) -> None:
    """Configure a credential helper of git's."""
    program(home, "git-credential-kept", script)
    (Path(home["HOME"]) / ".gitconfig").write_text(
        "[credential]\n\thelper = kept\n", encoding="utf-8"
    )


def test_a_secret_never_shows_itself() -> None:
    secret = Secret(TEXT)
    token = Token(secret, "GITHUB_TOKEN")
    shown = f"{secret} {secret!r} {secret!s:>40} {token} {token!r} {[secret]} {vars(token)}"
    assert TEXT not in shown
    with pytest.raises(TypeError) as caught:
        json.dumps(dataclasses.asdict(token))
    assert TEXT not in str(caught.value)
    assert secret.scrub(f"bad token {TEXT}!") == "bad token ***!"


def test_variables_come_first_then_gh_then_git(home: Mapping[str, str]) -> None:
    helper(
        home,
        'test "$1" = get && grep -q host=github.com && echo username=me && echo password=from-git',
    )
    assert find_token(Server(), home).source == "`git credential fill`"  # gh is not there
    for gh, given, text, source in (
        ("echo from-gh", {"GITHUB_TOKEN": "one", "GH_TOKEN": "two"}, "one", "GITHUB_TOKEN"),
        ("echo from-gh", {"GITHUB_TOKEN": "", "GH_TOKEN": "two"}, "two", "GH_TOKEN"),
        ("echo from-gh", {}, "from-gh", "`gh auth token`"),
        ("echo no token >&2; exit 1", {}, "from-git", "`git credential fill`"),
    ):
        program(home, "gh", gh)
        token = find_token(Server(), {**home, **given})
        assert (token.secret.get_secret_value(), token.source) == (text, source)
    program(home, "gh", 'echo "$GH_PROMPT_DISABLED-$2-$3-$4"')
    server = find_server({"GITHUB_API_URL": "https://git.example.org/api/v3"})
    token = find_token(server, home)
    assert token.secret.get_secret_value() == "1-token---hostname-git.example.org"


def test_no_token_is_an_error_and_no_prompt(home: Mapping[str, str], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program(home, "askpass", f"touch {asked}; echo hunter2")
    askpass = Path(home["PATH"].split(os.pathsep)[0]) / "askpass"
    Path(home["HOME"], ".gitconfig").write_text(f"[core]\n\taskPass = {askpass}\n")
    with pytest.raises(TokenError) as caught:
        find_token(Server(), home)
    assert not asked.exists()
    assert caught.value.message == "no GitHub token for github.com"
    assert "public_repo" in caught.value.hint
    assert "gh auth login --hostname github.com" in caught.value.hint


def test_a_helper_that_hangs_is_left(
    home: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_module, "_PATIENCE", 0.5)
    helper(home, "exec sleep 60")
    started = time.monotonic()
    with pytest.raises(TokenError, match=r"`git credential fill` did not answer in 0\.5 s"):
        find_token(Server(), home)
    assert time.monotonic() - started < 20


def test_what_can_be_no_token_is_refused_and_not_shown(home: Mapping[str, str]) -> None:
    helper(home, f"printf 'username=me\npassword={TEXT}\\x01 and more\\n'")
    rows = [f"{TEXT}\n", f" {TEXT}", f"{TEXT}\x1b[2J", f"{TEXT}\u00e9", f"a b{TEXT}", TEXT * 40]
    for env, source in (
        *(({**home, "GITHUB_TOKEN": text}, "GITHUB_TOKEN") for text in rows),
        (home, "`git credential fill`"),
    ):
        with pytest.raises(TokenError, match=f"what {source} gives can be no token") as caught:
            find_token(Server(), env)
        assert TEXT not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"


@pytest.mark.parametrize(
    ("said", "api", "web"),
    [
        ("", "https://api.github.com", "https://github.com"),
        ("https://API.github.com/", "https://api.github.com", "https://github.com"),
        ("https://api.octo.ghe.com", "https://api.octo.ghe.com", "https://octo.ghe.com"),
        ("https://git.example.org/api/v3/", "https://git.example.org/api/v3",
         "https://git.example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:1", "http://localhost:1", "http://localhost:1"),
    ],
)  # fmt: skip
def test_servers(said: str, api: str, web: str) -> None:
    assert find_server({"GITHUB_API_URL": said}) == Server(api, web)


@pytest.mark.parametrize(
    "said",
    [
        "http://github.example.org/api/v3", "ftp://api.github.com", "api.github.com",
        "https://user:hunter2@api.github.com", "https://api.github.com?x=1", "https://",
        "https://api.github.com:port", "https://a b.example.org", "http://127.0.0.1.example.org",
        "http://[::1", "https://api.github.com/#x", "https://api.github.com/\x1b[2J",
        "https://api.github.com/?access_token=hunter2", "http://github.example.org/?t=hunter2",
        "https://api.github.com/#hunter2", "https://github.com", "https://github.com/api/v3",
        "http://[::1]:8080/", "https://[2001:db8::1]/api/v3",
    ],
)  # fmt: skip
def test_unsafe_servers_are_refused(said: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_server({"GITHUB_API_URL": said})
    assert "GITHUB_API_URL" in caught.value.message
    assert "hunter2" not in str(caught.value)
    assert caught.value.message.isprintable()


def test_a_token_that_may_not_says_what_it_lacks(world: World) -> None:
    has = {"X-OAuth-Scopes": "read:user", "X-Accepted-OAuth-Scopes": "public_repo, repo"}
    for status, words in ((403, "Resource not accessible"), (404, "Not Found")):
        world.faults.arm(says(status, {"message": words}, lambda: {**has}), path="/forks$")
        with client(world.github, "ghp_weak") as ours, pytest.raises(TokenError) as caught:
            ours.repository("org/tool").create_fork()
        assert "the token from GITHUB_TOKEN lacks the scope public_repo" in caught.value.message
        assert "add public_repo" in caught.value.hint
    narrow = world.github.add_token(world.ada, repositories=["ada/tool"])
    sha = world.change("topic")
    with client(world.github, narrow) as ours:
        ours.repository("ada/tool").create_git_ref("refs/heads/other", sha)
        with pytest.raises(TokenError, match="pull_requests=write") as caught:
            ours.repository("org/tool").create_pull("main", "ada:topic", title="T", body="")
        assert "--handoff" in caught.value.hint
        with pytest.raises(TokenError, match="contents=write") as other:
            ours.repository("org/tool").create_git_ref("refs/heads/other", sha)
    # `--handoff` helps only to open a pull request.
    assert "handoff" not in other.value.hint
    assert other.value.hint.startswith("give the token that permission")
