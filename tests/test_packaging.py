"""What installing does, and what it leaves alone."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import contribbot

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def test_a_rocm_build_of_torch_satisfies_the_requirement() -> None:
    torch = next(Requirement(one) for one in PROJECT["dependencies"] if one.startswith("torch"))
    # As pip asks of what is installed: development builds of ROCm images count too.
    for installed in ("2.9.0+rocm6.4", "2.9.0a0+git1c57644", "2.13.0+cpu", "2.15.0"):
        assert torch.specifier.contains(installed, prereleases=True), installed


def test_the_constraints_pin_everything_that_is_required() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line) for line in lines if line[0] != "#"}
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    wanted = [one for group in groups for one in group]
    names = {canonical(one) for one in wanted}
    # pip comes with the environment, and replaces itself at its own risk; an extra may
    # name another.
    assert names - {"pip", "contribbot"} <= pinned
    assert "torch==2.13.0" in lines


def test_the_installed_package_has_its_data() -> None:
    files = [str(path) for path in importlib.metadata.files("contribbot") or []]
    assert any(re.search(r"contribbot.*\.(pth|py)$", name) for name in files)
    package = Path(contribbot.__file__).parent
    for data in ("py.typed", "schemas/evidence-v1.json", "upstreams/sglang.toml"):
        assert (package / data).is_file()


def test_what_is_built_has_the_headers_that_kernels_are_compiled_with(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT / "contribbot", copy / "contribbot", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "workflows", copy / "workflows")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    headers = copy / "contribbot/hardware/headers"
    wanted = {path.relative_to(copy).as_posix() for path in headers.rglob("*") if path.is_file()}

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", tmp_path / "dist"],
        cwd=copy, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")

    assert len(wanted) > 8
    with zipfile.ZipFile(wheel) as inside:
        assert wanted <= set(inside.namelist())
    with tarfile.open(archive) as inside:
        assert wanted <= {name.partition("/")[2] for name in inside.getnames()}


def test_a_source_archive_holds_what_git_tracks_and_nothing_else(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository here: this is a source archive itself")
    # Whose files they are is no matter: git is only asked for names.
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode()  # fmt: skip
    tracked = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    copy = tmp_path / "copy"
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    # What lies beside it in somebody's folder: .git/info/exclude has such names, .gitignore not.
    for stray in (".stores/v1/big", ".whl/x.whl", "mine/notes.md", "docs.old/a.md", "core.123"):
        (copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (copy / stray).write_text("stray", encoding="utf-8")

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path / "dist"],
        cwd=copy, check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")

    assert len(tracked) > 200
    with tarfile.open(archive) as inside:
        packed = {one.name.partition("/")[2] for one in inside if one.isfile()}
    assert packed - {"PKG-INFO"} == tracked


def test_the_changelog_and_the_licence_are_there() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "# Changelog" in (ROOT / "CHANGELOG.md").read_text()
