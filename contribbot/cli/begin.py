"""`contribbot demo`, `init`, `pin add` and `new`."""

from __future__ import annotations

import functools
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contribbot.cli import command as cli
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Code, conflict_blocks, count, width
from contribbot.errors import UsageError
from contribbot.model.base import Model
from contribbot.queue.exchange import Imported, import_sources, pull_in
from contribbot.queue.new import BegunQueue, Draft, Wish, add_pin, create, init_queue

if TYPE_CHECKING:
    from contribbot.demo import DemoStep

#: The numbers of first and last lines that the demo shows of a command's output.
_FIRST, _LAST = 10, 8
#: The width in columns of the commands' output if the demo's output is a pipe.
_PAGE = 100
_NEXT = "your first patch, in ten minutes: docs/first-patch.md; it begins with contribbot init DIR"


@cli.command("demo look-around")
def demo(
    keep: Path | None = cli.argument(
        "DIR", "A new folder, which keeps everything.", None, default="a temporary folder"
    ),
) -> cli.Reply:
    """Take a toy patch from an empty queue to its pull request; nothing leaves this machine."""
    from contribbot.demo import Demo, DemoStep, demo_folder, walk  # noqa: PLC0415  start-up time

    as_json = current_settings().as_json
    start, steps = time.monotonic(), list[DemoStep]()

    def begin(about: str, line: str) -> None:
        if not as_json:
            cli.print_lines([*(["", f"# {about}"] if about else []), Code(f"$ {line}")])

    with demo_folder(keep) as folder:
        for step in walk(folder, columns=width() or _PAGE, begin=begin):
            steps.append(step)
            if not as_json:
                cli.print_lines(_shortened(step))
    place, seconds = shlex.quote(str(folder)), time.monotonic() - start
    again = f"  CONTRIBBOT_CACHE={place}/cache contribbot verify waves"
    kept = ["Kept:", Code(f"  cd {place}/my-queue"), Code(again)]
    removed = "It is removed again; `contribbot demo DIR` leaves it for you to look at."
    lines: list[Block] = [
        "",
        f"All of this ran here in {seconds:.0f} s, on a toy, and nothing left this machine.",
        *(kept if keep else [removed]),
        f"next: {_NEXT}",
    ]
    return cli.Reply(Demo(steps=(*steps,), kept=str(folder) if keep else "", next=_NEXT), lines)


def _shortened(step: DemoStep) -> list[str]:
    """Return the output lines of a demo's command; a long output loses the lines in the middle."""
    rows = step.output.splitlines()
    left_out = len(rows) - _FIRST - _LAST
    if left_out > 1:
        rows[_FIRST:-_LAST] = [f"[… {left_out} lines that the demo leaves out …]"]
    rows += [f"[exit code {step.exit_code}]"] if step.exit_code else []
    return [Code(row) for row in rows]


@cli.command("init my-queue")
def init(
    folder: Path | None = cli.argument(
        "DIR", "An empty folder, or a repository.", None, default="the current folder"
    ),
) -> cli.Reply:
    """Begin a queue: patches/queue.toml, .gitignore, .gitattributes."""
    folder = folder or current_settings().queue or Path()
    place, written = folder.resolve(), init_queue(folder)
    lines: list[Block] = [f"{place}: an empty queue, with {', '.join(written)}"]
    lines += [Code(f"  cd {shlex.quote(str(folder))}")] if place != Path.cwd() else []
    if not any((above / ".git").exists() for above in (place, *place.parents)):
        lines.append(
            "  not in git: after `git init`, each operation on it is logged and can be undone"
        )
    lines.append("  pin a release: contribbot pin add sglang VERSION (or newest; or vllm, torch)")
    return cli.Reply(BegunQueue(folder=str(place), written=(*written,)), lines)


@cli.command("pin add sglang newest")
def pin_add(
    upstream: str = cli.argument("UPSTREAM", "Its name: sglang, vllm, torch, …."),
    release: str = cli.argument("RELEASE", "The version, its tag, or newest."),
) -> cli.Reply:
    """Pin a release: look it up at pip's package index, check it, write it into queue.toml."""
    queue = cli.open_queue()
    with cli.live_lines() as lines:
        added = add_pin(queue, upstream, release, progress=lines.download())
    facts = (("file", added.file), ("from", added.place), ("sha256", added.sha256))
    rows = [
        f"{added.upstream} {added.tag}: pinned in patches/queue.toml",
        *(f"  {title:<6}  {fact}" for title, fact in facts if added.file),
        f"  begin a patch: contribbot new NAME --title T --pin {added.tag}",
    ]
    return cli.Reply(added, rows)


_SOURCES = (
    "REPO A..B, REPO BRANCH (its commits above the pin), OWNER/REPO#N (a pull request), mboxes, "
    "format-patch files, folders of them, or - for standard input."
)
_ISSUE = (
    "The issue that it fixes; shows the pull requests that it links."
    " Without SOURCE and --title: a reproducer of the issue, checks alone."
)
_FINDING = "A finding of `emulate --report DIR`: its check launches the kernel again."


@cli.command("new fast-path ../vllm my-branch")
def new(
    name: str = cli.NAME,
    source: list[str] | None = cli.argument(
        "SOURCE", _SOURCES, None, default="none: an empty patch"
    ),
    title: str = cli.option(
        "", "TEXT", "The title of its pull request.", default="the first commit's subject"
    ),
    pin: str | None = cli.PIN,
    depends_on: list[str] | None = cli.option(None, "PATCH", "A patch below it; may be repeated."),
    issue: str = cli.option("", "N", _ISSUE),
    from_finding: str = cli.option("", "DIR#N", _FINDING),
) -> cli.Reply:
    """Add a patch: its folder, a patch.toml to fill in, its place in the order.

    Of commits, mails or files it also begins a check, and takes the problem from the message.
    They must apply to the pin, or nothing is written.
    """
    if from_finding and source:
        raise UsageError("--from-finding begins a patch without commits", hint="omit the SOURCE")
    wish = Wish(name, title, pin, tuple(depends_on or ()), issue)
    queue = cli.open_queue()
    linked: list[str] = []
    if issue:
        from contribbot.cli.contribute import linked_lines  # noqa: PLC0415  start-up time

        linked = linked_lines(queue, wish)
    if from_finding:
        from contribbot.sweep.new_patch import create_from  # noqa: PLC0415  start-up time

        return _new(create_from(queue, wish, from_finding), linked)
    if not source:
        return _new(create(queue, wish), linked)
    with cli.live_lines() as lines:
        online = pull_in(source)
        stdin = functools.partial(_read_pull, *online) if online else _read_stdin
        progress = lines.download()
        done = import_sources(queue, wish, source, stdin=stdin, progress=progress)
    if done.conflicts:
        last = f"{done.patch}: not imported, nothing was written"
        return cli.Reply(done, [*conflict_blocks(done.conflicts), last], 1)
    return cli.Reply(done, [*import_lines(done), *linked])


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


def _new(draft: Draft, linked: Sequence[str]) -> cli.Reply:
    """Return the reply of `contribbot new` for a patch without commits, with the next commands."""
    document = NewPatch(
        patch=draft.name,
        upstream=draft.pin.upstream,
        pin=draft.pin.tag,
        title=draft.title,
        depends_on=draft.depends_on,
    )
    step = f"  make its commits: contribbot edit {draft.name}"
    if draft.reproduces:
        step = f"  state in patch.toml what shows {draft.issue}, or that it is gone (pass-to-pass)"
    begun = f"{draft.name}: begun on {draft.pin.title}"
    return cli.Reply(document, [begun, step, *_next(draft.name), *linked])


def import_lines(done: Imported) -> list[str]:
    """Return lines to print on the imported commits, and on the commands to run next."""
    total, rewritten = len(done.patch_files), len(done.rewritten)
    lines = [f"{done.patch}: {count(total, 'commit')} on {done.pin}"]
    lines += [f"  {name}" for name in done.patch_files]
    lines += [f"  not exactly: {'; '.join(done.adjustments)}"] if done.adjustments else []
    lines += [f"  written anew, as git writes them: {rewritten} of {total}"] if rewritten else []
    lines += [f"  merged with what the pin has: {', '.join(done.merged)}"] if done.merged else []
    check = f"patches/{done.patch}/checks/test_red.py"
    lines.append(f"  write the check {check}, and run it: contribbot check {done.patch}")
    return [*lines, *_next(done.patch)]


def _next(name: str) -> list[str]:
    """Return lines that say to fill in patch.toml, and to run `contribbot verify`."""
    return [
        f"  say what it is for, and state what proves it: patches/{name}/patch.toml",
        f"  prove it: contribbot verify {name}",
    ]
