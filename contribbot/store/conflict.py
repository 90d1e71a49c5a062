"""Saying why a patch does not apply: which hunk of which file, with the three sides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.model.patch import PatchFile
from contribbot.store.patchtext import parse, plain_path, unquote
from contribbot.store.repository import Store, git_environment

if TYPE_CHECKING:
    from unidiff.patch import Hunk, PatchedFile

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


def explain(
    store: Store, commit: str, file: PatchFile, *, pin: str, scratch: Path
) -> tuple[Conflict, ...]:
    """Find every hunk of a patch file that does not fit a commit.

    Args:
        store: Holds the commit.
        commit: What the patch was applied to.
        file: The patch file.
        pin: How to call the commit in a message.
        scratch: A folder for temporary files.

    Raises:
        QueueError: The diff is malformed.
    """
    trial = scratch / "trial"
    trial.mkdir(exist_ok=True)
    found: list[Conflict] = []
    contents: dict[str, bytes] = {}
    parts = parse(file.name, file.content)
    for part in parts:
        before = plain_path(part.target_file if part.is_added_file else part.source_file)
        content = _lay_out(store, commit, before, trial)
        if part.is_added_file and content is not None:
            found.append(Conflict(file.name, before, pin, 0, "the pin has this file already"))
        elif not part.is_added_file and content is None:
            found.append(Conflict(file.name, before, pin, 0, "the pin has no such file"))
        elif content is not None:
            contents[_named(part)] = content
    said = _try(file, trial)
    rejected = _rejected(said)
    for part in parts:
        path = _named(part)
        for number in rejected.get(path, ()):
            content = contents.get(path)
            if content is not None and number <= len(part):
                hunk = part[number - 1]
                found.append(
                    _compare(file.name, path, pin=pin, number=number, hunk=hunk, content=content)
                )
    if not found:
        errors = [
            row.removeprefix("error: ") for row in said.splitlines() if row.startswith("error: ")
        ]
        path = _named(parts[0]) if len(parts) else "the patch"
        found.append(Conflict(file.name, path, pin, 0, (errors or ["git gives no reason"])[0]))
    return tuple(found)


def _named(part: PatchedFile) -> str:
    """Return the path by which `git apply` calls a part of a patch."""
    return plain_path(part.source_file if part.is_removed_file else part.target_file)


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


def _lay_out(store: Store, commit: str, path: str, trial: Path) -> bytes | None:
    """Write one file of a commit into the trial folder; None when it has no such file."""
    found = store.resolve(f"{commit}:{path}")
    if found is None:
        return None
    content = store.read(found)
    target = trial / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return content


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
    name: str, path: str, *, pin: str, number: int, hunk: Hunk, content: bytes
) -> Conflict:
    """Put the three sides of a rejected hunk together."""
    expected = [_readable(line.value) for line in hunk.source_lines()]
    wanted = [_readable(line.value) for line in hunk.target_lines()]
    have = content.decode("utf-8", "replace").splitlines()
    start = nearest(have, expected, hunk.source_start - 1)
    return Conflict(
        patch_file=name,
        path=path,
        pin=pin,
        hunk=number,
        why=f"the lines that it expects at line {hunk.source_start} are not there",
        line=start + 1,
        expected=tuple(expected),
        found=tuple(have[start : start + len(expected)]),
        wanted=tuple(wanted),
    )


def _readable(text: str) -> str:
    """Turn the Latin-1 reading of bytes into text for a person."""
    return text.rstrip("\n").encode("latin-1").decode("utf-8", "replace")


def nearest(have: Sequence[str], expected: Sequence[str], hint: int) -> int:
    """Return the index in `have` where most of the expected lines stand.

    Args:
        have: The lines of the file.
        expected: The lines that should be there.
        hint: The index where the patch says that they are; decides between equals.
    """
    width = len(expected)
    wanted = Counter(line.strip() for line in expected if line.strip())
    stripped = [line.strip() for line in have]

    def score(start: int) -> tuple[int, int]:
        window = Counter(stripped[start : start + width])
        return (sum((window & wanted).values()), -abs(start - hint))

    last = max(0, len(have) - width)
    return max(range(last + 1), key=score, default=0)
