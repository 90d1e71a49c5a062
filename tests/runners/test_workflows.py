"""The workflows, judged by real tools and by what they must never have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from pydantic import JsonValue
from ruamel.yaml import YAML

from contribbot.runners.actions import templates_folder
from tests.runners import lint

WORKFLOWS: Final = sorted(templates_folder().glob("*.yml"))
TOOLS: Final = (lint.zizmor, lint.against_schema)
#: What each tool must find, so that its silence says something.
BAD: Final = """\
name: bad
on: [pull_request_target]
jobs:
  one:
    runs-on: ubuntu-22.04
    step:
      - run: true
    steps:
      - uses: actions/checkout@v4
      - run: echo "${{ github.event.pull_request.title }}"
"""


def parsed(path: Path) -> dict[str, JsonValue]:
    """Return a workflow as plain JSON; YAML 1.2, so that `on` is a word."""
    found: dict[str, JsonValue] = json.loads(json.dumps(YAML(typ="safe").load(path)))
    return found


def table(value: JsonValue) -> dict[str, JsonValue]:
    """Return a mapping that must be one."""
    assert isinstance(value, dict)
    return value


def jobs(path: Path) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Give the jobs of a workflow."""
    for name, job in table(parsed(path)["jobs"]).items():
        yield f"{path.stem}/{name}", table(job)


def steps(job: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    """Return the steps of a job."""
    found = job["steps"]
    assert isinstance(found, list)
    return [table(each) for each in found]


ALL_JOBS: Final = [each for path in WORKFLOWS for each in jobs(path)]
#: Jobs that run code of patches or upstreams.
RUN_CODE: Final = {
    "verify/compile", "verify/gpu", "rebase/look", "emulate/sweep",
}  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_a_tool_finds_nothing(tool: Callable[[Sequence[Path]], list[str]]) -> None:
    assert tool(WORKFLOWS) == []


@pytest.mark.parametrize(
    ("tool", "finds"),
    [
        (lint.zizmor, "template-injection|dangerous-triggers|unpinned-uses"),
        (lint.against_schema, "step"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_tool_finds_what_is_bad(
    tool: Callable[[Sequence[Path]], list[str]], finds: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.yml").write_text(BAD, encoding="utf-8")
    assert re.search(finds, "\n".join(tool([tmp_path / "bad.yml"])))


def test_what_a_job_said_is_no_command_where_there_is_a_token() -> None:
    shown = [
        (name, step)
        for name, job in ALL_JOBS
        for step in steps(job)
        if '/contribbot" runners collect' in str(step.get("run"))
    ]
    assert [name for name, _ in shown] == ["verify/collect"]
    for _, step in shown:
        script = str(step["run"])
        assert script.index("::stop-commands::$(od") < script.index('contribbot" runners collect')


def test_a_workflow_starts_with_nothing_and_not_for_strangers() -> None:
    assert [path.name for path in WORKFLOWS] == [
        "emulate.yml", "open-pr.yml", "rebase.yml", "verify.yml",
    ]  # fmt: skip
    commits = set()
    for path in WORKFLOWS:
        workflow, text = parsed(path), path.read_text()
        assert workflow["permissions"] == {}
        assert set(table(workflow["on"])) <= {"workflow_dispatch", "schedule", "push"}
        assert "concurrency" in workflow
        # Every permission says why.
        granted = re.findall(r"^ {6}[a-z-]+: (?:read|write)(.*)$", text, re.MULTILINE)
        assert granted
        assert all(re.match(r" # \w.{10,}", why) for why in granted)
        # Every action is one commit, the same everywhere, and its release is named.
        used = re.findall(r"uses: *(.*)", text)
        assert used
        assert all(
            re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", it) for it in used
        )
        commits.update(used)
    assert len(commits) == len({each.partition("@")[0] for each in commits})


def test_only_the_main_branch_speaks_for_the_queue() -> None:
    main = "github.ref == format('refs/heads/{0}', github.event.repository.default_branch)"
    guards = {name: " ".join(str(job.get("if", "")).split()) for name, job in ALL_JOBS}
    assert guards["open-pr/open"] == main
    # A schedule's event names no repository; it runs on the main branch alone.
    assert guards["rebase/look"] == f"github.event_name == 'schedule' || {main}"


def test_what_verify_takes_and_what_a_push_ends() -> None:
    (verify,) = (parsed(path) for path in WORKFLOWS if path.stem == "verify")
    inputs = table(table(table(verify["on"])["workflow_dispatch"])["inputs"])
    assert set(inputs) == {"patches", "targets", "everything"}
    concurrency = table(verify["concurrency"])
    assert concurrency["cancel-in-progress"] == "${{ github.event_name == 'push' }}"
    # The night's ref is that of a push to main.
    assert "${{ github.event_name }}" in str(concurrency["group"])


@pytest.mark.parametrize(("name", "job"), ALL_JOBS, ids=[name for name, _ in ALL_JOBS])
def test_what_a_job_may(name: str, job: dict[str, JsonValue]) -> None:
    text, rights = json.dumps(job), table(job["permissions"])
    assert job["timeout-minutes"]
    # No cache that another could poison.
    assert "actions/cache" not in text
    for step in steps(job):
        # Nothing is interpolated into a script.
        assert "${{" not in str(step.get("run", ""))
        assert "cache" not in table(step.get("with", {}))
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert table(step["with"])["persist-credentials"] is False
    # Who may write runs no contribbot and no checkout.
    writes = "write" in rights.values()
    assert writes is (name in {"rebase/tell", "verify/attest"})
    assert not (writes and re.search("checkout|contribbot/bin", text))
    # A job that runs code of a patch has nothing to steal: no token by any of its names.
    if name in RUN_CODE:
        assert rights in ({}, {"contents": "read"})
        assert not re.search(r"secrets|github\.token", text)
        assert "environment" not in job
    # The one secret is in one step, behind a person's approval.
    assert ("secrets." in text) is (name == "open-pr/open")
    if name == "open-pr/open":
        assert (job["environment"], job["runs-on"]) == ("contribbot-open-pr", "ubuntu-24.04")
        assert len([step for step in steps(job) if "secrets." in json.dumps(step)]) == 1
