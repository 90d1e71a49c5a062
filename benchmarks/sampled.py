"""A pytest plug-in that leaves a sample of the cases of each test function, chosen by a fixed seed.

SAMPLED_CASES is the most that are left of one; SAMPLED_COUNTS names a file that gets, by function,
how many there were. A test that takes longer than SAMPLED_SECONDS fails by a TimeoutError.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Generator
from pathlib import Path

import pytest


def too_long(*_: object) -> None:
    """End a test."""
    raise TimeoutError("too long for a sample")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Limit the time of a test."""
    signal.alarm(int(os.environ["SAMPLED_SECONDS"]))
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave a sample of each function's cases."""
    functions = dict[str, list[pytest.Item]]()
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chance, chosen = random.Random(20261123), list[pytest.Item]()  # noqa: S311  a fixed sample
    for cases in functions.values():
        chosen += chance.sample(cases, min(int(os.environ["SAMPLED_CASES"]), len(cases)))
    items[:] = chosen
    counts = {name: len(cases) for name, cases in functions.items()}
    signal.signal(signal.SIGALRM, too_long)
    Path(os.environ["SAMPLED_COUNTS"]).write_text(json.dumps(counts), encoding="utf-8")
