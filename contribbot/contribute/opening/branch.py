"""A branch made through GitHub's Git Data API: blobs, trees, commits, and at the end the ref.

Blobs, trees and commits are named by their content: to make one again gives the same one, and
until the ref names them nobody sees them. The ref is the one write that shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contribbot.contribute.opening.carryover import Carried
from contribbot.errors import GitHubError, NotFoundError, OpeningError, RefusedError
from contribbot.github.objects import commit_id
from contribbot.github.protocol import GitHub, Reader
from contribbot.model.gitdata import Branch, NewCommit
from contribbot.model.patch import Patch

#: How many characters of an id people read.
_SHORT: Final = 12
#: How GitHub refuses a tree or a parent that the repository does not have.
_UNSEEN: Final = frozenset({409, 422})


@dataclass(frozen=True)
class Place:
    """Where a branch goes.

    Attributes:
        upstream: The upstream's repository, `owner/name`.
        fork: The repository that gets the branch; the upstream itself where it is one's own.
        tip: The upstream's branch that pull requests go to, with its newest commit.
        server: The page of the server, such as `https://github.com`.
        fork_id: The fork's id in GraphQL; empty: not known.
        missing: Whether there is no fork yet.
    """

    upstream: str
    fork: str
    tip: Branch
    server: str = ""
    fork_id: str = ""
    missing: bool = False

    @property
    def owner(self) -> str:
        """Whose the fork is."""
        return self.fork.partition("/")[0]


def branch_of(patch: Patch) -> str:
    """Return the name of a patch's branch."""
    return patch.spec.contribution.branch or f"contribbot/{patch.name}"


def make_commits(
    github: GitHub, place: Place, carried: Carried
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the objects of a branch in the fork.

    A fork that has not seen the upstream's newest commit is brought up to date, once.
    """
    blobs = list(carried.contents)
    contents = [carried.contents[blob] for blob in blobs]
    made = github.create_blobs(place.fork, contents) if contents else ()
    for wanted, got in zip(blobs, made, strict=True):
        _same("blob", wanted, got)
    try:
        return _commits(github, place, carried), ()
    except (NotFoundError, RefusedError) as error:
        if place.fork == place.upstream or not _unseen(error):
            raise
        # Forks share their objects with the upstream, but may learn late of the newest.
        github.sync_fork(place.fork, place.tip.name)
    try:
        note = f"brought {place.tip.name} of {place.fork} up to date with {place.upstream}"
        return _commits(github, place, carried), (note,)
    except (NotFoundError, RefusedError) as error:
        raise OpeningError(
            f"{place.fork}: it does not take commits on {place.upstream}@{place.tip.sha[:_SHORT]}:"
            f" {error.message}",
            hint=f"bring its branch {place.tip.name} up to date on its page, and run this again",
        ) from error


def _unseen(error: GitHubError) -> bool:
    """Say whether an error may mean that the repository does not have an object."""
    return not isinstance(error, RefusedError) or error.status in _UNSEEN


def _commits(github: GitHub, place: Place, carried: Carried) -> tuple[str, ...]:
    tree, parent = place.tip.tree, place.tip.sha
    found: list[str] = []
    for one in carried.commits:
        tree = github.create_tree(place.fork, tree, one.changes)
        wanted = NewCommit(message=one.message, tree=tree, parents=(parent,), author=one.author)
        made = github.create_commit(place.fork, wanted)
        if made != commit_id(wanted):
            _look_at(github, place.fork, made, wanted)
        found.append(made)
        parent = made
    return tuple(found)


def _look_at(reader: Reader, fork: str, made: str, wanted: NewCommit) -> None:
    """Accept a commit with another id only where it is the same in all that matters."""
    got = reader.commit(fork, made)
    for what, ours, theirs in (
        ("tree", wanted.tree, got.tree),
        ("parents", wanted.parents, got.parents),
        ("message", wanted.message.strip(), got.message.strip()),
        ("author", wanted.author, got.author),
    ):
        if ours != theirs:
            raise GitHubError(
                f"{fork}: GitHub made a commit with another {what} than was asked for",
                hint="report this with the patch; no branch was changed",
            )


def _same(what: str, wanted: str, got: str) -> None:
    if wanted != got:
        raise GitHubError(
            f"GitHub stored another {what} than was sent: {got[:_SHORT]} for {wanted[:_SHORT]}",
            hint="run it again; no branch was changed",
        )


def refuse_foreign(
    reader: Reader, place: Place, branch: str, head: str | None, ours: frozenset[str],
    *, lost: str = "",
) -> None:  # fmt: skip
    """Refuse to go on where a branch has a commit that is not one of ours."""
    if head is None or head in ours:
        return
    found = reader.commit(place.fork, head)
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
    if was is None:
        try:
            github.create_ref(place.fork, branch, head)
        except RefusedError as error:
            refuse_foreign(github, place, branch, github.ref(place.fork, branch), ours | {head})
            above, slash, _ = branch.partition("/")
            way = f"a branch {above} there leaves no room for it, or " if slash else ""
            raise OpeningError(
                f"{place.fork}: the branch {branch} cannot be made: {error.message}",
                hint=f"{way}a rule of that repository forbids it: name another in"
                " [contribution] of patch.toml",
            ) from error
        return
    if place.fork_id and was != head:
        github.move_ref(place.fork_id, branch, old=was, new=head)
    # See whether it moved. Else REST must do it, and that does not ask what a branch had:
    # this look is as late as can be.
    now = github.ref(place.fork, branch)
    refuse_foreign(github, place, branch, now, ours | {head})
    if now is None:
        github.create_ref(place.fork, branch, head)
    elif now != head:
        github.update_ref(place.fork, branch, head, force=True)
