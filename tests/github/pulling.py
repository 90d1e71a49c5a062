"""Events of repositories and pull requests: forks, pushes, merges, landings."""

from __future__ import annotations

from pathlib import Path

from tests.github.gitdata import BareRepository, Person, git_time
from tests.github.state import PUSHERS, Issue, Json, Pull, Repository, State, User
from tests.github.state_social import add_event, add_issue
from tests.github.wire import GitHubFault, invalid


def add_repository(
    state: State, owner: User, name: str, default_branch: str, *, objects: Path | None = None
) -> Repository:
    """Keep an empty repository, with objects of its own or those of its network."""
    folder = state.root / owner.login / f"{name}.git"
    git = BareRepository.create(folder, objects, default_branch)
    now = state.clock.now()
    made = Repository(state.next_id(), owner, name, git, default_branch, now, state.base)
    state.repositories[made.full_name.lower()] = made
    return made


def fork(
    state: State, upstream: Repository, owner: User, name: str | None = None, *, branch: str = "*"
) -> Repository:
    """Fork all branches or one, or return the fork that this user has; a name may be in use."""
    root = upstream.root
    for known in state.network(root):
        if known.owner is owner and known is not root:
            return known
    numbers = ("", *(f"-{number}" for number in range(1, 10)))
    free = next(it for number in numbers
                if state.repository(f"{owner.login}/{(it := f'{name or upstream.name}{number}')}")
                is None)  # fmt: skip
    objects = (root.git.path / "objects").resolve()
    made = add_repository(state, owner, free, upstream.default_branch, objects=objects)
    made.git.fetch(upstream.git.path, f"+refs/heads/{branch}:refs/heads/{branch}")
    made.parent, made.polls_until_ready = upstream, state.forks_ready_after
    return made


def make_pull(
    state: State, user: User, onto: tuple[Repository, str], source: tuple[Repository, str], *,
    title: str, text: str | None, draft: bool,
) -> Pull:  # fmt: skip
    """Check the branches, each a repository and a name, and keep the pull request."""
    (base, base_ref), (head, head_ref) = onto, source
    shas = [where.git.ref(f"refs/heads/{ref}") for where, ref in (onto, source)]
    base_sha, head_sha = shas
    if base_sha is None or head_sha is None:
        raise invalid("PullRequest", "head" if base_sha else "base", "invalid")
    label = f"{head.owner.login}:{head_ref}"
    open_ones = [pull for pull in base.pulls() if pull.issue.state == "open"]
    for holds, words in (
        (PUSHERS.isdisjoint({head.permission(user), base.permission(user)}),
         f"user must have push access to {head.full_name}"),
        (any((pull.head, pull.head_ref, pull.base_ref) == (head, head_ref, base_ref)
             for pull in open_ones), f"A pull request already exists for {label}."),
        (base.git.merge_base(base_sha, head_sha) is None,
         f"The {head_ref} branch has no history in common with {base.full_name}"),
        (base.git.is_ancestor(head_sha, base_sha),
         f"No commits between {base.owner.login}:{base_ref} and {label}"),
    ):  # fmt: skip
        if holds:
            error: Json = {"resource": "PullRequest", "code": "custom", "message": words}
            raise GitHubFault(422, "Validation Failed", [error])
    issue = add_issue(state, base, user, title, text)
    issue.pull = Pull(
        state.next_id(), issue, base, base_ref, head, head.owner, head_ref, head_sha, base_sha,
        draft,
    )  # fmt: skip
    base.git.set_ref(f"refs/pull/{issue.number}/head", head_sha)
    return issue.pull


def settle(state: State, touched: Repository | Pull | None = None) -> None:
    """Let open pull requests see their branches as they are now: all, or what was touched.

    A deleted head branch closes; commits that reached the base branch by a push merge it.
    """
    with state.lock:
        every = [pull for where in [*state.repositories.values()] for pull in where.pulls()]
        for pull in every:
            near = touched in {None, pull, pull.base, pull.head}
            if near and pull.issue.state == "open":
                _follow(state, pull)


def _follow(state: State, pull: Pull) -> None:
    base = pull.base.git.ref(f"refs/heads/{pull.base_ref}")
    head = pull.head.git.ref(f"refs/heads/{pull.head_ref}") if pull.head else None
    if base is None or head is None:
        add_event(state, pull.issue, pull.issue.user, "closed")
        return
    if head != pull.head_sha:
        pull.issue.updated_at = state.clock.now()
        pull.base.git.set_ref(f"refs/pull/{pull.number}/head", head)
    elif base != pull.base_sha and pull.base.git.is_ancestor(head, base):
        mark_merged(state, pull, pull.base.owner, head)
        return
    pull.head_sha, pull.base_sha = head, base


def mergeable(state: State, pull: Pull) -> bool | None:
    """Say whether it merges; None: GitHub is still working it out, as at the first look."""
    if pull.issue.state == "closed":
        return None
    with state.lock:
        now = (pull.head_sha, pull.base_sha)
        if pull.judged != now:
            pull.judged, pull.test_merge = now, None
            if not state.mergeable_at_once:
                return None
        git, author = pull.base.git, pull.issue.user
        tree = git.merge_tree(pull.base_sha, pull.head_sha)
        if tree is not None and pull.test_merge is None:
            who = Person(author.name, author.email, git_time(state.clock.now()))
            parents = [pull.base_sha, pull.head_sha]
            pull.test_merge = git.add_commit(tree, parents, who, who, f"Merge {pull.head_sha}")
        return tree is not None


def mark_merged(state: State, pull: Pull, who: User, sha: str) -> None:
    pull.merge_commit = sha
    add_event(state, pull.issue, who, "merged", commit=sha)
    pull.merged_at = add_event(state, pull.issue, who, "closed").created_at


def close(state: State, issue: Issue, who: User, *, closed: bool) -> None:
    if closed != (issue.state == "closed"):
        add_event(state, issue, who, "closed" if closed else "reopened")
