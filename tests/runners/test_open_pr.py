"""open-pr.yml, run: what a person has attested is pushed to the fork, and nothing else is done."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.contribute.flow import Person
from tests.contribute.gatetoy import Proved, edit, make_table
from tests.github.handle import GitHub
from tests.runners.acting import RUNNERS, Act, Acted, put_under_act, requirements

WRITES = {"POST", "PUT", "PATCH", "DELETE"}


class Desk:
    """A person whose attested queue is a repository, and the workflow that they start."""

    def __init__(self, person: Person, act: Act, token: str) -> None:
        self.person, self.act, self.token = person, act, token

    def __call__(self, patches: str) -> Acted:
        base = self.person.table.github.base
        return self.act(
            "workflow_dispatch", "open-pr.yml", "--input", f"patches={patches}",
            "--secret", f"CONTRIBBOT_FORK_TOKEN={self.token}",
            GITHUB_API_URL=base, GITHUB_SERVER_URL=base,
        )  # fmt: skip

    def kept(self) -> dict[str, bytes]:
        """Return the files of the artifact."""
        with zipfile.ZipFile(self.act.artifacts / "contribbot-open-pr.zip") as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def writes(self) -> list[str]:
        """Return the requests that change something."""
        asked = self.person.table.github.requests
        return [f"{each.method} {each.path}" for each in asked if each.method in WRITES]


#: Few words, as a body must have, and more than the address of a page has room for.
LONG = f"{'Areas' + 'aresums' * 60}. " * 24 + "Areas are sums."


@pytest.fixture
def desk(proved: Proved, github: GitHub, tmp_path: Path) -> Desk:
    toy = proved.copy(tmp_path)
    edit(toy, 'problem = "Areas are sums."', f'problem = "{LONG}"')
    table = make_table(toy, github)
    person = Person(table)
    person.attest()
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", requirements(tmp_path / "wheels"))
    person("runners", "workflows", "install")
    github.fork(table.upstream, table.me)
    token = github.add_token(table.me, repositories=["ada/toy"], permissions=["contents"])
    desk = Desk(person, put_under_act(toy, tmp_path / "act"), token)
    github.requests.clear()
    return desk


@pytest.mark.slow
def test_a_branch_and_a_page_and_a_journal(desk: Desk) -> None:
    ran = desk("area")

    assert ran.code == 0, ran.said
    assert desk.person.fork.git.ref("refs/heads/contribbot/area") is not None
    assert desk.person.table.upstream.pulls() == []
    assert re.search(r"http\S+/example/toy/compare/main\.\.\.ada:contribbot/area", ran.said)
    # No name of the token, and none of the queue's own.
    assert desk.token not in ran.said
    assert all("/repos/ada/toy/" in each or each == "POST /graphql" for each in desk.writes())
    # What was pushed is noted where a person finds it.
    kept = desk.kept()
    journal = [name for name in kept if name.startswith("history/area/")]
    assert journal
    assert LONG.encode() in kept["handoff/area.md"]
    assert desk.token.encode() not in b"".join(kept.values())
