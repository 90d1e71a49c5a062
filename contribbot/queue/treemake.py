"""Making, finding and removing disposable work trees. A patch has one at most.

Their configuration answers every setting of the person's own that would change what
is committed (line ends, hooks, signatures, encodings, …), so that plain git in such a
tree does what contribbot means; contribbot itself reads it with no other configuration.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import UsageError
from contribbot.locks import lock
from contribbot.queue.load import Queue, no_such_patch
from contribbot.queue.tree import BASE_REF, State, Tree
from contribbot.store.repository import Store, git_environment
from contribbot.workspace import cache_folder

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


def not_open(queue: Queue, name: str) -> UsageError:
    """Return the error for a patch that has no open work tree."""
    if name not in queue.specs:
        return no_such_patch(name, queue.specs)
    return UsageError(f"{name} is not open", hint=f"open it with `contribbot edit {name}`")


def being_carried(tree: Tree) -> UsageError:
    """Return the error for a tree that holds a patch on its way to another base."""
    return UsageError(
        f"{tree.state.patch} is being carried to another base, in {tree.path}",
        hint="finish that with `contribbot rebase --continue`, or give it up with `contribbot "
        f"rebase --abort`; where no move is underway: contribbot edit --abort {tree.state.patch}",
    )
