"""Making the changes of a transaction: staging them, and the one step that makes them real."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from contribbot.queue.exchange import (
    CannotExchangeError,
    Inventory,
    copy_folder,
    discard,
    exchange,
    mark,
    sync,
    sync_folders,
    write_file,
)
from contribbot.queue.torn import rename_twice


@dataclass(frozen=True)
class Wanted:
    """What becomes of a file.

    Attributes:
        content: What it holds; None where it goes.
        executable: Whether it may be run by whoever may read it.
    """

    content: bytes | None
    executable: bool

    def is_there(self, place: Path) -> bool:
        """Say whether a place is so already."""
        if self.content is None:
            return not os.path.lexists(place)
        return (
            place.is_file()
            and not place.is_symlink()
            and (not self.executable or os.access(place, os.X_OK))
            and place.read_bytes() == self.content
        )


Changes = Mapping[Path, Wanted]


def make(queue: Path, root: Path, changes: Changes) -> None:
    """Make changes, all in one step."""
    target = Path(os.path.commonpath([place.parent for place in changes]))
    for place in changes:
        _check_writable(place.parent)
    gone = _emptied(root, changes)
    # Beside the folder only where it must be: whoever lists patches/ shall not see it.
    for number, places in enumerate((queue / ".contribbot" / "stage", _beside(queue, target))):
        try:
            with _stage(places) as stage:
                _make_in(stage, queue, target, gone, changes)
        except OSError as error:
            if error.errno != errno.EXDEV or number:
                raise
        else:
            return


def _make_in(stage: Path, queue: Path, target: Path, gone: Path | None, changes: Changes) -> None:
    """Choose the way that needs no more than one step."""
    new = stage / "new"
    if gone is not None:
        gone.rename(new)
        sync(gone.parent)
        return
    if not target.is_dir():
        while not target.parent.is_dir():
            target = target.parent
        new.mkdir()
        _write_into(new, target, changes)
        sync_folders(new)
        new.rename(target)
        sync(target.parent)
        return
    if len(changes) > 1:
        _exchange_folder(new, queue, target, changes)
        return
    (place, wanted), *_ = changes.items()
    if wanted.content is None:
        place.unlink()
    else:
        write_file(new, wanted.content, before=place, executable=wanted.executable)
        new.rename(place)
    sync(place.parent)


def _exchange_folder(new: Path, queue: Path, target: Path, changes: Changes) -> None:
    """Copy a folder with the changes made, and let it take the folder's place."""
    names = {place.relative_to(target).as_posix() for place in changes}
    held = copy_folder(target, new, without=names)
    for place in _write_into(new, target, changes):
        held[place.relative_to(new).as_posix()] = mark(place)
    sync_folders(new)
    try:
        exchange(new, target)
    except CannotExchangeError:
        rename_twice(queue, new, target)
        return
    # From here on the change is made: nothing that fails may say otherwise.
    with contextlib.suppress(OSError):
        sync(target.parent)
        _bring_back(new, target, changes, held)


def _write_into(new: Path, target: Path, changes: Changes) -> list[Path]:
    """Make changes in a copy from which the files that change were left out."""
    written = []
    for place, wanted in _writes_first(changes):
        inside = new / place.relative_to(target)
        if wanted.content is None:
            _prune(inside.parent, new)
            continue
        inside.parent.mkdir(parents=True, exist_ok=True)
        write_file(inside, wanted.content, before=place, executable=wanted.executable)
        written.append(inside)
    return written


def _bring_back(old: Path, target: Path, changes: Changes, held: Inventory) -> None:
    """Bring the folder that was in place up to date, and exchange it back.

    What others wrote into either of them meanwhile is kept.
    """
    for place, wanted in _writes_first(changes):
        inside = old / place.relative_to(target)
        if wanted.content is None:
            inside.unlink(missing_ok=True)
            _prune(inside.parent, old)
            continue
        inside.parent.mkdir(parents=True, exist_ok=True)
        fresh = inside.with_name(f".{uuid.uuid4().hex}.partial")
        os.link(place, fresh)
        fresh.rename(inside)
    for touched in _touched(old, target, changes):
        sync(touched)
    exchange(old, target)
    sync(target.parent)
    _keep_newer(old, target, held)


def _keep_newer(copy: Path, target: Path, held: Inventory) -> None:
    """Move what others wrote into a copy while it was in place to where it belongs."""
    for folder, _, files in os.walk(copy):
        for name in files:
            path = Path(folder, name)
            inside = path.relative_to(copy)
            if held.get(inside.as_posix()) != mark(path):
                (target / inside).parent.mkdir(parents=True, exist_ok=True)
                path.replace(target / inside)


def _touched(old: Path, target: Path, changes: Changes) -> set[Path]:
    """Return the folders in which names changed, with those around them."""
    touched = {old}
    for place in changes:
        folder = (old / place.relative_to(target)).parent
        while folder != old:
            touched.add(folder)
            folder = folder.parent
    return {folder for folder in touched if folder.is_dir()}


def _writes_first(changes: Changes) -> list[tuple[Path, Wanted]]:
    """Order changes so that no folder is emptied, and goes, which a file is written to."""
    return sorted(changes.items(), key=lambda one: one[1].content is None)


def _prune(folder: Path, top: Path) -> None:
    """Remove a folder and those above it, below a top, as far as nothing is left in them."""
    with contextlib.suppress(OSError):
        while folder != top:
            folder.rmdir()
            folder = folder.parent


def _emptied(root: Path, changes: Changes) -> Path | None:
    """Return the folder that holds all changes and would have nothing left in it, if any."""
    if any(wanted.content is not None for wanted in changes.values()):
        return None
    going = set(changes)
    found = None
    folder = Path(os.path.commonpath([place.parent for place in changes]))
    while folder != root and folder.is_relative_to(root) and _all_go(folder, going):
        found = folder
        going.add(folder)
        folder = folder.parent
    return found


def _all_go(folder: Path, going: set[Path]) -> bool:
    """Say whether all that is in a folder goes."""
    return all(
        one in going or (one.is_dir() and not one.is_symlink() and _all_go(one, going))
        for one in folder.iterdir()
    )


def _check_writable(folder: Path) -> None:
    """Refuse to change a folder that its owner closed; the copy of it would be open."""
    while not folder.is_dir():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(folder))


@contextlib.contextmanager
def _stage(place: Path) -> Iterator[Path]:
    """Give a folder for one change; those that killed runs left are removed first."""
    place.mkdir(parents=True, exist_ok=True)
    for left in list(place.iterdir()):
        discard(left)
    stage = place / uuid.uuid4().hex
    stage.mkdir()
    try:
        yield stage
    finally:
        discard(stage)
        with contextlib.suppress(OSError):
            place.rmdir()


def _beside(queue: Path, target: Path) -> Path:
    """Return where to stage for a folder that `.contribbot/` has no common file system with."""
    # Two queues may link to one folder; each sweeps its own.
    mine = hashlib.sha256(os.fsencode(queue.resolve())).hexdigest()[:8]
    while not target.parent.is_dir():
        target = target.parent
    return target.parent / f".contribbot-stage-{mine}"
