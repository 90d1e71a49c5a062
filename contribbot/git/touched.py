"""What diffs touch: files, functions as far as hunks name them, renames; and ids."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError
from contribbot.git.patch_format import parse, plain_path
from contribbot.git.repository import Store, git_environment
from contribbot.model.patch import PatchFile

_HUNK: Final = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(?P<header>.*)$")
#: A line that begins a function or class: of Python anywhere, of C and its kin by its header.
_PYTHON: Final = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(?P<name>\w+)")
_CALLABLE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\(")
_TYPE: Final = re.compile(r"\b(?:class|struct|namespace|enum|union)\s+(?P<name>[A-Za-z_]\w*)")
#: What stands before a parenthesis and is no function's name.
_NO_NAMES: Final = frozenset(
    {
        "if", "for", "while", "switch", "return", "sizeof", "defined", "decltype", "__attribute__",
        "__launch_bounds__", "alignas", "static_assert", "catch", "else", "template",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TouchedFile:
    """A file that a diff touches, with the functions that it changes there."""

    path: str
    before: str
    removed: bool
    functions: frozenset[str]


def touched_files(files: Iterable[PatchFile]) -> list[TouchedFile]:
    """Take the diffs of patch files apart."""
    touched = []
    for diff in files:
        for file in parse(diff.name, diff.content):
            old, new = plain_path(file.source_file), plain_path(file.target_file)
            removed = bool(file.is_removed_file)
            path = old if removed else new
            moved = old if not removed and not file.is_added_file and old != new else ""
            # The text stands for bytes.
            hunks = "".join(map(str, file)).encode("latin-1").decode("utf-8", "replace")
            touched.append(TouchedFile(path, moved, removed, functions(path, hunks)))
    return touched


def functions(path: str, hunks: str) -> frozenset[str]:
    """Return the functions and classes that hunks change, as far as the hunks name them."""
    is_python = path.endswith((".py", ".pyi"))
    names: set[str] = set()
    current = ""
    for row in hunks.split("\n"):
        hunk = _HUNK.match(row)
        if is_python:
            begins = _PYTHON.match(hunk["header"] if hunk else row[1:])
            current = begins["name"] if begins else "" if hunk else current
            if row.startswith(("+", "-")):
                names.add(current)
        elif hunk is not None:
            # The function or type that git's line behind `@@` names.
            called = (name for name in _CALLABLE.findall(hunk["header"]) if name not in _NO_NAMES)
            names |= {next(called, "") or next(iter(_TYPE.findall(hunk["header"])), "")}
    return frozenset(names - {""})


def patch_id(diff: bytes) -> str:
    """Return the patch id of a diff; empty where it has none."""
    rest = diff[(b"\n" + diff).find(b"\ndiff --git ") :]
    return next(iter(patch_ids(rest)), "") if rest.startswith(b"diff --git ") else ""


def commit_of(mail: bytes) -> str:
    """Return the commit that a mail of git is of; empty where it names none."""
    named = re.match(rb"From ([0-9a-f]{40,64}) Mon Sep 17 00:00:00 2001\n", mail)
    return named[1].decode() if named and named[1].strip(b"0") else ""


def patch_ids(series: bytes) -> tuple[str, ...]:
    """Return the patch ids of commits that stand one after the other, as in an mbox."""
    command = ["git", "patch-id", "--stable"]
    try:
        output = process.run(command, env=git_environment(), stdin=series, timeout=30.0).stdout
    except (CommandError, CommandTimeoutError):
        return ()
    return tuple(row.split(" ")[0] for row in output.decode("ascii", "replace").splitlines())


#: What git calls a rename by itself, in per cent of a file that stayed.
_ALIKE: Final = 50
#: What is one as well where the file's name stayed and no other file is as much alike.
_SAME_NAME: Final = 25


@functools.cache
def renames(store: Store, old: str, new: str) -> Mapping[str, str]:
    """Return where the files of a tree went that another tree lacks; asked once a process."""
    # -l0: without it git gives up where thousands of files changed, which releases do.
    raw = store.git(
        "diff-tree", "-r", "-z", f"-M{_SAME_NAME}%", "-l0", "--diff-filter=R", old, new
    ).stdout
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    paths = {}
    for head, before, after in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        alike = int(head.rpartition("R")[2])
        if alike >= _ALIKE or Path(before).name == Path(after).name:
            paths[before] = after
    return paths


def files_of(store: Store, tree: str) -> frozenset[str]:
    """Return the paths of a tree."""
    listed = store.git("ls-tree", "-r", "-z", "--name-only", tree).stdout
    return frozenset(listed.decode("utf-8", "surrogateescape").split("\0")) - {""}
