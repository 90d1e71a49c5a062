"""PyGithub's requester: what is sent once only, and what answers and faults mean."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast

import github.Requester
from github import Auth, BadAttributeException, GithubException
from pydantic import JsonValue

from contribbot import __version__
from contribbot.errors import (
    GitHubError,
    NotFoundError,
    RefusedError,
    TokenError,
)
from contribbot.github.auth import Server, Token
from contribbot.github.cache import Cache
from contribbot.github.connection import Exchange, Wire, elsewhere
from contribbot.github.refusals import clean_line, refusal, words_of
from contribbot.github.waits import Waits

log: Final = logging.getLogger("contribbot.github")

#: The version that PyGithub's objects are checked against, and what GitHub takes by default.
_VERSION: Final = "2022-11-28"
JSON: Final = "application/vnd.github+json"
#: What makes another one each time that it is sent. All else may be repeated: git's objects are
#: named by their content, and a change to what it is already changes nothing.
_ONCE: Final = re.compile(r"POST .*/(forks|pulls|comments|replies|dispatches)$")
#: What answers must have of which more is read than whether they came.
_SHAPES: Final[tuple[tuple[str, Mapping[str, type]], ...]] = (
    (r"/user$", {"login": str}),
    (r"/repos/[^/]+/[^/]+$", {"full_name": str, "default_branch": str}),
    (r"/pulls(/\d+)?$", {"number": int, "title": str, "head": dict, "base": dict}),
    (r"/(comments|replies)$", {"id": int, "html_url": str, "created_at": str}),
    (r"/branches/.+$", {"name": str, "commit": dict}),
    (r"/compare/.+$", {"behind_by": int, "ahead_by": int, "status": str}),
    (r"/git/(blobs|trees|commits)", {"sha": str}),
    (r"/git/refs?\b", {"ref": str, "object": dict}),
    (r"/actions/runs/\d+$", {"id": int, "status": str, "html_url": str}),
    (r"/search/issues$", {"total_count": int, "items": list}),
)
_LISTS: Final = re.compile(r"^GET .*/(pulls|comments)$")
#: What says no; where GraphQL does, there is another way.
REFUSED: Final = (NotFoundError, RefusedError, TokenError)


class Requester(github.Requester.Requester):
    """PyGithub's requester, whose requests go over our wire and whose faults are our errors."""

    def __init__(self, server: Server, token: Token, waits: Waits, cache: Path | None) -> None:
        super().__init__(
            auth=Auth.Token(token.secret.get_secret_value()), base_url=server.api, timeout=60,
            user_agent=f"contribbot/{__version__}", per_page=100, verify=True, retry=None,
            pool_size=None, seconds_between_writes=None, api_version=_VERSION,
        )  # fmt: skip
        # PyGithub's own, under the name that both classes' name gives it: while threads ask, it
        # must not grow under whoever goes through it.
        self.__last_requests = dict.fromkeys(("GET", "POST", "PUT", "PATCH"), 0.0)
        self.server, self.waits, self._token = server, waits, token
        self.wire = Wire(server, token.secret, waits, Cache(cache, token.secret))

    def close(self) -> None:
        """Close the connections."""
        self.wire.close()
        super().close()

    def requestJson(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, parameters: dict[str, object] | None = None,
        headers: dict[str, str] | None = None, input: object = None,  # noqa: A002  PyGithub's name
        *_args: object, **_named: object,
    ) -> tuple[int, dict[str, str], str]:  # fmt: skip
        """Send a request and return what came; whatever is no success is an error of ours."""
        what, accept = f"{verb} {self.path_of(url)}", (headers or {}).get("Accept", JSON)
        status, said, text = self.send(
            verb, url, parameters, {**(headers or {}), "Accept": accept}, input
        )
        if "json" in accept and (text or verb == "GET"):
            self._check(what, text)
        return status, said, text

    def requestJsonAndCheck(  # noqa: N802  PyGithub's name
        self, verb: str, url: str, parameters: dict[str, object] | None = None,
        headers: dict[str, str] | None = None, input: object = None,  # noqa: A002  PyGithub's name
        *_args: object, **_named: object,
    ) -> tuple[dict[str, str], JsonValue]:  # fmt: skip
        """Send a request to an address that may be one of an answer."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise elsewhere(f"{verb} {url.partition('?')[0]}", url)
        return super().requestJsonAndCheck(verb, url, parameters, headers, input)

    def send(
        self, verb: str, url: str, parameters: dict[str, object] | None,
        headers: dict[str, str], content: object = None, *, follow: bool = True,
    ) -> tuple[int, dict[str, str], str]:  # fmt: skip
        """Send a request; the answer is a success."""
        what = f"{verb} {self.path_of(url)}"
        log.debug("%s", what)
        exchange = Exchange(self.wire, what, once=bool(_ONCE.match(what)), follow=follow)
        with self.waits.write() if is_write(what, content) else contextlib.nullcontext():
            status, said, text = super().requestJson(
                verb, url, parameters, headers, content, exchange
            )
        if status >= HTTPStatus.BAD_REQUEST:
            raise refusal(what, status, said, text, self._token.source)
        return status, said, text

    def location(self, path: str) -> str:
        """Return where GitHub redirects to, which may be another server: nothing is sent there."""
        status, said, _ = self.send("GET", path, None, {}, follow=False)
        where = said.get("location", "")
        if not where or status not in range(300, 400):
            raise GitHubError(f"GET {path}: GitHub names no address to fetch it from")
        return where

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

    def _check(self, what: str, text: str) -> None:
        """Refuse an answer that lacks what is read."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise odd_answer(what, "no JSON") from None
        if what == "POST /graphql" and isinstance(data, dict) and data.get("errors"):
            raise RefusedError(f"{what}: {words_of(text)}", status=HTTPStatus.OK)
        keys = next((keys for path, keys in _SHAPES if re.search(path, what)), {})
        for row in data if isinstance(data, list) and _LISTS.match(what) else [data]:
            for key, kind in keys.items():
                if not isinstance(row, dict) or not isinstance(row.get(key), kind):
                    raise odd_answer(what, key)


def is_write(what: str, content: object) -> bool:
    """Return whether a request changes something; of GraphQL's, only mutations do."""
    if what == "POST /graphql" and isinstance(content, dict):
        return str(content["query"]).lstrip().startswith("mutation")
    return not what.startswith("GET ")


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
