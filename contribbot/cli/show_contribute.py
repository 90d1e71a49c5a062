"""What gate, attest, open-pr and follow print; nothing in it can make a terminal misbehave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.cli.render import Block, Code, clean, pairs
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
from contribbot.contribute.preview import Preview, PreviewCommit
from contribbot.contribute.reproducer import REPORT, Reproducer
from contribbot.errors import first_of
from contribbot.markdown import shortened
from contribbot.model.base import Model

if TYPE_CHECKING:
    from contribbot.github.dry_run import Planned

_SHOWN: Final = 15
_TITLE: Final = 80


def gate_lines(gate: Gate, *, everything: bool = False) -> list[str]:
    """Return one line a rule, the next step below those that need one, then the candidates."""
    most = len(gate.candidates) if everything else _SHOWN
    wide = max(len(row.rule) for row in gate.rows)
    lines = [line for row in gate.rows for line in _row(row, wide)]
    if gate.candidates:
        lines += ["", f"{gate.patch}: pull requests with something in common:"]
        lines += [line for candidate in gate.candidates[:most] for line in _candidate(candidate)]
        if len(gate.candidates) > most:
            lines.append(f"  and {len(gate.candidates) - most} more; --json has them")
    lines += [f"{gate.patch}: {clean(limit)}" for limit in gate.limits]
    when = f"; GitHub was asked {gate.looked:%Y-%m-%d %H:%M} UTC" if gate.looked else ""
    return [*lines, "", f"{gate.patch}: {counts(gate)}{when}"]


def counts(gate: Gate) -> str:
    """Count the rules by what they say."""
    rows = [(len(gate.of(state)), state) for state in RowState]
    return ", ".join(f"{count} {state}" for count, state in rows if count)


def _row(row: Row, wide: int) -> Iterator[str]:
    yield f"{row.rule:<{wide}}  {row.state:<13}  {clean(row.seen)}"
    if row.next and row.state is not RowState.PASSED:
        yield f"{'':<{wide}}  {'':<13}  -> {clean(row.next)}"


def _candidate(candidate: Candidate) -> Iterator[str]:
    who, title = clean(candidate.author), shortened(clean(candidate.title), _TITLE)
    yield f"  {candidate.reference} ({candidate.state}, {who}): {title}"
    common = (
        f"mentions {candidate.issue}" if candidate.issue else "",
        "named in `related`" if candidate.related else "",
        f"files {first_of(candidate.files)}" if candidate.files else "",
        f"title words {', '.join(candidate.words)}" if candidate.words else "",
    )
    yield f"      {clean('; '.join(filter(None, common)))}"
    answer = f"different: {candidate.answer}" if candidate.answer else "no answer yet"
    yield f"      {clean(answer)}"


def note_lines(body: Body) -> list[str]:
    """Return what is still to be written, what did not run, and how long the text is."""
    length = f"{body.characters:,} of {body.budget:,} characters"
    lines = [f"{body.patch}: {length}; template {body.upstream} {body.template}"]
    lines += [f"{body.patch}: still to write: {want.words}" for want in body.wants]
    lines += [f"{body.patch}: {clean(change)}" for change in body.live]
    lines.append(f"{body.patch}: {body.words} of {body.most_words} words are seen at once")
    if body.not_run:
        lines.append(f"{body.patch}: not run: {', '.join(body.not_run)}")
    return lines


class ReproducerView(Model):
    """What `reproducer --json` prints."""

    patch: str
    check: str
    test: str
    files: tuple[str, ...]


class AttestedView(Model):
    """The answer of `attest --show --json`; `void` says why the attestation does not hold."""

    patch: str
    void: str
    attestation: Attestation


def reproducer_lines(made: Reproducer, written: Sequence[Path]) -> list[str]:
    """Return what was written, and what it runs."""
    return [
        *(clean(str(path)) for path in written),
        f"{made.patch}: runs {clean(made.test)} of the check {made.check}; it fails on the base",
        (
            f"next: look at the files; open an issue with the text of {REPORT}, and name it as"
            " `issue` in [contribution] of patch.toml, where the upstream asks for one"
        ),
    ]


_SHORT: Final = 12
_MERGES: Final = {
    "yes": "merges with",
    "no": "conflicts with",
    "not known": "GitHub has not said whether it merges with",
}


def follow_lines(report: FollowReport) -> list[str]:
    """Return where contributions stand, some lines each."""
    lines = [line for followed in report.contributions for line in _followed(followed)]
    if report.without:
        lines.append(f"nothing on GitHub yet: {', '.join(report.without)}")
    if not lines:
        lines.append("nothing to follow: no pull request of this queue is open")
    return [clean(line).rstrip() for line in lines]


def _followed(now: Followed) -> Iterator[str]:
    gone = "" if now.queued else " (no longer in the queue)"
    change = f" (was {now.change})" if now.change else ""
    title = f"  {now.title}" if now.title else ""
    yield f"{now.patch}{gone}: {now.reference or now.repository} {now.state}{change}{title}"
    if now.error:
        yield f"  could not be looked at: {now.error}"
        if now.looked is not None:
            yield f"  what follows is of {now.looked:%Y-%m-%d %H:%M} UTC"
    yield from (f"  {row}" for row in (now.url, now.why) if row)
    if now.state in {"draft", "open"}:
        yield f"  {_MERGES[now.mergeable]} {now.base}{_behind(now)}"
        when = f" ({now.asked:%Y-%m-%d %H:%M} UTC)" if now.asked is not None else ""
        yield f"  CI{when}: {'; '.join(map(_ci, now.jobs)) if now.jobs else 'no jobs have started'}"
        if now.start:
            yield f"  CI is started so: {now.start}"
        by = f" by {', '.join(now.by)}" if now.by else ""
        verdict = "not reviewed yet" if now.decision == "none" else f"{now.decision}{by}"
        # Nothing of a pull request says that a thread of it was resolved.
        when = f" on {now.looked:%Y-%m-%d %H:%M} UTC" if now.looked is not None else ""
        yield f"  {verdict}; threads: {_threads(now.threads)}{when}"
    for remark in now.new:
        yield f"  {'changed' if remark.changed else 'new'}: {remark_line(remark)}"
    if now.more:
        yield f"  and {now.more} earlier new ones: contribbot follow {now.patch} --all"
    yield from (f"  next, {step.who}: {step.what}" for step in now.next)


def _behind(now: Followed) -> str:
    if now.behind is None:
        return ""
    count = f"{now.behind} commit{'' if now.behind == 1 else 's'} behind it"
    # It is not asked for each time, and the base moves on.
    when = f" on {now.compared:%Y-%m-%d %H:%M} UTC" if now.compared is not None else ""
    return f"; {count if now.behind else 'up to date with it'}{when}"


def _ci(ci: TargetCi) -> str:
    jobs = f"{ci.jobs} job{'' if ci.jobs == 1 else 's'}"
    count = f" ({jobs})" if ci.jobs else ""
    more = f", {ci.running} running" if ci.running and ci.state != "running" else ""
    if ci.state == "not known":
        return f"{ci.target}: {jobs} passed; which are required is not known"
    if ci.missing:
        return f"{ci.target}: required and not started: {', '.join(ci.missing)}{count}"
    if not ci.failed:
        return f"{ci.target} {ci.state}{count}{more}"
    rest = ci.failures - len(ci.failed)
    named = ", ".join(ci.failed) + (f" and {rest} more" if rest else "")
    return f"{ci.target} {ci.state}: {named}{more}"


def _threads(count: ThreadCount) -> str:
    resolved = f", {count.resolved} resolved"
    unknown = " (GitHub does not say which are resolved)"
    return f"{count.open} open, {count.answered} answered{resolved if count.known else unknown}"


def remark_line(said: Remark) -> str:
    """Return a remark as one line."""
    at = f"{said.at:%Y-%m-%d %H:%M} " if said.at is not None else ""
    thread = f" [{said.thread}]" if said.thread else ""
    place = f" {said.place}" if said.place else ""
    verdict = f" ({said.verdict})" if said.verdict else ""
    text = " ".join(said.text.split())
    return f"{at}{said.author}{place}{thread}{verdict}{': ' if text else ''}{text}"


class RequestView(Model):
    """A request that would be made."""

    method: str
    path: str
    what: str


class OpeningView(Model):
    """What `open-pr --json` prints."""

    dry_run: bool
    patches: tuple[Opened, ...] = ()
    requests: tuple[RequestView, ...] = ()
    #: In place of both, where a dry run cannot ask GitHub.
    previews: tuple[Preview, ...] = ()


def opened_lines(opened: Opened, *, dry: bool = False) -> list[str]:
    """Return what was done for a patch, as lines."""
    would = "would be " if dry else ""
    base = f"{opened.upstream}@{opened.base_branch} {opened.base[:_SHORT]}"
    at = f"on {base}, at {opened.head[:_SHORT]}"
    branch = f"{opened.fork}:{opened.branch} {would}{opened.branch_was}"
    lines = [
        f"{opened.patch}: branch {branch}, {at}",
        *(f"  {commit.id[:_SHORT]} {commit.subject}" for commit in opened.commits),
        f"  {_pull(opened, would)}",
    ]
    if opened.body_file:
        there = "it would be in" if dry else "paste it from"
        lines.append(f"  the body is too long for that address: {there} {opened.body_file}")
    if opened.waits_for:
        lines.append(f"  it waits for {', '.join(opened.waits_for)}")
    if opened.comment:
        lines.append(f"  what changed {'would be' if dry else 'is'} described in {opened.comment}")
    lines += [f"  note: {note}" for note in opened.notes]
    return [clean(line) for line in lines]


def _pull(opened: Opened, would: str) -> str:
    kind = "draft pull request" if opened.state == "draft" else "pull request"
    match opened.pull_request_was:
        case "handed off" if would:
            return f"no pull request would be opened: you would open it on {opened.url}"
        case "handed off":
            return f"no pull request yet: open it on {opened.url}"
        case "edited":
            kept = "keeps the text that a person gave it"
            return f"{kind} {opened.pull_request} {kept}: {opened.url}"
        case "opened" if would:
            return f"a {kind} would be opened at {opened.upstream}"
        case done:
            return f"{kind} {opened.pull_request} {would}{done}: {opened.url}"


_FIRST: Final = 6
_LINE: Final = 86


def preview_lines(previews: Sequence[Preview]) -> list[Block]:
    """Return pull requests that would be opened, each with what is missing."""
    lines = [line for preview in previews for line in (*_preview(preview), "")]
    return [*lines, "GitHub was not asked; nothing was written, and nothing was sent"]


def _preview(now: Preview) -> Iterator[Block]:
    kind = {
        "draft": "a draft pull request",
        "open": "a pull request, ready for review",
        "to be opened": "a branch; you open its pull request in the browser",
    }[now.state]
    known = f"{now.pull_request} brought up to date, {kind}"
    fork = f"{now.fork}, your fork" if now.fork else "your fork"
    carried = "open-pr carries what is new onto the newest commit of that branch"
    refused = next((row.why for row in now.missing if row.what == "superseded"), "")
    sent = f"{refused}; open-pr refuses it" if refused else "what open-pr would send"
    yield f"{now.patch}: {clean(sent)}"
    yield pairs((
        ("what", [known if now.pull_request else kind]),
        ("to", [f"{now.upstream}, its default branch"]),
        ("from", [f"{now.branch}, a branch of {fork}"]),
        ("title", [now.title]),
        ("commits", [row for commit in now.commits for row in _commit(commit, now)]),
        ("", [f"made on {now.pin}; {carried}"]),
        ("text", [*_beginning(now)]),
    ))  # fmt: skip
    yield from ("", f"the upstream's rules, without GitHub: {counts(now.gate)}")
    listed = {missing.what for missing in now.missing}
    rows = [row for row in now.gate.of(RowState.PERSON) if row.rule not in listed]
    wide = max((len(row.rule) for row in rows), default=0)
    yield from (f"  {line}" for row in rows for line in _row(row, wide))
    yield from ("", "missing, or not known without GitHub:")
    wide = max(len(missing.what) for missing in now.missing)
    for missing in now.missing:
        yield f"  {missing.what:<{wide}}  {clean(missing.why)}"
        if missing.next:
            yield f"  {'':<{wide}}  -> {clean(missing.next)}"


def _commit(commit: PreviewCommit, now: Preview) -> Iterator[str]:
    below = f" (of {commit.patch}, below it)" if commit.patch != now.patch else ""
    yield f"{commit.subject}{below}"
    yield from (f"  {file.path}  +{file.added} -{file.removed}" for file in commit.files)


def _beginning(now: Preview) -> Iterator[str]:
    """Yield the first lines of the text, and where all of it is."""
    if now.body is None:
        yield "cannot be made yet"
        return
    rows = [row for row in now.body.text.splitlines() if row.strip()]
    yield from (f"| {shortened(row, _LINE)}" for row in rows[:_FIRST])
    if len(rows) > _FIRST:
        yield f"all {now.body.characters:,} characters: contribbot body {now.patch} --offline"


def requests_of(planned: Sequence[Planned]) -> tuple[RequestView, ...]:
    """View requests that would be made."""
    return tuple(
        RequestView(method=request.method, path=request.path, what=request.summary)
        for request in planned
    )


def request_lines(requests: Sequence[RequestView]) -> list[str]:
    """Return what a rehearsal would have sent, as lines."""
    if not requests:
        return ["it would send nothing"]
    rows = [clean(f"  {request.method:5} {request.path}  {request.what}") for request in requests]
    return ["nothing was sent; these requests would be:", *rows]


def reviews_lines(report: ReviewsReport) -> list[str]:
    """Return threads with their code and what was said, then the comments besides."""
    lines = [f"{report.patch}: {report.reference} {report.url}"]
    if not report.known:
        lines.append("GitHub does not say which threads are resolved: all are listed")
    for thread in report.threads:
        lines += ["", *_thread(thread, known=report.known)]
    if not report.threads:
        lines.append("no open threads")
    else:
        repository, _, number = report.reference.partition("#")
        answer = f"gh api repos/{repository}/pulls/{number}/comments/N/replies -F body=@FILE"
        lines += ["", Code(f"answer, N from its address (…#discussion_rN): {answer}")]
    if report.hidden:
        lines += ["", f"resolved, and shown with --all: {report.hidden}"]
    if report.comments:
        lines += ["", "besides:"]
        if report.earlier:
            lines.append(f"  ({report.earlier} earlier ones are shown with --all)")
        lines += [row for remark in report.comments for row in _remark(remark)]
    return [clean(line).rstrip() for line in lines]


def _thread(thread: ThreadView, *, known: bool) -> Iterator[str]:
    line = thread.line or thread.was
    outdated = thread.outdated or (thread.line is None and thread.was is not None)
    marks = [
        mark
        for mark, holds in (
            ("resolved", thread.resolved),
            ("outdated", outdated),
            ("answered", thread.answered),
            ("not known if resolved", known and thread.resolved is None),
        )
        if holds
    ]
    place = f"{thread.file}:{line}" if line else thread.file
    side = " (a line of the base)" if thread.side == "base" else ""
    marked = f"  ({', '.join(marks)})" if marks else ""
    yield f"{thread.id}  {place}{side}{marked}"
    yield from (f"    | {row}" for row in thread.code)
    for remark in thread.comments:
        yield from _remark(remark)


def _remark(remark: Remark) -> Iterator[str]:
    at = f", {remark.at:%Y-%m-%d %H:%M}" if remark.at is not None else ""
    verdict = f", {remark.verdict}" if remark.verdict else ""
    yield f"  {remark.author}{at}{verdict}  {remark.url}"
    yield from (f"      {row}" for row in (remark.text.split("\n") if remark.text else []))


def visible(text: str) -> str:
    """Return a line in which what does not print is written as an escape of Python's."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def shown_lines(shown: Shown) -> Iterator[str]:
    """Yield the diff, the body and the gate, every line of them."""
    for file in shown.patch.files:
        yield from _heading(file.name)
        text = file.content.decode("utf-8", "backslashreplace")
        yield from map(visible, text.removesuffix("\n").split("\n"))
    yield from _heading(f"the pull request to {shown.gate.repository}")
    yield from (f"title: {visible(shown.body.title)}", "")
    yield from map(visible, shown.body.text.removesuffix("\n").split("\n"))
    yield from _heading("the gate")
    yield from (*gate_lines(shown.gate, everything=True), "")


def _heading(text: str) -> tuple[str, str, str]:
    return "", f"==== {visible(text)} ====", ""


def question_line(number: int, total: int, question: Question) -> str:
    """Return a question as it is asked."""
    how = "yes, or anything else to end" if question.answer == "yes" else "in your own words"
    return f"[{number}/{total}] {clean(question.text)} ({how}) "


def attested_lines(view: AttestedView) -> list[str]:
    """Return who attested a patch, and whether it still holds."""
    found = view.attestation
    who = clean(f"{found.person.name} <{found.person.email}>")
    when = f"attested by {who}, {found.time:%Y-%m-%d %H:%M} UTC"
    void = [f"  {clean(view.void)}"] if view.void else []
    return [f"{view.patch}: {'void' if void else 'valid'}; {when}", *void]
