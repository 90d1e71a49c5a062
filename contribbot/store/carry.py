"""Carrying commits over to another tree: one commit at a time, all of it in memory if it can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.store.commits import Commit, write_commits
from contribbot.store.conflict import Conflict
from contribbot.store.difftext import Part
from contribbot.store.overlay import Change, Entry, Overlay
from contribbot.store.repository import Store
from contribbot.store.steps import NOTHING, TEXT, Step
from contribbot.store.threeway import Region, Shift, conflicts_of, merge_file, transplant
from contribbot.store.trees import changes as compare

#: What git calls a conflict that is not about a file's text, and what we call it.
_STRUCTURE: Final = {
    "CONFLICT (rename/rename)": "the release and the patch moved it to different places",
    "CONFLICT (rename/delete)": "the release moved it, and the patch deletes it",
    "CONFLICT (file/directory)": "where one has a file, the other has a folder",
    "CONFLICT (distinct modes)": "the two have different kinds of file",
}
_GONE: Final = "the patch moves it, and the release deleted it"
#: Whose the commits are that only show git what to merge.
_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "contribbot", "GIT_AUTHOR_EMAIL": "contribbot@localhost",
    "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_COMMITTER_DATE": "@0 +0000",
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """A tree on the way, and its commit."""

    tip: str
    tree: Overlay


@dataclass(frozen=True)
class Carried:
    """What came of one commit.

    Attributes:
        state: The tree with it; the one before when nothing was left or it conflicts.
        merged: Whether more was needed than putting the same text in.
        shifts: Hunks that went elsewhere than they say, by path.
        conflicts: Why it could not be carried.
        elsewhere: Whether that is because a file was moved: it is gone from its place, and
            yet the release has not deleted it.
        notes: Renames that were followed.
    """

    state: State
    merged: bool = False
    shifts: tuple[tuple[str, Shift], ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: bool = False


class _StructureError(Exception):
    """The file is not where it was, or is no text: git's whole merge must look at it."""


class Carrier:
    """Carries commits, and keeps what it made until it is written."""

    def __init__(self, store: Store, pin: str, scratch: Path) -> None:
        self._store = store
        self._pin = pin
        self._scratch = scratch
        self._made: list[Commit] = []
        self._known: dict[tuple[str, str], Carried] = {}

    def write(self) -> None:
        """Write the commits that were made."""
        write_commits(self._store, self._made)
        self._made.clear()

    def carry(self, step: Step, state: State, name: str) -> Carried:
        """Carry a commit onto a tree."""
        key = (step.commit, state.tip)
        if key not in self._known:
            try:
                self._known[key] = self._in_memory(step, state, name)
            except _StructureError:
                self._known[key] = self._with_git(step, state, name)
        return self._known[key]

    def _in_memory(self, step: Step, state: State, name: str) -> Carried:
        """Carry path by path."""
        results: list[tuple[str, Entry | None, bytes | None]] = []
        shifts: list[tuple[str, Shift]] = []
        conflicts: list[Conflict] = []
        merged = False
        for path, old, theirs in step.touched:
            ours = state.tree.entry(path)
            if ours is None and theirs is None:
                raise _StructureError  # deleted by both, or moved by one of them
            if ours == theirs:
                continue
            if ours == old and (ours is not None or not state.tree.blocker(path)):
                results.append((path, theirs, None))
                continue
            if not (old and ours and theirs) or not {old.mode, ours.mode, theirs.mode} <= TEXT:
                raise _StructureError
            mode = theirs.mode if ours.mode == old.mode else ours.mode
            blobs = (old.blob, ours.blob, theirs.blob)
            text, moved, exact = self._text(state.tree, step.parts.get(path), *blobs)
            if isinstance(text, bytes):
                results.append((path, Entry(mode, ""), text))
                shifts += [(path, shift) for shift in moved]
                merged = merged or not exact
            else:
                conflicts += conflicts_of(name, path, self._pin, text)
        if conflicts:
            return Carried(state, conflicts=tuple(conflicts))
        tree = state.tree.fork()
        made = [tree.set(path, None) for path, entry, _ in results if entry is None]
        for path, entry, content in results:
            if entry is not None:
                made.append(
                    tree.set(path, entry)
                    if content is None
                    else tree.put(path, entry.mode, content)
                )
        return self._commit(step, state, tree, made, merged=merged, shifts=tuple(shifts))

    def _text(
        self, tree: Overlay, part: Part | None, old: str, ours: str, theirs: str
    ) -> tuple[bytes | tuple[Region, ...], tuple[Shift, ...], bool]:
        """Carry a file's text: the text or its conflicts, the shifts, whether it is exact."""
        if ours == old:
            return tree.content(theirs), (), True
        if theirs in {ours, old}:
            return tree.content(ours), (), True
        base, mine = tree.content(old), tree.content(ours)
        if part is not None and (found := transplant(part.hunks, base, mine)) is not None:
            return found[0], found[1], True
        versions = (base, mine, tree.content(theirs))
        return merge_file(self._store, versions, self._scratch), (), False

    def _with_git(self, step: Step, state: State, name: str) -> Carried:
        """Carry with git's own merge of whole trees, which follows renames."""
        self.write()
        # Two commits whose only common parent is the step's: that is the merge base.
        ours = self._store.git(
            "commit-tree", state.tree.tree(), "-p", step.parent, stdin=b"ours\n", env=_IDENTITY
        ).stdout.decode().strip()  # fmt: skip
        done = self._store.git(
            "-c", "merge.renameLimit=7000", "merge-tree", "--write-tree", "-z", "--messages",
            ours, step.commit, accept=(0, 1),
        )  # fmt: skip
        tree_id, _, rest = done.stdout.decode("utf-8", "surrogateescape").partition("\0")
        if done.returncode:
            found = self._conflicts(step, state.tree, name, rest)
            return Carried(state, conflicts=tuple(found), elsewhere="CONFLICT (rename/" in rest)
        tree = state.tree.fork()
        known = {path for path, _, _ in step.touched}
        made: list[Change] = []
        followed: list[str] = []
        for change in compare(self._store, state.tree.tree(), tree_id):
            entry = None if change.mode == NOTHING else Entry(change.mode, change.blob)
            made.append(tree.set(change.path, entry))
            if change.path not in known:
                followed.append(change.path)
        made.sort(key=lambda change: change.entry is not None)
        notes = (f"renames followed: {', '.join(sorted(followed))}",) if followed else ()
        return self._commit(step, state, tree, made, merged=True, notes=notes)

    def _conflicts(self, step: Step, tree: Overlay, name: str, said: str) -> list[Conflict]:
        """Read what `git merge-tree` could not merge."""
        listed, _, rest = f"\0{said}".partition("\0\0")
        messages = list(_messages(rest))
        found: dict[str, Conflict] = {}
        named: set[str] = set()
        before = {path: theirs for path, _, theirs in step.touched}
        for kind, paths in messages:
            if kind not in _STRUCTURE:
                continue
            path = next((one for one in paths if one in before), paths[0])
            if kind == "CONFLICT (rename/delete)":
                # Of the two paths, the old one is deleted by the patch in either case.
                path = next((one for one in paths if before.get(one, path) is None), path)
            gone = kind == "CONFLICT (rename/delete)" and any(before.get(one) for one in paths)
            why = _GONE if gone else _STRUCTURE[kind]
            found.setdefault(path, Conflict(name, path, self._pin, 0, why))
            named.update(paths)
        by_text = self._texts(tree, name, listed, named)
        if not found and not by_text:
            kind, paths = next(iter(messages), ("git could not merge it", ["the tree"]))
            return [Conflict(name, paths[0], self._pin, 0, kind)]
        return [*found.values(), *by_text]

    def _texts(self, tree: Overlay, name: str, listed: str, named: set[str]) -> list[Conflict]:
        """Read the files whose sides could not be merged, but for those that are named already."""
        stages: dict[str, dict[str, Entry]] = {}
        for row in filter(None, listed.split("\0")):
            head, _, path = row.partition("\t")
            mode, blob, stage = head.split(" ")
            stages.setdefault(path, {})[stage] = Entry(mode, blob)
        found: list[Conflict] = []
        for path, sides in stages.items():
            if path in named:
                continue
            old, ours, theirs = (sides.get(stage) for stage in "123")
            if old and ours and theirs and {old.mode, ours.mode, theirs.mode} <= TEXT:
                versions = tuple(tree.content(side.blob) for side in (old, ours, theirs))
                regions = merge_file(self._store, versions, self._scratch)
                if not isinstance(regions, bytes):
                    found += conflicts_of(name, path, self._pin, regions)
                continue
            if ours is None:
                why = "the release has no such file any more"
            elif theirs is None:
                why = "the release changed the file that the patch deletes"
            else:
                why = "the release has another such file"
            found.append(Conflict(name, path, self._pin, 0, why))
        return found

    def _commit(
        self,
        step: Step,
        state: State,
        tree: Overlay,
        made: Sequence[Change],
        *,
        merged: bool,
        shifts: tuple[tuple[str, Shift], ...] = (),
        notes: tuple[str, ...] = (),
    ) -> Carried:
        """Put a commit on the tree, unless nothing is left of it."""
        if tree.tree() == state.tree.tree():
            return Carried(state, merged=merged)
        commit = Commit(
            tree.tree(), state.tip, step.author, step.committer, step.message, tuple(made)
        )
        self._made.append(commit)
        return Carried(State(commit.id, tree), merged, shifts, (), notes)


def _messages(said: str) -> Iterator[tuple[str, list[str]]]:
    """Read the messages of `git merge-tree -z`: what kind each conflict is of, and its paths."""
    fields = iter(said.split("\0"))
    for count in fields:
        if not count.strip():
            return
        paths = [next(fields) for _ in range(int(count))]
        kind = next(fields)
        next(fields)  # the same in a sentence
        if kind.startswith("CONFLICT"):
            yield kind, paths
