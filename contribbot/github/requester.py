"""PyGithub's requester: writes that are sent once, bounded pauses, checked answers, our errors."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
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
    NotFoundError,
    RateLimitError,
    RefusedError,
    TokenError,
    UncertainError,
    check_stopping,
)
from contribbot.github.auth import Server, Token
from contribbot.markdown import line_of

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: Writes that make a new object each time. All other requests may be repeated: git names its
#: objects by content, and setting a value a second time changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|dispatches)$")
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
_LATER: Final = "run it again later; what is done stays done"
#: Seconds of a pause from which on a person is told of the pause.
_TOLD: Final = 30.0
#: The most characters of GitHub's words for a refusal.
_LONGEST: Final = 300
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


@dataclass
class Waits:
    """The limits on waiting for GitHub, and the seconds that this command has lost."""

    sleep: Callable[[float], None] = time.sleep
    #: The most seconds that a command may spend on pauses and failed attempts.
    longest: float = 900.0
    #: How often a request is sent before a temporary fault counts as final.
    attempts: int = 5
    between_writes: float = 1.0
    clock: Callable[[], float] = time.monotonic
    lost: float = 0.0

    def check(self) -> None:
        """Raise if pauses and failed attempts have used up the limit."""
        if self.lost > self.longest:
            spent = f"{self.lost / 60:.0f} min went into pauses and attempts that failed"
            raise RateLimitError(f"GitHub was not asked: {spent}", hint=_LATER)

    def pause(self, seconds: float) -> None:
        """Wait before the next attempt; raise if the pause is longer than what is left."""
        end = datetime.fromtimestamp(time.time() + min(seconds, 1e9), UTC)
        until = f"until {end:%Y-%m-%d %H:%M:%S UTC} ({seconds:.0f} s)"
        if self.lost + seconds > self.longest:
            raise RateLimitError(f"GitHub asks for a pause {until}", hint=_LATER)
        if seconds >= _TOLD:
            log.warning("GitHub asks for a pause %s", until)
        self.lost += seconds
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
        pause, known = asked or self.get_backoff_time(), response.headers if response else {}
        if not asked and known.get("X-RateLimit-Remaining") == "0":
            # Compare two times of GitHub's, because this machine's clock may be wrong.
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                now = parsedate_to_datetime(known.get("Date", "")).timestamp()
                pause = max(1.0, int(known.get("X-RateLimit-Reset", "")) + 1 - now)
        self.waits.pause(pause)


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
    ) -> tuple[dict[str, str], dict[str, JsonValue]]:
        """Send a request; refuse an address on another server, which would get the token."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            why = f"{verb}: GitHub points to another server: {url[:200]!a}"
            raise GitHubError(why, hint="correct GITHUB_API_URL, if that is the right server")
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
        path = url.removeprefix(self.base_url).partition("?")[0]
        what = f"{verb} {'/graphql' if url == self.graphql_url else line_of(path, 200)}"
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
            hint = "the repository was renamed: correct `repository` in upstreams/NAME.toml, or"
            hint += " the queue's git remote origin"
            raise MovedError(f"{what}: GitHub says that it has moved", hint=hint)
        if _circular(url, headers.get("link", "")):
            raise odd_answer(what, "its next page is none after it")
        rows = "per_page=" in url or "per_page" in (parameters or {})
        empty = rows and not _ENVELOPED.match(what)
        if not _UNREAD.match(what) and (problem := _misfit(body, empty=empty)):
            # The answer does not show the object that the write makes: it may exist or not.
            raise _uncertain(what, problem) if _ONCE.match(what) else odd_answer(what, problem)
        return status, headers, body

    def graphql_query(
        self, query: str, variables: dict[str, JsonValue]
    ) -> tuple[dict[str, str], dict[str, JsonValue]]:
        """Send a query or mutation to GraphQL; raise on errors reported with HTTP status 200."""
        asked, writes = {"query": query, "variables": variables}, query.startswith("mutation")
        headers, answer = self.requestJsonAndCheck("POST", self.graphql_url, input=asked)
        # A query may have a partial answer; a mutation with an error was not done.
        if answer.get("data") is None or (answer.get("errors") and writes):
            text = json.dumps(answer)
            words = f"POST /graphql: {words_of(text) or 'an answer without data'}"
            if writes and '"type": "RATE_LIMIT' in text:
                # Not a RefusedError, after which the caller would write by REST.
                raise RateLimitError(words, hint="run it again in an hour; what is done stays done")
            raise RefusedError(words, status=HTTPStatus.OK)
        return headers, answer

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
                        body += chunk
                        if len(body) > most:
                            why = f"{what}: more than {most} bytes came"
                            hint = "it is too large for this: fetch it with git or a browser"
                            raise RefusedError(why, status=413, hint=hint)
                    received = {key.lower(): text for key, text in response.headers.items()}
                    return response.status_code, received, bytes(body)

        status, received, body = self._guarded(what, send)
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
            return _uncertain(what, words)
        return GitHubError(
            f"{what}: {words}",
            hint="check the network, the proxy, the certificates, GITHUB_API_URL"
            f" ({self.server.api}) and https://www.githubstatus.com, and run it again",
        )


def _uncertain(what: str, words: str) -> UncertainError:
    """Return the error for a write whose answer is lost."""
    return UncertainError(
        f"{what}: {words}: nobody knows whether it happened",
        hint="run it again: it looks first whether that happened",
    )


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


def _words(fault: Exception, server: Server) -> str:
    """Return the cause of a library's exception in words, without URLs and passwords."""
    if "CERTIFICATE_VERIFY_FAILED" in str(fault):
        return "its certificate is not trusted"
    if _is(fault, urllib3.exceptions.ProxyError):
        login = f"; {_PROXY_LOGIN}" if "407" in str(fault) else ""
        return f"the proxy does not let it through{login}"
    if _is(fault, urllib3.exceptions.ConnectTimeoutError):
        return f"{urlsplit(server.api).netloc} cannot be reached"
    if _is(fault, urllib3.exceptions.ReadTimeoutError) or isinstance(fault, TimeoutError):
        return "no answer in time"
    return "the connection broke, or the answer is none"


def _circular(url: str, links: str) -> bool:
    """Tell whether the link to the next page of a list leads to this or an earlier page."""
    following = re.search(r'<([^>]*)>; rel="next"', links)
    if following is None:
        return False
    here, there = (re.search(r"[?&]page=(\d+)", each) for each in (url, following[1]))
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
        f"{what}: an answer of another shape: {line_of(where, 100)}",
        hint="see whether GITHUB_API_URL is the API of a GitHub, and contribbot up to date",
    )


_WRITING: Final = frozenset({"public_repo", "repo"})
_FINE_GRAINED: Final = r"not accessible by (personal access token|integration|fine-grained)"
#: GitHub's words if an organisation takes no classic token, or none with so long a lifetime.
_FORBIDDEN_KIND: Final = r"forbids access via a (fine-grained )?personal access token"
_WORKFLOW: Final = r"without [`'\"]?workflows?[`'\"]? (scope|permission)"
_PERMISSION: Final = (
    "give the token that permission; in repositories of others only a classic token with the scope"
    " public_repo may write"
)
_HANDOFF: Final = f"{_PERMISSION}; or `contribbot open-pr --handoff NAME`"
#: The next steps by status, if GitHub's words vary; else by the first pattern that fits the words.
_PROXY_LOGIN: Final = "it wants a login: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
_BY_STATUS: Final = {
    407: f"the proxy: {_PROXY_LOGIN}",
    451: "GitHub blocks it for legal reasons: see its page",
}
_STEPS: Final = (
    (r"\bsecret", "take the secret out of the patch and revoke it: GitHub stored nothing"),
    (r"drafts?\b.* not supported", "it takes no drafts: give open-pr --ready"),
    (r"forking is disabled|cannot fork", "it allows no forks: ask on its page how to send changes"),
    (r"pull requests (are|is) disabled", "see on its page where the project takes changes"),
    (r"\barchived\b", "its owners take no changes any more: see on its page where it went"),
    (r"\bmigrat", "GitHub moves the repository: run it again when that is done"),
    (r"no commits between", "the upstream has all of it: contribbot status --against newest"),
    (r"too quickly|too many requests", "wait some minutes and run it again"),
    (
        r"(limit|too many|maximum).*open pull requests|open pull requests.*limit",
        "the project takes no more of yours for now: close one there, or wait until one is merged",
    ),
    (r"IP allow list|IP address", "ask from an address that the organisation allows"),
    (r"two.factor|2FA", "switch it on at https://github.com/settings/security"),
    (
        r"OAuth App access",
        "ask an owner to approve the app, or make a token at https://github.com/settings/tokens",
    ),
    (r"diff exceeded|too large", "take its commits from a clone: contribbot new NAME REPO BRANCH"),
    (r"not all refs", "GitHub has not copied all of the repository yet: run it again in a minute"),
    (
        r"\bcollaborators?\b|\binteractions?\b|\bblocked\b",
        "it lets only some people write for now: wait, or ask a maintainer on another way",
    ),
    (r"email.* verif|verif.* email", "verify your address at https://github.com/settings/emails"),
    (r"suspended", "GitHub suspended the account: write to https://support.github.com"),
    (r"\blocked\b", "ask a maintainer to unlock the conversation"),
    (r"actions\b.* (disabled|not)\b", "permit Actions in the settings of the repository"),
    (r"api.version", "bring contribbot up to date: this version of GitHub's API has ended"),
    (r"already exists", "GitHub's lists lag behind what is there: run it again in a minute"),
    (r"rule violations|protected branch", "a rule of that repository forbids it: see its settings"),
)
_HINTS: Final = {
    404: "check the name; what is private or gone looks the same",
    409: "another change came between; run it again",
    410: "it was taken away, or is switched off there: see its page",
}
#: The next step for a 404 on git objects, which a new fork gives while it is being made.
_NO_OBJECTS: Final = (
    "GitHub may still be making the fork: run it again in some minutes; else check the name"
)
_REFUSED: Final = "see on its page what it allows, and whether the token may do it"
_WORKFLOW_HINT: Final = "add the scope with `gh auth refresh --scopes repo,workflow`"


def refusal(
    what: str, status: int, headers: Mapping[str, str], body: str, source: str
) -> GitHubError:
    """Return the error for a failed request; header names are in lower case."""
    reason = words_of(body)
    words = reason or f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        return TokenError(
            f"GitHub does not accept the token from {source}: {words}",
            hint="it may have expired: make a new one, or log in again with `gh auth login`",
        )
    # After the last attempt the words are gone: the retries have read the body.
    used_up = not reason and headers.get("x-ratelimit-remaining") == "0"
    if status == HTTPStatus.TOO_MANY_REQUESTS or "rate limit" in reason.lower() or used_up:
        return RateLimitError(f"{what}: {words}", hint="wait some minutes and run it again")
    cause = _cause(what, status, headers, reason) if status in {403, 404, 422} else None
    if cause is not None:
        return TokenError(f"{what}: the token from {source} {cause[0]}", hint=cause[1])
    by_words = (hint for words, hint in _STEPS if re.search(words, reason, re.IGNORECASE))
    known = _BY_STATUS.get(status) or next(by_words, "")
    hint = known or _HINTS.get(status, _REFUSED)
    if status == HTTPStatus.NOT_FOUND:
        making = re.match("POST .*/git/", what)
        return NotFoundError(f"{what}: {words}", hint=_NO_OBJECTS if making and not known else hint)
    return RefusedError(f"{what}: {words}", status=status, hint=hint)


def _cause(
    what: str, status: int, headers: Mapping[str, str], reason: str
) -> tuple[str, str] | None:
    """Return a fault of the token and the next step; None: the token is not the cause."""
    if re.search(_WORKFLOW, reason, re.IGNORECASE):
        return f"lacks the scope workflow: {reason}", _WORKFLOW_HINT
    if scope := _lacking_scope(what, status, headers):
        scopes = ", ".join(sorted(_scopes(headers, "x-oauth-scopes")))
        why = f"lacks the scope {scope} (it has {line_of(scopes, 100) or 'none'})"
        return why, f"add {scope} with `gh auth refresh --scopes {scope}`, or on GitHub's page"
    forbidden = status == HTTPStatus.FORBIDDEN
    if forbidden and re.search(_FORBIDDEN_KIND, reason, re.IGNORECASE):
        hint = "make one of the kind that it takes; or, to open a pull request there,"
        hint += " `contribbot open-pr --handoff NAME`"
        return f"is of a kind that the organisation does not take: {reason}", hint
    if forbidden and headers.get("x-github-sso", "").startswith("required"):
        hint = "authorise it at https://github.com/settings/tokens, under Configure SSO"
        return "is not authorised for that organisation (single sign-on)", hint
    if forbidden and re.search(_FINE_GRAINED, reason, re.IGNORECASE):
        needed = line_of(headers.get("x-accepted-github-permissions", ""), 100)
        needs = f" (it would need {needed})" if needed else ""
        opening = re.fullmatch(r"POST /repos/[^/]+/[^/]+/pulls", what)
        return f"may not do that there{needs}: {reason}", _HANDOFF if opening else _PERMISSION
    return None


def _lacking_scope(what: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Return the scope that a classic token lacks; None: no scope is known to be missing."""
    # A 404 can also mean a missing object; blame the token only if it may not write at all.
    has, accepted = _scopes(headers, "x-oauth-scopes"), _scopes(headers, "x-accepted-oauth-scopes")
    enough = has & accepted or ("repo" in has and "public_repo" in accepted)
    if "x-oauth-scopes" not in headers or not accepted or enough:
        return None
    hidden = not has & _WRITING and accepted & _WRITING and not what.startswith("GET ")
    if status == HTTPStatus.FORBIDDEN or (status == HTTPStatus.NOT_FOUND and hidden):
        return "public_repo" if "public_repo" in accepted else line_of(min(accepted), 50)
    return None


def _scopes(headers: Mapping[str, str], name: str) -> set[str]:
    return {scope.strip() for scope in headers.get(name, "").split(",") if scope.strip()}


def words_of(body: str) -> str:
    """Return GitHub's own words for a refusal in one clean line, or empty."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    errors = answer.get("errors")
    parts = [answer.get("message")]
    for error in errors[:5] if isinstance(errors, list) else []:
        known = error if isinstance(error, dict) else {"message": error}
        codes = (str(known[key]) for key in ("resource", "field", "code") if key in known)
        parts.append(known["message"] if "message" in known else " ".join(codes))
    return line_of(": ".join(part for part in parts if part and isinstance(part, str)), _LONGEST)
