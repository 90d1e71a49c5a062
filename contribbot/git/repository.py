"""Stores: bare git repositories with the pinned trees of one upstream each."""

from __future__ import annotations

import contextlib
import enum
import functools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.errors import CommandError, MachineError
from contribbot.files import lock

if TYPE_CHECKING:
    from git import Blob, Repo, Submodule, Tree

#: The store's `info/attributes`, which overrides each `.gitattributes` of an upstream's
#: tree, so that git changes no bytes.
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
#: Files that a killed or failed import leaves in a store.
_LEFTOVERS: Final = (
    *("objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_*"),
    *("objects/??/tmp_obj_*", "fast_import_crash_*"),
)


def git_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which git ignores the user's and the system's configuration."""
    return process.clean_environment(
        {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            # No such folder exists, so git finds no configuration in it.
            "HOME": "/nonexistent",
            **(extra or {}),
        }
    )


def ask_git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    """Return the output of a git command in a folder; empty: git failed, or is in no repository."""
    # In a job's container, the checkout belongs to another user; git would refuse it.
    setting = {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    env = git_environment({"GIT_CONFIG_COUNT": "1", **setting})
    command = ["git", "-C", str(folder.absolute()), *args]
    try:
        done = process.run(command, env=env, stdin=stdin, timeout=20.0)
    except CommandError:
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


class Store:
    """A bare git repository in the cache; read at any time, write in `exclusive()`."""

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
        """Run git on this store, without the user's configuration."""
        return process.run(
            ["git", f"--git-dir={self.path}", *args],
            cwd=cwd or self.path,
            env=git_environment(env),
            stdin=stdin,
            timeout=timeout,
            accept=accept,
        )

    @contextlib.contextmanager
    def open(self) -> Iterator[Repo]:
        """Open the store with GitPython, which reads all objects from one process."""
        with _repo_type()(self.path) as repo:
            yield repo

    def resolve(self, name: str) -> str | None:
        """Return the object id of a ref or revision; None: the store has no such object."""
        done = self.git("rev-parse", "--verify", "--quiet", name, accept=(0, 1, 128))
        return done.stdout.decode().strip() or None if done.returncode == 0 else None

    def tree_of(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        return self.git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.decode().strip()

    def has(self, object_id: str) -> bool:
        """Return whether the store has an object."""
        return self.git("cat-file", "-e", object_id, accept=(0, 1, 128)).returncode == 0

    def read(self, object_id: str) -> bytes:
        """Return the content of a blob."""
        return self.git("cat-file", "blob", object_id).stdout

    def file(self, name: str) -> bytes | None:
        """Return the content of a file (`tree:path` or a blob's id); None: no such file."""
        done = self.git("cat-file", "blob", name, accept=(0, 128))
        return done.stdout if done.returncode == 0 else None

    def merge_file(
        self, texts: Sequence[bytes], *, scratch: Path, theirs: bool = False
    ) -> bytes | None:
        """Merge the change from `texts[1]` to `texts[2]` into `texts[0]`; None: a conflict."""
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            sides = [Path(folder, str(number)) for number in range(len(texts))]
            for side, text in zip(sides, texts, strict=True):
                side.write_bytes(text)
            options = ("--theirs",) if theirs else ()
            # Exit status: the number of conflicts, at most 127; 255: nothing was merged.
            done = self.git("merge-file", "-p", *options, *sides, accept=(*range(128), 255))
        settled = theirs and done.returncode in range(128)
        return done.stdout if settled or done.returncode == 0 else None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the store for writing; other processes and threads wait."""
        with lock(self.path.with_name(self.path.name + ".lock"), f"the store {self.path.name}"):
            self._sweep()
            try:
                yield
            except BaseException:
                self._sweep()
                raise

    def _sweep(self) -> None:
        for pattern in _LEFTOVERS:
            for leftover in self.path.glob(pattern):
                leftover.unlink(missing_ok=True)


def open_store(stores: Path, upstream: str) -> Store:
    """Return an upstream's store; make an empty store if there is none."""
    path = stores / f"{upstream}.git"
    if not (path / "HEAD").is_file():
        with lock(stores / f"{upstream}.git.lock", f"the store {path.name}"):
            if not (path / "HEAD").is_file():
                _make(path)
    return Store(path)


def _make(path: Path) -> None:
    """Make an empty bare repository; HEAD is written last, as the mark of a complete store."""
    shutil.rmtree(path, ignore_errors=True)
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (path / folder).mkdir(parents=True)
    (path / "config").write_text(_CONFIG, encoding="utf-8")
    (path / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")
    (path / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")


def require_git() -> str:
    """Return git's version, such as `2.39.5`; raise MachineError without git 2.39 or newer."""
    hint = "install git 2.39 or newer"
    try:
        words = process.run(["git", "version"], env=git_environment()).stdout.decode().split()
    except CommandError as error:
        raise MachineError("git does not run", hint=hint) from error
    version = words[2]
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < (2, 39):
        raise MachineError(f"git {version} is too old", hint=hint)
    return version


@functools.cache
def _repo_type() -> type[Repo]:
    """Return a subclass of GitPython's `Repo` that passes only `git_environment` to git."""
    with process.secrets_hidden():  # this import runs `git version`
        import git  # noqa: PLC0415  80 ms that only commands which read objects pay

    class Git(git.Git):
        def execute(  # type: ignore[override]  # only the two ways that reading objects takes
            self, command: Sequence[str], *, as_process: bool = False, **_options: object
        ) -> git.Git.AutoInterrupt | str:
            folder = Path(str(self._working_dir))
            env = git_environment({"GIT_DIR": str(folder)})
            if not as_process:
                return process.run(command, cwd=folder, env=env).stdout.decode().rstrip("\n")
            return self.AutoInterrupt(process.converse(command, cwd=folder, env=env), command)

    class SupervisedGit(git.Repo):
        GitCommandWrapperType = Git

    return SupervisedGit


def find(tree: Tree, path: str) -> Blob | Tree | Submodule | None:
    """Return the file, folder or submodule at a path of a tree; None: no such path."""
    try:
        return tree / path
    except KeyError:
        return None


def content_of(repo: Repo, object_id: str) -> bytes:
    """Return the content of a git object, byte for byte."""
    content: bytes = repo.odb.stream(bytes.fromhex(object_id)).read()
    return content


#: The mode that git writes for a path that does not exist.
GONE: Final = "000000"
#: The id that git writes for an object that does not exist.
NOTHING: Final = "0" * 40
#: Options that favor speed: the commits are small, and lost commits are written again.
_WRITE: Final = "-c core.compression=1 -c core.fsync=none fast-import --done --quiet --depth=0"
#: A branch name that fast-import needs; no such ref is ever written.
_UNWRITTEN: Final = b"refs/contribbot/unwritten"


@dataclass(frozen=True)
class NewCommit:
    """A commit that `write_commits` shall write."""

    #: The id of the parent commit; empty: `after` names the parent.
    parent: str
    author: bytes
    committer: bytes
    message: bytes
    #: The id of the commit's tree; empty: the parent's tree, changed by `entries`.
    tree: str = ""
    #: If `parent` is empty: the index of the parent in the list of commits.
    after: int = 0
    entries: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def read_commit(repo: Repo, commit: str) -> NewCommit:
    """Return a commit of a store, byte for byte."""
    head, _, message = content_of(repo, commit).partition(b"\n\n")
    fields = dict(row.split(b" ", 1) for row in head.split(b"\n"))
    parent, tree = fields[b"parent"].decode(), fields[b"tree"].decode()
    return NewCommit(parent, fields[b"author"], fields[b"committer"], message, tree)


def write_commits(
    store: Store, commits: Sequence[NewCommit], *, dates: str
) -> list[tuple[str, str]]:
    """Write commits in one git process, in `exclusive()`; return the ids of commits and trees."""
    if not commits:
        return []
    pieces: list[bytes] = []
    for number, commit in enumerate(commits):
        parent = (commit.parent or f":{commit.after + 1}").encode()
        pieces.append(b"commit %s\nmark :%d\n" % (_UNWRITTEN, number + 1))
        pieces.append(b"author %s\ncommitter %s\n" % (commit.author, commit.committer))
        pieces.append(b"data %d\n%s\n" % (len(commit.message), commit.message))
        pieces.append(b"from %s\n" % parent)
        if commit.tree:
            pieces.append(b'M 040000 %s ""\n' % commit.tree.encode())
        # Removals come first: a folder may stand where a file was.
        entries = sorted(commit.entries.items(), key=lambda item: item[1][0] != GONE)
        for path, (mode, blob) in entries:
            change = "D" if mode == GONE else f"M {mode} {blob}"
            pieces.append(b"%s %s\n" % (change.encode(), quoted(path)))
        pieces.append(b'\nget-mark :%d\nls :%d ""\n' % (number + 1, number + 1))
    # Reset the branch, so that fast-import writes no ref.
    pieces.append(b"reset %s\n\ndone\n" % _UNWRITTEN)
    command = (*_WRITE.split(), f"--date-format={dates}")
    words = store.git(*command, stdin=b"".join(pieces), timeout=600.0).stdout.decode().split()
    # For each commit, git prints: commit id; then mode, type and id of the tree.
    return list(zip(words[0::4], words[3::4], strict=True))


IDENTITY: Final = b"contribbot <contribbot@localhost> 0 +0000"
#: Objects are stored uncompressed: compression doubles the time of an import,
#: and every reader of the tree must decompress (benchmarks/import_tree.py). The
#: price is about twice the disk space. `unpackLimit=0`: always write a pack, as loose objects are
#: slow. `depth=0`: no deltas, as consecutive files have little in common. `force`: overwrite
#: a ref that exists, as its pack was lost.
_IMPORT: Final = (
    "-c core.compression=0 -c fastimport.unpackLimit=0"
    " fast-import --done --quiet --date-format=raw --depth=0 --force"
)


class Mode(enum.Enum):
    """The mode of a file in a git tree."""

    FILE = b"100644"
    EXECUTABLE = b"100755"
    #: A symbolic link; the content of the file is the link's target.
    SYMLINK = b"120000"


@dataclass(frozen=True)
class TreeFile:
    """A file to import into a git tree."""

    path: str
    mode: Mode
    content: bytes


def import_tree(
    store: Store, files: Iterable[TreeFile], *, ref: str, message: str, root: str = ""
) -> None:
    """Write files as a commit and its ref; a failure writes neither; in `store.exclusive()`."""
    text = message.encode()
    command = ["git", f"--git-dir={store.path}", *_IMPORT.split()]
    with process.feed(command, cwd=store.path, env=git_environment(), timeout=600.0) as stream:
        stream.write(
            b"commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n"
            % (ref.encode(), IDENTITY, IDENTITY, len(text), text)
        )
        for file in files:
            path = quoted(f"{root}/{file.path}" if root else file.path)
            head = b"M %s inline %s\ndata %d\n" % (file.mode.value, path, len(file.content))
            stream.write(head + file.content + b"\n")
        stream.write(b"\ndone\n")


def quoted(path: str) -> bytes:
    """Return a path in quotes, as git's fast-import reads paths."""
    raw = path.encode("utf-8", "surrogateescape")
    return b'"%s"' % raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
