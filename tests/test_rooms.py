"""The rooms import in one direction only; a class name means one thing."""

from __future__ import annotations

import ast
import graphlib
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "contribbot"
#: Low to high: each imports only from itself and from those before it.
ROOMS = (
    "errors", "markdown", "lifeline", "process", "files", "run_folder", "torch_compile",
    "model", "schemas",
    "upstreams", "git", "queue",
    "stand_in", "importing",
    "hardware", "fallback", "emulate", "sweep", "numerics", "bench", "testing", "verify",
    "lifecycle", "github", "contribute", "runners", "report", "demo", "cli", "__main__",
)  # fmt: skip


def imported(path: Path) -> set[str]:
    """Return the rooms that a module imports from, late imports too."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "contribbot" and len(parts) > 1 and parts[1] in ROOMS:
                rooms.add(parts[1])
    return rooms


def room(path: Path) -> str:
    """Return the room that a module lies in."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem != "__init__"
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_those_below_it(path: Path) -> None:
    assert room(path) in ROOMS
    place = ROOMS.index(room(path))
    assert imported(path) <= set(ROOMS[: place + 1])


def test_no_two_classes_have_one_name() -> None:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in MODULES)
    names = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef))
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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            taken: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                each = [f"{node.module}.{alias.name}" for alias in node.names]
                taken = [whole if whole in names else node.module for whole in each]
            elif isinstance(node, ast.Import):
                taken = [alias.name for alias in node.names]
            sorter.add(name, *({*taken} & names.keys() - {name}))
    sorter.prepare()  # CycleError names the circle
