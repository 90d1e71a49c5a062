"""When the jobs that speak for the queue run: as act reads the workflows, on events that differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.conftest import Program
from tests.runners.acting import RUNNERS, Act, put_under_act
from tests.toy import Toy

#: The steps of a job, whatever they do.
STEPS = re.compile(r"^ {4}steps:\n(?: {6}.*\n|\n)+", re.MULTILINE)
#: What act says of a step; what a step writes in its last milliseconds, act may lose.
RAN = "⭐ Run Main echo it ran"
PINNED = f"contribbot==0.1.0 --hash=sha256:{'a' * 64}\n"
#: act makes up what is not said; GitHub does not: a schedule's event tells of no repository.
NOTHING: dict[str, JsonValue] = {"default_branch": ""}
MAIN: dict[str, JsonValue] = {"default_branch": "main"}


@pytest.fixture
def act(toy: Toy, program: Program, tmp_path: Path) -> Act:
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", PINNED)
    assert program("runners", "workflows", "install").code == 0
    for path in (toy.queue / ".github/workflows").glob("[or]*.yml"):
        text, count = STEPS.subn("    steps:\n      - run: echo it ran\n\n", path.read_text())
        assert count == {"rebase.yml": 2, "open-pr.yml": 1}[path.name]
        path.write_text(text)
    return put_under_act(toy, tmp_path / "act")


@pytest.mark.parametrize(
    ("workflow", "event", "repository", "ref", "runs"),
    [
        ("rebase.yml", "schedule", NOTHING, "refs/heads/main", True),
        ("rebase.yml", "workflow_dispatch", MAIN, "refs/heads/main", True),
        ("rebase.yml", "workflow_dispatch", MAIN, "refs/heads/mine", False),
        ("rebase.yml", "workflow_dispatch", MAIN, "refs/tags/main", False),
        ("open-pr.yml", "workflow_dispatch", MAIN, "refs/heads/main", True),
        ("open-pr.yml", "workflow_dispatch", MAIN, "refs/heads/mine", False),
        ("open-pr.yml", "workflow_dispatch", MAIN, "refs/tags/main", False),
    ],
)
def test_only_the_main_branch_speaks_for_the_queue(
    act: Act, workflow: str, event: str, repository: JsonValue, ref: str, *, runs: bool
) -> None:
    said = act.home / "event.json"
    said.write_text(json.dumps({"ref": ref, "repository": repository}))

    ran = act(event, workflow, "--eventpath", str(said), GITHUB_REF=ref)

    assert ran.code == 0, ran.said
    assert (RAN in ran.said) is runs, ran.said
