"""Opening a pull request, or bringing it up to date: the same command does either.

Before each write that must not happen twice the journal says what is meant, and after it
that it is done. So a run that was cut off anywhere is resumed by the next: it looks at what
GitHub has, and does what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from contribbot.contribute.book import Book
from contribbot.contribute.opening.base import Target
from contribbot.contribute.opening.branch import (
    Place,
    make_commits,
    put_ref,
    refuse_foreign,
    sync_fork,
)
from contribbot.contribute.opening.carryover import Carried, carry_onto
from contribbot.contribute.opening.opened import Job, Opened, Tools, Wanted
from contribbot.contribute.opening.preconditions import (
    fork_of,
    look,
    make_fork,
    note_fork,
    place_at,
)
from contribbot.contribute.opening.pulling import create, hand_off, note_pull, pull_of, update
from contribbot.contribute.stack import check_below, digests_below
from contribbot.contribute.state import BRANCH
from contribbot.errors import OpeningError, UsageError
from contribbot.files import lock
from contribbot.github.fields import name_of
from contribbot.github.git_data import head_of
from contribbot.model.history import IntentEvent
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.PullRequest import PullRequest
    from github.Repository import Repository

_SHORT: Final = 12


def open_all(
    queue: Queue,
    names: Sequence[str],
    tools: Tools,
    wanted: Wanted,
    *,
    told: Callable[[Opened], None],
) -> None:
    """Open or update the pull requests of patches, each after what it depends on."""
    if wanted.dry_run:
        opening = _Opening(queue, tools, wanted)
        for name in names:
            told(opening.open(name))
        return
    with lock(queue.local / "open-pr.lock", "opening pull requests"):
        opening = _Opening(queue, tools, wanted)
        for name in names:
            told(opening.open(name))


class _Opening:
    """One run: what it has learned of upstreams and forks serves all its patches."""

    def __init__(self, queue: Queue, tools: Tools, wanted: Wanted) -> None:
        self._queue, self._tools, self._wanted = queue, tools, wanted
        self._github = tools.github
        self._book = Book(queue, dry=wanted.dry_run)
        self._places: dict[str, tuple[Place, Repository]] = {}
        self._rehearsed: set[str] = set()

    def open(self, name: str) -> Opened:
        """Open or update the pull request of a patch."""
        patch = self._queue.patch(name)
        if not patch.files:
            raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
        waits = check_below(self._queue, self._book, name, rehearsed=self._rehearsed)
        text = self._tools.text(patch)
        self._tools.attested(patch, text)
        place = self._place(patch)
        job = Job(
            self._queue, self._tools, self._wanted, self._book, patch, text, place,
            self._github.me, self._tools.branch(patch),
        )  # fmt: skip
        known = self._book.contribution(name)
        renamed = _refuse_other_place(job)
        fork = self._github.repository(place.fork)
        was = None if place.missing else head_of(fork, job.branch)
        pull = pull_of(job) if was is not None or known.fork or known.open else None
        lost = "" if known.heads else f"history/{name}"
        refuse_foreign(self._github, place, job.branch, was, known.heads, lost=lost)
        if pull is not None:
            # Before the branch moves: its readers know what it carries until then.
            note_pull(job, pull)
            _refuse_other_base(job, pull)
        opened = self._branch(job, was)
        job = replace(job, place=self._place(patch))
        opened = replace(opened, waits_for=tuple(waits.values()), notes=(*renamed, *opened.notes))
        if self._wanted.dry_run:
            self._rehearsed.add(name)
        if self._wanted.handoff:
            return hand_off(job, opened, pull)
        return create(job, opened) if pull is None else update(job, opened, pull)

    def _place(self, patch: Patch) -> Place:
        """Find the fork, and the upstream's newest commit; once an upstream."""
        repository, github, tools = patch.upstream.repository, self._github, self._tools
        if repository not in self._places:
            upstream = look(github, repository)
            known = self._book.contribution(patch.name).fork
            fork = fork_of(github, upstream, known)
            if fork is not None:
                note_fork(github, self._book, patch.name, upstream, fork)
            place = place_at(github, upstream, fork, tools.server, wait=tools.wait)
            self._places[repository] = place, upstream
        return self._places[repository][0]

    def _ready_place(self, patch: Patch) -> tuple[Place, tuple[str, ...]]:
        """Make the fork where there is none, and bring one that lags behind up to date.

        As late as there is something to put into it.
        """
        repository, tools = patch.upstream.repository, self._tools
        place, upstream = self._places[repository]
        if place.missing:
            fork = make_fork(self._github, upstream, self._book, patch.name, wait=tools.wait)
            other = fork.full_name.lower() != place.fork.lower()
            place = replace(place, fork=fork.full_name, fork_id=fork.node_id, missing=False)
            if other:
                # It was there before, under another name.
                found = place_at(self._github, upstream, fork, tools.server, wait=tools.wait)
                place = replace(place, behind=found.behind, own=found.own)
        notes = sync_fork(self._github, place)
        place = replace(place, behind=0) if notes else place
        self._places[repository] = place, upstream
        return place, notes

    def _branch(self, job: Job, was: str | None) -> Opened:
        """See that the branch has the patch."""
        patch, place = job.patch, job.place
        known = self._book.contribution(patch.name)
        done = Opened(
            patch.name, place.upstream, place.fork, job.branch, place.tip.name, known.base,
            known.head,
        )  # fmt: skip
        below = digests_below(self._queue, patch.name)
        same = (known.digest, dict(known.below)) == (patch.digest, below)
        if was is not None and was == known.head and same:
            if known.base == place.tip.sha:
                return done
            if not self._wanted.up_to_date:
                note = (
                    f"it stands on {known.base[:_SHORT]}, and {place.tip.name} has moved on to"
                    f" {place.tip.sha[:_SHORT]}; --up-to-date carries it there"
                )
                return replace(done, notes=(note,))
        target = Target(self._github, place.upstream, place.tip)
        carried = carry_onto(self._queue, patch.name, target, progress=self._tools.progress)
        return self._push(job, replace(done, notes=carried.notes), was, carried)

    def _push(self, job: Job, done: Opened, was: str | None, carried: Carried) -> Opened:
        """Make the commits, and give them to the branch."""
        patch = job.patch
        place, notes = self._ready_place(patch)
        job, done = replace(job, place=place), replace(done, fork=place.fork)
        commits = make_commits(self._github, place, carried)
        head, version = commits[-1], self._book.version(patch)
        said = f"{job.key} the commit {head[:_SHORT]} (v{version})"
        intent = IntentEvent(
            time=history.now(),
            summary=f"about to give {said}",
            what=BRANCH,
            key=job.key,
            fork=place.fork,
            branch=job.branch,
            head=head,
            base=place.tip.sha,
            digest=patch.digest,
            below=digests_below(self._queue, patch.name),
            version=version,
        )
        ours = self._book.contribution(patch.name).heads
        self._book.note(patch.name, intent)
        put_ref(self._github, place, job.branch, head, was=was, ours=ours)
        self._book.done(patch.name, intent, f"gave {said}")
        made = zip(commits, carried.commits, strict=True)
        return replace(
            done,
            base=place.tip.sha,
            head=head,
            commits=tuple((commit, one.subject) for commit, one in made),
            branch_was="made" if was is None else "kept" if was == head else "moved",
            notes=(*done.notes, *notes),
        )


def _refuse_other_place(job: Job) -> tuple[str, ...]:
    """Refuse to open a second pull request from another branch or fork."""
    known, upstream = job.book.contribution(job.patch.name), job.place.upstream
    owner, _, _ = known.fork.partition("/")
    before = f"{known.fork}:{known.branch}"
    # A fork that is renamed keeps its branches, and they their pull requests.
    if not owner or (owner.lower(), known.branch) == (job.place.owner.lower(), job.branch):
        return ()
    there = known.reference if known.reference and not known.ended else ""
    if not there:
        # One that nobody noted: a person opened it, or a run was cut off just then.
        pulls = job.tools.github.pulls_from(upstream, owner, known.branch)
        there = next((f"{upstream}#{one.number}" for one in pulls if one.state == "open"), "")
    if not there:
        return ()
    # GitHub names the fork as it is called today.
    head = job.tools.github.pull(upstream, int(there.rpartition("#")[2])).complete().head
    name = name_of(head.repo)
    if f"{name}:{head.ref}".lower() == job.key.lower():
        return (f"{known.fork} is called {job.place.fork} now: your account was renamed",)
    other = name and name.lower() != known.fork.lower()
    now = f" (which is called {name} now)" if other else ""
    raise OpeningError(
        f"{job.patch.name}: its pull request {there} is open from {before}{now}, and"
        f" this would open a second one from {job.key}",
        hint="use the same branch and account, or close that one and run contribbot follow",
    )


def _refuse_other_base(job: Job, pull: PullRequest) -> None:
    """Refuse to carry a branch to where its pull request does not go."""
    reference, tip = f"{job.place.upstream}#{pull.number}", job.place.tip
    if pull.base.ref != tip.name:
        raise OpeningError(
            f"{job.patch.name}: {reference} goes to {pull.base.ref}, and contribbot carries"
            f" patches to {tip.name}: there it would show the commits of both",
            hint=f"change its base on its page, {pull.html_url}, or carry on with it by hand;"
            " nothing was changed there",
        )
