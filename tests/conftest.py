"""What all tests share: nothing may reach the user's home, and programs run for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.model.pin import Pin, SdistSource
from contribbot.model.report import PatchReport, VerifyReport
from contribbot.sources import Silent
from contribbot.sources.download import obtain
from contribbot.workspace import cache_folder
from tests.tools import missing
from tests.toy import Toy

if TYPE_CHECKING:
    from pydantic import JsonValue

    from contribbot.model.outcome import StageResult

#: Where archives are kept between runs; read before any test changes the environment.
REAL_CACHE = cache_folder()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-tools", action="store_true", help="fail, not skip, where a tool is missing"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools (`@pytest.mark.tool`) are not on this machine."""
    tools = [tool for marker in item.iter_markers("tool") for tool in marker.args]
    lacking = "; ".join(filter(None, map(missing, tools)))
    if lacking and item.config.getoption("--require-tools"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(autouse=True)
def _nothing_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test its own home and cache, and see that the environment stays as it was."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CONTRIBBOT_CACHE", str(tmp_path / "cache"))
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_TOKEN", "NO_COLOR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    yield
    after = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    before.pop("PYTEST_CURRENT_TEST", None)
    assert after == before, "a test or what it called changed os.environ"
    assert list(home.iterdir()) == [], "something was written to HOME"


@dataclass
class Ran:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, JsonValue]:
        """Return standard output as the one JSON document that it must be."""
        document: dict[str, JsonValue] = json.loads(self.out)
        return document

    def report(self, patch: int = 0) -> PatchReport:
        """Return what `verify --json` said of a patch."""
        return VerifyReport.model_validate_json(self.out).patches[patch]

    def stages(self, patch: int = 0) -> dict[str, StageResult]:
        """Return the outcomes of a patch by stage and check."""
        found = {}
        for one in self.report(patch).stages:
            check = one.details.get("check")
            found[f"{one.stage} {check}" if check else one.stage] = one
        return found


def dig(value: JsonValue, *keys: str | int) -> JsonValue:
    """Follow keys and indexes into JSON."""
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value[key]
        else:
            assert isinstance(value, list)
            assert isinstance(key, int)
            value = value[key]
    return value


@dataclass
class Program:
    """The program, run as a user runs it."""

    cwd: Path
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: str | Path, cwd: Path | None = None, **env: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "contribbot", *map(str, args)],
            cwd=cwd or self.cwd,
            env={**os.environ, **self.env, **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start it and do not wait."""
        return subprocess.Popen(
            [sys.executable, "-m", "contribbot", *map(str, args)],
            cwd=self.cwd,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A queue whose upstream is a git repository beside it, with no patch yet."""
    return Toy(tmp_path / "toy")


@pytest.fixture
def program(toy: Toy) -> Program:
    """The program, run in the toy queue."""
    return Program(toy.queue)


@pytest.fixture(scope="session")
def sglang_pin() -> Pin:
    source = SdistSource(
        kind="sdist",
        distribution="sglang",
        version="0.5.10.post1",
        sha256="01f7adfe7cde85b238fb0e1bae4b31d494e19d1471cf35ff3c5489a02f9d2263",
        root="python",
    )
    return Pin(upstream="sglang", tag="v0.5.10.post1", sources=(source,))


@pytest.fixture(scope="session")
def sglang_archive(sglang_pin: Pin) -> Path:
    """Give the real archive, from the index that this machine's pip uses, kept between runs."""
    source = sglang_pin.sources[0]
    assert isinstance(source, SdistSource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        return obtain(source, progress=Silent())
