"""Moving patches to another release: git merges each, and none stops another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from contribbot.git.apply import Adjustment, Conflict, Index, Series, apply_series
from contribbot.git.patch_format import (
    changes,
    format_chains,
    raw_changes,
    unquote,
)
from contribbot.git.repository import GONE, Store, content_of, read_commit, write_commits
from contribbot.model.patch import PatchFile

#: The modes of files that can be merged as text.
_TEXT: Final = frozenset({"100644", "100755"})
_ID: Final = 40
#: Long enough that no file has such lines by itself.
_MARKER: Final = 43
_CONFLICT: Final = re.compile(
    rb"^<{43}[^\n]*\n(?P<ours>.*?)^\|{43}[^\n]*\n(?P<base>.*?)"
    rb"^={43}\n(?P<theirs>.*?)^>{43}[^\n]*\n?",
    re.MULTILINE | re.DOTALL,
)
_HUNK: Final = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@.*$", re.MULTILINE)
#: What git calls a conflict that is not about a file's text, and what we call it.
_STRUCTURE: Final = {
    "CONFLICT (rename/rename)": "the release and the patch moved it to different places",
    "CONFLICT (rename/delete)": "the release moved it, and the patch deletes it",
    "CONFLICT (file/directory)": "where one has a file, the other has a folder",
    "CONFLICT (distinct modes)": "the two have different kinds of file",
}
_MOVED_AWAY: Final = "the patch moves it, and the release deleted it"
#: Whose the commits are that only show git what to merge.
_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "contribbot", "GIT_AUTHOR_EMAIL": "contribbot@localhost",
    "GIT_AUTHOR_DATE": "@0 +0000",
    "GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_COMMITTER_DATE": "@0 +0000",
}  # fmt: skip


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
    """A patch that is to be moved."""

    name: str
    #: All that it depends on, in the order in which that was applied below it.
    below: tuple[str, ...]
    #: The patch applied on the old pin, on top of those below.
    series: Series
    #: Its files for the new base, where a person has resolved its conflicts; then these are
    #: applied there, and nothing is merged.
    resolved: tuple[PatchFile, ...] = ()
    #: Whether it stays behind: its dependents go without it.
    gone: bool = False


@dataclass(frozen=True)
class Picked:
    """A patch file as a commit on the new base."""

    patch: str
    file: str
    commit: str


@dataclass(frozen=True)
class Moved:
    """A patch at the new release."""

    name: str
    fate: Fate
    #: The new base, with what it depends on.
    base: str
    #: Its commits on that base (of a conflict: those before it).
    commits: tuple[str, ...] = ()
    #: All commits from the release to its last: those of its dependencies, then its own.
    row: tuple[Picked, ...] = ()
    #: Its new patch files; none unless it is clean or merged.
    files: tuple[PatchFile, ...] = ()
    #: Hunks that went to other lines.
    adjustments: tuple[Adjustment, ...] = ()
    #: What both sides changed.
    conflicts: tuple[Conflict, ...] = ()
    #: One phrase for a person; may be empty.
    why: str = ""


@dataclass(eq=False)
class _Commit:
    """A commit on the way; it has no id until it is written."""

    tree: str
    parent: _Commit | None = None
    #: The commit that was merged, and whose it is.
    origin: str = ""
    patch: str = ""
    file: str = ""
    id: str = ""

    def row(self) -> tuple[Picked, ...]:
        """Return what was merged up to this commit."""
        if self.parent is None:
            return ()
        return (*self.parent.row(), Picked(self.patch, self.file, self.id))


@dataclass
class _Outcome:
    """A patch that was merged or not, before the commits are written."""

    fate: Fate
    base: _Commit
    #: Of each commit the patch file, and the new commit; None where nothing was left of it.
    picks: list[tuple[str, _Commit | None]] = field(default_factory=list)
    #: The commits of what a person has resolved.
    resolved: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    why: str = ""

    @property
    def commits(self) -> list[_Commit]:
        """The new commits."""
        return [commit for _, commit in self.picks if commit is not None]


def move(
    store: Store,
    patches: Sequence[Moving],
    *,
    old: str,
    new: str,
    pin: str,
    scratch: Path,
    files: bool = True,
) -> list[Moved]:
    """Move patches from one base to another, and write their new files unless told otherwise.

    Nothing outside the store is changed, and there only objects are added. Call
    it inside `store.exclusive()`.
    """
    moved = _Move(store, patches, old, new, pin=pin, scratch=scratch).run()
    kept = [result for result in moved if result.commits and result.fate not in _STUCK]
    chains = format_chains(store, [result.commits for result in kept]) if files else []
    written = dict(zip([result.name for result in kept], chains, strict=False))
    return [replace(result, files=written.get(result.name, ())) for result in moved]


class _Move:
    """One run of `move`."""

    def __init__(
        self,
        store: Store,
        patches: Sequence[Moving],
        old: str,
        new: str,
        *,
        pin: str,
        scratch: Path,
    ) -> None:
        self._store = store
        self._patches = {patch.name: patch for patch in patches}
        self._scratch = scratch
        self._pin = pin
        self._start = _Commit(store.tree_of(new), id=new)
        self._done: dict[str, _Outcome] = {}
        #: The commits between the old base and each patch.
        self._lower: dict[str, list[str]] = {}
        for patch in patches:
            self._lower[patch.name] = self._chain_below(patch, old)
        commits = [applied.commit for patch in patches for applied in patch.series.applied]
        commits += [commit for chain in self._lower.values() for commit in chain]
        #: What each commit changes: path and mode afterwards.
        self._touched: dict[str, dict[str, str]] = {}
        for commit, row, path in raw_changes(store, list(dict.fromkeys(commits))):
            self._touched.setdefault(commit, {})[path] = row.split(" ")[1]
        self._released = {change.path: change.mode for change in changes(store, old, new)}
        self._merger = _Merger(store, pin, scratch, self._touched)
        self._held = self._find_held()

    def run(self) -> list[Moved]:
        """Move all, each after what it depends on."""
        waiting = list(self._patches)
        while waiting:
            ready = [n for n in waiting if all(b in self._done for b in self._patches[n].below)]
            if not ready:
                raise ValueError(f"these depend on what is not moved: {', '.join(waiting)}")
            for name in ready:
                self._done[name] = self._outcome(self._patches[name])
            waiting = [name for name in waiting if name not in self._done]
        self._merger.write()
        picks = [commit for done in self._done.values() for commit in done.commits]
        ids = [commit.id for commit in picks]
        diffs = _read_diffs(self._store, [*(commit.origin for commit in picks), *ids])
        return [self._moved(name, self._done[name], diffs) for name in self._patches]

    def _moved(self, name: str, done: _Outcome, diffs: Mapping[str, _Diff]) -> Moved:
        """Say what became of a patch: whether each commit is the same text as before."""
        fate, notes = done.fate, [done.why] if done.why else []
        if fate in _STUCK or not done.picks:
            ids = done.resolved or tuple(commit.id for commit in done.commits)
            return Moved(name, fate, done.base.id, ids, conflicts=done.conflicts, why=done.why)
        adjustments: list[Adjustment] = []
        for file, commit in done.picks:
            if commit is None:
                notes.append(f"{self._pin} has all of {name}/{file} already")
                continue
            old, new = diffs.get(commit.origin, {}), diffs.get(commit.id, {})
            adjustments += _shifts(old, new)
            if {path: text for path, (text, _) in old.items()} != {
                path: text for path, (text, _) in new.items()
            }:
                fate = Fate.MERGED
            if followed := sorted(new.keys() - old.keys()):
                notes.append(f"renames followed: {', '.join(followed)}")
            gone = sorted(old.keys() - new.keys())
            if left := [path for path in gone if self._released.get(path) != GONE]:
                notes.append(f"{self._pin} has what {name}/{file} does to {', '.join(left)}")
        return Moved(
            name, fate, done.base.id, tuple(commit.id for commit in done.commits),
            done.commits[-1].row(),
            adjustments=tuple(adjustments) if fate is Fate.CLEAN else (), why="; ".join(notes),
        )  # fmt: skip

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
                return [*known, *(applied.commit for applied in last.series.applied)]
        listed = self._store.git("rev-list", "--reverse", f"{old}..{patch.series.base}", "--")
        chain = listed.stdout.decode().split()
        if len(chain) != sum(len(lower.series.applied) for lower in lowers):
            raise ValueError(f"{patch.name}: below it are not the commits of {patch.below}")
        return chain

    def _find_held(self) -> set[str]:
        """Return the patches that the release holds: their text can be taken back from it.

        A merge does not tell it where the release went on beside that text. What deletes a file
        is left to the merge: a file that was moved is gone as well.
        """
        asked: list[Moving] = []
        for patch in self._patches.values():
            touched = [self._touched.get(applied.commit, {}) for applied in patch.series.applied]
            paths = {path for modes in touched for path in modes}
            deletes = any(GONE in modes.values() for modes in touched)
            if not (patch.resolved or patch.gone or deletes) and paths & self._released.keys():
                asked.append(patch)
        if not asked:
            return set()
        # A commit followed by its parents: what it changes from that one.
        rows = "".join(f"{patch.series.commit} {patch.series.base}\n" for patch in asked)
        diffs = self._store.git(*_DIFFS, stdin=rows.encode()).stdout
        texts = _by_commit(diffs, {patch.series.commit for patch in asked})
        index = Index(self._store, self._start.id, self._scratch / "release-index")

        def held(patch: Moving) -> bool:
            diff = texts.get(patch.series.commit, b"")
            if not diff or index.apply(diff, "--reverse", "--check").returncode:
                return False
            # The same text in another place says nothing, if it was there before.
            file = self._scratch / f"{patch.name}-index"
            before = Index(self._store, patch.series.base, file)
            return before.apply(diff, "--reverse", "--check").returncode != 0

        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(held, asked))
        return {patch.name for patch, answer in zip(asked, answers, strict=True) if answer}

    def _outcome(self, patch: Moving) -> _Outcome:
        """Move one patch."""
        if patch.gone:
            return _Outcome(Fate.UPSTREAM, self._start, why="it is left out")
        stuck = [name for name in patch.below if self._done[name].fate in _STUCK]
        if stuck:
            why = f"{stuck[0]}, on which it depends, does not move"
            return _Outcome(Fate.BLOCKED, self._start, why=why)
        start, why = self._stack(patch)
        if why:
            return _Outcome(Fate.BLOCKED, self._start, why=why)
        return self._resolved(patch, start) if patch.resolved else self._merged(patch, start)

    def _merged(self, patch: Moving, start: _Commit) -> _Outcome:
        """Merge a patch's own commits."""
        done, tip = _Outcome(Fate.CLEAN, start), start
        if not patch.series.applied:
            done.why = "it has no commits yet"
            return done
        if patch.name not in self._held:
            for applied in patch.series.applied:
                merged = self._merger.merge(applied.commit, tip, patch.name, applied.file)
                if not isinstance(merged, _Commit):
                    done.fate, done.conflicts, done.why = Fate.CONFLICT, merged, merged[0].headline
                    return done
                done.picks.append((applied.file, None if merged is tip else merged))
                tip = merged
        if tip.tree == start.tree:
            return _Outcome(Fate.UPSTREAM, start, why=f"{self._pin} has all of it")
        return done

    def _stack(self, patch: Moving) -> tuple[_Commit, str]:
        """Put what a patch depends on on the new base; say why when that fails."""
        tip = self._start
        chain = iter(self._lower[patch.name])
        for name in patch.below:
            lower = self._patches[name]
            commits = list(itertools.islice(chain, len(lower.series.applied)))
            if lower.resolved and not lower.gone:
                series = self._apply(lower, tip)
                if series.conflicts:
                    return tip, f"{name}, on which it depends, {series.conflicts[0].why}"
                tip = _Commit(self._store.tree_of(series.commit), id=series.commit)
                continue
            if self._done[name].fate is Fate.UPSTREAM:
                continue
            for applied, commit in zip(lower.series.applied, commits, strict=True):
                merged = self._merger.merge(commit, tip, name, applied.file)
                if not isinstance(merged, _Commit):
                    return tip, f"{name}, on which it depends, {merged[0].why}"
                tip = merged
        return tip, ""

    def _apply(self, patch: Moving, tip: _Commit) -> Series:
        """Apply what a person has resolved."""
        self._merger.write()
        return apply_series(
            self._store, tip.id, patch.resolved, pin=self._pin, scratch=self._scratch
        )

    def _resolved(self, patch: Moving, start: _Commit) -> _Outcome:
        series = self._apply(patch, start)
        if series.conflicts:
            why = series.conflicts[0].headline
            return _Outcome(Fate.CONFLICT, start, conflicts=series.conflicts, why=why)
        commits = tuple(applied.commit for applied in series.applied)
        why, before = "resolved by a person", len(patch.series.applied)
        if len(commits) != before:
            why += f" (commits: {before} before, {len(commits)} now)"
        return _Outcome(Fate.MERGED, start, resolved=commits, why=why)


class _Merger:
    """Merges commits, each onto another parent, and keeps them until they are written."""

    def __init__(
        self, store: Store, pin: str, scratch: Path, touched: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._store = store
        self._pin = pin
        self._touched = touched
        with store.open() as repo:
            self._origins = {commit: read_commit(content_of(repo, commit)) for commit in touched}
        self._known: dict[tuple[str, _Commit], _Commit | tuple[Conflict, ...]] = {}
        self._ours: dict[tuple[str, str], str] = {}
        self._unwritten: list[_Commit] = []
        self._attributes = scratch / "merge-attributes"
        self._attributes.write_text(f"* conflict-marker-size={_MARKER}\n", encoding="utf-8")

    def merge(
        self, commit: str, parent: _Commit, patch: str, file: str
    ) -> _Commit | tuple[Conflict, ...]:
        """Merge a commit; return the parent where nothing is left of it."""
        key = (commit, parent)
        if key not in self._known:
            tree = self._tree(commit, parent.tree, file)
            if not isinstance(tree, str):
                self._known[key] = tree
            elif tree == parent.tree:
                self._known[key] = parent
            else:
                self._known[key] = merged = _Commit(tree, parent, commit, patch, file)
                self._unwritten.append(merged)
        return self._known[key]

    def write(self) -> None:
        """Write the commits."""
        numbers = {commit: number for number, commit in enumerate(self._unwritten)}
        commits = [
            replace(
                self._origins[commit.origin],
                parent=commit.parent.id if commit.parent else "",
                after=numbers.get(commit.parent, 0) if commit.parent else 0,
                tree=commit.tree,
            )
            for commit in self._unwritten
        ]
        written = write_commits(self._store, commits, dates="raw-permissive")
        for commit, (object_id, _) in zip(self._unwritten, written, strict=True):
            commit.id = object_id
        self._unwritten.clear()

    def _tree(self, commit: str, onto: str, file: str) -> str | tuple[Conflict, ...]:
        """Let git merge a commit with a tree, which follows renames; return the tree."""
        below = self._origins[commit].parent
        if (below, onto) not in self._ours:
            # A commit whose only common ancestor with the other is what that one changes.
            ours = self._store.git("commit-tree", onto, "-p", below, stdin=b"ours\n", env=_IDENTITY)
            self._ours[below, onto] = ours.stdout.decode().strip()
        done = self._store.git(
            "-c", "merge.renameLimit=7000", "-c", "merge.conflictStyle=zdiff3",
            "-c", f"core.attributesFile={self._attributes}",
            "merge-tree", "--write-tree", "-z", "--messages", self._ours[below, onto], commit,
            accept=(0, 1),
        )  # fmt: skip
        tree, _, rest = done.stdout.decode("utf-8", "surrogateescape").partition("\0")
        return tuple(self._conflicts(commit, tree, file, rest)) if done.returncode else tree

    def _conflicts(self, commit: str, tree: str, file: str, report: str) -> list[Conflict]:
        """Read what `git merge-tree` could not merge."""
        listed, _, rest = f"\0{report}".partition("\0\0")
        messages = list(_messages(rest))
        conflicts: dict[str, Conflict] = {}
        named: set[str] = set()
        touched = self._touched.get(commit, {})
        for kind, paths in messages:
            if kind not in _STRUCTURE:
                continue
            path = next((path for path in paths if path in touched), paths[0])
            why = _STRUCTURE[kind]
            if kind == "CONFLICT (rename/delete)":
                # Of the two paths, the old one is deleted by the patch in either case.
                path = next((path for path in paths if touched.get(path) == GONE), path)
                if any(touched.get(path, GONE) != GONE for path in paths):
                    why = _MOVED_AWAY
            conflicts.setdefault(path, Conflict(file, path, self._pin, 0, why))
            named.update(paths)
        stages: dict[str, dict[str, str]] = {}
        for row in filter(None, listed.split("\0")):
            head, _, path = row.partition("\t")
            mode, _, stage = head.split(" ")
            stages.setdefault(path, {})[stage] = mode
        by_text = [
            conflict
            for path, modes in stages.items()
            if path not in named
            for conflict in self._in_file(tree, file, path, modes)
        ]
        if not conflicts and not by_text:
            kind, paths = next(iter(messages), ("git could not merge it", ["the tree"]))
            return [Conflict(file, paths[0], self._pin, 0, kind)]
        return [*conflicts.values(), *by_text]

    def _in_file(
        self, tree: str, file: str, path: str, modes: Mapping[str, str]
    ) -> Iterator[Conflict]:
        """Yield what could not be merged of a file whose sides differ."""
        if modes.keys() >= set("123") and set(modes.values()) <= _TEXT:
            content = self._store.file(f"{tree}:{path}") or b""
            line, at, number = 1, 0, 0
            for number, spot in enumerate(_CONFLICT.finditer(content), start=1):
                line += content.count(b"\n", at, spot.start())
                base, ours, theirs = (_readable(spot[side]) for side in ("base", "ours", "theirs"))
                why = "the release changed the same lines"
                yield Conflict(file, path, self._pin, number, why, line, base, ours, theirs)
                line, at = line + len(ours), spot.end()
            if number:
                return
            why = "both changed it, and it is no text"
        elif "2" not in modes:
            why = "the release has no such file any more"
        elif "3" not in modes:
            why = "the release changed the file that the patch deletes"
        elif "1" in modes:
            why = "both changed it, and it is no text"
        else:
            why = "the release has another such file"
        yield Conflict(file, path, self._pin, 0, why)


def _messages(report: str) -> Iterator[tuple[str, list[str]]]:
    """Read the messages of `git merge-tree -z`: what kind each conflict is of, and its paths."""
    fields = iter(report.split("\0"))
    for count in fields:
        if not count.strip():
            return
        paths = [next(fields) for _ in range(int(count))]
        kind = next(fields)
        next(fields)  # the same in a sentence
        if kind.startswith("CONFLICT"):
            yield kind, paths


def _readable(content: bytes) -> tuple[str, ...]:
    return tuple(row.decode("utf-8", "replace") for row in content.split(b"\n")[:-1])


#: Of each path a diff without line numbers, and the line that each hunk goes to.
_Diff = dict[str, tuple[bytes, list[int]]]
_DIFFS: Final = (
    "diff-tree", "--stdin", "-r", "-p", "-U3", "--binary", "--full-index", "--no-renames",
    "--no-color", "--no-ext-diff",
)  # fmt: skip


def _read_diffs(store: Store, commits: Sequence[str]) -> dict[str, _Diff]:
    """Read what commits change, with one process."""
    if not commits:
        return {}
    rows = "".join(f"{commit}\n" for commit in commits)
    texts = _by_commit(store.git(*_DIFFS, stdin=rows.encode()).stdout, set(commits))
    diffs: dict[str, _Diff] = {commit: {} for commit in texts}
    for commit, text in texts.items():
        for part in re.split(rb"^diff --git ", text, flags=re.MULTILINE)[1:]:
            names, _, rest = part.partition(b"\n")
            # The same name twice, with a prefix of two characters each.
            path = unquote(names[len(names) // 2 + 1 :])[2:].decode("utf-8", "surrogateescape")
            if b"\nGIT binary patch\n" not in part:
                rest = re.sub(rb"^index .*\n", b"", rest, count=1, flags=re.MULTILINE)
            goes = [int(hunk[1]) for hunk in _HUNK.finditer(rest)]
            diffs[commit][path] = (_HUNK.sub(b"@@", rest), goes)
    return diffs


def _by_commit(diffs: bytes, commits: set[str]) -> dict[str, bytes]:
    """Cut the output of `git diff-tree --stdin` into what belongs to each commit."""
    texts: dict[str, list[bytes]] = {}
    rows: list[bytes] = []
    for row in diffs.removesuffix(b"\n").split(b"\n"):
        # No line of a diff is a bare id: each starts with its sign, or with a word.
        if len(row) == _ID and row.decode("latin-1") in commits:
            rows = texts.setdefault(row.decode(), [])
        else:
            rows.append(row)
    return {commit: b"\n".join([*rows, b""]) for commit, rows in texts.items()}


def _shifts(old: _Diff, new: _Diff) -> Iterator[Adjustment]:
    """Yield the hunks that go to other lines."""
    for path in sorted(old.keys() & new.keys()):
        for before, after in zip(old[path][1], new[path][1], strict=False):
            if before != after:
                yield Adjustment(path, after, after - before, 0)
