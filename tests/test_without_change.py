"""A file with the base's statements under patched names: what is left of a change."""

from __future__ import annotations

import ast

import pytest

from contribbot.verify.without_change import without_change


def names_of(base: str, patched: str, *, read: bool = False) -> dict[str, object] | None:
    """Return what a file defines without its change; None: there is nothing to take out."""
    module = without_change(base.encode(), patched.encode(), lambda _name: read)
    if module is None:
        return None
    scope: dict[str, object] = {"__name__": "toy"}
    exec(compile(module, "toy", "exec"), scope)  # noqa: S102  the text is the test's own
    return scope


AREA = "def area(a, b):\n    return a + b\n"
FIXED = AREA.replace("+", "*")
LOOKS = "\ndef f(name):\n    return globals()[name.upper()]\n"
MAKES = "class Box:\n    @staticmethod\n    def make():\n        return 1\n"
SINGLE = """\
import functools

@functools.singledispatch
def kind(x):
    return 'other'
"""
OF_INT = "\n@kind.register(int)\ndef _(x):\n    return '{}'\n"
OF_TEXT = "\n@kind.register(str)\ndef _(x):\n    return 'text'\n"
SIDE = """\
class Box:
    @property
    def side(self):
        return self._side

    @side.setter
    def side(self, value):
        self._side = value{}
"""
TABLE = "def fill():\n    return {'a': 1}\n\nTABLE = fill()\nNAMES = sorted(TABLE)\n"
TILE = "def base():\n    return object\n\nclass Tile(base()):\n    pass\n"
TWO = f"{AREA}\ndef twice(a, b):\n    return 2 * area(a, b)\n"
BLOCK = "class Block:\n    wide = 2\n\n    def lanes(self):\n        return self.wide + 1\n"
TILE_OF_BLOCK = BLOCK.replace("Block", "Tile").replace("lanes", "width").replace("+", "*")
CACHED = "import functools\n\n@functools.cache\ndef two():\n    return 2\n"


@pytest.mark.parametrize(
    ("base", "patched", "expression", "value"),
    [
        pytest.param(AREA, FIXED, "area(2, 5)", 7, id="a body"),
        pytest.param(AREA, FIXED.replace("b)", "b, c=1)", 1), "area(2, 5, c=3)", 7,
                     id="a signature"),
        # The base's statements give no argument that is new.
        pytest.param(AREA + "\ndef twice(a, b):\n    return 2 * area(a, b)\n",
                     FIXED.replace("b)", "b, scale, *, unit)", 1)
                     + "\ndef twice(a, b):\n    return area(a, b, 2, unit=1)\n",
                     "(twice(2, 5), area(2, 5, 3, unit=1))", (14, 7), id="a new argument"),
        pytest.param(MAKES, MAKES.replace("static", "class").replace("()", "(cls)"),
                     "(Box.make(), Box().make())", (1, 1), id="another kind of method"),
        pytest.param(AREA.replace("b)", "b=3)", 1), FIXED.replace("b)", "unit=1, b=3)", 1),
                     "area(4, 1)", 5, id="a new argument amid others"),
        pytest.param("def f(x=1):\n    return x\n", "def f(x=2):\n    return x\n", "f()", 1,
                     id="a default"),
        pytest.param(AREA, f"{FIXED}\ndef cube(x):\n    return x**3\n", "(area(2, 5), cube(3))",
                     (7, None), id="a new name"),
        pytest.param("LIMIT = 10\n\ndef f():\n    return LIMIT\n",
                     "LIMIT = 20\n\ndef f():\n    return LIMIT\n", "f()", 10,
                     id="a value that is read"),
        pytest.param("LIMIT = 10\n\ndef f():\n    return globals()['LIMIT']\n",
                     "LIMIT = 20\n\ndef f():\n    return globals()['LIMIT']\n", "f()", 10,
                     id="a value that is read by its name"),
        pytest.param(f"LIMIT = 10\n{LOOKS}", f"LIMIT = 20\n{LOOKS}", "f('limit')", 10,
                     id="a value that is read by a name that is computed"),
        # Definitions of one name pair by their decorators, wherever they stand.
        pytest.param(SINGLE + OF_INT.format("int"), SINGLE + OF_TEXT + OF_INT.format("whole"),
                     "(kind(1), kind(''))", ("int", "other"), id="singledispatch"),
        pytest.param(SIDE.format(""), SIDE.format(" * 2"),
                     "[setattr(b := Box(), 'side', 3), b.side]", [None, 3], id="a property"),
        # A new name of what the base has does what that does.
        pytest.param(TWO, TWO.replace("area", "surface").replace("+", "*"),
                     "(twice(2, 5), surface(2, 5), area(2, 5))", (14, 7, 7), id="a new name of it"),
        pytest.param(AREA, FIXED.replace("area(a, b)", "surface(a, b, c=1)"),
                     "surface(2, 5, c=3)", 7, id="a new name and signature"),
        pytest.param(BLOCK, TILE_OF_BLOCK,
                     "(Tile().width(), Tile().lanes(), Tile is Block)", (3, 3, True),
                     id="a new name of a class and its method"),
        pytest.param(AREA, "def depth(tree):\n    return max(map(depth, tree.leaves), default=0)\n",
                     "(area(2, 5), depth(0))", (7, None), id="another function in its place"),
        # New names that are made by new functions, which do nothing here.
        pytest.param(AREA, f"{TABLE}\n{FIXED}", "(area(2, 5), TABLE, NAMES)", (7, None, None),
                     id="a table that is computed"),
        pytest.param(AREA, f"{TILE}\n{FIXED}",
                     "(area(2, 5), Tile)", (7, None), id="a base class that is computed"),
        pytest.param(AREA, f"{CACHED}\n{FIXED}",
                     "(area(2, 5), two())", (7, None), id="a decorator"),
    ],
)  # fmt: skip
def test_what_is_left(base: str, patched: str, expression: str, value: object) -> None:
    scope = names_of(base, patched)
    assert scope is not None
    assert eval(expression, scope) == value  # noqa: S307  the text is the test's own


@pytest.mark.parametrize(
    ("base", "patched"),
    [
        ("LIMIT = 10\n", "LIMIT = 20\n"),
        ("SIZES = (1, 2)\n", "SIZES = [1, 2, 3]\n"),
        ("KINDS = {'a': 1}\n__all__ = ['KINDS']\n", "KINDS = dict(a=2)\n__all__ = ['KINDS']\n"),
        ("A, B = 1, 2\n", "A, B = 2, 1\n"),
        ("", "TABLE = {}\n"),
        (AREA, f"{AREA}# more\n"),
        (AREA, "def area(:\n"),
    ],
)  # fmt: skip
def test_names_that_nobody_reads_are_no_change(base: str, patched: str) -> None:
    assert names_of(base, patched) is None


@pytest.mark.parametrize("call", ["register('b')", "open('x')"])
def test_a_value_that_is_computed_is_one(call: str) -> None:
    base = "def register(name):\n    return name\n\nRULE = register('a')\n"
    assert without_change(base.encode(), base.replace("register('a')", call).encode()) is not None


def test_a_value_that_another_file_reads_is_one() -> None:
    scope = names_of("LIMIT = 10\n", "LIMIT = 20\n", read=True)
    assert scope is not None
    assert scope["LIMIT"] == 10


def test_lines_stay_those_of_the_patched_file() -> None:
    module = without_change(AREA.encode(), f"# One.\n# Two.\n{FIXED}".encode())
    assert module is not None
    (function,) = module.body
    assert isinstance(function, ast.FunctionDef)
    assert function.lineno == 3
