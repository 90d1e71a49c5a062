"""The preview of `open-pr`, and the parts that are missing; GitHub is not asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from contribbot.contribute.attest import require
from contribbot.contribute.body import make_body
from contribbot.contribute.branch import branch_of
from contribbot.contribute.gate import judge
from contribbot.contribute.model import Body, Gate, RowState
from contribbot.contribute.open_pr import OpenOptions
from contribbot.contribute.publication import PublicationJournal
from contribbot.errors import AttestationError, ContribbotError, TokenError
from contribbot.git.patch_format import read_mail, touched_files
from contribbot.github.auth import find_server, find_token
from contribbot.model.base import Model
from contribbot.queue.load import Queue

_UPSTREAM: Final = frozenset({"merged", "landed"})


class PreviewCommit(Model):
    """A commit that the branch would get, on top of the upstream's newest commit."""

    patch: str
    subject: str
    files: tuple[str, ...]


class Missing(Model):
    """A part that a pull request lacks, and the command that provides the part."""

    what: str
    why: str
    next: str


class Preview(Model):
    """A pull request that `open-pr` would open or update."""

    patch: str
    #: The upstream's repository; only GitHub knows the repository's default branch.
    upstream: str
    pin: str
    #: The fork, empty if no fork is known yet, and the branch in the fork.
    fork: str
    branch: str
    #: The pull request that the journal knows, as `owner/name#number`; empty: a new one.
    pull_request: str
    state: Literal["draft", "open", "to be opened"]
    title: str
    commits: tuple[PreviewCommit, ...]
    #: None where the text cannot be made yet; `missing` says why.
    body: Body | None
    gate: Gate
    missing: tuple[Missing, ...]


def preview_all(queue: Queue, names: Sequence[str], options: OpenOptions) -> tuple[Preview, ...]:
    """Return a preview of each patch's pull request."""
    token: tuple[Missing, ...] = ()
    try:
        find_token(find_server())
    except TokenError as error:
        token = (Missing(what="token", why=error.message, next=error.hint),)
    return tuple(_preview(queue, name, options, token) for name in names)


def _preview(queue: Queue, name: str, options: OpenOptions, token: tuple[Missing, ...]) -> Preview:
    patch, journal = queue.patch(name), PublicationJournal(queue)
    known = journal.publication(name, digest=patch.digest)
    pull_request = "" if known.ended else known.reference
    body: Body | None = None
    attestation: tuple[Missing, ...] = ()
    try:
        body = make_body(queue, name)
        require(queue, body)
    except ContribbotError as error:
        then = f"{error.hint}, in a terminal" if isinstance(error, AttestationError) else error.hint
        attestation = (Missing(what="attestation", why=error.message, next=then),)
    gate = judge(queue, name, None, body=body)
    state: Literal["draft", "open", "to be opened"] = "draft"
    if options.ready or (pull_request and known.state == "open"):
        state = "open"
    elif options.handoff and not pull_request:
        state = "to be opened"
    below = (low for low in queue.below(name) if journal.publication(low).state not in _UPSTREAM)
    commits = (
        PreviewCommit(
            patch=part,
            subject=read_mail(file).subject,
            files=tuple(dict.fromkeys(touched.path for touched in touched_files([file]))),
        )
        for part in (*below, name)
        for file in queue.patch(part).files
    )
    return Preview(
        patch=name,
        upstream=gate.repository,
        pin=patch.pin.tag,
        fork=known.fork,
        branch=branch_of(patch),
        pull_request=pull_request,
        state=state,
        title=body.title if body else patch.spec.title,
        body=body,
        gate=gate,
        commits=tuple(commits),
        missing=(*_failing(gate), *token, *_unasked(gate, fork=known.fork), *attestation),
    )


def _failing(gate: Gate) -> Iterator[Missing]:
    """Yield the rules that block attesting, and the targets on which nothing ran."""
    rows = {row.rule: row for row in gate.blocking if row.state is not RowState.NOT_LOOKED_AT}
    if gate.body is not None and gate.body.not_run:
        rows |= {row.rule: row for row in gate.rows if row.rule == "not-run"}
    for row in rows.values():
        yield Missing(what=row.rule, why=row.seen, next=row.next)


def _unasked(gate: Gate, *, fork: str) -> Iterator[Missing]:
    """Yield the questions that only GitHub can answer."""
    rules = ", ".join(row.rule for row in gate.of(RowState.NOT_LOOKED_AT))
    again = f"contribbot gate {gate.patch}"
    yield Missing(what="GitHub", why=f"not looked up: {rules}", next=again)
    if not fork:
        why = f"whether you have one of {gate.repository} is not known"
        yield Missing(what="fork", why=why, next="open-pr makes one where there is none")
    why = f"whether it applies to the newest commit of {gate.repository} is not known"
    way = "contribbot status --against newest tries the newest release"
    yield Missing(what="base", why=why, next=way)
