"""Mails of patches, read as `git mailinfo -b` reads them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.errors import QueueError
from contribbot.git.patch_format import AGAIN, paths
from contribbot.model.patch import PatchFile

if TYPE_CHECKING:
    from email.message import Message

#: Where the message ends and the diff begins, as `git mailinfo` has it.
_BREAK: Final = re.compile(rb"^(?:diff -|Index: |--- \S|---[ \t\r]*$)", re.MULTILINE)
#: Lines at the head of a message that stand for those of the mail.
_IN_BODY: Final = re.compile(r"\n*((?:>?(?:From|Subject|Date): .*\n)+)\n?")
#: What mail programs put before a subject; brackets without `PATCH` stay.
_MARKS: Final = re.compile(r"(?:[ \t:]|(?i:re:)|\[[^\]]*\])*")
_MARK: Final = re.compile(r"(\[(?![^\]]*PATCH)[^\]]*\] ?)|\[[^\]]*\]|(?i:re:)|[ \t:]")
_LONGEST_NAME: Final = 60
#: What git takes off the ends of names and addresses in commits; 2.39 also a dot, 2.47 not.
_CRUD: Final = "".join(map(chr, range(33))) + ",:;<>\"\\'"


@dataclass(frozen=True)
class Mail:
    """A patch file as `git am` reads it."""

    #: The name of the patch file.
    file: str
    name: str
    email: str
    date: str
    #: The subject, without the marks of a series.
    subject: str
    #: The whole message of the commit.
    message: str
    #: The rest: the diff, with whatever stands around it.
    diff: bytes

    @functools.cached_property
    def paths(self) -> frozenset[str]:
        """Every path that the diff names."""
        return frozenset(touched.path for touched in paths(self.diff))

    @property
    def author(self) -> bytes:
        """The author as a commit has it, without the date."""
        name, email = (re.sub("[<>\n]", "", text.strip(_CRUD)) for text in (self.name, self.email))
        return f"{name} <{email}>".encode()


def read_mail(file: PatchFile) -> Mail:
    """Read a patch file as `git mailinfo -b` does, which takes a process each."""
    import email.errors  # noqa: PLC0415  only commands that apply patches pay
    import email.utils  # noqa: PLC0415  the same

    mail = email.message_from_bytes(file.content)
    content = mail.get_payload(decode=True)
    if not isinstance(content, bytes):
        raise QueueError(f"{file.name}: it is a mail with attachments", hint=AGAIN)
    start = _BREAK.search(content)
    end = start.start() if start else len(content)
    try:
        body = content[:end].decode(mail.get_content_charset("utf-8"))
        head = {key: _decoded(mail, key) for key in ("From", "Subject", "Date")}
    except (UnicodeDecodeError, LookupError, email.errors.HeaderParseError) as error:
        raise QueueError(f"{file.name}: its author or message is not UTF-8", hint=AGAIN) from error
    if inside := _IN_BODY.match(body):
        head |= dict(row.lstrip(">").split(": ", 1) for row in inside[1].splitlines())
        body = body[inside.end() :]
    for key, value in head.items():
        if not value.strip():
            what = {"From": "author"}.get(key, key.lower())
            raise QueueError(f"{file.name}: no {what} in its header", hint=AGAIN)
    name, address = email.utils.parseaddr(head["From"])
    if not name or len(name) > _LONGEST_NAME or set(name) & set("<>@"):
        name = address
    marks = _MARKS.match(head["Subject"])
    cut = marks.end() if marks else 0
    subject = " ".join((_MARK.sub(r"\1", head["Subject"][:cut]) + head["Subject"][cut:]).split())
    text = body.strip("\n")
    message = subject + ("\n\n" + text if text else "") + "\n"
    if "\0" in message:
        raise QueueError(
            f"{file.name}: error: a NUL byte in commit log message not allowed.", hint=AGAIN
        )
    return Mail(file.name, name, address, head["Date"], subject, message, content[end:])


def _decoded(mail: Message, key: str) -> str:
    """Return a header as text; one that no mail program encoded is UTF-8."""
    from email.header import decode_header  # noqa: PLC0415  see read_mail

    # Of several the last one counts.
    raw = [str(value) for name, value in mail.raw_items() if name.lower() == key.lower()]
    text = raw[-1].encode("ascii", "surrogateescape").decode("utf-8") if raw else ""
    parts = decode_header(text)
    return " ".join(
        "".join(
            part if isinstance(part, str) else part.decode(charset or "raw-unicode-escape")
            for part, charset in parts
        ).split()
    )
