"""Real git behind the local GitHub: objects, refs and history of one bare repository.

The repositories of a fork network have one folder of objects: each one's `objects` is a link to
that of the network, so that a commit pushed to a fork opens in its upstream too.
Refs and objects are files of their own, which are read without starting git.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import subprocess
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pydantic import JsonValue

from contribbot.git.repository import git_environment

#: Git can fetch a commit by its id, as on GitHub, and packs no objects.
_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = true
[gc]
	auto = 0
[transfer]
	unpackLimit = 1000000
[uploadpack]
	allowAnySHA1InWant = true
"""
#: Commands whose answers about objects never change; arguments that name objects by id.
_LASTING: Final = frozenset({"diff", "ls-tree", "merge-base", "rev-list", "rev-parse"})
_OBJECTS: Final = re.compile(r"-.*|\^?[0-9a-f]{40}(:.*)?")
_DIFF: Final = ("--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "-M")
_STATUS: Final = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "T": "changed"}
#: The characters that git removes around a name or an address.
_CRUD: Final = "".join(map(chr, range(33))) + ".,:;<>\"\\'"


class GitRefusedError(Exception):
    """Raised if git refuses an operation."""


def blob_id(content: bytes) -> str:
    """Return git's id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Person:
    """An author or committer, with the time as git writes it (`1700000000 +0200`)."""

    name: str
    email: str
    when: str

    def __str__(self) -> str:
        name, email = (re.sub(r"[<>\n]", "", text).strip(_CRUD) for text in (self.name, self.email))
        return f"{name} <{email}> {self.when}"

    @property
    def time(self) -> str:
        """The time as GitHub writes it, in UTC."""
        seconds = dt.datetime.fromtimestamp(int(self.when.split()[0]), tz=dt.UTC)
        return seconds.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class CommitData:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


class BareRepository:
    #: Git's answers about objects, which are the same in each repository with these objects.
    _answers: ClassVar[dict[tuple[str, ...], subprocess.CompletedProcess[bytes]]] = {}

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, objects: Path | None, default_branch: str) -> BareRepository:
        """Make an empty repository, with objects of its own or of its fork network."""
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
        """Run git in the repository; answers about objects that are named by id are cached."""
        lasting = args[0] in _LASTING and not env and all(map(_OBJECTS.fullmatch, args[1:]))
        if lasting and args in self._answers:
            return self._answers[args]
        given = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_TEMPLATE_DIR": "", **(env or {})}
        done = subprocess.run(
            ["git", f"--git-dir={self.path}", *args], input=stdin, env=git_environment(given),
            cwd=self.path, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        # `git merge-base` returns 1 for two commits without a common ancestor.
        if lasting and done.returncode in ({0, 1} if args[0] == "merge-base" else {0}):
            self._answers[args] = done
        return done

    def git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        done = self.run(*args, stdin=stdin, env=env)
        if done.returncode:
            raise GitRefusedError(f"git {args[0]}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def _said(self, *args: str) -> str | None:
        """Return the first line of git's output; None: git failed."""
        done = self.run(*args)
        return done.stdout.decode().partition("\n")[0] if done.returncode == 0 else None

    def fetch(self, source: Path, *refs: str) -> None:
        flags = ("--quiet", "--no-auto-gc", "--no-write-fetch-head", "--no-tags")
        self.git("fetch", *flags, str(source), *refs)

    # Refs:

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs whose full names begin with a prefix, by name."""
        names = (path.relative_to(self.path).as_posix() for path in (self.path / "refs").rglob("*"))
        known = {name: self.ref(name) for name in sorted(names) if name.startswith(prefix)}
        return {name: sha for name, sha in known.items() if sha}

    def ref(self, name: str) -> str | None:
        if not name.startswith("refs/") or ".." in name or name.endswith(".lock"):
            return None
        try:
            return (self.path / name).read_text().strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def tip(self, branch: str) -> str:
        sha = self.ref(f"refs/heads/{branch}")
        assert sha is not None, branch
        return sha

    def set_ref(self, name: str, sha: str) -> None:
        self.git("update-ref", name, sha)

    def import_from(self, source: Path) -> None:
        self.fetch(source, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")

    # Objects:

    def kind(self, sha: str) -> str | None:
        known = self._object(sha)
        return known[0] if known else None

    def parse(self, expression: str) -> str | None:
        return self._said(
            "rev-parse", "--verify", "--quiet", expression.replace("\0", "\N{BULLET}")
        )

    def resolve(self, name: str) -> str | None:
        sha = self.ref(f"refs/heads/{name}") or name
        return sha if self.kind(sha) == "commit" else None

    def read(self, kind: str, sha: str) -> bytes:
        known = self._object(sha)
        if known is None or known[0] != kind:
            raise GitRefusedError(f"{sha} is no {kind}")
        return known[1]

    def blob(self, sha: str) -> bytes:
        return self.read("blob", sha)

    def _object(self, sha: str) -> tuple[str, bytes] | None:
        """Return the kind and content of a loose object."""
        try:
            raw = zlib.decompress((self.path / "objects" / sha[:2] / sha[2:]).read_bytes())
        except OSError:
            return None
        head, _, content = raw.partition(b"\0")
        return head.split()[0].decode(), content

    def _store(self, kind: str, content: bytes) -> str:
        raw = f"{kind} {len(content)}\0".encode() + content
        sha = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
        folder = self.path / "objects" / sha[:2]
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(zlib.compress(raw))
        Path(file.name).replace(folder / sha[2:])
        return sha

    def add_blob(self, content: bytes) -> str:
        return self._store("blob", content)

    def entries(self, tree: str) -> list[dict[str, str]]:
        """Return the mode, type, id and path of each entry of a tree."""
        rows = self.git("ls-tree", "-z", "--full-tree", tree).decode().split("\0")
        form = r"(?s)(?P<mode>\d+) (?P<type>\w+) (?P<sha>\w+)\t(?P<path>.*)"
        found = (re.fullmatch(form, row) for row in rows)
        return [match.groupdict() for match in found if match]

    def add_tree(self, base: str | None, changes: Sequence[tuple[str, str, str | None]]) -> str:
        """Store the tree `base` with changes: path, mode, and a blob's id (None: delete)."""
        rows = self.git("ls-tree", "-r", "-z", "--full-tree", base).decode() if base else ""
        there = {row.partition("\t")[2] for row in rows.split("\0")}
        if lost := [path for path, _, sha in changes if sha is None and path not in there]:
            raise GitRefusedError(f"{lost} is not there")
        rows += "".join(f"{mode} {sha}\t{path}\0" if sha else f"0 {'0' * 40}\t{path}\0"
                        for path, mode, sha in changes)  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="index-") as folder:
            env = {"GIT_INDEX_FILE": f"{folder}/index"}
            self.git("update-index", "-z", "--index-info", stdin=rows.encode(), env=env)
            return self.git("write-tree", env=env).decode().strip()

    def commit(self, sha: str) -> CommitData:
        head, _, message = self.read("commit", sha).decode(errors="replace").partition("\n\n")
        said: dict[str, list[str]] = {}
        for line in head.split("\n"):
            name, _, value = line.partition(" ")
            said.setdefault(name, []).append(value)
        author, committer = (_person(said[role][0]) for role in ("author", "committer"))
        parents = tuple(said.get("parent", ()))
        return CommitData(sha, said["tree"][0], parents, author, committer, message)

    def add_commit(
        self, tree: str, parents: Sequence[str], author: Person, committer: Person, message: str
    ) -> str:
        """Store a commit with exactly this message."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {author}", f"committer {committer}"]
        return self._store("commit", ("\n".join(lines) + "\n\n" + message).encode())

    # History:

    def merge_base(self, ours: str, theirs: str) -> str | None:
        return self._said("merge-base", ours, theirs)

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.run("merge-base", "--is-ancestor", old, new).returncode == 0

    def between(self, base: str, head: str) -> list[str]:
        """Return the commits of `head` that `base` lacks, oldest first."""
        return self.git("rev-list", "--reverse", "--topo-order", head, f"^{base}").decode().split()

    def diff(self, old: str, new: str) -> bytes:
        return self.git("diff", *_DIFF, old, new)

    def series(self, base: str, head: str) -> bytes:
        """Return the commits of `head` that `base` lacks, as mails."""
        return self.git("format-patch", "--stdout", *_DIFF, f"{base}..{head}")

    def changes(self, old: str, new: str) -> list[dict[str, JsonValue]]:
        """Return the files that differ between two commits, in git's order and GitHub's JSON."""
        rows = self.git("diff", "-M", "-z", "--raw", "--no-abbrev", old, new).decode().split("\0")
        texts = re.split(r"(?m)^diff --git ", self.diff(old, new).decode(errors="replace"))[1:]
        found: list[dict[str, JsonValue]] = []
        while rows and rows[0]:
            _, _, old_sha, new_sha, letter = rows.pop(0).split(" ")
            first = rows.pop(0)
            path = rows.pop(0) if letter[0] == "R" else first
            sha = old_sha if letter[0] == "D" else new_sha
            change: dict[str, JsonValue] = {"sha": sha, "filename": path}
            change["status"] = _STATUS[letter[0]]
            # A binary file has no hunks.
            if hunks := re.search(r"(?ms)^@@ .*", texts[len(found)]):
                change["patch"] = hunks.group().rstrip("\n")
            if path != first:
                change["previous_filename"] = first
            found.append(change)
        return found

    def merge_tree(self, ours: str, theirs: str) -> str | None:
        return self._said("merge-tree", "--write-tree", ours, theirs)


def git_time(text: str) -> str:
    """Return an ISO 8601 time in git's format, in the same time zone."""
    moment = dt.datetime.fromisoformat(text)
    return f"{int(moment.timestamp())} {moment.strftime('%z')[:5]}"


def _person(text: str) -> Person:
    match = re.fullmatch(r"(.*?) ?<(.*?)> (-?\d+ [+-]\d+)", text)
    assert match is not None, text
    return Person(*match.groups())
