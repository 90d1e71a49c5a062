"""What carries PyGithub's requests: bounded, patient, scrubbed of the token, cached.

PyGithub's own connection reads answers of any size, and follows redirects without their query,
writes too. What is repeated, and after which pause, is for PyGithub's `GithubRetry`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
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
#: Statuses by which GitHub asks for a pause.
_LIMITS: Final = frozenset({403, 429})
#: The request cannot have come: it may be sent again, whatever it is.
_UNSENT: Final = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.NameResolutionError,
    urllib3.exceptions.ProxyError,
)


class OversizeError(Exception):
    """An answer that is read no further."""


@dataclass(frozen=True)
class Answer:
    """What a server said; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Patience(GithubRetry):
    """PyGithub's judgement of what to send again; the waits are ours.

    With `once`, only what GitHub cannot have acted upon is sent again.
    """

    def __init__(
        self, waits: Waits, *, once: bool = False, spent: float = 0.0, what: str = "",
        **kwargs: object,
    ) -> None:  # fmt: skip
        self._waits, self._once, self._spent, self._what = waits, once, spent, what
        super().__init__(**kwargs)  # type: ignore[arg-type]  # as urllib3 handed them out
        if once:
            self.RETRY_AFTER_STATUS_CODES = frozenset({HTTPStatus.TOO_MANY_REQUESTS})

    @classmethod
    def of(cls, waits: Waits, *, once: bool) -> Self:
        """Return what a session begins with."""
        return cls(
            waits, once=once, total=waits.attempts - 1, redirect=0, allowed_methods=None,
            status_forcelist=[429] if once else [429, *range(500, 600)], raise_on_status=False,
            backoff_factor=waits.first, backoff_jitter=waits.first, backoff_max=20.0,
        )  # fmt: skip

    def new(self, **kw: object) -> Self:
        """Return what is left after an attempt."""
        return super().new(
            waits=self._waits, once=self._once, spent=self._spent, what=self._what, **kw
        )

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
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
        pause = self._asked(response)
        if pause is None:
            log.warning("%s: %s; trying again", self._what,
                        f"HTTP {response.status}" if response else "no whole answer")  # fmt: skip
            self._waits.sleep(self.get_backoff_time())
            return
        pause = max(pause, 1.0)
        self._waits.for_limit(pause, self._spent, self._what)
        self._spent += pause

    def _asked(self, response: urllib3.BaseHTTPResponse | None) -> float | None:
        """Return the seconds that GitHub asks for; None where it does not ask."""
        if response is None or response.status not in _LIMITS:
            return None
        if "Retry-After" in response.headers:
            try:
                return self.get_retry_after(response)
            except (urllib3.exceptions.InvalidHeader, OverflowError):
                return MINUTE
        if response.status == HTTPStatus.FORBIDDEN:
            return self.get_backoff_time()  # which PyGithub set, by what the answer says
        reset = response.headers.get("X-RateLimit-Reset", "")
        if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isdigit():
            # One more second: GitHub's clock has whole ones.
            return max(float(reset) - time.time(), 0.0) + 1.0
        return MINUTE * 2.0 ** len(self.history[:10])


class Wire:
    """The sessions with one server; for any thread."""

    def __init__(self, server: Server, secret: Secret, waits: Waits, cache: Cache) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)
        parts = urlsplit(server.api)
        self.server, self.waits = server, waits
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._secret, self._cache = secret, cache
        self._sessions = {once: self._session(once=once) for once in (False, True)}

    def _session(self, *, once: bool) -> requests.Session:
        session = requests.Session()
        session.auth = Requester.noopAuth  # else .netrc would be asked
        if self.server.local:
            session.trust_env = False  # a proxy has no business on this machine
        adapter = HTTPAdapter(max_retries=Patience.of(self.waits, once=once))
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        return session

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
        for hop in range(_HOPS + 1):
            if answer.status not in _REDIRECTS or not follow:
                break
            what = f"{verb} {path.partition('?')[0]}"
            if verb != "GET":
                raise moved(what)
            if hop == _HOPS:
                raise GitHubError(f"{what}: GitHub redirects in a circle")
            target = self._here(answer.headers.get("location", ""), what)
            answer = self._patiently(verb, target, None, asked, once=once)
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            link = {"link": kept.link} if kept.link else {}
            return Answer(HTTPStatus.OK, {**answer.headers, **link}, kept.body)
        if verb == "GET" and answer.status == HTTPStatus.OK:
            said = answer.headers
            self._cache.keep(url, Kept(said.get("etag", ""), said.get("link", ""), answer.body))
        return answer

    def _patiently(
        self, verb: str, path: str, body: str | None, headers: dict[str, str], *, once: bool
    ) -> Answer:
        """Send a request again where its answer was cut short, as urllib3 does before that."""
        for attempt in range(1, self.waits.attempts + 1):
            process.check_stopping()
            response = self._sessions[once].request(
                verb, f"{self._base}{path}", data=body.encode() if body is not None else None,
                headers=headers, timeout=TIMEOUT, allow_redirects=False, stream=True,
            )  # fmt: skip
            try:
                return self._read(response)
            except requests.RequestException:
                if once or attempt == self.waits.attempts:
                    raise
                self.waits.sleep(self.waits.first * (attempt - 1))
        raise AssertionError("a loop that ends otherwise")

    def _read(self, response: requests.Response) -> Answer:
        started, body = time.monotonic(), bytearray()
        with response:
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > MOST:
                    raise OversizeError(f"an answer of more than {MOST >> 20} MiB")
                if time.monotonic() - started > DEADLINE:
                    raise requests.Timeout(f"no whole answer after {DEADLINE:g} s")
        # A server that quotes the token must not get it into a message or a file.
        headers = {name.lower(): self._secret.scrub(one) for name, one in response.headers.items()}
        return Answer(response.status_code, headers, self._secret.scrub_bytes(bytes(body)))

    def _here(self, url: str, what: str) -> str:
        """Return path and query of a URL on this server."""
        try:
            parts = urlsplit(url)
            same = not parts.netloc or f"{parts.scheme}://{parts.netloc}" == self._base
        except ValueError:
            parts, same = urlsplit(""), False
        if not same or not parts.path.startswith("/") or not url.isprintable():
            raise GitHubError(
                f"{what}: GitHub points to another server: {url[:200]!a}",
                hint="correct GITHUB_API_URL, if that is the right one",
            )
        return parts._replace(scheme="", netloc="", fragment="").geturl()


class Exchange(HTTPRequestsConnectionClass):
    """One request, as PyGithub makes it: what it is handed as a connection."""

    def __init__(self, wire: Wire, *, once: bool = False, follow: bool = True) -> None:
        self._wire, self._once, self._follow = wire, once, follow

    def getresponse(self) -> RequestsResponse:
        """Send it, and return the answer."""
        answer = self._wire.send(
            self.verb, self.url, self.input, self.headers, once=self._once, follow=self._follow
        )
        return _Response(answer)

    def close(self) -> None:
        """Leave the sessions open for the next request."""


class _Response(RequestsResponse):
    """An answer, as PyGithub reads it."""

    def __init__(self, answer: Answer) -> None:
        made = requests.Response()
        made.status_code = answer.status
        made.headers.update(answer.headers)
        super().__init__(made)
        self._body = answer.body

    def read(self) -> str:
        """Return the body; bytes that are no UTF-8 survive the way back."""
        return self._body.decode("utf-8", "surrogateescape")


def moved(what: str) -> MovedError:
    """Return the error for a write that GitHub would send elsewhere."""
    return MovedError(
        f"{what}: GitHub says that it has moved, and contribbot writes nowhere else",
        hint="the repository was renamed: an upstream's name is `repository` in"
        " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the queue's"
        " own is that of its git remote origin, or --repo OWNER/NAME",
    )
