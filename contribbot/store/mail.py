"""Reading the mails that `git format-patch` writes: author, date, message, diff.

The plain ones, nearly all, are read here; anything else is left to
`git mailinfo`, the program that `git am` uses. Both give the same.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import CommandError, QueueError
from contribbot.model.patch import PatchFile
from contribbot.store.repository import Store

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
