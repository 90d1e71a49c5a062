"""Objects of git, as GitHub's Git Data API gives and takes them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AliasPath, BeforeValidator, Field

from contribbot.model.base import Line, Model, ObjectId
from contribbot.model.github import Said, Time

#: How git writes what an entry of a tree is: file, program, link, folder, submodule.
Mode = Literal["100644", "100755", "120000", "040000", "160000"]

_TREE: Final = "040000"


def _ids(value: object) -> object:
    """Return the ids of commits."""
    if not isinstance(value, list):
        return value
    return tuple(one.get("sha") if isinstance(one, dict) else one for one in value)


class Branch(Said):
    """The head of a branch.

    Attributes:
        name: The branch.
        sha: Its commit.
        tree: The tree of that commit.
    """

    name: Line
    sha: Annotated[ObjectId, Field(validation_alias=AliasPath("commit", "sha"))]
    tree: Annotated[ObjectId, Field(validation_alias=AliasPath("commit", "commit", "tree", "sha"))]


class TreeEntry(Said):
    """What lies at a path of a tree.

    Attributes:
        path: The path from the root of the repository.
        mode: What it is, as git writes it.
        sha: Its object.
        size: Bytes of a file, where said.
    """

    path: str
    mode: Mode
    sha: ObjectId
    size: int | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.mode == _TREE


class TreeChange(Model):
    """What a new tree has at a path, other than its base.

    Attributes:
        path: The path from the root.
        mode: What it is.
        sha: Its blob; none removes the path.
    """

    path: str
    mode: Mode = "100644"
    sha: ObjectId | None = None


class Person(Said):
    """Who wrote or made a commit, and when.

    Attributes:
        name: Name.
        email: Address.
        date: When, with its offset from UTC.
    """

    name: str
    email: str
    date: Time


class Commit(Said):
    """A commit of git.

    Attributes:
        sha: Its id.
        tree: Its tree.
        parents: The commits that it follows.
        message: Its message; GitHub leaves out the line ends behind it.
        author: Who wrote it.
        committer: Who made it.
    """

    sha: ObjectId
    tree: Annotated[ObjectId, Field(validation_alias=AliasPath("tree", "sha"))]
    parents: Annotated[tuple[ObjectId, ...], BeforeValidator(_ids)]
    message: str
    author: Person
    committer: Person


class NewCommit(Model):
    """A commit to be made.

    Attributes:
        message: The whole message, as git stores it.
        tree: Its tree.
        parents: The commits that it follows.
        author: Who wrote it.
        committer: Who makes it; none: the author.
    """

    message: str
    tree: ObjectId
    parents: tuple[ObjectId, ...]
    author: Person
    committer: Person | None = None


class Comparison(Said):
    """How a commit stands to a base.

    Attributes:
        status: `identical`, `behind` (the base has it), `ahead` or `diverged`.
        ahead_by: Commits that it has and the base lacks.
        behind_by: Commits that the base has and it lacks.
        merge_base: The last commit that both have.
    """

    status: Literal["identical", "behind", "ahead", "diverged"]
    ahead_by: int
    behind_by: int
    merge_base: Annotated[ObjectId, Field(validation_alias=AliasPath("merge_base_commit", "sha"))]

    @property
    def reachable(self) -> bool:
        """Whether the base has the commit: the meaning of "merged"."""
        return self.status in {"identical", "behind"}
