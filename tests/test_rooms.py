"""The rooms import in one direction only; a class name means one thing."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "contribbot"
#: Low to high: each imports only from itself and from those before it.
ROOMS = (
    "former", "errors", "markdown", "process", "files",
    "model", "schemas",
    "git", "queue",
    "fallback", "testing", "compile", "machine", "emulator_host", "emulate", "sweep", "numerics",
    "bench", "verify",
    "lifecycle", "github", "contribute", "runners", "report", "demo", "cli", "__main__",
)  # fmt: skip


MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem != "__init__"
)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports_of(path: Path) -> list[tuple[str, list[str]]]:
    """Return the modules that a module imports from, late imports too, and what of each."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, [alias.name for alias in node.names]))
        elif isinstance(node, ast.Import):
            found += [(alias.name, list[str]()) for alias in node.names]
    return found


def imported(path: Path) -> set[str]:
    """Return the rooms that a module imports from."""
    names = [f"{module}.{name}" for module, found in imports_of(path) for name in found or [""]]
    parts = [name.split(".") for name in names if name.startswith("contribbot.")]
    return {second for _, second, *_ in parts} & {*ROOMS}


def room(path: Path) -> str:
    """Return the room that a module lies in."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_a_room_imports_only_from_those_below_it() -> None:
    above = {
        str(path): names
        for path in MODULES
        if (names := imported(path) - {*ROOMS[: ROOMS.index(room(path)) + 1]})
    }
    assert above == {}


def modules_from(path: Path) -> set[str]:
    """Return the modules of this package that a module imports from."""
    return {module for module, _ in imports_of(path) if module.startswith("contribbot.")}


def test_the_emulator_is_a_package_of_its_own() -> None:
    """It imports one module of the rest, its host; the rest, but for sweep, imports its API."""
    inside, outside = set[str](), set[str]()
    for path in MODULES:
        modules = modules_from(path)
        if room(path) == "emulate":
            inside |= {each for each in modules if not each.startswith("contribbot.emulate")}
        elif room(path) != "sweep":
            outside |= {each for each in modules if each.startswith("contribbot.emulate.")}
    assert (inside, outside) == ({"contribbot.emulator_host"}, set())


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name for path in MODULES for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    )  # fmt: skip
    assert [name for name, classes in names.items() if classes > 1] == []


def test_only_the_door_starts_programs() -> None:
    for path in MODULES:
        if room(path) == "process":
            continue
        text = path.read_text(encoding="utf-8")
        assert "import subprocess" not in text, path
        assert "os.system" not in text, path


def module_of(path: Path) -> str:
    """Return a module's name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for types alone: whoever reads one of a circle has to read all."""
    names = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    sorter = graphlib.TopologicalSorter[str]()
    for name, path in names.items():
        wholes = [(module, f"{module}.{part}".rstrip("."))
                  for module, parts in imports_of(path) for part in parts or [""]]  # fmt: skip
        taken = {whole if whole in names else module for module, whole in wholes}
        sorter.add(name, *(taken & names.keys() - {name}))
    sorter.prepare()  # CycleError names the circle
