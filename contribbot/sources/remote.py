"""Running git on a remote, as the user reaches the network, and otherwise untouched by them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError, SourceError
from contribbot.sources.redact import one_line

#: How a remote is called in arguments.
REMOTE: Final = "contribbot"
#: How git reaches the network: the user's own programs, keys, proxies and certificates.
_NETWORK: Final = re.compile(
    r"HOME|USER|LOGNAME|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|SSH_AUTH_SOCK|CURL_CA_BUNDLE"
    r"|GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM)|GIT_SSH(?:_COMMAND|_VARIANT)?|GIT_ASKPASS"
    r"|GIT_SSL_\w+|GIT_PROXY_\w+|GIT_ALLOW_PROTOCOL|(?i:https?|all|no)_proxy"
)
#: What a server says that lacks what it should have.
_INCOMPLETE: Final = "possible repository corruption on the remote side"
#: What the user's configuration may not change about this one fetch.
_SETTINGS: Final = {
    # A window that asks a person; `GIT_ASKPASS`, which scripts set, and helpers still answer.
    "core.askPass": "",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.logAllRefUpdates": "false",
    "fetch.prune": "false",
    "fetch.pruneTags": "false",
    "fetch.recurseSubmodules": "no",
    "fetch.writeCommitGraph": "false",
    # Blobs are asked for by their ids: there is no history to compare.
    "fetch.negotiationAlgorithm": "noop",
    "fetch.unpackLimit": "1",
    "transfer.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.version": "2",
}


def remote_git(
    folder: Path, url: str, shown: str, *args: str, timeout: float, stdin: bytes = b""
) -> str:
    """Run git with the user's network settings, and no others.

    The URL goes in by the environment: arguments can be seen by other users of
    the machine, and are logged.
    """
    settings = {**_SETTINGS, f"remote.{REMOTE}.url": url}
    env = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never"}
    env["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = process.run(
            ["git", f"--git-dir={folder}", *args],
            cwd=folder,
            env=process.clean_environment(env),
            stdin=stdin,
            timeout=timeout,
            tethered=True,
        )
    except CommandError as error:
        reason = _reason(error.stderr)
        hint = f"try `git ls-remote {shown}`; check the network and your access"
        if _INCOMPLETE in reason:
            hint = "is it a partial clone? Name the repository that it was cloned from"
        # Not chained: git's own words may hold the password.
        raise SourceError(f"{shown}: {reason}", hint=hint) from None
    except CommandTimeoutError:
        raise SourceError(
            f"{shown}: git {args[0]} did not end in {timeout:g} s", hint="check the network"
        ) from None
    return done.stdout.decode("utf-8", "replace")


def _reason(stderr: str) -> str:
    """Return git's complaint on one line: what it calls fatal, or all of it."""
    lines = [one_line(line) for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))]
    return "; ".join(fatal or lines) or "git said nothing"
