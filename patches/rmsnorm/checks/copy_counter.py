"""Counts the tensors that the code under test copies."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch
from aiter_standin import OWN_WORK
from torch.autograd.profiler_util import FunctionEvent

#: What `contiguous`, `clone` and a `reshape` that cannot be a view all end up in.
_COPYING = "aten::copy_"


class CopyCounter:
    """While it is active, counts copies other than the stand-in's own.

    It reads torch's profiler. A dispatch mode would see the same, and cost a second for
    importing torch's compiler.

    Attributes:
        copies: How many; there when the block has ended.
    """

    def __init__(self) -> None:
        self.copies = 0
        self._profile = torch.autograd.profiler.profile(use_kineto=False)

    def __enter__(self) -> Self:
        """Start to count."""
        self._profile.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and count."""
        self._profile.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]  # the same
        events = self._profile.function_events or []
        self.copies = sum(event.name == _COPYING and not _own(event) for event in events)


def _own(event: FunctionEvent) -> bool:
    """Say whether the stand-in did it."""
    around: FunctionEvent | None = event
    while around is not None and around.name != OWN_WORK:
        around = around.cpu_parent
    return around is not None
