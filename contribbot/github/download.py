"""Fetching what GitHub keeps elsewhere: artifacts lie on another server, at a signed address.

The token never goes there: whoever has the address needs none.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import requests
from github.Requester import Requester as PyGithubs

from contribbot.errors import GitHubError, RefusedError
from contribbot.github.auth import Server, is_loopback
from contribbot.github.connection import TIMEOUT, Answer, OversizeError, read_body
from contribbot.github.refusals import clean_line
from contribbot.github.requester import Requester

_WHAT: Final = "fetching an artifact"


def fetch(requester: Requester, path: str, *, most: int) -> bytes:
    """Return what lies where GitHub says that something lies."""

    def exchange() -> Answer:
        return _fetch(_checked(requester.location(path), requester.server), most)

    answer = requester.wire.patiently(_WHAT, exchange)
    if answer.status != HTTPStatus.OK:
        raise GitHubError(f"{_WHAT}: its storage says {answer.status}")
    return answer.body


def _fetch(url: str, most: int) -> Answer:
    with requests.Session() as session:
        # A proxy has no business on this machine, and what .netrc says of the host is not sent.
        session.trust_env = not is_loopback(urlsplit(url).hostname or "")
        session.auth = PyGithubs.noopAuth
        plain = {"Accept-Encoding": "identity"}
        with session.get(
            url, stream=True, timeout=TIMEOUT, allow_redirects=False, headers=plain
        ) as response:
            try:
                body = read_body(response, most)
            except OversizeError:
                raise RefusedError(f"{_WHAT}: more than {most} bytes came", status=413) from None
            return Answer(response.status_code, {}, body)


def _checked(url: str, server: Server) -> str:
    """Refuse an address that is none, or on which others could listen in."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    plain = parts.scheme == "http" and server.local and is_loopback(host)
    if not host or "@" in parts.netloc or not (parts.scheme == "https" or plain):
        said = clean_line(f"{parts.scheme}://{host}", 100)
        raise GitHubError(f"{_WHAT}: GitHub points to {said}, which is not https")
    return url
