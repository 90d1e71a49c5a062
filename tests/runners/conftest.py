"""A queue with runners, records of machines that are not here, and a run on the local GitHub.

No test has an AMD GPU: what a record says of one is made up, in the form that `verify` writes,
to see what a plan and collect make of it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contribbot.model.evidence import (
    Gpu,
    Machine,
    Outcome,
    seal_of,
)
from contribbot.queue.load import Queue, load_queue
from contribbot.runners.collect import CellState, Collected
from contribbot.runners.plan import CiJob, Plan, make_plan
from contribbot.verify.evidence import write_evidence
from tests.conftest import Program, Ran, dig
from tests.contribute.conftest import _no_pause, github, proved
from tests.github.handle import GitHub
from tests.github.state import Json, Repository, User
from tests.github.state_actions import (
    Run,
    add_job,
    add_run,
    end_job,
    upload,
)
from tests.records import made_up
from tests.toy import Toy, git

__all__ = ["_no_pause", "github", "proved"]

DIGEST = "0123456789abcdef" * 4
MI300 = f"""\
[[runners]]
name = "mi300"
target = "gfx942"
labels = ["self-hosted", "gfx942"]
[[runners.rocm]]
version = "7.1"
image = "example.com/rocm/run@sha256:{DIGEST}"
"""
HOSTED = f"""\
[hosted]
labels = ["ubuntu-24.04"]
[[hosted.rocm]]
version = "7.1"
image = "example.com/rocm/dev@sha256:{DIGEST}"
targets = ["gfx942", "gfx90a"]
"""
CHECKS = """\
[[compile]]
name = "kernel"
source = "src/a.hip"
targets = ["gfx942"]
expect = "pass-to-pass"

[[checks]]
name = "on-gpu"
file = "test_same.py"
expect = "pass-to-pass"
requires = ["gfx942"]
"""


@dataclass
class Ranged:
    toy: Toy
    order: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.toy.queue

    def put(self, text: str) -> Path:
        return self.toy.put("runners.toml", text)

    def patch(self, name: str, checks: str = CHECKS, extra: str = "") -> None:
        """Add a patch; its content does not matter here."""
        self.toy.put_patch(
            name, patch=self.toy.format_patch({"README": f"{name}\n"}), files=("README",),
            checks=checks, extra=extra, check_files={"test_same.py": "def test_one():\n    pass\n"},
        )  # fmt: skip
        self.order.append(name)
        self.toy.put_queue(self.order)

    def load(self) -> Queue:
        return load_queue(self.folder)

    def plan(self, *names: str, everything: bool = False, on: tuple[str, ...] = ()) -> Plan:
        """Make the plan of patches; of all when none is named."""
        return make_plan(self.load(), names or self.order, everything=everything, on=on)

    def record(
        self,
        name: str,
        *,
        target: str = "gfx942",
        rocm: str = "7.1.0-84",
        outcomes: Mapping[str, Outcome] | None = None,
        seconds: float = 7.0,
        cores: int = 8,
        folder: Path | None = None,
    ) -> Path:
        """Write a record of a made-up machine; what it has the hardware for has passed.

        `folder`: the folder of records, in place of the queue's own.
        """
        queue = self.load()
        gpus = (Gpu(vendor="amd", target=target, name="made up", driver=""),) if target else ()
        machine = Machine(system="Linux x86_64", cpu="made up", cores=cores, packages={}, gpus=gpus,
                          python="CPython 3.11.7", git="2.39.5", rocm=rocm)  # fmt: skip
        statement = made_up(
            queue, name, machine, outcomes=outcomes or {}, seconds=seconds,
            commit=self.toy.commit,
        )  # fmt: skip
        return write_evidence(folder or queue.evidence, statement)


COMPILED, RAN = "compile-rocm7.1-1", "gfx942-mi300-rocm7.1-1"
REPOSITORY = "example/queue"


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a zip as GitHub's action makes one."""
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return place.getvalue()


def unpacked(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(document: Json) -> bytes:
    """Return a record with the seal that it should have."""
    return json.dumps({**document, "contribbot_seal": seal_of(document)}).encode()


def details(document: Json) -> Json:
    """Return the part of a record that is contribbot's own."""
    found = dig(document, "predicate", "contribbot")
    assert isinstance(found, dict)
    return found


@dataclass
class Home:
    """A queue that is a repository on the local GitHub, and a run of it."""

    ranged: Ranged
    github: GitHub
    repository: Repository
    user: User
    run: Run = field(init=False)
    plan: Plan = field(init=False)

    def begin(self, event: str = "schedule", *, everything: bool = False) -> None:
        """Start a run that has made its plan; its jobs wait."""
        state = self.github
        with state.lock:
            self.run = add_run(state, self.repository, "verify.yml", "main", event=event,
                               actor=self.user)  # fmt: skip
            self.plan = self.ranged.plan(everything=everything)
            job = add_job(state, self.run, "plan")
            upload(state, self.run, "contribbot-plan",
                   packed({"plan.json": self.plan.model_dump_json().encode()}))  # fmt: skip
            end_job(state, job, "success")
            for each in self.plan.jobs:
                add_job(state, self.run, each.id).labels = each.labels

    def job(self, name: str) -> CiJob:
        return next(each for each in self.plan.jobs if each.id == name)

    def record(self, job: str, name: str = "area", **how: object) -> tuple[str, Json]:
        """Return a record that a runner of a job would have sent, and its path there."""
        target = "" if job.startswith("compile") else self.job(job).target
        given = {"target": target, "folder": self.ranged.folder / ".contribbot/aside", **how}
        path = self.ranged.record(name, **given)  # type: ignore[arg-type]  # as it takes them
        document: Json = json.loads(path.read_bytes())
        details(document).update(
            run={"run_id": self.run.id, "attempt": self.run.attempt, "job": job,
                 "repository": REPOSITORY, "commit": self.run.head_sha},
            container={"image": self.job(job).image, "flags": list(self.job(job).flags)},
        )  # fmt: skip
        return f"{name}/{path.name}", document

    def files(self, job: str, *, hung: bool = False, **how: object) -> dict[str, bytes]:
        """Return what a job sends that proved all it was asked; `hung`: its GPU at every check."""
        found = {}
        for name in self.job(job).patches:
            path, document = self.record(job, name, **how)
            stages = details(document)["stages"]
            assert isinstance(stages, list)
            for each in stages if hung else ():
                assert isinstance(each, dict)
                if each["stage"] == "reproduce":
                    each["runner_fault"] = {"kind": "gpu-hung", "said": "no answer for 60 s"}
            found[path] = sealed(document)
        return found

    def send(
        self, job: str, files: Mapping[str, bytes] | None = None, conclusion: str = "success"
    ) -> None:
        """Let a job send its artifact and end."""
        content = packed(self.files(job) if files is None else files)
        with self.github.lock:
            upload(self.github, self.run, f"contribbot-{job}", content)
            self.end(job, conclusion)

    def end(self, name: str, conclusion: str) -> None:
        """Let a job end: its last try, as GitHub has it."""
        job = next(each for each in reversed(self.run.jobs) if each.name == name)
        end_job(self.github, job, conclusion, seconds=60)

    def add_job(self, name: str, conclusion: str) -> None:
        """Add a job that has ended."""
        end_job(self.github, add_job(self.github, self.run, name), conclusion)

    def collect(self, *args: str | Path) -> Ran:
        """Run `contribbot runners collect` on the run, which is over."""
        self.run.status, self.run.conclusion = "completed", "success"
        return self.command("collect", str(self.run.id), *args)

    def collected(self, *args: str | Path) -> Collected:
        """Run `contribbot runners collect --json` on the run, which is over."""
        said = self.collect("--json", *args)
        assert said.out, said.err
        found = Collected.model_validate_json(said.out)
        assert said.code == (0 if found.complete else 3 if found.runners_failed else 1)
        return found

    def command(self, *args: str | Path, **env: str) -> Ran:
        given = {
            "GITHUB_API_URL": self.github.base, "GITHUB_TOKEN": self.user.tokens[0].text,
            "GITHUB_REPOSITORY": REPOSITORY, **env,
        }  # fmt: skip
        return Program(self.ranged.folder, given)("runners", *args)

    def evidence(self) -> list[Path]:
        return sorted((self.ranged.folder / "evidence").rglob("*.json"))


def make_home(ranged: Ranged, github: GitHub) -> Home:
    """Make it: the queue is committed, and `main` of the repository."""
    folder = ranged.folder
    ranged.toy.put(".gitignore", ".contribbot/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Queue")
    user = github.add_user("ada")
    repository = github.add_repository(REPOSITORY, folder, members={"ada": "write"})
    return Home(ranged, github, repository, user)


def states(collected: Collected) -> dict[str, CellState]:
    """Return what became of each cell, by kind of cell and patch."""
    return {f"{each.kind} {each.patch} {each.target}": each.state for each in collected.cells}


def why(collected: Collected, kind: str = "gpu") -> str:
    """Return why the one cell of a kind is what it is."""
    (cell,) = [each for each in collected.cells if each.kind == kind]
    return cell.why


#: The outcome of a check that failed.
FAILED = {"reproduce": Outcome.FAILED}


@pytest.fixture
def ranged(toy: Toy) -> Ranged:
    """A queue with one patch, two runners with gfx942, and hosted runners."""
    made = Ranged(toy)
    made.patch("area")
    made.put(MI300 + HOSTED)
    return made


@pytest.fixture
def home(ranged: Ranged, github: GitHub) -> Home:
    """A queue on the local GitHub, with a run whose jobs wait."""
    made = make_home(ranged, github)
    made.begin()
    return made


def run_matrix(folder: Path, *args: str | Path, **env: str) -> Ran:
    """Run `contribbot runners matrix` in a queue."""
    return Program(folder, {"GITHUB_OUTPUT": "", **env})("runners", "matrix", *args)
