"""AMD machine code on one core: lane-instructions a second, once a kernel is translated.

The kernel quantises groups of 128 to FP8 (tests/emulated.hip). Lanes that are not active
count as well: hardware spends their time too. Wanted: at least 50 million a second.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from contribbot import emulate

KERNELS = Path(__file__).parent.parent / "tests" / "emulated.hip"
GROUPS = 8192
ROUNDS = 5


def main() -> None:
    """Print the speed on each target, and what translating took."""
    torch.set_num_threads(1)
    for target in ("gfx942", "gfx1201"):
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


if __name__ == "__main__":
    main()
