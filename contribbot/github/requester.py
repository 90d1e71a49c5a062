"""PyGithub's requester over a session of ours: bounded, patient, scrubbed of the token, cached."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import github.Requester
import requests
import urllib3
from github import BadAttributeException, GithubException
from pydantic import JsonValue

from contribbot import __version__, files
from contribbot.errors import (
    GitHubError,
    MovedError,
    RateLimitError,
    RefusedError,
    UncertainError,
    check_stopping,
)
from contribbot.github.auth import Secret, Server, Token, is_loopback
from contribbot.github.refusals import REFUSED, clean_line, refusal, words_of
from contribbot.github.shapes import misfit
from contribbot.github.waits import MINUTE, Waits

log: Final = logging.getLogger("contribbot.github")

JSON: Final = "application/vnd.github+json"
#: What makes another one each time that it is sent. All else may be repeated: git's objects are
#: named by their content, and a change to what it is already changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|comments|dispatches)$")
_LINKS: Final = re.compile(r'(<[^<>;, ]+>; rel="[a-z]+"(, (?=<)|$))*')
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_HOPS: Final = 3
_LONGEST_PAUSE: Final = 20.0
_FETCHING: Final = "fetching an artifact"
#: More than any answer that contribbot asks for: the listing of PyTorch's tree has 7 MB.
MOST: Final = 64 * 1024 * 1024
TIMEOUT: Final = (10.0, 60.0)
#: Seconds that one answer may take in all, however its bytes drip.
DEADLINE: Final = 180.0
#: Bytes between two looks at the clock: a chunk is waited for until it is whole.
_CHUNK: Final = 1024
#: What GitHub says in a 403 that is a limit, and no refusal.
_LIMIT: Final = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)
#: GraphQL answers 200 and says it inside, in either spelling.
_GRAPHQL_LIMIT: Final = re.compile(rb'"type"\s*:\s*"RATE_LIMIT(ED)?"')


@dataclass(frozen=True)
class Fault:
    """What came between: whether GitHub may have acted, and whether another attempt may help."""

    words: str
    acted: bool = False
    passes: bool = True
    reached: bool = True  # whether there was a connection


#: What the libraries raise, and what it means in our words (theirs quote URLs and proxies), the
#: particular before the general.
RAISED: Final = (
    requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError,
    ValueError,  # of an address that is none
)  # fmt: skip
_FAULTS: Final[tuple[tuple[type[BaseException], Fault], ...]] = (
    (requests.exceptions.ProxyError, Fault("the proxy does not let it through")),
    (requests.exceptions.ConnectTimeout, Fault("no connection to {server} in time", reached=False)),
    (requests.exceptions.ChunkedEncodingError, Fault("the answer is cut short", acted=True)),
    (requests.exceptions.ContentDecodingError, Fault("the answer is garbled", acted=True)),
    (
        urllib3.exceptions.NameResolutionError,
        Fault("the name of {server} is not known here", reached=False),
    ),
    (urllib3.exceptions.NewConnectionError, Fault("{server} cannot be reached", reached=False)),
    (requests.exceptions.Timeout, Fault("no answer in time", acted=True)),
    (Exception, Fault("the connection broke", acted=True)),
)


class Requester(github.Requester.Requester):
    """Sends what PyGithub's objects ask for; whatever fails is an error of ours."""

    def __init__(self, server: Server, token: Token, waits: Waits, cache: Path | None) -> None:
        super().__init__(
            auth=None, base_url=server.api, timeout=60, user_agent="contribbot", per_page=100,
            verify=True, retry=None, pool_size=None,
        )  # fmt: skip
        self.server, self.waits, self._token = server, waits, token
        self._cache = Cache(cache, token.secret)
        self._reached = False  # whether anything on the way to GitHub was
        parts = urlsplit(server.api)
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._session = make_session(local=server.local)
        self._session.headers.update({
            "Authorization": f"token {token.secret.get_secret_value()}",
            "User-Agent": f"contribbot/{__version__}",
            # The version that PyGithub's objects are checked against.
            "X-GitHub-Api-Version": "2022-11-28",
        })  # fmt: skip

    def close(self) -> None:
        """Close the connections."""
        self._session.close()
        super().close()

    def requestJson(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, parameters: dict[str, object] | None = None,
        headers: dict[str, str] | None = None, input: object = None,  # noqa: A002  PyGithub's name
        *_args: object, **_named: object,
    ) -> tuple[int, dict[str, str], str]:  # fmt: skip
        """Send a request and return what came, which is a success and what GitHub describes."""
        accept = (headers or {}).get("Accept", JSON)
        answer = self.send(verb, self.add_parameters_to_url(url, parameters or {}), accept, input)
        # Bytes that are no UTF-8 survive the way back.
        return answer.status, answer.headers, answer.body.decode("utf-8", "surrogateescape")

    def requestJsonAndCheck(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, *args: object, **named: object
    ) -> tuple[dict[str, str], JsonValue]:
        """Send a request to an address that may be one of an answer."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise _elsewhere(f"{verb} {url.partition('?')[0]}", url)
        return super().requestJsonAndCheck(verb, url, *args, **named)  # type: ignore[arg-type]  # PyGithub's own

    def send(self, verb: str, url: str, accept: str, content: object = None) -> Response:
        """Send a request; a read costs nothing where the answer that was kept is still true."""
        what, read = f"{verb} {self.path_of(url)}", verb == "GET"
        log.debug("%s", what)
        graphql = url == self.graphql_url
        address = url if graphql else f"{self.base_url}{url.removeprefix(self.base_url)}"
        key = f"{accept} {address}"
        kept = self._cache.find(key) if read else None
        if kept and "json" in accept and misfit(what, kept.body):
            kept = None  # another version of contribbot asked for less
        headers = {"Accept": accept} | ({"If-None-Match": kept.headers["etag"]} if kept else {})
        exchange = partial(self._exchange, verb, address, headers, content)
        with self.waits.write() if is_write(what, content) else contextlib.nullcontext():
            answer = self.patiently(what, exchange, once=bool(_ONCE.match(what)))
        self._refuse(what, answer)
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            return replace(kept, headers={**answer.headers, **kept.headers})
        if "json" in accept:
            _check(what, answer, write=is_write(what, content))
        if read and answer.status == HTTPStatus.OK:
            self._cache.keep(key, answer)
        return answer

    def fetch(self, path: str, most: int) -> bytes:
        """Return what lies at the signed address that GitHub redirects to; no token goes there."""
        what, address = f"GET {path}", f"{self.base_url}{path}"

        def exchange() -> Response:
            locate = partial(self._exchange, "GET", address, {"Accept": JSON}, follow=False)
            answer = self.patiently(what, locate)
            self._refuse(what, answer)
            url = answer.headers.get("location", "")
            if not url or answer.status not in range(300, 400):
                raise GitHubError(f"{what}: GitHub names no address to fetch it from")
            return _fetch(url, most, local=self.server.local)

        answer = self.patiently(_FETCHING, exchange)
        if answer.status != HTTPStatus.OK:
            raise GitHubError(f"{_FETCHING}: its storage says {answer.status}")
        return answer.body

    def patiently(
        self, what: str, exchange: Callable[[], Response], *, once: bool = False
    ) -> Response:
        """Send a request until it is answered; with `once`, only what GitHub did not act upon."""
        waits = self.waits
        if waits.over:
            raise RateLimitError(
                f"{what}: not asked: {waits.longest / 60:.0f} min were lost with failed attempts",
                hint="run it again later; what is done stays done",
            )
        for attempt in range(1, waits.attempts + 1):
            check_stopping()
            result: Response | Fault
            began = waits.clock()
            try:
                result = exchange()
            except RAISED as error:
                result = _fault_of(error, urlsplit(self._root).netloc)
            # Outside of the block: the libraries' exceptions hold the request, and that the token.
            self._reached = self._reached or isinstance(result, Response) or result.reached
            most = waits.attempts if self._reached else waits.unreached_attempts
            last = attempt >= min(most, waits.attempts)
            if isinstance(result, Response):
                log.debug("%s: %s", what, result.status)
                if (pause := _asked_pause(what, result, attempt)) is not None:
                    if last:
                        raise RateLimitError(
                            f"{what}: GitHub goes on asking for pauses, {attempt} times",
                            hint="run it again later; what is done stays done",
                        )
                    waits.for_limit(pause, what)
                    continue
                if result.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return result
                result = Fault(f"HTTP {result.status}", acted=True)
            if once and result.acted:
                raise _uncertain(what, result.words)
            # The first is tried again at once.
            pause = waits.first * (2.0 ** (attempt - 1) + random.random()) if attempt > 1 else 0.0  # noqa: S311  no secret
            pause = min(pause, _LONGEST_PAUSE)
            late = not waits.lose(0.0 if last else pause, began)
            if not result.passes or last or late:
                times = f", {attempt} times" if result.passes else ""
                raise GitHubError(
                    f"{what}: {result.words}{times}",
                    hint="check the network, the certificates, GITHUB_API_URL"
                    f" ({self.server.api}) and https://www.githubstatus.com, and run it again",
                )
            # Said once a request: the end says how often it was tried.
            level = logging.WARNING if attempt == 1 else logging.DEBUG
            log.log(level, "%s: %s; trying again", what, result.words)
            waits.sleep(pause)
        raise AssertionError("a loop that ends otherwise")

    def _exchange(
        self, verb: str, address: str, headers: dict[str, str], content: object = None, *,
        follow: bool = True,
    ) -> Response:  # fmt: skip
        """Send a request once, and follow it to where it leads on this server."""
        secret, what = self._token.secret, f"{verb} {self.path_of(address)}"
        for _ in range(_HOPS + 1):
            with self._session.request(
                verb, address, json=cast("JsonValue", content), headers=headers,
                timeout=TIMEOUT, allow_redirects=False, stream=True,
            ) as response:  # fmt: skip
                body = _read_body(response, what, MOST)
            # A server that quotes the token must not get it into a message or a file.
            received = {name.lower(): secret.scrub(text) for name, text in response.headers.items()}
            if response.status_code not in _REDIRECTS or not follow:
                body = body.replace(secret.get_secret_value().encode(), b"***")
                return Response(response.status_code, received, body)
            address = self._target(received.get("location", ""), what, read=verb == "GET")
        raise GitHubError(f"{what}: GitHub redirects in a circle")

    def _refuse(self, what: str, answer: Response) -> None:
        if answer.status >= HTTPStatus.BAD_REQUEST:
            text = answer.body.decode("utf-8", "replace")
            raise refusal(what, answer.status, answer.headers, text, self._token.source)

    def _target(self, url: str, what: str, *, read: bool) -> str:
        """Return where an answer leads, which must be on this server."""
        if not read:
            raise MovedError(
                f"{what}: GitHub says that it has moved, and contribbot writes nowhere else",
                hint="the repository was renamed: an upstream's name is `repository` in"
                " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the"
                " queue's own is that of its git remote origin, or GITHUB_REPOSITORY=OWNER/NAME",
            )
        path = url.removeprefix(self._root)
        if not path.startswith("/") or path.startswith("//") or not url.isprintable():
            raise _elsewhere(what, url)
        return f"{self._root}{path}"

    def path_of(self, url: str) -> str:
        """Return the path of a request behind the API's own, for messages."""
        if url == self.graphql_url:
            return "/graphql"
        return url.removeprefix(self.base_url).partition("?")[0]

    def graphql(self, query: str, variables: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        """Ask GraphQL; None where it is refused, or has errors to say."""
        try:
            data = self.graphql_query(query, variables)[1].get("data")
        except REFUSED:
            return None
        return cast("dict[str, JsonValue]", data) if isinstance(data, dict) else None


def make_session(*, local: bool) -> requests.Session:
    """Return a session that sends nothing of .netrc, and uses no proxy for this machine."""
    session = requests.Session()
    session.auth, session.trust_env = Requester.noopAuth, not local
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it logs each request
    return session


def _fetch(url: str, most: int, *, local: bool) -> Response:
    """Fetch an artifact, unless others could listen in."""
    try:
        parts = urlsplit(url if url.isascii() and url.isprintable() else "")
        host, _ = parts.hostname or "", parts.port  # a port that is no number raises
    except ValueError:
        parts, host = urlsplit(""), ""
    here = is_loopback(host)
    plain = parts.scheme == "http" and local and here
    if not host or "@" in parts.netloc or not (parts.scheme == "https" or plain):
        address = clean_line(f"{parts.scheme}://{host}", 100)
        raise GitHubError(f"{_FETCHING}: GitHub points to {address}, which is not https")
    headers = {"Accept-Encoding": "identity"}
    with (
        make_session(local=here) as session,
        session.get(
            url, stream=True, timeout=TIMEOUT, allow_redirects=False, headers=headers
        ) as response,
    ):
        return Response(response.status_code, {}, _read_body(response, _FETCHING, most))


def is_write(what: str, content: object) -> bool:
    """Return whether a request changes something; of GraphQL's, only mutations do."""
    if what == "POST /graphql" and isinstance(content, dict):
        return str(content["query"]).lstrip().startswith("mutation")
    return not what.startswith("GET ")


def _check(what: str, answer: Response, *, write: bool) -> None:
    """Refuse an answer that lacks what is read."""
    errors = what == "POST /graphql" and words_of(answer.body.decode("utf-8", "replace"))
    if errors:
        raise RefusedError(f"{what}: {errors}", status=HTTPStatus.OK)
    problem = misfit(what, answer.body)
    if not _LINKS.fullmatch(answer.headers.get("link", "")):
        problem = "Link"
    if problem and write:
        # Without what GitHub made, nobody knows whether it made anything.
        raise _uncertain(what, f"an answer of another shape: {clean_line(problem, 100)}")
    if problem:
        raise odd_answer(what, problem)


def _uncertain(what: str, words: str) -> UncertainError:
    """Return the error for a write whose answer is lost."""
    return UncertainError(
        f"{what}: {words}: nobody knows whether it happened",
        hint="run it again: it looks first whether that happened",
    )


@contextlib.contextmanager
def shaped() -> Iterator[None]:
    """Make one error of all that PyGithub's objects raise where an answer is none of GitHub's."""
    try:
        yield
    except (BadAttributeException, GithubException) as error:
        why = type(error).__name__
    else:
        return
    raise odd_answer("GitHub", why)


def odd_answer(what: str, where: str) -> GitHubError:
    """Return the error for an answer that is none of GitHub's."""
    return GitHubError(
        f"{what}: an answer of another shape: {clean_line(where, 100)}",
        hint="see whether GITHUB_API_URL is the API of a GitHub, and contribbot up to date",
    )


def _fault_of(error: BaseException, server: str) -> Fault:
    """Return what an exception of the libraries means."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Fault("its certificate is not trusted", passes=False)
    below = error.args[0] if error.args else None
    inside = (error, below, getattr(below, "reason", None))
    fault = next(fault for kind, fault in _FAULTS if any(isinstance(it, kind) for it in inside))
    return replace(fault, words=fault.words.format(server=server))


def _read_body(response: requests.Response, what: str, most: int) -> bytes:
    """Return a body of so many bytes at most, in the time that one answer may take."""
    started, body = time.monotonic(), bytearray()
    for chunk in response.iter_content(_CHUNK):
        check_stopping()
        body += chunk
        if len(body) > most:
            raise RefusedError(f"{what}: more than {most} bytes came", status=413)
        if time.monotonic() - started > DEADLINE:
            raise requests.Timeout
    return bytes(body)


def _asked_pause(what: str, answer: Response, attempt: int) -> float | None:
    """Return the seconds that GitHub wants to be left alone; None where it does not say so."""
    headers, start = answer.headers, answer.body[:4096]
    limited: dict[int, bool] = {
        HTTPStatus.TOO_MANY_REQUESTS: True,
        HTTPStatus.FORBIDDEN: "retry-after" in headers or bool(_LIMIT.search(start)),
        HTTPStatus.OK: what == "POST /graphql" and bool(_GRAPHQL_LIMIT.search(start)),
    }
    if not limited.get(answer.status):
        return None
    after, reset = headers.get("retry-after"), headers.get("x-ratelimit-reset", "")
    if after is not None:
        return max(float(after), 1.0) if after.isdecimal() else MINUTE
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        # One more second: GitHub's clock has whole ones.
        return max(float(reset) - time.time(), 0.0) + 1.0
    return MINUTE * 2.0 ** (attempt - 1)


def _elsewhere(what: str, url: str) -> GitHubError:
    """Return the error for an answer that leads to another server."""
    return GitHubError(
        f"{what[:200]}: GitHub points to another server: {url[:200]!a}",
        hint="correct GITHUB_API_URL, if that is the right one",
    )


#: Bytes of a body that is worth keeping; larger ones are fetched anew.
_LARGEST: Final = 4 * 1024 * 1024
#: Files, and bytes of them in all, that are kept; the longest unused go first.
_FILES: Final = 2000
_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Response:
    """An HTTP response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Cache:
    """The answers that one token got: another token never gets to see them."""

    def __init__(self, folder: Path | None, secret: Secret) -> None:
        self._folder, self._secret = folder, secret
        if folder is not None:
            files.make_private(folder)
            with contextlib.suppress(OSError):
                self._prune(folder)

    def find(self, url: str) -> Response | None:
        """Return what was kept of a URL, or None: also where the file is damaged."""
        if (path := self._path(url)) is None:
            return None
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            headers, digest = json.loads(head)
            os.utime(path)
        except (OSError, ValueError, TypeError):
            return None
        return Response(200, headers, body) if digest == hashlib.sha256(body).hexdigest() else None

    def keep(self, url: str, answer: Response) -> None:
        """Keep an answer that has an ETag; that it cannot be written is no error."""
        path = self._path(url)
        if path is None or "etag" not in answer.headers or len(answer.body) > _LARGEST:
            return
        headers = {key: answer.headers[key] for key in ("etag", "link") if key in answer.headers}
        head = json.dumps([headers, hashlib.sha256(answer.body).hexdigest()])
        try:
            files.write_atomically(path, head.encode() + b"\n" + answer.body)
        except OSError as error:
            log.debug("an answer cannot be kept: %s", error)

    def _path(self, url: str) -> Path | None:
        # A token is too long to be guessed from a digest that it is a part of.
        name = hashlib.sha256(f"{self._secret.get_secret_value()}\0{url}".encode()).hexdigest()
        return self._folder / f"{name}.answer" if self._folder is not None else None

    def _prune(self, folder: Path) -> None:
        """Remove the longest unused, down to what may be kept."""
        room = _BYTES
        kept = [(path.lstat(), path) for path in folder.glob("*.answer")]
        kept.sort(key=lambda entry: entry[0].st_mtime, reverse=True)
        for number, (stat, path) in enumerate(kept):
            room -= stat.st_size
            if number >= _FILES or room < 0:
                path.unlink()
