"""Asking gh for attestations. gh itself needs GitHub's signing service: a stand-in answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.github.auth import Server
from contribbot.runners.artifacts import NO_PROGRAM, VERIFIED, attested
from contribbot.runners.model import CellState
from tests.runners.homing import RAN, Home, states, why

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


def test_no_gh(tmp_path: Path) -> None:
    said = ask(tmp_path, {"PATH": str(tmp_path)})
    assert said == (NO_PROGRAM, False) == ("attestation not verified: gh is not installed", False)


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
        ("Error: failed to verify signature", True),
        (f"Error: expected SourceRepositoryDigest to be {COMMIT}, got {'2' * 40}", True),
        ("unknown flag: --source-digest", False),
        ("error connecting to api.github.com", False),
        ("To get started with GitHub CLI, please run:  gh auth login", False),
        ("\x1b[31mboom", False),
    ],
)
def test_not_verified(tmp_path: Path, said: str, *, denied: bool) -> None:
    env = stand_in(tmp_path / "bin", f"printf '%s\\n' '{said}' >&2; exit 1")
    words, refused = ask(tmp_path, env)
    assert words.startswith("attestation not verified: ")
    assert words.isprintable()
    assert refused is denied


def test_gh_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contribbot.runners.artifacts._SECONDS", 0.5)
    env = stand_in(tmp_path / "bin", "sleep 60")
    said = ask(tmp_path, env)
    assert said == ("attestation not verified: gh gave no answer in 0.5 s", False)


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

    monkeypatch.setattr("contribbot.runners.artifacts.attested", deny)
    home.send(RAN)
    home.add_job("attest", "success" if signed else "skipped")
    found = home.collected()
    assert states(found)["gpu area gfx942"] is (CellState.REFUSED if signed else CellState.PROVED)
    if signed:
        assert why(found) == "this run attested its artifacts, and not this one"
