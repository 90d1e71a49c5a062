"""The Git Data API: blobs, trees, commits, refs."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from pydantic import JsonValue

from tests.github import fields, githistory, pulling, render
from tests.github.gitdata import BareRepository, GitRefusedError, Person, clean, git_time
from tests.github.state import Repository, node_id
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
    UnmodelledError,
    not_found,
    route,
)

_GIT: Final = "/repos/{owner}/{repo}/git"
_MODES: Final = {"100644": "blob", "100755": "blob", "120000": "blob",
                 "040000": "tree", "160000": "commit"}  # fmt: skip


def filled(request: Request, need: str = "read") -> tuple[Repository, BareRepository]:
    """Return the repository of the path, which must not be empty."""
    repository = request.repository("push" if need == "push" else "read")
    if repository.git.empty():
        raise GitHubFault(409, "Git Repository is empty.")
    return repository, repository.git


def wants(request: Request, kind: str) -> bool:
    """Say whether a media type of GitHub's is asked for: raw, diff."""
    pattern = rf"application/vnd\.github\.(v3\.)?{kind}(\+json)?"
    return any(
        re.fullmatch(pattern, one.partition(";")[0].strip())
        for one in request.headers.get("accept", "").split(",")
    )


@route("POST", f"{_GIT}/blobs", permission="contents", locked=False)
def add_blob(request: Request) -> Answer:
    repository, git = filled(request, "push")
    body = request.json("content", "encoding")
    text = fields.text(body, "content")
    encoding = fields.optional_text(body, "encoding") or "utf-8"
    try:
        content = base64.b64decode(text, validate=False) if encoding == "base64" else text.encode()
    except binascii.Error:
        raise GitHubFault(422, "Content is not valid Base64") from None
    if encoding not in {"utf-8", "base64"}:
        raise GitHubFault(422, f"{encoding} is not a valid encoding")
    sha = git.add_blob(content)
    url = f"{request.base}/repos/{repository.full_name}/git/blobs/{sha}"
    return Answer(201, {"sha": sha, "url": url}, {"Location": url})


@route("GET", f"{_GIT}/blobs/{{sha}}")
def get_blob(request: Request) -> Answer:
    repository, git = filled(request)
    sha = request.parameters["sha"]
    if git.kind(sha) != "blob":
        raise not_found()
    content = git.blob(sha)
    if wants(request, "raw"):
        kind = "application/vnd.github.raw; charset=utf-8"
        return Answer(raw=content, headers={"Content-Type": kind})
    return Answer(
        json={
            "sha": sha,
            "node_id": node_id("Blob", int(sha[:12], 16)),
            "size": len(content),
            "url": f"{request.base}/repos/{repository.full_name}/git/blobs/{sha}",
            "content": wrapped(content),
            "encoding": "base64",
        }
    )


def wrapped(content: bytes) -> str:
    """Write base64 in lines of 60, as GitHub does."""
    text = base64.b64encode(content).decode()
    return "".join(f"{text[at : at + 60]}\n" for at in range(0, len(text), 60))


def _tree(request: Request, repository: Repository, sha: str, *, recursive: bool) -> Json:
    """Write a tree."""
    url = f"{request.base}/repos/{repository.full_name}/git"
    rows = repository.git.entries(sha, recursive=recursive)
    truncated = recursive and repository.truncate_trees
    written: list[JsonValue] = []
    for row in rows[: len(rows) // 2] if truncated else rows:
        entry: Json = {"path": row.path, "mode": row.mode, "type": row.kind, "sha": row.sha}
        if row.size is not None:
            entry["size"] = row.size
        if row.kind != "commit":
            entry["url"] = f"{url}/{row.kind}s/{row.sha}"
        written.append(entry)
    return {"sha": sha, "url": f"{url}/trees/{sha}", "tree": written, "truncated": truncated}


@route("GET", f"{_GIT}/trees/{{sha:path}}", query=("recursive",))
def get_tree(request: Request) -> Answer:
    repository, git = filled(request)
    sha = request.parameters["sha"]
    if git.kind(sha) != "tree":
        commit = git.resolve(sha)
        if commit is None:
            raise not_found()
        sha = git.commit(commit).tree
    return Answer(json=_tree(request, repository, sha, recursive="recursive" in request.query))


@route("POST", f"{_GIT}/trees", permission="contents")
def add_tree(request: Request) -> Answer:
    repository, git = filled(request, "push")
    body = request.json("tree", "base_tree")
    base = fields.optional_text(body, "base_tree")
    if base is not None and git.kind(base) != "tree":
        raise GitHubFault(422, "base_tree is not a valid tree oid")
    rows = fields.tables(body, "tree")
    if not rows:
        raise GitHubFault(422, "Invalid tree info")
    try:
        sha = git.add_tree(base, [_row(git, row) for row in rows])
    except GitRefusedError:
        raise GitHubFault(422, "GitRPC::BadObjectState") from None
    written = _tree(request, repository, sha, recursive=False)
    return Answer(201, written, {"Location": str(written["url"])})


def _row(git: BareRepository, row: Json) -> tuple[str, str, str | None]:
    """Check one row of a new tree."""
    if row.keys() != {"path", "mode", "type", "sha"}:
        raise UnmodelledError(f"a row of a tree with {sorted(row)}")
    path, mode, sha = (fields.optional_text(row, key) for key in ("path", "mode", "sha"))
    assert path is not None
    assert mode is not None
    if any(part.lower() in {"", ".", "..", ".git"} for part in path.split("/")):
        raise GitHubFault(422, "tree.path contains a malformed path component")
    kind = _MODES[mode]
    if sha is not None and kind != "commit" and git.kind(sha) != kind:
        raise GitHubFault(422, f"tree.sha {sha} is not a valid {kind}")
    return path, mode, sha


@route("GET", f"{_GIT}/commits/{{sha}}")
def get_commit(request: Request) -> Answer:
    repository, git = filled(request)
    sha = request.parameters["sha"]
    if git.kind(sha) != "commit":
        raise not_found()
    return Answer(json=render.git_commit(request.state, repository, git.commit(sha)))


@route("POST", f"{_GIT}/commits", permission="contents")
def add_commit(request: Request) -> Answer:
    repository, git = filled(request, "push")
    body = request.json("message", "tree", "parents", "author", "committer")
    message, tree = fields.text(body, "message"), fields.text(body, "tree")
    parents = fields.texts(body, "parents")
    if git.kind(tree) != "tree":
        raise GitHubFault(422, "Tree SHA does not exist")
    if any(git.kind(parent) != "commit" for parent in parents):
        raise GitHubFault(422, "Parent SHA does not exist or is not a commit object")
    author, committer = _signature(body, "author"), _signature(body, "committer")
    sha = git.add_commit(tree, parents, author, committer, message)
    written = render.git_commit(request.state, repository, git.commit(sha))
    return Answer(201, written, {"Location": str(written["url"])})


def _signature(body: Json, key: str) -> Person:
    """Read an author or committer."""
    name, email, date = (fields.text(fields.table(body, key), one)
                         for one in ("name", "email", "date"))  # fmt: skip
    if not clean(name) or not clean(email):
        raise GitHubFault(422, f"Invalid {key}: name and email must not be empty")
    return Person(name, email, git_time(date))


def _ref(request: Request, repository: Repository, name: str, sha: str) -> Json:
    """Write a ref."""
    url = f"{request.base}/repos/{repository.full_name}/git"
    kind = repository.git.kind(sha) or "commit"
    return {
        "ref": name,
        "node_id": node_id("Ref", int(sha[:12], 16)),
        "url": f"{url}/{name}",
        "object": {"sha": sha, "type": kind, "url": f"{url}/{kind}s/{sha}"},
    }


@route("GET", f"{_GIT}/ref/{{ref:path}}")
def get_ref(request: Request) -> Answer:
    repository, git = filled(request)
    name = f"refs/{request.parameters['ref']}"
    sha = git.refs("refs/").get(name)
    if sha is None:
        raise not_found()
    return Answer(json=_ref(request, repository, name, sha))


@route("POST", f"{_GIT}/refs", permission="contents")
def add_ref(request: Request) -> Answer:
    repository, git = filled(request, "push")
    body = request.json("ref", "sha")
    name, sha = fields.text(body, "ref"), fields.text(body, "sha")
    if not name.startswith("refs/") or git.run("check-ref-format", name).returncode:
        raise GitHubFault(422, f"{name} is not a valid ref name.")
    if git.ref(name) is not None:
        raise GitHubFault(422, "Reference already exists")
    _accept(git, name, sha)
    _guard_workflows(request, repository, git, sha)
    try:
        git.set_ref(name, sha)
    except GitRefusedError:  # a/b where a is a branch
        raise GitHubFault(422, "Reference update failed") from None
    pulling.settle(request.state, repository)
    written = _ref(request, repository, name, sha)
    return Answer(201, written, {"Location": str(written["url"])})


def _guard_workflows(
    request: Request, repository: Repository, git: BareRepository, sha: str
) -> None:
    """Hide a fork's ref from a token without the scope workflow, where it has other workflows."""
    if repository.parent is None or request.token is None or "workflow" in request.token.scopes:
        return
    known = {git.parse(f"{tip}:.github/workflows") for tip in git.refs("refs/heads/").values()}
    if git.parse(f"{sha}:.github/workflows") not in known:
        raise GitHubFault(404, "Not Found")


def _accept(git: BareRepository, name: str, sha: str) -> None:
    """Refuse what a ref cannot point at."""
    kind = git.kind(sha)
    if kind is None:
        raise GitHubFault(422, "Object does not exist")
    if name.startswith("refs/heads/") and kind != "commit":
        raise GitHubFault(422, "Reference update failed")


@route("PATCH", f"{_GIT}/refs/{{ref:path}}", permission="contents")
def move_ref(request: Request) -> Answer:
    repository, git = filled(request, "push")
    body = request.json("sha", "force")
    name, sha = f"refs/{request.parameters['ref']}", fields.text(body, "sha")
    old = git.ref(name)
    if old is None:
        raise GitHubFault(422, "Reference does not exist")
    _accept(git, name, sha)
    if not fields.flag(body, "force", default=False) and not githistory.is_ancestor(git, old, sha):
        raise GitHubFault(422, "Update is not a fast forward")
    git.set_ref(name, sha)
    pulling.settle(request.state, repository)
    return Answer(json=_ref(request, repository, name, sha))
