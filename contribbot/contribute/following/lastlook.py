"""The last look at each pull request, kept in `.contribbot/follow/`.

It can be deleted at any time: then the next look asks for everything again, and calls all
that it finds new.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.files import write_atomically
from contribbot.github.private import make_private
from contribbot.model.follow import Kept
from contribbot.model.github import PullRequest
from contribbot.queue.load import Queue

log: Final = logging.getLogger(__name__)

#: What changes without anything that was said or done to the pull request: what others do to
#: its base, and GitHub's trial merges.
_PASSING: Final = {"mergeable", "mergeable_state", "merge_commit_sha", "base"}


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
    said = pull.model_dump(mode="json", exclude=_PASSING)
    return digest(f"{sorted(said.items())} {pull.base.ref} {pull.base.repository}")


def _file(queue: Queue, name: str) -> Path:
    return queue.local / "follow" / f"{name}.json"
