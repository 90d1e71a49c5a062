"""A person's word for a contribution, bound to what that person was shown."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from contribbot.model.base import Line, Model, Name, Prose, Sha256
from contribbot.model.gate import Row
from contribbot.model.rules import Question

KIND: Final = "contribbot/attestation/v1"


class FileDigest(Model):
    """A file as it was shown.

    Attributes:
        name: Its name, seen from the patch's folder or from the queue.
        sha256: Digest of its content; of a record of evidence, its seal.
    """

    name: str
    sha256: Sha256


class Answer(Model):
    """What a person answered.

    Attributes:
        question: The question.
        answer: The answer, as it was typed.
    """

    question: Question
    answer: Prose


class Attester(Model):
    """Who attests, as git knows them.

    Attributes:
        name: `user.name`.
        email: `user.email`.
    """

    name: Line
    email: Line


class Basis(Model):
    """All that a person stands for; an attestation is void when any of it is another.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        files: The patch files, in order.
        below: The digests of the patches that it stands on, lowest first.
        checks: Digest of the checks and what `patch.toml` states to be proved.
        title: The title that is posted.
        body: Digest of the body that is posted.
        records: The records that figures are from, each with its seal.
        contribution: Digest of `[contribution]` of `patch.toml`.
        rules: Digest of the upstream's rules.
        gate: The gate's rows.
        tool: contribbot's version.
    """

    patch: Name
    upstream: Name
    repository: Line
    files: Annotated[tuple[FileDigest, ...], Field(strict=False, min_length=1)]
    below: Annotated[tuple[FileDigest, ...], Field(strict=False)] = ()
    checks: Sha256
    title: Line
    body: Sha256
    records: Annotated[tuple[FileDigest, ...], Field(strict=False, min_length=1)]
    contribution: Sha256
    rules: Sha256
    gate: Annotated[tuple[Row, ...], Field(strict=False, min_length=1)]
    tool: Line


class Attestation(Model):
    """The content of `attestations/NAME.json`.

    Attributes:
        kind: What it is.
        basis: What it is bound to.
        looked: When the gate asked GitHub.
        person: Who attests.
        time: When.
        answers: What was asked and answered.
        seal: SHA-256 over all the rest. It shows an edit, not a forger.
    """

    kind: Literal["contribbot/attestation/v1"] = KIND
    basis: Basis
    looked: Annotated[datetime, Field(strict=False)]
    person: Attester
    time: Annotated[datetime, Field(strict=False)]
    answers: Annotated[tuple[Answer, ...], Field(strict=False, min_length=1)]
    seal: str = ""

    def sealed(self) -> Attestation:
        """Return it with its seal."""
        return self.model_copy(update={"seal": seal_of(self)})

    @property
    def intact(self) -> bool:
        """Whether it is as it was written."""
        return self.seal == seal_of(self)


def seal_of(attestation: Attestation) -> str:
    """Return the SHA-256 over an attestation without its seal, in hexadecimal."""
    return json_digest(attestation.model_dump(mode="json", exclude={"seal"}))


def json_digest(value: object) -> str:
    """Return the SHA-256 over canonical JSON: keys sorted, no white space, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
