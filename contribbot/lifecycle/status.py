"""The state of each patch on its own pin or at a release, and the first release that changes it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import IntegrityError, SourceError, UsageError
from contribbot.files import stores_folder, tool_digest, write_atomically
from contribbot.git.apply import Series
from contribbot.git.merge import STUCK, RebaseResult
from contribbot.git.pins.remote import commits_between, out_of_order
from contribbot.git.pins.sources import stored_tree
from contribbot.git.repository import open_store
from contribbot.model.base import Loose, Many, Model
from contribbot.model.lifecycle import Behaviour, Need, PatchStatus, Says, Text
from contribbot.model.patch import Pin
from contribbot.queue import history
from contribbot.queue.history import (
    VersionEvent,
    due,
    merged_in,
    remember_superseded,
    superseded_by_release,
    superseded_words,
)
from contribbot.queue.load import Queue
from contribbot.queue.stack import (
    FetchedPin,
    carried_over,
    fetch_pin,
    git_source,
    like_of,
    pin_at,
    series_of,
    tags_of,
)
from contribbot.verify.evidence import target_states

if TYPE_CHECKING:
    from contribbot.verify.pipeline import Options, Watcher


class TextState(Model):
    """How a patch applies to a release, and the reason."""

    text: Loose[Text]
    why: str


class StatusReport(Model):
    """The JSON document of `status`: the state of each patch."""

    patches: Many[PatchStatus]


#: The file of remembered texts; a key is the digest of all that decides a text.
_TEXTS: TypeAdapter[dict[str, TextState]] = TypeAdapter(dict[str, TextState])


def status(queue: Queue, names: Sequence[str]) -> StatusReport:
    """Return the state of patches on their own pins, without downloading or running anything."""
    texts = _own_texts(queue, names)
    return StatusReport(patches=tuple(_row(queue, name, texts[name]) for name in names))


def _own_texts(queue: Queue, names: Sequence[str]) -> dict[str, TextState]:
    """Return how patches and their dependencies apply to their own pins; remember the answers."""
    place = queue.local / "status.json"
    before: dict[str, TextState] = {}
    with contextlib.suppress(OSError, ValidationError):
        before = _TEXTS.validate_json(place.read_bytes())
    now: dict[str, TextState] = {}
    pins: dict[Pin, list[str]] = {}
    for name in queue.with_dependencies(names):
        pins.setdefault(queue.pin_of(name), []).append(name)
    texts: dict[str, TextState] = {}
    for pin, theirs in pins.items():
        store = open_store(stores_folder(), pin.upstream)
        provided = stored_tree(pin, queue.upstreams[pin.upstream], store)
        if provided is None:
            why = f"{pin.title} is not on this machine yet; contribbot verify brings it"
            texts |= dict.fromkeys(theirs, TextState(text=Text.UNKNOWN, why=why))
            continue
        keys = {name: _key(queue, name, provided.commit) for name in theirs}
        texts |= {name: before[key] for name, key in keys.items() if key in before}
        if unknown := [name for name in theirs if name not in texts]:
            series = series_of(queue, unknown, FetchedPin(pin, provided.commit, store))
            for name, applied in series.items():
                texts[name] = _of_applied(applied, empty=not queue.patch(name).files)
        now |= {key: texts[name] for name, key in keys.items()}
    if not now.keys() <= before.keys():
        with contextlib.suppress(OSError):
            write_atomically(place, _TEXTS.dump_json(now))
    return texts


def _key(queue: Queue, name: str, commit: str) -> str:
    """Return the digest of all that decides how a patch applies to a pin's commit."""
    stack = [queue.patch(low).digest for low in (*queue.below(name), name)]
    return hashlib.sha256(json.dumps([tool_digest(), *stack, commit]).encode()).hexdigest()


def _of_applied(applied: Series, *, empty: bool) -> TextState:
    if applied.conflicts:
        return TextState(text=Text.CONFLICT, why=applied.why)
    if applied.why:
        return TextState(text=Text.BLOCKED, why=applied.why)
    if empty:
        return TextState(text=Text.CLEAN, why="it has no commits yet")
    allowed = [item.phrase for each in applied.applied for item in each.adjustments]
    if allowed:
        return TextState(text=Text.OFFSET, why="; ".join(allowed))
    return TextState(text=Text.CLEAN, why="applies exactly")


def _row(
    queue: Queue,
    name: str,
    text: TextState,
    *,
    against: Pin | None = None,
    behaviour: Behaviour | None = None,
) -> PatchStatus:
    """Return a patch's status on its own pin, or at the release `against`."""
    spec, pin = queue.specs[name], against or queue.pin_of(name)
    events = history.read(queue.folder, name)
    merged = merged_in(queue, name)
    releases = queue.upstreams[spec.upstream].release
    now = PatchStatus(
        patch=name,
        upstream=spec.upstream,
        pin=spec.pin,
        against=pin.tag,
        text=text.text,
        text_why=text.why,
        behaviour=behaviour,
        evidence=target_states(queue, name),
        contribution=history.pull_request_words(events) or "none",
        due=tuple(due(expiry, pin.tag, merged, releases=releases) for expiry in spec.expires_when),
        versions=sum(isinstance(event, VersionEvent) for event in events),
    )
    there = superseded_by_release(now)
    words = superseded_words(queue, name) or (there.words if there else "")
    return now.model_copy(update={"superseded": words})


def status_against(
    queue: Queue,
    names: Sequence[str],
    *,
    upstreams: Sequence[str],
    tag: str,
    run: bool,
    options: Options,
    watcher: Watcher,
) -> StatusReport:
    """Return the state of patches at a release; `newest` means each upstream's newest release."""
    rows: dict[str, PatchStatus] = {}
    asked = [name for name in names if queue.specs[name].upstream in upstreams]
    for pin in {queue.pin_of(name) for name in asked}:
        fetch_pin(queue, pin, progress=watcher.download())
    own = _own_texts(queue, names)
    for upstream in upstreams:
        theirs = [name for name in names if queue.specs[name].upstream == upstream]
        new = fetch_pin(queue, pin_at(queue, upstream, tag), progress=watcher.download())
        moved, texts = _moves(queue, theirs, new, own, watcher=watcher)
        sure = [name for name in theirs if name in moved]
        needs: dict[str, Behaviour] = {}
        if run:
            needs = needs_of(queue, sure, new.pin, moved, options=options, watcher=watcher)
        for name in theirs:
            text, need = texts[name], needs.get(name)
            rows[name] = _row(queue, name, text, against=new.pin, behaviour=need)
    if tag == "newest":
        # Without a run, only UPSTREAM is certain; other texts do not show that a patch is needed.
        told = [row for row in rows.values() if row.behaviour or row.text is Text.UPSTREAM]
        remember_superseded(queue, {row.patch: superseded_by_release(row) for row in told})
    rows |= {name: _row(queue, name, own[name]) for name in names if name not in rows}
    return StatusReport(patches=tuple(rows[name] for name in names))


def _moves(
    queue: Queue,
    names: Sequence[str],
    new: FetchedPin,
    own: Mapping[str, TextState],
    *,
    watcher: Watcher,
) -> tuple[dict[str, RebaseResult], dict[str, TextState]]:
    """Merge patches onto a release, except patches that do not apply to their own pins."""
    moved: dict[str, RebaseResult] = {}
    texts: dict[str, TextState] = {}
    by_pin: dict[str, list[str]] = {}
    for name in names:
        if own[name].text in STUCK:
            why = f"it does not apply to its own pin {queue.specs[name].pin}: {own[name].why}"
            texts[name] = TextState(text=Text.UNKNOWN, why=why)
        else:
            by_pin.setdefault(queue.specs[name].pin, []).append(name)
    for whole in by_pin.values():
        moved |= carried_over(queue, whole, new, progress=watcher.download())
    for name in (name for name in names if name not in texts):
        texts[name] = TextState(text=moved[name].status, why=moved[name].why)
    return moved, texts


def needs_of(
    queue: Queue,
    names: Sequence[str],
    pin: Pin,
    moved: Mapping[str, RebaseResult],
    *,
    options: Options,
    watcher: Watcher,
) -> dict[str, Behaviour]:
    """Run checks of patches at a release, each without its patch but with its dependencies."""
    from contribbot.verify.one_tree import Ask, behaviours  # noqa: PLC0415  start-up time

    asks = []
    for name in names:
        statuses = {low: moved[low].status for low in queue.below(name)}
        applied = {Text.CLEAN, Text.MERGED}
        below = [low for low, status in statuses.items() if status in applied]
        asks.append(Ask(name, pin, tuple(below), {low: moved[low].files for low in below}))
    answers = behaviours(queue, asks, options=options, watcher=watcher)
    needs = {need.patch: need for need in answers}
    # A check that passes without the patch on the patch's own pin, too, proves nothing.
    own = [
        Ask(name, queue.pin_of(name), tuple(queue.below(name)))
        for name, need in needs.items()
        if any(entry.says is Says.PASSES for entry in need.entries)
    ]
    for at_own in behaviours(queue, own, options=options, watcher=watcher):
        empty = {entry.label for entry in at_own.entries if entry.says is Says.PASSES}
        why = f"it passes without the patch at {at_own.pin} too, and proves nothing"
        need = needs[at_own.patch]
        entries = tuple(
            entry.model_copy(update={"says": Says.OTHER, "reason": why})
            if entry.says is Says.PASSES and entry.label in empty
            else entry
            for entry in need.entries
        )
        needs[at_own.patch] = need.model_copy(update={"entries": entries})
    return needs


def status_at_newest(queue: Queue, name: str, *, options: Options, watcher: Watcher) -> PatchStatus:
    """Return a patch's status at its upstream's newest release, with its checks run there."""
    upstreams = [queue.specs[name].upstream]
    report = status_against(
        queue, [name], upstreams=upstreams, tag="newest", run=True, options=options, watcher=watcher
    )
    return report.patches[0]


Answer = Literal["before", "after", "skipped"]
#: `breaks`: find the first release at which a patch does not apply; `unneeded`: find the first
#: release at which the patch's checks pass without the patch.
Question = Literal["breaks", "unneeded"]


class Step(Model):
    """A bisection's answer at a release or commit: before or after the change, or skipped."""

    at: str
    says: Answer
    why: str
    taken: bool = False


class Bisection(Model):
    """The result of a bisection: the first release or commit with the answer yes."""

    patch: str
    upstream: str
    question: Question
    start: str
    end: str
    first: str
    taken: bool = False
    suspects: Many[str] = ()
    steps: Many[Step]
    left: int


@dataclass(frozen=True)
class Range:
    """The first and last release (or commit, if `commits`) of a bisection."""

    start: str
    end: str
    commits: bool


def points(queue: Queue, upstream: str, wanted: Range) -> list[Pin]:
    """Return a pin for each release or commit of a range, both ends included, oldest first."""
    if wanted.commits:
        like = like_of(queue, upstream)
        source = git_source(like)
        if source is None:
            raise UsageError(
                f"{like.title} has no git source, and commits are not published otherwise",
                hint="leave out --commits, or add a source of kind git to the pin",
            )
        commits = commits_between(queue.upstreams[upstream], source, wanted.start, wanted.end)
        return [
            Pin(upstream=upstream, tag=commit, commit=commit, sources=(source,))
            for commit in commits
        ]
    known = tags_of(queue, upstream, also=(wanted.start, wanted.end))
    places = {tag.removeprefix("v"): place for place, tag in enumerate(known)}
    first, last = (places.get(end.removeprefix("v"), -1) for end in (wanted.start, wanted.end))
    for end, place in ((wanted.start, first), (wanted.end, last)):
        if place < 0:
            hint = f"the newest are {', '.join(known[-5:])}"
            raise UsageError(f"{end}: no release of {upstream} that is published", hint=hint)
    if first >= last:
        raise out_of_order(wanted.start, wanted.end)
    return [pin_at(queue, upstream, tag) for tag in known[first : last + 1]]


_ENDS: Final = "name ends between which the answer changes"


def bisect(
    queue: Queue,
    name: str,
    wanted: Range,
    *,
    question: Question,
    options: Options,
    watcher: Watcher,
    heard: Callable[[Step], None],
) -> Bisection:
    """Find the first release or commit of a range at which the answer to a question is yes."""
    upstream = queue.specs[name].upstream
    pins = points(queue, upstream, wanted)
    # The answers by the pin's index in `pins`, in the order of the questions.
    steps: dict[int, Step] = {}

    def ask(place: int, end: str = "") -> Step:
        """Return the answer for the pin at an index; an `end` of the range must have an answer."""
        pin, trouble = pins[place], None
        try:
            step = _answer(queue, name, pin, question, options=options, watcher=watcher)
        except IntegrityError:
            raise  # for a person to look at
        except SourceError as error:
            trouble, step = error, Step(at=pin.tag, says="skipped", why=error.message)
        steps[place] = step
        heard(step)
        if end and step.says == "skipped":
            why = f"{end}: it cannot be decided there: {step.why}"
            raise SourceError(why, hint=trouble.hint) if trouble else UsageError(why, hint=_ENDS)
        return step

    low, high = 0, len(pins) - 1
    if (step := ask(low, wanted.start)).says == "after":
        raise UsageError(f"{wanted.start}: the answer is yes already there: {step.why}", hint=_ENDS)
    if (step := ask(high, wanted.end)).says == "before":
        still = "still applies" if question == "breaks" else "is still needed"
        raise UsageError(
            f"{name} {still} at {wanted.end}{f': {step.why}' if step.why else ''}",
            hint="there is nothing to find; name a later BAD",
        )
    while left := [place for place in range(low + 1, high) if place not in steps]:
        # The middle, or else the pin nearest to the middle that has not been asked.
        middle = min(left, key=lambda place: (abs(place - (low + high) // 2), place))
        says = ask(middle).says
        low, high = {"before": (middle, high), "after": (low, middle)}.get(says, (low, high))
    # Pins without an answer below the first yes: the first yes may be any of these pins.
    suspects = [pin.tag for pin in pins[low + 1 : high + 1]]
    clear = len(suspects) == 1
    return Bisection(
        patch=name,
        upstream=upstream,
        question=question,
        start=wanted.start,
        end=wanted.end,
        first=suspects[0] if clear else "",
        suspects=() if clear else tuple(suspects),
        steps=tuple(steps.values()),
        left=len(pins) - 2,
        taken=steps[high].taken,
    )


def _answer(
    queue: Queue, name: str, pin: Pin, question: Question, *, options: Options, watcher: Watcher
) -> Step:
    """Return whether the patch applies to a pin, or whether its checks pass without the patch."""
    new = fetch_pin(queue, pin, progress=watcher.download())
    moved = carried_over(queue, [name], new, progress=watcher.download())
    status, why = moved[name].status, moved[name].why
    if question == "breaks":
        clear: dict[Text, Answer] = {
            Text.CLEAN: "before",
            Text.MERGED: "before",
            Text.BLOCKED: "skipped",
        }
        taken = status is Text.UPSTREAM
        return Step(at=pin.tag, says=clear.get(status, "after"), why=why, taken=taken)
    need = needs_of(queue, [name], pin, moved, options=options, watcher=watcher)[name]
    says: Answer = "skipped" if need.verdict is Need.UNCLEAR else "before"
    if {entry.says for entry in need.entries} - {Says.CANNOT} == {Says.PASSES}:
        says = "after"
    return Step(at=pin.tag, says=says, why=need.why)
