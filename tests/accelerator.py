"""A second device for torch, without a GPU: its tensors are kept, and computed, by the CPU.

It is torch's PrivateUse1 back end, registered from Python: autograd, its threads and the
dispatcher treat it as they treat a GPU.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import Tensor

DEVICE: Final = "standin"
_SOME: Final = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch's
_ALL: Final = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]  # torch's


#: What torch otherwise puts together from others that ask for memory of the device's.
_COMPOSED: Final = (
    "abs", "alias", "as_strided", "detach", "expand", "permute", "select.int", "slice.Tensor",
    "squeeze", "squeeze.dim", "t", "transpose.int", "unsqueeze", "view", "_reshape_alias",
)  # fmt: skip


def _raw(value: Any) -> Any:
    if isinstance(value, Tensor):
        return vars(value)["raw"] if value.device.type == DEVICE else value
    if isinstance(value, list | tuple):
        return type(value)(map(_raw, value))
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _kept(value: Any, given: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        if id(value) in given:
            return given[id(value)]
        made = torch._C._acc.create_empty_tensor(tuple(value.shape), value.dtype)
        vars(made)["raw"] = value
        return made
    return (
        type(value)(_kept(each, given) for each in value)
        if isinstance(value, list | tuple)
        else value
    )


def _run(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on what the CPU keeps."""
    if op._schema.name == "aten::_copy_from":
        _raw(args[1]).copy_(_raw(args[0]))
        return args[1]
    given = {
        id(vars(t)["raw"]): t for t in _flat([args, *kwargs.values()]) if t.device.type == DEVICE
    }
    result = op(*_raw(args), **{name: _raw(value) for name, value in kwargs.items()})
    return _kept(result, given) if op._schema.name != "aten::_local_scalar_dense" else result


def _flat(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _flat(value)
    return found


@functools.cache
def register() -> str:
    """Register the device once a process, and return its type."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(rename=DEVICE)
    _ALL.fallback(_run, "PrivateUse1")  # type: ignore[no-untyped-call]  # torch's
    for name in _COMPOSED:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        run = functools.partial(_run, op)
        _SOME.impl(name, run, "PrivateUse1")  # type: ignore[no-untyped-call]  # torch's
    return DEVICE
