"""Where pinned trees come from: each source ends as one commit in the upstream's store."""

from __future__ import annotations

from contribbot.sources.base import Progress, Provided, Silent
from contribbot.sources.registry import SOURCES, find, provide

__all__ = ["SOURCES", "Progress", "Provided", "Silent", "find", "provide"]
