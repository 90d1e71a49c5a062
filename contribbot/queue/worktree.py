"""`contribbot edit`: a git work tree in its own repository, with a patch as commits."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, ValidationError

from contribbot import process
from contribbot.errors import CommandError, MachineError, QueueError, UsageError
from contribbot.files import lock, stores_folder, write_atomically
from contribbot.git.apply import Series
from contribbot.git.patch_format import check_form, format_commits
from contribbot.git.pins import Progress
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.model.base import Model, ObjectId
from contribbot.model.patch import PatchFile
from contribbot.process import remove_tree
from contribbot.queue.load import TREE_STATE, Queue, load_queue, tree_around
from contribbot.queue.stack import PatchStack, fetch_pin

#: The ref of the commit below the patch's first commit.
BASE_REF: Final = "refs/contribbot/base"
#: The ref of the last commit that the queue has.
_SAVED_REF: Final = "refs/contribbot/taken"
#: By file in `.git`: the unfinished git operation that the file shows.
_UNFINISHED: Final = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "MERGE_HEAD": "merge",
    "sequencer": "cherry-pick",
    "BISECT_LOG": "bisect",
}
#: Environment for commits: contribbot is the committer, authors stay, and no editor opens.
_AS_CONTRIBBOT: Final = {
    "GIT_COMMITTER_NAME": "contribbot",
    "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_EDITOR": "true",
}
_STATUS: Final = "status --porcelain -z --no-renames --untracked-files=normal"
_LOG: Final = "log -z --reverse --topo-order --encoding=UTF-8"
_AMEND: Final = "commit -q -a --amend --no-edit --no-verify --cleanup=verbatim --allow-empty"
#: The work tree's git configuration, which overrides the user's. `rerere` recognizes a conflict
#: by its text, which depends on the conflict style: do not change the style.
_CONFIG: Final = """
[core]
    autocrlf = false
    eol = lf
    safecrlf = false
    symlinks = true
    ignoreCase = false
    hooksPath = /dev/null
    fsmonitor = false
    sparseCheckout = false
[i18n] commitEncoding = UTF-8
[commit] gpgSign = false
[tag] gpgSign = false
[submodule] recurse = false
[apply] whitespace = nowarn
    ignoreWhitespace = no
[merge] conflictStyle = diff3
    renames = true
    directoryRenames = conflict
    renormalize = false
[rerere] enabled = true
    autoUpdate = true
[gc] auto = 0
[maintenance] auto = false
"""
#: Caches of Python that git ignores here, as an archive's tree may lack a `.gitignore`.
_EXCLUDE: Final = "__pycache__/\n*.py[cod]\n"
_SHOWN: Final = 5


class TreeState(Model):
    """A work tree's patch, base and replayed commits, stored in a file in the tree's `.git`."""

    # Earlier releases also wrote other keys.
    model_config = ConfigDict(extra="ignore")

    #: The name of the patch.
    key: str
    base: ObjectId
    #: Digests of the patch's states that this tree has; the tree was made from the first.
    known: tuple[str, ...]
    queue: str
    #: The commits that are merged onto another base; empty: the tree is one of `edit`.
    replayed: tuple[ObjectId, ...] = ()
    #: If a refresh opened this tree for a conflict: the patch that was refreshed.
    lower: str = ""


class TreeCommit(Model):
    """A commit in a work tree."""

    commit: str
    subject: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} {self.subject}"


@dataclass(frozen=True)
class Pending:
    """The changed, the unstaged and the untracked paths of a work tree."""

    changed: tuple[str, ...]
    unstaged: tuple[str, ...]
    untracked: tuple[str, ...]


@dataclass
class WorkTree:
    """A work tree that `edit`, `rebase` or `refresh` opened, and its state."""

    path: Path
    state: TreeState

    @classmethod
    def read(cls, path: Path) -> WorkTree:
        """Return the work tree in a folder; raise MachineError if its state cannot be read."""
        try:
            state = TreeState.model_validate_json((path / TREE_STATE).read_bytes())
        except (OSError, ValidationError) as error:
            raise MachineError(
                f"{path}: not a work tree of contribbot any more: {TREE_STATE} cannot be read",
                hint="save what you need from it, and remove the folder",
            ) from error
        return cls(path, state)

    def remember(self, *digests: str) -> None:
        """Note that this work tree has the states of the patch with these digests."""
        known = tuple(dict.fromkeys((*self.state.known, *digests)))
        self.state = self.state.model_copy(update={"known": known})
        content = self.state.model_dump_json(indent=2).encode() + b"\n"
        write_atomically(self.path / TREE_STATE, content)

    def mark_saved(self) -> None:
        """Note that the queue has the commit that is checked out."""
        self.git("update-ref", _SAVED_REF, "HEAD")

    def git(
        self,
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> process.Completed:
        """Run git in the work tree, without the user's configuration."""
        return Store(self.path / ".git").git(
            f"--work-tree={self.path}",
            *args,
            stdin=stdin,
            env={"GIT_NO_REPLACE_OBJECTS": "1", **(env or {})},
            cwd=self.path,
            timeout=300.0,
            accept=accept,
        )

    def resolve(self, name: str) -> str:
        """Return the commit that a ref or revision names; empty: no such name."""
        done = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", accept=(0, 1))
        return done.stdout.decode().strip()

    def unfinished(self) -> str:
        """Return the unfinished git operation, such as `rebase`; empty: there is none."""
        marks = (name for mark, name in _UNFINISHED.items() if (self.path / ".git" / mark).exists())
        return next(marks, "")

    def pending(self) -> Pending:
        """Return the paths with uncommitted changes, and the untracked paths."""
        done = self.git(*_STATUS.split(), "--ignore-submodules=dirty")
        status = done.stdout.decode("utf-8", "surrogateescape")
        rows = [(row[:2], row[3:]) for row in status.split("\0") if row]
        changed = [row for row in rows if row[0] != "??"]
        return Pending(
            changed=tuple(path for _, path in changed),
            # Paths with unresolved conflicts count as unstaged.
            unstaged=tuple(path for mark, path in changed if mark[1] != " "),
            untracked=tuple(path for mark, path in rows if mark == "??"),
        )

    def commits(self, *revisions: str) -> list[TreeCommit]:
        """Return the commits that `git log` lists for some revisions, oldest first."""
        done = self.git(*_LOG.split(), "--format=%H %s", *revisions, "--")
        log = done.stdout.decode("utf-8", "replace")
        rows = [row.partition(" ") for row in log.split("\0") if row]
        return [TreeCommit(commit=commit, subject=subject) for commit, _, subject in rows]

    def own(self) -> list[TreeCommit]:
        """Return the patch's own commits: the commits after the base, oldest first."""
        base = self.state.base
        if self.git("merge-base", "--is-ancestor", base, "HEAD", accept=(0, 1, 128)).returncode:
            raise UsageError(
                f"{self.path}: what is checked out does not stand on {base[:20]} any more",
                hint=f"`git switch` to a branch that does, or `git rebase {BASE_REF}`",
            )
        return self.commits(f"{base}..HEAD")

    def commit_all(self) -> tuple[str, ...]:
        """Amend the last commit with all uncommitted changes; return the changed paths."""
        changed = self.pending().changed
        if not changed or self.unfinished() or not self.own():
            return ()
        self.git(*_AMEND.split(), env=_AS_CONTRIBBOT)
        return changed


def _make_tree(place: Path, at: Path | None, store: Store, tip: str, state: TreeState) -> WorkTree:
    """Make a work tree with a branch at `tip`; a failure leaves no tree."""
    at = place if at is None else at.absolute().parent.resolve() / at.absolute().name
    if at.is_symlink() or (at.exists() and (not at.is_dir() or any(at.iterdir()))):
        raise UsageError(f"{at}: there is something already", hint="name a new or an empty folder")
    building = place.with_name(f".{place.name}.partial")
    remove_tree(building)
    building.mkdir(parents=True)
    branch = "contribbot/" + state.key.replace("..", "-").removesuffix(".lock").rstrip(".")
    init = ("git", "init", "-q", "--template=", f"--initial-branch={branch}", building)
    process.run(init, env=git_environment())
    folder = building / ".git"
    with (folder / "config").open("a", encoding="utf-8") as config:
        config.write(_CONFIG)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "exclude").write_text(_EXCLUDE, encoding="utf-8")
    # The store's attributes let git change no bytes; its `shallow` file ends the history.
    for name in ("info/attributes", "shallow"):
        if (store.path / name).is_file():
            shutil.copyfile(store.path / name, folder / name)
    # Skip files that another process is writing to the store.
    leave, objects = shutil.ignore_patterns("tmp_*", ".tmp-*"), store.path / "objects"
    into = folder / "objects"
    shutil.copytree(objects, into, ignore=leave, dirs_exist_ok=True, copy_function=_link)
    # git's `rr-cache` (resolved conflicts) is outside the tree, so that it outlives the tree.
    memory = place.parents[1].resolve() / "rr-cache" / store.path.stem
    memory.mkdir(parents=True, exist_ok=True)
    (folder / "rr-cache").symlink_to(memory, target_is_directory=True)
    tree = WorkTree(building, state)
    tree.remember()
    tree.git("update-ref", BASE_REF, state.base)
    tree.git("update-ref", f"refs/heads/{branch}", tip)
    tree.git("-c", "checkout.workers=0", "reset", "--quiet", "--hard")
    tree.mark_saved()
    if at != place:
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_dir():
            at.rmdir()
        place.symlink_to(at, target_is_directory=True)
    shutil.move(building, at)
    return WorkTree(at, tree.state)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the cache is on another file system, or another user owns it
        shutil.copyfile(source, target)


def _discard(place: Path, *, wait: bool = True) -> None:
    """Delete a work tree, or the link to a work tree, after a rename of the folder."""
    tree = place.resolve()
    aside = Path(tempfile.mkdtemp(prefix=f".{tree.name}.", suffix=".partial", dir=tree.parent))
    if place.is_symlink():
        place.unlink()
    tree.rename(aside / tree.name)
    remove_tree(aside, wait=wait)


def printable(path: Path | str) -> str:
    """Return a path as text, with backslash escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def find_tree(queue: Queue, name: str) -> WorkTree | None:
    """Return a patch's open work tree, of `edit` or of a replay; None: no tree is open."""
    place = queue.local / "edit" / name
    return WorkTree.read(place.resolve()) if place.exists() else None


def find_replay(queue: Queue, name: str) -> WorkTree | None:
    """Return the work tree of a patch that is being merged onto another base, or None."""
    tree = find_tree(queue, name)
    return tree if tree is not None and tree.state.replayed else None


@contextlib.contextmanager
def tree_lock(queue: Queue, name: str) -> Iterator[Path]:
    """Hold the lock of a patch's work tree; yield the path of the tree or of a link to it."""
    place = queue.local / "edit" / name
    with lock(place.with_name(f".{name}.lock"), f"the work tree of {name}"):
        # The link's target is gone: a user deleted the tree.
        if place.is_symlink() and not place.exists():
            place.unlink()
        yield place


def enclosing_tree(place: Path) -> WorkTree | None:
    """Return the work tree that contains a path; None: no work tree does."""
    folder = tree_around(place)
    return WorkTree.read(folder) if folder else None


def not_open_error(queue: Queue, name: str) -> UsageError:
    """Return the error for a patch without an open work tree."""
    queue.require(name)
    return UsageError(f"{name} is not open", hint=f"open it with `contribbot edit {name}`")


def replay_error(tree: WorkTree) -> UsageError:
    """Return the error for a work tree whose patch is being merged onto another base."""
    name, lower = tree.state.key, tree.state.lower
    what, then, give_up = "is being carried to another base", "rebase --continue", "rebase --abort"
    if lower:
        what, then, give_up = f"conflicts with what {lower} is now", "refresh", ""
    give_up = f"contribbot {give_up}, or " if give_up else ""
    return UsageError(
        f"{name} {what}, in {tree.path}",
        hint=f"resolve that there, then `contribbot {then}`; or give it up: {give_up}"
        f"contribbot edit --abort {name}",
    )


@dataclass(frozen=True)
class TreeCommits:
    """A patch's commits in a work tree, as patch files; `marked` commits add conflict marks."""

    commits: tuple[TreeCommit, ...]
    files: tuple[PatchFile, ...]
    marked: tuple[TreeCommit, ...]


def read_commits(tree: WorkTree, store: Store, queue: Queue) -> TreeCommits:
    """Return a work tree's commits, and copy their objects to the store; in `exclusive()`."""
    _check_finished(tree)
    base, name, commits = tree.state.base, tree.state.key, tree.own()
    if not commits:
        again = "`git reflog` shows where they were"
        if tree.state.replayed:
            again = "carry it again: contribbot rebase TAG --resolve"
        raise UsageError(
            f"{tree.path}: no commit is left of the patch",
            hint=f"{again}; to take the patch out of the queue: "
            f"contribbot queue retire {name} --why WHY",
        )
    objects = tree.git("rev-list", "--objects", "--no-object-names", "HEAD", f"^{base}").stdout
    packed = tree.git("pack-objects", "--stdout", "-q", stdin=objects).stdout
    store.git("unpack-objects", "-q", stdin=packed)
    files = format_commits(store, base, commits[-1].commit)
    before = {marks for file in queue.patch(name).files for marks in _conflict_marks(file)}
    for file in files:
        check_form(file.name, file.content)
    pairs = zip(files, commits, strict=True)
    marked = tuple(commit for file, commit in pairs if _conflict_marks(file) - before)
    return TreeCommits(tuple(commits), files, marked)


def _check_finished(tree: WorkTree) -> None:
    if waiting := tree.unfinished():
        raise UsageError(
            f"{tree.path}: a git {waiting} is not finished",
            hint=f"finish it with `git {waiting} --continue`, or drop it; `git status` says how",
        )
    if changed := tree.pending().changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise UsageError(
            f"{tree.path}: not committed: {', '.join(changed[:_SHOWN])}{more}",
            hint="`git commit -a` puts it into a commit, `git stash` aside",
        )


#: A conflict with git's marks that a patch file adds; the first and last line are captured.
_MARKS: Final = re.compile(
    rb"^\+(<{7} [^\n]*)\n(?:[ +-][^\n]*\n)*?\+={7}[^\n]*\n(?:[ +-][^\n]*\n)*?\+(>{7} [^\n]*)$",
    re.MULTILINE,
)


def _conflict_marks(file: PatchFile) -> set[tuple[bytes, ...]]:
    """Return the first and last line of each conflict with git's marks in a patch file."""
    diff = file.content[file.content.find(b"\ndiff --git ") + 1 :]
    return {found.groups() for found in _MARKS.finditer(diff)}


def open_replay(
    queue: Queue, name: str, *, base: str, commits: Sequence[str], lower: str = ""
) -> tuple[Path, tuple[str, ...]]:
    """Cherry-pick commits onto a base in a work tree; return the tree and conflicting paths."""
    with tree_lock(queue, name) as place:
        tree = find_tree(queue, name)
        if tree is None:
            patch = queue.patch(name)
            state = TreeState(
                key=name,
                base=base,
                known=(patch.digest,),
                queue=str(queue.folder),
                replayed=tuple(commits),
                lower=lower,
            )
            store = open_store(stores_folder(), patch.upstream.name)
            tree = _make_tree(place, None, store, base, state)
        elif not tree.state.replayed:
            raise UsageError(
                f"{name} is open in {tree.path}",
                hint=f"save it (contribbot refresh {name}) and remove it "
                f"(contribbot edit --abort {name}) first",
            )
        elif (tree.state.base, tree.state.replayed) != (base, tuple(commits)):
            raise UsageError(
                f"{tree.path}: {name} is being carried to {tree.state.base[:12]} there",
                hint=f"finish that, or remove it: contribbot edit --abort {name}",
            )
        return _carry(tree)


def _carry(tree: WorkTree) -> tuple[Path, tuple[str, ...]]:
    """Cherry-pick the replayed commits until a conflict; return the tree and conflicting paths."""
    if not tree.unfinished() and tree.resolve("HEAD") == tree.state.base:
        _pick(tree, *tree.state.replayed)
    # git goes on by itself where an earlier resolution of a conflict is known.
    for _ in tree.state.replayed:
        pending = tree.pending()
        if not tree.unfinished() or pending.unstaged:
            break
        # If nothing is staged, the base has the whole commit already: skip the commit.
        skipped = not pending.changed and tree.resolve("CHERRY_PICK_HEAD")
        _pick(tree, "--skip" if skipped else "--continue")
    return tree.path, tree.pending().unstaged if tree.unfinished() else ()


def _pick(tree: WorkTree, *args: str) -> None:
    done = tree.git("cherry-pick", *args, env=_AS_CONTRIBBOT, accept=(0, 1, 128))
    if done.returncode and not tree.unfinished():
        output = (done.stderr + done.stdout).decode("utf-8", "replace").split("\n")
        last = next((row for row in reversed(output) if row.strip()), "it says nothing")
        raise MachineError(f"{tree.path}: git cherry-pick: {last}")


def resolved_files(queue: Queue, name: str) -> tuple[PatchFile, ...]:
    """Return a replay's finished commits as patch files; raise an error if work is unfinished."""
    with tree_lock(queue, name):
        tree = find_replay(queue, name)
        if tree is None:
            raise UsageError(
                f"{name} is not being carried to another base", hint="see `contribbot rebase`"
            )
        store = open_store(stores_folder(), queue.patch(name).upstream.name)
        with store.exclusive():
            done = read_commits(tree, store, queue)
        if done.marked:
            raise QueueError(
                f"{tree.path}: the commit {done.marked[0]} adds the marks of a conflict (<<<<<<<)",
                hint="resolve it, and amend the commit",
            )
        # Later, `close_replay` removes the tree: nothing may be left outside the commits.
        untracked = tree.pending().untracked
        left = [*untracked, *(["what is stashed"] if tree.resolve("refs/stash") else [])]
        if left:
            raise UsageError(
                f"{tree.path}: in no commit: {', '.join(left)}",
                hint="commit what belongs to the patch, and remove the rest or move it elsewhere",
            )
        return done.files


def close_replay(queue: Queue, name: str) -> bool:
    """Remove the work tree of a patch's replay; return whether there was such a tree."""
    with tree_lock(queue, name) as place:
        tree = find_replay(queue, name)
        if tree is None:
            return False
        with contextlib.suppress(CommandError):  # a user may have damaged the tree
            if tree.unfinished() and not tree.pending().unstaged:
                tree.git("rerere")
        _discard(place)
        return True


#: The part of the queue that changed and that a work tree lacks: the base or the patch files.
Drift = Literal["base", "files"]
#: The kind of work that removing a work tree would lose.
LossKind = Literal["unfinished", "uncommitted", "untracked", "commit"]


class Loss(Model):
    """A path, commit or git operation that removing a work tree would lose."""

    kind: LossKind
    subject: str


class EditedTree(Model):
    """The JSON document of `edit`; `drift` is set if the state is `changed`, `lost` if `kept`."""

    patch: str
    state: Literal["opened", "open", "changed", "removed", "kept"]
    path: str | None = None
    base_commit: str | None = None
    commits: tuple[TreeCommit, ...] = ()
    drift: Drift | None = None
    lost: tuple[Loss, ...] = ()


def open_tree(queue: Queue, name: str, *, at: Path | None = None, progress: Progress) -> EditedTree:
    """Open a work tree of a patch, unless the patch has an open tree."""
    queue.require(name)
    with tree_lock(queue, name) as place:
        # Another process may have changed the patch before this process got the lock.
        queue = load_queue(queue.folder)
        fetched = fetch_pin(queue, queue.pin_of(name), progress=progress)
        with fetched.store.exclusive():
            applied = PatchStack(queue, fetched).apply(name)
        tree, drift, fresh = find_tree(queue, name), None, False
        if tree is None:
            if applied.why:
                raise QueueError(
                    f"{name} cannot be opened: {applied.why}",
                    hint=f"`contribbot verify {name}` shows the three sides",
                )
            state = TreeState(
                key=name,
                base=applied.base,
                known=(queue.patch(name).digest,),
                queue=str(queue.folder),
            )
            tree, fresh = _make_tree(place, at, fetched.store, applied.commit, state), True
        elif tree.state.replayed:
            raise replay_error(tree)
        elif at is not None and at.resolve() != tree.path:
            raise UsageError(
                f"{name} is open in {tree.path} already",
                hint=f"work there, or remove it: contribbot edit --abort {name}",
            )
        else:
            drift = drift_of(tree.state, queue, applied)
        commits: list[TreeCommit] = []
        # `refresh` reports faults of an open tree's commits; here they are ignored.
        with contextlib.suppress(UsageError):
            commits = tree.own()
        return EditedTree(
            patch=name,
            state="opened" if fresh else "changed" if drift else "open",
            path=printable(tree.path),
            base_commit=tree.state.base,
            commits=tuple(commits),
            drift=drift,
        )


def drift_of(state: TreeState, queue: Queue, applied: Series) -> Drift | None:
    """Return the part of the queue that changed since a tree was opened or saved; None: none."""
    if applied.base != state.base:
        return "base"
    return "files" if queue.patch(state.key).digest not in state.known else None


def abort(queue: Queue, name: str, *, force: bool = False) -> EditedTree:
    """Remove a patch's work tree; without `force`, keep a tree with work that would be lost."""
    with tree_lock(queue, name) as place:
        if not place.exists():
            raise not_open_error(queue, name)
        if not force or place.is_symlink():
            # A folder that the user chose may hold something else by now: check that it is a tree.
            tree = WorkTree.read(place.resolve())
            if not force and (lost := _losses(tree)):
                return EditedTree(patch=name, state="kept", path=printable(tree.path), lost=lost)
        _discard(place, wait=False)
        return EditedTree(patch=name, state="removed")


def _losses(tree: WorkTree) -> tuple[Loss, ...]:
    """Return the work that removing the tree would lose."""
    pending, waiting = tree.pending(), tree.unfinished()
    # `--all` includes commits on other branches and in the stash.
    known = (tree.state.base, *tree.state.replayed, _SAVED_REF)
    commits = tree.commits("HEAD", "--all", "--not", *known)
    rows: dict[LossKind, Iterable[str]] = {
        "unfinished": [waiting] if waiting else [],
        "uncommitted": map(printable, pending.changed),
        "untracked": map(printable, pending.untracked),
        "commit": map(str, commits),
    }
    return tuple(Loss(kind=kind, subject=row) for kind, found in rows.items() for row in found)
