"""Read a queue from its folder, and check the files against each other."""

from __future__ import annotations

import difflib
import graphlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

import contribbot
from contribbot.errors import QueueError, UsageError, plain_words
from contribbot.former import KEYS
from contribbot.git.patch_format import BOTH_SIDES, CONFLICT, check_form, paths
from contribbot.model.base import FORMS
from contribbot.model.patch import (
    SOURCE_KINDS,
    Patch,
    PatchFile,
    PatchSpec,
    Pin,
    QueueSpec,
    Upstream,
)
from contribbot.queue.transaction import consistent

M = TypeVar("M", bound=BaseModel)

#: The folder with the files that describe upstreams, and with the rules for contributions in
#: `contributing/`, each with a template in `templates/`.
UPSTREAMS: Final = Path(contribbot.__file__).parent / "upstreams"
#: The file of an open work tree that names the tree's queue and patch.
TREE_STATE: Final = ".git/contribbot.json"
_HEADER: Final = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\"'.-]+)\s*=")
_SHOWN: Final = 80
#: Parts of an error's location in pydantic that are not keys of a file.
_OF_A_UNION: Final = re.compile(r"\[|^constrained-str$|^float$")


def read_model(path: Path, model: type[M]) -> M:
    """Return a TOML file as a model; raise QueueError with the line of a fault."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise QueueError(f"{path}: no such file", hint="see `contribbot queue list`") from error
    try:
        text = content.decode()
        return model.model_validate(tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise QueueError(f"{path}:{line}: not UTF-8", hint="save the file as UTF-8") from error
    except ValidationError as error:
        raise _refusal(path, text, error, model) from error
    except (RecursionError, ValueError) as error:
        if conflict := re.search(r"^<{7} ", text, re.MULTILINE):
            line = text.count("\n", 0, conflict.start()) + 1
            raise QueueError(f"{path}:{line}: {CONFLICT}", hint=BOTH_SIDES) from error
        at = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        why = str(error)[: at.start() if at else None].strip()
        raise QueueError(f"{path}:{line}: not TOML: {why}", hint="correct it there") from error


def _refusal(path: Path, text: str, error: ValidationError, model: type[BaseModel]) -> QueueError:
    """Return the error for a file that a model refuses, with the line and the key of the fault."""
    # A misspelled key causes two errors: report the unknown key, not the missing key.
    late = {"missing", "too_short"}
    first = min(error.errors(), key=lambda fault: fault["type"] in late)
    location = [
        part
        for part in first["loc"]
        if part not in SOURCE_KINDS and not _OF_A_UNION.search(f"{part}")
    ]
    spelled = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    where, message = spelled.removeprefix("."), plain_words(first["msg"])
    shown = f"{str(first['input'])[:_SHOWN]!r}"
    # A message about a whole table begins with the name of the faulty key.
    key = message.partition(":")[0]
    line = find_line(text, [*location, key] if key.isidentifier() else location)
    if first["type"] == "extra_forbidden":
        name = ".".join(part for part in location if isinstance(part, str))
        if former := KEYS.get(f"{path.name} {name}") or KEYS.get(f"{path.parent.name} {name}"):
            return QueueError(f"{path}:{line}: {where} is gone", hint=former)
        schema = model.model_json_schema()
        tables = (schema, *schema.get("$defs", {}).values())
        known = {name for table in tables for name in table.get("properties", ())}
        message = f"there is no such key{did_you_mean(str(location[-1]), known)}"
    elif first["type"] == "tuple_type":
        table = isinstance(first["input"], dict)
        message = f"write [[{where}]]" if table else f"write a list: [{shown}]"
    elif words := FORMS.get(str(first.get("ctx", {}).get("pattern"))):
        message = f"{shown} is not {words}"
    return QueueError(
        f"{path}:{line}: {f'{where}: ' if where else ''}{message}",
        hint="correct the file; docs/queue.md leads to every key",
    )


def find_line(text: str, location: Sequence[int | str]) -> int:
    """Return the line of a key in TOML text, or of the nearest table around the key."""
    rows = text.splitlines()
    headers = [(number, _HEADER.match(row)) for number, row in enumerate(rows)]
    tables = [(number, match[1].replace(" ", "")) for number, match in headers if match]
    start, end, name = 0, tables[0][0] if tables else len(rows), ""
    for place, part in enumerate(location):
        if isinstance(part, int):
            continue
        name = f"{name}.{part}" if name else part
        index = next((at for at in location[place + 1 : place + 2] if isinstance(at, int)), 0)
        same = [number for number, table in tables if table == name and number >= start]
        if same[index:]:
            start = same[index]
            end = next((number for number, _ in tables if number > start), len(rows))
            continue
        for number in range(start, end):
            if (key := _KEY.match(rows[number])) and key[1].strip("\"'") == part:
                return number + 1
    return start + 1


_PATCH_NAME: Final = re.compile(r"^\d{4}-.+\.patch$")


@dataclass(frozen=True)
class Queue:
    """A queue's patches in order, with pins and upstreams, checked against each other."""

    folder: Path
    spec: QueueSpec
    specs: dict[str, PatchSpec]
    upstreams: dict[str, Upstream]

    @property
    def evidence(self) -> Path:
        """The folder of evidence files."""
        return self.folder / "evidence"

    @property
    def local(self) -> Path:
        """The folder of local state, which can be deleted at any time."""
        return self.folder / ".contribbot"

    @property
    def own(self) -> list[str]:
        """The names of the patches that do not only record another person's work."""
        return [name for name, spec in self.specs.items() if not spec.theirs]

    def require(self, *names: str) -> None:
        """Raise UsageError for the first name that is not the name of a patch in the queue."""
        for name in names:
            if name not in self.specs:
                like = did_you_mean(name, self.specs, most=3)
                raise UsageError(f"no such patch: {name}{like}", hint="see `contribbot queue list`")

    def pin(self, upstream: str, tag: str) -> Pin | None:
        """Return the pin of an upstream's tag; None: queue.toml has no such pin."""
        pins = {(pin.upstream, pin.tag): pin for pin in self.spec.pins}
        return pins.get((upstream, tag))

    def pin_of(self, name: str) -> Pin:
        """Return the pin that a patch's patch.toml names; `load_queue` checks that it exists."""
        pins = {pin.title: pin for pin in self.spec.pins}
        return pins[f"{self.specs[name].upstream} {self.specs[name].pin}"]

    def patch(self, name: str) -> Patch:
        """Return a patch with its files; raise UsageError for an unknown name."""
        self.require(name)
        spec, folder = self.specs[name], self.folder / "patches" / name
        files, support = consistent(
            self.folder, lambda: (_patch_files(folder), _check_files(folder / "checks"))
        )
        present = {file.name for file in support}
        for what, file in spec.needed_files():
            if file not in present:
                raise QueueError(
                    f"{folder / 'patch.toml'}: {what} names {file}, "
                    f"and {folder / 'checks'} has no such file{did_you_mean(file, present)}"
                )
        upstream = self.upstreams[spec.upstream]
        touched = {path: None for file in files for path in paths(file.content)}
        if touched and all(map(upstream.is_test, touched)) and not spec.only_holds:
            raise QueueError(
                f"{folder / 'patch.toml'}: every changed file counts as a test of {upstream.name}, "
                "which is laid over the base, so that nothing can fail there",
                hint=f"see `tests` of the upstream {upstream.name} (docs/upstreams.md)",
            )
        return Patch(
            name=name,
            folder=folder,
            spec=spec,
            pin=self.pin_of(name),
            upstream=upstream,
            files=files,
            support=support,
            paths=spec.files or tuple(touched),
        )

    def below(self, name: str) -> list[str]:
        """Return all direct and indirect dependencies of a patch, lowest first."""
        direct = self.specs[name].depends_on
        return list(dict.fromkeys(name for low in direct for name in (*self.below(low), low)))

    def with_dependencies(self, names: Iterable[str]) -> list[str]:
        """Return the named patches and all their dependencies, in the queue's order."""
        wanted = {name for top in names for name in (top, *self.below(top))}
        return [name for name in self.specs if name in wanted]


def is_queue(folder: Path) -> bool:
    """Return whether a folder has a queue (the file `patches/queue.toml`)."""
    return (folder / "patches" / "queue.toml").is_file()


def tree_around(start: Path) -> Path | None:
    """Return the folder of the work tree that contains a path; None: no work tree does."""
    trees = (folder for folder in (start, *start.parents) if (folder / TREE_STATE).is_file())
    return next(trees, None)


def find_queue(start: Path) -> Path:
    """Return the nearest folder with a queue, from a path upwards."""
    for folder in (start, *start.parents):
        if is_queue(folder):
            return folder
    raise UsageError(
        f"{start}: no patches/queue.toml here or above",
        hint="name the queue with --queue DIR, or begin one: contribbot init",
    )


def upstream_files(queue: Path, folder: str = ".") -> dict[str, Path]:
    """Return the TOML files of `upstreams/` by name; a queue's file replaces contribbot's file."""
    places = (UPSTREAMS / folder, queue / "upstreams" / folder)
    return {path.stem: path for place in places for path in sorted(place.glob("*.toml"))}


def load_queue(folder: Path) -> Queue:
    """Return the queue in a folder, after all checks of `queue.toml` and each `patch.toml`."""
    # Absolute, as git gets paths of the folder and runs in another folder.
    folder = folder.absolute()
    return consistent(folder, lambda: _load(folder))


def _load(folder: Path) -> Queue:
    queue_file = folder / "patches" / "queue.toml"
    spec = read_model(queue_file, QueueSpec)
    known = upstream_files(folder)
    described: dict[str, Upstream] = {}
    for pin in spec.pins:
        if pin.upstream not in known:
            like = did_you_mean(pin.upstream, known)
            raise QueueError(
                f"{queue_file}: pins: unknown upstream {pin.upstream}{like}",
                hint=f"describe it in {folder / 'upstreams' / (pin.upstream + '.toml')}",
            )
        described[pin.upstream] = read_model(known[pin.upstream], Upstream)
        if described[pin.upstream].name != pin.upstream:
            raise QueueError(
                f"{known[pin.upstream]}: name is {described[pin.upstream].name}, "
                f"and the file's is {pin.upstream}",
                hint="make them the same",
            )
    found = (path.parent.name for path in queue_file.parent.glob("*/patch.toml"))
    specs = {name: _patch_spec(folder, name) for name in {*spec.order, *found}}
    specs = {name: specs[name] for name in complete_order(spec.order, specs)}
    queue = Queue(folder=folder, spec=spec, specs=specs, upstreams=described)
    _check_pins(queue, queue_file)
    _check_dependencies(queue, queue_file)
    return queue


def complete_order(named: Sequence[str], specs: Mapping[str, PatchSpec]) -> list[str]:
    """Return all patches in order: the named patches, then the rest by name, after dependencies.

    A new patch needs no line in queue.toml, so two people can add patches without a conflict.
    """
    order = dict.fromkeys(named)

    def put(name: str, above: tuple[str, ...]) -> None:
        for lower in specs[name].depends_on if name not in order else ():
            if lower in specs and lower not in above:
                put(lower, (*above, name))
        order.setdefault(name)

    for name in sorted(specs):
        put(name, (name,))
    return [*order]


def _patch_spec(folder: Path, name: str) -> PatchSpec:
    path = folder / "patches" / name / "patch.toml"
    if not path.is_file():
        raise QueueError(
            f"{folder / 'patches' / 'queue.toml'}: order names {name}, and there is no {path}",
            hint="add the patch or take it out of `order`",
        )
    return read_model(path, PatchSpec)


def _fault(path: Path, key: str, message: str, hint: str = "") -> QueueError:
    """Return the error for a key of a patch.toml, with the line of the key."""
    line = find_line(path.read_text(encoding="utf-8"), [key])
    return QueueError(f"{path}:{line}: {message}", hint=hint)


def _check_pins(queue: Queue, queue_file: Path) -> None:
    for name, spec in queue.specs.items():
        path = queue_file.parent / name / "patch.toml"
        if spec.upstream not in queue.upstreams:
            like = did_you_mean(spec.upstream, queue.upstreams)
            hint = f"pin one of its releases in {queue_file}"
            raise _fault(path, "upstream", f"unknown upstream {spec.upstream}{like}", hint)
        if (pin := queue.pin(spec.upstream, spec.pin)) is None:
            tags = [pin.tag for pin in queue.spec.pins if pin.upstream == spec.upstream]
            unknown = f"unknown pin {spec.pin} of {spec.upstream}{did_you_mean(spec.pin, tags)}"
            raise _fault(path, "pin", unknown, f"the pins are in {queue_file}")
        tritons = [each.triton for each in pin.toolchains]
        named = (*(each.triton for each in spec.compile), *(each.triton for each in spec.emulated))
        for triton in filter(None, named):
            if triton not in tritons:
                raise QueueError(
                    f"{path}: triton: {pin.title} does not state {triton}",
                    hint=f"name one of {', '.join(tritons) or 'none'}, the pin's in {queue_file}",
                )


def _check_dependencies(queue: Queue, queue_file: Path) -> None:
    order = list(queue.specs)
    below = [(name, low) for name, spec in queue.specs.items() for low in spec.depends_on]
    for name, lower in below:
        spec, other = queue.specs[name], queue.specs.get(lower)
        path = queue_file.parent / name / "patch.toml"
        if other is None:
            like = did_you_mean(lower, queue.specs)
            raise _fault(path, "depends_on", f"depends_on: no such patch {lower}{like}")
        if (other.upstream, other.pin) != (spec.upstream, spec.pin):
            pins = f"{other.upstream} {other.pin}, this patch on {spec.upstream} {spec.pin}"
            raise _fault(path, "depends_on", f"depends_on: {lower} stands on {pins}")
    try:
        graph = {name: spec.depends_on for name, spec in queue.specs.items()}
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise QueueError(
            f"{queue_file}: depends_on goes in a circle: {circle}",
            hint="break it in one patch.toml",
        ) from error
    for name, lower in below:
        if order.index(lower) > order.index(name):
            raise QueueError(
                f"{queue_file}: order: {name} stands before {lower}, on which it depends",
                hint=f"put {lower} first",
            )


def _patch_files(folder: Path) -> tuple[PatchFile, ...]:
    files = []
    for path in sorted(folder.glob("*.patch")):
        if not _PATCH_NAME.match(path.name):
            raise QueueError(
                f"{path}: not a name that git format-patch gives (NNNN-subject.patch)",
                hint="rename it",
            )
        if not path.is_file():
            raise QueueError(f"{path}: not a file", hint="move it out of the patch's folder")
        files.append(PatchFile(path.name, path.read_bytes()))
        check_form(str(path), files[-1].content)
    return tuple(files)


def _check_files(folder: Path) -> tuple[PatchFile, ...]:
    paths = [(path.relative_to(folder), path) for path in sorted(folder.rglob("*"))]
    return tuple(
        PatchFile(inside.as_posix(), path.read_bytes())
        for inside, path in paths
        # Dot files and caches, which tools leave behind, are not part of the checks.
        if not any(part.startswith((".", "__pycache__")) for part in inside.parts)
        and path.is_file()
    )


def select(queue: Queue, wanted: Sequence[str], *, everything: bool = False) -> list[str]:
    """Return the named patches, or all own patches if `everything`, in the queue's order."""
    if not queue.specs:
        raise UsageError(
            f"{queue.folder}: the queue has no patches",
            hint="begin one: contribbot new NAME --title T",
        )
    if not wanted and not everything:
        raise UsageError("no patch named", hint="name one of `contribbot queue list`, or use --all")
    queue.require(*wanted)
    if everything:
        return queue.own
    return [name for name in queue.specs if name in wanted]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return ` (did you mean NAME?)` with similar known names; empty: no name is similar."""
    close = difflib.get_close_matches(Path(name).name.lower(), list(known), n=most)
    names = " or ".join(filter(None, (", ".join(close[:-1]), *close[-1:])))
    return f" (did you mean {names}?)" if close else ""
