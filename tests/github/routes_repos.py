"""Users, repositories, forks, branches, commits, comparisons, contents."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from tests.github import fields, forking, githistory, pulling, render
from tests.github.gitdata import Entry, Person, git_time
from tests.github.routes_git import filled, wants, wrapped
from tests.github.state import Repository
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
    UnmodelledError,
    not_found,
    page,
    route,
)

_REPO: Final = "/repos/{owner}/{repo}"
_MOST_COMMITS: Final = 250
_MOST_FILES: Final = 300
#: Beyond it the contents come without their text, in bytes.
_LARGE: Final = 1024 * 1024


@route("GET", "/user")
def get_me(request: Request) -> Answer:
    me = request.signed_in()
    private: Json = {
        "private_gists": 0, "total_private_repos": 0, "owned_private_repos": 0, "disk_usage": 0,
        "collaborators": 0, "two_factor_authentication": True, "user_view_type": "private",
    }  # fmt: skip
    return Answer(json={**render.full_user(request.state, me), **private})


@route("GET", _REPO)
def get_repository(request: Request) -> Answer:
    return Answer(json=render.full_repository(request.state, request.repository(), request.user))


@route("POST", f"{_REPO}/forks", permission="administration")
def fork(request: Request) -> Answer:
    upstream, user = request.repository(), request.signed_in()
    body = request.json("name", "default_branch_only")
    if upstream.git.empty():
        raise GitHubFault(403, "The repository exists, but it contains no Git content. "
                               "Empty repositories cannot be forked.")  # fmt: skip
    if upstream.owner is user:
        raise UnmodelledError("forking one's own repository")
    made = forking.fork(
        request.state,
        upstream,
        user,
        fields.optional_text(body, "name"),
        default_branch_only=fields.flag(body, "default_branch_only", default=False),
    )
    return Answer(202, render.full_repository(request.state, made, user))


@route("POST", f"{_REPO}/merge-upstream", permission="contents")
def merge_upstream(request: Request) -> Answer:
    repository, git = filled(request, "push")
    branch = fields.text(request.json("branch"), "branch")
    upstream, name = repository.parent, f"refs/heads/{branch}"
    if upstream is None:
        raise GitHubFault(422, "This repository is not a fork")
    theirs, ours = upstream.git.ref(name), git.ref(name)
    if theirs is None or ours is None:
        raise GitHubFault(404, "Branch not found")
    git.git(
        "fetch", "--quiet", "--no-auto-gc", "--no-write-fetch-head", str(upstream.git.path), name
    )
    label = f"{upstream.owner.login}:{branch}"
    if githistory.is_ancestor(git, theirs, ours):
        message, kind = f"This branch is not behind the upstream {label}.", "none"
    elif githistory.is_ancestor(git, ours, theirs):
        git.set_ref(name, theirs)
        message = f"Successfully fetched and fast-forwarded from upstream {label}."
        kind = "fast-forward"
    else:
        tree = githistory.merge_tree(git, ours, theirs)
        if tree is None:
            raise GitHubFault(409, "There are merge conflicts")
        user = request.signed_in()
        person = Person(user.name, render.noreply(user), git_time(request.state.clock.now()))
        words = f"Merge branch '{upstream.full_name}:{branch}' into {branch}"
        git.set_ref(name, git.add_commit(tree, [ours, theirs], person, person, words))
        message, kind = f"Successfully fetched and merged from upstream {label}.", "merge"
    pulling.settle(request.state, repository)
    return Answer(json={"message": message, "merge_type": kind, "base_branch": label})


@route("GET", f"{_REPO}/branches/{{branch:path}}")
def get_branch(request: Request) -> Answer:
    repository = request.repository()
    name = request.parameters["branch"]
    sha = repository.git.ref(f"refs/heads/{name}")
    if sha is None:
        raise GitHubFault(404, "Branch not found")
    url = f"{request.base}/repos/{repository.full_name}/branches/{name}"
    checks: Json = {"enforcement_level": "off", "contexts": [], "checks": []}
    return Answer(
        json={
            "name": name,
            "commit": render.commit(request.state, repository, repository.git.commit(sha)),
            "_links": {"self": url, "html": f"{render.WEB}/{repository.full_name}/tree/{name}"},
            "protected": False,
            "protection": {"enabled": False, "required_status_checks": checks},
            "protection_url": f"{url}/protection",
        }
    )


@route("GET", f"{_REPO}/compare/{{basehead:path}}", paged=True)
def compare(request: Request) -> Answer:
    repository, git = filled(request)
    base_name, dots, head_name = request.parameters["basehead"].partition("...")
    base = _revision(request, repository, base_name)
    head = _revision(request, repository, head_name)
    if not dots or base is None or head is None:
        raise not_found()
    part = githistory.merge_base(git, base, head)
    if part is None:
        raise GitHubFault(404, f"No common ancestor between {base_name} and {head_name}.")
    if wants(request, "diff"):
        kind = "application/vnd.github.v3.diff; charset=utf-8"
        return Answer(raw=githistory.diff(git, part, head), headers={"Content-Type": kind})
    ahead = githistory.commits_between(git, base, head)
    behind = githistory.commits_between(git, head, base)
    words = {(True, True): "diverged", (True, False): "ahead", (False, True): "behind",
             (False, False): "identical"}  # fmt: skip
    page_url = f"{render.WEB}/{repository.full_name}/compare"
    show = page(
        request,
        ahead[-_MOST_COMMITS:],
        lambda sha: render.commit(request.state, repository, git.commit(sha)),
    )
    files: list[JsonValue] = []
    if request.query.get("page", "1") == "1":
        files = [
            render.file_change(request.state, repository, head, one)
            for one in githistory.changes(git, part, head)[:_MOST_FILES]
        ]
    return Answer(
        headers=show.headers,
        json={
            "url": f"{request.base}/repos/{repository.full_name}/compare/{base_name}...{head_name}",
            "html_url": f"{page_url}/{base_name}...{head_name}",
            "permalink_url": f"{page_url}/{base[:12]}...{head[:12]}",
            "diff_url": f"{page_url}/{base_name}...{head_name}.diff",
            "patch_url": f"{page_url}/{base_name}...{head_name}.patch",
            "base_commit": render.commit(request.state, repository, git.commit(base)),
            "merge_base_commit": render.commit(request.state, repository, git.commit(part)),
            "status": words[bool(ahead), bool(behind)],
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "total_commits": len(ahead),
            "commits": show.json,
            "files": files,
        },
    )


def _revision(request: Request, repository: Repository, name: str) -> str | None:
    """Resolve `branch`, a commit, or `owner:branch` of the same network."""
    owner, colon, ref = name.rpartition(":")
    if not colon:
        return repository.git.resolve(name)
    for other in pulling.network(request.state, repository):
        if owner.lower() in {other.owner.login.lower(), other.full_name.replace("/", ":").lower()}:
            return request.allow(other, "read").git.resolve(ref)
    return None


@route("GET", f"{_REPO}/contents", query=("ref",))
@route("GET", f"{_REPO}/contents/{{path:path}}", query=("ref",))
def get_contents(request: Request) -> Answer:
    repository, git = filled(request)
    ref = request.query.get("ref") or repository.default_branch
    sha = git.resolve(ref)
    if sha is None:
        raise GitHubFault(404, f"No commit found for the ref {ref}")
    path = request.parameters.get("path", "").strip("/")
    if not path:
        return Answer(json=_folder(request, repository, ref, "", git.entries(sha)))
    entry = next((one for one in git.entries(sha, recursive=True) if one.path == path), None)
    if entry is None:
        raise not_found()
    if entry.kind == "tree":
        return Answer(json=_folder(request, repository, ref, path, git.entries(entry.sha)))
    if entry.kind == "commit" or entry.mode == "120000":
        raise UnmodelledError("contents of a link or a submodule")
    content = git.blob(entry.sha)
    if wants(request, "raw"):
        kind = "application/vnd.github.raw; charset=utf-8"
        return Answer(raw=content, headers={"Content-Type": kind})
    large = len(content) > _LARGE
    body: Json = {"content": "" if large else wrapped(content),
                  "encoding": "none" if large else "base64"}  # fmt: skip
    return Answer(json={**_content(request, repository, ref, entry), **body})


def _folder(
    request: Request, repository: Repository, ref: str, path: str, entries: list[Entry]
) -> list[JsonValue]:
    """Write the rows of a folder."""
    prefix = f"{path}/" if path else ""
    rows = (Entry(one.mode, one.kind, one.sha, one.size, prefix + one.path) for one in entries)
    return [_content(request, repository, ref, one) for one in rows]


def _content(request: Request, repository: Repository, ref: str, one: Entry) -> Json:
    """Write what a file and a row of a folder have in common."""
    url = f"{request.base}/repos/{repository.full_name}"
    kinds = {"blob": "file", "tree": "dir", "commit": "submodule"}
    web = f"{render.WEB}/{repository.full_name}/{one.kind}/{ref}/{one.path}"
    raw = f"https://raw.githubusercontent.com/{repository.full_name}/{ref}/{one.path}"
    links = {
        "self": f"{url}/contents/{one.path}?ref={ref}",
        "git": f"{url}/git/{one.kind}s/{one.sha}",
        "html": web,
    }
    return {
        "name": one.path.rpartition("/")[2],
        "path": one.path,
        "sha": one.sha,
        "size": one.size or 0,
        "url": links["self"],
        "html_url": web,
        "git_url": links["git"],
        "download_url": raw if one.kind == "blob" else None,
        "type": "symlink" if one.mode == "120000" else kinds[one.kind],
        "_links": dict(links),
    }
