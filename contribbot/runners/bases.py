"""What a patch stands on, and what it makes of it: what a record says is made again, if it can be.

A pin has one commit for each kind of source; a record names the one that its runner had.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from contribbot.errors import ContribbotError
from contribbot.files import run_folder, stores_folder
from contribbot.git.apply import apply_series
from contribbot.git.repository import Store
from contribbot.git.source import ref_for
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Known:
    """What is known of a patch without its record.

    Attributes:
        made: The patched tree by base commit; None where it could not be made here.
        all_known: Whether there can be no other base.
    """

    made: dict[str, str | None]
    all_known: bool


@dataclass
class Bases:
    """What is known of the patches of a queue, found out once each.

    Attributes:
        queue: The queue.
    """

    queue: Queue
    _known: dict[str, Known] = field(default_factory=dict)

    def problem(self, name: str, base: str, tree: str) -> str:
        """Say what a record has wrong; or nothing."""
        known = self.known(name)
        if base not in known.made:
            return f"base commit {base[:12]} is none of its pin's" if known.all_known else ""
        wanted = known.made[base]
        if wanted not in {None, tree}:
            return f"patched tree {tree[:12]} is not what the patch makes of its base"
        return ""

    def compared(self, name: str, base: str) -> bool:
        """Say whether the patched tree could be made here to compare it."""
        return self.known(name).made.get(base) is not None

    def known(self, name: str) -> Known:
        """Return what is known of a patch."""
        if name not in self._known:
            self._known[name] = self._find_out(name)
        return self._known[name]

    def _find_out(self, name: str) -> Known:
        patch = self.queue.patch(name)
        below = [self.queue.patch(low) for low in self.queue.below(name)]
        path = stores_folder() / f"{patch.upstream.name}.git"
        store = Store(path) if (path / "HEAD").is_file() else None
        commits: list[str | None] = []
        for spec in patch.pin.sources:
            there = store.resolve(ref_for(patch.pin, spec, patch.upstream)) if store else None
            if there is None and spec.kind == "git":
                there = patch.pin.commit
            commits.append(there)
            if spec.kind == "installed":
                commits.append(None)  # another machine may have another build of it
        made: dict[str, str | None] = {}
        for commit in commits:
            if commit is None:
                continue
            done = _make(store, commit, [*below, patch]) if store else None
            if done is not None:
                made[done[0]] = done[1]
            elif not below:
                made[commit] = None
        # What stands on others has a base that only the store can make.
        complete = None not in commits and (not below or len(made) == len(set(commits)))
        return Known(made, complete)


def _make(store: Store, commit: str, stack: list[Patch]) -> tuple[str, str] | None:
    """Return the base commit and the patched tree of the last of a stack; None: cannot tell."""
    base = commit
    try:
        if not store.has(commit):
            return None
        with run_folder() as scratch, store.exclusive():
            for number, patch in enumerate(stack):
                place = scratch / str(number)
                place.mkdir()
                series = apply_series(store, base, patch.files, pin=patch.pin.title, scratch=place)
                if series.conflicts or not series.applied:
                    return None
                if patch is stack[-1]:
                    return base, series.applied[-1].tree
                base = series.commit
    except ContribbotError:
        return None
    return None
