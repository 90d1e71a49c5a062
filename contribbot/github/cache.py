"""Answers that are kept with their ETag: asking again costs nothing while nothing changed."""

# Not CacheControl: it writes what an answer varies by into its files, at GitHub the token.

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

#: Bytes of a body that is worth keeping; larger ones are fetched anew.
_LARGEST: Final = 4 * 1024 * 1024
#: Files, and bytes of them in all, that are kept; the longest unused go first.
_FILES: Final = 2000
_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Response:
    """An HTTP response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Cache:
    """The answers that one token got: another token never gets to see them."""

    def __init__(self, folder: Path | None, secret: Secret) -> None:
        self._folder, self._secret = folder, secret
        if folder is not None:
            make_private(folder)
            with contextlib.suppress(OSError):
                self._prune(folder)

    def find(self, url: str) -> Response | None:
        """Return what was kept of a URL, or None: also where the file is damaged."""
        if (path := self._path(url)) is None:
            return None
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            headers, digest = json.loads(head)
            os.utime(path)
        except (OSError, ValueError, TypeError):
            return None
        return Response(200, headers, body) if digest == hashlib.sha256(body).hexdigest() else None

    def keep(self, url: str, answer: Response) -> None:
        """Keep an answer that has an ETag; that it cannot be written is no error."""
        path = self._path(url)
        if path is None or "etag" not in answer.headers or len(answer.body) > _LARGEST:
            return
        headers = {key: answer.headers[key] for key in ("etag", "link") if key in answer.headers}
        head = json.dumps([headers, hashlib.sha256(answer.body).hexdigest()])
        try:
            files.write_atomically(path, head.encode() + b"\n" + answer.body)
        except OSError as error:
            log.debug("an answer cannot be kept: %s", error)

    def _path(self, url: str) -> Path | None:
        # A token is too long to be guessed from a digest that it is a part of.
        name = hashlib.sha256(f"{self._secret.get_secret_value()}\0{url}".encode()).hexdigest()
        return self._folder / f"{name}.answer" if self._folder is not None else None

    def _prune(self, folder: Path) -> None:
        """Remove the longest unused, down to what may be kept."""
        room = _BYTES
        kept = [(path.lstat(), path) for path in folder.glob("*.answer")]
        kept.sort(key=lambda entry: entry[0].st_mtime, reverse=True)
        for number, (stat, path) in enumerate(kept):
            room -= stat.st_size
            if number >= _FILES or room < 0:
                path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder that nobody else can read; where it cannot be, whoever writes there says it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        log.debug("%s cannot be made private: %s", folder, error)
