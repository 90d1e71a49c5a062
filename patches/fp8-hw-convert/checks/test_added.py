"""The test that the patch adds to vLLM accepts a kernel that rounds right and refuses others.

Pass-to-pass: it judges the test, which the base has too. The real test file runs on a CPU; vLLM's
two functions that launch the kernels are played by plain torch, right or wrong in one respect.
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import pytest
import torch
from rounding import E4M3FN, E4M3FNUZ, Quantized, Target, quantize

FILE = "tests/kernels/quantization/test_per_token_group_quant.py"
NAME = "test_per_token_group_quant_fp8_rounds_like_torch"
UTILS = "vllm.model_executor.layers.quantization.utils"

targets = pytest.mark.parametrize("target", [E4M3FN, E4M3FNUZ], ids=["e4m3fn", "e4m3fnuz"])

#: What a kernel does to the values before it rounds them right.
Fault = Callable[[torch.Tensor], torch.Tensor]
FAULTS: dict[str, Fault] = {
    # The largest values make the scale, which stays 1.
    "ties away from zero": lambda x: torch.where(x.abs() < 200, x * (1 + 2.0**-20), x),
    "ties towards zero": lambda x: torch.where(x.abs() < 200, x * (1 - 2.0**-20), x),
    "subnormals flushed": lambda x: torch.where(x.abs() < 2.0**-7, 0 * x, x),
    "one value off": lambda x: torch.where(x == 1, 1.125, x),
}


class _Added(Protocol):
    def __call__(self, *, group_size: int, packed: bool, dtype: torch.dtype) -> None: ...


def _load(target: Target, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> _Added:
    """Return the added test, with the kernels played by torch."""

    def quantized(x: torch.Tensor, group_size: int, **_: object) -> tuple[torch.Tensor, ...]:
        result: Quantized = quantize(fault(x.float()), group_size, target)
        return result.values, result.scales

    kernels = types.SimpleNamespace(
        per_token_group_quant_fp8=quantized,
        per_token_group_quant_fp8_packed_for_deepgemm=quantized,
    )
    platform = types.SimpleNamespace(
        device_type="cpu",
        fp8_dtype=lambda: target.dtype,
        is_cuda_alike=lambda: True,
        is_xpu=lambda: False,
    )
    contents: dict[str, dict[str, object]] = {
        "vllm": {},
        UTILS: {"fp8_utils": kernels, "int8_utils": None},
        f"{UTILS}.quant_utils": {"get_fp8_min_max": lambda: (target.low, target.high)},
        "vllm.platforms": {"current_platform": platform},
    }
    for name, names in contents.items():
        module = types.ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    return cast("_Added", runpy.run_path(str(Path(os.environ["CONTRIBBOT_TREE"]) / FILE))[NAME])


def _runs(added: _Added) -> Iterator[Callable[[], None]]:
    """Yield the runs that its own parameters ask for."""
    marks = [mark for mark in vars(added)["pytestmark"] if mark.name == "parametrize"]
    axes = [
        [dict(zip(names.split(","), row if "," in names else (row,), strict=True)) for row in rows]
        for names, rows in (mark.args for mark in marks)
    ]
    for chosen in itertools.product(*axes):
        arguments = {name: value for part in chosen for name, value in part.items()}
        yield partial(added, **arguments)


@targets
def test_a_right_kernel_passes(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list(_runs(_load(target, lambda x: x, monkeypatch)))
    assert len(runs) == 6
    for run in runs:
        run()


@targets
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_fails(target: Target, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in _runs(_load(target, FAULTS[fault], monkeypatch)):
        with pytest.raises(AssertionError):
            run()


def test_a_lost_sign_of_zero_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for run in _runs(_load(E4M3FN, lambda x: x + 0.0, monkeypatch)):
        with pytest.raises(AssertionError):
            run()
