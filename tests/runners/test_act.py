"""The workflows, run: act schedules them on this machine, which can do only CPU and compile."""

from __future__ import annotations

import json
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contribbot.runners.documents import CellState, Collected, JobDone, Plan
from tests.conftest import Program
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, actions_of, add_job, add_run, end_job, upload
from tests.hiptoy import LONG, QUICK, entry, put_kernel
from tests.runners.acting import RUNNERS, Act, put_under_act, requirements
from tests.runners.conftest import Ranged
from tests.runners.homing import REPOSITORY, Home, unpacked
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
    ran = program("runners", "workflows", "install")
    assert ran.code == 0, ran.err
    return toy


@pytest.fixture
def act(installed: Toy, tmp_path: Path) -> Act:
    return put_under_act(installed, tmp_path / "act")


def planned(act: Act) -> list[str]:
    plan = unpacked((act.artifacts / "contribbot-plan.zip").read_bytes())["plan.json"]
    return [job.id for job in Plan.model_validate_json(plan).jobs]


def test_a_selection_reaches_the_plan_and_no_shell(act: Act) -> None:
    ran = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", "patches=scale")
    assert ran.code == 0, ran.said
    assert planned(act) == [COMPILE]

    (act.artifacts / "contribbot-plan.zip").unlink()
    ran = act("workflow_dispatch", "verify.yml", "--job", "plan", "--input", "targets= radeon ")
    assert ran.code == 0, ran.said
    assert planned(act) == [OTHER]

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
    assert "    $ contribbot rebase newest --dry-run --pin toy v1.0" in issue.body
    told = issue.body.splitlines()[2:-2]
    assert all(re.match(r" {4}|$", line) for line in told)
    methods = [(each.method, each.path) for each in github.requests]
    assert [method for method, _ in methods] == ["GET", "POST", "GET", "PATCH"]


SUFFIX = "-again"
GPU, OTHER, COMPILE = "gfx942-rocm7.1-1", "gfx1100-rocm7.1-1", "compile-rocm7.1-1"


def grid(found: Collected) -> dict[str, CellState]:
    """Return what became of each cell that a job had."""
    return {
        f"{each.kind} {each.patch} {each.target}": each.state for each in found.cells if each.job
    }


def begun(act: Act, toy: Toy, github: GitHub, storage: Storage) -> Home:
    """Start a run on the local GitHub with the number that act gives it."""
    user = github.add_user("ada")
    repository = github.add_repository(REPOSITORY, act.queue, members={"ada": "write"})
    own = actions_of(repository)
    own.storage = storage
    home = Home(Ranged(toy), github, storage, repository, user)
    home.run = add_run(github.state, repository, "verify.yml", "main", event="workflow_dispatch",
                       actor=user)  # fmt: skip
    del own.runs[home.run.id]
    home.run.id, home.run.status = 1, "in_progress"
    own.runs[1] = home.run
    return home


def bring(home: Home, path: Path) -> None:
    """Put an artifact that act's jobs left onto the local GitHub, and end its job."""
    state, content, name = home.github.state, path.read_bytes(), path.stem
    files = unpacked(content)
    job_id = name.removeprefix("contribbot-")
    if "plan.json" in files:
        home.plan = Plan.model_validate_json(files["plan.json"])
    good = "plan.json" in files or JobDone.model_validate_json(files["job.json"]).exit_code == 0
    with state.lock:
        job = add_job(state, home.run, job_id)
        if job_id != "plan":
            job.labels = home.job(job_id.removesuffix(SUFFIX)).labels
        upload(state, home.run, name, content)
        end_job(state, job, "success" if good else "failure")


@contextmanager
def followed(act: Act, home: Home) -> Iterator[Path]:
    """Bring each artifact home as soon as it is there, and note in a folder which are."""
    over, known = threading.Event(), set[Path]()
    read = act.home / "read"
    read.mkdir()

    def look() -> None:
        while not over.wait(0.1):
            there = set(act.artifacts.glob("*.zip")) - known
            for path in sorted(there, key=lambda each: each.stat().st_mtime_ns):
                if zipfile.is_zipfile(path):
                    bring(home, path)
                    known.add(path)
                    (read / path.stem).touch()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield read
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("clang")
def test_what_a_runner_failed_is_tried_once_more_by_the_run_itself(
    act: Act, installed: Toy, github: GitHub
) -> None:
    with Storage().running() as storage:
        home = begun(act, installed, github, storage)
        token = home.user.tokens[0].text
        with followed(act, home) as read:
            ran = act("workflow_dispatch", "verify.yml", "--job", "collect",
                      "--var", "CONTRIBBOT_ATTEST=no", "--secret", f"GITHUB_TOKEN={token}",
                      timeout=900, GITHUB_API_URL=github.base, READ=str(read))  # fmt: skip
        assert {each.stem.removeprefix("contribbot-") for each in act.artifacts.iterdir()} == {
            "plan", COMPILE, GPU, OTHER, f"{GPU}{SUFFIX}", f"{OTHER}{SUFFIX}",
        }, ran.said  # fmt: skip
        commit = git(act.queue, "rev-parse", "HEAD").decode().strip()
        for name, code in ((COMPILE, 0), (GPU, 3), (f"{GPU}{SUFFIX}", 3)):
            files = unpacked((act.artifacts / f"contribbot-{name}.zip").read_bytes())
            done = JobDone.model_validate_json(files.pop("job.json"))
            assert done.exit_code == code
            assert [each.fault.kind for each in done.patches[0].faults] == (
                ["gpu-not-visible"] if code else []
            )
            assert done.run is not None
            assert (done.run.commit, done.run.repository) == (commit, REPOSITORY)
            (record,) = map(json.loads, files.values())
            assert record["predicate"]["result"] != "FAILED"
            told = record["predicate"]["contribbot"]
            assert told["run"]["job"] == name
            assert told["container"]["image"] == home.job(name.removesuffix(SUFFIX)).image
        # What the run's own collect said.
        assert "2 jobs try 2 cells once more" in ran.said
        assert re.search(
            r"gpu-not-visible.*; second try on runner-1; the first on runner-1 was a", ran.said
        )
        assert token not in ran.said

        fault = CellState.FAULT
        first = {"compile scale gfx942": CellState.OPEN,
                 "gpu area gfx942": fault, "gpu area gfx1100": fault}  # fmt: skip
        found = home.collected()
        assert grid(found) == first
        assert {each.job for each in found.cells if each.state is fault} == {
            f"{GPU}{SUFFIX}", f"{OTHER}{SUFFIX}",
        }  # fmt: skip
