"""The upstream's branch as far as a patch touches it, as a commit of the local store.

The store has the pin's tree, which may hold a part of the repository only. Where the branch
has something else at a path that is to be changed, that takes the pin's place.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError, OpeningError, RefusedError, UsageError
from contribbot.files import run_folder
from contribbot.git.apply import (
    FOLDER,
    Change,
    Commit,
    Conflict,
    Entry,
    Indexed,
    Overlay,
    write_commits,
)
from contribbot.git.merge import NOTHING, Carrier, State, Step, read_steps
from contribbot.git.patch_format import changes, raw_changes
from contribbot.git.repository import Store, read_objects
from contribbot.git.source import Progress
from contribbot.github import git_data
from contribbot.github import git_objects as remote
from contribbot.github.fields import may_push
from contribbot.github.git_data import head_of
from contribbot.github.git_objects import SUBMODULE, Author, commit_id
from contribbot.github.refusals import WORKFLOW_HINT
from contribbot.lifecycle.stack import Landed, land, own_pin, series_of, with_dependencies
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub


_IDENTITY: Final = b"contribbot <contribbot@localhost> 0 +0000"


@dataclass(frozen=True)
class Blocked:
    """A path where the branch has a file for a folder, or a folder for a file."""

    path: str
    why: str


@dataclass(frozen=True)
class Base:
    """The branch in the store."""

    #: A commit that has the branch's content at the paths, and the pin's elsewhere.
    commit: str
    blobs: frozenset[str]


@dataclass(frozen=True)
class Tip:
    """A branch of the upstream: its newest commit, and the tree of that."""

    name: str
    sha: str
    tree: str


@dataclass(frozen=True)
class Target:
    """The branch that a patch goes to, of the upstream's repository."""

    github: GitHub
    repository: str
    tip: Tip


def make_base(store: Store, pin: str, paths: Sequence[str], target: Target) -> Base | Blocked:
    """Bring the branch's content at some paths into the store."""
    above = {folder for path in paths for folder in _parents(path)}
    wanted = sorted({*paths, *above})
    upstream = target.github.repository(target.repository)
    there = git_data.read_tree(upstream, target.tip.tree, wanted)
    tree = Overlay(store, pin)
    tree.prefetch(paths)
    blocked = _blocked(paths, there, tree)
    if blocked is not None:
        return blocked
    there = {path: entry for path, entry in there.items() if entry.mode != remote.FOLDER}
    different = {
        path: there[path]
        for path in paths
        if path in there and tree.entry(path) != Entry(there[path].mode, there[path].sha)
    }
    contents = _contents(store, different, target)
    made: list[Change] = []
    for path in paths:
        entry = there.get(path)
        if entry is None:
            known = tree.entry(path)
            if known is not None and known.mode != FOLDER:
                made.append(tree.set(path, None))
        elif path in different:
            content = contents.get(entry.sha)
            made.append(
                tree.set(path, Entry(entry.mode, entry.sha))
                if content is None
                else tree.put(path, entry.mode, content)
            )
    commit = Commit(tree.tree(), pin, _IDENTITY, _IDENTITY, b"base\n", tuple(made))
    with store.exclusive():
        write_commits(store, [commit])
    return Base(commit.id, frozenset(there[path].sha for path in paths if path in there))


def _contents(store: Store, wanted: Mapping[str, remote.Entry], target: Target) -> dict[str, bytes]:
    """Return the bytes of what the branch has, from the store where it knows them."""
    ids = list(dict.fromkeys(one.sha for one in wanted.values() if one.mode != remote.SUBMODULE))
    known = {
        blob: object_.content
        for blob, object_ in zip(ids, read_objects(store, ids), strict=True)
        if object_ is not None and object_.kind == "blob"
    }
    missing = [blob for blob in ids if blob not in known]
    return known | git_data.read_blobs(target.github, target.repository, missing)


def _blocked(
    paths: Sequence[str], there: Mapping[str, remote.Entry], pin: Overlay
) -> Blocked | None:
    """Find a file for a folder, or a folder for a file, that the pin does not have as well."""
    for path in paths:
        entry = there.get(path)
        # Where a patch replaces a whole folder, no other file may be in it.
        if (
            entry is not None
            and entry.mode == FOLDER
            and pin.entry(path) != Entry(FOLDER, entry.sha)
        ):
            return Blocked(path, "the branch has a folder there")
        for folder in _parents(path):
            if folder not in there or there[folder].mode == remote.FOLDER:
                continue
            known = pin.entry(folder)
            if known is None or known.mode == FOLDER:
                return Blocked(path, f"the branch has a file where the folder {folder} must be")
    return None


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


_AUTHOR: Final = re.compile(
    rb"(?P<name>.*?) ?<(?P<email>[^>]*)> (?P<seconds>-?[0-9]+) (?P<sign>[+-])(?P<zone>[0-9]{4})",
    re.DOTALL,
)


@dataclass(frozen=True)
class Made:
    """A commit that is to be made on GitHub."""

    patch: str
    file: str
    author: Author
    message: str
    #: What it changes in the tree of the commit before it.
    changes: tuple[remote.Entry, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class Carried:
    """A patch on the upstream's branch."""

    #: The commits, in order; of a stack those below it first.
    commits: tuple[Made, ...]
    #: The bytes of every blob that the branch may not have, by id.
    contents: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Layer:
    """A patch's commits on its pin: of each its patch file, and its id."""

    patch: str
    commits: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Picked:
    """A commit that was carried: whose it is, and the commits before it and with it."""

    patch: str
    file: str
    step: Step
    before: str
    after: str


def carry_onto(queue: Queue, name: str, target: Target, *, progress: Progress) -> Carried:
    """Carry a patch, and what it depends on, onto a branch of its upstream.

    GitHub is read, and nothing outside the cache is written.
    """
    landed = land(queue, own_pin(queue, name), progress=progress)
    store = landed.store
    with run_folder() as scratch:
        layers = _layers(queue, name, landed, scratch)
        chain = [commit for layer in layers for _, commit in layer.commits]
        paths = sorted({path for _, _, path in raw_changes(store, chain)})
        base = make_base(store, landed.commit, paths, target)
        where = f"{target.repository}@{target.tip.name}"
        if isinstance(base, Blocked):
            file = layers[-1].commits[0][0]
            raise _moved(name, Conflict(file, base.path, where, 0, base.why))
        run = _Run(name, store, base, where=where, scratch=scratch)
        return run.carry(layers, frozenset(paths))


def _layers(queue: Queue, name: str, landed: Landed, scratch: Path) -> list[_Layer]:
    """Apply a patch and what it depends on to their pin."""
    series = series_of(queue, with_dependencies(queue, [name]), landed, scratch=scratch)
    own = series[name]
    for one, found in series.items():
        if found.conflicts:
            raise UsageError(
                f"{one} does not apply to its own pin: {found.conflicts[0].headline}",
                hint=f"mend it first: contribbot verify {one}",
            )
    if not own.applied:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    said = landed.store.git("rev-list", "--reverse", f"{landed.commit}..{own.base}", "--").stdout
    below = iter(said.decode().split())
    layers = [
        _Layer(lower, tuple((file.name, next(below)) for file in queue.patch(lower).files))
        for lower in queue.below(name)
    ]
    return [*layers, _Layer(name, tuple((one.file, one.commit) for one in own.applied))]


class _Run:
    """One run of `carry_onto`, once the base is there."""

    def __init__(self, name: str, store: Store, base: Base, *, where: str, scratch: Path) -> None:
        self._name, self._store, self._where, self._scratch = name, store, where, scratch
        self._carrier = Carrier(store, where, scratch)
        self._state = State(base.commit, Overlay(store, base.commit))
        self._steps: dict[str, Step] = {}
        self._notes: list[str] = []
        self._known = set(base.blobs)

    def carry(self, layers: Sequence[_Layer], paths: frozenset[str]) -> Carried:
        """Carry all layers, which touch these paths."""
        chain = [commit for layer in layers for _, commit in layer.commits]
        self._steps = read_steps(self._store, chain, self._state.tree)
        with self._store.exclusive():
            picked: list[_Picked] = []
            for layer in layers:
                picked += self._layer(layer)
            self._carrier.write()
            contents: dict[str, bytes] = {}
            made = tuple(self._made(one, paths, contents) for one in picked)
        return Carried(made, contents, tuple(self._notes))

    def _layer(self, layer: _Layer) -> Iterator[_Picked]:
        """Carry a patch; yield patch, file, step, and the commits before and after."""
        start, merged = self._state, False
        found: list[_Picked] = []
        notes: list[str] = []
        for file, commit in layer.commits:
            carried = self._carrier.carry(self._steps[commit], self._state, file)
            if carried.conflicts:
                if not carried.elsewhere and self._there(layer, start):
                    self._is_upstream(layer.patch)
                    self._state = start
                    return
                raise _moved(self._name, carried.conflicts[0])
            merged = merged or carried.merged
            if carried.state.tip == self._state.tip:
                notes.append(f"{self._where} has all of {layer.patch}/{file} already")
                continue
            notes += carried.notes
            step, before = self._steps[commit], self._state.tip
            found.append(_Picked(layer.patch, file, step, before, carried.state.tip))
            self._state = carried.state
        if not found or (merged and self._there(layer, start)):
            self._is_upstream(layer.patch)
            self._state = start
            return
        # Of a patch that the branch has whole, nothing is said of its parts.
        self._notes += notes
        yield from found

    def _there(self, layer: _Layer, start: State) -> bool:
        """Say whether a commit has all that a patch changes: it can be taken back from it."""
        self._carrier.write()
        first, last = layer.commits[0][1], layer.commits[-1][1]
        diff = self._store.git(
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color",
            "--no-ext-diff", self._steps[first].parent, last,
        ).stdout  # fmt: skip
        index = Indexed(self._store, start.tree.fork(), diff, self._scratch / "reverse-index")
        return bool(diff) and index.apply(diff, "--reverse").returncode == 0

    def _is_upstream(self, patch: str) -> None:
        """Pass over a patch below that the branch has; the patch itself has nothing to give."""
        if patch != self._name:
            self._notes.append(f"{self._where} has all of {patch} already")
            return
        raise OpeningError(
            f"{patch}: {self._where} has all of it: it is upstream already",
            hint="see `contribbot status --against` a newer release",
        )

    def _made(self, one: _Picked, paths: frozenset[str], contents: dict[str, bytes]) -> Made:
        """Describe a commit, and note the blobs that are new with it."""
        found = changes(self._store, one.before, one.after)
        stray = next((change.path for change in found if change.path not in paths), "")
        if stray:
            why = f"a rename there would take it to {stray}"
            raise _moved(self._name, Conflict(one.file, stray, self._where, 0, why))
        new = [
            change.blob
            for change in found
            if change.mode not in {NOTHING, SUBMODULE} and change.blob not in self._known
        ]
        for blob, object_ in zip(new, read_objects(self._store, new), strict=True):
            contents[blob] = object_.content if object_ else self._store.read(blob)
        self._known.update(new)
        return Made(
            one.patch,
            one.file,
            _person(one.step.author),
            one.step.message.decode("utf-8"),
            # What goes comes first: a file may take the place of a folder.
            tuple(
                remote.Entry(change.path)
                if change.mode == NOTHING
                else remote.Entry(change.path, change.mode, change.blob)
                for change in sorted(found, key=lambda change: change.mode != NOTHING)
            ),
        )


def _person(author: bytes) -> Author:
    """Read an author line of a commit."""
    found = _AUTHOR.fullmatch(author)
    assert found is not None  # noqa: S101  git wrote the line
    zone = found["zone"]
    offset = timedelta(hours=int(zone[:2]), minutes=int(zone[2:]))
    place = timezone(-offset if found["sign"] == b"-" else offset) if offset else UTC
    return Author(
        name=found["name"].decode("utf-8"),
        email=found["email"].decode("utf-8"),
        date=datetime.fromtimestamp(int(found["seconds"]), place),
    )


def _moved(name: str, conflict: Conflict) -> OpeningError:
    """Return the error for a patch that the branch moved away from."""
    place = f"hunk {conflict.hunk} of {conflict.path}" if conflict.hunk else conflict.path
    line = f", near line {conflict.line}" if conflict.line else ""
    return OpeningError(
        f"{name}: {conflict.pin} moved so that the patch no longer applies:"
        f" {conflict.patch_file}: {place}{line}: {conflict.why}",
        hint="move it to a newer release: contribbot rebase; nothing was written",
    )


#: How many characters of an id people read.
_SHORT: Final = 12


@dataclass(frozen=True)
class Place:
    """Where a branch goes."""

    #: The upstream's repository, `owner/name`.
    upstream: str
    #: The repository that gets the branch; the upstream itself where it is one's own.
    fork: str
    #: The upstream's branch that pull requests go to, with its newest commit.
    tip: Tip
    #: The page of the server, such as `https://github.com`.
    server: str = ""
    #: The fork's id in GraphQL; empty: not known.
    fork_id: str = ""
    #: Whether there is no fork yet.
    missing: bool = False
    #: Commits of the upstream's branch that the fork's lacks.
    behind: int = 0
    #: Commits of the fork's branch that the upstream's lacks.
    own: int = 0

    @property
    def owner(self) -> str:
        """Whose the fork is."""
        return self.fork.partition("/")[0]


def branch_of(patch: Patch) -> str:
    """Return the name of a patch's branch."""
    return patch.spec.contribution.branch or f"contribbot/{patch.name}"


def sync_fork(github: GitHub, place: Place) -> tuple[str, ...]:
    """Bring a fork that lags behind up to date, unless that would merge into its owner's work.

    GitHub refuses a branch of a fork whose workflows are older than the branch's.
    """
    if not place.behind or place.own:
        return ()
    main = f"{place.tip.name} of {place.fork}"
    try:
        github.repository(place.fork).merge_upstream(place.tip.name)
    except RefusedError as error:
        # A rule may forbid it; whether the branch needs it is for GitHub to say.
        return (f"{main} could not be brought up to date: {error.message}",)
    return (f"brought {main} up to date with {place.upstream}",)


def make_commits(github: GitHub, place: Place, carried: Carried) -> tuple[str, ...]:
    """Make the objects of a branch in the fork."""
    fork = github.repository(place.fork)
    for blob, content in carried.contents.items():
        encoded = base64.b64encode(content).decode()
        _same("blob", blob, fork.create_git_blob(encoded, "base64").sha)
    tree, parent = place.tip.tree, place.tip.sha
    found: list[str] = []
    try:
        for made in carried.commits:
            tree, parent = _commit(github, fork, made, tree, parent)
            found.append(parent)
    except (NotFoundError, RefusedError) as error:
        raise _unready(place, error) from error
    return tuple(found)


def _commit(
    github: GitHub, fork: Repository, made: Made, base: str, parent: str
) -> tuple[str, str]:
    """Make a tree and a commit, and return their ids."""
    from github.GitCommit import GitCommit  # noqa: PLC0415  start-up time
    from github.GitTree import GitTree  # noqa: PLC0415  start-up time
    from github.InputGitAuthor import InputGitAuthor  # noqa: PLC0415  start-up time
    from github.InputGitTreeElement import InputGitTreeElement  # noqa: PLC0415  start-up time

    who = made.author
    # With its own offset: it is part of the commit.
    author = InputGitAuthor(who.name, who.email, who.date.isoformat(timespec="seconds"))
    elements = [InputGitTreeElement(one.path, one.mode, one.kind, sha=one.sha or None)
                for one in made.changes]  # fmt: skip
    requester = github.requester
    tree = fork.create_git_tree(elements, GitTree(requester, {}, {"sha": base}, completed=True))
    parents = [GitCommit(requester, {}, {"sha": parent}, completed=True)]
    commit = fork.create_git_commit(made.message, tree, parents, author, author)
    if commit.sha != commit_id(made.message, tree.sha, [parent], who):
        _look_at(fork, commit.sha, made, tree.sha, parent)
    return tree.sha, commit.sha


def _look_at(fork: Repository, sha: str, made: Made, tree: str, parent: str) -> None:
    """Accept a commit with another id only where it is the same in all that matters."""
    got = fork.get_git_commit(sha)
    who = Author(got.author.name, got.author.email, got.author.date)
    for what, ours, theirs in (
        ("tree", tree, got.tree.sha),
        ("parents", [parent], [one.sha for one in got.parents]),
        ("message", made.message.strip(), got.message.strip()),
        ("author", made.author, who),
    ):
        if ours != theirs:
            raise GitHubError(
                f"{fork.full_name}: GitHub made a commit with another {what} than was asked for",
                hint="report this with the patch; no branch was changed",
            )


def _same(what: str, wanted: str, got: str) -> None:
    if wanted != got:
        raise GitHubError(
            f"GitHub stored another {what} than was sent: {got[:_SHORT]} for {wanted[:_SHORT]}",
            hint="run it again; no branch was changed",
        )


def _unready(place: Place, error: GitHubError) -> OpeningError:
    """Return the error for a fork that does not take what stands on the upstream's newest."""
    tip = f"{place.upstream}@{place.tip.sha[:_SHORT]}"
    main = f"{place.tip.name} of {place.fork}"
    page = f"{place.server}/{place.fork}"
    if place.own:
        mine = f"{place.own} commit{'s' if place.own > 1 else ''} of your own"
        said = (
            f"{main} has {mine} and is {place.behind} behind, and contribbot merges nothing into it"
        )
        then = f"move them to another branch and sync the fork on {page}, and run this again; or "
    else:
        said, then = f"GitHub takes no branch on {tip} there", f"sync the fork on {page}; or "
    return OpeningError(f"{place.fork}: {said}: {error.message}", hint=f"{then}{WORKFLOW_HINT}")


def refuse_foreign(
    github: GitHub, place: Place, branch: str, head: str | None, ours: frozenset[str],
    *, lost: str = "",
) -> None:  # fmt: skip
    """Refuse to go on where a branch has a commit that is not one of ours."""
    if head is None or head in ours:
        return
    found = github.repository(place.fork).get_git_commit(head)
    subject = found.message.partition("\n")[0]
    what = f"{head[:_SHORT]} {subject!a} by {found.author.name} <{found.author.email}>"
    if lost:
        raise OpeningError(
            f"{place.fork}: the branch {branch} has a commit that nobody noted: {what}; there is"
            f" nothing in {lost} of such a branch",
            hint=f"if contribbot made it, bring {lost} back from your version control; else"
            " delete the branch there (which closes a pull request from it), or name another in"
            " [contribution] of patch.toml; nothing was overwritten",
        )
    raise OpeningError(
        f"{place.fork}: the branch {branch} has a commit that contribbot did not make: {what}",
        hint="take its change into the patch (contribbot edit) and remove the commit from the"
        " branch, or name another branch in [contribution] of patch.toml; nothing was overwritten",
    )


def put_ref(
    github: GitHub, place: Place, branch: str, head: str, *, was: str | None, ours: frozenset[str]
) -> None:
    """Give a branch its commit, unless it has one by then that is not ours."""
    fork = github.repository(place.fork)
    if was is None:
        _make_ref(github, place, branch, head, ours)
        return
    if place.fork_id and was != head:
        github.move_ref(place.fork_id, branch, old=was, new=head)
    # See whether it moved. Else REST must do it, and that does not ask what a branch had:
    # this look is as late as can be.
    now = head_of(fork, branch)
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
        # The objects are there: it is the branch that GitHub hides behind this.
        raise _unready(place, error) from error
    except RefusedError as error:
        now = head_of(fork, branch)
        if now == head:
            return  # made before, in an attempt whose answer was lost
        refuse_foreign(github, place, branch, now, ours | {head})
        above, slash, _ = branch.partition("/")
        way = f"a branch {above} there leaves no room for it, or " if slash else ""
        raise OpeningError(
            f"{place.fork}: the branch {branch} cannot be made: {error.message}",
            hint=f"{way}a rule of that repository forbids it: name another in"
            " [contribution] of patch.toml",
        ) from error


def refuses_pulls(upstream: Repository) -> str:
    """Say why an upstream takes no pull requests of this account; or nothing."""
    said = upstream.raw_data
    if said.get("archived"):
        return "is archived: its owners take no changes"
    if said.get("disabled"):
        return "is switched off"
    if said.get("has_pull_requests") is False:
        return "has pull requests switched off"
    if said.get("pull_request_creation_policy") == "collaborators_only" and not may_push(upstream):
        return "takes pull requests from its collaborators alone"
    return ""
