"""Requests, answers, GitHub's errors, the table of routes, and permissions, for handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Final
from urllib.parse import unquote, urlencode

from pydantic import JsonValue

from tests.github.state import PUSHERS, Json, Permission, Repository, State, Token, User

#: A handler returns an answer, an object, or all rows of a list, which is then paged.
Handler = Callable[["Request"], "Answer | Json | list[Json]"]

ROUTES: Final[list[tuple[Route, Handler]]] = []
REPO: Final = "/repos/{owner}/{repo}"
#: Parameters that may hold slashes.
_PATHS: Final = frozenset({"ref", "path", "basehead", "branch"})


class UnmodelledError(Exception):
    """Raised for a request that the local GitHub does not model; the test fails."""


class HangUpError(Exception):
    """Raised by a hook: the connection is reset and nothing (more) is answered."""


class GitHubFault(Exception):  # noqa: N818  an answer of GitHub's, and no error of ours
    """Raised to answer with an error of GitHub: a status, a message, the `errors` of a 422."""

    def __init__(
        self, status: int, message: str, errors: Sequence[JsonValue] = (), **headers: str
    ) -> None:
        super().__init__(f"{status} {message}")
        body: Json = {"message": message, "status": str(status),
                      "documentation_url": "https://docs.github.com/rest"}  # fmt: skip
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = Answer(status, body | ({"errors": [*errors]} if errors else {}), said)


def not_found(message: str = "Not Found") -> GitHubFault:
    """Return GitHub's 404, for an object that does not exist or may not be seen."""
    return GitHubFault(404, message)


@dataclass
class Answer:
    """An answer. `raw` replaces `json`; `cut` sends only so many bytes of the body."""

    status: int = 200
    json: JsonValue = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    cut: int | None = None

    def body(self) -> bytes:
        if self.raw is None and self.json is None and self.status in {204, 304}:
            return b""
        return json.dumps(self.json, ensure_ascii=False).encode() if self.raw is None else self.raw


@dataclass(frozen=True)
class Route:
    """A route: method, path, and the permission that a token needs; decorates its handler."""

    method: str
    template: str
    _: KW_ONLY
    paged: bool = False
    inside: str = ""  # the key of the rows, where a list has something around it
    status: int = 0
    query: tuple[str, ...] = ()
    permission: str = "contents"

    def __call__(self, handler: Handler) -> None:
        ROUTES.append((self, handler))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("".join(
            f"(?P<{part}>{'.+' if part in _PATHS else '[^/]+'})" if at % 2 else re.escape(part)
            for at, part in enumerate(re.split(r"\{(\w+)\}", self.template))
        ))  # fmt: skip


@dataclass
class Request:
    number: int  # counted from 1 as requests arrive
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    state: State
    route: Route | None = None
    handler: Handler | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    user: User | None = None
    token: Token | None = None
    around: Json = field(default_factory=dict)  # what else is around the rows of a list
    status: int = 0  # what it was answered with; 0: the connection was reset

    @property
    def who(self) -> User:
        assert self.user is not None
        return self.user

    def json(self, *keys: str) -> Json:
        """Return the JSON body; a key outside `keys` is not modelled."""
        said: JsonValue = json.loads(self.body or b"{}")
        assert isinstance(said, dict)
        if unknown := said.keys() - set(keys):
            raise UnmodelledError(f"{self.method} {self.path}: body keys {sorted(unknown)}")
        return said

    # Before the handler:

    def find_route(self) -> None:
        """Find the route of the path, which is still percent-encoded."""
        if match := re.match("/repositories/([0-9]+)/", self.path):
            every = self.state.repositories.values()
            name = next((it.full_name for it in every if it.id == int(match[1])), "no/such")
            self.path = f"/repos/{name}/{self.path[match.end() :]}"
        for row, handler in ROUTES:
            if row.method == self.method and (match := row.pattern.fullmatch(self.path)):
                self.route, self.handler = row, handler
                self.parameters = {key: unquote(value) for key, value in match.groupdict().items()}
                return

    def screen(self) -> None:
        """Find the token's user; refuse what is not modelled."""
        if self.route is None:
            raise UnmodelledError(f"{self.method} {self.path}")
        assert "user-agent" in self.headers
        if (given := self.headers.get("authorization")) is not None:
            found = self.state.bearer(given.partition(" ")[2])
            if found is None:
                raise GitHubFault(401, "Bad credentials")
            self.user, self.token = found
        pages = ("per_page", "page") if self.route.paged or self.route.inside else ()
        if unknown := self.query.keys() - {*self.route.query, *pages}:
            raise UnmodelledError(f"{self.method} {self.path}: query {sorted(unknown)}")

    def run(self) -> Answer:
        try:
            self.screen()
            assert self.route is not None
            assert self.handler is not None
            with self.state.lock:
                result = self.handler(self)
        except GitHubFault as fault:
            return fault.answer
        if isinstance(result, list):
            return self._page(self.route, result)
        if isinstance(result, dict):
            return Answer(self.route.status or (201 if self.method == "POST" else 200), result)
        return result

    def _page(self, row: Route, things: Sequence[Json]) -> Answer:
        size = min(max(int(self.query.get("per_page", "30")), 1), 100)
        number, link = int(self.query.get("page", "1")), dict[str, str]()
        if number * size < len(things):
            # In such a link GitHub names a repository by its id.
            known, here = self.state.repository("/".join(self.path.split("/")[2:4])), self.path
            if known is not None:
                here = f"/repositories/{known.id}/{here.split('/', 4)[4]}"
            query = urlencode({**self.query, "page": number + 1})
            link = {"Link": f'<{self.state.base}{here}?{query}>; rel="next"'}
        rows: list[JsonValue] = [*things[(number - 1) * size : number * size]]
        around: Json = {"total_count": len(things), row.inside: rows, **self.around}
        return Answer(200, around if row.inside else rows, link)

    # For handlers:

    def repository(self, need: Permission = "read") -> Repository:
        """Return the repository in the path, if the user with this token has the permission."""
        name = f"{self.parameters['owner']}/{self.parameters['repo']}"
        return self.allow(self.state.repository(name), need)

    def allow(self, repository: Repository | None, need: Permission) -> Repository:
        """Return a repository; 404 or 403 if the user or the token lacks the permission."""
        if repository is None:
            raise not_found()
        if repository.polls_until_ready > 0 and re.search("/(git|compare|branches)/", self.path):
            repository.polls_until_ready -= 1
            raise not_found()
        writes = self.method != "GET"
        if self.token is not None and self.token.fine_grained and self.route is not None:
            named = repository.full_name in self.token.repositories
            if writes and not (named and self.route.permission in self.token.permissions):
                words = "Resource not accessible by personal access token"
                wanted = {"X_Accepted_GitHub_Permissions": f"{self.route.permission}=write"}
                raise GitHubFault(403, words, **wanted)
        if need == "write" and repository.permission(self.user) not in PUSHERS:
            raise not_found()
        if writes and repository.archived:
            raise GitHubFault(403, "Repository was archived so is read-only.")
        return repository
