"""Patches that do not do what they claim: each has to be refuted."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import AREA, CHECK, Case, Kind

RIGHT: Final = AREA.replace("+", "*")
TWO: Final = CHECK + "\n\ndef test_other():\n    assert area(2, 2) == 4\n"


def false(
    name: str, about: str, new: str, *, base: str = AREA, old: str = "width + height", check: str = CHECK,
    reason: str = "^AssertionError", more: str = "", quick: bool = False,
) -> Case:  # fmt: skip
    """Return a case that claims to turn red to green."""
    return Case(
        name, about, Kind.FALSE, "refuted", base, old, new, check, reason, more=more, quick=quick
    )


def breaks(name: str, about: str, new: str, *, more: str = "", quick: bool = False) -> Case:
    """Return a case that claims to keep what is right, and breaks it."""
    return Case(
        name, about, Kind.FALSE, "refuted", RIGHT, "    return width * height\n", new,
        expect="pass-to-pass", more=more, quick=quick,
    )  # fmt: skip


CASES: Final = [
    false("still wrong", "the patched tree fails as the base does", "height - width"),
    false("wrong in one of two", "the second test stays red", "width * height if height > 2 else 5",
          check=TWO.replace("area(2, 2) == 4", "area(2, 1) == 2")),
    false("one test was green", "the base passes a test that is stated red", "width * height", check=TWO),
    false("it was right", "the base passes", "height * width", base=RIGHT, old="width * height"),
    false("another reason", "the base fails by another exception than stated", "width * height", base=AREA.replace("width +", "width / 0 +"), old="width / 0 + height"),
    false("an exception in its place", "the patched tree raises in place of a wrong sum", "width * height * {}['factor']"),
    false("for ever deeper", "the patched tree calls itself without end", "area(width, height) * 1"),
    false("an end of the program", "the patched tree leaves with status 0", "exit(0)"),
    false("a crash", "the patched tree aborts", "__import__('os').abort()"),
    false("an end without a word", "the patched tree ends its process", "__import__('os')._exit(0)"),
    false("a default that is given", "the check passes explicitly what the patch has as a new default",
          "def area(width, height, scale=2):\n    return int(scale) * (width * height)", base="def area(width, height, scale=1):\n    return scale * (width * height)\n",
          old="def area(width, height, scale=1):\n    return scale * (width * height)", check=CHECK.replace("area(2, 5)", "area(2, 5, 1)")),
    breaks("a regression", "what was right is wrong", "    width = abs(width) + 1\n    return width * height\n", quick=True),
    breaks("it does not import", "a name is imported that the tree has not", "    from toy.area import cube\n\n    return cube(width) * height\n"),
    breaks("it does not compile", "the file that the check loads is no Python", "    return width * * height\n"),
    breaks("a hang", "the patched tree waits where the base ends at once", "    while True:\n        width += 0\n    return width * height\n", more="timeout = 25"),
    breaks("all memory", "the patched tree asks for more than there is", "    room = bytearray(1 << 47)\n    return width * height + len(room) * 0\n"),
    breaks("a failing thread", "a thread of the patched tree dies", "    import threading\n\n    one = threading.Thread(target=lambda: 1 / 0)\n    one.start()\n    one.join()\n    return width * height\n"),
]  # fmt: skip
