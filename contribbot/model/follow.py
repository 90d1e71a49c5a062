"""What `follow` and `reviews` say of contributions. All text in it is clean and bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model, Time

#: Where a contribution stands. `landed`: a bot put it on the default branch and closed the
#: pull request; `reverted`: it was merged, and taken back since; `not opened`: the branch is
#: there, and no pull request yet; `not known`: GitHub could not be asked.
State = Literal[
    "not opened", "draft", "open", "merged", "landed", "reverted", "closed", "not known"
]  # fmt: skip
#: How the jobs of CI for a target stand. `not run`: all of them were skipped.
CiState = Literal["passed", "failed", "running", "not run", "not started"]


class TargetCi(Model):
    """What CI says of a target.

    Attributes:
        target: The target; `other` for the jobs of none.
        state: How its jobs stand.
        jobs: How many there are.
        running: How many of them have not ended.
        failed: Those that failed, some of them, by name.
        failures: How many failed.
    """

    target: str
    state: CiState
    jobs: int = 0
    running: int = 0
    failed: Annotated[tuple[str, ...], Field(strict=False)] = ()
    failures: int = 0


class ThreadCount(Model):
    """How many review threads there are.

    Attributes:
        open: Not resolved, and the last word is not the author's.
        answered: Not resolved, and the last word is the author's.
        resolved: Resolved, where that is known.
        known: Whether GitHub says which are resolved.
    """

    open: int = 0
    answered: int = 0
    resolved: int = 0
    known: bool = True


class Remark(Model):
    """Something that somebody said.

    Attributes:
        kind: Where: below the pull request, in a review, or at a line.
        author: Who.
        at: When; of a comment that was changed, when that was.
        text: What.
        url: Where on the page.
        thread: The short id of the thread that it is part of, or empty.
        place: File and line, or empty.
        verdict: Of a review: `approved`, `changes requested` and so on; or empty.
        changed: Whether it was seen before, and has changed since.
    """

    kind: Literal["comment", "review", "thread"]
    author: str
    at: Time | None
    text: str
    url: str
    thread: str = ""
    place: str = ""
    verdict: str = ""
    changed: bool = False


class Step(Model):
    """What is next.

    Attributes:
        who: For whom: `you`, `reviewers`, `maintainers`, `CI` or `anyone entitled`.
        what: What.
    """

    who: str
    what: str


class Followed(Model):
    """Where one contribution stands.

    Attributes:
        patch: The patch.
        queued: Whether the patch is still in the queue.
        repository: The upstream's repository.
        reference: The pull request, as `owner/name#number`; or empty.
        url: Its page, or empty.
        title: Its title.
        state: Where it stands.
        change: What it was before, where that has changed since the last look; or empty.
        commit: The commit by which the default branch has it, or empty.
        reverted: The commit that took it back, or empty.
        why: What else is to be said of the state, or empty.
        base: The branch that it goes to.
        mergeable: Whether it merges without a conflict.
        behind: Commits of the base that the branch lacked when it was compared; none: not known.
        compared: When it was compared.
        ci: What CI says, a target each.
        other: What the jobs say that are for no target; none: there are none.
        start: How CI is started, for a person; empty where all of it has started.
        decision: What the reviewers say together.
        by: The reviewers who say so.
        threads: Its review threads.
        new: What others said or changed since the last look, newest last; the latest of it.
        more: How much more that is.
        next: What is next, for whom.
        looked: When GitHub was last asked for all of it.
        error: Why it could not be looked at now, or empty. The rest is then as it was.
    """

    patch: str
    queued: bool
    repository: str
    reference: str = ""
    url: str = ""
    title: str = ""
    state: State = "not known"
    change: str = ""
    commit: str = ""
    reverted: str = ""
    why: str = ""
    base: str = ""
    mergeable: Literal["yes", "no", "not known"] = "not known"
    behind: int | None = None
    compared: Time | None = None
    ci: Annotated[tuple[TargetCi, ...], Field(strict=False)] = ()
    other: TargetCi | None = None
    start: str = ""
    decision: Literal["approved", "changes requested", "none"] = "none"
    by: Annotated[tuple[str, ...], Field(strict=False)] = ()
    threads: ThreadCount = ThreadCount()
    new: Annotated[tuple[Remark, ...], Field(strict=False)] = ()
    more: int = 0
    next: Annotated[tuple[Step, ...], Field(strict=False)] = ()
    looked: Time | None = None
    error: str = ""


class FollowReport(Model):
    """What `follow --json` prints.

    Attributes:
        contributions: One each: the queue's in its order, then those that left it.
        without: Patches of the queue of which nothing is on GitHub yet.
    """

    contributions: tuple[Followed, ...]
    without: tuple[str, ...]


class Kept(Model):
    """What is remembered of the last look at a pull request. It can be deleted at any time.

    Attributes:
        form: The form of this file.
        reference: The pull request.
        rules: Digest of the rules by which CI was read.
        pull: Digest of what GitHub said of it, as far as all else hangs on that.
        base: The commit of its base.
        head: The commit that CI was asked about.
        events: Digest of what happened to it, where it has ended.
        until: The time up to which comments are known.
        seen: What was seen: its id, and when it was last changed.
        done: Whether nothing is open: CI has ended or, of one that has ended itself, GitHub
            had every commit that it names.
        followed: What was said then.
    """

    form: Literal[1] = 1
    reference: str
    rules: str
    pull: str
    base: str
    head: str
    events: str = ""
    until: Time | None = None
    seen: dict[str, str] = Field(default_factory=dict)
    done: bool = False
    followed: Followed


class ThreadView(Model):
    """A thread of review comments.

    Attributes:
        id: Its short id, which stays.
        file: The file.
        line: The line in the newest version; none where that is no longer part of it.
        was: The line in the version that it was written about.
        side: `base` or `change`: which of the two the line is one of.
        resolved: Whether it is resolved; none: GitHub does not say.
        outdated: Whether the lines have changed since; none: GitHub does not say.
        answered: Whether the last word is the author's.
        code: The lines around, as a hunk of a diff.
        comments: What was said, oldest first.
    """

    id: str
    file: str
    line: int | None
    was: int | None
    side: Literal["base", "change"]
    resolved: bool | None
    outdated: bool | None
    answered: bool
    code: tuple[str, ...]
    comments: tuple[Remark, ...]


class ReviewsReport(Model):
    """What `reviews --json` prints.

    Attributes:
        patch: The patch.
        reference: Its pull request.
        url: Its page.
        known: Whether GitHub says which threads are resolved.
        threads: The threads, by file and line; without `--all` those that are not resolved.
        hidden: How many threads are left out because they are resolved.
        comments: What was said besides, oldest first; without `--all` the latest of it.
        earlier: How much of that is left out.
    """

    patch: str
    reference: str
    url: str
    known: bool
    threads: tuple[ThreadView, ...]
    hidden: int
    comments: tuple[Remark, ...]
    earlier: int
