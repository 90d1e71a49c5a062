"""What stands for a folder of this machine in what a check wrote, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.verify.pytest_run import Scrub


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("/short", "<home>"),
        ("in /short.", "in <home>."),
        ("'/short/a.py', line 3", "'<home>/a.py', line 3"),
        ("-I/short/x -L/short", "-I<home>/x -L<home>"),
        (r"'one\n/short/x'", r"'one\n<home>/x'"),
        ("PATH=/short:/short/bin", "PATH=<home>:<home>/bin"),
        ("file:///short/x", "file://<home>/x"),
        ("/shortfs /short-2 /short.d /short_", "/shortfs /short-2 /short.d /short_"),
        ("/srv/short src/short/x", "/srv/short src/short/x"),
        # pytest shows a file far from its root so.
        ("../../../short/x.py:9", "../../..<home>/x.py:9"),
        ("/short/runs/t/x /short/runs/t2", "<tree>/x <home>/runs/t2"),
    ],
)
def test_a_folder_is_hidden_and_nothing_else(text: str, scrubbed: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", "/short")
        scrub = Scrub(Path("/short/runs/t"), Path("/short/runs/r"))
    assert scrub(text) == scrubbed
