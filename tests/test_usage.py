"""Wrong usages: each is one line that names the thing and a next step that works, and no more."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer._click import Command, Context
from typer.core import TyperGroup

import contribbot
from contribbot.cli.main import COMMANDS, app
from contribbot.former import COMMANDS as FORMER
from contribbot.queue import history
from contribbot.queue.history import PullRequestEvent
from tests.conftest import Program, Ran
from tests.contribute.bodytoy import describe
from tests.toy import AREA, Toy, git

PACKAGE = Path(contribbot.__file__).parent
#: A command line in a message, up to where its sentence goes on.
_LINE = re.compile(
    r"(?<![-\w/])contribbot(?: --queue \S+)? (?![a-z]+: )([a-z][a-z-]*\b[^`;,:()\n…#]*)"
)
#: What follows the program's name where it is the subject of a sentence.
_PROSE = re.compile(
    "any|as|carries|did|does|has|is|made|merges|names|never|or|over|records|sets|stopped|to|up|was|writes"
)


@functools.cache
def command_of(name: str) -> Command:
    """Return a command by its full name, from the group that it is in; the program for ""."""
    if not name:
        return typer.main.get_command(app)
    group, _, last = name.rpartition(" ")
    above = command_of(group)
    assert isinstance(above, TyperGroup)
    command = above.get_command(Context(above), last)
    assert command
    return command


def refusal(words: list[str]) -> str:
    """Return why the program would not take a command line; nothing where it would."""
    words = words[: words.index(">")] if ">" in words else words
    named = (" ".join(words[:size]) for size in (3, 2, 1))
    name = next((name for name in named if name in COMMANDS), words[0])
    try:
        command = command_of(name)
        if (rest := words[len(name.split()) :]) != ["-h"]:
            command.make_context("contribbot", rest)
    except (AssertionError, typer._click.exceptions.UsageError) as error:
        return f"{' '.join(words)}: {error!r}"
    return ""


def unparsable(text: str) -> list[str]:
    """Return why the program would not take the command lines in a text."""
    lines = [match[1] for match in _LINE.finditer(text)]
    meant = [line.removesuffix(".") for line in lines if not _PROSE.fullmatch(line.split()[0])]
    return [why for line in meant if (why := refusal(shlex.split(line)))]


def constants(path: Path) -> Iterator[str]:
    """Yield the texts of a module but its docstrings, with 7 for what is filled in."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    passed_over: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr):  # a docstring
            passed_over.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            passed_over.update(node.values)
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values
            )
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and node not in passed_over:
            yield text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_reads_as_people_write(name: str, program: Program) -> None:
    ran = program(*name.split(), "-h", COLUMNS="80")
    assert (ran.code, "--queue DIR" in ran.out) == (0, True)
    assert not re.search(r"[{}]|<[a-z]", ran.out)
    assert max(map(len, ran.out.splitlines())) <= 80
    example = (command_of(name).help or "").rpartition("Example: contribbot ")[2]
    assert not COMMANDS[name][0] or refusal(shlex.split(example)) == ""


def test_every_command_line_in_a_message_is_one() -> None:
    count = 0
    for path in PACKAGE.rglob("*.py"):
        for text in filter(lambda text: "contribbot " in text, constants(path)):
            count += len(_LINE.findall(text))
            assert unparsable(text.replace("--resume RUN", "--resume 7")) == [], path
    assert count > 100
    assert unparsable("see contribbot verfy area")
    assert unparsable("begin one: contribbot new NAME --titel T")


ROOT = PACKAGE.parent
_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_every_command_line_on_a_page_is_one(page: str) -> None:
    for block in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in re.findall(r"^(?:\$ )?contribbot (?!COMMAND|-)(.*)$", block, re.MULTILINE):
            words = shlex.split(line.replace("RUN", "7"), comments=True)
            assert refusal(words) == ""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    """Give a queue of two patches with rules, of which one is proved and has a pull request."""
    toy = Toy(tmp_path_factory.mktemp("usage") / "toy")
    triangle = {"src/toy/area.py": AREA.replace("/ 2", "* 0.5")}
    toy.put_patch()
    toy.put_patch("other", patch=toy.format_patch({**triangle}))
    toy.put_queue(["area", "other"])
    describe(toy)
    git(toy.queue, "init", "-q")
    for name, content in {
        "latin.txt": b"gr\xfc\xdfe\n", "empty.txt": b"", "plain.txt": b"hello\n", "folder/x": b"x",
        "bare/patches/queue.toml": b"order = []\n",
        "two/patches/queue.toml": b'order = ["a", "a"]\n',
        "typo/patches/queue.toml": b"order = []\n\nordr = 1\n",
        "bytes/patches/queue.toml": b'order = ["gr\xfc\xdfe"]\n',
        "cut/patches/queue.toml": b"order = [\n",
        "gone/patches/queue.toml": b'order = ["x"]\n',
        "kind/patches/queue.toml": b'order = []\n[[pins]]\nupstream = "toy"\ntag = "v1"\n'
        b'sources = [{kind = "svn"}]\n',
    }.items():  # fmt: skip
        toy.put(name, content)
    begin = 'title = "x"\nupstream = "toy"\npin = "v1.0"\nfiles = []\n'
    begin += 'problem = "p"\nroot_cause = "r"\nsolution = "s"\n[[compile]]\nsource = "k.hip"\n'
    entry = 'expect = "pass-to-pass"\nname = "division"\ntargets = ["gfx942"]\n'
    code = '[[emulated]]\nname = "e"\nexpect = "pass-to-pass"\nfile = "test_e.py"\n'
    for name, rest in {
        "key": 'instructions = { gfx1203 = ["s_nop"] }\n',
        "misnamed": f'{code}compile = "divison"\ntargets = ["gfx942"]\n',
        "unmodelled": f'{code}compile = "division"\ntargets = ["gfx1030"]\n',
    }.items():
        toy.put(f"{name}/patches/queue.toml", b'order = ["x"]\n')
        toy.put(f"{name}/patches/x/patch.toml", f"{begin}{entry}{rest}".encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(toy.root / "cache"))
        assert Program(toy.queue)("verify", "area").code == 0
    event = PullRequestEvent(
        time=history.now(), summary="opened", reference="example/toy#1", state="open",
        fork="ada/toy", branch="contribbot/area",
    )  # fmt: skip
    history.append(toy.queue, "area", event)
    yield toy
    shutil.rmtree(toy.root)


def told(place: Toy, line: str) -> Ran:
    """Run a line in the queue, with nothing to be reached; see that it changes nothing there."""
    (place.root / "cache").mkdir(exist_ok=True)
    env = {
        "GITHUB_API_URL": "http://127.0.0.1:9", "GITHUB_TOKEN": "x" * 20, "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(place.queue), "PIP_CONFIG_FILE": "/dev/null",
        "CONTRIBBOT_CACHE": str(place.root / "cache"),
    }  # fmt: skip

    def state() -> dict[Path, int]:
        return {
            path: path.stat().st_mtime_ns for path in place.queue.rglob("*")
            if path.is_file() and not {".contribbot", ".git"} & {*path.parts}
        }  # fmt: skip

    before = state()
    ran = Program(place.queue, env)(*shlex.split(line))
    assert state() == before
    return ran


NO_PATCH = "no such patch: aera (did you mean area?); see `contribbot queue list`"
#: Commands that take a patch; X: the name of a patch that is not there.
UNKNOWN = """
verify X; verify patches/X; edit X; undo X; queue reorder X; queue reorder area --before X; check X
queue fold X area; queue split X x a.py; queue log X; queue retire X; evidence show X; body X
open-pr X --dry-run; runners dispatch X; new x --title T --depends-on X
"""
#: What is typed, and what is said of it after the program's name; the exit code is 2.
WRONG = """
verfy area | no such command 'verfy' (did you mean 'verify'?); see `contribbot -h`
evidnce show area | no such command 'evidnce' (did you mean 'evidence'?); see `contribbot -h`
pin ad toy v1 | no such command 'ad' (did you mean 'add'?); see `contribbot pin -h`
runners workflows instal | no such command 'instal' (did you mean 'install'?)
verify --nonsense | no such option: --nonsense; see `contribbot verify -h`
check area --require cpu | no such option: --require; --require is an option of `contribbot verify`
check area -k sum | no such option: -k; pytest's options follow `--`: contribbot check PATCH -- -k
split area more | no such command 'split'; see `contribbot queue split -h`
verify area --require emulate:gfx942 | no entry of area is for it (did you mean gfx942?)
--debgu queue list | no such option: --debgu (did you mean --debug?); see
verify area --require gfx94 | --require gfx94: no entry of area is for it (did you mean gfx942?)
pin add sglang==0.5.10 | missing argument 'RELEASE'; give name and version apart
runners collect -5 | no such option: -5; see `contribbot runners collect -h`
verify area --jobs 0 | '--jobs': must be at least 1
verify area --jobs many | '--jobs': must be a whole number; see
verify area --jobs | '--jobs' requires an argument; see `contribbot verify -h`
--queue | '--queue' requires an argument; see
queue export area --format quilt | --format
check area --on nowhere | 'nowhere' is not one of 'base', 'patched', 'both'; see
queue list extra | got unexpected extra argument(s) (extra); see `contribbot queue list -h`
show | missing argument 'PATCH'; see `contribbot show -h`
pin add toy | missing argument 'RELEASE'; give name and version apart: contribbot pin add sglang
--queue /nope queue list | /nope: no such folder; name the folder that holds patches/
--queue folder queue list | folder: no patches/queue.toml in it; name the folder
--queue cut queue list | cut/patches/queue.toml:2: not TOML
--queue typo queue list | typo/patches/queue.toml:3: ordr: there is no such key (did you mean
--queue two queue list | two/patches/queue.toml:1: order:
--queue bytes queue list | bytes/patches/queue.toml:1: not UTF-8; save
--queue kind queue list | kind/patches/queue.toml:5: pins[0].sources[0]
--queue gone queue list | order names x, and there is no
--queue bare verify --all | the queue has no patches; begin one: contribbot new NAME --title T
--queue bare new x --title T | no pin at all in
verify | no patch named; name one of `contribbot queue list`, or use --all
verify --all area | --all names every patch already; leave out --all, or area
undo area x | not versions of a patch
show plain.txt | no such patch: plain.txt; see `contribbot queue list`
status --upstream toy | --upstream and --text-only go with --against TAG; contribbot status
status --against v1.0 --upstream tay | --upstream tay: none of these patches is for it; name one
new x | a patch without commits needs a title; give --title
new 'X Y' --title T | 'X Y': not possible here; a patch's name has a-z
new area --title T | there is a patch area already; take another name, or change it
new x --title '  ' | not possible here; a title is one line
new x nope.patch | nope.patch: no such file or folder; name
new x folder | folder: no patches in it; name
new x empty.txt | empty.txt: empty; give it the output of
new x plain.txt | plain.txt: no author in its header; write it again with `git format-patch`
new x plain.txt --author Ada | --author
new x --title T --pin 1.0 | ; the queue pins toy v1.0 (did you mean v1.0?); pin another
--queue key verify x | instructions: gfx1203 is not among the targets: gfx942
--queue misnamed verify x | there is no such [[compile]]; correct the file; docs/
--queue unmodelled verify x | gfx1030 is not emulated
new x --title T --pin tay | no pin tay in
new x ../upstream nope | ../upstream: no commit nope; see git
new x ../upstream v1.0..v1.0 | v1.0..v1.0: no commits in it; is it the right way round?
new x - | standard input: empty; give it
edit area --abort | area is not open; open it with `contribbot edit area`
edit area --abort --at x | --abort and --at do not go together; leave --at out
edit area --force | --force is for --abort; leave it out
edit area --at plain.txt | plain.txt: there is something already; name
refresh | no patch named, and this is not the work tree of one; name
refresh area | area is not open; open it with `contribbot edit area`
undo area | area: name the version to bring back; contribbot queue log area
undo area v9 | area: there is no version v9
queue reorder area --before other --after other | --before and --after do not go together; leave
queue reorder area --before area | area cannot stand before itself; name another
queue mv area other | there is a patch other already; take another
queue fold area area | area cannot be folded into area: both names are one patch; name two
queue split area x | area: either paths or --from N say what goes into x; see
queue split area x nope.py | nope.py: not changed by it; see
queue split area x --from 9 | area: nothing would be in one of the two; see
rebase | rebase needs a release; contribbot rebase TAG
rebase --continue | no move is underway; start one: contribbot rebase TAG
queue diff area v1..v9 | area: there is no version v1
queue export area --output plain.txt/x | plain.txt/x: no file can be there; name a file in
queue export area --output folder | folder: no file can be there; name a file in
queue export area --output nope/x.mbox | nope/x.mbox: no file can be there; name a file in
check area --check rde | area: no check rde; it has red, same
bisect area v1.0 v1.0 | both ends are v1.0; name two ends
gate area --different nonsense | --different 'nonsense': no pull request and a reason
gate area --different 'o/n#1=short' | the reason 'short' is too short to be one; say
attest area | standard input and output are no terminal
open-pr area --dry-run --ready --handoff | --handoff leaves the pull request to you
runners matrix --on gfx1 | runners.toml: no such file
runners dispatch --resume 1 area | --resume starts nothing; name
init plain.txt | plain.txt: not a folder; name an empty folder
init . | there is a queue already; see it with `contribbot queue list`
pin add tay v1 | unknown upstream tay (did you mean toy?); known are
pin add toy v1.0 | pinned already in
status --against nope | toy nope: no such release in
rebase v9 | toy v9: no such release in
fallback | missing argument '-- PROGRAM ARGS'; see `contribbot fallback -h`
demo folder | folder: not an empty folder; name a new one
"""


#: What this machine cannot do.
UNABLE = """
queue export area --output /dev/full | /dev/full: No space left on device; free some space
init /proc/x | /proc/x: No such file or directory; check that
edit area --at /proc/nope | /proc/nope: No such file or directory; check that
pin add toy v9 | toy: upstreams/toy.toml does not say where its releases are; add a table
pin add sglang 9.9 | sglang v9.9: no such release of sglang
"""

ROWS = [
    (code, *row.rpartition(" | ")[::2])
    for code, rows in ((2, WRONG), (3, UNABLE))
    for row in rows.strip().splitlines()
]
ROWS += [(2, line.replace("X", "aera"), NO_PATCH) for line in re.split("; |\n", UNKNOWN.strip())]


@pytest.mark.parametrize(("code", "line", "said"), ROWS, ids=[line for _, line, _ in ROWS])
def test_wrong_usage(place: Toy, code: int, line: str, said: str) -> None:
    ran = told(place, line)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("contribbot: ")
    assert ran.err.count("\n") == 1
    assert said in ran.err
    assert "; " in ran.err, "no next step"
    assert unparsable(ran.err) == []


def test_closed_standard_streams_and_a_reader_that_goes_away(place: Toy) -> None:
    reads = ("show area", "queue list --json", "--help", "evidence show area", "queue export area")
    away = [f"{line} {end}" for line in reads for end in ("| head -c 1", ">&-")]
    for command in ("queue list 0<&- 2>&-", "queue export area | true", *away):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m contribbot {command}"],
            cwd=place.queue, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done)
        assert not re.search("Traceback|Error|internal error|Broken pipe", done.stderr), command


@pytest.mark.parametrize("name", FORMER)
def test_a_command_that_is_gone_names_its_replacement(place: Toy, name: str) -> None:
    ran = told(place, name)
    assert (ran.code, ran.out) == (2, "")
    assert f"contribbot {name} is gone: {FORMER[name]}" in ran.err
    assert name not in COMMANDS


@pytest.mark.parametrize("name", [name for name, (module, _) in COMMANDS.items() if module])
def test_a_wrong_option_of_every_command_is_json_on_demand(place: Toy, name: str) -> None:
    ran = told(place, f"{name} --json --no-such-option")
    error = {"message": "no such option: --no-such-option", "exit_code": 2}
    assert ran.json() == {"error": error | {"hint": f"see `contribbot {name} -h`"}}
    assert ran.err.count("\n") == 1
