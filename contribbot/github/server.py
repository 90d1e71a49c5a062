"""Which GitHub: the server that `GITHUB_API_URL` names."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from contribbot.errors import UsageError

#: GitHub's own (the variable is the one that GitHub Actions sets).
_PUBLIC: Final = "https://api.github.com"
_VARIABLE: Final = "GITHUB_API_URL"
_HINT: Final = f"give {_VARIABLE} as https://api.github.com or https://HOST/api/v3, or unset it"


@dataclass(frozen=True)
class Server:
    """A GitHub.

    Attributes:
        api: The URL of its REST API, without a slash at the end.
        web: The URL of its pages, without a slash at the end.
    """

    api: str = _PUBLIC
    web: str = "https://github.com"

    @property
    def host(self) -> str:
        """Return the host of its pages, with a port where it has one: what tokens are for."""
        return urlsplit(self.web).netloc

    @property
    def local(self) -> bool:
        """Whether it runs on this machine."""
        return _loopback(urlsplit(self.api).hostname or "")


def find_server(environment: Mapping[str, str] | None = None) -> Server:
    """Return the server to speak to."""
    said = (os.environ if environment is None else environment).get(_VARIABLE, "").strip()
    if not said:
        return Server()
    try:
        parts = urlsplit(said)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{_VARIABLE}: not a URL: {error}", hint=_HINT) from None
    host = parts.hostname or ""
    if "@" in parts.netloc:
        raise UsageError(
            f"{_VARIABLE}: a name or password in it would be sent and logged", hint=_HINT
        )
    # Without query and fragment: some put a token there.
    shown = parts._replace(query="", fragment="").geturl()
    if not host or parts.query or parts.fragment or not said.isprintable() or " " in said:
        raise UsageError(f"{_VARIABLE}: not the URL of an API: {shown!r}", hint=_HINT)
    if parts.scheme != "https" and not (parts.scheme == "http" and _loopback(host)):
        raise UsageError(
            f"{_VARIABLE}={shown}: without https everybody on the way could read the token",
            hint=_HINT,
        )
    api = f"{parts.scheme}://{_place(host, port)}{parts.path.rstrip('/')}"
    return Server(api=api, web=_web(parts, host, port))


def _web(parts: SplitResult, host: str, port: int | None) -> str:
    """Return where the pages are: `api.HOST` at GitHub's own, the same host elsewhere."""
    if host == "api.github.com" or (host.startswith("api.") and host.endswith(".ghe.com")):
        host = host.removeprefix("api.")
    return f"{parts.scheme}://{_place(host, port)}"


def _place(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
