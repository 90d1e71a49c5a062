"""The queue and its patches, for people and for programs."""

from __future__ import annotations

import textwrap

from contribbot.model.base import Model
from contribbot.model.check import Check
from contribbot.model.patch import Patch, PatchSpec
from contribbot.model.proofs import Bench, Build, Compile
from contribbot.queue.load import Queue
from contribbot.report.text import clean


class Entry(Model):
    """One patch of the list.

    Attributes:
        patch: Its name.
        upstream: The upstream.
        pin: The pin's tag.
        depends_on: The patches below it.
        title: The title of its pull request.
        commits: How many patch files it has; 0: it is just begun.
        unproved: Whether nothing is stated that could prove it.
    """

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
    """What `list --json` prints.

    Attributes:
        patches: In the queue's order.
    """

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
    """What `show --json` prints.

    Attributes:
        patch: Its name.
        repository: Where it goes.
        patch_sha256: Digest of its patch files.
        patch_files: Their names.
        spec: Its `patch.toml`.
    """

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
