"""A small real queue: a git repository as upstream, one pin, patches made with git."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack

from contribbot.git.repository import Store, open_store
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction

GIT_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    # Thousands of repositories are made: the examples of hooks are not wanted in each.
    "GIT_TEMPLATE_DIR": "",
    "GIT_AUTHOR_NAME": "Ada Example",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0100",
    "GIT_COMMITTER_NAME": "Ada Example",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "1700000000 +0100",
    "LC_ALL": "C.UTF-8",
}

AREA = '''\
"""Areas."""


def square(side):
    return side * side


def rectangle(width, height):
    # The caller gives the sides.
    return width + height


def triangle(base, height):
    return base * height / 2
'''
FIXED = AREA.replace("return width + height", "area = width * height\n    return area")
FAIL_TO_PASS = """\
from toy.area import rectangle


def test_rectangle():
    assert rectangle(2, 3) == 6


def test_flat():
    assert rectangle(1, 4) == 4
"""
PASS_TO_PASS = """\
from toy.area import square, triangle


def test_others():
    assert (square(3), triangle(2, 3)) == (9, 3)
"""


#: Patches by commit, change and message: dates and names never differ.
_PATCHES: dict[tuple[object, ...], bytes] = {}


def git(folder: Path, *args: str, stdin: bytes = b"") -> bytes:
    """Run git in a folder, with nobody's configuration."""
    done = subprocess.run(
        ["git", *args], cwd=folder, env=GIT_ENV, input=stdin, capture_output=True, check=True
    )
    return done.stdout


@functools.cache
def upstream() -> dict[str, bytes]:
    """Return the files of the toy's upstream, made once: a commit with the tag v1.0."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "-q", "-b", "main")
        (folder / "src/toy").mkdir(parents=True)
        (folder / "src/toy/__init__.py").touch()
        (folder / "src/toy/area.py").write_text(AREA)
        (folder / "README").write_text("toy\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "Toy 1.0")
        git(folder, "tag", "v1.0")
        return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file of a queue, but for local state."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".contribbot" not in path.parts
    }


class Parts(TypedDict, total=False):
    """Parts of a patch that differ from one that is right."""

    patch: bytes
    files: tuple[str, ...]
    checks: str
    check_files: dict[str, str]
    extra: str


@dataclass
class Toy:
    """A queue in a folder, with its upstream beside it."""

    root: Path
    upstream: Path = field(init=False)
    queue: Path = field(init=False)
    commit: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.upstream = self.root / "upstream"
        self.queue = self.root / "queue"
        for path, content in upstream().items():
            self.write(path, content)
        self.commit = upstream()[".git/refs/heads/main"].decode().strip()
        self.put("upstreams/toy.toml", self.upstream_toml())
        self.put_queue([])

    def upstream_toml(self, commits: str = "") -> str:
        return (
            'name = "toy"\nrepository = "example/toy"\npython_roots = ["src"]\n'
            f'tests = ["tests"]\n\n[commits]\n{commits}\n'
        )

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file of the upstream's work tree."""
        self.put(self.upstream / path, content)

    def put(self, path: str | Path, content: str | bytes) -> Path:
        """Write a file of the queue."""
        target = self.queue / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text, which must be there, in a file of the queue."""
        content = (self.queue / path).read_bytes()
        assert old.encode() in content
        self.put(path, content.replace(old.encode(), new.encode()))

    def put_queue(self, order: list[str], *, commit: str | None = None) -> None:
        names = ", ".join(f'"{name}"' for name in order)
        self.put(
            "patches/queue.toml",
            f'order = [{names}]\n\n[[pins]]\nupstream = "toy"\ntag = "v1.0"\n'
            f'commit = "{commit or self.commit}"\n\n'
            f'[[pins.sources]]\nkind = "git"\nremote = "{self.upstream.as_uri()}"\n',
        )

    def add_pin(self) -> None:
        """Pin a second release, v2.0, which has no tag."""
        pin = '\n[[pins]]\nupstream = "toy"\ntag = "v2.0"\n\n[[pins.sources]]\nkind = "git"\n'
        path = self.queue / "patches/queue.toml"
        path.write_text(path.read_text() + pin)

    def change(self, changes: Mapping[str, str | bytes | None], message: str) -> str:
        """Commit a change of the upstream, and return the commit; None: the file goes."""
        for path, content in changes.items():
            if content is None:
                (self.upstream / path).unlink()
            else:
                self.write(path, content)
        git(self.upstream, "add", "-A")
        git(self.upstream, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.upstream, "rev-parse", "HEAD").decode().strip()

    def fetched(self) -> Store:
        """Return a store, each time the same one, that holds the upstream's HEAD."""
        store = open_store(self.root / "stores", "toy")
        store.git("fetch", "-q", str(self.upstream), "+HEAD:refs/heads/main")
        return store

    def format_patch(
        self, changes: Mapping[str, str | bytes | None],
        subject: str = "Multiply the sides of a rectangle", body: str = "Adding them is no area.",
    ) -> bytes:  # fmt: skip
        """Return a change of the upstream's main as a format-patch file; None: the file goes."""
        key = (self.commit, tuple(changes.items()), subject, body)
        if key in _PATCHES:
            return _PATCHES[key]
        self.change(changes, f"{subject}\n\n{body}")
        content = git(
            self.upstream, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature"
        )
        git(self.upstream, "reset", "-q", "--hard", self.commit)
        _PATCHES[key] = content
        return content

    def put_area(self, **parts: Unpack[Parts]) -> Path:
        """Write the patch `area`, which the queue then holds alone."""
        self.put_queue(["area"])
        return self.put_patch(**parts)

    def put_patch(self, name: str = "area", **parts: Unpack[Parts]) -> Path:
        """Write a patch of the queue; by default one that is right."""
        files = parts.get("files", ("src/toy/area.py",))
        listed = ", ".join(f'"{path}"' for path in files)
        self.put(
            f"patches/{name}/patch.toml",
            f'title = "Multiply the sides"\nupstream = "toy"\npin = "v1.0"\nfiles = [{listed}]\n'
            'problem = "Areas are sums."\nroot_cause = "A plus."\n'
            f'solution = "A times, on ROCm too."\n{parts.get("extra", "")}\n'
            f"{parts.get('checks', CHECKS)}",
        )
        fixed = {"src/toy/area.py": FIXED}
        content = parts["patch"] if "patch" in parts else self.format_patch(fixed)
        self.put(f"patches/{name}/0001-change.patch", content)
        given = {"test_red.py": FAIL_TO_PASS, "test_same.py": PASS_TO_PASS}
        given = parts.get("check_files", given)
        for file, text in given.items():
            self.put(f"patches/{name}/checks/{file}", text)
        return self.queue / "patches" / name


def one_check(expect: str = "fail-to-pass", reason: str = "AssertionError", more: str = "") -> str:
    stated = f'reason = "{reason}"\n' if reason else ""
    return f'[[checks]]\nname = "red"\nfile = "test_red.py"\nexpect = "{expect}"\n{stated}{more}\n'


CHECKS = (
    one_check(reason="^AssertionError: assert 5 == ")
    + '[[checks]]\nname = "same"\nfile = "test_same.py"\nexpect = "pass-to-pass"\n'
)


def record(queue: Queue, *patches: Patch, why: str) -> int | None:
    """Record states of a patch as versions; return the number of the last one."""
    number = None
    with transaction(queue.folder) as change:
        for patch in patches:
            reason = why if patch is patches[-1] else f"before {why}"
            number = history.record_present(change, queue, patch, why=reason)
    return number
