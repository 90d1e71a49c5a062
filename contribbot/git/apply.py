"""Apply patch files in a git store, on a private index, with few git processes."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import CommandError, QueueError
from contribbot.git.patch_format import AGAIN, Mail, parse, path_of, plain_path, read_mail, unquote
from contribbot.git.repository import GONE, NOTHING, NewCommit, Store, find, write_commits
from contribbot.model.lifecycle import ConflictSide
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from git import Blob, Submodule, Tree
    from unidiff.patch import Line, PatchedFile

_COMMITTER: Final = b"contribbot <contribbot@localhost>"
_PATCH: Final = re.compile(r"^(?:Checking|Applying) patch (?:.* => )?(?P<path>.*?)\.\.\.$")
_OFFSET: Final = re.compile(
    r"^Hunk #\d+ succeeded at (?P<line>\d+) \(offset (?P<offset>-?\d+) lines?\)\.$"
)
#: Git's words where the store lacks the blob that the diff's `index` line names.
_WITHOUT_BASE: Final = "lacks the necessary blob"


@dataclass(frozen=True)
class PatchPath:
    """A path in a patch file, with the names of the patch file and of the pin, for messages."""

    patch_file: str
    path: str
    pin: str

    def conflict(
        self, why: str, hunk: int = 0, line: int = 0, sides: Sequence[tuple[str, ...]] = ()
    ) -> ConflictSide:
        """Return a conflict at a hunk (0: the whole file); `line`: the file's best match."""
        what = f"hunk {hunk} of {self.path}" if hunk else self.path
        expected, found, wanted = sides or ((), (), ())
        return ConflictSide(
            headline=f"{self.patch_file}: {what} does not apply to {self.pin}: {why}",
            patch_file=self.patch_file,
            path=self.path,
            hunk=hunk,
            why=why,
            line=line,
            expected=expected,
            found=found,
            wanted=wanted,
        )


@dataclass(frozen=True)
class Adjustment:
    """A hunk that was applied at another line than the hunk's header says."""

    path: str
    #: The line at which the hunk was applied; the first line is 1.
    line: int
    offset: int

    @property
    def phrase(self) -> str:
        """A phrase with the hunk's path, line and offset."""
        return f"{self.path}:{self.line} at offset {self.offset:+d}"


@dataclass(frozen=True)
class Applied:
    """A patch file that was applied, and its commit."""

    file: str
    subject: str
    message: str
    commit: str
    tree: str
    adjustments: tuple[Adjustment, ...]
    #: Whether git made a three-way merge, from the text on which the diff was made.
    merged: bool = False


@dataclass(frozen=True)
class Series:
    """The commits of patch files that were applied in order, and the conflicts, if any."""

    base: str
    applied: tuple[Applied, ...] = ()
    #: Why the next patch file did not apply; empty: all files applied.
    conflicts: tuple[ConflictSide, ...] = ()
    #: Why nothing was tried, such as a dependency that does not apply.
    fault: str = ""

    @property
    def why(self) -> str:
        """Why not all patch files apply; empty: all apply."""
        return self.conflicts[0].headline if self.conflicts else self.fault

    @property
    def commit(self) -> str:
        """The commit of the last patch file; the base, if no file was applied."""
        return self.applied[-1].commit if self.applied else self.base

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits, one for each patch file."""
        return tuple(applied.commit for applied in self.applied)


#: Mode and blob of a path; a path that does not exist has the mode `000000`.
Entry = tuple[str, str]
_FOLDER: Final = "040000"


class Index:
    """A private git index with all files of a commit, or only the files at some paths."""

    def __init__(
        self, store: Store, commit: str, file: Path, paths: Collection[str] | None = None
    ) -> None:
        self._store = store
        self._env = {"GIT_INDEX_FILE": str(file), "GIT_LITERAL_PATHSPECS": "1"}
        self.entries: dict[str, Entry] = {}
        if paths is None:
            store.git("read-tree", commit, env=self._env)
            return
        # `git apply` refuses a path that leads out of the tree.
        named = {path for path in paths if {"", ".", ".."}.isdisjoint(path.split("/"))}
        met = named.union(*map(_folders, named))
        rows = self._list("ls-tree", "-z", "-t", commit, "--", *sorted(met)) if met else {}
        if any(path in named and mode == _FOLDER for path, (mode, *_) in rows.items()):
            # A patch may put a file in place of a folder: git must know all files of the folder.
            rows = self._list("ls-tree", "-z", "-r", commit)
        files = {path: (head[0], head[2]) for path, head in rows.items() if head[0] != _FOLDER}
        self.put(files)

    def put(self, entries: Mapping[str, Entry]) -> None:
        """Put files into the index: the mode and blob of each path."""
        lines = "".join(f"{mode} {blob}\t{path}\0" for path, (mode, blob) in entries.items())
        if lines:
            stdin = os.fsencode(lines)
            self._store.git("update-index", "-z", "--index-info", stdin=stdin, env=self._env)
        self.entries |= {path: entry for path, entry in entries.items() if entry[0] != GONE}

    def _list(self, *args: str) -> dict[str, list[str]]:
        """Run a git command that lists files; return, by path, the fields before the path."""
        listed = os.fsdecode(self._store.git(*args, env=self._env).stdout)
        rows = (row.partition("\t") for row in listed.split("\0")[:-1])
        return {path: head.split(" ") for head, _, path in rows}

    def apply(self, diff: bytes, *options: str) -> process.Completed:
        """Apply a diff; without `--3way`, a diff that does not fit leaves the index unchanged."""
        command = ("apply", "--cached", "--verbose", "--whitespace=nowarn", *options, "-")
        return self._store.git(*command, stdin=diff, env=self._env, accept=(0, 1, 128))

    def changes(self) -> dict[str, Entry]:
        """Return mode and blob of each path that has changed since the last call."""
        before = self.entries
        rows = self._list("ls-files", "-z", "--stage")
        self.entries = {path: (mode, blob) for path, (mode, blob, _) in rows.items()}
        now = dict.fromkeys(before, (GONE, NOTHING)) | self.entries
        return {path: entry for path, entry in now.items() if before.get(path) != entry}


@dataclass(frozen=True)
class _Fitted:
    """A patch file that fits: the new mode and blob by path, and the offsets of hunks."""

    mail: Mail
    entries: dict[str, Entry]
    adjustments: tuple[Adjustment, ...]
    merged: bool = False


def apply_series(
    store: Store,
    base: str,
    files: Sequence[PatchFile],
    *,
    pin: str,
    merge: bool = False,
) -> Series:
    """Apply patch files as `git am` does, or with `merge` as `git am -3`, on a locked store.

    A hunk goes to the line in the patch, or to the only place that has the hunk's lines. Call this
    in `store.exclusive()`. The commits have the same ids on every machine.
    """
    mails = [read_mail(file) for file in files]
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        paths = {path for mail in mails for path in mail.paths}
        index = Index(store, base, Path(name) / "index", paths)
        fitted: list[_Fitted] = []
        reason = ""
        for mail in mails:
            reason = _apply(store, index, mail, fitted, "")
            if reason and merge:
                reason = _apply(store, index, mail, fitted, reason)
            if reason:
                break
        applied = _commit(store, base, fitted)
    conflicts: tuple[ConflictSide, ...] = ()
    if reason:
        tip = applied[-1].commit if applied else base
        conflicts = _explain(store, tip, mails[len(fitted)], reason, pin=pin)
    return Series(base, tuple(applied), conflicts)


def _folders(path: str) -> set[str]:
    return {str(folder) for folder in PurePosixPath(path).parents if folder.name}


def _apply(store: Store, index: Index, mail: Mail, fitted: list[_Fitted], reason: str) -> str:
    """Apply a patch, with --3way after a failure (`reason`); return the failure, or empty."""
    before = index.entries
    done = index.apply(mail.diff, *(["--3way"] if reason else []))
    words = done.stderr.decode("utf-8", "replace")
    adjustments = _adjustments(words)
    if done.returncode == 0 and not _is_ambiguous(store, before, mail, adjustments):
        changed = index.changes()
        if changed and not (reason and _WITHOUT_BASE in words):
            fitted.append(_Fitted(mail, changed, tuple(adjustments), merged=bool(reason)))
            return ""
        if not reason:
            raise QueueError(f"{mail.file}: it changes nothing", hint=AGAIN)
    if reason or done.returncode == 0:
        index.put(dict.fromkeys(mail.paths, (GONE, NOTHING)))
        index.entries = dict(before)
        index.put({path: before[path] for path in mail.paths & before.keys()})
    # Status 0 or 1: no fit. Otherwise git cannot read the patch.
    if done.returncode not in {0, 1} or "corrupt patch" in words:
        raise QueueError(f"{mail.file}: {words.strip().splitlines()[-1]}", hint=AGAIN)
    errors = [row for row in words.splitlines() if row.startswith("error: ")]
    first = errors[0].removeprefix("error: ") if errors else "it fits at several places"
    return reason or first


def _is_ambiguous(
    store: Store, before: Mapping[str, Entry], mail: Mail, moved: Sequence[Adjustment]
) -> bool:
    """Return whether git moved a hunk in a file where some hunk fits at several places."""
    paths = {item.path for item in moved}
    for part in parse(mail.file, mail.diff) if paths else ():
        if path_of(part) in paths:
            text = store.read(before[plain_path(part.source_file)][1])
            have = text.decode("utf-8", "replace").split("\n")
            if any(len(_found(hunk.source_lines(), have)) > 1 for hunk in part):
                return True
    return False


def _adjustments(words: str) -> list[Adjustment]:
    """Return the moved hunks that `git apply --verbose` names in its messages."""
    allowed: list[Adjustment] = []
    path = ""
    for row in words.splitlines():
        if patch := _PATCH.match(row):
            path = unquote(patch["path"].encode()).decode("utf-8", "surrogateescape")
        elif offset := _OFFSET.match(row):
            allowed.append(Adjustment(path, int(offset["line"]), int(offset["offset"])))
    return allowed


def _commit(store: Store, base: str, fitted: Sequence[_Fitted]) -> list[Applied]:
    commits = [
        NewCommit(
            "" if number else base,
            b"%s %s" % (patch.mail.author, patch.mail.date.encode()),
            b"%s %s" % (_COMMITTER, patch.mail.date.encode()),
            patch.mail.message.encode(),
            after=number - 1,
            entries=patch.entries,
        )
        for number, patch in enumerate(fitted)
    ]
    try:
        # The dates are in the form of mails; git parses them as `git am` does.
        written = write_commits(store, commits, dates="rfc2822")
    except CommandError as error:
        # Only a patch's date can be wrong: contribbot wrote everything else.
        for mail in (patch.mail for patch in fitted):
            if f'"{mail.date}"' in error.stderr:
                raise QueueError(
                    f"{mail.file}: invalid date format: {mail.date}", hint=AGAIN
                ) from error
        raise
    return [
        Applied(
            mail.file, mail.subject, mail.message, commit, tree, patch.adjustments, patch.merged
        )
        for patch, (commit, tree) in zip(fitted, written, strict=True)
        for mail in (patch.mail,)
    ]


def _explain(
    store: Store, commit: str, mail: Mail, reason: str, *, pin: str
) -> tuple[ConflictSide, ...]:
    """Return a conflict for each hunk of a patch that does not fit a commit."""
    try:
        parts = list(parse(mail.file, mail.diff))
    except QueueError:
        # git could read the patch; unidiff cannot read some odd file names.
        return (PatchPath(mail.file, "the patch", pin).conflict(reason),)
    conflicts: list[ConflictSide] = []
    with store.open() as repo:
        tree = repo.commit(commit).tree
        for part in parts:
            path = plain_path(part.target_file if part.is_added_file else part.source_file)
            entry = find(tree, path)
            if why := _misfit(tree, path, entry, added=part.is_added_file):
                conflicts.append(PatchPath(mail.file, path, pin).conflict(why))
            elif entry is not None:
                have = entry.data_stream.read().decode("utf-8", "replace").split("\n")
                conflicts += _compare(PatchPath(mail.file, path_of(part), pin), part, have)
    if conflicts:
        return tuple(conflicts)
    path = plain_path(parts[0].target_file) if parts else "the patch"
    return (PatchPath(mail.file, path, pin).conflict(reason),)


def _misfit(
    tree: Tree, path: str, entry: Blob | Tree | Submodule | None, *, added: bool
) -> str | None:
    """Return why a patch cannot change or add a path in the pin; None: the patch can."""
    if entry is None and not added and find(tree, top := path.partition("/")[0]) is None:
        return f"the pin has no {top} at all; a git source has it (docs/recipes.md)"
    if entry is None:
        return None if added else "the pin has no such file"
    if entry.type == "blob":
        return "the pin has this file already" if added else None
    return f"the pin has a {'folder' if entry.type == 'tree' else 'submodule'} there"


def _readable(lines: Sequence[str]) -> tuple[str, ...]:
    """Return unidiff's Latin-1 lines of a diff as UTF-8 text, without line ends."""
    return tuple(line.rstrip("\n").encode("latin-1").decode("utf-8", "replace") for line in lines)


def _found(lines: Iterable[Line], have: Sequence[str]) -> list[int]:
    """Return every index in a file's lines at which the lines of a hunk begin."""
    wanted = list(_readable([line.value for line in lines]))
    width = len(wanted)
    return [at for at in range(len(have) - width + 1) if have[at : at + width] == wanted]


def _compare(place: PatchPath, part: PatchedFile, have: Sequence[str]) -> Iterator[ConflictSide]:
    """Yield a conflict, with expected, found and new lines, for each hunk that does not apply."""
    places = [_found(hunk.source_lines(), have) for hunk in part]
    exact = all(hunk.source_start - 1 in at for hunk, at in zip(part, places, strict=True))
    for number, (hunk, at) in enumerate(zip(part, places, strict=True), start=1):
        if exact or len(at) == 1:
            continue
        expected = _readable([line.value for line in hunk.source_lines()])
        wanted = _readable([line.value for line in hunk.target_lines()])
        start = at[0] if at else _nearest(have, expected, hunk.source_start - 1)
        why = f"the lines that it expects at line {hunk.source_start} are not there"
        if at:
            lines = ", ".join(str(index + 1) for index in at)
            why = f"its lines have moved, and stand at {len(at)} places: {lines}"
        elif there := _found(hunk.target_lines(), have):
            start, why = there[0], f"already there: line {there[0] + 1} has what it makes"
        found = tuple(have[start : start + len(expected)])
        yield place.conflict(why, number, start + 1, (expected, found, wanted))


def _nearest(have: Sequence[str], expected: Sequence[str], hint: int) -> int:
    """Return the index in `have` where most expected lines follow; a tie: nearest to `hint`."""
    width = len(expected)
    wanted = Counter(line.strip() for line in expected if line.strip())
    stripped = [line.strip() for line in have]

    def score(start: int) -> tuple[int, int]:
        window = Counter(stripped[start : start + width])
        return (sum((window & wanted).values()), -abs(start - hint))

    last = max(0, len(have) - width)
    return max(range(last + 1), key=score, default=0)
