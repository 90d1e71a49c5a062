"""Find the first release or commit that breaks a patch or makes the patch unnecessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

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
    search = _Bisect(queue, name, pins, question, options, watcher, heard)
    first, suspects = search.run(wanted)
    steps = tuple(search.steps.values())
    return Bisection(
        patch=name,
        upstream=upstream,
        question=question,
        start=wanted.start,
        end=wanted.end,
        first=first,
        suspects=tuple(suspects),
        steps=steps,
        left=len(pins) - 2,
        taken=any(step.taken for step in steps if step.at == (first or suspects[-1])),
    )


@dataclass
class _Bisect:
    """A binary search over pins that skips pins without a clear answer."""

    queue: Queue
    name: str
    pins: Sequence[Pin]
    question: Question
    options: Options
    watcher: Watcher
    heard: Callable[[Step], None]
    #: The answers so far, by the pin's index in `pins`, in the order of the questions.
    steps: dict[int, Step] = field(default_factory=dict)
    trouble: SourceError | None = None

    def run(self, wanted: Range) -> tuple[str, list[str]]:
        """Return the tag of the first pin with the answer yes, or else the tags that may be it."""
        low, high = 0, len(self.pins) - 1
        for place, should, end in ((low, "before", wanted.start), (high, "after", wanted.end)):
            step = self._ask(place)
            hint = "name ends between which the answer changes"
            if step.says == "skipped":
                message = f"{end}: it cannot be decided there: {step.why}"
                if self.trouble is not None:
                    raise SourceError(message, hint=self.trouble.hint)
                raise UsageError(message, hint=hint)
            if step.says != should and place == low:
                raise UsageError(f"{end}: the answer is yes already there: {step.why}", hint=hint)
            if step.says != should:
                applies = self.question == "breaks"
                still = "still applies" if applies else "is still needed"
                why = f": {step.why}" if step.why else ""
                raise UsageError(
                    f"{self.name} {still} at {wanted.end}{why}",
                    hint="there is nothing to find; name a later BAD",
                )
        while left := [place for place in range(low + 1, high) if place not in self.steps]:
            middle = min(left, key=lambda place: (abs(place - (low + high) // 2), place))
            says = self._ask(middle).says
            low, high = {"before": (middle, high), "after": (low, middle)}.get(says, (low, high))
        suspects = [self.pins[place].tag for place in range(low + 1, high)]
        first = self.pins[high].tag
        return ("", [*suspects, first]) if suspects else (first, [])

    def _ask(self, place: int) -> Step:
        """Return the answer for the pin at an index; `skipped` if the pin cannot be fetched."""
        pin, self.trouble = self.pins[place], None
        try:
            step = self._answer(pin)
        except IntegrityError:
            raise  # for a person to look at
        except SourceError as error:
            self.trouble = error
            step = Step(at=pin.tag, says="skipped", why=error.message)
        self.steps[place] = step
        self.heard(step)
        return step

    def _answer(self, pin: Pin) -> Step:
        """Return whether the patch applies to a pin, or whether its checks pass without it."""
        queue, names, progress = self.queue, [self.name], self.watcher.download()
        new = fetch_pin(queue, pin, progress=progress)
        moved = carried_over(queue, names, new, progress=progress)
        status, why = moved[self.name].status, moved[self.name].why
        if self.question == "breaks":
            says: dict[Text, Answer] = {
                Text.CLEAN: "before",
                Text.MERGED: "before",
                Text.BLOCKED: "skipped",
            }
            taken = status is Text.UPSTREAM
            return Step(at=pin.tag, says=says.get(status, "after"), why=why, taken=taken)
        needs = needs_of(queue, names, pin, moved, options=self.options, watcher=self.watcher)
        need = needs[self.name]
        if {entry.says for entry in need.entries} - {Says.CANNOT} == {Says.PASSES}:
            return Step(at=pin.tag, says="after", why=need.why)
        unclear = need.verdict is Need.UNCLEAR
        return Step(at=pin.tag, says="skipped" if unclear else "before", why=need.why)
