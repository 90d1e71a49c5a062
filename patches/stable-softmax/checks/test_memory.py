"""Memory: without autograd, at most twice that of scores in half precision.

Pass-to-pass on a CPU: what the base needs is the measure, written out here. Counted are the
bytes of the storages that are alive after each operator.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from attention import HALVES, draw, with_weights
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LENGTH = 512
#: 2 batches of 4 heads.
SCORES = 8 * LENGTH * LENGTH


class Meter(TorchDispatchMode):
    """Counts the bytes that operators allocate, as long as they live.

    Attributes:
        peak: The most bytes that were alive at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive = 0
        self._known: dict[int, int] = {}

    def _forget(self, key: int) -> None:
        self._alive -= self._known.pop(key, 0)

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001  a storage's identity
        if key in self._known:
            return
        self._known[key] = storage.nbytes()
        self._alive += storage.nbytes()
        self.peak = max(self.peak, self._alive)
        weakref.finalize(storage, self._forget, key)

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run an operator and count what it returns."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        return result


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "each head"])
def test_peak(dtype: torch.dtype, kind: str) -> None:
    inputs = draw("cpu", dtype, 1.0, length=LENGTH, head_dim=16)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    each = torch.randn(8, LENGTH, LENGTH).to(dtype)
    mask = {"plain": None, "causal": causal, "each head": each}[kind]
    meter = Meter()
    with torch.no_grad(), meter:
        with_weights(*inputs, attn_mask=mask)
    # The base has scores and weights at once, both in half precision.
    base = 2 * SCORES * dtype.itemsize
    assert SCORES * dtype.itemsize <= meter.peak <= 2 * base
