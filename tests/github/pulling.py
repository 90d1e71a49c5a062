"""What happens to pull requests: they follow their branches, merge, land by a bot, or close."""

from __future__ import annotations

from typing import Literal

from tests.github import render
from tests.github.gitdata import Person, git_time
from tests.github.githistory import commits_between, is_ancestor, merge_base, merge_tree, replay
from tests.github.state import Event, Issue, Pull, Repository, State, User

How = Literal["merge", "squash", "rebase"]


class NotMergeableError(Exception):
    """It conflicts with its base."""


def network(state: State, one: Repository) -> list[Repository]:
    """Return a repository and all that share its objects."""
    root = one.source or one
    return [other for other in list(state.repositories.values()) if (other.source or other) is root]


def settle(state: State, touched: Repository | Pull | None = None) -> None:
    """Let open pull requests see their branches as they are now.

    A deleted head branch closes; commits that reached the base branch by a push merge it.

    Args:
        state: Where it all is.
        touched: One pull request, or a repository in which a branch moved; None looks at all,
            which takes two git commands for each that is open.
    """
    with state.lock:
        if isinstance(touched, Pull):
            pulls = [touched]
        else:
            near = network(state, touched) if touched else list(state.repositories.values())
            every = [pull for one in near for pull in one.pulls()]
            pulls = [one for one in every if touched in {None, one.base, one.head}]
        for pull in pulls:
            if pull.issue.state == "open":
                _follow(state, pull)


def _follow(state: State, pull: Pull) -> None:
    """Follow the branches of one open pull request."""
    base = pull.base.git.ref(f"refs/heads/{pull.base_ref}")
    head = pull.head.git.ref(f"refs/heads/{pull.head_ref}") if pull.head else None
    if base is None or head is None:
        close(state, pull.issue, pull.issue.user)
        return
    moved = head != pull.head_sha
    if not moved and base != pull.base_sha and is_ancestor(pull.base.git, head, base):
        _mark_merged(state, pull, pull.base.owner, head)
        return
    if moved:
        pull.issue.updated_at = state.clock.now()
        pull.base.git.set_ref(f"refs/pull/{pull.number}/head", head)
    pull.head_sha, pull.base_sha = head, base


def mergeable(state: State, pull: Pull) -> bool | None:
    """Say whether it merges; None: GitHub is still working it out, as at the first look."""
    if pull.issue.state == "closed":
        return None
    now = (pull.head_sha, pull.base_sha)
    with state.lock:
        if pull.judged != now:
            pull.judged = now
            pull.test_merge = None
            if not state.mergeable_at_once:
                return None
        git = pull.base.git
        tree = merge_tree(git, pull.base_sha, pull.head_sha)
        if tree is None:
            return False
        if pull.test_merge is None:
            who = Person(pull.issue.user.name, pull.issue.user.email, git_time(state.clock.now()))
            words = f"Merge {pull.head_sha} into {pull.base_sha}"
            parents = [pull.base_sha, pull.head_sha]
            pull.test_merge = git.add_commit(tree, parents, who, who, words)
            git.set_ref(f"refs/pull/{pull.number}/merge", pull.test_merge)
        return True


def merge(
    state: State,
    pull: Pull,
    who: User,
    how: How = "merge",
    *,
    title: str | None = None,
    message: str | None = None,
) -> str:
    """Merge it, and return the commit that GitHub calls the merge commit.

    Raises:
        NotMergeableError: It conflicts with its base.
    """
    git, issue = pull.base.git, pull.issue
    person = Person(who.name, render.noreply(who), git_time(state.clock.now()))
    tree = merge_tree(git, pull.base_sha, pull.head_sha)
    if tree is None:
        raise NotMergeableError
    sha: str | None
    if how == "merge":
        first = title or (
            f"Merge pull request #{issue.number} from {pull.head_owner.login}/{pull.head_ref}"
        )
        text = f"{first}\n\n{issue.title if message is None else message}"
        sha = git.add_commit(tree, [pull.base_sha, pull.head_sha], person, person, text)
    elif how == "squash":
        sha = _squash(state, pull, person, title or f"{issue.title} (#{issue.number})", message)
    else:
        part = merge_base(git, pull.base_sha, pull.head_sha) or pull.base_sha
        sha = replay(git, commits_between(git, part, pull.head_sha), pull.base_sha, person)
    if sha is None:
        raise NotMergeableError
    git.set_ref(f"refs/heads/{pull.base_ref}", sha)
    _mark_merged(state, pull, who, sha)
    settle(state, pull.base)
    return sha


def _squash(state: State, pull: Pull, person: Person, title: str, message: str | None) -> str:
    """Make the one commit of a squash, by the author of the first one."""
    del state
    git = pull.base.git
    tree = merge_tree(git, pull.base_sha, pull.head_sha)
    if tree is None:
        raise NotMergeableError
    commits = [git.commit(sha) for sha in commits_between(git, pull.base_sha, pull.head_sha)]
    if message is None:
        bodies = [one.message for one in commits]
        message = (
            bodies[0].partition("\n\n")[2] if len(bodies) == 1 else "* " + "\n\n* ".join(bodies)
        )
    text = f"{title}\n\n{message}" if message else title
    return git.add_commit(tree, [pull.base_sha], commits[0].author, person, text)


def land_by_bot(state: State, pull: Pull, bot: User) -> str:
    """Land it as pytorchmergebot does: one commit pushed by a bot, the pull request closed.

    It is then closed and not merged; the commit and the `closed` event name each other.
    """
    git, issue = pull.base.git, pull.issue
    person = Person(bot.name, render.noreply(bot), git_time(state.clock.now()))
    body = (issue.body or "").strip()
    url = f"{render.WEB}/{pull.base.full_name}/pull/{issue.number}"
    words = f"{body}\n\nPull Request resolved: {url}\nApproved by: https://github.com/{bot.login}"
    sha = _squash(state, pull, person, f"{issue.title} (#{issue.number})", words.strip())
    git.set_ref(f"refs/heads/{pull.base_ref}", sha)
    _happened(state, issue, bot, "referenced", sha)
    close(state, issue, bot, sha)
    issue.labels.append("Merged")
    settle(state, pull.base)
    return sha


def close(state: State, issue: Issue, who: User, commit: str | None = None) -> None:
    """Close an issue or a pull request; `commit` names what closed it."""
    issue.state, issue.closed_by = "closed", who
    issue.closed_at = issue.updated_at = state.clock.now()
    if issue.pull is None:
        issue.state_reason = issue.state_reason or "completed"
    _happened(state, issue, who, "closed", commit)


def reopen(state: State, issue: Issue, who: User) -> None:
    """Open it again."""
    issue.state, issue.closed_by, issue.closed_at = "open", None, None
    issue.state_reason = "reopened" if issue.pull is None else None
    issue.updated_at = state.clock.now()
    _happened(state, issue, who, "reopened", None)


def _mark_merged(state: State, pull: Pull, who: User, sha: str) -> None:
    """Note that it is merged."""
    pull.merged_by, pull.merge_commit = who, sha
    _happened(state, pull.issue, who, "merged", sha)
    close(state, pull.issue, who)
    pull.merged_at = pull.issue.closed_at


def _happened(state: State, issue: Issue, who: User, what: str, commit: str | None) -> None:
    """Keep an event."""
    issue.events.append(Event(state.next_id(), what, who, state.clock.now(), commit))
