"""What git says of two commits: ancestry, differences, and merges, on a bare repository."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.github.gitdata import BareRepository, Person


@dataclass(frozen=True)
class FileChange:
    """A file that differs; `patch` has the hunks alone and is None for binary files."""

    path: str
    previous: str | None
    status: str
    additions: int
    deletions: int
    sha: str
    patch: str | None


_STATUS = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "C": "copied",
           "T": "changed"}  # fmt: skip


def merge_base(git: BareRepository, one: str, other: str) -> str | None:
    """Return where two commits part, or None where they share no history."""
    done = git.run("merge-base", one, other)
    return done.stdout.decode().split("\n")[0] if done.returncode == 0 else None


def is_ancestor(git: BareRepository, old: str, new: str) -> bool:
    """Say whether going from one commit to the other is a fast forward."""
    return git.run("merge-base", "--is-ancestor", old, new).returncode == 0


def commits_between(git: BareRepository, base: str, head: str) -> list[str]:
    """Return the commits that head has and base has not, oldest first."""
    return git.git("rev-list", "--reverse", "--topo-order", head, f"^{base}").decode().split()


def diff(git: BareRepository, old: str, new: str) -> bytes:
    """Return the text of the difference, as GitHub's `diff` media type has it."""
    return git.git("diff", "--no-color", "--no-ext-diff", "-M", "--src-prefix=a/",
                   "--dst-prefix=b/", old, new)  # fmt: skip


def series(git: BareRepository, base: str, head: str) -> bytes:
    """Return the commits that head has and base has not, as the media type `patch` has them."""
    return git.git("format-patch", "--stdout", "--no-color", "--no-ext-diff", "--src-prefix=a/",
                   "--dst-prefix=b/", f"{base}..{head}")  # fmt: skip


def changes(git: BareRepository, old: str, new: str) -> list[FileChange]:
    """Return the files that differ between two commits or trees, in git's order."""
    numbers = git.git("diff", "-M", "-z", "--numstat", old, new).decode().split("\0")
    rows = git.git("diff", "-M", "-z", "--raw", "--no-abbrev", old, new).decode().split("\0")
    texts = re.split(r"(?m)^diff --git ", diff(git, old, new).decode(errors="replace"))[1:]
    found: list[FileChange] = []
    while rows and rows[0]:
        _, _, old_sha, new_sha, letter = rows.pop(0).split(" ")
        first = rows.pop(0)
        renamed = letter[0] in "RC"
        path = rows.pop(0) if renamed else first
        added, deleted, _ = numbers.pop(0).split("\t")
        del numbers[: 2 if renamed else 0]
        hunks = re.search(r"(?ms)^@@ .*", texts[len(found)])
        found.append(
            FileChange(
                path=path,
                previous=first if renamed else None,
                status=_STATUS[letter[0]],
                additions=0 if added == "-" else int(added),
                deletions=0 if deleted == "-" else int(deleted),
                sha=old_sha if letter[0] == "D" else new_sha,
                patch=hunks.group().rstrip("\n") if hunks else None,
            )
        )
    return found


def merge_tree(git: BareRepository, ours: str, theirs: str) -> str | None:
    """Return the tree of a merge, or None where it conflicts."""
    done = git.run("merge-tree", "--write-tree", ours, theirs)
    return done.stdout.decode().split("\n")[0].split("\0")[0] if done.returncode == 0 else None


def replay(git: BareRepository, commits: list[str], onto: str, committer: Person) -> str | None:
    """Put commits onto another one, as a rebase merge does; None where one conflicts."""
    tip = onto
    for sha in commits:
        commit = git.commit(sha)
        # With this parent, the merge base is what the commit was made on.
        stand_in = git.add_commit(
            git.commit(tip).tree, commit.parents[:1], committer, committer, "stand-in"
        )
        tree = merge_tree(git, stand_in, sha)
        if tree is None:
            return None
        tip = git.add_commit(tree, [tip], commit.author, committer, raw_message(git, sha))
    return tip


def raw_message(git: BareRepository, sha: str) -> str:
    """Return the message with everything at its end."""
    return git.read("commit", sha).partition(b"\n\n")[2].decode(errors="replace")
