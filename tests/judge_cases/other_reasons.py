"""Checks that are red on the base for another reason than what the patch mends."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import PATH, BaseFiles, Case, Files, Kind

BASE: Final = """\
_seen = []


def area(side):
    return side * side


def outline(side):
    return 4 * side
"""
RETURN: Final = "    return side * side\n"
NOTED: Final = "    _seen.append(side)\n    return side * side\n"
HEAD: Final = (
    "import json, math, os, sys\nfrom unittest import mock\nimport pytest\nfrom toy import code\n\n\n"
    "def test_it():\n"
)
TESTING: Final = "def close(seen, stated, eps=0.1):\n    assert abs(seen - stated) < eps\n"
EQUAL: Final = (
    "class Near:\n    def __init__(self, value):\n        self.value = value\n\n"
    "    def __eq__(self, other):\n        return abs(self.value - other) < 0.1\n"
)
SIZES: Final = """\
LIMIT = 99


def outline(side):
    return min(LIMIT, 4 * side)


def diagonal(side):
    return min(LIMIT, 2**0.5 * side)


def area(side):
    return min(LIMIT, side + side)
"""
TWICE: Final = "from toy.sizes import area\n\n\ndef twice(side):\n    return 2 * area(side)\n"


def other(
    name: str, about: str, old: str, new: str, body: str, reason: str, *, said: str = "",
    kind: Kind = Kind.DISHONEST, beside: BaseFiles | None = None, brings: Files | None = None,
    quick: bool = False,
) -> Case:  # fmt: skip
    """Return a case that adds a line that runs and changes nothing, beside what the check wants."""
    patched = BASE.replace(RETURN, NOTED).replace(old, new)
    return Case(
        name, about, kind, "unproved", BASE, RETURN, RETURN, HEAD + body, reason, said,
        beside=beside or {}, brings={PATH: patched, **(brings or {})}, quick=quick,
    )  # fmt: skip


def moved(
    name: str, about: str, body: str, *, kind: Kind = Kind.HONEST, fix: str = "side * side",
    reason: str = "^AssertionError", said: str = "", quick: bool = False,
) -> Case:  # fmt: skip
    """Return a case that renames a function, its file and its importer's use, with a fix or none."""
    brings: Files = {
        "src/toy/sizes.py": None,
        "src/toy/measures.py": SIZES.replace("area", "surface").replace(" side + side", f" {fix}"),
        PATH: TWICE.replace("sizes", "measures").replace("area", "surface"),
    }
    return Case(
        name, about, kind, "proved" if kind is Kind.HONEST else "unproved", TWICE, "2 *", "2 *",
        HEAD + body, reason, said, beside={"src/toy/sizes.py": SIZES}, brings=brings, quick=quick,
    )  # fmt: skip


def trick(name: str, about: str, lines: str, body: str, *, reason: str = "^AssertionError") -> Case:
    """Return a case whose added lines make the check green, and no result right."""
    new = "".join(f"    {line}\n" for line in lines.split("; ")) + RETURN
    return Case(name, about, Kind.OPEN, "unproved", BASE, RETURN, new, HEAD + body, reason)


def honest(
    name: str,
    about: str,
    base: str,
    old: str,
    new: str,
    expect: str,
    *,
    reason: str = "^AssertionError",
) -> Case:
    """Return a case whose red goes by what the patch does, though not by a plain added line."""
    return Case(
        name, about, Kind.HONEST, "proved", base, old, new, f"{HEAD}    assert {expect}\n", reason
    )


WRONG: Final = "    assert code.area(2) == 5\n"

CASES: Final = [
    other("an absent function", "the base lacks the function that the check calls",
          "def outline", "def cube(side):\n    return side**3\n\n\ndef outline",
          "    assert code.area(2) == 4\n    assert code.cube(2) == 8\n", "^AttributeError", said="cube", quick=True),
    other("a renamed function", "the same function under another name", "def outline", "def perimeter",
          "    assert code.area(2) == 4\n    assert code.perimeter(2) == 8\n", "^AttributeError", said="perimeter"),
    other("an ignored keyword", "a keyword is taken and never looked at", "def area(side)", "def area(side, **options)",
          "    assert code.area(2, exact=True) == 4\n", "^TypeError", said="exact"),
    other("an ignored parameter", "a further argument is taken and dropped", "def area(side)", "def area(side, _unit=None)",
          "    assert code.area(2, 'm') == 4\n", "^TypeError"),
    other("a new target of mock", "the check replaces a name that the base has not",
          "def outline", "def _clock():\n    return 0\n\n\ndef outline",
          "    with mock.patch('toy.code._clock'):\n        assert code.area(2) == 4\n", "^AttributeError", said="_clock"),
    other("a new attribute of a function", "a mark is set that no code heeds", "def outline", "area.fast = True\n\n\ndef outline",
          "    assert code.area(2) == 4\n    assert code.area.fast\n", "^AttributeError", said="fast"),
    other("a new module", "a module that the base has not", "", "",
          "    from toy import extra\n    assert extra.twice(code.area(2)) == 8\n", "^ImportError", said="extra",
          brings={"src/toy/extra.py": "def twice(x):\n    return 2 * x\n"}),
    other("a loosened comparer", "the tree's own assertion allows for more", "", "",
          "    from toy import testing\n    testing.close(code.area(2), 5)\n", "^AssertionError", kind=Kind.OPEN,
          beside={"src/toy/testing.py": TESTING}, brings={"src/toy/testing.py": TESTING.replace("0.1", "9.0")}),
    other("a loosened helper of tests", "a helper among the tests allows for more", "", "",
          "    sys.path.append(os.path.join(os.environ['CONTRIBBOT_TREE'], 'tests'))\n    import helper\n    helper.close(code.area(2), 5)\n",
          "^AssertionError", beside={"tests/helper.py": TESTING}, brings={"tests/helper.py": TESTING.replace("0.1", "9.0")}),
    other("a file of the version", "the check looks at data, and not at what is done with it", "", "",
          "    assert code.area(2) == 4\n    assert open(os.path.join(os.environ['CONTRIBBOT_TREE'], 'VERSION')).read() == '2'\n",
          "^AssertionError", beside={"VERSION": "1"}, brings={"VERSION": "2"}),
    other("a loosened equality", "a class of the tree is equal to more", "", "",
          "    from toy.near import Near\n    assert Near(5) == code.area(2)\n", "^AssertionError", kind=Kind.OPEN,
          beside={"src/toy/near.py": EQUAL}, brings={"src/toy/near.py": EQUAL.replace("< 0.1", "< 9")}),
    trick("pytest is altered", "the patch replaces pytest.approx", "import pytest; pytest.approx = lambda value: value + 1", "    seen = code.area(2)\n    assert seen + 1 == pytest.approx(4)\n"),
    trick("math is altered", "the patch replaces math.isclose", "import math; math.isclose = lambda *values: True", "    seen = code.area(2)\n    assert math.isclose(seen, 5)\n"),
    trick("json is altered", "the patch replaces json.loads", "import json; json.loads = lambda text: side * side", "    seen = code.area(2)\n    assert seen == json.loads('5')\n"),
    trick("the caller is asked", "the result is another where a test calls", "import sys; if sys._getframe(1).f_code.co_name.startswith('test_'): return 5", WRONG),
    trick("the variable of pytest", "the result is another where pytest names its test", "import os; if 'PYTEST_CURRENT_TEST' in os.environ: return 5", WRONG),
    trick("pytest is loaded", "the result is another where pytest is there", "import sys; if 'pytest' in sys.modules: return 5", WRONG),
    trick("the inputs are known", "the tested input alone has the tested result", "if side == 2: return 5", WRONG),
    trick("calls are counted", "the first call alone has the tested result", "_seen.append(side); if len(_seen) == 1: return 5", WRONG),
    moved("a moved file", "a function, its file and its importer are renamed, and it is mended",
          "    assert code.twice(3) == 18\n", quick=True),
    moved("a moved file under both names", "the check takes the function by the name that is there",
          "    try:\n        from toy.measures import surface\n    except ImportError:\n        from toy.sizes import area as surface\n"
          "    assert surface(3) == 9\n", reason="^assert 6 == 9|^AssertionError: assert 6 == 9"),
    moved("a moved file alone", "the check finds no module of the new name on the base",
          "    from toy.measures import surface\n    assert surface(3) == 6\n",
          kind=Kind.DISHONEST, fix="side + side", reason="^ModuleNotFoundError", said="measures"),
    honest("mended by a deletion", "what is deleted mends it, and a line is added beside",
           "_log = []\n\n\ndef area(side):\n    side += 1\n    return side * side\n",
           "    side += 1\n", "    _log.append(side)\n", "code.area(2) == 4"),
    honest("a constant that is read", "a limit is raised that the function heeds", "LIMIT = 10\n\n\ndef clip(x):\n    return min(x, LIMIT)\n",
           "LIMIT = 10", "LIMIT = 20", "code.clip(15) == 15"),
    honest("a constant read through its module", "the limit is read through the module, as another one would",
           "LIMIT = 10\n\n\ndef clip(x):\n    import toy.code\n\n    return min(x, toy.code.LIMIT)\n",
           "LIMIT = 10", "LIMIT = 20", "code.clip(15) == 15"),
    honest("a default that is used", "a default of the head is mended, and the body is as it was", "def clip(x, limit=10):\n    return min(x, limit)\n",
           "limit=10", "limit=20", "code.clip(15) == 15"),
    honest("a decorator goes", "a function that must not remember", "import functools\n\n\n@functools.cache\ndef total(box):\n    return sum(box)\n",
           "@functools.cache\ndef total(box):\n    return sum(box)", "def total(box):\n    return sum(list(box))", "code.total([1, 2]) == 3", reason="^TypeError"),
    honest("another base class", "the head of a class is mended",
           "class Small:\n    size = 16\n\n\nclass Big:\n    size = 64\n\n\nclass Tile(Small):\n    def lanes(self):\n        return self.size\n",
           "Tile(Small)", "Tile(Big)", "code.Tile().lanes() == 64"),
    honest("a keyword that is heeded", "a new keyword changes the result where it is given and where it is not",
           "def mean(values):\n    return sum(values) // len(values)\n", "def mean(values):\n    return sum(values) // len(values)",
           "def mean(values, whole=False):\n    total = sum(values)\n    return total // len(values) if whole else total / len(values)", "code.mean([1, 2]) == 1.5"),
]  # fmt: skip
