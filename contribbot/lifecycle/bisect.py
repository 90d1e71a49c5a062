"""Finding the first release, or commit, that breaks a patch or makes it unnecessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from contribbot.errors import IntegrityError, SourceError, UsageError
from contribbot.git.merge import Fate
from contribbot.git.remote import commits_between, out_of_order
from contribbot.lifecycle.status import needs_of
from contribbot.model.lifecycle import Bisection, Need, Question, Says, Step
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.queue.stack import carried_over, git_source, land, like_of, pin_at, tags_of
from contribbot.verify.pipeline import Options, Watcher

Answer = Literal["before", "after", "skipped"]
#: What is a failure: a text that does not apply; a check that fails. It is asked for again.
_FAILURE: dict[Question, Answer] = {"breaks": "after", "unneeded": "before"}


class PointAnswer(NamedTuple):
    """What one release or commit answers, why, and whether it has all of the text already."""

    answer: Answer
    why: str
    taken: bool = False


@dataclass(frozen=True)
class Range:
    """What to look through."""

    start: str
    end: str
    commits: bool


def points(queue: Queue, upstream: str, wanted: Range) -> list[Pin]:
    """Return what lies in a range, its ends too, oldest first."""
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

    def look(pin: Pin, again: bool) -> PointAnswer:  # noqa: FBT001  the second time, nothing remembered counts
        fresh = replace(options, force=again)
        return _look(queue, name, pin, question=question, options=fresh, watcher=watcher)

    search = _Bisect(pins, look, told, failure=_FAILURE[question])
    first, suspects = search.run(wanted)
    return Bisection(
        patch=name,
        upstream=upstream,
        question=question,
        start=wanted.start,
        end=wanted.end,
        first=first,
        taken=any(step.taken for step in search.steps if step.at == (first or suspects[-1])),
        suspects=tuple(suspects),
        steps=tuple(search.steps),
        left=len(pins) - 2,
    )


def _look(
    queue: Queue, name: str, pin: Pin, *, question: Question, options: Options, watcher: Watcher
) -> PointAnswer:
    """Say whether a patch's text applies, or whether its checks pass without it."""
    progress = watcher.download()
    moved = carried_over(queue, [name], land(queue, pin, progress=progress), progress=progress)
    fate, why = moved[name].fate, moved[name].why
    if question == "breaks":
        if fate is Fate.BLOCKED:
            return PointAnswer("skipped", why)
        applies = fate in {Fate.CLEAN, Fate.MERGED}
        return PointAnswer("before" if applies else "after", why, taken=fate is Fate.UPSTREAM)
    behaviour = needs_of(queue, [name], pin, moved, options=options, watcher=watcher)[name]
    if {entry.says for entry in behaviour.entries} - {Says.CANNOT} == {Says.PASSES}:
        return PointAnswer("after", behaviour.why)
    unclear = behaviour.verdict is Need.UNCLEAR
    return PointAnswer("skipped" if unclear else "before", behaviour.why)


class _Bisect:
    """A binary search that passes over what cannot be told."""

    def __init__(
        self,
        pins: Sequence[Pin],
        look: Callable[[Pin, bool], PointAnswer],
        told: Callable[[Step], None],
        *,
        failure: Answer,
    ) -> None:
        self._pins = pins
        self._look = look
        self._told = told
        self._failure = failure
        self.steps: list[Step] = []
        self._asked: set[int] = set()
        self._trouble: SourceError | None = None

    def run(self, wanted: Range) -> tuple[str, list[str]]:
        """Search; return the first that says yes, and suspects where it cannot be told."""
        low, high = 0, len(self._pins) - 1
        for place, should, end in (
            (low, "before", f"--from {wanted.start}"),
            (high, "after", f"--to {wanted.end}"),
        ):
            answer, why = self._ask(place), self.steps[-1].why
            if answer == "skipped":
                message = f"{end}: it cannot be told there: {why}"
                if self._trouble is not None:
                    raise SourceError(message, hint=self._trouble.hint)
                raise UsageError(message, hint="name ends between which the answer changes")
            if answer != should:
                seen = "yes already" if place == low else "still no"
                raise UsageError(
                    f"{end}: the answer is {seen} there: {why or 'its text applies'}",
                    hint="name ends between which the answer changes",
                )
        while (middle := self._next(low, high)) is not None:
            answer = self._ask(middle)
            low, high = {"before": (middle, high), "after": (low, middle)}.get(answer, (low, high))
        suspects = [self._pins[place].tag for place in range(low + 1, high)]
        first = self._pins[high].tag
        return ("", [*suspects, first]) if suspects else (first, [])

    def _next(self, low: int, high: int) -> int | None:
        """Return the point nearest to the middle that was not asked yet."""
        half = (low + high) // 2
        left = [place for place in range(low + 1, high) if place not in self._asked]
        return min(left, key=lambda place: (abs(place - half), place), default=None)

    def _ask(self, place: int) -> Answer:
        """Ask one point; a failure is looked at again before it is believed."""
        pin = self._pins[place]
        self._asked.add(place)
        seen = self._tell(pin, again=False)
        again = seen.answer == self._failure
        if again:
            second = self._tell(pin, again=True)
            if second.answer != seen.answer:
                why = f"one time {seen.why}, another time {second.why}"
                seen = PointAnswer("skipped", why)
        step = Step(at=pin.tag, says=seen.answer, why=seen.why, again=again, taken=seen.taken)
        self.steps.append(step)
        self._told(step)
        return seen.answer

    def _tell(self, pin: Pin, *, again: bool) -> PointAnswer:
        self._trouble = None
        try:
            return self._look(pin, again)
        except IntegrityError:
            raise  # for a person to look at
        except SourceError as error:
            self._trouble = error
            return PointAnswer("skipped", error.message)
