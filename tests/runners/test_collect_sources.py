"""Where what is collected comes from: a run, an attempt of it, a folder, a real runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contribbot.errors import ExitCode, UsageError
from contribbot.github.auth import Server
from contribbot.model.evidence import Outcome
from contribbot.runners.actions import VERIFIED, attested, repository_of
from contribbot.runners.documents import CellState
from tests.conftest import Program
from tests.github.handle import GitHub
from tests.github.server import Hook
from tests.github.state_actions import Storage
from tests.github.wire import Request
from tests.runners.conftest import CHECKS, HOSTED, MI300, Ranged
from tests.runners.homing import (
    COMPILED,
    RAN,
    REPOSITORY,
    Home,
    make_home,
    packed,
    states,
    why,
)
from tests.toy import Toy, git


def test_what_is_no_run_of_the_queue_and_no_folder_of_one(home: Home, tmp_path: Path) -> None:
    said = home.command("collect", "424242")
    assert said.code == ExitCode.MACHINE
    assert "run 424242 of example/queue: there is none" in said.err
    for args, words in (
        ((), "neither a run nor --from"),
        (("--from", tmp_path), "name the run's number"),
        (("--again", "--from", tmp_path), "name the run's number"),
    ):
        said = home.command("collect", *args)
        assert said.code == ExitCode.USAGE
        assert words in said.err
    home.run.path = ".github/workflows/rebase.yml"
    assert home.collect().code == ExitCode.USAGE
    home.run.path, home.run.event = ".github/workflows/verify.yml", "pull_request"
    assert "was started by 'pull_request'" in home.collect().err


class _Again(Hook):
    """A run is started again after it was looked at."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def before(self, request: Request) -> None:
        """Start it again when its artifacts are asked for."""
        if request.path.endswith("/artifacts"):
            self.home.run.attempt = 2


def test_a_run_that_is_started_again_meanwhile(home: Home) -> None:
    """Else the jobs of one attempt would be held against the artifacts of another."""
    home.send(RAN)
    home.github.hooks.append(_Again(home))
    said = home.collect()
    assert said.code == ExitCode.MACHINE
    assert "was started again while it was read" in said.err
    assert home.evidence() == []


def test_a_second_attempt_stands_before_the_first(home: Home) -> None:
    home.send(COMPILED)
    home.send(RAN, home.files(RAN, outcomes={"reproduce": Outcome.UNAVAILABLE}))
    home.run.attempt = 2
    for each in home.run.jobs:
        each.attempt = 2
    home.send(RAN)
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.PROVED


def test_the_zips_are_here_and_checked_against_github(home: Home, tmp_path: Path) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for each in home.run.artifacts:
        (folder / f"{each.name}.zip").write_bytes(each.stored)
    assert home.collected("--from", folder).complete
    assert home.storage.seen == []
    (folder / f"contribbot-{RAN}.zip").write_bytes(packed(home.files(RAN, seconds=8.0)))
    found = home.collected("--from", folder)
    assert states(found)["gpu area gfx942"] is CellState.REFUSED
    assert "GitHub saw" in why(found)
    here = folder / f"contribbot-{RAN}.zip"
    here.rename(tmp_path / "elsewhere.zip")
    assert why(home.collected("--from", folder)) == f"contribbot-{RAN}.zip is not in the folder"
    here.symlink_to(tmp_path / "elsewhere.zip")
    assert why(home.collected("--from", folder)) == f"contribbot-{RAN}.zip is a link"


def test_real_records_of_this_machine(
    toy: Toy, github: GitHub, program: Program, tmp_path: Path
) -> None:
    """What `verify` really writes here, where there is no GPU, comes back open or at fault."""
    ranged = Ranged(toy)
    ranged.patch("area", CHECKS[CHECKS.index("[[checks]]") :])
    ranged.put(MI300 + HOSTED)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        job = home.job(RAN)
        asks = [{"patch": name, "require": list(need)} for name, need in job.asks.items()]
        ran = program(
            "runners", "workflows", "run", tmp_path / "answer",
            CONTRIBBOT_ASKS=json.dumps(asks), CONTRIBBOT_JOB=job.id, CONTRIBBOT_IMAGE=job.image,
            CONTRIBBOT_CONTAINER_FLAGS=" ".join(job.flags), GITHUB_RUN_ID=str(home.run.id),
            GITHUB_RUN_ATTEMPT="1", GITHUB_REPOSITORY=REPOSITORY, GITHUB_SHA=home.run.head_sha,
        )  # fmt: skip
        assert ran.code == ExitCode.MACHINE, ran.out + ran.err
        folder = tmp_path / "answer"
        files = {path.relative_to(folder).as_posix(): path.read_bytes()
                 for path in folder.rglob("*") if path.is_file()}  # fmt: skip
        home.send(RAN, files, "failure")
        found = home.collected()
        assert states(found)["gpu area gfx942"] is CellState.FAULT
        assert "gpu-not-visible" in why(found)
        assert [each.merged for each in found.records] == ["new"]
        # The store is here: the patched tree was made again and is the same.
        assert not any("was not made again" in note for note in found.notes)


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://{host}/ada/patches.git", "ada/patches"),
        ("https://ada:secret@{host}/ada/patches", "ada/patches"),
        ("git@{host}:ada/patches.git", "ada/patches"),
        ("ssh://git@{host}/ada/patches.git", "ada/patches"),
        ("https://gitlab.example/ada/patches", None),
        ("/srv/patches", None),
        (None, None),
    ],
)
def test_which_repository_a_queue_is(
    ranged: Ranged, remote: str | None, repository: str | None
) -> None:
    with pytest.raises(UsageError, match="in no git repository"):
        repository_of(ranged.folder, Server(), {})
    git(ranged.folder, "init", "-q")
    if remote:
        git(ranged.folder, "remote", "add", "origin", remote.format(host="github.com"))
    if repository:
        assert repository_of(ranged.folder, Server(), {}) == repository
        return
    with pytest.raises(UsageError) as raised:
        repository_of(ranged.folder, Server(), {})
    assert "GITHUB_REPOSITORY=OWNER/NAME" in raised.value.hint


COMMIT = "1" * 40


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """Put a program named gh into a folder, and return the environment to find it in."""
    folder.mkdir()
    program = folder / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "GITHUB_TOKEN": "ghs_x", "AWS_SECRET": "y"}


def ask(folder: Path, environment: dict[str, str]) -> tuple[str, bool]:
    """Ask about a zip."""
    return attested(folder / "a.zip", COMMIT, repository="ada/queue", server=Server(),
                    environment=environment)  # fmt: skip


def test_no_gh_or_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ask(tmp_path, {"PATH": str(tmp_path)})
    assert said == ("attestation not verified: gh is not installed", False)
    monkeypatch.setattr("contribbot.runners.actions._SECONDS", 0.5)
    said = ask(tmp_path, stand_in(tmp_path / "bin", "sleep 60"))
    assert said == ("attestation not verified: gh gave no answer in 0.5 s", False)


def test_verified_by_the_queues_own_workflow(tmp_path: Path) -> None:
    told = tmp_path / "told"
    env = stand_in(tmp_path / "bin", f'echo "$@" > {told}; env >> {told}')
    assert ask(tmp_path, env) == (VERIFIED, False)
    arguments, *variables = told.read_text().splitlines()
    assert arguments == (
        f"attestation verify {tmp_path}/a.zip --repo ada/queue --signer-workflow "
        f"ada/queue/.github/workflows/verify.yml --source-digest {COMMIT} --hostname github.com "
        "--deny-self-hosted-runners"
    )
    assert "GITHUB_TOKEN=ghs_x" in variables
    assert not any(line.startswith("AWS_") for line in variables)


@pytest.mark.parametrize(
    ("said", "denied"),
    [
        ("Error: HTTP 404: Not Found", True),
        ("Error: no attestations found for subject sha256:00", True),
        (f"Error: expected SourceRepositoryDigest to be {COMMIT}, got {'2' * 40}", True),
        ("unknown flag: --source-digest", False),
        ("error connecting to api.github.com", False),
        ("\x1b[31mboom", False),
    ],
)
def test_not_verified(tmp_path: Path, said: str, *, denied: bool) -> None:
    env = stand_in(tmp_path / "bin", f"printf '%s\\n' '{said}' >&2; exit 1")
    words, refused = ask(tmp_path, env)
    assert words.startswith("attestation not verified: ")
    assert words.isprintable()
    assert refused is denied


@pytest.mark.parametrize("signed", [False, True])
def test_where_a_run_attests_what_is_not_attested_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch, *, signed: bool
) -> None:
    def deny(path: Path, commit: str, *, repository: str, server: Server) -> tuple[str, bool]:
        del repository, server
        assert commit == home.run.head_sha
        assert path.is_file()
        kept = path.stat().st_size == home.run.artifacts[0].size
        return (VERIFIED, False) if kept else ("no attestations found", True)

    monkeypatch.setattr("contribbot.runners.actions.attested", deny)
    home.send(RAN)
    home.add_job("attest", "success" if signed else "skipped")
    found = home.collected()
    assert states(found)["gpu area gfx942"] is (CellState.REFUSED if signed else CellState.PROVED)
    if signed:
        assert why(found) == "this run attested its artifacts, and not this one"
