"""`queue export`: patches as one mbox, which `git am` applies without options."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from contribbot.errors import QueueError, UsageError
from contribbot.git.patch_format import format_commits
from contribbot.git.pins.source import Progress
from contribbot.model.base import Model
from contribbot.model.lifecycle import ConflictSide
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


class Export(Model):
    """The document of `queue export --json`, with the patch files of these commits."""

    pin: str
    patches: tuple[str, ...]
    base: str
    commits: tuple[str, ...] = ()
    conflicts: tuple[ConflictSide, ...] = ()
    output: str = ""
    added: tuple[str, ...] = Field(exclude=True)
    files: tuple[PatchFile, ...] = Field(default=(), exclude=True)


def export(queue: Queue, names: Sequence[str], *, alone: bool, progress: Progress) -> Export:
    """Put patches on their pin, with those that they depend on unless `alone`."""
    patches = _selected(queue, names, alone=alone)
    fetched = fetch_pin(queue, patches[0].pin, progress=progress)
    with run_folder() as scratch, fetched.store.exclusive():
        return _stack(PatchStack(queue, fetched, scratch), patches, names)


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
    names = tuple(patch.name for patch in patches)
    queue, store = stack.queue, stack.fetched.store
    lower = dict.fromkeys(low for name in names for low in queue.below(name) if low not in names)
    base = tip = stack.fetched.commit
    exported: list[PatchFile] = []
    commits: list[str] = []
    conflicts: tuple[ConflictSide, ...] = ()
    for patch in [*(queue.patch(name) for name in lower), *patches]:
        series = stack.series(tip, patch.files)
        if conflicts := series.conflicts:
            exported, commits = [], []
            break
        if patch.name in lower:
            base = tip = series.commit
            continue
        adjusted = any(applied.adjustments for applied in series.applied)
        exported += format_commits(store, tip, series.commit) if adjusted else patch.files
        commits += [applied.commit for applied in series.applied]
        tip = series.commit
    return Export(
        pin=patches[0].pin.title,
        patches=names,
        base=base,
        commits=tuple(commits),
        conflicts=conflicts,
        added=tuple(name for name in names if name not in named),
        files=tuple(exported),
    )


def mbox(files: Sequence[PatchFile]) -> bytes:
    """Return patch files as one mbox for `git am`."""
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
