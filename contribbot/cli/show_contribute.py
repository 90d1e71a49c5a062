"""What a person is shown before they attest; nothing in it can make a terminal misbehave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from contribbot.cli.output import clean
from contribbot.contribute.attest import Shown
from contribbot.contribute.model import (
    Attestation,
    Body,
    Candidate,
    Followed,
    FollowReport,
    Gate,
    Question,
    Remark,
    ReviewsReport,
    Row,
    RowState,
    TargetCi,
    ThreadCount,
    ThreadView,
)
from contribbot.contribute.open_pr import Opened
from contribbot.contribute.reproducer import Reproducer
from contribbot.model.base import Model

#: Candidates that are shown; `--json` has all.
_SHOWN: Final = 15
_TITLE: Final = 80


def gate_lines(gate: Gate, *, everything: bool = False) -> list[str]:
    """Return one line a rule, the next step below those that need one, then the candidates."""
    most = len(gate.candidates) if everything else _SHOWN
    wide = max(len(row.rule) for row in gate.rows)
    lines = [line for row in gate.rows for line in _row(row, wide)]
    if gate.candidates:
        lines += ["", f"{gate.patch}: pull requests with something in common:"]
        lines += [line for one in gate.candidates[:most] for line in _candidate(one)]
        if len(gate.candidates) > most:
            lines.append(f"  and {len(gate.candidates) - most} more; --json has them")
    lines += [f"{gate.patch}: {clean(one)}" for one in gate.limits]
    return [*lines, "", summary(gate)]


def summary(gate: Gate) -> str:
    """Say in one line what the gate says."""
    counts = [(len(gate.of(state)), state) for state in RowState]
    said = ", ".join(f"{count} {state}" for count, state in counts if count)
    when = f"; GitHub was asked {gate.looked:%Y-%m-%d %H:%M} UTC" if gate.looked else ""
    return f"{gate.patch}: {said}{when}"


def _row(row: Row, wide: int) -> Iterator[str]:
    yield f"{row.rule:<{wide}}  {row.state:<13}  {clean(row.seen)}"
    if row.next and row.state is not RowState.PASSED:
        yield f"{'':<{wide}}  {'':<13}  -> {clean(row.next)}"


def _candidate(one: Candidate) -> Iterator[str]:
    title = clean(one.title)
    title = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    yield f"  {one.reference} ({one.state}, {clean(one.author)}): {title}"
    yield f"      {clean('; '.join(one.in_common))}"
    yield f"      {clean(f'different: {one.answer}' if one.answer else 'no answer yet')}"


def note_lines(body: Body) -> list[str]:
    """Return what is still to be written, what did not run, and how long the text is."""
    length = f"{body.characters:,} of {body.budget:,} characters"
    lines = [f"{body.patch}: {length}; template {body.upstream} {body.template}"]
    lines += [f"{body.patch}: still to write: {clean(one)}" for one in body.wants]
    lines += [f"{body.patch}: {clean(one)}" for one in body.live]
    if body.not_run:
        lines.append(f"{body.patch}: not run: {', '.join(body.not_run)}")
    return lines


def reproducer_lines(made: Reproducer, written: Sequence[Path]) -> list[str]:
    """Return what was written, and what it runs."""
    return [
        *(clean(str(path)) for path in written),
        f"{made.patch}: runs {clean(made.test)} of the check {made.check}; it fails on the base",
    ]


_SHORT = 12


def follow_lines(report: FollowReport) -> list[str]:
    """Return where contributions stand, some lines each."""
    lines: list[str] = []
    for one in report.contributions:
        lines += _lines(one)
    if report.without:
        lines.append(f"nothing on GitHub yet: {', '.join(report.without)}")
    if not lines:
        lines.append("nothing to follow: no pull request of this queue is open")
    return [clean(line).rstrip() for line in lines]


def _lines(one: Followed) -> list[str]:
    gone = "" if one.queued else " (no longer in the queue)"
    change = f" (was {one.change})" if one.change else ""
    title = f"  {one.title}" if one.title else ""
    where = one.reference or one.repository
    lines = [f"{one.patch}{gone}: {where} {one.state}{change}{title}"]
    if one.error:
        lines.append(f"  could not be looked at: {one.error}")
        if one.looked is not None:
            lines.append(f"  what follows is of {one.looked:%Y-%m-%d %H:%M} UTC")
    if one.url:
        lines.append(f"  {one.url}")
    if one.why:
        lines.append(f"  {one.why}")
    if one.state in {"draft", "open"}:
        lines += [f"  {row}" for row in _open_rows(one)]
    lines += [f"  {'changed' if said.changed else 'new'}: {remark_line(said)}" for said in one.new]
    if one.more:
        lines.append(f"  and {one.more} earlier new ones: contribbot reviews {one.patch} --all")
    lines += [f"  next, {step.who}: {step.what}" for step in one.next]
    return lines


def _open_rows(one: Followed) -> list[str]:
    merges = {
        "yes": f"merges with {one.base}",
        "no": f"conflicts with {one.base}",
        "not known": f"GitHub has not said whether it merges with {one.base}",
    }[one.mergeable]
    rows = [merges + _behind(one)]
    every = [*one.ci, *([one.other] if one.other else [])]
    rows.append(f"CI: {'; '.join(map(_ci, every)) if every else 'no jobs have started'}")
    if one.start:
        rows.append(f"CI is started so: {one.start}")
    by = f" by {', '.join(one.by)}" if one.by else ""
    verdict = "not reviewed yet" if one.decision == "none" else f"{one.decision}{by}"
    # Nothing of a pull request says that a thread of it was resolved.
    when = f" on {one.looked:%Y-%m-%d %H:%M} UTC" if one.looked is not None else ""
    rows.append(f"{verdict}; threads: {_threads(one.threads)}{when}")
    return rows


def _behind(one: Followed) -> str:
    if one.behind is None:
        return ""
    count = f"{one.behind} commit{'' if one.behind == 1 else 's'} behind it"
    # It is not asked for each time, and the base moves on.
    when = f" on {one.compared:%Y-%m-%d %H:%M} UTC" if one.compared is not None else ""
    return f"; {count if one.behind else 'up to date with it'}{when}"


def _ci(one: TargetCi) -> str:
    count = f" ({one.jobs} job{'' if one.jobs == 1 else 's'})" if one.jobs else ""
    more = f", {one.running} running" if one.running and one.state != "running" else ""
    if not one.failed:
        return f"{one.target} {one.state}{count}{more}"
    rest = one.failures - len(one.failed)
    named = ", ".join(one.failed) + (f" and {rest} more" if rest else "")
    return f"{one.target} {one.state}: {named}{more}"


def _threads(one: ThreadCount) -> str:
    told = f"{one.open} open, {one.answered} answered"
    if not one.known:
        return f"{told} (GitHub does not say which are resolved)"
    return f"{told}, {one.resolved} resolved"


def remark_line(said: Remark) -> str:
    """Return a remark as one line."""
    at = f"{said.at:%Y-%m-%d %H:%M} " if said.at is not None else ""
    thread = f" [{said.thread}]" if said.thread else ""
    place = f" {said.place}" if said.place else ""
    verdict = f" ({said.verdict})" if said.verdict else ""
    text = " ".join(said.text.split())
    return f"{at}{said.author}{place}{thread}{verdict}{': ' if text else ''}{text}"


_OPENING_SHORT: Final = 12


class Planned(Protocol):
    """A request that would be made, as a rehearsal writes it down."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The path behind the API's URL."""
        ...

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        ...


class RequestView(Model):
    """A request that would be made."""

    method: str
    path: str
    what: str


class OpeningView(Model):
    """What `open-pr --json` prints."""

    dry_run: bool
    patches: tuple[Opened, ...]
    requests: tuple[RequestView, ...] = ()


def opened_lines(opened: Opened, *, dry: bool = False) -> list[str]:
    """Return what was done for a patch, as lines."""
    would = "would be " if dry else ""
    where = f"{opened.fork}:{opened.branch}"
    base = f"{opened.upstream}@{opened.base_branch} {opened.base[:_OPENING_SHORT]}"
    at = opened.head[:_OPENING_SHORT]
    lines = [f"{opened.patch}: branch {where} {would}{opened.branch_was}, on {base}, at {at}"]
    lines += [f"  {one.id[:_OPENING_SHORT]} {one.subject}" for one in opened.commits]
    lines.append(f"  {_pull(opened, would)}")
    if opened.body_file:
        there = "it would be in" if dry else "paste it from"
        lines.append(f"  the body is too long for that address: {there} {opened.body_file}")
    if opened.waits_for:
        lines.append(f"  it waits for {', '.join(opened.waits_for)}")
    if opened.comment:
        lines.append(f"  what changed {'would be' if dry else 'is'} told in {opened.comment}")
    lines += [f"  note: {note}" for note in opened.notes]
    return [clean(line) for line in lines]


def _pull(opened: Opened, would: str) -> str:
    if opened.pull_request_was == "handed off":
        if would:
            return f"no pull request would be opened: you would open it on {opened.url}"
        return f"no pull request yet: open it on {opened.url}"
    kind = "draft pull request" if opened.state == "draft" else "pull request"
    if opened.pull_request_was == "edited":
        return f"{kind} {opened.pull_request} keeps the text that a person gave it: {opened.url}"
    if would and opened.pull_request_was == "opened":
        return f"a {kind} would be opened at {opened.upstream}"
    return f"{kind} {opened.pull_request} {would}{opened.pull_request_was}: {opened.url}"


def requests_of(planned: Sequence[Planned]) -> tuple[RequestView, ...]:
    """View requests that would be made."""
    return tuple(RequestView(method=one.method, path=one.path, what=one.summary) for one in planned)


def request_lines(requests: Sequence[RequestView]) -> list[str]:
    """Return what a rehearsal would have sent, as lines."""
    if not requests:
        return ["nothing was sent, and nothing would be"]
    rows = [clean(f"  {one.method:5} {one.path}  {one.what}") for one in requests]
    return ["nothing was sent; these requests would be:", *rows]


def reviews_lines(report: ReviewsReport) -> list[str]:
    """Return threads with their code and what was said, then the comments besides."""
    lines = [f"{report.patch}: {report.reference} {report.url}"]
    if not report.known:
        lines.append("GitHub does not say which threads are resolved: all are listed")
    for one in report.threads:
        lines += ["", *_thread(one, known=report.known)]
    if not report.threads:
        lines.append("no open threads")
    if report.hidden:
        lines.append("")
        lines.append(f"resolved, and shown with --all: {report.hidden}")
    if report.comments:
        lines += ["", "besides:"]
        if report.earlier:
            lines.append(f"  ({report.earlier} earlier ones are shown with --all)")
        for said in report.comments:
            lines += [f"  {row}" for row in _said(said)]
    return [clean(line).rstrip() for line in lines]


def _thread(one: ThreadView, *, known: bool) -> list[str]:
    line = one.line or one.was
    place = f"{one.file}:{line}" if line else one.file
    side = " (a line of the base)" if one.side == "base" else ""
    marks = [
        *(["resolved"] if one.resolved else []),
        *(["outdated"] if one.outdated or (one.line is None and one.was is not None) else []),
        *(["answered"] if one.answered else []),
        *(["not known if resolved"] if known and one.resolved is None else []),
    ]
    told = f"  ({', '.join(marks)})" if marks else ""
    lines = [f"{one.id}  {place}{side}{told}"]
    lines += [f"    | {row}" for row in one.code]
    for said in one.comments:
        lines += [f"  {row}" for row in _said(said)]
    return lines


def _said(said: Remark) -> list[str]:
    at = f", {said.at:%Y-%m-%d %H:%M}" if said.at is not None else ""
    verdict = f", {said.verdict}" if said.verdict else ""
    rows = said.text.split("\n") if said.text else []
    return [f"{said.author}{at}{verdict}  {said.url}", *(f"    {row}" for row in rows)]


def visible(text: str) -> str:
    """Return a line in which what does not print is written as an escape of Python's."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def shown_lines(shown: Shown) -> list[str]:
    """Return the diff, the body and the gate, every line of them."""
    return [
        *_diff(shown),
        *_body(shown),
        *_heading("the gate"),
        *gate_lines(shown.gate, everything=True),
        "",
    ]


def _diff(shown: Shown) -> Iterator[str]:
    for file in shown.patch.files:
        yield from _heading(file.name)
        text = file.content.decode("utf-8", "backslashreplace")
        yield from (visible(row) for row in text.removesuffix("\n").split("\n"))


def _body(shown: Shown) -> Iterator[str]:
    yield from _heading(f"the pull request to {shown.basis.repository}")
    yield f"title: {visible(shown.basis.title)}"
    yield ""
    yield from (visible(row) for row in shown.body.text.removesuffix("\n").split("\n"))


def _heading(text: str) -> tuple[str, str, str]:
    return "", f"==== {visible(text)} ====", ""


def question_line(number: int, total: int, question: Question) -> str:
    """Return a question as it is asked."""
    how = "yes, or anything else to end" if question.answer == "yes" else "in your own words"
    return f"[{number}/{total}] {clean(question.text)} ({how}) "


def attested_lines(name: str, found: Attestation, changes: Sequence[str]) -> list[str]:
    """Return who attested a patch, and whether it still holds."""
    who = clean(f"{found.person.name} <{found.person.email}>")
    state = "void" if changes else "valid"
    return [
        f"{name}: {state}; attested by {who}, {found.time:%Y-%m-%d %H:%M} UTC",
        *(f"  {clean(change)}" for change in changes),
        *([f"  contribbot attest {name}"] if changes else []),
    ]
