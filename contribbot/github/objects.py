"""Helpers for PyGithub's objects: attributes that may be missing, git's trees and blobs."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot.errors import GitHubError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from github.ContentFile import ContentFile
    from github.GitBlob import GitBlob
    from github.GithubObject import CompletableGithubObject
    from github.GitTree import GitTree
    from github.Issue import Issue
    from github.NamedUser import NamedUser
    from github.Organization import Organization
    from github.Repository import Repository

    K = TypeVar("K", bound=CompletableGithubObject)

FOLDER: Final = "040000"
SUBMODULE: Final = "160000"


def login_of(user: NamedUser | Organization | None) -> str | None:
    """Return the login of an account; None for a deleted account."""
    return None if user is None else user.login


def name_of(repository: Repository | None) -> str | None:
    """Return `owner/name` of a repository; None for a deleted repository."""
    return None if repository is None else repository.full_name


def place_of(issue: Issue) -> str:
    """Return `owner/name` of the repository that an issue or pull request is in."""
    return "/".join(issue.html_url.split("/")[-4:-2])


def is_pull(issue: Issue) -> bool:
    """Return whether an issue is a pull request."""
    return issue.raw_data.get("pull_request") is not None


def may_push(repository: Repository) -> bool:
    """Return whether the account may write to a repository, as far as GitHub says."""
    return bool((repository.raw_data.get("permissions") or {}).get("push"))


def whole(objects: Iterable[K]) -> tuple[K, ...]:
    """Return the objects of a list, marked complete, so that PyGithub fetches none again."""
    items = tuple(objects)
    for item in items:
        item._set_complete()  # noqa: SLF001  PyGithub has no public way
    return items


@dataclass(frozen=True)
class TreeEntry:
    """An entry of a git tree: path, mode, object; in a change, an empty `sha` removes the path."""

    path: str
    mode: str = "100644"
    sha: str = ""

    @property
    def kind(self) -> str:
        """Git's name for the kind of the object: tree, commit or blob."""
        return {FOLDER: "tree", SUBMODULE: "commit"}.get(self.mode, "blob")


def head_of(repository: Repository, branch: str) -> str | None:
    """Return the commit of a branch; None: the branch does not exist (yet)."""
    try:
        ref = repository.get_git_ref(f"heads/{branch}")
    except NotFoundError:
        return None
    except RefusedError as error:
        if error.status == HTTPStatus.CONFLICT:
            return None  # GitHub is still copying the repository
        raise
    return ref.object.sha if ref.ref == f"refs/heads/{branch}" else None


def read_tree(repository: Repository, tree: str, paths: Collection[str]) -> dict[str, TreeEntry]:
    """Return a tree's entries at the given paths; a large tree takes a request for each folder."""
    if not paths:
        return {}
    listing = repository.get_git_tree(tree, recursive=True)
    if listing.truncated:
        entries = _by_folder(repository, tree, paths)
    else:
        entries = {entry.path: entry for entry in _entries(listing) if entry.path in paths}
    return entries


def _by_folder(
    repository: Repository, tree: str, paths: Collection[str], above: str = ""
) -> dict[str, TreeEntry]:
    """Return the entries at the given paths, with one request for each folder."""
    entries: dict[str, TreeEntry] = {}
    for entry in read_folder(repository, tree):
        path, folder = f"{above}{entry.path}", f"{entry.path}/"
        if entry.path in paths:
            entries[path] = TreeEntry(path, entry.mode, entry.sha)
        inside = [path.removeprefix(folder) for path in paths if path.startswith(folder)]
        if inside and entry.mode == FOLDER:
            entries |= _by_folder(repository, entry.sha, inside, f"{path}/")
    return entries


def read_folder(repository: Repository, tree: str) -> tuple[TreeEntry, ...]:
    """Return the entries of one folder; each `path` is only the name in the folder."""
    listing = repository.get_git_tree(tree)
    if listing.truncated:
        raise GitHubError(f"tree {tree[:12]}: a folder that is too large for GitHub to list")
    return _entries(listing)


def _entries(listing: GitTree) -> tuple[TreeEntry, ...]:
    return tuple(TreeEntry(element.path, element.mode, element.sha) for element in listing.tree)


def read_blobs(repository: Repository, ids: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of blobs, by id."""
    return {sha: _content(repository.get_git_blob(sha)) for sha in sorted(set(ids))}


def read_file(repository: Repository, path: str, ref: str) -> bytes | None:
    """Return a file's content at a branch or commit; None: no such file."""
    try:
        file = repository.get_contents(path, ref) if ref else repository.get_contents(path)
    except NotFoundError:
        return None
    return None if isinstance(file, list) else _content(file)  # a list means a folder


def _content(blob: GitBlob | ContentFile) -> bytes:
    """Return the decoded bytes of a blob or file; GitHub breaks base64 into lines."""
    return base64.b64decode(blob.content) if blob.encoding == "base64" else blob.content.encode()
