"""Answers that are kept with their ETag, so that asking again costs nothing while nothing changed.

The folder can be deleted at any time. A file is one JSON line and the body; its name is a
keyed digest of token and URL, with a key that lies beside: names show neither, and another
token never gets to see what this one fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, ValidationError

from contribbot import files
from contribbot.github.private import make_private
from contribbot.github.token import Secret
from contribbot.model.base import Model

log: Final = logging.getLogger(__name__)

_KEY: Final = "key"
_KEY_BYTES: Final = 32
_ENDING: Final = ".answer"
#: Bytes of a body that is worth keeping; larger ones are fetched anew.
_LARGEST: Final = 4 * 1024 * 1024
#: Files, and bytes of them in all, that are kept; the longest unused go first.
_FILES: Final = 2000
_BYTES: Final = 64 * 1024 * 1024
#: New answers between two looks at how much there is.
_LOOK_AFTER: Final = 200


class _Head(Model):
    """The first line of a file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    url: str
    etag: str
    link: str
    sha256: str


@dataclass(frozen=True)
class Kept:
    """An answer that was kept.

    Attributes:
        etag: What to send as `If-None-Match`.
        link: Its `Link` header, which names the next page.
        body: Its body.
    """

    etag: str
    link: str
    body: bytes


class Etags:
    """The answers that one token got."""

    def __init__(self, folder: Path | None, secret: Secret) -> None:
        self._folder = folder
        self._owner = b""
        self._written = 0
        if folder is not None:
            make_private(folder)
            self._owner = hmac.digest(_key(folder), secret.reveal().encode(), "sha256")

    def find(self, url: str) -> Kept | None:
        """Return what was kept of a URL, or None: also where the file is damaged."""
        path = self._path(url)
        if path is None:
            return None
        try:
            line, _, body = path.read_bytes().partition(b"\n")
            head = _Head.model_validate_json(line)
        except (OSError, ValidationError):
            return None
        if head.url != url or head.sha256 != hashlib.sha256(body).hexdigest():
            return None
        if not head.etag.isprintable() or not head.etag.isascii():
            return None  # it becomes a header
        with contextlib.suppress(OSError):
            os.utime(path)
        return Kept(head.etag, head.link, body)

    def keep(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Keep an answer that has an ETag; that it cannot be written is no error."""
        path, etag = self._path(url), headers.get("etag", "")
        if path is None or not etag or len(body) > _LARGEST:
            return
        head = _Head(
            url=url, etag=etag, link=headers.get("link", ""),
            sha256=hashlib.sha256(body).hexdigest(),
        )  # fmt: skip
        try:
            if path.is_symlink():
                path.unlink()  # nothing is written elsewhere
            files.write_atomically(path, head.model_dump_json().encode() + b"\n" + body)
        except OSError as error:
            log.debug("an answer cannot be kept: %s", error)
            return
        if self._written % _LOOK_AFTER == 0:
            self._let_go()
        self._written += 1

    def _path(self, url: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{hmac.digest(self._owner, url.encode(), 'sha256').hex()}{_ENDING}"

    def _let_go(self) -> None:
        """Remove the longest unused, down to what may be kept."""
        if self._folder is None:
            return
        found = []
        for path in self._folder.glob(f"*{_ENDING}"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        total = 0
        for number, (_, size, path) in enumerate(sorted(found, reverse=True), start=1):
            total += size
            if number > _FILES or total > _BYTES:
                path.unlink(missing_ok=True)


def _key(folder: Path) -> bytes:
    """Return the key of a folder; a new one where it has none, which forgets what is there."""
    path = folder / _KEY
    with contextlib.suppress(OSError):
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        if path.is_symlink():
            path.unlink()
        files.write_atomically(path, key)
        path.chmod(0o600)
    except OSError as error:
        log.debug("no answers can be kept: %s", error)
    return key
