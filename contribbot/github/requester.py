"""PyGithub's requester and retries, with contribbot's limits of waiting and its errors."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import github.Requester
import requests
import urllib3
from github import Auth, BadAttributeException, GithubException
from github.GithubRetry import GithubRetry
from pydantic import JsonValue
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import ConnectionPool
from urllib3.response import BaseHTTPResponse

from contribbot import __version__
from contribbot.errors import (
    GitHubError,
    MovedError,
    RateLimitError,
    RefusedError,
    UncertainError,
    check_stopping,
)
from contribbot.github.auth import Server, Token
from contribbot.github.refusals import PROXY_LOGIN, clean_line, refusal, words_of

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: Writes that make a new object each time. All other requests may be repeated: git names its
#: objects by content, and setting a value a second time changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|comments|dispatches)$")
#: Seconds to connect, between two bytes, and on average for an attempt with a slow answer.
_TIMEOUT: Final = 60
_CHUNK: Final = 65_536
#: Writes whose answer may be empty.
_UNREAD: Final = re.compile(r"POST .*/(dispatches|cancel)$")
#: Lists whose rows GitHub wraps in an object.
_ENVELOPED: Final = re.compile(r"GET (.*/(check-runs|runs|jobs|artifacts)|/search/.*)$")
#: Fields that commands need and that GitHub never gives as null; the parts of an answer that have
#: such fields.
_FIELDS: Final = re.compile(
    "number|sha|state|ref|full_name|login|default_branch|path|event|context|total_count|ahead_by"
    "|truncated|encoding|created_at"
)
_PARTS: Final = re.compile("head|base|object|commit|tree|base_commit|items|check_runs|statuses")
_MINUTE: Final = 60.0
_LATER: Final = "run it again later; what is done stays done"
#: Errors that the libraries raise, and PyGithub if a redirect leads to another server.
_RAISED: Final = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    ValueError,
    RuntimeError,
)
#: Errors that reading an answer raises if a field is missing or has another type.
_ODD: Final = (
    BadAttributeException,
    GithubException,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)


def sleep(seconds: float) -> None:
    """Sleep in short steps, so that a request to stop ends the sleep."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        check_stopping()
        time.sleep(min(rest, 0.5))


@dataclass
class Waits:
    """The limits on waiting for GitHub, and the seconds that this command has waited."""

    say: Callable[[str], None] = log.warning
    sleep: Callable[[float], None] = sleep
    #: The most seconds that a command may spend on pauses and failed attempts.
    longest: float = 900.0
    #: How often a request is sent before a temporary fault counts as final.
    attempts: int = 5
    between_writes: float = 1.0
    clock: Callable[[], float] = time.monotonic
    lost: float = 0.0

    def take(self, seconds: float) -> bool:
        """Add a pause to the lost seconds if the limit has room; return whether the pause fits."""
        fits = self.lost + seconds <= self.longest
        self.lost += seconds if fits else 0.0
        return fits

    def check(self) -> None:
        """Raise if pauses and failed attempts have used up the limit."""
        if self.lost > self.longest:
            spent = f"{self.lost / _MINUTE:.0f} min went into pauses and attempts that failed"
            raise RateLimitError(f"GitHub was not asked: {spent}", hint=_LATER)

    def pause(self, seconds: float, *, limited: bool) -> None:
        """Wait before the next attempt; `limited`: for the rate limit, not after a failure."""
        end = time.time() + min(seconds, 1e9)
        clock = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        short = seconds < 2 * _MINUTE
        span = f"{seconds:.0f} s" if short else f"{min(seconds, 1e9) / _MINUTE:.0f} min"
        if not self.take(seconds):
            waited = f", and {self.lost / _MINUTE:.0f} min were waited already" if self.lost else ""
            why = f"GitHub's rate limit is used up until {clock}" if limited else "no more attempts"
            raise RateLimitError(f"{why} ({span}{waited})", hint=_LATER)
        if limited:
            self.say(f"GitHub's rate limit: waiting {span}, until {clock}")
        self.sleep(seconds)


class Retry(GithubRetry):
    """PyGithub's retries within the waiting limit; a write that may have happened is not resent."""

    waits: Waits

    @classmethod
    def within(cls, waits: Waits) -> Self:
        """Return retries with the limits of `waits`."""
        again = max(0, waits.attempts - 1)
        retry = cls(
            total=again,
            connect=min(2, again),
            backoff_factor=1,
            backoff_max=20,
            status_forcelist=[403, 429, *range(500, 600)],
            allowed_methods=None,
            raise_on_status=False,
        )
        retry.waits = waits
        return retry

    def new(self, **kw: object) -> Self:
        """Return a copy of these retries for the next attempt, as urllib3 asks."""
        retry = super().new(**kw)
        retry.waits = self.waits
        return retry

    def increment(  # type: ignore[override]  # PyGithub has the same signature
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.response.HTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> urllib3.Retry:
        """Count a failed attempt; raise if the request must not be sent again."""
        acted = not isinstance(error, urllib3.exceptions.ConnectTimeoutError)
        if response is not None:
            acted = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if acted and _pool is not None and _ONCE.match(f"{method} {url}"):
            raise urllib3.exceptions.MaxRetryError(_pool, url or "", error)
        return super().increment(method, url, response, error, _pool, _stacktrace)

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait as GitHub or the backoff asks, within the limit."""
        asked = self.get_retry_after(response) if response is not None else None
        pause = asked or self.get_backoff_time()
        limited = response is not None and response.status < HTTPStatus.INTERNAL_SERVER_ERROR
        used_up = response is not None and response.headers.get("X-RateLimit-Remaining") == "0"
        if response is not None and limited and used_up and not asked:
            # Compare two times of GitHub's, because this machine's clock may be wrong.
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                now = parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
                end = int(response.headers.get("X-RateLimit-Reset", "")) + 1
                pause = max(1.0, end - now)
        self.waits.pause(pause, limited=limited)


class Requester(github.Requester.Requester):
    """Sends the requests of PyGithub's objects, with contribbot's limits, checks and errors."""

    def __init__(self, server: Server, token: Token, waits: Waits) -> None:
        self._retry = Retry.within(waits)
        super().__init__(
            auth=Auth.Token(token.secret.get_secret_value()),
            base_url=server.api,
            timeout=_TIMEOUT,
            user_agent=f"contribbot/{__version__}",
            per_page=100,
            verify=True,
            retry=self._retry,
            pool_size=None,
            seconds_between_writes=waits.between_writes,
            api_version="2022-11-28",
        )
        self.server, self.waits, self._token = server, waits, token
        for name in ("github", "urllib3"):
            logging.getLogger(name).setLevel(logging.ERROR)  # both log whole answers

    def requestJsonAndCheck(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, *args: object, **named: object
    ) -> tuple[dict[str, str], JsonValue]:
        """Send a request; refuse an address on another server, which would get the token."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise GitHubError(
                f"{verb}: GitHub points to another server: {url[:200]!a}",
                hint="correct GITHUB_API_URL, if that is the right server",
            )
        return super().requestJsonAndCheck(verb, url, *args, **named)  # type: ignore[arg-type]  # PyGithub's own

    def requestJson(  # noqa: N802  PyGithub's name
        self,
        verb: str,
        url: str,
        parameters: dict[str, object] | None = None,
        *args: object,
        **named: object,
    ) -> tuple[int, dict[str, str], str]:
        """Send a request and return the answer; raise if the answer is a failure or odd."""
        what = f"{verb} {self._path(url)}"
        log.debug("%s", what)

        def send() -> tuple[int, dict[str, str], str]:
            return super(Requester, self).requestJson(verb, url, parameters, *args, **named)  # type: ignore[arg-type]  # PyGithub's own

        status, headers, body = self._guarded(what, send)
        log.debug("%s: %s", what, status)
        # If a server quotes the token, keep the token out of messages and files.
        secret = self._token.secret
        headers = {name: secret.scrub(str(value)) for name, value in headers.items()}
        body = secret.scrub(body)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise self._failure(what, f"HTTP {status}")
        if status >= HTTPStatus.BAD_REQUEST:
            raise refusal(what, status, headers, body, self._token.source)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise MovedError(
                f"{what}: GitHub says that it has moved",
                hint="the repository was renamed: an upstream's name is `repository` in"
                " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the"
                " queue's own is that of its git remote origin, or GITHUB_REPOSITORY=OWNER/NAME",
            )
        if _circular(url, headers.get("link", "")):
            raise odd_answer(what, "its next page is none after it")
        rows = "per_page=" in url or "per_page" in (parameters or {})
        empty = rows and not _ENVELOPED.match(what)
        if not _UNREAD.match(what) and (problem := _misfit(body, empty=empty)):
            # The answer does not show the object that the write makes: it may exist or not.
            raise self._uncertain(what, problem) if _ONCE.match(what) else odd_answer(what, problem)
        return status, headers, body

    def graphql_query(
        self, query: str, variables: dict[str, JsonValue]
    ) -> tuple[dict[str, str], dict[str, JsonValue]]:
        """Send a query or mutation to GraphQL; raise on errors reported with HTTP status 200."""
        asked = {"query": query, "variables": variables}
        headers, answer = self.requestJsonAndCheck("POST", self.graphql_url, input=asked)
        known = answer if isinstance(answer, dict) else {}
        data = known.get("data")
        # A query may have a partial answer; a mutation with an error was not done.
        if not isinstance(data, dict) or (known.get("errors") and query.startswith("mutation")):
            words = words_of(json.dumps(answer)) or "an answer without data"
            if query.startswith("mutation") and '"type": "RATE_LIMIT' in json.dumps(answer):
                # Not a RefusedError, after which the caller would write by REST.
                hint = "run it again in an hour; what is done stays done"
                raise RateLimitError(f"POST /graphql: {words}", hint=hint)
            raise RefusedError(f"POST /graphql: {words}", status=HTTPStatus.OK)
        return headers, known

    def fetch(self, path: str, most: int, accept: str = "application/vnd.github+json") -> bytes:
        """Return the bytes at a path, or at the address that GitHub redirects to."""
        what, bearer = f"GET {path}", f"token {self._token.secret.get_secret_value()}"
        headers = {"Accept": accept, "Authorization": bearer, "User-Agent": "contribbot"}

        def send() -> tuple[int, dict[str, str], bytes]:
            with requests.Session() as session:
                session.auth = self.noopAuth  # take no password from .netrc
                for scheme in ("https://", "http://"):
                    session.mount(scheme, HTTPAdapter(max_retries=self._retry))
                # After a redirect to another host, requests drops the token.
                url = f"{self.base_url}{path}"
                with session.get(url, headers=headers, timeout=_TIMEOUT, stream=True) as response:
                    body = bytearray()
                    for chunk in response.iter_content(_CHUNK):
                        check_stopping()
                        body += chunk
                        if len(body) > most:
                            why = f"{what}: more than {most} bytes came"
                            hint = "it is too large for this: fetch it with git or a browser"
                            raise RefusedError(why, status=413, hint=hint)
                    received = {key.lower(): text for key, text in response.headers.items()}
                    return response.status_code, received, bytes(body)

        status, received, body = self._guarded(what, send)
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            hint = "run it again; or download it from its page"
            raise RefusedError(f"{what}: GitHub names no address of it", status=status, hint=hint)
        if status != HTTPStatus.OK:
            text = self._token.secret.scrub(body.decode("utf-8", "replace"))
            raise refusal(what, status, received, text, self._token.source)
        return body

    def _guarded(self, what: str, send: Callable[[], T]) -> T:
        """Send a request; replace the libraries' exceptions, which hold the token, by ours."""
        check_stopping()
        error: GitHubError
        waits = self.waits
        waits.check()
        began, lost = waits.clock(), waits.lost
        try:
            return self._timed(send)
        except GitHubError as ours:
            error = ours.with_traceback(None)
            error.__context__ = None
        except GithubException as refused:  # GithubRetry judges a 403 itself
            text = self._token.secret.scrub(json.dumps(refused.data))
            known = {key.lower(): str(value) for key, value in (refused.headers or {}).items()}
            error = refusal(what, refused.status, known, text, self._token.source)
        except _RAISED as fault:
            error = self._failure(what, _words(fault, self.server), fault)
        waits.lost += max(0.0, waits.clock() - began - (waits.lost - lost))
        raise error

    def _timed(self, send: Callable[[], T]) -> T:
        """Return the answer of a request sent in a thread; give up if the answer is too slow."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(send())
            except BaseException as error:  # noqa: BLE001  raised again in the waiting thread
                answer.set_exception(error)

        waits = self.waits
        until = waits.clock() - waits.lost + _TIMEOUT * waits.attempts
        threading.Thread(target=run, daemon=True).start()
        while not wait([answer], 0.5).done:
            check_stopping()
            # Pauses between attempts do not count here: `Waits` limits the pauses.
            if waits.clock() - waits.lost > until:
                self.close()
                raise TimeoutError
        return answer.result()

    def _failure(self, what: str, words: str, fault: Exception | None = None) -> GitHubError:
        """Return the error for a request that got no usable answer."""
        reached = not _is(fault, urllib3.exceptions.ConnectTimeoutError)
        if reached and _ONCE.match(what):
            return self._uncertain(what, words)
        return GitHubError(
            f"{what}: {words}",
            hint="check the network, the certificates, GITHUB_API_URL"
            f" ({self.server.api}) and https://www.githubstatus.com, and run it again",
        )

    @staticmethod
    def _uncertain(what: str, words: str) -> UncertainError:
        """Return the error for a write whose answer is lost."""
        return UncertainError(
            f"{what}: {words}: nobody knows whether it happened",
            hint="run it again: it looks first whether that happened",
        )

    def _path(self, url: str) -> str:
        """Return the path of a request without the API's address and query, for messages."""
        if url == self.graphql_url:
            return "/graphql"
        return clean_line(url.removeprefix(self.base_url).partition("?")[0], 200)


def _misfit(body: str, *, empty: bool) -> str:
    """Return why an answer cannot be the JSON of GitHub's API; empty: it may be."""
    try:
        answer: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        return "no JSON"
    if not answer and not (empty and answer == []):
        return "no object"
    return _null_field(answer)


def _null_field(answer: JsonValue) -> str:
    """Return a problem in words: a field that is null, or no object; empty: no problem."""
    if isinstance(answer, list):
        return next(filter(None, map(_null_field, answer)), "")
    if not isinstance(answer, dict):
        return "no object"
    for key, value in answer.items():
        if value is None and _FIELDS.fullmatch(key):
            return f"{key} is null"
        inside = isinstance(value, dict | list) and _PARTS.fullmatch(key) and _null_field(value)
        if inside:
            return f"{key}: {inside}"
    return ""


def _is(fault: BaseException | None, kind: type[BaseException]) -> bool:
    """Tell whether an exception of requests is, or wraps, an exception of a urllib3 type."""
    below = fault.args[0] if fault is not None and fault.args else None
    return any(isinstance(each, kind) for each in (fault, below, getattr(below, "reason", None)))


#: Our words for exceptions of urllib3, whose messages quote URLs and proxies.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (requests.TooManyRedirects, "GitHub's redirects go in a circle"),
    (RuntimeError, "GitHub points to another server, or in a circle"),
    (urllib3.exceptions.ProxyError, "the proxy does not let it through"),
    (urllib3.exceptions.NameResolutionError, "the name of {server} is not known here"),
    (urllib3.exceptions.ConnectTimeoutError, "{server} cannot be reached"),
    (urllib3.exceptions.ReadTimeoutError, "no answer in time"),
    (TimeoutError, "no answer in time"),
    (Exception, "the connection broke, or the answer is none"),
)


def _words(fault: Exception, server: Server) -> str:
    """Return the cause of a library's exception in words, without URLs."""
    if "CERTIFICATE_VERIFY_FAILED" in str(fault):
        return "its certificate is not trusted"
    words = next(words for kind, words in _WORDS if _is(fault, kind))
    login = f"; {PROXY_LOGIN}" if "407" in str(fault) and "proxy" in words else ""
    return words.format(server=urlsplit(server.api).netloc) + login


def _circular(url: str, links: str) -> bool:
    """Tell whether the link to the next page of a list leads to this or an earlier page."""
    pages = re.compile(r"[?&]page=(\d+)")
    following = re.search(r'<([^>]*)>; rel="next"', links)
    if following is None:
        return False
    here, there = pages.search(url), pages.search(following[1])
    return following[1] == url or bool(there and int(there[1]) <= int(here[1] if here else 1))


@contextlib.contextmanager
def shaped() -> Iterator[None]:
    """Turn an error from reading an unexpected answer, in a `with` block, into a GitHubError."""
    try:
        yield
    except _ODD as error:
        log.debug("an answer that cannot be read", exc_info=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
    else:
        return
    raise odd_answer("GitHub", why)


def odd_answer(what: str, where: str) -> GitHubError:
    """Return the error for an answer that does not look like an answer of GitHub."""
    return GitHubError(
        f"{what}: an answer of another shape: {clean_line(where, 100)}",
        hint="see whether GITHUB_API_URL is the API of a GitHub, and contribbot up to date",
    )
