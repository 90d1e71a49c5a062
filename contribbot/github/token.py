"""The token: where it comes from, and that it goes nowhere but to GitHub."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn
from urllib.parse import urlsplit

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError, MachineError, TokenError
from contribbot.github.server import Server

#: The variables that hold a token, as GitHub Actions and GitHub's own program name them.
_VARIABLES: Final = ("GITHUB_TOKEN", "GH_TOKEN")
#: What programs that keep tokens need to find them: their configuration and the key ring.
_PERSONAL: Final = (
    "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GH_CONFIG_DIR", "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GNUPGHOME", "PASSWORD_STORE_DIR",
)  # fmt: skip
#: An empty askpass program also switches off the one of git's configuration.
_SILENT: Final = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "GCM_INTERACTIVE": "never",
    "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1",
}  # fmt: skip
#: A credential helper may ask a key ring or a server; it must not hang.
_PATIENCE: Final = 20.0
#: GitHub's tokens are shorter; a header with more would be refused on the way.
_LONGEST: Final = 1024
_PLAIN: Final = re.compile(r"[!-~]+")


class Secret:
    """A text that never shows itself: not printed, formatted, pickled or made JSON."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self._text

    def scrub(self, text: str) -> str:
        """Return another text without this one in it."""
        return text.replace(self._text, "***") if self._text else text

    def scrub_bytes(self, content: bytes) -> bytes:
        """Return bytes without this text in them."""
        return content.replace(self._text.encode(), b"***") if self._text else content

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    # Equal ones would need equal hashes, and a hash of the text tells of the text.
    __hash__ = None  # type: ignore[assignment]  # this is how Python says "cannot be hashed"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied or pickled")


@dataclass(frozen=True)
class Token:
    """A token, and where it was found.

    Attributes:
        secret: The token.
        source: Where it was found, for a person, such as `GITHUB_TOKEN`.
    """

    secret: Secret
    source: str


def find_token(server: Server, environment: Mapping[str, str] | None = None) -> Token:
    """Find the token for a server: variables, then GitHub's program, then git's helpers.

    Nothing prompts, and nothing waits for longer than some seconds.
    """
    variables = os.environ if environment is None else environment
    for name in _VARIABLES:
        if variables.get(name):
            return Token(_checked(variables[name], name), name)
    passed_over = []
    env = process.clean_environment(
        {**{name: variables[name] for name in _PERSONAL if name in variables}, **_SILENT}
    )
    if "PATH" in variables:
        env["PATH"] = variables["PATH"]
    for source, find in (("gh auth token", _ask_gh), ("git credential fill", _ask_git)):
        try:
            text = find(server, env)
        except CommandTimeoutError:
            passed_over.append(f"`{source}` did not answer in {_PATIENCE:g} s")
        except CommandError:
            # It has none. What it wrote is not shown: it may quote what it was asked about.
            continue
        except MachineError:
            process.check_stopping()  # else the program is not installed
        else:
            if text:
                return Token(_checked(text, f"`{source}`"), f"`{source}`")
    aside = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise TokenError(
        f"no GitHub token for {server.host}{aside}",
        hint="set GITHUB_TOKEN to a token with the scope public_repo (repo, for a private "
        f"repository), or log in with `gh auth login --hostname {server.host}`",
    )


def _checked(text: str, source: str) -> Secret:
    """Refuse what can be no token, without showing it."""
    if not _PLAIN.fullmatch(text) or len(text) > _LONGEST:
        kind = (
            "is too long"
            if len(text) > _LONGEST
            else "has white space, control characters or letters that are not ASCII in it"
        )
        raise TokenError(
            f"what {source} gives can be no token: it {kind}",
            hint="set it again, without quotes and line ends",
        )
    return Secret(text)


def _ask_gh(server: Server, env: Mapping[str, str]) -> str:
    return _lines(["gh", "auth", "token", "--hostname", server.host], env, b"")[0]


def _ask_git(server: Server, env: Mapping[str, str]) -> str:
    parts = urlsplit(server.web)
    asked = f"protocol={parts.scheme}\nhost={parts.netloc}\n\n".encode()
    for line in _lines(["git", "credential", "fill"], env, asked):
        key, _, value = line.partition("=")
        if key == "password":
            return value
    return ""


def _lines(argv: Sequence[str], env: Mapping[str, str], stdin: bytes) -> list[str]:
    done = process.run(argv, env=env, stdin=stdin, timeout=_PATIENCE)
    # Only the line end goes: other white space is part of what was said.
    return done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n") or [""]
