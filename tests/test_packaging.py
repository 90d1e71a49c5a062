"""What installing does, and what it leaves alone."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import contribbot

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_a_rocm_build_of_torch_satisfies_the_requirement() -> None:
    torch = next(Requirement(one) for one in PROJECT["dependencies"] if one.startswith("torch"))
    # As pip asks of what is installed: development builds of ROCm images count too.
    for installed in ("2.9.0+rocm6.4", "2.9.0a0+git1c57644", "2.13.0+cpu", "2.15.0"):
        assert torch.specifier.contains(installed, prereleases=True), installed


def test_the_constraints_pin_everything_that_is_required() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {Requirement(line).name.lower() for line in lines if line and line[0] != "#"}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {Requirement(one).name.lower() for one in wanted}
    # pip comes with the environment, and replaces itself at its own risk.
    assert names - {"pip"} <= pinned
    assert "torch==2.13.0" in lines


def test_the_installed_package_has_its_data() -> None:
    files = [str(path) for path in importlib.metadata.files("contribbot") or []]
    assert any(re.search(r"contribbot.*\.(pth|py)$", name) for name in files)
    package = Path(contribbot.__file__).parent
    for data in ("py.typed", "schemas/evidence-v1.json", "upstreams/sglang.toml"):
        assert (package / data).is_file()


def test_the_changelog_and_the_licence_are_there() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "# Changelog" in (ROOT / "CHANGELOG.md").read_text()
