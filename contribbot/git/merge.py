"""Moving patches to another release: each carried over in memory, none stopped by another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from contribbot.git.apply import (
    Adjustment,
    Change,
    Commit,
    Conflict,
    Entry,
    Indexed,
    Overlay,
    Series,
    apply_series,
    write_commits,
)
from contribbot.git.patch_format import Hunk, Part, format_chains, lines_of, raw_changes, read_diff
from contribbot.git.patch_format import changes as compare
from contribbot.git.repository import Store, read_objects
from contribbot.model.patch import PatchFile

#: The modes of files that can be merged as text.
TEXT: Final = frozenset({"100644", "100755"})
#: The mode that git writes for a path that is not there.
NOTHING: Final = "000000"
_ID: Final = 40


@dataclass(frozen=True)
class Step:
    """A commit that is to be carried.

    Attributes:
        commit: Its id.
        parent: Its parent's.
        author: Its author line.
        committer: Its committer line.
        message: Its message.
        touched: What it changes: path, before, after.
        parts: Its diff by path, as far as it was needed and is plain.
    """

    commit: str
    parent: str
    author: bytes
    committer: bytes
    message: bytes
    touched: tuple[tuple[str, Entry | None, Entry | None], ...]
    parts: Mapping[str, Part]


def read_steps(store: Store, commits: Sequence[str], tree: Overlay) -> dict[str, Step]:
    """Read commits that will be carried, with a few processes for all."""
    touched: dict[str, list[tuple[str, Entry | None, Entry | None]]] = {}
    for commit, row, path in raw_changes(store, commits):
        modes = row.split(" ")
        old = None if modes[0] == NOTHING else Entry(modes[0], modes[2])
        new = None if modes[1] == NOTHING else Entry(modes[1], modes[3])
        touched.setdefault(commit, []).append((path, old, new))
    tree.prefetch(path for rows in touched.values() for path, _, _ in rows)
    different = {
        commit: [row for row in rows if tree.entry(row[0]) not in row[1:]]
        for commit, rows in touched.items()
    }
    needed = [commit for commit in commits if different.get(commit)]
    tree.contents(
        entry.blob
        for commit in needed
        for _, *sides in different[commit]
        for entry in sides
        if isinstance(entry, Entry) and entry.mode in TEXT
    )
    parts = _diffs(store, needed)
    found: dict[str, Step] = {}
    for commit, object_ in zip(commits, read_objects(store, commits), strict=True):
        head, _, message = (object_.content if object_ else b"").partition(b"\n\n")
        fields = dict(row.split(b" ", 1) for row in head.split(b"\n"))
        found[commit] = Step(
            commit, fields[b"parent"].decode(), fields[b"author"], fields[b"committer"],
            message, tuple(touched.get(commit, ())), parts.get(commit, {}),
        )  # fmt: skip
    return found


def _diffs(store: Store, commits: Sequence[str]) -> dict[str, dict[str, Part]]:
    """Return the plain diffs of commits, path by path."""
    said = store.git(
        "diff-tree", "--stdin", "-r", "-p", "-U3", "--no-renames", "--no-color", "--no-ext-diff",
        "--full-index", stdin="".join(f"{commit}\n" for commit in commits).encode(),
    ).stdout  # fmt: skip
    wanted = {commit.encode() for commit in commits}
    texts: dict[str, list[bytes]] = {}
    rows: list[bytes] = []
    for row in said.split(b"\n"):
        # No line of a diff is a bare id: each starts with its sign, or with a word.
        if len(row) == _ID and row in wanted:
            rows = texts.setdefault(row.decode(), [])
        else:
            rows.append(row)
    found: dict[str, dict[str, Part]] = {}
    for commit, lines in texts.items():
        found[commit] = {part.path: part for part in _by_file(lines)}
    return found


def _by_file(lines: list[bytes]) -> list[Part]:
    """Read each file's part by itself: one that is not plain says nothing of the others."""
    starts = [at for at, row in enumerate(lines) if row.startswith(b"diff --git ")]
    found: list[Part] = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found += read_diff(b"\n".join([*lines[start:end], b""])) or ()
    return found


#: Long enough that no file has such lines by itself.
_MARKER: Final = 43
_CONFLICT: Final = re.compile(
    rb"^<{43}[^\n]*\n(?P<ours>.*?)^\|{43}[^\n]*\n(?P<base>.*?)"
    rb"^={43}\n(?P<theirs>.*?)^>{43}[^\n]*\n?",
    re.MULTILINE | re.DOTALL,
)
#: How many conflicts `git merge-file` can count; beyond it, it could not merge at all.
_MOST: Final = 127


@dataclass(frozen=True)
class Shift:
    """A hunk that went elsewhere than it says.

    Attributes:
        line: The line where it went, from 1.
        offset: Lines between that and where it says.
    """

    line: int
    offset: int


@dataclass(frozen=True)
class Region:
    """A place that both sides changed.

    Attributes:
        line: Its first line in our version, from 1.
        base: What both sides had.
        ours: What our version has there.
        theirs: What the change wants there.
    """

    line: int
    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


def transplant(
    hunks: Sequence[Hunk], base: bytes, ours: bytes
) -> tuple[bytes, tuple[Shift, ...]] | None:
    """Apply hunks where their lines stand in another version of the file, if that is beyond doubt.

    Beyond doubt is a hunk whose lines, with context on both sides, occur once in
    the file that it was made for and once in the other version. A three-way
    merge would do the same, for a process each.
    """
    pieces: list[bytes] = []
    shifts: list[Shift] = []
    at = lines = 0
    for hunk in hunks:
        old = b"".join(hunk.old)
        start = _only(ours, old)
        if not (hunk.leading and hunk.trailing) or start < at or _only(base, old) < 0:
            return None
        if not old.endswith(b"\n") and start + len(old) != len(ours):
            return None
        new = b"".join(hunk.new)
        lines += ours.count(b"\n", at, start) + (pieces[-1].count(b"\n") if pieces else 0)
        if lines + 1 != hunk.goes:
            shifts.append(Shift(lines + 1, lines + 1 - hunk.goes))
        pieces += [ours[at:start], new]
        at = start + len(old)
    pieces.append(ours[at:])
    return b"".join(pieces), tuple(shifts)


def merge_file(
    store: Store, versions: tuple[bytes, ...], scratch: Path
) -> bytes | tuple[Region, ...]:
    """Merge three versions of a file."""
    names = ("ours", "base", "theirs")
    for name, content in zip(("base", "ours", "theirs"), versions, strict=True):
        (scratch / name).write_bytes(content)
    done = store.git(
        "merge-file", "-p", "-q", "--zdiff3", f"--marker-size={_MARKER}", *names,
        cwd=scratch, accept=range(256),
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    if done.returncode > _MOST:
        return ()
    return tuple(_regions(done.stdout))


def conflicts_of(name: str, path: str, pin: str, regions: Sequence[Region]) -> list[Conflict]:
    """Say each place of conflict as a conflict of a patch file."""
    if not regions:
        return [Conflict(name, path, pin, 0, "both changed it, and it is no text")]
    why = "the release changed the same lines"
    return [
        Conflict(name, path, pin, number, why, one.line, one.base, one.ours, one.theirs)
        for number, one in enumerate(regions, start=1)
    ]


def _only(content: bytes, lines: bytes) -> int:
    """Return where whole lines stand in a file that has them once; -1 otherwise."""
    # A newline before each: lines are found only at the start of one.
    hay, needle = b"\n" + content, b"\n" + lines
    first = hay.find(needle)
    return first if first < 0 or hay.find(needle, first + 1) < 0 else -1


def _regions(merged: bytes) -> list[Region]:
    """Read the places of conflict from a file with markers."""
    found: list[Region] = []
    line, at = 1, 0
    for spot in _CONFLICT.finditer(merged):
        line += merged.count(b"\n", at, spot.start())
        base, ours, theirs = (_readable(spot[side]) for side in ("base", "ours", "theirs"))
        found.append(Region(line, base, ours, theirs))
        line += len(ours)
        at = spot.end()
    return found


def _readable(content: bytes) -> tuple[str, ...]:
    return tuple(row.rstrip(b"\n").decode("utf-8", "replace") for row in lines_of(content))


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


class Fate(StrEnum):
    """What becomes of a patch at another release."""

    #: The same text goes in, perhaps at other lines.
    CLEAN = "clean"
    #: A three-way merge was needed.
    MERGED = "merged"
    #: Both sides changed the same.
    CONFLICT = "conflict"
    #: The release has all of it.
    UPSTREAM = "upstream"
    #: Something that it depends on did not move.
    BLOCKED = "blocked"


_STUCK: Final = frozenset({Fate.CONFLICT, Fate.BLOCKED})


@dataclass(frozen=True)
class Moving:
    """A patch that is to be moved.

    Attributes:
        name: Its name.
        below: All that it depends on, in the order in which that was applied below it.
        series: The patch applied on the old pin, on top of those below.
        resolved: Its files for the new base, where a person has resolved its conflicts;
            then these are applied there, and nothing is carried.
        gone: Whether it stays behind: what stands on it goes without it.
    """

    name: str
    below: tuple[str, ...]
    series: Series
    resolved: tuple[PatchFile, ...] = ()
    gone: bool = False


@dataclass(frozen=True)
class Moved:
    """What came of moving a patch.

    Attributes:
        name: Its name.
        fate: What became of it.
        base: The new base, with what it depends on.
        commits: Its commits on that base (of a conflict: those before it).
        files: Its new patch files; none unless it is clean or merged.
        adjustments: Hunks that went to other lines.
        conflicts: What both sides changed.
        why: One phrase for a person; may be empty.
    """

    name: str
    fate: Fate
    base: str
    commits: tuple[str, ...] = ()
    files: tuple[PatchFile, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    why: str = ""


def move(
    store: Store, patches: Sequence[Moving], *, old: str, new: str, pin: str, scratch: Path
) -> list[Moved]:
    """Carry patches from one base over to another.

    Nothing outside the store is changed, and there only objects are added. Call
    it inside `store.exclusive()`.
    """
    return _Move(store, patches, old=old, new=new, pin=pin, scratch=scratch).run()


class _Move:
    """One run of `move`."""

    def __init__(
        self,
        store: Store,
        patches: Sequence[Moving],
        *,
        old: str,
        new: str,
        pin: str,
        scratch: Path,
    ) -> None:
        self._store = store
        self._patches = {patch.name: patch for patch in patches}
        self._scratch = scratch
        self._pin = pin
        self._start = State(new, Overlay(store, new))
        self._carrier = Carrier(store, pin, scratch)
        self._done: dict[str, Moved] = {}
        self._lower: dict[str, list[str]] = {}
        for patch in patches:
            self._lower[patch.name] = self._chain_below(patch, old)
        commits = [one.commit for patch in patches for one in patch.series.applied]
        commits += [commit for chain in self._lower.values() for commit in chain]
        self._steps = read_steps(store, list(dict.fromkeys(commits)), self._start.tree)

    def run(self) -> list[Moved]:
        """Move all, each after what it depends on."""
        waiting = list(self._patches)
        while waiting:
            ready = [n for n in waiting if all(b in self._done for b in self._patches[n].below)]
            if not ready:
                raise ValueError(f"these depend on what is not moved: {', '.join(waiting)}")
            for name in ready:
                self._done[name] = self._one(self._patches[name])
            waiting = [name for name in waiting if name not in self._done]
        self._carrier.write()
        moved = [self._done[name] for name in self._patches]
        kept = [one for one in moved if one.commits and one.fate in {Fate.CLEAN, Fate.MERGED}]
        files = dict(
            zip(
                (one.name for one in kept),
                format_chains(self._store, [one.commits for one in kept]),
                strict=True,
            )
        )
        return [replace(one, files=files.get(one.name, ())) for one in moved]

    def _chain_below(self, patch: Moving, old: str) -> list[str]:
        """Return the commits between the old base and a patch."""
        if not patch.below:
            return []
        if not self._patches.keys() >= set(patch.below):
            raise ValueError(f"these depend on what is not moved: {patch.name}")
        lowers = [self._patches[name] for name in patch.below]
        last = lowers[-1]
        if last.below == patch.below[:-1] and last.series.commit == patch.series.base:
            # A stack in a row: known without asking, where the order is that of the queue.
            known = self._lower.get(last.name)
            if known is not None:
                return [*known, *(one.commit for one in last.series.applied)]
        said = self._store.git("rev-list", "--reverse", f"{old}..{patch.series.base}", "--")
        chain = said.stdout.decode().split()
        if len(chain) != sum(len(lower.series.applied) for lower in lowers):
            raise ValueError(f"{patch.name}: below it are not the commits of {patch.below}")
        return chain

    def _one(self, patch: Moving) -> Moved:
        """Move one patch."""
        if patch.gone:
            return Moved(patch.name, Fate.UPSTREAM, self._start.tip, why="it is left out")
        stuck = [name for name in patch.below if self._done[name].fate in _STUCK]
        if stuck:
            why = f"{stuck[0]}, on which it depends, does not move"
            return Moved(patch.name, Fate.BLOCKED, self._start.tip, why=why)
        state, why = self._stack(patch)
        if why:
            return Moved(patch.name, Fate.BLOCKED, self._start.tip, why=why)
        return self._carry_all(patch, state)

    def _stack(self, patch: Moving) -> tuple[State, str]:
        """Put what a patch depends on on the new base; say why when that fails."""
        state = self._start
        chain = iter(self._lower[patch.name])
        for name in patch.below:
            lower = self._patches[name]
            if lower.resolved and not lower.gone:
                # Its commits on the old base are passed over.
                list(itertools.islice(chain, len(lower.series.applied)))
                resolved = self._apply(lower, state)
                if isinstance(resolved, Series):
                    return state, f"{name}, on which it depends, {resolved.conflicts[0].why}"
                state, _ = resolved
                continue
            for one, commit in zip(lower.series.applied, chain, strict=False):
                if self._done[name].fate is Fate.UPSTREAM:
                    continue
                carried = self._carrier.carry(self._steps[commit], state, one.file)
                if carried.conflicts:
                    return state, f"{name}, on which it depends, {carried.conflicts[0].why}"
                state = carried.state
        return state, ""

    def _apply(self, patch: Moving, state: State) -> tuple[State, tuple[str, ...]] | Series:
        """Apply what a person has resolved; return the series where that conflicts."""
        self._carrier.write()
        series = apply_series(
            self._store, state.tip, patch.resolved, pin=self._pin, scratch=self._scratch
        )
        if series.conflicts:
            return series
        commits = tuple(one.commit for one in series.applied)
        return State(series.commit, Overlay(self._store, series.commit)), commits

    def _resolved(self, patch: Moving, start: State) -> Moved:
        done = self._apply(patch, start)
        if isinstance(done, Series):
            return Moved(
                patch.name, Fate.CONFLICT, start.tip,
                conflicts=done.conflicts, why=done.conflicts[0].headline,
            )  # fmt: skip
        _, commits = done
        why, before = "resolved by a person", len(patch.series.applied)
        if len(commits) != before:
            why += f" (commits: {before} before, {len(commits)} now)"
        return Moved(patch.name, Fate.MERGED, start.tip, commits, why=why)

    def _carry_all(self, patch: Moving, start: State) -> Moved:
        """Carry a patch's own commits."""
        if patch.resolved:
            return self._resolved(patch, start)
        if not patch.series.applied:
            return Moved(patch.name, Fate.CLEAN, start.tip, why="it has no commits yet")
        state = start
        merged = False
        notes: list[str] = []
        commits: list[str] = []
        adjustments: list[Adjustment] = []
        for one in patch.series.applied:
            carried = self._carrier.carry(self._steps[one.commit], state, one.file)
            if carried.conflicts:
                if not carried.elsewhere and self._taken_back(patch, start):
                    return self._upstream(patch, start)
                return Moved(
                    patch.name, Fate.CONFLICT, start.tip, tuple(commits),
                    conflicts=carried.conflicts, why=carried.conflicts[0].headline,
                )  # fmt: skip
            if carried.state.tip == state.tip:
                notes.append(f"the release has all of {one.file}")
            else:
                commits.append(carried.state.tip)
            merged = merged or carried.merged
            notes += carried.notes
            adjustments += [
                Adjustment(path, shift.line, shift.offset, 0) for path, shift in carried.shifts
            ]
            state = carried.state
        if state.tree.tree() == start.tree.tree() or (merged and self._taken_back(patch, start)):
            return self._upstream(patch, start)
        fate = Fate.MERGED if merged else Fate.CLEAN
        return Moved(
            patch.name, fate, start.tip, tuple(commits), (), tuple(adjustments), (),
            "; ".join(notes),
        )  # fmt: skip

    def _upstream(self, patch: Moving, start: State) -> Moved:
        return Moved(patch.name, Fate.UPSTREAM, start.tip, why=f"{self._pin} has all of it")

    def _taken_back(self, patch: Moving, start: State) -> bool:
        """Say whether a patch as a whole can be taken back from the new base."""
        self._carrier.write()
        diff = self._store.git(
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color",
            "--no-ext-diff", patch.series.base, patch.series.commit,
        ).stdout  # fmt: skip
        index = Indexed(self._store, start.tree.fork(), diff, self._scratch / "reverse-index")
        return bool(diff) and index.apply(diff, "--reverse").returncode == 0
