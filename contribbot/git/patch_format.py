"""Reading the mails that `git format-patch` writes: author, date, message, diff.

The plain ones, nearly all, are read here; anything else is left to
`git mailinfo`, the program that `git am` uses. Both give the same.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.errors import CommandError, QueueError
from contribbot.git.repository import Store, read_objects
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from unidiff.patch import PatchSet


_AGAIN: Final = "write it again with `git format-patch`"
_SEPARATOR: Final = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n")
_FIELD: Final = re.compile(r"(?P<key>[A-Za-z-]+): (?P<value>[!-~][ -~]*)")
#: What else format-patch writes into the header, and what changes nothing.
_NO_NEWS: Final = {
    "MIME-Version": "1.0",
    "Content-Type": "text/plain; charset=UTF-8",
    "Content-Transfer-Encoding": "8bit",
}
#: Names and addresses that git takes as they are, in mails and in commits.
_PERSON: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9 _-]{1,58}[A-Za-z0-9])"
    r" <(?P<email>[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9.-]*[A-Za-z0-9])>"
)
_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d{1,2}) ([A-Z][a-z]{2}) (\d{4})"
    r" (\d\d):(\d\d):(\d\d) ([+-])(\d\d)([0-5]\d)"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun",
                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # fmt: skip
#: How the first line of a message may start that mailinfo would read as a header.
_HEADER_LIKE: Final = re.compile(rb"[>\[ \t]|[A-Za-z-]+:")
#: The years of which git has no doubt.
_YEARS: Final = range(1990, 2100)
_HOURS: Final = 14
#: Characters that git takes for damage and writes again byte by byte.
_NO_CHARACTERS: Final = re.compile(
    "[\ufdd0-\ufdef"
    + "".join(f"{chr(n * 65536 + 65534)}{chr(n * 65536 + 65535)}" for n in range(17))
    + "]"
)


@dataclass(frozen=True)
class Mail:
    """What a mail says.

    Attributes:
        name: The author's name.
        email: The author's address.
        date: When it was written, as the mail says it.
        subject: The subject, without the marks of a series.
        message: The whole message of the commit.
        diff: The rest: the diff, with whatever stands around it.
    """

    name: str
    email: str
    date: str
    subject: str
    message: str
    diff: bytes

    @property
    def stored_message(self) -> bytes:
        """The message as git stores it."""
        return stored(self.message)


def stored(text: str) -> bytes:
    """Return text as `git commit-tree` stores it: what is no character goes byte by byte."""
    return _NO_CHARACTERS.sub(lambda found: found[0].encode().decode("latin-1"), text).encode()


def read_mail(store: Store, file: PatchFile, scratch: Path) -> Mail:
    """Read a mail."""
    return plain_mail(file.content) or ask_mailinfo(store, file, scratch)


def plain_mail(content: bytes) -> Mail | None:
    """Read a mail that has no need of `git mailinfo`; None when it has."""
    start = _SEPARATOR.match(content)
    blank = content.find(b"\n\n")
    if start is None or blank < 0:
        return None
    fields = _fields(content[start.end() : blank])
    end = _break(content, blank + 2)
    if fields is None or end < 0:
        return None
    body = content[blank + 2 : end].strip(b"\n")
    person, subject = _PERSON.fullmatch(fields["From"]), _subject(fields["Subject"])
    if not person or not subject or _moment(fields["Date"]) is None or _HEADER_LIKE.match(body):
        return None
    if b"\r" in body or b"\0" in body:
        return None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    message = subject + ("\n\n" + text if text else "") + "\n"
    return Mail(person["name"], person["email"], fields["Date"], subject, message, content[end:])


def author_line(store: Store, name: str, mail: Mail) -> bytes:
    """Return the author and the date as a commit has them."""
    moment = _moment(mail.date)
    if moment is not None and _PERSON.fullmatch(f"{mail.name} <{mail.email}>"):
        return f"{mail.name} <{mail.email}> {moment}".encode()
    env = {
        "GIT_AUTHOR_NAME": mail.name,
        "GIT_AUTHOR_EMAIL": mail.email,
        "GIT_AUTHOR_DATE": mail.date,
    }
    try:
        said = store.git("var", "GIT_AUTHOR_IDENT", env=env).stdout
    except CommandError as error:
        # The author or the date of the patch: all else is contribbot's own.
        raise QueueError(f"{name}: {error.stderr.splitlines()[-1]}", hint=_AGAIN) from error
    return stored(said.decode("utf-8").rstrip("\n"))


def ask_mailinfo(store: Store, file: PatchFile, scratch: Path) -> Mail:
    """Read a mail with the program that `git am` uses for it."""
    body_path, diff_path = scratch / "message", scratch / "diff"
    try:
        done = store.git("mailinfo", "-b", body_path, diff_path, stdin=file.content, cwd=scratch)
    except CommandError as error:
        raise QueueError(
            f"{file.name}: git cannot read it as a mail: {error.stderr}", hint=_AGAIN
        ) from error
    try:
        rows = done.stdout.decode("utf-8").split("\n")
        body = body_path.read_bytes().decode("utf-8").strip("\n")
    except UnicodeDecodeError as error:
        raise QueueError(f"{file.name}: its author or message is not UTF-8", hint=_AGAIN) from error
    head: dict[str, str] = {}
    for row in rows:
        key, _, value = row.partition(": ")
        head[key] = value
    for key in ("Author", "Email", "Subject", "Date"):
        if not head.get(key, "").strip():
            raise QueueError(f"{file.name}: no {key.lower()} in its header", hint=_AGAIN)
    message = head["Subject"] + ("\n\n" + body if body else "") + "\n"
    if "\0" in message:
        raise QueueError(
            f"{file.name}: error: a NUL byte in commit log message not allowed.", hint=_AGAIN
        )
    return Mail(
        head["Author"], head["Email"], head["Date"], head["Subject"], message,
        diff_path.read_bytes(),
    )  # fmt: skip


def _fields(head: bytes) -> dict[str, str] | None:
    """Take a header apart; None when anything in it is not plain."""
    found: dict[str, str] = {}
    key = ""
    if not head.isascii() or b"=?" in head:
        return None
    for row in head.decode("ascii").split("\n"):
        if row.startswith(" ") and row.strip() and key == "Subject" and row.isprintable():
            found[key] += " " + row.strip()
        elif (field := _FIELD.fullmatch(row)) and field["key"] not in found:
            key = field["key"]
            found[key] = field["value"]
        else:
            return None
    news = {name: value for name, value in found.items() if _NO_NEWS.get(name) != value}
    return found if news.keys() == {"From", "Date", "Subject"} else None


def _break(content: bytes, at: int) -> int:
    """Return where the diff starts: behind the message; -1 when mailinfo shall find it."""
    while at < len(content):
        end = content.find(b"\n", at)
        row = content[at : end if end >= 0 else len(content)]
        if row == b"---" or row.startswith(b"diff --git "):
            return at
        if row.startswith((b"---", b"diff -", b"Index: ")) or end < 0:
            return -1
        at = end + 1
    return -1


def _subject(raw: str) -> str:
    """Take the marks of a series off a subject, as `git mailinfo -b` does."""
    at, text = 0, raw
    while at < len(text):
        if text[at] in " \t:":
            text = text[:at] + text[at + 1 :]
        elif text[at : at + 3].lower() == "re:" and len(text) > at + 3:
            text = text[:at] + text[at + 3 :]
        elif text[at] == "[" and (end := text.find("]", at)) >= 0:
            if "PATCH" in text[at:end]:
                text = text[:at] + text[end + 1 :]
            else:
                # What is no mark stays, with the space behind it.
                at = end + 2 if text[end + 1 : end + 2] == " " else end + 1
        else:
            break
    return " ".join(text.split())


def _moment(date: str) -> str | None:
    """Return a mail's date as a commit has it: seconds and zone; None when git shall say."""
    found = _DATE.fullmatch(date)
    if found is None or found[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[n]) for n in (1, 3, 4, 5, 6))
    if year not in _YEARS or int(found[8]) >= _HOURS:
        return None
    offset = dt.timedelta(hours=int(found[8]), minutes=int(found[9]))
    zone = dt.timezone(-offset if found[7] == "-" else offset)
    try:
        moment = dt.datetime(
            year, _MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=zone
        )
    except ValueError:
        return None
    sign = found[7] if offset else "+"
    return f"{int(moment.timestamp())} {sign}{found[8]}{found[9]}"


#: How the lines start that give a diff its structure.
_STRUCTURE: Final = (b"diff --git ", b"--- a/", b"+++ b/", b"@@ -")
_DIFF: Final = re.compile(rb"^diff --git ", re.MULTILINE)
#: Lines of a diff's header that name a path, with the side's prefix where git writes one.
_NAMED: Final = re.compile(
    rb"^(?:--- |\+\+\+ |rename from |rename to |copy from |copy to )(?P<path>\"[^\n]*\"|[^\t\n]*)"
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
_SINGLE: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f",
                  b"v": b"\v"}  # fmt: skip


@dataclass(frozen=True)
class Touched:
    """A path that a patch names.

    Attributes:
        path: The path, without the `a/` or `b/` prefix.
        line: The line of the patch file that names it, from 1.
    """

    path: str
    line: int


def check_form(name: str, content: bytes) -> None:
    """Refuse a patch file that git would misread, or read outside the tree."""
    again = "write it again with `git format-patch`"
    first, _, _ = content.partition(b"\n")
    if first.endswith(b"\r"):
        raise QueueError(f"{name}:1: CRLF line endings", hint=f"{again}, core.autocrlf off")
    if not content.endswith(b"\n"):
        line = content.count(b"\n") + 1
        raise QueueError(f"{name}:{line}: no newline at the end, so it may be cut off", hint=again)
    found = _DIFF.search(content)
    if not found:
        raise QueueError(f"{name}: no `diff --git` in it", hint=again)
    try:
        content[: found.start()].decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise QueueError(f"{name}:{line}: the message is not UTF-8", hint=again) from error
    for number, row in enumerate(content.split(b"\n"), start=1):
        if row.endswith(b"\r") and row.startswith(_STRUCTURE):
            raise QueueError(
                f"{name}:{number}: CRLF line endings", hint=f"{again}, core.autocrlf off"
            )
    for touched in paths(content):
        fault = _path_fault(touched.path)
        if fault:
            raise QueueError(
                f"{name}:{touched.line}: the path {touched.path!a} {fault}", hint=again
            )


def _path_fault(path: str) -> str:
    """Say why a path of a patch is refused, or nothing."""
    parts = path.split("/")
    if path.startswith("/") or {"..", ".", ""} & set(parts):
        return "leaves the tree"
    if any(part.lower() == ".git" for part in parts):
        return "is git's own"
    return "" if path.isprintable() else "is not UTF-8, or not printable"


def paths(content: bytes) -> list[Touched]:
    """Return every path that a patch names, each with the first line that does."""
    found: dict[str, int] = {}
    in_header = False
    for number, row in enumerate(content.split(b"\n"), start=1):
        if row.startswith(b"diff --git "):
            in_header = True
        elif row.startswith(b"@@ "):
            in_header = False
        elif in_header and (named := _NAMED.match(row)):
            path = unquote(named["path"])
            if path == b"/dev/null":
                continue
            if row.startswith((b"--- ", b"+++ ")):
                path = path.partition(b"/")[2] if path.startswith((b"a/", b"b/")) else path
            found.setdefault(path.decode("utf-8", "surrogateescape"), number)
    return [Touched(path, line) for path, line in found.items()]


def plain_path(name: str) -> str:
    """Return a path as the tree has it, from the way a diff writes it."""
    path = unquote(name.encode("latin-1"))
    if path.startswith((b"a/", b"b/")):
        path = path[2:]
    return path.decode("utf-8", "surrogateescape")


def unquote(path: bytes) -> bytes:
    """Undo git's C-style quoting of a path."""
    if not path.startswith(b'"'):
        return path
    return _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else _SINGLE.get(m[1], m[1]),  # noqa: PLR2004  three octal digits
        path[1:-1],
    )


def parse(name: str, content: bytes) -> PatchSet:
    """Parse the hunks of a patch file; its text is Latin-1 for bytes."""
    # Only commands that look into hunks pay for the import.
    from unidiff.errors import UnidiffParseError  # noqa: PLC0415
    from unidiff.patch import PatchSet  # noqa: PLC0415

    # What stands behind "-- " is the mail signature that format-patch adds.
    text = re.sub(rb"\n-- \n[^\n]*\n\s*\Z", b"\n", content).decode("latin-1")
    try:
        return PatchSet(io.StringIO(text, newline="\n"))
    except UnidiffParseError as error:
        raise QueueError(
            f"{name}: not a well-formed diff: {error}",
            hint="write it again with `git format-patch`",
        ) from error


#: Whatever a repository's own configuration says. The user's is never read.
_OPTIONS: Final = (
    "--zero-commit", "--no-signature", "--abbrev=12", "--binary", "-M", "-U3",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--diff-algorithm=myers",
    "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none",
    "--no-attach", "--no-thread", "--no-cover-letter", "--no-notes", "--no-base", "--no-to",
    "--no-cc", "--no-add-header", "--no-from", "--no-force-in-body-from", "--indent-heuristic",
    "--subject-prefix=PATCH", "--suffix=.patch", "--filename-max-length=64",
    "--quiet", "-O/dev/null",
)  # fmt: skip
_SETTINGS: Final = (
    "-c", "format.signOff=false", "-c", "format.encodeEmailHeaders=true",
    "-c", "i18n.logOutputEncoding=UTF-8", "-c", "diff.noprefix=false",
    "-c", "diff.interHunkContext=0", "-c", "diff.suppressBlankEmpty=false",
    "-c", "diff.mnemonicPrefix=false", "-c", "core.quotePath=true", "-c", "diff.renameLimit=1000",
    "-c", "log.showSignature=false", "-c", "format.mboxrd=false", "-c", "core.abbrev=12",
)  # fmt: skip
_SUBMODULE: Final = "160000"


def format_commits(store: Store, base: str, tip: str) -> tuple[PatchFile, ...]:
    """Write each commit of `base..tip` as a file."""
    said = store.git("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}", "--")
    rows = [row.split(" ") for row in said.stdout.decode().splitlines()]
    commits = [row[0] for row in rows]
    for commit, *parents in rows:
        if len(parents) != 1:
            kind = "is a merge" if parents else "has no parent"
            raise QueueError(
                f"the commit {_commit_subject(store, commit)!a} {kind}: no patch file can hold it",
                hint="make it commits in a row, with `git rebase`",
            )
    _look_into(store, commits)
    return format_chains(store, [commits])[0]


def format_chains(store: Store, chains: Sequence[Sequence[str]]) -> list[tuple[PatchFile, ...]]:
    """Write many runs of commits, each as `format_commits` writes one, with few processes."""
    alone = list(dict.fromkeys(chain[0] for chain in chains if len(chain) == 1))
    files: list[PatchFile] = []
    if len(alone) == 1:
        # By itself, format-patch takes a commit for the one below the first.
        files = _write(store, "-1", alone[0])
    elif alone:
        # It turns the order round: it expects the newest first.
        files = _write(store, "--no-walk=unsorted", "--no-numbered", *reversed(alone))
    single = dict(zip(alone, files, strict=True))
    found: list[tuple[PatchFile, ...]] = []
    for chain in chains:
        if len(chain) == 1:
            _, _, name = single[chain[0]].name.partition("-")
            found.append((PatchFile(f"0001-{name}", single[chain[0]].content),))
        elif chain:
            found.append(tuple(_write(store, "--numbered", f"{chain[0]}^..{chain[-1]}")))
        else:
            found.append(())
    return found


def _write(store: Store, *what: str) -> list[PatchFile]:
    """Let git write files, and return them in its order."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        store.git(*_SETTINGS, "format-patch", *_OPTIONS, "-o", name, *what, "--", timeout=600.0)
        written = [PatchFile(path.name, path.read_bytes()) for path in Path(name).iterdir()]
    return sorted(written, key=lambda file: int(file.name.partition("-")[0]))


def _look_into(store: Store, commits: Sequence[str]) -> None:
    """Refuse commits that cannot be files of a patch."""
    changed: dict[str, list[tuple[str, str]]] = {}
    for commit, modes, path in raw_changes(store, commits):
        changed.setdefault(commit, []).append((modes, path))
    for commit in commits:
        if commit not in changed:
            raise QueueError(
                f"the commit {_commit_subject(store, commit)!a} changes nothing",
                hint="drop it, with `git rebase -i`",
            )
        for modes, path in changed[commit]:
            if _SUBMODULE in modes:
                raise QueueError(
                    f"the commit {_commit_subject(store, commit)!a} changes the submodule {path!a}:"
                    " a patch cannot",
                    hint="take that out of the commit; patch the submodule's own upstream",
                )


def raw_changes(store: Store, commits: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return what commits change, with one process."""
    said = store.git(
        "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-abbrev", "--no-renames",
        stdin="".join(f"{commit}\n" for commit in commits).encode(),
    ).stdout  # fmt: skip
    found: list[tuple[str, str, str]] = []
    commit = ""
    fields = iter(said.decode("utf-8", "surrogateescape").split("\0"))
    for field in fields:
        if field.startswith(":"):
            found.append((commit, field[1:], next(fields)))
        elif field:
            commit = field
    return found


def _commit_subject(store: Store, commit: str) -> str:
    (found,) = read_objects(store, [commit])
    _, _, message = (found.content if found else b"").partition(b"\n\n")
    return message.partition(b"\n")[0].decode("utf-8", "replace")


def keep_unchanged(
    old: Sequence[PatchFile],
    old_commits: Sequence[str],
    new: Sequence[PatchFile],
    new_commits: Sequence[str],
) -> tuple[PatchFile, ...]:
    """Keep the bytes of files whose commits are unchanged, whatever program wrote them."""
    kept = [
        old[at] if at < min(len(old), len(old_commits)) and old_commits[at] == commit else file
        for at, (file, commit) in enumerate(zip(new, new_commits, strict=True))
    ]
    names = [file.name for file in kept]
    if names == sorted(set(names)):
        return tuple(kept)
    return tuple(PatchFile(fresh.name, file.content) for fresh, file in zip(new, kept, strict=True))


_HEAD: Final = re.compile(rb'diff --git (?:a/(?P<plain>.+) b/(?P=plain)|"a/(?P<quoted>.+)" "b/(?P=quoted)")')  # fmt: skip  # noqa: E501  one pattern, not shorter in two
_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MODE: Final = re.compile(rb"(old mode|new mode|new file mode|deleted file mode) (100644|100755|120000)")  # fmt: skip  # noqa: E501  one pattern
_INDEX: Final = re.compile(rb"index [0-9a-f]+\.\.[0-9a-f]+(?: (100644|100755|120000))?")
_NAME: Final = re.compile(
    rb"(?:diff --git |--- |\+\+\+ |rename from |rename to |copy from |copy to )(?P<rest>.*)"
)
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
#: What git takes for the start of something that it must apply.
_STARTS: Final = (b"diff --git ", b"--- ", b"@@ -")


@dataclass(frozen=True)
class Hunk:
    """One hunk.

    Attributes:
        start: The first line that it expects in the old file, from 1.
        goes: Where that line is once the hunks before it are applied, from 1.
        old: The lines that it expects, each with its end.
        new: The lines that it puts there.
        leading: Lines of context before the first change.
        trailing: Lines of context after the last change.
    """

    start: int
    goes: int
    old: list[bytes]
    new: list[bytes]
    leading: int
    trailing: int


@dataclass(frozen=True)
class Part:
    """What a diff does to one path.

    Attributes:
        path: The path.
        old_mode: The mode that it expects; empty for a new file, or where it does not say.
        new_mode: The mode afterwards; empty for a deleted file, or where it stays.
        added: Whether the file is new.
        deleted: Whether it goes.
        hunks: Its hunks.
    """

    path: str
    old_mode: str
    new_mode: str
    added: bool
    deleted: bool
    hunks: tuple[Hunk, ...]


class _NotPlainError(Exception):
    """Something that only git shall read."""


def read_diff(diff: bytes) -> tuple[Part, ...] | None:
    """Read a diff, or say that it is not plain."""
    rows = diff.split(b"\n")
    parts: list[Part] = []
    at = 0
    try:
        while at < len(rows):
            if rows[at].startswith(b"diff --git "):
                part, at = _part(rows, at)
                parts.append(part)
            elif rows[at].startswith(_STARTS):
                return None
            else:
                at += 1
    except (_NotPlainError, IndexError):
        return None
    paths = {part.path for part in parts}
    return tuple(parts) if parts and len(paths) == len(parts) else None


def named_paths(diff: bytes) -> set[str]:
    """Return every path inside a tree that git could take from a diff, and perhaps more."""
    found: set[bytes] = set()
    for row in diff.split(b"\n"):
        if not (match := _NAME.match(row)):
            continue
        rest = match["rest"].rstrip(b"\r")
        names = {rest, rest.partition(b"\t")[0]}
        names.update(quoted[0] for quoted in _QUOTED.finditer(rest))
        if row.startswith(b"diff --git "):
            cuts = [spot.start() for spot in re.finditer(rb" ", rest)]
            names.update(half for cut in cuts for half in (rest[:cut], rest[cut + 1 :]))
        for name in names:
            plain = unquote(name)
            found |= {plain, plain.partition(b"/")[2]}
    # What leads elsewhere is no path of any tree, and git refuses to look it up.
    return {
        name.decode("utf-8", "surrogateescape")
        for name in found
        if not {b"", b".", b".."} & set(name.split(b"/"))
    }


def lines_of(content: bytes) -> list[bytes]:
    """Cut bytes into lines, each with its newline; only the last may have none."""
    rows = content.split(b"\n")
    last = rows.pop()
    lines = [row + b"\n" for row in rows]
    return [*lines, last] if last else lines


def _part(rows: list[bytes], at: int) -> tuple[Part, int]:
    """Read one file's part; return it and the line after it."""
    head = _HEAD.fullmatch(rows[at])
    if head is None:
        raise _NotPlainError
    raw = head["plain"] if head["quoted"] is None else b'"' + head["quoted"] + b'"'
    spelled = (b"%s", raw) if head["quoted"] is None else (b'"%s"', head["quoted"])
    path = unquote(raw).decode("utf-8", "surrogateescape")
    if {"", ".", ".."} & set(path.split("/")) or ".git" in path.lower().split("/"):
        raise _NotPlainError
    at += 1
    modes: dict[bytes, str] = {}
    while mode := _MODE.fullmatch(rows[at]):
        modes[mode[1]] = mode[2].decode()
        at += 1
    added, deleted = b"new file mode" in modes, b"deleted file mode" in modes
    if (index := _INDEX.fullmatch(rows[at])) is not None:
        if index[1] and not modes:
            modes[b"index"] = index[1].decode()
        at += 1
    before = b"/dev/null" if added else spelled[0] % (b"a/" + spelled[1])
    after = b"/dev/null" if deleted else spelled[0] % (b"b/" + spelled[1])
    hunks, at = _hunks(rows, at, before, after)
    old = modes.get(b"old mode") or modes.get(b"deleted file mode") or modes.get(b"index", "")
    new = modes.get(b"new mode") or modes.get(b"new file mode") or ""
    _check(modes, hunks, added=added, deleted=deleted)
    return Part(path, old, new, added, deleted, tuple(hunks)), at


def _hunks(rows: list[bytes], at: int, before: bytes, after: bytes) -> tuple[list[Hunk], int]:
    """Read the two names and the hunks, where there are any."""
    if not rows[at].startswith(b"--- "):
        if rows[at] and not rows[at].startswith((b"diff --git ", b"-- ")):
            # A rename, a copy, a binary patch, or something new.
            raise _NotPlainError
        return [], at
    # A tab stands behind a name with a space in it.
    names = (rows[at].rstrip(b"\t"), rows[at + 1].rstrip(b"\t"))
    if names != (b"--- " + before, b"+++ " + after):
        raise _NotPlainError
    at += 2
    hunks: list[Hunk] = []
    while rows[at].startswith(b"@@ -"):
        hunk, at = _hunk(rows, at)
        hunks.append(hunk)
    if not hunks:
        raise _NotPlainError
    return hunks, at


def _check(modes: dict[bytes, str], hunks: list[Hunk], *, added: bool, deleted: bool) -> None:
    """Refuse what does not go together."""
    both = (b"old mode" in modes) != (b"new mode" in modes)
    odd = added + deleted + (b"old mode" in modes) > 1
    nothing = not hunks and not (added or deleted or b"new mode" in modes)
    if both or odd or nothing:
        raise _NotPlainError
    if added or deleted:
        if len(hunks) > 1 or any(hunk.old if added else hunk.new for hunk in hunks):
            raise _NotPlainError
    elif not all(hunk.old and hunk.new for hunk in hunks):
        # Without a line of context git decides by rules of its own.
        raise _NotPlainError


def _hunk(rows: list[bytes], at: int) -> tuple[Hunk, int]:
    """Read one hunk; return it and the line after it."""
    head = _HUNK.match(rows[at])
    if head is None:
        raise _NotPlainError
    start, olds, goes, news = (int(field) if field is not None else 1 for field in head.groups())
    at += 1
    signs = bytearray()
    old: list[bytes] = []
    new: list[bytes] = []
    while olds > len(old) or news > len(new):
        row = rows[at]
        sign, line = row[:1], row[1:] + b"\n"
        sides = {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(sign)
        if sides is None:
            raise _NotPlainError
        at += 1
        if rows[at].startswith(b"\\ "):
            line = line[:-1]
            at += 1
        for side in sides:
            side.append(line)
        signs += sign
    if (olds, news) != (len(old), len(new)) or not signs.strip():
        raise _NotPlainError
    if any(not line.endswith(b"\n") for side in (old, new) for line in side[:-1]):
        raise _NotPlainError
    leading = len(signs) - len(signs.lstrip(b" "))
    trailing = len(signs) - len(signs.rstrip(b" "))
    return Hunk(start, goes, old, new, leading, trailing), at


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
