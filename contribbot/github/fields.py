"""Attributes of PyGithub that may be missing, although their types do not say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from github.GithubObject import CompletableGithubObject
    from github.Issue import Issue
    from github.NamedUser import NamedUser
    from github.Organization import Organization
    from github.Repository import Repository

    K = TypeVar("K", bound=CompletableGithubObject)


def login_of(user: NamedUser | Organization | None) -> str | None:
    """Return the login of an account; None for a deleted account."""
    return None if user is None else user.login


def name_of(repository: Repository | None) -> str | None:
    """Return `owner/name` of a repository; None for a deleted repository."""
    return None if repository is None else repository.full_name


def place_of(issue: Issue) -> str:
    """Return `owner/name` of the repository that an issue or pull request is in."""
    return "/".join(issue.html_url.split("/")[-4:-2])


def is_pull(issue: Issue) -> bool:
    """Return whether an issue is a pull request."""
    return issue.raw_data.get("pull_request") is not None


def may_push(repository: Repository) -> bool:
    """Return whether the account may write to a repository, as far as GitHub says."""
    return bool((repository.raw_data.get("permissions") or {}).get("push"))


def whole(objects: Iterable[K]) -> tuple[K, ...]:
    """Return the objects of a list as complete, so that PyGithub asks for none again."""
    items = tuple(objects)
    for item in items:
        item._set_complete()  # noqa: SLF001  there is no public way to say it
    return items
