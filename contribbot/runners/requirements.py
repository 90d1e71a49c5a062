"""The pinned requirement that installs contribbot on runners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError

#: The file, in the queue's folder: what pip installs, each by version and digest.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"

_PINNED: Final = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]]*\])?\s*(?:==\s*[^\s*;]+|@\s*\S+)(?=\s|;|$)"
)
_HASH: Final = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")
#: A comment, as pip sees it.
_COMMENT: Final = re.compile(r"(?:^|\s+)#.*$")
_HINT: Final = "write it with `contribbot workflows pin`"


def check_requirements(folder: Path) -> None:
    """Refuse a pinned requirement with which a runner could install something else."""
    path = folder / REQUIREMENTS
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise QueueError(
            f"{path}: no such file: runners would not know which contribbot to install", hint=_HINT
        ) from None
    except UnicodeDecodeError as error:
        raise QueueError(f"{path}: not UTF-8", hint=_HINT) from error
    names = set()
    for line, requirement in _logical(text):
        if not _PINNED.match(requirement):
            raise QueueError(
                f"{path}:{line}: not one package with its version: {requirement[:60]}", hint=_HINT
            )
        if not _HASH.search(requirement):
            raise QueueError(f"{path}:{line}: no --hash=sha256:…: {requirement[:60]}", hint=_HINT)
        names.add(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower())
    if "contribbot" not in names:
        raise QueueError(f"{path}: contribbot is not in it", hint=_HINT)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Give each requirement on one line, with the number of the line that it begins on."""
    parts: list[str] = []
    first = 0
    for number, row in enumerate(text.splitlines(), start=1):
        line = _COMMENT.sub("", row).strip()
        if not parts:
            first = number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        joined = " ".join(filter(None, parts))
        parts = []
        if joined:
            yield first, joined
    if any(parts):
        yield first, " ".join(filter(None, parts))
