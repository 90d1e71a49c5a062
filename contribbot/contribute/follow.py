"""Following the contributions of a queue; what changed goes into the journal, once."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot import upstreams
from contribbot.contribute.body import rules_of
from contribbot.contribute.landing import Landing, LandingFate, events_of, judge_landing
from contribbot.contribute.model import (
    CiState,
    DiscussionCursor,
    Followed,
    FollowReport,
    NextStep,
    PollState,
    Rules,
    TargetCi,
    json_digest,
)
from contribbot.contribute.publication import Publication, state, waits_for
from contribbot.contribute.reviews import poll_discussion
from contribbot.errors import ExitCode, GitHubError, RateLimitError, TokenError
from contribbot.files import make_private, write_atomically
from contribbot.github.fields import name_of, whole
from contribbot.github.refusals import REFUSED
from contribbot.markdown import line_of
from contribbot.model.history import PullRequestEvent, VersionEvent
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.transaction import hold_queue

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub, ReviewThread


#: Opens GitHub, when there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]
_AT_ONCE: Final = 4
_SHORT: Final = 12
_PATCH_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
#: What changes with what is said or done to the pull request, and not with what others do to
#: its base, or GitHub's trial merges.
_TELLING: Final = (
    "number", "state", "title", "body", "draft", "updated_at", "closed_at", "merged_at",
)  # fmt: skip
#: What the journal calls a pull request that was on the default branch once.
_WAS_THERE: Final = frozenset({"merged", "reverted"})


@dataclass(frozen=True)
class Following:
    """What a run found out."""

    report: FollowReport
    states: dict[str, PollState]
    #: Why a change is not in the journal; None: all are.
    unwritten: OSError | None = None

    def remember(self, queue: Queue) -> None:
        """Remember what was shown: the next run calls nothing of it new."""
        for name, kept in self.states.items():
            path = _state_file(queue, name)
            make_private(path.parent)
            # That it cannot be kept costs requests, and is no error.
            with contextlib.suppress(OSError):
                write_atomically(path, kept.model_dump_json().encode())

    @property
    def exit_code(self) -> ExitCode:
        """What it says to the shell."""
        failed = any(followed.error for followed in self.report.contributions)
        return ExitCode.MACHINE if failed else ExitCode.OK


def _state_file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"


@dataclass(frozen=True)
class PollSubject:
    """A contribution that is followed."""

    patch: str
    queued: bool
    repository: str
    known: Publication
    rules: Rules | None = None
    kept: PollState | None = None
    above: tuple[str, ...] = ()
    #: The pull requests that go to its upstream before it.
    waits: tuple[str, ...] = ()

    def blank(self) -> Followed:
        """Return what is known without asking."""
        if self.kept is not None:
            fresh = {"queued": self.queued, "new": (), "more": 0, "change": "", "error": ""}
            return self.kept.followed.model_copy(update=fresh)
        place, reference = self.repository, self.known.reference
        return Followed(patch=self.patch, queued=self.queued, repository=place, reference=reference)


def follow(queue: Queue, connect: Connect) -> Following:
    """Poll every contribution: those of the queue, and open ones of patches that left it."""
    subjects = subjects_of(queue)
    names = {subject.patch for subject in subjects}
    without = tuple(name for name in queue.specs if name not in names)
    contributions: list[Followed] = []
    states: dict[str, PollState] = {}
    unwritten: OSError | None = None
    if not subjects:
        return Following(FollowReport(contributions=(), without=without), states)
    with connect() as github:
        shared = _Shared(github)
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="follow")
        try:
            polls = [_Poll(github, shared, subject) for subject in subjects]
            for poll, followed in zip(polls, pool.map(_Poll.look, polls), strict=True):
                change = ""
                try:
                    if poll.head:
                        change = note_state(
                            queue, followed.patch, followed.reference, followed.state,
                            why=followed.why, head=poll.head,
                        )  # fmt: skip
                except OSError as error:
                    # What was seen is told all the same; the next run notes it.
                    unwritten = error
                contributions.append(followed.model_copy(update={"change": change}))
                if poll.state is not None:
                    states[followed.patch] = poll.state
        finally:
            # After an interruption those that nobody began are not begun.
            pool.shutdown(cancel_futures=True)
    report = FollowReport(contributions=tuple(contributions), without=without)
    return Following(report, states, unwritten)


def subjects_of(queue: Queue) -> list[PollSubject]:
    """Return what there is to look at: the queue's in its order, then those that left it."""
    gone = sorted(
        path.parent.name
        for path in (queue.folder / "history").glob("*/journal.jsonl")
        if path.parent.name not in queue.specs and _PATCH_NAME.fullmatch(path.parent.name)
    )
    subjects = []
    for name in (*queue.specs, *gone):
        events = history.read(queue.folder, name)
        queued = name in queue.specs
        known = state(events, digest=queue.patch(name).digest if queued else "")
        if known is None:
            continue
        # Whether there is something to ask of GitHub.
        awaited = known.awaited and bool(known.fork and known.branch)
        if not (queued or not known.ended if known.reference else awaited):
            continue
        versions = [event.upstream for event in events if isinstance(event, VersionEvent)]
        upstream = queue.specs[name].upstream if queued else (versions or [""])[-1]
        described = queue.upstreams.get(upstream)
        repository = known.repository or (described.repository if described else "")
        if repository:
            has_rules = upstream in upstreams.contributing(queue.folder)
            rules = rules_of(queue, upstream) if has_rules else None
            above = tuple(other for other, spec in queue.specs.items() if name in spec.depends_on)
            waits, kept = waits_for(queue, name) if queued else (), None
            with contextlib.suppress(OSError, ValidationError):
                kept = PollState.model_validate_json(_state_file(queue, name).read_bytes())
            # What is remembered of another pull request is not of this one.
            kept = kept if kept and kept.reference == known.reference else None
            subjects.append(PollSubject(name, queued, repository, known, rules, kept, above, waits))
    return subjects


def note_state(queue: Queue, patch: str, reference: str, word: str, *, why: str, head: str) -> str:
    """Write a change of state to the journal; return the state before, or nothing."""
    word = "merged" if word == "landed" else word

    def journal() -> Publication | None:
        """Return what the journal knows, where this is news to it."""
        now = state(history.read(queue.folder, patch)) or Publication()
        other = now.reference and now.reference != reference
        return None if other or (now.reference, now.state) == (reference, word) else now

    # Nothing is written, and nobody waited for, where there is no news.
    if journal() is None:
        return ""
    with hold_queue(queue.folder):
        # Read anew: another contribbot may have noted it meanwhile.
        now = journal()
        if now is None:
            return ""
        again = " again" if now.ended else ""
        words = {
            "draft": f"is a draft{again}", "open": f"is open{again}",
            "closed": f"is closed: {why}" if why else "was closed without being merged",
        }.get(word, f"was {why or word}")  # fmt: skip
        if not now.reference:
            # One that contribbot opened itself, and then lost the answer, is found so, too.
            words = f"was opened{' by a person' if now.handed_off else ''}; it {words}"
        event = PullRequestEvent(
            time=history.now(), summary=f"{reference} {words}", head=head,
            reference=reference, state=word, fork=now.fork or None, branch=now.branch or None,
        )  # fmt: skip
        history.append_held(queue.folder, patch, event)
    return now.state or "not opened"


class _Shared:
    """What many polls need of the same repositories, each asked for once."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._lock = threading.Lock()
        self._branches: dict[str, str] = {}
        self._required: dict[tuple[str, str], frozenset[str]] = {}
        self._graphql: dict[str, bool] = {}
        #: Why nothing more is to be asked, by repository; of all, by the empty name.
        self._refusals: dict[str, GitHubError] = {}

    def refusal(self, repository: str) -> GitHubError | None:
        """Return why nothing more is to be asked: who goes on asking after a limit is shut out."""
        return self._refusals.get("") or self._refusals.get(repository)

    def heed(self, repository: str, error: GitHubError) -> None:
        """Remember an error that the next request would only meet again."""
        # An organisation may refuse a token that the others take.
        if isinstance(error, RateLimitError | TokenError):
            place = "" if isinstance(error, RateLimitError) else repository
            self._refusals.setdefault(place, error)

    def default_branch(self, repository: str) -> str:
        """Return the default branch of a repository."""
        with self._lock:
            if repository not in self._branches:
                known = self._github.repository(repository).complete()
                self._branches[repository] = known.default_branch
            return self._branches[repository]

    def required_checks(self, repository: str, branch: str) -> frozenset[str]:
        """Return the checks that must pass before a merge into a branch."""
        with self._lock:
            key = repository, branch
            if key not in self._required:
                try:
                    self._required[key] = self._github.required_checks(*key)
                except REFUSED:
                    self._required[key] = frozenset()  # none are known: GitHub does not say
            return self._required[key]

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """Return which threads are resolved; None where GraphQL is refused, asked once a run."""
        with self._lock:
            if repository not in self._graphql:
                # The first answer says for all whether there is any.
                threads = self._github.review_threads(repository, number)
                self._graphql[repository] = threads is not None
                return threads
        return (
            self._github.review_threads(repository, number) if self._graphql[repository] else None
        )


class _Poll:
    """One look at a contribution: what is as it was is not asked for again."""

    def __init__(self, github: GitHub, shared: _Shared, subject: PollSubject) -> None:
        self.github, self.shared, self.subject = github, shared, subject
        self.now = subject.blank()
        self.kept = subject.kept
        self.cursor: DiscussionCursor = self.kept or DiscussionCursor()
        #: What is to be remembered; the commit of its branch, where that was read.
        self.state: PollState | None = None
        self.head = ""

    def look(self) -> Followed:
        """Look; that it cannot be looked at is what is seen of it."""
        from contribbot.github.requester import shaped  # noqa: PLC0415  start-up time

        repository = self.subject.repository
        error, before = self.shared.refusal(repository), "nothing more was asked after "
        try:
            if error is None:
                with shaped():
                    self._ask()
                self._tell(next=tuple(_steps(self.now, self.subject, self.head)))
                if self.state is not None:
                    fresh = {"new": (), "more": 0, "change": ""}
                    remembered = {"followed": self.now.model_copy(update=fresh)}
                    self.state = self.state.model_copy(update=remembered)
                return self.now
        except GitHubError as fault:
            self.shared.heed(repository, fault)
            error, before = fault, ""
        self.state, self.head = None, ""
        text = f"{before}{error.message}{f'; {error.hint}' if error.hint else ''}"
        return self.subject.blank().model_copy(update={"error": line_of(text, 600)})

    def _ask(self) -> None:
        known, kept = self.subject.known, self.kept
        if not known.reference:
            pull = self._opened_meanwhile()
            if pull is None:
                self._tell(state="not opened")
                return
        else:
            pull = self.github.pull(self.subject.repository, known.number).complete()
        self.head, digest = pull.head.sha, self._digest_of(pull)
        self._tell(
            url=line_of(pull.html_url), title=line_of(pull.title), base=line_of(pull.base.ref)
        )
        threads = self.now.threads
        # GitHub may have refused to say which are resolved, and not for good.
        told = threads.known or not threads.open + threads.answered
        same = kept is not None and kept.pull == digest and told
        (self._open if pull.state == "open" else self._ended)(pull, same=same)
        self.state = PollState(
            reference=self.subject.known.reference, pull=digest, base=pull.base.sha,
            head=self.head, until=self.cursor.until, seen=self.cursor.seen,
            followed=self.now,
        )  # fmt: skip

    def _tell(self, **fields: object) -> None:
        self.now = self.now.model_copy(update=fields)

    def _opened_meanwhile(self) -> PullRequest | None:
        """Look whether a person has opened the pull request by now."""
        repository, known = self.subject.repository, self.subject.known
        owner = known.fork.partition("/")[0]
        every = self.github.pulls_from(repository, owner, known.branch)
        main = self.shared.default_branch(repository) if every else ""
        # One that goes elsewhere is no more than a backport of it.
        pulls = [pull for pull in every if pull.base.ref == main]
        if not pulls:
            aside = [f"{repository}#{it.number} goes to {line_of(it.base.ref)}" for it in every]
            self._tell(why=f"from its branch {'; '.join(aside)}: left alone" if aside else "")
            return None
        likely = max(pulls, key=lambda pull: (pull.state == "open", pull.head.sha in known.heads))
        number = likely.number
        known = replace(known, reference=f"{repository}#{number}")
        self.subject = replace(self.subject, known=known)
        self.now = self.subject.blank()
        # A list lacks what a single answer has: mergeability.
        return self.github.pull(repository, number).complete()

    def _open(self, pull: PullRequest, *, same: bool) -> None:
        """Say where an open one stands."""
        repository, kept = self.subject.repository, self.kept
        self._tell(
            state="draft" if pull.draft else "open",
            mergeable={True: "yes", False: "no", None: "not known"}[pull.mergeable],
        )
        # GitHub does not always say by `base.sha` that the base moved: what is told has a time.
        if kept is None or not same or kept.base != pull.base.sha:
            comparison = self.github.repository(repository).compare(
                pull.base.ref, pull.head.sha, comparison_commits_per_page=1
            )
            self._tell(behind=comparison.behind_by, compared=history.now())
        # Nothing of the pull request tells of a job that comes late, or runs again.
        self._ci(pull)
        if not same:
            self._discussion(pull)
            landing = Landing(LandingFate.CLOSED)
            if self.subject.known.state in _WAS_THERE:
                # Some projects reopen what they revert.
                landing = self._landing(pull)
            why = landing.words if landing.commit else ""
            self._tell(commit=landing.commit, reverted=landing.revert, why=why)

    def _ci(self, pull: PullRequest) -> None:
        repository, rules = self.subject.repository, self.subject.rules
        jobs = read_jobs(self.github, repository, pull.head.sha)
        required = self.shared.required_checks(repository, pull.base.ref)
        targets, other = ci_by_target(jobs, rules.ci.targets if rules else {}, required)
        waits = rules is not None and any(ci.state == "not started" for ci in targets)
        start = " ".join(rules.ci.start.split()) if rules is not None and waits else ""
        self._tell(ci=targets, other=other, start=start, asked=history.now())

    def _discussion(self, pull: PullRequest) -> None:
        repository = self.subject.repository
        resolutions = self.shared.review_threads(repository, pull.number)
        self.cursor, told = poll_discussion(self.github, repository, pull, self.cursor, resolutions)
        self._tell(**told, looked=history.now())

    def _ended(self, pull: PullRequest, *, same: bool) -> None:
        """Say how one ended, and what was said on the way."""
        landing = self._landing(pull)
        if not same:
            self._discussion(pull)
        self._tell(
            state=landing.fate.value, commit=landing.commit, reverted=landing.revert,
            why=landing.why if landing.fate is LandingFate.CLOSED else landing.words,
            mergeable="not known", behind=None, start="",
        )  # fmt: skip

    def _landing(self, pull: PullRequest) -> Landing:
        repository = self.subject.repository
        branch = self.shared.default_branch(repository)
        events = events_of(self.github, repository, pull.number)
        return judge_landing(self.github, repository, pull, branch, events)

    def _digest_of(self, pull: PullRequest) -> str:
        """Return a digest of what a pull request says: its ETag changes with more than that."""
        rules = self.subject.rules.ci.model_dump(mode="json") if self.subject.rules else None
        telling = {key: pull.raw_data.get(key) for key in _TELLING}
        sides = (pull.head.ref, pull.head.sha, name_of(pull.head.repo), pull.base.ref)
        labels = sorted(label.name for label in pull.labels)
        return json_digest([telling, sides, name_of(pull.base.repo), labels, rules])


def _steps(now: Followed, subject: PollSubject, head: str) -> Iterator[NextStep]:
    """Yield what is next, what concerns the person first."""
    is_open = now.state in {"draft", "open"}
    yours = list(_yours(now, subject, head) if is_open else _of_ended(now, subject.above))
    if is_open and not now.queued:
        yours = ["close it on its page, or see it through there"]
    elif now.state == "draft" and not yours:
        yours = ["mark it ready for review, when it is"]
    yield from (NextStep(who="you", what=what) for what in yours)
    if not is_open or not now.queued:
        return
    running = any(ci.running for ci in now.jobs)
    if now.start:
        waiting = ", ".join(ci.target for ci in now.ci if ci.state == "not started")
        yield NextStep(who="anyone entitled", what=f"start CI for {waiting}: {now.start}")
    if running:
        yield NextStep(who="CI", what="end its jobs")
    if now.state == "open" and now.decision == "none":
        yield NextStep(who="reviewers", what="review it")
    elif now.decision == "approved" and not (yours or now.start or running):
        # Its branch holds the commits of those below it too.
        on = f"; it stands on {', '.join(subject.waits)}" if subject.waits else ""
        yield NextStep(who="maintainers", what=f"merge it{on}")


def _of_ended(now: Followed, above: Sequence[str]) -> list[str]:
    name, landed = now.patch, f"take it out of the queue: contribbot queue retire {now.patch}"
    if above:
        stand = f"{', '.join(above)} {'stands' if len(above) == 1 else 'stand'} on it"
        landed = f"move the pin to a release that has it (contribbot rebase): {stand}"
    steps = {
        "not opened": f"open the pull request on GitHub, or with contribbot open-pr {name}",
        "merged": landed,
        "landed": landed,
        "reverted": f"read why {now.reverted[:_SHORT]} took it back",
        "closed": f"read why it was closed; reopen it, or contribbot queue retire {name} --why WHY",
    }
    shown = now.state in steps and (now.queued or now.state == "not opened")
    return [steps[now.state]] if shown else []


def _yours(now: Followed, subject: PollSubject, head: str) -> Iterator[str]:
    """Yield what the person has to do for an open one."""
    known, rules, count = subject.known, subject.rules, now.threads.open
    # Without a journal contribbot may have made it.
    if known.heads and head not in known.heads:
        where = f"{head[:_SHORT]} on {known.branch}"
        yield f"look at {where}, which contribbot did not make: nothing here proves it"
    if now.mergeable == "no":
        yield f"bring it onto {now.base}, with which it conflicts"
    elif now.behind and rules is not None and rules.ci.current:
        yield f"bring it up to date: CI refuses a branch behind {now.base}"
    if count:
        threads = "thread" if count == 1 else "threads"
        yield f"answer {count} open {threads}: contribbot follow {now.patch}"
    if now.decision == "changes requested":
        yield f"see to the changes that {', '.join(now.by)} asked for"
    broken = [ci.target for ci in now.ci if ci.state == "failed"]
    if now.other is not None and now.other.state == "failed":
        broken.append("other jobs")
    if broken:
        yield f"see why CI failed: {', '.join(broken)}"


#: What GitHub says of a job, in words of ours; all else is a failure.
_JOB_STATES: Final[dict[str, CiState]] = {
    "pending": "running",
    "success": "passed",
    "skipped": "not run",
    "neutral": "not run",
}
_CI_ORDER: Final[tuple[CiState, ...]] = ("failed", "running", "passed", "not run")
#: Characters of a job's name that are looked at; jobs that are named.
_JOB_NAME: Final = 200
_NAMED: Final = 5
#: The app whose suites always come to jobs; those of others may stay queued for ever.
_ACTIONS: Final = "github-actions"


@dataclass(frozen=True)
class HeadJob:
    """A job, with GitHub's word for how it stands; one that has not ended is `pending`."""

    name: str
    word: str

    @classmethod
    def of(cls, name: str, status: str | None, conclusion: str | None) -> HeadJob:
        """Return a check run, or a suite."""
        ended = conclusion if status == "completed" else None
        return cls(line_of(name, _JOB_NAME), ended or "pending")


def read_jobs(github: GitHub, repository: str, sha: str) -> list[HeadJob]:
    """Return the jobs of a commit, each as it ran last."""
    commit = github.commit(repository, sha)
    runs = whole(commit.get_check_runs(filter="latest"))
    jobs = [HeadJob.of(run.name, run.status, run.conclusion) for run in runs]
    for suite in whole(commit.get_check_suites()):
        # A workflow that waits for approval, or that cannot start, has no job that says so.
        if not suite.latest_check_runs_count and suite.app is not None:
            job = HeadJob.of(f"{suite.app.name} (suite)", suite.status, suite.conclusion)
            comes = suite.app.slug == _ACTIONS and job.word == "pending"
            if comes or job.word not in _JOB_STATES:
                jobs.append(job)
    statuses = github.statuses(repository, sha)
    return jobs + [HeadJob(line_of(each.context, _JOB_NAME), each.state) for each in statuses]


def ci_by_target(
    jobs: Sequence[HeadJob], patterns: Mapping[str, str], required: Collection[str]
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Sort jobs by the targets that they are for; the rest is `other`."""
    targets = tuple(
        _together(target, [job for job in jobs if re.search(pattern, job.name)])
        for target, pattern in patterns.items()
    )
    rest = [job for job in jobs if not any(re.search(p, job.name) for p in patterns.values())]
    missing = sorted(set(required) - {job.name for job in jobs})
    if not rest and not missing:
        return targets, None
    other = _together("other", rest)
    if missing and other.state in {"passed", "not run", "not started"}:
        missed = tuple(line_of(name, _JOB_NAME) for name in missing[:_NAMED])
        other = other.model_copy(update={"state": "not started", "missing": missed})
    elif other.state == "passed" and not required:
        # That all have passed that are there says little of those that are to come.
        other = other.model_copy(update={"state": "not known"})
    return targets, other


def _together(target: str, jobs: Sequence[HeadJob]) -> TargetCi:
    """Return how the jobs of a target stand."""
    states = [_JOB_STATES.get(job.word, "failed") for job in jobs]
    failed = [
        f"{job.name} ({line_of(job.word, 40).replace('_', ' ')})"
        for job, state in zip(jobs, states, strict=True)
        if state == "failed"
    ]
    together: CiState = next((word for word in _CI_ORDER if word in states), "not started")
    return TargetCi(
        target=target, state=together, jobs=len(jobs), running=states.count("running"),
        failed=tuple(failed[:_NAMED]), failures=len(failed),
    )  # fmt: skip
