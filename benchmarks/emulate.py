"""AMD machine code on one core: lane-instructions a second, once a kernel is translated.

The kernel quantises groups of 128 to FP8 (tests/emulated.hip). Lanes that are not active
count as well: hardware spends their time too. Wanted: at least 50 million a second.

With the variable TINYGRAD naming a checkout of tinygrad's repository, its emulator runs the
same code objects: its speed, and the bytes of every kernel in which the two differ.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from contribbot import emulate
from contribbot.emulate.launch import _pack  # the same arguments for both
from contribbot.emulate.machine import Memory

KERNELS = Path(__file__).parent.parent / "tests" / "emulated.hip"
GROUPS = 8192
ROUNDS = 5
FAMILIES = {"gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
Emulator = Callable[..., int]


def integers(*shape: int) -> torch.Tensor:
    """Return zeros."""
    return torch.zeros(shape, dtype=torch.int32)


def cases() -> dict[str, tuple[int, int, list[emulate.Argument]]]:
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
    }  # fmt: skip


def with_tinygrad(
    run: Emulator, kernel: emulate.Kernel, grid: int, block: int, args: list[emulate.Argument]
) -> float:
    """Launch a kernel in tinygrad's emulator, which takes addresses of this process."""
    tensors, packed = _pack(kernel, Memory(), args, (grid, 1, 1), (block, 1, 1), 0)
    words = packed.view(np.uint64)
    for tensor in tensors:
        for place in np.flatnonzero(words == tensor.buffer.base):
            words[place] = tensor.content.ctypes.data
    image = ctypes.create_string_buffer(kernel.image, len(kernel.image) + 64)
    descriptor = kernel.descriptor
    rsrc2 = descriptor.rsrc2 & ~(511 << 15) | -(-descriptor.group_segment // 512) << 15
    started = time.process_time()
    run(
        ctypes.addressof(image) + descriptor.entry, len(kernel.image), grid, 1, 1, block, 1, 1,
        packed.ctypes.data, rsrc2, descriptor.private_segment, FAMILIES[kernel.target],
    )  # fmt: skip
    return time.process_time() - started


def compare(run: Emulator) -> None:
    """Print in how many bytes the two differ, kernel by kernel."""
    for target in FAMILIES:
        kernels = emulate.compile_hip(KERNELS, target)
        for name, (grid, block, given) in cases().items():
            pair = [[x.clone() if isinstance(x, torch.Tensor) else x for x in given] for _ in "ab"]
            emulate.launch(kernels[name], grid, block, pair[0])
            try:
                with_tinygrad(run, kernels[name], grid, block, pair[1])
            except Exception as error:  # noqa: BLE001  whatever it cannot do
                print(f"{target} {name}: {type(error).__name__}: {str(error)[:60]}")
                continue
            bytes_of = [
                np.concatenate([x.numpy().reshape(-1).view(np.uint8) for x in side
                                if isinstance(x, torch.Tensor)]) for side in pair
            ]  # fmt: skip
            differ = int((bytes_of[0] != bytes_of[1]).sum())
            print(f"{target} {name}: {differ} of {bytes_of[0].size} bytes differ")


def main() -> None:
    """Print the speed on each target, and what translating took."""
    torch.set_num_threads(1)
    run: Emulator | None = None
    if checkout := os.environ.get("TINYGRAD"):
        sys.path.insert(0, checkout)
        run = importlib.import_module("test.mockgpu.amd.emu").run_asm
    for target in ("gfx942", "gfx950", "gfx1201"):
        kernel = emulate.compile_hip(KERNELS, target)["quantise"]
        x, q = torch.randn(GROUPS, 128), torch.zeros(GROUPS, 128, dtype=torch.uint8)
        scales, speeds = torch.zeros(GROUPS), []
        started = time.process_time()
        emulate.launch(kernel, 1, 32, [x, q, scales])
        translating = time.process_time() - started
        for _ in range(ROUNDS):
            started = time.process_time()
            ran = emulate.launch(kernel, GROUPS, 32, [x, q, scales])
            speeds.append(ran.lane_instructions / (time.process_time() - started) / 1e6)
        print(
            f"{target}: {statistics.median(speeds):.0f} million lane-instructions a second, "
            f"{min(speeds):.0f} to {max(speeds):.0f}; {translating:.1f} s to translate"
        )
        if run is not None and target in FAMILIES:
            with_tinygrad(run, kernel, 1, 32, [x, q, scales])
            seconds = with_tinygrad(run, kernel, 512, 32, [x, q, scales])
            speed = ran.lane_instructions * 512 / GROUPS / seconds / 1e6
            print(f"{target}: {speed:.0f} million in tinygrad's emulator")
    if run is not None:
        compare(run)


if __name__ == "__main__":
    main()
