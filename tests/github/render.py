"""Users, repositories, commits and pull requests as GitHub writes them."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from tests.github.gitdata import CommitData, Person
from tests.github.githistory import FileChange
from tests.github.state import PUSHERS, Issue, Repository, State, User, node_id
from tests.github.wire import Json

#: Where pages for people are; the API itself is at `State.base`.
WEB: Final = "https://github.com"
_RANKS: Final = ("pull", "triage", "push", "maintain", "admin")
_LEVELS: Final = ("read", "triage", "write", "maintain", "admin")
_TEMPLATES: Final = {
    "archive": "{archive_format}{/ref}", "assignees": "{/user}", "branches": "{/branch}",
    "collaborators": "{/collaborator}", "comments": "{/number}", "commits": "{/sha}",
    "contents": "{+path}", "issues": "{/number}", "keys": "{/key_id}", "labels": "{/name}",
    "milestones": "{/number}", "notifications": "{?since,all,participating}",
    "pulls": "{/number}", "releases": "{/id}", "statuses": "{sha}",
    "contributors": "", "deployments": "", "downloads": "", "events": "", "forks": "",
    "hooks": "", "languages": "", "merges": "", "stargazers": "", "subscribers": "",
    "subscription": "", "tags": "", "teams": "",
}  # fmt: skip


def user(state: State, one: User) -> Json:
    """Write a user as it stands inside other answers."""
    url = f"{state.base}/users/{one.login}"
    return {
        "login": one.login,
        "id": one.id,
        "node_id": node_id("User", one.id),
        "avatar_url": f"https://avatars.githubusercontent.com/u/{one.id}?v=4",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{WEB}/{one.login}",
        "followers_url": f"{url}/followers",
        "following_url": f"{url}/following{{/other_user}}",
        "gists_url": f"{url}/gists{{/gist_id}}",
        "starred_url": f"{url}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{url}/subscriptions",
        "organizations_url": f"{url}/orgs",
        "repos_url": f"{url}/repos",
        "events_url": f"{url}/events{{/privacy}}",
        "received_events_url": f"{url}/received_events",
        "type": one.kind,
        "user_view_type": "public",
        "site_admin": False,
    }


def full_user(state: State, one: User) -> Json:
    """Write a user as `GET /user` does."""
    own = [
        repository for repository in list(state.repositories.values()) if repository.owner is one
    ]
    return {
        **user(state, one),
        "name": one.name,
        "company": None,
        "blog": "",
        "location": None,
        "email": one.email,
        "hireable": None,
        "bio": None,
        "twitter_username": None,
        "notification_email": one.email,
        "public_repos": sum(not repository.private for repository in own),
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
    }


def repository(state: State, one: Repository, asked_by: User | None) -> Json:
    """Write a repository as it stands inside other answers."""
    url = f"{state.base}/repos/{one.full_name}"
    page = f"{WEB}/{one.full_name}"
    open_issues = sum(issue.state == "open" for issue in one.issues.values())
    forks = sum(other.parent is one for other in list(state.repositories.values()))
    level = one.permission(asked_by)
    rank = _LEVELS.index(level) if level else -1
    urls: Json = {
        f"{name}_url": f"{url}/{name}{template}"
        if name not in {"archive", "contents", "statuses"}
        else f"{url}/{'' if name == 'archive' else name + '/'}{template}"
        for name, template in _TEMPLATES.items()
    }
    return {
        "id": one.id,
        "node_id": node_id("Repository", one.id),
        "name": one.name,
        "full_name": one.full_name,
        "owner": user(state, one.owner),
        "private": one.private,
        "html_url": page,
        "description": one.description,
        "fork": one.parent is not None,
        "url": url,
        **urls,
        "blobs_url": f"{url}/git/blobs{{/sha}}",
        "compare_url": f"{url}/compare/{{base}}...{{head}}",
        "git_commits_url": f"{url}/git/commits{{/sha}}",
        "git_refs_url": f"{url}/git/refs{{/sha}}",
        "git_tags_url": f"{url}/git/tags{{/sha}}",
        "trees_url": f"{url}/git/trees{{/sha}}",
        "issue_comment_url": f"{url}/issues/comments{{/number}}",
        "issue_events_url": f"{url}/issues/events{{/number}}",
        "git_url": f"git://github.com/{one.full_name}.git",
        "ssh_url": f"git@github.com:{one.full_name}.git",
        "clone_url": f"{page}.git",
        "svn_url": page,
        "mirror_url": None,
        "homepage": None,
        "language": None,
        "forks_count": forks,
        "stargazers_count": 0,
        "watchers_count": 0,
        "size": 1,
        "default_branch": one.default_branch,
        "open_issues_count": open_issues,
        "is_template": False,
        "topics": [],
        "has_issues": one.has_issues,
        "has_pull_requests": one.has_pull_requests,
        "pull_request_creation_policy": one.pull_request_creation_policy,
        "has_projects": False,
        "has_wiki": False,
        "has_pages": False,
        "has_downloads": True,
        "has_discussions": False,
        "archived": one.archived,
        "disabled": False,
        "visibility": "private" if one.private else "public",
        "pushed_at": one.created_at,
        "created_at": one.created_at,
        "updated_at": one.created_at,
        "permissions": {name: rank >= number for number, name in enumerate(_RANKS)},
        "license": None,
        "forks": forks,
        "open_issues": open_issues,
        "watchers": 0,
        "allow_forking": True,
        "web_commit_signoff_required": False,
    }


def full_repository(state: State, one: Repository, asked_by: User | None) -> Json:
    """Write a repository as `GET /repos/OWNER/NAME` does."""
    written = repository(state, one, asked_by)
    if one.permission(asked_by) in PUSHERS:
        written |= {
            "allow_squash_merge": True,
            "allow_merge_commit": True,
            "allow_rebase_merge": True,
            "allow_auto_merge": False,
            "delete_branch_on_merge": False,
        }
    if one.parent is not None and one.source is not None:
        written["parent"] = repository(state, one.parent, asked_by)
        written["source"] = repository(state, one.source, asked_by)
    written["network_count"] = sum(
        other is not one and other.source in {one, one.source} and other.source is not None
        for other in list(state.repositories.values())
    )
    written["subscribers_count"] = 0
    return written


def _person(person: Person) -> Json:
    return {"name": person.name, "email": person.email, "date": person.time}


_UNSIGNED: Final[Json] = {"verified": False, "reason": "unsigned", "signature": None,
                          "payload": None, "verified_at": None}  # fmt: skip


def git_commit(state: State, where: Repository, one: CommitData) -> Json:
    """Write a commit as the Git Data API does."""
    url = f"{state.base}/repos/{where.full_name}/git"
    parents: list[JsonValue] = [
        {
            "sha": sha,
            "url": f"{url}/commits/{sha}",
            "html_url": f"{WEB}/{where.full_name}/commit/{sha}",
        }
        for sha in one.parents
    ]
    return {
        "sha": one.sha,
        "node_id": node_id("Commit", int(one.sha[:12], 16)),
        "url": f"{url}/commits/{one.sha}",
        "html_url": f"{WEB}/{where.full_name}/commit/{one.sha}",
        "author": _person(one.author),
        "committer": _person(one.committer),
        "tree": {"sha": one.tree, "url": f"{url}/trees/{one.tree}"},
        "message": one.message,
        "parents": parents,
        "verification": _UNSIGNED,
    }


def commit(state: State, where: Repository, one: CommitData) -> Json:
    """Write a commit as `GET /repos/OWNER/NAME/commits` does, without its files."""
    url = f"{state.base}/repos/{where.full_name}"
    git = git_commit(state, where, one)
    parents: list[JsonValue] = [
        {
            "sha": sha,
            "url": f"{url}/commits/{sha}",
            "html_url": f"{WEB}/{where.full_name}/commit/{sha}",
        }
        for sha in one.parents
    ]
    inner: Json = {key: git[key] for key in ("author", "committer", "message", "tree", "url")}
    inner |= {"comment_count": 0, "verification": _UNSIGNED}
    return {
        "sha": one.sha,
        "node_id": git["node_id"],
        "commit": inner,
        "url": f"{url}/commits/{one.sha}",
        "html_url": git["html_url"],
        "comments_url": f"{url}/commits/{one.sha}/comments",
        "author": known(state, one.author),
        "committer": known(state, one.committer),
        "parents": parents,
    }


def known(state: State, person: Person) -> JsonValue:
    """Write the user whose address it is, or null."""
    for one in list(state.users.values()):
        if person.email.lower() in {one.email.lower(), noreply(one).lower()}:
            return user(state, one)
    return None


def noreply(one: User) -> str:
    """Return the address that GitHub gives to a user."""
    return f"{one.id}+{one.login}@users.noreply.github.com"


def file_change(state: State, where: Repository, at: str, one: FileChange) -> Json:
    """Write a changed file of a commit, a comparison, or a pull request."""
    written: Json = {
        "sha": one.sha,
        "filename": one.path,
        "status": one.status,
        "additions": one.additions,
        "deletions": one.deletions,
        "changes": one.additions + one.deletions,
        "blob_url": f"{WEB}/{where.full_name}/blob/{at}/{one.path}",
        "raw_url": f"{WEB}/{where.full_name}/raw/{at}/{one.path}",
        "contents_url": f"{state.base}/repos/{where.full_name}/contents/{one.path}?ref={at}",
    }
    if one.patch is not None:
        written["patch"] = one.patch
    if one.previous is not None:
        written["previous_filename"] = one.previous
    return written


def labels(state: State, issue: Issue) -> list[JsonValue]:
    """Write the labels of an issue."""
    url = f"{state.base}/repos/{issue.repository.full_name}/labels"
    return [
        {
            "id": 7_000_000 + number,
            "node_id": node_id("Label", number),
            "url": f"{url}/{name}",
            "name": name,
            "description": None,
            "color": issue.repository.labels.get(name, "ededed"),
            "default": False,
            "archived_by": None,
        }
        for number, name in enumerate(issue.labels)
    ]


def association(where: Repository, who: User) -> str:
    """Say what a user is to a repository."""
    if who is where.owner:
        return "OWNER"
    if where.permission(who) in PUSHERS:
        return "MEMBER" if where.owner.kind == "Organization" else "COLLABORATOR"
    landed = any(one.merged_at and one.issue.user is who for one in where.pulls())
    return "CONTRIBUTOR" if landed else "NONE"
