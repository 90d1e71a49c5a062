"""`contribbot emulate --report`: what a sweep keeps, how it goes on, patches of its findings."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from triton.runtime.jit import JITFunction

from contribbot.cli.emulate import sweep_lines
from contribbot.cli.render import lines_of
from contribbot.emulate import KernelError, device
from contribbot.errors import ExitCode, UsageError
from contribbot.report import sweep_page
from contribbot.sweep import capture
from contribbot.sweep.capture import CapturedLaunch, LaunchObserver, replay, tree_kernel
from contribbot.sweep.findings import (
    Capture,
    CapturedArgument,
    CapturedStorage,
    CapturedTensor,
    KernelCode,
    KernelUse,
    Sweep,
    SweepEvent,
    SweepFinding,
    SweepOutcome,
    SweepRow,
    compare,
    events_file,
    packed_launch,
    read_events,
    write_event,
)
from contribbot.sweep.folder import (
    SweepHeader,
    bring_together,
    read_sweep,
    run_sweep,
    shard_of,
    sweep_exit_code,
    write_report,
)
from tests.conftest import Program
from tests.tools import small_disk
from tests.toy import Toy

ROOT = Path(__file__).parents[1]
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def row(test: str = "t.py::a", outcome: str = "passed", **more: object) -> SweepRow:
    """Return a row."""
    return SweepRow.model_validate(
        {"target": "gfx942", "test": test, "outcome": outcome, **more}, strict=False
    )


def folder_of(place: Path, *events: SweepEvent, shard: str = "1/1", target: str = "gfx942") -> Path:
    """Return a sweep's folder with what was written in it."""
    place.mkdir(parents=True, exist_ok=True)
    header = SweepHeader(program=("pytest", "t.py"), shard=shard)
    (place / "sweep.json").write_text(header.model_dump_json(), encoding="utf-8")
    for event in events:
        write_event(events_file(place, target), event)
    return place


def swept(place: Path, *rows: SweepRow) -> Sweep:
    """Return a sweep with rows."""
    return read_sweep(folder_of(place, *(SweepEvent(row=each) for each in rows)))


FAULT = {"outcome": "fault", "kind": "memory fault", "kernel": "k", "said": "4 bytes"}


def test_findings_are_summed_up_by_kernel_and_line(tmp_path: Path) -> None:
    other = row("t.py::c", "fault", kind="race", kernel="k", line="k.py:3")
    sweep = swept(
        tmp_path / "a", row("t.py::a", line="k.py:3", **FAULT), other, row(),
        row("t.py::b", line="k.py:3", target="gfx1201", capture="b.zip", **FAULT),
        row("t.py::d", line="k.py:9", **FAULT),
    )  # fmt: skip
    assert [(each.number, each.kind, each.line, len(each.tests)) for each in sweep.findings] == [
        (1, "memory fault", "k.py:3", 2), (2, "race", "k.py:3", 1),
        (3, "memory fault", "k.py:9", 1),
    ]  # fmt: skip
    assert sweep.findings[0].targets == ("gfx942", "gfx1201")
    assert sweep.findings[0].captures == {"gfx1201": "b.zip"}


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["passed", "skipped"], 0), (["passed", "failed"], 1), (["fault"], 1), (["too long"], 1),
        (["passed", "crashed"], 1), (["passed", "not modelled"], 3), (["skipped"], 3), ([], 3),
    ],
)  # fmt: skip
def test_exit_code(outcomes: list[SweepOutcome], code: int, tmp_path: Path) -> None:
    rows = [row(f"t.py::{number}", each) for number, each in enumerate(outcomes)]
    assert sweep_exit_code(swept(tmp_path / "a", *rows)) == code


def test_two_sweeps_are_compared(tmp_path: Path) -> None:
    def code(registers: int, variant: str = "v") -> SweepEvent:
        return SweepEvent(code=KernelCode(target="gfx942", kernel="k", variant=variant, spills=0,
                                          registers=registers, lds=64, scratch=0))  # fmt: skip

    def use(bits: str) -> list[KernelUse]:
        return [KernelUse(kernel="k", launches=1, bits=bits)]

    gone = row("t.py::gone", line="old.py:3", **FAULT)
    stays = row("t.py::stays", line="k.py:3", **FAULT)
    not_run = row("t.py::late", line="late.py:3", **FAULT)
    events = {
        "old": [gone, stays, not_run, row("t.py::a", kernels=use("1")),
                row("t.py::b", kernels=use("2"))],
        # Its line has moved: it is no new finding.
        "new": [row("t.py::stays", line="k.py:5", **FAULT), row("t.py::gone"),
                row("t.py::new", "fault", kind="race", kernel="k", line="k.py:3"),
                row("t.py::a", kernels=use("1")), row("t.py::b", kernels=use("3"))],
    }  # fmt: skip
    sweeps = [
        read_sweep(folder_of(tmp_path / name, *(SweepEvent(row=each) for each in rows),
                             code(64 if name == "old" else 96), code(8, name),
                             SweepEvent(versions={"triton": name})))
        for name, rows in events.items()
    ]  # fmt: skip
    found = compare(*sweeps)
    assert found.versions == {"triton": ("old", "new")}
    assert [each.kind for each in found.new] == ["race"]
    assert [each.line for each in found.gone] == ["old.py:3"]
    assert [(each.needs, each.before, each.now) for each in found.grown] == [("registers", 64, 96)]
    assert [(each.test, each.before, each.now) for each in found.outcomes] == [
        ("t.py::gone", "fault", "passed")
    ]
    assert [(each.test, each.kernels) for each in found.bits] == [("t.py::b", ("k",))]
    assert found.alike == 1
    page = sweep_page(sweeps[1], found).decode()
    lines = "\n".join(lines_of(sweep_lines(sweeps[1], found, tmp_path)))
    for text in ("old.py:3", "64", "96", "t.py::b"):
        assert text in page
        assert text in lines


def test_text_of_others_is_shown_and_obeyed_by_nobody(tmp_path: Path) -> None:
    sweep = swept(tmp_path / "a", row(
        f"t.py::{HOSTILE}", "failed", kind="wrong numbers", kernel=HOSTILE, line=HOSTILE,
        said=HOSTILE, uncaptured=HOSTILE,
    ))  # fmt: skip
    found = compare(swept(tmp_path / "b"), sweep)
    page = sweep_page(sweep, found).decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    lines = "\n".join(lines_of(sweep_lines(sweep, found, tmp_path)))
    for text in (page, lines):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "http" not in page.replace("http-equiv", "")  # it fetches nothing


# --- The folder ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "a/b", "1/2/3", "-1/2"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError, match="no share"):
        shard_of(text)


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", SweepEvent(row=row()))
    with events_file(folder, "gfx942").open("ab") as file:
        file.write(b'{"row": {"test": "t.py::b", "out')
    assert [each.test for each in read_sweep(folder).tests] == ["t.py::a"]


def test_shares_are_brought_together_once(tmp_path: Path) -> None:
    shares = []
    for number in (1, 2):
        event = SweepEvent(row=row(f"t{number}.py::a", line="k.py:3", capture="x.zip", **FAULT))
        shares.append(folder_of(tmp_path / f"s{number}", event, shard=f"{number}/2"))
        (shares[-1] / "captures").mkdir()
        (shares[-1] / "captures" / "x.zip").write_bytes(b"x")
    for _ in range(2):
        sweep = bring_together([tmp_path / "all", *shares])
        assert [each.test for each in sweep.tests] == ["t1.py::a", "t2.py::a"]
    assert (tmp_path / "all/captures/x.zip").read_bytes() == b"x"
    assert len([*read_events(tmp_path / "all/gfx942.jsonl")]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gfx942", "--report", "full", "--", "pytest", "t.py"], "full: it has files in it, and"),
        (["gfx942", "--report", "file", "--", "pytest", "t.py"], "file: not a folder"),
        (["gfx942", "--report", "sweep", "--", "pytest", "u.py"], "sweep: a sweep of pytest t.py"),
        (["gfx942", "--report", "sweep", "--shard", "1/2", "--", "pytest", "t.py"],
         "sweep: a sweep of pytest t.py"),
        (["gfx942", "--report", "new", "--shard", "3/2", "--", "pytest"], "--shard 3/2: no share"),
        (["gfx942", "--report", "new", "--", "x.py"], "--report keeps what tests came to, and x"),
        (["gfx942", "--shard", "1/2", "--", "pytest"], "--compare and --shard are for a sweep"),
        (["--report", "none"], "none: no sweep in it"),
        (["--report", "sweep", "--compare", "none"], "none: no sweep in it"),
        (["--report", "broken"], "broken/sweep.json: not what a sweep writes"),
        (["--report", "sweep", "--report", "none"], "none: no sweep in it"),
        ([], "no target and no program are given"),
    ],
)  # fmt: skip
def test_how_it_is_called(words: list[str], message: str, toy: Toy, program: Program) -> None:
    (toy.queue / "full").mkdir()
    (toy.queue / "full/x").touch()
    for name in ("file", "t.py", "u.py", "x.py"):
        (toy.queue / name).touch()
    folder_of(toy.queue / "broken").joinpath("sweep.json").write_text("{")
    folder_of(toy.queue / "sweep")
    before = sorted(toy.queue.rglob("*"))
    ran = program("emulate", *words)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert ran.err.startswith(f"contribbot: {message}")
    assert ran.err.count("\n") == 1
    left = [path for path in sorted(toy.queue.rglob("*")) if path.name != ".lock"]
    assert left == before


def test_a_folder_that_another_sweep_holds(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a")
    code = f"""\
import filelock, sys
held = filelock.FileLock({str(folder / ".lock")!r})
held.acquire()
print(flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match="another sweep writes into it"):
            run_sweep(["pytest", "tests"], ["gfx942"], folder)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=64k") as disk:
        path = disk / "gfx942.jsonl"
        write_all = [partial(write_event, path, SweepEvent(begun="x" * 3000))] * 100
        with pytest.raises(OSError, match="No space left") as caught:
            [write() for write in write_all]
        assert caught.value.filename == str(path)
        assert 5 < len([*read_events(path)]) < 30
        assert path.read_bytes().endswith(b"}\n")


def test_a_finding_keeps_its_number(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", SweepEvent(row=row(line="k.py:3", **FAULT)))
    write_report(folder, read_sweep(folder), b"")
    other = row("u.py::a", line="a.py:1", target="gfx1201", **FAULT)
    write_event(events_file(folder, "gfx1201"), SweepEvent(row=other))  # which is read before
    numbers = [(each.number, each.line) for each in read_sweep(folder).findings]
    assert numbers == [(1, "k.py:3"), (2, "a.py:1")]


# --- Kernels of a tree -----------------------------------------------------------------------

TREE = {
    "src/pkg/__init__.py": "raise RuntimeError('not imported')\n",
    "src/pkg/helpers.py": """\
import not_installed
from pkg.triton_utils import tl, triton
SCALE = tl.constexpr(3)
@triton.jit
def twice(x): return x * SCALE
""",
    "src/pkg/ops/add.py": """\
import not_installed
from ..helpers import twice
from pkg.triton_utils import tl, triton
if not_installed.here:
    LIMIT = tl.constexpr(1)
else:
    LIMIT = tl.constexpr(2)
@not_installed.autotune(configs=[])
@triton.jit
def add(x, out, n, size: tl.constexpr, unused: tl.constexpr = not_installed.limit):
    place = tl.arange(0, size)
    tl.store(out + place, twice(tl.load(x + place)) + n)
    # a second line
    tl.store(x + place, tl.load(out + size - 1 - place))
""",
}


def put_tree(folder: Path, files: Mapping[str, str] = TREE) -> Path:
    """Write a tree."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """Launch a kernel with each fault: what was said, and the captured launch."""
    folder = tmp_path_factory.mktemp("launches")
    path = put_tree(folder / "tree") / "src/pkg/ops/add.py"
    kernel = tree_kernel(path, "pkg.ops.add", "add")
    assert isinstance(kernel, JITFunction)
    found = {}
    with device("gfx942") as gpu, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "tree")
        sizes = {"race": (256, 256, 4), "memory fault": (64, 48, 1), "unwritten": (64, 64, 1)}
        for name, (size, length, warps) in sizes.items():
            gpu.observer = observer = LaunchObserver()
            x = torch.arange(length, device="cuda", dtype=torch.float32)
            if name == "unwritten":
                x = torch.empty(length, device="cuda")
            out = torch.zeros(size, device="cuda")
            with pytest.raises(KernelError) as caught:
                kernel[(1,)](x, out, 2.5, size=size, unused=0, num_warps=warps)
            said = str(caught.value)
            file, why = observer.kept(folder, observer.faulty, said, caught.value.place.line)
            assert not why
            found[name] = said, folder / "captures" / file
    return found


class TestCapturedLaunches:
    def test_what_depends_on_chance_is_a_fault(self, launches: dict[str, tuple[str, Path]]) -> None:
        said = {name: text for name, (text, _) in launches.items()}
        assert said["race"].startswith("add.py:12: add+")
        assert "race: wave" in said["race"]
        assert "with no barrier between; in another order" in said["race"]
        assert said["memory fault"].startswith("add.py:12: add+")
        assert "out of bounds: 4 bytes at offset 192 of argument 0 (x)" in said["memory fault"]
        assert "unwritten: byte 0 of argument 0 (x), which nobody wrote" in said["unwritten"]

    @pytest.mark.parametrize("name", ["race", "memory fault", "unwritten"])
    def test_it_is_launched_again_with_the_same_fault(
        self, launches: dict[str, tuple[str, Path]], name: str
    ) -> None:
        said, path = launches[name]
        with device("gfx942"), pytest.raises(KernelError) as caught:
            replay(path, path.parents[1] / "tree")
        fault, place = caught.value.fault, caught.value.place
        assert said.startswith(f"{place.line}: add+")
        assert f": {fault}: " in said

    def test_what_a_large_launch_has_written_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = put_tree(tmp_path) / "src/pkg/ops/add.py"
        kernel = tree_kernel(path, "pkg.ops.add", "add")
        assert isinstance(kernel, JITFunction)
        with device("gfx942") as gpu:
            gpu.observer = LaunchObserver()
            x, between, out = (torch.empty(64, device="cuda") for _ in range(3))
            x.fill_(1)
            monkeypatch.setattr(capture, "_MOST", 0)
            kernel[(1,)](x, between, 2.5, size=64, unused=0)
            monkeypatch.setattr(capture, "_MOST", 1 << 28)
            kernel[(1,)](between, out, 2.5, size=64, unused=0)
            assert not gpu.record.errors
            assert out.isfinite().all()

    def test_bytes_that_do_not_matter_are_0(self, launches: dict[str, tuple[str, Path]]) -> None:
        launch = CapturedLaunch.read(launches["memory fault"][1])
        assert not any(any(blob) for blob in launch.blobs)
        assert launch.told.file == "src/pkg/ops/add.py"


# --- From a finding to a patch ---------------------------------------------------------------


def put_finding(place: Path, constants: int = 15, more: Mapping[str, object] | None = None) -> Path:
    """Write a sweep with one finding, whose launch has many arguments."""
    tensors = [
        CapturedArgument(name=f"tensor_{i}", tensor=CapturedTensor(
            dtype="int32", shape=(4, 2), strides=(2, 1), offset=i, storage=i % 3))
        for i in range(10)
    ]  # fmt: skip
    literals = [CapturedArgument(name=f"BLOCK_SIZE_{i}", literal=str(i)) for i in range(constants)]
    arguments = [*tensors, *literals, CapturedArgument(name="dtype", dtype="bf16"),
                 CapturedArgument(name="limit", literal="-inf")]  # fmt: skip
    told = {
        "target": "gfx942", "file": "src/toy/area.py", "module": "toy.area", "kernel": "kernel_2d",
        "grid": (3, 1, 1), "options": {"num_warps": 4}, "storages": [CapturedStorage(size=64)] * 3,
        "arguments": arguments, "said": "", "line": "area.py:8", **(more or {}),
    }  # fmt: skip
    raw = packed_launch(
        Capture.model_validate(told, strict=False),
        [bytes(64), b"", bytes([7, *bytes(63)]), b"", bytes(range(64)), b""],
    )
    (place / "captures").mkdir(parents=True)
    (place / "captures/x.zip").write_bytes(raw)
    return folder_of(place, SweepEvent(row=row(
        f"t.py::a[{HOSTILE}]", "fault", kind="memory fault", kernel="kernel_2d", line="area.py:8",
        said=f"it's \"\"\" {HOSTILE}", capture="x.zip",
    )), SweepEvent(row=row(
        "t.py::b", "failed", kind="does not compile", kernel="k", line="k:1",
    )))  # fmt: skip


@pytest.mark.parametrize("constants", [15, 200])
def test_a_patch_of_a_finding(toy: Toy, program: Program, tmp_path: Path, constants: int) -> None:
    toy.put_queue([])
    folder = put_finding(tmp_path / "sweep", constants)
    program.ok("new", "mend", "--from-finding", f"{folder}#1")
    place = toy.queue / "patches/mend"
    assert {path.name for path in place.rglob("*") if path.is_file()} == {
        "patch.toml", "test_finding.py", "launch.zip", "reproduce.py", "draft_test_kernel_2d.py",
    }  # fmt: skip
    script = (place / "reproduce.py").read_text(encoding="utf-8")
    assert script.count("\n") <= 30
    assert max(map(len, script.splitlines())) <= 100
    assert "contribbot" not in script.partition('"""\n')[2]
    assert ("s1 = torch.tensor([7, 0, 0" in script) is (constants < 200)
    for name in ("reproduce.py", "draft_test_kernel_2d.py", "checks/test_finding.py"):
        ast.parse((place / name).read_text(encoding="utf-8"))
    shown = program("show", "mend", "--json").json()
    assert isinstance(shown, dict)
    text = json.dumps(shown)
    assert "Fix the memory fault in kernel_2d" in text
    assert "\\u001b" not in text
    assert r"^KernelError: area\\.py:8: .*: (out of bounds|misaligned): " in (
        place / "patch.toml"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("sweep", "--from-finding sweep: no finding; name one as DIR#7"),
        ("sweep#x", "--from-finding sweep#x: no finding"),
        ("sweep#3", "sweep: no finding 3 in it"),
        ("sweep#2", "sweep#2: no launch is captured: nothing is launched where does not compile"),
        ("none#1", "none: no sweep in it"),
    ],
)
def test_what_is_no_finding(place: str, message: str, toy: Toy, program: Program) -> None:
    toy.put_queue([])
    put_finding(toy.queue / "sweep")
    ran = program("new", "mend", "--from-finding", place)
    assert ran.code == ExitCode.USAGE
    assert ran.err.startswith(f"contribbot: {message}")
    assert ran.err.count("\n") == 1
    assert not (toy.queue / "patches/mend").exists()


@pytest.mark.parametrize(
    "change",
    [{"kernel": "k); import os"}, {"module": "os; x"}, {"options": {"num_warps=4)": 1}},
     {"target": "gfx942; x"}],
    ids=str,
)  # fmt: skip
def test_no_text_of_a_launch_becomes_code(change: Mapping[str, object], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"should match pattern|a target such as"):
        put_finding(tmp_path / "sweep", more=change)


def test_no_literal_of_a_launch_becomes_code(toy: Toy, program: Program) -> None:
    toy.put_queue([])
    hostile = [CapturedArgument(name="x", literal="__import__('os').system('true')")]
    put_finding(toy.queue / "sweep", more={"arguments": hostile})
    ran = program("new", "mend", "--from-finding", "sweep#1")
    assert ran.code == ExitCode.USAGE
    assert not (toy.queue / "patches/mend").exists()


def test_a_file_of_a_launch_that_is_none(toy: Toy, program: Program) -> None:
    toy.put_queue([])
    put_finding(toy.queue / "sweep")
    (toy.queue / "sweep/captures/x.zip").write_bytes(b"PK")
    ran = program("new", "mend", "--from-finding", "sweep#1")
    assert ran.code == ExitCode.USAGE
    assert ran.err.count("\n") == 1


# --- Whole sweeps ----------------------------------------------------------------------------

KERNELS = """\
import torch, triton, triton.language as tl
@triton.jit
def add(x, out, n, size: tl.constexpr):
    place = tl.arange(0, size)
    tl.store(out + place, tl.load(x + place) + n)
@triton.jit
def racy(x, out, size: tl.constexpr):
    place = tl.arange(0, size)
    tl.store(out + place, tl.load(x + place) * 2)
    tl.store(x + place, tl.load(out + size - 1 - place))
@triton.jit
def large(x, out, size: tl.constexpr):
    place = tl.arange(0, size)[:, None] * size + tl.arange(0, size)[None, :]
    tile = tl.load(x + place)
    tl.store(out + place, tl.dot(tile, tl.trans(tile)))
@triton.jit
def unknown(x, out, size: tl.constexpr):
    place = tl.arange(0, size)
    tl.store(out + place, tl.load(x + place) + undefined)
"""
TESTS = """\
import os, time
import pytest, torch
import kernels
def add(n=1, length=64, size=64, x=None):
    x = torch.randn(length, device="cuda") if x is None else x
    out = torch.empty(size, device="cuda")
    kernels.add[(1,)](x, out, n, size=size)
    return x, out
def test_ok():
    x, out = add()
    torch.testing.assert_close(out, x + 1)
def test_bounds(): add(size=128)
def test_race():
    kernels.racy[(1,)](torch.randn(256, device="cuda"), torch.zeros(256, device="cuda"), size=256)
def test_unwritten(): add(x=torch.empty(64, device="cuda"))
def test_wrong():
    x, out = add()
    torch.testing.assert_close(out, x + 2)
def test_compile():
    x = torch.zeros(64, device="cuda")
    kernels.unknown[(1,)](x, x, size=64)
def test_lds():
    x = torch.zeros(256 * 256, device="cuda")
    kernels.large[(1,)](x, x, size=256, num_warps=8)
@pytest.mark.skipif(torch.version.hip is not None, reason="not on ROCm")
def test_marked(): test_ok()
def test_skip():
    if torch.version.hip: pytest.skip("needs CUDA")
    test_ok()
def test_skip_fails():
    if torch.version.hip: pytest.skip("needs CUDA")
    test_wrong()
@pytest.mark.skip(reason="flaky")
def test_skip_otherwise(): pass
def test_hang(): time.sleep(1000)
def test_shouts(): print("x" * 5_000_000)
def test_dies(): os.kill(os.getpid(), 9)
@pytest.mark.parametrize("x", ["<script>alert(1)</script>", "\\x1b[31m", "\\u202e"])
def test_names(x): assert 0, x
"""
EXPECTED = {
    "test_ok": ("passed", ""), "test_bounds": ("fault", "memory fault"),
    "test_race": ("fault", "race"), "test_unwritten": ("fault", "uninitialised read"),
    "test_wrong": ("failed", "wrong numbers"), "test_compile": ("failed", "does not compile"),
    "test_lds": ("failed", "too much LDS"), "test_marked": ("skipped", "skipped, passes here"),
    "test_skip": ("skipped", "skipped, passes here"), "test_skip_fails": ("skipped", ""),
    "test_skip_otherwise": ("skipped", ""), "test_hang": ("too long", ""),
    "test_shouts": ("passed", ""), "test_dies": ("crashed", ""),
    "test_names[<script>alert(1)</script>]": ("failed", ""),
    "test_names[\\x1b[31m]": ("failed", ""), "test_names[\\u202e]": ("failed", ""),
}  # fmt: skip


def start(folder: Path, *words: str, seconds: int = 60) -> subprocess.Popen[bytes]:
    """Start a sweep of the files in a folder."""
    pytest_words = ["pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".",
                    "--emulate-seconds", str(seconds)]  # fmt: skip
    own, _, more = " ".join(words).partition(" -- ")
    return subprocess.Popen(
        [sys.executable, "-m", "contribbot", "emulate", "gfx942", *own.split(), "--",
         *pytest_words, *more.split()],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TMPDIR": str(folder),
             "TRITON_CACHE_DIR": str(folder / "triton")},
    )  # fmt: skip


def outcomes_in(folder: Path) -> dict[str, tuple[str, str]]:
    """Return what each test of a sweep came to, and of which kind that is."""
    rows = read_sweep(folder).tests
    return {each.test.partition("::")[2]: (each.outcome, each.kind) for each in rows}


@pytest.mark.slow
def test_a_sweep_of_everything_that_can_happen(tmp_path: Path) -> None:
    put_tree(tmp_path, {"kernels.py": KERNELS, "test_x.py": TESTS, "test_y.py": "import not_there"})
    with start(tmp_path, "--report r -- test_x.py test_y.py", seconds=20) as sweep:
        said, _ = sweep.communicate(timeout=500)
    assert sweep.returncode == 1, said[-3000:]
    came = outcomes_in(tmp_path / "r")
    assert came.pop("") == ("failed", "")  # the file that cannot be imported
    assert came == EXPECTED
    found = {each.kind: each for each in read_sweep(tmp_path / "r").findings}
    lines = {kind: (each.kernel, each.line) for kind, each in found.items()}
    assert lines == {
        "memory fault": ("add", "kernels.py:5"), "race": ("racy", "kernels.py:9"),
        "uninitialised read": ("add", "kernels.py:5"), "wrong numbers": ("add", "test_x.py:18"),
        "does not compile": ("unknown", "kernels.py:19"),
        "too much LDS": ("large", "kernels.py:11"),
        "skipped, passes here": ("add", "test_x.py:28"),
    }  # fmt: skip
    assert {kind for kind, each in found.items() if each.captures} == {
        "memory fault", "race", "uninitialised read", "wrong numbers",
    }  # fmt: skip
    assert b"\x1b" not in said[said.index(b"target  passed") :]
    page = (tmp_path / "r/index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    # What has run does not run again.
    before = (tmp_path / "r/gfx942.jsonl").read_text(encoding="utf-8")
    with start(tmp_path, "--report r -- test_x.py test_y.py", seconds=20) as sweep:
        sweep.communicate(timeout=300)
    after = (tmp_path / "r/gfx942.jsonl").read_text(encoding="utf-8")
    assert '"begun"' not in after.removeprefix(before)
    assert outcomes_in(tmp_path / "r") == {**EXPECTED, "": ("failed", "")}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_cut_off_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    tests = "import time\nfrom kernels import *\ndef test_first(): pass\n"
    tests += "def test_slow():\n    open('ready', 'w').close()\n    time.sleep(5)\n"
    put_tree(tmp_path, {"kernels.py": KERNELS, "test_x.py": tests})
    with start(tmp_path, "--report r -- test_x.py") as sweep:
        end = time.monotonic() + 120
        while not (tmp_path / "ready").exists() and time.monotonic() < end:
            time.sleep(0.1)
        if number == signal.SIGKILL:
            os.killpg(sweep.pid, number)
        else:
            sweep.send_signal(number)
        said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == (130 if number == signal.SIGTERM else -9), said
    assert outcomes_in(tmp_path / "r") == {"test_first": ("passed", "")}
    with start(tmp_path, "--report r -- test_x.py") as sweep:
        sweep.communicate(timeout=120)
    assert outcomes_in(tmp_path / "r") == {
        "test_first": ("passed", ""), "test_slow": ("passed", ""),
    }  # fmt: skip


@pytest.mark.slow
def test_shares_and_workers_come_to_the_same(tmp_path: Path) -> None:
    files = {f"test_{name}.py": f"import kernels, os, torch\ndef test_{name}():\n"
             "    x = torch.zeros(64, device='cuda')\n    kernels.add[(1,)](x, x, 1, size=64)\n"
             for name in "abcd"}  # fmt: skip
    files["test_d.py"] += "def test_dies(): os.kill(os.getpid(), 9)\ndef test_after(): pass\n"
    # What a file leaves behind reaches no other one, whichever runs before.
    files["test_b.py"] += "    torch.set_default_dtype(torch.half)\n"
    files["test_b.py"] += "    torch.set_default_device('cuda')\n"
    files["test_c.py"] += "    assert torch.ones(1).dtype == torch.float\n"
    files["test_c.py"] += "    assert torch.ones(1).device.type == 'cpu'\n"
    # A set has another order in each process.
    files["test_a.py"] += ("import pytest\n@pytest.mark.parametrize('x', set('abcdefghijkl'))\n"
                           "def test_sample(x): pass\n")  # fmt: skip
    put_tree(tmp_path, {"kernels.py": KERNELS, **files})
    for words in ("--report s1 --shard 1/2 -- .", "--report s2 --shard 2/2 -- .",
                  "--report w -- -p xdist -n 2 ."):  # fmt: skip
        with start(tmp_path, f"{words} --emulate-cases 1") as sweep:
            said, _ = sweep.communicate(timeout=300)
            assert sweep.returncode in {0, 1}, said
    together = bring_together([tmp_path / "all", tmp_path / "s1", tmp_path / "s2"])
    assert all(0 < len(read_sweep(tmp_path / name).tests) < 7 for name in ("s1", "s2"))
    wanted = {f"test_{name}": ("passed", "") for name in "abcd"}
    wanted |= {"test_dies": ("crashed", ""), "test_after": ("passed", "")}
    wanted["test_sample[k]"] = ("passed", "")
    assert outcomes_in(tmp_path / "all") == outcomes_in(tmp_path / "w") == wanted
    assert not compare(together, read_sweep(tmp_path / "w")).bits


@pytest.mark.slow
def test_a_sweep_on_a_full_disk(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('x', range(400))\ndef test_x(x): pass\n"
    put_tree(tmp_path, {"kernels.py": KERNELS, "test_x.py": many})
    with small_disk(tmp_path / "disk", "size=40k") as disk:
        with start(tmp_path, f"--report {disk}/r -- test_x.py") as sweep:
            said, _ = sweep.communicate(timeout=120)
        assert sweep.returncode == ExitCode.MACHINE, said
        last = said.decode().splitlines()[-1]
        assert last.startswith("contribbot: the disk is full: ")
        assert all(value == ("passed", "") for value in outcomes_in(disk / "r").values())
        assert not (disk / "r/report.json").exists()


def test_finding_is_told_by_kind_kernel_and_file() -> None:
    finding = SweepFinding(
        number=1, kind="race", kernel="k", line="k.py:3", said="", targets=(), tests=()
    )
    assert finding.key == ("race", "k", "k.py")
