"""The commands of a pull request: `open-pr` and `follow`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from contribbot.cli import command as cli
from contribbot.cli.contribute import counts, rule_table
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, count, pairs
from contribbot.contribute.follow import follow as look
from contribbot.contribute.gate import judge
from contribbot.contribute.model import (
    Followed,
    FollowReport,
    Remark,
    RowState,
    TargetCi,
)
from contribbot.contribute.open_pr import Opened, OpenOptions, open_all
from contribbot.contribute.preview import Preview, PreviewCommit, preview_all
from contribbot.errors import UsageError
from contribbot.github.client import connect
from contribbot.markdown import shortened
from contribbot.model.base import Model

_SHORT: Final = 12
_MERGES: Final = {
    "yes": "merges with",
    "no": "conflicts with",
    "not known": "GitHub has not said whether it merges with",
}
_FIRST: Final = 6
_LINE: Final = 86


@cli.command("open-pr rmsnorm --dry-run")
def open_pr(
    patches: Annotated[
        list[str],
        cli.argument("PATCH", "Names of patches.", complete=cli.patch_names),
    ],
    ready: Annotated[
        bool, cli.flag("--ready", "For review, and no draft; marks a draft ready.")
    ] = False,
    handoff: Annotated[
        bool,
        cli.flag(
            "--handoff", "Only push the branch, and print the page that opens the pull request."
        ),
    ] = False,
    up_to_date: Annotated[
        bool,
        cli.flag("--up-to-date", "Carry it onto the upstream's newest commit, changed or not."),
    ] = False,
    dry_run: Annotated[
        bool,
        cli.flag(
            "--dry-run", "Show what would be sent, and what is missing; ask and send nothing."
        ),
    ] = False,
) -> cli.Reply | None:
    """Open the pull request of an attested patch, or bring it up to date."""
    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue, names = cli.open_patches(patches)
    options = OpenOptions(ready=ready, handoff=handoff, up_to_date=up_to_date)
    if dry_run:
        previews = preview_all(queue, names, options)
        refused = any(row.what == "superseded" for each in previews for row in each.missing)
        document = OpeningView(dry_run=True, previews=previews)
        return cli.Reply(document, preview_lines(previews), int(refused))
    as_json, done = current_settings().as_json, list[Opened]()
    with connect() as github, cli.live_lines() as lines:
        try:
            for opened in open_all(queue, names, github, options, progress=lines.download()):
                done.append(opened)
                if not as_json:
                    cli.print_lines(opened_lines(opened))
                rows = judge(queue, opened.patch, None).of(RowState.PERSON)
                notes = [f"{opened.patch}: for you: {row.rule}: {row.seen}" for row in rows]
                cli.print_lines(notes, stderr=True)
        finally:
            if as_json and (done or sys.exc_info()[0] is None):
                cli.print_json(OpeningView(dry_run=False, patches=tuple(done)))
    return None


class OpeningView(Model):
    """The document of `open-pr --json`."""

    dry_run: bool
    patches: tuple[Opened, ...] = ()
    #: The previews of a dry run, for which `patches` is empty.
    previews: tuple[Preview, ...] = ()


def opened_lines(opened: Opened) -> list[str]:
    """Return the lines that tell what open-pr did for a patch."""
    base = f"{opened.upstream}@{opened.base_branch} {opened.base[:_SHORT]}"
    at = f"on {base}, at {opened.head[:_SHORT]}"
    branch = f"{opened.fork}:{opened.branch} {opened.branch_was}"
    lines = [
        f"{opened.patch}: branch {branch}, {at}",
        *(f"  {commit.id[:_SHORT]} {commit.subject}" for commit in opened.commits),
        f"  {_pull(opened)}",
    ]
    if opened.body_file:
        lines.append(f"  the body is too long for that address: paste it from {opened.body_file}")
    if opened.waits_for:
        lines.append(f"  it waits for {', '.join(opened.waits_for)}")
    lines += [f"  note: {note}" for note in opened.notes]
    return lines


def _pull(opened: Opened) -> str:
    kind = "draft pull request" if opened.state == "draft" else "pull request"
    match opened.pull_request_was:
        case "handed off":
            return f"no pull request yet: open it on {opened.url}"
        case "edited":
            kept = "keeps the text that a person gave it"
            return f"{kind} {opened.pull_request} {kept}: {opened.url}"
        case done:
            return f"{kind} {opened.pull_request} {done}: {opened.url}"


def preview_lines(previews: Sequence[Preview]) -> list[Block]:
    """Return the pull requests that would be opened, each with its missing parts."""
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
    yield f"{now.patch}: {sent}"
    yield pairs(
        (
            ("what", [known if now.pull_request else kind]),
            ("to", [f"{now.upstream}, its default branch"]),
            ("from", [f"{now.branch}, a branch of {fork}"]),
            ("title", [now.title]),
            ("commits", [row for commit in now.commits for row in _commit(commit, now)]),
            ("", [f"made on {now.pin}; {carried}"]),
            ("text", [*_beginning(now)]),
        )
    )
    yield from ("", f"the upstream's rules, without GitHub: {counts(now.gate)}")
    listed = {missing.what for missing in now.missing}
    rows = [row for row in now.gate.of(RowState.PERSON) if row.rule not in listed]
    yield from [rule_table(rows, indent=2)] if rows else ()
    yield from ("", "missing, or not known without GitHub:")
    steps = [
        [missing.why, *([f"-> {missing.next}"] if missing.next else ())] for missing in now.missing
    ]
    yield pairs(zip((missing.what for missing in now.missing), steps, strict=True))


def _commit(commit: PreviewCommit, now: Preview) -> Iterator[str]:
    below = f" (of {commit.patch}, below it)" if commit.patch != now.patch else ""
    yield f"{commit.subject}{below}"
    yield from (f"  {path}" for path in commit.files)


def _beginning(now: Preview) -> Iterator[str]:
    """Yield the first lines of the text, and the command that prints the whole text."""
    if now.body is None:
        yield "cannot be made yet"
        return
    rows = [row for row in now.body.text.splitlines() if row.strip()]
    yield from (f"| {shortened(row, _LINE)}" for row in rows[:_FIRST])
    if len(rows) > _FIRST:
        yield f"all {now.body.characters:,} characters: contribbot body {now.patch}"


@cli.command("follow")
def follow() -> int:
    """Show the state of every pull request: CI by target, reviews, what is next for whom."""
    queue = cli.open_queue()
    following = look(queue, connect)
    answer = cli.Reply(following.report, follow_lines(following.report), following.exit_code)
    code = answer.print(as_json=current_settings().as_json)
    # Remember the remarks after printing: remarks that were not printed stay new.
    following.remember(queue)
    return code


def follow_lines(report: FollowReport) -> list[str]:
    """Return the lines on the state of each contribution."""
    lines = [line for followed in report.contributions for line in _followed(followed)]
    if report.without:
        lines.append(f"nothing on GitHub yet: {', '.join(report.without)}")
    if not lines:
        lines.append("nothing to follow: no pull request of this queue is open")
    return lines


def _followed(now: Followed) -> Iterator[str]:
    change = f" (was {now.change})" if now.change else ""
    title = f"  {now.title}" if now.title else ""
    yield f"{now.patch}: {now.reference or now.repository} {now.state}{change}{title}"
    if now.error:
        yield f"  could not be looked at: {now.error}"
    yield from (f"  {row}" for row in (now.url, now.why) if row)
    if now.state in {"draft", "open"}:
        yield f"  {_MERGES[now.mergeable]} {now.base}{_behind(now)}"
    if now.unread:
        yield f"  not read: {now.unread}"
    elif now.state in {"draft", "open"}:
        yield f"  CI: {'; '.join(map(_ci, now.jobs)) if now.jobs else 'no jobs have started'}"
        if now.start:
            yield f"  CI is started so: {now.start}"
        by = f" by {', '.join(now.by)}" if now.by else ""
        verdict = "not reviewed yet" if now.decision == "none" else f"{now.decision}{by}"
        threads = now.threads
        counted = f"{threads.open} open, {threads.answered} answered, {threads.resolved} resolved"
        yield f"  {verdict}; threads: {counted}"
    for remark in now.new:
        yield f"  {'changed' if remark.changed else 'new'}: {remark_line(remark)}"
    if now.more:
        yield f"  and {now.more} earlier new ones, on its page"
    yield from (f"  next, {step.who}: {step.what}" for step in now.next)


def _behind(now: Followed) -> str:
    if now.behind is None:
        return ""
    behind = f"{count(now.behind, 'commit')} behind it"
    return f"; {behind if now.behind else 'up to date with it'}"


def _ci(ci: TargetCi) -> str:
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


def remark_line(said: Remark) -> str:
    """Return a remark as one line."""
    at = f"{said.at:%Y-%m-%d %H:%M} "
    place = f" {said.place}" if said.place else ""
    verdict = f" ({said.verdict})" if said.verdict else ""
    text = " ".join(said.text.split())
    return f"{at}{said.author}{place}{verdict}{': ' if text else ''}{text}"
