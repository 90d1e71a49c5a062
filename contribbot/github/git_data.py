"""git's objects, as they are read from GitHub."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from github.ContentFile import ContentFile
    from github.GitBlob import GitBlob
    from github.GitTree import GitTree
    from github.Repository import Repository

FOLDER: Final = "040000"
SUBMODULE: Final = "160000"


@dataclass(frozen=True)
class TreeEntry:
    """An entry of a tree: mode and object; in a change, an empty entry removes the path."""

    path: str
    mode: str = "100644"
    sha: str = ""

    @property
    def kind(self) -> str:
        """The name of the object's kind in git."""
        return {FOLDER: "tree", SUBMODULE: "commit"}.get(self.mode, "blob")


def head_of(repository: Repository, branch: str) -> str | None:
    """Return the commit of a branch, or None where there is no such branch (yet)."""
    try:
        ref = repository.get_git_ref(f"heads/{branch}")
    except NotFoundError:
        return None
    except RefusedError as error:
        if error.status == HTTPStatus.CONFLICT:
            return None  # of a repository that is still copied
        raise
    return ref.object.sha if ref.ref == f"refs/heads/{branch}" else None


def read_tree(repository: Repository, tree: str, paths: Collection[str]) -> dict[str, TreeEntry]:
    """Return a tree's entries at some paths: by one request, or one a folder for a large tree."""
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
    """Return the entries at some paths, read folder by folder, one request each."""
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
    """Return the contents of blobs."""
    return {sha: _content(repository.get_git_blob(sha)) for sha in sorted(set(ids))}


def read_file(repository: Repository, path: str, ref: str) -> bytes | None:
    """Return a file at a branch or commit, or None where there is no such file."""
    try:
        file = repository.get_contents(path, ref) if ref else repository.get_contents(path)
    except NotFoundError:
        return None
    return None if isinstance(file, list) else _content(file)  # a list: a folder


def _content(blob: GitBlob | ContentFile) -> bytes:
    """Return the decoded bytes of a blob or file; GitHub breaks base64 into lines."""
    return base64.b64decode(blob.content) if blob.encoding == "base64" else blob.content.encode()
