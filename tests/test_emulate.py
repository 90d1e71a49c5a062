"""AMD machine code on a processor: kernels against torch, corner values, faults by their line."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contribbot import emulate
from contribbot.compile.cache import CompileError
from contribbot.compile.hip import Compiler
from contribbot.compile.toolchain import Toolchain, hip_toolchain
from contribbot.emulate import memory_ops, program
from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import decode
from contribbot.emulate.errors import RequestError
from contribbot.emulate.registers import FloatMode
from contribbot.emulate.workgroup import Launch
from contribbot.emulator_host import hip_code, native_cache
from tests.conftest import CompileOnce
from tests.tools import kinds

SOURCE = Path(__file__).parent / "emulated.hip"
FP8 = {
    "gfx942": torch.float8_e4m3fnuz,
    "gfx950": torch.float8_e4m3fn,
    "gfx1201": torch.float8_e4m3fn,
}
TARGETS = ("gfx942", "gfx1201", "gfx950", "gfx1100", "gfx1151", "gfx90a")
Kernels = dict[str, Kernel]


@pytest.fixture(scope="module", params=kinds(TARGETS, {"gfx942", "gfx1201"}.__contains__))
def kernels(request: pytest.FixtureRequest, compiled: CompileOnce) -> Kernels:
    return compiled(SOURCE, request.param)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def source_line(place: str) -> str:
    return SOURCE.read_text(encoding="utf-8").splitlines()[int(place.partition(":")[2]) - 1]


def patterns(count: int, generator: torch.Generator) -> torch.Tensor:
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator)
    return bits.to(torch.int32).view(torch.float32)


def test_quantises_groups_as_torch_does(kernels: Kernels, generator: torch.Generator) -> None:
    kernel = kernels["quantise"]
    if kernel.target not in FP8:
        pytest.skip(f"{kernel.target} has no instruction that converts to FP8")
    kind = FP8[kernel.target]
    top = torch.finfo(kind).max
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    mixed = torch.where(values.isfinite(), values, 1.0)[
        torch.randperm(1 << 16, generator=generator)
    ]
    x = mixed.reshape(-1, 128)
    q, scales = torch.zeros(x.shape, dtype=torch.uint8), torch.zeros(len(x))
    emulate.launch(kernel, len(x), 32, [x, q, scales])
    expected = x.abs().amax(1).clamp(min=1e-10) / top
    assert torch.equal(scales, expected)
    quantised = (x / expected[:, None]).clamp(-top, top).to(kind)
    assert torch.equal(q, quantised.view(torch.uint8))


def test_a_division_is_rounded_to_nearest_whatever_the_reciprocal_is_within_its_bound(
    kernels: Kernels, generator: torch.Generator
) -> None:
    a, b = patterns(20000, generator), patterns(20000, generator)
    out = torch.zeros(20000)
    ran = emulate.launch(kernels["divide"], 79, 256, [a, b, out, 20000], bounds=True)
    exact = a / b
    number = ~exact.isnan()
    assert torch.equal(out.isnan(), exact.isnan())
    assert torch.equal(out[number], exact[number])
    assert ran.undetermined == {}


def test_a_division_of_float64(kernels: Kernels, generator: torch.Generator) -> None:
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7e308, 3.0]
    scale = torch.randint(-480, 480, (2, 8000), generator=generator).double().exp2()
    a, b = torch.randn(2, 8000, generator=generator, dtype=torch.float64) * scale
    a[:64], b[:64] = torch.cartesian_prod(*2 * [torch.tensor(special, dtype=torch.float64)]).T
    out = torch.zeros(8000, dtype=torch.float64)
    ran = emulate.launch(kernels["divide64"], 32, 256, [a, b, out, 8000], bounds=True)
    # Also at both ends of the 2 ** 29 ULP by which documents bound v_rcp_f64.
    assert torch.equal(out.nan_to_num(nan=7), (a / b).nan_to_num(nan=7))
    assert ran.undetermined == {}


def test_a_subnormal_quotient_of_float64_is_rounded_once(kernels: Kernels) -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**52, (2, 8000)) | 1023 << 52
    by = random.integers(-20, 1000, 8000)
    a, b = np.ldexp(bits.view(np.float64), [by - random.integers(1021, 1076, 8000), by])
    out = np.zeros(8000)
    emulate.launch(kernels["divide64"], 32, 256, [a, b, out, 8000])
    assert (np.abs(a / b) < 2.0**-1022).mean() > 0.9
    assert np.array_equal(out, a / b)


def test_names_what_results_within_their_bound_change(kernels: Kernels) -> None:
    """Words whose bits differ where each exponential and reciprocal is exact, or one off."""
    kernel, rows = kernels["exponentials"], 4096
    random = np.random.default_rng(1)
    x = 3 * random.standard_normal((rows, 16)).astype(np.float32)

    def softmax(off: float) -> np.ndarray:
        def near(exact: np.ndarray) -> np.ndarray:
            side = np.where(
                random.random(exact.shape) < off, random.choice([-1, 1], exact.shape), 0
            )
            return (exact.astype(np.float32).view(np.int32) + side.astype(np.int32)).view(
                np.float32
            )

        exponentials = near(np.exp2(x.astype(np.float64)))
        total = functools.reduce(np.add, exponentials.T)
        result: np.ndarray = exponentials * near(1 / total.astype(np.float64))[:, None]
        return result

    out = np.zeros_like(x)
    ran = emulate.launch(kernel, rows // 256, 256, [x, out, rows], bounds=True)
    assert np.array_equal(out, softmax(0))
    named = ran.undetermined["argument 1"].reshape(rows, 16, 4).any(-1)
    for off in (0.05, 0.5):  # what hardware is known to give of exp2, and a bad case
        for _ in range(3):
            changed = softmax(off) != out
            assert changed.sum() > 5000
            assert (changed & ~named).sum() <= changed.sum() / 1000


def test_an_exponential_depends_on_its_bound(kernels: Kernels, generator: torch.Generator) -> None:
    x, out = torch.randn(50, 300, generator=generator), torch.zeros(50, 300)
    lengths = torch.randint(1, 300, (50,), generator=generator, dtype=torch.int32)
    ran = emulate.launch(kernels["softmax"], 50, 64, [x, out, lengths, 300], bounds=True)
    for row, length in enumerate(lengths):
        expected = x[row, :length].double().softmax(0)
        assert torch.allclose(out[row, :length].double(), expected, rtol=1e-6, atol=0)
        assert not out[row, length:].any()
    # A quotient of exponentials: where all are at one end of the bound, more than a tenth cancels.
    differ = ran.undetermined["argument 1"].reshape(50, 300, 4).any(-1)
    assert differ.sum() > 0.9 * lengths.sum()


def test_sums_of_a_workgroup(kernels: Kernels, generator: torch.Generator) -> None:
    x, out = torch.randint(-99, 99, (40, 256), generator=generator, dtype=torch.int32), integers(40)
    emulate.launch(kernels["reduce"], 40, 256, [x, out])
    assert torch.equal(out, x.sum(1).int())


def test_a_norm_in_float16(kernels: Kernels, generator: torch.Generator) -> None:
    x = torch.randn(20, 512, generator=generator).half()
    weight, out = torch.randn(512, generator=generator).half(), torch.zeros(20, 512).half()
    emulate.launch(kernels["rms_norm"], 20, 128, [x, weight, out, 1e-5])
    scale = torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-5)
    # The scaled row is rounded to float16, and so is its product with the weight.
    assert torch.allclose(out.double(), x.double() * scale * weight, rtol=2**-10, atol=2**-24)


def test_atomic_additions(kernels: Kernels, generator: torch.Generator) -> None:
    x, bins = torch.randint(0, 99, (1000,), generator=generator, dtype=torch.int32), integers(8)
    emulate.launch(kernels["count"], (2, 2), 256, [x, bins, 1000])
    assert torch.equal(bins, 2 * torch.bincount(x[:512] & 7, minlength=8).int())


def test_arguments_end_within_a_wider_load(kernels: Kernels) -> None:
    out = torch.zeros(64)
    emulate.launch(kernels["three_words"], 1, 64, [out, 60, 2.0, 3.0, 1.0])
    assert torch.equal(out[:60], 6 * torch.arange(60.0) + 1)
    assert not out[60:].any()


#: The fault, how many work-items, the arguments, and the lanes of a wave where it is one.
FAULTS: dict[str, tuple[str, int, list[emulate.Argument], set[int]]] = {
    "past_the_end": ("out of bounds", 64, [torch.zeros(64), torch.zeros(64)], {32, 64}),
    "no_barrier": ("race", 256, [integers(256), integers(256), 128], {32, 64}),
    "never_written": ("unwritten", 64, [integers(64)], {32, 64}),
    "misaligned_atomic": ("misaligned", 32, [torch.zeros(8, dtype=torch.uint8)], {32, 64}),
    "waves_of_32": ("unwritten", 256, [integers(256), integers(256)], {64}),
    "waves_of_64": ("race", 64, [integers(64), integers(64)], {32}),
    "endless": ("endless", 256, [integers(1)], {32, 64}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_names_the_line_of_a_fault(
    kernels: Kernels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is endless takes 20 s to be told by the real limit.
    monkeypatch.setattr("contribbot.emulate.workgroup._LONGEST", 1_000_000)
    fault, block, arguments, lanes = FAULTS[name]
    if kernels[name].metadata.wavefront_size not in lanes:
        emulate.launch(kernels[name], 1, block, arguments)
        return
    with pytest.raises(emulate.KernelError) as caught:
        emulate.launch(kernels[name], 1, block, arguments)
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    line = 1 + next(row for row, text in enumerate(lines) if f"FAULT {name}" in text)
    assert (caught.value.fault, caught.value.place.line) == (fault, f"emulated.hip:{line}")


#: Two waves meet in LDS: what each does, and what ends the launch.
MEETINGS = {
    "a[0] = x[0]; __syncthreads(); out[i] = a[0];": None,
    "a[i & 31] = x[0]; __syncthreads(); out[i] = a[i & 31];": None,
    "a[0] = i % 64 - 56; __syncthreads(); out[i] = a[0];": None,  # of lanes the last one's stays
    "if (i < 100) a[0] = i % 64 - 56;": "wave 1 writes byte 0 of LDS, which wave 0 wrote",
    "a[i % 2] = 7 + i / 129 * (i % 2);": "wave 2 writes byte 4 of LDS, which other waves wrote",
    "if (i < 64) a[0] = 0, out[i] = a[5]; else a[i < 128 ? 0 : 5] = -1;": "wave 0 .* wave 2 wrote",
    "a[0] = i / 64;": "wave 1 writes byte 0 of LDS, which wave 0 wrote",
    "a[0] = x[0]; if (i > 63) a[0] = 3;": "wave 1 writes byte 0 of LDS, which other waves wrote",
    "if (i < 128) a[0] = x[0]; else out[i] = a[0];": "wave 2 reads .* which other waves wrote",
    "a[0] = x[0]; if (i > 63) out[i] = a[0];": "wave 1 reads .* which other waves wrote",
    "a[i] = 7; __syncthreads(); out[i] = a[0]; a[0] = 7;": "wave 1 .* which wave 0 (read|wrote)",
}


MEETING = """
extern "C" __global__ void meet{}(const int* x, int* out) {{
  __shared__ volatile int a[192];
  const int i = threadIdx.x;
  {}
}}
"""


@pytest.mark.parametrize("body", MEETINGS)
def test_waves_may_write_equal_values_to_one_place_and_read_them_after_a_barrier(
    compiled: CompileOnce, body: str
) -> None:
    kernels = map(MEETING.format, range(len(MEETINGS)), MEETINGS)
    source = "#include <hip/hip_runtime.h>\n" + "".join(kernels)
    kernel = compiled(source, "gfx942")[f"meet{[*MEETINGS].index(body)}"]
    out = integers(192)
    if message := MEETINGS[body]:
        with pytest.raises(emulate.KernelError, match=f"race: {message}"):
            emulate.launch(kernel, 1, 192, [integers(1) + 7, out])
    else:
        emulate.launch(kernel, 1, 192, [integers(1) + 7, out])
        assert out.eq(7).all()


def test_an_unaligned_word_is_read_as_hardware_reads_it_and_named(kernels: Kernels) -> None:
    x, out = torch.arange(200, dtype=torch.uint8), integers(32)
    ran = emulate.launch(kernels["misaligned"], 1, 32, [x, out])
    assert torch.equal(out.view(torch.uint8), x[2:130])
    [line] = ran.unaligned
    assert "// UNALIGNED" in source_line(line)
    assert not emulate.launch(kernels["misaligned"], 1, 32, [x[2:], out]).unaligned


def test_the_other_fp8_format_is_told_apart(kernels: Kernels) -> None:
    """gfx942 writes e4m3fnuz, in which the same code is half of what it is in e4m3fn."""
    kernel = kernels["quantise"]
    if kernel.target not in FP8:
        pytest.skip(f"{kernel.target} has no instruction that converts to FP8")
    fn, fnuz = torch.float8_e4m3fn, torch.float8_e4m3fnuz
    kind = FP8[kernel.target]
    x = torch.linspace(-1, 1, 128) * torch.finfo(kind).max
    q = torch.zeros(128, dtype=torch.uint8)
    ran = emulate.launch(kernel, 1, 32, [x, q, torch.zeros(1)], trace=True)
    assert torch.equal(q, x.to(kind).view(torch.uint8))
    [other] = {fn, fnuz} - {kind}
    differ = (q != x.to(other).view(torch.uint8)).numpy()
    assert differ.sum() > 100
    [line] = {*ran.writers["argument 1"][differ].tolist()}
    assert "// WRITES quantise" in source_line(line)


def test_a_shift_out_of_range_takes_five_bits(kernels: Kernels) -> None:
    """C++ leaves it open and torch gives 0; AMD's documents shift by `S0[4 : 0]`."""
    x, by, out = integers(64) + 3, torch.arange(64, dtype=torch.int32), integers(64)
    ran = emulate.launch(kernels["shift"], 1, 64, [x, by, out])
    assert torch.equal(out, x << (by & 31))
    [line] = ran.wide_shifts
    assert "// FAULT shift" in source_line(line)
    assert not emulate.launch(kernels["shift"], 1, 64, [x, by & 31, out]).wide_shifts


def test_says_which_line_wrote_a_byte(kernels: Kernels) -> None:
    x, out = integers(64), integers(66)
    ran = emulate.launch(kernels["shift"], 1, 64, [x, x, out[1:65]], trace=True)
    wrote = ran.writers["argument 2"]
    assert not wrote[:4].any()
    assert not wrote[-4:].any()
    [line] = {*wrote[4:-4].tolist()}
    assert "// FAULT shift" in source_line(line)


def test_reads_of_what_nobody_wrote(kernels: Kernels) -> None:
    with pytest.raises(emulate.KernelError, match="byte 0 of argument 0, which nobody wrote"):
        emulate.launch(
            kernels["reduce"], 1, 256, [emulate.Uninitialised(integers(256)), integers(1)]
        )


def test_a_launch_that_fails_changes_nothing(kernels: Kernels) -> None:
    out = torch.ones(64)
    with pytest.raises(emulate.KernelError):
        emulate.launch(kernels["past_the_end"], 1, 64, [torch.zeros(64), out])
    assert out.eq(1).all()


def test_a_write_to_a_read_only_array_changes_nothing(kernels: Kernels) -> None:
    a, b = np.zeros(64, np.int32), np.zeros(64, np.int32)
    b.flags.writeable = False
    with pytest.raises(emulate.KernelError, match="a write to argument 1, which may only be read"):
        emulate.launch(kernels["add_to_both"], 1, 64, [a, b])
    assert not a.any()


def test_arrays_that_overlap_are_refused(kernels: Kernels) -> None:
    """Each would have a copy, of which the last would overwrite what the other's writes left."""
    a = np.zeros(80, np.int32)
    with pytest.raises(RequestError, match="argument 1 overlaps argument 0"):
        emulate.launch(kernels["add_to_both"], 1, 64, [a, a[16:]])
    whole = integers(80)
    emulate.launch(kernels["add_to_both"], 1, 64, [whole, whole[16:]])
    assert whole.tolist() == [1] * 16 + [11] * 48 + [10] * 16


def test_launches_of_two_threads_take_turns(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One would extend the program whose registers the other has allotted."""
    run, running, together = Launch.run, list[Launch](), list[int]()

    def watched(launch: Launch) -> object:
        running.append(launch)
        time.sleep(0.1)
        together.append(len(running))
        try:
            return run(launch)
        finally:
            running.pop()

    monkeypatch.setattr(Launch, "run", watched)
    a = integers(64)
    arguments = (kernels["add_to_both"], 1, 64, [a, a])
    threads = [threading.Thread(target=emulate.launch, args=arguments) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1, 1]


@pytest.mark.parametrize("name", ["device_variable", "recursion"])
def test_what_a_runtime_would_add_is_no_fault_of_the_kernel(kernels: Kernels, name: str) -> None:
    with pytest.raises(emulate.UnmodelledError):
        emulate.launch(kernels[name], 1, 64, [integers(64)])


def test_says_how_large_the_tensor_is_before_which_a_kernel_reads(kernels: Kernels) -> None:
    with pytest.raises(emulate.KernelError, match=r"before the start of argument 0 \(256 bytes\)"):
        emulate.launch(kernels["before_the_start"], 1, 64, [integers(64), integers(64)])


def test_32_lanes_are_not_64(kernels: Kernels) -> None:
    out = integers(2)
    emulate.launch(kernels["lanes_of_32"], 1, 64, [torch.arange(64, dtype=torch.int32), out])
    whole = kernels["lanes_of_32"].metadata.wavefront_size == 32
    assert out.tolist() == [496, 1520 if whole else 0]


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (
            CompileError(crashed="clang: it could not be started"),
            "^clang: it could not be started; see `contribbot doctor`$",
        ),
        (
            CompileError(error="kernel.cpp:1: expected ;"),
            r"^a fault of contribbot; .*expected ;\)$",
        ),
    ],
    ids=["the machine", "the source"],
)
def test_whose_fault_it_is_that_the_emulator_cannot_compile(
    kernels: Kernels, ended: CompileError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise ended

    monkeypatch.setattr(Compiler, "run", fails)
    monkeypatch.setattr(program, "_functions", program._functions.__wrapped__)  # none is remembered
    with pytest.raises(emulate.UnmodelledError, match=said):
        emulate.launch(replace(kernels["one_place"]), 1, 128, [integers(1), integers(128)])


def test_some_lanes_read_one_place(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    out = integers(128)
    emulate.launch(kernels["one_place"], 1, 128, [integers(1) + 7, out])
    assert out.tolist() == [0, 7] * 64

    def fails(*_: object, **__: object) -> None:
        raise ValueError("shapes differ")

    # What goes wrong in the emulator itself names the instruction, too.
    monkeypatch.setattr(memory_ops, "_access", fails)
    monkeypatch.setattr(program, "_written", program._written.__wrapped__)  # none is remembered
    with pytest.raises(
        emulate.UnmodelledError, match=r"fault of contribbot; .*shapes differ"
    ) as told:
        emulate.launch(replace(kernels["one_place"]), 1, 128, [integers(1), out])
    place = told.value.place
    assert place is not None
    assert "load" in place.instruction.lower()
    assert (
        "LOAD one_place"
        in SOURCE.read_text(encoding="utf-8").splitlines()[int(place.line.split(":")[1]) - 1]
    )


def test_says_which_lines_ran(kernels: Kernels) -> None:
    ran = emulate.launch(kernels["lanes_of_32"], 1, 64, [integers(64), integers(2)])
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    numbers = [int(line.partition(":")[2]) for line in ran.lines if line.startswith("emulated")]
    assert any("out[threadIdx.x / warpSize] = sum" in lines[number - 1] for number in numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "takes 1 arguments, 0 are given"),
        ([5], "argument 0 is a pointer, int is given"),
        ([torch.eye(4).to_sparse()], r"argument 0.* is torch\.sparse_coo"),
        ([torch.zeros(4)[::2].numpy()], "must be contiguous"),
    ],
)
def test_refuses_arguments_that_do_not_fit(
    kernels: Kernels, arguments: list[emulate.Argument], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        emulate.launch(kernels["never_written"], 1, 64, arguments)


@pytest.mark.parametrize("number", [2**32, 2**40, -(2**31) - 1])
def test_refuses_a_number_that_its_argument_does_not_hold(kernels: Kernels, number: int) -> None:
    args: list[emulate.Argument] = [integers(256), integers(256), number]
    with pytest.raises(RequestError, match=rf"argument 2.* has 4 bytes, {number} takes more"):
        emulate.launch(kernels["no_barrier"], 1, 32, args)


@pytest.mark.parametrize("kernel", [{}, "twice"])
def test_a_launch_takes_one_kernel(kernel: object) -> None:
    with pytest.raises(RequestError, match=r"launch takes a Kernel.* is given"):
        emulate.launch(kernel, 1, 64, [])  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("pointer", "said"), [("dispatch", "a read of the dispatch packet"), ("queue", "of the queue")]
)
def test_a_pointer_that_is_not_modelled_stops_only_what_reads_by_it(
    pointer: str, said: str, compiled: CompileOnce
) -> None:
    source = f"""#include <hip/hip_runtime.h>
#define POINTER __builtin_amdgcn_{pointer}_ptr()
extern "C" __global__ void ask(int* x) {{ x[0] = POINTER != 0; }}
extern "C" __global__ void show(int* x) {{ x[0] = *(const int*)POINTER; }}"""
    kernels, x = compiled(source, "gfx942"), integers(64)
    emulate.launch(kernels["ask"], 1, 64, [x])
    assert x[0] == 1
    with pytest.raises(emulate.UnmodelledError, match=f"hip:4: show.*_load_.*modelled: .*{said}"):
        emulate.launch(kernels["show"], 1, 64, [x])


def test_a_size_is_a_whole_number(kernels: Kernels) -> None:
    kernel, args = kernels["add_to_both"], [integers(64), integers(64)]
    emulate.launch(kernel, np.int64(1), 64, args)  # type: ignore[arg-type]  # as numpy computes it
    with pytest.raises(RequestError, match=r"grid is 1\.5"):
        emulate.launch(kernel, 1.5, 64, args)  # type: ignore[arg-type]  # what is refused


def test_refuses_more_lds_than_the_target_has(kernels: Kernels) -> None:
    kernel = kernels["reduce"]
    most = {"gfx950": 160 << 10}.get(kernel.target, 64 << 10)
    args = [integers(256), integers(1)]
    emulate.launch(kernel, 1, 256, args, shared=most - 1024)
    said = rf"reduce\+0x0: .*: launch limits: {most + 4} bytes of LDS, {kernel.target} has {most}"
    with pytest.raises(emulate.KernelError, match=said):
        emulate.launch(kernel, 1, 256, args, shared=most - 1020)


@pytest.mark.parametrize(
    ("update", "block", "said"),
    [
        ({"max_flat_workgroup_size": 128}, 256, "256 work-items, its launch bounds allow 128"),
        ({"reqd_workgroup_size": [64, 1, 1]}, (32, 2), r"of \(32, 2, 1\), .* for \(64, 1, 1\)"),
        ({"vgpr_count": 257}, 1024, "waves of 257 vector registers, .* fit"),
        ({"vgpr_count": 512}, 1024, "waves of 512 vector registers, .* fit"),
    ],
)
def test_a_workgroup_that_does_not_fit_is_a_fault_before_any_instruction(
    kernels: Kernels, update: dict[str, object], block: int | tuple[int, ...], said: str
) -> None:
    kernel = kernels["reduce"]
    metadata = kernel.metadata.model_copy(update={"max_flat_workgroup_size": 1024, **update})
    kernel, out = replace(kernel, metadata=metadata, ran=set()), integers(1)
    with pytest.raises(emulate.KernelError, match=f"launch limits: .*{said}") as found:
        emulate.launch(kernel, 1, block, [integers(256), out])
    assert (found.value.fault, found.value.place.offset) == ("launch limits", 0)
    assert not kernel.ran


#: An ELF file of 64 bits for gfx942, with one segment that takes 2 ** 62 bytes.
HUGE = b"\x7fELF\2\1\1\x40".ljust(16, b"\0") + struct.pack(
    "<HHIQQQIHHHHHHIIQQQQQQ",
    3, 224, 1, 0, 64, 0, 0x4C, 64, 56, 1, 0, 0, 0, 1, 4, 0, 0, 0, 0, 1 << 62, 0,
)  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"junk", b"\x7fELF" + bytes(60), HUGE])
def test_refuses_what_is_no_code_object(content: bytes) -> None:
    with pytest.raises(RequestError, match="code object"):
        emulate.load(content)


def test_load_takes_bytes() -> None:
    with pytest.raises(RequestError, match="load takes a code object's bytes, str is given"):
        emulate.load("/file.co")


def test_a_kernel_is_shown_without_its_image(kernels: Kernels) -> None:
    assert "'reduce'" in repr(kernels["reduce"])
    assert len(repr(kernels["reduce"])) < 2000


def test_names_a_target_that_is_not_modelled() -> None:
    content = HUGE.replace(struct.pack("<I", 0x4C), struct.pack("<I", 0x36))
    with pytest.raises(emulate.UnmodelledError, match=r"gfx1030 is not modelled: gfx90a, gfx942,"):
        emulate.load(content)


def test_an_instruction_before_an_mfma_is_decoded_alone() -> None:
    made = importlib.import_module("tinygrad.runtime.autogen.amd.cdna.ins")
    v = importlib.import_module("tinygrad.renderer.amd.dsl").v
    first = made.v_fma_f32_e64(v[0], v[1], v[2], v[3])
    second = made.v_mfma_f32_32x32x64_f8f6f4(v[0:15], v[16:23], v[24:31], 0)
    image = first.to_bytes() + second.to_bytes()
    names = [decode(image, place, "gfx950").name for place in (0, 8)]
    assert names == ["V_FMA_F32", "V_MFMA_F32_32X32X64_F8F6F4"]


def run_example(page: str) -> str:
    """Run the first example of a page, and return what follows it."""
    text = (Path(__file__).parent.parent / "docs" / page).read_text(encoding="utf-8")
    example, _, rest = text.partition("```python\n")[2].partition("```")
    exec(example, {})  # noqa: S102  the example
    return rest


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_example("emulate.md")
    assert "kernel.hip:5" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_the_size_of_a_wave_prints_what_its_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = run_example("warp-size.md").partition("```\n")[2].partition("```")[0]

    def without_compiler(text: str) -> str:
        return re.sub(r"\+0x\w+: [^:]*:", ":", text)  # places and registers are the compiler's

    assert without_compiler(capsys.readouterr().out) == without_compiler(printed)


TRITON = """
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + column
    x = tl.load(x_ptr + place, mask=column < columns, other=-float("inf"))
    shifted = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + place, shifted / tl.sum(shifted, axis=0), mask=column < columns)
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_triton_kernel(target: str, tmp_path: Path, generator: torch.Generator) -> None:
    (tmp_path / "kernel.py").write_text(TRITON, encoding="utf-8")
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    kernel = emulate.compile_triton(
        tmp_path / "kernel.py", "softmax", target, signature, constants={"BLOCK": 512}
    )
    x, out = torch.randn(30, 500, generator=generator), torch.zeros(30, 500)
    lanes = kernel.metadata.wavefront_size
    emulate.launch(kernel, 30, 4 * lanes, [x, out, 500, 0, 0])
    assert torch.allclose(out.double(), x.double().softmax(1), rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    ("signature", "constants", "said"),
    [
        ({"rows": "i32"}, {}, "softmax has no parameter rows"),
        ({}, {"WIDTH": 1}, "softmax has no parameter WIDTH"),
    ],
)
def test_a_call_that_does_not_fit_a_triton_kernel_is_said(
    signature: dict[str, str], constants: dict[str, int], said: str, tmp_path: Path
) -> None:
    (tmp_path / "kernel.py").write_text(TRITON, encoding="utf-8")
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    with pytest.raises(RequestError, match=said):
        emulate.compile_triton(
            tmp_path / "kernel.py", "softmax", "gfx942", types | signature,
            constants={"BLOCK": 512, **constants},
        )  # fmt: skip


#: The host of a project that takes the folder: nothing but a compiler for this processor.
_HOST = """\
import pathlib, subprocess
INSTALL = "install it"
class ToolError(Exception): pass
hip_code = triton_code = run_attached = AfterImport = run_hidden = None
native_cache = pathlib.Path
def write_atomically(path, content): raise OSError
def compile_native(source, flags, target, folder, output):
    (folder / "x.cpp").write_text(source)
    subprocess.run([*{clang}, *flags, "-c", "-o", folder / "x.o", folder / "x.cpp"], check=True)
    subprocess.run([*{linker}, "-shared", "-o", output, folder / "x.o"], check=True)
"""
_BORROWER = """\
import pathlib, sys, numpy
from contribbot import emulate
kernel = emulate.load(pathlib.Path("code.o").read_bytes())["twice"]
x = numpy.arange(64, dtype=numpy.float32)
emulate.launch(kernel, 1, 64, [x])
others = {name.split(".")[1] for name in sys.modules if name.startswith("contribbot.")}
print(x[63], sorted(others))
"""


def test_another_project_can_take_the_folder(tmp_path: Path) -> None:
    clang = hip_toolchain("gfx942")
    assert isinstance(clang, Toolchain)
    package = tmp_path / "contribbot"
    shutil.copytree(
        Path(emulate.__file__).parent,
        package / "emulate",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (package / "__init__.py").touch()
    host = _HOST.format(clang=[*clang.argv], linker=[*clang.linker])
    (package / "emulator_host.py").write_text(host, encoding="utf-8")
    source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    code = hip_code(
        f"#include <hip/hip_runtime.h>\n{source}",
        "gfx942",
        include=(),
        defines=(),
        standard="c++20",
        torch=False,
    )
    (tmp_path / "code.o").write_bytes(code)
    ran = subprocess.run(
        [sys.executable, "-c", _BORROWER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "126.0 ['emulate', 'emulator_host']\n", ran.stderr


def test_functions_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = FloatMode("gfx942", "cdna", 64, ieee=True, clamp_nan=True, flush=frozenset())
    bodies = ["s[0] = 1;", "s[0] = 2;"]
    made = program._Functions(mode).addresses(bodies)

    def fails(*_: object) -> None:
        raise AssertionError("a compiler is called")

    with monkeypatch.context() as patch:
        patch.setattr(program, "compile_native", fails)
        assert program._Functions(mode).addresses(bodies).keys() == {*made}
        with pytest.raises(AssertionError):
            program._Functions(mode).addresses(["s[0] = 3;"])
        with pytest.raises(AssertionError):
            program._Functions(replace(mode, ieee=False)).addresses(bodies)
    for library in native_cache("").glob("*/*.so"):
        library.unlink()  # its code runs here
        library.write_bytes(b"damaged")
    program._table.cache_clear()
    assert program._Functions(mode).addresses(bodies).keys() == {*made}
