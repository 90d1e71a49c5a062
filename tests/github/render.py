"""The local GitHub's state in GitHub's words, with the fields that commands read."""

from __future__ import annotations

import base64

from pydantic import JsonValue

from tests.github.gitdata import CommitData, Person
from tests.github.state import PUSHERS, WEB, Issue, Json, Pull, Repository, User


def node_id(kind: str, number: int) -> str:
    """Return GitHub's opaque id of an object (`node_id`)."""
    return base64.b64encode(f"{kind}:{number}".encode()).decode()


def shown(thing: object, /, **more: JsonValue) -> Json:
    """Return the plain fields of an object as JSON, with further fields."""
    written: Json = {
        key: user(value) if isinstance(value, User) else value
        for key, value in vars(thing).items()
        if isinstance(value, str | int | User | None)
    }
    return written | more


def user(who: User) -> Json:
    return {"login": who.login, "id": who.id, "type": who.kind}


def minimal(where: Repository) -> Json:
    return shown(
        where, node_id=node_id("Repository", where.id), full_name=where.full_name,
        html_url=f"{WEB}/{where.full_name}", fork=where.parent is not None,
        url=where.api,
    )  # fmt: skip


def repository(where: Repository, asked_by: User | None) -> Json:
    return minimal(where) | {"permissions": {"push": where.permission(asked_by) in PUSHERS}}


def full_repository(where: Repository, asked_by: User | None) -> Json:
    """Write a repository as `GET /repos/OWNER/NAME` does."""
    written = repository(where, asked_by)
    if where.parent is not None:
        written["parent"] = repository(where.parent, asked_by)
        written["source"] = repository(where.root, asked_by)
    return written


def _person(person: Person) -> Json:
    return {"name": person.name, "email": person.email, "date": person.time}


def git_commit(where: Repository, commit: CommitData) -> Json:
    url = f"{where.api}/git"
    return {
        "sha": commit.sha, "url": f"{url}/commits/{commit.sha}",
        "author": _person(commit.author), "committer": _person(commit.committer),
        "tree": {"sha": commit.tree, "url": f"{url}/trees/{commit.tree}"},
        "message": commit.message.rstrip("\n"),
        "parents": [{"sha": sha, "url": f"{url}/commits/{sha}"} for sha in commit.parents],
    }  # fmt: skip


def full_commit(where: Repository, sha: str) -> Json:
    """Return a commit as branches and comparisons show a commit."""
    inner = git_commit(where, where.git.commit(sha))
    parents = inner.pop("parents")
    url = f"{where.api}/commits/{inner.pop('sha')}"
    return {"sha": sha, "url": url, "commit": inner, "parents": parents}


def _talk(thing: Issue, kind: str, /, **more: JsonValue) -> Json:
    """Return the fields that issues and pull requests share."""
    here = thing.repository.api
    return shown(
        thing, url=f"{here}/{kind}/{thing.number}", html_url=thing.page,
        labels=[{"name": label, "url": f"{here}/labels/{label}"} for label in thing.labels],
        **more,
    )  # fmt: skip


def issue(thing: Issue) -> Json:
    written = _talk(thing, "issues", comments=len(thing.comments))
    if thing.pull is not None:
        url = f"{thing.repository.api}/pulls/{thing.number}"
        link: Json = {"url": url, "html_url": thing.page, "merged_at": thing.pull.merged_at}
        written |= {"draft": thing.pull.draft, "pull_request": link}
    return written


def pull(thing: Pull, asked_by: User | None) -> Json:
    """Return a pull request as lists show a pull request."""
    written = _talk(
        thing.issue, "pulls", id=thing.id, draft=thing.draft,
        node_id=node_id("PullRequest", thing.id), merged_at=thing.merged_at,
    )  # fmt: skip
    for name, where, ref, sha in (
        ("head", thing.head, thing.head_ref, thing.head_sha),
        ("base", thing.base, thing.base_ref, thing.base_sha),
    ):
        written[name] = {
            "label": f"{where.owner.login}:{ref}", "ref": ref, "sha": sha,
            "user": user(where.owner), "repo": repository(where, asked_by),
        }  # fmt: skip
    return written


def association(where: Repository, who: User) -> str:
    return "COLLABORATOR" if where.permission(who) in PUSHERS else "NONE"
