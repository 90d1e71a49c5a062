"""A tree in memory: what a commit has, with changes on top.

Only the folders on the way to the paths that are asked for are read, so that
the size of the tree does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contribbot.store.objects import object_id, read_objects
from contribbot.store.repository import Store

#: The mode of a folder's entry, as a tree object spells it.
FOLDER: Final = "40000"
_ID_BYTES: Final = 20

#: The entries of a folder, each as the bytes that the tree object has for it, in its order.
_Listing = dict[bytes, bytes]


@dataclass(frozen=True)
class Entry:
    """What a tree says of a path.

    Attributes:
        mode: `100644`, `100755`, `120000`, `160000`, or `40000` for a folder.
        blob: The object's id.
    """

    mode: str
    blob: str


@dataclass(frozen=True)
class Change:
    """One path that a commit changes.

    Attributes:
        path: The path.
        entry: What it is afterwards; None when it is gone.
        content: Its bytes where the store may not have them yet.
    """

    path: str
    entry: Entry | None
    content: bytes | None = None


class Overlay:
    """The tree of a commit, and changes to it."""

    def __init__(self, store: Store, commit: str) -> None:
        self._store = store
        self._commit = commit
        # Shared between forks: what the commit has, and the bytes of blobs.
        self._base: dict[str, _Listing | None] = {}
        self._contents: dict[str, bytes] = {}
        # This fork's own: folders that are different now, and those to be hashed anew.
        self._mine: dict[str, _Listing] = {}
        self._dirty: set[str] = set()
        self._root = ""

    def fork(self) -> Overlay:
        """Return another overlay with the same content; changes to one leave the other alone."""
        twin = Overlay(self._store, self._commit)
        twin._base, twin._contents = self._base, self._contents
        twin._mine = {folder: dict(listing) for folder, listing in self._mine.items()}
        twin._dirty = set(self._dirty)
        twin._root = self._root
        return twin

    def prefetch(self, paths: Iterable[str]) -> None:
        """Read all that the commit says about some paths, with one process."""
        wanted = dict.fromkeys(paths)
        folders = dict.fromkeys(folder for path in wanted for folder in _parents(path))
        missing = [folder for folder in folders if folder not in self._base]
        names = [f"{self._commit}:{folder}" for folder in missing]
        names += [f"{self._commit}:{path}" for path in wanted]
        found = read_objects(self._store, names)
        for folder, object_ in zip(missing, found, strict=False):
            tree = object_ is not None and object_.kind == "tree"
            self._base[folder] = _listing(object_.content) if object_ and tree else None
        for object_ in found[len(missing) :]:
            if object_ is not None and object_.kind == "blob":
                self._contents[object_.id] = object_.content

    def entry(self, path: str) -> Entry | None:
        """Return what a path is, or None when there is nothing."""
        folder, name = _split(path)
        listing = self._folder(folder)
        raw = listing.get(name) if listing else None
        if raw is None:
            return None
        mode, _, _ = raw.partition(b" ")
        return Entry(mode.decode(), raw[-_ID_BYTES:].hex())

    def blocker(self, path: str) -> str:
        """Return a file that lies where a folder on the way to `path` must be, or nothing."""
        for folder in _parents(path):
            if folder and (entry := self.entry(folder)) is not None and entry.mode != FOLDER:
                return folder
        return ""

    def first_in(self, folder: str) -> str:
        """Return the path of some file in a folder (not looking deeper than it must)."""
        listing = self._folder(folder) or {}
        for name in listing:
            path = f"{folder}/{name.decode('utf-8', 'surrogateescape')}"
            entry = self.entry(path)
            found = self.first_in(path) if entry and entry.mode == FOLDER else path
            if found:
                return found
        return ""

    def content(self, blob: str) -> bytes:
        """Return the bytes of a blob."""
        if blob not in self._contents:
            self.contents([blob])
        return self._contents[blob]

    def contents(self, blobs: Iterable[str]) -> None:
        """Read the bytes of blobs that are not known yet, with one process."""
        missing = [blob for blob in dict.fromkeys(blobs) if blob not in self._contents]
        for blob, object_ in zip(missing, read_objects(self._store, missing), strict=True):
            self._contents[blob] = object_.content if object_ else self._store.read(blob)

    def put(self, path: str, mode: str, content: bytes) -> Change:
        """Change a path to have some bytes, and return the change."""
        entry = Entry(mode, object_id("blob", content))
        self._contents[entry.blob] = content
        self.set(path, entry)
        return Change(path, entry, content)

    def set(self, path: str, entry: Entry | None) -> Change:
        """Change a path to be something that the store has, or nothing; return the change."""
        folder, name = _split(path)
        listing = self._own(folder)
        if entry is None:
            listing.pop(name, None)
        else:
            fresh = name not in listing
            listing[name] = _raw(entry, name)
            if fresh:
                self._mine[folder] = dict(sorted(listing.items(), key=_order))
        self._root = ""
        return Change(path, entry)

    def tree(self) -> str:
        """Return the id of the whole tree as it is now."""
        if self._root:
            return self._root
        folders = {folder for dirty in self._dirty for folder in (dirty, *_parents(dirty))}
        # The deepest first: a folder's entry is the id of what is in it.
        for folder in sorted(folders, key=_depth, reverse=True):
            content = b"".join(self._own(folder).values())
            made = object_id("tree", content)
            if not folder:
                self._root = made
            else:
                parent, name = _split(folder)
                above = self._own(parent)
                fresh = name not in above
                if not content:
                    # A file may have taken the place of a folder that lost all of its own.
                    if above.get(name, b"").startswith(FOLDER.encode() + b" "):
                        del above[name]
                else:
                    above[name] = _raw(Entry(FOLDER, made), name)
                    if fresh:
                        self._mine[parent] = dict(sorted(above.items(), key=_order))
        self._dirty.clear()
        if not self._root:
            self._root = object_id("tree", b"".join((self._folder("") or {}).values()))
        return self._root

    def _folder(self, folder: str) -> _Listing | None:
        """Return the entries of a folder; None when there is no such folder."""
        if folder in self._mine:
            return self._mine[folder]
        if folder not in self._base:
            (object_,) = read_objects(self._store, [f"{self._commit}:{folder}"])
            tree = object_ is not None and object_.kind == "tree"
            self._base[folder] = _listing(object_.content) if object_ and tree else None
        return self._base[folder]

    def _own(self, folder: str) -> _Listing:
        """Return the entries of a folder for changing them."""
        if folder not in self._mine:
            self._mine[folder] = dict(self._folder(folder) or {})
        self._dirty.add(folder)
        return self._mine[folder]


def _split(path: str) -> tuple[str, bytes]:
    folder, _, name = path.rpartition("/")
    return folder, name.encode("utf-8", "surrogateescape")


def _parents(path: str) -> list[str]:
    """Return the folders that a path lies in, the root (an empty string) last."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)] + [""]


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0


def _raw(entry: Entry, name: bytes) -> bytes:
    return entry.mode.encode() + b" " + name + b"\0" + bytes.fromhex(entry.blob)


def _order(item: tuple[bytes, bytes]) -> bytes:
    """Return the key by which git sorts: a folder as if its name ended with a slash."""
    name, raw = item
    return name + b"/" if raw.startswith(FOLDER.encode() + b" ") else name


def _listing(tree: bytes) -> _Listing:
    """Take a tree object apart."""
    found: _Listing = {}
    at = 0
    while at < len(tree):
        nul = tree.index(b"\0", at)
        end = nul + 1 + _ID_BYTES
        found[tree[tree.index(b" ", at) + 1 : nul]] = tree[at:end]
        at = end
    return found
