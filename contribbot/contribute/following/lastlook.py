"""The last look at each pull request, kept in `.contribbot/follow/`.

It can be deleted at any time: then the next look asks for everything again, and calls all
that it finds new.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot.files import write_atomically
from contribbot.github.cache import make_private
from contribbot.github.fields import name_of
from contribbot.model.follow import Kept
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

log: Final = logging.getLogger(__name__)

#: What changes with what is said or done to the pull request, and not with what others do to
#: its base, or GitHub's trial merges.
_TELLING: Final = (
    "number", "state", "title", "body", "draft", "updated_at", "closed_at", "merged_at",
)  # fmt: skip


def load(queue: Queue, name: str) -> Kept | None:
    """Return what is kept of a patch's pull request; None: nothing that can be read."""
    try:
        return Kept.model_validate_json(_file(queue, name).read_bytes())
    except (OSError, ValidationError):
        return None


def save(queue: Queue, name: str, kept: Kept) -> None:
    """Keep a look; that it cannot be written costs requests, and is no error."""
    path = _file(queue, name)
    make_private(path.parent)
    try:
        write_atomically(path, kept.model_dump_json().encode())
    except OSError as error:
        log.debug("the last look at %s cannot be kept: %s", name, error)


def digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def pull_digest(pull: PullRequest) -> str:
    """Return a digest of what of a pull request says that something happened to it.

    GitHub's answer, and with it its ETag, also changes with what happens to the repository
    around it: that is no reason to ask for all comments again.
    """
    said = {key: pull.raw_data.get(key) for key in _TELLING}
    sides = (pull.head.ref, pull.head.sha, name_of(pull.head.repo), pull.base.ref)
    labels = sorted(label.name for label in pull.labels)
    return digest(json.dumps([said, sides, name_of(pull.base.repo), labels]))


def _file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"
