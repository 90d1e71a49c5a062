"""Real git behind the local GitHub: objects and refs of one bare repository.

The repositories of a fork network have one folder of objects: each one's `objects` is a link to
that of the network, so that a commit pushed to a fork opens in its upstream too. A lagging fork
has objects of its own; its network borrows from it by alternates, and not the other way round.
"""

from __future__ import annotations

import atexit
import datetime as dt
import hashlib
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from contribbot.git.repository import git_environment

#: What a commit is fetched by here: any that exists, as on GitHub.
_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = true
[gc]
	auto = 0
[uploadpack]
	allowAnySHA1InWant = true
"""
_HEX: Final = re.compile(r"[0-9a-f]{40}")
#: Commands whose answer about objects stays the same, and what names nothing but objects.
_LASTING: Final = frozenset({"diff", "ls-tree", "merge-base", "rev-list"})
_OBJECTS: Final = re.compile(r"-.*|blob|commit|\^?[0-9a-f]{40}")
_PLAIN: Final = re.compile(r"refs/(heads|pull)(/[a-z0-9-]+)+")
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

    #: What git said of objects: the same in each repository that has them.
    _answers: ClassVar[dict[tuple[str, ...], subprocess.CompletedProcess[bytes]]] = {}

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, objects: Path | None, default_branch: str) -> BareRepository:
        """Make an empty repository, with its own objects or those of its network."""
        (path / "refs/heads").mkdir(parents=True)
        (path / "HEAD").write_text(f"ref: refs/heads/{default_branch}\n")
        (path / "config").write_text(_CONFIG)
        if objects is None:
            (path / "objects/info").mkdir(parents=True)
        else:
            (path / "objects").symlink_to(objects, target_is_directory=True)
        return cls(path)

    def run(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git here and leave judging its status to the caller.

        What git says of objects by their ids is asked for once, for the sake of time.
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
        if loose := self._object(sha):
            return loose[0]
        done = self.run("cat-file", "-t", sha)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def resolve(self, name: str) -> str | None:
        """Return the commit of a branch, tag, full ref name or commit id (also a short one)."""
        for candidate in (f"refs/heads/{name}", f"refs/tags/{name}", f"refs/{name}", name):
            if candidate != name:
                there = self.ref(candidate)
            else:
                there = name if re.fullmatch(r"refs/.+|HEAD|[0-9a-f]{4,40}", name) else None
            if there and (found := self._commit_of(there)):
                return found
        return None

    def _commit_of(self, name: str) -> str | None:
        return name if self.kind(name) == "commit" else self.parse(f"{name}^{{commit}}")

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
        """Point a ref at an object; where there is nothing to refuse, without starting git."""
        near = any(f"{one}/".startswith(f"{name}/") or f"{name}/".startswith(f"{one}/")
                   for one in self.refs("refs/") if one != name)  # fmt: skip
        path = self.path / name
        if near or path.is_dir() or not _PLAIN.fullmatch(name) or self._object(sha) is None:
            self.git("update-ref", name, sha)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.lock")
        new.write_text(f"{sha}\n")
        new.replace(path)

    def empty(self) -> bool:
        """Say whether nothing was ever pushed."""
        return not self.refs("refs/heads/")

    def blob(self, sha: str) -> bytes:
        """Return the bytes of a blob."""
        return self.read("blob", sha)

    def add_blob(self, content: bytes) -> str:
        """Store a blob."""
        return self._store("blob", content)

    def _object(self, sha: str) -> tuple[str, bytes] | None:
        """Return the kind and content of an object that has a file of its own."""
        try:
            raw = zlib.decompress((self.path / "objects" / sha[:2] / sha[2:]).read_bytes())
        except FileNotFoundError:
            return None
        head, _, content = raw.partition(b"\0")
        return head.split()[0].decode(), content

    def read(self, kind: str, sha: str) -> bytes:
        """Return the content of an object."""
        loose = self._object(sha)
        return loose[1] if loose and loose[0] == kind else self.git("cat-file", kind, sha)

    def _store(self, kind: str, content: bytes) -> str:
        """Write an object as git does, without starting git."""
        raw = f"{kind} {len(content)}\0".encode() + content
        sha = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
        folder = self.path / "objects" / sha[:2]
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(zlib.compress(raw))
        Path(file.name).replace(folder / sha[2:])
        return sha

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
            rows: list[str] = []
            for path, mode, sha in changes:
                if sha is None or mode == "040000":
                    inside = self.git("ls-files", "-z", "--", f":(literal){path}", env=env).decode()
                    if sha is None and not inside:
                        raise GitRefusedError(f"{path} is not there")
                    rows += [f"0 {'0' * 40}\t{one}" for one in inside.split("\0") if one]
                if sha is not None and mode == "040000":
                    rows += [
                        f"{one.mode} {one.sha}\t{path}/{one.path}"
                        for one in self.entries(sha, recursive=True)
                        if one.kind != "tree"
                    ]
                elif sha is not None:
                    rows.append(f"{mode} {sha}\t{path}")
            said = "".join(f"{row}\0" for row in rows).encode()
            self.git("update-index", "-z", "--index-info", stdin=said, env=env)
            return self.text("write-tree", env=env)

    def commit(self, sha: str) -> CommitData:
        """Read a commit."""
        head, _, message = self.read("commit", sha).partition(b"\n\n")
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
        return self._store("commit", ("\n".join(lines) + "\n\n" + message).encode())

    def import_from(self, source: Path) -> None:
        """Take over the branches and tags of another repository."""
        folder = source / ".git" if (source / ".git").is_dir() else source
        refs = BareRepository(folder).refs("refs/")
        wanted = {name: sha for name, sha in refs.items() if re.match("refs/(heads|tags)/", name)}
        shutil.copytree(
            _objects(folder, list(wanted.values())), self.path / "objects", dirs_exist_ok=True
        )
        self.take_refs(wanted)

    def take_refs(self, refs: Mapping[str, str]) -> None:
        """Have refs to objects that are here already; see gitrepository-layout(5)."""
        rows = "".join(f"{sha} {name}\n" for name, sha in sorted(refs.items()))
        (self.path / "packed-refs").write_text(f"# pack-refs with: sorted\n{rows}")


#: The objects below tips, for all tests of a process that begin with them.
_KEPT: Final[dict[tuple[str, ...], Path]] = {}


def _objects(source: Path, tips: Sequence[str]) -> Path:
    """Return a folder with the objects below some tips of a repository, and no others."""
    key = tuple(sorted(tips))
    if key not in _KEPT:
        place = Path(tempfile.mkdtemp(prefix="objects-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        made = BareRepository.create(place / "git", None, "main")
        pack = BareRepository(source).git(
            "pack-objects", "--quiet", "--revs", "--stdout", stdin="\n".join(key).encode()
        )
        made.git("unpack-objects", "-q", stdin=pack)
        _KEPT[key] = made.path / "objects"
    return _KEPT[key]


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
