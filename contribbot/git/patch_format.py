"""Check, read and write patch files (mails as `git format-patch` writes), and export trees."""

from __future__ import annotations

import functools
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import QueueError
from contribbot.git.repository import Store, git_environment, read_commit, write_commits
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from unidiff.patch import PatchedFile, PatchSet

AGAIN: Final = "write it again with `git format-patch`"
#: The error for git's conflict marks in a file of a queue, and the hint for a person.
CONFLICT: Final = "a merge conflict"
BOTH_SIDES: Final = "keep what belongs there of both sides, and delete the marks"
#: The first characters of a diff's header lines.
_STRUCTURE: Final = (b"diff --git ", b"--- a/", b"+++ b/", b"@@ -")
_DIFF: Final = re.compile(rb"^diff --git ", re.MULTILINE)
#: Lines of a diff's header that name a path: after `---` and `+++`, or of a rename or copy.
_PREFIXED: Final = re.compile(rb"(?:--- |\+\+\+ )(?P<path>\"[^\n]*\"|[^\t\n]*)")
_NAMED: Final = re.compile(rb"(?:rename from |rename to |copy from |copy to )(?P<path>[^\n]*)")
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
_SINGLE: Final = dict(zip(b"ntrabfv", b"\n\t\r\a\b\f\v", strict=True))


def check_form(name: str, content: bytes) -> None:
    """Raise QueueError for a patch file that git would misread, or apply outside the tree."""
    rows = content.split(b"\n")
    for number, row in enumerate(rows, start=1):
        if row.endswith(b"\r") and (number == 1 or row.startswith(_STRUCTURE)):
            raise QueueError(
                f"{name}:{number}: CRLF line endings", hint=f"{AGAIN}, core.autocrlf off"
            )
        if row.startswith((b"<<<<<<< ", b">>>>>>> ")):
            hint = "take one side whole: git checkout --ours or --theirs"
            raise QueueError(f"{name}:{number}: {CONFLICT}", hint=hint)
    if rows[-1]:
        line = len(rows)
        raise QueueError(f"{name}:{line}: no newline at the end, so it may be cut off", hint=AGAIN)
    diff = _DIFF.search(content)
    if not diff:
        raise QueueError(f"{name}: no `diff --git` in it", hint=AGAIN)
    try:
        content[: diff.start()].decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise QueueError(f"{name}:{line}: the message is not UTF-8", hint=AGAIN) from error
    for path, line in paths(content).items():
        parts = path.lower().split("/")
        faults = {
            "leaves the tree": not {"..", ".", ""}.isdisjoint(parts),
            "is git's own": ".git" in parts,
            "is not UTF-8, or not printable": not path.isprintable(),
        }
        for fault in (fault for fault, is_so in faults.items() if is_so):
            raise QueueError(f"{name}:{line}: the path {path!a} {fault}", hint=AGAIN)


def paths(content: bytes) -> dict[str, int]:
    """Return every path in a patch's headers, and the number of the first line that names it."""
    lines: dict[str, int] = {}
    in_header = False
    rows = content.split(b"\n")
    # A diff of another program than git may have only the lines `---` and `+++`.
    bare = _DIFF.search(content) is None
    for number, (row, below) in enumerate(zip(rows, [*rows[1:], b""], strict=True), start=1):
        path = b""
        if bare and row.startswith(b"--- ") and below.startswith(b"+++ "):
            in_header = True
        if row.startswith(b"diff --git "):
            in_header = True
            # This line names one path twice; for a rename, later lines name both paths.
            first, second = row[11 : len(row) // 2 + 5], row[len(row) // 2 + 6 :]
            if first.replace(b"a/", b"b/", 1) == second:
                path = unquote(first)[2:]
        elif row.startswith(b"@@ "):
            in_header = False
        elif in_header and (prefixed := _PREFIXED.match(row)):
            path = unquote(prefixed["path"])
            if path.startswith((b"a/", b"b/")) or (bare and path != b"/dev/null"):
                path = path.partition(b"/")[2]
        elif in_header and (named := _NAMED.match(row)):
            path = unquote(named["path"])
        if path not in {b"", b"/dev/null"}:
            lines.setdefault(path.decode("utf-8", "surrogateescape"), number)
    return lines


def plain_path(name: str) -> str:
    """Return a path in a diff without the prefix `a/` or `b/`, and without quotes."""
    path = unquote(name.encode("latin-1"))
    if path.startswith((b"a/", b"b/")):
        path = path[2:]
    return path.decode("utf-8", "surrogateescape")


def path_of(part: PatchedFile) -> str:
    """Return a file's new path in a diff; for a removed file, the old path."""
    return plain_path(part.source_file if part.is_removed_file else part.target_file)


def unquote(path: bytes) -> bytes:
    """Return a path without git's quotes and C-style escapes."""
    if not path.startswith(b'"'):
        return path
    return _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8) if m[1][1:] else _SINGLE.get(m[1][0], m[1][0])]), path[1:-1]
    )


def parse(name: str, content: bytes) -> PatchSet:
    """Return the parsed diff of a patch file; each byte is a character (Latin-1)."""
    from unidiff import errors, patch  # noqa: PLC0415  only commands that look into hunks pay

    # The lines after "-- " are the mail signature that format-patch adds.
    text = re.sub(rb"\n-- \n[^\n]*\n\s*\Z", b"\n", content).decode("latin-1")
    try:
        return patch.PatchSet(io.StringIO(text, newline="\n"))
    except errors.UnidiffParseError as error:
        raise QueueError(f"{name}: not a well-formed diff: {error}", hint=AGAIN) from error


#: Options of `git diff-tree`: list each path that differs; a rename is a delete and an add.
_RAW: Final = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames")


@dataclass(frozen=True)
class Change:
    """A path that differs between two trees, with its mode and object in both (zeros: none)."""

    path: str
    #: git's letter: `A` added, `M` modified, `D` deleted, `T` type changed.
    status: str
    mode: str
    blob: str
    old_mode: str = ""
    old_blob: str = ""
    #: The commit that makes the change; empty: the change is between two trees.
    commit: str = ""


def commit_changes(store: Store, commits: Sequence[str]) -> list[Change]:
    """Return the changes that each of some commits makes, from one git process."""
    ask = "".join(f"{commit}\n" for commit in commits).encode()
    return _read_raw(store.git("diff-tree", "--stdin", *_RAW, stdin=ask).stdout)


def changes(store: Store, base: str, patched: str) -> list[Change]:
    """Return the changes between two trees; a rename is a deletion and an addition."""
    return _read_raw(store.git("diff-tree", *_RAW, base, patched).stdout)


def _read_raw(raw: bytes) -> list[Change]:
    """Return the changes that `git diff-tree` printed, each with the last printed commit id."""
    rows: list[Change] = []
    commit = ""
    fields = iter(os.fsdecode(raw).split("\0"))
    for field in fields:
        if field.startswith(":"):
            old_mode, mode, old_blob, blob, status = field[1:].split(" ")
            rows.append(Change(next(fields), status, mode, blob, old_mode, old_blob, commit))
        elif field:
            commit = field
    return rows


#: A store ignores the user's git configuration: other options have git's defaults.
_FORMAT_PATCH: Final = (
    "-c core.quotePath=true -c diff.renameLimit=1000"
    " format-patch --quiet --zero-commit --no-signature --abbrev=12 --binary -M"
)
_SUBMODULE: Final = "160000"


#: A line of a commit message at which git, reading a mail, would end the message.
_ENDS_MESSAGE: Final = re.compile(rb"(?<=\n)(?=diff -|Index: |--- \S|---[ \t\r]*$)", re.MULTILINE)


def format_commits(store: Store, base: str, tip: str) -> tuple[PatchFile, ...]:
    """Return each commit of `base..tip` as a patch file with the whole message; in `exclusive()`.

    A line of a message at which git would end the message gets a space at the start.
    """
    with store.open() as repo:
        commits = list(repo.iter_commits(f"{base}..{tip}", topo_order=True, reverse=True))
        subjects = {commit.hexsha: str(commit.summary) for commit in commits}
        for commit in commits:
            if len(commit.parents) != 1:
                kind = "is a merge" if commit.parents else "has no parent"
                raise QueueError(
                    f"the commit {commit.summary!a} {kind}: no patch file can hold it",
                    hint="make it commits in a row, with `git rebase`",
                )
        known = [read_commit(repo, commit) for commit in subjects]
    changed = commit_changes(store, list(subjects))
    for change in changed:
        if _SUBMODULE in {change.mode, change.old_mode}:
            subject, path = subjects[change.commit], change.path
            raise QueueError(
                f"the commit {subject!a} changes the submodule {path!a}: a patch cannot",
                hint="take that out of the commit; patch the submodule's own upstream",
            )
    for empty in subjects.keys() - {change.commit for change in changed}:
        raise QueueError(
            f"the commit {subjects[empty]!a} changes nothing",
            hint="drop it, with `git rebase -i`",
        )
    ids = list(subjects)
    messages = [_ENDS_MESSAGE.sub(b" ", commit.message) for commit in known]
    if messages != [commit.message for commit in known]:
        whole = [
            replace(commit, message=message, parent="" if number else base, after=number - 1)
            for number, (commit, message) in enumerate(zip(known, messages, strict=True))
        ]
        ids = [commit for commit, _ in write_commits(store, whole, dates="raw-permissive")]
    return format_chains(store, [ids])[0]


def format_chains(store: Store, chains: Sequence[Sequence[str]]) -> list[tuple[PatchFile, ...]]:
    """Return the patch files of each chain of commits."""
    ranges = (
        ["-1", chain[0]] if len(chain) == 1 else ["--numbered", f"{chain[0]}^..{chain[-1]}"]
        for chain in chains
        if chain
    )
    written = (tuple(_write(store, *each)) for each in ranges)
    return [next(written) if chain else () for chain in chains]


def _write(store: Store, *what: str) -> list[PatchFile]:
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        store.git(*_FORMAT_PATCH.split(), "-o", name, *what, "--", timeout=600.0)
        written = [PatchFile(path.name, path.read_bytes()) for path in Path(name).iterdir()]
    return sorted(written, key=lambda file: int(file.name.partition("-")[0]))


def keep_unchanged(
    old: Sequence[PatchFile],
    old_commits: Sequence[str],
    new: Sequence[PatchFile],
    new_commits: Sequence[str],
) -> tuple[PatchFile, ...]:
    """Return the new patch files, but the old file where a commit is unchanged."""
    files = [
        old[at] if at < min(len(old), len(old_commits)) and old_commits[at] == commit else file
        for at, (file, commit) in enumerate(zip(new, new_commits, strict=True))
    ]
    numbers = [file.name.partition("-")[0] for file in files]
    if numbers == sorted(set(numbers)):
        return tuple(files)
    return tuple(
        PatchFile(fresh.name, file.content) for fresh, file in zip(new, files, strict=True)
    )


@dataclass(frozen=True)
class ExportedTree:
    """A folder with the files of a tree, and the path of git's index of the folder."""

    tree: str
    folder: Path
    index: Path

    def git(self, store: Store, *args: str) -> bytes:
        """Run git on the folder and return its output."""
        # A new hard link changes a file's ctime, but not the file.
        options = ("-c", "core.trustctime=false", f"--work-tree={self.folder}")
        env = {"GIT_INDEX_FILE": str(self.index)}
        return store.git(*options, *args, env=env, cwd=self.folder).stdout


def export(
    store: Store, tree: str, folder: Path, *, index: Path, like: ExportedTree | None = None
) -> ExportedTree:
    """Write a tree to an empty folder; files equal to the files of `like` become hard links."""
    folder.mkdir(parents=True, exist_ok=True)
    made = ExportedTree(tree, folder, index)
    if like is None:
        made.git(store, "read-tree", tree)
        # 0: as many writers as cores, as one writer would mostly wait for the kernel.
        made.git(store, "-c", "checkout.workers=0", "checkout-index", "--all", "--force", "--index")
    else:
        shutil.copytree(
            like.folder, folder, symlinks=True, copy_function=os.link, dirs_exist_ok=True
        )
        index.write_bytes(like.index.read_bytes())
        # git replaces a file that differs, so that the linked file of `like` stays as it is.
        made.git(store, "read-tree", "-m", "-u", like.tree, tree)
    return made


def altered(store: Store, export: ExportedTree) -> str:
    """Return a path that was changed or added after the export; empty: no such path."""
    if not export.folder.is_dir():
        return "."
    for ask in (("diff-files", "--name-only", "-z"), ("ls-files", "--others", "-z")):
        listed = export.git(store, *ask)
        if listed:
            return listed.partition(b"\0")[0].decode("utf-8", "replace")
    return ""


#: Characters that git strips from both ends of a person's name (git 2.39 also strips a dot).
_CRUD: Final = "".join(map(chr, range(33))) + ",:;<>\"\\'"


@dataclass(frozen=True)
class Mail:
    """A patch file's author, date, message and diff, as `git am` reads them."""

    file: str
    name: str
    email: str
    date: str
    #: The subject, without the marks of a series.
    subject: str
    message: str
    #: The rest of the mail: the diff, and any text before or after the diff.
    diff: bytes

    @functools.cached_property
    def paths(self) -> frozenset[str]:
        """Every path that the diff names."""
        return frozenset(paths(self.diff))

    @property
    def author(self) -> bytes:
        """The author as a git commit writes names (`NAME <EMAIL>`), without the date."""
        name, email = (re.sub("[<>\n]", "", text.strip(_CRUD)) for text in (self.name, self.email))
        return f"{name} <{email}>".encode()


def read_mail(file: PatchFile) -> Mail:
    """Return a patch file as `git mailinfo`, the parser of `git am`, reads it."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        message, diff = Path(folder, "message"), Path(folder, "diff")
        done = process.run(
            ["git", "mailinfo", "-b", message, diff],
            cwd=Path(folder),
            env=git_environment({"GIT_CEILING_DIRECTORIES": tempfile.gettempdir()}),
            stdin=file.content,
            accept=(0, 1, 128),
        )
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip()
            raise QueueError(f"{file.name}: {why.splitlines()[-1]}", hint=AGAIN)
        text = message.read_bytes().decode("utf-8", "replace").strip("\n")
        rows = (row.partition(": ") for row in done.stdout.decode("utf-8", "replace").split("\n"))
        head = {key: value for key, _, value in rows}
        for key in ("Author", "Email", "Subject", "Date"):
            if not head.get(key, "").strip():
                hint = f"{AGAIN}, or apply it in a clone: contribbot new NAME REPO A..B"
                raise QueueError(f"{file.name}: no {key.lower()} in its header", hint=hint)
        subject = head["Subject"]
        body = subject + ("\n\n" + text if text else "") + "\n"
        return Mail(
            file.name, head["Author"], head["Email"], head["Date"], subject, body, diff.read_bytes()
        )


@dataclass(frozen=True)
class TouchedFile:
    """A file that a diff touches; `before` is the old path of a renamed file, else empty."""

    path: str
    before: str
    removed: bool


def touched_files(files: Iterable[PatchFile]) -> list[TouchedFile]:
    """Return the files that the diffs in patch files touch."""
    touched = []
    for diff in files:
        for file in parse(diff.name, diff.content):
            old, new = plain_path(file.source_file), plain_path(file.target_file)
            removed = bool(file.is_removed_file)
            path = old if removed else new
            moved = old if not removed and not file.is_added_file and old != new else ""
            touched.append(TouchedFile(path, moved, removed))
    return touched


def commit_of(mail: bytes) -> str:
    """Return the commit id in the first line of a patch file; empty: no id, or only zeros."""
    named = re.match(rb"From ([0-9a-f]{40,64}) Mon Sep 17 00:00:00 2001\n", mail)
    return named[1].decode() if named and named[1].strip(b"0") else ""


#: Per cent of a file that must be unchanged for a rename; git's default.
_ALIKE: Final = 50
#: The lower threshold for a file that moved to another folder and kept its name.
_SAME_NAME: Final = 25


@functools.cache
def renames(store: Store, old: str, new: str) -> Mapping[str, str]:
    """Return the new path of each file that was renamed between two trees; cached."""
    # -l0: no limit; by default, git finds no renames where thousands of files changed.
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
    """Return the paths of all files in a tree."""
    listed = store.git("ls-tree", "-r", "-z", "--name-only", tree).stdout
    return frozenset(listed.decode("utf-8", "surrogateescape").split("\0")) - {""}
