"""Applying the files of a patch in the object store, without a work tree.

The patches are read and applied in memory wherever their hunks fit exactly;
one process reads what they touch, and one writes all commits. `git apply` is
asked only about the rest, on an index that holds what the patch names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import MachineError, QueueError
from contribbot.git.patch_format import (
    Hunk,
    Mail,
    Part,
    author_line,
    lines_of,
    named_paths,
    parse,
    plain_path,
    read_diff,
    read_mail,
    unquote,
)
from contribbot.git.repository import Store, git_environment, object_id, quoted, read_objects
from contribbot.model.lifecycle import Side
from contribbot.model.patch import PatchFile

#: The mode of a folder's entry, as a tree object spells it.
FOLDER: Final = "40000"
_ID_BYTES: Final = 20

#: The entries of a folder, each as the bytes that the tree object has for it, in its order.
_Listing = dict[bytes, bytes]


@dataclass(frozen=True)
class Entry:
    """What a tree says of a path.

    Attributes:
        mode: `100644`, `100755`, `120000`, `160000`, or `40000` for a folder.
        blob: The object's id.
    """

    mode: str
    blob: str


@dataclass(frozen=True)
class Change:
    """One path that a commit changes.

    Attributes:
        path: The path.
        entry: What it is afterwards; None when it is gone.
        content: Its bytes where the store may not have them yet.
    """

    path: str
    entry: Entry | None
    content: bytes | None = None


class Overlay:
    """The tree of a commit, and changes to it."""

    def __init__(self, store: Store, commit: str) -> None:
        self._store = store
        self._commit = commit
        # Shared between forks: what the commit has, and the bytes of blobs.
        self._base: dict[str, _Listing | None] = {}
        self._contents: dict[str, bytes] = {}
        # This fork's own: folders that are different now, and those to be hashed anew.
        self._mine: dict[str, _Listing] = {}
        self._dirty: set[str] = set()
        self._root = ""

    def fork(self) -> Overlay:
        """Return another overlay with the same content; changes to one leave the other alone."""
        twin = Overlay(self._store, self._commit)
        twin._base, twin._contents = self._base, self._contents
        twin._mine = {folder: dict(listing) for folder, listing in self._mine.items()}
        twin._dirty = set(self._dirty)
        twin._root = self._root
        return twin

    def prefetch(self, paths: Iterable[str]) -> None:
        """Read all that the commit says about some paths, with one process."""
        wanted = dict.fromkeys(paths)
        folders = dict.fromkeys(folder for path in wanted for folder in _parents(path))
        missing = [folder for folder in folders if folder not in self._base]
        names = [f"{self._commit}:{folder}" for folder in missing]
        names += [f"{self._commit}:{path}" for path in wanted]
        found = read_objects(self._store, names)
        for folder, object_ in zip(missing, found, strict=False):
            tree = object_ is not None and object_.kind == "tree"
            self._base[folder] = _listing(object_.content) if object_ and tree else None
        for object_ in found[len(missing) :]:
            if object_ is not None and object_.kind == "blob":
                self._contents[object_.id] = object_.content

    def entry(self, path: str) -> Entry | None:
        """Return what a path is, or None when there is nothing."""
        folder, name = _split(path)
        listing = self._folder(folder)
        raw = listing.get(name) if listing else None
        if raw is None:
            return None
        mode, _, _ = raw.partition(b" ")
        return Entry(mode.decode(), raw[-_ID_BYTES:].hex())

    def blocker(self, path: str) -> str:
        """Return a file that lies where a folder on the way to `path` must be, or nothing."""
        for folder in _parents(path):
            if folder and (entry := self.entry(folder)) is not None and entry.mode != FOLDER:
                return folder
        return ""

    def first_in(self, folder: str) -> str:
        """Return the path of some file in a folder (not looking deeper than it must)."""
        listing = self._folder(folder) or {}
        for name in listing:
            path = f"{folder}/{name.decode('utf-8', 'surrogateescape')}"
            entry = self.entry(path)
            found = self.first_in(path) if entry and entry.mode == FOLDER else path
            if found:
                return found
        return ""

    def content(self, blob: str) -> bytes:
        """Return the bytes of a blob."""
        if blob not in self._contents:
            self.contents([blob])
        return self._contents[blob]

    def contents(self, blobs: Iterable[str]) -> None:
        """Read the bytes of blobs that are not known yet, with one process."""
        missing = [blob for blob in dict.fromkeys(blobs) if blob not in self._contents]
        for blob, object_ in zip(missing, read_objects(self._store, missing), strict=True):
            self._contents[blob] = object_.content if object_ else self._store.read(blob)

    def put(self, path: str, mode: str, content: bytes) -> Change:
        """Change a path to have some bytes, and return the change."""
        entry = Entry(mode, object_id("blob", content))
        self._contents[entry.blob] = content
        self.set(path, entry)
        return Change(path, entry, content)

    def set(self, path: str, entry: Entry | None) -> Change:
        """Change a path to be something that the store has, or nothing; return the change."""
        folder, name = _split(path)
        listing = self._own(folder)
        if entry is None:
            listing.pop(name, None)
        else:
            fresh = name not in listing
            listing[name] = _raw(entry, name)
            if fresh:
                self._mine[folder] = dict(sorted(listing.items(), key=_order))
        self._root = ""
        return Change(path, entry)

    def tree(self) -> str:
        """Return the id of the whole tree as it is now."""
        if self._root:
            return self._root
        folders = {folder for dirty in self._dirty for folder in (dirty, *_parents(dirty))}
        # The deepest first: a folder's entry is the id of what is in it.
        for folder in sorted(folders, key=_depth, reverse=True):
            content = b"".join(self._own(folder).values())
            made = object_id("tree", content)
            if not folder:
                self._root = made
            else:
                parent, name = _split(folder)
                above = self._own(parent)
                fresh = name not in above
                if not content:
                    # A file may have taken the place of a folder that lost all of its own.
                    if above.get(name, b"").startswith(FOLDER.encode() + b" "):
                        del above[name]
                else:
                    above[name] = _raw(Entry(FOLDER, made), name)
                    if fresh:
                        self._mine[parent] = dict(sorted(above.items(), key=_order))
        self._dirty.clear()
        if not self._root:
            self._root = object_id("tree", b"".join((self._folder("") or {}).values()))
        return self._root

    def _folder(self, folder: str) -> _Listing | None:
        """Return the entries of a folder; None when there is no such folder."""
        if folder in self._mine:
            return self._mine[folder]
        if folder not in self._base:
            (object_,) = read_objects(self._store, [f"{self._commit}:{folder}"])
            tree = object_ is not None and object_.kind == "tree"
            self._base[folder] = _listing(object_.content) if object_ and tree else None
        return self._base[folder]

    def _own(self, folder: str) -> _Listing:
        """Return the entries of a folder for changing them."""
        if folder not in self._mine:
            self._mine[folder] = dict(self._folder(folder) or {})
        self._dirty.add(folder)
        return self._mine[folder]


def _split(path: str) -> tuple[str, bytes]:
    folder, _, name = path.rpartition("/")
    return folder, name.encode("utf-8", "surrogateescape")


def _parents(path: str) -> list[str]:
    """Return the folders that a path lies in, the root (an empty string) last."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)] + [""]


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0


def _raw(entry: Entry, name: bytes) -> bytes:
    return entry.mode.encode() + b" " + name + b"\0" + bytes.fromhex(entry.blob)


def _order(item: tuple[bytes, bytes]) -> bytes:
    """Return the key by which git sorts: a folder as if its name ended with a slash."""
    name, raw = item
    return name + b"/" if raw.startswith(FOLDER.encode() + b" ") else name


def _listing(tree: bytes) -> _Listing:
    """Take a tree object apart."""
    found: _Listing = {}
    at = 0
    while at < len(tree):
        nul = tree.index(b"\0", at)
        end = nul + 1 + _ID_BYTES
        found[tree[tree.index(b" ", at) + 1 : nul]] = tree[at:end]
        at = end
    return found


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


_SUBMODULE: Final = "160000"


def apply_parts(tree: Overlay, parts: Sequence[Part]) -> list[Change] | None:
    """Apply a diff to a tree, all of it or nothing."""
    results: list[tuple[str, str, bytes | None]] = []
    for part in parts:
        result = _result(tree, part)
        if result is None:
            return None
        results.append((part.path, *result))
    if _clash([path for path, _, content in results if content is not None]):
        return None
    # What goes first: a folder may come where a file was.
    gone = [tree.set(path, None) for path, _, content in results if content is None]
    return gone + [
        tree.put(path, mode, content) for path, mode, content in results if content is not None
    ]


def _result(tree: Overlay, part: Part) -> tuple[str, bytes | None] | None:
    """Return mode and bytes that a path gets (no bytes: it goes); None when it does not fit."""
    entry = tree.entry(part.path)
    if part.added:
        free = entry is None and not tree.blocker(part.path)
        return (part.new_mode, _side(part.hunks, new=True)) if free else None
    if entry is None or entry.mode in {FOLDER, _SUBMODULE}:
        return None
    if part.old_mode not in {"", entry.mode}:
        return None
    old = tree.content(entry.blob)
    if part.deleted:
        return ("", None) if _side(part.hunks, new=False) == old else None
    content = apply_hunks(part.hunks, old)
    return None if content is None else (part.new_mode or entry.mode, content)


def apply_hunks(hunks: Sequence[Hunk], content: bytes) -> bytes | None:
    """Apply hunks where they say that they go."""
    have = lines_of(content)
    made: list[bytes] = []
    at = 0
    for hunk in hunks:
        start = hunk.start - 1
        end = start + len(hunk.old)
        if start < at or have[start:end] != hunk.old:
            return None
        made += have[at:start]
        # git goes by the line after the change: both must say the same.
        if hunk.goes - 1 != len(made):
            return None
        # Without context behind it, a hunk belongs at the end of the file.
        if not hunk.trailing and end != len(have):
            return None
        made += hunk.new
        at = end
    made += have[at:]
    return b"".join(made)


def _side(hunks: Sequence[Hunk], *, new: bool) -> bytes:
    """Return one side of hunks as bytes."""
    return b"".join(line for hunk in hunks for line in (hunk.new if new else hunk.old))


def _clash(paths: Sequence[str]) -> bool:
    """Say whether one path is to be a file and a folder."""
    files = set(paths)
    return any(
        path[:cut] in files for path in paths for cut, sign in enumerate(path) if sign == "/"
    )


class Indexed:
    """An index with the paths of one diff."""

    def __init__(self, store: Store, tree: Overlay, diff: bytes, index: Path) -> None:
        self._store = store
        self._tree = tree
        self._env = {"GIT_INDEX_FILE": str(index)}
        self._before: dict[str, Entry] = {}
        paths = {path for path in named_paths(diff) if "\0" not in path}
        tree.prefetch(paths)
        for path in sorted(paths):
            for known in (path, tree.blocker(path)):
                entry = tree.entry(known) if known else None
                if entry is not None and entry.mode == FOLDER:
                    # A file cannot come where a folder is: one file of it says so.
                    known = tree.first_in(known)  # noqa: PLW2901  what stands for the folder
                    entry = tree.entry(known) if known else None
                if entry is not None and known:
                    self._before[known] = entry
        rows = [_row(path, entry) for path, entry in sorted(self._before.items())]
        index.unlink(missing_ok=True)
        store.git("update-index", "-z", "--index-info", stdin=b"".join(rows), env=self._env)

    def apply(self, diff: bytes, *options: str) -> process.Completed:
        """Apply a diff to the index; nothing is changed when it does not fit."""
        return self._store.git(
            "apply", "--cached", "--verbose", "--whitespace=nowarn", *options, "-",
            stdin=diff, env=self._env, accept=(0, 1, 128),
        )  # fmt: skip

    def take(self) -> list[Change]:
        """Carry what changed in the index over to the tree, and return it."""
        said = self._store.git("ls-files", "--stage", "-z", env=self._env).stdout
        after: dict[str, Entry] = {}
        for row in said.split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, blob, _ = head.decode().split(" ")
            after[path.decode("utf-8", "surrogateescape")] = Entry(mode, blob)
        gone = [self._tree.set(path, None) for path in self._before if path not in after]
        return gone + [
            self._tree.set(path, entry)
            for path, entry in after.items()
            if self._before.get(path) != entry
        ]


def _row(path: str, entry: Entry) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b"%s %s\t%s\0" % (entry.mode.encode(), entry.blob.encode(), raw)


_ARGV: Final = (
    # Small objects that are thrown away soon: speed before size.
    "-c", "core.compression=1",
    "fast-import", "--done", "--quiet", "--date-format=raw-permissive", "--depth=0",
)  # fmt: skip
#: Only a name for fast-import to work with: no such ref is ever written.
_REF: Final = b"refs/contribbot/unwritten"


@dataclass(frozen=True)
class Commit:
    """A commit with one parent, before it is written.

    Attributes:
        tree: The id of its tree.
        parent: The id of its parent.
        author: Name, address, seconds and zone, as a commit has them.
        committer: The same of who commits.
        message: The message.
        changes: What is different in its tree from its parent's.
    """

    tree: str
    parent: str
    author: bytes
    committer: bytes
    message: bytes
    changes: tuple[Change, ...]

    @property
    def id(self) -> str:
        """The id that git gives to it."""
        head = b"tree %s\nparent %s\nauthor %s\ncommitter %s\n\n" % (
            self.tree.encode(), self.parent.encode(), self.author, self.committer,
        )  # fmt: skip
        return object_id("commit", head + self.message)


def committer(author: bytes) -> bytes:
    """Return contribbot as the committer, at the author's date."""
    return b"contribbot <contribbot@localhost>" + author[author.rindex(b">") + 1 :]


def write_commits(store: Store, commits: Sequence[Commit]) -> None:
    """Write commits, with their trees and blobs, that are not there yet.

    Call it inside `store.exclusive()`.
    """
    wanted = [one for one in {one.id: one for one in commits}.values() if not _loose(store, one.id)]
    if not wanted:
        return
    marks = {one.id: mark for mark, one in enumerate(wanted, start=1)}
    pieces: list[bytes] = []
    for one, mark in zip(wanted, marks.values(), strict=True):
        above = marks.get(one.parent)
        parent = f":{above}" if above else one.parent
        pieces.append(
            b"commit %s\nmark :%d\nauthor %s\ncommitter %s\ndata %d\n%s\nfrom %s\n"
            % (_REF, mark, one.author, one.committer, len(one.message), one.message,
               parent.encode())
        )  # fmt: skip
        # What goes first: a folder may stand where a file was.
        pieces += [_change(change) for change in sorted(one.changes, key=_stays)]
        pieces.append(b"\nget-mark :%d\n" % mark)
    # Forgets the branch, so that no ref is written.
    pieces.append(b"reset %s\n\ndone\n" % _REF)
    made = store.git(*_ARGV, stdin=b"".join(pieces), timeout=600.0).stdout.decode().split()
    if made != list(marks):
        raise MachineError(
            f"{store.path.name}: git wrote other commits than were asked for",
            hint="report this with the patch; nothing was changed",
        )


def _stays(change: Change) -> bool:
    return change.entry is not None


def _change(change: Change) -> bytes:
    """Return a change as fast-import reads it."""
    path = quoted(change.path)
    if change.entry is None:
        return b"D %s\n" % path
    mode = change.entry.mode.encode()
    if change.content is None:
        return b"M %s %s %s\n" % (mode, change.entry.blob.encode(), path)
    return b"M %s inline %s\ndata %d\n%s\n" % (mode, path, len(change.content), change.content)


def _loose(store: Store, commit_id: str) -> bool:
    """Say whether a commit lies in the store by itself; of those in packs git knows."""
    return (store.path / "objects" / commit_id[:2] / commit_id[2:]).is_file()


_CHECKING: Final = re.compile(r"^Checking patch (?P<path>.*?)\.\.\.$")
_OFFSET: Final = re.compile(
    r"^Hunk #(?P<hunk>\d+) succeeded at (?P<line>\d+) \(offset (?P<offset>-?\d+) lines?\)\.$"
)
_FUZZ: Final = re.compile(
    r"^Context reduced to \((?P<before>\d+)/(?P<after>\d+)\) to apply fragment at (?P<line>\d+)$"
)
#: git format-patch writes three lines of context; fewer is a guess that must be said.
_CONTEXTS: Final = (3, 2, 1)


@dataclass(frozen=True)
class Adjustment:
    """Something that git had to allow for so that a hunk fits.

    Attributes:
        path: The file.
        line: Where the hunk went, from 1.
        offset: Lines between that and where the patch says; 0 for fuzz.
        fuzz: Lines of context that did not match and were ignored.
    """

    path: str
    line: int
    offset: int
    fuzz: int

    @property
    def phrase(self) -> str:
        """Say it in one phrase."""
        if self.fuzz:
            return f"{self.path}:{self.line} with fuzz {self.fuzz}"
        return f"{self.path}:{self.line} at offset {self.offset:+d}"


@dataclass(frozen=True)
class Applied:
    """One patch file as a commit.

    Attributes:
        file: The patch file's name.
        subject: The commit's subject.
        message: The commit's whole message.
        commit: The commit's id.
        tree: Its tree.
        adjustments: What did not fit exactly.
    """

    file: str
    subject: str
    message: str
    commit: str
    tree: str
    adjustments: tuple[Adjustment, ...]


@dataclass(frozen=True)
class Series:
    """What came of applying patch files in order.

    Attributes:
        base: The commit that they were applied on.
        applied: The commits that were made.
        conflicts: Why the next one did not apply; empty when all did.
    """

    base: str
    applied: tuple[Applied, ...]
    conflicts: tuple[Conflict, ...]

    @property
    def commit(self) -> str:
        """The last commit."""
        return self.applied[-1].commit if self.applied else self.base


def apply_series(
    store: Store, base: str, files: Sequence[PatchFile], *, pin: str, scratch: Path
) -> Series:
    """Apply patch files in order, each as one commit as `git am` would make it.

    Author, date and message come from the patch; the committer is contribbot at
    the author's date, so that the same series gives the same commit ids
    everywhere. Call it inside `store.exclusive()`.
    """
    read, unreadable = _read(store, files, scratch)
    run = _Run(store, base, pin, scratch)
    run.tree.prefetch(part.path for one in read for part in one.parts or ())
    for one in read:
        conflicts = run.apply(one)
        if conflicts:
            return Series(base, tuple(run.applied), conflicts)
    if unreadable is not None:
        raise unreadable
    run.write()
    return Series(base, tuple(run.applied), ())


@dataclass(frozen=True)
class _Read:
    """A patch file, read."""

    file: PatchFile
    mail: Mail
    parts: tuple[Part, ...] | None


def _read(
    store: Store, files: Sequence[PatchFile], scratch: Path
) -> tuple[list[_Read], QueueError | None]:
    """Read patch files up to the first that cannot be read."""
    found: list[_Read] = []
    for file in files:
        try:
            mail = read_mail(store, file, scratch)
        except QueueError as error:
            # Those before it are tried first: one may be the reason.
            return found, error
        # What was taken out of the mail: it may have been encoded for the way.
        found.append(_Read(PatchFile(file.name, mail.diff), mail, read_diff(mail.diff)))
    return found, None


class _Run:
    """The tree, and the commits on the way."""

    def __init__(self, store: Store, base: str, pin: str, scratch: Path) -> None:
        self.tree = Overlay(store, base)
        self.applied: list[Applied] = []
        self._store = store
        self._tip = base
        self._pin = pin
        self._scratch = scratch
        self._commits: list[Commit] = []

    def apply(self, one: _Read) -> tuple[Conflict, ...]:
        """Apply a patch; return why it does not apply, or nothing."""
        adjustments: tuple[Adjustment, ...] = ()
        changes = apply_parts(self.tree, one.parts) if one.parts else None
        if changes is None:
            outcome = self._ask_git(one.file)
            if outcome is None:
                return explain(
                    self._store, self._tip, one.file, pin=self._pin, scratch=self._scratch
                )
            changes, adjustments = outcome
        author = author_line(self._store, one.file.name, one.mail)
        message = one.mail.stored_message
        made = Commit(
            self.tree.tree(), self._tip, author, committer(author), message, tuple(changes)
        )
        self._commits.append(made)
        self._tip = made.id
        self.applied.append(
            Applied(
                one.file.name, one.mail.subject, one.mail.message, made.id, made.tree, adjustments
            )
        )
        return ()

    def write(self) -> None:
        """Write the commits that were made so far."""
        write_commits(self._store, self._commits)
        self._commits.clear()

    def _ask_git(self, file: PatchFile) -> tuple[list[Change], tuple[Adjustment, ...]] | None:
        """Apply with `git apply`; with less context only if need be."""
        # git must see what the patches before it made.
        self.write()
        index = Indexed(self._store, self.tree, file.content, self._scratch / "index")
        for context in _CONTEXTS:
            done = index.apply(file.content, f"-C{context}")
            said = done.stderr.decode("utf-8", "replace")
            if done.returncode == 0:
                return index.take(), _adjustments(said)
            if "corrupt patch" in said or "No valid patches" in said or done.returncode != 1:
                raise QueueError(
                    f"{file.name}: {said.strip().splitlines()[-1]}",
                    hint="write it again with `git format-patch`",
                )
        return None


def _adjustments(said: str) -> tuple[Adjustment, ...]:
    """Read what `git apply --verbose` says that it allowed for."""
    found: list[Adjustment] = []
    path = ""
    for row in said.splitlines():
        if checking := _CHECKING.match(row):
            path = checking["path"]
        elif offset := _OFFSET.match(row):
            found.append(Adjustment(path, int(offset["line"]), int(offset["offset"]), 0))
        elif fuzz := _FUZZ.match(row):
            ignored = max(_CONTEXTS) - min(int(fuzz["before"]), int(fuzz["after"]))
            # The offset that git gives just before is that of the shortened hunk: no news.
            if found and (found[-1].path, found[-1].line) == (path, int(fuzz["line"])):
                found.pop()
            found.append(Adjustment(path, int(fuzz["line"]), 0, ignored))
    return tuple(found)
