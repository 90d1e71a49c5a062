"""The record of a verification: an in-toto Statement v1 (Test Result v0.1) with more details."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import operator
from collections.abc import Collection
from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    GetPydanticSchema,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    create_model,
)

from contribbot.model import record
from contribbot.model.base import Loose, Many, Model, ObjectId, Sha256, Time
from contribbot.model.checks import is_emulated
from contribbot.model.patch import Pin, Upstream


class Gpu(Model):
    """A GPU of a machine: its vendor, target, name and driver."""

    vendor: str
    target: str
    name: str
    driver: str


class Machine(Model):
    """The facts of a machine on which an outcome may depend, in addition to the inputs."""

    system: str
    cpu: str
    cores: int
    python: str
    git: str
    packages: dict[str, str]
    rocm: str
    gpus: Many[Gpu]

    @property
    def targets(self) -> frozenset[str]:
        """The hardware that checks can run on here: `cpu`, `cuda`, gfx targets."""
        gpus = {"cuda" if gpu.vendor == "nvidia" else gpu.target for gpu in self.gpus}
        return HOST_TARGETS | gpus

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all facts of the machine, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def slug(self) -> str:
        """The machine's anonymous name in file names, such as `x86_64-cpu-1a2b3c4d`."""
        kind = "-".join(dict.fromkeys(gpu.target for gpu in self.gpus)) or "cpu"
        return f"{self.system.split()[-1]}-{kind}-{self.fingerprint[:8]}"


class Outcome(enum.StrEnum):
    """The outcome of a stage on one target."""

    PASSED = "passed"
    FAILED = "failed"
    #: This machine cannot run the proof; the result's `reason` says why.
    UNAVAILABLE = "unavailable"
    #: The proof was not requested, or could not matter any more; `reason` says why.
    SKIPPED = "skipped"


#: Outcomes that show that a stage ran.
SEEN: Final = frozenset({Outcome.PASSED, Outcome.FAILED})


class Verdict(enum.StrEnum):
    """The verdict on a patch, from its outcomes on this machine."""

    #: All that can run here passed, and an entry proves the patch (from red to green, or faster).
    PROVED = "proved"
    #: A claim was tested, and is false.
    REFUTED = "refuted"
    #: No entry failed, and no entry proves the patch.
    INCOMPLETE = "incomplete"
    #: Verdicts on checks without a change: a check failed as stated, or all checks passed.
    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"

    @property
    def settled(self) -> bool:
        """Whether the verdict leaves no work to do: neither refuted nor incomplete."""
        return self not in {Verdict.REFUTED, Verdict.INCOMPLETE}


class PatchFault(enum.StrEnum):
    """The state of a patch's files that prevents a stage from running."""

    #: A file of the patch is invalid.
    INVALID = "invalid"
    #: The patch is not finished: it has no commit, or states no proof.
    UNFINISHED = "unfinished"


class StageResult(Model):
    """The result of a stage for an entry on a target; each stage has a subclass."""

    stage: str = ""
    target: str
    #: The name of the entry; empty: the stage has no entries.
    label: str = ""
    outcome: Loose[Outcome]
    reason: str
    seconds: float = Field(ge=0, allow_inf_nan=False)
    cached: bool = False
    #: The time when the stage ran; None: it did not run.
    seen: Time | None = None
    runner_fault: record.RunnerFault | None = None
    preflight: record.PreflightRecord | None = None
    patch_fault: Loose[PatchFault] | None = None
    #: Further facts that the stage reports; None: no facts.
    details: record.StageDetails | None = None

    @classmethod
    def stage_name(cls) -> str:
        """Return the name of the stage whose outcomes have this class."""
        return str(cls.model_fields["stage"].default)

    @property
    def unit(self) -> tuple[str, str, str]:
        """The result's stage, label and target."""
        return self.stage, self.label, self.target

    @property
    def sentence(self) -> str:
        """The result's reason without the label."""
        return self.reason.removeprefix(f"{self.label}: " if self.label else "")

    @property
    def stated(self) -> record.StatedDetails | None:
        """The details of an entry on both trees; None: another stage, or the stage did not run."""
        return self.details if isinstance(self.details, record.StatedDetails) else None


def _result(stage: str, details: type[record.StageDetails]) -> type[StageResult]:
    """Return the type of a stage's results, with the type of the stage's details."""
    literal = Literal[stage]  # type: ignore[valid-type]  # mypy knows no literal of a variable
    return create_model(
        f"{stage.capitalize()}StageResult",
        __base__=StageResult,
        __doc__=f"An outcome of the stage `{stage}`.",
        stage=(literal, stage),
        details=(details | None, None),  # type: ignore[arg-type]  # a type made at run time
    )


SourceStageResult = _result("source", record.SourceDetails)
ApplyStageResult = _result("apply", record.ApplyDetails)
StyleStageResult = _result("style", record.StyleDetails)
HipifyStageResult = _result("hipify", record.HipifyDetails)
CompileStageResult = _result("compile", record.CompileDetails)
BuildStageResult = _result("build", record.BuildDetails)
ReproduceStageResult = _result("reproduce", record.CheckDetails)
NumericsStageResult = _result("numerics", record.NumericsDetails)
EmulateStageResult = _result("emulate", record.EmulateDetails)
BenchStageResult = _result("bench", record.BenchDetails)
BehaviourStageResult = _result("behaviour", record.BehaviourDetails)

#: The result of any stage; the key `stage` decides the class.
AnyResult = Annotated[
    StageResult,
    GetPydanticSchema(
        lambda _source, schema_of: schema_of(
            Annotated[
                functools.reduce(operator.or_, StageResult.__subclasses__()),
                Field(discriminator="stage"),
            ]
        )
    ),
]
#: A parser for the result of any stage.
RESULT: TypeAdapter[StageResult] = TypeAdapter(AnyResult)

#: Stages that run on their target. `compile` has targets, too, but compiles for them on any
#: machine.
ON_HARDWARE = frozenset({"reproduce", "numerics", "bench"})
#: Stages that run a patch's code: on hardware, or in the emulator.
RAN: Final = ON_HARDWARE | {"emulate"}
#: The order of verdicts: if several machines have a verdict, the first verdict here wins.
_ORDER: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
#: A remark for people on results of emulated targets.
NOT_A_GPU: Final = "emulated from AMD's instruction reference; not run on a GPU"

#: Targets that every machine has.
HOST_TARGETS = frozenset({"any", "cpu"})
#: The stage that runs checks on a release without the patch; a failure there refutes nothing.
BEHAVIOUR = "behaviour"


def need_of(name: str) -> tuple[str, str]:
    """Return the stage (or "") and the target of a `--require` name, such as `compile:gfx942`."""
    stage, _, target = name.partition(":") if not is_emulated(name) else ("", "", name)
    return (stage, target) if target else ("", stage)


def first_verdict(verdicts: Collection[Verdict]) -> Verdict | None:
    """Return the verdict of several machines together; None: no verdict."""
    return next((each for each in _ORDER if each in verdicts), None)


def target_name(stage: str, target: str) -> str:
    """Return the name of a target: with the stage, unless the stage runs the patch's code."""
    return target if stage in RAN else f"{stage}:{target}".removesuffix(":any")


def target_order(name: str) -> tuple[str, int, int, str]:
    """Return a key that sorts targets: any, cpu, cuda, then AMD's by generation."""
    stage, _, target = name.rpartition(":")
    host = ("any", "cpu", "cuda")
    return stage, host.index(target) if target in host else len(host), len(target), target


STATEMENT: Final = "https://in-toto.io/Statement/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
#: The schema of a record's details: without its version, and with the version.
SCHEMA: Final = "contribbot/evidence/"
DETAILS: Final = "contribbot/evidence/v2"

Result = Literal["PASSED", "WARNED", "FAILED"]
#: A line of at most 500 characters without control characters.
_Words = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=500)]


class DigestSet(Model):
    """Digests of a file, commit or tree, by in-toto's names of the algorithms."""

    sha256: Sha256 | None = None
    gitCommit: ObjectId | None = None  # noqa: N815  in-toto's spelling
    gitTree: ObjectId | None = None  # noqa: N815  in-toto's spelling


class Resource(Model):
    """An input of a verification (in-toto ResourceDescriptor)."""

    name: str
    digest: DigestSet


class RunOf(Model):
    """The run of GitHub Actions that made a record, as reported by Actions."""

    run_id: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=1)]
    job: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
    repository: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$", max_length=140),
    ]
    commit: ObjectId


class Container(Model):
    """The container in which a verification ran, as reported by its job."""

    image: Annotated[
        str,
        StringConstraints(
            pattern=r"^[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$", max_length=300
        ),
    ]
    flags: Annotated[tuple[_Words, ...], Field(strict=False, max_length=100)] = ()


class Details(Model):
    """The facts of a record for which the test-result predicate has no field."""

    type: Literal["contribbot/evidence/v2"] = DETAILS
    tool: str
    tool_sha256: Sha256
    command: str
    started: Time
    finished: Time
    patch: str
    patch_sha256: Sha256
    checks_sha256: Sha256
    below: dict[str, Sha256]
    upstream: str
    pin: str
    pin_sha256: Sha256
    base_commit: ObjectId
    machine: Machine
    verdict: Loose[Verdict]
    open: Many[str]
    stages: Many[AnyResult]
    run: RunOf | None = None
    container: Container | None = None


class TestResult(Model):
    """in-toto's test-result predicate v0.1, with contribbot's details in addition."""

    __test__ = False  # tells pytest that this is no class of tests

    result: Result
    configuration: Many[Resource]
    passedTests: Many[str]  # noqa: N815  in-toto's spelling
    warnedTests: Many[str]  # noqa: N815  in-toto's spelling
    failedTests: Many[str]  # noqa: N815  in-toto's spelling
    contribbot: Details


class Statement(Model):
    """An in-toto Statement v1 about a patch on a machine."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT, alias="_type")
    subject: Annotated[tuple[Resource, ...], Field(strict=False, min_length=2, max_length=2)]
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"] = TEST_RESULT  # noqa: N815  in-toto's spelling
    predicate: TestResult
    seal: str = Field(default="", alias="contribbot_seal")


def seal_of(document: dict[str, JsonValue]) -> str:
    """Return the SHA-256 of a statement's canonical JSON without the seal, in hexadecimal."""
    rest = {key: value for key, value in document.items() if key != "contribbot_seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


#: The predicate's word for each verdict.
RESULTS: Final[dict[Verdict, Result]] = {
    Verdict.PROVED: "PASSED",
    Verdict.INCOMPLETE: "WARNED",
    Verdict.REFUTED: "FAILED",
    Verdict.REPRODUCED: "PASSED",
    Verdict.NOT_REPRODUCED: "PASSED",
}


def pin_digest(pin: Pin, upstream: Upstream) -> str:
    """Return the SHA-256 of a pin and its upstream's description, in hexadecimal."""
    text = pin.model_dump_json() + "\n" + upstream.model_dump_json()
    return hashlib.sha256(text.encode()).hexdigest()


def names_of(stages: tuple[StageResult, ...], outcome: Outcome) -> tuple[str, ...]:
    """Return the names of all results with an outcome, each as `stage/check@target`."""
    return tuple(
        "/".join(filter(None, (result.stage, result.label))) + f"@{result.target}"
        for result in stages
        if result.outcome is outcome
    )


class PatchReport(Model):
    """The results of a patch's verification on this machine."""

    patch: str
    upstream: str
    pin: str
    base_commit: str | None
    patched_tree: str | None = None
    verdict: Loose[Verdict]
    stages: Many[AnyResult]
    open: Many[str]

    @classmethod
    def of_record(cls, details: Details) -> PatchReport:
        """Return the report of a record; its `patched_tree` is None, as records lack the tree."""
        return cls.model_validate(details, from_attributes=True)


class VerifyReport(Model):
    """The JSON document of `verify`: a report for each patch."""

    patches: Many[PatchReport]
