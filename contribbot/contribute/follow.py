"""Following the contributions of a queue: one look at each, four at a time.

What changed its state since is written to the journal, once. What cannot be looked at says
so, and keeps nobody from hearing of the others.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot.contribute.body import rules_of
from contribbot.contribute.landing import Fate, Landing, events_of, landing
from contribbot.contribute.model import (
    CiRules,
    CiState,
    Followed,
    FollowReport,
    Kept,
    Rules,
    State,
    Step,
    TargetCi,
)
from contribbot.contribute.publication import PULL, Contribution, state, waits_for
from contribbot.contribute.reviews import Talk, counted, decision, line_of, listen
from contribbot.errors import ExitCode, GitHubError, RateLimitError, TokenError
from contribbot.files import write_atomically
from contribbot.github.cache import make_private
from contribbot.github.fields import login_of, name_of, whole
from contribbot.model.history import Event, PullRequestEvent, VersionEvent
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.CommitStatus import CommitStatus
    from github.IssueEvent import IssueEvent
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub, ReviewThread


log: Final = logging.getLogger(__name__)

#: What changes with what is said or done to the pull request, and not with what others do to
#: its base, or GitHub's trial merges.
_TELLING: Final = (
    "number", "state", "title", "body", "draft", "updated_at", "closed_at", "merged_at",
)  # fmt: skip


def load(queue: Queue, name: str) -> Kept | None:
    """Return what is kept of a patch's pull request; None: nothing that can be read."""
    try:
        return Kept.model_validate_json(_file(queue, name).read_bytes())
    except (OSError, ValidationError):
        return None


def save(queue: Queue, name: str, kept: Kept) -> None:
    """Keep a look; that it cannot be written costs requests, and is no error."""
    path = _file(queue, name)
    make_private(path.parent)
    try:
        write_atomically(path, kept.model_dump_json().encode())
    except OSError as error:
        log.debug("the last look at %s cannot be kept: %s", name, error)


def digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def pull_digest(pull: PullRequest) -> str:
    """Return a digest of what of a pull request says that something happened to it.

    GitHub's answer, and with it its ETag, also changes with what happens to the repository
    around it: that is no reason to ask for all comments again.
    """
    said = {key: pull.raw_data.get(key) for key in _TELLING}
    sides = (pull.head.ref, pull.head.sha, name_of(pull.head.repo), pull.base.ref)
    labels = sorted(label.name for label in pull.labels)
    return digest(json.dumps([said, sides, name_of(pull.base.repo), labels]))


def _file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"


@dataclass(frozen=True)
class Sight:
    """What was seen of a pull request."""

    #: It, as `owner/name#number`.
    reference: str
    word: str
    #: How it came to that, as `Landing.words`; or empty.
    why: str
    head: str


def note(queue: Queue, patch: str, seen: Sight) -> str:
    """Write a change of state to the journal."""
    # Nothing is written, and nobody waited for, where there is no news.
    if not _is_news(_known(queue, patch), seen):
        return ""
    with history.held(queue.folder):
        # Read anew: another contribbot may have noted it meanwhile.
        now = _known(queue, patch)
        if not _is_news(now, seen):
            return ""
        event = PullRequestEvent(
            time=history.now(),
            summary=f"{seen.reference} {_words(now, seen)}",
            reference=seen.reference,
            state=seen.word,
            fork=now.fork or None,
            branch=now.branch or None,
            head=seen.head,
        )
        history.append_held(queue.folder, patch, event)
    return now.state or "not opened"


def _known(queue: Queue, patch: str) -> Contribution:
    return state(history.read(queue.folder, patch)) or Contribution()


def _is_news(now: Contribution, seen: Sight) -> bool:
    if now.reference and now.reference != seen.reference:
        return False
    return (now.reference, now.state) != (seen.reference, seen.word)


def _words(was: Contribution, seen: Sight) -> str:
    """Say what happened, behind the name of the pull request."""
    again = " again" if was.ended else ""
    words = {
        "draft": f"is a draft{again}",
        "open": f"is open{again}",
        "merged": f"was {seen.why or 'merged'}",
        "reverted": f"was {seen.why or 'reverted'}",
        "closed": f"is closed: {seen.why}" if seen.why else "was closed without being merged",
    }.get(seen.word, f"is {seen.word}")
    if was.reference:
        return words
    # One that contribbot opened itself, and then lost the answer, is found in the same way.
    return f"was opened{' by a person' if was.handed_off else ''}; it {words}"


#: Characters of a job's name that are looked at, and shown.
_NAME: Final = 200
#: Jobs that failed that are named.
_NAMED: Final = 5
_GOOD: Final = frozenset({"success"})
#: Ended, and nothing was tried.
_IDLE: Final = frozenset({"skipped", "neutral"})
#: How a target stands of which no more is to be expected.
_OVER: Final = frozenset({"passed", "not run"})


@dataclass(frozen=True)
class _Job:
    """A job: its name, and how it stands; `why` is GitHub's word for a failure."""

    name: str
    state: CiState
    why: str = ""


def by_target(
    runs: Sequence[CheckRun], statuses: Sequence[CommitStatus], rules: CiRules | None
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Sort jobs by the targets that they are for."""
    jobs = [*(_of_run(one) for one in runs), *(_of_status(one) for one in statuses)]
    matched: set[int] = set()
    found = []
    for target, pattern in (rules.targets if rules else {}).items():
        mine = [
            number for number, job in enumerate(jobs) if re.search(pattern, job.name) is not None
        ]
        matched |= set(mine)
        found.append(_together(target, [jobs[number] for number in mine]))
    rest = [job for number, job in enumerate(jobs) if number not in matched]
    return tuple(found), _together("other", rest) if rest else None


def has_ended(found: Sequence[TargetCi], other: TargetCi | None) -> bool:
    """Return whether no job runs or has failed, and each target had one: no more is expected.

    What failed is often started again, and nothing of the pull request tells of that.
    """
    every = [*found, *([other] if other else [])]
    return bool(every) and all(one.state in _OVER and not one.running for one in every)


def _together(target: str, jobs: Sequence[_Job]) -> TargetCi:
    states = {job.state for job in jobs}
    # A failure is known before the others have ended; what was skipped is no pass.
    order: tuple[CiState, ...] = ("failed", "running", "passed", "not run")
    state: CiState = next((one for one in order if one in states), "not started")
    failed = [job for job in jobs if job.state == "failed"]
    return TargetCi(
        target=target,
        state=state,
        jobs=len(jobs),
        running=sum(job.state == "running" for job in jobs),
        failed=tuple(f"{job.name} ({job.why})" for job in failed[:_NAMED]),
        failures=len(failed),
    )


def _of_run(run: CheckRun) -> _Job:
    name = line_of(run.name, _NAME)
    if run.status != "completed" or run.conclusion is None:
        return _Job(name, "running")
    if run.conclusion in _GOOD:
        return _Job(name, "passed")
    if run.conclusion in _IDLE:
        return _Job(name, "not run")
    return _Job(name, "failed", line_of(run.conclusion, 40).replace("_", " "))


def _of_status(status: CommitStatus) -> _Job:
    name = line_of(status.context, _NAME)
    if status.state == "pending":
        return _Job(name, "running")
    if status.state == "success":
        return _Job(name, "passed")
    return _Job(name, "failed", status.state)


#: Stands for every repository.
_EVERYWHERE: Final = ""


class Upstreams:
    """What many looks need of the same repositories, each asked for once."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._lock = threading.Lock()
        self._branches: dict[str, str] = {}
        self._asking = threading.Lock()
        self._threads: dict[str, bool] = {}
        self._refusals: dict[str, GitHubError] = {}

    def refusal(self, repository: str) -> GitHubError | None:
        """Return why nothing more is to be asked about a repository; None: nothing speaks for it.

        Whoever goes on asking after a limit, or with a token that is not taken, is shut out.
        """
        return self._refusals.get(_EVERYWHERE) or self._refusals.get(repository)

    def heed(self, repository: str, error: GitHubError) -> None:
        """Remember an error that the next request would only meet again."""
        if isinstance(error, RateLimitError):
            self._refusals.setdefault(_EVERYWHERE, error)
        elif isinstance(error, TokenError):
            # An organisation may refuse a token that the others take.
            self._refusals.setdefault(repository, error)

    def default_branch(self, repository: str) -> str:
        """Return the default branch of a repository."""
        with self._lock:
            if repository not in self._branches:
                self._branches[repository] = (
                    self._github.repository(repository).complete().default_branch
                )
            return self._branches[repository]

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """Return which threads are resolved; None where GraphQL is refused, asked once a run."""
        with self._asking:
            if repository not in self._threads:
                # The first answer says for all whether there is any.
                found = self._github.review_threads(repository, number)
                self._threads[repository] = found is not None
                return found
        return (
            self._github.review_threads(repository, number) if self._threads[repository] else None
        )


@dataclass(frozen=True)
class Subject:
    """What is looked at."""

    patch: str
    #: Whether the queue still has it.
    queued: bool
    repository: str
    known: Contribution
    rules: Rules | None = None
    kept: Kept | None = None
    above: tuple[str, ...] = ()
    #: The pull requests that go to its upstream before it.
    waits: tuple[str, ...] = ()

    def is_ours(self, head: str) -> bool:
        """Return whether contribbot gave a commit to the branch; without a journal it may have."""
        return not self.known.heads or head in self.known.heads

    @property
    def rules_digest(self) -> str:
        """Digest of how CI is read."""
        return digest(self.rules.ci.model_dump_json() if self.rules else "")

    def blank(self) -> Followed:
        """Return what is known without asking."""
        kept = self.kept.followed if self.kept else None
        if kept is not None and kept.reference == self.known.reference:
            return kept.model_copy(
                update={"queued": self.queued, "new": (), "more": 0, "change": "", "error": ""}
            )
        return Followed(
            patch=self.patch,
            queued=self.queued,
            repository=self.repository,
            reference=self.known.reference,
        )


@dataclass(frozen=True)
class Seen:
    """What a look saw."""

    followed: Followed
    #: What is to be remembered; None: nothing.
    kept: Kept | None = None
    #: What is for the journal, where that does not know it; None: nothing was read.
    sight: Sight | None = None


_YOU: Final = "you"
_SHORT: Final = 12


def steps(found: Followed, subject: Subject, head: str) -> tuple[Step, ...]:
    """Return what is next, what concerns the person first."""
    if found.state not in {"draft", "open"}:
        return tuple(Step(who=_YOU, what=one) for one in _of_ended(found, subject))
    if not found.queued:
        return (Step(who=_YOU, what="close it on its page, or see it through there"),)
    return tuple(_of_open(found, subject, head))


def _of_ended(found: Followed, subject: Subject) -> list[str]:
    name, above = found.patch, subject.above
    if found.state == "not opened":
        return [f"open the pull request on GitHub, or with contribbot open-pr {name}"]
    if not found.queued:
        return []
    if found.state in {"merged", "landed"}:
        stand = f"{', '.join(above)} {'stands' if len(above) == 1 else 'stand'} on it"
        moved = f"move the pin to a release that has it (contribbot rebase): {stand}"
        return [moved if above else f"take it out of the queue: contribbot retire {name}"]
    if found.state == "reverted":
        return [f"read why {found.reverted[:_SHORT]} took it back"]
    if found.state == "closed":
        return [f"read why it was closed; reopen it, or contribbot retire {name} --why REASON"]
    return []


def _of_open(found: Followed, subject: Subject, head: str) -> list[Step]:
    told = [Step(who=_YOU, what=one) for one in _yours(found, subject, head)]
    if found.start:
        waiting = ", ".join(one.target for one in found.ci if one.state == "not started")
        told.append(Step(who="anyone entitled", what=f"start CI for {waiting}: {found.start}"))
    if any(one.running for one in (*found.ci, *([found.other] if found.other else []))):
        told.append(Step(who="CI", what="end its jobs"))
    if found.state == "draft":
        return told
    if found.decision == "none":
        told.append(Step(who="reviewers", what="review it"))
    elif found.decision == "approved" and not told:
        # Its branch holds the commits of those below it too.
        on = f"; it stands on {', '.join(subject.waits)}" if subject.waits else ""
        told.append(Step(who="maintainers", what=f"merge it{on}"))
    return told


def _yours(found: Followed, subject: Subject, head: str) -> list[str]:
    name, rules = found.patch, subject.rules
    told = []
    if not subject.is_ours(head):
        where = f"{head[:_SHORT]} on {subject.known.branch}"
        told.append(f"look at {where}, which contribbot did not make: nothing here proves it")
    if found.mergeable == "no":
        told.append(f"bring it onto {found.base}, with which it conflicts")
    elif found.behind and rules is not None and rules.ci.current:
        told.append(f"bring it up to date: CI refuses a branch behind {found.base}")
    if found.threads.open:
        count = found.threads.open
        what = "thread" if count == 1 else "threads"
        told.append(f"answer {count} open {what}: contribbot reviews {name}")
    if found.decision == "changes requested":
        told.append(f"see to the changes that {', '.join(found.by)} asked for")
    broken = [one.target for one in found.ci if one.state == "failed"]
    if found.other is not None and found.other.state == "failed":
        broken.append("other jobs")
    if broken:
        told.append(f"see why CI failed: {', '.join(broken)}")
    if found.state == "draft" and not told:
        told.append("mark it ready for review, when it is")
    return told


#: What the journal calls a pull request that was on the default branch once.
_WAS_THERE: Final = frozenset({"merged", "reverted"})
_FATES: Final[dict[Fate, State]] = {
    Fate.MERGED: "merged",
    Fate.LANDED: "landed",
    Fate.REVERTED: "reverted",
    Fate.CLOSED: "closed",
}


@dataclass
class Look:
    """A look at one subject."""

    github: GitHub
    upstreams: Upstreams
    subject: Subject
    _events: tuple[IssueEvent, ...] | None = field(default=None, init=False)

    def see(self) -> Seen:
        """Look."""
        subject = self.subject
        known, kept = subject.known, self._kept()
        if not known.reference:
            return self._handed_off()
        # What was merged stays merged, so one request shows if it was taken back.
        if known.state in _WAS_THERE and kept is not None and kept.events and kept.done:
            events = self._happened(known.number)
            if _events_digest(events) == kept.events:
                return Seen(self._settled(subject.blank()), kept)
        pull = self.github.pull(subject.repository, known.number).complete()
        return self.judge(pull, kept)

    def _handed_off(self) -> Seen:
        """Look whether a person has opened the pull request by now."""
        subject = self.subject
        owner = subject.known.fork.partition("/")[0]
        found = self.github.pulls_from(subject.repository, owner, subject.known.branch)
        if not found:
            blank = subject.blank().model_copy(update={"state": "not opened"})
            return Seen(self._settled(blank))
        number = next((one for one in found if one.state == "open"), found[0]).number
        # A list lacks what a single answer has: mergeability.
        pull = self.github.pull(subject.repository, number).complete()
        self.subject = replace(
            subject,
            known=replace(subject.known, reference=f"{subject.repository}#{number}"),
        )
        return self.judge(pull, None)

    def judge(self, pull: PullRequest, kept: Kept | None) -> Seen:
        """Say where a pull request stands."""
        now = self.subject.blank().model_copy(
            update={
                "url": line_of(pull.html_url),
                "title": line_of(pull.title),
                "base": line_of(pull.base.ref),
            }
        )
        same = kept is not None and kept.pull == pull_digest(pull)
        if pull.state == "open":
            return self._open(pull, now, kept, same=same)
        if same and kept is not None and kept.done and now.state == "closed":
            return Seen(self._settled(now), kept, _sight(now, pull, "closed"))
        return self._ended(pull, now, kept)

    def _open(self, pull: PullRequest, now: Followed, kept: Kept | None, *, same: bool) -> Seen:
        """Say where an open one stands: what is as it was is not asked for."""
        now = now.model_copy(
            update={
                "state": "draft" if pull.draft else "open",
                "mergeable": {True: "yes", False: "no", None: "not known"}[pull.mergeable],
            }
        )
        # GitHub does not always say by `base.sha` that the base moved: what is told has a time.
        if kept is None or not same or kept.base != pull.base.sha:
            behind = self.github.repository(self.subject.repository).compare(
                pull.base.ref, pull.head.sha, comparison_commits_per_page=1
            )
            now = now.model_copy(update={"behind": behind.behind_by, "compared": _now()})
        # Other rules read other things out of the same jobs.
        rules = self.subject.rules_digest
        done = same and kept is not None and kept.done and kept.rules == rules
        if not done:
            now, done = self._ci(pull, now)
        talk = Talk() if kept is None else Talk(kept.until, kept.seen)
        if not same:
            now, talk = self._talk(pull, now, talk)
            now = self._history(pull, now)
        elif not now.threads.known and now.threads.open + now.threads.answered:
            # GitHub refused to say: perhaps not for good.
            told = self.upstreams.review_threads(self.subject.repository, pull.number)
            if told is not None:
                threads = counted(pull, told)
                now = now.model_copy(update={"threads": threads, "looked": _now()})
        now = self._settled(now, pull.head.sha)
        word = "draft" if pull.draft else "open"
        return Seen(now, self._keep(pull, now, talk, done=done), _sight(now, pull, word))

    def _ci(self, pull: PullRequest, now: Followed) -> tuple[Followed, bool]:
        repository, rules = self.subject.repository, self.subject.rules
        found, other = by_target(
            whole(self.github.commit(repository, pull.head.sha).get_check_runs(filter="latest")),
            self.github.statuses(repository, pull.head.sha),
            rules.ci if rules else None,
        )
        waits = rules is not None and any(one.state == "not started" for one in found)
        start = " ".join(rules.ci.start.split()) if rules is not None and waits else ""
        told = now.model_copy(update={"ci": found, "other": other, "start": start})
        return told, has_ended(found, other)

    def _talk(self, pull: PullRequest, now: Followed, talk: Talk) -> tuple[Followed, Talk]:
        repository = self.subject.repository
        told = self.upstreams.review_threads(repository, pull.number)
        heard = listen(self.github, repository, pull, talk, told)
        says, by = decision(heard.reviews, login_of(pull.user) or "")
        now = now.model_copy(
            update={
                "threads": heard.threads,
                "decision": says,
                "by": by,
                "new": heard.new,
                "more": heard.more,
                "looked": _now(),
            }
        )
        return now, heard.talk

    def _history(self, pull: PullRequest, now: Followed) -> Followed:
        """Tell of an open one that it had been merged: some projects reopen what they revert."""
        if self.subject.known.state not in _WAS_THERE:
            return now.model_copy(update={"commit": "", "reverted": "", "why": ""})
        found = self._landing(pull)
        why = found.words if found.commit else ""
        return now.model_copy(update={"commit": found.commit, "reverted": found.revert, "why": why})

    def _ended(self, pull: PullRequest, now: Followed, kept: Kept | None) -> Seen:
        """Say how one ended, and what was said on the way."""
        talk = Talk() if kept is None else Talk(kept.until, kept.seen)
        found = self._landing(pull)
        if kept is None or kept.pull != pull_digest(pull):
            now, talk = self._talk(pull, now, talk)
        state = _FATES[found.fate]
        now = now.model_copy(
            update={
                "state": state,
                "commit": found.commit,
                "reverted": found.revert,
                "why": found.words if found.fate is not Fate.CLOSED else found.why,
                "mergeable": "not known",
                "behind": None,
                "start": "",
            }
        )
        now = self._settled(now)
        word = "merged" if state == "landed" else state
        kept = self._keep(pull, now, talk, done=found.sure)
        return Seen(now, kept, _sight(now, pull, word))

    def _landing(self, pull: PullRequest) -> Landing:
        repository = self.subject.repository
        branch = self.upstreams.default_branch(repository)
        events = self._happened(pull.number)
        return landing(self.github, repository, pull, branch, events)

    def _happened(self, number: int) -> tuple[IssueEvent, ...]:
        if self._events is None:
            self._events = events_of(self.github, self.subject.repository, number)
        return self._events

    def _settled(self, now: Followed, head: str = "") -> Followed:
        """Add what is next; `head` is the commit of an open one's branch."""
        return now.model_copy(update={"next": steps(now, self.subject, head)})

    def _kept(self) -> Kept | None:
        """Return the last look, if it was at this pull request."""
        kept = self.subject.kept
        return kept if kept and kept.reference == self.subject.known.reference else None

    def _keep(self, pull: PullRequest, now: Followed, talk: Talk, *, done: bool) -> Kept:
        events = "" if self._events is None else _events_digest(self._events)
        return Kept(
            reference=self.subject.known.reference,
            rules=self.subject.rules_digest,
            pull=pull_digest(pull),
            base=pull.base.sha,
            head=pull.head.sha,
            events=events,
            until=talk.until,
            seen=talk.seen,
            done=done,
            followed=now.model_copy(update={"new": (), "more": 0, "change": ""}),
        )


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _sight(now: Followed, pull: PullRequest, word: str) -> Sight:
    return Sight(now.reference, word, now.why, pull.head.sha)


def _events_digest(events: Sequence[IssueEvent]) -> str:
    return digest(" ".join(str(one.id) for one in events))


_AT_ONCE: Final = 4
_PATCH_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")

#: Opens GitHub, when there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]


@dataclass(frozen=True)
class Following:
    """What a run found out."""

    report: FollowReport
    #: What is to be remembered of it once it was shown, by patch.
    looks: dict[str, Kept]
    #: Why a change is not in the journal; None: all are.
    unwritten: OSError | None = None

    def remember(self, queue: Queue) -> None:
        """Remember what was shown: the next run calls nothing of it new."""
        for name, kept in self.looks.items():
            save(queue, name, kept)

    @property
    def exit_code(self) -> ExitCode:
        """What it says to the shell."""
        failed = any(one.error for one in self.report.contributions)
        return ExitCode.MACHINE if failed else ExitCode.OK


def follow(queue: Queue, connect: Connect) -> Following:
    """Look at every contribution: those of the queue, and open ones of patches that left it."""
    subjects = subjects_of(queue)
    without = tuple(name for name in queue.specs if name not in {one.patch for one in subjects})
    if not subjects:
        return Following(FollowReport(contributions=(), without=without), {})
    told: list[Followed] = []
    looks: dict[str, Kept] = {}
    unwritten: OSError | None = None
    with connect() as github:
        upstreams = Upstreams(github)
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="follow")
        try:
            for subject, seen in zip(
                subjects, pool.map(lambda one: _look(github, upstreams, one), subjects), strict=True
            ):
                change = ""
                try:
                    change = note(queue, subject.patch, seen.sight) if seen.sight else ""
                except OSError as error:
                    # What was seen is told all the same; the next run notes it.
                    unwritten = error
                told.append(seen.followed.model_copy(update={"change": change}))
                if seen.kept is not None:
                    looks[subject.patch] = seen.kept
        finally:
            # After an interruption those that nobody began are not begun.
            pool.shutdown(cancel_futures=True)
    return Following(FollowReport(contributions=tuple(told), without=without), looks, unwritten)


def subjects_of(queue: Queue) -> list[Subject]:
    """Return what there is to look at: the queue's in its order, then those that left it."""
    found = []
    for name in (*queue.specs, *_past(queue)):
        events = history.read(queue.folder, name)
        queued = name in queue.specs
        known = state(events, digest=queue.patch(name).digest if queued else "")
        if known is None or not _is_followed(known, queued=queued):
            continue
        upstream = queue.specs[name].upstream if queued else _upstream(events)
        described = queue.upstreams.get(upstream)
        repository = known.reference.partition("#")[0] or (
            described.repository if described is not None else ""
        )
        if repository:
            rules, kept = _rules(queue, upstream), load(queue, name)
            above = tuple(one for one, spec in queue.specs.items() if name in spec.depends_on)
            waits = waits_for(queue, name) if queued else ()
            found.append(Subject(name, queued, repository, known, rules, kept, above, waits))
    return found


def _past(queue: Queue) -> list[str]:
    """Return the patches that left the queue and have a history."""
    return sorted(
        path.parent.name
        for path in (queue.folder / "history").glob("*/journal.jsonl")
        if path.parent.name not in queue.specs and _PATCH_NAME.fullmatch(path.parent.name)
    )


def _is_followed(known: Contribution, *, queued: bool) -> bool:
    """Return whether there is something to ask of GitHub."""
    if known.reference:
        return queued or not known.ended
    waits = known.handed_off or any(one.what == PULL for one in known.open)
    return waits and bool(known.fork and known.branch)


def _upstream(events: Sequence[Event]) -> str:
    """Return the upstream of a patch that left the queue."""
    versions = [one for one in events if isinstance(one, VersionEvent)]
    return versions[-1].upstream if versions else ""


def _rules(queue: Queue, upstream: str) -> Rules | None:
    """Return the rules of an upstream; None where nobody has written any."""
    from contribbot import upstreams  # noqa: PLC0415  the name is taken above

    return rules_of(queue, upstream) if upstream in upstreams.contributing(queue.folder) else None


def _look(github: GitHub, upstreams: Upstreams, subject: Subject) -> Seen:
    """Look at one; that it cannot be looked at is what is seen of it."""
    error, before = upstreams.refusal(subject.repository), "nothing more was asked after "
    if error is None:
        try:
            return Look(github, upstreams, subject).see()
        except GitHubError as fault:
            upstreams.heed(subject.repository, fault)
            error, before = fault, ""
    said = f"{before}{error.message}{f'; {error.hint}' if error.hint else ''}"
    return Seen(subject.blank().model_copy(update={"error": line_of(said, 600)}))
