"""Pull requests: opening, reading, changing, merging."""

from __future__ import annotations

from typing import Final

from tests.github import fields, githistory, pulling, render, render_pull
from tests.github.pulling import network
from tests.github.routes_git import filled, wants
from tests.github.state import PUSHERS, Issue, Pull, Repository, State, User
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
    UnmodelledError,
    invalid,
    not_found,
    page,
    route,
)

_PULLS: Final = "/repos/{owner}/{repo}/pulls"
_LONGEST_BODY: Final = 65536
_LONGEST_TITLE: Final = 256


def find_pull(request: Request, repository: Repository) -> Pull:
    """Return the pull request of the path, as its branches are now."""
    number = request.parameters["number"]
    issue = repository.issues.get(int(number)) if number.isdecimal() else None
    if issue is None or issue.pull is None:
        raise not_found()
    pulling.settle(request.state, issue.pull)
    return issue.pull


def check_texts(title: str | None, body: str | None) -> None:
    """Refuse a title or body as GitHub does: blank, or too long."""
    if title is not None and not title.strip():
        raise invalid("Issue", "title", "missing_field")
    for name, text, longest in (("title", title, _LONGEST_TITLE), ("body", body, _LONGEST_BODY)):
        if text is not None and len(text) > longest:
            words = f"{name} is too long (maximum is {longest} characters)"
            raise invalid("Issue", name, "custom", words)


def _custom(message: str) -> GitHubFault:
    """Return a 422 with GitHub's own words about a pull request."""
    error: Json = {"resource": "PullRequest", "code": "custom", "message": message}
    return GitHubFault(422, "Validation Failed", [error])


@route("POST", _PULLS, permission="pull_requests")
def open_pull(request: Request) -> Answer:
    base, _ = filled(request)
    user = request.signed_in()
    body = request.json("title", "head", "head_repo", "base", "body", "draft",
                        "maintainer_can_modify")  # fmt: skip
    title, text = fields.text(body, "title"), fields.optional_text(body, "body")
    check_texts(title, text)
    head, head_ref = _head(request, base, fields.text(body, "head"))
    if named := fields.optional_text(body, "head_repo"):
        head = next((one for one in network(request.state, base) if one.name == named), head)
    pull = make_pull(
        request.state,
        user,
        (base, fields.text(body, "base")),
        (head, head_ref),
        title=title,
        text=text,
        draft=fields.flag(body, "draft", default=False),
    )
    pull.maintainer_can_modify = fields.flag(body, "maintainer_can_modify", default=True)
    written = render_pull.full_pull(request.state, pull, request.user, None)
    return Answer(201, written, {"Location": str(written["url"])})


def _head(request: Request, base: Repository, text: str) -> tuple[Repository, str]:
    """Find the repository and the branch that `owner:branch` names."""
    owner, colon, ref = text.rpartition(":")
    if not colon:
        return base, text
    for one in network(request.state, base):
        if one.owner.login.lower() == owner.lower():
            return one, ref
    raise invalid("PullRequest", "head", "invalid")


def make_pull(
    state: State,
    user: User,
    onto: tuple[Repository, str],
    source: tuple[Repository, str],
    *,
    title: str,
    text: str | None,
    draft: bool,
) -> Pull:
    """Check the branches, each a repository and a name, and keep the pull request."""
    (base, base_ref), (head, head_ref) = onto, source
    base_sha = base.git.ref(f"refs/heads/{base_ref}")
    head_sha = head.git.ref(f"refs/heads/{head_ref}")
    if base_sha is None:
        raise invalid("PullRequest", "base", "invalid")
    if head_sha is None:
        raise invalid("PullRequest", "head", "invalid")
    if PUSHERS.isdisjoint({head.permission(user), base.permission(user)}):
        raise _custom(f"user must have push access to {head.full_name}")
    label = f"{head.owner.login}:{head_ref}"
    for other in base.pulls():
        same = other.head is head and other.head_ref == head_ref and other.base_ref == base_ref
        if same and other.issue.state == "open":
            raise _custom(f"A pull request already exists for {label}.")
    if githistory.merge_base(base.git, base_sha, head_sha) is None:
        raise _custom(f"The {head_ref} branch has no history in common with {base.full_name}")
    if githistory.is_ancestor(base.git, head_sha, base_sha):
        across = head is not base
        names = (f"{base.owner.login}:{base_ref}", label) if across else (base_ref, head_ref)
        raise _custom(f"No commits between {names[0]} and {names[1]}")
    number, now = next(base.numbers), state.clock.now()
    issue = Issue(state.next_id(), number, base, user, title, text, now, now)
    issue.pull = Pull(
        state.next_id(),
        issue,
        base,
        base_ref,
        head,
        head.owner,
        head_ref,
        head_sha,
        base_sha,
        draft,
    )
    base.issues[number] = issue
    base.git.set_ref(f"refs/pull/{number}/head", head_sha)
    return issue.pull


@route("GET", _PULLS, query=("state", "head", "base", "sort", "direction"), paged=True)
def list_pulls(request: Request) -> Answer:
    repository = request.repository()
    pulling.settle(request.state, repository)
    query = request.query
    wanted, sort = query.get("state", "open"), query.get("sort", "created")
    if sort not in {"created", "updated"} or wanted not in {"open", "closed", "all"}:
        raise UnmodelledError(f"GET pulls sort={sort} state={wanted}")
    found = [
        one
        for one in repository.pulls()
        if wanted in {"all", one.issue.state}
        and query.get("base", one.base_ref) == one.base_ref
        and _from(one, query.get("head", ""))
    ]
    newest_first = query.get("direction", "desc") == "desc"
    key = (lambda one: one.issue.updated_at) if sort == "updated" else _created
    found.sort(key=key, reverse=newest_first)
    return page(request, found, lambda one: render_pull.pull(request.state, one, request.user))


def _created(one: Pull) -> str:
    return one.issue.created_at


def _from(one: Pull, head: str) -> bool:
    """Say whether the head is `owner:branch`; without an owner GitHub does not filter."""
    if ":" not in head:
        return True
    owner, _, ref = head.partition(":")
    return one.head_owner.login.lower() == owner.lower() and one.head_ref == ref


@route("GET", f"{_PULLS}/{{number}}")
def get_pull(request: Request) -> Answer:
    pull = find_pull(request, request.repository())
    if wants(request, "diff"):
        part = githistory.merge_base(pull.base.git, pull.base_sha, pull.head_sha) or pull.base_sha
        kind = "application/vnd.github.v3.diff; charset=utf-8"
        raw = githistory.diff(pull.base.git, part, pull.head_sha)
        return Answer(raw=raw, headers={"Content-Type": kind})
    if wants(request, "patch"):
        kind = "application/vnd.github.v3.patch; charset=utf-8"
        raw = githistory.series(pull.base.git, pull.base_sha, pull.head_sha)
        return Answer(raw=raw, headers={"Content-Type": kind})
    judged = pulling.mergeable(request.state, pull)
    return Answer(json=render_pull.full_pull(request.state, pull, request.user, judged))


@route("GET", f"{_PULLS}/{{number}}/files", paged=True)
def list_files(request: Request) -> Answer:
    pull = find_pull(request, request.repository())
    git = pull.base.git
    part = githistory.merge_base(git, pull.base_sha, pull.head_sha) or pull.base_sha
    return page(
        request,
        githistory.changes(git, part, pull.head_sha),
        lambda one: render.file_change(request.state, pull.base, pull.head_sha, one),
    )


@route("PATCH", f"{_PULLS}/{{number}}", permission="pull_requests")
def change_pull(request: Request) -> Answer:
    repository = request.repository()
    pull, user = find_pull(request, repository), request.signed_in()
    if user is not pull.issue.user and repository.permission(user) not in PUSHERS:
        raise GitHubFault(403, "Resource not accessible by personal access token")
    body = request.json("title", "body", "state", "base", "maintainer_can_modify")
    title, text = fields.optional_text(body, "title"), fields.optional_text(body, "body")
    check_texts(title, text)
    base = fields.optional_text(body, "base")
    if base is not None and repository.git.ref(f"refs/heads/{base}") is None:
        raise invalid("PullRequest", "base", "invalid")
    wanted = fields.optional_text(body, "state") or pull.issue.state
    if wanted not in {"open", "closed"}:
        raise invalid("PullRequest", "state", "invalid")
    if wanted == "open" and pull.issue.state == "closed":
        _reopen(request, pull, user)
    elif wanted == "closed" and pull.issue.state == "open":
        pulling.close(request.state, pull.issue, user)
    pull.issue.title = title if title is not None else pull.issue.title
    pull.issue.body = text if "body" in body else pull.issue.body
    pull.base_ref = base if base is not None else pull.base_ref
    pull.maintainer_can_modify = fields.flag(
        body, "maintainer_can_modify", default=pull.maintainer_can_modify
    )
    pull.issue.updated_at = request.state.clock.now()
    pulling.settle(request.state, pull)
    judged = pulling.mergeable(request.state, pull)
    return Answer(json=render_pull.full_pull(request.state, pull, request.user, judged))


def _reopen(request: Request, pull: Pull, user: User) -> None:
    """Open it again, unless it was merged or its branch is gone."""
    head = pull.head.git.ref(f"refs/heads/{pull.head_ref}") if pull.head else None
    if pull.merged_at is not None or head is None:
        why = "The pull request cannot be reopened."
        error: Json = {"resource": "PullRequest", "field": "state", "code": "invalid",
                       "message": f"state cannot be changed. {why}"}  # fmt: skip
        raise GitHubFault(422, "Validation Failed", [error])
    pulling.reopen(request.state, pull.issue, user)
