"""Moving patches to another release: each carried over in memory, none stopped by another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from contribbot.model.patch import PatchFile
from contribbot.store.carry import Carrier, State
from contribbot.store.conflict import Conflict
from contribbot.store.formatpatch import format_chains
from contribbot.store.indexed import Indexed
from contribbot.store.overlay import Overlay
from contribbot.store.repository import Store
from contribbot.store.series import Adjustment, Series, apply_series
from contribbot.store.steps import read_steps


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
