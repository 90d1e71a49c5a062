"""Reading patches of any origin: mails of git, mboxes, StGit's and quilt's files.

What is no mail becomes one, since that is what a patch file of a queue is: author,
date and message come from the text above the diff (as quilt, StGit and Debian's DEP-3
write it) or from whoever imports it.
"""

from __future__ import annotations

import email.utils
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.queue.prefixes import PREFIXED, canonical, outside_tree, prefixed
from contribbot.store.patchtext import check_form
from contribbot.store.repository import git_environment

#: What `git format-patch` puts before each mail; the date never changes.
_GIT_LINE: Final = re.compile(rb"From [0-9a-f]{40,64} Mon Sep 17 00:00:00 2001\n")
_FROM_LINE: Final = re.compile(rb"\AFrom [^\n]*\n")
_FIELD: Final = re.compile(rb"(?P<key>[A-Za-z][A-Za-z0-9-]*):[ \t]*(?P<value>[^\n]*)")
#: Where a diff starts.
_DIFF: Final = re.compile(rb"^(?:diff -|Index: |--- [^\n]+\n\+\+\+ )", re.MULTILINE)
#: Ways to send a mail that hide its lines until they are decoded.
_ENCODED: Final = re.compile(
    rb"^content-(transfer-encoding:\s*(base64|quoted)|type:\s*multipart)",
    re.IGNORECASE | re.MULTILINE,
)
_COVER: Final = re.compile(rb"^subject:[^\n]*\[[^\]\n]*\b0+/\d+\]", re.IGNORECASE | re.MULTILINE)
#: Fields above a diff that say who, when and what, and what they are.
_KNOWN: Final = {
    b"from": "author", b"author": "author", b"date": "date", b"last-update": "date",
    b"subject": "subject", b"description": "subject",
}  # fmt: skip
_PERSON: Final = re.compile(r"\s*[^<>\s][^<>]*<[^<>@\s]+@[^<>\s]+>\s*")
#: A name that a mail's header must quote: git would drop its quotes and backslashes.
_SPECIAL: Final = re.compile(r'(?P<name>[^"].*["\\].*?)(?P<address>\s*<[^<>]*>)')
#: What editors put before a text, and what is left of copying one.
_BEFORE: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?[\r\n]*")


@dataclass(frozen=True)
class Given:
    """What whoever imports says of patches that do not say it themselves.

    Attributes:
        author: `Name <address>`.
        subject: The first line of the message.
    """

    author: str = ""
    subject: str = ""

    def __post_init__(self) -> None:
        if self.author and not _PERSON.fullmatch(self.author):
            raise UsageError(
                f"--author {self.author}: not an author", hint="write it as 'Name <address>'"
            )


def read_mbox(content: bytes, name: str, scratch: Path, given: Given) -> tuple[PatchFile, ...]:
    """Read an mbox, one mail, or one bare diff."""
    content = _BEFORE.sub(b"", content)
    if not content.strip():
        raise QueueError(f"{name}: empty", hint="give it the output of `git format-patch --stdout`")
    mails = _split(content, scratch) if content.startswith(b"From ") else [content]
    found: list[PatchFile] = []
    for number, mail in enumerate(mails, start=1):
        called = name if len(mails) == 1 else f"{name}, mail {number}"
        if not _DIFF.search(mail) and _COVER.search(mail.partition(b"\n\n")[0]):
            continue  # the letter that introduces a series
        found.append(PatchFile(called, _as_mail(called, mail, given)))
    if not found:
        raise QueueError(f"{name}: no patch in it", hint="it holds a cover letter only")
    return tuple(found)


def read_one(name: str, content: bytes, level: int, given: Given) -> PatchFile:
    """Read one file of a quilt series."""
    stem = re.sub(r"\.(patch|diff)$", "", Path(name).name)
    known = replace(given, subject=stem)
    content = _without_crs(content)
    if level == 0 and (diff := _DIFF.search(content)):
        content = content[: diff.start()] + prefixed(content[diff.start() :])
    return PatchFile(name, _as_mail(name, content, known))


def is_plain(file: PatchFile) -> bool:
    """Say whether a file is what `git format-patch` writes, so that it is kept as it is."""
    head = file.content.partition(b"\n\n")[0]
    if not _GIT_LINE.match(file.content) or _ENCODED.search(head):
        return False
    rows = [row for row in file.content.split(b"\n") if row.startswith(b"diff --git ")]
    if not all(PREFIXED.match(row) for row in rows):
        return False
    try:
        check_form(file.name, file.content)
    except QueueError:
        return False
    return True


def _split(content: bytes, scratch: Path) -> list[bytes]:
    """Take an mbox apart with the program that `git am` uses."""
    folder = scratch / "mails"
    folder.mkdir()
    # Line endings of a mailbox that was saved with CRLF are not the patch's own.
    keep = () if content.partition(b"\n")[0].endswith(b"\r") else ("--keep-cr",)
    process.run(
        ["git", "mailsplit", "-b", "-d5", *keep, f"-o{folder}"],
        cwd=scratch,
        env=git_environment({"GIT_CEILING_DIRECTORIES": str(scratch.parent)}),
        stdin=content,
    )
    mails = [path.read_bytes() for path in sorted(folder.iterdir())]
    process.remove_tree(folder)
    return mails


def _without_crs(content: bytes) -> bytes:
    """Undo a whole file's CRLF; where only some lines have it, it is the content's own."""
    if content.partition(b"\n")[0].endswith(b"\r"):
        return content.replace(b"\r\n", b"\n")
    return content


def _as_mail(name: str, content: bytes, given: Given) -> bytes:
    """Return a patch as a mail that git reads."""
    content = _without_crs(content)
    if not content.endswith(b"\n"):
        raise QueueError(
            f"{name}: no newline at the end, so it may be cut off", hint="write it again"
        )
    if _is_mail(content) and _ENCODED.search(content.partition(b"\n\n")[0]):
        return _dated(content)
    found = _DIFF.search(content)
    if found is None:
        raise QueueError(
            f"{name}: no diff in it: an empty commit, or no patch",
            hint="leave out what changes nothing",
        )
    if re.search(rb"^Binary files [^\n]+ differ$", content[found.start() :], re.MULTILINE):
        raise QueueError(
            f"{name}: a binary file without its content", hint="write it with `--binary`"
        )
    diff = canonical(content[found.start() :])
    if path := outside_tree(diff):
        raise QueueError(
            f"{name}: no tree has the path {path!a}: it leaves the tree, is git's own, or has "
            "a `.` or nothing between its slashes"
        )
    if _is_mail(content):
        changed = _dated(content[: found.start()]) + diff
        # What was changed here is not git's own any more, and is written anew.
        return changed if changed == content else _FROM_LINE.sub(b"", changed, count=1)
    return _compose(name, content[: found.start()], diff, given)


def _is_mail(content: bytes) -> bool:
    """Say whether it starts with the header of a mail that names author and subject."""
    keys = set()
    start = _FROM_LINE.match(content)
    for row in content[start.end() if start else 0 :].split(b"\n"):
        if not row:
            break
        field = _FIELD.match(row)
        if field:
            keys.add(field["key"].lower())
        elif not row.startswith((b" ", b"\t")) or not keys:
            return False
    return {b"from", b"subject"} <= keys


def _dated(mail: bytes) -> bytes:
    """Give a mail that has no date that of now, as `git am` does."""
    if re.search(rb"^date:", mail.partition(b"\n\n")[0], re.IGNORECASE | re.MULTILINE):
        return mail
    start = _FROM_LINE.match(mail)
    at = start.end() if start else 0
    return mail[:at] + b"Date: " + _now() + b"\n" + mail[at:]


def _now() -> bytes:
    return email.utils.format_datetime(datetime.now(UTC).replace(microsecond=0)).encode()


def _compose(name: str, above: bytes, diff: bytes, given: Given) -> bytes:
    """Write a mail from the text above a diff."""
    try:
        text = above.decode("utf-8")
    except UnicodeDecodeError:
        text = above.decode("latin-1")  # as git reads a mail that does not say
    fields, message = _header(text)
    author = fields.get("author", "")
    author = author if _PERSON.fullmatch(author) else given.author
    if not author:
        raise QueueError(
            f"{name}: it does not say who wrote it",
            hint="name the author: --author 'Name <address>'",
        )
    subject, _, body = message.partition("\n")
    if "subject" in fields:
        subject, body = fields["subject"], message
    if not subject.strip():
        subject = given.subject
    if not subject.strip():
        raise QueueError(f"{name}: it has no message", hint="give its first line with --title")
    head = (
        f"From: {_quoted(author.strip())}\n"
        f"Date: {fields.get('date') or _now().decode()}\n"
        f"Subject: [PATCH] {' '.join(subject.split())}\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        f"Content-Transfer-Encoding: 8bit\n\n{_lines(body)}\n---\n\n"
    )
    return head.encode() + diff


def _quoted(author: str) -> str:
    """Return a name and address as the header of a mail has them."""
    found = _SPECIAL.fullmatch(author)
    if found is None:
        return author
    return '"' + re.sub(r'(["\\])', r"\\\1", found["name"]) + '"' + found["address"]


def _lines(text: str) -> str:
    """Return a text without what is empty around it; its first line keeps its indentation."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", text).rstrip()


def _header(text: str) -> tuple[dict[str, str], str]:
    """Take author, date and subject out of the text above a diff; return them and the rest."""
    fields: dict[str, str] = {}
    rest: list[str] = []
    long = False
    for row in text.split("\n"):
        if row.rstrip() == "---":
            break  # a diffstat follows
        found = re.match(r"([A-Za-z-]+):\s*(.*)", row)
        key = _KNOWN.get(found[1].lower().encode(), "") if found else ""
        if found and key and key not in fields:
            fields[key] = found[2].strip()
            long = key == "subject"
        elif long and row.startswith(" "):
            # DEP-3: the long description, indented by one, a lone dot for an empty line.
            rest.append("" if row.strip() == "." else row[1:])
        else:
            long = False
            rest.append(row)
    if "date" in fields and re.fullmatch(r"\d{4}-\d\d-\d\d", fields["date"]):
        fields["date"] += "T00:00:00+0000"
    return fields, _lines("\n".join(rest))
