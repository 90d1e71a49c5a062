"""Find the GitHub server and its token; `client` keeps the token out of messages and files."""

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

#: The API of github.com; the variable that may name another API (GitHub Actions sets it).
_PUBLIC: Final = "https://api.github.com"
_VARIABLE: Final = "GITHUB_API_URL"
_HINT: Final = f"give {_VARIABLE} as https://api.github.com or https://HOST/api/v3, or unset it"
_URL: Final = re.compile(
    r"(?i)(?P<scheme>https?)://(?P<host>[a-z0-9][a-z0-9.-]*)(?P<port>(?::[0-9]+)?)"
    r"(?P<path>(?:/[\w.-]+)*)/?"
)
_TOKENS: Final = ("GITHUB_TOKEN", "GH_TOKEN")
#: An empty askpass program also switches off the askpass program of git's configuration.
_SILENT: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
}
#: Seconds for a credential helper, which may ask a key ring or a server, and may hang.
_PATIENCE: Final = 20.0


@dataclass(frozen=True)
class Server:
    """A GitHub server: the URLs of its REST API and of its pages, without a final slash."""

    api: str = _PUBLIC
    web: str = "https://github.com"

    @property
    def host(self) -> str:
        """The host and port of the server's pages."""
        return urlsplit(self.web).netloc


class Secret(SecretStr):
    """A secret text, which `str` and `repr` show only as asterisks."""

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
    # Without https, others could read the token; github.com is no host of an API.
    plain = scheme == "http" and not is_loopback(host)
    if parts is None or plain or host == "github.com":
        # The URL is not shown: some put a token there.
        raise UsageError(f"{_VARIABLE} is not the https URL of the API of a GitHub", hint=_HINT)
    # GitHub's servers have pages on the host without `api.`; other servers, on the API's host.
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
    """Find a server's token: from variables, gh, or git's helpers, none of which may prompt."""
    variables = os.environ if environment is None else environment
    for name in _TOKENS:
        if variables.get(name):
            return Token(_checked(variables[name], name), name)
    web, silent = urlsplit(server.web), list[str]()
    description = f"protocol={web.scheme}\nhost={web.netloc}\n\n".encode()
    for source, options, stdin, key in (
        ("gh auth token", ["--hostname", server.host], b"", ""),
        ("git credential fill", [], description, "password="),
    ):
        # gh and git's helpers need the user's whole environment: configuration and key ring.
        env, command = {**variables, **_SILENT}, [*source.split(), *options]
        try:
            done = process.run(command, env=env, stdin=stdin, timeout=_PATIENCE)
        except CommandTimeoutError:
            silent.append(f"`{source}` did not answer in {_PATIENCE:g} s")
        except CommandError:
            continue  # no token; the program's output is not shown, for it may quote the request
        except MachineError:
            check_stopping()  # else the program is not installed
        else:
            # Only line ends are removed: a text with other white space is no token.
            lines = done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
            text = next((line.removeprefix(key) for line in lines if line.startswith(key)), "")
            if text:
                return Token(_checked(text, f"`{source}`"), f"`{source}`")
    aside = f" ({'; '.join(silent)})" if silent else ""
    raise TokenError(
        f"no GitHub token for {server.host}{aside}",
        hint=f"log in with `gh auth login --hostname {server.host}`, or set GITHUB_TOKEN to a token"
        " with the scope public_repo (repo, for a private repository)",
    )


def _checked(text: str, source: str) -> Secret:
    """Return a token as a Secret; raise TokenError, without its text, for an invalid token."""
    # GitHub's tokens are shorter than 1024; a server or proxy would refuse a longer header.
    if not re.fullmatch("[!-~]{1,1024}", text):
        raise TokenError(
            f"what {source} gives can be no token: it is too long, or has white space, control"
            " characters or letters that are not ASCII in it",
            hint="set it again, without quotes and line ends",
        )
    return Secret(text)
