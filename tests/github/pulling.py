"""Things that people and machines do: fork, push, merge, land, talk, review, judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.github.gitdata import BareRepository, Person, git_time
from tests.github.state import (
    PUSHERS,
    Comment,
    Event,
    Issue,
    Job,
    Json,
    Pull,
    Repository,
    State,
    User,
    Verdict,
)
from tests.github.wire import GitHubFault


def add_repository(
    state: State, owner: User, name: str, default_branch: str, *, objects: Path | None = None
) -> Repository:
    """Add an empty repository, with objects of its own or of its fork network."""
    folder = state.root / owner.login / f"{name}.git"
    git = BareRepository.create(folder, objects, default_branch)
    now = state.clock.now()
    made = Repository(state.next_id(), owner, name, git, default_branch, now, state.base)
    state.repositories[made.full_name.lower()] = made
    return made


def fork(
    state: State, upstream: Repository, owner: User, name: str | None = None, *, branch: str = "*"
) -> Repository:
    """Fork all branches or one; return the user's fork if there is a fork already."""
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
    """Add a pull request after GitHub's checks of its branches, each a repository and a name."""
    (base, base_ref), (head, head_ref) = onto, source
    shas = [where.git.ref(f"refs/heads/{ref}") for where, ref in (onto, source)]
    base_sha, head_sha = shas
    assert base_sha is not None
    assert head_sha is not None
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
    """Update open pull requests to their branches' commits: all, or those of a repository."""
    with state.lock:
        every = [pull for where in [*state.repositories.values()] for pull in where.pulls()]
        for pull in every:
            near = touched in {None, pull, pull.base, pull.head}
            if near and pull.issue.state == "open":
                _follow(state, pull)


def _follow(state: State, pull: Pull) -> None:
    base = pull.base.git.ref(f"refs/heads/{pull.base_ref}")
    head = pull.head.git.ref(f"refs/heads/{pull.head_ref}") if pull.head else None
    assert base is not None
    assert head is not None
    if head != pull.head_sha:
        pull.issue.updated_at = state.clock.now()
        pull.base.git.set_ref(f"refs/pull/{pull.number}/head", head)
    pull.head_sha, pull.base_sha = head, base


def mergeable(state: State, pull: Pull) -> bool | None:
    """Return whether a pull request merges; None: GitHub has not computed the answer yet."""
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


def add_issue(state: State, where: Repository, author: User, title: str, body: str | None) -> Issue:
    now = state.clock.now()
    issue = Issue(state.next_id(), next(where.numbers), where, author, title, body, now, now)
    where.issues[issue.number] = issue
    return issue


def add_comment(state: State, issue: Issue, author: User, body: str) -> Comment:
    issue.updated_at = now = state.clock.now()
    issue.comments.append(Comment(state.next_id(), author, body, now, now))
    return issue.comments[-1]


def add_event(
    state: State, issue: Issue, actor: User, event: str, *, commit: str | None = None
) -> Event:
    """Add an event to an issue, perhaps with a commit; `closed` and `reopened` change the state."""
    now = issue.updated_at = state.clock.now()
    if event == "closed":
        issue.state, issue.closed_at = "closed", now
    elif event == "reopened":
        issue.state, issue.closed_at = "open", None
    issue.events.append(Event(event, actor, now, commit))
    return issue.events[-1]


def set_labels(state: State, issue: Issue, actor: User, names: Sequence[str]) -> None:
    """Replace the labels of an issue; each change is an event."""
    for name in {*names} ^ {*issue.labels}:
        add_event(state, issue, actor, "labeled" if name in names else "unlabeled")
    issue.labels = list(names)


def add_review(
    state: State, pull: Pull, author: User, verdict: Verdict, *, body: str = ""
) -> Comment:
    """Add a review with a verdict to a pull request."""
    pull.issue.updated_at = now = state.clock.now()
    pull.reviews.append(Comment(state.next_id(), author, body, now, now, verdict))
    return pull.reviews[-1]


def add_review_comment(
    state: State, pull: Pull, author: User, body: str, *, path: str = "", line: int = 0,
    root: Comment | None = None,
) -> Comment:  # fmt: skip
    """Begin a thread on a line of the diff, or answer in the thread that `root` began."""
    now = add_review(state, pull, author, "COMMENTED").created_at
    path, line = (root.path, root.line) if root else (path, line)
    told = Comment(
        state.next_id(), author, body, now, now, path=path, line=line, reply_to=root
    )  # fmt: skip
    pull.review_comments.append(told)
    return told


def add_check_run(
    state: State, where: Repository, commit: str, name: str, conclusion: str | None
) -> None:
    """Add a check run of a commit; no conclusion: the run has not ended."""
    where.jobs.append(Job(commit, name, conclusion, state.clock.now()))


def add_status(state: State, where: Repository, commit: str, mood: str, *, context: str) -> None:
    """Set the status of a commit in a context."""
    where.jobs.append(Job(commit, context, mood, state.clock.now(), is_status=True))
