"""The upstream's branch as far as a patch touches it, as a commit of the local store.

The store has the pin's tree, which may hold a part of the repository only. Where the branch
has something else at a path that is to be changed, that takes the pin's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.git.apply import FOLDER, Change, Commit, Entry, Overlay, write_commits
from contribbot.git.repository import Store, read_objects
from contribbot.github import git_data
from contribbot.github import git_objects as remote

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_IDENTITY: Final = b"contribbot <contribbot@localhost> 0 +0000"


@dataclass(frozen=True)
class Blocked:
    """A path where the branch has a file for a folder, or a folder for a file."""

    path: str
    why: str


@dataclass(frozen=True)
class Base:
    """The branch in the store."""

    #: A commit that has the branch's content at the paths, and the pin's elsewhere.
    commit: str
    blobs: frozenset[str]


@dataclass(frozen=True)
class Tip:
    """A branch of the upstream: its newest commit, and the tree of that."""

    name: str
    sha: str
    tree: str


@dataclass(frozen=True)
class Target:
    """The branch that a patch goes to, of the upstream's repository."""

    github: GitHub
    repository: str
    tip: Tip


def make_base(store: Store, pin: str, paths: Sequence[str], target: Target) -> Base | Blocked:
    """Bring the branch's content at some paths into the store."""
    above = {folder for path in paths for folder in _parents(path)}
    wanted = sorted({*paths, *above})
    upstream = target.github.repository(target.repository)
    there = git_data.read_tree(upstream, target.tip.tree, wanted)
    tree = Overlay(store, pin)
    tree.prefetch(paths)
    blocked = _blocked(paths, there, tree)
    if blocked is not None:
        return blocked
    there = {path: entry for path, entry in there.items() if entry.mode != remote.FOLDER}
    different = {
        path: there[path]
        for path in paths
        if path in there and tree.entry(path) != Entry(there[path].mode, there[path].sha)
    }
    contents = _contents(store, different, target)
    made: list[Change] = []
    for path in paths:
        entry = there.get(path)
        if entry is None:
            known = tree.entry(path)
            if known is not None and known.mode != FOLDER:
                made.append(tree.set(path, None))
        elif path in different:
            content = contents.get(entry.sha)
            made.append(
                tree.set(path, Entry(entry.mode, entry.sha))
                if content is None
                else tree.put(path, entry.mode, content)
            )
    commit = Commit(tree.tree(), pin, _IDENTITY, _IDENTITY, b"base\n", tuple(made))
    with store.exclusive():
        write_commits(store, [commit])
    return Base(commit.id, frozenset(there[path].sha for path in paths if path in there))


def _contents(store: Store, wanted: Mapping[str, remote.Entry], target: Target) -> dict[str, bytes]:
    """Return the bytes of what the branch has, from the store where it knows them."""
    ids = list(dict.fromkeys(one.sha for one in wanted.values() if one.mode != remote.SUBMODULE))
    known = {
        blob: object_.content
        for blob, object_ in zip(ids, read_objects(store, ids), strict=True)
        if object_ is not None and object_.kind == "blob"
    }
    missing = [blob for blob in ids if blob not in known]
    return known | git_data.read_blobs(target.github, target.repository, missing)


def _blocked(
    paths: Sequence[str], there: Mapping[str, remote.Entry], pin: Overlay
) -> Blocked | None:
    """Find a file for a folder, or a folder for a file, that the pin does not have as well."""
    for path in paths:
        entry = there.get(path)
        # Where a patch replaces a whole folder, no other file may be in it.
        if (
            entry is not None
            and entry.mode == FOLDER
            and pin.entry(path) != Entry(FOLDER, entry.sha)
        ):
            return Blocked(path, "the branch has a folder there")
        for folder in _parents(path):
            if folder not in there or there[folder].mode == remote.FOLDER:
                continue
            known = pin.entry(folder)
            if known is None or known.mode == FOLDER:
                return Blocked(path, f"the branch has a file where the folder {folder} must be")
    return None


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
