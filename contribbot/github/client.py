"""A client of GitHub over PyGithub: writes are sent once, pauses bounded, answers checked."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, urlsplit

import github.Requester
import requests
from github import Auth, BadAttributeException, GithubException
from github.AuthenticatedUser import AuthenticatedUser
from github.Comparison import Comparison
from github.GithubObject import CompletableGithubObject
from github.GithubRetry import GithubRetry
from github.GitRef import GitRef
from github.Issue import Issue, IssueSearchResult
from github.PullRequest import PullRequest
from github.Repository import Repository
from pydantic import JsonValue
from requests.adapters import HTTPAdapter
from urllib3 import Retry as UrllibRetry
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    ProxyError,
    ReadTimeoutError,
)
from urllib3.response import BaseHTTPResponse, HTTPResponse

from contribbot import __version__
from contribbot.errors import (
    GitHubError,
    NotFoundError,
    RateLimitError,
    RefusedError,
    TokenError,
    UncertainError,
    check_stopping,
)
from contribbot.github.auth import Server, Token, find_server, find_token
from contribbot.markdown import line_of

T = TypeVar("T")
K = TypeVar("K", bound=CompletableGithubObject)
log: Final = logging.getLogger("contribbot.github")

#: Writes that make a new object each time. All other requests may be repeated: git names its
#: objects by content, and setting a value a second time changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|dispatches)$")
#: Lists whose rows GitHub wraps in an object; PyGithub reads any other answer as the rows.
_WRAPPED: Final = re.compile(r"GET (.*/(jobs|artifacts)|/search/.*)$")
#: Fields that commands need and that GitHub never gives as null; the parts of an answer that have
#: such fields.
_FIELDS: Final = re.compile(
    "number|sha|state|ref|full_name|login|default_branch|path|event|context|total_count|ahead_by"
    "|truncated|encoding|created_at"
)
_PARTS: Final = re.compile("head|base|object|commit|tree|base_commit|items|check_runs|statuses")
#: Seconds to connect, and between two bytes.
_TIMEOUT: Final = 60
#: Seconds of a pause from which on a person is told of the pause.
_TOLD: Final = 30.0
_LATER: Final = "run it again later; what is done stays done"
_CHUNK: Final = 65_536
#: The most bytes of a pull request's commits to fetch as mails.
_MAILS: Final = 64 * 1024 * 1024
#: Errors that the libraries raise, and PyGithub if a redirect leads to another server; errors from
#: reading an answer that lacks a field, or has a field of another type.
_RAISED: Final = (requests.RequestException, HTTPError, OSError, ValueError, RuntimeError)
_ODD: Final = (
    BadAttributeException,
    GithubException,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
#: Errors of GraphQL after which the caller writes by REST, or looks what happened.
_REFUSED: Final = (NotFoundError, RefusedError, TokenError, UncertainError)


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

    def pause(self, seconds: float) -> None:
        """Sleep before the next attempt; raise RateLimitError if the limit would be passed."""
        end = datetime.fromtimestamp(time.time() + min(seconds, 1e9), UTC)
        asked = f"GitHub asks for a pause until {end:%Y-%m-%d %H:%M:%S UTC} ({seconds:.0f} s)"
        if self.lost + seconds > self.longest:
            raise RateLimitError(asked, hint=_LATER)
        if seconds >= _TOLD:
            log.warning("%s", asked)
        self.lost += seconds
        self.sleep(seconds)


def retries(waits: Waits) -> GithubRetry:
    """Return PyGithub's retries within the limits; a write that may have happened is not resent."""

    class Retry(GithubRetry):
        def increment(  # type: ignore[override]  # PyGithub has the same signature
            self,
            method: str | None = None,
            url: str | None = None,
            response: HTTPResponse | None = None,
            error: Exception | None = None,
            _pool: ConnectionPool | None = None,
            _stacktrace: TracebackType | None = None,
        ) -> UrllibRetry:
            """Return the retries left after a failed attempt; raise if no attempt may follow."""
            acted = not isinstance(error, ConnectTimeoutError)
            if response is not None:
                acted = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            if acted and _pool is not None and _ONCE.match(f"{method} {url}"):
                raise MaxRetryError(_pool, url or "", error)
            return super().increment(method, url, response, error, _pool, _stacktrace)

        def sleep(self, response: BaseHTTPResponse | None = None) -> None:
            """Sleep for the pause that GitHub or the backoff asks for, within the limit."""
            asked = self.get_retry_after(response) if response is not None else None
            pause, known = asked or self.get_backoff_time(), response.headers if response else {}
            if not asked and known.get("X-RateLimit-Remaining") == "0":
                # Compare two times of GitHub's, because this machine's clock may be wrong.
                with contextlib.suppress(ValueError, TypeError, OverflowError):
                    now = parsedate_to_datetime(known.get("Date", "")).timestamp()
                    pause = max(1.0, int(known.get("X-RateLimit-Reset", "")) + 1 - now)
            waits.pause(pause)

    again = max(0, waits.attempts - 1)
    return Retry(
        total=again,
        connect=min(2, again),
        backoff_factor=1,
        backoff_max=20,
        status_forcelist=[403, 429, *range(500, 600)],
        allowed_methods=None,
        raise_on_status=False,
    )


class Requester(github.Requester.Requester):
    """Sends the requests of PyGithub's objects, with contribbot's limits, checks and errors."""

    def __init__(self, server: Server, token: Token, waits: Waits) -> None:
        self._retry = retries(waits)
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
            lazy=True,
            api_version="2022-11-28",
        )
        self.server, self.waits, self._token = server, waits, token
        for name in ("github", "urllib3"):
            logging.getLogger(name).setLevel(logging.ERROR)  # both log whole answers

    def requestJsonAndCheck(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, *args: object, **named: object
    ) -> tuple[dict[str, str], dict[str, JsonValue]]:
        """Send a request; raise GitHubError for an address on another server."""
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
        """Return the status, headers and body of an answer; raise GitHubError for a failure."""
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
            raise GitHubError(f"{what}: GitHub says that it has moved", hint=hint)
        rows = "per_page=" in url or "per_page" in (parameters or {})
        empty = rows and not _WRAPPED.match(what)
        # The answer to a dispatch may be empty.
        if not path.endswith("/dispatches") and (misfit := _misfit(body, empty=empty)):
            # The answer does not show the object that the write makes: it may exist or not.
            raise _uncertain(what, misfit) if _ONCE.match(what) else odd_answer(what, misfit)
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
        """Return the bytes at an API path, after redirects; refuse more than `most` bytes."""
        what, bearer = f"GET {path}", f"token {self._token.secret.get_secret_value()}"
        headers = {"Accept": accept, "Authorization": bearer, "User-Agent": "contribbot"}

        def send() -> tuple[int, dict[str, str], bytes]:
            with requests.Session() as session:
                session.auth = self.noopAuth  # take no password from .netrc
                for scheme in ("https://", "http://"):
                    session.mount(scheme, HTTPAdapter(max_retries=self._retry))
                # After a redirect to another host, requests drops the token.
                url, body = f"{self.base_url}{path}", bytearray()
                with session.get(url, headers=headers, timeout=_TIMEOUT, stream=True) as response:
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
        """Return `send`'s result; raise GitHubError, without the token, if a library raises."""
        check_stopping()
        error: GitHubError
        waits = self.waits
        if waits.lost > waits.longest:
            spent = f"{waits.lost / 60:.0f} min went into pauses and attempts that failed"
            raise RateLimitError(f"GitHub was not asked: {spent}", hint=_LATER)
        began, lost = waits.clock(), waits.lost
        try:
            return send()
        except GitHubError as ours:
            error = ours.with_traceback(None)
            error.__context__ = None
        except GithubException as refused:  # GithubRetry judges a 403 itself
            text = self._token.secret.scrub(json.dumps(refused.data))
            known = {key.lower(): str(value) for key, value in (refused.headers or {}).items()}
            error = refusal(what, refused.status, known, text, self._token.source)
        except _RAISED as fault:
            error = self._failure(what, fault)
        # The pauses are part of the time of a failed request: do not count them twice.
        waits.lost = max(waits.lost, lost + waits.clock() - began)
        raise error

    def _failure(self, what: str, cause: Exception | str) -> GitHubError:
        """Return the error for a request without a usable answer; the cause may be in words."""
        words = cause if isinstance(cause, str) else _words(cause, self.server)
        if _ONCE.match(what) and not _is(cause, ConnectTimeoutError):
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


def odd_answer(what: str, where: str) -> GitHubError:
    """Return the error for an answer that has not the form of GitHub's API."""
    return GitHubError(
        f"{what}: an answer of another shape: {line_of(where, 100)}",
        hint="see whether GITHUB_API_URL is the API of a GitHub, and contribbot up to date",
    )


@contextlib.contextmanager
def shaped() -> Iterator[None]:
    """Raise GitHubError if the `with` block fails to read an unexpected answer."""
    try:
        yield
    except _ODD as error:
        log.debug("an answer that cannot be read", exc_info=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
    else:
        return
    raise odd_answer("GitHub", why)


def _misfit(body: str, *, empty: bool) -> str:
    """Return a fault of a body as GitHub's JSON, or ""; `empty`: an empty list is no fault."""
    try:
        answer: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        return "no JSON"
    none = not answer and not (empty and answer == [])
    return "no object" if none else next(_null_fields(answer), "")


def _null_fields(answer: JsonValue) -> Iterator[str]:
    """Yield faults of an answer: required fields that are null, and parts that are no objects."""
    for row in answer if isinstance(answer, list) else [answer]:
        if not isinstance(row, dict):
            yield "no object"
            continue
        for key, value in row.items():
            if value is None and _FIELDS.fullmatch(key):
                yield f"{key} is null"
            elif isinstance(value, dict | list) and _PARTS.fullmatch(key):
                yield from (f"{key}: {inside}" for inside in _null_fields(value))


def _is(fault: object, *kinds: type[BaseException]) -> bool:
    """Return whether an exception of requests is, or wraps, an exception of one of the types."""
    below = fault.args[0] if isinstance(fault, Exception) and fault.args else None
    return any(isinstance(each, kinds) for each in (fault, below, getattr(below, "reason", None)))


#: The next step if a proxy asks for a password.
_PROXY_LOGIN: Final = "it wants a login: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"


def _words(fault: Exception, server: Server) -> str:
    """Return the cause of a library's exception in words, without URLs and passwords."""
    if "CERTIFICATE_VERIFY_FAILED" in str(fault):
        return "its certificate is not trusted"
    if _is(fault, ProxyError):
        login = f"; {_PROXY_LOGIN}" if "407" in str(fault) else ""
        return f"the proxy does not let it through{login}"
    if _is(fault, ConnectTimeoutError):
        return f"{urlsplit(server.api).netloc} cannot be reached"
    if _is(fault, ReadTimeoutError, TimeoutError):
        return "no answer in time"
    return "the connection broke, or the answer is none"


_WRITING: Final = frozenset({"public_repo", "repo"})
_PERMISSION: Final = (
    "give the token that permission; in repositories of others only a classic token with the scope"
    " public_repo may write"
)
_HANDOFF: Final = "`contribbot open-pr --handoff NAME`"
#: The next step for the first pattern that fits the status and GitHub's words. A 404 on git's
#: objects has `git` after the status: a new fork gives such a 404 while it is being made.
_STEPS: Final = (
    ("^407 ", f"the proxy: {_PROXY_LOGIN}"),
    ("^451 ", "GitHub blocks it for legal reasons: see its page"),
    (r"\bsecret", "take the secret out of the patch and revoke it: GitHub stored nothing"),
    (r"drafts?\b.* not supported", "it takes no drafts: give open-pr --ready"),
    ("forking is disabled|cannot fork", "it allows no forks: ask on its page how to send changes"),
    ("pull requests (are|is) disabled", "see on its page where the project takes changes"),
    (r"\barchived\b", "its owners take no changes any more: see on its page where it went"),
    (r"\bmigrat", "GitHub moves the repository: run it again when that is done"),
    ("no commits between", "the upstream has all of it: contribbot status --against newest"),
    ("too quickly|too many requests", "wait some minutes and run it again"),
    (
        "(limit|too many|maximum).*open pull requests|open pull requests.*limit",
        "the project takes no more of yours for now: close one there, or wait until one is merged",
    ),
    ("IP allow list|IP address", "ask from an address that the organisation allows"),
    ("two.factor|2FA", "switch it on at https://github.com/settings/security"),
    (
        "OAuth App access",
        "ask an owner to approve the app, or make a token at https://github.com/settings/tokens",
    ),
    ("diff exceeded|too large", "take its commits from a clone: contribbot new NAME REPO BRANCH"),
    ("not all refs", "GitHub has not copied all of the repository yet: run it again in a minute"),
    (
        r"\b(collaborators?|interactions?|blocked)\b",
        "it lets only some people write for now: wait, or ask a maintainer on another way",
    ),
    ("email.* verif|verif.* email", "verify your address at https://github.com/settings/emails"),
    ("suspended", "GitHub suspended the account: write to https://support.github.com"),
    (r"\blocked\b", "ask a maintainer to unlock the conversation"),
    (r"actions\b.* (disabled|not)\b", "permit Actions in the settings of the repository"),
    ("api.version", "bring contribbot up to date: this version of GitHub's API has ended"),
    ("already exists", "GitHub's lists lag behind what is there: run it again in a minute"),
    ("rule violations|protected branch", "a rule of that repository forbids it: see its settings"),
    (
        "^404 git ",
        "GitHub may still be making the fork: run it again in some minutes; else check the name",
    ),
    ("^404 ", "check the name; what is private or gone looks the same"),
    ("^409 ", "another change came between; run it again"),
    ("^410 ", "it was taken away, or is switched off there: see its page"),
    ("", "see on its page what it allows, and whether the token may do it"),
)


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
    fault = _token_fault(what, status, headers, reason) if status in {403, 404, 422} else None
    if fault is not None:
        return TokenError(f"{what}: the token from {source} {fault[0]}", hint=fault[1])
    place = "git " if re.match("POST .*/git/", what) else ""
    seen = f"{status} {place}{reason}"
    hint = next(step for pattern, step in _STEPS if re.search(pattern, seen, re.IGNORECASE))
    if status == HTTPStatus.NOT_FOUND:
        return NotFoundError(f"{what}: {words}", hint=hint)
    return RefusedError(f"{what}: {words}", status=status, hint=hint)


def _token_fault(
    what: str, status: int, headers: Mapping[str, str], reason: str
) -> tuple[str, str] | None:
    """Return a fault of the token and the next step; None: the token is not the cause."""

    def says(pattern: str) -> bool:
        return re.search(pattern, reason, re.IGNORECASE) is not None

    def scopes(name: str) -> set[str]:
        return {scope.strip() for scope in headers.get(name, "").split(",") if scope.strip()}

    if says(r"without [`'\"]?workflows?[`'\"]? (scope|permission)"):
        hint = "add the scope with `gh auth refresh --scopes repo,workflow`"
        return f"lacks the scope workflow: {reason}", hint
    forbidden = status == HTTPStatus.FORBIDDEN
    has, accepted = scopes("x-oauth-scopes"), scopes("x-accepted-oauth-scopes")
    enough = has & accepted or ("repo" in has and "public_repo" in accepted)
    # A 404 can also mean a missing object; blame the token only if it may not write at all.
    hidden = not has & _WRITING and accepted & _WRITING and not what.startswith("GET ")
    blamed = forbidden or (status == HTTPStatus.NOT_FOUND and hidden)
    if "x-oauth-scopes" in headers and accepted and not enough and blamed:
        scope = "public_repo" if "public_repo" in accepted else line_of(min(accepted), 50)
        why = f"lacks the scope {scope} (it has {line_of(', '.join(sorted(has)), 100) or 'none'})"
        return why, f"add {scope} with `gh auth refresh --scopes {scope}`, or on GitHub's page"
    # GitHub's words if an organisation takes no classic token, or none with so long a lifetime.
    if forbidden and says("forbids access via a (fine-grained )?personal access token"):
        hint = f"make one of the kind that it takes; or, to open a pull request there, {_HANDOFF}"
        return f"is of a kind that the organisation does not take: {reason}", hint
    if forbidden and headers.get("x-github-sso", "").startswith("required"):
        hint = "authorise it at https://github.com/settings/tokens, under Configure SSO"
        return "is not authorised for that organisation (single sign-on)", hint
    if forbidden and says("not accessible by (personal access token|integration|fine-grained)"):
        needed = line_of(headers.get("x-accepted-github-permissions", ""), 100)
        needs = f" (it would need {needed})" if needed else ""
        opening = re.fullmatch(r"POST /repos/[^/]+/[^/]+/pulls", what)
        hint = f"{_PERMISSION}; or {_HANDOFF}" if opening else _PERMISSION
        return f"may not do that there{needs}: {reason}", hint
    return None


def words_of(body: str) -> str:
    """Return the error message in GitHub's answer as one clean line, or an empty text."""
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
    return line_of(": ".join(part for part in parts if part and isinstance(part, str)), 300)


def name_of(repository: Repository | None) -> str | None:
    """Return `owner/name` of a repository; None for a deleted repository."""
    return None if repository is None else repository.full_name


def whole(objects: Iterable[K]) -> tuple[K, ...]:
    """Return the objects of a list, marked complete, so that PyGithub fetches none again."""
    items = tuple(objects)
    for item in items:
        item._set_complete()  # noqa: SLF001  PyGithub has no public way
    return items


@dataclass(frozen=True)
class Search:
    """The answer to a search: the count, whether GitHub stopped early, and the first hits."""

    total: int
    incomplete: bool
    items: tuple[IssueSearchResult, ...]


class GitHub:
    """A client of GitHub for one account; an object is fetched when its fields are read."""

    def __init__(self, requester: Requester) -> None:
        self.requester, self.server = requester, requester.server
        self._me = AuthenticatedUser(requester, url="/user")

    @property
    def me(self) -> str:
        """The login of the account; GitHub is asked once."""
        return self._me.login

    def repository(self, name: str) -> Repository:
        """Return a repository; its `full_name` is the asked name until `complete()`."""
        return Repository(self.requester, attributes={"url": slug(name), "full_name": name})

    def pull(self, reference: str) -> PullRequest:
        """Return the pull request `owner/name#number`."""
        repository, _, number = reference.partition("#")
        return self.repository(repository).get_pull(int(number))

    def issue(self, reference: str) -> Issue:
        """Return the issue `owner/name#number`; a pull request is an issue, too."""
        repository, _, number = reference.partition("#")
        return self.repository(repository).get_issue(int(number))

    def ref(self, repository: str, branch: str) -> GitRef:
        """Return a branch's git ref, at the address to which PyGithub can send an update."""
        return GitRef(self.requester, url=f"{slug(repository)}/git/refs/heads/{quote(branch)}")

    def compare(self, repository: str, base: str, head: str) -> Comparison:
        """Return a comparison of two branches or commits that lists one commit at most."""
        upstream = self.repository(repository)
        return upstream.compare(base, head, comparison_commits_per_page=1).complete()

    def pulls_from(self, repository: str, owner: str, branch: str) -> tuple[PullRequest, ...]:
        """Return the pull requests from an owner's branch, in any state, newest first."""
        pulls = []
        pages = self.repository(repository).get_pulls(state="all", head=f"{owner}:{branch}")
        for pull in whole(pages):
            # If `head` matches nothing, GitHub lists all pull requests; a fork may be deleted.
            login = (name_of(pull.head.repo) or owner).partition("/")[0]
            if pull.head.ref == branch and login.lower() == owner.lower():
                pulls.append(pull)
        return tuple(sorted(pulls, key=lambda pull: pull.number, reverse=True))

    def mails(self, repository: str, number: int) -> bytes:
        """Return the commits of a pull request in the format of `git format-patch`."""
        path, accept = f"{slug(repository)}/pulls/{number:d}", "application/vnd.github.v3.patch"
        return self.requester.fetch(path, _MAILS, accept)

    def search(self, query: str, limit: int = 30) -> Search:
        """Return the issues and pull requests that a search finds, best matches first."""
        parameters = {"q": query, "per_page": limit}
        headers, told = self.requester.requestJsonAndCheck("GET", "/search/issues", parameters)
        found = cast("dict[str, Any]", told)
        partial = headers.get("x-github-sso", "").startswith("partial-results")
        rows = (IssueSearchResult(self.requester, {}, row, True) for row in found["items"])  # noqa: FBT003  PyGithub's `completed`
        return Search(found["total_count"], found["incomplete_results"] or partial, tuple(rows))

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """Force a branch from `old` to `new`; a refusal by GitHub raises nothing."""
        ref = f"refs/heads/{branch}"
        update = {"name": ref, "beforeOid": old, "afterOid": new, "force": True}
        variables = {"repositoryId": repository_id, "refUpdates": [update]}
        with contextlib.suppress(*_REFUSED):
            self.requester.graphql_named_mutation("updateRefs", variables, "clientMutationId")

    def mark_ready(self, pull: PullRequest) -> PullRequest:
        """Mark a draft ready for review; return the pull request, still a draft if refused."""
        with contextlib.suppress(*_REFUSED, KeyError, TypeError):
            pull.mark_ready_for_review()
            return pull
        return pull.base.repo.get_pull(pull.number).complete()


@contextlib.contextmanager
def connect(
    server: Server | None = None, token: Token | None = None, waits: Waits | None = None
) -> Iterator[GitHub]:
    """Yield a client of GitHub without sending a request, and close the client at the end."""
    server, waits = server or find_server(), waits or Waits()
    requester = Requester(server, token or find_token(server), waits)
    try:
        with shaped():
            yield GitHub(requester)
    finally:
        requester.close()


def slug(repository: str) -> str:
    """Return a repository's path in the REST API; raise GitHubError unless named owner/name."""
    owner, slash, name = repository.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise GitHubError(f"not a repository, owner/name: {line_of(repository, 100)}")
    return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
