"""The upstream's branch as far as a patch touches it, as a commit of the local store.

The store has the pin's tree, which may hold a part of the repository only. Where the branch
has something else at a path that is to be changed, that takes the pin's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.git.repository import GONE, NOTHING, NewCommit, Store, find, write_commits
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
    wanted = sorted({*paths, *(folder for path in paths for folder in _parents(path))})
    upstream = target.github.repository(target.repository)
    there = git_data.read_tree(upstream, target.tip.tree, wanted)
    with store.open() as repo:
        tree = repo.commit(pin).tree
        known = {
            path: remote.Entry(path, f"{entry.mode:06o}", entry.hexsha)
            for path in wanted
            if (entry := find(tree, path)) is not None
        }
    blocked = _blocked(paths, there, known)
    if blocked is not None:
        return blocked
    there = {path: there[path] for path in paths if path in there}
    there = {path: entry for path, entry in there.items() if entry.mode != remote.FOLDER}
    entries = {
        path: (GONE, NOTHING)
        for path in paths
        if path not in there and path in known and known[path].mode != remote.FOLDER
    }
    different = {path: entry for path, entry in there.items() if known.get(path) != entry}
    entries |= {path: (entry.mode, entry.sha) for path, entry in different.items()}
    with store.exclusive():
        _bring(store, different.values(), target)
        commit = NewCommit(pin, _IDENTITY, _IDENTITY, b"base\n", entries=entries)
        ((made, _),) = write_commits(store, [commit], dates="raw")
    return Base(made, frozenset(entry.sha for entry in there.values()))


def _bring(store: Store, entries: Iterable[remote.Entry], target: Target) -> None:
    """Write what the branch has into the store, where it lacks it."""
    wanted = dict.fromkeys(entry.sha for entry in entries if entry.mode != remote.SUBMODULE)
    missing = [blob for blob in wanted if not store.has(blob)]
    for content in git_data.read_blobs(target.github, target.repository, missing).values():
        store.git("hash-object", "-w", "--stdin", stdin=content)


def _blocked(
    paths: Sequence[str], there: Mapping[str, remote.Entry], pin: Mapping[str, remote.Entry]
) -> Blocked | None:
    """Find a file for a folder, or a folder for a file, that the pin does not have as well."""
    for path in paths:
        entry = there.get(path)
        # Where a patch replaces a whole folder, no other file may be in it.
        if entry is not None and entry.mode == remote.FOLDER and pin.get(path) != entry:
            return Blocked(path, "the branch has a folder there")
        for folder in _parents(path):
            if folder not in there or there[folder].mode == remote.FOLDER:
                continue
            if folder not in pin or pin[folder].mode == remote.FOLDER:
                return Blocked(path, f"the branch has a file where the folder {folder} must be")
    return None


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
