"""What a person stands for: bound to what they were shown, and void when any of it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from contribbot import __version__
from contribbot.contribute.attested import FRESH, SKEW, read, searched
from contribbot.contribute.gate import judge
from contribbot.contribute.opening.updating import Text
from contribbot.contribute.text.body import RecordRef, make_body
from contribbot.contribute.text.templates import rules_of
from contribbot.errors import AttestationError, ContribbotError
from contribbot.model.attestation import Attestation, Basis, FileDigest, json_digest
from contribbot.model.gate import Gate, Row
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue


def basis_of(
    queue: Queue, patch: Patch, text: Text, records: Sequence[RecordRef], rows: Sequence[Row]
) -> Basis:
    """Return what a person stands for, as it is now."""
    return Basis(
        patch=patch.name,
        upstream=patch.upstream.name,
        repository=patch.upstream.repository,
        files=tuple(
            FileDigest(name=one.name, sha256=hashlib.sha256(one.content).hexdigest())
            for one in patch.files
        ),
        below=tuple(
            FileDigest(name=lower, sha256=queue.patch(lower).digest)
            for lower in queue.below(patch.name)
        ),
        checks=patch.checks_digest,
        title=text.title,
        body=hashlib.sha256(text.body.encode()).hexdigest(),
        records=tuple(FileDigest(name=one.file, sha256=one.seal) for one in records),
        contribution=json_digest(patch.spec.contribution.model_dump(mode="json")),
        rules=json_digest(rules_of(queue, patch.upstream.name).model_dump(mode="json")),
        gate=tuple(rows),
        tool=__version__,
    )


def require(queue: Queue, patch: Patch, text: Text, *, now: datetime | None = None) -> Attestation:
    """See that a person stands for a patch with exactly this text. GitHub is not asked."""
    found = read(queue, patch.name)
    changed = list(_changes(queue, patch, text, found, now or datetime.now(UTC)))
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise AttestationError(
            f"{patch.name}: the attestation is void: {changed[0]}{more}",
            hint=f"see all with --show, and attest again: contribbot attest {patch.name}",
        )
    return found


def changes(
    queue: Queue, name: str, attestation: Attestation, *, now: datetime | None = None
) -> list[str]:
    """Return what has changed since a patch was attested, a line each; none: it is valid."""
    moment = now or datetime.now(UTC)
    patch = queue.patch(name)
    try:
        made = make_body(queue, name, searched=searched(queue, name, now=moment))
    except ContribbotError as error:
        return [f"the text can no longer be made: {error.message}"]
    return list(_changes(queue, patch, Text(made.title, made.text), attestation, moment))


def _changes(
    queue: Queue, patch: Patch, text: Text, attestation: Attestation, now: datetime
) -> Iterator[str]:
    """Yield what is not as it was attested."""
    was = attestation.basis
    try:
        records = make_body(queue, patch.name).records
    except ContribbotError as error:
        yield f"the text can no longer be made: {error.message}"
        return
    rows = judge(queue, patch.name, None, now=now).rows
    yield from _never_valid(queue, attestation)
    yield from differences(was, basis_of(queue, patch, text, records, rows))
    if attestation.looked > now + SKEW or attestation.time > now + SKEW:
        yield f"it is of a time to come, {max(attestation.looked, attestation.time)}"
    elif now - attestation.looked > FRESH:
        hours = int((now - attestation.looked).total_seconds() // 3600)
        yield f"the gate asked GitHub {hours} hours ago, and that holds for 24"


def _never_valid(queue: Queue, attestation: Attestation) -> Iterator[str]:
    """Yield why nobody could have attested this: somebody wrote the file by hand."""
    for row in attestation.basis.gate:
        if row.blocks:
            yield f"the gate's {row.rule} was {row.state} when it was attested"
    said = {one.question: one.answer for one in attestation.answers}
    for question in rules_of(queue, attestation.basis.upstream).questions:
        answer = said.get(question, "").strip()
        if not answer or (question.answer == "yes" and answer.lower() != "yes"):
            yield f"the question {question.name} is not answered in it"


def differences(was: Basis, now: Basis) -> Iterator[str]:
    """Yield how what is there differs from what was attested, a line each."""
    if (was.patch, was.upstream, was.repository) != (now.patch, now.upstream, now.repository):
        yield f"it was about {was.patch} for {was.repository}"
    yield from _files("the patch file", was.files, now.files)
    yield from _files("the patch below", was.below, now.below)
    if was.checks != now.checks:
        yield "the checks have changed"
    if was.title != now.title:
        yield f"the title was “{was.title}”, and is “{now.title}”"
    if was.body != now.body:
        yield "the text of the pull request has changed"
    yield from _files("the record", was.records, now.records)
    if was.contribution != now.contribution:
        yield "[contribution] of patch.toml has changed"
    if was.rules != now.rules:
        yield f"the rules of {now.upstream} have changed"
    yield from _rows(was.gate, now.gate)
    if was.tool != now.tool:
        yield f"contribbot was {was.tool}, and is {now.tool}"


def _files(what: str, was: Sequence[FileDigest], now: Sequence[FileDigest]) -> Iterator[str]:
    before, after = ({one.name: one.sha256 for one in files} for files in (was, now))
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield f"{what} {name} is gone"
        elif name not in before:
            yield f"{what} {name} is new"
        elif before[name] != after[name]:
            yield f"{what} {name} has changed"
    if list(before) != list(after) and sorted(before) == sorted(after):
        yield f"{what}s have another order"


def _rows(was: Sequence[Row], now: Sequence[Row]) -> Iterator[str]:
    """Compare what can be told without GitHub; the rest ages."""
    after = {row.rule: row for row in now}
    for row in was:
        other = after.get(row.rule)
        if other is None:
            yield f"the gate has no {row.rule} any more"
        elif not (row.github or other.github) and row.state is not other.state:
            yield f"the gate's {row.rule} was {row.state}, and is {other.state}: {other.seen}"
    known = {row.rule for row in was}
    yield from (f"the gate's {rule} is new" for rule in after if rule not in known)


def refuse_blocked(gate: Gate) -> None:
    """Refuse to attest what the gate does not let through."""
    wrong = gate.blocking
    if wrong or gate.looked is None:
        names = ", ".join(f"{row.rule} ({row.state})" for row in wrong) or "GitHub was not asked"
        raise AttestationError(
            f"{gate.patch}: there is nothing to attest yet: {names}",
            hint=f"do what `contribbot gate {gate.patch}` says",
        )
