"""Opening what a job sent. Nothing in it is believed: not its sizes, its names, its digests.

Everything is read into memory, within limits, and nothing is written anywhere. Sources: PKWARE
APPNOTE 6.3.10 (end of central directory, general purpose flags, external attributes).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from pydantic import JsonValue, ValidationError

from contribbot import process
from contribbot.errors import (
    CommandTimeoutError,
    ContribbotError,
    GitHubError,
    MachineError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from contribbot.files import run_folder, stores_folder, write_atomically
from contribbot.git.apply import apply_series
from contribbot.git.repository import Store
from contribbot.git.source import ref_for
from contribbot.github.auth import Server
from contribbot.github.fields import whole
from contribbot.github.refusals import clean_line
from contribbot.model.base import Model
from contribbot.model.evidence import (
    HOST_TARGETS,
    ON_HARDWARE,
    SEEN,
    Details,
    Outcome,
    RunOf,
    StageResult,
    Statement,
)
from contribbot.model.patch import Patch, units_of
from contribbot.queue.load import Queue
from contribbot.runners.config import WORKFLOW, check_workflow, no_run
from contribbot.runners.model import (
    PLAN_ARTIFACT,
    PREFIX,
    Artifact,
    Job,
    JobDone,
    PatchDone,
    Run,
    RunJob,
    is_version,
)
from contribbot.verify.evidence import State, judge_record

if TYPE_CHECKING:
    from github.GithubObject import GithubObject

    from contribbot.github.client import GitHub


MIB: Final = 1024 * 1024
#: What a job leaves, and the record of a patch on a machine.
JOB_FILE: Final = "job.json"
PLAN_FILE: Final = "plan.json"
_RECORD: Final = re.compile(
    r"records/([a-z0-9][a-z0-9._-]{0,79})/([A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.json)"
)
#: It is for people; nothing here opens it.
_LOGS: Final = "logs.tgz"
_END: Final = struct.Struct("<4s4H2LH")
_END_MARK: Final = b"PK\x05\x06"
#: What stands before it where the numbers are elsewhere (zip64), and how long that is.
_LOCATOR_MARK: Final = b"PK\x06\x07"
_LOCATOR: Final = 20
#: What says that the true number is elsewhere (zip64).
_ELSEWHERE_16: Final = 0xFFFF
_ELSEWHERE_32: Final = 0xFFFFFFFF
_ENCRYPTED: Final = 0x1
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: Characters of a name that are shown.
_SHOWN: Final = 80
#: Names that are devices on some systems, whatever their ending.
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """What an artifact may be at most."""

    packed: int = 64 * MIB
    files: int = 4096
    file: int = 16 * MIB
    unpacked: int = 256 * MIB
    directory: int = 2 * MIB


LIMITS: Final = Limits()


class RefusedArtifactError(Exception):
    """An artifact that is not what a job of contribbot leaves; says why, in one line."""


def open_answer(path: Path, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Return the files that a job left: `job.json` and `records/NAME/MACHINE.json`."""
    return _open(path, limits, _RECORD.fullmatch, JOB_FILE)


def open_plan(path: Path, limits: Limits = LIMITS) -> bytes:
    """Return the `plan.json` of a zip."""
    files = _open(path, limits, lambda _name: None, PLAN_FILE)
    if PLAN_FILE not in files:
        raise RefusedArtifactError(f"it has no {PLAN_FILE}")
    return files[PLAN_FILE]


def check_names(names: Mapping[str, int], limits: Limits = LIMITS) -> None:
    """Hold the files of a folder, which somebody unpacked, against the same limits."""
    if len(names) > limits.files:
        raise RefusedArtifactError(f"{len(names)} files; at most {limits.files}")
    for name, size in names.items():
        _check_name(name)
        _check_size(name, size, limits)
        if not (_RECORD.fullmatch(name) or name in {JOB_FILE, PLAN_FILE, _LOGS}):
            raise RefusedArtifactError(f"it has {_shown(name)}, which no job leaves")
    if sum(names.values()) > limits.unpacked:
        raise RefusedArtifactError(f"more than {limits.unpacked // MIB} MiB")


def too_large(size: int, limits: Limits = LIMITS) -> str:
    """Say that an artifact is too large."""
    return f"{size / MIB:,.0f} MiB; at most {limits.packed // MIB}"


def _open(path: Path, limits: Limits, fits: Callable[[str], object], only: str) -> dict[str, bytes]:
    size = path.stat().st_size
    if size > limits.packed:
        raise RefusedArtifactError(too_large(size, limits))
    _check_end(path, size, limits)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, limits, fits, only)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise RefusedArtifactError(f"not a sound zip: {error}") from error
    except (OSError, ValueError, RuntimeError, struct.error, UnicodeError) as error:
        # What the reader says of broken ones, beside its own class.
        raise RefusedArtifactError(f"not a sound zip: {error}") from error


def _check_end(path: Path, size: int, limits: Limits) -> None:
    """Look at the list of files before anything reads all of it into memory."""
    with path.open("rb") as file:
        file.seek(max(size - _LOCATOR - _END.size, 0))
        tail = file.read(_LOCATOR + _END.size)
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(_END_MARK) or end[-2:] != b"\0\0":
        raise RefusedArtifactError("not a zip, or cut short, or with something after its end")
    _, _, _, _, count, length, start, _ = _END.unpack(end)
    # A reader that sees it believes other numbers than these.
    if tail[: -_END.size].startswith(_LOCATOR_MARK):
        count = _ELSEWHERE_16
    if count == _ELSEWHERE_16 or _ELSEWHERE_32 in {length, start}:
        raise RefusedArtifactError(f"{_ELSEWHERE_16} files or more; at most {limits.files}")
    if count > limits.files:
        raise RefusedArtifactError(f"{count} files; at most {limits.files}")
    # The count is only a claim: what is read is as long as this says.
    if length > limits.directory:
        raise RefusedArtifactError(f"a list of files of {length} bytes; at most {limits.directory}")


def _read(
    archive: zipfile.ZipFile, limits: Limits, fits: Callable[[str], object], only: str
) -> dict[str, bytes]:
    """Read what is expected; whatever else there is makes all of it doubtful."""
    infos = archive.infolist()
    if len(infos) > limits.files:
        raise RefusedArtifactError(f"{len(infos)} files; at most {limits.files}")
    _check_entries(infos, limits)
    found: dict[str, bytes] = {}
    folders = {"records/", *_folders(infos)}
    for info in infos:
        name = info.orig_filename
        if info.is_dir() and name in folders:
            continue
        if name == _LOGS:
            continue
        if name != only and not fits(name):
            raise RefusedArtifactError(f"it has {_shown(name)}, which no job leaves")
        with archive.open(info) as file:
            content = file.read(info.file_size + 1)
        if len(content) != info.file_size:
            raise RefusedArtifactError(f"{_shown(name)}: its size is not what the list says")
        found[name] = content
    return found


def _folders(infos: Sequence[zipfile.ZipInfo]) -> set[str]:
    """Return the folders of records that files lie in."""
    return {f"{one.filename.rpartition('/')[0]}/" for one in infos if not one.is_dir()}


def _check_entries(infos: Sequence[zipfile.ZipInfo], limits: Limits) -> None:
    """Hold the list of files against the limits: all of it, before anything is unpacked."""
    seen: set[str] = set()
    for info in infos:
        # The reader cuts names at a NUL; this is what was there.
        name = info.orig_filename
        _check_name(name.removesuffix("/"))
        if name.casefold() in seen:
            raise RefusedArtifactError(f"it has {_shown(name)} twice")
        seen.add(name.casefold())
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG}:
            raise RefusedArtifactError(f"{_shown(name)} is a link or a device, and no file")
        if info.flag_bits & _ENCRYPTED:
            raise RefusedArtifactError(f"{_shown(name)} is encrypted")
        if info.compress_type not in _METHODS:
            raise RefusedArtifactError(f"{_shown(name)} is packed in an unusual way")
        _check_size(name, info.file_size, limits)
    if sum(one.file_size for one in infos) > limits.unpacked:
        raise RefusedArtifactError(f"it unpacks to more than {limits.unpacked // MIB} MiB")


def _check_size(name: str, size: int, limits: Limits) -> None:
    if size > limits.file:
        raise RefusedArtifactError(
            f"{_shown(name)}: {size / MIB:,.0f} MiB; at most {limits.file // MIB}"
        )


def _check_name(name: str) -> None:
    """Refuse a name that could mean a place outside, or something that is no file."""
    parts = name.split("/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        problem = "is an absolute path"
    elif any(part in {"", ".", ".."} for part in parts):
        problem = "leads elsewhere"
    elif "\\" in name or not name.isprintable() or not name.isascii():
        problem = "is no plain name"
    elif any(_DEVICES.match(part) for part in parts):
        problem = "is the name of a device"
    else:
        return
    raise RefusedArtifactError(f"{_shown(name)} {problem}")


def _shown(name: str) -> str:
    """Return a name as its sender wrote it, short, and in quotes that show what is odd."""
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")


M = TypeVar("M", bound=Model)
log: Final = logging.getLogger(__name__)

#: Runs that are looked through for one.
_RUNS: Final = 300


def read_runs(github: GitHub, repository: str, workflow: str, *, branch: str) -> tuple[Run, ...]:
    """Return the newest runs of a workflow that somebody dispatched on a branch or tag."""
    listed = github.workflow(repository, workflow).get_runs(
        branch=branch, event="workflow_dispatch"
    )
    return tuple(_answer(Run, one) for one in whole(itertools.islice(listed, _RUNS)))


def read_run(github: GitHub, repository: str, run_id: int) -> Run:
    """Return a run."""
    return _answer(Run, github.run(repository, run_id))


def read_jobs(github: GitHub, repository: str, run_id: int) -> tuple[RunJob, ...]:
    """Return the jobs of a run, each as it ran last."""
    # Whether `latest` also lists what a later attempt did not run again is not documented.
    listed = whole(github.run(repository, run_id).jobs("all"))
    found = [_answer(RunJob, one) for one in listed]
    last = {job.name: job.run_attempt for job in sorted(found, key=lambda job: job.run_attempt)}
    return tuple(job for job in found if job.run_attempt == last[job.name])


def read_artifacts(github: GitHub, repository: str, run_id: int) -> tuple[Artifact, ...]:
    """Return the artifacts of a run, of all its attempts."""
    return tuple(_answer(Artifact, one) for one in github.run(repository, run_id).get_artifacts())


def download(github: GitHub, repository: str, artifact: Artifact, place: Path, *, most: int) -> str:
    """Fetch the zip of an artifact, and return the SHA-256 of what came."""
    from contribbot.github.download import fetch  # noqa: PLC0415  start-up time

    path = f"{github.repository(repository).url}/actions/artifacts/{artifact.id}/zip"
    content = fetch(github.requester, path, most=most)
    place.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def cancel_run(github: GitHub, repository: str, run_id: int) -> bool:
    """Ask for a run's end; return whether there was something to end."""
    try:
        return github.run(repository, run_id).cancel()
    except RefusedError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        log.debug("run %d has ended by itself: %s", run_id, error)
        return False


def _answer(kind: type[M], said: GithubObject) -> M:
    """Return an answer as what it should be."""
    try:
        return kind.model_validate(said.raw_data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    raise GitHubError(f"{kind.__name__} of GitHub Actions: an answer of another shape at {key}")


VERIFIED: Final = "attestation verified"
NO_PROGRAM: Final = "attestation not verified: gh is not installed"
#: What gh needs to find its login; it alone gets a token, as variables or from its own files.
_NEEDED: Final = (
    "HOME", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN",
    "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy",
)  # fmt: skip
_SECONDS: Final = 60.0
#: How gh words that there is none, or one by somebody else; not that it could not ask.
_DENIED: Final = re.compile(
    r"no attestations? found|HTTP 404|verification failed|failed to verify|no matching|"
    r"verifying with issuer|expected \w+ to be", re.IGNORECASE,
)  # fmt: skip


def attested(
    path: Path,
    commit: str,
    *,
    repository: str,
    server: Server,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Say whether this very file was attested by the queue's own workflow, at this commit."""
    program = shutil.which("gh", path=environment.get("PATH"))
    if program is None:
        return NO_PROGRAM
    if server.local:
        return "attestation not verified: this GitHub has none"
    kept = {name: environment[name] for name in _NEEDED if environment.get(name)}
    given = {**kept, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        done = process.run(
            [
                program, "attestation", "verify", path, "--repo", repository,
                "--signer-workflow", f"{repository}/.github/workflows/{WORKFLOW}",
                "--source-digest", commit, "--hostname", server.host, "--deny-self-hosted-runners",
            ],
            env=process.clean_environment(given), accept=range(256), timeout=_SECONDS,
            tethered=True,
        )  # fmt: skip
    except CommandTimeoutError:
        return f"attestation not verified: gh gave no answer in {_SECONDS:g} s"
    except MachineError as error:
        return f"attestation not verified: {clean_line(error.message, 120)}"
    if done.returncode == 0:
        return VERIFIED
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"attestation not verified: {clean_line(said[-1] if said else 'gh says no', 120)}"


def is_denied(said: str) -> bool:
    """Say whether there is no good attestation, beyond that nobody could ask."""
    return said != VERIFIED and _DENIED.search(said) is not None


#: What is looked at again: most of it is printable all the same.
_UNUSUAL: Final = re.compile(r"[^\n\x20-\x7e]")


def parse(content: bytes) -> JsonValue:
    """Read JSON: no key twice, no number that is none or that only some can hold."""

    def unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key is there twice")
        return found

    def never(text: str) -> NoReturn:
        raise ValueError(f"{text} is no number of JSON")

    def finite(text: str) -> float:
        # 1e999 is JSON, and becomes infinity, which is not and would be written.
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]} is too large for a number")
        return number

    document: JsonValue = json.loads(
        content.decode("utf-8"), object_pairs_hook=unique, parse_constant=never, parse_float=finite
    )
    return document


def written(document: JsonValue, most: int) -> bytes:
    """Write JSON for a file that people look at.

    What a terminal would obey, or what would hide some of the text, stands there as an escape.
    """
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
        size += len(part)
        if size > most:
            raise ValueError(f"written out it has more than {most} characters")
        parts.append(part)
    text = "".join(parts)
    text.encode()
    return _UNUSUAL.sub(_escaped, text).encode() + b"\n"


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]


_RED_TO_GREEN: Final = "fail-to-pass"

#: Stage, label and target of one piece of work.
_Unit = tuple[str, str, str]


def unstated(patch: Patch, details: Details, asked: Collection[str]) -> str:
    """Say where a record is not about what the patch states; or nothing."""
    units, reds = set(units_of(patch)), _red_to_green(patch)
    counted = Counter(map(_unit, details.stages))
    if twice := [unit for unit, count in counted.items() if count > 1]:
        return f"it has two outcomes of {_name(twice[0])}"
    for one in details.stages:
        unit = _unit(one)
        # Where lines or kernels are watched, the stage finds out for itself.
        if one.outcome in SEEN and unit not in units and one.stage != "witness":
            return f"it has an outcome of {_name(unit)}, which the patch does not state"
        claimed, red = one.details.get("expect") == _RED_TO_GREEN, unit in reds
        if one.outcome is Outcome.PASSED and claimed is not red:
            how = "only that it passes" if claimed else _RED_TO_GREEN
            return f"it says otherwise what {_name(unit)} is to show: the patch states {how}"
    # A stage that made no sense any more has one outcome for all of its work.
    said = {one.stage for one in details.stages if one.outcome is not Outcome.SKIPPED}
    skipped = {one.stage for one in details.stages} - said
    for stage, label, target in sorted(units):
        lacks = (stage, label, target) not in counted and stage not in skipped
        if lacks and f"{stage}:{target}" in asked:
            return f"it leaves out {_name((stage, label, target))}, which was asked"
    return ""


def _unit(result: StageResult) -> _Unit:
    return result.stage, str(result.details.get("check", "")), result.target


def _name(unit: _Unit) -> str:
    return "/".join(part for part in unit if part)


def _red_to_green(patch: Patch) -> set[_Unit]:
    """Return what a patch states to fail on the base."""
    spec = patch.spec
    told = [
        *(
            ("compile", one.name, where, one.expect)
            for one in spec.compile
            for where in one.targets
        ),
        *(("build", one.name, where, one.expect) for one in spec.build for where in one.targets),
        *(("reproduce", one.name, one.target, one.expect) for one in spec.checks),
        *(("numerics", one.name, one.target, one.expect) for one in spec.numerics),
        *([("hipify", "", "any", spec.hipify.expect)] if spec.hipify else []),
    ]
    return {(stage, label, target) for stage, label, target, how in told if how == _RED_TO_GREEN}


@dataclass(frozen=True)
class Known:
    """What is known of a patch without its record."""

    #: The patched tree by base commit; None where it could not be made here.
    made: dict[str, str | None]
    #: Whether there can be no other base.
    all_known: bool


@dataclass
class Bases:
    """What is known of the patches of a queue, found out once each."""

    queue: Queue
    _known: dict[str, Known] = field(default_factory=dict)

    def problem(self, name: str, base: str, tree: str) -> str:
        """Say what a record has wrong; or nothing."""
        known = self.known(name)
        if base not in known.made:
            return f"base commit {base[:12]} is none of its pin's" if known.all_known else ""
        wanted = known.made[base]
        if wanted not in {None, tree}:
            return f"patched tree {tree[:12]} is not what the patch makes of its base"
        return ""

    def compared(self, name: str, base: str) -> bool:
        """Say whether the patched tree could be made here to compare it."""
        return self.known(name).made.get(base) is not None

    def known(self, name: str) -> Known:
        """Return what is known of a patch."""
        if name not in self._known:
            self._known[name] = self._find_out(name)
        return self._known[name]

    def _find_out(self, name: str) -> Known:
        patch = self.queue.patch(name)
        below = [self.queue.patch(low) for low in self.queue.below(name)]
        path = stores_folder() / f"{patch.upstream.name}.git"
        store = Store(path) if (path / "HEAD").is_file() else None
        commits: list[str | None] = []
        for spec in patch.pin.sources:
            there = store.resolve(ref_for(patch.pin, spec, patch.upstream)) if store else None
            if there is None and spec.kind == "git":
                there = patch.pin.commit
            commits.append(there)
            if spec.kind == "installed":
                commits.append(None)  # another machine may have another build of it
        made: dict[str, str | None] = {}
        for commit in commits:
            if commit is None:
                continue
            done = _make(store, commit, [*below, patch]) if store else None
            if done is not None:
                made[done[0]] = done[1]
            elif not below:
                made[commit] = None
        # What stands on others has a base that only the store can make.
        complete = None not in commits and (not below or len(made) == len(set(commits)))
        return Known(made, complete)


def _make(store: Store, commit: str, stack: list[Patch]) -> tuple[str, str] | None:
    """Return the base commit and the patched tree of the last of a stack; None: cannot tell."""
    base = commit
    try:
        if not store.has(commit):
            return None
        with run_folder() as scratch, store.exclusive():
            for number, patch in enumerate(stack):
                place = scratch / str(number)
                place.mkdir()
                series = apply_series(store, base, patch.files, pin=patch.pin.title, scratch=place)
                if series.conflicts or not series.applied:
                    return None
                if patch is stack[-1]:
                    return base, series.applied[-1].tree
                base = series.commit
    except ContribbotError:
        return None
    return None


#: A name that `Machine.slug` may make: it becomes a file's.
_SLUG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
#: How far a runner's clock may be ahead.
_AHEAD: Final = timedelta(hours=1)
_LONGEST: Final = 300
#: Stages whose outcomes are of the hardware that something ran on.
_RAN: Final = ON_HARDWARE | {"witness"}


@dataclass(frozen=True)
class Source:
    """The run that answers are to be from."""

    repository: str
    run_id: int
    attempts: int
    commit: str

    def problem(self, run: RunOf | None, job: str) -> str:
        """Say what is wrong with where something says that it is from; or nothing."""
        if run is None:
            return "it names no run"
        told = (
            (run.run_id == self.run_id, f"it is of run {run.run_id}, not {self.run_id}"),
            (run.attempt <= self.attempts, f"it is of attempt {run.attempt}, which was not yet"),
            (run.job == job, f"it is of job {run.job}, not {job}"),
            (
                run.repository.casefold() == self.repository.casefold(),
                f"it is of {run.repository}, not {self.repository}",
            ),
            (
                run.commit == self.commit,
                f"it is of commit {run.commit[:12]}, not {self.commit[:12]}",
            ),
        )  # fmt: skip
        return next((problem for holds, problem in told if not holds), "")


@dataclass(frozen=True)
class Answer:
    """A record that came, judged."""

    patch: str
    file: str
    #: Why it is not taken; empty: it is.
    refused: str
    details: Details | None = None
    #: Its bytes as they are kept.
    content: bytes = b""
    #: What could not be compared; may be empty.
    note: str = ""


@dataclass(frozen=True)
class Sent:
    """All that a job sent."""

    done: JobDone
    answers: Mapping[str, Answer]

    def ended(self, patch: str) -> PatchDone | None:
        """Return how it says that the proof of a patch ended; None: it was not begun."""
        return next((one for one in self.done.patches if one.patch == patch), None)


def read_done(files: Mapping[str, bytes]) -> JobDone:
    """Read the `job.json` of an artifact."""
    if JOB_FILE not in files:
        raise RefusedArtifactError(f"it has no {JOB_FILE}")
    try:
        parse(files[JOB_FILE])
        return JobDone.model_validate_json(files[JOB_FILE])
    except (ValidationError, ValueError, RecursionError) as error:
        raise RefusedArtifactError(f"{JOB_FILE}: {_first(error)}") from error


@dataclass(frozen=True)
class Question:
    """What a job was asked, and what its answers are held against."""

    job: Job
    source: Source
    bases: Bases
    scratch: Path


def read_sent(files: Mapping[str, bytes], question: Question) -> Sent:
    """Judge what a job sent."""
    job, source = question.job, question.source
    done = read_done(files)
    asked = {one.patch: one.require for one in done.asked}
    problem = source.problem(done.run, job.id)
    if not problem and done.job != job.id:
        problem = f"it is of job {done.job}, not {job.id}"
    if not problem and (asked != job.asks or len(asked) != len(done.asked)):
        problem = "it was asked something else than the plan asks"
    if problem:
        raise RefusedArtifactError(f"{JOB_FILE}: {problem}")
    answers: dict[str, Answer] = {}
    for name in sorted(files):
        if name == JOB_FILE:
            continue
        _, patch, file = name.split("/")
        if patch in answers:
            raise RefusedArtifactError(f"it has two records of {patch}")
        answers[patch] = _judge(files[name], (patch, file), question)
    return Sent(done, answers)


def _judge(content: bytes, place: tuple[str, str], question: Question) -> Answer:
    """Judge one record."""
    (patch, file), bases = place, question.bases
    try:
        statement, kept = _statement(content)
    except (ValidationError, ValueError, RecursionError) as error:
        return Answer(patch, file, f"not a record that contribbot writes: {_first(error)}")
    details = statement.predicate.contribbot
    try:
        refused = (
            _odd(details)
            or _elsewhere(details, question.job, question.source)
            or _not_of_queue(bases.queue, content, question.scratch / patch / file)
            or unstated(bases.queue.patch(patch), details, question.job.asks[patch])
            or bases.problem(patch, details.base_commit, _tree(statement))
        )
    except ContribbotError as error:
        refused = error.message
    note = ""
    if not refused and not bases.compared(patch, details.base_commit):
        note = "its patched tree was not made again here: the store has no such base"
    return Answer(patch, file, refused, details, b"" if refused else kept, note)


def _statement(content: bytes) -> tuple[Statement, bytes]:
    """Return a record, and its bytes as they are kept."""
    document = parse(content)
    return Statement.model_validate(document), written(document, LIMITS.file)


def _odd(details: Details) -> str:
    """Say what in a record no runner writes, and what reads it could not stand."""
    if details.started.tzinfo is None or details.finished.tzinfo is None:
        return "its times name no time zone"
    if details.finished > datetime.now(UTC) + _AHEAD:
        return f"it was seen in the future: {details.finished.isoformat()}"
    if not details.machine.system.split() or not _SLUG.fullmatch(details.machine.slug):
        return "its machine has a name that cannot be a file's"
    return ""


def _elsewhere(details: Details, job: Job, source: Source) -> str:
    """Say what of a record is not of this job, its container, or its GPU."""
    if problem := source.problem(details.run, job.id):
        return problem
    if details.patch not in job.asks:
        return f"job {job.id} was not asked for {details.patch}"
    there = details.container
    if there is None or (there.image, there.flags) != (job.image, job.flags):
        return f"its container is not the plan's: {there.image if there else 'none'}"
    return _another_machine(details, job)


def _another_machine(details: Details, job: Job) -> str:
    """Say what of a record is not of the GPU and the ROCm version of this job."""
    amd = sorted({gpu.target for gpu in details.machine.gpus if gpu.vendor == "amd"})
    if job.target and amd and job.target not in amd:
        return f"it was made on {', '.join(amd)}, and {job.target} was asked"
    for one in details.stages:
        if one.stage not in _RAN or one.outcome not in SEEN:
            continue
        if one.target not in details.machine.targets:
            return f"it says what ran on {one.target}, and its machine has none"
        # Else a machine could speak for others that nobody asked it about.
        if one.target not in {job.target, *HOST_TARGETS}:
            return f"it says what ran on {one.target}, and {job.target or 'no GPU'} was asked"
    rocm = details.machine.rocm
    if rocm and not is_version(job.rocm, rocm):
        return f"it was made with ROCm {rocm}, and {job.rocm} was asked"
    return ""


def _not_of_queue(queue: Queue, content: bytes, path: Path) -> str:
    """Say what of a record is not of the queue as it is here: patch, checks, pin, what is below."""
    write_atomically(path, content)
    record = judge_record(queue, path)
    return "" if record.state is State.FRESH else f"{record.state}: {record.why}"


def _tree(statement: Statement) -> str:
    return statement.subject[1].digest.gitTree or ""


def _first(error: Exception) -> str:
    """Return what is wrong, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"[:_LONGEST]
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:_LONGEST]


#: Who may start what is collected: never a pull request.
_EVENTS: Final = frozenset({"workflow_dispatch", "schedule", "push"})
_NAME: Final = re.compile(r"contribbot-[a-z0-9][a-z0-9.-]{0,90}")
#: No queue has more jobs than this, and each leaves one artifact; re-runs leave more.
_MOST: Final = 2000
#: The job of the workflow that collects.
COLLECTOR: Final = "collect"
#: Its step that fails where runners alone kept it from all that was planned.
RUNNERS_STEP: Final = "Runners failed, and no patch did"
#: Bytes of all files of all artifacts: they are held in memory.
_MOST_BYTES: Final = 1024 * MIB
#: How far the clocks of GitHub's machines may be apart, and that of a runner from them.
_SLACK: Final = timedelta(minutes=2)
_RUNNERS_SLACK: Final = timedelta(minutes=10)

#: Says what is known of the attestation of a zip, of a run of a commit.
Attest = Callable[[Path, str], str]


@dataclass(frozen=True)
class Arrived:
    """An artifact that came, or why it did not."""

    name: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Digest of its zip; empty: it came in another way.
    sha256: str = ""
    #: Why nothing of it is taken; empty: it is.
    refused: str = ""
    attested: str = ""
    #: Whether it came before its job began, which is of a later attempt.
    early: bool = False


@dataclass(frozen=True)
class Haul:
    """What a run left."""

    #: The run; None where nothing says which.
    source: Source | None
    arrived: tuple[Arrived, ...]
    #: Its jobs by name, as GitHub has them; None: GitHub was not asked.
    jobs: Mapping[str, RunJob] | None = None
    #: Whether only a part of the queue may have been meant.
    selected: bool = True
    #: Whether some job of it is not over.
    running: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where artifacts are fetched from."""

    github: GitHub
    repository: str
    scratch: Path
    attest: Attest
    #: Where the zips are already; None: they are fetched.
    folder: Path | None = None


def from_github(origin: Origin, run_id: int) -> Haul:
    """Fetch what a run left; each zip must have the digest that GitHub saw when it came."""
    github, repository = origin.github, origin.repository
    try:
        run = read_run(github, repository, run_id)
    except NotFoundError as error:
        raise no_run(repository, run_id) from error
    _check_run(run, repository)
    jobs = {job.name: job for job in read_jobs(github, repository, run_id)}
    listed = read_artifacts(github, repository, run_id)
    if len(listed) > _MOST:
        raise GitHubError(f"run {run_id}: {len(listed)} artifacts; at most {_MOST}")
    if read_run(github, repository, run_id).run_attempt != run.run_attempt:
        raise GitHubError(
            f"run {run_id} was started again while it was read",
            hint="collect it again when it is over",
        )
    arrived = _arrived(origin, listed, run, jobs)
    others = sorted({one.name for one in listed if not one.name.startswith(PREFIX)})
    notes = [f"left alone, as no job of contribbot names one so: {one!a}" for one in others]
    return Haul(
        source=Source(repository, run_id, run.run_attempt, run.head_sha),
        arrived=arrived,
        jobs=jobs,
        selected=run.event == "workflow_dispatch",
        # The job that collects waits for all others.
        running=not run.over
        and any(not job.over for job in jobs.values() if job.name != COLLECTOR),
        notes=tuple(notes),
    )


def _arrived(
    origin: Origin, listed: Sequence[Artifact], run: Run, jobs: Mapping[str, RunJob]
) -> tuple[Arrived, ...]:
    """Fetch what is contribbot's own, one after the other."""
    # The attest job has signed what it could list; who is left out came later.
    signed = "attest" in jobs and jobs["attest"].conclusion == "success"
    arrived: list[Arrived] = []
    size = 0
    for artifact in _newest(listed, run.run_attempt):
        if not artifact.name.startswith(PREFIX):
            continue
        if problem := _unfit(artifact, run, jobs):
            arrived.append(Arrived(artifact.name, refused=problem))
            continue
        place = origin.scratch / f"{artifact.id}.zip"
        one = _fetch(origin, artifact, place)
        size += sum(map(len, one.files.values()))
        if size > _MOST_BYTES:
            problem = f"with it, the run's artifacts have more than {_MOST_BYTES // MIB:,} MiB"
            size -= sum(map(len, one.files.values()))
            one = Arrived(one.name, sha256=one.sha256, refused=problem)
        if not one.refused:
            said = origin.attest(place, run.head_sha)
            one = replace(_attested(one, said, signed=signed), early=_is_early(artifact, jobs))
        arrived.append(one)
        place.unlink(missing_ok=True)
    return tuple(arrived)


def _check_run(run: Run, repository: str) -> None:
    """Refuse a run that does not prove this queue."""
    check_workflow(run)
    own = {(one or "").casefold() for one in (run.repository, run.head_repository)}
    if run.event not in _EVENTS or own != {repository.casefold()}:
        raise UsageError(
            f"run {run.id} was started by {run.event!a} from "
            f"{run.head_repository or 'a repository that is gone'}, not by this queue",
            hint="only dispatches, pushes and the schedule of the queue's own repository count",
        )


def _newest(listed: Sequence[Artifact], attempts: int) -> list[Artifact]:
    """Leave out what an earlier attempt of the run left under the same name."""
    if attempts == 1:
        return sorted(listed, key=lambda one: one.id)
    return list({one.name: one for one in sorted(listed, key=lambda one: one.id)}.values())


def _unfit(artifact: Artifact, run: Run, jobs: Mapping[str, RunJob]) -> str:
    """Say why an artifact is not even fetched; or nothing."""
    told = (
        (_NAME.fullmatch(artifact.name), "no job of contribbot is called so"),
        (artifact.run_id in {None, run.id}, f"it is of run {artifact.run_id}"),
        (not artifact.expired, "GitHub has let it go: it expired"),
        (artifact.size_in_bytes <= LIMITS.packed, too_large(artifact.size_in_bytes)),
        ((artifact.digest or "").startswith("sha256:"), "GitHub tells no digest of it"),
    )
    return next((problem for holds, problem in told if not holds), "") or _not_of(artifact, jobs)


def _is_early(artifact: Artifact, jobs: Mapping[str, RunJob]) -> bool:
    """Say whether an artifact came before its job began, which was started again."""
    job, came = jobs.get(artifact.name.removeprefix(PREFIX)), artifact.created_at
    if job is None or job.run_attempt == 1 or job.started_at is None or came is None:
        return False
    return came < job.started_at


def _not_of(artifact: Artifact, jobs: Mapping[str, RunJob]) -> str:
    """Say why an artifact is not what its job left: any job can add, and replace, any of them."""
    name = artifact.name.removeprefix(PREFIX)
    if (job := jobs.get(name)) is None:
        return f"no job of the run is called {name}"
    came = artifact.created_at
    slack = _SLACK if artifact.name == PLAN_ARTIFACT else _RUNNERS_SLACK
    if came is None or not job.over:
        return ""
    if job.completed_at is not None and came > job.completed_at + slack:
        return f"it came after job {name} had ended"
    # What an earlier attempt left came before, see `_is_early`.
    if job.run_attempt == 1 and job.started_at is not None and came < job.started_at - slack:
        return f"it came before job {name} had begun"
    return ""


def _fetch(origin: Origin, artifact: Artifact, place: Path) -> Arrived:
    """Fetch one artifact and open it."""
    name, wanted = artifact.name, artifact.digest or ""
    try:
        if origin.folder is None:
            got = download(origin.github, origin.repository, artifact, place, most=LIMITS.packed)
        else:
            got = copied(origin.folder / f"{name}.zip", place)
    except RefusedArtifactError as error:
        return Arrived(name, refused=str(error))
    except (RefusedError, NotFoundError) as error:
        return Arrived(name, refused=error.message)
    if f"sha256:{got}" != wanted:
        return Arrived(
            name, sha256=got,
            refused=f"what came is not what was sent: GitHub saw {wanted[7:19]}…, "
                    f"this is {got[:12]}…",
        )  # fmt: skip
    return opened(name, place, got)


def copied(path: Path, place: Path) -> str:
    """Copy a zip, and return its SHA-256."""
    if not path.is_file():
        raise RefusedArtifactError(f"{path.name} is not in the folder")
    if path.stat().st_size > LIMITS.packed:
        raise RefusedArtifactError(too_large(path.stat().st_size))
    content = path.read_bytes()
    place.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def opened(name: str, place: Path, sha256: str) -> Arrived:
    """Open a zip."""
    try:
        plan = name == PLAN_ARTIFACT
        files = {PLAN_FILE: open_plan(place)} if plan else open_answer(place)
    except RefusedArtifactError as error:
        return Arrived(name, sha256=sha256, refused=str(error))
    return Arrived(name, files, sha256=sha256)


def _attested(one: Arrived, said: str, *, signed: bool) -> Arrived:
    """Add what is known of its attestation; what is denied where others are signed is refused."""
    if signed and is_denied(said):
        return Arrived(one.name, sha256=one.sha256, attested=said,
                       refused="this run attested its artifacts, and not this one")  # fmt: skip
    return replace(one, attested=said)


def from_folder(folder: Path, *, scratch: Path) -> Haul:
    """Open what somebody fetched: `NAME.zip`, or `NAME/` as `gh run download` unpacks it.

    GitHub is not asked, so that nobody can tell whether it is what the jobs sent.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the folder with the artifacts")
    arrived = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".zip")
        if not name.startswith(PREFIX):
            continue
        if path.is_symlink():
            arrived.append(Arrived(name, refused="it is a link"))
            continue
        if path.is_dir():
            arrived.append(_unpacked(path))
            continue
        try:
            got = copied(path, scratch / "one.zip")
        except RefusedArtifactError as error:
            arrived.append(Arrived(name, refused=str(error)))
        else:
            arrived.append(opened(name, scratch / "one.zip", got))
    if not arrived:
        raise UsageError(
            f"{folder}: no artifact of contribbot in it",
            hint=f"it holds {PREFIX}….zip, or folders of such names",
        )
    source, odd = _source_of(arrived)
    note = "GitHub was not asked: whether this is what the jobs sent, nobody here can tell"
    return Haul(source, tuple(arrived), notes=(note, *odd))


def _unpacked(folder: Path) -> Arrived:
    """Read a folder that was an artifact."""
    try:
        paths = sorted(folder.rglob("*"))
        _check_kinds(paths)
        found = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
        check_names({name: path.stat().st_size for name, path in found.items()})
    except RefusedArtifactError as error:
        return Arrived(folder.name, refused=str(error))
    files = {name: path.read_bytes() for name, path in found.items() if name.endswith(".json")}
    return Arrived(folder.name, files)


def _check_kinds(paths: Sequence[Path]) -> None:
    if any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in paths):
        raise RefusedArtifactError("there is a link or a device in it")


def _source_of(arrived: Sequence[Arrived]) -> tuple[Source | None, list[str]]:
    """Return the run that most of the artifacts say they are from."""
    said: Counter[tuple[str, int, str]] = Counter()
    attempts = 1
    for one in arrived:
        try:
            run = read_done(one.files).run
        except RefusedArtifactError:
            continue
        if run is not None:
            said[run.repository, run.run_id, run.commit] += 1
            attempts = max(attempts, run.attempt)
    if not said:
        return None, []
    (repository, run_id, commit), _ = said.most_common(1)[0]
    odd = [] if len(said) == 1 else [f"the artifacts are of {len(said)} runs: {run_id} counts"]
    return Source(repository, run_id, attempts, commit), odd
