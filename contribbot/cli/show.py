"""`contribbot show` and `queue list`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from contribbot.cli.command import PatchArgument, Reply, command, open_patch, open_queue
from contribbot.cli.render import Block, StateText, Table, indented, pairs, summary_of
from contribbot.errors import ContribbotError
from contribbot.model.base import Model
from contribbot.model.checks import Check, Numerics
from contribbot.model.evidence import RAN, Verdict
from contribbot.model.patch import Patch, PatchSpec
from contribbot.queue import history
from contribbot.queue.history import Refutation, pull_request_words, superseded_words
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, State, read_records, refutations
from contribbot.verify.verdict import proves, refuted_words


@command("show rmsnorm")
def show(patch: PatchArgument) -> Reply:
    """Show what a patch is for, what it touches and what proves it."""
    queue, name = open_patch(patch)
    view = PatchView.of(queue, queue.patch(name))
    return Reply(view, patch_blocks(view))


class PatchView(Model):
    """The document of `show --json`."""

    patch: str
    repository: str
    patch_sha256: str
    patch_files: tuple[str, ...]
    spec: PatchSpec
    superseded: str = Field(default="", exclude_if=operator.not_)

    @classmethod
    def of(cls, queue: Queue, patch: Patch) -> PatchView:
        """Return the view of a patch."""
        return cls(
            patch=patch.name,
            repository=patch.upstream.repository,
            patch_sha256=patch.digest,
            patch_files=tuple(file.name for file in patch.files),
            spec=patch.spec.model_copy(update={"files": patch.paths}),
            superseded=superseded_words(queue, patch.name),
        )


def patch_blocks(view: PatchView) -> list[Block]:
    """Return the purpose of a patch, its problem and its proofs."""
    spec = view.spec
    none = f"none yet: `contribbot edit {view.patch}` opens a tree to make them in"
    superseded = [f"{view.patch}: {view.superseded}"] if view.superseded else []
    facts = (
        ("patch", [f"{view.patch} (sha256 {view.patch_sha256[:12]})"]),
        ("upstream", [f"{view.repository} at {spec.pin}"]),
        ("depends on", spec.depends_on),
        ("files", spec.files),
        ("commits", view.patch_files or [none]),
        ("related", spec.related),
        ("of", [f"{spec.theirs}, which is somebody else's"] if spec.theirs else []),
    )
    blocks: list[Block] = [*superseded, spec.title, "", pairs(facts, indent=0)]
    prose = {
        "What is wrong": spec.problem.strip().splitlines(),
        "Root cause": spec.root_cause.strip().splitlines(),
        "Solution": spec.solution.strip().splitlines(),
    }
    for title, rows in (prose | _proofs(spec)).items():
        blocks += ["", title, *indented(rows)] if rows else []
    return blocks


def _proofs(spec: PatchSpec) -> dict[str, list[str]]:
    """Return by title the entries of patch.toml that prove a patch, a line each."""
    unproved = ["nothing is stated that could prove it yet"]
    return {
        "Checks": unproved if spec.unproved else _runs(spec.checks),
        "Compiled": [
            f"{entry.name}: {entry.expect}, {entry.source} for {', '.join(entry.targets)}"
            for entry in spec.compile
        ],
        "Built": [
            f"{build.name}: {build.way}, for {', '.join(build.targets)}" for build in spec.build
        ],
        "Numerics": _runs(spec.numerics),
        "Emulated": [
            f"{entry.name}: {entry.expect}, {entry.compile or 'on the tree'} for "
            f"{', '.join(entry.targets)}"
            for entry in spec.emulated
        ],
        "Bench": [
            f"{bench.name}: at least {bench.at_least:g} times the base's speed, needs "
            f"{', '.join(bench.requires)}"
            for bench in spec.bench
        ],
    }


def _runs(stated: Sequence[Check | Numerics]) -> list[str]:
    return [f"{run.name}: {run.expect}, needs {', '.join(run.requires)}" for run in stated]


@command("queue list --json")
def list_patches() -> Reply:
    """List the patches in the queue's order."""
    listed = PatchList.of(open_queue())
    return Reply(listed, list_blocks(listed))


class ListedPatch(Model):
    """A patch in the list of `queue list`."""

    patch: str
    upstream: str
    pin: str
    depends_on: tuple[str, ...]
    title: str
    commits: int
    unproved: bool
    verdict: str
    #: The targets where a fresh record proves the patch.
    targets: tuple[str, ...]
    #: The checks that failed on a target and have not passed on that target since.
    refuted: tuple[Refutation, ...] = Field(default=(), exclude_if=operator.not_)
    #: The patch's pull request with the state that `follow` saw last; or empty.
    pull_request: str
    #: Why nobody should propose the patch: what has the same change already; or empty.
    superseded: str = Field(default="", exclude_if=operator.not_)
    turned_down: bool = Field(default=False, exclude_if=operator.not_)


class PatchList(Model):
    """The document of `queue list --json`."""

    patches: tuple[ListedPatch, ...]
    pins: tuple[str, ...]
    #: Why no verdict is known: a file of the queue cannot be read.
    unread: str = Field(default="", exclude_if=operator.not_)

    @classmethod
    def of(cls, queue: Queue) -> PatchList:
        """Return the list of a queue's patches."""
        unread, patches = "", []
        for name in queue.own:
            spec = queue.specs[name]
            verdict, pull_request, targets = "not known", "", tuple[str, ...]()
            refuted: tuple[Refutation, ...] = ()
            try:
                queue.patch(name)  # raises if a file of the patch cannot be read
                records = read_records(queue, queue.evidence, name)
                refuted = refutations(queue, name, records)
                targets = proved_targets(records)
                verdict = str(Verdict.REFUTED) if refuted else verdict_of(records)
                pull_request = pull_request_words(history.read(queue.folder, name))
            except ContribbotError as error:
                unread = error.message
            patches.append(
                ListedPatch(
                    patch=name,
                    commits=len(list((queue.folder / "patches" / name).glob("*.patch"))),
                    **spec.model_dump(include={"upstream", "pin", "depends_on", "title"}),
                    unproved=spec.unproved,
                    verdict=verdict,
                    targets=targets,
                    refuted=refuted,
                    pull_request=pull_request,
                    superseded=superseded_words(queue, name),
                    turned_down=bool(spec.turned_down),
                )
            )
        pins = tuple(pin.title for pin in queue.spec.pins)
        return cls(pins=pins, patches=tuple(patches), unread=unread)


_VERDICTS: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)


def verdict_of(records: Sequence[Record]) -> str:
    """Return the verdict of the fresh records of a patch."""
    found = {
        record.statement.predicate.contribbot.verdict
        for record in records
        if record.state is State.FRESH and record.statement
    }
    return next((str(verdict) for verdict in _VERDICTS if verdict in found), "no fresh record")


def proved_targets(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the targets that fresh records prove, named as `--require` names targets."""
    proofs = (
        row
        for record in records
        if record.state is State.FRESH and record.statement
        for row in record.statement.predicate.contribbot.stages
        if proves(row)
    )
    names = (row.target if row.stage in RAN else f"{row.stage}:{row.target}" for row in proofs)
    return tuple(dict.fromkeys(name.removesuffix(":any") for name in names))


def list_blocks(listed: PatchList) -> list[Block]:
    """Return a row for each patch: place, name, verdict and targets, pull request, title."""
    rows = [
        (
            str(place),
            patch.patch,
            StateText(_state(patch)),
            patch.pull_request.partition("#")[2],
            patch.title,
        )
        for place, patch in enumerate(listed.patches, start=1)
    ]
    pins = f"; it pins {', '.join(listed.pins)}" if listed.pins else ""
    if not rows:
        return [f"the queue is empty{pins}"]
    head = ("", "patch", "verdict", "pull request", "title")
    unread = [f"no verdict is known: {listed.unread}"] if listed.unread else []
    return [Table(rows, head, cut=True), *unread]


def _state(patch: ListedPatch) -> str:
    where = summary_of(patch.targets)
    known = (
        "turned down" if patch.turned_down else "",
        "superseded" if patch.superseded else "",
        "" if patch.commits else "no commits",
        "states no proof" if patch.unproved else "",
        refuted_words(patch.refuted),
    )
    return next(filter(None, known), f"{patch.verdict}{f' on {where}' if where else ''}")
