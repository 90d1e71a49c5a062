"""`contribbot edit`: a disposable work tree that holds a patch as commits.

The tree is a git repository of its own. `git log` shows the patch's commits on top, those
of the patches that it depends on below them, the pin at the bottom; `refs/contribbot/base`
names the last commit that is not the patch's own. It is changed there with plain git, and
taken back by `contribbot refresh`, as often as one likes, until `contribbot edit --abort`
removes it. A tree of the kind `replay` holds the conflict of a patch that is carried to
another base.
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
from contribbot.queue.stack import AppliedPatch, PatchStack, land, own_pin

_STATE: Final = "contribbot.json"
BASE_REF: Final = "refs/contribbot/base"
#: What git keeps while something waits for the person, and what it is called.
_UNFINISHED: Final = {
    "rebase-merge": "rebase", "rebase-apply/applying": "am", "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert", "MERGE_HEAD": "merge",
    "sequencer": "cherry-pick", "BISECT_LOG": "bisect",
}  # fmt: skip
#: Who commits. The authors stay; nobody is asked for a message.
_AS_CONTRIBBOT: Final = {
    "GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_EDITOR": "true",
}  # fmt: skip
#: The tree's own configuration, which goes before the person's. The conflict style decides by
#: which text `rerere` knows a conflict again: it must not change.
_CONFIG: Final = {
    "core": "autocrlf=false eol=lf safecrlf=false symlinks=true ignoreCase=false "
    "hooksPath=/dev/null fsmonitor=false sparseCheckout=false",
    "i18n": "commitEncoding=UTF-8",
    "commit": "gpgSign=false",
    "tag": "gpgSign=false",
    "submodule": "recurse=false",
    "apply": "whitespace=nowarn ignoreWhitespace=no",
    "merge": "conflictStyle=diff3 renames=true directoryRenames=conflict renormalize=false",
    "rerere": "enabled=true autoUpdate=true",
    "gc": "auto=0",
    "maintenance": "auto=false",
}
#: What running a tree's Python files leaves; a release's archive may lack a `.gitignore`.
_EXCLUDE: Final = "__pycache__/\n*.py[cod]\n"


class TreeState(Model):
    """What a tree is for, kept in its `.git`."""

    patch: str
    kind: Literal["edit", "replay"]
    base: ObjectId
    opened: str
    #: The commits of the tree that stand for a state of the patch, by its digest.
    known: dict[str, tuple[ObjectId, ...]] = Field(default_factory=dict)
    replayed: tuple[ObjectId, ...] = ()
    skipped: tuple[ObjectId, ...] = ()
    #: Of a replay that a refresh opened: the patch below that was refreshed.
    lower: str = ""
    #: The folder of the queue; trees of older contribbots do not say it.
    queue: str = ""


class TreeCommit(Model):
    """A commit of a tree."""

    commit: str
    subject: str

    def __str__(self) -> str:
        return f"{self.commit[:12]} {self.subject}"


@dataclass(frozen=True)
class Pending:
    """The paths of a tree that are in no commit."""

    changed: tuple[str, ...]
    unmerged: tuple[str, ...]
    unstaged: tuple[str, ...]
    untracked: tuple[str, ...]


@dataclass
class WorkTree:
    """An open work tree."""

    path: Path
    state: TreeState

    @classmethod
    def read(cls, path: Path) -> WorkTree:
        """Read the tree in a folder."""
        try:
            state = TreeState.model_validate_json((path / ".git" / _STATE).read_bytes())
        except (OSError, ValidationError) as error:
            raise MachineError(
                f"{path}: not a work tree of contribbot any more: .git/{_STATE} cannot be read",
                hint="save what you need from it, and remove the folder",
            ) from error
        return cls(path, state)

    def save(self, state: TreeState) -> None:
        """Write what the tree is for."""
        content = state.model_dump_json(indent=2).encode() + b"\n"
        write_atomically(self.path / ".git" / _STATE, content)
        self.state = state

    def git(
        self,
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> process.Completed:
        """Run git on the tree, with no setting but those that the tree was made with."""
        return process.run(
            ["git", f"--git-dir={self.path / '.git'}", f"--work-tree={self.path}", *args],
            cwd=self.path,
            env=git_environment({"GIT_NO_REPLACE_OBJECTS": "1", **(env or {})}),
            stdin=stdin,
            timeout=300.0,
            accept=accept,
        )

    def resolve(self, name: str) -> str:
        """Return the commit that a name stands for, or nothing."""
        done = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", accept=(0, 1))
        return done.stdout.decode().strip()

    def unfinished(self) -> str:
        """Return the git operation that waits for the person, such as `rebase`; or nothing."""
        marks = (name for mark, name in _UNFINISHED.items() if (self.path / ".git" / mark).exists())
        return next(marks, "")

    def pending(self) -> Pending:
        """Return what is in no commit."""
        status = self.git(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal",
            "--ignore-submodules=dirty",
        ).stdout.decode("utf-8", "surrogateescape")  # fmt: skip
        rows = [(row[:2], row[3:]) for row in status.split("\0") if row]
        changed = [row for row in rows if row[0] != "??"]
        return Pending(
            changed=tuple(path for _, path in changed),
            unmerged=tuple(path for mark, path in changed if "U" in mark or mark in {"AA", "DD"}),
            unstaged=tuple(path for mark, path in changed if mark[1] != " "),
            untracked=tuple(path for mark, path in rows if mark == "??"),
        )

    def commits(self, *revisions: str) -> list[TreeCommit]:
        """Return commits, oldest first."""
        log = self.git(
            "log", "-z", "--reverse", "--topo-order", "--encoding=UTF-8", "--format=%H %s",
            *revisions, "--",
        ).stdout.decode("utf-8", "replace")  # fmt: skip
        rows = [row.partition(" ") for row in log.split("\0") if row]
        return [TreeCommit(commit=commit, subject=subject) for commit, _, subject in rows]

    def own(self) -> list[TreeCommit]:
        """Return the commits between the base and what is checked out, oldest first."""
        base = self.state.base
        if self.git("merge-base", "--is-ancestor", base, "HEAD", accept=(0, 1, 128)).returncode:
            raise UsageError(
                f"{self.path}: what is checked out does not stand on {base[:12]} any more",
                hint=f"`git switch` to a branch that does, or `git rebase {BASE_REF}`",
            )
        return self.commits(f"{base}..HEAD")

    def commit_all(self) -> None:
        """Put what is not committed into the last commit, where the patch has one."""
        pending = self.pending()
        if pending.changed and not pending.unmerged and not self.unfinished() and self.own():
            self.git(
                "commit", "-q", "-a", "--amend", "--no-edit", "--no-verify", "--cleanup=verbatim",
                "--allow-empty", env=_AS_CONTRIBBOT,
            )  # fmt: skip

    def lend(self, store: Store, tip: str) -> None:
        """Copy the commits above the base into the store; call it inside `store.exclusive()`."""
        objects = ("rev-list", "--objects", "--no-object-names", tip, f"^{self.state.base}")
        pack = self.git("pack-objects", "--stdout", "-q", stdin=self.git(*objects).stdout).stdout
        store.git("unpack-objects", "-q", stdin=pack)


def _make_tree(place: Path, at: Path, store: Store, *, tip: str, state: TreeState) -> WorkTree:
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
    folder = building / ".git"
    with (folder / "config").open("a", encoding="utf-8") as config:
        for section, settings in _CONFIG.items():
            config.write(f"[{section}]\n\t" + "\n\t".join(settings.split()) + "\n")
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "exclude").write_text(_EXCLUDE, encoding="utf-8")
    # Bytes go in and out as they are, and the history is cut off where it is, as in the store.
    for name in ("info/attributes", "shallow"):
        if (store.path / name).is_file():
            shutil.copyfile(store.path / name, folder / name)
    (folder / "objects/info").mkdir(exist_ok=True)
    objects = os.fsencode(store.path.resolve() / "objects") + b"\n"
    (folder / "objects/info/alternates").write_bytes(objects)
    # How a conflict was resolved is remembered when the tree is gone.
    memory = cache_folder() / "rr-cache" / store.path.stem
    memory.mkdir(parents=True, exist_ok=True)
    (folder / "rr-cache").symlink_to(memory, target_is_directory=True)
    tree = WorkTree(building, state)
    tree.save(state)
    tree.git("update-ref", BASE_REF, state.base)
    tree.git("update-ref", f"refs/heads/{branch}", tip)
    tree.git("-c", "checkout.workers=0", "reset", "--quiet", "--hard")
    if at != place:
        place.symlink_to(at, target_is_directory=True)
    building.rename(at)
    return WorkTree(at, state)


def _discard(place: Path) -> None:
    """Remove a work tree and the link to it; what is killed on the way is gone all the same."""
    folder = place.resolve()
    aside = folder.with_name(f".{folder.name}.partial")
    process.remove_tree(aside)
    folder.rename(aside)
    if place.is_symlink():
        place.unlink()
    process.remove_tree(aside)


def _place_of(queue: Queue, name: str) -> Path:
    """Return where contribbot looks for a patch's tree: the tree, or a link to it."""
    return queue.local / "edit" / name


def printable(path: Path | str) -> str:
    """Return a path as text: a name that is no UTF-8 is spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def find_tree(queue: Queue, name: str) -> WorkTree | None:
    """Return the open tree of a patch, of either kind, or None."""
    place = _place_of(queue, name)
    return WorkTree.read(place.resolve()) if place.exists() else None


def find_replay(queue: Queue, name: str) -> WorkTree | None:
    """Return the open tree in which a patch is carried to another base, or None."""
    tree = find_tree(queue, name)
    return tree if tree is not None and tree.state.kind == "replay" else None


@contextlib.contextmanager
def held(queue: Queue, name: str) -> Iterator[Path]:
    """Hold the place of a patch's tree: nobody else opens, takes or removes it."""
    place = _place_of(queue, name)
    with lock(place.with_name(f".{name}.lock"), f"the work tree of {name}"):
        # The tree was somewhere else, and is gone.
        if place.is_symlink() and not place.exists():
            place.unlink()
        yield place


def enclosing_tree(place: Path) -> WorkTree | None:
    """Return the open work tree that a place lies in."""
    for folder in (place, *place.parents):
        if (folder / ".git" / _STATE).is_file():
            return WorkTree.read(folder)
    return None


def not_open(queue: Queue, name: str) -> UsageError:
    """Return the error for a patch that has no open work tree."""
    if name not in queue.specs:
        return no_such_patch(name, queue.specs)
    return UsageError(f"{name} is not open", hint=f"open it with `contribbot edit {name}`")


def being_carried(tree: WorkTree) -> UsageError:
    """Return the error for a tree that holds a patch on its way to another base."""
    name, lower = tree.state.patch, tree.state.lower
    what, then, give_up = "is being carried to another base", "rebase --continue", "rebase --abort"
    if lower:
        what, then, give_up = f"conflicts with what {lower} is now", "refresh", ""
    give_up = f"contribbot {give_up}, or " if give_up else ""
    return UsageError(
        f"{name} {what}, in {tree.path}",
        hint=f"resolve that there, then `contribbot {then}`; or give it up: {give_up}"
        f"contribbot edit --abort {name}",
    )


#: A conflict as git leaves it, in lines that a patch adds to one file. Its first and last line
#: tell it from others.
_CONFLICT: Final = re.compile(
    rb"^(\+<<<<<<< [^\n]*)\n(?:(?!diff --git )[^\n]*\n)*?\+=======[^\n]*\n"
    rb"(?:(?!diff --git )[^\n]*\n)*?(\+>>>>>>> [^\n]*)$",
    re.MULTILINE,
)
_SHOWN: Final = 5


@dataclass(frozen=True)
class TakenCommits:
    """The finished commits of a tree, as patch files."""

    commits: tuple[TreeCommit, ...]
    files: tuple[PatchFile, ...]
    untracked: tuple[str, ...]
    #: Those that add the marks of a conflict.
    marked: tuple[TreeCommit, ...]


def take(tree: WorkTree, store: Store, before: Sequence[PatchFile]) -> TakenCommits:
    """Read the commits of a tree; call it inside `store.exclusive()`."""
    carried = tree.state.kind == "replay"
    if waiting := tree.unfinished():
        drop = f", or drop it with `git {waiting} --abort`"
        if carried and waiting == "cherry-pick":
            drop = ", or, where nothing is left of the commit, with `git cherry-pick --skip`"
        end = f"`git {waiting} --continue`{drop}"
        raise UsageError(
            f"{tree.path}: a git {waiting} is not finished",
            hint=f"finish it with {'`git bisect reset`' if waiting == 'bisect' else end}",
        )
    pending = tree.pending()
    if changed := pending.changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise UsageError(
            f"{tree.path}: not committed: {', '.join(changed[:_SHOWN])}{more}",
            hint="`git commit -a` puts it into a commit, `git stash` aside",
        )
    commits = tree.own()
    if not commits:
        again = "carry it again: contribbot rebase --to TAG --resolve"
        raise UsageError(
            f"{tree.path}: no commit is left of the patch",
            hint=f"{again if carried else '`git reflog` shows where they were'}; a patch that is "
            "no longer wanted is taken out of `order` in queue.toml",
        )
    tree.lend(store, commits[-1].commit)
    files = format_commits(store, tree.state.base, commits[-1].commit)
    own = {marks for file in before for marks in _CONFLICT.findall(file.content)}
    for file in files:
        check_form(file.name, file.content)
    pairs = zip(files, commits, strict=True)
    marked = tuple(commit for file, commit in pairs if {*_CONFLICT.findall(file.content)} - own)
    return TakenCommits(tuple(commits), files, pending.untracked, marked)


_REMEMBERED: Final = re.compile(
    r"^(?:Staged|Resolved) '(.+)' using previous resolution\.$", re.MULTILINE
)


@dataclass(frozen=True)
class Replay:
    """How far the commits of a patch are carried to another base."""

    path: Path
    conflicted: tuple[str, ...]
    #: What was resolved as it was once before.
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
            state = TreeState(
                patch=name, kind="replay", base=base, opened=patch.digest,
                replayed=tuple(commits), lower=lower, queue=str(queue.folder),
            )  # fmt: skip
            store = open_store(stores_folder(), patch.upstream.name)
            where = place if at is None else at.absolute()
            tree = _make_tree(place, where, store, tip=base, state=state)
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


def _carry(tree: WorkTree) -> Replay:
    """Carry commits until a person is needed, or all are there."""
    output = ""
    started = tree.unfinished() or tree.own()
    if not started and len(tree.state.skipped) < len(tree.state.replayed):
        output = _pick(tree, *tree.state.replayed)
    pending, before = tree.pending(), ("", "")
    while tree.unfinished() and not (pending.unmerged or pending.unstaged):
        head, picked = tree.resolve("HEAD"), tree.resolve("CHERRY_PICK_HEAD")
        if (head, picked) == before:
            raise MachineError(
                f"{tree.path}: git cherry-pick does not go on: {output.strip().splitlines()[-1]}",
                hint="go on there by hand, with `git cherry-pick --continue`",
            )
        before = (head, picked)
        if pending.changed or not picked:
            output += _pick(tree, "--continue")
        else:
            # Nothing is left of it: the base has all of it.
            skipped = (*tree.state.skipped, picked)
            tree.save(tree.state.model_copy(update={"skipped": skipped}))
            output += _pick(tree, "--skip")
        pending = tree.pending()
    conflicted = (pending.unmerged or pending.unstaged) if tree.unfinished() else ()
    return Replay(tree.path, conflicted, tuple(dict.fromkeys(_REMEMBERED.findall(output))))


def _pick(tree: WorkTree, *args: str) -> str:
    """Run `git cherry-pick`, and return its output."""
    done = tree.git("cherry-pick", *args, env=_AS_CONTRIBBOT, accept=(0, 1, 128))
    output = (done.stderr + done.stdout).decode("utf-8", "replace")
    if done.returncode and not tree.unfinished():
        last = [row for row in output.splitlines() if row.strip()][-1:]
        raise MachineError(f"{tree.path}: git cherry-pick: {''.join(last) or 'it says nothing'}")
    return output


def taken(queue: Queue, name: str) -> tuple[PatchFile, ...]:
    """Return the finished commits of a replay as patch files; the store holds them then."""
    with held(queue, name):
        tree = find_replay(queue, name)
        if tree is None:
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
        left = [*done.untracked, *(["what is stashed"] if tree.resolve("refs/stash") else [])]
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
        tree = find_replay(queue, name)
        if tree is None:
            return False
        # Not where the cache was emptied, and with it what the tree stands on.
        with contextlib.suppress(CommandError):
            if tree.unfinished() and not tree.pending().unmerged:
                tree.git("rerere")
        _discard(place)
        return True


class EditedTree(Model):
    """What `edit --json` prints.

    `changed` is a tree that is open and that the queue has moved on from (`why`); `kept` one
    that `--abort` does not remove, since something would be `lost`.
    """

    patch: str
    state: Literal["opened", "open", "changed", "removed", "kept"]
    path: str | None = None
    base_commit: str | None = None
    commits: tuple[TreeCommit, ...] = ()
    why: str = ""
    lost: tuple[str, ...] = ()


def open_tree(
    queue: Queue, name: str, *, at: Path | None = None, progress: Progress | None = None
) -> EditedTree:
    """Open the work tree of a patch, or find it open."""
    with held(queue, name) as place, run_folder() as scratch:
        # Whoever held the tree before may have changed the patch.
        queue = load_queue(queue.folder)
        patch = queue.patch(name)
        landed = land(queue, own_pin(queue, name), progress=progress or Silent())
        with landed.store.exclusive():
            applied = PatchStack(queue, landed, scratch).apply(name)
        tree, why, fresh = find_tree(queue, name), "", False
        if tree is None:
            if applied.why:
                raise QueueError(
                    f"{name} cannot be opened: {applied.why}",
                    hint=f"`contribbot verify {name}` shows the three sides",
                )
            state = TreeState(
                patch=name, kind="edit", base=applied.base, opened=patch.digest,
                known={patch.digest: applied.commits}, queue=str(queue.folder),
            )  # fmt: skip
            where = place if at is None else at.absolute()
            tree = _make_tree(place, where, landed.store, tip=applied.tip, state=state)
            fresh = True
        elif tree.state.kind == "replay":
            raise being_carried(tree)
        elif at is not None and at.resolve() != tree.path:
            raise UsageError(
                f"{name} is open in {tree.path} already",
                hint=f"work there, or remove it: contribbot edit --abort {name}",
            )
        else:
            why = moved_on(tree.state, applied, patch.digest)
        commits: list[TreeCommit] = []
        # What is wrong with the commits of an open tree is for refresh to say.
        with contextlib.suppress(UsageError):
            commits = tree.own()
        return EditedTree(
            patch=name,
            state="opened" if fresh else "changed" if why else "open",
            path=printable(tree.path),
            base_commit=tree.state.base,
            commits=tuple(commits),
            why=why,
        )


def moved_on(state: TreeState, applied: AppliedPatch, digest: str) -> str:
    """Say what changed in the queue since a tree was opened or taken, or nothing."""
    if applied.base != state.base:
        return f"what {state.patch} stands on (its pin, or a patch below it) has changed since"
    if digest not in state.known:
        return f"the files of {state.patch} were changed since, by something else than refresh"
    return ""


def abort(queue: Queue, name: str, *, force: bool = False) -> EditedTree:
    """Remove the work tree of a patch, unless something would be lost."""
    with held(queue, name) as place:
        if not place.exists():
            raise not_open(queue, name)
        if not force or place.is_symlink():
            # Where it is elsewhere, something else may be there by now.
            tree = WorkTree.read(place.resolve())
            if not force and (lost := _losses(queue, tree)):
                path = printable(tree.path)
                return EditedTree(patch=name, state="kept", path=path, lost=lost)
        _discard(place)
        return EditedTree(patch=name, state="removed")


def _losses(queue: Queue, tree: WorkTree) -> tuple[str, ...]:
    """Return what of a tree is nowhere else, a line each."""
    state, losses = tree.state, []
    digests = {state.opened}
    with contextlib.suppress(QueueError, UsageError):
        digests.add(queue.patch(state.patch).digest)
    kept = [commit for digest in digests for commit in state.known.get(digest, ())[-1:]]
    try:
        if waiting := tree.unfinished():
            losses.append(f"an unfinished git {waiting}")
        pending = tree.pending()
        for what, paths in (("not committed", pending.changed), ("not in git", pending.untracked)):
            losses += [f"{printable(path)} ({what})" for path in paths]
        # Also what is on other branches, or stashed.
        commits = tree.commits("HEAD", "--all", "--not", state.base, *state.replayed, *kept)
    except CommandError as error:
        # The cache was emptied, and with it what the tree stands on; or somebody took it apart.
        return (f"what git cannot tell: {error.message}",)
    return (*losses, *(f"commit {commit}" for commit in commits))
