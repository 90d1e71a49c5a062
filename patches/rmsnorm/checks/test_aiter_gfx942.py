"""RMSNorm on the real aiter, on an AMD GPU of the gfx942 family, for every layout.

Fail-to-pass: on the base the Q and K views read out of bounds (sglang#23974 reports a
memory fault that ends the process). Each layout therefore runs in a process of its own,
and all of them make one test: which of the others fail on the base depends on the aiter.

The rest of SGLang is replaced as in the other checks; aiter is the installed one.
"""

from __future__ import annotations

import subprocess
import sys

import torch
from norm_cases import LAYOUTS, Inputs, Make, assert_right
from sglang_tree import load_layernorm, make_norm

#: fp32 is left out: aiter's HIP kernels write fp16 and bf16 only.
DTYPES = (torch.bfloat16, torch.float16)
REAL = {"real q view": 0, "real k view": 1}
#: Seconds; the first layout may wait for aiter to build its kernels.
PATIENCE = 600


def _require_gfx942() -> None:
    """Say what is missing.

    Raises:
        RuntimeError: There is no ROCm build of torch, or no gfx942.
    """
    if torch.version.hip is None:
        raise RuntimeError(f"needs an AMD gfx942: torch {torch.__version__} is no ROCm build")
    if not torch.cuda.is_available():
        raise RuntimeError("needs an AMD gfx942: torch sees no GPU")
    found = torch.cuda.get_device_properties(0).gcnArchName
    if not found.startswith("gfx942"):
        raise RuntimeError(f"needs an AMD gfx942: this is {found}")


def _inputs(layout: str, make: Make) -> Inputs:
    if layout in REAL:
        return Inputs(make.packed_qk(2048, (32, 8), 128)[REAL[layout]])
    return LAYOUTS[layout](make)


def run(layout: str, device: str) -> None:
    """Run one layout in both dtypes and judge the results.

    Raises:
        AssertionError: A result is wrong.
    """
    for dtype in DTYPES:
        inputs = _inputs(layout, Make(dtype, device))
        norm = make_norm(load_layernorm(None), inputs.x.shape[-1], dtype, device)
        with torch.inference_mode():
            result = norm.forward(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        assert_right(norm, inputs, result)


def _complaint(layout: str) -> str | None:
    """Run one layout in a new process; return how it failed, if it did."""
    try:
        ended = subprocess.run(  # noqa: S603  this interpreter, this file
            [sys.executable, __file__, layout],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{layout}: not finished after {PATIENCE} s"
    if ended.returncode == 0:
        return None
    said = ended.stderr.strip().splitlines() or ["it said nothing"]
    code = ended.returncode
    how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    return f"{layout}: {how}: {said[-1]}"


def test_every_layout_on_the_real_aiter() -> None:
    _require_gfx942()
    complaints = [text for layout in (*REAL, *LAYOUTS) if (text := _complaint(layout))]
    assert not complaints, "\n".join(["aiter on gfx942:", *complaints])


if __name__ == "__main__":
    run(sys.argv[1], "cuda")
