"""Real git behind the local GitHub: objects and refs of one bare repository.

The repositories of a fork network have one folder of objects: each one's `objects` is a link to
that of the network, so that a commit pushed to a fork opens in its upstream too. A lagging fork
has objects of its own; its network borrows from it by alternates, and not the other way round.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.store.repository import git_environment

_HEX: Final = re.compile(r"[0-9a-f]{40}")
#: Commands whose answer about objects stays the same, and what names nothing but objects.
_LASTING: Final = frozenset({"cat-file", "diff", "ls-tree", "merge-base", "merge-tree", "rev-list"})
_OBJECTS: Final = re.compile(r"-.*|blob|commit|\^?[0-9a-f]{40}")
#: What git itself removes around a name or an address, and inside of it.
_CRUD: Final = "".join(map(chr, range(33))) + ".,:;<>\"\\'"


class GitRefusedError(Exception):
    """Git said no."""


@dataclass(frozen=True)
class Person:
    """An author or committer, with the time as git writes it (`1700000000 +0200`)."""

    name: str
    email: str
    when: str

    @property
    def time(self) -> str:
        """The time as GitHub writes it, in UTC."""
        seconds = dt.datetime.fromtimestamp(int(self.when.split()[0]), tz=dt.UTC)
        return seconds.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class CommitData:
    """What a commit says; the message without the newlines at its end, as GitHub shows it."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass(frozen=True)
class Entry:
    """One row of a tree; `size` of blobs alone."""

    mode: str
    kind: str
    sha: str
    size: int | None
    path: str


class BareRepository:
    """A bare repository.

    Args:
        path: Its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers: dict[tuple[str, ...], subprocess.CompletedProcess[bytes]] = {}

    @classmethod
    def create(cls, path: Path, objects: Path | None, default_branch: str) -> BareRepository:
        """Make an empty repository, with its own objects or those of its network."""
        path.mkdir(parents=True)
        made = cls(path)
        made.git("init", "--quiet", "--bare", f"--initial-branch={default_branch}", str(path))
        made.git("config", "gc.auto", "0")
        # What a commit is fetched by here: any that exists, as on GitHub.
        made.git("config", "uploadpack.allowAnySHA1InWant", "true")
        if objects is not None:
            shutil.rmtree(path / "objects")
            (path / "objects").symlink_to(objects, target_is_directory=True)
        return made

    def run(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git here and leave judging its status to the caller.

        An object is what it is, so what git said of objects by their ids is asked for once: the
        tests would else spend half of their time on starting git.
        """
        lasting = args[0] in _LASTING and not env and all(map(_OBJECTS.fullmatch, args[1:]))
        if lasting and args in self._answers:
            return self._answers[args]
        done = subprocess.run(
            ["git", f"--git-dir={self.path}", *args],
            input=stdin,
            env=git_environment(
                {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_TEMPLATE_DIR": "", **(env or {})}
            ),
            cwd=self.path,
            capture_output=True,
            check=False,
            timeout=120,
        )
        if lasting and done.returncode == 0:
            self._answers[args] = done
        return done

    def git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Run git here.

        Raises:
            GitRefusedError: It said no.
        """
        done = self.run(*args, stdin=stdin, env=env)
        if done.returncode:
            raise GitRefusedError(f"git {args[0]}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def text(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """Run git here and return its one line."""
        return self.git(*args, env=env).decode().strip()

    def kind(self, sha: str) -> str | None:
        """Return what an object is (blob, tree, commit, tag), or None."""
        if not _HEX.fullmatch(sha):
            return None
        done = self.run("cat-file", "-t", sha)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def resolve(self, name: str) -> str | None:
        """Return the commit of a branch, tag, full ref name or commit id (also a short one)."""
        for candidate in (f"refs/heads/{name}", f"refs/tags/{name}", f"refs/{name}", name):
            if candidate == name and not re.fullmatch(r"refs/.+|HEAD|[0-9a-f]{4,40}", name):
                continue
            if found := self.parse(f"{candidate}^{{commit}}"):
                return found
        return None

    def parse(self, expression: str) -> str | None:
        """Return the object that git calls so (`main:folder/file`), or None."""
        done = self.run("rev-parse", "--verify", "--quiet", expression)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs whose full name starts so, by name."""
        found = self._packed()
        for path in (self.path / "refs").rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if not name.endswith(".lock") and (sha := self._loose(name)):
                found[name] = sha
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def ref(self, name: str) -> str | None:
        """Return what a full ref name points at, or None."""
        if not name.startswith("refs/") or ".." in name:
            return None
        return self._loose(name) or self._packed().get(name)

    def _loose(self, name: str) -> str | None:
        """Return what the file of a ref says, without git: every request asks for some."""
        try:
            return (self.path / name).read_text().strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def _packed(self) -> dict[str, str]:
        """Return the refs that have no file of their own; see gitrepository-layout(5)."""
        try:
            lines = (self.path / "packed-refs").read_text().splitlines()
        except FileNotFoundError:
            return {}
        pairs = (line.split(" ", 1) for line in lines if _HEX.match(line))
        return {name: sha for sha, name in pairs}

    def set_ref(self, name: str, sha: str) -> None:
        """Point a ref at an object."""
        self.git("update-ref", name, sha)

    def empty(self) -> bool:
        """Say whether nothing was ever pushed."""
        return not self.refs("refs/heads/")

    def blob(self, sha: str) -> bytes:
        """Return the bytes of a blob."""
        return self.git("cat-file", "blob", sha)

    def add_blob(self, content: bytes) -> str:
        """Store a blob."""
        return self.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()

    def entries(self, tree: str, *, recursive: bool = False) -> list[Entry]:
        """Return the rows of a tree; recursively with the folders themselves, as GitHub does."""
        flags = ["-r", "-t"] if recursive else []
        rows = self.git("ls-tree", "-z", "--long", "--full-tree", *flags, tree).decode()
        found = []
        for row in filter(None, rows.split("\0")):
            head, path = row.split("\t", 1)
            mode, kind, sha, size = head.split()
            found.append(Entry(mode, kind, sha, None if size == "-" else int(size), path))
        return found

    def add_tree(self, base: str | None, changes: Sequence[tuple[str, str, str | None]]) -> str:
        """Store a tree: `base` with changes, each a path, a mode, and an object or None to delete.

        Raises:
            GitRefusedError: A path to delete is not there, or a path is no path.
        """
        with tempfile.TemporaryDirectory(prefix="index-") as folder:
            env = {"GIT_INDEX_FILE": f"{folder}/index"}
            self.git("read-tree", *([base] if base else ["--empty"]), env=env)
            for path, mode, sha in changes:
                inside = self.git("ls-files", "-z", "--", f":(literal){path}", env=env)
                if sha is None and not inside:
                    raise GitRefusedError(f"{path} is not there")
                if sha is None or mode == "040000":
                    gone = [b"0 " + b"0" * 40 + b"\t" + one for one in inside.split(b"\0") if one]
                    rows = b"\0".join([*gone, b""])
                    self.git("update-index", "-z", "--index-info", stdin=rows, env=env)
                if sha is not None and mode == "040000":
                    added = [
                        f"{one.mode} {one.sha}\t{path}/{one.path}\0".encode()
                        for one in self.entries(sha, recursive=True)
                        if one.kind != "tree"
                    ]
                    rows = b"".join(added)
                    self.git("update-index", "-z", "--index-info", stdin=rows, env=env)
                elif sha is not None:
                    args = ("--add", "--replace", "--cacheinfo", f"{mode},{sha},{path}")
                    self.git("update-index", *args, env=env)
            return self.text("write-tree", env=env)

    def commit(self, sha: str) -> CommitData:
        """Read a commit."""
        head, _, message = self.git("cat-file", "commit", sha).partition(b"\n\n")
        fields: dict[str, list[str]] = {}
        for line in head.decode(errors="replace").split("\n"):
            name, _, value = line.partition(" ")
            fields.setdefault(name, []).append(value)
        return CommitData(
            sha=sha,
            tree=fields["tree"][0],
            parents=tuple(fields.get("parent", ())),
            author=_person(fields["author"][0]),
            committer=_person(fields["committer"][0]),
            message=message.decode(errors="replace").rstrip("\n"),
        )

    def add_commit(
        self, tree: str, parents: Sequence[str], author: Person, committer: Person, message: str
    ) -> str:
        """Store a commit with exactly this message."""
        lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
        lines += [
            f"{role} {clean(one.name)} <{clean(one.email)}> {one.when}"
            for role, one in (("author", author), ("committer", committer))
        ]
        raw = "\n".join(lines) + "\n\n" + message
        return (
            self.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
            .decode()
            .strip()
        )

    def import_from(self, source: Path) -> None:
        """Take over the branches and tags of another repository."""
        self.git(
            "fetch",
            "--quiet",
            "--no-auto-gc",
            str(source),
            "+refs/heads/*:refs/heads/*",
            "+refs/tags/*:refs/tags/*",
        )


def clean(text: str) -> str:
    """Leave out of a name what git leaves out."""
    return re.sub(r"[<>\n]", "", text).strip(_CRUD)


def git_time(text: str) -> str:
    """Turn an ISO 8601 time into git's, its time zone kept.

    Raises:
        ValueError: It is no time, or has no time zone.
    """
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return f"{int(moment.timestamp())} {moment.strftime('%z')[:5]}"


def _person(text: str) -> Person:
    match = re.fullmatch(r"(.*?) ?<(.*?)> (-?\d+ [+-]\d+)", text)
    assert match is not None, text
    return Person(*match.groups())
