"""What the `build` stage made, for the checks that load it."""

from __future__ import annotations

from collections.abc import Mapping

from contribbot.verify.job import Job


def obstacle(job: Job, name: str, target: str) -> str:
    """Say why a build's products are not there, or nothing.

    Args:
        job: The verification; its stage `build` has ended.
        name: The `[[build]]`.
        target: The hardware of the check that needs it.
    """
    raise NotImplementedError(job, name, target)


def product(job: Job, name: str, target: str, tree: str) -> Mapping[str, str]:
    """Return the variables that tell a check where a build's product is.

    `CONTRIBBOT_EXTENSION` is the path of a shared library; `PYTHONPATH` is put before
    the tree's own.

    Args:
        job: The verification.
        name: The `[[build]]`, which has no obstacle.
        target: The hardware of the check.
        tree: The base's or the patched tree's id.
    """
    raise NotImplementedError(job, name, target, tree)
