"""`contribbot new`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated

from contribbot.cli import command as cli
from contribbot.cli.render import Block, conflict_blocks, count
from contribbot.errors import UsageError
from contribbot.model.base import Model
from contribbot.queue.exchange import Imported, import_sources, pull_in, pull_of
from contribbot.queue.new import Draft, Wish, create

_SOURCES = (
    "REPO A..B, REPO BRANCH (its commits above the pin), OWNER/REPO#N (a pull request), mboxes, "
    "format-patch files, folders of them, or - for standard input."
)


@cli.command("new fast-path ../vllm my-branch")
def new(
    name: cli.NameArgument,
    source: Annotated[
        list[str] | None, cli.argument("SOURCE", _SOURCES, default="none: an empty patch")
    ] = None,
    title: Annotated[
        str,
        cli.option("TEXT", "The title of its pull request.", default="the first commit's subject"),
    ] = "",
    pin: cli.PinOption = None,
    depends_on: Annotated[
        list[str] | None,
        cli.option("PATCH", "A patch below it; may be repeated.", complete=cli.patch_names),
    ] = None,
    after: cli.AfterOption = None,
    issue: Annotated[
        str,
        cli.option(
            "N",
            "The issue that it fixes; asks how yours differs from the pull requests that it links."
            " Without SOURCE and --title: a reproducer of the issue, checks alone.",
        ),
    ] = "",
    from_finding: Annotated[
        str,
        cli.option(
            "DIR#N", "A finding of `emulate --report DIR`: its check launches the kernel again."
        ),
    ] = "",
    pull: Annotated[
        str, cli.option("OWNER/REPO#N", "Somebody else's pull request, of which the files are.")
    ] = "",
    dry_run: cli.DryRunOption = False,
) -> cli.Reply:
    """Add a patch: its folder, a patch.toml to fill in, its place in the order.

    Of commits, mails or files it also begins a check, and takes the problem from the message.
    They must apply to the pin, or nothing is written.
    """
    if from_finding and source:
        raise UsageError("--from-finding begins a patch without commits", hint="omit the SOURCE")
    pulled = pull_of(source or (), pull) if pull or source else ""
    wish = Wish(name, title, pin, tuple(depends_on or ()), after, issue)
    queue = cli.open_queue()
    linked: list[str] = []
    keep_answers: Callable[[], None] = lambda: None  # noqa: E731  there is nothing to keep
    if issue:
        from contribbot.cli.contribute import ask_linked  # noqa: PLC0415  start-up time

        linked, keep_answers = ask_linked(queue, wish, asks=bool(title or source) and not dry_run)
    with cli.live_lines() as lines, cli.rehearsed(dry_run) as planned:
        if not source:
            if from_finding:
                from contribbot.sweep.new_patch import create_from  # noqa: PLC0415  start-up time

                draft = create_from(queue, wish, from_finding)
            else:
                draft = create(queue, wish)
            keep_answers()
            return cli.Reply(NewPatch.of(draft), [*new_lines(draft), *linked], planned=planned)
        online = pull_in(source)
        stdin = functools.partial(_read_pull, *online) if online else _read_stdin
        progress = lines.download()
        done = import_sources(queue, wish, source, stdin=stdin, pull=pulled, progress=progress)
    if done.conflicts:
        return cli.Reply(done, import_lines(done), 1)
    keep_answers()
    return cli.Reply(done, [*import_lines(done), *linked], planned=planned)


def _read_pull(repository: str, number: int) -> bytes:
    """Return the commits of a pull request as mails; nothing is written to GitHub."""
    from contribbot.github.client import connect  # noqa: PLC0415  only this asks GitHub

    with connect() as github:
        return github.mails(repository, number)


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        hint = "name an mbox, a folder of patches, or a clone and a range"
        raise UsageError("-: standard input is a terminal", hint=hint)
    return sys.stdin.buffer.read()


class NewPatch(Model):
    """The document of `new --json` for an empty patch."""

    patch: str
    upstream: str
    pin: str
    title: str
    depends_on: tuple[str, ...]
    planned: tuple[str, ...] = ()

    @classmethod
    def of(cls, draft: Draft) -> NewPatch:
        """View a patch that was begun."""
        pin, below = draft.pin, draft.depends_on
        return cls(
            patch=draft.name,
            upstream=pin.upstream,
            pin=pin.tag,
            title=draft.title,
            depends_on=below,
        )


def new_lines(draft: Draft) -> list[Block]:
    """Return an empty patch and the next steps."""
    return [
        f"{draft.name}: begun on {draft.pin.title}",
        f"  make its commits: contribbot edit {draft.name}"
        if not draft.reproduces
        else f"  state in patch.toml what shows {draft.issue}, or that it is gone (pass-to-pass)",
        *_next(draft.name),
    ]


def import_lines(done: Imported) -> list[Block]:
    """Return imported commits and the next steps, or the conflicts."""
    same = [f"  identical to {name}, whose change it makes" for name in done.same_as]
    if done.conflicts:
        last = f"{done.patch}: not imported, nothing was written"
        return [*conflict_blocks(done.conflicts), *same, last]
    total = len(done.patch_files)
    lines = [f"{done.patch}: {count(total, 'commit')} on {done.pin}"]
    lines += [f"  {name}" for name in done.patch_files]
    for text, rows in (
        ("not exactly: {}", "; ".join(done.adjustments)),
        (f"written anew, as git writes them: {{}} of {total}", f"{len(done.rewritten) or ''}"),
        ("merged with what the pin has: {}", ", ".join(done.merged)),
    ):
        lines += [f"  {text.format(rows)}"] if rows else []
    check = f"patches/{done.patch}/checks/test_red.py"
    lines += same
    lines.append(f"  write the check {check}, and run it: contribbot check {done.patch}")
    return [*lines, *_next(done.patch)]


def _next(name: str) -> list[str]:
    return [
        f"  say what it is for, and state what proves it: patches/{name}/patch.toml",
        f"  prove it: contribbot verify {name}",
    ]
