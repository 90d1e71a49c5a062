"""Move patches onto another base: git merges each commit; a conflict stops only dependents."""

from __future__ import annotations

import io
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.git.apply import Index, PatchPath, Series, apply_series
from contribbot.git.patch_format import Change, changes, commit_changes, format_chains
from contribbot.git.repository import GONE, IDENTITY, NewCommit, Store, read_commit
from contribbot.model.lifecycle import ConflictSide, Text
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from git import Repo

#: Length of git's conflict marks: so long that no file has such lines by itself.
_MARKER: Final = 43
_CONFLICT: Final = re.compile(
    rb"^<{43}[^\n]*\n(?P<ours>.*?)^\|{43}[^\n]*\n(?P<base>.*?)"
    rb"^={43}\n(?P<theirs>.*?)^>{43}[^\n]*\n?",
    re.MULTILINE | re.DOTALL,
)
_KIND: Final = re.compile(r"^(?:CONFLICT \([^)]*\)|warning): ")
_SAME_LINES: Final = "the release changed the same lines"
_MERGE_TREE: Final = (
    "-c merge.renameLimit=7000 -c merge.conflictStyle=zdiff3 merge-tree --write-tree -z --messages"
)
_DIFF_TREE: Final = "diff-tree --stdin -r -p -U3 --binary --full-index --no-renames"


STUCK: Final = frozenset({Text.CONFLICT, Text.BLOCKED})


@dataclass(frozen=True)
class Moving:
    """A patch to move to another base, with its commits on the old base."""

    name: str
    #: The names of all dependencies of the patch, in the order in which git applied them.
    below: tuple[str, ...]
    #: The patch's commits on the old pin, on top of its dependencies' commits.
    series: Series
    #: The patch's files for the new base, if a person has resolved its conflicts: these files
    #: are applied to the new base, and nothing is merged.
    resolved: tuple[PatchFile, ...] = ()
    #: Whether the patch is left out; patches that depend on it are moved without it.
    gone: bool = False


@dataclass(frozen=True)
class Picked:
    """A commit on the new base, with the names of the patch and of the patch file."""

    patch: str
    file: str
    commit: str


@dataclass(frozen=True)
class RebaseResult:
    """The outcome of moving a patch to a new release."""

    name: str
    status: Text
    #: The commit below the patch: the new release with the patch's dependencies.
    base: str
    #: All commits after the release, up to the patch's last commit (on a conflict: up to the last
    #: merged commit): first the dependencies' commits, then the patch's commits.
    row: tuple[Picked, ...] = ()
    #: The new patch files; none unless the patch is clean or merged.
    files: tuple[PatchFile, ...] = ()
    conflicts: tuple[ConflictSide, ...] = ()
    why: str = ""

    @property
    def commits(self) -> tuple[str, ...]:
        """The patch's own commits on the new base, without the commits of dependencies."""
        return tuple(picked.commit for picked in self.row if picked.patch == self.name)


def move(
    store: Store,
    patches: Sequence[Moving],
    *,
    old: str,
    new: str,
    pin: str,
    files: bool = True,
) -> list[RebaseResult]:
    """Move patches onto `new`, in `store.exclusive()`; return the results, with patch `files`."""
    known = {patch.name for patch in patches}
    if lacking := [patch.name for patch in patches if not known.issuperset(patch.below)]:
        raise ValueError(f"these depend on what is not moved: {', '.join(lacking)}")
    folder = tempfile.TemporaryDirectory(prefix="contribbot-")
    with store.open() as repo, folder as name:
        moved = _Move(store, repo, patches, old, new, pin=pin, scratch=Path(name)).run()
    complete = [result for result in moved if result.commits and result.status not in STUCK]
    chains = format_chains(store, [result.commits for result in complete]) if files else []
    written = dict(zip([result.name for result in complete], chains, strict=False))
    return [replace(result, files=written.get(result.name, ())) for result in moved]


class _Move:
    def __init__(
        self,
        store: Store,
        repo: Repo,
        patches: Sequence[Moving],
        old: str,
        new: str,
        *,
        pin: str,
        scratch: Path,
    ) -> None:
        self._store, self._repo = store, repo
        self._patches = {patch.name: patch for patch in patches}
        self._old, self._new = old, new
        self._pin, self._scratch = pin, scratch
        own = [applied.commit for patch in patches for applied in patch.series.applied]
        lower = [commit for patch in patches for commit in self._chain(patch)]
        #: The changes of each commit, by path.
        self._touched: dict[str, dict[str, Change]] = {}
        for change in commit_changes(store, list(dict.fromkeys([*own, *lower]))):
            self._touched.setdefault(change.commit, {})[change.path] = change
        self._released = {change.path: change.mode for change in changes(store, old, new)}
        self._in_release = self._find_in_release()
        self._trees = {new: store.tree_of(new)}
        self._merged: dict[tuple[str, str], str | tuple[ConflictSide, ...]] = {}
        self._ours: dict[tuple[str, str], str] = {}
        self._done: dict[str, RebaseResult] = {}
        self._attributes = scratch / "merge-attributes"
        self._attributes.write_text(f"* conflict-marker-size={_MARKER}\n", encoding="utf-8")

    def run(self) -> list[RebaseResult]:
        """Move all patches; the status is MERGED if a new commit's diff differs from the old."""
        moved = [self._moved(name) for name in self._patches]
        clean = [result for result in moved if result.status is Text.CLEAN and result.commits]
        news = [commit for result in clean for commit in result.commits]
        origins = [
            applied.commit
            for result in clean
            for applied in self._patches[result.name].series.applied
        ]
        diffs = self._store.git(
            *_DIFF_TREE.split(),
            stdin="".join(f"{commit}\n" for commit in (*origins, *news)).encode(),
        )
        # A patch-id leaves out the places of hunks.
        ids = self._store.git("patch-id", "--verbatim", stdin=diffs.stdout).stdout.decode().split()
        texts = dict(zip(ids[1::2], ids[::2], strict=True))
        paths: dict[str, set[str]] = {}
        for change in commit_changes(self._store, news):
            paths.setdefault(change.commit, set()).add(change.path)
        return [
            self._compared(result, texts, paths) if result in clean else result for result in moved
        ]

    def _compared(
        self, moved: RebaseResult, texts: Mapping[str, str], paths: Mapping[str, set[str]]
    ) -> RebaseResult:
        """Return a moved patch with status and reasons, by comparing its new and old diffs."""
        status, notes = Text.CLEAN, []
        new = {picked.file: picked.commit for picked in moved.row if picked.patch == moved.name}
        for applied in self._patches[moved.name].series.applied:
            what = f"{moved.name}/{applied.file}"
            if applied.file not in new:
                notes.append(f"{self._pin} has all of {what} already")
                continue
            commit = new[applied.file]
            old_paths, new_paths = self._touched[applied.commit].keys(), paths[commit]
            if texts.get(applied.commit) != texts.get(commit):
                status = Text.MERGED
            if followed := sorted(new_paths - old_paths):
                notes.append(f"renames followed: {', '.join(followed)}")
            gone = sorted(old_paths - new_paths)
            if left := [path for path in gone if self._released.get(path) != GONE]:
                notes.append(f"{self._pin} has what {what} does to {', '.join(left)}")
        return replace(moved, status=status, why="; ".join(notes))

    def _chain(self, patch: Moving) -> list[str]:
        """Return the commits of a patch's dependencies on the old base, the lowest first."""
        below = ("rev-list", "--reverse", f"{self._old}..{patch.series.base}")
        return self._store.git(*below).stdout.decode().split() if patch.below else []

    def _find_in_release(self) -> set[str]:
        """Return the names of patches whose diff reverts on the release, not on the old base."""
        asked: list[Moving] = []
        for patch in self._patches.values():
            touched = [
                change
                for applied in patch.series.applied
                for change in self._touched.get(applied.commit, {}).values()
            ]
            deletes = any(change.mode == GONE for change in touched)
            met = any(change.path in self._released for change in touched)
            if met and not (patch.resolved or patch.gone or deletes):
                asked.append(patch)
        release = Index(self._store, self._new, self._scratch / "release-index") if asked else None

        def in_release(patch: Moving) -> bool:
            ends = (patch.series.base, patch.series.commit)
            diff = self._store.git("diff-tree", *_DIFF_TREE.split()[2:], *ends).stdout
            if not diff or release is None or not _reverts(release, diff):
                return False
            # If the old base had the same text already, the release need not have the patch.
            return not _reverts(
                Index(self._store, patch.series.base, self._scratch / f"{patch.name}-index"), diff
            )

        return {patch.name for patch in asked if in_release(patch)}

    def _moved(self, name: str) -> RebaseResult:
        if name not in self._done:
            self._done[name] = self._move(self._patches[name])
        return self._done[name]

    def _move(self, patch: Moving) -> RebaseResult:
        if patch.gone:
            return RebaseResult(patch.name, Text.UPSTREAM, self._new, why="it is left out")
        row: list[Picked] = []
        if why := self._put_below(patch, row):
            return RebaseResult(patch.name, Text.BLOCKED, self._new, why=why)
        base = row[-1].commit if row else self._new
        own = [applied.commit for applied in patch.series.applied]
        in_release = patch.name in self._in_release
        conflicts = () if in_release else self._put(patch, own, row)
        moved = RebaseResult(patch.name, Text.CLEAN, base, tuple(row), conflicts=conflicts)
        if not own:
            return replace(moved, why="it has no commits yet")
        if conflicts:
            return replace(moved, status=Text.CONFLICT, why=conflicts[0].headline)
        if not patch.resolved:
            tip = row[-1].commit if row else base
            upstream = self._trees[tip] == self._trees[base]
            why = f"{self._pin} has all of it"
            return replace(moved, status=Text.UPSTREAM, row=(), why=why) if upstream else moved
        return replace(moved, status=Text.MERGED, why="resolved by a person")

    def _put_below(self, patch: Moving, row: list[Picked]) -> str:
        """Put a patch's dependencies onto the release; return why that failed, or empty."""
        for name in patch.below:
            if self._moved(name).status in STUCK:
                return f"{name}, on which it depends, does not move"
        commits = iter(self._chain(patch))
        for name in patch.below:
            lower = self._patches[name]
            own = list(itertools.islice(commits, len(lower.series.applied)))
            if self._moved(name).status is Text.UPSTREAM:
                continue
            if conflicts := self._put(lower, own, row):
                return f"{name}, on which it depends, {conflicts[0].why}"
        return ""

    def _put(
        self, patch: Moving, commits: Sequence[str], row: list[Picked]
    ) -> tuple[ConflictSide, ...]:
        """Merge a patch's commits, append the new commits to `row`, and return the conflicts."""
        tip = row[-1].commit if row else self._new
        if patch.resolved:
            series = apply_series(self._store, tip, patch.resolved, pin=self._pin)
            self._trees |= {applied.commit: applied.tree for applied in series.applied}
            row += [Picked(patch.name, done.file, done.commit) for done in series.applied]
            return series.conflicts
        for applied, commit in zip(patch.series.applied, commits, strict=True):
            merged = self._merge(commit, tip, applied.file)
            if not isinstance(merged, str):
                return merged
            # If `merged` is `tip`, the release has the whole commit already.
            if merged != tip:
                row.append(Picked(patch.name, applied.file, merged))
                tip = merged
        return ()

    def _merge(self, commit: str, tip: str, file: str) -> str | tuple[ConflictSide, ...]:
        """Let git merge a commit onto `tip`; return the new commit's id, or the conflicts."""
        if (commit, tip) in self._merged:
            return self._merged[commit, tip]
        origin = read_commit(self._repo, commit)
        if (origin.parent, tip) not in self._ours:
            # The tip's tree as a child of the commit's parent, so that git merges from the parent.
            ours = NewCommit(origin.parent, IDENTITY, IDENTITY, b"ours\n", self._trees[tip])
            self._ours[origin.parent, tip] = self._write(ours)
        attributes = f"core.attributesFile={self._attributes}"
        sides = (self._ours[origin.parent, tip], commit)
        done = self._store.git("-c", attributes, *_MERGE_TREE.split(), *sides, accept=(0, 1))
        tree, _, report = done.stdout.decode("utf-8", "surrogateescape").partition("\0")
        merged: str | tuple[ConflictSide, ...] = tip
        if done.returncode:
            report = report.rpartition("\0\0")[2].replace(sides[0], "the release")
            report = report.replace(commit, "the patch")
            merged = tuple(self._conflicts(commit, tree, file, report))
        elif tree != self._trees[tip]:
            merged = self._write(replace(origin, parent=tip, tree=tree))
        self._merged[commit, tip] = merged
        return merged

    def _write(self, commit: NewCommit) -> str:
        # Imported late, as it is slow; GitPython's own `store` starts git for each object.
        import gitdb.db  # type: ignore[import-untyped]  # noqa: PLC0415

        head = f"tree {commit.tree}\nparent {commit.parent}\n".encode()
        people = b"author %s\ncommitter %s\n\n" % (commit.author, commit.committer)
        content = head + people + commit.message
        stream = gitdb.IStream(b"commit", len(content), io.BytesIO(content))
        stream = gitdb.db.LooseObjectDB.store(self._repo.odb, stream)
        written: str = stream.binsha.hex()
        self._trees[written] = commit.tree
        return written

    def _conflicts(self, commit: str, tree: str, file: str, report: str) -> list[ConflictSide]:
        """Return the conflicts that a report of `git merge-tree` names."""
        touched = self._touched.get(commit, {})
        conflicts: list[ConflictSide] = []
        named: set[str] = set()
        for paths, sentence in _messages(report):
            if named.isdisjoint(paths):
                path = next((path for path in paths if path in touched), paths[0])
                place = PatchPath(file, path, self._pin)
                sides = list(_sides(self._store.file(f"{tree}:{path}") or b"", place))
                conflicts += sides or [place.conflict(sentence)]
                named.update(paths)
        return conflicts or [PatchPath(file, "the tree", self._pin).conflict("git cannot merge it")]


def _reverts(index: Index, diff: bytes) -> bool:
    """Return whether the reverse of a diff applies to an index."""
    return index.apply(diff, "--reverse", "--check").returncode == 0


def _sides(content: bytes, place: PatchPath) -> Iterator[ConflictSide]:
    """Yield a conflict for each place that git could not merge: base, ours and theirs."""
    line, at = 1, 0
    for spot in _CONFLICT.finditer(content):
        line += content.count(b"\n", at, spot.start())
        base, ours, theirs = (
            tuple(row.decode("utf-8", "replace") for row in spot[side].split(b"\n")[:-1])
            for side in ("base", "ours", "theirs")
        )
        yield place.conflict(_SAME_LINES, line=line, sides=(base, ours, theirs))
        line, at = line + len(ours), spot.end()


def _messages(report: str) -> Iterator[tuple[list[str], str]]:
    """Yield the paths of each conflict, and git's sentence, in a report of `merge-tree -z`."""
    fields = iter(report.split("\0"))
    for count in fields:
        if not count.strip():
            return
        paths = [next(fields) for _ in range(int(count))]
        kind, sentence = next(fields), next(fields)
        if kind.startswith("CONFLICT"):
            # git names the kind before each sentence, and adds another sentence for its user.
            first = _KIND.sub("", sentence.strip()).partition(".  ")[0]
            yield paths, first.rstrip(".").partition("; ")[0]
