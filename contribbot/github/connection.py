"""What carries PyGithub's requests: bounded, patient, scrubbed of the token, cached.

PyGithub's own connection reads answers of any size, follows redirects without their query, writes
too, and repeats what would make another one each time that it is sent.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, ItemsView
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import requests
import urllib3
from github.Requester import HTTPRequestsConnectionClass, Requester, RequestsResponse

from contribbot import process
from contribbot.errors import GitHubError, MovedError, RateLimitError, UncertainError
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
#: Seconds of the longest pause between attempts.
_LONGEST_PAUSE: Final = 20.0
#: They write headers, or whole bodies.
_TALKATIVE: Final = ("github", "github.Requester", "urllib3.connectionpool")
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
#: Redirects that are followed: a renamed repository makes one.
_HOPS: Final = 3
#: What GitHub says in a 403 that is a limit, and no refusal.
_LIMIT: Final = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
#: GraphQL answers 200 and says it inside, in either spelling.
_GRAPHQL_LIMIT: Final = re.compile(rb'"type"\s*:\s*"RATE_LIMIT(ED)?"')
_LOOK: Final = "run it again: it looks first whether that happened"
_LATER: Final = "check the network and https://www.githubstatus.com, and run it again"
_CHECK: Final = "check the network, the certificates, and GITHUB_API_URL"


class OversizeError(Exception):
    """An answer that is read no further."""


@dataclass(frozen=True)
class _Fault:
    """What came between: whether GitHub may have acted, and whether another attempt may help."""

    words: str
    acted: bool = False
    passes: bool = True


_UNSENDABLE: Final = _Fault("the request cannot be sent", passes=False)
#: What the libraries' exceptions mean in our words (theirs quote URLs and proxies), the
#: particular before the general.
_FAULTS: Final[tuple[tuple[type[BaseException], _Fault], ...]] = (
    (requests.exceptions.ProxyError, _Fault("the proxy does not let it through")),
    (requests.exceptions.ConnectTimeout, _Fault("no connection to {server} in time")),
    (requests.exceptions.ChunkedEncodingError, _Fault("the answer is cut short", acted=True)),
    (requests.exceptions.ContentDecodingError, _Fault("the answer is garbled", acted=True)),
    (requests.exceptions.InvalidURL, _UNSENDABLE),
    (requests.exceptions.InvalidHeader, _UNSENDABLE),
    (urllib3.exceptions.NameResolutionError, _Fault("the name of {server} is not known here")),
    (urllib3.exceptions.NewConnectionError, _Fault("{server} cannot be reached")),
    (requests.exceptions.Timeout, _Fault("no answer in time", acted=True)),
    (OversizeError, _Fault("an answer of more than {most} MiB", acted=True, passes=False)),
    (Exception, _Fault("the connection broke", acted=True)),
)


class Answer(RequestsResponse):
    """An answer, as PyGithub reads it; header names are in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        # Not its own: that wants an answer of requests'.
        self.status, self.said, self.body = status, headers, body

    def getheaders(self) -> ItemsView[str, str]:
        """Return the headers."""
        return self.said.items()

    def read(self) -> str:
        """Return the body; bytes that are no UTF-8 survive the way back."""
        return self.body.decode("utf-8", "surrogateescape")


class Wire:
    """The session with one server; for any thread."""

    def __init__(self, server: Server, secret: Secret, waits: Waits, cache: Cache) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)
        parts = urlsplit(server.api)
        self._server, self._base = server, f"{parts.scheme}://{parts.netloc}"
        self._secret, self._waits, self._cache = secret, waits, cache
        self._session = requests.Session()
        self._session.auth = Requester.noopAuth  # else .netrc would be asked
        self._session.trust_env = not server.local  # a proxy has no business on this machine

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def send(
        self, what: str, verb: str, path: str, body: str | None, headers: dict[str, str],
        *, once: bool, follow: bool,
    ) -> Answer:  # fmt: skip
        """Send a request, and follow it to where it leads on this server."""
        url = f"{headers.get('Accept', '')} {self._base}{path}"
        kept = self._cache.find(url) if verb == "GET" else None
        asked = {**headers, "If-None-Match": kept.etag} if kept else headers
        answer = self.patiently(what, lambda: self._exchange(verb, path, body, asked), once=once)
        for _ in range(_HOPS):
            if answer.status not in _REDIRECTS or not follow:
                break
            target = self._target(answer, what, read=verb == "GET")
            answer = self.patiently(what, partial(self._exchange, verb, target, None, asked))
        else:
            raise GitHubError(f"{what}: GitHub redirects in a circle")
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            link = {"link": kept.link} if kept.link else {}
            return Answer(HTTPStatus.OK, {**answer.said, **link}, kept.body)
        if verb == "GET" and answer.status == HTTPStatus.OK:
            etag, link_to = answer.said.get("etag", ""), answer.said.get("link", "")
            self._cache.keep(url, Kept(etag, link_to, answer.body))
        return answer

    def patiently(self, what: str, exchange: Callable[[], Answer], *, once: bool = False) -> Answer:
        """Send a request until it is answered; with `once`, only what GitHub did not act upon."""
        spent, waits = 0.0, self._waits
        for attempt in range(1, waits.attempts + 1):
            process.check_stopping()
            came: Answer | _Fault
            try:
                came = exchange()
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError,
                    OversizeError) as error:  # fmt: skip
                came = self._fault(error)
            # Outside of the block: the libraries' exceptions hold the request, and that the token.
            last = attempt == waits.attempts
            if isinstance(came, Answer):
                log.debug("%s: %s", what, came.status)
                if (pause := _asked_pause(what, came, attempt)) is not None:
                    if last:
                        raise RateLimitError(
                            f"{what}: GitHub goes on asking for pauses, {attempt} times",
                            hint="run it again later; what is done stays done",
                        )
                    waits.for_limit(pause, spent, what)
                    spent += pause
                    continue
                if came.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return came
                came = _Fault(f"HTTP {came.status}", acted=True)
            if once and came.acted:
                raise UncertainError(
                    f"{what}: {came.words}: nobody knows whether it happened", hint=_LOOK
                )
            if not came.passes:
                raise GitHubError(f"{what}: {came.words}", hint=f"{_CHECK} ({self._server.api})")
            if last:
                raise GitHubError(f"{what}: {came.words}, {attempt} times", hint=_LATER)
            log.warning("%s: %s; trying again", what, came.words)
            # The first is tried again at once.
            pause = waits.first * (2.0 ** (attempt - 1) + random.random()) if attempt > 1 else 0.0  # noqa: S311  no secret
            waits.sleep(min(pause, _LONGEST_PAUSE))
        raise AssertionError("a loop that ends otherwise")

    def _exchange(self, verb: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        response = self._session.request(
            verb, f"{self._base}{path}", data=body.encode() if body is not None else None,
            headers=headers, timeout=TIMEOUT, allow_redirects=False, stream=True,
        )  # fmt: skip
        with response:
            content = read_body(response, MOST)
        # A server that quotes the token must not get it into a message or a file.
        said = {name.lower(): self._secret.scrub(text) for name, text in response.headers.items()}
        token = self._secret.get_secret_value().encode()
        return Answer(response.status_code, said, content.replace(token, b"***"))

    def _fault(self, error: BaseException) -> _Fault:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return _Fault("its certificate is not trusted", passes=False)
        below = error.args[0] if error.args else None
        inside = (error, below, getattr(below, "reason", None))
        fault = next(fault for kind, fault in _FAULTS if any(isinstance(it, kind) for it in inside))
        words = fault.words.format(server=urlsplit(self._base).netloc, most=MOST >> 20)
        return _Fault(words, fault.acted, fault.passes)

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


def _asked_pause(what: str, answer: Answer, attempt: int) -> float | None:
    """Return the seconds that GitHub wants to be left alone; None where it does not say so."""
    said, start = answer.said, answer.body[:4096]
    limited: dict[int, bool] = {
        HTTPStatus.TOO_MANY_REQUESTS: True,
        HTTPStatus.FORBIDDEN: "retry-after" in said or bool(_LIMIT.search(start)),
        HTTPStatus.OK: what == "POST /graphql" and bool(_GRAPHQL_LIMIT.search(start)),
    }
    if not limited.get(answer.status):
        return None
    after, reset = said.get("retry-after"), said.get("x-ratelimit-reset", "")
    if after is not None:
        return max(float(after), 1.0) if after.isdigit() else MINUTE
    if said.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        # One more second: GitHub's clock has whole ones.
        return max(float(reset) - time.time(), 0.0) + 1.0
    return MINUTE * 2.0 ** (attempt - 1)


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
            raise OversizeError
        if time.monotonic() - started > DEADLINE:
            raise requests.Timeout
    return bytes(body)


class Exchange(HTTPRequestsConnectionClass):
    """One request, as PyGithub makes it: what it is handed as a connection."""

    def __init__(self, wire: Wire, what: str, *, once: bool, follow: bool) -> None:
        self._wire, self._what, self._once, self._follow = wire, what, once, follow

    def getresponse(self) -> Answer:
        """Send it, and return the answer."""
        return self._wire.send(
            self._what, self.verb, self.url, self.input, self.headers, once=self._once,
            follow=self._follow,
        )  # fmt: skip
