"""Pull requests as GitHub writes them."""

from __future__ import annotations

from pydantic import JsonValue

from tests.github import githistory, render
from tests.github.state import Pull, Repository, State, User, node_id
from tests.github.wire import Json


def pull(state: State, one: Pull, asked_by: User | None) -> Json:
    """Write a pull request as it stands in lists."""
    issue = one.issue
    url = f"{state.base}/repos/{one.base.full_name}"
    page = f"{render.WEB}/{one.base.full_name}/pull/{one.number}"
    links = {
        "self": f"{url}/pulls/{one.number}",
        "html": page,
        "issue": f"{url}/issues/{one.number}",
        "comments": f"{url}/issues/{one.number}/comments",
        "review_comments": f"{url}/pulls/{one.number}/comments",
        "review_comment": f"{url}/pulls/comments{{/number}}",
        "commits": f"{url}/pulls/{one.number}/commits",
        "statuses": f"{url}/statuses/{one.head_sha}",
    }
    return {
        "url": links["self"],
        "id": one.id,
        "node_id": node_id("PullRequest", one.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": links["issue"],
        **{
            f"{name}_url": links[name]
            for name in ("commits", "review_comments", "review_comment", "comments", "statuses")
        },
        "number": one.number,
        "state": issue.state,
        "locked": issue.locked,
        "title": issue.title,
        "user": render.user(state, issue.user),
        "body": issue.body,
        "created_at": issue.created_at,
        "updated_at": issue.updated_at,
        "closed_at": issue.closed_at,
        "merged_at": one.merged_at,
        "merge_commit_sha": one.merge_commit or one.test_merge,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": render.labels(state, issue),
        "milestone": None,
        "draft": one.draft,
        "head": _side(state, asked_by, one.head, one.head_owner, (one.head_ref, one.head_sha)),
        "base": _side(state, asked_by, one.base, one.base.owner, (one.base_ref, one.base_sha)),
        "_links": {name: {"href": href} for name, href in links.items()},
        "author_association": render.association(one.base, issue.user),
        "auto_merge": None,
        "active_lock_reason": None,
    }


def full_pull(state: State, one: Pull, asked_by: User | None, mergeable: bool | None) -> Json:
    """Write a pull request as `GET /repos/OWNER/NAME/pulls/N` does."""
    git = one.base.git
    part = githistory.merge_base(git, one.base_sha, one.head_sha) or one.base_sha
    changed = githistory.changes(git, part, one.head_sha)
    words = {None: "unknown", True: "draft" if one.draft else "clean", False: "dirty"}
    return {
        **pull(state, one, asked_by),
        "merged": one.merged_at is not None,
        "mergeable": mergeable,
        "rebaseable": mergeable,
        "mergeable_state": words[mergeable],
        "merged_by": render.user(state, one.merged_by) if one.merged_by else None,
        "comments": len(one.issue.comments),
        "review_comments": len(one.review_comments),
        "maintainer_can_modify": one.maintainer_can_modify,
        "commits": len(githistory.commits_between(git, one.base_sha, one.head_sha)),
        "additions": sum(change.additions for change in changed),
        "deletions": sum(change.deletions for change in changed),
        "changed_files": len(changed),
    }


def _side(
    state: State,
    asked_by: User | None,
    where: Repository | None,
    owner: User,
    at: tuple[str, str],
) -> JsonValue:
    """Write the head or the base; `at` is a branch and its commit."""
    ref, sha = at
    return {
        "label": f"{owner.login}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": render.user(state, owner),
        "repo": render.repository(state, where, asked_by) if where else None,
    }
