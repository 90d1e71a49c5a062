"""Finding the first release, or commit, that breaks a patch or makes it unnecessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from contribbot.errors import IntegrityError, SourceError, UsageError
from contribbot.git.merge import Fate, Moved
from contribbot.git.remote import commits_between, out_of_order
from contribbot.lifecycle.stack import carried_over, git_source, like_of, pin_at, tags_of
from contribbot.lifecycle.status import needs_of
from contribbot.model.lifecycle import Bisection, Need, Question, Step
from contribbot.model.lifecycle import Says as Entry
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.queue.stack import land
from contribbot.verify.pipeline import Options, Watcher

Says = Literal["before", "after", "skipped"]


class Seen(NamedTuple):
    """What one release or commit says, why, and whether it has all of the text already."""

    says: Says
    why: str
    taken: bool = False


#: Looks at one release or commit; the second time nothing remembered counts.
Look = Callable[[Pin, bool], Seen]
#: What is a failure: a text that does not apply; a check that fails. It is asked for again.
_FAILURE: dict[Question, Says] = {"breaks": "after", "unneeded": "before"}


@dataclass(frozen=True)
class Range:
    """What to look through."""

    start: str
    end: str
    commits: bool


def points(queue: Queue, upstream: str, wanted: Range) -> list[Pin]:
    """Return what lies in a range, its ends too, oldest first."""
    if wanted.commits:
        return _commits(queue, like_of(queue, upstream), wanted)
    known = tags_of(queue, upstream, also=(wanted.start, wanted.end))
    for end in (wanted.start, wanted.end):
        if end not in known:
            raise UsageError(
                f"{end}: no release of {upstream} that is published",
                hint=f"the newest are {', '.join(known[-5:])}",
            )
    first, last = known.index(wanted.start), known.index(wanted.end)
    if first >= last:
        raise out_of_order(wanted.start, wanted.end)
    return [pin_at(queue, upstream, tag) for tag in known[first : last + 1]]


def _commits(queue: Queue, like: Pin, wanted: Range) -> list[Pin]:
    source = git_source(like)
    if source is None:
        raise UsageError(
            f"{like.title} has no git source, and commits are not published otherwise",
            hint="leave out --commits, or add a source of kind git to the pin",
        )
    found = commits_between(queue.upstreams[like.upstream], source, wanted.start, wanted.end)
    return [
        Pin(upstream=like.upstream, tag=commit, commit=commit, sources=(source,))
        for commit in found
    ]


def bisect(
    queue: Queue,
    name: str,
    wanted: Range,
    *,
    question: Question,
    options: Options,
    watcher: Watcher,
    told: Callable[[Step], None],
) -> Bisection:
    """Find the first point of a range at which the answer is yes."""
    upstream = queue.specs[name].upstream
    pins = points(queue, upstream, wanted)
    look = {"breaks": _breaks, "unneeded": _unneeded}[question]
    walk = _Walk(
        pins,
        lambda pin, again: look(queue, name, pin, replace(options, force=again), watcher),
        told,
        failure=_FAILURE[question],
    )
    first, suspects = walk.run(wanted)
    return Bisection(
        patch=name,
        upstream=upstream,
        question=question,
        start=wanted.start,
        end=wanted.end,
        first=first,
        taken=any(step.taken for step in walk.steps if step.at == (first or suspects[-1])),
        suspects=tuple(suspects),
        steps=tuple(walk.steps),
        left=len(pins) - 2,
    )


class _Walk:
    """A binary search that passes over what cannot be told."""

    def __init__(
        self,
        pins: Sequence[Pin],
        look: Look,
        told: Callable[[Step], None],
        *,
        failure: Says,
    ) -> None:
        self._pins = pins
        self._look = look
        self._told = told
        self._failure = failure
        self.steps: list[Step] = []
        self._said: dict[int, Says] = {}
        self._trouble: SourceError | None = None

    def run(self, wanted: Range) -> tuple[str, list[str]]:
        """Search; return the first that says yes, and suspects where it cannot be told."""
        low, high = 0, len(self._pins) - 1
        for place, should in ((low, "before"), (high, "after")):
            says = self._ask(place)
            if says == "skipped" and self._trouble is not None:
                raise SourceError(
                    _wrong_end(self.steps[-1], first=place == low, wanted=wanted),
                    hint=self._trouble.hint,
                )
            if says != should:
                raise UsageError(
                    _wrong_end(self.steps[-1], first=place == low, wanted=wanted),
                    hint="name ends between which the answer changes",
                )
        while (middle := self._next(low, high)) is not None:
            says = self._ask(middle)
            if says == "before":
                low = middle
            elif says == "after":
                high = middle
        suspects = [self._pins[place].tag for place in range(low + 1, high)]
        first = self._pins[high].tag
        return ("", [*suspects, first]) if suspects else (first, [])

    def _next(self, low: int, high: int) -> int | None:
        """Return the point nearest to the middle that was not asked yet."""
        half = (low + high) // 2
        left = [place for place in range(low + 1, high) if place not in self._said]
        return min(left, key=lambda place: (abs(place - half), place), default=None)

    def _ask(self, place: int) -> Says:
        """Ask one point; a failure is looked at again before it is believed."""
        pin = self._pins[place]
        seen = self._tell(pin, again=False)
        again = seen.says == self._failure
        if again:
            second = self._tell(pin, again=True)
            if second.says != seen.says:
                seen = Seen("skipped", f"one time {seen.why}, another time {second.why}")
        self._said[place] = seen.says
        step = Step(at=pin.tag, says=seen.says, why=seen.why, again=again, taken=seen.taken)
        self.steps.append(step)
        self._told(step)
        return seen.says

    def _tell(self, pin: Pin, *, again: bool) -> Seen:
        self._trouble = None
        try:
            return self._look(pin, again)
        except IntegrityError:
            raise  # for a person to look at
        except SourceError as error:
            self._trouble = error
            return Seen("skipped", error.message)


def _wrong_end(step: Step, *, first: bool, wanted: Range) -> str:
    end = f"--from {wanted.start}" if first else f"--to {wanted.end}"
    if step.says == "skipped":
        return f"{end}: it cannot be told there: {step.why}"
    answer = "yes already" if first else "still no"
    return f"{end}: the answer is {answer} there: {step.why or 'its text applies'}"


def _moved(queue: Queue, name: str, pin: Pin, watcher: Watcher) -> dict[str, Moved]:
    progress = watcher.download()
    return carried_over(queue, [name], land(queue, pin, progress=progress), progress=progress)


def _breaks(queue: Queue, name: str, pin: Pin, options: Options, watcher: Watcher) -> Seen:
    """Say whether a patch's text applies."""
    del options
    moved = _moved(queue, name, pin, watcher)
    fate = moved[name].fate
    if fate is Fate.BLOCKED:
        return Seen("skipped", moved[name].why)
    says: Says = "before" if fate in {Fate.CLEAN, Fate.MERGED} else "after"
    return Seen(says, moved[name].why, taken=fate is Fate.UPSTREAM)


def _unneeded(queue: Queue, name: str, pin: Pin, options: Options, watcher: Watcher) -> Seen:
    """Say whether a patch's checks pass without it."""
    moved = _moved(queue, name, pin, watcher)
    behaviour = needs_of(queue, [name], pin, moved, options=options, watcher=watcher)[name]
    said = {entry.says for entry in behaviour.entries} - {Entry.CANNOT}
    if said == {Entry.PASSES}:
        return Seen("after", behaviour.why)
    return Seen("skipped" if behaviour.verdict is Need.UNCLEAR else "before", behaviour.why)
