"""Counts the tensors that the code under test copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from aiter_standin import recorder
from torch.utils._python_dispatch import TorchDispatchMode

#: What `contiguous`, `clone`, a `reshape` that cannot be a view and `copy_` end up as.
_COPYING = {torch.ops.aten.clone.default, torch.ops.aten.copy_.default}


class CopyCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While it is active, counts copies other than the stand-in's own.

    Attributes:
        copies: How many so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.copies = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in _COPYING and not recorder.busy:
            self.copies += 1
        return func(*args, **(kwargs or {}))
