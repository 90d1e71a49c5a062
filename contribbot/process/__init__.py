"""The only door to other programs.

No shell, a time limit on everything, an environment that is built and never
inherited by accident, and a log line for each command (`--debug` shows them).
"""

from __future__ import annotations

from contribbot.process.children import (
    check_stopping,
    describe,
    no_space,
    remove_tree,
    resume,
    signal_name,
    stop,
)
from contribbot.process.environment import accelerator_environment, clean_environment, own_path
from contribbot.process.run import Completed, feed, run
from contribbot.process.sandbox import no_sandbox
from contribbot.process.supervise import Supervised, supervise

__all__ = [
    "Completed", "Supervised", "accelerator_environment", "check_stopping", "clean_environment",
    "describe", "feed", "no_sandbox", "no_space", "own_path", "remove_tree", "resume", "run",
    "signal_name", "stop", "supervise",
]  # fmt: skip
