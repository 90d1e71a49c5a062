"""Taking a patch out of the queue, its history kept."""

from __future__ import annotations

from contribbot.files import write_atomically
from contribbot.model.history import RetiredEvent
from contribbot.model.patch import Patch
from contribbot.queue import journal, versions
from contribbot.queue.load import Queue
from contribbot.queue.transaction import Transaction


def keep(queue: Queue, patch: Patch) -> None:
    """Keep what a patch is in its history, before it is taken out."""
    versions.record(queue, patch.name, before=None, after=patch, why="as it was in the end")
    folder = journal.history_folder(queue.folder, patch.name) / "retired"
    stated = (patch.folder / "patch.toml").read_bytes()
    write_atomically(folder / "patch.toml", stated)
    for file in patch.support:
        write_atomically(folder / "checks" / file.name, file.content)


def take_out(change: Transaction, patch: Patch) -> None:
    """Delete what contribbot knows of a patch's folder.

    What else lies in it stays, and the folder then with it; `queue.toml` and the
    patches that depend on it are the caller's matter.
    """
    folder = f"patches/{patch.name}"
    change.delete(f"{folder}/patch.toml")
    for file in patch.files:
        change.delete(f"{folder}/{file.name}")
    for file in patch.support:
        change.delete(f"{folder}/checks/{file.name}")
    # `contribbot new` puts it there, so that git keeps the folder.
    change.delete(f"{folder}/checks/.gitkeep")


def note(queue: Queue, patch: Patch, why: str) -> None:
    """Say in the history that a patch left the queue."""
    event = RetiredEvent(time=journal.now(), summary=f"retired: {why}", why=why)
    journal.append(queue.folder, patch.name, event)
