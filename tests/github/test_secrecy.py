"""After each fault the token is in no message, log, traceback or file."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from github import BadAttributeException

from contribbot.errors import ContribbotError, GitHubError
from contribbot.github.client import GitHub as Client
from contribbot.github.pull_state import read_pull_state
from tests.github import faults as f
from tests.github.wire import Answer
from tests.github.world import Patience, World, client


def everything(error: BaseException) -> str:
    """Return all that a traceback, its causes and their attributes have to show."""
    shown = [*traceback.format_exception(error), str(error), repr(error), repr(vars(error))]
    for cause in filter(None, (error.__cause__, error.__context__)):
        assert isinstance(cause, ContribbotError | BadAttributeException | AttributeError), (
            f"{cause!r} may hold the request"
        )
        shown.append(everything(cause))
    return "\n".join(shown)


def quotes(name: str, answer: Callable[[str], Answer]) -> f.Fault:
    """Make a fault that answers with the token in it."""
    return f.Fault(
        name, before=lambda request: answer(request.headers["authorization"].partition(" ")[2])
    )


FAULTS = [
    *f.WIRE_FAULTS, f.primary_limit(9999),
    quotes("echo", lambda it: Answer(
        400, {"message": f"bad {it}", "errors": [it, {"message": it}], it: it},
        {"Link": f'<https://{it}>; rel="next"', "X-OAuth-Scopes": it},
    )),
    quotes("redirect", lambda it: Answer(301, {}, {"Location": f"https://example.org/{it}"})),
    quotes("shape", lambda it: Answer(200, {it: it, "login": [it]}, {"ETag": f'"{it}"'})),
]  # fmt: skip
CALLS: dict[str, Callable[[Client], object]] = {
    "me": lambda ours: ours.me,
    "pull": lambda ours: ours.pull("org/tool#1").title,
    "state": lambda ours: read_pull_state(ours, "org/tool", 1),
    "create_blob": lambda ours: ours.repository("author/project").create_git_blob("eA==", "base64"),
    "move_ref": lambda ours: ours.move_ref("R_1", "fix", old="1" * 40, new="2" * 40),
    "create_pull": lambda ours: ours.repository("org/tool").create_pull(
        "main", "ada:fix", title="T", body="B", draft=True
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_token_is_nowhere(world: World, caplog: pytest.LogCaptureFixture, call: str) -> None:
    caplog.set_level(logging.DEBUG)
    token = world.ada.tokens[0].text
    assert world.pull.number == 1
    for fault in FAULTS:
        caplog.clear()
        world.faults.clear()
        world.faults.struck.clear()
        world.faults.arm(fault, times=0)
        shown = []
        try:
            with client(world.github, token, waits=Patience().waits(attempts=2)) as ours:
                shown.append(repr(ours.requester))
                CALLS[call](ours)
        except GitHubError as error:
            shown += [everything(error), error.hint]
        assert world.faults.struck, fault
        shown += [record.getMessage() for record in caplog.records]
        assert any(line.startswith(("GET", "POST")) for line in shown), "--debug shows requests"
        shown += os.environ.values()
        assert token not in "\n".join(shown), fault


def test_the_password_of_a_proxy_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.MonkeyPatch.context() as context:
        context.setenv("https_proxy", "http://me:hunter2@127.0.0.1:9")  # nobody is there
        for name in ("no_proxy", "NO_PROXY"):
            context.delenv(name, raising=False)
        with (
            client("https://github.invalid/api", "x", waits=Patience().waits(attempts=2)) as ours,
            pytest.raises(GitHubError, match="the proxy does not let it through") as caught,
        ):
            assert ours.me
    assert "hunter2" not in "\n".join([everything(caught.value), caught.value.hint, caplog.text])


def test_git_is_started_without_the_token_when_its_library_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho git version 2.39.0\n")
    (tmp_path / "git").chmod(0o755)
    load = "from contribbot.git import repository; repository._repo_type()"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_TOKEN": "ghp_x", "KEPT": "1"}
    subprocess.run([sys.executable, "-c", load], env=env, check=True)
    seen = (tmp_path / "seen").read_text()
    assert "KEPT=1" in seen
    assert "ghp_x" not in seen
