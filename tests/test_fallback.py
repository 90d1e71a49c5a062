"""What is named when a program leaves a GPU's work to the CPU, and what is not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from contribbot.fallback.audit import Audit
from contribbot.fallback.watch import FallbackReport, exit_code, watch
from tests.accelerator import DEVICE, register
from tests.conftest import Program, dig
from tests.tools import kinds

ROOT: Final = Path(__file__).parent.parent
#: A machine without a GPU has a device that torch treats as one.
DEVICES: Final = [
    "standin",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
    ),
]
BEGIN: Final = """\
import sys
import numpy
import torch

device = sys.argv[1]
if device == "standin":
    from tests.accelerator import register
    register()
"""
#: Each line that is to be named says what as, and no other may be.
PLANTED: Final = f"""{BEGIN}
table = torch.rand(64, 64).to(device)
weight = torch.rand(64, 64).to(device).requires_grad_()
rows = torch.tensor([1, 5, 9])
frames = torch.rand(64, 64)
frames = frames.pin_memory() if device == "cuda" else frames
there = dict(device=device) if device == "cuda" else dict()
for step in range(20):
    scores = table @ weight
    weights = scores.cpu().softmax(-1).to(device)  # planted: download fallback upload
    if scores.sum().item() < 0:  # planted: download
        break
    array = numpy.sqrt(scores.detach().cpu().numpy())  # planted: download
    roots = torch.from_numpy(array).to(device)  # planted: upload
    lengths = torch.tensor([step, 2, 3], **there).to(device)  # planted: upload
    chosen = table[rows]  # planted: upload
    frame = frames.to(device, non_blocking=True)
    loss = (weights * roots).sum() + frame.sum() + chosen.sum() * lengths.sum()
    loss.backward()  # planted: download fallback upload
    largest = scores.argmax(-1).tolist()  # planted: download
print(loss.item())  # planted: download
"""
#: As one trains: parameters are copied once, batches are made by the CPU and stream.
CLEAN: Final = f"""{BEGIN}
layers = torch.nn.functional
sizes = [(128, 32), (32, 128), (128, 32), (32, 128)]
weights = [torch.randn(size).mul(0.1).to(device).requires_grad_() for size in sizes]

def model(x):
    for up, down in zip(weights[::2], weights[1::2]):
        x = x + layers.linear(layers.gelu(layers.linear(layers.layer_norm(x, (32,)), up)), down)
    return x

optimizer = torch.optim.AdamW(weights)
if device == "standin":
    batch = torch.rand(16, 32).to(device)
for step in range(10):
    if device == "cuda":
        batch = torch.rand(16, 32).sub(0.5).sqrt_().nan_to_num().pin_memory()
        batch = batch.to(device, non_blocking=True)
        batch[batch > 9] = 0.0
    loss = model(batch).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    optimizer.zero_grad()
if device == "cuda":
    torch.cuda.synchronize()
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        # CUDA keeps code that it compiles in HOME otherwise.
        patch.setenv("CUDA_CACHE_PATH", str(tmp_path / "cuda"))
        yield tmp_path / "program.py"


def watched(script: Path, text: str, device: str, *words: str) -> FallbackReport:
    script.write_text(text)
    return watch([sys.executable, str(script), device, *words], device=device)


def planted(text: str) -> set[tuple[int, str]]:
    """Return the lines that are to be named, and what as."""
    return {
        (number, kind)
        for number, line in enumerate(text.splitlines(), 1)
        for kind in line.partition("# planted:")[2].split()
    }


@pytest.mark.parametrize("device", DEVICES)
def test_the_planted_lines_are_named_and_no_other(script: Path, device: str) -> None:
    report = watched(script, PLANTED, device)
    assert (report.exit_code, report.unwatched) == (0, "")
    expected = planted(PLANTED)
    if device == "standin":
        # It has no pinned memory: that copy is waited for.
        expected.add((PLANTED[: PLANTED.index("non_blocking")].count("\n") + 1, "upload"))
    found = report.findings
    assert {(each.line, each.kind) for each in found} == expected
    assert {each.file for each in found} == {str(script)}
    lines = PLANTED.splitlines()
    for each in found:
        assert each.code == lines[each.line - 1].strip()
        assert each.count == (1 if each.code.startswith("print") else 20), each
        assert each.bytes > 0
        assert each.seconds > 0
    softmax = next(each for each in found if each.operator == "aten::_softmax")
    assert softmax.bytes == 20 * 64 * 64 * 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_program_that_keeps_to_the_gpu_has_an_empty_report(script: Path, device: str) -> None:
    report = watched(script, CLEAN, device)
    assert (report.exit_code, report.unwatched, report.findings) == (0, "", ())
    assert report.gpu_operators > 400


ENDS: Final = {"raise ValueError('late')": 1, "raise SystemExit(7)": 7, "import os; os._exit(9)": 9}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("end", kinds(ENDS, lambda end: ENDS[end] == 1))
def test_an_end_keeps_its_code_and_its_counts(script: Path, device: str, end: str) -> None:
    lines = f"x = torch.ones(4).to(device) * 2\nfor _ in range(50):\n    x.sum().item()\n{end}\n"
    report = watched(script, BEGIN + lines, device)
    assert report.exit_code == exit_code(report) == ENDS[end]
    lost = "_exit" in end
    assert ("counts are lost" in report.unwatched) is lost
    assert [(each.count, each.bytes) for each in report.findings] == [(50, 200)] * (not lost)


#: What follows `x`, of four ones on the device, and the lines of it that are named.
CASES: Final = {
    "work of the CPU on its own data": ("torch.rand(9).softmax(0).sum().item()\nx + 1", {}),
    "a metric that stays on the CPU": (
        "total = torch.zeros(())\nfor _ in range(3):\n    total += (x * 2).cpu().sum()",
        {3: {"download", "fallback"}},
    ),
    "views and reads of what was copied": (
        "y = x.cpu()\ny[0].item(), y.view(2, 2).tolist(), y.view(2, 2).t().contiguous().numpy()",
        {1: {"download"}},
    ),
    "without gradients": (
        "with torch.inference_mode():\n y = x * 2\n y.sum().item()\n y.cpu().exp().to(device)",
        {3: {"download"}, 4: {"download", "fallback"}},
    ),
    "into what is there": (
        "y = torch.empty(4)\nfor _ in range(4):\n    y.copy_(x * 2)\n    y.exp_()\n    x.copy_(y)",
        {3: {"download"}, 4: {"fallback"}, 5: {"upload"}},
    ),
    "a condition": ("if x.sum() > 1 and bool(x[0] > 0): pass", {1: {"download"}}),
    "sizes that the GPU knows": ("x.nonzero()\nx[x > 0]\ntorch.equal(x, x)",
                                 {1: {"download"}, 2: {"download"}, 3: {"download"}}),
    "parameters, one after the other": (
        "for _ in range(30):\n    torch.ones(9).to(device)\ny = x + 1", {},
    ),
    "a round trip": ("(x.cpu() + 1).to(device)", {1: {"download", "fallback"}}),
    "into pinned memory, and on": (
        """y = pin(torch.empty(4))
for _ in range(4):
    y.copy_(x * 2, non_blocking=True)
    y.copy_(x)
    x.copy_(y, non_blocking=True)
""",
        {4: {"download"}},
    ),
    "into other memory, which is waited for": (
        "y = torch.empty(4)\nfor _ in range(4):\n    y.copy_(x * 2, non_blocking=True)",
        {3: {"download"}},
    ),
    "the meta device": (
        "x + 1\ny = torch.ones(3, device='meta')\ntorch.empty_like(y, device='cpu')",
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_named(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = CASES[case]
    # Only a GPU's driver pins memory: here it is what the program has named so.
    pinned: dict[int, Tensor] = {}
    monkeypatch.setattr(Tensor, "is_pinned", lambda tensor: tensor.data_ptr() in pinned)

    def pin(tensor: Tensor) -> Tensor:
        return pinned.setdefault(tensor.data_ptr(), tensor)

    x = torch.ones(4).to(register())
    names = {"torch": torch, "x": x, "device": DEVICE, "pin": pin}
    with Audit(DEVICE) as audit:
        exec(compile(text, "case.py", "exec"), names)  # noqa: S102  a program
    found: dict[int, set[str]] = {}
    for place in audit.findings():
        assert place.file == "case.py"
        found.setdefault(place.line, set()).add(place.kind)
    assert found == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_what_is_named_on_a_gpu(script: Path, case: str) -> None:
    """A process of its own: torch pins memory for one kind of accelerator in a process."""
    text, expected = CASES[case]
    begin = f"{BEGIN}pin = torch.Tensor.pin_memory\nx = torch.ones(4).to(device)\n"
    report = watched(script, begin + text, "cuda")
    found: dict[int, set[str]] = {}
    for each in report.findings:
        found.setdefault(each.line - begin.count("\n"), set()).add(each.kind)
    assert (report.unwatched, found) == ("", expected)


#: Of these, a new process has its own threads, texts and children.
PROCESS: Final = f"""{BEGIN}
import os
import threading
x = torch.ones(4).to(device) * 2
work = threading.Thread(target=lambda: [x.sum().item() for _ in range(4)])  # planted: download
work.start()
work.join()
child = os.fork()
if not child:
    x.sum().item()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_threads_are_watched_and_children_are_not(script: Path) -> None:
    report = watched(script, PROCESS, "standin")
    assert {(each.line, each.kind) for each in report.findings} == planted(PROCESS)
    assert sum(each.count for each in report.findings) == 4


@pytest.mark.slow
def test_the_page_shows_what_its_example_comes_to(script: Path) -> None:
    page = (ROOT / "docs/fallback.md").read_text()
    text = (ROOT / "docs/examples/decode.py").read_text()
    assert f"```python\n{text}```" in page
    begin = "import torch; from tests.accelerator import register; register()\n"
    text = text.replace("import torch\n", begin).replace('"cuda"', f'"{DEVICE}"')
    report = watched(script, text, DEVICE)
    shown = re.findall(r"decode\.py:(\d+) +(\d+) x .*(aten::\w+)", page)
    found = [(str(each.line), str(each.count), each.operator) for each in report.findings]
    assert sorted(shown) == sorted(found)


SELF: Final = """\
import os, sys
print(__name__, __file__, sys.argv, sys.path, sys.flags, os.getcwd(), sorted(os.environ.items()))
print(sys.modules["__main__"].__dict__ is globals(), sys.stdin.read())
import sitecustomize
print(sitecustomize.MINE, sitecustomize.__file__)
raise SystemExit(5)
"""


def test_a_program_finds_itself_as_without(script: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("MINE = 42\n")
    script.write_text(SELF)
    program = [sys.executable, "-u", "program.py", "--json", "x"]
    outputs = []
    for before in ([], [sys.executable, "-m", "contribbot", "fallback", "--device", "x", "--"]):
        ran = subprocess.run(
            [*before, *program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{own}:{ROOT}"},
            input="typed", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 5, ran.stderr
        outputs.append(ran.stdout)
    assert outputs[0] == outputs[1]
    assert "typed" in outputs[0]
    assert f"42 {own}" in outputs[0]
    assert "did not import torch" in ran.stderr


def test_what_cannot_be_watched_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contribbot.cli.diagnosis.gpus", tuple)
    program = Program(tmp_path)
    touch = ["--", sys.executable, "-c", "open('ran', 'w')"]
    refused = program("fallback", "--json", *touch)
    assert refused.code == 3
    assert "no GPU on this machine" in dig(refused.json(), "error", "message")  # type: ignore[operator]  # a text
    assert not (tmp_path / "ran").exists()
    for words, code, why in (
        (touch, 3, "did not import torch"),
        (["--", "sh", "-c", "echo out; exit 4"], 4, "no Python started"),
        (["--", sys.executable, "-c", "import torch; torch.ones(3) + 1"], 3, "no operator"),
    ):
        ran = program("fallback", "--device", "x", "--json", *words)
        assert ran.code == code
        assert why in str(ran.json()["unwatched"])
    missing = program("fallback", "--device", "x", "--", "no-such-program")
    said = "no-such-program: cannot be run: No such file or directory; give its path"
    assert (missing.code, said in missing.err) == (3, True)


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    program = Program(tmp_path)
    waits = "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(6))\nprint(1, flush=True)\n"
    child = program.start("fallback", "--device", "x", "--", sys.executable, "-c",
                          f"{waits}while True: signal.pause()")  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 6
