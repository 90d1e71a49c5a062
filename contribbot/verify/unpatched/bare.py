"""A tree without the patch, and what an entry may say of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from contribbot.model.behaviour import Says
from contribbot.model.check import Stated
from contribbot.verify.job import Job
from contribbot.verify.memo import Memo


@dataclass(frozen=True)
class Seen:
    """What an entry said.

    Attributes:
        says: What.
        reason: One line that says why.
        transient: Whether it may be this machine's doing, and different the next time.
        log: The digest of the whole output, or empty.
    """

    says: Says
    reason: str
    transient: bool = False
    log: str = ""


@dataclass(frozen=True)
class Bare:
    """A tree without the patch.

    Attributes:
        job: A verification whose base and patched tree are this one; its patch states
            its entries with the paths of this tree, and what runs finds its tests there.
        tree: The tree's id.
        gone: Files that entries name, and that this tree neither has nor has elsewhere.
        built: What was built for checks to load: why it is not there, or empty.
    """

    job: Job
    tree: str
    gone: frozenset[str]
    built: Memo[Seen] = field(default_factory=Memo)


def is_red(entry: Stated) -> bool:
    """Say whether an entry must fail without the patch."""
    return entry.expect == "fail-to-pass"


def lost(bare: Bare, paths: Sequence[str]) -> Seen | None:
    """Say which of some files a tree has lost, or None."""
    path = next((path for path in paths if path in bare.gone), None)
    if path is None:
        return None
    return Seen(Says.OTHER, f"{path} is not there, and git knows of no file that it became")


def stated(entry: Stated, problem: str) -> Seen:
    """Judge the one thing that is wrong with a tree."""
    if re.search(entry.reason, problem):
        return Seen(Says.FAILS, problem)
    return Seen(Says.OTHER, f"fails for another reason than stated: {problem}")
