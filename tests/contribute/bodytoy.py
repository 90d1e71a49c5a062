"""The toy queue with rules and a template of its own."""

from __future__ import annotations

from tests.toy import Toy

RULES = """
upstream = "toy"
source = "made up"
targets = ["gfx942"]
tests = ["tests"]

[body]
template = "1"
live = ".github/pull_request_template.md"
budget = {budget}

[[questions]]
name = "read"
text = "Have you read it?"
"""
TEMPLATE = """
upstream = "toy"
version = "1"
source = "made up"

[[sections]]
heading = "## What"
blocks = ["issue", "problem", "cause", "solution", "related", "duplicates", "docs", "words", "ai"]

[[sections]]
heading = "## Shown"
blocks = [
    "claims", "tests", "numerics", "compile", "witness", "speed", "grid", "commands", "records",
]

[[sections]]
summary = "Checklist"
folded = ["checklist"]
items = [{ text = "Tests", tick = "tests" }, { text = "AI", tick = "ai" }, { text = "Lint" }]
"""


def describe(toy: Toy, *, budget: int = 10_000) -> None:
    """Give the toy upstream rules and a template."""
    toy.put("upstreams/contributing/toy.toml", RULES.format(budget=budget))
    toy.put("upstreams/templates/toy/1.toml", TEMPLATE)
