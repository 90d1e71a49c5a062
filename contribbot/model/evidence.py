"""The record of one verification: an in-toto Statement with our details beside it.

Sources: in-toto Attestation Framework, Statement v1 and ResourceDescriptor v1;
predicate Test Result v0.1.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, StringConstraints

from contribbot.model.base import Model, ObjectId, Sha256
from contribbot.model.machine import Machine
from contribbot.model.outcome import Outcome, StageResult, Verdict
from contribbot.model.pin import Pin, Upstream

STATEMENT: Final = "https://in-toto.io/Statement/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
DETAILS: Final = "contribbot/evidence/v1"

Result = Literal["PASSED", "WARNED", "FAILED"]
#: What can be wrong with a runner. `lost`: it never sent an answer; only who waits for one
#: can say that.
FaultKind = Literal[
    "gpu-not-visible", "gpu-hung", "memory-fault", "hip-error", "out-of-memory", "disk-full",
    "driver-mismatch", "preflight-failed", "lost",
]  # fmt: skip
#: Variables and files hold one line each.
_Words = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=500)]


class DigestSet(Model):
    """Digests of one thing, by in-toto's names of the algorithms.

    Attributes:
        sha256: SHA-256.
        gitCommit: git's id of a commit.
        gitTree: git's id of a tree.
    """

    sha256: Sha256 | None = None
    gitCommit: ObjectId | None = None  # noqa: N815  in-toto's spelling
    gitTree: ObjectId | None = None  # noqa: N815  in-toto's spelling


class Resource(Model):
    """A thing that took part (in-toto ResourceDescriptor).

    Attributes:
        name: What people call it.
        digest: What it is.
    """

    name: str
    digest: DigestSet


class RunnerFault(Model):
    """Why an outcome says nothing of the patch: the machine that it ran on was at fault.

    Kept as `runner_fault` in the details of an outcome that is unavailable.

    Attributes:
        kind: What kind of thing went wrong.
        said: What was seen, in one line.
    """

    kind: FaultKind
    said: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class RunOf(Model):
    """The run of GitHub Actions that a record comes from, as the runner was told.

    Attributes:
        run_id: GitHub's number of the run.
        attempt: Which attempt of it, from 1.
        job: The job's id in the plan; without a plan the workflow's name of the job.
        repository: The queue's repository, `owner/name`.
        commit: The queue's commit that was checked out.
    """

    run_id: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=1)]
    job: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
    repository: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$", max_length=140),
    ]
    commit: ObjectId


class Container(Model):
    """The container that something ran in, as the job that started it says.

    Attributes:
        image: The image by its digest, `registry/name@sha256:…`.
        flags: The container's options, one word each.
    """

    image: Annotated[
        str,
        StringConstraints(
            pattern=r"^[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$", max_length=300
        ),
    ]
    flags: Annotated[tuple[_Words, ...], Field(strict=False, max_length=100)] = ()


class Details(Model):
    """What the test-result predicate has no field for.

    Attributes:
        type: What these details are.
        tool: contribbot's version.
        tool_sha256: Digest of contribbot's own source.
        command: The command that shows it again.
        started: When the oldest of its outcomes was seen (UTC). An outcome that was
            remembered keeps the time at which the work was done.
        finished: When the newest of them was seen (UTC).
        patch: The patch.
        patch_sha256: Digest of its patch files.
        checks_sha256: Digest of its checks.
        below: Digests of the patches that it stands on, by name.
        upstream: The upstream.
        pin: The pin's tag.
        pin_sha256: Digest of the pin and of what was known of the upstream.
        base_commit: What the patch was applied on, in the store.
        machine: The machine.
        verdict: What the outcomes amount to.
        open: Targets that were asked for and could not run there. Not passes.
        stages: The outcomes, with everything that was seen.
        run: The run of GitHub Actions that it comes from; None: not from there.
        container: The container that it ran in; None: none was named.
    """

    type: Literal["contribbot/evidence/v1"] = DETAILS
    tool: str
    tool_sha256: Sha256
    command: str
    started: Annotated[datetime, Field(strict=False)]
    finished: Annotated[datetime, Field(strict=False)]
    patch: str
    patch_sha256: Sha256
    checks_sha256: Sha256
    below: dict[str, Sha256]
    upstream: str
    pin: str
    pin_sha256: Sha256
    base_commit: ObjectId
    machine: Machine
    verdict: Annotated[Verdict, Field(strict=False)]
    open: Annotated[tuple[str, ...], Field(strict=False)]
    stages: Annotated[tuple[StageResult, ...], Field(strict=False)]
    run: RunOf | None = None
    container: Container | None = None


class TestResult(Model):
    """in-toto's test-result predicate v0.1, with our details beside it.

    Attributes:
        result: Over all tests that ran.
        configuration: What the tests were run with.
        passedTests: Names of those that passed, as `stage/check@target`.
        warnedTests: Always empty: contribbot has no half passes.
        failedTests: Names of those that failed.
        contribbot: Our details.
    """

    __test__ = False  # not a pytest class, whatever its name says

    result: Result
    configuration: Annotated[tuple[Resource, ...], Field(strict=False)]
    passedTests: Annotated[tuple[str, ...], Field(strict=False)]  # noqa: N815  in-toto's spelling
    warnedTests: Annotated[tuple[str, ...], Field(strict=False)]  # noqa: N815  in-toto's spelling
    failedTests: Annotated[tuple[str, ...], Field(strict=False)]  # noqa: N815  in-toto's spelling
    contribbot: Details


class Statement(Model):
    """An in-toto Statement v1 about one patch on one machine.

    Attributes:
        type: Always in-toto's Statement v1.
        subject: The patch (SHA-256) and the patched tree (git's id).
        predicateType: Always in-toto's test-result v0.1.
        predicate: The outcome.
        seal: SHA-256 over all the rest, as canonical JSON. It shows an edit, not a
            forger: whoever can write the file can write a new seal.
    """

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT, alias="_type")
    subject: Annotated[tuple[Resource, ...], Field(strict=False, min_length=2, max_length=2)]
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"] = TEST_RESULT  # noqa: N815  in-toto's spelling
    predicate: TestResult
    seal: str = Field(default="", alias="contribbot_seal")


def seal_of(document: dict[str, JsonValue]) -> str:
    """Return the SHA-256 over a statement without its seal, in hexadecimal.

    Canonical JSON here: keys sorted, no white space, UTF-8.
    """
    rest = {key: value for key, value in document.items() if key != "contribbot_seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


#: The predicate's word for each verdict.
RESULTS: Final[dict[Verdict, Result]] = {
    Verdict.PROVED: "PASSED",
    Verdict.INCOMPLETE: "WARNED",
    Verdict.REFUTED: "FAILED",
}


def pin_digest(pin: Pin, upstream: Upstream) -> str:
    """Return the SHA-256 over a pin and what is known of its upstream, in hexadecimal."""
    text = pin.model_dump_json() + "\n" + upstream.model_dump_json()
    return hashlib.sha256(text.encode()).hexdigest()


def names_of(stages: tuple[StageResult, ...], outcome: Outcome) -> tuple[str, ...]:
    """Return the names of the outcomes of one kind, each as `stage/check@target`."""
    return tuple(_name(one) for one in stages if one.outcome is outcome)


def _name(result: StageResult) -> str:
    check = result.details.get("check")
    return f"{result.stage}/{check}@{result.target}" if check else f"{result.stage}@{result.target}"
