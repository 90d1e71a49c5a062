"""`contribbot status`, `show` and `queue list`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import Field

from contribbot.cli import command as cli
from contribbot.cli.render import Block, StateText, Table, indented, pairs, summary_of
from contribbot.errors import ContribbotError, UsageError
from contribbot.lifecycle.status import status as local_status
from contribbot.lifecycle.status import status_against
from contribbot.model.base import Model
from contribbot.model.evidence import Verdict, first_verdict, target_name
from contribbot.model.lifecycle import PatchStatus, Text
from contribbot.model.patch import PatchSpec
from contribbot.queue import history
from contribbot.queue.history import Refutation, pull_request_words, superseded_words
from contribbot.queue.load import Queue
from contribbot.verify.evidence import State, read_records, refutations
from contribbot.verify.verdict import proves, refuted_words


@cli.command("status --against newest")
def status(
    patches: list[str] | None = cli.PATCHES,
    against: str | None = cli.option(
        None, "TAG", "Look at the patches on this release, or on the newest."
    ),
    upstream: str | None = cli.option(
        None, "NAME", "Whose release it is, where the patches are for several."
    ),
    text_only: bool = cli.TEXT_ONLY,
) -> cli.Reply:
    """Show every patch: does it apply, is it needed, where is it proved."""
    queue, names = cli.open_patches(patches)
    if against is None:
        if upstream or text_only:
            hint = "contribbot status --against newest"
            raise UsageError("--upstream and --text-only go with --against TAG", hint=hint)
        report = local_status(queue, names)
    else:
        from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

        upstreams = _upstreams(queue, names, against, upstream)
        run, options = not text_only, Options()
        with cli.live_lines(order=names) as lines:
            report = status_against(
                queue,
                names,
                upstreams=upstreams,
                tag=against,
                run=run,
                options=options,
                watcher=lines,
            )
    head = ("patch", "release", "text", "without it", "pull request", "evidence")
    blocks: list[Block] = [Table([*map(_status_row, report.patches)], head)]
    notes = [(patch.patch, notes) for patch in report.patches if (notes := [*_notes(patch)])]
    blocks += ["", pairs(notes, indent=0)] if notes else []
    unknown = [row.text_why for row in report.patches if row.text is Text.UNKNOWN]
    return cli.Reply(report, [*blocks, *([""] if unknown else []), *dict.fromkeys(unknown)])


def _upstreams(queue: Queue, names: Sequence[str], tag: str, upstream: str | None) -> list[str]:
    """Return the upstreams to look at; raise UsageError if a tag fits several upstreams."""
    theirs = list(dict.fromkeys(queue.specs[name].upstream for name in names))
    if upstream and upstream not in theirs:
        raise UsageError(
            f"--upstream {upstream}: none of these patches is for it",
            hint=f"name one of {', '.join(theirs)}",
        )
    if not upstream and tag != "newest" and len(theirs) > 1:
        raise UsageError(
            f"a tag belongs to one upstream, and these patches are for {', '.join(theirs)}",
            hint="name it with --upstream",
        )
    return [upstream] if upstream else theirs


_TEXTS: Final = {
    Text.CLEAN: "applies",
    Text.OFFSET: "applies, moved",
    Text.MERGED: "applies, merged",
    Text.CONFLICT: "conflicts",
    Text.UPSTREAM: "upstream",
    Text.BLOCKED: "not applied",
    Text.UNKNOWN: "not known",
}


def _status_row(patch: PatchStatus) -> tuple[str, ...]:
    at = "" if patch.against == patch.pin else f" at {patch.against}"
    states = {
        state: summary_of(row.target for row in patch.evidence if row.evidence == state)
        for state in ("refuted", "fresh", "stale", "missing")
    }
    evidence = "; ".join(f"{state}: {targets}" for state, targets in states.items() if targets)
    return (
        patch.patch,
        f"{patch.upstream} {patch.pin}{at}",
        StateText(_TEXTS[patch.text]),
        StateText(patch.behaviour.verdict if patch.behaviour else ""),
        "" if patch.contribution == "none" else patch.contribution[patch.contribution.find("#") :],
        StateText(evidence or "asked for nowhere"),
    )


def _notes(patch: PatchStatus) -> Iterator[str]:
    """Yield notes on a patch: conflicts, whether still needed, supersession, expiry."""
    notable = patch.text not in {Text.CLEAN, Text.UPSTREAM, Text.UNKNOWN}
    yield from [patch.text_why] if notable and patch.text_why else ()
    if patch.behaviour is not None:
        yield patch.behaviour.why
        yield from (f"{old} is {new} there" for old, new in patch.behaviour.moved.items())
    if patch.superseded:
        yield f"not to be proposed: {patch.superseded}"
    yield from (f"expires: {due.condition}: {due.why}" for due in patch.due if due.come)


class PatchView(Model):
    """The document of `show --json`."""

    patch: str
    repository: str
    patch_sha256: str
    patch_files: tuple[str, ...]
    spec: PatchSpec
    superseded: str = Field(default="", exclude_if=operator.not_)


@cli.command("show rmsnorm")
def show(patch: str = cli.PATCH) -> cli.Reply:
    """Show what a patch is for, what it touches and what proves it."""
    queue, name = cli.open_patch(patch)
    opened = queue.patch(name)
    spec = opened.spec.model_copy(update={"files": opened.paths})
    view = PatchView(
        patch=name,
        repository=opened.upstream.repository,
        patch_sha256=opened.digest,
        patch_files=tuple(file.name for file in opened.files),
        spec=spec,
        superseded=superseded_words(queue, name),
    )
    none = f"none yet: `contribbot edit {name}` opens a tree to make them in"
    superseded = [f"{name}: {view.superseded}"] if view.superseded else []
    facts = (
        ("patch", [f"{name} (sha256 {opened.digest[:12]})"]),
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
    return cli.Reply(view, blocks)


def _proofs(spec: PatchSpec) -> dict[str, list[str]]:
    """Return a line on each check that patch.toml states, by the title of the kind of check."""
    runs, numerics = (
        [f"{run.name}: {run.expect}, needs {', '.join(run.requires)}" for run in stated]
        for stated in (spec.checks, spec.numerics)
    )
    unproved = ["nothing is stated that could prove it yet"]
    return {
        "Checks": unproved if spec.unproved else runs,
        "Compiled": [
            f"{entry.name}: {entry.expect}, {entry.source} for {', '.join(entry.targets)}"
            for entry in spec.compile
        ],
        "Built": [
            f"{build.name}: {build.way}, for {', '.join(build.targets)}" for build in spec.build
        ],
        "Numerics": numerics,
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


class ListedPatch(Model):
    """A patch in the list of `queue list`."""

    patch: str
    upstream: str
    pin: str
    depends_on: tuple[str, ...]
    title: str
    commits: int
    unproved: bool
    verdict: str = "not known"
    #: The targets where a fresh record proves the patch.
    targets: tuple[str, ...] = ()
    #: The checks that failed on a target and have not passed on that target since.
    refuted: tuple[Refutation, ...] = Field(default=(), exclude_if=operator.not_)
    #: The patch's pull request with the state that `follow` saw last; or empty.
    pull_request: str = ""
    #: Why nobody should propose the patch: what has the same change already; or empty.
    superseded: str = Field(default="", exclude_if=operator.not_)
    turned_down: bool = Field(default=False, exclude_if=operator.not_)
    #: Why the verdict is not known: a file of the patch cannot be read.
    unread: str = Field(default="", exclude=True)

    @property
    def words(self) -> str:
        """The reason not to propose or prove the patch, else the verdict and the proved targets."""
        where = summary_of(self.targets)
        known = (
            "turned down" if self.turned_down else "",
            "superseded" if self.superseded else "",
            "" if self.commits else "no commits",
            "states no proof" if self.unproved else "",
            refuted_words(self.refuted),
        )
        return next(filter(None, known), f"{self.verdict}{f' on {where}' if where else ''}")


class PatchList(Model):
    """The document of `queue list --json`."""

    patches: tuple[ListedPatch, ...]
    pins: tuple[str, ...]
    #: Why no verdict is known: a file of the queue cannot be read.
    unread: str = Field(default="", exclude_if=operator.not_)


@cli.command("queue list --json")
def list_patches() -> cli.Reply:
    """List the patches in the queue's order."""
    queue = cli.open_queue()
    patches = tuple(_listed(queue, name) for name in queue.own)
    unread = next((patch.unread for patch in patches if patch.unread), "")
    titles = tuple(pin.title for pin in queue.spec.pins)
    rows = [
        (
            str(place),
            each.patch,
            StateText(each.words),
            each.pull_request.partition("#")[2],
            each.title,
        )
        for place, each in enumerate(patches, start=1)
    ]
    head = ("", "patch", "verdict", "pull request", "title")
    pins = f"; it pins {', '.join(titles)}" if titles else ""
    table = Table(rows, head, cut=True) if rows else f"the queue is empty{pins}"
    notes = [f"no verdict is known: {unread}"] if unread else []
    return cli.Reply(PatchList(patches=patches, pins=titles, unread=unread), [table, *notes])


def _listed(queue: Queue, name: str) -> ListedPatch:
    """Return a patch for `queue list`, with the verdict and proved targets of fresh records."""
    spec = queue.specs[name]
    row = ListedPatch(
        patch=name,
        commits=len(list((queue.folder / "patches" / name).glob("*.patch"))),
        **spec.model_dump(include={"upstream", "pin", "depends_on", "title"}),
        unproved=spec.unproved,
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
    fresh = [each.details for each in records if each.state is State.FRESH and each.details]
    verdicts = {Verdict.REFUTED} if refuted else {details.verdict for details in fresh}
    proofs = (result for details in fresh for result in details.stages if proves(result))
    targets = (target_name(each.stage, each.target) for each in proofs)
    return row.model_copy(
        update={
            "verdict": str(first_verdict(verdicts) or "no fresh record"),
            "targets": tuple(dict.fromkeys(targets)),
            "refuted": refuted,
            "pull_request": pull_request,
            "superseded": superseded,
        }
    )
