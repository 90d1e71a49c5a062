"""Attestations: a person vouches for a contribution, by a digest over text, patch and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot import process
from contribbot.contribute.body import GITHUB_HOLDS, make_body, rules_of
from contribbot.contribute.model import (
    Answer,
    Attestation,
    Attester,
    Body,
    Gate,
    Question,
    Rules,
    json_digest,
)
from contribbot.errors import AttestationError, UsageError
from contribbot.files import write_atomically
from contribbot.model.patch import Patch
from contribbot.queue import history, toml_edit
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.transaction import transaction

#: The most by which the clocks of two machines may differ.
_SKEW: Final = timedelta(minutes=5)
#: Our questions, unless the upstream has a question of the same name.
_OURS: Final = {
    "duplicates": "Have you looked at the pull requests above, and is none the same work?",
    "stand": "Do you stand for this change and this text as your own contribution?",
}
_LONGEST: Final = 2000
_PERSONAL: Final = re.compile("HOME|XDG_CONFIG_HOME|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)")


def attestation_file(queue: Queue, name: str) -> Path:
    """Return the path of a patch's attestation, which may not exist."""
    return queue.folder / "attestations" / f"{name}.json"


def read(queue: Queue, name: str) -> Attestation:
    """Return a patch's attestation, even a void one; raise AttestationError if unreadable."""
    path, again = attestation_file(queue, name), f"contribbot attest {name}"
    try:
        return Attestation.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise AttestationError(f"{name}: nobody has attested it", hint=again) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AttestationError(
            f"{path}: no attestation that can be read: {where}: {first['msg']}", hint=again
        ) from None


def _digest(queue: Queue, body: Body, attestation: Attestation) -> str:
    """Return the digest of an attestation, with the text, patch, dependencies and questions."""
    patch = queue.patch(body.patch)
    made = attestation.model_dump(mode="json", exclude={"digest"})
    stated = (patch.name, patch.upstream.repository, patch.digest, patch.checks_digest)
    below = [(lower.name, lower.digest) for lower in history.below_of(queue, patch.name)]
    questions = rules_of(queue, patch.upstream.name).questions
    asked = [question.model_dump(mode="json") for question in questions]
    return json_digest([made, body.title, body.text, *stated, below, asked])


def require(queue: Queue, body: Body, *, now: datetime | None = None) -> Attestation:
    """Return the valid attestation of a text; raise AttestationError if missing, old or void."""
    attestation, moment = read(queue, body.patch), now or datetime.now(UTC)
    hint = f"contribbot attest {body.patch}"
    if attestation.digest != _digest(queue, body, attestation):
        why = f"{body.patch}: void: the text, the patch or an answer changed"
        raise AttestationError(why, hint=hint)
    if not -_SKEW <= moment - attestation.looked <= GITHUB_HOLDS:
        why = f"{body.patch}: void: its gate asked GitHub {attestation.looked:%Y-%m-%d %H:%M} UTC"
        raise AttestationError(f"{why}, and that holds for 24 hours", hint=hint)
    return attestation


@dataclass(frozen=True)
class Shown:
    """The text, patch and gate that a person sees and vouches for, with the questions."""

    patch: Patch
    body: Body
    gate: Gate
    looked: datetime
    questions: tuple[Question, ...]


def introduce(
    queue: Queue, name: str, person: Attester, ask: Callable[[Question], str | None]
) -> Queue:
    """Add a person to a patch.toml that names nobody; raise AttestationError for another person."""
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
    with transaction(queue.folder, f"attest {name}") as change:
        change.edit(path, lambda text: toml_edit.set_person(text, stands))
    return load_queue(queue.folder)


def prepare(queue: Queue, name: str, gate: Gate) -> Shown:
    """Return the text, patch and gate to show; raise AttestationError if a rule blocks."""
    if gate.blocking or gate.looked is None or gate.body is None:
        names = ", ".join(f"{row.rule} ({row.state})" for row in gate.blocking)
        why = f"there is nothing to attest yet: {names or 'GitHub was not asked'}"
        hint = f"do what `contribbot gate {gate.patch}` says"
        raise AttestationError(f"{gate.patch}: {why}", hint=hint)
    body, patch = gate.body, queue.patch(name)
    questions = questions_of(rules_of(queue, patch.upstream.name), gate)
    return Shown(patch, body, gate, gate.looked, questions)


def questions_of(rules: Rules, gate: Gate) -> tuple[Question, ...]:
    """Return the upstream's questions to the person, then contribbot's own questions."""
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
    """Return the answers to all questions; raise AttestationError for an unfit answer."""
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
    """Write the attestation; raise AttestationError if the text or patch is not as shown."""
    name, fresh = shown.patch.name, load_queue(queue.folder)
    moment = datetime.now(UTC).replace(microsecond=0)
    made = Attestation(
        patch=name,
        looked=shown.looked,
        time=moment,
        person=person,
        answers=tuple(answers),
        digest="0" * 64,
    )
    digest = _digest(queue, shown.body, made)
    if digest != _digest(fresh, make_body(fresh, name), made):
        why = f"{name}: the text or the patch is not what you were shown any more"
        hint = f"nothing was written; run it again: contribbot attest {name}"
        raise AttestationError(why, hint=hint)
    path = attestation_file(queue, name)
    attestation = made.model_copy(update={"digest": digest})
    write_atomically(path, attestation.model_dump_json(indent=2).encode() + b"\n")
    return path


def person_of(queue: Queue) -> Attester:
    """Return the user's name and e-mail address from git's configuration."""
    own = {key: value for key, value in os.environ.items() if _PERSONAL.fullmatch(key)}
    env = process.clean_environment(own)

    def setting(key: str) -> str:
        command = ["git", "config", "--get", key]
        done = process.run(command, cwd=queue.folder, env=env, accept=(0, 1))
        value = done.stdout.decode("utf-8", "replace").strip()
        if not value or not value.isprintable():
            raise UsageError(f"git does not know your {key}", hint=f"git config --global {key} …")
        return value

    return Attester(name=setting("user.name"), email=setting("user.email"))
