"""Which GitHub, and the token for it; `requester` keeps it out of what is shown and kept."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    MachineError,
    TokenError,
    UsageError,
    check_stopping,
)

#: GitHub's own (the variable is the one that GitHub Actions sets).
_PUBLIC: Final = "https://api.github.com"
_VARIABLE: Final = "GITHUB_API_URL"
_HINT: Final = f"give {_VARIABLE} as https://api.github.com or https://HOST/api/v3, or unset it"
_URL: Final = re.compile(
    r"(?i)(?P<scheme>https?)://(?P<host>[a-z0-9][a-z0-9.-]*)(?P<port>(?::[0-9]+)?)"
    r"(?P<path>(?:/[\w.-]+)*)/?"
)
_TOKENS: Final = ("GITHUB_TOKEN", "GH_TOKEN")
#: An empty askpass program also switches off the one of git's configuration.
_SILENT: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
}
#: A credential helper may ask a key ring or a server; it must not hang.
_PATIENCE: Final = 20.0


@dataclass(frozen=True)
class Server:
    """A GitHub server: the URLs of its REST API and of its pages, without a final slash."""

    api: str = _PUBLIC
    web: str = "https://github.com"

    @property
    def host(self) -> str:
        """The host of the server's pages, with its port; a token is for one host."""
        return urlsplit(self.web).netloc


class Secret(SecretStr):
    """A text that does not show itself."""

    def scrub(self, text: str) -> str:
        """Return a text with `***` in place of this secret."""
        return text.replace(self.get_secret_value(), "***")


@dataclass(frozen=True)
class Token:
    """A token, and the name of its source to show a person, such as `GITHUB_TOKEN`."""

    secret: Secret
    source: str


def find_server(environment: Mapping[str, str] | None = None) -> Server:
    """Return the server that `GITHUB_API_URL` names, or github.com."""
    url = (os.environ if environment is None else environment).get(_VARIABLE, "").strip()
    if not url:
        return Server()
    parts = _URL.fullmatch(url)
    scheme, host = (parts["scheme"].lower(), parts["host"].lower()) if parts else ("", "")
    # Without https everybody on the way could read the token; github.com has pages alone.
    plain = scheme == "http" and not is_loopback(host)
    if parts is None or plain or host == "github.com":
        # The URL is not shown: some put a token there.
        raise UsageError(f"{_VARIABLE} is not the https URL of the API of a GitHub", hint=_HINT)
    # The pages of GitHub's own servers are beside `api.`, elsewhere on the same host.
    own = host == "api.github.com" or (host.startswith("api.") and host.endswith(".ghe.com"))
    place, root = f"{host}{parts['port']}", f"{scheme}://"
    pages = place.removeprefix("api.") if own else place
    return Server(f"{root}{place}{parts['path']}", f"{root}{pages}")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_token(server: Server, environment: Mapping[str, str] | None = None) -> Token:
    """Find the token for a server: variables, GitHub's program, git's helpers. Nothing prompts."""
    variables = os.environ if environment is None else environment
    for name in _TOKENS:
        if variables.get(name):
            return Token(_checked(variables[name], name), name)
    # The token keeper is the person's own: it needs their configuration and key ring.
    env, passed_over = {**variables, **_SILENT}, []
    web = urlsplit(server.web)
    description = f"protocol={web.scheme}\nhost={web.netloc}\n\n".encode()
    for source, options, stdin, key in (
        ("gh auth token", ["--hostname", server.host], b"", ""),
        ("git credential fill", [], description, "password="),
    ):
        try:
            done = process.run([*source.split(), *options], env=env, stdin=stdin, timeout=_PATIENCE)
        except CommandTimeoutError:
            passed_over.append(f"`{source}` did not answer in {_PATIENCE:g} s")
        except CommandError:
            continue  # It has none. What it wrote is not shown: it may quote what it was asked.
        except MachineError:
            check_stopping()  # else the program is not installed
        else:
            # Only the line end goes: other white space makes it no token.
            lines = done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
            text = next((line.removeprefix(key) for line in lines if line.startswith(key)), "")
            if text:
                return Token(_checked(text, f"`{source}`"), f"`{source}`")
    aside = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise TokenError(
        f"no GitHub token for {server.host}{aside}",
        hint=f"log in with `gh auth login --hostname {server.host}`, or set GITHUB_TOKEN to a token"
        " with the scope public_repo (repo, for a private repository)",
    )


def _checked(text: str, source: str) -> Secret:
    """Return a token's text as a secret; refuse a text that cannot be a token, unshown."""
    # GitHub's tokens are shorter; a header with more would be refused on the way.
    if not re.fullmatch("[!-~]{1,1024}", text):
        raise TokenError(
            f"what {source} gives can be no token: it is too long, or has white space, control"
            " characters or letters that are not ASCII in it",
            hint="set it again, without quotes and line ends",
        )
    return Secret(text)
