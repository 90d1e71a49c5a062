"""Devices of this machine, and references in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def devices() -> list[str]:
    """Return the devices that tensors can be on here: `cpu`, and `cuda` where a GPU answers.

    A check runs on one kind of machine, which `requires` in `patch.toml` states. So a
    pass-to-pass check that asks for devices has other tests on another machine.
    """
    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def in_double(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Return what a function makes of its arguments with every floating tensor in float64.

    Args:
        function: The reference, in plain torch; not the code under test.
        *args: Its arguments; tensors of another kind stay as they are.
        **kwargs: The same by name.

    Returns:
        Its result, for `torch.testing.assert_close` after the cast to the dtype under test.
        Where what is allowed shall follow from the precision, use `contribbot.numerics`.
    """

    def widen(value: object) -> object:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if isinstance(value, torch.Tensor) and floating else value

    return function(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})
