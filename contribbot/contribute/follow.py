"""Following the contributions of a queue; what changed goes into the journal, once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot import upstreams
from contribbot.contribute.body import rules_of
from contribbot.contribute.branch import refuses_pulls
from contribbot.contribute.landing import judge_landing
from contribbot.contribute.model import (
    CiState,
    Followed,
    FollowReport,
    NextStep,
    PollState,
    Rules,
    TargetCi,
)
from contribbot.contribute.publication import Publication, state, waits_for
from contribbot.contribute.reviews import read_news
from contribbot.errors import ExitCode, GitHubError, NotFoundError, RateLimitError, TokenError
from contribbot.files import make_private, write_atomically
from contribbot.github.pull_state import HeadJob, PullState, read_pull_state
from contribbot.markdown import line_of
from contribbot.model.history import PullRequestEvent, VersionEvent
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.transaction import hold_queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


_NO_NEWS: Final = {"new": (), "more": 0}
#: Opens GitHub, when there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]
_SHORT: Final = 12
_PATCH_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
#: What the journal calls a pull request that was on the default branch once.
_WAS_THERE: Final = frozenset({"merged", "reverted"})


@dataclass(frozen=True)
class Following:
    """The result of a run of `follow`."""

    report: FollowReport
    states: dict[str, PollState]
    #: Why a change is not in the journal; None: all are.
    unwritten: OSError | None = None

    def remember(self, queue: Queue) -> None:
        """Remember the shown states, so that the next run shows only later remarks as new."""
        for name, kept in self.states.items():
            path = _state_file(queue, name)
            make_private(path.parent)
            # That it cannot be kept costs requests, and is no error.
            with contextlib.suppress(OSError):
                write_atomically(path, kept.model_dump_json().encode())

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the run."""
        failed = any(each.error or each.unread for each in self.report.contributions)
        return ExitCode.MACHINE if failed else ExitCode.OK


def _state_file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"


@dataclass(frozen=True)
class PollSubject:
    """A contribution to poll."""

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
        """Return the state that is known without asking GitHub."""
        if self.kept is not None:
            fresh = {"queued": self.queued, "change": "", "error": "", "unread": ()}
            return self.kept.followed.model_copy(update={**fresh, **_NO_NEWS})
        place, reference = self.repository, self.known.reference
        return Followed(patch=self.patch, queued=self.queued, repository=place, reference=reference)


def follow(queue: Queue, connect: Connect) -> Following:
    """Poll all contributions of the queue, and the open ones of patches that left the queue."""
    subjects = subjects_of(queue)
    names = {subject.patch for subject in subjects}
    without = tuple(name for name in queue.specs if name not in names)
    contributions: list[Followed] = []
    states: dict[str, PollState] = {}
    unwritten: OSError | None = None
    if not subjects:
        return Following(FollowReport(contributions=(), without=without), states)
    refusals: dict[str, GitHubError] = {}
    with connect() as github:
        for subject in subjects:
            poll = _Poll(github, refusals, subject)
            now, change = poll.look(), ""
            try:
                if poll.head:
                    change = note_state(
                        queue, now.patch, now.reference, now.state, why=now.why, head=poll.head
                    )
            except OSError as error:
                # The state that was read is told all the same; the next run notes it.
                unwritten = error
            contributions.append(now.model_copy(update={"change": change}))
            if poll.state is not None:
                states[now.patch] = poll.state
    report = FollowReport(contributions=tuple(contributions), without=without)
    return Following(report, states, unwritten)


def subjects_of(queue: Queue) -> list[PollSubject]:
    """Return the contributions to poll: the queue's in order, then those of retired patches."""
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
            # A remembered state of another pull request is not of this one.
            kept = kept if kept and kept.followed.reference == known.reference else None
            subjects.append(PollSubject(name, queued, repository, known, rules, kept, above, waits))
    return subjects


def note_state(queue: Queue, patch: str, reference: str, word: str, *, why: str, head: str) -> str:
    """Note a change of a pull request's state in the journal; return the old state, or empty."""
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
            "draft": f"is a draft{again}",
            "open": f"is open{again}",
            "closed": "was closed without being merged",
        }.get(word, f"was {why or word}")
        if not now.reference:
            # One that contribbot opened itself, and then lost the answer, is found so, too.
            words = f"was opened{' by a person' if now.handed_off else ''}; it {words}"
        event = PullRequestEvent(
            time=history.now(),
            summary=f"{reference} {words}",
            head=head,
            reference=reference,
            state=word,
            fork=now.fork or None,
            branch=now.branch or None,
        )
        history.append(queue.folder, patch, event)
    return now.state or "not opened"


class _Poll:
    """The poll of a contribution; `refusals` holds a used-up limit, or a refused repository."""

    def __init__(
        self, github: GitHub, refusals: dict[str, GitHubError], subject: PollSubject
    ) -> None:
        self.github, self.refusals, self.subject = github, refusals, subject
        self.now = subject.blank()
        self.seen = subject.kept.seen if subject.kept else {}
        #: What is to be remembered; the commit of its branch, where that was read.
        self.state: PollState | None = None
        self.head = ""

    def look(self) -> Followed:
        """Poll the contribution; a failure becomes the error in the result."""
        from contribbot.github.requester import shaped  # noqa: PLC0415  start-up time

        repository, before = self.subject.repository, "nothing more was asked after "
        # Who goes on asking after a limit is shut out.
        error = self.refusals.get("") or self.refusals.get(repository)
        try:
            if error is None:
                with shaped():
                    self._ask()
                self._tell(next=tuple(_steps(self.now, self.subject, self.head)))
                if self.head:
                    remembered = self.now.model_copy(update=_NO_NEWS)
                    self.state = PollState(seen=self.seen, followed=remembered)
                return self.now
        except GitHubError as fault:
            # An organisation may refuse a token that the others take.
            if isinstance(fault, RateLimitError | TokenError):
                place = "" if isinstance(fault, RateLimitError) else repository
                self.refusals[place] = fault
            error, before = fault, ""
        self.state, self.head = None, ""
        text = f"{before}{error.message}{f'; {error.hint}' if error.hint else ''}"
        return self.subject.blank().model_copy(update={"error": line_of(text, 600)})

    def _ask(self) -> None:
        number = self.subject.known.number or self._opened_meanwhile()
        if not number:
            self._tell(state="not opened")
            return
        known = self.subject.known
        branch = f"{known.fork.partition('/')[0]}:{known.branch}" if known.branch else ""
        try:
            pull = read_pull_state(self.github, self.subject.repository, number, branch=branch)
        except NotFoundError:
            upstream = self.github.repository(self.subject.repository).complete()
            if why := refuses_pulls(upstream):
                hint = "look on its page where the project takes changes"
                raise GitHubError(f"{upstream.full_name} {why}", hint=hint) from None
            raise
        self.head = pull.head
        merge = "removed" if pull.removed else _MERGE_STATES.get(pull.merge_state, "not known")
        self._tell(
            url=line_of(pull.url),
            title=line_of(pull.title),
            base=line_of(pull.base),
            mergeable={True: "yes", False: "no", None: "not known"}[pull.mergeable],
            merge="queued" if pull.queued else merge,
            removed=line_of(pull.removed),
            archived=pull.archived,
            decision=pull.decision,
            by=tuple(line_of(name, _LOGIN) for name in pull.reviewers[:_NAMED]),
            looked=history.now(),
            unread=tuple(line_of(row) for row in pull.unread),
        )
        self.seen, told = read_news(pull, self.seen)
        self._tell(**told)
        (self._open if pull.state == "open" else self._ended)(pull)

    def _tell(self, **fields: object) -> None:
        self.now = self.now.model_copy(update=fields)

    def _opened_meanwhile(self) -> int:
        """Return the number of a pull request that a person has opened by now, or 0."""
        repository, known = self.subject.repository, self.subject.known
        owner = known.fork.partition("/")[0]
        every = self.github.pulls_from(repository, owner, known.branch)
        # A pull request to another branch is no more than a backport.
        pulls = [pull for pull in every if pull.base.ref == pull.base.repo.default_branch]
        if not pulls:
            return 0
        likely = max(pulls, key=lambda pull: (pull.state == "open", pull.head.sha in known.heads))
        known = replace(known, reference=f"{repository}#{likely.number}")
        self.subject = replace(self.subject, known=known)
        self.now = self.subject.blank()
        return likely.number

    def _open(self, pull: PullState) -> None:
        """Tell how an open pull request stands."""
        self._tell(state="draft" if pull.draft else "open", behind=pull.behind)
        self._ci(pull)
        if self.subject.known.state in _WAS_THERE:
            # Some projects reopen what they revert.
            landing = judge_landing(self.github, self.subject.repository, pull)
            why = landing.words if landing.commit else ""
            self._tell(commit=landing.commit, reverted=landing.revert, why=why)

    def _ci(self, pull: PullState) -> None:
        rules = self.subject.rules
        targets, other = ci_by_target(pull.jobs, rules.ci.targets if rules else {})
        waits = rules is not None and any(ci.state == "not started" for ci in targets)
        start = " ".join(rules.ci.start.split()) if rules is not None and waits else ""
        self._tell(ci=targets, other=other, start=start)

    def _ended(self, pull: PullState) -> None:
        """Tell how a pull request ended."""
        landing = judge_landing(self.github, self.subject.repository, pull)
        self._tell(
            mergeable="not known",
            behind=None,
            start="",
            state=landing.fate.value,
            commit=landing.commit,
            reverted=landing.revert,
            into=landing.elsewhere,
            why=landing.words if landing.commit else "",
        )


#: GitHub's states of a merge, in words of ours; a conflict is told by `mergeable`.
_MERGE_STATES: Final = {
    "clean": "ready",
    "has_hooks": "ready",
    "unstable": "ready",
    "behind": "behind",
    "blocked": "blocked",
}


def _steps(now: Followed, subject: PollSubject, head: str) -> Iterator[NextStep]:
    """Yield the next steps, those of the person first."""
    is_open = now.state in {"draft", "open"}
    yours = list(_yours(now, subject, head) if is_open else _of_ended(now, subject.above))
    if is_open and not now.queued:
        yours = ["close it on its page, or see it through there"]
    elif now.state == "draft" and not yours:
        yours = ["mark it ready for review, when it is"]
    yield from (NextStep(who="you", what=what) for what in yours)
    if not is_open or not now.queued or now.archived:
        return
    running = any(ci.running for ci in now.jobs)
    held = any(ci.state == "waiting" for ci in now.jobs)
    missing = now.other.missing if now.other else ()
    if now.start:
        waiting = ", ".join(ci.target for ci in now.ci if ci.state == "not started")
        yield NextStep(who="anyone entitled", what=f"start CI for {waiting}: {now.start}")
    if held:
        yield NextStep(who="maintainers", what="approve the workflows, which wait for it")
    if missing:
        yield NextStep(who="CI", what=f"run the jobs that are required: {', '.join(missing)}")
    if running:
        yield NextStep(who="CI", what="end its jobs")
    if now.state == "open" and now.decision == "none":
        yield NextStep(who="reviewers", what="review it")
    elif now.decision == "approved" and not (yours or now.start or running or held or missing):
        yield from _of_approved(now, subject)


def _of_approved(now: Followed, subject: PollSubject) -> Iterator[NextStep]:
    """Yield the next step for an approved pull request whose jobs have passed."""
    match now.merge:
        case "ready":
            # Its branch holds the commits of those below it too.
            on = f"; it stands on {', '.join(subject.waits)}" if subject.waits else ""
            yield NextStep(who="maintainers", what=f"merge it{on}")
        case "queued":
            yield NextStep(who="the merge queue", what="merge it")
        case "removed":
            why = f"the merge queue took it out: {now.removed}"
            yield NextStep(who="maintainers", what=f"queue it again; {why}")
        case "behind":
            yield NextStep(who="you", what=f"bring it up to date with {now.base}, as its rules ask")
        case "blocked":
            what = f"see on its page what blocks it: a review, a job or a rule of {now.base}"
            yield NextStep(who="maintainers", what=what)
        case _:
            yield NextStep(who="you", what="follow it again: GitHub works out whether it merges")


def _of_ended(now: Followed, above: Sequence[str]) -> list[str]:
    name, landed = now.patch, f"take it out of the queue: contribbot queue retire {now.patch}"
    if above:
        stand = f"{', '.join(above)} {'stands' if len(above) == 1 else 'stand'} on it"
        landed = f"move the pin to a release that has it (contribbot rebase): {stand}"
    if now.into:
        landed = f"{now.into} has it: open one against the default branch, or"
        landed += f" contribbot queue retire {name} --why WHY"
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
    """Yield the steps of the person for an open pull request."""
    known, rules, count = subject.known, subject.rules, now.threads.open
    if now.archived:
        yield f"nobody can merge it: {now.repository} is archived; look where the project went"
        return
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


#: GitHub's words for a job in ours; all other words are failures.
_JOB_STATES: Final[dict[str, CiState]] = {
    "pending": "running",
    "awaiting_approval": "waiting",
    "success": "passed",
    "skipped": "not run",
    "neutral": "not run",
}
_CI_ORDER: Final[tuple[CiState, ...]] = ("failed", "running", "waiting", "passed", "not run")
#: Characters of a job's name that are looked at; jobs that are named.
_JOB_NAME: Final = 200
_NAMED: Final = 5
_LOGIN: Final = 60


def ci_by_target(
    jobs: Sequence[HeadJob], patterns: Mapping[str, str]
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Return the CI jobs by target; jobs of no target are `other`."""
    missing = tuple(line_of(job.name, _JOB_NAME) for job in jobs if job.word == "expected")
    jobs = [job.model_copy(update={"name": line_of(job.name, _JOB_NAME)}) for job in jobs]
    jobs = [job for job in jobs if job.word != "expected"]
    targets = tuple(
        _together(target, [job for job in jobs if re.search(pattern, job.name)])
        for target, pattern in patterns.items()
    )
    rest = [job for job in jobs if not any(re.search(p, job.name) for p in patterns.values())]
    if not rest and not missing:
        return targets, None
    other = _together("other", rest)
    if missing and other.state in {"passed", "not run", "not started"}:
        other = other.model_copy(update={"state": "not started", "missing": missing[:_NAMED]})
    elif other.state == "passed" and not any(job.required for job in jobs):
        # Jobs that have passed say little of jobs that have not begun.
        other = other.model_copy(update={"state": "not known"})
    return targets, other


def _together(target: str, jobs: Sequence[HeadJob]) -> TargetCi:
    """Return the state of a target's jobs in one."""
    states = [_JOB_STATES.get(job.word, "failed") for job in jobs]
    failed = [
        f"{job.name} ({line_of(job.word, 40).replace('_', ' ')})"
        for job, state in zip(jobs, states, strict=True)
        if state == "failed"
    ]
    together: CiState = next((word for word in _CI_ORDER if word in states), "not started")
    return TargetCi(
        target=target,
        state=together,
        jobs=len(jobs),
        running=states.count("running"),
        failed=tuple(failed[:_NAMED]),
        failures=len(failed),
    )
