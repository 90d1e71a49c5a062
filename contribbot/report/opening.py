"""What opening a pull request did, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from contribbot.contribute.opening.opened import Opened
from contribbot.model.base import Model
from contribbot.report.text import clean

_SHORT: Final = 12


class Planned(Protocol):
    """A request that would be made, as a rehearsal writes it down."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The path behind the API's URL."""
        ...

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        ...


class CommitView(Model):
    """A commit that was made.

    Attributes:
        id: Its id.
        subject: Its subject.
    """

    id: str
    subject: str


class RequestView(Model):
    """A request that would be made.

    Attributes:
        method: The HTTP method.
        path: The path behind the API's URL.
        what: What it does.
    """

    method: str
    path: str
    what: str


class OpenedView(Model):
    """What was done for a patch; see `contribute.opened.Opened`.

    Attributes:
        patch: The patch.
        upstream: The upstream's repository.
        fork: The repository that has the branch.
        branch: The branch.
        branch_was: `made`, `moved` or `kept`.
        base_branch: The upstream's branch that it goes to.
        base: The commit that it stands on.
        head: The branch's commit.
        commits: What was made; none where the branch was kept.
        pull_request: The pull request, as `owner/name#number`, or empty.
        url: Its page, or the page on which a person opens it.
        state: `draft`, `open`, or `to be opened`.
        pull_request_was: `opened`, `updated`, `kept`, `edited` or `handed off`.
        comment: The page of the comment that tells what changed, or empty.
        body_file: The file with the body, where the page's address has no room for it.
        waits_for: The pull requests that it waits for.
        notes: What else a person should know.
    """

    patch: str
    upstream: str
    fork: str
    branch: str
    branch_was: str
    base_branch: str
    base: str
    head: str
    commits: tuple[CommitView, ...]
    pull_request: str
    url: str
    state: str
    pull_request_was: str
    comment: str
    body_file: str
    waits_for: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, opened: Opened) -> OpenedView:
        """View what was done."""
        return cls(
            patch=opened.patch,
            upstream=opened.upstream,
            fork=opened.fork,
            branch=opened.branch,
            branch_was=opened.branch_was,
            base_branch=opened.base_branch,
            base=opened.base,
            head=opened.head,
            commits=tuple(CommitView(id=one, subject=subject) for one, subject in opened.commits),
            pull_request=opened.reference,
            url=opened.url,
            state=opened.state,
            pull_request_was=opened.pull_was,
            comment=opened.comment,
            body_file=str(opened.body_file or ""),
            waits_for=opened.waits_for,
            notes=opened.notes,
        )


class OpeningView(Model):
    """What `open-pr --json` prints.

    Attributes:
        dry_run: Whether nothing was written: then all of it is what would be.
        patches: What was done, a patch each, up to the first that could not be.
        requests: With `dry_run` the requests that would change something.
    """

    dry_run: bool
    patches: tuple[OpenedView, ...]
    requests: tuple[RequestView, ...] = ()


def opened_lines(opened: Opened, *, dry: bool = False) -> list[str]:
    """Return what was done for a patch, as lines."""
    would = "would be " if dry else ""
    where = f"{opened.fork}:{opened.branch}"
    base = f"{opened.upstream}@{opened.base_branch} {opened.base[:_SHORT]}"
    at = opened.head[:_SHORT]
    lines = [f"{opened.patch}: branch {where} {would}{opened.branch_was}, on {base}, at {at}"]
    lines += [f"  {commit[:_SHORT]} {subject}" for commit, subject in opened.commits]
    lines.append(f"  {_pull(opened, would)}")
    if opened.body_file is not None:
        there = "it would be in" if dry else "paste it from"
        lines.append(f"  the body is too long for that address: {there} {opened.body_file}")
    if opened.waits_for:
        lines.append(f"  it waits for {', '.join(opened.waits_for)}")
    if opened.comment:
        lines.append(f"  what changed {'would be' if dry else 'is'} told in {opened.comment}")
    lines += [f"  note: {note}" for note in opened.notes]
    return [clean(line) for line in lines]


def _pull(opened: Opened, would: str) -> str:
    if opened.pull_was == "handed off":
        if would:
            return f"no pull request would be opened: you would open it on {opened.url}"
        return f"no pull request yet: open it on {opened.url}"
    kind = "draft pull request" if opened.state == "draft" else "pull request"
    if opened.pull_was == "edited":
        return f"{kind} {opened.reference} keeps the text that a person gave it: {opened.url}"
    if would and opened.pull_was == "opened":
        return f"a {kind} would be opened at {opened.upstream}"
    return f"{kind} {opened.reference} {would}{opened.pull_was}: {opened.url}"


def requests_of(planned: Sequence[Planned]) -> tuple[RequestView, ...]:
    """View requests that would be made."""
    return tuple(RequestView(method=one.method, path=one.path, what=one.summary) for one in planned)


def request_lines(requests: Sequence[RequestView]) -> list[str]:
    """Return what a rehearsal would have sent, as lines."""
    if not requests:
        return ["nothing was sent, and nothing would be"]
    rows = [clean(f"  {one.method:5} {one.path}  {one.what}") for one in requests]
    return ["nothing was sent; these requests would be:", *rows]
