"""`contribbot edit`: a disposable work tree that holds a patch as commits.

The tree is a git repository of its own. `git log` shows the patch's commits on top, those
of the patches that it depends on below them, the pin at the bottom; `refs/contribbot/base`
names the last commit that is not the patch's own. It is changed there with plain git, and
taken back by `contribbot refresh`, as often as one likes: the tree stays open until
`contribbot edit --abort` removes it. That asks only where something would be lost, so
after a refresh it just tidies up.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import CommandError, MachineError, QueueError, UsageError
from contribbot.files import cache_folder, lock, run_folder, stores_folder, write_atomically
from contribbot.git.patch_format import check_form, format_commits
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.git.source import Progress, Silent
from contribbot.model.base import Model, ObjectId
from contribbot.model.patch import PatchFile
from contribbot.queue.load import Queue, load_queue, no_such_patch
from contribbot.queue.stack import AppliedPatch, Stack, land, own_pin

_STATE: Final = "contribbot.json"
BASE_REF: Final = "refs/contribbot/base"
#: What git keeps while something waits for the person, and what it is called.
_UNFINISHED: Final = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("MERGE_HEAD", "merge"),
    ("sequencer", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
)  # fmt: skip


#: Who carries them. The authors stay; nobody is asked for a message.
_AS_CONTRIBBOT: Final = {
    "GIT_COMMITTER_NAME": "contribbot",
    "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_EDITOR": "true",
}


class State(Model):
    """What a tree is for, kept in its `.git`."""

    patch: str
    kind: Literal["edit", "replay"]
    base: ObjectId
    opened: str
    known: dict[str, tuple[ObjectId, ...]] = Field(default_factory=dict)
    replayed: tuple[ObjectId, ...] = ()
    skipped: tuple[ObjectId, ...] = ()
    #: Of a replay that a refresh opened: the patch below that was refreshed.
    lower: str = ""
    #: The folder of the queue; trees of older contribbots do not say it.
    queue: str = ""


@dataclass(frozen=True)
class Commit:
    """A commit of a tree."""

    id: str
    subject: str

    def __str__(self) -> str:
        return f"{self.id[:12]} {self.subject}"


@dataclass(frozen=True)
class Pending:
    """What in a tree is in no commit."""

    changed: tuple[str, ...]
    unmerged: tuple[str, ...]
    unstaged: tuple[str, ...]
    untracked: tuple[str, ...]


class Tree:
    """An open work tree."""

    def __init__(self, path: Path, state: State) -> None:
        self.path = path
        self.state = state

    @classmethod
    def read(cls, path: Path) -> Tree:
        """Read the tree in a folder."""
        try:
            state = State.model_validate_json((path / ".git" / _STATE).read_bytes())
        except (OSError, ValidationError) as error:
            raise MachineError(
                f"{path}: not a work tree of contribbot any more: .git/{_STATE} cannot be read",
                hint="save what you need from it, and remove the folder",
            ) from error
        return cls(path, state)

    def save(self, state: State) -> None:
        """Write what the tree is for."""
        write_atomically(
            self.path / ".git" / _STATE, state.model_dump_json(indent=2).encode() + b"\n"
        )
        self.state = state

    def git(
        self,
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        accept: Sequence[int] = (0,),
    ) -> process.Completed:
        """Run git on the tree, with no setting but those that the tree was made with."""
        return process.run(
            ["git", f"--git-dir={self.path / '.git'}", f"--work-tree={self.path}", *args],
            cwd=self.path,
            env=git_environment({"GIT_NO_REPLACE_OBJECTS": "1", **(env or {})}),
            stdin=stdin,
            timeout=timeout,
            accept=accept,
        )

    def head(self) -> str:
        """Return the commit that is checked out."""
        return self.git("rev-parse", "--verify", "HEAD^{commit}").stdout.decode().strip()

    def resolve(self, name: str) -> str:
        """Return the commit that a name stands for, or nothing."""
        done = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", accept=(0, 1))
        return done.stdout.decode().strip()

    def unfinished(self) -> str:
        """Return what git operation waits for the person, such as `rebase`; or nothing."""
        for mark, name in _UNFINISHED:
            if (self.path / ".git" / mark).exists():
                return name
        return ""

    def pending(self) -> Pending:
        """Look for what is in no commit."""
        said = self.git(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal",
            "--ignore-submodules=dirty",
        ).stdout.decode("utf-8", "surrogateescape")  # fmt: skip
        rows = [(row[:2], row[3:]) for row in said.split("\0") if row]
        changed = [row for row in rows if row[0] != "??"]
        return Pending(
            changed=tuple(path for _, path in changed),
            unmerged=tuple(path for mark, path in changed if "U" in mark or mark in {"AA", "DD"}),
            unstaged=tuple(path for mark, path in changed if mark[1] != " "),
            untracked=tuple(path for mark, path in rows if mark == "??"),
        )

    def commits(self, *revisions: str) -> list[Commit]:
        """Return commits, oldest first."""
        said = self.git(
            "log", "-z", "--reverse", "--topo-order", "--encoding=UTF-8", "--format=%H %s",
            *revisions, "--",
        ).stdout.decode("utf-8", "replace")  # fmt: skip
        return [Commit(row[:40], row[41:]) for row in said.split("\0") if row]

    def own(self) -> list[Commit]:
        """Return the commits between the base and what is checked out, oldest first."""
        base = self.state.base
        held = self.git("merge-base", "--is-ancestor", base, "HEAD", accept=(0, 1, 128))
        if held.returncode:
            raise UsageError(
                f"{self.path}: what is checked out does not stand on {base[:12]} any more",
                hint=f"`git switch` to a branch that does, or `git rebase {BASE_REF}`",
            )
        return self.commits(f"{base}..HEAD")

    def commit_all(self) -> None:
        """Put what is not committed into the last commit, where the patch has one."""
        pending = self.pending()
        if not pending.changed or pending.unmerged or self.unfinished() or not self.own():
            return
        self.git(
            "commit", "-q", "-a", "--amend", "--no-edit", "--no-verify", "--cleanup=verbatim",
            "--allow-empty", env=_AS_CONTRIBBOT,
        )  # fmt: skip

    def lend(self, store: Store, tip: str) -> None:
        """Copy the commits above the base into the store, so that it can read them.

        Call it inside `store.exclusive()`.
        """
        listed = self.git(
            "rev-list", "--objects", "--no-object-names", tip, f"^{self.state.base}"
        ).stdout
        pack = self.git("pack-objects", "--stdout", "-q", stdin=listed).stdout
        store.git("unpack-objects", "-q", stdin=pack)


#: Written to the tree's own configuration, which goes before the person's. The conflict
#: style decides by which text `rerere` knows a conflict again: it must not change.
_CONFIG: Final = """\
[core]
\tautocrlf = false
\teol = lf
\tsafecrlf = false
\tsymlinks = true
\tignoreCase = false
\thooksPath = /dev/null
\tfsmonitor = false
\tsparseCheckout = false
[i18n]
\tcommitEncoding = UTF-8
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
[submodule]
\trecurse = false
[apply]
\twhitespace = nowarn
\tignoreWhitespace = no
[merge]
\tconflictStyle = diff3
\trenames = true
\tdirectoryRenames = conflict
\trenormalize = false
[rerere]
\tenabled = true
\tautoUpdate = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
#: What running a tree's Python files leaves; a release's archive may lack a `.gitignore`.
_EXCLUDE: Final = "__pycache__/\n*.py[cod]\n"


def make_tree(place: Path, at: Path, store: Store, *, tip: str, state: State) -> Tree:
    """Make a work tree in one step: it is there as a whole or not at all."""
    if at.is_symlink() or (at.exists() and (not at.is_dir() or any(at.iterdir()))):
        raise UsageError(f"{at}: there is something already", hint="name a new or an empty folder")
    building = at.with_name(f".{at.name}.partial")
    process.remove_tree(building)
    building.mkdir(parents=True)
    branch = "contribbot/" + state.patch.replace("..", "-").removesuffix(".lock").rstrip(".")
    process.run(
        ["git", "init", "-q", "--template=", f"--initial-branch={branch}", building],
        env=git_environment(),
    )
    git_folder = building / ".git"
    with (git_folder / "config").open("a", encoding="utf-8") as config:
        config.write(_CONFIG)
    (git_folder / "info").mkdir(exist_ok=True)
    (git_folder / "info" / "exclude").write_text(_EXCLUDE, encoding="utf-8")
    # Bytes go in and out as they are, as in the store.
    shutil.copyfile(store.path / "info" / "attributes", git_folder / "info" / "attributes")
    alternates = git_folder / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_bytes(os.fsencode(store.path.resolve() / "objects") + b"\n")
    # Where the store's history is cut off, the tree's is.
    if (store.path / "shallow").is_file():
        shutil.copyfile(store.path / "shallow", git_folder / "shallow")
    # How a conflict was resolved is remembered when the tree is gone.
    memory = cache_folder() / "rr-cache" / store.path.stem
    memory.mkdir(parents=True, exist_ok=True)
    (git_folder / "rr-cache").symlink_to(memory, target_is_directory=True)
    tree = Tree(building, state)
    tree.save(state)
    tree.git("update-ref", BASE_REF, state.base)
    tree.git("update-ref", f"refs/heads/{branch}", tip)
    tree.git("-c", "checkout.workers=0", "reset", "--quiet", "--hard")
    if at != place:
        place.symlink_to(at, target_is_directory=True)
    building.rename(at)
    return Tree(at, state)


def discard(place: Path) -> None:
    """Remove a work tree and the link to it; what is killed on the way is gone all the same."""
    folder = place.resolve()
    gone = folder.with_name(f".{folder.name}.partial")
    process.remove_tree(gone)
    folder.rename(gone)
    if place.is_symlink():
        place.unlink()
    process.remove_tree(gone)


def place_of(queue: Queue, name: str) -> Path:
    """Return where contribbot looks for a patch's tree: the tree, or a link to it."""
    return queue.local / "edit" / name


def printable(path: Path | str) -> str:
    """Return a path as text: a name that is no UTF-8 is spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def find_tree(queue: Queue, name: str) -> Tree | None:
    """Return the open tree of a patch, of either kind, or None."""
    place = place_of(queue, name)
    return Tree.read(place.resolve()) if place.exists() else None


@contextlib.contextmanager
def held(queue: Queue, name: str) -> Iterator[Path]:
    """Hold the place of a patch's tree: nobody else opens, takes or removes it."""
    place = place_of(queue, name)
    with lock(place.with_name(f".{name}.lock"), f"the work tree of {name}"):
        # The tree was somewhere else, and is gone.
        if place.is_symlink() and not place.exists():
            place.unlink()
        yield place


def enclosing_tree(place: Path) -> Tree | None:
    """Return the open work tree that a place lies in."""
    for folder in (place, *place.parents):
        if (folder / ".git" / _STATE).is_file():
            return Tree.read(folder)
    return None


def not_open(queue: Queue, name: str) -> UsageError:
    """Return the error for a patch that has no open work tree."""
    if name not in queue.specs:
        return no_such_patch(name, queue.specs)
    return UsageError(f"{name} is not open", hint=f"open it with `contribbot edit {name}`")


def being_carried(tree: Tree) -> UsageError:
    """Return the error for a tree that holds a patch on its way to another base."""
    if tree.state.lower:
        return UsageError(
            f"{tree.state.patch} conflicts with what {tree.state.lower} is now, in {tree.path}",
            hint="resolve that there, then `contribbot refresh`; or give it up: "
            f"contribbot edit --abort {tree.state.patch}",
        )
    return UsageError(
        f"{tree.state.patch} is being carried to another base, in {tree.path}",
        hint="finish that with `contribbot rebase --continue`, or give it up with `contribbot "
        f"rebase --abort`; where no move is underway: contribbot edit --abort {tree.state.patch}",
    )


#: What git writes around the sides of a conflict in such a tree, one after the other, as
#: lines that a patch adds. Any of them by itself is a line like others.
_MARKS: Final = (b"+<<<<<<< ", b"+||||||| ", b"+=======", b"+>>>>>>> ")
_SHOWN: Final = 5


@dataclass(frozen=True)
class Taken:
    """The finished commits of a tree."""

    commits: tuple[Commit, ...]
    files: tuple[PatchFile, ...]
    left_out: tuple[str, ...]
    marked: tuple[Commit, ...]


def take(tree: Tree, store: Store, before: Sequence[PatchFile]) -> Taken:
    """Read the commits between the base and what is checked out.

    Call it inside `store.exclusive()`.
    """
    where, carried = tree.path, tree.state.kind == "replay"
    if waiting := tree.unfinished():
        end = "`git bisect reset`" if waiting == "bisect" else f"`git {waiting} --continue`"
        drop = "" if waiting == "bisect" else f", or drop it with `git {waiting} --abort`"
        if carried and waiting == "cherry-pick":
            drop = ", or, where nothing is left of the commit, with `git cherry-pick --skip`"
        raise UsageError(
            f"{where}: a git {waiting} is not finished", hint=f"finish it with {end}{drop}"
        )
    pending = tree.pending()
    if pending.changed:
        raise UsageError(
            f"{where}: not committed: {_some(pending.changed)}",
            hint="`git commit -a` puts it into a commit, `git stash` aside",
        )
    commits = tree.own()
    if not commits:
        raise UsageError(
            f"{where}: no commit is left of the patch",
            hint="carry it again: contribbot rebase --to TAG --resolve; a patch of which nothing "
            "is wanted there is taken out of `order` in queue.toml, after rebase --abort"
            if carried
            else "`git reflog` shows where they were; a patch that is no longer wanted is taken "
            "out of `order` in queue.toml",
        )
    tree.lend(store, commits[-1].id)
    files = format_commits(store, tree.state.base, commits[-1].id)
    own = {one for file in before for one in _marks(file.content)}
    for file in files:
        check_form(file.name, file.content)
    pairs = zip(files, commits, strict=True)
    marked = tuple(commit for file, commit in pairs if _marks(file.content) - own)
    return Taken(tuple(commits), files, pending.untracked, marked)


def _marks(content: bytes) -> set[tuple[bytes, ...]]:
    """Return the marks of each whole conflict that a patch file adds to a file."""
    found: set[tuple[bytes, ...]] = set()
    seen: tuple[bytes, ...] = ()
    for row in content.split(b"\n"):
        if row.startswith(b"diff --git "):
            seen = ()
        elif row.startswith(_MARKS[len(seen)]):
            seen = (*seen, row)
        if len(seen) == len(_MARKS):
            found.add(seen)
            seen = ()
    return found


def _some(paths: tuple[str, ...]) -> str:
    """Name the first paths of many."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


_REMEMBERED: Final = re.compile(
    r"^(?:Staged|Resolved) '(.+)' using previous resolution\.$", re.MULTILINE
)


@dataclass(frozen=True)
class Replay:
    """How far the commits of a patch are carried to another base."""

    path: Path
    conflicted: tuple[str, ...]
    done: bool
    skipped: tuple[str, ...] = ()
    remembered: tuple[str, ...] = ()


def open_replay(
    queue: Queue,
    name: str,
    *,
    base: str,
    commits: Sequence[str],
    at: Path | None = None,
    lower: str = "",
) -> Replay:
    """Carry commits to another base in a work tree, as far as they go without a conflict.

    Called again, it goes on: what a person has resolved and staged is committed, and the
    next commits are carried.
    """
    with held(queue, name) as place:
        tree = find_tree(queue, name)
        if tree is None:
            patch = queue.patch(name)
            state = State(
                patch=name, kind="replay", base=base, opened=patch.digest,
                replayed=tuple(commits), lower=lower, queue=str(queue.folder),
            )  # fmt: skip
            store = open_store(stores_folder(), patch.upstream.name)
            where = place if at is None else at.absolute()
            tree = make_tree(place, where, store, tip=base, state=state)
        elif tree.state.kind != "replay":
            raise UsageError(
                f"{name} is open in {tree.path}",
                hint=f"take it back (contribbot refresh {name}) and remove it "
                f"(contribbot edit --abort {name}) first",
            )
        elif (tree.state.base, tree.state.replayed) != (base, tuple(commits)):
            raise UsageError(
                f"{tree.path}: {name} is being carried to {tree.state.base[:12]} there",
                hint=f"finish that, or remove it: contribbot edit --abort {name}",
            )
        return _carry(tree)


def _carry(tree: Tree) -> Replay:
    """Carry commits until a person is needed, or all are there."""
    said = ""
    if not tree.unfinished() and not _carried(tree):
        said = _pick(tree, *tree.state.replayed)
    seen = ""
    while tree.unfinished():
        pending = tree.pending()
        if pending.unmerged or pending.unstaged:
            return _replay(tree, pending.unmerged or pending.unstaged, said)
        picked = tree.resolve("CHERRY_PICK_HEAD")
        at = f"{tree.head()} {picked}"
        if at == seen:
            raise MachineError(
                f"{tree.path}: git cherry-pick does not go on: {said.strip().splitlines()[-1]}",
                hint="go on there by hand, with `git cherry-pick --continue`",
            )
        seen = at
        if pending.changed or not picked:
            said += _pick(tree, "--continue")
        else:
            # Nothing is left of it: the base has all of it.
            skipped = (*tree.state.skipped, picked)
            tree.save(tree.state.model_copy(update={"skipped": skipped}))
            said += _pick(tree, "--skip")
    return _replay(tree, (), said)


def _carried(tree: Tree) -> bool:
    """Say whether the commits were carried, so that nothing is to be started."""
    return bool(tree.own()) or len(tree.state.skipped) == len(tree.state.replayed)


def _pick(tree: Tree, *args: str) -> str:
    """Run `git cherry-pick`, and return what it said."""
    done = tree.git("cherry-pick", *args, env=_AS_CONTRIBBOT, accept=(0, 1, 128))
    said = (done.stderr + done.stdout).decode("utf-8", "replace")
    if done.returncode and not tree.unfinished():
        last = [row for row in said.splitlines() if row.strip()][-1:]
        raise MachineError(f"{tree.path}: git cherry-pick: {''.join(last) or 'it said nothing'}")
    return said


def _replay(tree: Tree, conflicted: tuple[str, ...], said: str) -> Replay:
    skipped = tree.commits("--no-walk=unsorted", *tree.state.skipped) if tree.state.skipped else []
    return Replay(
        path=tree.path,
        conflicted=conflicted,
        done=not conflicted,
        skipped=tuple(str(one) for one in skipped),
        remembered=tuple(dict.fromkeys(_REMEMBERED.findall(said))),
    )


def taken(queue: Queue, name: str) -> tuple[PatchFile, ...]:
    """Return the finished commits of a replay as patch files; the store holds them then."""
    with held(queue, name):
        tree = find_tree(queue, name)
        if tree is None or tree.state.kind != "replay":
            raise UsageError(
                f"{name} is not being carried to another base", hint="see `contribbot rebase`"
            )
        patch = queue.patch(name)
        store = open_store(stores_folder(), patch.upstream.name)
        with store.exclusive():
            done = take(tree, store, patch.files)
        if done.marked:
            raise QueueError(
                f"{tree.path}: the commit {done.marked[0]} adds the marks of a conflict (<<<<<<<)",
                hint="resolve it, and amend the commit",
            )
        # The tree goes when it is taken.
        left = [*done.left_out, *(["what is stashed"] if tree.resolve("refs/stash") else [])]
        if left:
            raise UsageError(
                f"{tree.path}: in no commit: {', '.join(left)}",
                hint="commit what belongs to the patch, and remove the rest or move it elsewhere",
            )
        return done.files


def close_replay(queue: Queue, name: str) -> bool:
    """Remove the tree of a replay with all that is in it; one that is edited stays.

    How a conflict was resolved is remembered, where all of it is staged.
    """
    with held(queue, name) as place:
        tree = find_tree(queue, name)
        if tree is None or tree.state.kind != "replay":
            return False
        # Not where the cache was emptied, and with it what the tree stands on.
        with contextlib.suppress(CommandError):
            if tree.unfinished() and not tree.pending().unmerged:
                tree.git("rerere")
        discard(place)
        return True


@dataclass(frozen=True)
class Opened:
    """An open work tree."""

    path: Path
    base: str
    commits: tuple[Commit, ...]
    fresh: bool
    stale: str = ""


def open_tree(
    queue: Queue, name: str, *, at: Path | None = None, progress: Progress | None = None
) -> Opened:
    """Open the work tree of a patch, or find it open."""
    with held(queue, name) as place, run_folder() as scratch:
        # Whoever held the tree before may have changed the patch.
        queue = load_queue(queue.folder)
        patch = queue.patch(name)
        landed = land(queue, own_pin(queue, name), progress=progress or Silent())
        with landed.store.exclusive():
            applied = Stack(queue, landed, scratch).apply(name)
        tree = find_tree(queue, name)
        if tree is not None:
            if tree.state.kind == "replay":
                raise being_carried(tree)
            if at is not None and at.resolve() != tree.path:
                raise UsageError(
                    f"{name} is open in {tree.path} already",
                    hint=f"work there, or remove it: contribbot edit --abort {name}",
                )
            return _found(tree, applied, patch.digest)
        if applied.why:
            raise QueueError(
                f"{name} cannot be opened: {applied.why}",
                hint=f"`contribbot verify {name}` shows the three sides",
            )
        state = State(
            patch=name,
            kind="edit",
            base=applied.base,
            opened=patch.digest,
            known={patch.digest: applied.commits},
            queue=str(queue.folder),
        )
        where = place if at is None else at.absolute()
        tree = make_tree(place, where, landed.store, tip=applied.tip, state=state)
        return Opened(tree.path, applied.base, tuple(tree.own()), fresh=True)


def _found(tree: Tree, applied: AppliedPatch, digest: str) -> Opened:
    """Describe a tree that is open already."""
    try:
        commits = tuple(tree.own())
    except UsageError:
        commits = ()  # refresh says what is wrong with it
    stale = moved_on(tree.state, applied, digest)
    return Opened(tree.path, tree.state.base, commits, fresh=False, stale=stale)


def moved_on(state: State, applied: AppliedPatch, digest: str) -> str:
    """Say what changed in the queue since a tree was opened or taken, or nothing."""
    if applied.base != state.base:
        return f"what {state.patch} stands on (its pin, or a patch below it) has changed since"
    if digest not in state.known:
        return f"the files of {state.patch} were changed since, by something else than refresh"
    return ""


def abort(queue: Queue, name: str, *, force: bool = False) -> tuple[str, ...]:
    """Remove the work tree of a patch, unless something would be lost."""
    with held(queue, name) as place:
        if not place.exists():
            raise not_open(queue, name)
        if not force or place.is_symlink():
            # Where it is elsewhere, something else may be there by now.
            tree = Tree.read(place.resolve())
            if not force and (lost := _told(queue, tree)):
                return lost
        discard(place)
        return ()


def _told(queue: Queue, tree: Tree) -> tuple[str, ...]:
    try:
        return losses(queue, tree)
    except CommandError as error:
        # The cache was emptied, and with it what the tree stands on; or somebody took it apart.
        return (f"what git cannot tell: {error.message}",)


def losses(queue: Queue, tree: Tree) -> tuple[str, ...]:
    """Return what of a tree is nowhere else, a line each."""
    found = []
    if waiting := tree.unfinished():
        found.append(f"an unfinished git {waiting}")
    pending = tree.pending()
    for what, paths in (("not committed", pending.changed), ("not in git", pending.untracked)):
        found += [f"{path} ({what})" for path in paths]
    state = tree.state
    kept = [state.base, *state.replayed]
    digests = {state.opened}
    if state.patch in queue.specs:
        with contextlib.suppress(QueueError):
            digests.add(queue.patch(state.patch).digest)
    for digest in digests:
        kept += state.known.get(digest, ())[-1:]
    # Also what is on other branches, or stashed.
    commits = tree.commits("HEAD", "--all", "--not", *kept)
    return (*found, *(f"commit {commit}" for commit in commits))
