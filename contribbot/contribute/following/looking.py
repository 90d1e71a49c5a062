"""One look at one pull request: what changed is asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from contribbot.contribute.following import ci, lastlook
from contribbot.contribute.following.landing import Fate, Landing, events_of, landing
from contribbot.contribute.following.nextsteps import steps
from contribbot.contribute.following.noting import Sight
from contribbot.contribute.following.subject import Seen, Subject, Upstreams
from contribbot.contribute.following.talk import Talk, counted, decision, listen
from contribbot.contribute.following.threads import line_of
from contribbot.github.fields import login_of, whole
from contribbot.model.follow import Followed, Kept, State

if TYPE_CHECKING:
    from github.IssueEvent import IssueEvent
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

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
        same = kept is not None and kept.pull == lastlook.pull_digest(pull)
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
        found, other = ci.by_target(
            whole(self.github.commit(repository, pull.head.sha).get_check_runs(filter="latest")),
            self.github.statuses(repository, pull.head.sha),
            rules.ci if rules else None,
        )
        waits = rules is not None and any(one.state == "not started" for one in found)
        start = " ".join(rules.ci.start.split()) if rules is not None and waits else ""
        told = now.model_copy(update={"ci": found, "other": other, "start": start})
        return told, ci.has_ended(found, other)

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
        if kept is None or kept.pull != lastlook.pull_digest(pull):
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
            pull=lastlook.pull_digest(pull),
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
    return lastlook.digest(" ".join(str(one.id) for one in events))
