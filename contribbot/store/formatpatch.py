"""Writing commits as `git format-patch` files, the same bytes wherever it is done."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot.errors import QueueError
from contribbot.model.patch import PatchFile
from contribbot.store.objects import read_objects
from contribbot.store.repository import Store

#: Whatever a repository's own configuration says. The user's is never read.
_OPTIONS: Final = (
    "--zero-commit", "--no-signature", "--abbrev=12", "--binary", "-M", "-U3",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--diff-algorithm=myers",
    "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none",
    "--no-attach", "--no-thread", "--no-cover-letter", "--no-notes", "--no-base", "--no-to",
    "--no-cc", "--no-add-header", "--no-from", "--no-force-in-body-from", "--indent-heuristic",
    "--subject-prefix=PATCH", "--suffix=.patch", "--filename-max-length=64",
    "--quiet", "-O/dev/null",
)  # fmt: skip
_SETTINGS: Final = (
    "-c", "format.signOff=false", "-c", "format.encodeEmailHeaders=true",
    "-c", "i18n.logOutputEncoding=UTF-8", "-c", "diff.noprefix=false",
    "-c", "diff.interHunkContext=0", "-c", "diff.suppressBlankEmpty=false",
    "-c", "diff.mnemonicPrefix=false", "-c", "core.quotePath=true", "-c", "diff.renameLimit=1000",
    "-c", "log.showSignature=false", "-c", "format.mboxrd=false", "-c", "core.abbrev=12",
)  # fmt: skip
_SUBMODULE: Final = "160000"


def format_commits(store: Store, base: str, tip: str) -> tuple[PatchFile, ...]:
    """Write each commit of `base..tip` as a file."""
    said = store.git("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}", "--")
    rows = [row.split(" ") for row in said.stdout.decode().splitlines()]
    commits = [row[0] for row in rows]
    for commit, *parents in rows:
        if len(parents) != 1:
            kind = "is a merge" if parents else "has no parent"
            raise QueueError(
                f"the commit {_subject(store, commit)!a} {kind}: no patch file can hold it",
                hint="make it commits in a row, with `git rebase`",
            )
    _look_into(store, commits)
    return format_chains(store, [commits])[0]


def format_chains(store: Store, chains: Sequence[Sequence[str]]) -> list[tuple[PatchFile, ...]]:
    """Write many runs of commits, each as `format_commits` writes one, with few processes."""
    alone = list(dict.fromkeys(chain[0] for chain in chains if len(chain) == 1))
    files: list[PatchFile] = []
    if len(alone) == 1:
        # By itself, format-patch takes a commit for the one below the first.
        files = _write(store, "-1", alone[0])
    elif alone:
        # It turns the order round: it expects the newest first.
        files = _write(store, "--no-walk=unsorted", "--no-numbered", *reversed(alone))
    single = dict(zip(alone, files, strict=True))
    found: list[tuple[PatchFile, ...]] = []
    for chain in chains:
        if len(chain) == 1:
            _, _, name = single[chain[0]].name.partition("-")
            found.append((PatchFile(f"0001-{name}", single[chain[0]].content),))
        elif chain:
            found.append(tuple(_write(store, "--numbered", f"{chain[0]}^..{chain[-1]}")))
        else:
            found.append(())
    return found


def _write(store: Store, *what: str) -> list[PatchFile]:
    """Let git write files, and return them in its order."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        store.git(*_SETTINGS, "format-patch", *_OPTIONS, "-o", name, *what, "--", timeout=600.0)
        written = [PatchFile(path.name, path.read_bytes()) for path in Path(name).iterdir()]
    return sorted(written, key=lambda file: int(file.name.partition("-")[0]))


def _look_into(store: Store, commits: Sequence[str]) -> None:
    """Refuse commits that cannot be files of a patch."""
    changed: dict[str, list[tuple[str, str]]] = {}
    for commit, modes, path in raw_changes(store, commits):
        changed.setdefault(commit, []).append((modes, path))
    for commit in commits:
        if commit not in changed:
            raise QueueError(
                f"the commit {_subject(store, commit)!a} changes nothing",
                hint="drop it, with `git rebase -i`",
            )
        for modes, path in changed[commit]:
            if _SUBMODULE in modes:
                raise QueueError(
                    f"the commit {_subject(store, commit)!a} changes the submodule {path!a}:"
                    " a patch cannot",
                    hint="take that out of the commit; patch the submodule's own upstream",
                )


def raw_changes(store: Store, commits: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return what commits change, with one process."""
    said = store.git(
        "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-abbrev", "--no-renames",
        stdin="".join(f"{commit}\n" for commit in commits).encode(),
    ).stdout  # fmt: skip
    found: list[tuple[str, str, str]] = []
    commit = ""
    fields = iter(said.decode("utf-8", "surrogateescape").split("\0"))
    for field in fields:
        if field.startswith(":"):
            found.append((commit, field[1:], next(fields)))
        elif field:
            commit = field
    return found


def _subject(store: Store, commit: str) -> str:
    (found,) = read_objects(store, [commit])
    _, _, message = (found.content if found else b"").partition(b"\n\n")
    return message.partition(b"\n")[0].decode("utf-8", "replace")


def keep_unchanged(
    old: Sequence[PatchFile],
    old_commits: Sequence[str],
    new: Sequence[PatchFile],
    new_commits: Sequence[str],
) -> tuple[PatchFile, ...]:
    """Keep the bytes of files whose commits are unchanged, whatever program wrote them."""
    kept = [
        old[at] if at < min(len(old), len(old_commits)) and old_commits[at] == commit else file
        for at, (file, commit) in enumerate(zip(new, new_commits, strict=True))
    ]
    names = [file.name for file in kept]
    if names == sorted(set(names)):
        return tuple(kept)
    return tuple(PatchFile(fresh.name, file.content) for fresh, file in zip(new, kept, strict=True))
