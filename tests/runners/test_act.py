"""The workflows, run: act schedules them on this machine, which can do only CPU and compile."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contribbot.runners.plan import Plan
from tests.conftest import Program
from tests.contribute.place import WRITES, Proved, edit, make_table
from tests.contribute.test_flow import Person
from tests.github.handle import GitHub
from tests.hiptoy import LONG, QUICK, entry, put_kernel
from tests.runners.acting import RUNNERS, Act, put_under_act, requirements
from tests.runners.conftest import unpacked
from tests.toy import CHECKS, FAIL_TO_PASS, PASS_TO_PASS, Toy, git

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
GPU, OTHER, COMPILE = "gfx942-mi300-rocm7.1-1", "gfx1100-radeon-rocm7.1-1", "compile-rocm7.1-1"
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
    program.ok("runners", "workflows", "install")
    return toy


@pytest.fixture
def act(installed: Toy, tmp_path: Path) -> Act:
    return put_under_act(installed, tmp_path / "act")


def plan(act: Act, given: str) -> tuple[int, list[str]]:
    """Run the job that plans with an input; return act's exit status and the planned jobs."""
    code, said = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", given)
    artifacts = [*act.artifacts.iterdir()]
    assert [each.name for each in artifacts] == ["contribbot-plan.zip"] * (code == 0), said
    jobs: list[str] = []
    for artifact in artifacts:
        made = Plan.model_validate_json(unpacked(artifact.read_bytes())["plan.json"])
        jobs += [job.id for job in made.jobs]
        artifact.unlink()
    return code, jobs


def test_a_selection_reaches_the_plan_and_no_shell(act: Act) -> None:
    assert plan(act, "patches=scale") == (0, [COMPILE])
    assert plan(act, "targets= radeon ") == (0, [OTHER])
    bad = '$(touch "$ARTIFACTS/gone") ;touch${IFS}$ARTIFACTS/gone; --all'
    assert plan(act, f"patches={bad}") == (1, [])


def test_the_night_tells_in_one_issue(act: Act, installed: Toy, github: GitHub) -> None:
    bot = github.add_user("github-actions[bot]", kind="Bot")
    queue = github.add_repository("example/queue", act.queue, members={bot.login: "write"})
    token = github.add_token(bot, repositories=["example/queue"], permissions=["issues"])
    # A release that has the change already, and text that would be more than text.
    newer = "def rectangle(width, height):\n    return width * height\n"
    installed.change({"src/toy/area.py": newer}, "Toy 2.0")
    git(installed.upstream, "tag", "v2.0")

    for _ in range(2):
        (act.artifacts / "contribbot-rebase.zip").unlink(missing_ok=True)
        code, said = act("schedule", "rebase.yml", "--secret", f"GITHUB_TOKEN={token}",
                         GITHUB_API_URL=github.base)  # fmt: skip
        assert code == 0, said

    (issue,) = queue.issues.values()
    assert (issue.title, issue.user.login) == (TITLE, bot.login)
    assert issue.body is not None
    assert "    $ contribbot status --against newest --upstream toy" in issue.body
    assert "    $ contribbot rebase newest --dry-run --pin toy v1.0" in issue.body
    told = issue.body.splitlines()[2:-2]
    assert all(re.match(r" {4}|$", line) for line in told)
    methods = [(each.method, each.path) for each in github.requests]
    assert [method for method, _ in methods] == ["GET", "POST", "GET", "PATCH"]


@pytest.mark.usefixtures("clang")
def test_jobs_of_a_run_leave_records(act: Act) -> None:
    _, said = act("workflow_dispatch", "verify.yml", "--job", "gpu",
                  "--var", "CONTRIBBOT_ATTEST=no", timeout=900)  # fmt: skip
    assert {each.stem for each in act.artifacts.iterdir()} == {
        "contribbot-plan", *(f"contribbot-{job}" for job in (COMPILE, GPU, OTHER)),
    }, said  # fmt: skip
    commit = git(act.queue, "rev-parse", "HEAD").decode().strip()
    for job, patch in ((COMPILE, "scale"), (GPU, "area")):
        files = unpacked((act.artifacts / f"contribbot-{job}.zip").read_bytes())
        ((name, content),) = files.items()
        assert name.startswith(f"{patch}/")
        told = json.loads(content)["predicate"]["contribbot"]
        assert (told["run"]["job"], told["run"]["commit"]) == (job, commit)
        assert told["container"]["image"].startswith("registry.example/")
        faults = [row["runner_fault"]["kind"] for row in told["stages"] if "runner_fault" in row]
        assert ("gpu-not-visible" in faults) is (job == GPU)


class Desk:
    """A person whose attested queue is a repository, and the workflow that they start."""

    def __init__(self, person: Person, act: Act, token: str) -> None:
        self.person, self.act, self.token = person, act, token

    def __call__(self, patches: str) -> tuple[int, str]:
        base = self.person.table.github.base
        return self.act(
            "workflow_dispatch", "open-pr.yml", "--input", f"patches={patches}",
            "--secret", f"CONTRIBBOT_FORK_TOKEN={self.token}",
            GITHUB_API_URL=base, GITHUB_SERVER_URL=base,
        )  # fmt: skip

    def kept(self) -> dict[str, bytes]:
        return unpacked((self.act.artifacts / "contribbot-open-pr.zip").read_bytes())

    def writes(self) -> list[str]:
        asked = self.person.table.github.requests
        return [f"{each.method} {each.path}" for each in asked if each.method in WRITES]


#: Few words, as a body must have, and more than the address of a page has room for.
PROBLEM = f"{'Areas' + 'aresums' * 60}. " * 24 + "Areas are sums."


@pytest.fixture
def desk(proved: Proved, github: GitHub, tmp_path: Path) -> Desk:
    toy = proved.copy(tmp_path)
    edit(toy, 'problem = "Areas are sums."', f'problem = "{PROBLEM}"')
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


def test_a_branch_and_a_page_and_a_journal(desk: Desk) -> None:
    code, said = desk("area")

    assert code == 0, said
    assert desk.person.fork.git.ref("refs/heads/contribbot/area") is not None
    assert desk.person.table.upstream.pulls() == []
    assert re.search(r"http\S+/example/toy/compare/main\.\.\.ada:contribbot/area", said)
    # No name of the token, and none of the queue's own.
    assert desk.token not in said
    assert all("/repos/ada/toy/" in each or each == "POST /graphql" for each in desk.writes())
    # What was pushed is noted where a person finds it.
    kept = desk.kept()
    journal = [name for name in kept if name.startswith("history/area/")]
    assert journal
    assert PROBLEM.encode() in kept["handoff/area.md"]
    assert desk.token.encode() not in b"".join(kept.values())
