"""Comparing and exporting trees of a store."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from contribbot.store.patchtext import plain_path
from contribbot.store.repository import Store


@dataclass(frozen=True)
class Change:
    """One path that differs between two trees.

    Attributes:
        path: The path.
        status: git's letter: `A` added, `M` modified, `D` deleted, `T` type changed.
        mode: The mode in the new tree (`100644`, …; `000000` when deleted).
        blob: The object in the new tree (zeros when deleted).
    """

    path: str
    status: str
    mode: str
    blob: str


def changes(store: Store, base: str, patched: str) -> list[Change]:
    """Return what differs between two trees, renames as delete and add."""
    raw = store.git("diff-tree", "-r", "-z", "--raw", "--no-renames", base, patched).stdout
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    found = []
    for head, path in zip(fields[0::2], fields[1::2], strict=False):
        _, mode, _, blob, status = head.lstrip(":").split(" ")
        found.append(Change(path=path, status=status, mode=mode, blob=blob))
    return found


def added_lines(store: Store, base: str, patched: str) -> dict[str, list[int]]:
    """Return the line numbers (from 1) that a change adds to each file of the new tree."""
    from unidiff.patch import PatchSet  # noqa: PLC0415  only stages that look into hunks pay

    text = store.git(
        "diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-color", "--no-ext-diff", base, patched
    ).stdout.decode("latin-1")
    found: dict[str, list[int]] = {}
    for part in PatchSet(io.StringIO(text, newline="\n")):
        numbers = [
            line.target_line_no
            for hunk in part
            for line in hunk
            if line.is_added and line.target_line_no is not None
        ]
        if numbers:
            found[plain_path(part.target_file)] = numbers
    return found


def export(store: Store, tree: str, folder: Path, *, index: Path) -> None:
    """Write a tree to an empty folder, bytes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"GIT_INDEX_FILE": str(index)}
    store.git("read-tree", tree, env=env)
    # As many writers as cores (0): creating thousands of files waits for the kernel.
    workers = ("-c", "checkout.workers=0")
    store.git(
        *workers, f"--work-tree={folder}", "checkout-index", "--all", "--force", "--index",
        env=env, cwd=folder,
    )  # fmt: skip


def altered(store: Store, folder: Path, *, index: Path) -> str:
    """Return a path of an exported tree that is not as it was exported, or nothing."""
    if not folder.is_dir():
        return "."
    for ask in (("diff-files", "--name-only", "-z"), ("ls-files", "--others", "-z")):
        said = store.git(
            f"--work-tree={folder}", *ask, env={"GIT_INDEX_FILE": str(index)}, cwd=folder
        ).stdout
        if said:
            return said.partition(b"\0")[0].decode("utf-8", "replace")
    return ""
