"""Honest patches that look odd: bytes, names, modes and files that no check loads."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import AREA, PATH, Case, Files, Kind

FIXED: Final = AREA.replace("+", "*")


def odd(name: str, about: str, brings: Files, *, quick: bool = False, **more: str) -> Case:
    """Return a case whose fix is plain, with something odd beside it."""
    return Case(name, about, Kind.HONEST, "proved", brings=brings, quick=quick, **more)  # type: ignore[arg-type]  # texts alone


LINTS: Final = '''\
def clean(path):
    """Say whether a file of Python compiles."""
    with open(path, "rb") as file:
        source = file.read()
    compile(source, path, "exec")
    return True
'''
LINT_CHECK: Final = """\
import os

import pytest

from toy.code import clean

DATA = os.path.join(os.path.dirname(__file__), "{}")


def test_clean():
    with open(DATA, "wb") as file:
        file.write({!r})
    assert clean(DATA) is False
"""
REPORTS: Final = """\
    try:
        compile(source, path, "exec")
    except (SyntaxError, ValueError):
        return False
    return True
"""
CHECK_MEMORY: Final = """\
from toy.code import area


def test_area():
    assert area(2, 5) == 10
    assert len(bytearray(1 << 47)) == 1 << 47
"""
SLOW: Final = "import time\n\n\ndef area(width, height):\n    return width + height\n"

CASES: Final = [
    Case("trailing space in code", "the fixed line ends in two spaces", Kind.HONEST, "proved",
         new="width * height  "),
    odd("space before tab", "a table for an assembler, indented with a space and a tab",
        {"src/toy/table.s": " \tmov\tr0, r1\n   \tret\n"}),
    odd("source becomes CRLF", "a file with LF is saved by an editor that writes CRLF",
        {PATH: FIXED.replace("\n", "\r\n")}),
    odd("mixed line ends", "a configuration with LF gets one line with CRLF",
        {"toy.cfg": "[toy]\nareas = yes\r\n"}),
    odd("lone carriage returns", "a log of an old Mac as test data",
        {"tests/data/mac.log": "one\rtwo\rthree"}),
    odd("no last line end", "the fixed file ends without a line feed", {PATH: FIXED.rstrip()}),
    odd("blank lines at the end", "three blank lines end a reStructuredText page",
        {"docs/area.rst": "Area\n====\n\nIt multiplies.\n\n\n\n"}),
    odd("a heading of seven", "an underline that looks like the middle of a conflict",
        {"docs/testing.rst": "Testing\n=======\n\nRun it.\n\n<<<<<<< is no heading\n"}),
    odd("a patch as test data", "context lines of a stored patch end in a space",
        {"tests/data/fix.patch": "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n \n-one\n+two\n \n"}),
    odd("UTF-16 data", "a table that a spreadsheet wrote",
        {"tests/data/sizes.csv": "größe,5\r\n".encode("utf-16")}),
    odd("KOI8-R catalogue", "a translation in the encoding that its head names",
        {"po/ru.po": 'msgid "area"\nmsgstr "площадь"\n'.encode("koi8-r")}),
    odd("a source in cp1252", "Python that declares its encoding and has a line in it",
        {PATH: f"# -*- coding: cp1252 -*-\n# Fläche\n{FIXED}".encode("cp1252")}),
    odd("a source with a BOM", "the fixed file begins with a byte order mark",
        {PATH: b"\xef\xbb\xbf" + FIXED.encode()}),
    odd("form feeds", "pages of a source are parted as GNU does it",
        {PATH: f"{FIXED}\n\f\n\ndef square(side):\n    return area(side, side)\n"}),
    odd("syntax of 3.14", "a template string, in a module for newer Python that is not imported",
        {"src/toy/templates.py": 'def hello(name):\n    return t"hello {name}"\n'}, quick=True),
    odd("parameters of 3.13", "a default of a type parameter, in a stub of a test that is not run",
        {"tests/test_typing.py": "type Pair[T = int] = tuple[T, T]\n"}),
    odd("a script of Python 2", "a tool that the project still runs with Python 2",
        {"tools/old.py": "print 'area', `3`\n"}),
    odd("a template of a project", "a cookiecutter's file that is Python only once it is filled in",
        {"template/{{name}}/setup.py": "import {{ name }}\n{% if x %}\nx = 1\n{% endif %}\n"}),
    Case("broken on purpose", "a linter, and a file that must not compile beside it",
         Kind.HONEST, "proved", base=LINTS, new=REPORTS,
         old='    compile(source, path, "exec")\n    return True\n',
         check=LINT_CHECK.format("bad.txt", b"def f(:\n"),
         brings={"tests/data/bad.py": "def f(:\n"}, reason="^SyntaxError"),
    Case("null bytes on purpose", "a linter, and a module that holds a null byte beside it",
         Kind.HONEST, "proved", base=LINTS, new=REPORTS,
         old='    compile(source, path, "exec")\n    return True\n',
         check=LINT_CHECK.format("null.txt", b"x = 1\0\n").replace("is False", "is False, 'null'"),
         brings={"tests/data/null.py": b"x = 1\0\n"}, reason="^(SyntaxError|ValueError)"),
    odd("indentation of tabs and spaces", "a fixture for a formatter, inconsistent by intent",
        {"tests/data/tabs.py": "if 1:\n        a = 1\n\tb = 2\n"}),
    Case("a runnable source", "the fixed module and a script become executable",
         Kind.HONEST, "proved", brings={PATH: FIXED, "tools/run.sh": "#!/bin/sh\nexit 0\n"},
         runnable=("tools/run.sh",)),
    odd("unusual names", "spaces, quotes, a dash in front, other scripts, a name of a device",
        {"docs/what is it?.md": "An area.\n", "docs/it's so.md": "So.\n", "docs/-x.py": "X = 1\n",
         "docs/площадь.md": "Да.\n", "docs/aux.txt": "aux\n"}),
    odd("a module called json", "a module in the package has the name of one of Python's",
        {"src/toy/json.py": "def dumps(value):\n    return str(value)\n"}),
    odd("written from right to left", "documentation in Hebrew, with marks of direction",
        {"docs/he.md": "\u200fשטח\u200f = \u2066width * height\u2069\n"}),  # noqa: RUF001  it is Hebrew
    odd("one long line", "a minified script of 200,000 characters, as a build wrote it",
        {"docs/site.min.js": "x=1;" * 50_000}),
    odd("a generated table", "a module of 4,000 lines that a generator wrote, with its blanks",
        {"src/toy/table.py": "TABLE = [\n" + "".join(f"  {n} , \n" for n in range(4000)) + "]\n"}),
    odd("documentation by far", "one line of code, two pages of Markdown with hard breaks",
        {"docs/a.md": "Areas  \nare products.  \n" * 40, "README": "toy  \n\n\n"}),
    odd("rules for whitespace", "what the patch itself rules of tabs is not what its data has",
        {".gitattributes": "*.dat -text whitespace=tab-in-indent\n", "a.dat": "\tx \n"}),
    odd("a recipe of make", "tabs in front, a tab behind, no last line end",
        {"Makefile": "all:\n\t@echo area\t\n\t"}),
    Case("a wait behind an early end", "the base fails at once; the fixed code works past the limit",
         Kind.HONEST, "incomplete", base=SLOW, new="time.sleep(60) or width * height",
         more="timeout = 5", said="timeout|limit|long"),
    Case("memory behind an early end", "the base fails at once; the rest wants more than is there",
         Kind.HONEST, "incomplete", new="width * height",
         check=CHECK_MEMORY, said="memory"),
]  # fmt: skip
