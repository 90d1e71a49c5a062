"""What benchmarks share: releases of vLLM in a store, and patches made on them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.git.apply import Commit, Entry, Overlay, write_commits
from contribbot.git.patch_format import format_chains
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.git.source import Silent
from contribbot.git.sources import provide
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin, SdistSource, Upstream

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

    def files(self) -> dict[str, Entry]:
        """Return every Python file of the package."""
        said = self.store.git("ls-tree", "-r", "-z", self.commit, "vllm/").stdout.decode()
        found: dict[str, Entry] = {}
        for row in filter(None, said.split("\0")):
            head, _, path = row.partition("\t")
            mode, _, blob = head.split(" ")
            if path.endswith(".py"):
                found[path] = Entry(mode, blob)
        return found

    def commits(self, paths: Sequence[str], *, in_a_row: bool) -> list[Commit]:
        """Change a line in the middle of each file: a commit each.

        Args:
            paths: The files.
            in_a_row: Whether each is on top of the one before, or all are on the base.
        """
        top = Overlay(self.store, self.commit)
        top.prefetch(paths)
        parent, made = self.commit, []
        for number, path in enumerate(paths):
            tree = top if in_a_row else top.fork()
            entry = tree.entry(path)
            if entry is None:
                raise FileNotFoundError(path)
            lines = tree.content(entry.blob).split(b"\n")
            lines.insert(len(lines) // 2, b"# A line of patch %d." % number)
            change = tree.put(path, entry.mode, b"\n".join(lines))
            message = b"Change %d of a file\n\nIt gets a line in its middle.\n" % number
            made.append(Commit(tree.tree(), parent, _WHO, _WHO, message, (change,)))
            parent = made[-1].id if in_a_row else self.commit
        write_commits(self.store, made)
        return made

    def patches(self, count: int) -> list[PatchFile]:
        """Return patches in a row, each of another file, as files."""
        contents = Overlay(self.store, self.commit)
        entries = self.files()
        contents.contents(entry.blob for entry in entries.values())
        long = [
            path
            for path, entry in entries.items()
            if contents.content(entry.blob).count(b"\n") > _ENOUGH
        ]
        step = len(long) // count
        made = self.commits(long[::step][:count], in_a_row=True)
        return [files[0] for files in format_chains(self.store, [[one.id] for one in made])]

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
