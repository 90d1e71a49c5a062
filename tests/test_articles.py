"""Pages that take published claims apart: their figures are those of the scripts beside them."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks import false_speedups, int8_tolerance
from benchmarks.int8_tolerance import Signature
from contribbot import process
from tests.tools import kinds

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs/examples/test_int8_weight_only.py"
PAGE = (ROOT / "docs/int8-tolerance.md").read_text(encoding="utf-8")


#: Runs the example on a GPU that is none: its products treat their left factor as told.
STAND_IN = """\
import sys
import types

import pytest
import torch
from tests.tools import kinds

class Gpu(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        if function is torch.mm and torch.get_float32_matmul_precision() == "high":
            bits = args[0].as_subclass(torch.Tensor).view(torch.int32)
            bits = {treatment}
            args = bits.view(torch.float32), args[1].as_subclass(torch.Tensor)
            return torch.mm(*args).as_subclass(Gpu)
        return super().__torch_function__(function, kinds, args, kwargs or {{}})

torch.cuda.is_available = lambda: True
torch.cuda.get_device_name = lambda: "a stand-in"
torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(gcnArchName="{target}:xnack-")
torch.version.hip = "6.3"
torch.Tensor.cuda = lambda tensor: tensor.as_subclass(Gpu)
sys.exit(pytest.main(["-rs", "-q", "-p", "no:cacheprovider", sys.argv[1]]))
"""


def draw() -> tuple[torch.Tensor, list[int8_tolerance.Layer]]:
    layers, x = int8_tolerance.draw()
    return x, [int8_tolerance.quantize(layer.weight.detach()) for layer in layers]


def computed() -> dict[str, Signature]:
    x, layers = draw()
    with torch.no_grad():
        reference = int8_tolerance.scale_after(x, layers)
        rows = int8_tolerance.candidates(x, layers)
        return {name: Signature.between(reference, result) for name, result in rows}


def test_page_has_the_figures_that_the_script_computes() -> None:
    table = [line.replace("*", "").strip("| ").split(" | ") for line in PAGE.splitlines()]
    rows = {row[0]: row[1:] for row in table if row[-1] in {"fits", "excluded"}}
    found = computed()
    assert rows.keys() == found.keys()
    for name, difference in found.items():
        off, absolute, relative, outcome = rows[name]
        assert int(off) == difference.mismatched
        assert (outcome == "fits") == difference.fits(int8_tolerance.PUBLISHED)
        if difference.mismatched:  # else the processor's order of adding decides alone
            for text, value, index in (
                (absolute, difference.absolute, difference.absolute_at),
                (relative, difference.relative, difference.relative_at),
            ):
                number, place = text.split(", ")
                assert float(number) == pytest.approx(value, rel=6e-3)
                assert int(place) == index


def test_published_figures_fit_in_whatever_order_is_added() -> None:
    found = dict(int8_tolerance.by_order(*draw()))
    assert len(found) == 44
    assert all(difference.fits(int8_tolerance.PUBLISHED) for difference in found.values())


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"),
    reason="without AVX2 torch draws normal numbers with other last bits",
)
def test_published_figures_come_out_to_the_last_digit() -> None:
    found = dict(int8_tolerance.by_order(*draw()))
    exactly = {name for name, found in found.items() if found == int8_tolerance.PUBLISHED}
    assert exactly == {"pairwise, separate", "pairwise, fused", "lanes of 16, separate"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    kinds([
        ("", "", "1 passed, 2 skipped"),
        ("& ~0x1FFF", "& ~0x0FFF", "1 failed, 2 skipped"),  # one bit more
        ("manual_seed(1234)", "manual_seed(1235)", "1 failed, 2 skipped"),
    ], lambda case: "0x1FFF" in case[0]),
)  # fmt: skip
def test_example_says_what_it_found(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert before in text
    copy = tmp_path / EXAMPLE.name
    copy.write_text(text.replace(before, after) if before else text, encoding="utf-8")
    env = process.clean_environment({"CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path)})
    command = [sys.executable, "-m", "pytest", "-rs", "-q", "-p", "no:cacheprovider", str(copy)]
    done = process.run(command, cwd=tmp_path, env=env, timeout=300, accept=(0, 1))
    assert said in done.stdout.decode()
    assert "sees no GPU here" in done.stdout.decode()


@pytest.mark.parametrize(
    ("treatment", "target", "said"),
    kinds([
        ("bits & ~0x1FFF", "gfx942", "3 passed"),
        ("(bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF", "gfx942", "1 failed, 2 passed"),
        ("bits", "gfx942", "1 failed, 2 passed"),
        ("bits", "gfx90a", "this is gfx90a:xnack-"),
    ], lambda case: case[2] == "3 passed"),
    ids=["cut", "nearest", "float32", "another target"],
)  # fmt: skip
def test_example_decides_on_gfx942(tmp_path: Path, treatment: str, target: str, said: str) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN.format(treatment=treatment, target=target), encoding="utf-8")
    command = [sys.executable, str(script), str(EXAMPLE)]
    done = process.run(command, cwd=tmp_path, timeout=300, accept=(0, 1))
    assert said in done.stdout.decode()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton, which compiles it, is missing")
def test_tf32_is_xf32_on_gfx942_and_nothing_rounds_before(tmp_path: Path) -> None:
    env = process.clean_environment({"HOME": str(tmp_path)})
    command = [sys.executable, str(EXAMPLE.with_name("xf32.py"))]
    done = process.run(command, cwd=tmp_path, env=env)
    said = r"gfx942 ieee: {'v_mfma_f32_\w+_f32': \d+}\ngfx942 tf32: {'v_mfma_f32_\w+_xf32': \d+}\n"
    assert re.fullmatch(said, done.stdout.decode())


def test_speedups_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["false_speedups.py"])
    with pytest.raises(SystemExit, match="sees no GPU here: nothing to measure"):
        false_speedups.main()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton, which compiles it, is missing")
@pytest.mark.skipif(
    "AOTRITON" not in os.environ, reason="AOTRITON names no checkout of aotriton 0.13b"
)
def test_page_of_sdpa_has_the_figures_of_its_example(tmp_path: Path) -> None:
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    example = str(ROOT / "docs/examples/test_sdpa.py")
    pytest_run = ["pytest", "-q", "-s", "-c", os.devnull, "-p", "no:cacheprovider", example]
    command = [sys.executable, "-m", "contribbot", "emulate", "gfx942", "--", *pytest_run]
    ran = process.run(command, cwd=tmp_path, env=env, timeout=900)
    said = re.findall(r"^\.?(?:\w+ - \w+|largest): (\S+)$", ran.stdout.decode(), re.MULTILINE)
    page = (ROOT / "docs/sdpa.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[1:] for line in page.splitlines() if ", times " in line]
    assert said == [cell.strip("| ") for row in rows for cell in row]
