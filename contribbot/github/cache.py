"""Answers that are kept with their ETag, so that asking again costs nothing while nothing changed.

CacheControl would do this too, but writes what an answer varies by into its files, which at
GitHub is the token. The folder can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import files
from contribbot.github.auth import Secret

log: Final = logging.getLogger(__name__)

_ENDING: Final = ".answer"
#: Bytes of a body that is worth keeping; larger ones are fetched anew.
_LARGEST: Final = 4 * 1024 * 1024
#: Files, and bytes of them in all, that are kept; the longest unused go first.
_FILES: Final = 2000
_BYTES: Final = 64 * 1024 * 1024
#: New answers between two looks at how much there is.
_LOOK_AFTER: Final = 200


@dataclass(frozen=True)
class Kept:
    """An answer: its ETag, its `Link` header and its body."""

    etag: str
    link: str
    body: bytes


class Cache:
    """The answers that one token got: another token never gets to see them."""

    def __init__(self, folder: Path | None, secret: Secret) -> None:
        self._folder, self._secret, self._written = folder, secret, 0
        if folder is not None:
            make_private(folder)

    def find(self, url: str) -> Kept | None:
        """Return what was kept of a URL, or None: also where the file is damaged."""
        path = self._path(url)
        if path is None:
            return None
        try:
            line, _, body = path.read_bytes().partition(b"\n")
            known, etag, link, sha256 = map(str, json.loads(line))
        except (OSError, ValueError, TypeError):
            return None
        if (known, sha256) != (url, hashlib.sha256(body).hexdigest()):
            return None
        if not etag.isprintable() or not etag.isascii():
            return None  # it becomes a header
        with contextlib.suppress(OSError):
            os.utime(path)
        return Kept(etag, link, body)

    def keep(self, url: str, answer: Kept) -> None:
        """Keep an answer that has an ETag; that it cannot be written is no error."""
        path = self._path(url)
        if path is None or not answer.etag or len(answer.body) > _LARGEST:
            return
        head = [url, answer.etag, answer.link, hashlib.sha256(answer.body).hexdigest()]
        try:
            if path.is_symlink():
                path.unlink()  # nothing is written elsewhere
            files.write_atomically(path, json.dumps(head).encode() + b"\n" + answer.body)
        except OSError as error:
            log.debug("an answer cannot be kept: %s", error)
            return
        if self._written % _LOOK_AFTER == 0:
            self._prune(path.parent)
        self._written += 1

    def _path(self, url: str) -> Path | None:
        if self._folder is None:
            return None
        # A token is too long to be guessed from a digest that it is a part of.
        name = hashlib.sha256(f"{self._secret.get_secret_value()}\0{url}".encode()).hexdigest()
        return self._folder / f"{name}{_ENDING}"

    def _prune(self, folder: Path) -> None:
        """Remove the longest unused, down to what may be kept."""
        found = []
        for path in folder.glob(f"*{_ENDING}"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        total = 0
        for number, (_, size, path) in enumerate(sorted(found, reverse=True), start=1):
            total += size
            if number > _FILES or total > _BYTES:
                with contextlib.suppress(OSError):
                    path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder, for nobody else to read: also one that something else made before.

    That it cannot be is no error here: whoever writes into it says what is wrong.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        log.debug("%s cannot be made private: %s", folder, error)
