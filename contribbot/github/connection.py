"""What carries PyGithub's requests: bounded, patient, scrubbed of the token, cached.

PyGithub's own connection reads answers of any size, and follows redirects without their query,
writes too. What is repeated, and after which pause, is for PyGithub's `GithubRetry`.
"""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import requests
import urllib3
from github import GithubRetry
from github.Requester import HTTPRequestsConnectionClass, Requester, RequestsResponse
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import ConnectionPool

from contribbot import process
from contribbot.errors import GitHubError, MovedError
from contribbot.github.auth import Secret, Server
from contribbot.github.cache import Cache, Kept
from contribbot.github.waits import MINUTE, Waits

log: Final = logging.getLogger("contribbot.github")

#: More than any answer that contribbot asks for: the listing of PyTorch's tree has 7 MB.
MOST: Final = 64 * 1024 * 1024
#: Seconds until connected, and until the next bytes.
TIMEOUT: Final = (10.0, 60.0)
#: Seconds that one answer may take in all, however its bytes drip.
DEADLINE: Final = 180.0
#: Bytes between two looks at the clock: a chunk is waited for until it is whole.
_CHUNK: Final = 1024
#: They write headers, or whole bodies.
_TALKATIVE: Final = ("github", "github.Requester", "github.GithubRetry", "urllib3.connectionpool")
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
#: Redirects that are followed: a renamed repository makes one.
_HOPS: Final = 3
#: The request cannot have come: it may be sent again, whatever it is.
_UNSENT: Final = (
    urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.NameResolutionError, urllib3.exceptions.ProxyError,
)  # fmt: skip


class OversizeError(Exception):
    """An answer that is read no further."""


class Patience(GithubRetry):
    """PyGithub's judgement of what to send again; the waits are ours.

    With `once`, only what GitHub cannot have acted upon is sent again.
    """

    def __init__(
        self, waits: Waits, *, once: bool, spent: float = 0.0, what: str = "", **kwargs: object
    ) -> None:
        self._waits, self._once, self._spent, self._what = waits, once, spent, what
        given = kwargs or {
            "total": waits.attempts - 1, "redirect": 0, "allowed_methods": None,
            "status_forcelist": [429] if once else [429, *range(500, 600)],
            "raise_on_status": False, "backoff_factor": waits.first,
            "backoff_jitter": waits.first, "backoff_max": 20.0,
        }  # fmt: skip
        super().__init__(**given)  # type: ignore[arg-type]  # as urllib3 handed them out
        if once:
            self.RETRY_AFTER_STATUS_CODES = frozenset({HTTPStatus.TOO_MANY_REQUESTS})

    def new(self, **kw: object) -> Self:
        """Return what is left after an attempt."""
        ours = {"waits": self._waits, "once": self._once, "spent": self._spent, "what": self._what}
        return super().new(**ours, **kw)

    def increment(
        self, method: str | None = None, url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None, error: Exception | None = None,
        _pool: ConnectionPool | None = None, _stacktrace: TracebackType | None = None,
    ) -> Self:  # fmt: skip
        """Count an attempt; raise where there is to be no other."""
        if self._once and error is not None and not isinstance(error, _UNSENT):
            raise error
        self._what = f"{method} {(url or '').partition('?')[0]}"
        found = super().increment(method, url, response, error, _pool, _stacktrace)  # type: ignore[arg-type]  # PyGithub annotates urllib3 1
        assert isinstance(found, type(self))  # noqa: S101  `new` makes it
        return found

    def sleep(self, response: urllib3.BaseHTTPResponse | None = None) -> None:
        """Wait before the next attempt."""
        process.check_stopping()
        if response is None or response.status not in {403, 429}:
            fault = f"HTTP {response.status}" if response else "no whole answer"
            log.warning("%s: %s; trying again", self._what, fault)
            self._waits.sleep(self.get_backoff_time())
            return
        pause = max(self._asked(response), 1.0)
        self._waits.for_limit(pause, self._spent, self._what)
        self._spent += pause

    def _asked(self, response: urllib3.BaseHTTPResponse) -> float:
        """Return the seconds that GitHub asks for."""
        if "Retry-After" in response.headers:
            try:
                return self.get_retry_after(response) or 0.0
            except (urllib3.exceptions.InvalidHeader, OverflowError):
                return MINUTE
        if response.status == HTTPStatus.FORBIDDEN:
            return self.get_backoff_time()  # which PyGithub set, by what the answer says
        reset = response.headers.get("X-RateLimit-Reset", "")
        if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isdigit():
            # One more second: GitHub's clock has whole ones.
            return float(reset) - time.time() + 1.0
        return MINUTE * 2.0 ** len(self.history[:10])


class Answer(RequestsResponse):
    """An answer, as PyGithub reads it; header names are in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        made = requests.Response()
        made.status_code = status
        made.headers.update(headers)
        super().__init__(made)
        self.said, self.body = headers, body

    def read(self) -> str:
        """Return the body; bytes that are no UTF-8 survive the way back."""
        return self.body.decode("utf-8", "surrogateescape")


class Wire:
    """The sessions with one server; for any thread."""

    def __init__(self, server: Server, secret: Secret, waits: Waits, cache: Cache) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)
        parts = urlsplit(server.api)
        self._base, self._waits = f"{parts.scheme}://{parts.netloc}", waits
        self._secret, self._cache = secret, cache
        self._sessions: dict[bool, requests.Session] = {}
        for once in (False, True):
            session = self._sessions[once] = requests.Session()
            session.auth = Requester.noopAuth  # else .netrc would be asked
            session.trust_env = not server.local  # a proxy has no business on this machine
            adapter = HTTPAdapter(max_retries=Patience(waits, once=once))
            session.mount("https://", adapter)
            session.mount("http://", adapter)

    def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            session.close()

    def send(
        self, verb: str, path: str, body: str | None, headers: dict[str, str],
        *, once: bool, follow: bool,
    ) -> Answer:  # fmt: skip
        """Send a request, and follow it to where it leads on this server."""
        url = f"{headers.get('Accept', '')} {self._base}{path}"
        kept = self._cache.find(url) if verb == "GET" else None
        asked = {**headers, "If-None-Match": kept.etag} if kept else headers
        answer = self._patiently(verb, path, body, asked, once=once)
        for _ in range(_HOPS):
            if answer.status not in _REDIRECTS or not follow:
                break
            target = self._target(answer, f"{verb} {path.partition('?')[0]}", read=verb == "GET")
            answer = self._patiently(verb, target, None, asked, once=once)
        else:
            raise GitHubError(f"{verb} {path.partition('?')[0]}: GitHub redirects in a circle")
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            link = {"link": kept.link} if kept.link else {}
            return Answer(HTTPStatus.OK, {**answer.said, **link}, kept.body)
        if verb == "GET" and answer.status == HTTPStatus.OK:
            etag, link_to = answer.said.get("etag", ""), answer.said.get("link", "")
            self._cache.keep(url, Kept(etag, link_to, answer.body))
        return answer

    def _patiently(
        self, verb: str, path: str, body: str | None, headers: dict[str, str], *, once: bool
    ) -> Answer:
        """Send a request again where its answer was cut short, as urllib3 does before that."""
        for attempt in range(1, self._waits.attempts + 1):
            process.check_stopping()
            response = self._sessions[once].request(
                verb, f"{self._base}{path}", data=body.encode() if body is not None else None,
                headers=headers, timeout=TIMEOUT, allow_redirects=False, stream=True,
            )  # fmt: skip
            try:
                return self._read(response)
            except requests.RequestException:
                if once or attempt == self._waits.attempts:
                    raise
                self._waits.sleep(self._waits.first * (attempt - 1))
        raise AssertionError("a loop that ends otherwise")

    def _read(self, response: requests.Response) -> Answer:
        with response:
            body = read_body(response, MOST)
        # A server that quotes the token must not get it into a message or a file.
        said = {name.lower(): self._secret.scrub(one) for name, one in response.headers.items()}
        return Answer(response.status_code, said, _without(body, self._secret))

    def _target(self, answer: Answer, what: str, *, read: bool) -> str:
        """Return path and query of where an answer leads, which must be on this server."""
        if not read:
            raise MovedError(
                f"{what}: GitHub says that it has moved, and contribbot writes nowhere else",
                hint="the repository was renamed: an upstream's name is `repository` in"
                " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the"
                " queue's own is that of its git remote origin, or --repo OWNER/NAME",
            )
        url = answer.said.get("location", "")
        try:
            parts = urlsplit(url)
            same = not parts.netloc or f"{parts.scheme}://{parts.netloc}" == self._base
        except ValueError:
            parts, same = urlsplit(""), False
        if not same or not parts.path.startswith("/") or not url.isprintable():
            raise elsewhere(what, url)
        return parts._replace(scheme="", netloc="", fragment="").geturl()


def elsewhere(what: str, url: str) -> GitHubError:
    """Return the error for an answer that leads to another server."""
    return GitHubError(
        f"{what[:200]}: GitHub points to another server: {url[:200]!a}",
        hint="correct GITHUB_API_URL, if that is the right one",
    )


def read_body(response: requests.Response, most: int) -> bytes:
    """Return a body of so many bytes at most, in the time that one answer may take."""
    started, body = time.monotonic(), bytearray()
    for chunk in response.iter_content(_CHUNK):
        process.check_stopping()
        body += chunk
        if len(body) > most:
            raise OversizeError(f"an answer of more than {most >> 20} MiB")
        if time.monotonic() - started > DEADLINE:
            raise requests.Timeout(f"no whole answer after {DEADLINE:g} s")
    return bytes(body)


def _without(content: bytes, secret: Secret) -> bytes:
    return content.replace(secret.get_secret_value().encode(), b"***")


class Exchange(HTTPRequestsConnectionClass):
    """One request, as PyGithub makes it: what it is handed as a connection."""

    def __init__(self, wire: Wire, *, once: bool, follow: bool) -> None:
        self._wire, self._once, self._follow = wire, once, follow

    def getresponse(self) -> Answer:
        """Send it, and return the answer."""
        return self._wire.send(
            self.verb, self.url, self.input, self.headers, once=self._once, follow=self._follow
        )
