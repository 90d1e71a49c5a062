"""Repositories, forks, branches, comparisons, contents, checks, and the Git Data API."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, cast

from tests.github import pulling, render
from tests.github.gitdata import GitRefusedError, Person, git_time
from tests.github.models import Json
from tests.github.state import Repository
from tests.github.wire import (
    REPO,
    Answer,
    GitHubFault,
    Request,
    UnmodelledError,
    answer,
    not_found,
    page,
    route,
)

_GIT: Final = f"{REPO}/git"
_COMMIT: Final = f"{REPO}/commits/{{ref}}"
#: Beyond it the contents come without their text, in bytes.
_LARGE: Final = 1024 * 1024


@route("GET", "/user")
def get_me(request: Request) -> Answer:
    return answer("PublicUser", render.user(request.who))


@route("GET", REPO)
def get_repository(request: Request) -> Answer:
    known = render.full_repository(request.state, request.repository(), request.user)
    return answer("FullRepository", known)


@route("POST", f"{REPO}/forks", permission="administration")
def fork(request: Request) -> Answer:
    upstream, body = request.repository(), request.json("name", "default_branch_only")
    if upstream.owner is request.who:
        raise UnmodelledError("forking one's own repository")
    branch = upstream.default_branch if body.get("default_branch_only") else ""
    made = pulling.fork(request.state, upstream, request.who, branch=branch)
    known = render.full_repository(request.state, made, request.user)
    return answer("FullRepository", known, 202)


@route("POST", f"{REPO}/merge-upstream")
def merge_upstream(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    git, branch, upstream = repository.git, str(request.json("branch")["branch"]), repository.parent
    name = f"refs/heads/{branch}"
    if upstream is None:
        raise GitHubFault(422, "This repository is not a fork")
    theirs, ours = upstream.git.ref(name), git.ref(name)
    if theirs is None or ours is None:
        raise not_found("Branch not found")
    git.git("fetch", "--quiet", "--no-auto-gc", "--no-write-fetch-head",
            str(upstream.git.path), name)  # fmt: skip
    label, kind = f"{upstream.owner.login}:{branch}", "fast-forward"
    if git.is_ancestor(theirs, ours):
        kind = "none"
    elif git.is_ancestor(ours, theirs):
        git.set_ref(name, theirs)
    else:
        kind, tree = "merge", git.merge_tree(ours, theirs)
        if tree is None:
            raise GitHubFault(409, "There are merge conflicts")
        who = Person(request.who.name, request.who.noreply, git_time(request.state.clock.now()))
        git.set_ref(name, git.add_commit(tree, [ours, theirs], who, who, f"Merge branch '{label}'"))
    pulling.settle(request.state, repository)
    return answer("MergedUpstream", {"merge_type": kind, "base_branch": label})


@route("GET", f"{REPO}/branches/{{branch}}")
def get_branch(request: Request) -> Answer:
    repository, name = request.repository(), request.parameters["branch"]
    sha = repository.git.ref(f"refs/heads/{name}")
    if sha is None:
        raise not_found("Branch not found")
    commit = render.full_commit(request.state, repository, sha)
    return answer("BranchWithProtection", {"name": name, "commit": commit})


@route("GET", f"{REPO}/compare/{{basehead}}", paged=True)
def compare(request: Request) -> Answer:
    repository = request.repository(filled=True)
    git, names = repository.git, request.parameters["basehead"].split("...")
    shas = [_revision(request, repository, name) for name in names]
    part = git.merge_base(*shas) if len(shas) == 2 else None  # type: ignore[arg-type]  # checked
    if part is None or None in shas:
        raise not_found(f"No common ancestor between {' and '.join(names)}.")
    base, head = (str(sha) for sha in shas)
    ahead, behind = len(git.between(base, head)), len(git.between(head, base))
    words = {(True, True): "diverged", (True, False): "ahead", (False, True): "behind",
             (False, False): "identical"}  # fmt: skip
    return answer("CommitComparison", {
        "base_commit": render.full_commit(request.state, repository, base),
        "merge_base_commit": render.full_commit(request.state, repository, part),
        "status": words[bool(ahead), bool(behind)], "ahead_by": ahead, "behind_by": behind,
        "total_commits": ahead,
        "files": [render.file_change(change) for change in git.changes(part, head)],
    })  # fmt: skip


def _revision(request: Request, repository: Repository, name: str) -> str | None:
    """Resolve `branch`, a commit, or `owner:branch` of the same network."""
    owner, colon, ref = name.rpartition(":")
    if not colon:
        return repository.git.resolve(name)
    for other in request.state.network(repository):
        if owner.lower() in {other.owner.login.lower(), other.full_name.replace("/", ":").lower()}:
            return request.allow(other, "read").git.resolve(ref)
    return None


@route("GET", f"{REPO}/contents/{{path}}", query=("ref",))
def get_contents(request: Request) -> Answer:
    repository = request.repository(filled=True)
    git, ref = repository.git, request.query.get("ref") or repository.default_branch
    commit, path = git.resolve(ref), request.parameters["path"]
    sha = git.parse(f"{commit}:{path}") if commit else None
    if sha is None:
        raise not_found()
    name = path.rpartition("/")[2]
    if git.kind(sha) == "tree":
        folder: Json = {"type": "dir", "name": name, "path": path, "sha": sha}
        return Answer(json=[folder])
    content = git.blob(sha)
    large = len(content) > _LARGE
    return answer("ContentFile", {
        "type": "file", "name": name, "path": path, "sha": sha, "size": len(content),
        "content": "" if large else _wrapped(content), "encoding": "none" if large else "base64",
    })  # fmt: skip


def _wrapped(content: bytes) -> str:
    """Write base64 in lines of 60, as GitHub does."""
    return re.sub(r"(.{1,60})", r"\1\n", base64.b64encode(content).decode())


def _commit(request: Request, where: Repository) -> str:
    sha = where.git.resolve(request.parameters["ref"])
    if sha is None:
        raise not_found()
    return sha


@route("GET", f"{_COMMIT}/check-runs", query=("filter",), paged=True)
def list_check_runs(request: Request) -> Answer:
    """List the check runs of a commit: the newest of each name."""
    where = request.repository()
    sha = _commit(request, where)
    if request.query.get("filter") != "latest":
        raise UnmodelledError("check runs that are not the latest")
    runs = {run.name: run for run in where.check_runs if run.head_sha == sha}
    return page(
        request, [*runs.values()][::-1], "CheckRun",
        lambda run: render.check_run(request.state, where, run), {"check_runs": []},
    )  # fmt: skip


@route("GET", f"{_COMMIT}/status", paged=True)
def combined_status(request: Request) -> Answer:
    """Give the newest status of each context."""
    where = request.repository()
    sha = _commit(request, where)
    newest = {known.context: known for known in where.statuses if known.sha == sha}
    return page(
        request, [*newest.values()], "SimpleCommitStatus",
        lambda known: render.status(request.state, where, known),
        {"sha": sha, "statuses": []},
    )  # fmt: skip


@route("POST", f"{_GIT}/blobs")
def add_blob(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    body = request.json("content", "encoding")
    if body.get("encoding") != "base64":
        raise UnmodelledError(f"a blob in {body.get('encoding')}")
    try:
        content = base64.b64decode(str(body["content"]))
    except binascii.Error:
        raise GitHubFault(422, "Content is not valid Base64") from None
    return answer("ShortBlob", {"sha": repository.git.add_blob(content)}, 201)


@route("GET", f"{_GIT}/blobs/{{file_sha}}")
def get_blob(request: Request) -> Answer:
    git, sha = request.repository(filled=True).git, request.parameters["file_sha"]
    if git.kind(sha) != "blob":
        raise not_found()
    content = _wrapped(git.blob(sha))
    return answer("Blob", {"sha": sha, "content": content, "encoding": "base64"})


def _tree(repository: Repository, sha: str, *, recursive: bool) -> Json:
    rows = repository.git.entries(sha, recursive=recursive)
    truncated = recursive and repository.truncate_trees
    return {"sha": sha, "truncated": truncated, "tree": [
        {"path": row.path, "mode": row.mode, "type": row.kind, "sha": row.sha}
        for row in (rows[: len(rows) // 2] if truncated else rows)
    ]}  # fmt: skip


@route("GET", f"{_GIT}/trees/{{tree_sha}}", query=("recursive",))
def get_tree(request: Request) -> Answer:
    repository, sha = request.repository(filled=True), request.parameters["tree_sha"]
    if repository.git.kind(sha) != "tree":
        raise not_found()
    return answer("GitTree", _tree(repository, sha, recursive="recursive" in request.query))


@route("POST", f"{_GIT}/trees")
def add_tree(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    git, body = repository.git, request.json("tree", "base_tree")
    base, rows = body.get("base_tree"), []
    if base is not None and git.kind(str(base)) != "tree":
        raise GitHubFault(422, "base_tree is not a valid tree oid")
    assert isinstance(body["tree"], list)
    for row in body["tree"]:
        assert isinstance(row, dict)
        sha = str(row["sha"]) if row.get("sha") else None
        if "content" in row or row["type"] != "blob":
            raise UnmodelledError(f"a row of a tree with {row}")
        if sha is not None and git.kind(sha) != "blob":
            raise GitHubFault(422, f"tree.sha {sha} is not a valid blob")
        rows.append((str(row["path"]), str(row["mode"]), sha))
    try:
        made = git.add_tree(str(base) if base else None, rows)
    except GitRefusedError:
        raise GitHubFault(422, "GitRPC::BadObjectState") from None
    return answer("GitTree", _tree(repository, made, recursive=False), 201)


@route("GET", f"{_GIT}/commits/{{commit_sha}}")
def get_commit(request: Request) -> Answer:
    repository, sha = request.repository(filled=True), request.parameters["commit_sha"]
    if repository.git.kind(sha) != "commit":
        raise not_found()
    known = render.git_commit(request.state, repository, repository.git.commit(sha))
    return answer("GitCommit", known)


@route("POST", f"{_GIT}/commits")
def add_commit(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    git, body = repository.git, request.json("message", "tree", "parents", "author", "committer")
    tree, parents = str(body["tree"]), body["parents"]
    assert isinstance(parents, list)
    if git.kind(tree) != "tree":
        raise GitHubFault(422, "Tree SHA does not exist")
    if any(git.kind(str(parent)) != "commit" for parent in parents):
        raise GitHubFault(422, "Parent SHA does not exist or is not a commit object")
    author, committer = (
        Person(who["name"], who["email"], git_time(who["date"]))
        for who in (cast("dict[str, str]", body[role]) for role in ("author", "committer"))
    )
    above = [str(parent) for parent in parents]
    sha = git.add_commit(tree, above, author, committer, str(body["message"]))
    known = render.git_commit(request.state, repository, git.commit(sha))
    return answer("GitCommit", known, 201)


def _ref(repository: Repository, name: str, sha: str, status: int = 200) -> Answer:
    kind = repository.git.kind(sha) or "commit"
    return answer("GitRef", {"ref": name, "object": {"sha": sha, "type": kind}}, status)


@route("GET", f"{_GIT}/ref/{{ref}}")
def get_ref(request: Request) -> Answer:
    repository = request.repository(filled=True)
    name = f"refs/{request.parameters['ref']}"
    sha = repository.git.ref(name)
    if sha is None:
        raise not_found()
    return _ref(repository, name, sha)


@route("POST", f"{_GIT}/refs")
def add_ref(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    git, body = repository.git, request.json("ref", "sha")
    name, sha = str(body["ref"]), str(body["sha"])
    if git.run("check-ref-format", name).returncode:
        raise GitHubFault(422, f"{name} is not a valid ref name.")
    if git.ref(name) is not None:
        raise GitHubFault(422, "Reference already exists")
    if git.kind(sha) != "commit":
        raise GitHubFault(422, "Object does not exist")
    _guard_workflows(request, repository, sha)
    try:
        git.set_ref(name, sha)
    except GitRefusedError:  # a/b where a is a branch
        raise GitHubFault(422, "Reference update failed") from None
    pulling.settle(request.state, repository)
    return _ref(repository, name, sha, 201)


def _guard_workflows(request: Request, repository: Repository, sha: str) -> None:
    """Hide a fork's ref from a token without the scope workflow, where it has other workflows."""
    if repository.parent is None or request.token is None or "workflow" in request.token.scopes:
        return
    git = repository.git
    known = {git.parse(f"{tip}:.github/workflows") for tip in git.refs("refs/heads/").values()}
    if git.parse(f"{sha}:.github/workflows") not in known:
        raise not_found()


@route("PATCH", f"{_GIT}/refs/{{ref}}")
def move_ref(request: Request) -> Answer:
    repository = request.repository("write", filled=True)
    git, body = repository.git, request.json("sha", "force")
    name, sha = f"refs/{request.parameters['ref']}", str(body["sha"])
    old = git.ref(name)
    if old is None or git.kind(sha) != "commit":
        raise GitHubFault(422, "Object does not exist" if old else "Reference does not exist")
    if not body.get("force") and not git.is_ancestor(old, sha):
        raise GitHubFault(422, "Update is not a fast forward")
    git.set_ref(name, sha)
    pulling.settle(request.state, repository)
    return _ref(repository, name, sha)
