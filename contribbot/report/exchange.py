"""What `new`, `import` and `export` say, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.base import Model
from contribbot.model.plan import Side
from contribbot.queue.exporting import Export
from contribbot.queue.importing import Imported
from contribbot.queue.new import Draft
from contribbot.report.text import clean, side_lines
from contribbot.store.conflict import Conflict


class ImportReport(Model):
    """What `import --json` prints.

    Attributes:
        patch: The patch.
        pin: What it stands on.
        written: Whether the queue has it now.
        patch_files: Its patch files.
        files: Every path that it changes.
        rewritten: The patch files that are not the bytes that came.
        adjustments: What did not fit exactly.
        conflicts: Why it does not apply.
        version: Its version in the history.
    """

    patch: str
    pin: str
    written: bool
    patch_files: tuple[str, ...]
    files: tuple[str, ...]
    rewritten: tuple[str, ...]
    adjustments: tuple[str, ...]
    conflicts: tuple[Side, ...]
    version: int | None

    @classmethod
    def of(cls, done: Imported) -> ImportReport:
        """Report an import."""
        return cls(
            patch=done.name,
            pin=done.pin,
            written=not done.conflicts,
            patch_files=done.files,
            files=done.touched,
            rewritten=done.rewritten,
            adjustments=done.adjustments,
            conflicts=tuple(one.side for one in done.conflicts),
            version=done.version,
        )


def conflict_text(conflicts: Sequence[Conflict]) -> list[str]:
    """Return each conflict in one line, with the three sides of its hunk below it."""
    return [row for one in conflicts for row in side_lines(one.side, base="the pin")]


def import_lines(done: Imported) -> list[str]:
    """Return what an import did, as lines."""
    if done.conflicts:
        return [*conflict_text(done.conflicts), f"{done.name}: not imported, nothing was written"]
    count = len(done.files)
    lines = [f"{done.name}: {count} commit{'s' if count > 1 else ''} on {done.pin}"]
    lines += [f"  {clean(name)}" for name in done.files]
    if done.adjustments:
        lines.append(f"  not exactly: {clean('; '.join(done.adjustments))}")
    if done.rewritten:
        lines.append(f"  written anew, as git writes them: {len(done.rewritten)} of {count}")
    return [*lines, *_next(done.name)]


def export_lines(done: Export, form: str) -> list[str]:
    """Return what an export holds, as lines."""
    count = len(done.commits)
    lines = [f"{', '.join(done.patches)}: {count} commit{'s' if count > 1 else ''} for {done.pin}"]
    if done.added:
        lines.append(f"  with {', '.join(done.added)}, which it depends on (--alone: without)")
    if form == "mbox" and any(b"\nSubject: [PATCH] [" in one.file.content for one in done.commits):
        lines.append("  git am --keep-non-patch keeps the brackets of the subjects")
    return lines


def new_lines(draft: Draft) -> list[str]:
    """Return what `new` did, as lines."""
    return [
        f"{draft.name}: begun on {draft.pin.title}",
        f"  make its commits: contribbot edit {draft.name}",
        *_next(draft.name),
    ]


def _next(name: str) -> list[str]:
    return [
        f"  say what it is for, and state what proves it: patches/{name}/patch.toml",
        f"  prove it: contribbot verify {name}",
    ]
