"""Fetching what GitHub keeps elsewhere: artifacts lie on another server, at a signed address.

The token never goes there: whoever has the address needs none.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from contribbot import process
from contribbot.errors import GitHubError
from contribbot.github.auth import Server, is_loopback
from contribbot.github.refusals import clean_line
from contribbot.github.waits import Waits

if TYPE_CHECKING:
    import requests

log: Final = logging.getLogger(__name__)

#: Seconds until connected, and until the next bytes; and for all of it.
_TIMEOUT: Final = (10.0, 60.0)
_DEADLINE: Final = 600.0
_CHUNK: Final = 64 * 1024
_OK: Final = 200
_SERVER_ERRORS: Final = range(500, 600)


class TooLargeError(GitHubError):
    """More came than was to come."""


class _PassingError(Exception):
    """It may be better next time."""


def fetch(
    address: Callable[[], str], place: Path, *, most: int, server: Server, waits: Waits
) -> str:
    """Fetch a file, and return the SHA-256 of what came."""
    import requests  # noqa: PLC0415  start-up time

    fault = ""
    for attempt in range(waits.attempts):
        if attempt:
            log.warning("fetching an artifact: %s; trying again", fault)
            waits.sleep(waits.first * 2.0 ** (attempt - 1))
        url = _checked(address(), server)
        try:
            with requests.Session() as session:
                return _fetch(session, url, place, most)
        except _PassingError as error:
            fault = str(error)
        except requests.RequestException as error:
            # The library's words quote the address, and its signature with it.
            fault = f"the connection broke ({type(error).__name__})"
        except BaseException:
            place.unlink(missing_ok=True)
            raise
    place.unlink(missing_ok=True)
    raise GitHubError(
        f"fetching an artifact: {fault}, {waits.attempts} times",
        hint="check the network and https://www.githubstatus.com, and run it again",
    )


def _fetch(session: requests.Session, url: str, place: Path, most: int) -> str:
    if is_loopback(urlsplit(url).hostname or ""):
        session.trust_env = False  # a proxy has no business on this machine
    # Without something here, what .netrc says of the host would be sent.
    session.auth = _nobody
    started, size, digest = time.monotonic(), 0, hashlib.sha256()
    with (
        session.get(
            url, stream=True, timeout=_TIMEOUT, allow_redirects=False,
            headers={"Accept-Encoding": "identity"},
        ) as response,
        place.open("wb") as file,
    ):  # fmt: skip
        if response.status_code in _SERVER_ERRORS:
            raise _PassingError(f"HTTP {response.status_code}")
        if response.status_code != _OK:
            raise GitHubError(f"fetching an artifact: its storage says {response.status_code}")
        for chunk in response.iter_content(_CHUNK):
            process.check_stopping()
            size += len(chunk)
            if size > most:
                raise TooLargeError(f"fetching an artifact: more than {most} bytes came")
            if time.monotonic() - started > _DEADLINE:
                raise _PassingError(f"not all there after {_DEADLINE:g} s")
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Add no credentials."""
    return request


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
        raise GitHubError(f"fetching an artifact: GitHub points to {said}, which is not https")
    return url
