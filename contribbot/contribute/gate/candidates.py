"""Pull requests of others that might be the same work: found by lists and by searches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.gate.ours import Ours
from contribbot.errors import NotFoundError, RefusedError
from contribbot.github.fields import login_of, name_of, text_of

if TYPE_CHECKING:
    from github.Issue import Issue
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

#: Pages of 100 of the open pull requests, and of those closed since.
OPEN_PAGES: Final = 3
CLOSED_PAGES: Final = 3
#: Terms that are searched for, each among open and among closed ones.
TERMS: Final = 5
#: Issues and pull requests that the patch names which are looked at.
RELATED: Final = 10
#: Results of one search.
_HITS: Final = 30
#: What GitHub says to a search in a repository that it does not search.
_INVALID: Final = 422
#: Names that are in too many pull requests to say anything.
_COMMON: Final = frozenset(
    {
        "forward", "backward", "main", "setup", "setUp", "tearDown", "test", "run", "call", "init",
        "get", "set", "build", "load", "apply", "config", "utils", "ops", "op", "attention",
        "__init__", "CMakeLists", "conftest", "README", "kernel", "torch", "tests", "types",
    }
)  # fmt: skip
_SHORTEST: Final = 5
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")

PullState = Literal["open", "draft", "merged", "closed"]


@dataclass
class Found:
    """A pull request that was listed or found."""

    repository: str
    number: int
    title: str
    body: str
    author: str
    url: str
    #: What it is; `closed` until it is known whether a bot landed it.
    state: PullState
    updated: datetime
    #: The repository and commit of what it brings, where known.
    head: tuple[str, str] | None = None
    hits: int = 0
    #: Whether the patch names it.
    related: bool = False

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.repository}#{self.number}"


@dataclass
class Harvest:
    """What lists and searches gave."""

    found: dict[str, Found] = field(default_factory=dict)
    #: Those that are from our branches: a search does not say from where they are.
    ours: set[str] = field(default_factory=set)
    limits: list[str] = field(default_factory=list)

    def add(self, one: Found) -> Found:
        """Add a pull request, and return what is known of it."""
        known = self.found.setdefault(one.reference.lower(), one)
        known.head = known.head or one.head
        known.hits += one.hits
        known.related = known.related or one.related
        return known


def harvest(github: GitHub, ours: Ours, since: datetime) -> Harvest:
    """Find the pull requests that are worth a look, but ours."""
    made = Harvest()
    _list(github, ours, since, made)
    asked = terms(ours)
    refused = [error for term in asked if (error := _search(github, ours, since, term, made))]
    if asked and len(refused) == len(asked):
        # Nobody could look: that nothing was found says nothing.
        raise refused[0]
    _name(github, ours, made)
    for reference in ours.own | made.ours:
        made.found.pop(reference, None)
    return made


def _list(github: GitHub, ours: Ours, since: datetime, made: Harvest) -> None:
    """List the open ones, and those that were closed since."""
    opened = github.recent_pulls(ours.repository, state="open", pages=OPEN_PAGES)
    closed = github.recent_pulls(ours.repository, state="closed", since=since, pages=CLOSED_PAGES)
    for pulls, pages, what in ((opened, OPEN_PAGES, "open"), (closed, CLOSED_PAGES, "closed")):
        if len(pulls) >= 100 * pages:
            made.limits.append(f"of the {what} ones, the {len(pulls)} last changed were listed")
    for pull in (*opened, *closed):
        owner = (name_of(pull.head.repo) or "").partition("/")[0]
        if f"{owner}:{pull.head.ref}".lower() in ours.branches:
            made.ours.add(f"{ours.repository}#{pull.number}".lower())
            continue
        if pull.state == "closed" and (pull.closed_at or pull.updated_at or since) < since:
            continue
        made.add(_of_pull(ours.repository, pull))


def _search(
    github: GitHub, ours: Ours, since: datetime, term: str, made: Harvest
) -> RefusedError | None:
    """Search for a term among the open ones, and those closed since; return a refusal."""
    day = since.strftime("%Y-%m-%d")
    for kind in ("is:open", f"is:closed closed:>={day}"):
        try:
            said = github.search(f"repo:{ours.repository} is:pr {kind} {term}", _HITS)
        except RefusedError as error:
            if error.status != _INVALID:
                raise
            made.limits.append(f"the search for {term} was refused: {error.message}")
            return error
        if said.incomplete or said.total > len(said.items):
            made.limits.append(
                f"the search for {term} gave {len(said.items)} of {said.total} ({kind[3:9]})"
            )
        for item in said.items:
            if _is_pull(item):
                made.add(_of_issue(ours.repository, item)).hits += 1
    return None


def _name(github: GitHub, ours: Ours, made: Harvest) -> None:
    """Look at what the patch names; an issue is none, and what is gone is passed over."""
    if len(ours.related) > RELATED:
        made.limits.append(f"of `related`, the first {RELATED} were looked at")
    for reference in ours.related[:RELATED]:
        known = made.found.get(reference.lower())
        if known is not None:
            known.related = True
            continue
        repository, _, number = reference.partition("#")
        try:
            issue = github.issue(repository, int(number)).complete()
        except (NotFoundError, RefusedError) as error:
            made.limits.append(f"{reference} could not be read: {error.message}")
            continue
        if _is_pull(issue):
            made.add(_of_issue(repository, issue)).related = True


def terms(ours: Ours) -> list[str]:
    """Return what is searched for: the issue, then functions and files with telling names."""
    found: list[str] = []
    if ours.issue:
        repository, _, number = ours.issue.partition("#")
        here = repository.lower() == ours.repository.lower()
        found.append(number if here else f'"{ours.issue}"')
    sources = [path for path in ours.touched if not _is_test(path)] or list(ours.touched)
    names = {name.rpartition(".")[2] for path in sources for name in ours.touched[path]}
    stems = {path.rpartition("/")[2].partition(".")[0] for path in sources}
    functions, files = _telling(names), _telling(stems - names)
    half = (TERMS - len(found)) // 2
    chosen = [*functions[: TERMS - len(found) - min(half, len(files))], *files[:half]]
    return [*found, *(f'"{term}" in:title,body' for term in chosen)]


def _is_test(path: str) -> bool:
    return any(part.startswith("test") for part in path.split("/"))


def _telling(names: Iterable[str]) -> list[str]:
    """Return the names that few others have, the longest first."""
    kept = [
        name
        for name in names
        if len(name) >= _SHORTEST and name not in _COMMON and name.isascii()
        and not name.startswith("__")
    ]  # fmt: skip
    return sorted(kept, key=lambda name: (-len(name), name))


def in_order(ours: Ours, title: str, found: Sequence[Found]) -> list[Found]:
    """Return pull requests in the order in which to look into them."""
    ours_say = {word.lower() for word in _WORD.findall(title)}
    paths = [path.rpartition("/")[2] for path in ours.touched]

    def weight(one: Found) -> tuple[bool, bool, int, int, float]:
        words = {word.lower() for word in _WORD.findall(one.title)}
        named = sum(path in one.title or path in one.body for path in paths)
        return (
            one.related,
            mentions(ours.issue, ours.repository, one),
            one.hits + named,
            len(words & ours_say),
            one.updated.timestamp(),
        )

    return sorted(found, key=weight, reverse=True)


def mentions(issue: str, upstream: str, one: Found) -> bool:
    """Say whether a pull request names an issue in its title or text."""
    if not issue:
        return False
    repository, _, number = issue.partition("#")
    place = re.escape(repository)
    forms = [rf"{place}#{number}", rf"/{place}/(?:issues|pull)/{number}"]
    if repository.lower() == one.repository.lower() == upstream.lower():
        forms += [rf"(?<![\w/-])#{number}", rf"\bGH-{number}"]
    pattern = re.compile(rf"(?:{'|'.join(forms)})(?!\d)", re.IGNORECASE)
    return bool(pattern.search(one.title) or pattern.search(one.body))


def _of_pull(repository: str, pull: PullRequest) -> Found:
    where = name_of(pull.head.repo)
    head = (where, pull.head.sha) if where else None
    state: PullState = "draft" if pull.draft else "open"
    if pull.state == "closed":
        state = "merged" if pull.merged_at else "closed"
    return Found(
        repository, pull.number, pull.title, text_of(pull.body), login_of(pull.user) or "ghost",
        pull.html_url, state, pull.updated_at or pull.created_at, head,
    )  # fmt: skip


def _is_pull(issue: Issue) -> bool:
    return issue.raw_data.get("pull_request") is not None


def _of_issue(repository: str, issue: Issue) -> Found:
    state: PullState = "open"
    if issue.state == "closed":
        merged = (issue.raw_data.get("pull_request") or {}).get("merged_at")
        state = "merged" if merged else "closed"
    return Found(
        repository, issue.number, issue.title, text_of(issue.body), login_of(issue.user) or "ghost",
        issue.html_url, state, issue.updated_at,
    )  # fmt: skip
