"""How the workflows of a queue stand."""

from __future__ import annotations

import enum

from pydantic import Field

from contribbot.model.base import Model


class Standing(enum.StrEnum):
    """How a workflow of a queue compares with what it shall be."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"
    EDITED = "changed by hand"


class Workflow(Model):
    """One workflow.

    Attributes:
        path: The file, seen from the queue's folder.
        standing: How it stands.
        diff: What installing would change, as lines of a unified diff.
        wanted: What it shall hold.
    """

    path: str
    standing: Standing
    diff: tuple[str, ...] = ()
    wanted: str = Field(exclude=True, repr=False)


class Workflows(Model):
    """What `contribbot workflows install --json` says.

    Attributes:
        written: Whether files were written.
        workflows: How they stood before.
    """

    written: bool
    workflows: tuple[Workflow, ...]
