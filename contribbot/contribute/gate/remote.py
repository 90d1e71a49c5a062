"""Rules that only GitHub can answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contribbot.contribute.book import Book
from contribbot.contribute.gate import looks
from contribbot.contribute.gate.case import Case, Finding, failed, passed, person, refused
from contribbot.contribute.gate.differing import is_reason, unasked
from contribbot.contribute.opening.preconditions import refuses_pulls
from contribbot.contribute.stack import check_below
from contribbot.errors import NotFoundError, OpeningError
from contribbot.github.fields import may_push
from contribbot.model.gate import Candidate

_SHOWN: Final = 5


def stack(case: Case) -> Finding:
    """What the patch depends on has its pull request."""
    name = case.patch.name
    if not case.patch.spec.depends_on:
        return passed("it depends on no other patch")
    try:
        waits = check_below(case.queue, Book(case.queue, dry=True), name)
    except OpeningError as error:
        return refused(error)
    if waits:
        said = ", ".join(f"{lower} ({pull})" for lower, pull in waits.items())
        return passed(f"waits for {said}")
    return passed("all that it depends on is merged")


def upstream(case: Case) -> Finding:
    """The upstream takes pull requests."""
    found = case.repository
    why = refuses_pulls(found)
    if why:
        return failed(f"{found.full_name} {why}", "look on its page for where it takes changes")
    wanted = case.patch.upstream.repository
    if found.full_name.lower() != wanted.lower():
        return person(f"{wanted} is called {found.full_name} now", "correct upstreams/NAME.toml")
    return passed(f"{found.full_name}, branch {found.default_branch}")


def branch(case: Case) -> Finding:
    """The branch is not behind its base."""
    known, repository = case.contribution, case.patch.upstream.repository
    if not known.reference:
        return passed("no pull request is open; open-pr starts from the newest commit")
    if known.ended:
        return passed(f"{known.reference} has ended")
    base = case.repository.default_branch
    owner = known.fork.partition("/")[0]
    try:
        said = case.ask(
            lambda github: github.repository(repository).compare(
                base, f"{owner}:{known.branch}", comparison_commits_per_page=1
            )
        )
    except NotFoundError:
        return failed(
            f"{known.fork} has no branch {known.branch}", f"contribbot open-pr {case.patch.name}"
        )
    if not said.behind_by:
        return passed(f"{owner}:{known.branch} has all of {base}")
    seen = f"{owner}:{known.branch} is {said.behind_by} commits behind {base}"
    then = f"contribbot open-pr {case.patch.name} --up-to-date"
    return failed(seen, then) if case.rules.ci.current else person(seen, then)


def open_prs(case: Case) -> Finding:
    """The author has no more open pull requests than the upstream lets them have."""
    cap, repository = case.rules.open_prs, case.patch.upstream.repository
    if not cap:
        return passed("the upstream has no limit")
    login = case.me
    if may_push(case.repository):
        return passed(f"no limit for {login}, who has write access")
    query = f"repo:{repository} is:pr is:open author:{login}"
    count = case.ask(lambda github: github.search(query, 1)).total
    known = case.contribution
    # One that is open already is among them, and does not become one more.
    room = cap if known.reference and not known.ended else cap - 1
    if count > room:
        return failed(f"{login} has {count} open, {cap} at most", "finish one of them first")
    return passed(f"{login} has {count} open, {cap} at most")


def duplicates(case: Case) -> Finding:
    """Nobody else is at the same work, or it is said why this is different."""
    name = case.patch.name
    look = case.ask(
        lambda github: looks.find(github, case.queue, name, server=case.server, now=case.now)
    )
    case.look = look
    case.looked = min(case.looked or look.time, look.time)
    looked = f"of {look.looked_into} looked into, {look.seen} found, {look.days} days back"
    stray = unasked(
        case.patch.spec.contribution.different, [one.reference for one in look.candidates]
    )
    if stray:
        looked += f"; {', '.join(stray)} in `different` answers nothing now"
    if not look.candidates:
        return replace(passed(f"none {looked}"), searched=look.searched)
    opened = [one.reference for one in answered(case) if not one.answer]
    if not opened:
        return passed(f"{len(look.candidates)} {looked}: each is answered in [contribution]")
    more = f" and {len(opened) - _SHOWN} more" if len(opened) > _SHOWN else ""
    return failed(
        f"{len(opened)} without an answer: {', '.join(opened[:_SHOWN])}{more} ({looked})",
        f'contribbot gate {name} --different {opened[0]}="why this one is different"',
    )


def answered(case: Case) -> tuple[Candidate, ...]:
    """Return the candidates of the last look with their answers; a word or two is none."""
    if case.look is None:
        return ()
    said = {
        reference.lower(): why
        for reference, why in case.patch.spec.contribution.different.items()
        if is_reason(why)
    }
    return tuple(
        one.model_copy(update={"answer": said.get(one.reference.lower(), "")})
        for one in case.look.candidates
    )
