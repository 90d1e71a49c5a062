"""Who else is at the same work: open and recently merged pull requests, compared with a patch.

One look takes a bounded number of requests: at most 6 for lists, 10 searches (GitHub allows 30
a minute), 10 for what the patch names; then one for the files of each of at most 40 pull
requests (one for each further 100 files), and for the most alike of these at most 10 for their
commits, 10 for the sum of these and 10 lists of events.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ValidationError

from contribbot import process
from contribbot.contribute.markdown import clean, shortened
from contribbot.contribute.model import Candidate, Look, json_digest
from contribbot.contribute.publication import state
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    MachineError,
    NotFoundError,
    RefusedError,
)
from contribbot.files import run_folder, stores_folder, write_atomically
from contribbot.git.patch_format import parse, plain_path
from contribbot.git.repository import git_environment, open_store
from contribbot.git.sources import find
from contribbot.github.cache import make_private
from contribbot.github.fields import login_of, name_of, text_of, whole
from contribbot.model.patch import Patch, PatchFile
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.stack import Landed, own_pin, series_of, with_dependencies

if TYPE_CHECKING:
    from github.File import File
    from github.Issue import Issue
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub


_HUNK: Final = re.compile(r"^@@ -\d+(?:,\d+)? \+(?P<start>\d+)(?:,\d+)? @@ ?(?P<header>.*)$")
#: A line that begins a function or class: of Python anywhere, of C and its kin by its header.
_PYTHON: Final = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(?P<name>\w+)")
_CALLABLE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\(")
_TYPE: Final = re.compile(r"\b(?:class|struct|namespace|enum|union)\s+(?P<name>[A-Za-z_]\w*)")
#: What stands before a parenthesis and is no function's name.
_NO_NAMES: Final = frozenset(
    {
        "if", "for", "while", "switch", "return", "sizeof", "defined", "decltype", "__attribute__",
        "__launch_bounds__", "alignas", "static_assert", "catch", "else", "template",
    }
)  # fmt: skip
_CHANGES: Final = ("+", "-")


@dataclass(frozen=True)
class Hunk:
    """A hunk of a diff."""

    header: str
    start: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Touch:
    """A file that a diff touches."""

    path: str
    before: str
    removed: bool
    hunks: tuple[Hunk, ...]


def read_diff(name: str, content: bytes) -> list[Touch]:
    """Take a diff apart."""
    found = []
    for file in parse(name, content):
        old, new = plain_path(file.source_file), plain_path(file.target_file)
        removed = bool(file.is_removed_file)
        path = old if removed else new
        hunks = tuple(
            Hunk(
                _text(hunk.section_header),
                hunk.target_start,
                tuple(_text(f"{line.line_type}{line.value}").rstrip("\n") for line in hunk),
            )
            for hunk in file
        )
        moved = old if not removed and not file.is_added_file and old != new else ""
        found.append(Touch(path, moved, removed, hunks))
    return found


def read_files(files: Iterable[PatchFile]) -> list[Touch]:
    """Take the diffs of patch files apart."""
    return [touch for file in files for touch in read_diff(file.name, file.content)]


def read_hunks(text: str) -> tuple[Hunk, ...]:
    """Take the hunks of one file apart, as GitHub gives them; what is no hunk is passed over."""
    found: list[Hunk] = []
    rows: list[str] = []
    at: re.Match[str] | None = None
    for row in [*text.split("\n"), "@@ -0 +0 @@"]:
        begins = _HUNK.match(row)
        if begins is None:
            rows.append(row)
            continue
        if at is not None:
            found.append(Hunk(at["header"], int(at["start"]), tuple(rows)))
        at, rows = begins, []
    return tuple(found)


def functions(path: str, hunks: Sequence[Hunk]) -> frozenset[str]:
    """Return the functions and classes that hunks change, as far as the hunks name them."""
    if path.endswith((".py", ".pyi")):
        return frozenset(name for hunk in hunks for name in _walk(hunk))
    return frozenset(name for hunk in hunks if (name := _header_name(hunk.header)))


def _text(latin: str) -> str:
    """Return text that stands for bytes as the text that the bytes are."""
    return latin.encode("latin-1").decode("utf-8", "replace")


def _walk(hunk: Hunk) -> Iterator[str]:
    """Yield what each change of Python stands in, as far as the hunk itself shows it."""
    header = _PYTHON.match(hunk.header)
    current = header["name"] if header else ""
    for row in hunk.lines:
        begins = _PYTHON.match(row[1:])
        if begins:
            current = begins["name"]
        if row.startswith(_CHANGES) and current:
            yield current


def _header_name(header: str) -> str:
    """Return the function or type that git's line behind `@@` names; or nothing."""
    for found in _CALLABLE.finditer(header):
        if found["name"] not in _NO_NAMES:
            return found["name"]
    named = _TYPE.search(header)
    return named["name"] if named else ""


def shared_functions(ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """Return what two diffs both change; where one knows only the class, the other's method."""
    others = set(theirs)
    return sorted({name for name in ours if any(_same(name, other) for other in others)})


def _same(one: str, other: str) -> bool:
    """Say whether names are the same, or one of them around or at the end of the other."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return longer == shorter or longer.startswith(f"{shorter}.") or longer.endswith(f".{shorter}")


def patch_id(diff: bytes) -> str:
    """Return the patch id of a diff; empty where it has none."""
    start = 0 if diff.startswith(b"diff --git ") else diff.find(b"\ndiff --git ") + 1
    rest = diff[start:]
    return next(iter(patch_ids(rest)), "") if rest.startswith(b"diff --git ") else ""


def patch_ids(series: bytes) -> tuple[str, ...]:
    """Return the patch ids of commits that stand one after the other, as in an mbox."""
    try:
        said = process.run(
            ["git", "patch-id", "--stable"], env=git_environment(), stdin=series, timeout=30.0
        ).stdout
    except (CommandError, CommandTimeoutError):
        return ()
    return tuple(row.split(" ")[0] for row in said.decode("ascii", "replace").splitlines())


@dataclass(frozen=True)
class Ours:
    """A patch, as far as it can be compared."""

    repository: str
    #: The functions that it changes, by file.
    touched: Mapping[str, frozenset[str]]
    #: Patch ids: of all its commits taken together, where that is known, and of each.
    whole: str
    commits: frozenset[str]
    issue: str
    related: tuple[str, ...]
    own: frozenset[str]
    branches: frozenset[str]
    notes: tuple[str, ...] = ()


def ours_of(queue: Queue, name: str) -> Ours:
    """Return what a patch is compared by. Nothing is downloaded."""
    patch = queue.patch(name)
    own, branches = _published(queue, name)
    whole = patch.files[0].content if len(patch.files) == 1 else _sum_of(queue, patch)
    touched: dict[str, frozenset[str]] = {}
    for touch in read_files(patch.files):
        for path in filter(None, (touch.path, touch.before)):
            names = functions(touch.path, touch.hunks)
            touched[path] = touched.get(path, frozenset()) | names
    commits = frozenset(filter(None, (patch_id(file.content) for file in patch.files)))
    return Ours(
        repository=patch.upstream.repository,
        touched=touched,
        whole=patch_id(whole) if whole else "",
        commits=commits,
        issue=patch.spec.contribution.issue or "",
        related=patch.spec.related,
        own=own,
        branches=branches,
        notes=()
        if whole
        else (f"{patch.pin.title} is not on this machine: its commits were compared one by one",),
    )


def _published(queue: Queue, name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the pull requests and branches of a patch and of its stack, in lower case."""
    stack = {name, *queue.below(name), *(one for one in queue.specs if name in queue.below(one))}
    known = [found for one in stack if (found := state(history.read(queue.folder, one)))]
    return (
        frozenset(one.reference.lower() for one in known if one.reference),
        frozenset(
            f"{one.fork.partition('/')[0]}:{one.branch}".lower() for one in known if one.branch
        ),
    )


def _sum_of(queue: Queue, patch: Patch) -> bytes:
    """Return the diff of several commits taken together; empty without the pin."""
    with contextlib.suppress(MachineError):
        store = open_store(stores_folder(), patch.upstream.name)
        pin = own_pin(queue, patch.name)
        found = find(pin, patch.upstream, store)
        if found is not None:
            with run_folder() as scratch:
                names = with_dependencies(queue, [patch.name])
                landed = Landed(pin, found.commit, store)
                series = series_of(queue, names, landed, scratch=scratch)[patch.name]
                if series.applied and not series.conflicts:
                    return store.git(
                        "diff-tree", "-r", "-p", "-M", "--binary", "--full-index", "--no-color",
                        "--no-ext-diff", series.base, series.commit,
                    ).stdout  # fmt: skip
    return b""


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
    state: PullState = "draft" if pull.draft else "open"
    if pull.state == "closed":
        state = "merged" if pull.merged_at else "closed"
    return Found(
        repository, pull.number, pull.title, text_of(pull.body), login_of(pull.user) or "ghost",
        pull.html_url, state, pull.updated_at or pull.created_at,
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


#: `whole`: the same change. `within`: one of its commits is. `commit`: it has one of ours.
Same = Literal["whole", "within", "commit", ""]
#: Pull requests whose commits are read one by one, a request each.
SERIES: Final = 10
_TOO_LARGE: Final = 406


def compare(github: GitHub, ours: Ours, found: Found, *, alone: bool) -> Same:
    """Say how much of a pull request is the patch, by patch ids."""
    ids = patch_ids(github.diff(found.repository, found.number, commits=True))
    whole = ""
    if alone:
        # One commit is all of it; of several, the sum is another diff.
        one = len(ids) == 1
        whole = ids[0] if one else patch_id(github.diff(found.repository, found.number))
    if whole and whole == ours.whole:
        return "whole"
    if ours.whole in ids:
        return "within"
    return "commit" if ours.commits & {whole, *ids} else ""


#: Days in which a merged pull request counts as recent.
DAYS: Final = 90
#: Pull requests whose files are compared.
FILES_OF: Final = 40
#: Of these, lists of events.
EVENTS: Final = 10
_AT_ONCE: Final = 4
#: Weights of what two changes may have in common.
_SAME_CHANGE: Final = 1000
_SAME_WITHIN: Final = 900
_SAME_COMMIT: Final = 500
_NAMED: Final = 300
_ISSUE: Final = 200
_FUNCTION: Final = 40
_FILE: Final = 10
#: Names of one kind that a row shows, and characters of a title that are kept.
_SHOWN: Final = 4
_TITLE: Final = 200
_LANDED: Final = frozenset({"closed", "merged"})


@dataclass(frozen=True)
class _Shared:
    """What a pull request has in common with the patch."""

    found: Found
    files: tuple[File, ...]
    functions: tuple[str, ...]
    #: Whether it names the issue.
    issue: bool
    #: Whether it touches no file that the patch does not.
    alone: bool
    same: Same = ""

    @property
    def counts(self) -> bool:
        """Whether there is anything in common."""
        return bool(self.files or self.issue or self.same or self.found.related)

    @property
    def weight(self) -> int:
        """How much it is."""
        same = {"whole": _SAME_CHANGE, "within": _SAME_WITHIN, "commit": _SAME_COMMIT, "": 0}
        return (
            same[self.same]
            + (_NAMED if self.found.related else 0)
            + (_ISSUE if self.issue else 0)
            + _FUNCTION * len(self.functions)
            + _FILE * len(self.files)
        )


def look(
    github: GitHub, ours: Ours, title: str, *, key: str, now: datetime, days: int = DAYS
) -> Look:
    """Look for pull requests that may be the same work."""
    made = harvest(github, ours, now - timedelta(days=days))
    ordered = in_order(ours, title, list(made.found.values()))
    limits = [*ours.notes, *made.limits]
    chosen = ordered[:FILES_OF]
    if len(ordered) > len(chosen):
        limits.append(f"the files of {len(chosen)} of {len(ordered)} pull requests were compared")
    shared = [one for one in _compared(github, ours, chosen, limits) if one.counts]
    shared.sort(key=_order)
    shared = _landed(github, shared, limits)
    shared = _same_change(github, ours, shared, limits)
    shared.sort(key=_order)
    return Look(
        key=key,
        time=now,
        days=days,
        seen=len(ordered),
        looked_into=len(chosen),
        candidates=tuple(_candidate(one, ours) for one in shared),
        limits=tuple(shortened(one, _TITLE) for one in limits),
    )


def _order(one: _Shared) -> tuple[int, int]:
    return (-one.weight, -one.found.number)


def _compared(
    github: GitHub, ours: Ours, chosen: Sequence[Found], limits: list[str]
) -> list[_Shared]:
    """Compare the files of pull requests, four at a time."""

    def files_of(one: Found) -> tuple[File, ...]:
        if one.repository.lower() != ours.repository.lower():
            return ()  # its paths are another project's
        try:
            return tuple(github.pull(one.repository, one.number).get_files())
        except NotFoundError as error:  # taken away meanwhile
            limits.append(f"{one.reference}: its files could not be read: {error.message}")
            return ()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = list(pool.map(files_of, chosen))
    return [_shared(ours, one, files) for one, files in zip(chosen, listed, strict=True)]


def _shared(ours: Ours, one: Found, files: Sequence[File]) -> _Shared:
    common = tuple(file for file in files if _path(ours, file))
    return _Shared(
        found=one,
        files=common,
        functions=_functions(ours, common),
        issue=mentions(ours.issue, ours.repository, one),
        alone=bool(common) and len(common) == len(files),
    )


def _path(ours: Ours, file: File) -> str:
    """Return the path by which the patch knows a file of a pull request; or nothing."""
    names = (file.filename, file.previous_filename or "")
    return next((name for name in names if name in ours.touched), "")


def _functions(ours: Ours, files: Sequence[File]) -> tuple[str, ...]:
    found: list[str] = []
    for file in files:
        theirs = functions(file.filename, read_hunks(file.patch or ""))
        found += shared_functions(ours.touched[_path(ours, file)], theirs)
    return tuple(dict.fromkeys(found))


def _landed(github: GitHub, shared: list[_Shared], limits: list[str]) -> list[_Shared]:
    """Leave out what was closed and did not land; bots land commits and then close."""
    kept: list[_Shared] = []
    left = EVENTS
    for one in shared:
        found = one.found
        if found.state == "closed":
            if left == 0:
                limits.append(f"{found.reference} was closed; whether it landed was not looked at")
                continue
            left -= 1
            events = whole(github.issue(found.repository, found.number).get_events())
            if any(event.event in _LANDED and event.commit_id for event in events):
                found.state = "merged"
            elif not found.related:
                continue
        kept.append(one)
    return kept


def _same_change(
    github: GitHub, ours: Ours, shared: list[_Shared], limits: list[str]
) -> list[_Shared]:
    """Find those that are the same change, or hold it or one commit of it."""
    made = []
    touching = [one for one in shared if one.files]
    if len(touching) > SERIES:
        limits.append(f"the commits of {SERIES} of {len(touching)} pull requests were compared")
    for one in shared:
        same: Same = ""
        if one in touching[:SERIES]:
            try:
                same = compare(github, ours, one.found, alone=one.alone)
            except RefusedError as error:
                if error.status != _TOO_LARGE:
                    raise
                limits.append(f"{one.found.reference}: no diff: {error.message}")
        made.append(replace(one, same=same))
    return made


def _candidate(one: _Shared, ours: Ours) -> Candidate:
    found = one.found
    says = [
        *(["the same change (patch-id)"] if one.same == "whole" else []),
        *(["a commit of it is the same change (patch-id)"] if one.same == "within" else []),
        *(["one of the patch's commits (patch-id)"] if one.same == "commit" else []),
        *(["named in `related`"] if found.related else []),
        *([f"mentions {ours.issue}"] if one.issue else []),
        *_some("functions", one.functions),
        *_some("files", [file.filename for file in one.files]),
    ]
    return Candidate(
        reference=found.reference,
        title=found.title[:_TITLE],
        author=clean(found.author) or "ghost",
        state=found.state,
        url=found.url,
        in_common=tuple(says),
        weight=one.weight,
    )


def _some(kind: str, names: Sequence[str]) -> list[str]:
    """Say some names of one kind."""
    if not names:
        return []
    shown = ", ".join(shortened(name, _TITLE) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{kind if len(names) > 1 else kind[:-1]} {shown}{more}"]


_FRESH: Final = timedelta(hours=1)


def look_file(queue: Queue, name: str) -> Path:
    """Return the file that remembers the last look for a patch's duplicates."""
    return queue.local / "duplicates" / f"{name}.json"


def recent_look(github: GitHub, queue: Queue, name: str, *, server: str, now: datetime) -> Look:
    """Look for a patch's duplicates, unless that was done within the hour."""
    known = remembered(queue, name, server=server, now=now)
    if known is not None:
        return known
    key = _key(queue, name, server)
    found = look(github, ours_of(queue, name), queue.specs[name].title, key=key, now=now)
    make_private(look_file(queue, name).parent)
    # That it cannot be remembered costs requests only.
    with contextlib.suppress(OSError):
        write_atomically(look_file(queue, name), found.model_dump_json(indent=2).encode())
    return found


def remembered(queue: Queue, name: str, *, server: str, now: datetime) -> Look | None:
    """Return the look of the last hour; None: there was none, or of another question."""
    with contextlib.suppress(OSError, ValidationError):
        known = Look.model_validate_json(look_file(queue, name).read_bytes())
        # A time in the future is a clock that was wrong once.
        if known.key == _key(queue, name, server) and timedelta(0) <= now - known.time < _FRESH:
            return known
    return None


def _key(queue: Queue, name: str, server: str) -> str:
    """Return a digest of the question: what the queue's files say, and no git is asked."""
    patch = queue.patch(name)
    own, branches = _published(queue, name)
    return json_digest(
        {
            "server": server,
            "repository": patch.upstream.repository,
            "patch": patch.digest,
            "title": patch.spec.title,
            "issue": patch.spec.contribution.issue,
            "related": list(patch.spec.related),
            "own": sorted(own),
            "branches": sorted(branches),
            "days": DAYS,
        }
    )
