"""Taking patches from elsewhere into the queue: clones, mboxes, format-patch and quilt series."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import MachineError, QueueError
from contribbot.model.base import TreePath
from contribbot.model.patch import PatchFile
from contribbot.queue import versions
from contribbot.queue.incoming import read_sources
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.mails import Given, is_plain
from contribbot.queue.new import Draft, Wish, add, settle
from contribbot.queue.transaction import transaction
from contribbot.sources import Progress, provide
from contribbot.store.conflict import Conflict
from contribbot.store.formatpatch import format_commits
from contribbot.store.patchtext import check_form
from contribbot.store.repository import open_store
from contribbot.store.series import Series, apply_series
from contribbot.store.trees import changes
from contribbot.workspace import run_folder, stores_folder

_TREE_PATH: Final = TypeAdapter[str](TreePath)


@dataclass(frozen=True)
class Imported:
    """What came of an import.

    Attributes:
        name: The patch.
        pin: What it stands on, as people call it.
        files: Its patch files.
        touched: Every path that it changes.
        rewritten: Those of the files that were written anew, since they were no plain
            mails of git.
        adjustments: What did not fit exactly, in phrases.
        conflicts: Why it does not apply; then nothing was written.
        version: The number of its version in the history.
    """

    name: str
    pin: str
    files: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    adjustments: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    version: int | None = None


def import_sources(
    queue: Queue,
    wish: Wish,
    sources: Sequence[str],
    *,
    stdin: Callable[[], bytes],
    given: Given,
    progress: Progress,
) -> Imported:
    """Read what a user named, and add it to the queue."""
    # Before anything is read: a name that is taken is said at once.
    pin = settle(queue, wish).pin
    with run_folder() as scratch:
        files = read_sources(sources, pin=pin, stdin=stdin, given=given, scratch=scratch)
    return import_patch(queue, wish, files, progress=progress)


def import_patch(
    queue: Queue, wish: Wish, files: Sequence[PatchFile], *, progress: Progress
) -> Imported:
    """Add a patch to the queue, unless it does not apply to its pin.

    A plain mail of git is kept byte for byte; anything else (another program's file, an
    encoded mail, a mail of a list) is applied and written anew, as `git format-patch`
    writes it.
    """
    draft = settle(queue, wish)
    with run_folder() as scratch:
        made = _make(queue, draft, files, scratch=scratch, progress=progress)
    if isinstance(made, Imported):
        return made
    with transaction(queue.folder) as change:
        there = load_queue(queue.folder)
        draft = settle(there, wish)
        if _ground(there, draft) != made.ground:
            raise MachineError(
                f"{queue.folder}: changed by somebody else just now; nothing was written",
                hint="run it again",
            )
        if not wish.title:
            draft = replace(draft, title=made.title)
        add(change, draft, patches=made.files, touched=made.outcome.touched)
        change.commit()
        after = load_queue(queue.folder)
        number = versions.record(
            after, draft.name, before=None, after=after.patch(draft.name), why="import"
        )
    return Imported(**{**vars(made.outcome), "version": number})


@dataclass(frozen=True)
class _Made:
    """A patch as it will be written, and what it was worked out on."""

    files: tuple[PatchFile, ...]
    title: str
    outcome: Imported
    ground: tuple[object, ...]


def _ground(queue: Queue, draft: Draft) -> tuple[object, ...]:
    """Return everything that the base of a patch depends on."""
    lower = [(name, queue.patch(name).digest) for name in _below(queue, draft)]
    return (draft.pin, *lower)


def _below(queue: Queue, draft: Draft) -> list[str]:
    names = [low for one in draft.depends_on for low in (*queue.below(one), one)]
    return list(dict.fromkeys(names))


def _make(
    queue: Queue, draft: Draft, files: Sequence[PatchFile], *, scratch: Path, progress: Progress
) -> _Made | Imported:
    """Apply the files in memory; return them as they will be, or why they do not apply."""
    upstream = queue.upstreams[draft.pin.upstream]
    store = open_store(stores_folder(), upstream.name)
    pin = draft.pin.title
    base = provide(draft.pin, upstream, store, progress=progress).commit

    def on(commit: str, patches: Sequence[PatchFile]) -> Series:
        folder = scratch / uuid.uuid4().hex
        folder.mkdir()
        return apply_series(store, commit, patches, pin=pin, scratch=folder)

    with store.exclusive():
        for name in _below(queue, draft):
            below = on(base, queue.patch(name).files)
            if below.conflicts:
                raise QueueError(
                    f"the dependency {name} does not apply: {below.conflicts[0].headline}",
                    hint=f"mend it first: contribbot verify {name}",
                )
            base = below.commit
        series = on(base, files)
        if series.conflicts:
            return Imported(draft.name, pin, conflicts=series.conflicts)
        written = format_commits(store, base, series.commit)
        touched = sorted({one.path for one in changes(store, base, series.commit)})
    if not touched:
        raise QueueError("its commits take back what they do: nothing is changed")
    kept = tuple(
        PatchFile(new.name, old.content) if is_plain(old) else new
        for old, new in zip(files, written, strict=True)
    )
    for path in touched:
        _check_path(path)
    for file in kept:
        check_form(file.name, file.content)
    outcome = Imported(
        draft.name,
        pin,
        files=tuple(file.name for file in kept),
        touched=tuple(touched),
        rewritten=tuple(
            new.name for old, new in zip(files, written, strict=True) if not is_plain(old)
        ),
        adjustments=tuple(item.phrase for one in series.applied for item in one.adjustments),
    )
    title = draft.title or _title_of(series.applied[0].subject)
    return _Made(kept, title, outcome, _ground(queue, draft))


def _title_of(subject: str) -> str:
    """Return a subject as a title: a commit's may have what no title can have."""
    text = "".join(char if char.isprintable() else " " for char in subject)
    title = " ".join(text.split())
    if not title:
        raise QueueError(f"the subject {subject!a} is no title", hint="give one with --title")
    return title


def _check_path(path: str) -> None:
    """Refuse a path that `files` of patch.toml cannot hold."""
    try:
        _TREE_PATH.validate_python(path)
    except ValidationError as error:
        raise QueueError(
            f"the path {path!a} cannot stand in `files` of patch.toml",
            hint="name the file so that it can be printed, without a backslash",
        ) from error
