"""Giving patches to other programs, which apply them without options: mbox, quilt, or one diff."""

from __future__ import annotations

import binascii
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from contribbot.errors import QueueError, UsageError
from contribbot.files import write_named
from contribbot.git.apply import Conflict
from contribbot.git.patch_format import format_commits, parse, raw_changes
from contribbot.git.pins.source import Progress
from contribbot.git.repository import Store
from contribbot.model.patch import Patch, PatchFile
from contribbot.queue.load import Queue
from contribbot.queue.stack import PatchStack, fetch_pin, own_pin, with_dependencies
from contribbot.run_folder import run_folder

_FROM: Final = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
#: Headers that say how the rest of a mail is to be read.
_MIME: Final = re.compile(
    rb"^(?:mime-version|content-type|content-transfer-encoding):[^\n]*\n(?:[ \t][^\n]*\n)*",
    re.IGNORECASE | re.MULTILINE,
)
_MIME_QUOTED: Final = (
    b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
    b"Content-Transfer-Encoding: quoted-printable\n"
)
_CHARSET: Final = re.compile(
    rb"^content-type:[^\n]*charset=(?!\"?utf-8)|quoted-printable|base64",
    re.IGNORECASE | re.MULTILINE,
)
_SYMLINK: Final = "120000"
_DIFF: Final = re.compile(rb"^diff --git ", re.MULTILINE)
#: What GNU patch takes for a diff in a message too, indented or not.
_DIFF_LIKE: Final = re.compile(
    rb"^[ \tX]*(?:diff --git |\*{3} [^\n]*\n[ \tX]*--- |\+{3} [^\n]*\n[ \tX]*@@ -\d|Prereq:)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ExportedCommit:
    """A commit that is exported."""

    patch: str
    file: PatchFile
    parent: str
    commit: str


@dataclass(frozen=True)
class Export:
    """Patches as commits on their pin, ready to be written in any form."""

    pin: str
    patches: tuple[str, ...]
    added: tuple[str, ...]
    base: str
    tip: str
    commits: tuple[ExportedCommit, ...]
    conflicts: tuple[Conflict, ...] = ()


def export_bytes(
    queue: Queue, names: Sequence[str], form: str, *, alone: bool, progress: Progress
) -> tuple[Export, dict[str, bytes]]:
    """Export patches; return the files by name, one without a name where it is but one."""
    patches = _selected(queue, names, alone=alone)
    fetched = fetch_pin(queue, patches[0].pin, progress=progress)
    with run_folder() as scratch, fetched.store.exclusive():
        export = _stack(PatchStack(queue, fetched, scratch), patches, names)
        if export.conflicts:
            return export, {}
        if form == "quilt":
            return export, quilt(fetched.store, export.commits)
        if form == "diff":
            # Everything in one, for `git apply`.
            return export, {"": _diff(fetched.store, export.base, export.tip, "-M")}
        return export, {"": mbox([commit.file for commit in export.commits])}


def _selected(queue: Queue, names: Sequence[str], *, alone: bool) -> list[Patch]:
    pins: dict[str, list[str]] = {}
    for name in names:
        pins.setdefault(own_pin(queue, name).title, []).append(name)
    if len(pins) > 1:
        some = " ".join(next(iter(pins.values())))
        raise UsageError(
            f"the patches stand on several pins ({', '.join(sorted(pins))})",
            hint=f"name those of one: contribbot queue export {some}",
        )
    chosen = [*names] if alone else with_dependencies(queue, names)
    patches = [queue.patch(name) for name in queue.specs if name in chosen]
    for patch in patches:
        if not patch.files:
            raise UsageError(
                f"{patch.name}: no commits yet",
                hint=f"make them with `contribbot edit {patch.name}`",
            )
    return patches


def _stack(stack: PatchStack, patches: Sequence[Patch], named: Sequence[str]) -> Export:
    """Put the patches on each other; below the first is what all of them are exported without."""
    pin, names = patches[0].pin.title, tuple(patch.name for patch in patches)
    added = tuple(name for name in names if name not in named)
    queue, store = stack.queue, stack.fetched.store
    lower = dict.fromkeys(low for name in names for low in queue.below(name) if low not in names)
    base = tip = stack.fetched.commit
    commits: list[ExportedCommit] = []
    for patch in [*(queue.patch(name) for name in lower), *patches]:
        series = stack.series(tip, patch.files)
        if series.conflicts:
            return Export(pin, names, added, base, tip, (), series.conflicts)
        if patch.name in lower:
            base = tip = series.commit
            continue
        files = patch.files
        if any(applied.adjustments for applied in series.applied):
            files = format_commits(store, tip, series.commit)
        for file, applied in zip(files, series.applied, strict=True):
            commits.append(ExportedCommit(patch.name, file, tip, applied.commit))
            tip = applied.commit
    return Export(pin, names, added, base, tip, tuple(commits))


def mbox(files: Sequence[PatchFile]) -> bytes:
    """Return patch files as one mbox for `git am` and `stg import --mbox`."""
    return b"".join(_mailable(file) for file in files)


def _mailable(file: PatchFile) -> bytes:
    """Return a mail that survives being taken out of an mbox.

    `git am` drops carriage returns at the ends of lines, and takes a line of a message
    that looks like the start of a mail for one: such mails go quoted-printable.
    """
    content = file.content if file.content.startswith(b"From ") else _FROM + file.content
    head, _, body = content.partition(b"\n\n")
    if b"\r" not in body and not re.search(rb"^From ", body, re.MULTILINE):
        return content
    if _CHARSET.search(head):
        raise QueueError(
            f"{file.name}: encoded in a way that no mbox keeps", hint="write it again: refresh it"
        )
    head = _MIME.sub(b"", head + b"\n") + _MIME_QUOTED
    rows = [binascii.b2a_qp(row, istext=False) for row in body.split(b"\n")]
    return head + b"\n" + re.sub(rb"^From ", b"=46rom ", b"\n".join(rows), flags=re.MULTILINE)


def quilt(store: Store, commits: Sequence[ExportedCommit]) -> dict[str, bytes]:
    """Return the files of a quilt series, `series` among them."""
    files: dict[str, bytes] = {}
    for exported in commits:
        content = exported.file.content
        start = _DIFF.search(content)
        head, own = (content[: start.start()], content[start.start() :]) if start else (b"", b"")
        diff = _diff(store, exported.parent, exported.commit, "--no-renames")
        if problem := _not_for_quilt(store, exported, head, diff):
            raise QueueError(
                f"{exported.patch}: {exported.file.name} {problem}", hint="export it as mbox"
            )
        renames = any(part.is_rename for part in parse(exported.file.name, own))
        files[f"{exported.patch}-{exported.file.name}"] = head + diff if renames else content
    return {**files, "series": "".join(f"{name}\n" for name in files).encode()}


def _not_for_quilt(store: Store, exported: ExportedCommit, head: bytes, diff: bytes) -> str:
    """Say what of a commit GNU patch, and so quilt, cannot do; or nothing."""
    changed = raw_changes(store, [exported.commit])
    paths = {path for _, _, path in changed}
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    if paths & folders:
        return "makes a file of a folder, or a folder of a file, which quilt cannot do"
    if _DIFF_LIKE.search(head):
        return "has a message that quilt takes for a diff"
    if any(_SYMLINK in row.split(" ")[:2] for _, row, _ in changed):
        return "changes a symbolic link, which quilt cannot do"
    if b"\nGIT binary patch\n" in diff:
        return "changes a binary file, which quilt cannot do"
    return ""


def _diff(store: Store, base: str, tip: str, renames: str) -> bytes:
    return store.git(
        "diff-tree", "-r", "-p", "--binary", "--full-index", renames, "--no-color",
        "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", base, tip,
    ).stdout  # fmt: skip


def write_export(files: Mapping[str, bytes], place: Path | None, *, stdout: IO[bytes]) -> None:
    """Write an export to a file, or, where it is several, to a folder."""
    if "" not in files:
        if place is None:
            raise UsageError("a quilt series is a folder", hint="name it: -o patches")
        _write_folder(files, place)
    elif place is None:
        stdout.write(files[""])
        stdout.flush()
    else:
        write_named(place, files[""])


def _write_folder(files: Mapping[str, bytes], place: Path) -> None:
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{place}: there is something already", hint="name a new folder")
    if place.is_dir() and place.samefile(os.curdir):
        # It would be taken away from under the shell.
        raise UsageError(f"{place}: you are in it", hint="name a new folder")
    target = place.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
        whole = Path(aside) / "series"
        whole.mkdir()
        for name, content in files.items():
            (whole / name).write_bytes(content)
        # An empty folder gives way.
        whole.replace(target)
