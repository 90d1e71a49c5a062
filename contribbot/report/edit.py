"""Work trees and what was taken from them, for people and for programs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from contribbot.model.base import Model
from contribbot.queue.refresh import Refreshed
from contribbot.queue.worktree import Opened
from contribbot.report.text import clean


class CommitView(Model):
    """A commit of a work tree.

    Attributes:
        commit: Its id.
        subject: Its subject.
    """

    commit: str
    subject: str


class EditView(Model):
    """What `edit --json` prints.

    Attributes:
        patch: The patch.
        state: `opened` just now, `open` already, `changed`: open, and the queue has moved
            on since; `removed`; `kept`: not removed, since something would be lost.
        path: The work tree; None when it is gone.
        base_commit: The commit below the patch's own.
        commits: The commits on top of it, oldest first.
        why: What has changed in the queue since it was opened.
        lost: What would be lost with it.
    """

    patch: str
    state: str
    path: str | None = None
    base_commit: str | None = None
    commits: tuple[CommitView, ...] = ()
    why: str = ""
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, opened: Opened) -> EditView:
        """View an open tree."""
        return cls(
            patch=name,
            state="opened" if opened.fresh else "changed" if opened.stale else "open",
            path=_text(opened.path),
            base_commit=opened.base,
            commits=tuple(CommitView(commit=one.id, subject=one.subject) for one in opened.commits),
            why=opened.stale,
        )

    @classmethod
    def aborted(cls, name: str, lost: tuple[str, ...]) -> EditView:
        """View a tree that is removed, unless something would be lost with it."""
        return cls(
            patch=name, state="kept" if lost else "removed", lost=tuple(_text(one) for one in lost)
        )


class BrokenView(Model):
    """A patch that would not apply any more.

    Attributes:
        patch: The patch.
        why: Which hunk of which file.
    """

    patch: str
    why: str


class RefreshView(Model):
    """What `refresh --json` prints.

    Attributes:
        patch: The patch.
        changed: Whether it is another now.
        version: The number of the version that was recorded.
        patch_files: The patch files as they are now, or would be.
        files_added: Paths that were added to `files` of its patch.toml.
        files_removed: Paths that were taken out of it.
        broken: Patches that depend on it and no longer apply.
        refused: Why nothing was written; empty when it was, or nothing was to do.
        left_out: Paths in the tree that are in no commit.
    """

    patch: str
    changed: bool
    version: int | None
    patch_files: tuple[str, ...]
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    broken: tuple[BrokenView, ...]
    refused: tuple[str, ...]
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, name: str, done: Refreshed) -> RefreshView:
        """View what came of a refresh."""
        return cls(
            patch=name,
            changed=done.changed,
            version=done.version,
            patch_files=done.files,
            files_added=done.added,
            files_removed=done.removed,
            broken=tuple(BrokenView(patch=one.patch, why=one.why) for one in done.broken),
            refused=done.refused,
            left_out=tuple(_text(path) for path in done.left_out),
        )


def _text(path: Path | str) -> str:
    """Return a path for JSON: a name that is no UTF-8 is spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def edit_lines(name: str, opened: Opened) -> list[str]:
    """Return where a patch is open and what to do next, as lines."""
    path = clean(_text(opened.path))
    lines = [f"{name} is open in {path}" if opened.fresh else f"{name} is open already, in {path}"]
    lines += [f"  {one.id[:12]}  {clean(one.subject)}" for one in opened.commits]
    if opened.stale:
        return [
            *lines,
            f"{clean(opened.stale)}.",
            f"  contribbot refresh --force {name}   # take what is there all the same",
            f"  contribbot edit --abort {name}      # remove the tree, to open it anew",
        ]
    return [
        *lines,
        f"Change it there with plain git (git commit --amend, git rebase -i {opened.base[:12]}).",
        f"  cd {shlex.quote(path)}",
        f"  contribbot refresh {name}        # take the commits back, as often as you like",
        f"  contribbot edit --abort {name}   # remove the tree when you are done",
    ]


def lost_lines(name: str, path: Path, lost: tuple[str, ...]) -> list[str]:
    """Return what would be lost with a tree, as lines."""
    return [
        f"{name}: {clean(_text(path))} holds what refresh has not taken:",
        *(f"  {clean(one)}" for one in lost),
    ]


def refresh_lines(name: str, done: Refreshed) -> list[str]:
    """Return what came of a refresh, as lines."""
    lines = [f"{name}: {clean(_text(path))} is in no commit" for path in done.left_out]
    if done.refused:
        lines += [f"{name}: {clean(one)}" for one in done.refused]
        lines += [f"  {one.patch}: {clean(one.why)}" for one in done.broken]
        return [*lines, f"{name}: nothing was written; `refresh --force {name}` takes it anyway"]
    if not done.changed:
        return [*lines, f"{name}: nothing has changed"]
    count = len(done.files)
    version = f" as v{done.version}" if done.version else ""
    lines.append(f"{name}: taken{version}, {count} commit{'s' if count > 1 else ''}")
    lines += [f"  {clean(file)}" for file in done.files]
    lines += [f"{name}: added to `files` of patch.toml: {clean(path)}" for path in done.added]
    lines += [f"{name}: taken out of `files` of patch.toml: {clean(path)}" for path in done.removed]
    lines += [f"{one.patch}: no longer applies: {clean(one.why)}" for one in done.broken]
    return [*lines, f"Prove it again with `contribbot verify {name}`."]
