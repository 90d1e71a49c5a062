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
from contribbot.model.patch import PatchSpec
from contribbot.queue import history
from contribbot.queue.history import Refutation, pull_request_words, superseded_words
from contribbot.queue.load import Queue
from contribbot.verify.evidence import State, read_records, refutations
from contribbot.verify.verdict import proves, refuted_words


class PatchView(Model):
    """The document of `show --json`."""

    patch: str
    repository: str
    patch_sha256: str
    patch_files: tuple[str, ...]
    spec: PatchSpec
    superseded: str = Field(default="", exclude_if=operator.not_)


@command("show rmsnorm")
def show(patch: PatchArgument) -> Reply:
    """Show what a patch is for, what it touches and what proves it."""
    queue, name = open_patch(patch)
    opened = queue.patch(name)
    view = PatchView(
        patch=name,
        repository=opened.upstream.repository,
        patch_sha256=opened.digest,
        patch_files=tuple(file.name for file in opened.files),
        spec=opened.spec.model_copy(update={"files": opened.paths}),
        superseded=superseded_words(queue, name),
    )
    return Reply(view, patch_blocks(view))


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
    #: Why the verdict is not known: a file of the patch cannot be read.
    unread: str = Field(default="", exclude=True)


class PatchList(Model):
    """The document of `queue list --json`."""

    patches: tuple[ListedPatch, ...]
    pins: tuple[str, ...]
    #: Why no verdict is known: a file of the queue cannot be read.
    unread: str = Field(default="", exclude_if=operator.not_)


@command("queue list --json")
def list_patches() -> Reply:
    """List the patches in the queue's order."""
    queue = open_queue()
    patches = tuple(_listed(queue, name) for name in queue.own)
    unread = next((patch.unread for patch in patches if patch.unread), "")
    titles = tuple(pin.title for pin in queue.spec.pins)
    listed = PatchList(patches=patches, pins=titles, unread=unread)
    rows = [
        (
            str(place),
            patch.patch,
            StateText(_state(patch)),
            patch.pull_request.partition("#")[2],
            patch.title,
        )
        for place, patch in enumerate(patches, start=1)
    ]
    head = ("", "patch", "verdict", "pull request", "title")
    pins = f"; it pins {', '.join(listed.pins)}" if listed.pins else ""
    table = Table(rows, head, cut=True) if rows else f"the queue is empty{pins}"
    return Reply(listed, [table, *([f"no verdict is known: {unread}"] if unread else [])])


def _listed(queue: Queue, name: str) -> ListedPatch:
    """Return a patch as listed, with the verdict and the proved targets of its fresh records."""
    spec = queue.specs[name]
    row = ListedPatch(
        patch=name,
        commits=len(list((queue.folder / "patches" / name).glob("*.patch"))),
        **spec.model_dump(include={"upstream", "pin", "depends_on", "title"}),
        unproved=spec.unproved,
        verdict="not known",
        targets=(),
        pull_request="",
        turned_down=bool(spec.turned_down),
    )
    try:
        queue.patch(name)  # raises if a file of the patch cannot be read
        records = read_records(queue, queue.evidence, name)
        refuted = refutations(queue, name, records)
        pull_request = pull_request_words(history.read(queue.folder, name))
        superseded = superseded_words(queue, name)
    except ContribbotError as error:
        return row.model_copy(update={"unread": error.message})
    fresh = [
        record.statement.predicate.contribbot
        for record in records
        if record.state is State.FRESH and record.statement
    ]
    verdicts = {Verdict.REFUTED} if refuted else {details.verdict for details in fresh}
    proofs = (row for details in fresh for row in details.stages if proves(row))
    targets = (row.target if row.stage in RAN else f"{row.stage}:{row.target}" for row in proofs)
    return row.model_copy(
        update={
            "verdict": next(
                (str(each) for each in _VERDICTS if each in verdicts), "no fresh record"
            ),
            "targets": tuple(dict.fromkeys(target.removesuffix(":any") for target in targets)),
            "refuted": refuted,
            "pull_request": pull_request,
            "superseded": superseded,
        }
    )


_VERDICTS: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)


def _state(patch: ListedPatch) -> str:
    """Return why a patch is not to be proposed or proved, or else its verdict and targets."""
    where = summary_of(patch.targets)
    known = (
        "turned down" if patch.turned_down else "",
        "superseded" if patch.superseded else "",
        "" if patch.commits else "no commits",
        "states no proof" if patch.unproved else "",
        refuted_words(patch.refuted),
    )
    return next(filter(None, known), f"{patch.verdict}{f' on {where}' if where else ''}")
