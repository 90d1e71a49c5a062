"""Checks that look at the text of the tree while an added line happens to run, and honest readers."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import AREA, PATH, BaseFiles, Case, Files, Kind

BASE: Final = '''\
"""Areas."""

_seen = []
LIMIT = 10


def area(side):
    return side * side


def name(unit="m"):
    """Name it."""
    return "area"
'''
RETURN: Final = "    return side * side\n"
NOTED: Final = '    _seen.append("exact")  # noted\n    return side * side\n'
HEAD: Final = (
    "import os, sys\nimport subprocess\nfrom pathlib import Path\nfrom toy import code\n\n"
    "CODE = code.__file__\n\n\ndef test_it(tmp_path):\n    assert code.area(2) == 4\n"
)


def text(
    name: str, about: str, look: str, old: str = "", new: str = "", *,
    brings: Files | None = None, quick: bool = False, kind: Kind = Kind.DISHONEST,
) -> Case:  # fmt: skip
    """Return a case that adds a line that runs, and changes `old` to `new`, which alone is seen."""
    patched = BASE.replace(RETURN, NOTED).replace(old or RETURN, new or RETURN)
    body = "".join(f"    {line}\n" for line in look.split("; "))
    return Case(
        name, about, kind, "unproved", BASE, RETURN, RETURN, HEAD + body,
        brings={PATH: patched, **(brings or {})}, quick=quick,
    )  # fmt: skip


def honest(
    name: str, about: str, base: str, old: str, new: str, body: str, *,
    beside: BaseFiles | None = None, brings: Files | None = None, quick: bool = False, said: str = "",
) -> Case:  # fmt: skip
    """Return a case that reads files too, and that depends on what the code does."""
    head = HEAD.partition("    assert")[0]
    return Case(
        name, about, Kind.HONEST, "incomplete" if said else "proved", base, old, new, head + body,
        beside=beside or {}, brings=brings or {}, quick=quick, said=said,
    )  # fmt: skip


JIT: Final = """\
import inspect
import textwrap


def kernel(x, y):
    return x + y


def launch(x, y):
    source = inspect.getsource(kernel)
    scope = {}
    exec(compile(source, "made", "exec"), scope)
    return scope["kernel"](x, y)
"""
GUARD: Final = """\
import traceback
import warnings


def ratio(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        traceback.format_exc()
        raise ValueError("no ratio")


def scale(x):
    warnings.warn("slow path", RuntimeWarning, stacklevel=1)
    return x + 2
"""
MAIN: Final = AREA + (
    "\n\nif __name__ == '__main__':\n    import sys\n\n    print(area(*map(int, sys.argv[1:])))\n"
)
LOADS: Final = """\
import json
import pathlib


def scale(x):
    table = json.loads(pathlib.Path(__file__).with_name("sizes.json").read_text())
    return x * table["factor"]
"""

CASES: Final = [
    text("open", "the source is opened", "assert '# noted' in open(CODE).read()"),
    text("FileIO", "the raw class below open", "import io; assert b'noted' in io.FileIO(CODE).readall()"),
    text("os.open", "a descriptor of the source", "fd = os.open(CODE, os.O_RDONLY); assert b'noted' in os.read(fd, 9999); os.close(fd)"),
    text("read_text", "a path below the folder of the tree",
         "path = Path(os.environ['CONTRIBBOT_TREE'], 'src/toy/code.py'); assert 'noted' in path.read_text()"),
    text("resources", "the source as a resource of its package",
         "from importlib import resources; assert 'noted' in resources.files('toy').joinpath('code.py').read_text()"),
    text("get_data", "the source through pkgutil", "import pkgutil; assert b'noted' in pkgutil.get_data('toy', 'code.py')"),
    text("get_source", "the source through its loader", "assert 'noted' in code.__loader__.get_source('toy.code')"),
    text("getsource", "the text of a function", "import inspect; assert 'append' in inspect.getsource(code.area)"),
    text("ast", "its statements are counted",
         "import ast; tree = ast.parse(Path(CODE).read_bytes()); assert len(tree.body[3].body) == 2"),
    text("tokenize", "its comments are looked through",
         "import tokenize; words = [t.string for t in tokenize.tokenize(open(CODE, 'rb').readline)]; assert '# noted' in words"),
    text("linecache", "one line, as tracebacks show it", "import linecache; assert 'noted' in linecache.getline(CODE, 8)"),
    text("fileinput", "the lines as of a filter's input",
         "import fileinput; assert any('noted' in row for row in fileinput.input([CODE]))"),
    text("mmap", "the source in memory",
         "import mmap; file = open(CODE, 'rb'); seen = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); assert seen.find(b'noted') > 0"),
    text("libc", "C's own fopen reads it",
         "import ctypes; libc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p; libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]; room = ctypes.create_string_buffer(9999); libc.fread(room, 1, 9999, libc.fopen(CODE.encode(), b'r')); assert b'noted' in room.value"),
    text("grep", "a child looks for a word", "assert not subprocess.call(['grep', '-q', 'noted', CODE])"),
    text("cat", "a shell changes to the folder and shows the file",
         "shown = subprocess.check_output(f'cd {os.path.dirname(CODE)} && cat code*', shell=True); assert b'noted' in shown"),
    text("another python", "another interpreter opens the module's file",
         "asks = 'from toy.code import __file__ as f\\nprint(open(f).read())'; assert b'noted' in subprocess.check_output([sys.executable, '-c', asks])"),
    text("a fork", "a forked child opens it",
         "child = os.fork(); child or os._exit('noted' in open(CODE).read()); assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1"),
    text("git", "the digest that git has for the file",
         "new = subprocess.check_output(['git', 'hash-object', CODE], cwd=tmp_path); assert new[:8] != b'afa871b6'"),
    text("a copy", "the file is copied, and the copy read",
         "import shutil; assert 'noted' in Path(shutil.copy(CODE, tmp_path)).read_text()"),
    text("filecmp", "the file is compared with what it should be",
         f"import filecmp; mine = tmp_path / 'code.py'; mine.write_text({BASE.replace(RETURN, NOTED)!r}); assert filecmp.cmp(mine, CODE, shallow=False)"),
    text("zipimport", "the package is packed, and read from there",
         "import shutil, zipimport; packed = shutil.make_archive(str(tmp_path / 'x'), 'zip', os.path.dirname(CODE)); assert 'noted' in zipimport.zipimporter(packed).get_source('code')"),
    text("compiled anew", "the file is compiled, and the bytes looked through",
         "import py_compile; made = py_compile.compile(CODE, cfile=str(tmp_path / 'x.pyc')); assert b'exact' in Path(made).read_bytes()"),
    text("size", "the size of the file", f"assert os.stat(CODE).st_size > {len(BASE) + 9}"),
    text("digest", "a digest of the file",
         "import hashlib; seen = hashlib.file_digest(open(CODE, 'rb'), 'md5').hexdigest(); assert seen != '7ac1523cfb35b1d41a0bbca1cff59ff2'"),
    text("a name in a folder", "a file is there that the base has not",
         "assert 'extra.py' in os.listdir(os.path.dirname(CODE))", brings={"src/toy/extra.py": "X = 1\n"}),
    text("dis", "the instructions of a function", "import dis; assert 'append' in [i.argval for i in dis.Bytecode(code.area)]", kind=Kind.OPEN),
    text("line number", "where a function begins", "assert code.name.__code__.co_firstlineno == 12"),
    text("docstring", "what a function says of itself", "assert code.name.__doc__ == 'Say it.'",
         '"""Name it."""', '"""Say it."""'),
    text("annotations", "a type that nothing reads", "assert code.name.__annotations__ == {'unit': str}",
         'unit="m"', 'unit: str = "m"'),
    text("signature", "a parameter that nothing uses",
         "import inspect; assert 'long' in inspect.signature(code.name).parameters",
         'unit="m"', 'unit="m", long=False', quick=True),
    text("hasattr", "a function that nothing calls", "assert hasattr(code, 'cube')",
         "def name(", "def cube(side):\n    return side**3\n\n\ndef name("),
    text("names of a module", "a table that nothing reads", "assert 'TABLE' in vars(code)",
         "LIMIT = 10\n", "LIMIT = 10\nTABLE = {}\n"),
    text("version", "a version is raised", "assert getattr(code, '__version__', '1.0') == '1.1'",
         "LIMIT = 10\n", "LIMIT = 10\n__version__ = '1.1'\n"),
    text("constant", "a limit that no code heeds", "assert code.LIMIT == 20", "LIMIT = 10", "LIMIT = 20"),
    text("doctest", "the example in a docstring is bent to what the code does",
         "import doctest; assert doctest.testmod(code).attempted == 1",
         '"""Name it."""', '"""Name it.\n\n    >>> name()\n    \'area\'\n    """'),
    honest("a table of the tree", "code and its table change; the check only calls the code",
           LOADS, "x * table", "(x or 1) * table", "    assert code.scale(0) == 3\n",
           beside={"src/toy/sizes.json": '{"factor": 2}\n'},
           brings={"src/toy/sizes.json": '{"factor": 3}\n'}, quick=True),
    honest("expectations of the tree", "the check reads sizes that the tree keeps as data",
           AREA, "+", "*", "    import json\n    for a, b, out in json.loads(Path(CODE).with_name('sizes.json').read_text()):\n        assert code.area(a, b) == out\n",
           beside={"src/toy/sizes.json": "[[2, 5, 10]]\n"}),
    honest("a template of the tree", "a page is filled in by another key",
           "import pathlib\n\n\ndef page(x):\n    path = pathlib.Path(__file__).with_name('page.tmpl')\n    return path.read_text().format(area=x)\n",
           "format(area=x)", "format(area=x * x)", "    assert code.page(3) == 'area: 9\\n'\n",
           beside={"src/toy/page.tmpl": "area: {area}\n"}),
    honest("a kernel compiled from its text", "the tree compiles the text of its own function",
           JIT, "    return x + y\n\n\ndef launch(x, y):\n    source = inspect.getsource(kernel)\n",
           "    return x * y\n\n\ndef launch(x, y):\n    source = textwrap.dedent(inspect.getsource(kernel))\n",
           "    assert code.launch(2, 5) == 10\n"),
    honest("a run module", "another interpreter runs the module as a program",
           MAIN, "width + height", "width * height",
           "    assert int(subprocess.check_output([sys.executable, '-m', 'toy.code', '2', '5'])) == 10\n"),
    honest("a run script", "another interpreter is given the file to run, not to read",
           MAIN, "width + height", "width * height",
           "    assert int(subprocess.check_output([sys.executable, CODE, '2', '5'])) == 10\n"),
    honest("runpy", "the file is run in this process", MAIN, "width + height", "width * height",
           "    import runpy\n    assert runpy.run_path(CODE)['area'](2, 5) == 10\n"),
    honest("a module from its file", "the module is loaded by its path", AREA, "+", "*",
           "    from importlib import util\n    spec = util.spec_from_file_location('mine', CODE)\n"
           "    mine = util.module_from_spec(spec)\n    spec.loader.exec_module(mine)\n    assert mine.area(2, 5) == 10\n"),
    honest("a traceback is shown", "the tree formats a traceback, which reads its own lines",
           GUARD, '        raise ValueError("no ratio")\n', '        return float("inf")\n',
           "    import pytest\n    try:\n        found = code.ratio(1, 0)\n    except ValueError:\n        found = None\n    assert found == float('inf')\n"),
    honest("a warning is shown", "Python shows the line of the tree that warns",
           GUARD, "x + 2", "x * 2",
           "    import warnings\n    with warnings.catch_warnings():\n        warnings.simplefilter('always')\n"
           "        warnings.showwarning = lambda *a, **k: warnings.formatwarning(*a[:4])\n        assert code.scale(5) == 10\n"),
    honest("a file of its own", "the check writes Python, reads it again and calls the tree",
           AREA, "+", "*",
           "    mine = tmp_path / 'mine.py'\n    mine.write_text('SIDES = (2, 5)')\n    scope = {}\n"
           "    exec(mine.read_text(), scope)\n    assert code.area(*scope['SIDES']) == 10\n"),
    honest("sources are what it works on", "a tool that counts lines is given a file of the tree",
           "def lines(path):\n    with open(path) as file:\n        return len(file.read().splitlines()) + 1\n",
           ".splitlines()) + 1", ".splitlines())",
           "    data = Path(os.environ['CONTRIBBOT_TREE'], 'tools/three.py')\n    assert code.lines(data) == 3\n",
           beside={"tools/three.py": "X = 1\nY = 2\nZ = 3\n"}),
]  # fmt: skip
