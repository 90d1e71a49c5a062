"""What the local GitHub knows, in GitHub's words; `models.py` adds what nobody reads."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from tests.github.gitdata import BareRepository, CommitData, FileChange, Person
from tests.github.models import Json
from tests.github.state import (
    PUSHERS,
    CheckRun,
    Comment,
    CommitStatus,
    Event,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewComment,
    Side,
    State,
    User,
)

#: Where pages for people are; the API itself is at `State.base`.
WEB: Final = "https://github.com"
_HUNK: Final = re.compile(r"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_RANKS: Final = {"pull": "read", "push": "write", "admin": "admin"}
_LEVELS: Final = ("read", "write", "admin")


def node_id(kind: str, number: int) -> str:
    """Make GitHub's opaque name of a thing."""
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def api(state: State, where: Repository) -> str:
    """Return the URL of a repository."""
    return f"{state.base}/repos/{where.full_name}"


def user(who: User) -> Json:
    """Write a user."""
    return {"login": who.login, "id": who.id, "type": who.kind}


def minimal(state: State, where: Repository) -> Json:
    """Write a repository as it stands inside runs and statuses."""
    return {
        "id": where.id, "node_id": node_id("Repository", where.id), "name": where.name,
        "full_name": where.full_name, "owner": user(where.owner), "private": where.private,
        "html_url": f"{WEB}/{where.full_name}", "fork": where.parent is not None,
        "url": api(state, where),
    }  # fmt: skip


def repository(state: State, where: Repository, asked_by: User | None) -> Json:
    """Write a repository as it stands inside other answers."""
    level = where.permission(asked_by)
    reached = _LEVELS.index(level) if level else -1
    return minimal(state, where) | {
        "default_branch": where.default_branch, "archived": where.archived,
        "has_pull_requests": where.has_pull_requests,
        "pull_request_creation_policy": where.pull_request_creation_policy,
        "visibility": "private" if where.private else "public",
        "permissions": {name: reached >= _LEVELS.index(need) for name, need in _RANKS.items()},
    }  # fmt: skip


def full_repository(state: State, where: Repository, asked_by: User | None) -> Json:
    """Write a repository as `GET /repos/OWNER/NAME` does."""
    written = repository(state, where, asked_by)
    if where.parent is not None:
        written["parent"] = repository(state, where.parent, asked_by)
        written["source"] = repository(state, where.root, asked_by)
    return written


def _person(person: Person) -> Json:
    return {"name": person.name, "email": person.email, "date": person.time}


def git_commit(state: State, where: Repository, commit: CommitData) -> Json:
    """Write a commit as the Git Data API does."""
    url = f"{api(state, where)}/git"
    return {
        "sha": commit.sha, "url": f"{url}/commits/{commit.sha}",
        "author": _person(commit.author), "committer": _person(commit.committer),
        "tree": {"sha": commit.tree, "url": f"{url}/trees/{commit.tree}"},
        "message": commit.message.rstrip("\n"),
        "parents": [{"sha": sha, "url": f"{url}/commits/{sha}"} for sha in commit.parents],
    }  # fmt: skip


def full_commit(state: State, where: Repository, sha: str) -> Json:
    """Write a commit as it stands in branches and comparisons."""
    inner = git_commit(state, where, where.git.commit(sha))
    parents = inner.pop("parents")
    del inner["sha"]
    url = f"{api(state, where)}/commits/{sha}"
    return {"sha": sha, "url": url, "commit": inner, "parents": parents}


def file_change(change: FileChange) -> Json:
    """Write a changed file of a comparison or a pull request."""
    rows = (change.patch or "").split("\n")
    counts = {name: sum(row.startswith(sign) for row in rows)
              for name, sign in (("additions", "+"), ("deletions", "-"))}  # fmt: skip
    written: Json = {"sha": change.sha, "filename": change.path, "status": change.status, **counts,
                     "changes": sum(counts.values())}  # fmt: skip
    if change.patch is not None:
        written["patch"] = change.patch
    if change.previous is not None:
        written["previous_filename"] = change.previous
    return written


def page(issue: Issue) -> str:
    """Return where people read an issue or a pull request."""
    kind = "pull" if issue.pull else "issues"
    return f"{WEB}/{issue.repository.full_name}/{kind}/{issue.number}"


def _association(where: Repository, who: User) -> str:
    landed = any(pull.merged_at and pull.issue.user is who for pull in where.pulls())
    known = "OWNER" if who is where.owner else "MEMBER"
    return known if where.permission(who) in PUSHERS else "CONTRIBUTOR" if landed else "NONE"


def _talk(state: State, issue: Issue, where: str) -> Json:
    """Write what an issue and a pull request have in common."""
    return {
        "url": f"{api(state, issue.repository)}/{where}/{issue.number}", "html_url": page(issue),
        "number": issue.number, "state": issue.state, "title": issue.title, "body": issue.body,
        "user": user(issue.user), "created_at": issue.created_at, "updated_at": issue.updated_at,
        "closed_at": issue.closed_at,
        "labels": [_label(state, issue, name) for name in issue.labels],
        "author_association": _association(issue.repository, issue.user),
    }  # fmt: skip


def _label(state: State, issue: Issue, name: str) -> Json:
    return {"name": name, "url": f"{api(state, issue.repository)}/labels/{name}"}


def issue(state: State, thing: Issue) -> Json:
    """Write an issue, or a pull request as an issue."""
    written = {"id": thing.id, **_talk(state, thing, "issues"), "comments": len(thing.comments)}
    if thing.pull is not None:
        url = f"{api(state, thing.repository)}/pulls/{thing.number}"
        link = {"url": url, "html_url": page(thing), "merged_at": thing.pull.merged_at}
        written |= {"draft": thing.pull.draft, "pull_request": {**link}}
    return written


def pull(state: State, thing: Pull, asked_by: User | None) -> Json:
    """Write a pull request as it stands in lists."""
    sides = (
        ("head", thing.head, thing.head_owner, thing.head_ref, thing.head_sha),
        ("base", thing.base, thing.base.owner, thing.base_ref, thing.base_sha),
    )
    written: Json = {
        "id": thing.id, "node_id": node_id("PullRequest", thing.id),
        **_talk(state, thing.issue, "pulls"),
        "issue_url": f"{api(state, thing.base)}/issues/{thing.number}",
        "merged_at": thing.merged_at, "draft": thing.draft,
        "merge_commit_sha": thing.merge_commit or thing.test_merge,
    }  # fmt: skip
    for name, where, owner, ref, sha in sides:
        repo = repository(state, where, asked_by) if where else None
        written[name] = {
            "label": f"{owner.login}:{ref}", "ref": ref, "sha": sha, "repo": repo,
            "user": user(owner),
        }  # fmt: skip
    return written


def full_pull(state: State, thing: Pull, asked_by: User | None, mergeable: bool | None) -> Json:
    """Write a pull request as `GET /repos/OWNER/NAME/pulls/N` does."""
    return pull(state, thing, asked_by) | {
        "merged": thing.merged_at is not None, "mergeable": mergeable,
        "comments": len(thing.issue.comments), "review_comments": len(thing.review_comments),
        "commits": len(thing.base.git.between(thing.base_sha, thing.head_sha)),
    }  # fmt: skip


def comment(state: State, where: Issue, thing: Comment) -> Json:
    """Write a comment of a conversation."""
    return {
        "url": f"{api(state, where.repository)}/issues/comments/{thing.id}", "id": thing.id,
        "html_url": f"{page(where)}#issuecomment-{thing.id}", "user": user(thing.user),
        "created_at": thing.created_at, "updated_at": thing.updated_at, "body": thing.body,
        "author_association": _association(where.repository, thing.user),
    }  # fmt: skip


def event(state: State, where: Issue, thing: Event) -> Json:
    """Write an event of an issue."""
    return {
        "id": thing.id, "url": f"{api(state, where.repository)}/issues/events/{thing.id}",
        "actor": user(thing.actor), "event": thing.event, "commit_id": thing.commit_id,
        "created_at": thing.created_at,
    }  # fmt: skip


def review(where: Pull, thing: Review) -> Json:
    """Write a review."""
    return {
        "id": thing.id, "user": user(thing.user), "body": thing.body, "state": thing.state,
        "html_url": f"{page(where.issue)}#pullrequestreview-{thing.id}",
        "author_association": _association(where.base, thing.user),
        "submitted_at": thing.submitted_at, "commit_id": thing.commit_id,
    }  # fmt: skip


def review_comment(state: State, where: Pull, thing: ReviewComment) -> Json:
    """Write a comment on a line; an outdated one has no line any more."""
    line = current_line(where, thing)
    written: Json = {
        "url": f"{api(state, where.base)}/pulls/comments/{thing.id}", "id": thing.id,
        "html_url": f"{page(where.issue)}#discussion_r{thing.id}", "user": user(thing.user),
        "pull_request_review_id": thing.review.id, "diff_hunk": thing.diff_hunk,
        "path": thing.path, "body": thing.body, "side": thing.side, "line": line,
        "original_line": thing.original_line, "original_commit_id": thing.original_commit_id,
        "commit_id": where.head_sha if line else thing.original_commit_id,
        "created_at": thing.created_at, "updated_at": thing.updated_at,
        "author_association": _association(where.base, thing.user),
    }  # fmt: skip
    if thing.reply_to is not None:
        written["in_reply_to_id"] = thing.reply_to.id
    return written


def check_run(state: State, where: Repository, thing: CheckRun) -> Json:
    """Write a check run."""
    ended = thing.conclusion is not None
    return {
        "id": thing.id, "name": thing.name, "head_sha": thing.head_sha,
        "url": f"{api(state, where)}/check-runs/{thing.id}",
        "html_url": f"{WEB}/{where.full_name}/runs/{thing.id}",
        "status": "completed" if ended else "in_progress", "conclusion": thing.conclusion,
        "started_at": thing.started_at, "completed_at": thing.started_at if ended else None,
        # PyGithub cannot read a null here.
        "output": {"title": thing.title, "summary": thing.summary}, "check_suite": {"id": 1},
    }  # fmt: skip


def status(state: State, where: Repository, thing: CommitStatus) -> Json:
    """Write a status of a commit."""
    return {
        "url": f"{api(state, where)}/statuses/{thing.sha}", "id": thing.id,
        "state": thing.state, "description": thing.description, "context": thing.context,
        "created_at": thing.created_at, "updated_at": thing.created_at,
    }  # fmt: skip


# Where a review comment stands: its hunk when it was made, its line now; read from git's diff.


def find_hunk(where: Pull, commit: str, path: str, line: int, side: Side) -> str | None:
    """Return the hunk of a pull request's diff down to a line, or None where it is not shown."""
    git = where.base.git
    part = git.merge_base(where.base_sha, commit) or where.base_sha
    patch = next((file.patch for file in git.changes(part, commit) if file.path == path), None)
    old = new = 0
    shown: list[str] = []
    for text in (patch or "").split("\n"):
        if match := _HUNK.match(text):
            old, new, shown = int(match[1]), int(match[3]), [text]
            continue
        shown.append(text)
        on_left, on_right = text[:1] != "+", text[:1] != "-"
        if (on_right and new == line) if side == "RIGHT" else (on_left and old == line):
            return "\n".join(shown)
        old, new = old + on_left, new + on_right
    return None


def current_line(where: Pull, thing: ReviewComment) -> int | None:
    """Return the line that a comment is about in the newest commit; None: it is outdated."""
    git = where.base.git
    then, now = thing.original_commit_id, where.head_sha
    if thing.side == "LEFT":
        then, now = (git.merge_base(where.base_sha, sha) or where.base_sha for sha in (then, now))
    line = _follow(git.path, then, now, thing.path, thing.original_line)
    if line is None or find_hunk(where, where.head_sha, thing.path, line, thing.side) is None:
        return None
    return line


@lru_cache(maxsize=256)
def _follow(folder: Path, then: str, now: str, path: str, line: int) -> int | None:
    """Follow a line from one commit to another; None where it was changed or the file went."""
    if then == now:
        return line
    git = BareRepository(folder)
    if git.parse(f"{now}:{path}") is None:
        return None
    moved = 0
    for match in _HUNK.finditer(git.git("diff", "-U0", then, now, "--", path).decode()):
        start, gone, added = int(match[1]), int(match[2] or "1"), int(match[4] or "1")
        # A hunk that only adds stands behind the line that it names.
        if line < start or (gone == 0 and line == start):
            break
        if start <= line < start + gone:
            return None
        moved += added - gone
    return line + moved
