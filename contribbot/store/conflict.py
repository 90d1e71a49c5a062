"""Saying why a patch does not apply: which hunk of which file, with the three sides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import QueueError
from contribbot.model.patch import PatchFile
from contribbot.model.plan import Side
from contribbot.store.difftext import read_diff
from contribbot.store.objects import read_objects
from contribbot.store.patchtext import parse, plain_path, unquote
from contribbot.store.repository import Store, git_environment

_FILE: Final = re.compile(
    r"^(?:Checking|Applying) patch (?P<path>.+?)(?: with \d+ rejects?)?\.\.\.$"
)
_REJECTED: Final = re.compile(r"^Rejected hunk #(?P<hunk>\d+)\.$")


@dataclass(frozen=True)
class Conflict:
    """One hunk, or one whole file, that does not fit.

    Attributes:
        patch_file: The patch file.
        path: The file that it wants to change.
        pin: The base, as people call it.
        hunk: Number of the hunk in that file, from 1; 0 when the whole file is the problem.
        why: One phrase.
        line: Where the nearest place in the pin's file starts, from 1; 0 when there is none.
        expected: What the patch expects to find (context and removed lines).
        found: What the pin has at the nearest place.
        wanted: What the patch wants there instead (context and added lines).
    """

    patch_file: str
    path: str
    pin: str
    hunk: int
    why: str
    line: int = 0
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """Say which hunk of which file against which pin, in one line."""
        what = f"hunk {self.hunk} of {self.path}" if self.hunk else self.path
        return f"{self.patch_file}: {what} does not apply to {self.pin}: {self.why}"

    @property
    def side(self) -> Side:
        """The conflict as reports have it."""
        return Side(
            headline=self.headline,
            patch_file=self.patch_file,
            path=self.path,
            hunk=self.hunk,
            why=self.why,
            line=self.line,
            expected=self.expected,
            found=self.found,
            wanted=self.wanted,
        )


@dataclass(frozen=True)
class _Part:
    """What a patch file does to one path; each hunk is start, expected lines, wanted lines."""

    before: str
    named: str
    added: bool
    hunks: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]


def explain(
    store: Store, commit: str, file: PatchFile, *, pin: str, scratch: Path
) -> tuple[Conflict, ...]:
    """Find every hunk of a patch file that does not fit a commit."""
    trial = scratch / "trial"
    trial.mkdir(exist_ok=True)
    found: list[Conflict] = []
    contents: dict[str, bytes] = {}
    parts = _parts(file)
    there = read_objects(store, [f"{commit}:{part.before}" for part in parts])
    for part, object_ in zip(parts, there, strict=True):
        before = part.before
        content = object_.content if object_ and object_.kind == "blob" else None
        if object_ is not None and object_.kind == "tree":
            found.append(Conflict(file.name, before, pin, 0, "the pin has a folder there"))
        elif part.added and content is not None:
            found.append(Conflict(file.name, before, pin, 0, "the pin has this file already"))
        elif not part.added and content is None:
            found.append(Conflict(file.name, before, pin, 0, "the pin has no such file"))
        elif content is not None:
            contents[part.named] = content
            target = trial / before
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    said = _try(file, trial)
    rejected = _rejected(said)
    for part in parts:
        path = part.named
        for number in rejected.get(path, ()):
            content = contents.get(path)
            if content is not None and number <= len(part.hunks):
                hunk = part.hunks[number - 1]
                found.append(
                    _compare(file.name, path, pin=pin, number=number, hunk=hunk, content=content)
                )
    if not found:
        errors = [
            row.removeprefix("error: ") for row in said.splitlines() if row.startswith("error: ")
        ]
        path = parts[0].named if parts else "the patch"
        found.append(Conflict(file.name, path, pin, 0, (errors or ["git gives no reason"])[0]))
    return tuple(found)


def _parts(file: PatchFile) -> list[_Part]:
    """Read what a patch file does; nothing where only git can read it."""
    plain = read_diff(file.content)
    if plain is not None:
        return [
            _Part(
                part.path, part.path, part.added,
                tuple(
                    (hunk.start, _readable(hunk.old), _readable(hunk.new)) for hunk in part.hunks
                ),
            )
            for part in plain
        ]  # fmt: skip
    try:
        parsed = parse(file.name, file.content)
    except QueueError:
        # git could read it, or would have said so: some names are too odd for unidiff.
        return []
    return [
        _Part(
            plain_path(part.target_file if part.is_added_file else part.source_file),
            plain_path(part.source_file if part.is_removed_file else part.target_file),
            part.is_added_file,
            tuple(
                (
                    hunk.source_start,
                    _readable([line.value.encode("latin-1") for line in hunk.source_lines()]),
                    _readable([line.value.encode("latin-1") for line in hunk.target_lines()]),
                )
                for hunk in part
            ),
        )
        for part in parsed
    ]


def _try(file: PatchFile, trial: Path) -> str:
    """Apply what fits in the trial folder, and return what git says."""
    done = process.run(
        [
            "git", "-c", "core.quotePath=false", "apply",
            "--reject", "--verbose", "--whitespace=nowarn", "-",
        ],
        cwd=trial,
        # Neither a repository around the scratch folder nor one in it concerns this.
        env=git_environment({"GIT_CEILING_DIRECTORIES": str(trial.parent)}),
        stdin=file.content,
        accept=(0, 1, 128),
    )  # fmt: skip
    return done.stderr.decode("utf-8", "replace")


def _rejected(said: str) -> dict[str, list[int]]:
    """Read from `git apply --reject --verbose` which hunks of which file were rejected."""
    rejected: dict[str, list[int]] = {}
    path = ""
    for row in said.splitlines():
        if file := _FILE.match(row):
            path = unquote(file["path"].encode()).decode("utf-8", "surrogateescape")
        elif hunk := _REJECTED.match(row):
            rejected.setdefault(path, []).append(int(hunk["hunk"]))
    return rejected


def _compare(
    name: str,
    path: str,
    *,
    pin: str,
    number: int,
    hunk: tuple[int, tuple[str, ...], tuple[str, ...]],
    content: bytes,
) -> Conflict:
    """Put the three sides of a rejected hunk together."""
    at, expected, wanted = hunk
    have = content.decode("utf-8", "replace").splitlines()
    start = nearest(have, expected, at - 1)
    return Conflict(
        patch_file=name,
        path=path,
        pin=pin,
        hunk=number,
        why=f"the lines that it expects at line {at} are not there",
        line=start + 1,
        expected=expected,
        found=tuple(have[start : start + len(expected)]),
        wanted=wanted,
    )


def _readable(lines: Sequence[bytes]) -> tuple[str, ...]:
    """Turn lines into text for a person."""
    return tuple(line.rstrip(b"\n").decode("utf-8", "replace") for line in lines)


def nearest(have: Sequence[str], expected: Sequence[str], hint: int) -> int:
    """Return the index in `have` where most of the expected lines stand."""
    width = len(expected)
    wanted = Counter(line.strip() for line in expected if line.strip())
    stripped = [line.strip() for line in have]

    def score(start: int) -> tuple[int, int]:
        window = Counter(stripped[start : start + width])
        return (sum((window & wanted).values()), -abs(start - hint))

    last = max(0, len(have) - width)
    return max(range(last + 1), key=score, default=0)
