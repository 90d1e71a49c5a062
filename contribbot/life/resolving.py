"""Conflicts of a move that a person resolves, one patch after the other.

What is resolved already, and where the move shall go, is kept in the queue's local
folder until the move is done or given up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot import process
from contribbot.errors import UsageError
from contribbot.files import write_atomically
from contribbot.locks import lock
from contribbot.model.base import Model, Name, Tag
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.model.plan import Superseded
from contribbot.queue import replay
from contribbot.queue.load import Queue
from contribbot.queue.treemake import find_tree

#: In the folder of moves: no patch has such a name.
_STATE: Final = ".state.json"
#: Beside a patch's resolution: the digest of the patch that it is of.
_OF: Final = "of"


class Underway(Model):
    """A move that waits for a person.

    Attributes:
        upstream: The upstream.
        old: The tag of the pin that moves.
        new: Where to.
        open: The patch whose conflict is open in a work tree.
        run: Whether the checks are asked if patches are still needed.
        superseded: What is done with those that are not.
    """

    upstream: Name
    old: Tag
    new: Pin
    open: Name
    run: bool = True
    superseded: Superseded = "stop"


def _folder(queue: Queue) -> Path:
    return queue.local / "rebase"


@contextlib.contextmanager
def alone(queue: Queue) -> Iterator[None]:
    """Let nobody else move a pin of the queue, or resolve, or give a move up, meanwhile."""
    with lock(queue.local / "rebase.lock", "a move of a pin"):
        yield


def underway(queue: Queue) -> Underway | None:
    """Return the move that waits for a person, if any."""
    try:
        return Underway.model_validate_json((_folder(queue) / _STATE).read_bytes())
    except (OSError, ValidationError):
        return None


def required(queue: Queue) -> Underway:
    """Return the move that waits for a person."""
    found = underway(queue)
    if found is None:
        raise UsageError("no move is underway", hint="start one: contribbot rebase --to TAG")
    return found


def over(queue: Queue, state: Underway) -> bool:
    """Say whether a move is done: it was killed before it could forget what it waited for."""
    pins = [queue.pin(state.upstream, tag) for tag in (state.old, state.new.tag)]
    return pins[0] is None and pins[1] is not None


def resolved(queue: Queue) -> dict[str, tuple[PatchFile, ...]]:
    """Return the files of the patches that are resolved already."""
    if underway(queue) is None:
        return {}
    found = {}
    for name in queue.specs:
        folder = _folder(queue) / name
        if not folder.is_dir() or (folder / _OF).read_text() != queue.patch(name).digest:
            continue  # the patch was changed since: its conflict comes up again
        found[name] = tuple(
            PatchFile(path.name, path.read_bytes()) for path in sorted(folder.glob("*.patch"))
        )
    return found


def open_conflict(
    queue: Queue, state: Underway, *, base: str, commits: Sequence[str], at: Path | None
) -> replay.Replay:
    """Open a work tree with a patch's conflict in it."""
    # First who waits: killed before the tree is there, the move can still be ended.
    place, before = _folder(queue) / _STATE, underway(queue)
    write_atomically(place, state.model_dump_json(indent=2).encode())
    try:
        return replay.open_replay(queue, state.open, base=base, commits=commits, at=at)
    except UsageError:
        if before is None:
            place.unlink()
        else:
            write_atomically(place, before.model_dump_json(indent=2).encode())
        raise


def take_resolution(queue: Queue) -> str:
    """Take the commits of the open work tree over as a patch's resolution."""
    state = required(queue)
    folder = _folder(queue) / state.open
    tree = find_tree(queue, state.open)
    if tree is None and folder.is_dir():
        return state.open  # taken before; what came after it failed
    if tree is None or tree.state.kind != "replay":
        raise UsageError(
            f"the work tree with the conflict of {state.open} is gone",
            hint=f"open it again: contribbot rebase --to {state.new.tag} --upstream "
            f"{state.upstream} --from {state.old} --resolve; or end it with --abort",
        )
    files = replay.taken(queue, state.open)
    digest = queue.patch(state.open).digest
    if tree.state.opened != digest:
        raise UsageError(
            f"{state.open} was changed since its conflict was opened",
            hint="contribbot rebase --abort, and begin again; how it was resolved is remembered",
        )
    # In one step: half of a resolution must never be taken for a whole one.
    partial = folder.with_name(f".{state.open}.partial")
    process.remove_tree(partial)
    write_atomically(partial / _OF, digest.encode())
    for file in files:
        write_atomically(partial / file.name, file.content)
    process.remove_tree(folder)
    partial.rename(folder)
    replay.close_replay(queue, state.open)
    return state.open


def forget(queue: Queue) -> None:
    """Give a move up, or be done with it: its work tree and resolutions go."""
    state = underway(queue)
    if state is not None:
        replay.close_replay(queue, state.open)
    # In one step: no resolution outlives its move.
    gone = queue.local / "rebase.gone"
    process.remove_tree(gone)
    if _folder(queue).is_dir():
        _folder(queue).rename(gone)
        process.remove_tree(gone)
