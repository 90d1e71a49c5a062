"""Poll a queue's contributions on GitHub; each change of state is noted in the journal once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import TypeAdapter, ValidationError

from contribbot.contribute.body import rules_of
from contribbot.contribute.model import (
    CiState,
    Followed,
    FollowReport,
    NextStep,
    Remark,
    Rules,
    TargetCi,
    ThreadCount,
)
from contribbot.contribute.publication import Publication, state, waits_for
from contribbot.errors import ExitCode, GitHubError, RateLimitError, TokenError
from contribbot.files import make_private, write_atomically
from contribbot.github.pull_state import (
    HeadJob,
    Note,
    PullState,
    ReviewThread,
    judge_landing,
    read_pull_state,
)
from contribbot.markdown import line_of
from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent
from contribbot.queue.load import Queue, upstream_files
from contribbot.queue.transaction import hold_queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


#: A function that connects to GitHub; called only if there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]
_SHORT: Final = 12
#: The shown remarks by key: a review's verdict, or the time of a comment's last change.
_SEEN: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Following:
    """The result of a run of `follow`: the report, and by patch the shown remarks."""

    report: FollowReport
    seen: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def remember(self, queue: Queue) -> None:
        """Remember the shown remarks, so that the next run shows only later remarks as new."""
        for name, seen in self.seen.items():
            path = _seen_file(queue, name)
            make_private(path.parent)
            write_atomically(path, _SEEN.dump_json({**seen}))

    @property
    def exit_code(self) -> ExitCode:
        """MACHINE (3) if GitHub's answer on a contribution is missing or incomplete, else OK."""
        failed = any(each.error or each.unread for each in self.report.contributions)
        return ExitCode.MACHINE if failed else ExitCode.OK


def _seen_file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"


@dataclass(frozen=True)
class PollSubject:
    """A contribution to poll, with its published state, its rules and the shown remarks."""

    patch: str
    repository: str
    known: Publication
    rules: Rules | None
    seen: Mapping[str, str]
    #: The patches that depend on this patch; the pull requests that must be merged first.
    above: tuple[str, ...]
    waits: tuple[str, ...]


def follow(queue: Queue, connect: Connect) -> Following:
    """Read all contributions' states from GitHub, and note changed states in the journals."""
    subjects = subjects_of(queue)
    names = {subject.patch for subject in subjects}
    without = tuple(name for name in queue.specs if name not in names)
    contributions: list[Followed] = []
    if not subjects:
        return Following(FollowReport(contributions=(), without=without))
    seen: dict[str, Mapping[str, str]] = {}
    # A reached rate limit stops all requests; a refused token, requests for one upstream.
    refusals: dict[str, GitHubError] = {}
    with connect() as github:
        for subject in subjects:
            try:
                if known := refusals.get("") or refusals.get(subject.repository):
                    raise known
                now, shown, head = _poll(github, subject)
            except GitHubError as error:
                before = "nothing more was asked after " * (error in refusals.values())
                if isinstance(error, RateLimitError | TokenError):
                    place = "" if isinstance(error, RateLimitError) else subject.repository
                    refusals[place] = error
                why = f"{before}{error.message}{f'; {error.hint}' if error.hint else ''}"
                now = Followed(
                    patch=subject.patch,
                    repository=subject.repository,
                    reference=subject.known.reference,
                    error=line_of(why, 600),
                )
            else:
                if head:
                    change = note_state(
                        queue, now.patch, now.reference, now.state, why=now.why, head=head
                    )
                    now, seen[now.patch] = now.model_copy(update={"change": change}), shown
            contributions.append(now)
    return Following(FollowReport(contributions=tuple(contributions), without=without), seen)


def subjects_of(queue: Queue) -> list[PollSubject]:
    """Return the contributions to poll, in the queue's order."""
    subjects = []
    for name, spec in queue.specs.items():
        known = state(history.read(queue.folder, name), digest=queue.patch(name).digest)
        if known is None:
            continue
        # Without a reference, GitHub can be asked only about a known branch.
        awaited = known.awaited and bool(known.fork and known.branch)
        if not known.reference and not awaited:
            continue
        described = queue.upstreams.get(spec.upstream)
        repository = known.repository or (described.repository if described else "")
        if repository:
            has_rules = spec.upstream in upstream_files(queue.folder, "contributing")
            rules = rules_of(queue, spec.upstream) if has_rules else None
            above = tuple(high for high, other in queue.specs.items() if name in other.depends_on)
            waits, seen = waits_for(queue, name), dict[str, str]()
            with contextlib.suppress(OSError, ValidationError):
                seen = _SEEN.validate_json(_seen_file(queue, name).read_bytes())
            subjects.append(PollSubject(name, repository, known, rules, seen, above, waits))
    return subjects


def note_state(queue: Queue, patch: str, reference: str, word: str, *, why: str, head: str) -> str:
    """Note a change of a pull request's state in the journal; return the old state, or empty."""
    word = "merged" if word == "landed" else word
    with hold_queue(queue.folder):
        now = state(history.read(queue.folder, patch)) or Publication()
        other = now.reference and now.reference != reference
        if other or (now.reference, now.state) == (reference, word):
            return ""
        again = " again" if now.ended else ""
        words = {
            "draft": f"is a draft{again}",
            "open": f"is open{again}",
            "closed": "was closed without being merged",
        }.get(word, f"was {why or word}")
        if not now.reference:
            # This may also be a pull request that contribbot opened without getting the answer.
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


def _poll(github: GitHub, subject: PollSubject) -> tuple[Followed, dict[str, str], str]:
    """Return a contribution's state, dates or verdicts of its remarks, and its head commit."""
    from contribbot.github.client import shaped  # noqa: PLC0415  start-up time

    with shaped():
        known = subject.known
        if not known.number:
            known = _opened_meanwhile(github, subject.repository, known)
        fields: dict[str, object] = {"state": "not opened"}
        seen, head = dict[str, str](), ""
        if known.number:
            branch = f"{known.fork.partition('/')[0]}:{known.branch}" if known.branch else ""
            pull = read_pull_state(github, subject.repository, known.number, branch=branch)
            seen, news = read_news(pull, subject.seen)
            fields, head = {**_told(github, subject, pull), **news}, pull.head
        place = {"repository": subject.repository, "reference": known.reference}
        now = Followed.model_validate({"patch": subject.patch, **place, **fields})
    return now.model_copy(update={"next": (*_steps(now, subject, head),)}), seen, head


def _opened_meanwhile(github: GitHub, repository: str, known: Publication) -> Publication:
    """Return the published state, with the branch's pull request if one was opened by now."""
    every = github.pulls_from(repository, known.fork.partition("/")[0], known.branch)
    # A pull request to another base branch is only a backport.
    pulls = [pull for pull in every if pull.base.ref == pull.base.repo.default_branch]
    if not pulls:
        return known
    likely = max(pulls, key=lambda pull: (pull.state == "open", pull.head.sha in known.heads))
    return replace(known, reference=f"{repository}#{likely.number}")


def _told(github: GitHub, subject: PollSubject, pull: PullState) -> dict[str, object]:
    """Return the fields of `Followed` that GitHub's answer on a pull request fills."""
    rules, is_open = subject.rules, pull.state == "open"
    fields: dict[str, object] = {
        "url": line_of(pull.url),
        "title": line_of(pull.title),
        "base": line_of(pull.base),
        "merge": _MERGE_STATES.get(pull.merge_state, "not known"),
        "removed": line_of(pull.removed),
        "archived": pull.archived,
        "decision": pull.decision,
        "by": tuple(line_of(name, _LOGIN) for name in pull.reviewers[:_NAMED]),
        "unread": line_of(pull.unread),
    }
    if pull.queued or pull.removed:
        fields["merge"] = "queued" if pull.queued else "removed"
    if is_open:
        targets, other = ci_by_target(pull.jobs, rules.ci.targets if rules else {})
        idle = rules is not None and any(ci.state == "not started" for ci in targets)
        fields |= {
            "state": "draft" if pull.draft else "open",
            "mergeable": _MERGEABLE.get(pull.mergeable, "not known"),
            "behind": pull.behind,
            "ci": targets,
            "other": other,
            "start": " ".join(rules.ci.start.split()) if rules and idle else "",
        }
    # Some projects reopen a pull request after they revert it.
    if not is_open or subject.known.state in {"merged", "reverted"}:
        landing = judge_landing(github, subject.repository, pull)
        why = landing.words if landing.commit else ""
        fields |= {"commit": landing.commit, "reverted": landing.revert, "why": why}
        fields |= {} if is_open else {"state": landing.fate, "into": landing.elsewhere}
    return fields


#: Our words for GitHub's states of mergeability and of a merge.
_MERGEABLE: Final = {"mergeable": "yes", "conflicting": "no"}
_MERGE_STATES: Final = {
    "clean": "ready",
    "has_hooks": "ready",
    "unstable": "ready",
    "behind": "behind",
    "blocked": "blocked",
}


def _steps(now: Followed, subject: PollSubject, head: str) -> Iterator[NextStep]:
    """Yield the next steps; the user's steps come first."""
    is_open = now.state in {"draft", "open"}
    yours = list(_yours(now, subject, head) if is_open else _of_ended(now, subject.above))
    if now.state == "draft" and not yours:
        yours = ["mark it ready for review, when it is"]
    yield from (NextStep(who="you", what=what) for what in yours)
    if not is_open or now.archived or now.unread:
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
        yield _of_approved(now, subject)


def _of_approved(now: Followed, subject: PollSubject) -> NextStep:
    """Return the next step for an approved pull request whose jobs have passed."""
    # The branch also has the commits of the patches below.
    on = f"; it stands on {', '.join(subject.waits)}" if subject.waits else ""
    where = f"a review, a job or a rule of {now.base}"
    who, what = {
        "ready": ("maintainers", f"merge it{on}"),
        "queued": ("the merge queue", "merge it"),
        "removed": ("maintainers", f"queue it again; the merge queue took it out: {now.removed}"),
        "behind": ("you", f"bring it up to date with {now.base}, as its rules ask"),
        "blocked": ("maintainers", f"see on its page what blocks it: {where}"),
        "not known": ("you", "follow it again: GitHub works out whether it merges"),
    }[now.merge]
    return NextStep(who=who, what=what)


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
    return [steps[now.state]] if now.state in steps else []


def _yours(now: Followed, subject: PollSubject, head: str) -> Iterator[str]:
    """Yield the user's next steps for an open pull request."""
    known, rules, count = subject.known, subject.rules, now.threads.open
    if now.archived:
        yield f"nobody can merge it: {now.repository} is archived; look where the project went"
        return
    # Without known heads in the journal, contribbot may have made the commit.
    if known.heads and head not in known.heads:
        where = f"{head[:_SHORT]} on {known.branch}"
        yield f"look at {where}, which contribbot did not make: nothing here proves it"
    if now.mergeable == "no":
        yield f"bring it onto {now.base}, with which it conflicts"
    elif now.behind and rules is not None and rules.ci.current:
        yield f"bring it up to date: CI refuses a branch behind {now.base}"
    if count:
        threads = "thread" if count == 1 else "threads"
        yield f"answer {count} open {threads} on its page"
    if now.decision == "changes requested":
        yield f"see to the changes that {', '.join(now.by)} asked for"
    broken = [ci.target for ci in now.ci if ci.state == "failed"]
    if now.other is not None and now.other.state == "failed":
        broken.append("other jobs")
    if broken:
        yield f"see why CI failed: {', '.join(broken)}"


#: Our words for GitHub's states of a job; every other state is a failure.
_JOB_STATES: Final[dict[str, CiState]] = {
    "pending": "running",
    "awaiting_approval": "waiting",
    "success": "passed",
    "skipped": "not run",
    "neutral": "not run",
}
_CI_ORDER: Final[tuple[CiState, ...]] = ("failed", "running", "waiting", "passed", "not run")
#: The most characters of a job's name, names in a list, and characters of a login.
_JOB_NAME: Final = 200
_NAMED: Final = 5
_LOGIN: Final = 60


def ci_by_target(
    jobs: Sequence[HeadJob], patterns: Mapping[str, str]
) -> tuple[tuple[TargetCi, ...], TargetCi | None]:
    """Return the state of each target's CI jobs, and of the jobs of no target."""
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
        # Passed jobs say nothing about required jobs that have not begun.
        other = other.model_copy(update={"state": "not known"})
    return targets, other


def _together(target: str, jobs: Sequence[HeadJob]) -> TargetCi:
    """Return the combined state of a target's jobs."""
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


#: The most new remarks to show, and the most lines and characters of each remark.
_SHOWN: Final = 10
_EXCERPT: Final = 500
#: Our words for GitHub's review verdicts; the verdicts that decide nothing.
_VERDICTS: Final = {"CHANGES_REQUESTED": "changes requested", "COMMENTED": "", "": ""}
_NO_VERDICT: Final = frozenset({"COMMENTED", "PENDING"})


def read_news(pull: PullState, seen: Mapping[str, str]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the keys of all remarks, and the fields of `Followed` on new remarks and threads."""
    now: dict[str, str] = {}

    def fresh() -> Iterator[Remark]:
        for kind, note, thread in _notes(pull):
            key = f"{kind} {note.id}"
            # A changed review is news only if its verdict changed.
            now[key] = note.verdict or note.updated_at.isoformat()
            if seen.get(key) != now[key] and not _same_person(note.author, pull.author):
                yield _remark(kind, note, thread, changed=key in seen)

    new = sorted(fresh(), key=lambda remark: remark.at)
    left = [thread for thread in pull.threads if not thread.is_resolved]
    answered = sum(_same_person(each.comments[-1].author, pull.author) for each in left)
    resolved = len(pull.threads) - len(left)
    threads = ThreadCount(open=len(left) - answered, answered=answered, resolved=resolved)
    told = {"new": tuple(new[-_SHOWN:]), "more": max(0, len(new) - _SHOWN), "threads": threads}
    return {**seen, **now}, told


def _same_person(login: str, other: str) -> bool:
    """Return whether two logins are of one account; a deleted account matches none."""
    return bool(login) and login.lower() == other.lower()


_RemarkKind = Literal["comment", "review", "thread"]


def _notes(pull: PullState) -> Iterator[tuple[_RemarkKind, Note, ReviewThread | None]]:
    yield from (("comment", comment, None) for comment in pull.pages.comments.nodes)
    for thread in pull.threads:
        yield from (("thread", comment, thread) for comment in thread.comments)
    for review in pull.pages.reviews.nodes:
        if review.body.strip() or review.verdict not in _NO_VERDICT:
            yield "review", review, None


def _remark(kind: _RemarkKind, note: Note, thread: ReviewThread | None, *, changed: bool) -> Remark:
    """Return a note as a remark, with cleaned and shortened text."""
    place = ""
    if thread is not None:
        line = thread.line or thread.original_line
        place = f"{line_of(thread.path)}{f':{line}' if line else ''}"
    return Remark(
        kind=kind,
        author=line_of(note.author, _LOGIN) if note.author else "(an account that is gone)",
        at=note.updated_at if changed else note.created_at,
        text=line_of(note.body, _EXCERPT),
        url=line_of(note.url),
        place=place,
        verdict=_VERDICTS.get(note.verdict, line_of(note.verdict, _LOGIN).lower()),
        changed=changed,
    )
