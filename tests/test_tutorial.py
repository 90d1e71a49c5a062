"""The tutorial, typed in line by line as it stands, on the real release."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.compile.toolchain import hip_toolchain
from contribbot.git.pins import Silent, index
from contribbot.model.patch import SdistSource
from contribbot.queue.load import load_queue
from tests.conftest import REAL_CACHE, Program
from tests.hiptoy import needed
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


def type_page(
    page: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Program, int]:
    """Type a page in; return where that was, and how many lines there were."""
    # In place of the network: the folder that the release was downloaded to.
    places = (("find-links", str(archive.parent)), ("no-index", "1"))
    listed = [(f":env:.{name}", value) for name, value in places]
    monkeypatch.setattr(index, "_pip_settings", lambda: listed)
    program = Program(tmp_path)
    typed = 0
    for language, content, file in blocks(page):
        if language != "console":
            path = program.cwd / file
            path.parent.mkdir(parents=True, exist_ok=True)
            # A table of TOML alone is added to what is there.
            before = path.read_text() + "\n" if content.startswith("[[") else ""
            path.write_text(before + content)
            continue
        for line, shown in _COMMAND.findall(content):
            screen = type_in(program, line)
            typed += 1
            for row in shown.splitlines():
                pattern = re.escape(row).replace("…", ".*")
                match = re.search(f"^{pattern}", screen, re.MULTILINE)
                assert match, (line, row, screen)
                # In this order, but for what runs side by side.
                screen = screen if " verify " in line else screen[match.end() :]
    return program, typed


def test_every_line_of_the_tutorial(
    tmp_path: Path, sglang_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, typed = type_page("first-patch.md", sglang_archive, tmp_path, monkeypatch)
    assert typed > 10


@pytest.mark.slow
def test_every_line_of_the_triton_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(hip_toolchain("gfx942"))
    pins = load_queue(DOCS.parent).spec.pins
    (vllm,) = (pin.sources[0] for pin in pins if pin.tag == "v0.33.0")
    assert isinstance(vllm, SdistSource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        archive = index.obtain(vllm, progress=Silent())
    _, typed = type_page("triton-kernel.md", archive, tmp_path, monkeypatch)
    assert typed > 8
