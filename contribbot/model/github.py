"""What GitHub says, as far as contribbot reads it.

The names are those of GitHub's REST API (https://docs.github.com/en/rest), versions
2022-11-28 and 2026-03-10. GitHub adds keys without notice, so what is not named here is
passed over; what is named and missing or of another type makes the answer invalid. All text
is as GitHub sent it: whoever shows it must clean it (`report.text.clean`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, StringConstraints

from contribbot.model.base import Line, Model, ObjectId

T = TypeVar("T")

#: `owner/name` of a repository.
RepositoryName = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200)]


@dataclass(frozen=True)
class Fetched(Generic[T]):
    """An answer that may be one that was seen before.

    Attributes:
        value: What GitHub says.
        changed: Whether it differs from what was fetched last time; true the first time.
            Where it is not, the request cost nothing of the account's allowance (304).
    """

    value: T
    changed: bool


class Said(Model):
    """What GitHub said: keys that are not named are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, populate_by_name=True)


def _login(value: object) -> object:
    """Return the name of an account; accounts that are gone are null."""
    return value.get("login") if isinstance(value, dict) else value


def _text(value: object) -> object:
    """Return no text for a body that was never written, which GitHub gives as null."""
    return "" if value is None else value


def _names(value: object) -> object:
    """Return the names of labels."""
    if not isinstance(value, list):
        return value
    return tuple(one.get("name") if isinstance(one, dict) else one for one in value)


#: The login of an account; none when the account is gone.
Login = Annotated[str | None, BeforeValidator(_login)]
Text = Annotated[str, BeforeValidator(_text)]
Labels = Annotated[tuple[str, ...], BeforeValidator(_names), Field(strict=False)]
Time = Annotated[datetime, Field(strict=False)]


class Account(Said):
    """Somebody with a login.

    Attributes:
        login: The login.
        name: The name that the account shows, where it has one.
    """

    login: Line
    name: str | None = None


class Permissions(Said):
    """What the token's account may do in a repository.

    Attributes:
        push: Write branches.
        pull: Read.
    """

    push: bool = False
    pull: bool = True


class Origin(Said):
    """The repository that another one was forked from.

    Attributes:
        full_name: `owner/name`.
    """

    full_name: RepositoryName


class Repository(Said):
    """A repository.

    Attributes:
        full_name: `owner/name`; differs from what was asked for when it was renamed.
        default_branch: The branch that pull requests go to by default.
        html_url: Its page.
        fork: Whether it is a fork.
        archived: Whether it is read-only.
        disabled: Whether GitHub switched it off.
        private: Whether only some may see it.
        allow_forking: Whether it may be forked, where said.
        parent: What it was forked from.
        source: The first repository of its network.
        permissions: What the token's account may do there, where said.
        node_id: Its id in GraphQL.
    """

    full_name: RepositoryName
    default_branch: Line
    html_url: str
    fork: bool
    archived: bool = False
    disabled: bool = False
    private: bool = False
    allow_forking: bool | None = None
    parent: Origin | None = None
    source: Origin | None = None
    permissions: Permissions | None = None
    node_id: str = ""

    def forked_from(self, upstream: str) -> bool:
        """Return whether it is a fork in the network of a repository (case does not matter)."""
        return any(
            one is not None and one.full_name.lower() == upstream.lower()
            for one in (self.parent, self.source)
        )


class Side(Said):
    """One side of a pull request.

    Attributes:
        ref: The branch.
        sha: Its commit.
        repository: Where it lies; none when that repository is gone.
    """

    ref: str
    sha: ObjectId
    repository: Annotated[
        str | None,
        BeforeValidator(lambda value: value.get("full_name") if isinstance(value, dict) else value),
        Field(validation_alias=AliasChoices("repo", "repository")),
    ]


class PullRequest(Said):
    """A pull request.

    Attributes:
        number: Its number.
        state: `open` or `closed`; a merged one is closed.
        title: Title.
        body: Text.
        draft: Whether it is a draft.
        head: What it brings.
        base: What it goes to.
        user: Who opened it.
        html_url: Its page.
        node_id: Its id in GraphQL.
        created_at: When it was opened.
        updated_at: When anything happened to it.
        closed_at: When it was closed.
        merged_at: When GitHub merged it. Projects whose bot lands commits by itself
            (PyTorch's) close theirs without it.
        merge_commit_sha: Of a merged one, what merged it; of an open one, a trial merge.
        mergeable: Whether it could be merged; none while GitHub finds out, and in lists.
        mergeable_state: Why or why not, in GitHub's word; empty in lists.
        labels: Names of its labels.
    """

    number: int
    state: Literal["open", "closed"]
    title: str
    body: Text = ""
    draft: bool = False
    head: Side
    base: Side
    user: Login = None
    html_url: str
    node_id: str = ""
    created_at: Time
    updated_at: Time
    closed_at: Time | None = None
    merged_at: Time | None = None
    merge_commit_sha: ObjectId | None = None
    mergeable: bool | None = None
    mergeable_state: str = ""
    labels: Labels = ()
