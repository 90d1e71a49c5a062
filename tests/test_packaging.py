"""What installing does, and what it leaves alone."""

from __future__ import annotations

import importlib.metadata
import os
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
from tests.toy import GIT_ENV, git

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def test_a_rocm_build_of_torch_satisfies_the_requirement() -> None:
    lines = [line for line in PROJECT["dependencies"] if line.startswith("torch")]
    torch = Requirement(lines[0])
    # As pip asks of what is installed: development builds of ROCm images count too.
    for installed in ("2.9.0+rocm6.4", "2.9.0a0+git1c57644", "2.13.0+cpu", "2.15.0"):
        assert torch.specifier.contains(installed, prereleases=True), installed


def test_the_constraints_pin_everything_that_is_required() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line) for line in lines if line[0] != "#"}
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {canonical(line) for group in groups for line in group}
    # pip comes with the environment, and replaces itself at its own risk; an extra may
    # name another.
    assert names - {"pip", "contribbot"} <= pinned
    assert "torch==2.13.0" in lines


def test_the_installed_package_has_its_data() -> None:
    files = [str(path) for path in importlib.metadata.files("contribbot") or []]
    assert any(re.search(r"contribbot.*\.(pth|py)$", name) for name in files)
    package = Path(contribbot.__file__).parent
    for data in ("py.typed", "schemas/evidence-v2.json", "upstreams/sglang.toml"):
        assert (package / data).is_file()


def release(folder: Path) -> tuple[int, str]:
    """Make a release; return the exit status and what it says where it refuses."""
    done = subprocess.run(
        [folder / ".ci/release", sys.executable],
        env={**os.environ, **GIT_ENV}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_release_holds_what_git_tracks_and_nothing_else(tmp_path: Path) -> None:
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
        shutil.copy(ROOT / name, copy / name)
    git(copy, "init", "-q")
    git(copy, "add", "-A", "-f")
    git(copy, "commit", "-q", "-m", "All")
    # What lies beside it in somebody's folder: .git/info/exclude has such names, .gitignore not.
    strays = (".stores/v1/big", ".whl/x.whl", "mine/notes.md", "docs.old/a.md", "core.123")
    for stray in strays:
        (copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (copy / stray).write_text("stray", encoding="utf-8")
    assert release(copy) == (1, "release: the work tree has changes; commit them\n")
    (copy / ".git/info").mkdir()
    (copy / ".git/info/exclude").write_text("\n".join(strays), encoding="utf-8")
    assert release(copy)[0] == 0
    tag = f"v{contribbot.__version__}"
    assert git(copy, "rev-parse", f"{tag}^{{}}") == git(copy, "rev-parse", "HEAD")
    again = "raise __version__ in contribbot/__init__.py"
    assert release(copy) == (1, f"release: the tag {tag} is there; {again}\n")
    (copy / "CHANGELOG.md").write_text("# Changelog\n", encoding="utf-8")
    assert "write what is new for users" in release(copy)[1]
    (archive,) = (copy / "dist").glob("*.tar.gz")

    assert len(tracked) > 200
    with tarfile.open(archive) as inside:
        packed = {member.name.partition("/")[2] for member in inside if member.isfile()}
    assert packed - {"PKG-INFO"} == tracked
    # The headers that kernels are compiled with are no Python files.
    headers = {name for name in tracked if name.startswith("contribbot/compile/headers/")}
    assert len(headers) > 8
    (wheel,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as inside:
        assert headers <= set(inside.namelist())
