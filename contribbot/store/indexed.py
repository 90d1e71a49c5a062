"""`git apply` on an index that holds only what a patch names."""

from __future__ import annotations

from pathlib import Path

from contribbot import process
from contribbot.store.difftext import named_paths
from contribbot.store.overlay import FOLDER, Change, Entry, Overlay
from contribbot.store.repository import Store


class Indexed:
    """An index with the paths of one diff."""

    def __init__(self, store: Store, tree: Overlay, diff: bytes, index: Path) -> None:
        self._store = store
        self._tree = tree
        self._env = {"GIT_INDEX_FILE": str(index)}
        self._before: dict[str, Entry] = {}
        paths = {path for path in named_paths(diff) if "\0" not in path}
        tree.prefetch(paths)
        for path in sorted(paths):
            for known in (path, tree.blocker(path)):
                entry = tree.entry(known) if known else None
                if entry is not None and entry.mode == FOLDER:
                    # A file cannot come where a folder is: one file of it says so.
                    known = tree.first_in(known)  # noqa: PLW2901  what stands for the folder
                    entry = tree.entry(known) if known else None
                if entry is not None and known:
                    self._before[known] = entry
        rows = [_row(path, entry) for path, entry in sorted(self._before.items())]
        index.unlink(missing_ok=True)
        store.git("update-index", "-z", "--index-info", stdin=b"".join(rows), env=self._env)

    def apply(self, diff: bytes, *options: str) -> process.Completed:
        """Apply a diff to the index; nothing is changed when it does not fit."""
        return self._store.git(
            "apply", "--cached", "--verbose", "--whitespace=nowarn", *options, "-",
            stdin=diff, env=self._env, accept=(0, 1, 128),
        )  # fmt: skip

    def take(self) -> list[Change]:
        """Carry what changed in the index over to the tree, and return it."""
        said = self._store.git("ls-files", "--stage", "-z", env=self._env).stdout
        after: dict[str, Entry] = {}
        for row in said.split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, blob, _ = head.decode().split(" ")
            after[path.decode("utf-8", "surrogateescape")] = Entry(mode, blob)
        gone = [self._tree.set(path, None) for path in self._before if path not in after]
        return gone + [
            self._tree.set(path, entry)
            for path, entry in after.items()
            if self._before.get(path) != entry
        ]


def _row(path: str, entry: Entry) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b"%s %s\t%s\0" % (entry.mode.encode(), entry.blob.encode(), raw)
