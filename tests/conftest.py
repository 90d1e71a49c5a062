"""What all tests share: nothing may reach the user's home, and the program as tests call it."""

from __future__ import annotations

import compileall
import contextlib
import functools
import gc
import hashlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import IO, TYPE_CHECKING, TextIO, TypeAlias, TypeVar, cast

import jinja2
import pytest
from filelock import FileLock
from pydantic import BaseModel, JsonValue

from contribbot import process
from contribbot.cli.main import main
from contribbot.compile.toolchain import Lack, Toolchain, hip_toolchain
from contribbot.files import cache_folder
from contribbot.git.pins import Silent
from contribbot.git.pins.index import obtain
from contribbot.machine import this_machine
from contribbot.model.evidence import PatchReport, StageResult, VerifyReport
from contribbot.model.patch import Pin, SdistSource
from tests.hiptoy import needed
from tests.hostile import hostile_home
from tests.tools import missing
from tests.toy import Toy, snapshot

if TYPE_CHECKING:
    from contribbot.emulate.code_object import Kernel

Made = TypeVar("Made")
CompileOnce: TypeAlias = "Callable[[str | Path, str], dict[str, Kernel]]"
#: Where archives are kept between runs; read before any test changes the environment.
REAL_CACHE = cache_folder()
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-tools", action="store_true", help="fail, not skip, where a tool is missing"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Else each program that a test starts compiles contribbot's modules anew: half a second. Checks
    # write no bytecode, whatever starts them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # As for the suite, so for each pytest that a test starts.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(process.__file__).parent, quiet=1)
    # Under nohup and some CI it is ignored, and so would be in what the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives to the end anyway."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools (`@pytest.mark.tool`) are not on this machine."""
    tools = [tool for marker in item.iter_markers("tool") for tool in marker.args]
    lacking = "; ".join(filter(None, map(missing, tools)))
    if lacking and item.config.getoption("--require-tools"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _session_cache(shared: Path) -> Iterator[Path]:
    """What outlives a test has a cache of the session, and none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(shared / "cache"))
        (shared / "cache" / "compiles").mkdir(parents=True, exist_ok=True)
        yield shared / "cache"


@pytest.fixture(scope="session", autouse=True)
def _templates_once() -> Iterator[None]:
    """Each test has a queue of its own, for which the same templates would be compiled anew."""
    known: dict[tuple[object, ...], CodeType] = {}
    compile_ = cast("Callable[..., CodeType]", jinja2.Environment.compile)

    def remembered(environment: jinja2.Environment, *args: str | None) -> CodeType:
        rules = type(environment), environment.trim_blocks, environment.finalize
        key = (*rules, environment.autoescape, *args)
        if key not in known:
            known[key] = compile_(environment, *args)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", remembered)
        yield


@pytest.fixture(autouse=True)
def _nothing_leaks(
    _session_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Give each test its own home and cache, and see that the environment stays as it was."""
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    cache.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CONTRIBBOT_CACHE", str(cache))
    # matplotlib takes its folder once a process, and lists the machine's fonts there.
    monkeypatch.setenv("MPLCONFIGDIR", str(_session_cache))
    # No test cuts the power; what kills processes starts programs, which do sync.
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    for name in ("CI", "COLUMNS", "GITHUB_ACTIONS", "GITHUB_TOKEN", "NO_COLOR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    yield
    after = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    before.pop("PYTEST_CURRENT_TEST", None)
    assert after == before, "a test or what it called changed os.environ"
    assert list(home.iterdir()) == [], "something was written to HOME"


def until(holds: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        return self.out + self.err

    def json(self) -> dict[str, JsonValue]:
        """Return standard output as the one JSON document that it must be."""
        document: dict[str, JsonValue] = json.loads(self.out)
        return document

    def report(self, patch: int = 0) -> PatchReport:
        return VerifyReport.model_validate_json(self.out).patches[patch]

    def stages(self, patch: int = 0) -> dict[str, StageResult]:
        """Return the outcomes of a patch by stage and check."""
        stages = self.report(patch).stages
        return {f"{result.stage} {result.label}".rstrip(): result for result in stages}


def dig(value: JsonValue | BaseModel, *keys: str | int) -> JsonValue:
    """Follow keys and indexes into JSON, or into the JSON of a model."""
    value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value[key]
        else:
            assert isinstance(value, list)
            assert isinstance(key, int)
            value = value[key]
    return value


@dataclass
class Program:
    """The program: called in this process, or run as one of its own."""

    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(
        self, *args: str | Path, cwd: Path | None = None, stdin: bytes = b"", **env: str
    ) -> Ran:
        with contextlib.chdir(cwd or self.cwd), _process(args, {**self.env, **env}, stdin) as ran:
            try:
                main()
            except SystemExit as error:
                ran.code = error.code if isinstance(error.code, int) else int(bool(error.code))
        return ran

    def ok(self, *args: str | Path, cwd: Path | None = None, stdin: bytes = b"", **env: str) -> Ran:
        """Call the program, which must end with 0."""
        ran = self(*args, cwd=cwd, stdin=stdin, **env)
        assert ran.code == 0, ran.output
        return ran

    def refused(
        self, *args: str | Path, code: int = 2, cwd: Path | None = None, stdin: bytes = b""
    ) -> Ran:
        """Call the program, which must end with a code and leave the queue as it was."""
        before = snapshot(self.cwd)
        ran = self(*args, cwd=cwd, stdin=stdin)
        assert (ran.code, snapshot(self.cwd) == before) == (code, True), ran.output
        return ran

    def process(self, *args: str | Path, cwd: Path | None = None, **env: str) -> Ran:
        """Run it as a process: what start-up, streams, signals or PATH do to it."""
        done = subprocess.run(
            [sys.executable, "-m", "contribbot", *map(str, args)],
            cwd=cwd or self.cwd,
            env={**os.environ, **self.env, **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start it as a process and do not wait; the fixture ends it."""
        child = subprocess.Popen(
            [sys.executable, "-m", "contribbot", *map(str, args)],
            cwd=self.cwd,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child


@contextlib.contextmanager
def _process(args: Iterable[str | Path], env: dict[str, str], stdin: bytes) -> Iterator[Ran]:
    """Make this process look like a new one, and read what it writes."""
    ran = Ran(0, "", "")
    handlers = [signal.getsignal(number) for number in _SIGNALS]
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["contribbot", *map(str, args)])
        # Else click names the program after what pytest was started with.
        patch.setattr(sys.modules["__main__"], "__package__", "")
        patch.setattr(logging.root, "handlers", [])
        patch.setattr(logging.root, "level", logging.root.level)
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        streams = [stack.enter_context(_stream(number, file)) for number, file in enumerate(files)]
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        this_machine.cache_clear()
        before = dict(os.environ)
        yield ran
        for stream in streams[1:]:
            stream.flush()
        for file in files[1:]:
            file.seek(0)
        ran.out, ran.err = (file.read().decode(errors="surrogateescape") for file in files[1:])
        assert dict(os.environ) == before, "the program changed os.environ"
    assert [signal.getsignal(number) for number in _SIGNALS] == handlers


@contextlib.contextmanager
def _stream(number: int, file: IO[bytes]) -> Iterator[TextIO]:
    """Put a file in place of a standard stream, for this process and its children."""
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        with open(number, "w" if number else "r", encoding="utf-8", closefd=False) as stream:
            yield stream
    finally:
        os.dup2(kept, number)
        os.close(kept)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A queue whose upstream is a git repository beside it, with no patch yet."""
    return Toy(tmp_path / "toy")


@pytest.fixture
def area(toy: Toy) -> Toy:
    """The toy, with one patch in its queue: one that is right."""
    toy.put_area()
    return toy


def once(folder: Path, make: Callable[[Path], Made]) -> Made:
    """Return what one worker of the session makes in a folder, and the others read from there."""
    folder.mkdir(exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "made").is_file():
            (folder / "made").write_bytes(pickle.dumps(make(folder)))
    made: Made = pickle.loads((folder / "made").read_bytes())  # noqa: S301  it is ours
    return made


@pytest.fixture
def compile_cache(_session_cache: Path, tmp_path: Path) -> None:
    """Let a test have what others have compiled; that it is remembered is no question of it."""
    (tmp_path / "cache/compiles").symlink_to(_session_cache / "compiles")


@pytest.fixture(scope="session")
def compiled(shared: Path) -> CompileOnce:
    """Compile HIP for a target: once in the session, and the same kernels each time."""
    from contribbot import emulate

    @functools.cache
    def kernels(source: str | Path, target: str) -> dict[str, Kernel]:
        _toolchain(shared, target)
        name = hashlib.sha256(str(source).encode()).hexdigest()[:16]
        return once(shared / f"{target}-{name}", lambda _: emulate.compile_hip(source, target))

    return kernels


@pytest.fixture(scope="session")
def outcomes(shared: Path) -> Path:
    """The outcomes of the session: a check runs once on a tree, whichever test asks first."""
    (shared / "outcomes").mkdir(exist_ok=True)
    return shared / "outcomes"


@pytest.fixture
def outcome_cache(toy: Toy, outcomes: Path) -> None:
    """Let the toy queue have the outcomes of the session, for tests of what follows from them."""
    (toy.queue / ".contribbot").mkdir()
    (toy.queue / ".contribbot/outcomes").symlink_to(outcomes)


@pytest.fixture
def program(toy: Toy) -> Iterator[Program]:
    """The program in the toy queue; whatever a test does, no child of it is left."""
    program = Program(toy.queue)
    yield program
    for child in program.children:
        with child:
            child.kill()


@pytest.fixture
def unsandboxed() -> Iterator[None]:
    """Let the checks of a test share files, where bubblewrap would keep them apart."""
    process.no_sandbox.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_SANDBOX", "off")
        yield
    process.no_sandbox.cache_clear()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a new control group of a controller (cgroup v1), where this may be made."""
    folder = Path("/sys/fs/cgroup") / str(request.param) / f"contribbot-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not (folder / "cgroup.procs").exists():
            pytest.skip(f"{request.param} is no controller of cgroup v1 here")
        yield folder
    finally:
        with contextlib.suppress(OSError):
            (folder / "freezer.state").write_text("THAWED")
        end = time.monotonic() + 30
        while (folder / "cgroup.procs").read_text().strip() and time.monotonic() < end:
            time.sleep(0.05)
        folder.rmdir()


def _toolchain(shared: Path, target: str) -> Toolchain | Lack:
    """Look at the compilers, which takes seconds, while no other worker does."""
    with FileLock(shared / "toolchain.lock"):
        return hip_toolchain(target)


@pytest.fixture(scope="session")
def clang(shared: Path) -> Toolchain:
    return needed(_toolchain(shared, "gfx942"))


@pytest.fixture(scope="session")
def sglang_pin() -> Pin:
    source = SdistSource(
        kind="sdist", distribution="sglang", version="0.5.10.post1", root="python",
        sha256="01f7adfe7cde85b238fb0e1bae4b31d494e19d1471cf35ff3c5489a02f9d2263",
    )  # fmt: skip
    return Pin(upstream="sglang", tag="v0.5.10.post1", sources=(source,))


@pytest.fixture(scope="session")
def sglang_archive(sglang_pin: Pin) -> Path:
    """Give the real archive, from the index that this machine's pip uses, kept between runs."""
    source = sglang_pin.sources[0]
    assert isinstance(source, SdistSource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        return obtain(source, progress=Silent())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home of a person whose settings of git would spoil every patch."""
    return hostile_home(tmp_path / "person")
