"""Reading a range of commits of somebody's own clone, whose settings have no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.store.formatpatch import format_commits
from contribbot.store.repository import Store, git_environment, open_store
from contribbot.store.series import apply_series

#: Length of the object ids that stores have.
_SHA1: Final = 40


def read_range(
    clone: Path, wanted: str, *, pin: Pin | None, scratch: Path
) -> tuple[PatchFile, ...]:
    """Return commits of a clone as format-patch files.

    They are read through an empty repository that borrows the clone's objects: what the
    clone, its owner or the machine has configured is not even looked at.
    """
    store = _borrowing(clone, scratch)
    base, tip = _ends(store, clone, wanted, pin)
    try:
        files = format_commits(store, base, tip)
        _check(store, base, tip, files, scratch)
    except CommandError as error:
        raise UsageError(
            f"{clone}: git cannot read {wanted}: {error.stderr.strip().splitlines()[-1]}",
            hint=f"if the clone is partial, `git -C {clone} log -p {wanted}` fetches the rest",
        ) from error
    return files


def is_repository(folder: Path) -> bool:
    """Say whether a folder is a git repository, or the top of a work tree."""
    return (folder / ".git").exists() or (folder / "objects").is_dir()


def _ask(clone: Path, *args: str) -> str:
    """Ask the clone's git; nothing that it answers depends on settings. Empty where it says no."""
    done = process.run(
        # Another person's clone may be read: nothing of it is run.
        ["git", "-c", "safe.directory=*", "-C", clone, "rev-parse", *args],
        env=git_environment(),
        accept=(0, 1, 128),
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else ""


def _borrowing(clone: Path, scratch: Path) -> Store:
    """Return a repository of our own that reads the clone's objects."""
    objects = _ask(clone, "--path-format=absolute", "--git-path", "objects")
    if not is_repository(clone) or not objects:
        raise UsageError(
            f"{clone}: not a git repository", hint="name a clone: contribbot import NAME REPO A..B"
        )
    store = open_store(scratch, "clone")
    (store.path / "objects" / "info" / "alternates").write_bytes(
        objects.encode("utf-8", "surrogateescape") + b"\n"
    )
    shallow = Path(_ask(clone, "--path-format=absolute", "--git-path", "shallow"))
    if shallow.is_file():
        (store.path / "shallow").write_bytes(shallow.read_bytes())
    return store


def _ends(store: Store, clone: Path, wanted: str, pin: Pin | None) -> tuple[str, str]:
    """Return the commits that a range lies between."""
    if "..." in wanted or wanted.startswith("-"):
        raise UsageError(f"{wanted}: not a range", hint="write A..B, or the name of a branch")
    lower, dots, upper = wanted.partition("..")
    tip = _commit(clone, (upper or "HEAD") if dots else wanted)
    if dots:
        below = _commit(clone, lower or "HEAD")
    else:
        named = [pin.commit, f"refs/tags/{pin.tag}"] if pin is not None else []
        ids = [_ask(clone, "--verify", "--quiet", f"{one}^{{commit}}") for one in named if one]
        below = next((one for one in ids if one), "")
        if not below:
            raise UsageError(
                f"{clone}: where does {wanted} start? It has no tag "
                f"{pin.tag if pin is not None else 'of a pin'}",
                hint=f"write the range: A..{wanted}",
            )
    said = store.git("merge-base", below, tip, accept=(0, 1, 128)).stdout.decode().split()
    if not said:
        raise UsageError(f"{clone}: {wanted}: the two ends have no history in common")
    if said[0] == tip:
        raise UsageError(f"{clone}: {wanted}: no commits in it", hint="is it the right way round?")
    return said[0], tip


def _commit(clone: Path, name: str) -> str:
    found = _ask(clone, "--verify", "--quiet", f"{name}^{{commit}}")
    if not found:
        raise UsageError(f"{clone}: no commit {name}", hint=f"see git -C {clone} log --oneline")
    if len(found) != _SHA1:
        raise UsageError(f"{clone}: its objects are not named by SHA-1, as those of a store are")
    return found


def _check(store: Store, base: str, tip: str, files: tuple[PatchFile, ...], scratch: Path) -> None:
    """See that the files give the commits again: that no message was cut, and no change lost."""
    made = apply_series(store, base, files, pin="where the range starts", scratch=scratch)
    raw = store.git("log", "-z", "--reverse", "--format=%T %B", f"{base}..{tip}").stdout
    wanted = [one.split(b" ", 1) for one in raw.rstrip(b"\0").split(b"\0")]
    if made.conflicts or len(made.applied) != len(wanted):
        reason = made.conflicts[0].headline if made.conflicts else "commits are missing"
        raise QueueError(f"its patch files do not give the commits again: {reason}")
    for one, (tree, message) in zip(made.applied, wanted, strict=True):
        if tree.decode() != one.tree:
            raise QueueError(f"{one.file}: does not give the tree of its commit again")
        if one.message.split() != _text(message).split():
            subject = _text(message).partition("\n")[0]
            if one.subject != subject and subject.endswith(one.subject):
                raise QueueError(
                    f"commit {subject!r}: of its first line a patch file keeps {one.subject!r} "
                    "only: git takes the rest for a mark of the mail",
                    hint="reword it (git rebase -i)",
                )
            raise QueueError(
                f"commit {subject!r}: its message cannot stand in a patch file: git takes a line "
                "such as `---`, `diff ` or `From:` for the end of it, or for a header",
                hint="reword it (git rebase -i)",
            )


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        return message.decode("latin-1")  # as git reads a patch that does not say
