"""Asking GitHub's own program whether an artifact is attested."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandTimeoutError, MachineError
from contribbot.github.auth import Server
from contribbot.github.refusals import clean_line
from contribbot.runners.where import WORKFLOW

VERIFIED: Final = "attestation verified"
NO_PROGRAM: Final = "attestation not verified: gh is not installed"
#: What gh needs to find its login; it alone gets a token, as variables or from its own files.
_NEEDED: Final = (
    "HOME", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN",
    "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy",
)  # fmt: skip
_SECONDS: Final = 60.0
#: How gh words that there is none, or one by somebody else; not that it could not ask.
_DENIED: Final = re.compile(
    r"no attestations? found|HTTP 404|verification failed|failed to verify|no matching|"
    r"verifying with issuer|expected \w+ to be", re.IGNORECASE,
)  # fmt: skip


def attested(
    path: Path,
    commit: str,
    *,
    repository: str,
    server: Server,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Say whether this very file was attested by the queue's own workflow, at this commit."""
    program = shutil.which("gh", path=environment.get("PATH"))
    if program is None:
        return NO_PROGRAM
    if server.local:
        return "attestation not verified: this GitHub has none"
    kept = {name: environment[name] for name in _NEEDED if environment.get(name)}
    given = {**kept, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        done = process.run(
            [
                program, "attestation", "verify", path, "--repo", repository,
                "--signer-workflow", f"{repository}/.github/workflows/{WORKFLOW}",
                "--source-digest", commit, "--hostname", server.host, "--deny-self-hosted-runners",
            ],
            env=process.clean_environment(given), accept=range(256), timeout=_SECONDS,
            tethered=True,
        )  # fmt: skip
    except CommandTimeoutError:
        return f"attestation not verified: gh gave no answer in {_SECONDS:g} s"
    except MachineError as error:
        return f"attestation not verified: {clean_line(error.message, 120)}"
    if done.returncode == 0:
        return VERIFIED
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"attestation not verified: {clean_line(said[-1] if said else 'gh says no', 120)}"


def is_denied(said: str) -> bool:
    """Say whether there is no good attestation, beyond that nobody could ask."""
    return said != VERIFIED and _DENIED.search(said) is not None
