"""The commands of a contribution: body, gate, attest, open-pr, follow and retire."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import typer

from contribbot.cli import command as cli
from contribbot.cli.refusal import current_settings, echo
from contribbot.cli.render import Block, StateText, Table, clean, count, lines_of, pairs
from contribbot.contribute import attest as attesting
from contribbot.contribute import body as texts
from contribbot.contribute import model
from contribbot.contribute import open_pr as opening
from contribbot.contribute.attest import Shown
from contribbot.contribute.follow import follow as look
from contribbot.contribute.gate import judge, read_option, set_different
from contribbot.contribute.retire import retire as take_out
from contribbot.errors import ExitCode, GitHubError, UsageError, first_of
from contribbot.markdown import shortened
from contribbot.model.base import Model
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.queue.new import Wish, settle

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_SHOWN: Final = 15
_TITLE: Final = 80
_SHORT: Final = 12
_MERGES: Final = {
    "yes": "merges with",
    "no": "conflicts with",
    "not known": "GitHub has not said whether it merges with",
}
_OPENED: Final = (
    "in [contribution], `tests` name the upstream's files, `records` where your queue is"
)


def _connect() -> AbstractContextManager[GitHub]:
    """Import PyGithub, and return a context manager that opens a client of GitHub."""
    from contribbot.github.client import connect

    return connect()


@cli.command("body rmsnorm > body.md")
def body(
    patch: str = cli.PATCH,
    comment: bool = cli.flag(
        "--comment", "Instead, a comment for somebody else's pull request or issue."
    ),
    offline: bool = cli.OFFLINE,
) -> None:
    """Write the text of the pull request, in the upstream's sections, from fresh evidence."""
    queue, name = cli.open_patch(patch)
    if (theirs := queue.specs[name].theirs) and not comment:
        hint = f"say there what was run: contribbot body {name} --comment"
        raise UsageError(f"{name}: it is {theirs}, somebody else's", hint=hint)
    text: model.Body | model.Comment
    if not comment:
        text = texts.make_body(queue, name)
    elif offline or not theirs:
        text = texts.make_comment(queue, name)
    else:
        with _connect() as github:
            text = texts.make_comment(queue, name, github)
    if current_settings().as_json:
        cli.print_json(text)
    else:
        echo(text.text.removesuffix("\n"))
    if isinstance(text, model.Comment):
        return
    seen = f"{text.visible_words} of {texts.VISIBLE_WORDS} seen at once"
    overview = f"{text.overview_words} of {texts.OVERVIEW_WORDS} in the overview"
    shut = ", ".join(text.closed)
    lines = [
        f"{text.words} of {texts.WORDS} words, {seen}, {overview}; template {text.template}",
        *(f"still to write: {want.words}" for want in text.wants),
        f"not run: {', '.join(text.not_run)}" if text.not_run else "",
        f"not in the text, as no reader could open it: {shut}; {_OPENED}" if shut else "",
    ]
    cli.print_lines([f"{name}: {line}" for line in lines if line], stderr=True)


@cli.command("gate rmsnorm --offline")
def gate(
    patch: str = cli.PATCH,
    different: list[str] | None = cli.option(
        None, "REF=WHY", "Write down why a pull request (owner/name#123) is another change."
    ),
    offline: bool = cli.OFFLINE,
) -> cli.Reply:
    """Check a patch against the upstream's rules, and look for duplicates."""
    reasons = dict(map(read_option, different or ()))
    queue, name = cli.open_patch(patch)
    if reasons:
        set_different(queue, name, reasons)
        queue, name = cli.open_patch(patch)
    rows = _judged(queue, name, offline=offline)
    return cli.Reply(rows, gate_blocks(rows), _exit_code(rows))


def _judged(queue: Queue, name: str, *, offline: bool = False) -> model.Gate:
    """Judge a patch by its upstream's rules; without GitHub, by the rules that need no request."""
    with contextlib.ExitStack() as stack:
        github: GitHub | GitHubError | None = None
        if not offline:
            try:
                github = stack.enter_context(_connect())
            except GitHubError as error:  # most likely a token is missing
                github = error
        return judge(queue, name, github)


def _exit_code(gate: model.Gate) -> int:
    """Return 1 if a rule failed, 3 if GitHub gave no usable answer, else 0."""
    unknown = ExitCode.MACHINE if gate.of(model.RowState.UNKNOWN) else ExitCode.OK
    return ExitCode.NO if gate.of(model.RowState.FAILED) else unknown


def gate_blocks(gate: model.Gate, *, everything: bool = False) -> list[Block]:
    """Return the table of rules, the possible duplicates, and the numbers of rules by state."""
    most = len(gate.candidates) if everything else _SHOWN
    blocks: list[Block] = [rule_table(gate.rows)]
    if gate.candidates:
        blocks += ["", f"{gate.patch}: pull requests with something in common:"]
        for candidate in gate.candidates[:most]:
            blocks += candidate_lines(candidate)
        if len(gate.candidates) > most:
            blocks.append(f"  and {len(gate.candidates) - most} more; --json has them")
    blocks += [f"{gate.patch}: {limit}" for limit in gate.limits]
    when = f"; GitHub was asked {gate.looked:%Y-%m-%d %H:%M} UTC" if gate.looked else ""
    return [*blocks, "", f"{gate.patch}: {counts(gate)}{when}"]


def rule_table(rules: Sequence[model.Row], indent: int = 0) -> Table:
    """Return a table of rules, states and observations, with the next step unless a rule passed."""
    rows: list[tuple[str, ...]] = []
    for row in rules:
        rows.append((row.rule, StateText(row.state), row.seen))
        if row.next and row.state is not model.RowState.PASSED:
            rows.append(("", "", f"-> {row.next}"))
    return Table(rows, ("rule", "state", "observed"), indent)


def counts(gate: model.Gate) -> str:
    """Return the numbers of rules by state, such as `9 passed, 1 failed`."""
    rows = [(len(gate.of(state)), state) for state in model.RowState]
    return ", ".join(f"{number} {state}" for number, state in rows if number)


def candidate_lines(candidate: model.Candidate) -> Iterator[str]:
    """Yield lines on a possible duplicate: title, state, author, common files, functions, words."""
    title = shortened(candidate.title, _TITLE)
    yield f"  {candidate.reference} ({candidate.state}, {candidate.author}): {title}"
    common = (
        f"mentions {candidate.issue}" if candidate.issue else "",
        "named in `related`" if candidate.related else "",
        f"files {first_of(candidate.files)}" if candidate.files else "",
        f"functions {', '.join(candidate.functions)}" if candidate.functions else "",
        f"title words {', '.join(candidate.words)}" if candidate.words else "",
    )
    yield f"      {'; '.join(filter(None, common))}"
    if candidate.last_word:
        yield f"      {candidate.last_word}"
    yield f"      different: {candidate.answer}" if candidate.answer else "      no answer yet"


def linked_lines(queue: Queue, wish: Wish) -> list[str]:
    """Return lines on the pull requests that a new patch's issue links: possible duplicates."""
    from contribbot.contribute import duplicates

    draft = settle(queue, wish)
    repository = queue.upstreams[draft.pin.upstream].repository
    with _connect() as github:
        found = duplicates.linked_pulls(github, draft.issue, repository).values()
        candidates = [duplicates.candidate_of(item, draft.issue) for item in found]
        pulls = [duplicates.with_end(github, candidate) for candidate in candidates]
    if not pulls:
        return [f"  no pull request is linked from {draft.issue}"]
    rows = [f"{draft.issue} links:", *(row for pull in pulls for row in candidate_lines(pull))]
    way = f'contribbot gate {draft.name} --different OWNER/REPO#N="WHY"'
    return [*rows, f"the gate asks why this one is different: {way}"]


def _refuse_programs() -> None:
    """Raise UsageError if standard input or standard output is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "attest: standard input and output are no terminal, and nobody can read here",
            hint="a person must run it, in a terminal of their own; there is no option instead",
        )


@cli.command("attest rmsnorm")
def attest(patch: str = cli.PATCH) -> cli.Reply | None:
    """Show a person the diff, the text and the gate, and write down that they stand for it."""
    if current_settings().as_json:
        hint = "contribbot open-pr NAME --dry-run --json says whether it is attested"
        raise UsageError("--json is for programs, and a person attests", hint=hint)
    _refuse_programs()
    queue, name = cli.open_patch(patch)
    person = attesting.person_of(queue)
    if queue.patch(name).spec.contribution.person is None:
        # Show the change before the first questions, which come before the gate.
        _print([*patch_lines(queue.patch(name)), ""])
    queue = attesting.introduce(queue, name, person, _asker(2))
    gate = _judged(queue, name)
    if gate.blocking:
        rows = ", ".join(f"{row.rule} ({row.state})" for row in gate.blocking)
        first = f"{name}: nothing to attest yet; first: {rows}"
        return cli.Reply(gate, gate_blocks(gate), _exit_code(gate) or ExitCode.NO, [first])
    shown = attesting.prepare(queue, name, gate)
    _print([*shown_lines(shown)])
    answers = attesting.ask_all(shown.questions, _asker(len(shown.questions)))
    path = attesting.conclude(queue, shown, answers, person)
    cli.print_lines([f"{name}: attested by {person.name} <{person.email}>: {path}"])
    return None


def patch_lines(patch: Patch) -> Iterator[str]:
    """Yield every line of a patch's files, with unprintable characters escaped."""
    for file in patch.files:
        yield from _heading(file.name)
        text = file.content.decode("utf-8", "backslashreplace")
        yield from map(visible, text.removesuffix("\n").split("\n"))


def shown_lines(shown: Shown) -> Iterator[str]:
    """Yield every line of the diff, of the pull request's text and of the gate's table."""
    yield from patch_lines(shown.patch)
    yield from _heading(f"the pull request to {shown.gate.repository}")
    yield from (f"title: {visible(shown.body.title)}", "")
    yield from map(visible, shown.body.text.removesuffix("\n").split("\n"))
    yield from _heading("the gate")
    yield from (*lines_of(gate_blocks(shown.gate, everything=True)), "")


def visible(text: str) -> str:
    """Return a line with Python's escapes in place of characters that do not print."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def _heading(text: str) -> tuple[str, str, str]:
    return "", f"==== {visible(text)} ====", ""


def _asker(total: int) -> Callable[[model.Question], str | None]:
    """Return a function that asks a question under the next number, from `[1/total]` on."""
    numbers = itertools.count(1)

    def ask(question: model.Question) -> str | None:
        how = "yes, or anything else to end" if question.answer == "yes" else "in your own words"
        return ask_line(f"[{next(numbers)}/{total}] {clean(question.text)} ({how}) ")

    return ask


def _print(lines: Sequence[str]) -> None:
    """Print lines to the terminal, with escapes for characters that UTF-8 cannot encode."""
    text = "\n".join((*lines, "")).encode("utf-8", "backslashreplace")
    typer.echo(text, nl=False)


def ask_line(prompt: str) -> str | None:
    """Print a question and return the line typed after the question, None at the end of input."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    typer.echo(prompt, nl=False)
    sys.stdout.flush()
    typed = sys.stdin.readline()
    if not typed.endswith("\n"):
        typer.echo("")
        return None
    return typed


@cli.command("queue retire rmsnorm")
def retire(
    patch: str = cli.PATCH,
    why: str = cli.option("", "REASON", "Your reason, where none can be checked.", "--why"),
) -> cli.Reply:
    """Take a patch out of the queue when its upstream has it; its history is kept."""
    from contribbot.lifecycle.status import status_at_newest
    from contribbot.verify.pipeline import Options

    queue, name = cli.open_past(patch)
    with cli.live_lines() as lines:
        options = Options(jobs=len(os.sched_getaffinity(0)))
        status = functools.partial(status_at_newest, options=options, watcher=lines)
        done = take_out(queue, name, _connect, status, why=why)
    rows = [f"{done.patch}: retired: {done.why}", *(f"  {note}" for note in done.notes)]
    return cli.Reply(done, rows)


@cli.command("open-pr rmsnorm --dry-run")
def open_pr(
    patches: list[str] = cli.argument("PATCH", "Names of patches."),
    ready: bool = cli.flag("--ready", "For review, and no draft; marks a draft ready."),
    handoff: bool = cli.flag(
        "--handoff", "Only push the branch, and print the page that opens the pull request."
    ),
    up_to_date: bool = cli.flag(
        "--up-to-date", "Carry it onto the upstream's newest commit, changed or not."
    ),
    dry_run: bool = cli.flag(
        "--dry-run", "Show what would be sent, and what is missing; ask and send nothing."
    ),
) -> cli.Reply | None:
    """Open the pull request of an attested patch, or bring it up to date."""
    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue, names = cli.open_patches(patches)
    options = opening.OpenOptions(ready=ready, handoff=handoff, up_to_date=up_to_date)
    if dry_run:
        previews = opening.preview_all(queue, names, options)
        refused = any(row.what == "superseded" for each in previews for row in each.missing)
        document = OpeningView(dry_run=True, previews=previews)
        lines: list[Block] = [line for each in previews for line in (*_preview(each), "")]
        last = "GitHub was not asked; nothing was written, and nothing was sent"
        return cli.Reply(document, [*lines, last], int(refused))
    as_json, done = current_settings().as_json, list[opening.Opened]()
    with _connect() as github, cli.live_lines() as live:
        try:
            for opened in opening.open_all(queue, names, github, options, progress=live.download()):
                done.append(opened)
                if not as_json:
                    cli.print_lines(opened_lines(opened))
                rows = judge(queue, opened.patch, None).of(model.RowState.PERSON)
                notes = [f"{opened.patch}: for you: {row.rule}: {row.seen}" for row in rows]
                cli.print_lines(notes, stderr=True)
        finally:
            if as_json and (done or sys.exc_info()[0] is None):
                cli.print_json(OpeningView(dry_run=False, patches=tuple(done)))
    return None


class OpeningView(Model):
    """The document of `open-pr --json`."""

    dry_run: bool
    patches: tuple[opening.Opened, ...] = ()
    #: The previews of a dry run, for which `patches` is empty.
    previews: tuple[opening.Preview, ...] = ()


def opened_lines(opened: opening.Opened) -> list[str]:
    """Return lines on a run of open-pr for a patch: branch, commits, pull request and notes."""
    at = f"on {opened.upstream}@{opened.base_branch} {opened.base[:_SHORT]}"
    branch = f"{opened.fork}:{opened.branch} {opened.branch_was}"
    kind = "draft pull request" if opened.state == "draft" else "pull request"
    done: str = opened.pull_request_was
    done = "keeps the text that a person gave it" if done == "edited" else done
    pull = f"{kind} {opened.pull_request} {done}: {opened.url}"
    if done == "handed off":
        pull = f"no pull request yet: open it on {opened.url}"
    too_long = "the body is too long for that address: paste it from"
    return [
        f"{opened.patch}: branch {branch}, {at}, at {opened.head[:_SHORT]}",
        *(f"  {commit.id[:_SHORT]} {commit.subject}" for commit in opened.commits),
        f"  {pull}",
        *([f"  {too_long} {opened.body_file}"] if opened.body_file else []),
        *([f"  it waits for {', '.join(opened.waits_for)}"] if opened.waits_for else []),
        *(f"  note: {note}" for note in opened.notes),
    ]


_KINDS: Final = {
    "draft": "a draft pull request",
    "open": "a pull request, ready for review",
    "to be opened": "a branch; you open its pull request in the browser",
}


def _preview(now: opening.Preview) -> Iterator[Block]:
    """Yield the preview of `open-pr --dry-run`: pull request, commits, rules, missing parts."""
    kind = _KINDS[now.state]
    known = f"{now.pull_request} brought up to date, {kind}"
    fork = f"{now.fork}, your fork" if now.fork else "your fork"
    carried = "open-pr carries what is new onto the newest commit of that branch"
    refused = next((row.why for row in now.missing if row.what == "superseded"), "")
    size = f"{now.body.characters:,} characters: " if now.body else ""
    commits: list[str] = []
    for commit in now.commits:
        below = f" (of {commit.patch}, below it)" if commit.patch != now.patch else ""
        commits += [f"{commit.subject}{below}", *(f"  {path}" for path in commit.files)]
    sent = f"{refused}; open-pr refuses it" if refused else "what open-pr would send"
    yield f"{now.patch}: {sent}"
    facts = {
        "what": [known if now.pull_request else kind],
        "to": [f"{now.upstream}, its default branch"],
        "from": [f"{now.branch}, a branch of {fork}"],
        "title": [now.title],
        "commits": commits,
        "": [f"made on {now.pin}; {carried}"],
        "text": [f"{size}contribbot body {now.patch}" if size else "cannot be made yet"],
    }
    yield pairs(facts.items())
    yield from ("", f"the upstream's rules, without GitHub: {counts(now.gate)}")
    listed = {missing.what for missing in now.missing}
    rows = [row for row in now.gate.of(model.RowState.PERSON) if row.rule not in listed]
    yield from [rule_table(rows, indent=2)] if rows else ()
    yield from ("", "missing, or not known without GitHub:")
    yield pairs(
        (missing.what, [missing.why, *([f"-> {missing.next}"] if missing.next else ())])
        for missing in now.missing
    )


@cli.command("follow")
def follow() -> int:
    """Show the state of every pull request: CI by target, reviews, what is next for whom."""
    queue = cli.open_queue()
    following = look(queue, _connect)
    answer = cli.Reply(following.report, follow_lines(following.report), following.exit_code)
    code = answer.print(as_json=current_settings().as_json)
    # Remember the remarks after printing: remarks that were not printed stay new.
    following.remember(queue)
    return code


def follow_lines(report: model.FollowReport) -> list[str]:
    """Return the lines on the state of each contribution."""
    lines = [line for followed in report.contributions for line in _followed(followed)]
    lines += [f"nothing on GitHub yet: {', '.join(report.without)}"] if report.without else []
    return lines or ["nothing to follow: no pull request of this queue is open"]


def _followed(now: model.Followed) -> Iterator[str]:
    """Yield the lines of a contribution: state, CI, reviews, new remarks, next steps."""
    change = f" (was {now.change})" if now.change else ""
    title = f"  {now.title}" if now.title else ""
    yield f"{now.patch}: {now.reference or now.repository} {now.state}{change}{title}"
    if now.error:
        yield f"  could not be looked at: {now.error}"
    yield from (f"  {row}" for row in (now.url, now.why) if row)
    is_open = now.state in {"draft", "open"}
    if is_open:
        behind = (
            f"{count(now.behind or 0, 'commit')} behind it" if now.behind else "up to date with it"
        )
        yield f"  {_MERGES[now.mergeable]} {now.base}{'' if now.behind is None else f'; {behind}'}"
    if now.unread:
        yield f"  not read: {now.unread}"
    elif is_open:
        yield f"  CI: {'; '.join(map(_ci, now.jobs)) if now.jobs else 'no jobs have started'}"
        yield from [f"  CI is started so: {now.start}"] if now.start else ()
        by = f" by {', '.join(now.by)}" if now.by else ""
        verdict = "not reviewed yet" if now.decision == "none" else f"{now.decision}{by}"
        threads = now.threads
        counted = f"{threads.open} open, {threads.answered} answered, {threads.resolved} resolved"
        yield f"  {verdict}; threads: {counted}"
    for remark in now.new:
        marks = f" {remark.place}" * bool(remark.place)
        marks += f" ({remark.verdict})" * bool(remark.verdict)
        text = f": {' '.join(remark.text.split())}".removesuffix(": ")
        word = "changed" if remark.changed else "new"
        yield f"  {word}: {remark.at:%Y-%m-%d %H:%M} {remark.author}{marks}{text}"
    if now.more:
        yield f"  and {now.more} earlier new ones, on its page"
    yield from (f"  next, {step.who}: {step.what}" for step in now.next)


def _ci(ci: model.TargetCi) -> str:
    """Return a target's CI state in words, with the number of jobs and the failed jobs' names."""
    jobs = count(ci.jobs, "job")
    total = f" ({jobs})" if ci.jobs else ""
    more = f", {ci.running} running" if ci.running and ci.state != "running" else ""
    if ci.state == "not known":
        return f"{ci.target}: {jobs} passed; which are required is not known"
    if ci.missing:
        return f"{ci.target}: required and not started: {', '.join(ci.missing)}{total}"
    if not ci.failed:
        return f"{ci.target} {ci.state}{total}{more}"
    rest = ci.failures - len(ci.failed)
    named = ", ".join(ci.failed) + (f" and {rest} more" if rest else "")
    return f"{ci.target} {ci.state}: {named}{more}"
