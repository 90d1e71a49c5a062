"""The gate before a pull request: the upstream's rules, one row each. See `registry`."""

from __future__ import annotations

from contribbot.contribute.gate.registry import RULES, Rule, judge

__all__ = ["RULES", "Rule", "judge"]
