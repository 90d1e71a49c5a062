"""A patch's commits carried onto the newest commit of its upstream's branch, in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from contribbot.contribute.opening.base import Base, Blocked, Target, make_base
from contribbot.errors import OpeningError, UsageError
from contribbot.files import run_folder
from contribbot.git.apply import Conflict, Indexed, Overlay
from contribbot.git.merge import NOTHING, Carrier, State, Step, read_steps
from contribbot.git.patch_format import changes, raw_changes
from contribbot.git.repository import Store, read_objects
from contribbot.git.source import Progress
from contribbot.github.git_objects import SUBMODULE, Author, Entry
from contribbot.queue.load import Queue
from contribbot.queue.stack import Landed, land, own_pin, series_of, with_dependencies

_AUTHOR: Final = re.compile(
    rb"(?P<name>.*?) ?<(?P<email>[^>]*)> (?P<seconds>-?[0-9]+) (?P<sign>[+-])(?P<zone>[0-9]{4})",
    re.DOTALL,
)


@dataclass(frozen=True)
class Made:
    """A commit that is to be made on GitHub."""

    patch: str
    file: str
    author: Author
    message: str
    #: What it changes in the tree of the commit before it.
    changes: tuple[Entry, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class Carried:
    """A patch on the upstream's branch."""

    #: The commits, in order; of a stack those below it first.
    commits: tuple[Made, ...]
    #: The bytes of every blob that the branch may not have, by id.
    contents: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Layer:
    """A patch's commits on its pin: of each its patch file, and its id."""

    patch: str
    commits: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Picked:
    """A commit that was carried: whose it is, and the commits before it and with it."""

    patch: str
    file: str
    step: Step
    before: str
    after: str


def carry_onto(queue: Queue, name: str, target: Target, *, progress: Progress) -> Carried:
    """Carry a patch, and what it depends on, onto a branch of its upstream.

    GitHub is read, and nothing outside the cache is written.
    """
    landed = land(queue, own_pin(queue, name), progress=progress)
    store = landed.store
    with run_folder() as scratch:
        layers = _layers(queue, name, landed, scratch)
        chain = [commit for layer in layers for _, commit in layer.commits]
        paths = sorted({path for _, _, path in raw_changes(store, chain)})
        base = make_base(store, landed.commit, paths, target)
        where = f"{target.repository}@{target.tip.name}"
        if isinstance(base, Blocked):
            file = layers[-1].commits[0][0]
            raise _moved(name, Conflict(file, base.path, where, 0, base.why))
        run = _Run(name, store, base, where=where, scratch=scratch)
        return run.carry(layers, frozenset(paths))


def _layers(queue: Queue, name: str, landed: Landed, scratch: Path) -> list[_Layer]:
    """Apply a patch and what it depends on to their pin."""
    series = series_of(queue, with_dependencies(queue, [name]), landed, scratch=scratch)
    own = series[name]
    for one, found in series.items():
        if found.conflicts:
            raise UsageError(
                f"{one} does not apply to its own pin: {found.conflicts[0].headline}",
                hint=f"mend it first: contribbot verify {one}",
            )
    if not own.applied:
        raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
    said = landed.store.git("rev-list", "--reverse", f"{landed.commit}..{own.base}", "--").stdout
    below = iter(said.decode().split())
    layers = [
        _Layer(lower, tuple((file.name, next(below)) for file in queue.patch(lower).files))
        for lower in queue.below(name)
    ]
    return [*layers, _Layer(name, tuple((one.file, one.commit) for one in own.applied))]


class _Run:
    """One run of `carry_onto`, once the base is there."""

    def __init__(self, name: str, store: Store, base: Base, *, where: str, scratch: Path) -> None:
        self._name, self._store, self._where, self._scratch = name, store, where, scratch
        self._carrier = Carrier(store, where, scratch)
        self._state = State(base.commit, Overlay(store, base.commit))
        self._steps: dict[str, Step] = {}
        self._notes: list[str] = []
        self._known = set(base.blobs)

    def carry(self, layers: Sequence[_Layer], paths: frozenset[str]) -> Carried:
        """Carry all layers, which touch these paths."""
        chain = [commit for layer in layers for _, commit in layer.commits]
        self._steps = read_steps(self._store, chain, self._state.tree)
        with self._store.exclusive():
            picked: list[_Picked] = []
            for layer in layers:
                picked += self._layer(layer)
            self._carrier.write()
            contents: dict[str, bytes] = {}
            made = tuple(self._made(one, paths, contents) for one in picked)
        return Carried(made, contents, tuple(self._notes))

    def _layer(self, layer: _Layer) -> Iterator[_Picked]:
        """Carry a patch; yield patch, file, step, and the commits before and after."""
        start, merged = self._state, False
        found: list[_Picked] = []
        notes: list[str] = []
        for file, commit in layer.commits:
            carried = self._carrier.carry(self._steps[commit], self._state, file)
            if carried.conflicts:
                if not carried.elsewhere and self._there(layer, start):
                    self._is_upstream(layer.patch)
                    self._state = start
                    return
                raise _moved(self._name, carried.conflicts[0])
            merged = merged or carried.merged
            if carried.state.tip == self._state.tip:
                notes.append(f"{self._where} has all of {layer.patch}/{file} already")
                continue
            notes += carried.notes
            step, before = self._steps[commit], self._state.tip
            found.append(_Picked(layer.patch, file, step, before, carried.state.tip))
            self._state = carried.state
        if not found or (merged and self._there(layer, start)):
            self._is_upstream(layer.patch)
            self._state = start
            return
        # Of a patch that the branch has whole, nothing is said of its parts.
        self._notes += notes
        yield from found

    def _there(self, layer: _Layer, start: State) -> bool:
        """Say whether a commit has all that a patch changes: it can be taken back from it."""
        self._carrier.write()
        first, last = layer.commits[0][1], layer.commits[-1][1]
        diff = self._store.git(
            "diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color",
            "--no-ext-diff", self._steps[first].parent, last,
        ).stdout  # fmt: skip
        index = Indexed(self._store, start.tree.fork(), diff, self._scratch / "reverse-index")
        return bool(diff) and index.apply(diff, "--reverse").returncode == 0

    def _is_upstream(self, patch: str) -> None:
        """Pass over a patch below that the branch has; the patch itself has nothing to give."""
        if patch != self._name:
            self._notes.append(f"{self._where} has all of {patch} already")
            return
        raise OpeningError(
            f"{patch}: {self._where} has all of it: it is upstream already",
            hint="see `contribbot status --against` a newer release",
        )

    def _made(self, one: _Picked, paths: frozenset[str], contents: dict[str, bytes]) -> Made:
        """Describe a commit, and note the blobs that are new with it."""
        found = changes(self._store, one.before, one.after)
        stray = next((change.path for change in found if change.path not in paths), "")
        if stray:
            why = f"a rename there would take it to {stray}"
            raise _moved(self._name, Conflict(one.file, stray, self._where, 0, why))
        new = [
            change.blob
            for change in found
            if change.mode not in {NOTHING, SUBMODULE} and change.blob not in self._known
        ]
        for blob, object_ in zip(new, read_objects(self._store, new), strict=True):
            contents[blob] = object_.content if object_ else self._store.read(blob)
        self._known.update(new)
        return Made(
            one.patch,
            one.file,
            _person(one.step.author),
            one.step.message.decode("utf-8"),
            # What goes comes first: a file may take the place of a folder.
            tuple(
                Entry(change.path)
                if change.mode == NOTHING
                else Entry(change.path, change.mode, change.blob)
                for change in sorted(found, key=lambda change: change.mode != NOTHING)
            ),
        )


def _person(author: bytes) -> Author:
    """Read an author line of a commit."""
    found = _AUTHOR.fullmatch(author)
    assert found is not None  # noqa: S101  git wrote the line
    zone = found["zone"]
    offset = timedelta(hours=int(zone[:2]), minutes=int(zone[2:]))
    place = timezone(-offset if found["sign"] == b"-" else offset) if offset else UTC
    return Author(
        name=found["name"].decode("utf-8"),
        email=found["email"].decode("utf-8"),
        date=datetime.fromtimestamp(int(found["seconds"]), place),
    )


def _moved(name: str, conflict: Conflict) -> OpeningError:
    """Return the error for a patch that the branch moved away from."""
    place = f"hunk {conflict.hunk} of {conflict.path}" if conflict.hunk else conflict.path
    line = f", near line {conflict.line}" if conflict.line else ""
    return OpeningError(
        f"{name}: {conflict.pin} moved so that the patch no longer applies:"
        f" {conflict.patch_file}: {place}{line}: {conflict.why}",
        hint="move it to a newer release: contribbot rebase; nothing was written",
    )
