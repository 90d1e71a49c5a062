"""What handlers see: the request, the answer, GitHub's errors, and the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar
from urllib.parse import unquote, urlencode

from pydantic import JsonValue

from tests.github.state import PUSHERS, Repository, State, Token, User

Json = dict[str, JsonValue]
Thing = TypeVar("Thing")
Handler = Callable[["Request"], "Answer"]
Need = Literal["read", "triage", "push", "admin"]

ROUTES: Final[list[Route]] = []


class UnmodelledError(Exception):
    """The request asks for something that this GitHub does not model; the test fails."""


class HangUpError(Exception):
    """Raised by a hook: the connection is reset and nothing (more) is answered."""


class GitHubFault(Exception):  # noqa: N818  an answer of GitHub's, and no error of ours
    """GitHub says no.

    Args:
        status: The HTTP status.
        message: GitHub's words.
        errors: The `errors` list of a 422.
        headers: Further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[JsonValue] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """Return it as the answer that the client gets."""
        body: Json = {"message": self.message}
        if self.errors:
            body["errors"] = self.errors
        body["documentation_url"] = "https://docs.github.com/rest"
        body["status"] = str(self.status)
        return Answer(self.status, body, dict(self.headers))


def not_found() -> GitHubFault:
    """Return GitHub's answer for what is not there or may not be seen."""
    return GitHubFault(404, "Not Found")


def invalid(resource: str, field_name: str, code: str, message: str | None = None) -> GitHubFault:
    """Return GitHub's `Validation Failed`."""
    error: Json = {"resource": resource, "field": field_name, "code": code}
    if message is not None:
        error["message"] = message
    return GitHubFault(422, "Validation Failed", [error])


@dataclass
class Answer:
    """What is sent back. `raw` replaces `json`; `cut` sends only so many bytes of the body."""

    status: int = 200
    json: JsonValue = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    cut: int | None = None

    def body(self) -> bytes:
        """Return the bytes of the whole body."""
        if self.raw is not None:
            return self.raw
        if self.json is None and self.status in {204, 304}:
            return b""
        return json.dumps(self.json, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Route:
    """One row of the table."""

    method: str
    template: str
    pattern: re.Pattern[str]
    handler: Handler
    query: frozenset[str]
    scopes: tuple[str, ...]
    permission: str | None
    locked: bool
    resource: str


def route(
    method: str,
    template: str,
    *,
    query: Sequence[str] = (),
    paged: bool = False,
    scopes: Sequence[str] = (),
    permission: str | None = None,
    locked: bool | None = None,
    resource: str = "core",
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Args:
        method: GET, POST, PUT, PATCH or DELETE.
        template: `/repos/{owner}/{repo}/git/ref/{ref:path}`; `:path` also takes slashes.
        query: The query parameters that the handler models; any other raises.
        paged: It also takes `per_page` and `page`.
        scopes: A classic token needs one of these; by default writes need `public_repo` or `repo`.
        permission: What a fine-grained token needs (`contents`, `pull_requests`, `issues`).
        locked: Whether the state's lock is held meanwhile; by default for all but GET.
        resource: Whose rate limit it counts against.
    """
    parts = []
    for piece in re.split(r"(\{[^}]*\})", template):
        if piece.startswith("{"):
            name, _, kind = piece[1:-1].partition(":")
            parts.append(f"(?P<{name}>{'.+' if kind == 'path' else '[^/]+'})")
        else:
            parts.append(re.escape(piece))
    needed = tuple(scopes) or (() if method == "GET" else ("public_repo", "repo"))

    def register(handler: Handler) -> Handler:
        ROUTES.append(
            Route(
                method,
                template,
                re.compile("".join(parts)),
                handler,
                frozenset([*query, *(("per_page", "page") if paged else ())]),
                needed,
                permission,
                method != "GET" if locked is None else locked,
                resource,
            )
        )
        return handler

    return register


@dataclass
class Request:
    """One request, its user already known."""

    number: int  # counted from 1 as requests arrive
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    state: State
    route: Route | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    user: User | None = None
    token: Token | None = None

    @property
    def base(self) -> str:
        """Where this GitHub is reached, without a slash at the end."""
        return self.state.base

    def json(self, *keys: str) -> Json:
        """Return the body, an object; a key that is not among `keys` raises."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError:
            raise GitHubFault(400, "Problems parsing JSON") from None
        if not isinstance(found, dict):
            raise GitHubFault(400, "Body should be a JSON object")
        unknown = set(found) - set(keys)
        if keys and unknown:
            raise UnmodelledError(f"{self.method} {self.path}: body keys {sorted(unknown)}")
        return found

    def signed_in(self) -> User:
        """Return the user, or answer 401."""
        if self.user is None:
            raise GitHubFault(401, "Requires authentication")
        return self.user

    def repository(self, need: Need = "read") -> Repository:
        """Return the repository of the path if this user with this token may use it so.

        Answers 404 for what may not be seen or written, 403 for archived ones and for
        fine-grained tokens of other repositories.
        """
        return self.allow(
            self.state.repository(f"{self.parameters['owner']}/{self.parameters['repo']}"), need
        )

    def allow(self, repository: Repository | None, need: Need) -> Repository:
        """Check what the user may do with a repository, and return it."""
        if repository is None or (level := repository.permission(self.user)) is None:
            raise not_found()
        git_data = re.search("/(git|compare|branches)/", self.path) is not None
        if git_data and repository.polls_until_ready > 0:
            repository.polls_until_ready -= 1
            raise not_found()
        writes = self.route is not None and self.route.method != "GET"
        if self.token is not None and self.token.fine_grained:
            self._allow_fine_grained(self.token, repository, writes=writes)
        if (
            (need == "push" and level not in PUSHERS)
            or (need == "triage" and level == "read")
            or (need == "admin" and level != "admin")
        ):
            raise not_found()
        if writes and repository.archived:
            raise GitHubFault(403, "Repository was archived so is read-only.")
        return repository

    def _allow_fine_grained(self, token: Token, repository: Repository, *, writes: bool) -> None:
        """Refuse what a fine-grained token was not made for."""
        inside = repository.full_name.lower() in {name.lower() for name in token.repositories}
        if repository.private and not inside:
            raise not_found()
        if not writes or self.route is None:
            return
        if not inside or (self.route.permission or "contents") not in token.permissions:
            raise GitHubFault(
                403,
                "Resource not accessible by personal access token",
                headers={
                    "X-Accepted-GitHub-Permissions": f"{self.route.permission or 'contents'}=write"
                },
            )


def page(request: Request, things: Sequence[Thing], show: Callable[[Thing], JsonValue]) -> Answer:
    """Answer with one page of a list, and Link headers to the others."""
    size = min(max(int(request.query.get("per_page", "30")), 1), 100)
    number = max(int(request.query.get("page", "1")), 1)
    last = max((len(things) + size - 1) // size, 1)
    links = []
    for name, target, useful in (
        ("prev", number - 1, number > 1),
        ("next", number + 1, number < last),
        ("last", last, number < last),
        ("first", 1, number > 1),
    ):
        if useful:
            query = urlencode({**request.query, "page": str(target)})
            links.append(f'<{request.base}{request.path}?{query}>; rel="{name}"')
    headers = {"Link": ", ".join(links)} if links else {}
    return Answer(200, [show(one) for one in things[(number - 1) * size : number * size]], headers)


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Find the handler for a path as it was sent (still percent-encoded).

    Where several match, the one with the longest text wins: `commits/{sha}/check-runs` before
    `commits/{ref:path}`.
    """
    found = [
        (one, match)
        for one in ROUTES
        if one.method == method and (match := one.pattern.fullmatch(path))
    ]
    if not found:
        return None
    best, match = max(found, key=lambda pair: len(re.sub(r"\{[^}]*\}", "", pair[0].template)))
    return best, {key: unquote(value) for key, value in match.groupdict().items()}
