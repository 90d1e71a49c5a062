"""The tutorial, typed in line by line as it stands, on the real release."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.git import package_index
from tests.conftest import Program
from tests.toy import GIT_ENV

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"```(\w+)\n(.*?)```\n", re.DOTALL)
_PATH = re.compile(r"`(patches/[^`\s]+)`")
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield the blocks of a page: language, content, and the file that was named last before."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        named = _PATH.findall(text[: block.start()])
        yield block[1], block[2], named[-1] if named else ""


def type_in(program: Program, line: str) -> str:
    """Run a line as a shell would; return what the screen shows."""
    words = shlex.split(line)
    if words[0] == "cd":
        program.cwd /= words[1]
        return ""
    if words[0] == "contribbot":
        ran = program(*words[1:])
        assert ran.code == 0, (line, ran.out, ran.err)
        return ran.err + ran.out
    env = {**GIT_ENV, "HOME": str(program.cwd)}
    subprocess.run(words, cwd=program.cwd, env=env, check=True)
    return ""


def test_every_line_of_the_tutorial(
    tmp_path: Path, sglang_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of the network: the folder that the release was downloaded to.
    places = (("find-links", str(sglang_archive.parent)), ("no-index", "1"))
    listed = [(f":env:.{name}", value) for name, value in places]
    monkeypatch.setattr(package_index, "_listed", lambda: listed)
    program = Program(tmp_path)
    typed = 0
    for language, content, file in blocks("first-patch.md"):
        if language != "console":
            path = program.cwd / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            continue
        for line, shown in _COMMAND.findall(content):
            screen = type_in(program, line)
            typed += 1
            for row in shown.splitlines():
                pattern = re.escape(row).replace("…", ".*")
                match = re.search(f"^{pattern}", screen, re.MULTILINE)
                assert match, (line, row, screen)
                # In this order, but for what runs side by side.
                screen = screen if line.endswith("verify priority") else screen[match.end() :]
    assert typed > 10
    for language, content, file in blocks("queue.md"):
        if file and language in {"toml", "python"}:
            assert (program.cwd / file).read_text() == content, file


def test_the_complete_examples_are_on_the_page_of_the_keys() -> None:
    shown = {file: content for _, content, file in blocks("queue.md")}
    assert set(shown) >= {
        "patches/queue.toml",
        "patches/priority/patch.toml",
        "patches/priority/checks/test_label.py",
    }
    assert tomllib.loads(shown["patches/queue.toml"])["order"] == ["priority"]
