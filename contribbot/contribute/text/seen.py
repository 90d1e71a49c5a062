"""What passed, as records say it: one figure each, and the record that it is from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.evidence import Record

#: What an outcome's one line begins with where it is red to green; the columns say it already.
_SAID: Final = (
    "fails on the base as stated; ",
    "fails on the base as stated, compiles on the patched tree; ",
    "fails on the base as stated, as expected on the patched tree; ",
    "compiles on both; ",
)


@dataclass(frozen=True)
class Source:
    """A fresh record.

    Attributes:
        label: How the text names it: `R1`.
        record: The record.
        file: Where it lies, seen from the queue.
    """

    label: str
    record: Record
    file: str

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """What it saw."""
        statement = self.record.statement
        return statement.predicate.contribbot.stages if statement else ()


@dataclass(frozen=True)
class Seen:
    """One thing that passed, and every record that says so in the same words.

    Attributes:
        result: The outcome, as one of the records has it.
        sources: The records.
    """

    result: StageResult
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        """What `patch.toml` calls it; a stage without entries has its own name."""
        return str(self.result.details.get("check") or self.result.stage)

    @property
    def labels(self) -> str:
        """The records, as a reader looks them up."""
        return ", ".join(one.label for one in self.sources)

    @property
    def source(self) -> Source:
        """The record that `result` is from."""
        return next(one for one in self.sources if any(each is self.result for each in one.stages))

    @property
    def over(self) -> str:
        """The installed release that the tree's files ran over, where it is not the pin's."""
        return other_release(self.result)

    @property
    def red(self) -> bool:
        """Whether it failed on the base, as it should."""
        return self.result.details.get("expect") == "fail-to-pass"

    @property
    def summary(self) -> str:
        """The figures of its one line."""
        text = self.result.reason.removeprefix(f"{self.name}: ")
        text = text.removesuffix(_note(self.result))
        for said in _SAID:
            text = text.removeprefix(said)
        return text

    def count(self, side: str, kind: str) -> int:
        """Return how many tests of a run ended in a way."""
        return len(_list(_table(self.result.details, side), kind))

    def messages(self) -> Iterator[str]:
        """Yield what the failures on the base say, in the order of the tests."""
        for one in _list(_table(self.result.details, "base"), "failed"):
            if isinstance(one, dict):
                # What follows is pytest's view of the assertion.
                yield next(iter(str(one.get("message", "")).splitlines()), "")

    def table(self, *keys: str) -> dict[str, JsonValue]:
        """Return a table within the details; an empty one where there is none."""
        found = self.result.details
        for key in keys:
            found = _table(found, key)
        return found

    def rows(self, key: str) -> list[dict[str, JsonValue]]:
        """Return the tables of a list within the details."""
        return [one for one in _list(self.result.details, key) if isinstance(one, dict)]


def merged(sources: Iterable[Source]) -> tuple[Seen, ...]:
    """Return what passed; the same said by two records is there once."""
    found: dict[tuple[Hashable, ...], Seen] = {}
    for source in sources:
        for result in source.stages:
            if result.outcome is not Outcome.PASSED:
                continue
            one = Seen(result, (source,))
            key = (result.stage, one.name, result.target, one.summary, *_quoted(one))
            known = found.get(key)
            # What ran on the pin's own release is shown rather than what ran over another.
            first = one if known is None or (known.over and not one.over) else known
            found[key] = Seen(first.result, (*(known.sources if known else ()), source))
    return tuple(found.values())


def _quoted(one: Seen) -> Iterator[Hashable]:
    """Yield what a text quotes beside the one line: who says other things says another figure."""
    yield next(one.messages(), "")
    for side in ("base", "patched"):
        yield tuple(one.count(side, kind) for kind in ("passed", "failed", "skipped"))
    tool = one.table("toolchain")
    yield str(tool.get("name", "")), str(tool.get("headers", ""))
    # A time is one machine's, whatever another measured.
    yield one.labels if one.result.stage == "bench" else ""


def other_release(result: StageResult) -> str:
    """Return the installed release that something ran over, where it is not the pin's."""
    # The stage compares it with the pin, and says so at the end of its line.
    return str(result.details["over"]) if result.reason.endswith(_note(result) or "\0") else ""


def _note(result: StageResult) -> str:
    over = result.details.get("over")
    return f" (over {over}, not the pin's)" if over else ""


def _table(value: dict[str, JsonValue], key: str) -> dict[str, JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _list(value: dict[str, JsonValue], key: str) -> list[JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, list) else []
