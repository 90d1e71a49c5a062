"""A branch made through GitHub's Git Data API: blobs, trees, commits, and at the end the ref.

Blobs, trees and commits are named by their content: to make one again gives the same one, and
until the ref names them nobody sees them. The ref is the one write that shows.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.opening.base import Tip
from contribbot.contribute.opening.carryover import Carried, Made
from contribbot.errors import GitHubError, NotFoundError, OpeningError, RefusedError
from contribbot.github.git_data import head_of
from contribbot.github.git_objects import Author, commit_id
from contribbot.github.refusals import WORKFLOW_HINT
from contribbot.model.patch import Patch

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub

#: How many characters of an id people read.
_SHORT: Final = 12


@dataclass(frozen=True)
class Place:
    """Where a branch goes."""

    #: The upstream's repository, `owner/name`.
    upstream: str
    #: The repository that gets the branch; the upstream itself where it is one's own.
    fork: str
    #: The upstream's branch that pull requests go to, with its newest commit.
    tip: Tip
    #: The page of the server, such as `https://github.com`.
    server: str = ""
    #: The fork's id in GraphQL; empty: not known.
    fork_id: str = ""
    #: Whether there is no fork yet.
    missing: bool = False
    #: Commits of the upstream's branch that the fork's lacks.
    behind: int = 0
    #: Commits of the fork's branch that the upstream's lacks.
    own: int = 0

    @property
    def owner(self) -> str:
        """Whose the fork is."""
        return self.fork.partition("/")[0]


def branch_of(patch: Patch) -> str:
    """Return the name of a patch's branch."""
    return patch.spec.contribution.branch or f"contribbot/{patch.name}"


def sync_fork(github: GitHub, place: Place) -> tuple[str, ...]:
    """Bring a fork that lags behind up to date, unless that would merge into its owner's work.

    GitHub refuses a branch of a fork whose workflows are older than the branch's.
    """
    if not place.behind or place.own:
        return ()
    main = f"{place.tip.name} of {place.fork}"
    try:
        github.repository(place.fork).merge_upstream(place.tip.name)
    except RefusedError as error:
        # A rule may forbid it; whether the branch needs it is for GitHub to say.
        return (f"{main} could not be brought up to date: {error.message}",)
    return (f"brought {main} up to date with {place.upstream}",)


def make_commits(github: GitHub, place: Place, carried: Carried) -> tuple[str, ...]:
    """Make the objects of a branch in the fork."""
    fork = github.repository(place.fork)
    for blob, content in carried.contents.items():
        encoded = base64.b64encode(content).decode()
        _same("blob", blob, fork.create_git_blob(encoded, "base64").sha)
    tree, parent = place.tip.tree, place.tip.sha
    found: list[str] = []
    try:
        for made in carried.commits:
            tree, parent = _commit(github, fork, made, tree, parent)
            found.append(parent)
    except (NotFoundError, RefusedError) as error:
        raise _unready(place, error) from error
    return tuple(found)


def _commit(
    github: GitHub, fork: Repository, made: Made, base: str, parent: str
) -> tuple[str, str]:
    """Make a tree and a commit, and return their ids."""
    from github.GitCommit import GitCommit  # noqa: PLC0415  start-up time
    from github.GitTree import GitTree  # noqa: PLC0415  start-up time
    from github.InputGitAuthor import InputGitAuthor  # noqa: PLC0415  start-up time
    from github.InputGitTreeElement import InputGitTreeElement  # noqa: PLC0415  start-up time

    who = made.author
    # With its own offset: it is part of the commit.
    author = InputGitAuthor(who.name, who.email, who.date.isoformat(timespec="seconds"))
    elements = [InputGitTreeElement(one.path, one.mode, one.kind, sha=one.sha or None)
                for one in made.changes]  # fmt: skip
    requester = github.requester
    tree = fork.create_git_tree(elements, GitTree(requester, {}, {"sha": base}, completed=True))
    parents = [GitCommit(requester, {}, {"sha": parent}, completed=True)]
    commit = fork.create_git_commit(made.message, tree, parents, author, author)
    if commit.sha != commit_id(made.message, tree.sha, [parent], who):
        _look_at(fork, commit.sha, made, tree.sha, parent)
    return tree.sha, commit.sha


def _look_at(fork: Repository, sha: str, made: Made, tree: str, parent: str) -> None:
    """Accept a commit with another id only where it is the same in all that matters."""
    got = fork.get_git_commit(sha)
    who = Author(got.author.name, got.author.email, got.author.date)
    for what, ours, theirs in (
        ("tree", tree, got.tree.sha),
        ("parents", [parent], [one.sha for one in got.parents]),
        ("message", made.message.strip(), got.message.strip()),
        ("author", made.author, who),
    ):
        if ours != theirs:
            raise GitHubError(
                f"{fork.full_name}: GitHub made a commit with another {what} than was asked for",
                hint="report this with the patch; no branch was changed",
            )


def _same(what: str, wanted: str, got: str) -> None:
    if wanted != got:
        raise GitHubError(
            f"GitHub stored another {what} than was sent: {got[:_SHORT]} for {wanted[:_SHORT]}",
            hint="run it again; no branch was changed",
        )


def _unready(place: Place, error: GitHubError) -> OpeningError:
    """Return the error for a fork that does not take what stands on the upstream's newest."""
    tip = f"{place.upstream}@{place.tip.sha[:_SHORT]}"
    main = f"{place.tip.name} of {place.fork}"
    page = f"{place.server}/{place.fork}"
    if place.own:
        mine = f"{place.own} commit{'s' if place.own > 1 else ''} of your own"
        said = (
            f"{main} has {mine} and is {place.behind} behind, and contribbot merges nothing into it"
        )
        then = f"move them to another branch and sync the fork on {page}, and run this again; or "
    else:
        said, then = f"GitHub takes no branch on {tip} there", f"sync the fork on {page}; or "
    return OpeningError(f"{place.fork}: {said}: {error.message}", hint=f"{then}{WORKFLOW_HINT}")


def refuse_foreign(
    github: GitHub, place: Place, branch: str, head: str | None, ours: frozenset[str],
    *, lost: str = "",
) -> None:  # fmt: skip
    """Refuse to go on where a branch has a commit that is not one of ours."""
    if head is None or head in ours:
        return
    found = github.repository(place.fork).get_git_commit(head)
    subject = found.message.partition("\n")[0]
    what = f"{head[:_SHORT]} {subject!a} by {found.author.name} <{found.author.email}>"
    if lost:
        raise OpeningError(
            f"{place.fork}: the branch {branch} has a commit that nobody noted: {what}; there is"
            f" nothing in {lost} of such a branch",
            hint=f"if contribbot made it, bring {lost} back from your version control; else"
            " delete the branch there (which closes a pull request from it), or name another in"
            " [contribution] of patch.toml; nothing was overwritten",
        )
    raise OpeningError(
        f"{place.fork}: the branch {branch} has a commit that contribbot did not make: {what}",
        hint="take its change into the patch (contribbot edit) and remove the commit from the"
        " branch, or name another branch in [contribution] of patch.toml; nothing was overwritten",
    )


def put_ref(
    github: GitHub, place: Place, branch: str, head: str, *, was: str | None, ours: frozenset[str]
) -> None:
    """Give a branch its commit, unless it has one by then that is not ours."""
    fork = github.repository(place.fork)
    if was is None:
        _make_ref(github, place, branch, head, ours)
        return
    if place.fork_id and was != head:
        github.move_ref(place.fork_id, branch, old=was, new=head)
    # See whether it moved. Else REST must do it, and that does not ask what a branch had:
    # this look is as late as can be.
    now = head_of(fork, branch)
    refuse_foreign(github, place, branch, now, ours | {head})
    if now is None:
        _make_ref(github, place, branch, head, ours)
    elif now != head:
        github.ref(place.fork, branch).edit(head, force=True)


def _make_ref(github: GitHub, place: Place, branch: str, head: str, ours: frozenset[str]) -> None:
    fork = github.repository(place.fork)
    try:
        fork.create_git_ref(f"refs/heads/{branch}", head)
    except NotFoundError as error:
        # The objects are there: it is the branch that GitHub hides behind this.
        raise _unready(place, error) from error
    except RefusedError as error:
        now = head_of(fork, branch)
        if now == head:
            return  # made before, in an attempt whose answer was lost
        refuse_foreign(github, place, branch, now, ours | {head})
        above, slash, _ = branch.partition("/")
        way = f"a branch {above} there leaves no room for it, or " if slash else ""
        raise OpeningError(
            f"{place.fork}: the branch {branch} cannot be made: {error.message}",
            hint=f"{way}a rule of that repository forbids it: name another in"
            " [contribution] of patch.toml",
        ) from error
