"""Applying the files of a patch in the object store, on a private index.

One `git apply --cached` takes all patches that share no path; one `git fast-import` makes the
commits of a series.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import CommandError, QueueError
from contribbot.git.patch_format import (
    AGAIN,
    Mail,
    named_paths,
    parse,
    plain_path,
    read_mail,
    unquote,
)
from contribbot.git.repository import (
    FOLDER,
    GONE,
    NOTHING,
    NewCommit,
    Store,
    find,
    git_environment,
    write_commits,
)
from contribbot.model.lifecycle import Side
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from git import Blob, Submodule, Tree
    from unidiff.patch import Hunk, PatchedFile

_COMMITTER: Final = b"contribbot <contribbot@localhost>"
#: git format-patch writes three lines of context; fewer is a guess that must be said.
_CONTEXTS: Final = (3, 2, 1)
_PATCH: Final = re.compile(
    r"^(?:Checking|Applying) patch (?:.* => )?(?P<path>.*?)(?: with \d+ rejects?)?\.\.\.$"
)
_REJECTED: Final = re.compile(r"^Rejected hunk #(?P<hunk>\d+)\.$")
_OFFSET: Final = re.compile(
    r"^Hunk #(?P<hunk>\d+) succeeded at (?P<line>\d+) \(offset (?P<offset>-?\d+) lines?\)\.$"
)
_FUZZ: Final = re.compile(
    r"^Context reduced to \((?P<before>\d+)/(?P<after>\d+)\) to apply fragment at (?P<line>\d+)$"
)


@dataclass(frozen=True)
class Conflict:
    """One hunk, or one whole file, that does not fit."""

    patch_file: str
    path: str
    #: The base, as people call it.
    pin: str
    #: Number of the hunk in that file, from 1; 0 when the whole file is the problem.
    hunk: int
    why: str
    #: Where the nearest place in the pin's file starts, from 1; 0 when there is none.
    line: int = 0
    #: What the patch expects to find (context and removed lines).
    expected: tuple[str, ...] = ()
    #: What the pin has at the nearest place.
    found: tuple[str, ...] = ()
    #: What the patch wants there instead (context and added lines).
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
class Adjustment:
    """Something that git had to allow for so that a hunk fits."""

    path: str
    #: Where the hunk went, from 1.
    line: int
    #: Lines between that and where the patch says; 0 for fuzz.
    offset: int
    #: Lines of context that did not match and were ignored.
    fuzz: int

    @property
    def phrase(self) -> str:
        """Say it in one phrase."""
        if self.fuzz:
            return f"{self.path}:{self.line} with fuzz {self.fuzz}"
        return f"{self.path}:{self.line} at offset {self.offset:+d}"


@dataclass(frozen=True)
class Applied:
    """One patch file as a commit."""

    file: str
    subject: str
    message: str
    commit: str
    tree: str
    #: What did not fit exactly.
    adjustments: tuple[Adjustment, ...]


@dataclass(frozen=True)
class Series:
    """The commits of patch files applied in order."""

    base: str
    applied: tuple[Applied, ...]
    #: Why the next one did not apply; empty when all did.
    conflicts: tuple[Conflict, ...]

    @property
    def commit(self) -> str:
        """The last commit."""
        return self.applied[-1].commit if self.applied else self.base


#: What git says of a file in place of a folder that keeps files.
_IN_THE_WAY: Final = "unable to add cache entry"
#: How many paths go into one command.
_ARGUMENTS: Final = 4000
#: Mode and blob of a path; a path that is not there has the mode `000000`.
Entry = tuple[str, str]


class Index:
    """A private index that has of a commit what diffs can touch, however large its tree is."""

    def __init__(self, store: Store, commit: str, paths: Collection[str], file: Path) -> None:
        self._store = store
        self._env = {"GIT_INDEX_FILE": str(file)}
        # A file where a folder must be is in the way, and must be there to be so.
        above = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"."}
        self._entries: dict[str, Entry] = {}
        # All that is in a folder that a file may replace; git lists a folder or what is in it.
        folders = sorted(above & set(paths))
        for path, mode, blob in self._listed(commit, sorted({*paths, *above})):
            if mode == FOLDER:
                folders += [path] if path in paths else []
            else:
                self._entries[path] = (mode, blob)
        for path, mode, blob in self._listed(commit, folders, "-r"):
            self._entries[path] = (mode, blob)
        rows = [f"{mode} {blob}\t{path}\0" for path, (mode, blob) in self._entries.items()]
        stdin = "".join(rows).encode("utf-8", "surrogateescape")
        file.unlink(missing_ok=True)
        store.git("update-index", "-z", "--index-info", stdin=stdin, env=self._env)

    def apply(self, diff: bytes, *options: str) -> process.Completed:
        """Apply a diff; the index stays as it is when it does not fit."""
        return self._store.git(
            "apply", "--cached", "--verbose", "--whitespace=nowarn", *options, "-",
            stdin=diff, env=self._env, accept=(0, 1, 128),
        )  # fmt: skip

    def changes(self) -> dict[str, Entry]:
        """Return the entries of the paths that have changed since the last call."""
        said = self._store.git("ls-files", "--stage", "-z", env=self._env).stdout
        now: dict[str, Entry] = {}
        for row in said.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            head, _, path = row.partition("\t")
            mode, blob, _ = head.split(" ")
            now[path] = (mode, blob)
        before, self._entries = self._entries, now
        gone = dict.fromkeys(before.keys() - now.keys(), (GONE, NOTHING))
        return gone | {path: entry for path, entry in now.items() if before.get(path) != entry}

    def _listed(
        self, commit: str, paths: Sequence[str], *options: str
    ) -> Iterator[tuple[str, str, str]]:
        """Yield path, mode and id of what a commit has at some paths."""
        for start in range(0, len(paths), _ARGUMENTS):
            some = paths[start : start + _ARGUMENTS]
            said = self._store.git("ls-tree", "-z", *options, commit, "--", *some).stdout
            for row in said.decode("utf-8", "surrogateescape").split("\0")[:-1]:
                head, _, path = row.partition("\t")
                mode, _, blob = head.split(" ")
                yield path, mode, blob


@dataclass(frozen=True)
class _Fitted:
    """A patch that fits: the entries that it sets, and what git allowed for."""

    mail: Mail
    entries: dict[str, Entry]
    adjustments: tuple[Adjustment, ...]


def apply_series(
    store: Store, base: str, files: Sequence[PatchFile], *, pin: str, scratch: Path
) -> Series:
    """Apply patch files in order, each as one commit as `git am` would make it.

    Author, date and message come from the patch; the committer is contribbot at
    the author's date, so that the same series gives the same commit ids
    everywhere. Call it inside `store.exclusive()`.
    """
    mails: list[Mail] = []
    unreadable: QueueError | None = None
    for file in files:
        try:
            mails.append(read_mail(file))
        except QueueError as error:
            # Those before it are tried first: one may be the reason.
            unreadable = error
            break
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        paths = {path for mail in mails for path in named_paths(mail.diff)}
        index = Index(store, base, paths, folder / "index")
        fitted: list[_Fitted] = []
        for group in _groups(mails):
            done = _apply(index, group)
            fitted += done
            if len(done) < len(group):
                break
        applied = _commit(store, base, fitted)
        conflicts: tuple[Conflict, ...] = ()
        if len(fitted) < len(mails):
            tip = applied[-1].commit if applied else base
            conflicts = _explain(store, tip, mails[len(fitted)], pin=pin, trial=folder / "trial")
    if unreadable is not None and not conflicts:
        raise unreadable
    return Series(base, tuple(applied), conflicts)


def _groups(mails: Sequence[Mail]) -> Iterator[list[Mail]]:
    """Yield runs of patches of which no two name the same path.

    `git apply` gets the rest wrong: five patches of a file, then its rename, then a patch under
    the new name, all in one call, end well and make another tree.
    """
    group: list[Mail] = []
    known: set[str] = set()
    above: set[str] = set()
    for mail in mails:
        paths = named_paths(mail.diff)
        folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        if group and (known & paths or known & folders or above & paths):
            yield group
            group, known, above = [], set(), set()
        group.append(mail)
        known |= paths
        above |= folders
    if group:
        yield group


def _apply(index: Index, mails: Sequence[Mail]) -> list[_Fitted]:
    """Apply patches that share no path, up to the first that does not fit."""
    diff = b"".join(mail.diff for mail in mails)
    for context in _CONTEXTS[: 1 if len(mails) > 1 else None]:
        done = index.apply(diff, f"-C{context}")
        said = done.stderr.decode("utf-8", "replace")
        if done.returncode == 0:
            return _share_out(mails, index.changes(), _adjustments(said))
        # 1: it does not fit, or a file would be where a folder is; else git cannot read it.
        fits_not = done.returncode == 1 or _IN_THE_WAY in said
        if len(mails) == 1 and (not fits_not or "corrupt patch" in said):
            raise QueueError(f"{mails[0].file}: {said.strip().splitlines()[-1]}", hint=AGAIN)
    fitted: list[_Fitted] = []
    for mail in mails if len(mails) > 1 else ():
        alone = _apply(index, [mail])
        if not alone:
            break
        fitted += alone
    return fitted


def _share_out(
    mails: Sequence[Mail], entries: dict[str, Entry], adjustments: Sequence[Adjustment]
) -> list[_Fitted]:
    """Give each patch the entries of the paths that it names."""
    fitted: list[_Fitted] = []
    for mail in mails:
        paths = named_paths(mail.diff) if len(mails) > 1 else entries
        own = {path: entry for path, entry in entries.items() if path in paths}
        if not own:
            raise QueueError(f"{mail.file}: it changes nothing", hint=AGAIN)
        allowed = tuple(one for one in adjustments if len(mails) == 1 or one.path in paths)
        fitted.append(_Fitted(mail, own, allowed))
    return fitted


def _adjustments(said: str) -> list[Adjustment]:
    """Read what `git apply --verbose` says that it allowed for."""
    found: list[Adjustment] = []
    path = ""
    for row in said.splitlines():
        if patch := _PATCH.match(row):
            path = unquote(patch["path"].encode()).decode("utf-8", "surrogateescape")
        elif offset := _OFFSET.match(row):
            found.append(Adjustment(path, int(offset["line"]), int(offset["offset"]), 0))
        elif fuzz := _FUZZ.match(row):
            ignored = max(_CONTEXTS) - min(int(fuzz["before"]), int(fuzz["after"]))
            # The offset that git gives just before is that of the shortened hunk: no news.
            if found and (found[-1].path, found[-1].line) == (path, int(fuzz["line"])):
                found.pop()
            found.append(Adjustment(path, int(fuzz["line"]), 0, ignored))
    return found


def _commit(store: Store, base: str, fitted: Sequence[_Fitted]) -> list[Applied]:
    """Make a commit of each patch."""
    commits = [
        NewCommit(
            "" if number else base,
            b"%s %s" % (one.mail.author, one.mail.date.encode()),
            b"%s %s" % (_COMMITTER, one.mail.date.encode()),
            one.mail.message.encode(),
            after=number - 1,
            entries=one.entries,
        )
        for number, one in enumerate(fitted)
    ]
    try:
        # Dates as mails have them, read by the code that reads them for `git am`.
        written = write_commits(store, commits, dates="rfc2822")
    except CommandError as error:
        # The date of a patch: all else is contribbot's own.
        undated = next((one.mail for one in fitted if f'"{one.mail.date}"' in error.stderr), None)
        if undated is None:
            raise
        raise QueueError(
            f"{undated.file}: invalid date format: {undated.date}", hint=AGAIN
        ) from error
    return [
        Applied(one.mail.file, one.mail.subject, one.mail.message, commit, tree, one.adjustments)
        for one, (commit, tree) in zip(fitted, written, strict=True)
    ]


def _explain(
    store: Store, commit: str, mail: Mail, *, pin: str, trial: Path
) -> tuple[Conflict, ...]:
    """Find every hunk of a patch that does not fit a commit."""
    try:
        parts = list(parse(mail.file, mail.diff))
    except QueueError:
        # git could read it, or would have said so: some names are too odd for unidiff.
        parts = []
    trial.mkdir()
    found: list[Conflict] = []
    contents: dict[str, tuple[PatchedFile, list[str]]] = {}
    with store.open() as repo:
        tree = repo.commit(commit).tree
        for part in parts:
            before = plain_path(part.target_file if part.is_added_file else part.source_file)
            object_ = find(tree, before)
            if why := _misfit(object_, added=part.is_added_file):
                found.append(Conflict(mail.file, before, pin, 0, why))
            elif object_ is not None:
                content = object_.data_stream.read()
                named = plain_path(part.source_file if part.is_removed_file else part.target_file)
                contents[named] = part, content.decode("utf-8", "replace").splitlines()
                (trial / before).parent.mkdir(parents=True, exist_ok=True)
                (trial / before).write_bytes(content)
    said = _try(mail.diff, trial)
    path = ""
    for row in said.splitlines():
        if patch := _PATCH.match(row):
            path = unquote(patch["path"].encode()).decode("utf-8", "surrogateescape")
        elif (rejected := _REJECTED.match(row)) and path in contents:
            part, have = contents[path]
            number = int(rejected["hunk"])
            conflict = Conflict(mail.file, path, pin, number, "")
            found += [_compare(conflict, hunk, have) for hunk in part[number - 1 : number]]
    if not found:
        errors = [row for row in said.splitlines() if row.startswith("error: ")]
        why = errors[0].removeprefix("error: ") if errors else "git gives no reason"
        path = plain_path(parts[0].target_file) if parts else "the patch"
        found.append(Conflict(mail.file, path, pin, 0, why))
    return tuple(found)


def _misfit(object_: Blob | Tree | Submodule | None, *, added: bool) -> str:
    """Say why a patch cannot change what the pin has at a path, or nothing."""
    if object_ is None:
        return "" if added else "the pin has no such file"
    if object_.type == "blob":
        return "the pin has this file already" if added else ""
    return (
        "the pin has a folder there" if object_.type == "tree" else "the pin has a submodule there"
    )


def _try(diff: bytes, trial: Path) -> str:
    """Apply what fits in the trial folder, and return what git says."""
    done = process.run(
        [
            "git", "-c", "core.quotePath=false", "apply",
            "--reject", "--verbose", "--whitespace=nowarn", "-",
        ],
        cwd=trial,
        # Neither a repository around the scratch folder nor one in it concerns this.
        env=git_environment({"GIT_CEILING_DIRECTORIES": str(trial.parent)}),
        stdin=diff,
        accept=(0, 1, 128),
    )  # fmt: skip
    return done.stderr.decode("utf-8", "replace")


def _compare(conflict: Conflict, hunk: Hunk, have: Sequence[str]) -> Conflict:
    """Put the three sides of a rejected hunk together."""
    expected, wanted = (
        tuple(
            line.value.rstrip("\n").encode("latin-1").decode("utf-8", "replace") for line in lines
        )
        for lines in (hunk.source_lines(), hunk.target_lines())
    )
    start = nearest(have, expected, hunk.source_start - 1)
    return replace(
        conflict,
        why=f"the lines that it expects at line {hunk.source_start} are not there",
        line=start + 1,
        expected=expected,
        found=tuple(have[start : start + len(expected)]),
        wanted=wanted,
    )


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
