"""PyGithub's requester as the transport, with its own judgement switched off.

PyGithub makes the request (the address, the token's header, JSON, proxies, certificates);
a connection of ours carries it. PyGithub's would read answers of any size, follow redirects
without their query and repeat by themselves; ours reads a bounded body and gives the answer
as it came. What to make of it is for `caller`.

Imported late: PyGithub takes 0.2 s to load.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import ItemsView, Mapping
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3
from github import Auth
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester
from pydantic import JsonValue

from contribbot import __version__
from contribbot.github.answer import Answer
from contribbot.github.server import Server
from contribbot.github.token import Secret

log: Final = logging.getLogger("contribbot.github")

#: More than any answer that contribbot asks for: the listing of PyTorch's tree has 7 MB.
MOST: Final = 64 * 1024 * 1024
#: Seconds until connected, and until the next bytes.
_TIMEOUT: Final = (10.0, 60.0)
#: Seconds that one answer may take in all, however its bytes drip.
_DEADLINE: Final = 180.0
#: Bytes between two looks at the clock: a chunk is waited for until it is whole.
_CHUNK: Final = 1024
#: The version that the models are checked against, and what GitHub takes by default.
_VERSION: Final = "2022-11-28"
#: They write headers, or whole bodies.
_TALKATIVE: Final = ("github", "github.Requester", "urllib3", "urllib3.connectionpool")


class WireError(Exception):
    """There is no answer.

    Attributes:
        why: Why, in words of ours: those of the libraries quote URLs and proxies.
        acted: Whether the server may have got the request.
        passing: Whether it may be better next time.
    """

    def __init__(self, why: str, *, acted: bool = True, passing: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.acted = acted
        self.passing = passing


class _Nothing:
    """What PyGithub gets to see: an answer that it has nothing to do with."""

    status: Final = 200

    @staticmethod
    def read() -> str:
        """Return no body."""
        return ""

    @staticmethod
    def getheaders() -> ItemsView[str, str]:
        """Return no headers."""
        return dict[str, str]().items()


class _Carrier:
    """Sends what PyGithub prepared, and keeps the answer."""

    def __init__(self, session: requests.Session, base: str) -> None:
        self._session = session
        self._base = base
        self._prepared: tuple[str, str, str | None, dict[str, str]] = ("GET", "/", None, {})
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    def request(
        self,
        verb: str,
        url: str,
        input: str | None,  # noqa: A002  PyGithub's name
        headers: dict[str, str],
        stream: bool = False,  # noqa: FBT001, FBT002  PyGithub's order
    ) -> None:
        """Take over a request."""
        del stream
        self._prepared = (verb, url, input, headers)

    def getresponse(self) -> _Nothing:
        """Send it, and read the answer."""
        verb, url, content, headers = self._prepared
        self._prepared = ("GET", "/", None, {})
        started = time.monotonic()
        with self._session.request(
            verb,
            f"{self._base}{url}",
            data=content.encode() if content is not None else None,
            headers=headers,
            timeout=_TIMEOUT,
            allow_redirects=False,
            stream=True,
        ) as response:
            body = bytearray()
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > MOST:
                    raise WireError(f"an answer of more than {MOST >> 20} MiB", passing=False)
                if time.monotonic() - started > _DEADLINE:
                    raise WireError(f"no whole answer after {_DEADLINE:g} s")
            self.status = response.status_code
            self.headers = {name.lower(): value for name, value in response.headers.items()}
            self.body = bytes(body)
        return _Nothing()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


class Link:
    """One connection to a server; for one thread."""

    def __init__(self, server: Server, secret: Secret) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.INFO)
        self._secret = secret
        self._server = urlsplit(server.api).netloc
        self._requester = Requester(
            auth=Auth.Token(secret.reveal()),
            base_url=server.api,
            timeout=int(_TIMEOUT[1]),
            user_agent=f"contribbot/{__version__}",
            per_page=100,
            verify=True,
            retry=None,
            pool_size=1,
            seconds_between_requests=None,
            seconds_between_writes=None,
        )
        base = f"{self._requester.scheme}://{self._requester.hostname_and_port}"
        kind = (
            HTTPSRequestsConnectionClass
            if self._requester.scheme == "https"
            else HTTPRequestsConnectionClass
        )
        # PyGithub's own session: no .netrc, no repeats.
        session = kind(self._requester.hostname, pool_size=1).session
        if server.local:
            session.trust_env = False  # a proxy has no business on this machine
        self._carrier = _Carrier(session, base)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonValue = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, once, and return the answer, whatever it is."""
        where = self._requester.graphql_url if path == "/graphql" else path
        what = f"{method} {path.partition('?')[0]}"
        wanted = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": _VERSION,
            **(headers or {}),
        }
        started = time.monotonic()
        try:
            self._requester.requestJson(
                method, where, dict(query or {}), wanted, body,
                self._carrier,  # type: ignore[arg-type]  # it has what PyGithub calls
            )  # fmt: skip
        except WireError as error:
            fault = error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            fault = _fault(error, self._server)
        else:
            carrier = self._carrier
            log.debug("%s: %d in %.2f s", what, carrier.status, time.monotonic() - started)
            # A server that quotes the token must not get it into a message or a file.
            said = {name: self._secret.scrub(value) for name, value in carrier.headers.items()}
            return Answer(carrier.status, said, self._secret.scrub_bytes(carrier.body), what)
        log.debug("%s: %s", what, fault.why)
        # Outside of the block: the libraries' exceptions hold the request, and that the token.
        raise WireError(fault.why, acted=fault.acted, passing=fault.passing)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._carrier.close()
            self._requester.close()


#: What the libraries' exceptions mean, the particular before the general: our words, whether
#: the server may have got the request, and whether it may be better next time.
_FAULTS: Final[tuple[tuple[type[BaseException], str, bool, bool], ...]] = (
    (requests.exceptions.ProxyError, "the proxy does not let it through", False, True),
    (requests.exceptions.ConnectTimeout, "no connection to {server} in time", False, True),
    (requests.exceptions.ChunkedEncodingError, "the answer is cut short", True, True),
    (requests.exceptions.ContentDecodingError, "the answer is garbled", True, True),
    (requests.exceptions.InvalidURL, "the request cannot be sent", False, False),
    (requests.exceptions.InvalidHeader, "the request cannot be sent", False, False),
    (requests.exceptions.InvalidSchema, "the request cannot be sent", False, False),
    (urllib3.exceptions.NameResolutionError, "the name of {server} is not known here", False, True),
    (urllib3.exceptions.NewConnectionError, "{server} cannot be reached", False, True),
    (requests.exceptions.Timeout, "no answer in time", True, True),
    (urllib3.exceptions.TimeoutError, "no answer in time", True, True),
    (TimeoutError, "no answer in time", True, True),
)


def _fault(error: BaseException, server: str) -> WireError:
    """Word what a library says of a connection to a server."""
    inside = _causes(error)
    if any("CERTIFICATE_VERIFY_FAILED" in str(one) for one in inside):
        return WireError("its certificate is not trusted", acted=False, passing=False)
    for kind, why, acted, passing in _FAULTS:
        if any(isinstance(one, kind) for one in inside):
            return WireError(why.format(server=server), acted=acted, passing=passing)
    return WireError("the connection broke")


def _causes(error: BaseException) -> list[BaseException]:
    """Return an exception with all that are inside of it."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting and len(found) < 50:  # noqa: PLR2004  more than any chain has; it may be a ring
        one = waiting.pop()
        found.append(one)
        inside = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        waiting += [
            other for other in inside if isinstance(other, BaseException) and other not in found
        ]
    return found
