"""Showing one GPU of several to a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from contribbot.errors import MachineError

_CUDA: Final = "CUDA_VISIBLE_DEVICES"
#: HIP reads CUDA's variable where its own is empty (ROCm, "GPU isolation techniques"). Both
#: count within what `ROCR_VISIBLE_DEVICES` leaves, which stays as it is.
_HIP: Final = ("HIP_VISIBLE_DEVICES", _CUDA)


def only(index: int, count: int, *, hip: bool, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that leave one visible of the GPUs that are visible now."""
    names = _HIP if hip else (_CUDA,)
    name = next((one for one in names if environment.get(one)), "")
    if not name:
        return dict.fromkeys(names, str(index)) if count > 1 else {}
    given = [one.strip() for one in environment[name].split(",")]
    if index >= len(given):
        raise MachineError(
            f"{name}={environment[name]}: torch sees {count} GPUs",
            hint=f"name each GPU once in {name}, or unset it",
        )
    # Both, and the same: some programs refuse to run where they differ.
    return dict.fromkeys(names, given[index])
