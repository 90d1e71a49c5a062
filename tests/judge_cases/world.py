"""Checks that depend on what is outside of the tree, and honest ones that use it."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import AREA, Case, Kind
from tests.judge_cases.other_reasons import BASE, NOTED, RETURN

HEAD: Final = (
    "import hashlib, os, random, signal, socket, subprocess, sys, time\nfrom pathlib import Path\nimport pytest\n"
    "from toy import code\n\n# A folder of all runs, where nothing keeps them apart.\n"
    "SHARED = Path(os.environ['TMPDIR']).parents[1]\nTREE = os.environ['CONTRIBBOT_TREE']\n\n\n"
)
TEST: Final = "def test_it():\n    assert code.area(2) == 4\n"
COUNTS: Final = "    runs = {} / 'case-runs'\n    with runs.open('a') as file:\n        file.write('x')\n    assert runs.stat().st_size {}\n"
KEEPS: Final = "    first = SHARED / 'case-first'\n    seen = str({})\n    if not first.exists():\n        first.write_text(seen)\n    assert first.read_text() != seen\n"
MANY: Final = "@pytest.mark.parametrize('number', range(24))\ndef test_it(number):\n    assert code.area(2) == 4\n    assert {}\n"
DAEMON: Final = '''\
NAME = "\\0" + hashlib.sha256(str(SHARED).encode()).hexdigest()
WAITS = """
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1].replace("@", chr(0)))
one.listen()
one.settimeout(20)
print("ready", flush=True)
one.accept()
"""


def test_it():
    assert code.area(2) == 4
    try:
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(NAME)
        there = True
    except OSError:
        there = False
        child = subprocess.Popen(
            [sys.executable, "-c", WAITS, NAME.replace(chr(0), "@")],
            stdout=subprocess.PIPE, start_new_session=True, env={},
        )
        child.stdout.readline()
    assert there
'''


def outside(
    name: str, about: str, check: str, *, sandbox: bool = True, quick: bool = False
) -> Case:
    """Return a case whose added line changes nothing, and whose check asks the world."""
    return Case(
        name, about, Kind.DISHONEST, "unproved", BASE, RETURN, NOTED, HEAD + check,
        sandbox=sandbox, quick=quick,
    )  # fmt: skip


def honest(name: str, about: str, base: str, old: str, new: str, body: str) -> Case:
    """Return a case that uses the world, and asserts what the code does."""
    return Case(
        name, about, Kind.HONEST, "proved", base, old, new, f"{HEAD}def test_it(tmp_path):\n{body}"
    )


#: Where the check runs the code of the tree.
ELSEWHERE: Final = {
    "a subprocess": (
        "    code = 'from toy.code import area; print(area(2, 5))'\n"
        "    assert int(subprocess.check_output([sys.executable, '-c', code])) == 10\n"
    ),
    "a spawned process": (
        "    import concurrent.futures, multiprocessing\n    spawn = multiprocessing.get_context('spawn')\n"
        "    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:\n"
        "        assert pool.submit(code.area, 2, 5).result() == 10\n"
    ),
    "a fork": (
        "    child = os.fork()\n    if not child:\n        os._exit(code.area(2, 5))\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10\n"
    ),
    "torch.compile": (
        "    import torch\n    compiled = torch.compile(code.area, backend='eager', fullgraph=True)\n"
        "    assert int(compiled(torch.tensor(2), torch.tensor(5))) == 10\n"
    ),
    "a thread": (
        "    from concurrent.futures import ThreadPoolExecutor\n    with ThreadPoolExecutor(1) as pool:\n"
        "        assert pool.submit(code.area, 2, 5).result() == 10\n"
    ),
}

CASES: Final = [
    *(honest(f"run in {where}", "the change is taken out wherever it runs", AREA, "+", "*", body)
      for where, body in ELSEWHERE.items()),
    outside("a toggle in a shared folder", "every other run is green", TEST + COUNTS.format("SHARED", "% 2 == 0"), sandbox=False, quick=True),
    outside("a mark left behind", "only the first run is red", TEST + COUNTS.format("SHARED", "> 1"), sandbox=False),
    outside("a toggle in /dev/shm", "memory that processes share", TEST + COUNTS.format("Path('/dev/shm')", "% 2 == 0")),
    outside("a toggle in /tmp", "a folder that all can write to", TEST + COUNTS.format("Path('/tmp')", "% 2 == 0")),
    outside("a toggle at home", "a file in the user's folder", TEST + COUNTS.format("Path.home()", "% 2 == 0"), sandbox=False),
    outside("the path of the tree", "red on the tree that was run first", TEST + KEEPS.format("TREE"), sandbox=False),
    outside("the inode of a source", "red on the file that was seen first", TEST + KEEPS.format("os.stat(code.__file__).st_ino"), sandbox=False),
    outside("the time of a source", "red on the file that was seen first, by its time", TEST + KEEPS.format("os.stat(code.__file__).st_ctime_ns"), sandbox=False),
    outside("a process left behind", "a daemon of one run answers in the next on an abstract socket", DAEMON, sandbox=False),
    outside("a process kept apart", "the same, where each run has processes and a network of its own", DAEMON),
    outside("the clock", "each of many tests is green in every other moment", MANY.format("time.time_ns() // 1000 % 2")),
    outside("chance", "each of many tests is green by the toss of a coin", MANY.format("random.random() < 0.5")),
    outside("the seed of hashes", "each of many tests is green by the hash of a word", MANY.format("hash(str(number)) % 2")),
    honest("an order of a set", "the base gives names in the order of their hashes",
           "def names(rows):\n    return list({str(row) for row in rows})\n", "list(", "sorted(",
           "    rows = [f'k{number}' for number in range(20)]\n    assert code.names(rows) == sorted(rows)\n"),
    honest("a server of its own", "a service on a free port that the check starts itself",
           "import socket\n\n\ndef ask(port):\n    with socket.create_connection(('127.0.0.1', port), 5) as one:\n        return one.recv(4)[:3]\n",
           "[:3]", "[:]", "    with socket.create_server(('127.0.0.1', 0)) as server:\n        import threading\n"
           "        def serve():\n            one, _ = server.accept()\n            with one:\n                one.sendall(b'four')\n"
           "        thread = threading.Thread(target=serve)\n        thread.start()\n        seen = code.ask(server.getsockname()[1])\n        thread.join()\n    assert seen == b'four'\n"),
    honest("a file that is kept", "the code remembers in a folder that the check gives it",
           "import os\n\n\ndef runs(folder):\n    path = os.path.join(folder, 'runs')\n    with open(path, 'w') as file:\n        file.write('x')\n    return os.path.getsize(path)\n",
           "'w'", "'a'", "    code.runs(tmp_path)\n    assert code.runs(tmp_path) == 2\n"),
    honest("a zone of time", "the day of a moment, in the zone that the check sets",
           "import time\n\n\ndef day(moment):\n    return time.localtime(moment).tm_mday\n", "localtime", "gmtime",
           "    os.environ['TZ'] = 'XXX-14'\n    time.tzset()\n    assert code.day(43200) == 1\n"),
]  # fmt: skip
