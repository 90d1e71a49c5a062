"""The workflows, run: act schedules them on this machine, which can do only CPU and compile."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.runners.model import JobDone, Plan
from tests.hiptoy import LONG, QUICK, entry, put_kernel, seen_once
from tests.runners.acting import RUNNERS, Act, put_under_act, requirements
from tests.toy import CHECKS, FAIL_TO_PASS, PASS_TO_PASS, git

if TYPE_CHECKING:
    from tests.conftest import Program
    from tests.github.handle import GitHub
    from tests.toy import Toy

#: The last has no runner.
TARGETS = ("gfx942", "gfx1100", "gfx90a")
GPU_CHECK = """\
[[checks]]
name = "on-{target}"
file = "test_{target}.py"
expect = "fail-to-pass"
reason = "^AssertionError: assert 5 == "
requires = ["{target}"]
"""
pytestmark = pytest.mark.slow
TITLE = "What the newest upstream releases make of this queue"


@pytest.fixture(scope="session")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a pinned requirement of this contribbot, built once."""
    return requirements(tmp_path_factory.getbasetemp() / "wheels")


@pytest.fixture
def installed(toy: Toy, program: Program, pinned: str) -> Toy:
    """A queue of two patches for several targets, its workflows installed."""
    put_kernel(toy, LONG)
    gpus = "\n".join(GPU_CHECK.format(target=target) for target in TARGETS)
    files = {f"test_{target}.py": FAIL_TO_PASS for target in TARGETS}
    files |= {"test_red.py": FAIL_TO_PASS, "test_same.py": PASS_TO_PASS}
    toy.put_patch("area", checks=f"{CHECKS}\n{gpus}", check_files=files)
    patch = toy.format_patch({"csrc/scale.hip": QUICK})
    toy.put_patch("scale", patch=patch, files=("csrc/scale.hip",),
                  checks=entry(targets=("gfx942",)), check_files={})  # fmt: skip
    toy.put_queue(["area", "scale"])
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", pinned)
    ran = program("workflows", "install")
    assert ran.code == 0, ran.err
    return toy


@pytest.fixture
def act(installed: Toy, tmp_path: Path) -> Act:
    return put_under_act(installed, tmp_path / "act")


def opened(act: Act, job: str) -> tuple[JobDone, dict[str, bytes]]:
    """Return what the artifact of a job says, and its records."""
    with zipfile.ZipFile(act.artifacts / f"contribbot-{job}.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return JobDone.model_validate_json(files.pop("job.json")), files


def plan_of(act: Act) -> Plan:
    with zipfile.ZipFile(act.artifacts / "contribbot-plan.zip") as archive:
        return Plan.model_validate_json(archive.read("plan.json"))


def test_plan_matrix_verify(act: Act, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen_once(tmp_path_factory)
    ran = act("workflow_dispatch", "verify.yml", "--job", "gpu")

    # This machine has no GPU: what needs one fails as a job, and says why.
    assert ran.code == 1, ran.said
    plan = plan_of(act)
    assert [job.id for job in plan.jobs] == [
        "compile-rocm7.1-1", "gfx942-rocm7.1-1", "gfx1100-rocm7.1-1",
    ]  # fmt: skip
    assert [(each.patch, each.target) for each in plan.open] == [("area", "gfx90a")]
    assert {each.stem for each in act.artifacts.iterdir()} == {
        "contribbot-plan", *(job.artifact for job in plan.jobs),
    }  # fmt: skip

    compiled, records = opened(act, "compile-rocm7.1-1")
    assert (compiled.exit_code, [each.patch for each in compiled.patches]) == (0, ["scale"])
    commit = git(act.queue, "rev-parse", "HEAD").decode().strip()
    assert compiled.run is not None
    assert (compiled.run.commit, compiled.run.repository) == (commit, "example/queue")
    (record,) = records.values()
    said = json.loads(record)["predicate"]["contribbot"]
    assert said["run"]["job"] == "compile-rocm7.1-1"
    assert said["container"]["image"] == plan.jobs[0].image

    for job in plan.jobs[1:]:
        done, records = opened(act, job.id)
        assert done.exit_code == 3
        (fault,) = done.patches[0].faults
        assert (fault.target, fault.fault.kind) == (job.target, "gpu-not-visible")
        (record,) = records.values()
        assert json.loads(record)["predicate"]["result"] != "FAILED"
        assert set(TARGETS) <= set(json.loads(record)["predicate"]["contribbot"]["open"])


def test_a_selection_reaches_the_plan_and_no_shell(act: Act) -> None:
    ran = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", "patches=scale")
    assert ran.code == 0, ran.said
    assert [job.id for job in plan_of(act).jobs] == ["compile-rocm7.1-1"]

    (act.artifacts / "contribbot-plan.zip").unlink()
    ran = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", "targets= radeon ")
    assert ran.code == 0, ran.said
    assert [job.id for job in plan_of(act).jobs] == ["gfx1100-rocm7.1-1"]

    (act.artifacts / "contribbot-plan.zip").unlink()
    bad = '$(touch "$ARTIFACTS/gone") ;touch${IFS}$ARTIFACTS/gone; --all'
    ran = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", f"patches={bad}")
    assert ran.code == 1
    assert list(act.artifacts.iterdir()) == []


def test_the_night_tells_in_one_issue(act: Act, installed: Toy, github: GitHub) -> None:
    bot = github.add_user("github-actions[bot]", kind="Bot")
    queue = github.add_repository("example/queue", act.queue, members={bot.login: "write"})
    token = github.add_token(bot, repositories=["example/queue"], permissions=["issues"])
    # A release that has the change already, and text that would be more than text.
    newer = "def rectangle(width, height):\n    return width * height\n"
    installed.write("src/toy/area.py", newer)
    git(installed.upstream, "commit", "-q", "-a", "-m", "Toy 2.0")
    git(installed.upstream, "tag", "v2.0")

    for _ in range(2):
        (act.artifacts / "contribbot-rebase.zip").unlink(missing_ok=True)
        ran = act("schedule", "rebase.yml", "--secret", f"GITHUB_TOKEN={token}",
                  GITHUB_API_URL=github.base)  # fmt: skip
        assert ran.code == 0, ran.said

    (issue,) = queue.issues.values()
    assert (issue.title, issue.user.login) == (TITLE, bot.login)
    assert issue.body is not None
    assert "    $ contribbot status --against newest --upstream toy" in issue.body
    assert "    $ contribbot rebase --dry-run --to newest --upstream toy --from v1.0" in issue.body
    told = issue.body.splitlines()[2:-2]
    assert all(re.match(r" {4}|$", line) for line in told)
    methods = [(each.method, each.path) for each in github.requests]
    assert [method for method, _ in methods] == ["GET", "POST", "GET", "PATCH"]
