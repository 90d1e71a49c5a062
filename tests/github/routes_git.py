"""Repositories, forks, branches, comparisons, contents, checks, and the Git Data API."""

from __future__ import annotations

import base64
import re
from typing import Final, cast

from tests.github import render
from tests.github.gitdata import GitRefusedError, Person, git_time
from tests.github.state import Json, Repository
from tests.github.wire import REPO, GitHubFault, Request, Route, not_found

_GIT: Final = f"{REPO}/git"


Route("GET", "/user")(lambda it: render.user(it.who))
Route("GET", REPO)(lambda it: render.full_repository(it.repository(), it.user))


@Route("POST", f"{REPO}/forks", status=202, permission="administration")
def fork(request: Request) -> Json:
    upstream, body = request.repository(), request.json("name", "default_branch_only")
    assert upstream.owner is not request.who
    branch = upstream.default_branch if body.get("default_branch_only") else "*"
    made = request.state.fork(upstream, request.who, branch=branch)
    return render.full_repository(made, request.user)


@Route("POST", f"{REPO}/merge-upstream", status=200)
def merge_upstream(request: Request) -> Json:
    repository = request.repository("write")
    git, branch, upstream = repository.git, str(request.json("branch")["branch"]), repository.parent
    name = f"refs/heads/{branch}"
    assert upstream is not None
    theirs, ours = upstream.git.ref(name) or "", git.ref(name) or ""
    git.fetch(upstream.git.path, name)
    assert git.is_ancestor(ours, theirs)
    git.set_ref(name, theirs)
    return {"merge_type": "fast-forward", "base_branch": f"{upstream.owner.login}:{branch}"}


@Route("GET", f"{REPO}/branches/{{branch}}")
def get_branch(request: Request) -> Json:
    repository, name = request.repository(), request.parameters["branch"]
    sha = repository.git.ref(f"refs/heads/{name}")
    assert sha is not None
    return {"name": name, "commit": render.full_commit(repository, sha)}


@Route("GET", f"{REPO}/compare/{{basehead}}", query=("per_page", "page"))
def compare(request: Request) -> Json:
    repository = request.repository()
    git, names = repository.git, request.parameters["basehead"].split("...")
    base, head = (_revision(request, repository, name) for name in names)
    part = git.merge_base(base, head) or ""
    ahead, behind = len(git.between(base, head)), len(git.between(head, base))
    apart = "ahead" if ahead else "behind" if behind else "identical"
    return {
        "base_commit": render.full_commit(repository, base),
        "status": "diverged" if ahead and behind else apart, "ahead_by": ahead,
        "behind_by": behind, "total_commits": ahead,
        "files": [*git.changes(part, head)],
    }  # fmt: skip


def _revision(request: Request, repository: Repository, name: str) -> str:
    """Resolve `branch`, a commit, or `owner:branch` of the same network."""
    owner, colon, ref = name.rpartition(":")
    if colon:
        network = request.state.network(repository)
        other = next(it for it in network if owner.lower() == it.owner.login.lower())
        repository = request.allow(other, "read")
    if (sha := repository.git.resolve(ref)) is None:
        raise not_found()
    return sha


@Route("GET", f"{REPO}/contents/{{path}}", query=("ref",))
def get_contents(request: Request) -> Json:
    repository = request.repository()
    git, ref = repository.git, request.query.get("ref") or repository.default_branch
    commit, path = git.resolve(ref), request.parameters["path"]
    sha = git.parse(f"{commit}:{path}") if commit else None
    if sha is None:
        raise not_found()
    content = git.blob(sha)
    return {
        "name": path.rpartition("/")[2], "path": path, "sha": sha, "type": "file",
        "size": len(content), "content": _wrapped(content), "encoding": "base64",
    }  # fmt: skip


def _wrapped(content: bytes) -> str:
    """Write base64 in lines of 60, as GitHub does."""
    return re.sub(r"(.{1,60})", r"\1\n", base64.b64encode(content).decode())


def _object(request: Request, kind: str, key: str) -> tuple[Repository, str]:
    """Return the repository and the id of the object in the path; 404 for another kind."""
    repository, sha = request.repository(), request.parameters[key]
    if repository.git.kind(sha) != kind:
        raise not_found()
    return repository, sha


@Route("POST", f"{_GIT}/blobs")
def add_blob(request: Request) -> Json:
    repository = request.repository("write")
    body = request.json("content", "encoding")
    assert body["encoding"] == "base64"
    return {"sha": repository.git.add_blob(base64.b64decode(str(body["content"])))}


@Route("GET", f"{_GIT}/blobs/{{file_sha}}")
def get_blob(request: Request) -> Json:
    repository, sha = _object(request, "blob", "file_sha")
    return {"sha": sha, "content": _wrapped(repository.git.blob(sha)), "encoding": "base64"}


def _tree(repository: Repository, sha: str) -> Json:
    return {
        "sha": sha,
        "truncated": False,
        "tree": [{**row} for row in repository.git.entries(sha)],
    }


Route("GET", f"{_GIT}/trees/{{tree_sha}}")(lambda it: _tree(*_object(it, "tree", "tree_sha")))


@Route("POST", f"{_GIT}/trees")
def add_tree(request: Request) -> Json:
    repository = request.repository("write")
    git, body = repository.git, request.json("tree", "base_tree")
    base, rows = body.get("base_tree"), []
    assert base is None or git.kind(str(base)) == "tree"
    for row in cast("list[Json]", body["tree"]):
        sha = str(row["sha"]) if row.get("sha") else None
        assert sha is None or (row["type"], git.kind(sha)) == ("blob", "blob")
        rows.append((str(row["path"]), str(row["mode"]), sha))
    return _tree(repository, git.add_tree(str(base) if base else None, rows))


@Route("GET", f"{_GIT}/commits/{{commit_sha}}")
def get_commit(request: Request) -> Json:
    repository, sha = _object(request, "commit", "commit_sha")
    return render.git_commit(repository, repository.git.commit(sha))


@Route("POST", f"{_GIT}/commits")
def add_commit(request: Request) -> Json:
    repository = request.repository("write")
    git, body = repository.git, request.json("message", "tree", "parents", "author", "committer")
    tree, parents = str(body["tree"]), cast("list[str]", body["parents"])
    assert [git.kind(sha) for sha in (tree, *parents)] == ["tree", *("commit" for _ in parents)]
    people = (cast("dict[str, str]", body[role]) for role in ("author", "committer"))
    author, committer = (Person(it["name"], it["email"], git_time(it["date"])) for it in people)
    sha = git.add_commit(tree, parents, author, committer, str(body["message"]))
    return render.git_commit(repository, git.commit(sha))


@Route("GET", f"{_GIT}/ref/{{ref}}")
def get_ref(request: Request) -> Json:
    repository = request.repository()
    name = f"refs/{request.parameters['ref']}"
    if (sha := repository.git.ref(name)) is None:
        raise not_found()
    return {"ref": name, "object": {"sha": sha, "type": repository.git.kind(sha)}}


@Route("POST", f"{_GIT}/refs")
def add_ref(request: Request) -> Json:
    repository = request.repository("write")
    git, body = repository.git, request.json("ref", "sha")
    name, sha = str(body["ref"]), str(body["sha"])
    if git.ref(name) is not None:
        raise GitHubFault(422, "Reference already exists")
    assert git.kind(sha) == "commit"
    _guard_workflows(request, repository, sha)
    try:
        git.set_ref(name, sha)
    except GitRefusedError:  # no name of a ref, or a/b where a is a branch
        raise GitHubFault(422, "Reference update failed") from None
    return {"ref": name, "object": {"sha": sha, "type": "commit"}}


def _guard_workflows(request: Request, repository: Repository, sha: str) -> None:
    """Answer 404 for a ref with workflows that the fork lacks, if the token lacks the scope."""
    if repository.parent is None or request.token is None or "workflow" in request.token.scopes:
        return
    git = repository.git
    known = {git.parse(f"{tip}:.github/workflows") for tip in git.refs("refs/heads/").values()}
    if git.parse(f"{sha}:.github/workflows") not in known:
        raise not_found()


@Route("PATCH", f"{_GIT}/refs/{{ref}}")
def move_ref(request: Request) -> Json:
    repository = request.repository("write")
    git, body = repository.git, request.json("sha", "force")
    name, sha = f"refs/{request.parameters['ref']}", str(body["sha"])
    old = git.ref(name)
    if old is None or git.kind(sha) != "commit":
        raise GitHubFault(422, "Object does not exist" if old else "Reference does not exist")
    assert body.get("force")
    git.set_ref(name, sha)
    return {"ref": name, "object": {"sha": sha, "type": "commit"}}
