"""The queue and its patches, for people and for programs."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

from contribbot.cli.output import clean, side_lines
from contribbot.model.base import Model
from contribbot.model.checks import Bench, Build, Check, Compile
from contribbot.model.history import Event
from contribbot.model.lifecycle import Side
from contribbot.model.patch import Patch, PatchSpec
from contribbot.queue.export import Export
from contribbot.queue.import_ import Imported
from contribbot.queue.load import Queue
from contribbot.queue.new import Draft
from contribbot.queue.range_diff import Compared
from contribbot.queue.refresh import Refreshed
from contribbot.queue.worktree import Opened, printable


class Entry(Model):
    """One patch of the list."""

    patch: str
    upstream: str
    pin: str
    depends_on: tuple[str, ...]
    title: str
    commits: int
    unproved: bool

    @property
    def state(self) -> str:
        """What it lacks, in a few words; empty when it has all."""
        lacks = [
            *(["no commits yet"] if not self.commits else []),
            *(["nothing could prove it yet"] if self.unproved else []),
        ]
        return f" [{', '.join(lacks)}]" if lacks else ""


class PatchList(Model):
    """What `list --json` prints."""

    patches: tuple[Entry, ...]

    @classmethod
    def of(cls, queue: Queue) -> PatchList:
        """List a queue."""
        return cls(
            patches=tuple(
                Entry(
                    patch=name,
                    upstream=spec.upstream,
                    pin=spec.pin,
                    depends_on=spec.depends_on,
                    title=spec.title,
                    commits=len(list((queue.folder / "patches" / name).glob("*.patch"))),
                    unproved=spec.unproved,
                )
                for name, spec in queue.specs.items()
            )
        )


class PatchView(Model):
    """What `show --json` prints."""

    patch: str
    repository: str
    patch_sha256: str
    patch_files: tuple[str, ...]
    spec: PatchSpec

    @classmethod
    def of(cls, patch: Patch) -> PatchView:
        """View a patch."""
        return cls(
            patch=patch.name,
            repository=patch.upstream.repository,
            patch_sha256=patch.digest,
            patch_files=tuple(file.name for file in patch.files),
            spec=patch.spec,
        )


def list_lines(listed: PatchList) -> list[str]:
    """Return the list as aligned lines."""
    rows = [
        (one.patch, f"{one.upstream} {one.pin}", clean(one.title) + one.state)
        for one in listed.patches
    ]
    if not rows:
        return ["the queue is empty"]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{name:{widths[0]}}  {pin:{widths[1]}}  {title}" for name, pin, title in rows]


def show_lines(view: PatchView, *, width: int) -> list[str]:
    """Return a patch as lines for a terminal."""
    spec = view.spec
    lines = [
        clean(spec.title),
        "",
        f"patch       {view.patch} (sha256 {view.patch_sha256[:12]})",
        f"upstream    {view.repository} at {spec.pin}",
    ]
    lines += _listed("depends on", spec.depends_on)
    lines += _listed("files", spec.files)
    none = f"none yet: `contribbot edit {view.patch}` opens a tree to make them in"
    lines += _listed("commits", view.patch_files or (none,))
    lines += _listed("related", spec.related)
    for title, prose in (
        ("What is wrong", spec.problem),
        ("Root cause", spec.root_cause),
        ("Solution", spec.solution),
    ):
        lines += ["", title]
        for row in prose.strip().splitlines():
            wrapped = textwrap.wrap(
                clean(row), width - 2, break_long_words=False, break_on_hyphens=False
            )
            lines += [f"  {part}" for part in wrapped] or [""]
    for title, rows in (
        ("Checks", [_check_line(check) for check in spec.checks] or _no_proof(spec)),
        ("Compiled", [_compile_line(entry) for entry in spec.compile]),
        ("Built", [_build_line(entry) for entry in spec.build]),
        ("Numerics", [_check_line(entry) for entry in spec.numerics]),
        ("Bench", [_bench_line(entry) for entry in spec.bench]),
    ):
        lines += ["", title, *(f"  {row}" for row in rows)] if rows else []
    return lines


def _listed(title: str, items: tuple[str, ...]) -> list[str]:
    return [f"{title if not number else '':12}{item}" for number, item in enumerate(items)]


def _no_proof(spec: PatchSpec) -> list[str]:
    return ["nothing is stated that could prove it yet"] if spec.unproved else []


def _check_line(check: Check) -> str:
    needs = ", ".join(check.requires)
    return f"{check.name}: {check.expect}, needs {needs}"


def _compile_line(entry: Compile) -> str:
    return f"{entry.name}: {entry.expect}, {entry.source} for {', '.join(entry.targets)}"


def _build_line(entry: Build) -> str:
    return f"{entry.name}: {entry.way}, for {', '.join(entry.targets)}"


def _bench_line(entry: Bench) -> str:
    needs = ", ".join(entry.requires)
    return f"{entry.name}: at least {entry.at_least:g} times the base's speed, needs {needs}"


class CommitView(Model):
    """A commit of a work tree."""

    commit: str
    subject: str


class EditView(Model):
    """What `edit --json` prints."""

    patch: str
    state: str
    path: str | None = None
    base_commit: str | None = None
    commits: tuple[CommitView, ...] = ()
    why: str = ""
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, opened: Opened) -> EditView:
        """View an open tree."""
        return cls(
            patch=name,
            state="opened" if opened.fresh else "changed" if opened.stale else "open",
            path=printable(opened.path),
            base_commit=opened.base,
            commits=tuple(CommitView(commit=one.id, subject=one.subject) for one in opened.commits),
            why=opened.stale,
        )

    @classmethod
    def aborted(cls, name: str, lost: tuple[str, ...]) -> EditView:
        """View a tree that is removed, unless something would be lost with it."""
        return cls(
            patch=name,
            state="kept" if lost else "removed",
            lost=tuple(printable(one) for one in lost),
        )


def edit_lines(name: str, opened: Opened) -> list[str]:
    """Return where a patch is open and what to do next, as lines."""
    path = clean(printable(opened.path))
    lines = [f"{name} is open in {path}" if opened.fresh else f"{name} is open already, in {path}"]
    lines += [f"  {one.id[:12]}  {clean(one.subject)}" for one in opened.commits]
    if opened.stale:
        return [
            *lines,
            f"{clean(opened.stale)}.",
            f"  contribbot refresh --force {name}   # take what is there all the same",
            f"  contribbot edit --abort {name}      # remove the tree, to open it anew",
        ]
    return [
        *lines,
        f"Change files there, or commits with plain git (git rebase -i {opened.base[:12]}).",
        f"  cd {shlex.quote(path)}",
        "  contribbot refresh               # take it back, as often as you like",
        f"  contribbot edit --abort {name}   # remove the tree when you are done",
    ]


def lost_lines(name: str, path: Path, lost: tuple[str, ...]) -> list[str]:
    """Return what would be lost with a tree, as lines."""
    return [
        f"{name}: {clean(printable(path))} holds what refresh has not taken:",
        *(f"  {clean(one)}" for one in lost),
    ]


def refresh_lines(done: Refreshed) -> list[str]:
    """Return what came of a refresh, as lines."""
    name = done.patch
    lines = [f"{name}: {clean(path)} is in no commit" for path in done.left_out]
    if done.refused:
        lines += [f"{name}: {clean(one)}" for one in done.refused]
        lines += [f"  {one.patch}: {clean(one.why)}" for one in done.broken]
        lines.append(f"{name}: nothing was written; `refresh --force {name}` takes it anyway")
        if done.resolve:
            lines.append(f"Resolve the conflict in {clean(done.resolve)} (git add, ")
            lines[-1] += f"git cherry-pick --continue), then: contribbot refresh {name}"
        return lines
    if not done.changed:
        return [*lines, f"{name}: nothing has changed"]
    count = len(done.patch_files)
    version = f" as v{done.version}" if done.version else ""
    lines.append(f"{name}: taken{version}, {count} commit{'s' if count > 1 else ''}")
    lines += [f"  {clean(file)}" for file in done.patch_files]
    lines += [f"{name}: added to `files` of patch.toml: {clean(path)}" for path in done.files_added]
    lines += [
        f"{name}: taken out of `files` of patch.toml: {clean(path)}" for path in done.files_removed
    ]
    lines += [f"{one}: carried along, merged onto it" for one in done.carried]
    lines += [f"{one.patch}: no longer applies: {clean(one.why)}" for one in done.broken]
    return [*lines, f"Prove it again with `contribbot verify {name}`."]


def conflict_text(conflicts: Sequence[Side]) -> list[str]:
    """Return each conflict in one line, with the three sides of its hunk below it."""
    return [row for one in conflicts for row in side_lines(one, base="the pin")]


def import_lines(done: Imported) -> list[str]:
    """Return what an import did, as lines."""
    if done.conflicts:
        return [*conflict_text(done.conflicts), f"{done.patch}: not imported, nothing was written"]
    count = len(done.patch_files)
    lines = [f"{done.patch}: {count} commit{'s' if count > 1 else ''} on {done.pin}"]
    lines += [f"  {clean(name)}" for name in done.patch_files]
    if done.adjustments:
        lines.append(f"  not exactly: {clean('; '.join(done.adjustments))}")
    if done.rewritten:
        lines.append(f"  written anew, as git writes them: {len(done.rewritten)} of {count}")
    return [*lines, *_next(done.patch)]


def export_lines(done: Export, form: str) -> list[str]:
    """Return what an export holds, as lines."""
    count = len(done.commits)
    lines = [f"{', '.join(done.patches)}: {count} commit{'s' if count > 1 else ''} for {done.pin}"]
    if done.added:
        lines.append(f"  with {', '.join(done.added)}, which it depends on (--alone: without)")
    if form == "mbox" and any(b"\nSubject: [PATCH] [" in one.file.content for one in done.commits):
        lines.append("  git am --keep-non-patch keeps the brackets of the subjects")
    return lines


def new_lines(draft: Draft) -> list[str]:
    """Return what `new` did, as lines."""
    return [
        f"{draft.name}: begun on {draft.pin.title}",
        f"  make its commits: contribbot edit {draft.name}",
        *_next(draft.name),
    ]


def _next(name: str) -> list[str]:
    return [
        f"  say what it is for, and state what proves it: patches/{name}/patch.toml",
        f"  prove it: contribbot verify {name}",
    ]


class HistoryView(Model):
    """What `log --json` prints."""

    patch: str
    events: tuple[Event, ...]


def log_lines(patch: str, events: Sequence[Event]) -> list[str]:
    """Return a line an event, oldest first: time, kind, what happened."""
    if not events:
        return [f"{patch}: nothing is recorded yet"]
    width = max(len(clean(one.event)) for one in events)
    return [
        f"{one.time:%Y-%m-%d %H:%M}  {clean(one.event):{width}}  {clean(one.summary)}"
        for one in events
    ]


def diff_lines(view: Compared) -> list[str]:
    """Return a comparison as lines for a terminal."""
    if view.same:
        return [f"{view.patch}: {view.old} and {view.new} are the same"]
    rows = view.range_diff.splitlines()
    return [
        f"{view.patch}: {view.old} against {view.new}",
        *(clean(row.expandtabs()).rstrip() for row in rows),
    ]
