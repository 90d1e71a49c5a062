"""PyGithub's requester over a session of ours: patient, scrubbed of the token, cached.

PyGithub's own connection reads answers of any size, follows redirects without their query, writes
too, and repeats what would make another one each time that it is sent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import github.Requester
import requests
from github import BadAttributeException, GithubException
from pydantic import JsonValue

from contribbot import __version__, process
from contribbot.errors import (
    GitHubError,
    MovedError,
    NotFoundError,
    RateLimitError,
    RefusedError,
    TokenError,
    UncertainError,
)
from contribbot.github import connection
from contribbot.github.auth import Server, Token, is_loopback
from contribbot.github.cache import Cache, Kept
from contribbot.github.connection import (
    Answer,
    Fault,
    OversizeError,
    asked_pause,
    elsewhere,
    fault_of,
    read_body,
)
from contribbot.github.refusals import clean_line, refusal, words_of
from contribbot.github.waits import Waits

log: Final = logging.getLogger("contribbot.github")

JSON: Final = "application/vnd.github+json"
#: What makes another one each time that it is sent. All else may be repeated: git's objects are
#: named by their content, and a change to what it is already changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|comments|replies|dispatches)$")
#: What answers must have of which more is read than whether they came; of lists, each row.
_KEYS: Final = (
    (r"/user$", "login"),
    (r"/repos/[^/]+/[^/]+$", "full_name default_branch"),
    (r"/pulls(/\d+)?$", "number title head base"),
    (r"/(comments|replies)$", "id html_url created_at"),
    (r"/branches/.+$", "name commit"),
    (r"/compare/.+$", "behind_by ahead_by status"),
    (r"/git/(blobs|trees|commits)", "sha"),
    (r"/git/refs?\b", "ref object"),
    (r"/actions/runs/\d+$", "id status html_url"),
    (r"/search/issues$", "total_count items"),
)
#: What they are; all others are texts.
_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("id", "number", "behind_by", "ahead_by", "total_count"), int),
    **dict.fromkeys(("head", "base", "commit", "object"), dict), "items": list,
}  # fmt: skip
_LISTS: Final = re.compile(r"^GET .*/(pulls|comments)$")
#: What says no; where GraphQL does, there is another way.
REFUSED: Final = (NotFoundError, RefusedError, TokenError)
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
#: Redirects that are followed: a renamed repository makes one.
_HOPS: Final = 3
#: Seconds of the longest pause between attempts.
_LONGEST_PAUSE: Final = 20.0
_FETCHING: Final = "fetching an artifact"


class Requester(github.Requester.Requester):
    """Sends what PyGithub's objects ask for; whatever fails is an error of ours."""

    def __init__(self, server: Server, token: Token, waits: Waits, cache: Path | None) -> None:
        super().__init__(
            auth=None, base_url=server.api, timeout=60, user_agent="contribbot", per_page=100,
            verify=True, retry=None, pool_size=None,
        )  # fmt: skip
        self.server, self.waits, self._token = server, waits, token
        self._cache = Cache(cache, token.secret)
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
        accept, path = (headers or {}).get("Accept", JSON), self.path_of(url)
        answer = self.send(verb, self.add_parameters_to_url(url, parameters or {}), accept, input)
        # Bytes that are no UTF-8 survive the way back.
        text = answer.body.decode("utf-8", "surrogateescape")
        if "json" in accept and (text or verb == "GET"):
            _check(f"{verb} {path}", text)
        return answer.status, answer.headers, text

    def requestJsonAndCheck(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, *args: object, **named: object
    ) -> tuple[dict[str, str], JsonValue]:
        """Send a request to an address that may be one of an answer."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise elsewhere(f"{verb} {url.partition('?')[0]}", url)
        return super().requestJsonAndCheck(verb, url, *args, **named)  # type: ignore[arg-type]  # PyGithub's own

    def send(self, verb: str, url: str, accept: str, content: object = None) -> Answer:
        """Send a request, and follow it to where it leads on this server."""
        what = f"{verb} {self.path_of(url)}"
        log.debug("%s", what)
        once, read = bool(_ONCE.match(what)), verb == "GET"
        graphql = url == self.graphql_url
        address = url if graphql else f"{self.base_url}{url.removeprefix(self.base_url)}"
        key = f"{accept} {address}"
        kept = self._cache.find(key) if read else None
        headers = {"Accept": accept} | ({"If-None-Match": kept.etag} if kept else {})
        exchange = partial(self._exchange, verb, address, headers, content)
        with self.waits.write() if is_write(what, content) else contextlib.nullcontext():
            answer = self.patiently(what, exchange, once=once)
            for _ in range(_HOPS):
                if answer.status not in _REDIRECTS:
                    break
                address = self._target(answer, what, read=read)
                exchange = partial(self._exchange, verb, address, headers)
                answer = self.patiently(what, exchange)
            else:
                raise GitHubError(f"{what}: GitHub redirects in a circle")
        self._refuse(what, answer)
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            link = {"link": kept.link} if kept.link else {}
            return Answer(HTTPStatus.OK, {**answer.headers, **link}, kept.body)
        if read and answer.status == HTTPStatus.OK:
            etag, pages = (answer.headers.get(name, "") for name in ("etag", "link"))
            self._cache.keep(key, Kept(etag, pages, answer.body))
        return answer

    def fetch(self, path: str, most: int) -> bytes:
        """Return what lies where GitHub redirects to: at a signed address of another server.

        The token never goes there: whoever has the address needs none.
        """
        what, headers = f"GET {path}", {"Accept": JSON}
        locate = partial(self._exchange, "GET", f"{self.base_url}{path}", headers)

        def exchange() -> Answer:
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

    def patiently(self, what: str, exchange: Callable[[], Answer], *, once: bool = False) -> Answer:
        """Send a request until it is answered; with `once`, only what GitHub did not act upon."""
        spent, waits = 0.0, self.waits
        for attempt in range(1, waits.attempts + 1):
            process.check_stopping()
            result: Answer | Fault
            try:
                result = exchange()
            except connection.RAISED as error:
                result = fault_of(error, urlsplit(self._root).netloc)
            # Outside of the block: the libraries' exceptions hold the request, and that the token.
            last = attempt == waits.attempts
            if isinstance(result, Answer):
                log.debug("%s: %s", what, result.status)
                if (pause := asked_pause(what, result, attempt)) is not None:
                    if last:
                        raise RateLimitError(
                            f"{what}: GitHub goes on asking for pauses, {attempt} times",
                            hint="run it again later; what is done stays done",
                        )
                    waits.for_limit(pause, spent, what)
                    spent += pause
                    continue
                if result.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return result
                result = Fault(f"HTTP {result.status}", acted=True)
            if once and result.acted:
                raise UncertainError(
                    f"{what}: {result.words}: nobody knows whether it happened",
                    hint="run it again: it looks first whether that happened",
                )
            if not result.passes or last:
                times = f", {attempt} times" if result.passes else ""
                raise GitHubError(
                    f"{what}: {result.words}{times}",
                    hint="check the network, the certificates, GITHUB_API_URL"
                    f" ({self.server.api}) and https://www.githubstatus.com, and run it again",
                )
            log.warning("%s: %s; trying again", what, result.words)
            # The first is tried again at once.
            pause = waits.first * (2.0 ** (attempt - 1) + random.random()) if attempt > 1 else 0.0  # noqa: S311  no secret
            waits.sleep(min(pause, _LONGEST_PAUSE))
        raise AssertionError("a loop that ends otherwise")

    def _exchange(
        self, verb: str, address: str, headers: dict[str, str], content: object = None
    ) -> Answer:
        with self._session.request(
            verb, address, json=cast("JsonValue", content), headers=headers,
            timeout=connection.TIMEOUT, allow_redirects=False, stream=True,
        ) as response:  # fmt: skip
            body = read_body(response, connection.MOST)
        # A server that quotes the token must not get it into a message or a file.
        received = {name.lower(): self._token.secret.scrub(text)
                    for name, text in response.headers.items()}  # fmt: skip
        token = self._token.secret.get_secret_value().encode()
        return Answer(response.status_code, received, body.replace(token, b"***"))

    def _refuse(self, what: str, answer: Answer) -> None:
        if answer.status >= HTTPStatus.BAD_REQUEST:
            text = answer.body.decode("utf-8", "replace")
            raise refusal(what, answer.status, answer.headers, text, self._token.source)

    def _target(self, answer: Answer, what: str, *, read: bool) -> str:
        """Return where an answer leads, which must be on this server."""
        if not read:
            raise MovedError(
                f"{what}: GitHub says that it has moved, and contribbot writes nowhere else",
                hint="the repository was renamed: an upstream's name is `repository` in"
                " upstreams/NAME.toml of the queue (a copy of ours, where it has none); the"
                " queue's own is that of its git remote origin, or --repo OWNER/NAME",
            )
        url = answer.headers.get("location", "")
        path = url.removeprefix(self._root)
        if not path.startswith("/") or path.startswith("//") or not url.isprintable():
            raise elsewhere(what, url)
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


def _fetch(url: str, most: int, *, local: bool) -> Answer:
    """Fetch an artifact, unless others could listen in."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
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
            url, stream=True, timeout=connection.TIMEOUT, allow_redirects=False, headers=headers
        ) as response,
    ):
        try:
            return Answer(response.status_code, {}, read_body(response, most))
        except OversizeError:
            raise RefusedError(f"{_FETCHING}: more than {most} bytes came", status=413) from None


def is_write(what: str, content: object) -> bool:
    """Return whether a request changes something; of GraphQL's, only mutations do."""
    if what == "POST /graphql" and isinstance(content, dict):
        return str(content["query"]).lstrip().startswith("mutation")
    return not what.startswith("GET ")


def _check(what: str, text: str) -> None:
    """Refuse an answer that lacks what is read."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise odd_answer(what, "no JSON") from None
    if what == "POST /graphql" and isinstance(data, dict) and data.get("errors"):
        raise RefusedError(f"{what}: {words_of(text)}", status=HTTPStatus.OK)
    keys = next((keys for path, keys in _KEYS if re.search(path, what)), "")
    for row in data if isinstance(data, list) and _LISTS.match(what) else [data]:
        for key in keys.split():
            if not isinstance(row, dict) or not isinstance(row.get(key), _TYPES.get(key, str)):
                raise odd_answer(what, key)


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
