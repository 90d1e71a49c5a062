"""Find the first release or commit that breaks a patch or makes the patch unnecessary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from contribbot.errors import IntegrityError, SourceError, UsageError
from contribbot.git.pins.remote import commits_between, out_of_order
from contribbot.lifecycle.status import needs_of
from contribbot.model.base import Many, Model
from contribbot.model.lifecycle import Need, Says, Text
from contribbot.model.patch import Pin
from contribbot.queue.load import Queue
from contribbot.queue.stack import carried_over, fetch_pin, git_source, like_of, pin_at, tags_of
from contribbot.verify.pipeline import Options, Watcher

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
        taken=any(step.taken for step in steps.values() if step.at == suspects[-1]),
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
