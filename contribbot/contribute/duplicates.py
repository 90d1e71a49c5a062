"""Find pull requests that may be the same work, by issue, title words, functions and files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot.contribute.model import Candidate, Look, PullState, json_digest
from contribbot.contribute.publication import PublicationJournal
from contribbot.errors import GitHubError
from contribbot.files import make_private, write_atomically
from contribbot.git.patch_format import parse, path_of, touched_files
from contribbot.github.pull_state import ending_of
from contribbot.markdown import clean, line_of
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.Issue import Issue
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub
    from contribbot.model.patch import Patch

#: Days for which a merged pull request counts as recent; how long a search is reused.
DAYS: Final = 90
FRESH: Final = timedelta(hours=1)
#: The most title words to search for, answers to a search, and pull requests to compare.
WORDS: Final = 2
_HITS: Final = 30
FILES_OF: Final = 40
_TITLE: Final = 200
_TAG: Final = re.compile(r"\[[^\]]*\]")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{4,}")
_HEADER: Final = re.compile(r"@@ .*? @@(?:.*?(\w+)\s*[(:])?")
_DEFINED: Final = re.compile(r"[-+ ]\s*(?:async )?(?:def|class) (\w+)")
#: Title words that say nothing about a change.
_COMMON: Final = re.compile(
    "about|after|before|feature|fixes|kernels?|models?|support|tests|their|under|where|which|without"
)


def title_words(title: str) -> tuple[str, ...]:
    """Return the distinctive words of a title, longest first, without tags and common words."""
    words = {word.lower() for word in _WORD.findall(_TAG.sub(" ", title))}
    telling = (word for word in words if not _COMMON.fullmatch(word))
    return tuple(sorted(telling, key=lambda word: (-len(word), word)))


def functions_of(diff: str) -> frozenset[str]:
    """Return the functions and classes in which the hunks of a diff change lines."""
    found, current = set[str](), ""
    for row in diff.splitlines():
        if header := _HEADER.match(row):
            current = header[1] or ""
        elif defined := _DEFINED.match(row):
            current = defined[1]
        if row.startswith(("+", "-")) and not row.startswith(("+++ ", "--- ")):
            found.add(current)
    return frozenset(found - {""})


def _functions(patch: Patch) -> dict[str, frozenset[str]]:
    """Return the functions that a patch changes, by file."""
    found: dict[str, frozenset[str]] = {}
    for file in patch.files:
        for part in parse(file.name, file.content):
            path = path_of(part)
            found[path] = found.get(path, frozenset()) | functions_of(str(part))
    return found


def look_file(queue: Queue, name: str) -> Path:
    """Return the path of the file with the last search for a patch's duplicates."""
    return queue.local / "duplicates" / f"{name}.json"


def recent_look(github: GitHub, queue: Queue, name: str, now: datetime) -> Look:
    """Return a search for a patch's duplicates that is at most an hour old."""
    if known := remembered(queue, name, now):
        return known
    look, file = _look(github, queue, name, now), look_file(queue, name)
    make_private(file.parent)
    with contextlib.suppress(OSError):
        write_atomically(file, look.model_dump_json(indent=2).encode())
    return look


def remembered(queue: Queue, name: str, now: datetime, within: timedelta = FRESH) -> Look | None:
    """Return the stored search, or None if too old, or made for another state of the patch."""
    with contextlib.suppress(OSError, ValidationError):
        known = Look.model_validate_json(look_file(queue, name).read_bytes())
        # A time in the future comes from a clock that was wrong.
        if known.key == _key(queue, name) and timedelta(0) <= now - known.time < within:
            return known
    return None


def _key(queue: Queue, name: str) -> str:
    """Return a digest of the patch, issue and pull requests that a search for duplicates uses."""
    patch = queue.patch(name)
    asked = [patch.digest, patch.spec.title, patch.spec.contribution.issue, *patch.spec.related]
    return json_digest([patch.upstream.repository, asked, sorted(_own(queue, name)), DAYS])


def _own(queue: Queue, name: str) -> frozenset[str]:
    """Return pull requests of a patch, its dependencies and its dependents, in lower case."""
    stack = {name, *queue.below(name), *(high for high in queue.specs if name in queue.below(high))}
    known = (PublicationJournal(queue).publication(patch).reference for patch in stack)
    return frozenset(reference.lower() for reference in known if reference)


def _look(github: GitHub, queue: Queue, name: str, now: datetime) -> Look:
    """Return a search of GitHub for pull requests with like issue, title, functions and files."""
    patch, limits, since = queue.patch(name), list[str](), now - timedelta(days=DAYS)
    functions, own = _functions(patch), _own(queue, name)
    names = frozenset[str]().union(*functions.values())
    words, issue = {*title_words(patch.spec.title)}, patch.spec.contribution.issue or ""
    linked = linked_pulls(github, issue, patch.upstream.repository)
    related = _related(github, patch)
    found = {**_search(github, patch, since, names, limits), **linked, **related}
    promising: list[Candidate] = []
    for reference, item in found.items():
        shared = words & {*title_words(item.title)}
        text = {*re.findall(r"\w+", f"{item.title}\n{item.body or ''}")}
        named = item.state == "closed" and not text.isdisjoint(names)
        told = reference in linked or reference in related
        if reference not in own and (told or shared or named):
            known = candidate_of(item, issue if reference in linked else "")
            like = {"related": reference in related, "words": tuple(sorted(shared))}
            promising.append(known.model_copy(update=like))
    if len(promising) > FILES_OF:
        limits.append(f"the files of {FILES_OF} of {len(promising)} pull requests were compared")
    candidates: list[Candidate] = []
    for known in promising[:FILES_OF]:
        alike = _with_files(github, patch, known, functions)
        if not (alike.issue or alike.related or alike.files):
            continue
        ended, item = with_end(github, alike), found[known.reference.lower()]
        recent = item.state != "closed" or item.closed_at >= since
        turned_down = bool(ended.issue or ended.functions)
        if ended.related or (turned_down if ended.state == "closed" else recent):
            candidates.append(ended)
    candidates.sort(key=lambda known: (not known.issue, not known.related, -len(known.files)))
    return Look(
        key=_key(queue, name),
        time=now,
        days=DAYS,
        seen=len(found),
        limits=tuple(limits),
        looked_into=min(len(promising), FILES_OF),
        candidates=tuple(candidates),
    )


def is_pull(issue: Issue) -> bool:
    """Return whether an issue is a pull request."""
    return issue.raw_data.get("pull_request") is not None


def place_of(issue: Issue | PullRequest) -> str:
    """Return `owner/name` of the repository that an issue or pull request is in."""
    return "/".join(issue.html_url.split("/")[-4:-2])


def linked_pulls(github: GitHub, issue: str, upstream: str) -> dict[str, Issue]:
    """Return the pull requests of an upstream that the timeline of an issue links, by reference."""
    found: dict[str, Issue] = {}
    for event in github.issue(issue).get_timeline() if issue else ():
        if event.event != "cross-referenced":
            continue
        if event.source is None:
            raise TypeError("a cross-reference without its source")
        item = event.source.issue
        if is_pull(item) and place_of(item).lower() == upstream.lower():
            found[_reference(item).lower()] = item
    return found


def _search(
    github: GitHub, patch: Patch, since: datetime, names: frozenset[str], limits: list[str]
) -> dict[str, Issue]:
    """Return pull requests with like titles or function names; note cut searches in `limits`."""
    repository, turned_down = patch.upstream.repository, "is:closed is:unmerged"
    functions = sorted(names, key=lambda name: (-len(name), name))[:WORDS]
    queries = [
        (kind, f'"{word}" in:title')
        for word in title_words(patch.spec.title)[:WORDS]
        for kind in ("is:open", f"is:closed closed:>={since:%Y-%m-%d}", turned_down)
    ]
    found: dict[str, Issue] = {}
    for kind, term in (*queries, *((turned_down, f'"{name}"') for name in functions)):
        hits = github.search(f"repo:{repository} is:pr {kind} {term}", _HITS)
        if hits.incomplete:
            why = f"GitHub did not finish the search for {term}"
            raise GitHubError(why, hint="run it again in some minutes")
        if hits.total > len(hits.items):
            limits.append(f"the search for {term} gave {len(hits.items)} of {hits.total}")
        found |= {_reference(item).lower(): item for item in hits.items}
    return found


def _related(github: GitHub, patch: Patch) -> dict[str, Issue]:
    """Return the pull requests that patch.toml names in `related`, by reference."""
    items = (github.issue(reference).complete() for reference in patch.spec.related)
    return {_reference(item).lower(): item for item in items if is_pull(item)}


def _reference(item: Issue) -> str:
    return f"{place_of(item)}#{item.number}"


def candidate_of(item: Issue, issue: str = "") -> Candidate:
    """Return GitHub's pull request as a Candidate, with the issue that links the pull request."""
    merged = (item.raw_data.get("pull_request") or {}).get("merged_at")
    state: PullState = "merged" if merged else "draft" if item.draft else "open"
    return Candidate(
        reference=_reference(item),
        title=item.title[:_TITLE],
        url=item.html_url,
        issue=issue,
        author=clean(getattr(item.user, "login", "ghost")),
        state="closed" if item.state == "closed" and not merged else state,
    )


def _with_files(
    github: GitHub, patch: Patch, known: Candidate, functions: Mapping[str, frozenset[str]]
) -> Candidate:
    """Return a candidate with the files and functions that it shares with the patch."""
    if known.reference.partition("#")[0].lower() != patch.upstream.repository.lower():
        return known
    touched = {path for file in touched_files(patch.files) for path in (file.path, file.before)}
    theirs = github.pull(known.reference).get_files()
    shared = [it for it in theirs if {it.filename, it.previous_filename or it.filename} & touched]
    both = {
        name
        for it in shared
        for name in functions_of(it.patch or "") & functions.get(it.filename, frozenset())
    }
    return known.model_copy(
        update={"files": tuple(it.filename for it in shared), "functions": tuple(sorted(both))}
    )


def with_end(github: GitHub, known: Candidate) -> Candidate:
    """Return a closed pull request as merged if its change landed, else with a last comment."""
    if known.state != "closed":
        return known
    pull, landing = ending_of(github, known.reference)
    if landing is not None and landing.upstream:
        return known.model_copy(update={"state": "merged"})
    every = (*pull.pages.comments.nodes, *pull.pages.reviews.nodes)
    notes = [note for note in every if note.maintainer and note.body]
    last = max(notes, key=lambda note: note.created_at, default=None)
    said = f"{last.author or 'ghost'}: {line_of(last.body, _TITLE)}" if last else ""
    return known.model_copy(update={"last_word": said})
