"""What benchmarks share: releases of vLLM in a store, and patches made on them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.git.patch_format import format_chains
from contribbot.git.pins import Silent
from contribbot.git.pins.sources import provide
from contribbot.git.repository import (
    NewCommit,
    Store,
    content_of,
    git_environment,
    open_store,
    write_commits,
)
from contribbot.model.patch import PatchFile, Pin, SdistSource, Upstream

#: The archives of the releases, as the package index announces them.
_SHA256: Final = {
    "0.22.0": "6d41581a9e5288cd69278518a550c6d7ce510ae27a506556a3427d01284be7fe",
    "0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
}
_WHO: Final = b"Ada Example <ada@example.com> 1700000000 +0100"
#: Lines of a file that is changed: enough for a place far from both its ends.
_ENOUGH: Final = 60


@dataclass(frozen=True)
class Base:
    """A release in a store.

    Attributes:
        store: The store.
        commit: The release's commit.
    """

    store: Store
    commit: str

    def files(self) -> dict[str, str]:
        """Return every Python file of the package, with its blob."""
        said = self.store.git("ls-tree", "-r", "-z", self.commit, "vllm/").stdout.decode()
        rows = (row.partition("\t") for row in filter(None, said.split("\0")))
        return {path: head.split(" ")[2] for head, _, path in rows if path.endswith(".py")}

    def lines(self, paths: Iterable[str]) -> dict[str, list[bytes]]:
        """Return the lines of files."""
        files = self.files()
        with self.store.open() as repo:
            return {path: content_of(repo, files[path]).split(b"\n") for path in paths}

    def commits(self, paths: Sequence[str], *, in_a_row: bool) -> list[tuple[NewCommit, str, str]]:
        """Change a line in the middle of each file: a commit each, with its id and its tree.

        Args:
            paths: The files.
            in_a_row: Whether each is on top of the one before, or all are on the base.
        """
        made: list[NewCommit] = []
        for number, (path, lines) in enumerate(self.lines(paths).items()):
            lines.insert(len(lines) // 2, b"# A line of patch %d." % number)
            blob = self.store.git("hash-object", "-w", "--stdin", stdin=b"\n".join(lines)).stdout
            message = b"Change %d of a file\n\nIt gets a line in its middle.\n" % number
            parent = "" if in_a_row and number else self.commit
            entries = {path: ("100644", blob.decode().strip())}
            made.append(NewCommit(parent, _WHO, _WHO, message, after=number - 1, entries=entries))
        written = write_commits(self.store, made, dates="raw")
        return [(one, *ids) for one, ids in zip(made, written, strict=True)]

    def patches(self, count: int) -> list[PatchFile]:
        """Return patches in a row, each of another file, as files."""
        long = [path for path, lines in self.lines(self.files()).items() if len(lines) > _ENOUGH]
        step = len(long) // count
        made = self.commits(long[::step][:count], in_a_row=True)
        return [files[0] for files in format_chains(self.store, [[one[1]] for one in made])]

    def work_tree(self, folder: Path) -> Path:
        """Return a work tree at the release, a repository that borrows the store's objects."""
        env = git_environment()
        for command in (
            ["git", "init", "-q", str(folder)],
            ["git", "-C", str(folder), "config", "gc.auto", "0"],
        ):
            subprocess.run(command, check=True, env=env)
        alternates = folder / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{self.store.path / 'objects'}\n", encoding="utf-8")
        subprocess.run(
            ["git", "reset", "-q", "--hard", self.commit], cwd=folder, check=True, env=env
        )
        return folder


def brought(stores: Path, version: str) -> Base:
    """Bring a release into a store, from the downloads that are there or from the index.

    Args:
        stores: The folder of the stores.
        version: The release.
    """
    source = SdistSource(
        kind="sdist", distribution="vllm", version=version, sha256=_SHA256[version]
    )
    upstream = Upstream(name="vllm", repository="vllm-project/vllm")
    pin = Pin(upstream="vllm", tag=f"v{version}", sources=(source,))
    store = open_store(stores, "vllm")
    return Base(store, provide(pin, upstream, store, progress=Silent()).commit)
