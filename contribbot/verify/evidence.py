"""Make, write and read the records of verifications, and compare the records with the queue."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue, ValidationError

import contribbot
from contribbot.errors import ContribbotError
from contribbot.files import tool_digest, write_atomically
from contribbot.git.pins.sources import remote_commit
from contribbot.git.repository import ask_git
from contribbot.machine import actions_run, job_container, this_machine
from contribbot.model.evidence import (
    DETAILS,
    RAN,
    RESULTS,
    SCHEMA,
    SEEN,
    TEST_RESULT,
    Details,
    DigestSet,
    Machine,
    Outcome,
    PatchReport,
    Resource,
    StageResult,
    Statement,
    TestResult,
    Verdict,
    names_of,
    pin_digest,
    seal_of,
)
from contribbot.model.lifecycle import TargetState
from contribbot.model.patch import Patch, PatchSpec
from contribbot.model.record import (
    ApplyDetails,
    CodeRecord,
    CompileDetails,
    EmulateDetails,
    Placed,
    SourceDetails,
    StageDetails,
)
from contribbot.queue import history
from contribbot.queue.history import Refutation, RetiredEvent, VerifiedEvent
from contribbot.queue.load import Queue
from contribbot.verify.verdict import judge, open_targets, results_for

#: The longest time by which a record's date may be later than this machine's clock.
_AHEAD: Final = timedelta(minutes=5)


class State(enum.StrEnum):
    """The state of a record, compared with the queue's present content."""

    #: The record is about the queue's present patch, checks and base.
    FRESH = "fresh"
    #: The record is about an earlier state of the patch, its checks or its base.
    STALE = "stale"
    #: The record was changed after it was written, or contradicts itself.
    TAMPERED = "tampered"
    #: The record is about a patch that left the queue.
    RETIRED = "retired"
    #: The file is not a record that contribbot wrote, or not about a patch of this queue.
    FOREIGN = "foreign"
    #: The record is in the queue's git history, not in the folder, and would still count.
    REMOVED = "removed"


@dataclass(frozen=True)
class Record:
    """A file of evidence, its state, and the reason for the state."""

    path: Path
    state: State
    why: str
    statement: Statement | None = None

    @property
    def details(self) -> Details | None:
        """The outcomes and facts of the record; None: the file holds no readable record."""
        return self.statement.predicate.contribbot if self.statement else None


def placed(stages: Iterable[StageResult]) -> list[Placed]:
    """Return the details of the stages that ran code of the trees on the machine."""
    return [row.details for row in stages if isinstance(row.details, Placed)]


def triton_of(details: StageDetails) -> str:
    """Return the name and release of the Triton that compiled kernels; empty: no Triton did."""
    if isinstance(details, EmulateDetails) and details.code is None:
        return details.triton
    code = details.code if isinstance(details, EmulateDetails) else details
    if isinstance(code, CompileDetails | CodeRecord) and code.toolchain.kind == "triton":
        return code.toolchain.name
    return ""


def triton_releases(stages: Iterable[StageResult]) -> str:
    """Return the releases of Triton that compiled the kernels of some stages; empty: no Triton."""
    names = {triton_of(row.details) for row in stages if row.details} - {""}
    return ", ".join(sorted(names)).replace("triton ", "")


@dataclass(frozen=True)
class Source:
    """A record with its label in a text, and its path relative to the queue's folder."""

    label: str
    record: Record
    file: str
    details: Details
    #: The installed releases under the tree's files that are not the pin's release.
    over: str

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """The outcomes of the record's stages."""
        return self.details.stages

    @property
    def seal(self) -> str:
        """The seal that the record's statement has; empty: no statement."""
        return self.record.statement.seal if self.record.statement else ""

    @property
    def gpus(self) -> str:
        """The names of the machine's GPUs; empty: no GPU."""
        names = [gpu.name for gpu in self.details.machine.gpus]
        return ", ".join(
            f"{name} x{names.count(name)}" if len(names) > 1 else name
            for name in dict.fromkeys(names)
        )

    @property
    def packages(self) -> str:
        """The versions of CUDA, ROCm, torch, Triton and Python, in one line."""
        machine = self.details.machine
        ran = placed(self.stages) if machine.gpus else []
        cuda = {details.accelerator.get("CUDA_VERSION", "") for details in ran}
        versions = [("CUDA", version) for version in sorted(cuda)]
        versions += [("ROCm", machine.rocm)]
        triton = triton_releases(self.stages) or machine.packages.get("triton", "")
        versions += [("torch", machine.packages.get("torch", "")), ("triton", triton)]
        return ", ".join([*(f"{name} {text}" for name, text in versions if text), machine.python])

    @property
    def day(self) -> date:
        """The day on which the verification ended."""
        return self.details.finished.date()

    def link(self, place: str) -> str:
        """Return the web address of the record's file; empty: the queue is not published."""
        # A record outside the queue's folder is not published.
        inside = place and not self.file.startswith("/")
        return f"{place.rstrip('/')}/{quote(self.file)}" if inside else ""


def record_path(folder: Path, patch: str, machine: Machine) -> Path:
    """Return the path of the record for a patch and a machine."""
    return folder / patch / f"{machine.slug}.json"


def read_records(queue: Queue, folder: Path, patch: str = "") -> list[Record]:
    """Return the records in a folder, each with its state."""
    return [judge_record(queue, path) for path in sorted(folder.glob(f"{patch or '*'}/*.json"))]


def judge_record(queue: Queue, path: Path) -> Record:
    """Return the record in a file, with its state."""
    if not path.is_file():
        return Record(path, State.FOREIGN, "not a file")
    return _judge_content(queue, path, path.read_bytes())


def _judge_content(queue: Queue, path: Path, content: bytes) -> Record:
    try:
        document = json.loads(content)
        # Some JSON cannot be written as UTF-8, or nests too deeply for this reader.
        seal = seal_of(document if isinstance(document, dict) else {})
    except (ValueError, RecursionError) as error:
        return Record(path, State.TAMPERED, f"not JSON: {error}")
    predicate = document.get("predicate") if isinstance(document, dict) else None
    ours = predicate.get("contribbot") if isinstance(predicate, dict) else None
    if ours is None or document.get("predicateType") != TEST_RESULT:
        return Record(path, State.FOREIGN, "not a record that contribbot writes")
    schema = ours.get("type") if isinstance(ours, dict) else None
    other = isinstance(schema, str) and schema.startswith(SCHEMA) and schema != DETAILS
    if other and document.get("contribbot_seal") == seal:
        name = path.parent.name
        if name not in queue.specs:
            return Record(path, *_outside(queue, path, name))
        why = f"its schema is not the one of this version; make it anew: contribbot verify {name}"
        return Record(path, State.STALE, why)
    # Statement uses the schema of Details; building this schema takes 15 ms.
    Details.model_rebuild()
    try:
        statement = Statement.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Record(path, State.TAMPERED, f"not valid: {where}: {first['msg']}")
    state, why = _worth(queue, path, statement, seal)
    return Record(path, state, why, statement)


def _outside(queue: Queue, path: Path, name: str) -> tuple[State, str]:
    """Judge a record about a patch that is not in the queue."""
    # The folder's name is compared first: the name in a record may be no valid path.
    if path.parent.name == name and any(
        isinstance(event, RetiredEvent) for event in history.read(queue.folder, name)
    ):
        return State.RETIRED, f"about {name}, which left the queue"
    return State.FOREIGN, f"about {name}, which is no patch of this queue"


def _worth(queue: Queue, path: Path, statement: Statement, seal: str) -> tuple[State, str]:
    """Return the state of a record, and the reason; `seal`: the seal of the file's content."""
    details = statement.predicate.contribbot
    name, slug = details.patch, details.machine.slug
    if problem := contradiction(statement, seal):
        return State.TAMPERED, problem
    if name not in queue.specs:
        return _outside(queue, path, name)
    if (path.parent.name, path.stem) != (name, slug):
        return State.FOREIGN, f"its place is {name}/{slug}.json"
    if details.upstream != queue.specs[name].upstream:
        return State.FOREIGN, f"about a patch for {details.upstream}"
    return _compared(queue, details)


def contradiction(statement: Statement, seal: str) -> str:
    """Return how a record was changed or contradicts itself; empty: the record is consistent."""
    if statement.seal != seal:
        return "its content does not match its seal"
    details = statement.predicate.contribbot
    # Another release of contribbot may judge otherwise: the record's verdict stays, and the other
    # facts are compared with the verdict.
    verdict = None if details.tool_sha256 == tool_digest() else details.verdict
    try:
        again = _unsealed(details, verdict).model_copy(update={"seal": seal})
        ahead = details.finished > datetime.now(UTC) + _AHEAD
    except (KeyError, StopIteration, IndexError, TypeError, ValueError) as error:
        return f"its outcomes cannot be read: {error}"
    if statement != again and _document(statement) != _document(again):
        return "its verdict, tests, trees or times are not what its outcomes say"
    said = f"dated in the future, {details.finished.isoformat()}: see to this clock and the one "
    said += f"that it was made by, then contribbot verify --force {details.patch}"
    return said if ahead else ""


def _compared(queue: Queue, details: Details) -> tuple[State, str]:
    """Return the state of a record compared with the queue's present patch, and the reason."""
    try:
        patch = queue.patch(details.patch)
        below = {name: queue.patch(name).digest for name in queue.below(patch.name)}
    except ContribbotError as error:
        return State.STALE, f"the patch cannot be read now: {error.message}"
    pin = pin_digest(patch.pin, patch.upstream)
    verdict = judge(details.stages, details.machine.targets)
    for holds, problem in (
        (details.pin == patch.spec.pin, f"the patch's pin is {patch.spec.pin} now"),
        (details.pin_sha256 == pin, "the pin or the upstream's description has changed since"),
        (details.patch_sha256 == patch.digest, "the patch has changed since"),
        (details.checks_sha256 == patch.checks_digest, "the checks have changed since"),
        (details.below == below, "what it depends on has changed since"),
        (details.verdict is verdict, "another contribbot made it, which judged otherwise"),
    ):
        if not holds:
            return State.STALE, problem
    return State.FRESH, f"{details.verdict} on {details.machine.slug}"


def compare_with_remote(queue: Queue, record: Record) -> Record:
    """Return the record, or a stale copy if the pin's tag has moved on the remote."""
    details = record.details
    if record.state is not State.FRESH or details is None:
        return record
    patch = queue.patch(details.patch)
    source = next(
        (row.details for row in details.stages if isinstance(row.details, SourceDetails)), None
    )
    if source is None or source.kind != "git":
        return record
    known = remote_commit(patch.pin, patch.upstream)
    if known in {None, source.commit}:
        return record
    why = f"{patch.pin.title} is commit {known!s:.12} now, not {source.commit:.12}"
    return replace(record, state=State.STALE, why=why)


def event_of(details: Details) -> VerifiedEvent:
    """Return the journal's event for the verification that made a record."""
    return history.verified_event(
        details,
        details.machine,
        digest=details.patch_sha256,
        checks=details.checks_sha256,
        time=details.finished,
    )


def refutations(queue: Queue, name: str, records: Iterable[Record]) -> tuple[Refutation, ...]:
    """Return the standing refutations of a patch, from its journal and from some records."""
    counting = {State.FRESH, State.STALE, State.REMOVED}
    own = (record.details for record in records if record.state in counting)
    # The journal's events come last: of events in the same second, the journal's events are later.
    events = [event_of(details) for details in own if details and details.patch == name]
    return history.standing_refutations([*events, *history.read(queue.folder, name)])


def refutes(queue: Queue, record: Record, records: Iterable[Record]) -> bool:
    """Return whether a unit that failed in this record still refutes the patch."""
    if (details := record.details) is None:
        return False
    failed = {row.unit for row in details.stages if row.outcome is Outcome.FAILED}
    standing = refutations(queue, details.patch, records) if failed else ()
    return not failed.isdisjoint((each.stage, each.entry, each.target) for each in standing)


def seen(record: Record) -> set[tuple[str, str, str, str]]:
    """Return the units of a record that passed or failed: patch, stage, entry and target."""
    if (details := record.details) is None:
        return set()
    return {(details.patch, *row.unit) for row in details.stages if row.outcome in SEEN}


def removed_records(queue: Queue, records: Sequence[Record]) -> list[Record]:
    """Return git's deleted records that refute, or that have units which no fresh record has."""
    written = ask_git(
        queue.folder, "log", "--relative", "--no-renames", "--diff-filter=AM", "--format=%H",
        "--name-only", "--", "evidence/*/*.json",
    )  # fmt: skip
    last: dict[str, str] = {}
    commit = ""
    for row in filter(None, written.splitlines()):
        if row.startswith("evidence/"):
            last.setdefault(row, commit)
        else:
            commit = row
    gone = {path: commit for path, commit in last.items() if not (queue.folder / path).exists()}
    answered = {unit for record in records if record.state is State.FRESH for unit in seen(record)}
    found = []
    for path, commit in gone.items():
        content = ask_git(queue.folder, "cat-file", "blob", f"{commit}:./{path}")
        record = _judge_content(queue, queue.folder / path, content.encode())
        unanswered = record.state is State.FRESH and not answered.issuperset(seen(record))
        if unanswered or refutes(queue, record, [*records, record]):
            why = f"git has it: git checkout {commit[:12]} -- {path}"
            found.append(replace(record, state=State.REMOVED, why=why))
    return found


def missing(queue: Queue, records: list[Record]) -> list[str]:
    """Return the patches of a queue that have no fresh record."""
    fresh = (record.details for record in records if record.state is State.FRESH)
    named = {details.patch for details in fresh if details}
    return [name for name in queue.specs if name not in named]


def state_evidence(report: PatchReport, patch: Patch, below: Sequence[Patch]) -> Statement | None:
    """Return the statement of a verification; None: the verification had no patched tree."""
    if report.base_commit is None or report.patched_tree is None:
        return None
    times = _times(report.stages)
    # Facts for which the predicate of in-toto has no field: outcomes, place, time and tools.
    details = Details(
        **{name: value for name, value in report if name != "patched_tree"},
        tool=contribbot.__version__,
        tool_sha256=tool_digest(),
        command=f"contribbot verify {patch.name}",
        started=times[0],
        finished=times[-1],
        patch_sha256=patch.digest,
        checks_sha256=patch.checks_digest,
        below={lower.name: lower.digest for lower in below},
        pin_sha256=pin_digest(patch.pin, patch.upstream),
        machine=this_machine(),
        run=actions_run(),
        container=job_container(),
    )
    return statement_of(details)


def statement_of(details: Details, verdict: Verdict | None = None) -> Statement:
    """Return the sealed statement of some details; `verdict`: in place of a new judgement."""
    statement = _unsealed(details, verdict)
    return statement.model_copy(update={"seal": seal_of(_document(statement))})


def _unsealed(details: Details, verdict: Verdict | None) -> Statement:
    stages = details.stages
    trees = next(
        row.details.trees
        for row in stages
        if isinstance(row.details, ApplyDetails) and row.details.trees is not None
    )
    verdict = verdict or judge(stages, details.machine.targets)
    times = _times(stages)
    title = f"{details.upstream} {details.pin}"
    derived = {
        "command": f"contribbot verify {details.patch}",
        "started": times[0],
        "finished": times[-1],
        "verdict": verdict,
        "open": tuple(open_targets(stages)),
    }
    predicate = TestResult(
        result=RESULTS[verdict],
        configuration=(
            _resource(title, gitCommit=details.base_commit, gitTree=trees.base_tree),
            _resource(f"{details.patch}/checks", sha256=details.checks_sha256),
        ),
        passedTests=names_of(stages, Outcome.PASSED),
        warnedTests=(),
        failedTests=names_of(stages, Outcome.FAILED),
        contribbot=details.model_copy(update=derived),
    )
    subject = (
        _resource(f"patches/{details.patch}", sha256=details.patch_sha256),
        _resource(f"{title} with {details.patch}", gitTree=trees.patched_tree),
    )
    return Statement(subject=subject, predicate=predicate)


def _resource(name: str, **digests: str) -> Resource:
    return Resource(name=name, digest=DigestSet(**digests))


def _times(stages: Sequence[StageResult]) -> list[datetime]:
    return sorted(result.seen for result in stages if result.seen is not None)


def _document(statement: Statement) -> dict[str, JsonValue]:
    document: dict[str, JsonValue] = json.loads(
        statement.model_dump_json(by_alias=True, exclude_none=True)
    )
    return document


def write_evidence(folder: Path, statement: Statement) -> Path:
    """Write a statement as the record of its patch and machine, in place of an earlier record."""
    details = statement.predicate.contribbot
    path = record_path(folder, details.patch, details.machine)
    # The text is ASCII, as in a record that a runner makes, so that attested bytes stay the same.
    text = json.dumps(_document(statement), indent=2)
    write_atomically(path, text.encode() + b"\n")
    return path


def asked(spec: PatchSpec) -> list[str]:
    """Return the targets of a patch's entries, in the form of `--require`."""
    ran = [target for stage, _, target in spec.units if stage in RAN]
    made = [f"{stage}:{target}" for stage, _, target in spec.units if stage not in RAN]
    return list(dict.fromkeys([*ran, *made]))


def target_states(
    queue: Queue, name: str, records: Sequence[Record] | None = None
) -> tuple[TargetState, ...]:
    """Return the state of each target of a patch, from the patch's records and journal."""
    states = dict.fromkeys(asked(queue.specs[name]), "missing")
    records = read_records(queue, queue.evidence, name) if records is None else records
    for state in (State.STALE, State.FRESH):
        for details in (record.details for record in records if record.state is state):
            for need in states if details else ():
                results = results_for(details.stages if details else (), need)
                if {row.outcome for row in results} == {Outcome.PASSED}:
                    states[need] = str(state)
    for refutation in refutations(queue, name, records):
        needs = {refutation.target, f"{refutation.stage}:{refutation.target}"}
        states |= dict.fromkeys(needs & states.keys(), "refuted")
    return tuple(TargetState(target=need, evidence=state) for need, state in states.items())
