"""A patch's journal (`history/NAME/journal.jsonl`), its versions, and what supersedes the patch."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from packaging.version import InvalidVersion
from packaging.version import Version as Release
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from contribbot.errors import QueueError, UsageError
from contribbot.files import write_atomically
from contribbot.git.patch_format import BOTH_SIDES, CONFLICT
from contribbot.model.base import Line, Loose, Many, Model, Name, ObjectId, Sha256, Tag, Time
from contribbot.model.evidence import (
    RAN,
    SEEN,
    Details,
    Machine,
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
)
from contribbot.model.lifecycle import Due, Need, PatchStatus, Text
from contribbot.model.patch import (
    Expiry,
    Patch,
    PatchFile,
    Pin,
    Reference,
    ReleaseRecipe,
    digest_of,
)
from contribbot.queue.load import Queue
from contribbot.queue.transaction import OperationLog, Transaction, transaction


class _Noted(Model):
    """The keys that each event has; unknown keys, of a later release, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    time: Time
    summary: Line


class VersionFile(Model):
    """The name and size of a patch file in a version."""

    name: str
    size: Annotated[int, Field(ge=0)]


class VersionEvent(_Noted):
    """A new version of the patch files; the operation log has the files."""

    event: Literal["version"] = "version"
    version: Annotated[int, Field(ge=1)]
    digest: Sha256
    upstream: Name
    pin: Tag
    why: Line
    files: Many[VersionFile]
    base: Pin
    below: dict[str, Sha256] = Field(default_factory=dict)


class UnitOutcome(Model):
    """The outcome of a stage on a target; `entry`: the label of the check, empty if none."""

    stage: str
    entry: str
    target: str
    outcome: Loose[Outcome]


class VerifiedEvent(_Noted):
    """A verification with a new outcome."""

    event: Literal["verified"] = "verified"
    digest: Sha256
    checks: Sha256 | None = None
    pin: Tag
    machine: Line
    verdict: Loose[Verdict]
    targets: dict[str, Loose[Outcome]]
    #: Outcomes of entries that passed or failed; events of older releases have none.
    units: Many[UnitOutcome] = ()


class _Published(_Noted):
    """The keys of events about a published branch or pull request."""

    fork: Line | None = None
    branch: Line | None = None
    head: ObjectId | None = None
    base: ObjectId | None = None
    digest: Sha256 | None = None
    below: dict[str, Sha256] | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    text: Sha256 | None = None


class IntentEvent(_Published):
    """A request that is about to be sent; without a later `DoneEvent`, its fate is unknown."""

    event: Literal["intent"] = "intent"
    what: Line
    key: Line
    reference: Reference | None = None


class DoneEvent(_Published):
    """A note that GitHub has carried out the request of an `IntentEvent`."""

    event: Literal["done"] = "done"
    what: Line
    key: Line
    reference: Reference | None = None
    url: Line | None = None


class PullRequestEvent(_Published):
    """A new state of the patch's pull request."""

    event: Literal["pull-request"] = "pull-request"
    reference: Reference
    state: Line


class RetiredEvent(_Noted):
    """A note that the patch left the queue, and why."""

    event: Literal["retired"] = "retired"
    why: Line


Event = Annotated[
    VersionEvent | VerifiedEvent | IntentEvent | DoneEvent | PullRequestEvent | RetiredEvent,
    Field(discriminator="event"),
]
#: A parser and writer for events of any kind.
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


#: The order of outcomes in a summary: the first of the list wins.
_WORST_FIRST: Final = (Outcome.FAILED, Outcome.UNAVAILABLE, Outcome.PASSED, Outcome.SKIPPED)


def _journal(name: str) -> str:
    return f"history/{name}/journal.jsonl"


def journal_file(queue_folder: Path, name: str) -> Path:
    """Return the path of a patch's journal, which may not exist."""
    return queue_folder / _journal(name)


def past_name(queue: Queue, name: str) -> str:
    """Return the name; raise UsageError if the queue has neither patch nor history of the name."""
    if not journal_file(queue.folder, name).is_file():
        queue.require(name)
    return name


def now() -> datetime:
    """Return the present time for an event: UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def append(queue_folder: Path, name: str, event: Event) -> None:
    """Add an event to a patch's journal, in a transaction of only this change."""
    with transaction(queue_folder) as change:
        note(change, name, event)


def note(change: Transaction, name: str, event: Event) -> None:
    """Add an event to a patch's journal as part of the transaction `change`."""
    path = _journal(name)
    # Drop a last line that was cut short; end a whole last line.
    whole, newline, last = (change.read(path) or b"").rpartition(b"\n")
    end = last + b"\n" if _parse(last) else b""
    line = EVENT.dump_json(event, exclude_none=True)
    change.write(path, whole + newline + end + line + b"\n")


def _parse(line: bytes) -> Event | None:
    try:
        return EVENT.validate_json(line)
    except ValidationError:
        return None


def read(queue_folder: Path, name: str) -> list[Event]:
    """Return a patch's events, oldest first, without a last line that was cut short."""
    path = journal_file(queue_folder, name)
    try:
        return _events(path, path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _events(path: Path, content: bytes) -> list[Event]:
    rows = content.split(b"\n")
    events: list[Event] = []
    for number, row in enumerate(rows, start=1):
        if event := _parse(row):
            events.append(event)
        elif row.startswith(b"<<<<<<< "):
            raise QueueError(f"{path}:{number}: {CONFLICT}", hint=BOTH_SIDES)
        elif row.strip() and number < len(rows):
            raise QueueError(
                f"{path}:{number}: not an event of a history",
                hint="restore the line, or take it out",
            )
    return events


def pull_request_words(events: Iterable[Event]) -> str:
    """Return a patch's last pull request with its last known state; empty: no pull request."""
    pulls = [event for event in events if isinstance(event, PullRequestEvent)]
    return f"{pulls[-1].reference} {pulls[-1].state}" if pulls else ""


def note_verified(queue_folder: Path, name: str, event: VerifiedEvent, *, ran: bool) -> bool:
    """Note a verification in the journal, unless it equals the machine's last verification.

    With `ran` (not all came from the cache), an equal event is noted, too, if an entry is refuted.
    """
    events = read(queue_folder, name)
    before = [
        known.model_copy(update={"time": event.time})
        for known in events
        if isinstance(known, VerifiedEvent) and known.machine == event.machine
    ]
    same = before[-1:] == [event] and not (ran and standing_refutations(events))
    if same or event in events:
        return False
    append(queue_folder, name, event)
    return True


def verified_event(
    report: PatchReport | Details, machine: Machine, *, digest: str, checks: str, time: datetime
) -> VerifiedEvent:
    """Return the journal event of a verification; `digest` and `checks` are SHA-256 digests."""
    targets = outcomes_by_target(report.stages)
    return VerifiedEvent(
        time=time,
        summary=f"{report.verdict} on {machine.slug}{_listed(targets)}",
        digest=digest,
        checks=checks,
        pin=report.pin,
        machine=machine.slug,
        verdict=report.verdict,
        targets=targets,
        units=tuple(
            UnitOutcome(stage=row.stage, entry=row.label, target=row.target, outcome=row.outcome)
            for row in report.stages
            if row.outcome in SEEN
        ),
    )


class Refutation(Model):
    """The failure of a stage's entry on a target of a machine; `entry` may be empty."""

    stage: str
    entry: str
    target: str
    machine: str
    time: datetime


def standing_refutations(events: Iterable[Event]) -> tuple[Refutation, ...]:
    """Return the refutations of checks that have not passed since on the same target."""
    standing: dict[tuple[str, str, str], Refutation] = {}
    seen = (event for event in events if isinstance(event, VerifiedEvent))
    for event in sorted(seen, key=lambda event: event.time):
        units = {(unit.stage, unit.entry, unit.target): unit.outcome for unit in event.units}
        # Events of older releases have no outcome for each entry, but an outcome for each target.
        on_targets = {("", "", target): outcome for target, outcome in event.targets.items()}
        for key, outcome in (units or on_targets).items():
            if outcome is Outcome.FAILED:
                stage, entry, target = key
                standing[key] = Refutation(
                    stage=stage,
                    entry=entry,
                    target=target,
                    machine=event.machine,
                    time=event.time,
                )
        for key, outcome in {**units, **on_targets}.items():
            if outcome is Outcome.PASSED:
                standing.pop(key, None)
    return tuple(standing.values())


def outcomes_by_target(stages: Sequence[StageResult]) -> dict[str, Outcome]:
    """Return the worst outcome by target (by `STAGE:TARGET` for stages that run nothing)."""
    outcomes: dict[str, Outcome] = {}
    for result in stages:
        if result.target != "any":
            ran = result.stage in RAN
            key = result.target if ran else f"{result.stage}:{result.target}"
            both = (result.outcome, outcomes.get(key, result.outcome))
            outcomes[key] = min(both, key=_WORST_FIRST.index)
    return outcomes


def _listed(targets: dict[str, Outcome]) -> str:
    """Return a phrase with the targets, grouped by outcome, the worst outcome first."""
    named = {
        outcome: ", ".join(name for name, other in targets.items() if other is outcome)
        for outcome in _WORST_FIRST
    }
    return "".join(f"; {outcome}: {names}" for outcome, names in named.items() if names)


@dataclass(frozen=True)
class Version:
    """A recorded version of a patch: its journal event, and where its files can be found."""

    patch: str
    event: VersionEvent
    queue_folder: Path

    def files(self) -> tuple[PatchFile, ...]:
        """Return this version's patch files, from the operation log or the user's commits."""
        sizes = {file.name: file.size for file in self.event.files}
        log = OperationLog.find(self.queue_folder)
        files = (log.patch_files(sizes, self.event.digest) if log else None) or self._former_files()
        if digest_of(files) != self.event.digest:
            raise QueueError(
                f"{self.patch}: the files of v{self.event.version} are not in the operation log, "
                "and not in the commits of the queue",
                hint="the log stays on the machine where the version was made",
            )
        return files

    def _former_files(self) -> tuple[PatchFile, ...]:
        """Return this version's files from the mailbox that contribbot 0.2.0 wrote."""
        place = self.queue_folder / "history" / self.patch / f"v{self.event.version}.mbox"
        files, start, content = [], 0, place.read_bytes() if place.is_file() else b""
        for file in self.event.files:
            files.append(PatchFile(file.name, content[start : start + file.size]))
            start += file.size
        return tuple(files)


def versions(queue_folder: Path, name: str) -> list[Version]:
    """Return a patch's recorded versions, oldest first."""
    # If a merge of two git branches gave a number to two events, the event that is later in
    # the file counts.
    known = {
        event.version: Version(name, event, queue_folder)
        for event in read(queue_folder, name)
        if isinstance(event, VersionEvent)
    }
    return [known[number] for number in sorted(known)]


def version(queue_folder: Path, name: str, number: int) -> Version:
    """Return the version of a patch with a number; raise UsageError without such a version."""
    known = {recorded.event.version: recorded for recorded in versions(queue_folder, name)}
    if number not in known:
        has = f"it has v1 to v{max(known)}" if known else "none is recorded yet"
        raise UsageError(f"{name}: there is no version v{number}", hint=has)
    return known[number]


def record(
    change: Transaction,
    name: str,
    files: Sequence[PatchFile],
    pin: Pin,
    *,
    why: str,
    below: Mapping[str, str] | None = None,
) -> int | None:
    """Record a version; return its number, or None if the last version has the same files."""
    digest = digest_of(tuple(files))
    journal = change.read(_journal(name)) or b""
    events = _events(Path(_journal(name)), journal)
    known = [event for event in events if isinstance(event, VersionEvent)]
    last = max(known, key=lambda event: event.version, default=None)
    if last and (last.digest, last.base) == (digest, pin):
        return None
    change.has_version = True
    number = last.version + 1 if last else 1
    count = len(files)
    event = VersionEvent(
        time=now(),
        summary=(f"v{number}: {count} commit{'s' if count > 1 else ''} on {pin.title}, {why}"),
        version=number,
        digest=digest,
        upstream=pin.upstream,
        pin=pin.tag,
        why=why,
        files=tuple(VersionFile(name=file.name, size=len(file.content)) for file in files),
        base=pin,
        below=dict(below or {}),
    )
    note(change, name, event)
    return number


def record_present(change: Transaction, queue: Queue, patch: Patch, *, why: str) -> int | None:
    """Record a patch's present files as a version, unless the last version has these files."""
    below = digests_below(queue, patch.name)
    return record(change, patch.name, patch.files, patch.pin, why=why, below=below)


def below_of(queue: Queue, name: str) -> list[Patch]:
    """Return a patch's dependencies, lowest first; empty if the patch is not in the queue."""
    return [queue.patch(lower) for lower in queue.below(name)] if name in queue.specs else []


def digests_below(queue: Queue, name: str) -> dict[str, str]:
    """Return the digest of each of a patch's dependencies, by name."""
    return {patch.name: patch.digest for patch in below_of(queue, name)}


_FILE: Final = "superseded.json"


class Supersession(Model):
    """Why a patch must not be proposed any more; `by`: the release, pull request or upstream."""

    why: str
    by: str
    turned_down: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def words(self) -> str:
        """A line with the state (superseded or turned down), the cause and the reason."""
        by = f" by {self.by}" if self.by else ""
        return f"{'turned down' if self.turned_down else 'superseded'}{by}: {self.why}"


#: The file of remembered supersessions, by the name and digests of a patch.
_SEEN: TypeAdapter[dict[str, Supersession]] = TypeAdapter(dict[str, Supersession])


def superseded(queue: Queue, name: str) -> Supersession | None:
    """Return why a patch must not be proposed, from patch.toml or as remembered; else None."""
    spec = queue.specs[name]
    named = next((str(each.pull_request) for each in spec.expires_when if each.pull_request), "")
    if spec.turned_down:
        why = " ".join(spec.turned_down.split())
        return Supersession(why=why, by=spec.upstream, turned_down=True)
    if spec.kept:
        return Supersession(why=" ".join(spec.kept.split()), by=named)
    merged, recipe = merged_in(queue, name), queue.upstreams[spec.upstream].release
    tags = [pin.tag for pin in queue.spec.pins if pin.upstream == spec.upstream]
    for condition in spec.expires_when:
        for tag in tags:
            state = due(condition, tag, merged, releases=recipe)
            if state.come:
                by = condition.pull_request or f"{spec.upstream} {condition.release}"
                return Supersession(why=f"{state.condition}: {state.why}", by=by)
    seen = _remembered(queue)
    # The key needs the patch's files: read them only if the file remembers anything.
    return seen.get(_key(queue, name)) if seen else None


def superseded_words(queue: Queue, name: str) -> str:
    """Return a line on why a patch must not be proposed; empty: the patch may be proposed."""
    found = superseded(queue, name)
    return found.words if found else ""


def superseded_by_release(status: PatchStatus) -> Supersession | None:
    """Return a supersession if a status shows that the release has the patch, else None."""
    release, behaviour = f"{status.upstream} {status.against}", status.behaviour
    if status.text is Text.UPSTREAM:
        return Supersession(why=status.text_why or "it has all of its text", by=release)
    if behaviour is not None and behaviour.verdict in {Need.SUPERSEDED, Need.PARTLY}:
        return Supersession(why=behaviour.why, by=release)
    return None


def remember_superseded(queue: Queue, found: Mapping[str, Supersession | None]) -> None:
    """Save which patches are superseded, in a file that may be deleted; None removes an entry."""
    known = _remembered(queue)
    now = dict(known)
    for name, seen in found.items():
        now.pop(_key(queue, name), None)
        if seen is not None:
            now[_key(queue, name)] = seen
    if now != known:
        with contextlib.suppress(OSError):
            write_atomically(queue.local / _FILE, _SEEN.dump_json(now))


def _remembered(queue: Queue) -> dict[str, Supersession]:
    with contextlib.suppress(OSError, ValidationError):
        return _SEEN.validate_json((queue.local / _FILE).read_bytes())
    return {}


def _key(queue: Queue, name: str) -> str:
    patch = queue.patch(name)
    return f"{name} {digest_of(patch.files)} {patch.checks_digest}"


def merged_in(queue: Queue, name: str) -> frozenset[str]:
    """Return the pull requests whose last state in a patch's history is `merged`."""
    events = read(queue.folder, name)
    # The last event on each pull request counts: after a revert, it is not merged.
    last = {event.reference: event.state for event in events if isinstance(event, PullRequestEvent)}
    return frozenset(reference for reference, state in last.items() if state == "merged")


def due(
    expiry: Expiry, tag: str, merged: frozenset[str], *, releases: ReleaseRecipe | None = None
) -> Due:
    """Return whether a patch's expiry condition is met at the release `tag`, and why."""
    if expiry.release is None:
        come = True if expiry.pull_request in merged else None
        why = "the patch's history says so" if come else "only GitHub can tell; see its page"
        return Due(condition=f"{expiry.pull_request} is merged", come=come, why=why)
    condition = f"release {expiry.release}"
    if tag == expiry.release:
        return Due(condition=condition, come=True, why="this is it")
    try:
        now, then = (
            Release((releases and releases.version_of(name)) or name)
            for name in (tag, expiry.release)
        )
    except InvalidVersion:
        why = f"{tag} and {expiry.release} are not both versions"
        return Due(condition=condition, come=None, why=why)
    place = "at or after" if now >= then else "before"
    return Due(condition=condition, come=now >= then, why=f"{tag} is {place} it")
