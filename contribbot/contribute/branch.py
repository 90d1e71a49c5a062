"""Make a patch's branch in a fork, on the upstream's newest commit, without cloning the fork."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError, OpeningError, RefusedError, UsageError
from contribbot.git.merge import Moving, move
from contribbot.git.patch_format import Change, changes, commit_changes
from contribbot.git.pins import Progress
from contribbot.git.repository import (
    GONE,
    IDENTITY,
    NOTHING,
    NewCommit,
    Store,
    content_of,
    find,
    write_commits,
)
from contribbot.model.lifecycle import Text
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.queue.stack import fetch_pin, series_of

if TYPE_CHECKING:
    from github.Commit import Commit
    from github.ContentFile import ContentFile
    from github.GitBlob import GitBlob
    from github.Repository import Repository

    from contribbot.github.client import GitHub

_FOLDER: Final = "040000"
_SUBMODULE: Final = "160000"
#: The mode that GitHub wants of a path to remove, which it does not use.
_REMOVED: Final = "100644"
_REBASE: Final = "move it to a newer release: contribbot rebase; nothing was written"
_ANOTHER: Final = "name another in [contribution] of patch.toml"
_SHORT: Final = 12
#: With public_repo alone GitHub takes no branch that touches workflows, or whose fork lags on them.
_SCOPES: Final = (
    "give a classic token the scopes repo and workflow: gh auth refresh --scopes repo,workflow"
)
#: The most merges of the upstream's branch that may lie on top of our commit.
_MERGES: Final = 10


@dataclass(frozen=True)
class Tip:
    """The newest commit of an upstream's branch, with its tree."""

    name: str
    sha: str
    tree: str

    @classmethod
    def of(cls, branch: str, commit: Commit) -> Tip:
        """Return the tip of a branch from GitHub's commit."""
        return cls(branch, commit.sha, commit.commit.tree.sha)


@dataclass(frozen=True)
class Place:
    """The place of a patch's branch: the fork, and the upstream's tip under the branch."""

    #: The upstream's repository, `owner/name`, and the repository that gets the branch: a fork, or
    #: the upstream itself if the account owns the upstream.
    upstream: str
    fork: str
    tip: Tip
    #: The fork's id in GraphQL, empty if not known; whether the fork does not exist yet.
    fork_id: str = ""
    missing: bool = False
    #: Commits that the fork's default branch lacks, and commits that only the fork has.
    behind: int = 0
    own: int = 0

    @property
    def owner(self) -> str:
        """The owner of the fork."""
        return self.fork.partition("/")[0]


@dataclass(frozen=True)
class ForkCommit:
    """A commit to make in the fork, with its changes of its parent's tree, removals first."""

    author: str
    email: str
    date: datetime
    message: str
    changes: tuple[Change, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class ForkSeries:
    """The commits to make in the fork for a patch and its lower patches, with blobs and notes."""

    #: The commits, of lower patches first; by id, each blob that GitHub may not have.
    commits: tuple[ForkCommit, ...]
    contents: Mapping[str, bytes]
    notes: tuple[str, ...]


def branch_of(patch: Patch) -> str:
    """Return the name of a patch's branch."""
    return patch.spec.contribution.branch or f"contribbot/{patch.name}"


def may_push(repository: Repository) -> bool:
    """Return whether the account may write to a repository, as far as GitHub says."""
    return bool((repository.raw_data.get("permissions") or {}).get("push"))


def refuses_pulls(upstream: Repository) -> str:
    """Return why an upstream takes no pull requests of this account; empty: no such reason."""
    known = upstream.raw_data
    closed = known.get("pull_request_creation_policy") == "collaborators_only"
    reasons = {
        "is archived: its owners take no changes": known.get("archived"),
        "is switched off": known.get("disabled"),
        "has pull requests switched off": known.get("has_pull_requests") is False,
        "takes pull requests from its collaborators alone": closed and not may_push(upstream),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def head_of(repository: Repository, branch: str) -> str | None:
    """Return the commit of a branch; None: the branch does not exist (yet)."""
    try:
        ref = repository.get_git_ref(f"heads/{branch}").complete()
    except NotFoundError:
        return None
    except RefusedError as error:
        if error.status == HTTPStatus.CONFLICT:
            return None  # GitHub is still copying the repository
        raise
    return ref.object.sha if ref.ref == f"refs/heads/{branch}" else None


def read_tree(
    repository: Repository, tree: str, paths: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Return mode and object of a tree's files at some paths, with one request for each folder."""
    listing = repository.get_git_tree(tree)
    if listing.truncated:
        raise GitHubError(f"tree {tree[:_SHORT]}: a folder that is too large for GitHub to list")
    files: dict[str, tuple[str, str]] = {}
    for entry in listing.tree:
        folder = f"{entry.path}/"
        inside = [path.removeprefix(folder) for path in paths if path.startswith(folder)]
        if entry.mode != _FOLDER:
            files |= {entry.path: (entry.mode, entry.sha)} if entry.path in paths else {}
        elif inside:
            below = read_tree(repository, entry.sha, inside)
            files |= {folder + path: file for path, file in below.items()}
    return files


def file_content(file: GitBlob | ContentFile) -> bytes:
    """Return the decoded content of GitHub's blob or file."""
    return base64.b64decode(file.content) if file.encoding == "base64" else file.content.encode()


def carry_onto(
    queue: Queue, name: str, github: GitHub, place: Place, *, progress: Progress
) -> ForkSeries:
    """Return the commits of a patch and its dependencies, rebased onto the upstream's tip."""
    fetched = fetch_pin(queue, queue.pin_of(name), progress=progress)
    store, names = fetched.store, queue.with_dependencies([name])
    where = f"{place.upstream}@{place.tip.name}"
    series = series_of(queue, names, fetched)
    for patch, applied in series.items():
        if applied.conflicts:
            why = f"{patch} does not apply to its own pin: {applied.conflicts[0].headline}"
            raise UsageError(why, hint=f"mend it first: contribbot verify {patch}")
    chain = [commit.commit for applied in series.values() for commit in applied.applied]
    paths = sorted({change.path for change in commit_changes(store, chain)})
    base, known = _make_base(store, fetched.commit, paths, github, place)
    moving = [Moving(patch, tuple(queue.below(patch)), series[patch]) for patch in names]
    with store.exclusive():
        ends = {"old": fetched.commit, "new": base, "pin": where}
        moved = move(store, moving, **ends, files=False)
    for it in (conflict for patch in moved for conflict in patch.conflicts):
        part = f"hunk {it.hunk} of {it.path}" if it.hunk else it.path
        line = f", near line {it.line}" if it.line else ""
        raise _moved(name, where, f"{it.patch_file}: {part}{line}: {it.why}")
    mine = next(patch for patch in moved if patch.name == name)
    if mine.status is Text.BLOCKED:
        raise OpeningError(f"{name}: {mine.why}", hint=_REBASE)
    if mine.status is Text.UPSTREAM:
        why = f"{where} has all of it: it is upstream already"
        hint = "contribbot status --against newest"
        raise OpeningError(f"{name}: {why}", hint=hint)
    there = {patch.name for patch in moved if patch.status is Text.UPSTREAM}
    notes = tuple(
        f"{where} has all of {patch.name} already" if patch.name in there else patch.why
        for patch in moved
        if patch.name in there or (patch.commits and patch.why)
    )
    commits, contents = list[ForkCommit](), dict[str, bytes]()
    for picked in mine.row:
        changed = changes(store, base, picked.commit)
        if stray := next((it.path for it in changed if it.path not in paths), ""):
            why = f"{picked.file}: a rename there would take it to {stray}"
            raise _moved(name, where, why)
        made, new = _read(store, picked.commit, changed)
        commits.append(made)
        contents |= {blob: text for blob, text in new.items() if blob not in known}
        base = picked.commit
    return ForkSeries(tuple(commits), contents, notes)


def _moved(name: str, pin: str, why: str) -> OpeningError:
    """Return the error for a patch that conflicts with the newest commit of the upstream."""
    what = f"{name}: {pin} moved so that the patch no longer applies: {why}"
    return OpeningError(what, hint=_REBASE)


def _make_base(
    store: Store, pin: str, paths: Sequence[str], github: GitHub, place: Place
) -> tuple[str, frozenset[str]]:
    """Commit the pin's tree with the tip's files at `paths`; return the commit and files' blobs."""
    upstream = github.repository(place.upstream)
    files = read_tree(upstream, place.tip.tree, paths)
    with store.open() as repo:
        tree = repo.commit(pin).tree
        found = {path: find(tree, path) for path in paths}
        old = {path: (f"{it.mode:06o}", it.hexsha) for path, it in found.items() if it is not None}
    entries = {path: file for path, file in files.items() if old.get(path) != file}
    blobs = {blob for mode, blob in entries.values() if mode != _SUBMODULE}
    gone = [path for path, (mode, _) in old.items() if path not in files and mode != _FOLDER]
    entries |= dict.fromkeys(gone, (GONE, NOTHING))
    with store.exclusive():
        for blob in blobs:
            if not store.has(blob):
                content = file_content(upstream.get_git_blob(blob))
                store.git("hash-object", "-w", "--stdin", stdin=content)
        commit = NewCommit(pin, IDENTITY, IDENTITY, b"base\n", entries=entries)
        ((made, _),) = write_commits(store, [commit], dates="raw")
    return made, frozenset(blob for _, blob in files.values())


def _read(
    store: Store, commit: str, changed: Sequence[Change]
) -> tuple[ForkCommit, dict[str, bytes]]:
    """Return a commit to make on GitHub, and the contents of its changed blobs."""
    with store.open() as repo:
        origin = repo.commit(commit)
        contents = {
            change.blob: content_of(repo, change.blob)
            for change in changed
            if change.mode not in {GONE, _SUBMODULE}
        }
        # Removals come first: a file may take the place of a folder.
        ordered = tuple(sorted(changed, key=lambda change: change.mode != GONE))
        name, email = str(origin.author.name), str(origin.author.email)
        made = ForkCommit(name, email, origin.authored_datetime, str(origin.message), ordered)
    return made, contents


def sync_fork(github: GitHub, place: Place) -> tuple[str, ...]:
    """Sync a fork that is behind, unless its default branch has extra commits; return notes."""
    if not place.behind or place.own:
        return ()
    main = f"{place.tip.name} of {place.fork}"
    try:
        github.repository(place.fork).merge_upstream(place.tip.name)
    except RefusedError as error:
        # A rule may forbid the sync; GitHub tells later whether the branch needs one.
        return (f"{main} could not be brought up to date: {error.message}",)
    return (f"brought {main} up to date with {place.upstream}",)


def make_commits(github: GitHub, place: Place, series: ForkSeries) -> tuple[str, ...]:
    """Make blobs, trees and commits in the fork; return the ids of the commits."""
    fork = github.repository(place.fork)
    for content in series.contents.values():
        fork.create_git_blob(base64.b64encode(content).decode(), "base64")
    tree, parent = place.tip.tree, place.tip.sha
    commits: list[str] = []
    try:
        for commit in series.commits:
            tree, parent = _make_commit(github, fork, commit, tree, parent)
            commits.append(parent)
    except (NotFoundError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status == HTTPStatus.CONFLICT:
            raise  # the error says what to do
        raise _unready(github, place, error) from error
    return tuple(commits)


def _make_commit(
    github: GitHub, fork: Repository, made: ForkCommit, base: str, parent: str
) -> tuple[str, str]:
    """Make a tree and a commit in the fork, and return their ids."""
    from github.GitCommit import GitCommit  # noqa: PLC0415  start-up time
    from github.GitTree import GitTree  # noqa: PLC0415  start-up time
    from github.InputGitAuthor import InputGitAuthor  # noqa: PLC0415  start-up time
    from github.InputGitTreeElement import InputGitTreeElement  # noqa: PLC0415  start-up time

    requester, date = github.requester, made.date.isoformat(timespec="seconds")
    author = InputGitAuthor(made.author, made.email, date)
    elements: list[InputGitTreeElement] = []
    for it in made.changes:
        mode, blob = (_REMOVED, None) if it.mode == GONE else (it.mode, it.blob)
        kind = "commit" if mode == _SUBMODULE else "blob"
        elements.append(InputGitTreeElement(it.path, mode, kind, sha=blob))
    tree = fork.create_git_tree(elements, GitTree(requester, {}, {"sha": base}, completed=True))
    parents = [GitCommit(requester, {}, {"sha": parent}, completed=True)]
    commit = fork.create_git_commit(made.message, tree, parents, author, author)
    return tree.sha, commit.sha


def _unready(github: GitHub, place: Place, error: GitHubError) -> OpeningError:
    """Return the error for a fork that refuses commits on the upstream's tip."""
    page = f"{github.server.web}/{place.fork}"
    if place.own:
        own = f"{place.own} commit{'s' if place.own > 1 else ''} of your own"
        why = f"{place.tip.name} of {place.fork} has {own} and is {place.behind} behind,"
        why += " and contribbot merges nothing into it"
        then = f"move them to another branch and sync the fork on {page}, and run this again; or "
    else:
        why = f"GitHub takes no branch on {place.upstream}@{place.tip.sha[:_SHORT]} there"
        then = f"sync the fork on {page}; or "
    soon = f"{error.hint}; " if isinstance(error, NotFoundError) else ""
    return OpeningError(f"{place.fork}: {why}: {error.message}", hint=f"{soon}{then}{_SCOPES}")


def merges_upstream(github: GitHub, place: Place, head: str, ours: frozenset[str]) -> bool:
    """Return whether a branch is our commit with only merges of the upstream's branch on top."""
    fork = github.repository(place.fork)
    for _ in range(_MERGES):
        # GitHub's button "Update branch" makes the branch's own commit the first parent.
        own, *others = (parent.sha for parent in fork.get_git_commit(head).parents)
        if len(others) != 1:
            return False
        merged = github.compare(place.upstream, place.tip.name, others[0])
        if merged.status not in {"identical", "behind"}:
            return False
        if own in ours:
            return True
        head = own
    return False


def refuse_foreign(
    github: GitHub, place: Place, branch: str, head: str | None, ours: frozenset[str]
) -> None:
    """Raise OpeningError if a branch has a commit that is not ours, nor a merge of the upstream."""
    if head is None or head in ours or (ours and merges_upstream(github, place, head, ours)):
        return
    commit = github.repository(place.fork).get_git_commit(head)
    subject, who = commit.message.partition("\n")[0], commit.author
    what = f"{head[:_SHORT]} {subject!a} by {who.name} <{who.email}>"
    hint = "take its change into the patch (`contribbot edit NAME`) and remove it from the branch,"
    if not ours:
        hint = "if contribbot made it, bring history/ back from your version control; else delete"
        hint += " the branch there (which closes a pull request from it),"
    raise OpeningError(
        f"{place.fork}: the branch {branch} has a commit that contribbot did not make: {what}",
        hint=f"{hint} or {_ANOTHER}; nothing was overwritten",
    )


def put_ref(
    github: GitHub, place: Place, branch: str, head: str, *, was: str | None, ours: frozenset[str]
) -> None:
    """Point a branch at a commit; raise OpeningError if somebody else has pushed to the branch."""
    now = was
    if was is not None:
        if place.fork_id and was != head:
            github.move_ref(place.fork_id, branch, old=was, new=head)
        # Look whether the branch moved. If not, REST moves it, without comparing the old commit:
        # so this check for somebody else's push comes as late as possible.
        now = head_of(github.repository(place.fork), branch)
        refuse_foreign(github, place, branch, now, ours | {head})
    if now is None:
        _make_ref(github, place, branch, head, ours)
    elif now != head:
        github.ref(place.fork, branch).edit(head, force=True)


def _make_ref(github: GitHub, place: Place, branch: str, head: str, ours: frozenset[str]) -> None:
    fork = github.repository(place.fork)
    try:
        fork.create_git_ref(f"refs/heads/{branch}", head)
    except NotFoundError as error:
        # The commits exist on GitHub, so the error must be about the branch.
        raise _unready(github, place, error) from error
    except RefusedError as error:
        now = head_of(fork, branch)
        if now == head:
            return  # made before, in an attempt whose answer was lost
        refuse_foreign(github, place, branch, now, ours | {head})
        raise OpeningError(
            f"{place.fork}: the branch {branch} cannot be made: {error.message}",
            hint=f"a rule or a branch of that repository is in its way: {_ANOTHER}",
        ) from error
