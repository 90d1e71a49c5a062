from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from contribbot.files import stores_folder
from contribbot.git.pins import Provided, Silent, SourceRequest
from contribbot.git.pins import index as pip_index
from contribbot.git.pins.sources import provide
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.model.patch import (
    GitSource,
    InstalledSource,
    Pin,
    SdistSource,
    SourceSpec,
    Upstream,
)

from .index_server import Index

UPSTREAM = Upstream(name="demo", repository="owner/demo")


class Kit:
    """What most tests here need: archives, pins and a store in a cache of their own."""

    upstream = UPSTREAM

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> Store:
        return open_store(stores_folder(), "demo")

    def pack(self, members: Mapping[str, bytes | tarfile.TarInfo], name: str = "") -> Path:
        """Write a .tar.gz; a TarInfo stands for itself, bytes for a file of mode 644."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            for path, content in members.items():
                if isinstance(content, tarfile.TarInfo):
                    tar.addfile(content, io.BytesIO(bytes(max(0, content.size))))
                    continue
                info = tarfile.TarInfo(path)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return self.write(gzip.compress(raw.getvalue(), mtime=0), name)

    def write(self, content: bytes, name: str = "") -> Path:
        path = self.folder / (name or "demo-1.0.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def sdist(self, archive: Path, *, sha256: str = "", root: str = "") -> SdistSource:
        digest = sha256 or hashlib.sha256(archive.read_bytes()).hexdigest()
        return SdistSource(
            kind="sdist", distribution="demo", version="1.0", sha256=digest, root=root
        )

    def pin(self, *sources: SourceSpec, tag: str = "", commit: str | None = None) -> Pin:
        version = next((one.version for one in sources if not isinstance(one, GitSource)), "1.0")
        tag = tag or f"v{version.partition('+')[0]}"
        return Pin(upstream="demo", tag=tag, commit=commit, sources=sources)

    def provide(self, *sources: SourceSpec, tag: str = "", commit: str | None = None) -> Provided:
        """Bring the tree of a pin with these sources into the store."""
        pin = self.pin(*sources, tag=tag, commit=commit)
        return provide(pin, self.upstream, self.store, progress=Silent())

    def job(self, spec: SourceSpec) -> SourceRequest:
        return SourceRequest(self.pin(spec), spec, self.upstream, self.store, Silent())

    def files(self, tree: str) -> dict[str, tuple[str, bytes]]:
        """Return mode and content of each file of a tree."""
        found = {}
        listed = self.store.git("ls-tree", "-r", "-z", tree).stdout.decode("utf-8")
        for line in listed.split("\0")[:-1]:
            facts, _, path = line.partition("\t")
            mode, _, object_id = facts.split(" ")
            found[path] = (mode, self.store.read(object_id))
        return found

    def nothing_landed(self) -> bool:
        """Say whether the store holds neither refs nor packs, whole or in parts."""
        refs = self.store.git("for-each-ref").stdout
        return not refs and not list((self.store.path / "objects" / "pack").iterdir())


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Like monkeypatch, undone before it is checked that the environment is as it was."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    folder = tmp_path / "files"
    folder.mkdir()
    return Kit(folder)


@pytest.fixture
def bare_pip(tmp_path: Path, patch: pytest.MonkeyPatch) -> Path:
    """Give a pip that nothing configures, and a network without proxies; return its home."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            patch.delenv(name)
    home = tmp_path / "pip-home"
    home.mkdir()
    patch.setenv("HOME", str(home))
    patch.delenv("XDG_CONFIG_HOME", raising=False)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    return home


def _listed() -> list[tuple[str, str]]:
    """Return what `pip config list` says where variables alone configure it."""
    return [
        (f":env:.{name.removeprefix('PIP_').lower().replace('_', '-')}", value)
        for name, value in os.environ.items()
        if name.startswith("PIP_")
    ]


@pytest.fixture
def index(bare_pip: Path, patch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Give an empty package index that pip is configured for."""
    assert bare_pip.is_dir()
    # A pip of its own in each test would be most of the time; test_pip_config asks it.
    patch.setattr(pip_index, "_pip_settings", _listed)
    with Index() as server:
        patch.setenv("PIP_INDEX_URL", server.url)
        yield server


@pytest.fixture
def find_links(kit: Kit, bare_pip: Path, patch: pytest.MonkeyPatch) -> Path:
    """Give a folder that pip finds packages in, and nowhere else."""
    assert bare_pip.is_dir()
    patch.setattr(pip_index, "_pip_settings", _listed)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(kit.folder))
    return kit.folder


def git(folder: Path, *args: str | Path) -> str:
    """Run git as a person would, untouched by the settings of whoever runs the tests."""
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@localhost"), ("DATE", "1700000000 +0000"))
    }
    done = subprocess.run(
        ["git", *args], cwd=folder, env=git_environment(identity), check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def wheel(tmp_path: Path, patch: pytest.MonkeyPatch) -> tuple[Path, InstalledSource]:
    """Install a tiny distribution beside this Python, as pip does; return its folder."""
    site = tmp_path / "site"
    files = {"demo/__init__.py": b"x = 1\n", "demo/sub/a.py": b"", "demo/data.bin": b"\0",
             "other/b.py": b"y = 2\n"}  # fmt: skip
    info = site / "demo_dist-1.0+cpu.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-dist\nVersion: 1.0+cpu\n")
    lines = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        lines.append(f"{path},{record_hash(content)},{len(content)}\n")
    lines.append("demo/__pycache__/a.pyc,,\n../../bin/demo.py,,\n")
    (info / "RECORD").write_text("".join(lines))
    patch.syspath_prepend(str(site))
    spec = InstalledSource(
        kind="installed", distribution="demo-dist", version="1.0", packages=("demo",)
    )
    return site, spec


def record_hash(content: bytes) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={encoded.decode()}"
