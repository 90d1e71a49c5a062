"""The whole of verify.yml under act: what has no GPU here is a runner's fault, is tried once more
by the run itself, and is judged by the run's own last job."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.runners.model import CellState, Collected, JobDone, Plan
from tests.github.state_actions import Storage, actions_of, add_job, add_run, end_job, upload
from tests.hiptoy import seen_once
from tests.runners.conftest import Ranged
from tests.runners.homing import REPOSITORY, Home, Json, packed, sealed, unpacked
from tests.runners.test_act import act as act  # noqa: PLC0414  pytest finds it by this name
from tests.runners.test_act import installed as installed  # noqa: PLC0414  as above
from tests.runners.test_act import opened
from tests.runners.test_act import pinned as pinned  # noqa: PLC0414  as above

if TYPE_CHECKING:
    from tests.github.handle import GitHub
    from tests.runners.acting import Act
    from tests.toy import Toy

SUFFIX = "-again"
GPU, OTHER, COMPILE = "gfx942-rocm7.1-1", "gfx1100-rocm7.1-1", "compile-rocm7.1-1"
pytestmark = pytest.mark.slow


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


def proving(home: Home, real: bytes) -> tuple[str, bytes]:
    """Make up a record of an able runner, about the tree of a real one."""
    path, document = home.record(f"{GPU}{SUFFIX}")
    tree = json.loads(real)["subject"][1]["digest"]["gitTree"]
    able: Json = json.loads(json.dumps(document).replace(f'"{"1" * 40}"', f'"{tree}"'))
    return path, sealed(able)


def test_what_a_runner_failed_is_tried_once_more_by_the_run_itself(
    act: Act, installed: Toy, github: GitHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen_once(tmp_path_factory)
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
        done, records = opened(act, f"{GPU}{SUFFIX}")
        assert (done.exit_code, done.patches[0].faults[0].fault.kind) == (3, "gpu-not-visible")
        # What the run's own collect said.
        assert "2 jobs try 2 cells once more" in ran.said
        assert "tried twice; on runner-1, the same runner again: gpu-not-visible" in ran.said
        assert token not in ran.said

        fault = CellState.FAULT
        first = {"compile scale gfx942": CellState.OPEN,
                 "gpu area gfx942": fault, "gpu area gfx1100": fault}  # fmt: skip
        found = home.collected()
        assert grid(found) == first
        assert {each.job for each in found.cells if each.state is fault} == {
            f"{GPU}{SUFFIX}", f"{OTHER}{SUFFIX}",
        }  # fmt: skip

        # As if the second runner had been able: what it then sends is judged as the first's is.
        name = f"contribbot-{GPU}{SUFFIX}"
        here = next(each for each in home.run.artifacts if each.name == name)
        home.run.artifacts.remove(here)
        home.tries = tuple(
            job.model_copy(update={"id": f"{job.id}{SUFFIX}"}) for job in home.plan.of_kind("gpu")
        )
        path, able = proving(home, *records.values())
        files = {"job.json": home.done(f"{GPU}{SUFFIX}"), path: able}
        upload(github.state, home.run, name, packed(files))
        home.ghost(f"{GPU}{SUFFIX}").conclusion = "success"
        found = home.collected()
        told = {each.target: each.why for each in found.cells if each.patch == "area"}
        assert grid(found) == {**first, "gpu area gfx942": CellState.PROVED}, told
        assert "the first on runner-1 was a runner fault: gpu-not-visible" in told["gfx942"]
