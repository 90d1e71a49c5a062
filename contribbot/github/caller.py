"""One call: request, patience, judgement. What the methods of the client are made of."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlencode

from pydantic import JsonValue, TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import GitHubError
from contribbot.github.answer import Answer, clean_line, next_page, same_server
from contribbot.github.etags import Etags
from contribbot.github.limits import Waits
from contribbot.github.refusals import moved, refusal
from contribbot.github.retry import Kind, PassingError, persist
from contribbot.github.server import Server
from contribbot.github.token import Token

if TYPE_CHECKING:
    from contribbot.github.transport import Link

T = TypeVar("T")

_NOT_MODIFIED: Final = 304
_OK: Final = range(200, 300)
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
#: Redirects that are followed: a renamed repository makes one.
_HOPS: Final = 3
#: Pages of 100 of one list; GitHub itself ends most lists earlier.
_PAGES: Final = 50
_READ: Final = Kind(repeat=True)


@dataclass
class Caller:
    """Speaks to one server with one token, from any thread.

    Attributes:
        server: The server.
        token: The token.
        waits: How long, and how often.
        cache: Where answers are kept; None keeps nothing.
    """

    server: Server
    token: Token
    waits: Waits = field(default_factory=Waits)
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Open nothing yet: a thread connects when it first asks."""
        self._etags = Etags(self.cache, self.token.secret)
        self._here = threading.local()
        self._links: list[Link] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()
        self._here = threading.local()

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        accept: str = "",
        conditional: bool = False,
    ) -> Answer:
        """Read something; redirects on the same server are followed."""
        address = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": accept} if accept else {}
        for _ in range(_HOPS + 1):
            answer = self._fetch(address, headers, conditional=conditional)
            if answer.status not in _REDIRECTS:
                return self._success(answer)
            address = same_server(answer.headers.get("location", ""), self.server.api, answer.what)
        raise GitHubError(f"GET {path}: GitHub redirects in a circle")

    def location(self, path: str) -> str:
        """Return where GitHub redirects to, which may be another server: nothing is sent there."""
        answer = self._fetch(path, {}, conditional=False)
        if answer.status not in _REDIRECTS:
            self._success(answer)
        where = answer.headers.get("location", "")
        if not where:
            raise GitHubError(f"{answer.what}: GitHub names no address to fetch it from")
        return where

    def pages(
        self, path: str, query: Mapping[str, str], *, conditional: bool = False, most: int = _PAGES
    ) -> Iterator[Answer]:
        """Read the pages of a list, 100 each; whoever has enough stops."""
        answer = self.get(path, {**query, "per_page": "100"}, conditional=conditional)
        for _ in range(most):
            yield answer
            following = next_page(answer, self.server.api)
            if following is None:
                return
            answer = self.get(following, conditional=conditional)
        raise GitHubError(f"GET {path}: a list of more than {most} pages of 100")

    def send(self, method: str, path: str, body: JsonValue, kind: Kind) -> Answer:
        """Write something."""
        what = f"{method} {path}"
        answer = persist(what, lambda: self._once(method, path, body, {}), kind, self.waits)
        if answer.status in _REDIRECTS:
            raise moved(what)
        return self._success(answer)

    def read(self, answer: Answer, shape: TypeAdapter[T]) -> T:
        """Return the body of an answer as what it should be."""
        try:
            return shape.validate_json(answer.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise GitHubError(
            f"{answer.what}: an answer of another shape"
            f"{f' at {clean_line(key, 100)}' if key else ''}: {clean_line(first['msg'], 120)}",
            hint="see whether GITHUB_API_URL is the API of a GitHub, and contribbot up to date",
        )

    def _fetch(self, address: str, headers: Mapping[str, str], *, conditional: bool) -> Answer:
        """Read an address once, through what is kept of it."""
        url = f"{headers.get('Accept', '')} {self.server.api}{address}"
        kept = self._etags.find(url) if conditional else None
        asked = {**headers, "If-None-Match": kept.etag} if kept else dict(headers)
        answer = persist(
            f"GET {address.partition('?')[0]}",
            lambda: self._once("GET", address, None, asked),
            _READ,
            self.waits,
        )
        if answer.status == _NOT_MODIFIED and kept is not None:
            link = {"link": kept.link} if kept.link else {}
            return replace(
                answer, status=200, headers={**answer.headers, **link}, body=kept.body,
                unchanged=True,
            )  # fmt: skip
        if conditional and answer.status == _OK.start:
            self._etags.keep(url, answer.headers, answer.body)
            if kept is not None and kept.body == answer.body:
                return replace(answer, unchanged=True)
        return answer

    def _once(
        self, method: str, address: str, body: JsonValue, headers: Mapping[str, str]
    ) -> Answer:
        """Send one request once."""
        from contribbot.github.transport import WireError  # noqa: PLC0415  it loads PyGithub

        process.check_stopping()
        try:
            return self._link().send(method, address, body=body, headers=headers)
        except WireError as error:
            fault = error
        if fault.passing:
            raise PassingError(fault.why, acted=fault.acted)
        raise GitHubError(
            f"{method} {address.partition('?')[0]}: {fault.why}",
            hint=f"check the network, the certificates, and GITHUB_API_URL ({self.server.api})",
        )

    def _link(self) -> Link:
        """Return this thread's connection."""
        from contribbot.github.transport import Link  # noqa: PLC0415  it loads PyGithub

        link: Link | None = getattr(self._here, "link", None)
        if link is None:
            link = self._here.link = Link(self.server, self.token.secret)
            with self._lock:
                self._links.append(link)
        return link

    def _success(self, answer: Answer) -> Answer:
        if answer.status in _OK:
            return answer
        raise refusal(answer, self.token.source)


def part(text: str, *, slashes: bool = False) -> str:
    """Return a part of a path, quoted."""
    return quote(text, safe="/" if slashes else "")


def slug(repository: str) -> str:
    """Return the path of a repository."""
    owner, slash, name = repository.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise GitHubError(f"not a repository, owner/name: {clean_line(repository, 100)}")
    return f"/repos/{part(owner)}/{part(name)}"
