"""AMD machine code on one core, lane-instructions a second, and how many times that on all cores.

The kernel quantises groups of 128 to FP8 (tests/emulated.hip). Lanes that are not active
count as well: hardware spends their time too. Wanted: at least 1,000 million a second.

With the variable TINYGRAD naming a checkout of tinygrad's repository, and `clang` in PATH,
its emulator runs the same code objects: its speed, and the bytes in which results differ.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import shutil
import statistics
import struct
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from contribbot import emulate
from contribbot.emulate.decode import decode

KERNELS = Path(__file__).parent.parent / "tests" / "emulated.hip"
GROUPS = 8192
ROUNDS = 5
FAMILIES = {"gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
#: Instructions on caches, which tinygrad's emulator lacks on RDNA: it gets s_nop instead.
CACHES = re.compile(r"BUFFER_GL[01]_INV|GLOBAL_(INV|WB|WBINV)")
S_NOP = bytes((0, 0, 0x80, 0xBF))
Argument: TypeAlias = "torch.Tensor | int | float"
Emulator: TypeAlias = Callable[..., int]


def integers(*shape: int) -> torch.Tensor:
    """Return zeros."""
    return torch.zeros(shape, dtype=torch.int32)


def cases() -> dict[str, tuple[int, int, list[Argument]]]:
    """Return a launch of each kernel: workgroups, work-items of each, and arguments."""
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (3, 20000)).to(torch.int32).view(torch.float32)
    x = torch.where(bits[2].isfinite(), bits[2], 1.0)[:16384].reshape(128, 128)
    lengths = torch.randint(1, 300, (50,), dtype=torch.int32)
    half = torch.randn(20, 512).half()
    return {
        "quantise": (128, 32, [x, torch.zeros(128, 128, dtype=torch.uint8), torch.zeros(128)]),
        "divide": (79, 256, [bits[0], bits[1], torch.zeros(20000), 20000]),
        "divide64": (4, 256, [bits[0].double()[:999], bits[1].double()[:999],
                              torch.zeros(999, dtype=torch.float64), 999]),
        "softmax": (50, 64, [torch.randn(50, 300), torch.zeros(50, 300), lengths, 300]),
        "reduce": (40, 256, [torch.randint(-99, 99, (40, 256), dtype=torch.int32), integers(40)]),
        "rms_norm": (20, 128, [half, half[0].clone(), torch.zeros(20, 512).half(), 1e-5]),
        "count": (4, 256, [torch.randint(0, 99, (1000,), dtype=torch.int32), integers(8), 1000]),
        "one_place": (1, 128, [integers(1) + 7, integers(128)]),
        "lanes_of_32": (1, 64, [torch.arange(64, dtype=torch.int32), integers(2)]),
        "waves_of_32": (1, 256, [torch.arange(256, dtype=torch.int32), integers(256)]),
        "waves_of_64": (1, 64, [torch.arange(64, dtype=torch.int32), integers(64)]),
        "three_words": (1, 64, [torch.zeros(64), 60, 2.0, 3.0, 1.0]),
        "shift": (1, 64, [integers(64) + 3, torch.arange(64, dtype=torch.int32), integers(64)]),
    }  # fmt: skip


def arguments(kernel: emulate.Kernel, grid: int, block: int, args: list[Argument]) -> bytes:
    """Return the argument buffer, with addresses of this process."""
    hidden = {"block_count_x": grid, "group_size_x": block}
    hidden |= dict.fromkeys(
        ("grid_dims", "block_count_y", "block_count_z", "group_size_y", "group_size_z"), 1
    )
    packed, given = bytearray(kernel.metadata.kernarg_segment_size + 16), iter(args)
    for argument in kernel.metadata.args:
        kind = argument.value_kind
        value = hidden.get(kind[7:], 0) if kind.startswith("hidden_") else next(given)
        value = value.data_ptr() if isinstance(value, torch.Tensor) else value
        number = (
            struct.pack("<f", value) if isinstance(value, float) else value.to_bytes(8, "little")
        )
        packed[argument.offset : argument.offset + argument.size] = number[: argument.size]
    return bytes(packed)


def without_caches(kernel: emulate.Kernel) -> bytes:
    """Return the image in which instructions on caches do nothing."""
    image, place = bytearray(kernel.image), kernel.descriptor.entry
    while place < kernel.end:
        instruction = decode(kernel.image, place, kernel.target)
        following = place + instruction.size
        if CACHES.fullmatch(instruction.name):
            image[place:following] = S_NOP * (instruction.size // len(S_NOP))
        place = following
    return bytes(image)


def with_tinygrad(
    run: Emulator, kernel: emulate.Kernel, grid: int, block: int, args: list[Argument]
) -> float:
    """Launch a kernel in tinygrad's emulator, and return the seconds that it took."""
    packed = ctypes.create_string_buffer(arguments(kernel, grid, block, args))
    image = ctypes.create_string_buffer(without_caches(kernel), len(kernel.image) + 64)
    descriptor = kernel.descriptor
    rsrc2 = descriptor.rsrc2 & ~(511 << 15) | -(-descriptor.group_segment // 512) << 15
    started = time.process_time()
    run(
        ctypes.addressof(image) + descriptor.entry, len(kernel.image), grid, 1, 1, block, 1, 1,
        ctypes.addressof(packed), rsrc2, descriptor.private_segment, FAMILIES[kernel.target],
    )  # fmt: skip
    return time.process_time() - started


def compare(run: Emulator, target: str, name: str) -> str:
    """Say in how many bytes of a kernel's results the two differ."""
    kernel = emulate.compile_hip(KERNELS, target)[name]
    sides = [cases()[name] for _ in range(3)]
    tensors = [[x for x in side[2] if isinstance(x, torch.Tensor)] for side in sides]
    try:
        emulate.launch(kernel, *sides[0])
        with_tinygrad(run, kernel, *sides[1])
    except emulate.KernelError as error:
        return f"a planted fault ({error.fault})"
    except Exception as error:  # noqa: BLE001  whatever it cannot do
        return f"tinygrad's emulator: {type(error).__name__}: {error}"
    differ = total = 0
    for ours, theirs, before in zip(*map(bits, tensors), strict=True):
        if (ours != before).any() or (theirs != before).any():
            differ, total = differ + int((ours != theirs).sum()), total + ours.size
    return f"{differ} of {total} bytes differ"


def bits(tensors: list[torch.Tensor]) -> list[NDArray[np.uint8]]:
    """Return the bytes of tensors."""
    return [tensor.numpy().reshape(-1).view(np.uint8) for tensor in tensors]


def compare_all(run: Emulator) -> None:
    """Print the comparison of every kernel, each in a process of its own."""
    for target in FAMILIES:
        for name in cases():
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
                try:
                    said = pool.submit(compare, run, target, name).result()
                except BrokenProcessPool:
                    said = "tinygrad's emulator crashes"
            print(f"{target} {name}: {said}", flush=True)


def main() -> None:
    """Print the speed on each target, and what translating took."""
    torch.set_num_threads(1)
    run: Emulator | None = None
    if checkout := os.environ.get("TINYGRAD"):
        if not shutil.which("clang"):
            sys.exit("TINYGRAD: its emulator needs `clang` in PATH")  # also to flush subnormals
        sys.path.insert(0, checkout)
        run = importlib.import_module("test.mockgpu.amd.emu").run_asm
    for target in ("gfx942", *FAMILIES):
        kernel = emulate.compile_hip(KERNELS, target)["quantise"]
        x, q = torch.randn(GROUPS, 128), torch.zeros(GROUPS, 128, dtype=torch.uint8)
        scales, speeds = torch.zeros(GROUPS), []
        started = time.perf_counter()  # with the compiler's time
        emulate.launch(kernel, 1, 32, [x, q, scales])
        translating = time.perf_counter() - started
        ratios = []
        for _ in range(ROUNDS):
            os.environ["OMP_NUM_THREADS"] = "1"
            began, started = time.perf_counter(), time.process_time()
            ran = emulate.launch(kernel, GROUPS, 32, [x, q, scales])
            speeds.append(ran.lane_instructions / (time.process_time() - started) / 1e6)
            alone = time.perf_counter() - began
            del os.environ["OMP_NUM_THREADS"]
            began = time.perf_counter()
            emulate.launch(kernel, GROUPS, 32, [x, q, scales])
            ratios.append(alone / (time.perf_counter() - began))
        print(
            f"{target}: {statistics.median(speeds):.0f} million lane-instructions a second, "
            f"{min(speeds):.0f} to {max(speeds):.0f}; on {os.cpu_count()} cores "
            f"{statistics.median(ratios):.2f} times as fast; {translating:.1f} s to translate"
        )
        if run is not None and target in FAMILIES:
            with_tinygrad(run, kernel, 1, 32, [x, q, scales])
            seconds = with_tinygrad(run, kernel, 512, 32, [x, q, scales])
            speed = ran.lane_instructions * 512 / GROUPS / seconds / 1e6
            print(
                f"{target}: {speed:.0f} million in tinygrad's emulator, "
                f"{statistics.median(speeds) / speed:.0f} times fewer"
            )
    if run is not None:
        compare_all(run)


if __name__ == "__main__":
    main()
