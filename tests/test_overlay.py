"""A tree of Python files is run over the installed package that has the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.toy import AREA, Toy, git, one_check

#: What no tree has: in the field, what is compiled.
NATIVE = "def multiply(left, right):\n    return left * right\n"
CHECK = """\
from src.native import multiply
from src.toy import area


def test_rectangle():
    assert area.rectangle(2, 3) == multiply(2, 3)
    assert "site" not in area.__file__
"""


@pytest.fixture
def over(toy: Toy, program: Program) -> Toy:
    """A toy whose upstream is put over an installed package `src`, release 1.0."""
    text = (
        'name = "toy"\nrepository = "example/toy"\npython_roots = ["."]\noverlay = ["src"]\n'
        'tests = ["tests"]\n'
    )
    toy.put("upstreams/toy.toml", text)
    install(toy, AREA, release="1.0")
    program.env["PYTHONPATH"] = str(site(toy))
    toy.put_area(checks=one_check(reason="assert 5 == 6"), check_files={"test_red.py": CHECK})
    return toy


def site(toy: Toy) -> Path:
    return toy.root / "site"


def install(toy: Toy, area: str, *, release: str) -> None:
    """Install a release of the package: its Python files, and one that no tree has."""
    metadata = f"Metadata-Version: 2.1\nName: toy\nVersion: {release}\n"
    for path, content in {
        "src/__init__.py": "",
        "src/native.py": NATIVE,
        "src/toy/__init__.py": "",
        "src/toy/area.py": area,
        f"toy-{release}.dist-info/METADATA": metadata,
        f"toy-{release}.dist-info/top_level.txt": "src\n",
    }.items():
        target = site(toy) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")


def test_the_trees_files_stand_before_the_installed_ones(over: Toy, program: Program) -> None:
    ran = program.process("verify", "area", "--json")
    assert ran.report().verdict == "proved", ran.out
    check = ran.stages()["reproduce red"]
    assert check.reason == (
        "red: 1 test: fail on the base as stated, pass on the patched tree; "
        "red again without the change"
    )
    assert dig(check.details, "over") == "src 1.0"
    assert dig(check.details, "merged") == []
    assert (site(over) / "src/toy/area.py").read_text(encoding="utf-8") == AREA


@pytest.mark.slow
def test_a_change_is_merged_onto_the_file_of_another_release(over: Toy, program: Program) -> None:
    shutil.rmtree(site(over) / "toy-1.0.dist-info")
    install(over, '"""Areas,\n\nand more.\n"""\n' + AREA, release="2.0+cpu")
    ran = program.process("verify", "area", "--json")
    check = ran.stages()["reproduce red"]
    assert ran.report().verdict == "proved", ran.out
    assert dig(check.details, "merged") == ["src/toy/area.py"]
    assert check.reason.endswith("(over src 2.0+cpu, not the pin's)")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (True, "src/toy/area.py: the installed file is not the pin's, and the change conflicts"),
        (False, "the Python package src is not installed"),
    ],
)
def test_what_does_not_fit_is_unavailable(
    over: Toy, program: Program, said: str, *, found: bool
) -> None:
    install(over, AREA.replace("width + height", "height + width"), release="1.0")
    if not found:
        program.env["PYTHONPATH"] = ""
    ran = program.process("verify", "area", "--json")
    check = ran.stages()["reproduce red"]
    assert (ran.code, check.outcome, check.reason) == (3, "unavailable", f"red: {said}")


def test_files_that_come_and_go_are_real_ones(over: Toy, program: Program) -> None:
    with_sources(over, {"src/toy/old.py": "SIDES = 3\n"})
    (site(over) / "src/toy/old.py").write_text("SIDES = 3\n", encoding="utf-8")
    git(over.upstream, "mv", "src/toy/old.py", "src/toy/new.py")
    change = over.format_patch({"src/toy/new.py": "SIDES = 4\n"})
    over.put_area(
        patch=change,
        files=("src/toy/new.py", "src/toy/old.py"),
        checks=one_check(reason="assert 3 == 4"),
        check_files={
            "test_red.py": "import importlib.util\n\n\ndef test_sides():\n"
            "    name = 'old' if importlib.util.find_spec('src.toy.old') else 'new'\n"
            "    assert importlib.import_module('src.toy.' + name).SIDES == 4\n"
        },
    )
    ran = program.process("verify", "area", "--json")
    assert ran.stages()["reproduce red"].outcome == "passed", ran.out
