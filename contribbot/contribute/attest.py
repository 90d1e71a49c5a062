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
    RowState,
    Rules,
    Searched,
    json_digest,
    searched_in,
)
from contribbot.errors import AttestationError, ContribbotError, UsageError, first_of
from contribbot.files import write_atomically
from contribbot.github.auth import find_server
from contribbot.model.patch import Patch
from contribbot.queue import history, toml_edit
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.transaction import transaction

#: How long what GitHub said holds; by how much clocks may differ.
FRESH: Final = timedelta(hours=24)
SKEW: Final = timedelta(minutes=5)
#: What is asked of everybody, unless the upstream's own questions have one of that name.
_OURS: Final = {
    "duplicates": "Have you looked at the pull requests above, and is none the same work?",
    "stand": "Do you stand for this change and this text as your own contribution?",
}
_LONGEST: Final = 2000
_PERSONAL: Final = (
    "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
)  # fmt: skip


def attestation_file(queue: Queue, name: str) -> Path:
    """Return the file that holds the attestation of a patch; need not be there."""
    return queue.folder / "attestations" / f"{name}.json"


def read(queue: Queue, name: str) -> Attestation:
    """Return the attestation of a patch, whatever it is worth."""
    path, again = attestation_file(queue, name), f"contribbot attest {name}"
    try:
        attestation = Attestation.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise AttestationError(f"{name}: nobody has attested it", hint=again) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AttestationError(
            f"{path}: no attestation that can be read: {where}: {first['msg']}", hint=again
        ) from None
    if not attestation.intact:
        raise AttestationError(f"{path}: it was changed after it was written", hint=again)
    return attestation


def searched(queue: Queue, name: str, *, now: datetime | None = None) -> Searched | None:
    """Return the look for duplicates that the text of a patch may tell of. GitHub is not asked."""
    patch = queue.patch(name)
    told = rules_of(queue, patch.spec.upstream).body.duplicates
    if not told or patch.spec.contribution.different:
        return None
    moment, server = now or datetime.now(UTC), find_server().api
    look = duplicates.remembered(queue, name, server=server, now=moment, within=FRESH)
    return look.searched if look is not None else None


def basis_of(queue: Queue, body: Body, rows: Sequence[Row]) -> Basis:
    """Return what a person stands for, as it is now."""
    patch = queue.patch(body.patch)
    below = history.below_of(queue, patch.name)
    rules = rules_of(queue, patch.upstream.name).model_dump(mode="json")
    files = {file.name: hashlib.sha256(file.content).hexdigest() for file in patch.files}
    return Basis(
        patch=patch.name, upstream=patch.upstream.name, repository=patch.upstream.repository,
        checks=patch.checks_digest, title=body.title, body=body.sha256,
        files=tuple(FileDigest(name=name, sha256=digest) for name, digest in files.items()),
        below=tuple(FileDigest(name=lower.name, sha256=lower.digest) for lower in below),
        records=tuple(FileDigest(name=record.file, sha256=record.seal) for record in body.records),
        contribution=json_digest(patch.spec.contribution.model_dump(mode="json")),
        rules=json_digest(rules), gate=tuple(rows), tool=__version__,
    )  # fmt: skip


def require(queue: Queue, body: Body, *, now: datetime | None = None) -> Attestation:
    """See that a person stands for a patch with exactly this text. GitHub is not asked."""
    attestation = read(queue, body.patch)
    changed = list(_changes(queue, body, attestation, now or datetime.now(UTC)))
    if changed:
        why = f"{body.patch}: the attestation is void: {first_of(changed)}"
        hint = f"see all with --show, and attest again: contribbot attest {body.patch}"
        raise AttestationError(why, hint=hint)
    return attestation


def changes(queue: Queue, name: str, attestation: Attestation) -> list[str]:
    """Return what has changed since a patch was attested, a line each; none: it is valid."""
    moment = datetime.now(UTC)
    try:
        body = make_body(queue, name, searched=searched(queue, name, now=moment))
    except ContribbotError as error:
        return [f"the text can no longer be made: {error.message}"]
    return list(_changes(queue, body, attestation, moment))


def _changes(queue: Queue, body: Body, attestation: Attestation, now: datetime) -> Iterator[str]:
    """Yield what is not as it was attested, or could not have been: somebody wrote it by hand."""
    rows, was = judge(queue, body.patch, None, now=now, body=body).rows, attestation.basis
    for row in was.gate:
        if row.blocks:
            yield f"the gate's {row.rule} was {row.state} when it was attested"
    named, who = queue.patch(body.patch).spec.contribution.person, attestation.person
    if named is None or (named.name, named.email) != (who.name, who.email):
        yield f"{who.name} <{who.email}> attested it, and [contribution] names another person"
    answers = {answer.question: answer.answer for answer in attestation.answers}
    for question in rules_of(queue, was.upstream).questions:
        answer = answers.get(question, "").strip()
        if not answer or (question.answer == "yes" and answer.lower() != "yes"):
            yield f"the question {question.name} is not answered in it"
    yield from differences(was, basis_of(queue, body, rows))
    if max(attestation.looked, attestation.time) > now + SKEW:
        yield f"it is of a time to come, {max(attestation.looked, attestation.time)}"
    elif now - attestation.looked > FRESH:
        hours = int((now - attestation.looked).total_seconds() // 3600)
        yield f"the gate asked GitHub {hours} hours ago, and that holds for 24"


def differences(was: Basis, now: Basis) -> Iterator[str]:
    """Yield how what is there differs from what was attested, a line each."""
    if (was.patch, was.upstream, was.repository) != (now.patch, now.upstream, now.repository):
        yield f"it was about {was.patch} for {was.repository}"
    yield from _files("the patch file", was.files, now.files)
    yield from _files("the patch below", was.below, now.below)
    for change, before, after in (
        ("the checks have changed", was.checks, now.checks),
        (f"the title was “{was.title}”, and is “{now.title}”", was.title, now.title),
        ("the text of the pull request has changed", was.body, now.body),
        ("[contribution] of patch.toml has changed", was.contribution, now.contribution),
        (f"the rules of {now.upstream} have changed", was.rules, now.rules),
        (f"contribbot was {was.tool}, and is {now.tool}", was.tool, now.tool),
    ):
        if before != after:
            yield change
    yield from _files("the record", was.records, now.records)
    # What can be told without GitHub is compared; the rest ages.
    rows = {row.rule: row for row in now.gate}
    for row in was.gate:
        other = rows.pop(row.rule, None)
        if other is None:
            yield f"the gate has no {row.rule} any more"
        elif not (row.github or other.github) and row.state is not other.state:
            yield f"the gate's {row.rule} was {row.state}, and is {other.state}: {other.seen}"
    yield from (f"the gate's {rule} is new" for rule in rows)


def _files(what: str, was: Sequence[FileDigest], now: Sequence[FileDigest]) -> Iterator[str]:
    before, after = ({file.name: file.sha256 for file in files} for files in (was, now))
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            change = "is gone" if name not in after else "has changed"
            yield f"{what} {name} {change if name in before else 'is new'}"
    if list(before) != list(after) and sorted(before) == sorted(after):
        yield f"{what}s have another order"


@dataclass(frozen=True)
class Shown:
    """What a person is shown, and stands for."""

    patch: Patch
    body: Body
    gate: Gate
    looked: datetime
    basis: Basis
    questions: tuple[Question, ...]


def introduce(
    queue: Queue, name: str, person: Attester, ask: Callable[[Question], str | None]
) -> Queue:
    """See that the patch names whoever sits there; ask them what they ran where, the first time."""
    known = queue.patch(name).spec.contribution.person
    if known is not None:
        if (known.name, known.email) != (person.name, person.email):
            why = f"{name}: {known.name} <{known.email}> stands for it, and you are {person.name}"
            hint = "take `person` out of [contribution] of patch.toml, to stand for it yourself"
            raise AttestationError(f"{why} <{person.email}>", hint=hint)
        return queue
    every = enumerate(make_body(queue, name).records, start=1)
    records = {f"R{number}": record.file for number, record in every}
    where = ", ".join(f"{label} = {file}" for label, file in records.items())
    asked = (
        Question(name="ran", text="Which command did you run for it?", answer="text"),
        Question(name="record", text=f"Which record is of that run? {where}", answer="text"),
    )
    ran, record = (answer.answer for answer in ask_all(asked, ask))
    if record not in records and record not in records.values():
        hint = f"run contribbot verify {name} on your machine, or on a runner; nothing was written"
        raise AttestationError(f"record: {record!a} is none of {where}", hint=hint)
    path = f"patches/{name}/patch.toml"
    stands = {**person.model_dump(), "ran": ran, "record": records.get(record, record)}
    with transaction(queue.folder) as change:
        change.write(path, toml_edit.set_person(change.read(path) or b"", stands))
        change.commit()
    return load_queue(queue.folder)


def for_a_person(queue: Queue, name: str) -> list[str]:
    """Return what only a person can do, as the gate said when they attested it."""
    rows = read(queue, name).basis.gate
    return [f"{row.rule}: {row.seen}" for row in rows if row.state is RowState.PERSON]


def prepare(queue: Queue, name: str, gate: Gate) -> Shown:
    """Return what a person is to be shown; refuse what the gate does not let through."""
    if gate.blocking or gate.looked is None or gate.body is None:
        names = ", ".join(f"{row.rule} ({row.state})" for row in gate.blocking)
        why = f"there is nothing to attest yet: {names or 'GitHub was not asked'}"
        hint = f"do what `contribbot gate {gate.patch}` says"
        raise AttestationError(f"{gate.patch}: {why}", hint=hint)
    body, patch = gate.body, queue.patch(name)
    questions = questions_of(rules_of(queue, patch.upstream.name), gate)
    return Shown(patch, body, gate, gate.looked, basis_of(queue, body, gate.rows), questions)


def questions_of(rules: Rules, gate: Gate) -> tuple[Question, ...]:
    """Return what is asked: the upstream's questions, then ours."""
    theirs = {question.name for question in rules.questions}
    ours = (
        Question(name=name, text=text)
        for name, text in _OURS.items()
        if name not in theirs and (gate.candidates or name != "duplicates")
    )
    return (*rules.questions, *ours)


def ask_all(
    questions: Sequence[Question], ask: Callable[[Question], str | None]
) -> tuple[Answer, ...]:
    """Ask every question."""
    answers: list[Answer] = []
    for question in questions:
        typed = ask(question)
        answer = (typed or "").strip()
        plain = answer.isprintable() and len(answer) <= _LONGEST
        for why, refused in (
            ("the input has ended", typed is None),
            ("only yes, in full, is an answer", question.answer == "yes" != answer.lower()),
            ("it was not answered", not answer),
            (f"not a line of plain text of at most {_LONGEST} characters", not plain),
        ):
            if refused:
                raise AttestationError(f"{question.name}: {why}", hint="nothing was written")
        answers.append(Answer(question=question, answer=answer))
    return tuple(answers)


def conclude(queue: Queue, shown: Shown, answers: Sequence[Answer], person: Attester) -> Path:
    """Write that a person stands for what they were shown."""
    name, fresh = shown.patch.name, load_queue(queue.folder)
    body = make_body(fresh, name, searched=searched_in(shown.gate.rows))
    for change in differences(shown.basis, basis_of(fresh, body, shown.gate.rows)):
        hint = f"nothing was written; run it again: contribbot attest {name}"
        raise AttestationError(
            f"{name}: it is not what you were shown any more: {change}", hint=hint
        )
    moment = datetime.now(UTC).replace(microsecond=0)
    attestation = Attestation(
        basis=shown.basis, looked=shown.looked, person=person, time=moment, answers=tuple(answers)
    ).sealed()
    path = attestation_file(queue, name)
    write_atomically(path, attestation.model_dump_json(indent=2).encode() + b"\n")
    return path


def person_of(queue: Queue) -> Attester:
    """Return who is at the keyboard, as git knows them."""
    own = {key: os.environ[key] for key in _PERSONAL if key in os.environ}
    env = process.clean_environment(own)

    def setting(key: str) -> str:
        command = ["git", "config", "--get", key]
        done = process.run(command, cwd=queue.folder, env=env, accept=(0, 1))
        value = done.stdout.decode("utf-8", "replace").strip()
        if not value or not value.isprintable():
            raise UsageError(f"git does not know your {key}", hint=f"git config --global {key} …")
        return value

    return Attester(name=setting("user.name"), email=setting("user.email"))
