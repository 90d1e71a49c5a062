"""Bodies of requests that the client sends and the rehearsal shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from contribbot.model.gitdata import NewCommit, Person, TreeChange

_TYPES = {"040000": "tree", "160000": "commit"}
#: Moves a branch that has the commit that is named; REST cannot ask for that.
MOVE: Final = """
mutation($repository: ID!, $name: GitRefname!, $old: GitObjectID!, $new: GitObjectID!) {
  updateRefs(input: {
    repositoryId: $repository
    refUpdates: [{name: $name, beforeOid: $old, afterOid: $new, force: true}]
  }) { clientMutationId }
}
"""
READY: Final = """
mutation($pull: ID!) {
  markPullRequestReadyForReview(input: {pullRequestId: $pull}) { pullRequest { isDraft } }
}
"""


def move_variables(repository_id: str, branch: str, *, old: str, new: str) -> dict[str, JsonValue]:
    """Return the variables of `MOVE`."""
    return {"repository": repository_id, "name": f"refs/heads/{branch}", "old": old, "new": new}


def tree_body(base_tree: str | None, changes: Sequence[TreeChange]) -> dict[str, JsonValue]:
    """Return the body that makes a tree."""
    entries: list[JsonValue] = [
        {
            "path": one.path,
            "mode": one.mode,
            "type": _TYPES.get(one.mode, "blob"),
            "sha": one.sha,
        }
        for one in changes
    ]
    return {"tree": entries, **({"base_tree": base_tree} if base_tree is not None else {})}


def commit_body(commit: NewCommit) -> dict[str, JsonValue]:
    """Return the body that makes a commit."""
    return {
        "message": commit.message,
        "tree": commit.tree,
        "parents": list(commit.parents),
        "author": _person(commit.author),
        "committer": _person(commit.committer or commit.author),
    }


def _person(person: Person) -> dict[str, JsonValue]:
    return {
        "name": person.name,
        "email": person.email,
        # With its own offset: it is part of the commit.
        "date": person.date.isoformat(timespec="seconds"),
    }
