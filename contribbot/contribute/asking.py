"""Asking a person what the upstream asks, and writing down what they answered."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.contribute.attest import basis_of, differences, refuse_blocked
from contribbot.contribute.attested import attestation_file
from contribbot.contribute.opening.updating import Text
from contribbot.contribute.text.body import Body, make_body
from contribbot.contribute.text.templates import rules_of
from contribbot.errors import AttestationError, UsageError
from contribbot.files import write_atomically
from contribbot.model.attestation import Answer, Attestation, Attester, Basis
from contribbot.model.gate import Gate, searched_in
from contribbot.model.patch import Patch
from contribbot.model.rules import Question, Rules
from contribbot.queue.load import Queue, load_queue

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
    """What a person is shown, and stands for.

    Attributes:
        patch: The patch.
        body: The text of its pull request.
        gate: What the gate says.
        basis: All of it, by digests.
        questions: What is asked.
    """

    patch: Patch
    body: Body
    gate: Gate
    basis: Basis
    questions: tuple[Question, ...]


def prepare(queue: Queue, name: str, gate: Gate) -> Shown:
    """Return what a person is to be shown."""
    refuse_blocked(gate)
    patch, body = queue.patch(name), make_body(queue, name, searched=searched_in(gate.rows))
    basis = basis_of(queue, patch, Text(body.title, body.text), body.records, gate.rows)
    rules = rules_of(queue, patch.upstream.name)
    return Shown(patch, body, gate, basis, questions_of(rules, gate))


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
    patch = fresh.patch(name)
    body = make_body(fresh, name, searched=searched_in(shown.gate.rows))
    is_now = basis_of(fresh, patch, Text(body.title, body.text), body.records, shown.gate.rows)
    for change in differences(shown.basis, is_now):
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
