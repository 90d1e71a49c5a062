"""Rules about whether the patch is needed still: nobody shall stand for what is there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contribbot.contribute.following.landing import Fate, Landing, landing
from contribbot.contribute.gate.case import Case, Finding, NotAskedError, failed, passed, person
from contribbot.contribute.opening.branch import branch_of
from contribbot.contribute.state import Contribution, state
from contribbot.errors import NotFoundError
from contribbot.lifecycle.status import due
from contribbot.queue import history
from contribbot.queue.stack import own_pin

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_IN: Final = frozenset({Fate.MERGED, Fate.LANDED})


def expiry(case: Case) -> Finding:
    """No condition has come of which the patch says that it makes it unnecessary."""
    conditions, pin = case.patch.spec.expires_when, own_pin(case.queue, case.patch.name)
    if not conditions:
        return passed("no `expires_when` is stated")
    then = f"contribbot retire {case.patch.name} --why …; or correct `expires_when` in patch.toml"
    told: list[str] = []
    unsure = False
    # What GitHub is asked comes last: it need not be, where another condition has come.
    for one in sorted(conditions, key=lambda one: one.pull_request is not None):
        if one.pull_request is not None:
            come, said = _is_merged(case, one.pull_request)
        else:
            found = due(one, pin, frozenset(), releases=case.patch.upstream.release)
            # What is installed here says little of what the upstream's users have.
            come = None if one.dependency is not None else found.come
            said = f"{found.condition}: {found.why}"
        if come:
            return failed(f"it has expired: {said}", then)
        unsure = unsure or come is None
        told.append(said)
    seen = "; ".join(told)
    return person(seen, f"if that has come: {then}") if unsure else passed(seen)


def _is_merged(case: Case, reference: str) -> tuple[bool | None, str]:
    """Say whether a pull request is on its default branch; None: nobody knows."""
    try:
        found = _landing(case, reference)
    except NotFoundError:
        return None, f"there is no {reference}"
    if found is None:
        return False, f"{reference} is open"
    return found.fate in _IN, f"{reference}: {found.words}"


def own_pr(case: Case) -> Finding:
    """The patch's own pull request is open, or another can be opened."""
    name = case.patch.name
    events = history.read(case.queue.folder, name)
    known = state(events, digest=case.patch.digest) or Contribution()
    if not known.reference:
        return passed("none was opened yet")
    # What the journal says of it is GitHub's word too.
    case.asked = True
    try:
        found = _landing(case, known.reference)
    except NotAskedError:
        if known.state != "merged":
            raise
        return failed(f"{known.reference} was merged", f"contribbot retire {name}")
    if found is None:
        return passed(f"{known.reference} is open")
    seen = f"{known.reference}: {found.words}"
    if found.fate in _IN:
        return failed(seen, f"contribbot retire {name}")
    branch = branch_of(case.patch)
    if branch != known.branch:
        return passed(f"{seen}; open-pr opens another from {branch}")
    return failed(
        seen, "read there why; reopen it, or name another `branch` in [contribution] of patch.toml"
    )


def _landing(case: Case, reference: str) -> Landing | None:
    """Ask what became of a pull request; None: it is open."""
    repository, _, number = reference.partition("#")

    def look(github: GitHub) -> Landing | None:
        pull = github.pull(repository, int(number)).complete()
        if pull.state == "open":
            return None
        branch = github.repository(repository).complete().default_branch
        return landing(github, repository, pull, branch)

    return case.ask(look)
