"""Who else is at the same work: open and recently merged pull requests, compared with a patch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ValidationError

from contribbot.contribute.landing import events_of
from contribbot.contribute.model import Candidate, Look, json_digest
from contribbot.contribute.publication import PublicationJournal
from contribbot.errors import NotFoundError, RefusedError
from contribbot.files import make_private, write_atomically
from contribbot.git.patch_format import functions, patch_id, patch_ids, touched_files
from contribbot.github.fields import login_of, name_of
from contribbot.markdown import clean, shortened
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.File import File
    from github.Issue import Issue
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

#: Days in which a merged pull request counts as recent; how long a look holds.
DAYS: Final = 90
_FRESH: Final = timedelta(hours=1)
#: Requests of one look, at most. Pages of 100 of the open pull requests, and of those closed
#: since; terms, each searched for among both (GitHub allows 30 searches a minute); what the
#: patch names; pull requests of which the files are read; of these the most alike, of which the
#: commits and their sum, and closed ones of which the events.
PAGES: Final = 3
TERMS: Final = 5
RELATED: Final = 10
FILES_OF: Final = 40
SERIES: Final = 10
EVENTS: Final = 10
_HITS: Final = 30
_AT_ONCE: Final = 4
#: What two changes may have in common: how much that weighs, and what is said of it.
_SAME: Final = {
    "whole": (1000, "the same change (patch-id)"),
    "within": (900, "a commit of it is the same change (patch-id)"),
    "commit": (500, "one of the patch's commits (patch-id)"),
}
_NAMED: Final = 300
_ISSUE: Final = 200
_FUNCTION: Final = 40
_FILE: Final = 10
_SHOWN: Final = 4
_TITLE: Final = 200
#: GitHub's answers to a search in a repository that it does not search, and for a large diff.
_INVALID: Final = 422
_TOO_LARGE: Final = 406
#: Names that are in too many pull requests to say anything, and characters of one that does.
_COMMON: Final = frozenset(
    {
        "forward", "backward", "setup", "setUp", "tearDown", "build", "apply", "config", "utils",
        "attention", "CMakeLists", "conftest", "README", "kernel", "torch", "tests", "types",
    }
)  # fmt: skip
_SHORTEST: Final = 5
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")


@dataclass(frozen=True)
class PatchFingerprint:
    """A patch, as far as it can be compared."""

    repository: str
    title: str
    touched: Mapping[str, frozenset[str]]
    commits: frozenset[str]
    issue: str
    related: tuple[str, ...]
    #: The pull requests and branches of the patch and of its stack, in lower case.
    own: frozenset[str]
    branches: frozenset[str]


def fingerprint(queue: Queue, name: str) -> PatchFingerprint:
    """Return what a patch is compared by. Nothing is downloaded."""
    patch = queue.patch(name)
    own, branches = _published(queue, name)
    touched: dict[str, frozenset[str]] = {}
    for file in touched_files(patch.files):
        for path in filter(None, (file.path, file.before)):
            touched[path] = touched.get(path, frozenset()) | file.functions
    return PatchFingerprint(
        repository=patch.upstream.repository, title=patch.spec.title, touched=touched,
        commits=frozenset(filter(None, (patch_id(file.content) for file in patch.files))),
        issue=patch.spec.contribution.issue or "", related=patch.spec.related,
        own=own, branches=branches,
    )  # fmt: skip


def _published(queue: Queue, name: str) -> tuple[frozenset[str], frozenset[str]]:
    above = (patch for patch in queue.specs if name in queue.below(patch))
    stack = {name, *queue.below(name), *above}
    known = [PublicationJournal(queue).publication(patch) for patch in stack]
    own = frozenset(stacked.reference.lower() for stacked in known if stacked.reference)
    forks = ((pushed.fork.partition("/")[0], pushed.branch) for pushed in known if pushed.branch)
    return own, frozenset(f"{owner}:{branch}".lower() for owner, branch in forks)


def terms(ours: PatchFingerprint) -> list[str]:
    """Return what is searched for: the issue, then functions and files with telling names."""
    chosen: list[str] = []
    if ours.issue:
        repository, _, number = ours.issue.partition("#")
        here = repository.lower() == ours.repository.lower()
        chosen.append(number if here else f'"{ours.issue}"')
    tests = [path for path in ours.touched if re.search(r"(?:^|/)test", path)]
    sources = [path for path in ours.touched if path not in tests] or tests
    names = {name for path in sources for name in ours.touched[path]}
    stems = {path.rpartition("/")[2].partition(".")[0] for path in sources}
    named, files = _telling(names), _telling(stems - names)
    half = (TERMS - len(chosen)) // 2
    words = [*named[: TERMS - len(chosen) - min(half, len(files))], *files[:half]]
    return [*chosen, *(f'"{word}" in:title,body' for word in words)]


def _telling(names: Iterable[str]) -> list[str]:
    """Return the names that few others have, the longest first."""
    telling = (
        name
        for name in names
        if len(name) >= _SHORTEST and name not in _COMMON and name.isascii()
        and not name.startswith("__")
    )  # fmt: skip
    return sorted(telling, key=lambda name: (-len(name), name))


PullState = Literal["open", "draft", "merged", "closed"]
#: Whether it is the same change, holds it as a commit, or has a commit of it.
Likeness = Literal["whole", "within", "commit", ""]


@dataclass
class Suspect:
    """A pull request that was listed or found, and what it has in common with the patch."""

    repository: str
    number: int
    title: str
    body: str
    author: str
    url: str
    #: What it is; `closed` until it is known whether a bot landed it.
    state: PullState
    updated: datetime
    hits: int = 0
    #: Whether the patch names it; whether it names the patch's issue.
    related: bool = False
    issue: bool = False
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    #: Whether it touches no file that the patch does not.
    alone: bool = False
    same: Likeness = ""

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.repository}#{self.number}"

    @property
    def weight(self) -> int:
        """How much is in common."""
        return (
            (_SAME[self.same][0] if self.same else 0)
            + _NAMED * self.related
            + _ISSUE * self.issue
            + _FUNCTION * len(self.functions)
            + _FILE * len(self.files)
        )

    def candidate(self, issue: str) -> Candidate:
        """Return it as it is shown."""
        common = [
            *([_SAME[self.same][1]] if self.same else []),
            *(["named in `related`"] if self.related else []),
            *([f"mentions {issue}"] if self.issue else []),
            *_some("functions", self.functions),
            *_some("files", self.files),
        ]
        return Candidate(
            reference=self.reference, title=self.title[:_TITLE],
            author=clean(self.author) or "ghost", state=self.state, url=self.url,
            in_common=tuple(common), weight=self.weight,
        )  # fmt: skip


def _some(kind: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown = ", ".join(shortened(name, _TITLE) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{kind if len(names) > 1 else kind[:-1]} {shown}{more}"]


def _of_issue(repository: str, issue: Issue) -> Suspect | None:
    """Return a pull request as a search gives it; None: it is an issue."""
    pull = issue.raw_data.get("pull_request")
    if pull is None:
        return None
    return _suspect(repository, issue, merged=bool(pull.get("merged_at")))


def _suspect(repository: str, item: PullRequest | Issue, *, merged: bool) -> Suspect:
    state: PullState = "draft" if item.draft else "open"
    if item.state == "closed":
        state = "merged" if merged else "closed"
    return Suspect(
        repository, item.number, item.title, item.body or "", login_of(item.user) or "ghost",
        item.html_url, state, item.updated_at or item.created_at,
    )  # fmt: skip


def mentions(issue: str, upstream: str, suspect: Suspect) -> bool:
    """Say whether a pull request names an issue in its title or text."""
    if not issue:
        return False
    repository, _, number = issue.partition("#")
    place = re.escape(repository)
    forms = [rf"{place}#{number}", rf"/{place}/(?:issues|pull)/{number}"]
    if repository.lower() == suspect.repository.lower() == upstream.lower():
        forms += [rf"(?<![\w/-])#{number}", rf"\bGH-{number}"]
    pattern = re.compile(rf"(?:{'|'.join(forms)})(?!\d)", re.IGNORECASE)
    return bool(pattern.search(suspect.title) or pattern.search(suspect.body))


class _Search:
    """One look: what was found so far, and what was not looked at."""

    def __init__(self, github: GitHub, ours: PatchFingerprint, since: datetime) -> None:
        self.github, self.ours, self.since = github, ours, since
        self.suspects: dict[str, Suspect] = {}
        #: Those from our branches: a search does not say from where they are.
        self.mine = set(ours.own)
        self.limits: list[str] = []
        self.asked = 0
        self.unanswered: list[str] = []

    def run(self, key: str, now: datetime) -> Look:
        """List, search, and compare what is found, the most alike first."""
        self._list()
        for term in terms(self.ours):
            self._find(term)
        self._read_related()
        suspects = [self.suspects[name] for name in self.suspects if name not in self.mine]
        chosen = sorted(suspects, key=self._promise, reverse=True)[:FILES_OF]
        if len(suspects) > len(chosen):
            count = f"{len(chosen)} of {len(suspects)}"
            self.limits.append(f"the files of {count} pull requests were compared")
        self._compare_files(chosen)
        alike = [pull for pull in chosen if pull.files or pull.issue or pull.related]
        alike = self._without_unlanded(sorted(alike, key=_most_alike))
        self._compare_commits([pull for pull in alike if pull.files])
        candidates = (pull.candidate(self.ours.issue) for pull in sorted(alike, key=_most_alike))
        return Look(
            key=key, time=now, days=DAYS, seen=len(suspects), looked_into=len(chosen),
            candidates=tuple(candidates), asked=self.asked,
            limits=tuple(shortened(limit, _TITLE) for limit in self.limits),
            unanswered=tuple(shortened(what, _TITLE) for what in self.unanswered),
        )  # fmt: skip

    def _add(self, suspect: Suspect) -> Suspect:
        return self.suspects.setdefault(suspect.reference.lower(), suspect)

    def _list(self) -> None:
        """List the open ones, and those that were closed since."""
        repository, since = self.ours.repository, self.since
        opened = self.github.recent_pulls(repository, state="open", pages=PAGES)
        closed = self.github.recent_pulls(repository, state="closed", since=since, pages=PAGES)
        for pulls, kind in ((opened, "open"), (closed, "closed")):
            if len(pulls) >= 100 * PAGES:
                self.limits.append(f"of the {kind} ones, the {len(pulls)} last changed were listed")
        for pull in (*opened, *closed):
            owner = (name_of(pull.head.repo) or "").partition("/")[0]
            if f"{owner}:{pull.head.ref}".lower() in self.ours.branches:
                self.mine.add(f"{repository}#{pull.number}".lower())
            elif pull.state == "open" or (pull.closed_at or pull.updated_at or since) >= since:
                merged = pull.merged_at is not None
                self._add(_suspect(repository, pull, merged=merged))

    def _find(self, term: str) -> None:
        """Search for a term among the open ones, and those closed since."""
        repository = self.ours.repository
        for kind in ("is:open", f"is:closed closed:>={self.since:%Y-%m-%d}"):
            self.asked += 1
            what = f"the search for {term} ({kind[3:9]})"
            try:
                hits = self.github.search(f"repo:{repository} is:pr {kind} {term}", _HITS)
            except RefusedError as error:
                if error.status != _INVALID:
                    raise
                self.unanswered.append(f"{what} was refused: {error.message}")
                continue
            if hits.incomplete:
                self.unanswered.append(f"{what} was not finished by GitHub")
            elif hits.total > len(hits.items):
                self.limits.append(f"{what} gave {len(hits.items)} of {hits.total}")
            for suspect in filter(None, (_of_issue(repository, item) for item in hits.items)):
                self._add(suspect).hits += 1

    def _read_related(self) -> None:
        """Look at what the patch names; an issue is none."""
        if len(self.ours.related) > RELATED:
            self.limits.append(f"of `related`, the first {RELATED} were looked at")
        for reference in self.ours.related[:RELATED]:
            suspect = self.suspects.get(reference.lower())
            if suspect is None:
                repository, _, number = reference.partition("#")
                self.asked += 1
                try:
                    issue = self.github.issue(repository, int(number)).complete()
                except (NotFoundError, RefusedError) as error:
                    self.unanswered.append(f"{reference} could not be read: {error.message}")
                    continue
                suspect = _of_issue(repository, issue)
            if suspect is not None:
                self._add(suspect).related = True

    def _promise(self, suspect: Suspect) -> tuple[bool, bool, int, int, float]:
        """Return how much a pull request promises before its files are read."""
        ours = self.ours
        suspect.issue = mentions(ours.issue, ours.repository, suspect)
        names = {path.rpartition("/")[2] for path in ours.touched}
        named = sum(name in suspect.title or name in suspect.body for name in names)
        words, titles = (
            {word.lower() for word in _WORD.findall(text)} for text in (suspect.title, ours.title)
        )
        return (
            suspect.related,
            suspect.issue,
            suspect.hits + named,
            len(words & titles),
            suspect.updated.timestamp(),
        )

    def _compare_files(self, suspects: Sequence[Suspect]) -> None:
        """Compare the files of pull requests, four at a time."""

        def files_of(suspect: Suspect) -> tuple[File, ...]:
            if suspect.repository.lower() != self.ours.repository.lower():
                return ()  # its paths are another project's
            try:
                return tuple(self.github.pull(suspect.repository, suspect.number).get_files())
            except NotFoundError as error:  # taken away meanwhile
                why = f"its files could not be read: {error.message}"
                self.unanswered.append(f"{suspect.reference}: {why}")
                return ()

        touched = self.ours.touched
        self.asked += len(suspects)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for suspect, files in zip(suspects, pool.map(files_of, suspects), strict=True):
                names: list[str] = []
                for file in files:
                    known = (file.filename, file.previous_filename or "")
                    path = next((name for name in known if name in touched), "")
                    if path:
                        suspect.files += (file.filename,)
                        theirs = functions(file.filename, file.patch or "")
                        names += sorted(touched[path] & theirs)
                suspect.functions = tuple(dict.fromkeys(names))
                suspect.alone = bool(files) and len(suspect.files) == len(files)

    def _without_unlanded(self, suspects: Iterable[Suspect]) -> list[Suspect]:
        """Leave out what was closed and did not land; bots land commits and then close."""
        kept: list[Suspect] = []
        left = EVENTS
        for suspect in suspects:
            if suspect.state == "closed":
                if left == 0:
                    unknown = "was closed; whether it landed was not looked at"
                    self.limits.append(f"{suspect.reference} {unknown}")
                    continue
                left -= 1
                events = events_of(self.github, suspect.repository, suspect.number)
                if any(e.event in {"closed", "merged"} and e.commit_id for e in events):
                    suspect.state = "merged"
                elif not suspect.related:
                    continue
            kept.append(suspect)
        return kept

    def _compare_commits(self, touching: Sequence[Suspect]) -> None:
        """Find those that are the same change, or hold it or one commit of it."""
        if len(touching) > SERIES:
            count = f"{SERIES} of {len(touching)}"
            self.limits.append(f"the commits of {count} pull requests were compared")
        for suspect in touching[:SERIES]:
            try:
                suspect.same = self._same(suspect)
            except RefusedError as error:
                if error.status != _TOO_LARGE:
                    raise
                self.limits.append(f"{suspect.reference}: no diff: {error.message}")

    def _same(self, suspect: Suspect) -> Likeness:
        """Say how much of a pull request is the patch, by patch ids."""
        repository, number, ours = suspect.repository, suspect.number, self.ours.commits
        ids = patch_ids(self.github.diff(repository, number, commits=True))
        total = ""
        if suspect.alone:
            # One commit is all of it; of several, the sum is another diff.
            several = len(ids) != 1
            total = patch_id(self.github.diff(repository, number)) if several else ids[0]
        if not ours & {total, *ids}:
            return ""
        if len(ours) > 1:
            return "commit"
        return "whole" if total in ours else "within"


def _most_alike(suspect: Suspect) -> tuple[int, int]:
    return (-suspect.weight, -suspect.number)


def look_file(queue: Queue, name: str) -> Path:
    """Return the file that remembers the last look for a patch's duplicates."""
    return queue.local / "duplicates" / f"{name}.json"


def recent_look(github: GitHub, queue: Queue, name: str, *, server: str, now: datetime) -> Look:
    """Look for a patch's duplicates, unless that was done within the hour."""
    known = remembered(queue, name, server=server, now=now)
    if known is not None:
        return known
    search = _Search(github, fingerprint(queue, name), now - timedelta(days=DAYS))
    fresh = search.run(_key(queue, name, server), now)
    if fresh.unanswered:
        return fresh
    file = look_file(queue, name)
    make_private(file.parent)
    with contextlib.suppress(OSError):
        write_atomically(file, fresh.model_dump_json(indent=2).encode())
    return fresh


def remembered(
    queue: Queue, name: str, *, server: str, now: datetime, within: timedelta = _FRESH
) -> Look | None:
    """Return the look of the last hour; None: there was none, or of another question."""
    with contextlib.suppress(OSError, ValidationError):
        known = Look.model_validate_json(look_file(queue, name).read_bytes())
        # A time in the future is a clock that was wrong once.
        if known.key == _key(queue, name, server) and timedelta(0) <= now - known.time < within:
            return known
    return None


def _key(queue: Queue, name: str, server: str) -> str:
    """Return a digest of the question: what the queue's files say, and no git is asked."""
    patch, published = queue.patch(name), [sorted(names) for names in _published(queue, name)]
    asked = [patch.digest, patch.spec.title, patch.spec.contribution.issue, *patch.spec.related]
    return json_digest([server, patch.upstream.repository, asked, published, DAYS])
