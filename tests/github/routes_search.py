"""GET /search/issues: GitHub's query language, as far as duplicates are searched for with it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from tests.github import pulling, render_social
from tests.github.state import Issue, Repository, User
from tests.github.wire import Answer, Json, Request, UnmodelledError, invalid, page, route

_LONGEST: Final = 256
_MOST: Final = 1000
_TERM: Final = re.compile(r'(?:(?P<key>-?[A-Za-z-]+):)?(?P<value>"[^"]*"|\S+)')
_WORD: Final = re.compile(r"\w+")
_OPERATORS: Final = frozenset({"AND", "OR", "NOT"})

Test = Callable[[Issue], bool]


def _merged(one: Issue) -> bool:
    return one.pull is not None and one.pull.merged_at is not None


_IS: Final[dict[str, Test]] = {
    "pr": lambda one: one.pull is not None,
    "pull-request": lambda one: one.pull is not None,
    "issue": lambda one: one.pull is None,
    "open": lambda one: one.state == "open",
    "closed": lambda one: one.state == "closed",
    "merged": _merged,
    "unmerged": lambda one: one.pull is not None and not _merged(one),
    "draft": lambda one: one.pull is not None and one.pull.draft,
}
_TIMES: Final[dict[str, Callable[[Issue], str | None]]] = {
    "merged": lambda one: one.pull.merged_at if one.pull else None,
    "closed": lambda one: one.closed_at,
    "created": lambda one: one.created_at,
    "updated": lambda one: one.updated_at,
}
_COMPARE: Final[dict[str, Callable[[str, str], bool]]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "": operator.eq,
}  # fmt: skip
_PLACES: Final[dict[str, Callable[[Issue], Sequence[str]]]] = {
    "title": lambda one: [one.title],
    "body": lambda one: [one.body or ""],
    "comments": lambda one: [comment.body for comment in one.comments],
}


@dataclass
class Query:
    """What is searched for: everything must hold; of several repositories or authors, one."""

    tests: list[Test] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    authors: list[str] = field(default_factory=list)

    def finds(self, one: Issue) -> bool:
        """Say whether an issue is wanted."""
        if self.authors and one.user.login.lower() not in self.authors:
            return False
        if not all(test(one) for test in self.tests):
            return False
        texts = [
            [word.lower() for word in _WORD.findall(text)]
            for place in self.places or list(_PLACES)
            for text in _PLACES[place](one)
        ]
        return all(any(_within(phrase, text) for text in texts) for phrase in self.words)


def _within(phrase: list[str], text: list[str]) -> bool:
    """Say whether words stand one after the other in a text."""
    size = len(phrase)
    return any(text[at : at + size] == phrase for at in range(len(text) - size + 1))


def _time_test(key: str, value: str) -> Test:
    """Return the test of `merged:>=2026-01-01` and the like; a date means its whole day."""
    match = re.fullmatch(r"(>=|<=|>|<|)(\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\dZ)?)", value)
    if match is None:
        raise UnmodelledError(f"search: {key}:{value}")
    compare, wanted = _COMPARE[match[1]], match[2]

    def test(one: Issue) -> bool:
        time = _TIMES[key](one)
        return time is not None and compare(time[: len(wanted)], wanted)

    return test


def _is_test(value: str) -> Test:
    if value not in _IS:
        raise UnmodelledError(f"search: is:{value}")
    return _IS[value]


def _label_test(value: str) -> Test:
    return lambda one: value.lower() in {label.lower() for label in one.labels}


def parse(text: str, who: User | None) -> Query:
    """Read a query.

    Args:
        text: The query, as it was sent.
        who: Who asks, for `author:@me`.

    Raises:
        UnmodelledError: It uses what this GitHub does not model.
    """
    query = Query()
    for match in _TERM.finditer(text):
        if match["value"].startswith("(") or match["value"] in _OPERATORS:
            raise UnmodelledError(f"search: {match['value']}")
        value = match["value"].strip('"')
        if match["key"] is not None:
            _qualify(query, match["key"], value, who)
        # What is no letter, digit or underscore only parts words, as in an index.
        elif phrase := [word.lower() for word in _WORD.findall(value)]:
            query.words.append(phrase)
    if unknown := set(query.places) - set(_PLACES):
        raise UnmodelledError(f"search: in:{','.join(sorted(unknown))}")
    return query


def _qualify(query: Query, key: str, value: str, who: User | None) -> None:
    """Add what a qualifier such as `is:pr` asks for."""
    if key in {"is", "type", "state"}:
        query.tests.append(_is_test(value))
    elif key == "repo":
        query.repositories.append(value)
    elif key == "author":
        query.authors.append((who.login if who and value == "@me" else value).lower())
    elif key == "in":
        query.places.extend(value.split(","))
    elif key == "label":
        query.tests.append(_label_test(value))
    elif key in _TIMES:
        query.tests.append(_time_test(key, value))
    else:
        raise UnmodelledError(f"search: {key}:{value}")


def _searched(request: Request, query: Query) -> list[Repository]:
    """Return the repositories to search; GitHub refuses to search what may not be seen."""
    state = request.state
    if not query.repositories:
        every = state.repositories.values()
        return [one for one in every if one.permission(request.user) is not None]
    found = []
    for name in query.repositories:
        one = state.repository(name)
        if one is None or one.permission(request.user) is None:
            words = (
                "The listed users and repositories cannot be searched either because the "
                "resources do not exist or you do not have permission to view them."
            )
            raise invalid("Search", "q", "invalid", words)
        found.append(one)
    return found


@route("GET", "/search/issues", query=("q", "sort", "order"), paged=True, resource="search")
def search_issues(request: Request) -> Answer:
    """Search issues and pull requests; newest first unless asked otherwise."""
    text = request.query.get("q", "")
    if not text.strip():
        raise invalid("Search", "q", "missing")
    if len(text) > _LONGEST:
        words = f"The search is longer than {_LONGEST} characters."
        raise invalid("Search", "q", "invalid", words)
    query = parse(text, request.user)
    searched = _searched(request, query)
    pulling.settle(request.state)
    found = [one for where in searched for one in where.issues.values() if query.finds(one)]
    sort = request.query.get("sort", "created")
    if sort not in {"created", "updated"}:
        raise UnmodelledError(f"search: sort={sort}")
    down = request.query.get("order", "desc") == "desc"
    found.sort(
        key=lambda one: one.updated_at if sort == "updated" else one.created_at, reverse=down
    )
    answer = page(request, found[:_MOST], lambda one: _item(request, one))
    answer.json = {
        "total_count": len(found),
        "incomplete_results": False,
        "search_type": "lexical",
        "items": answer.json,
    }
    return answer


def _item(request: Request, one: Issue) -> JsonValue:
    written: Json = render_social.issue(request.state, one)
    return {**written, "score": 1.0}
