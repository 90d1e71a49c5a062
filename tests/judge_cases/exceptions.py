"""Where an exception is the bug: what the tree raises is a failure, what the check raises is not."""

from __future__ import annotations

from typing import Final

from tests.judge_cases.case import Case, Kind


def bug(
    name: str, about: str, base: str, old: str, new: str, expect: str, *,
    reason: str = "", quick: bool = False, before: str = "",
) -> Case:  # fmt: skip
    """Return a case whose base raises what its reason names, in code of the tree."""
    check = f"import os\nfrom toy import code\n\n\ndef test_it(tmp_path):\n{before}    assert {expect}\n"
    return Case(
        name, about, Kind.HONEST, "proved", base, old, new, check, reason or f"^{name}", quick=quick
    )


def own(name: str, about: str, body: str, *, said: str, new: str = "width * height") -> Case:
    """Return a case whose check raises the exception itself."""
    check = f"import os\nimport socket\nimport subprocess\nfrom toy import code\n\n\ndef test_it():\n{body}"
    return Case(
        f"{name} of the check", about, Kind.BLIND, "incomplete", check=check,
        reason=f"^{name.partition(' ')[0]}", said=said, new=new,
    )  # fmt: skip


def broken(name: str, said: str, line: str, *, more: str = "", quick: bool = False) -> list[Case]:
    """Return two cases whose check itself is at fault: on the base, or on the patched tree alone."""
    head = "import os\nimport pathlib\nimport pytest\nimport socket\nimport urllib.request\nfrom toy.code import area\n\n\n"
    green = "    assert area(2, 5) == 10\n"
    checks = {"base": f"{line}{green}", "patched tree": f"{green}{line}{green}"}
    return [
        Case(
            f"{name} on the {side}", "the check is broken, which shows nothing of the tree", Kind.BLIND,
            "incomplete", check=f"{head}def test_it():\n{body}{more}", said=f"red: {said}", quick=quick and side == "base",
        )
        for side, body in checks.items()
    ]  # fmt: skip


NETWORK: Final = "it needs the network"
OTHER_TEST: Final = "\n\ndef test_more(nothing):\n    pass\n"

CASES: Final = [
    bug("TimeoutError", "a poll that gives up one round too early",
        "def poll(ready, rounds):\n    for number in range(rounds - 1):\n        if ready(number):\n"
        "            return number\n    raise TimeoutError('not ready')\n",
        "range(rounds - 1)", "range(rounds)", "code.poll(lambda n: n == 2, 3) == 2"),
    bug("FileNotFoundError", "a path is joined to the wrong folder",
        "import os\n\n\ndef load(folder, name):\n    os.makedirs(folder, exist_ok=True)\n"
        "    target = os.path.join(folder, name)\n    with open(target + '.tmp', 'w') as file:\n"
        "        file.write(name)\n    os.replace(name + '.tmp', target)\n    return open(target).read()\n",
        "os.replace(name + '.tmp', target)", "os.replace(target + '.tmp', target)",
        "code.load(str(tmp_path), 'a') == 'a'"),
    bug("IsADirectoryError", "the folder is opened in place of the file in it",
        "import os\n\n\ndef save(folder):\n    target = os.path.join(folder, 'state')\n"
        "    with open(folder, 'w') as file:\n        file.write('x')\n    return os.path.getsize(target)\n",
        "open(folder, 'w')", "open(target, 'w')", "code.save(tmp_path) == 1"),
    bug("FileExistsError", "a cache folder that is there already",
        "import os\n\n\ndef cache(folder):\n    target = os.path.join(folder, 'cache')\n"
        "    for _ in range(2):\n        os.mkdir(target)\n    return target\n",
        "os.mkdir(target)", "os.makedirs(target, exist_ok=True)",
        "os.path.isdir(code.cache(tmp_path))"),
    bug("PermissionError", "state is written beside the program and not where it is told",
        "import os\n\n\ndef save(folder):\n    with open('/proc/version', 'a') as file:\n"
        "        file.write('x')\n    return True\n",
        "open('/proc/version', 'a')", "open(os.path.join(folder, 'version'), 'a')",
        "code.save(tmp_path)", reason="^(PermissionError|OSError)"),
    bug("ConnectionRefusedError", "a port is asked that no service has, where a file was meant",
        "import socket\n\n\ndef ask(port):\n    if port is None:\n        port = 9\n"
        "    return socket.create_connection(('127.0.0.1', port), 1)\n",
        "        port = 9\n", "        return None\n", "code.ask(None) is None"),
    bug("gaierror", "the address of a local socket is looked up as the name of a host",
        "import socket\n\n\ndef family(address):\n    host = socket.getaddrinfo(address, 80)\n"
        "    return host[0][0]\n",
        "    host = ", "    if address.startswith('unix:'):\n        return socket.AF_UNIX\n    host = ",
        "code.family('unix:/run/x.sock') == 1", quick=True),
    bug("ImportError", "the tree raises it itself where a back end's name has capitals",
        "BACKENDS = {'hip': 1}\n\n\ndef backend(name):\n    if name not in BACKENDS:\n"
        "        raise ImportError(f'no back end {name}')\n    return BACKENDS[name]\n",
        "    if name", "    name = name.lower()\n    if name", "code.backend('HIP') == 1"),
    bug("ModuleNotFoundError", "a plug-in is imported by its label and not by its module",
        "import importlib\n\n\ndef plugin(label):\n    return importlib.import_module(label)\n",
        "import_module(label)", "import_module(label.lower())",
        "code.plugin('COLORSYS').__name__ == 'colorsys'"),
    bug("RecursionError", "a list that holds itself is flattened for ever",
        "def flat(items, seen=()):\n    for item in items:\n        if isinstance(item, list):\n"
        "            yield from flat(item, seen)\n        else:\n            yield item\n",
        "        if isinstance(item, list):\n            yield from flat(item, seen)",
        "        if isinstance(item, list):\n            if id(item) not in seen:\n"
        "                yield from flat(item, (*seen, id(item)))",
        "list(code.flat(cycle)) == [1, 1]", before="    cycle = [1]\n    cycle.append(cycle)\n"),
    bug("SystemExit", "an option that is known to the documentation alone ends the program",
        "import argparse\n\n\ndef options(argv):\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--arch')\n    return parser.parse_args(argv)\n",
        "    return", "    parser.add_argument('--wave', type=int)\n    return",
        "code.options(['--wave', '64']).wave == 64"),
    bug("UnicodeDecodeError", "a file in UTF-8 is read as ASCII",
        "def head(path):\n    with open(path, encoding='ascii') as file:\n        return file.readline()\n",
        "'ascii'", "'utf-8'", "code.head(file) == 'ä'",
        before="    file = tmp_path / 'x'\n    file.write_text('ä', encoding='utf-8')\n"),
    bug("StopIteration", "an empty batch has no first element",
        "def first(batch):\n    return next(iter(batch))\n", "next(iter(batch))",
        "next(iter(batch), None)", "code.first([]) is None"),
    bug("NameError", "a branch uses a name that was never bound in the tree",
        "def block(arch):\n    if arch == 'gfx942':\n        return wave\n    return 32\n",
        "        return wave\n", "        return 64\n", "code.block('gfx942') == 64"),
    bug("SyntaxError", "the tree generates code that does not compile",
        "def build(name):\n    source = f'def {name}(x) return x'\n    scope = {}\n"
        "    exec(compile(source, 'made', 'exec'), scope)\n    return scope[name]\n",
        "(x) return", "(x): return", "code.build('f')(3) == 3"),
    bug("MemoryError", "bits are taken for bytes, and a buffer is asked for beyond all memory",
        "def buffer(bits):\n    size = bits << 40\n    return len(bytearray(size))\n",
        "bits << 40", "bits >> 3", "code.buffer(1 << 10) == 128"),
    bug("CalledProcessError", "the tree calls a program by a name that it does not have",
        "import subprocess\n\n\ndef kernel():\n    done = subprocess.run('unam -s', shell=True, check=True,\n"
        "                          capture_output=True)\n    return done.stdout\n",
        "unam -s", "uname -s", "code.kernel() == b'Linux\\n'"),
    bug("Locked", "an exception of the tree's own, under PermissionError",
        "class Locked(PermissionError):\n    pass\n\n\ndef take(owner, me):\n    if owner is not me:\n"
        "        raise Locked(owner)\n    return True\n",
        "owner is not me", "owner not in (me, None)", "code.take(None, 'me')"),
    bug("KeyError", "it comes up in a function of the tree that Python's sorted calls",
        "RANK = {'fp16': 1}\n\n\ndef rank(dtype):\n    return RANK[dtype]\n", "RANK[dtype]",
        "RANK.get(dtype, 9)", "sorted(['bf16', 'fp16'], key=code.rank) == ['fp16', 'bf16']"),
    bug("RuntimeError", "a missing file is the stated exception's cause",
        "import os\n\n\ndef load(path):\n    try:\n        return os.stat(path).st_size\n"
        "    except OSError as error:\n        raise RuntimeError('cannot load') from error\n",
        "    try:\n", "    if not os.path.exists(path):\n        return 0\n    try:\n",
        "code.load(tmp_path / 'x') == 0"),
    bug("ExceptionGroup", "two workers of the tree fail, and are told together",
        "def gather(jobs):\n    errors, found = [], []\n    for job in jobs:\n        try:\n"
        "            found.append(open(job).read())\n        except FileNotFoundError as error:\n"
        "            errors.append(error)\n    if errors:\n        raise ExceptionGroup('jobs', errors)\n"
        "    return found\n",
        "            errors.append(error)\n", "            found.append('')\n",
        "code.gather([tmp_path / 'a', tmp_path / 'b']) == ['', '']"),
    bug("DeprecationWarning", "a warning that the check makes an error",
        "import warnings\n\n\ndef scale(x):\n    warnings.warn('old', DeprecationWarning)\n    return 2 * x\n",
        "    warnings.warn('old', DeprecationWarning)\n", "    x = float(x)\n", "code.scale(2) == 4",
        before="    import warnings\n    warnings.simplefilter('error')\n"),
    own("ImportError", "the check imports a name that the base has not",
        "    from toy.code import volume\n    assert volume(1, 2, 5) == 10\n", said="volume|assert",
        new="width * height\n\n\ndef volume(a, b, c):\n    return area(a, b) * c"),
    own("FileNotFoundError", "the check opens a file that it never made",
        "    if code.area(2, 5) != 10:\n        open('sizes.txt').close()\n", said="in `reason`"),
    own("FileNotFoundError by a program", "the check starts a program that is nowhere",
        "    if code.area(2, 5) != 10:\n        subprocess.run(['no-such-tool'], check=True)\n",
        said="in `reason`"),
    own("gaierror", "the check looks up a name by itself",
        "    if code.area(2, 5) != 10:\n        socket.getaddrinfo('no-such.invalid', 80)\n",
        said="in `reason`|network"),
    own("PermissionError", "the check raises it itself where the area is wrong",
        "    if code.area(2, 5) != 10:\n        raise PermissionError(13, 'no', '/x')\n",
        said="in `reason`"),
    *broken("a host", NETWORK, "    urllib.request.urlopen('http://no-such.invalid')\n", quick=True),
    *broken("an address", NETWORK, "    socket.create_connection(('192.0.2.1', 80))\n"),
    *broken("a write", "it writes where", "    pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'x').write_text('x')\n",
            quick=True),
    *broken("a name", "the check is broken", "    aera(2, 5)\n", quick=True),
    *broken("no such file", "the check is broken", "    pathlib.Path('wrong', 'area.py').read_text()\n"),
    *broken("a coroutine", "the check is broken", "", more=f"\n\nasync {OTHER_TEST.lstrip().replace('nothing', '')}"),
    *broken("a fixture", "the check is broken", "", more=OTHER_TEST),
    Case("a skipped subtest", "the patched tree alone skips a part", Kind.BLIND, "incomplete",
         check="import pytest\nfrom toy.code import area\n\n\ndef test_it(subtests):\n    found = area(2, 5)\n"
         "    with subtests.test():\n        if found == 10:\n            pytest.skip('no')\n        assert found == 10\n",
         said="skipped on the patched tree", quick=True),
    Case("an aborted teardown", "the patched tree alone ends the session", Kind.BLIND, "incomplete",
         check="import pytest\nfrom toy.code import area\n\n\n@pytest.fixture\ndef end():\n    yield\n"
         "    if area(2, 5) == 10:\n        pytest.exit('bye', returncode=0)\n\n\ndef test_it(end):\n    assert area(2, 5) == 10\n",
         said="on the patched tree: its session was stopped", quick=True),
]  # fmt: skip
