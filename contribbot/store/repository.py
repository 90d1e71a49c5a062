"""A bare git repository that holds the pinned trees of one upstream."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, MachineError
from contribbot.locks import lock

#: Written to `info/attributes`, which git reads before any `.gitattributes` of a
#: tree: bytes go in and out as they are, whatever an upstream's tree asks for.
_ATTRIBUTES: Final = (
    "* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst"
    " !diff !merge !whitespace\n"
)
_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
\tquotePath = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
#: What an import that was killed may leave in a store.
_LEFTOVERS: Final = ("objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_*",
                     "objects/??/tmp_obj_*", "fast_import_crash_*")  # fmt: skip


def git_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which no setting of the user or the system reaches git."""
    return process.clean_environment(
        {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            # Outside any repository of the user's, and never looked for upwards.
            "HOME": "/nonexistent",
            **(extra or {}),
        }
    )


class Store:
    """A bare git repository in the cache.

    Reading needs no lock: objects are written before the refs that name them.
    Writing, be it an import or a commit, takes `exclusive()`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(
        self,
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120.0,
        accept: Sequence[int] = (0,),
    ) -> process.Completed:
        """Run git on this store."""
        return process.run(
            ["git", f"--git-dir={self.path}", *args],
            cwd=cwd or self.path,
            env=git_environment(env),
            stdin=stdin,
            timeout=timeout,
            accept=accept,
        )

    def resolve(self, name: str) -> str | None:
        """Return the object id of a ref or revision, or None."""
        done = self.git("rev-parse", "--verify", "--quiet", name, accept=(0, 1, 128))
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit."""
        return self.git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.decode().strip()

    def has(self, object_id: str) -> bool:
        """Say whether an object is there."""
        return self.git("cat-file", "-e", object_id, accept=(0, 1, 128)).returncode == 0

    def read(self, object_id: str) -> bytes:
        """Return the content of a blob."""
        return self.git("cat-file", "blob", object_id).stdout

    def file(self, name: str) -> bytes | None:
        """Return the content of a file, as `tree:path` or by its id; None where there is none."""
        done = self.git("cat-file", "blob", name, accept=(0, 128))
        return done.stdout if done.returncode == 0 else None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store for an import; other processes and threads wait.

        What a killed import left behind is removed first.
        """
        with lock(self.path.with_name(self.path.name + ".lock"), f"the store {self.path.name}"):
            for pattern in _LEFTOVERS:
                for leftover in self.path.glob(pattern):
                    leftover.unlink(missing_ok=True)
            yield


def open_store(stores: Path, upstream: str) -> Store:
    """Open the store of an upstream, making it when it is not there."""
    path = stores / f"{upstream}.git"
    if not (path / "HEAD").is_file():
        with lock(stores / f"{upstream}.git.lock", f"the store {path.name}"):
            if not (path / "HEAD").is_file():
                _make(path)
    return Store(path)


def _make(path: Path) -> None:
    """Lay out an empty bare repository; HEAD last, since it says that all is there."""
    shutil.rmtree(path, ignore_errors=True)
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (path / folder).mkdir(parents=True)
    (path / "config").write_text(_CONFIG, encoding="utf-8")
    (path / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")
    (path / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")


def require_git() -> str:
    """Return git's version, for example `2.39.5`."""
    hint = "install git 2.39 or newer"
    try:
        said = process.run(["git", "version"], env=git_environment()).stdout.decode()
    except CommandError as error:
        raise MachineError("git does not run", hint=hint) from error
    version = said.split()[2]
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < (2, 39):
        raise MachineError(f"git {version} is too old", hint=hint)
    return version
