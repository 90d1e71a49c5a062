"""What a person stands for: bound to what they were shown, and void when any of it changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot import __version__, process
from contribbot.contribute import duplicates
from contribbot.contribute.body import make_body, rules_of
from contribbot.contribute.gate import judge
from contribbot.contribute.model import (
    Answer,
    Attestation,
    Attester,
    Basis,
    Body,
    FileDigest,
    Gate,
    Question,
    Row,
    Rules,
    Searched,
    json_digest,
    searched_in,
)
from contribbot.errors import AttestationError, ContribbotError, UsageError
from contribbot.files import write_atomically
from contribbot.github.auth import find_server
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue, load_queue

#: How long what GitHub said holds.
FRESH: Final = timedelta(hours=24)
#: By how much clocks may differ.
SKEW: Final = timedelta(minutes=5)


def attestation_file(queue: Queue, name: str) -> Path:
    """Return the file that holds the attestation of a patch; need not be there."""
    return queue.folder / "attestations" / f"{name}.json"


def read(queue: Queue, name: str) -> Attestation:
    """Return the attestation of a patch, whatever it is worth."""
    path, again = attestation_file(queue, name), f"contribbot attest {name}"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise AttestationError(f"{name}: nobody has attested it", hint=again) from None
    try:
        found = Attestation.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AttestationError(
            f"{path}: no attestation that can be read: {where}: {first['msg']}", hint=again
        ) from None
    if not found.intact:
        raise AttestationError(f"{path}: it was changed after it was written", hint=again)
    return found


def searched(queue: Queue, name: str, *, now: datetime | None = None) -> Searched | None:
    """Return the look for duplicates that the text of a patch may tell of. GitHub is not asked.

    The one that was attested comes first: so the text stays what a person stood for, also
    where it is posted from another machine.
    """
    patch = queue.patch(name)
    asked = rules_of(queue, patch.spec.upstream).body.duplicates
    if not asked or patch.spec.contribution.different:
        return None
    moment = now or datetime.now(UTC)
    look = duplicates.remembered(queue, name, server=find_server().api, now=moment)
    if look is not None and look.candidates:
        return None
    return _attested(queue, patch, moment) or (look.searched if look is not None else None)


def _attested(queue: Queue, patch: Patch, now: datetime) -> Searched | None:
    """Return the look that somebody attested of this very patch, while it holds."""
    try:
        found = read(queue, patch.name)
    except AttestationError:
        return None
    was = found.basis
    same = (
        {one.name: one.sha256 for one in was.files}
        == {one.name: hashlib.sha256(one.content).hexdigest() for one in patch.files}
        and (was.repository, was.title) == (patch.upstream.repository, patch.spec.title)
        and was.contribution == json_digest(patch.spec.contribution.model_dump(mode="json"))
    )
    holds = -SKEW <= now - found.looked <= FRESH
    return searched_in(was.gate) if same and holds else None


def basis_of(queue: Queue, body: Body, rows: Sequence[Row]) -> Basis:
    """Return what a person stands for, as it is now."""
    patch = queue.patch(body.patch)
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
        title=body.title,
        body=body.sha256,
        records=tuple(FileDigest(name=one.file, sha256=one.seal) for one in body.records),
        contribution=json_digest(patch.spec.contribution.model_dump(mode="json")),
        rules=json_digest(rules_of(queue, patch.upstream.name).model_dump(mode="json")),
        gate=tuple(rows),
        tool=__version__,
    )


def require(queue: Queue, body: Body, *, now: datetime | None = None) -> Attestation:
    """See that a person stands for a patch with exactly this text. GitHub is not asked."""
    found = read(queue, body.patch)
    changed = list(_changes(queue, body, found, now or datetime.now(UTC)))
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise AttestationError(
            f"{body.patch}: the attestation is void: {changed[0]}{more}",
            hint=f"see all with --show, and attest again: contribbot attest {body.patch}",
        )
    return found


def changes(
    queue: Queue, name: str, attestation: Attestation, *, now: datetime | None = None
) -> list[str]:
    """Return what has changed since a patch was attested, a line each; none: it is valid."""
    moment = now or datetime.now(UTC)
    try:
        body = make_body(queue, name, searched=searched(queue, name, now=moment))
    except ContribbotError as error:
        return [f"the text can no longer be made: {error.message}"]
    return list(_changes(queue, body, attestation, moment))


def _changes(queue: Queue, body: Body, attestation: Attestation, now: datetime) -> Iterator[str]:
    """Yield what is not as it was attested."""
    rows = judge(queue, body.patch, None, now=now, body=body).rows
    yield from _never_valid(queue, attestation)
    yield from differences(attestation.basis, basis_of(queue, body, rows))
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


#: What is asked of everybody, unless the upstream's own questions have one of that name.
_WHERE: Final = Question(
    name="where", text="Which command did you run, and on which machine?", answer="text"
)
_DUPLICATES: Final = Question(
    name="duplicates", text="Have you looked at the pull requests above, and is none the same work?"
)
_STAND: Final = Question(
    name="stand", text="Do you stand for this change and this text as your own contribution?"
)
_LONGEST: Final = 2000
#: What git needs to find a person's own configuration.
_PERSONAL: Final = (
    "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What a person is shown, and stands for."""

    patch: Patch
    body: Body
    gate: Gate
    basis: Basis
    questions: tuple[Question, ...]


def prepare(queue: Queue, name: str, gate: Gate) -> Shown:
    """Return what a person is to be shown."""
    refuse_blocked(gate)
    body, patch = gate.body, queue.patch(name)
    assert body is not None  # noqa: S101  the gate lets nothing through without it
    rules = rules_of(queue, patch.upstream.name)
    return Shown(patch, body, gate, basis_of(queue, body, gate.rows), questions_of(rules, gate))


def questions_of(rules: Rules, gate: Gate) -> tuple[Question, ...]:
    """Return what is asked: the upstream's questions, then ours."""
    ours = (_WHERE, *((_DUPLICATES,) if gate.candidates else ()), _STAND)
    theirs = {one.name for one in rules.questions}
    return (*rules.questions, *(one for one in ours if one.name not in theirs))


def ask_all(
    questions: Sequence[Question], ask: Callable[[Question], str | None]
) -> tuple[Answer, ...]:
    """Ask every question."""
    answers: list[Answer] = []
    for question in questions:
        said = ask(question)
        typed = (said or "").strip()
        if said is None:
            raise _unwritten(question, "the input has ended")
        if question.answer == "yes" and typed.lower() != "yes":
            raise _unwritten(question, "only yes, in full, is an answer")
        if not typed:
            raise _unwritten(question, "it was not answered")
        if not typed.isprintable() or len(typed) > _LONGEST:
            raise _unwritten(question, f"not a line of plain text of at most {_LONGEST} characters")
        answers.append(Answer(question=question, answer=typed))
    return tuple(answers)


def _unwritten(question: Question, why: str) -> AttestationError:
    return AttestationError(f"{question.name}: {why}", hint="nothing was written")


def conclude(
    queue: Queue,
    shown: Shown,
    answers: Sequence[Answer],
    person: Attester,
    *,
    now: datetime | None = None,
) -> Path:
    """Write that a person stands for what they were shown."""
    name, looked = shown.patch.name, shown.gate.looked
    assert looked is not None  # noqa: S101  prepare has seen to it
    fresh = load_queue(queue.folder)
    body = make_body(fresh, name, searched=searched_in(shown.gate.rows))
    for change in differences(shown.basis, basis_of(fresh, body, shown.gate.rows)):
        raise AttestationError(
            f"{name}: it is not what you were shown any more: {change}",
            hint=f"nothing was written; run it again: contribbot attest {name}",
        )
    made = Attestation(
        basis=shown.basis,
        looked=looked,
        person=person,
        time=(now or datetime.now(UTC)).replace(microsecond=0),
        answers=tuple(answers),
    ).sealed()
    path = attestation_file(queue, name)
    write_atomically(path, made.model_dump_json(indent=2).encode() + b"\n")
    return path


def person_of(queue: Queue) -> Attester:
    """Return who is at the keyboard, as git knows them."""
    env = process.clean_environment(
        {key: os.environ[key] for key in _PERSONAL if key in os.environ}
    )
    said = []
    for key in ("user.name", "user.email"):
        done = process.run(
            ["git", "config", "--get", key], cwd=queue.folder, env=env, accept=(0, 1)
        )
        value = done.stdout.decode("utf-8", "replace").strip()
        if not value or not value.isprintable():
            raise UsageError(f"git does not know your {key}", hint=f"git config --global {key} …")
        said.append(value)
    return Attester(name=said[0], email=said[1])
