"""Work of an entry with `compile = true`, run with torch.compile; torch is imported late."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final, TypeVar

#: Set by the stages for the processes of such an entry.
VARIABLE: Final = "CONTRIBBOT_COMPILE"
COMPILED: Final = "compiled with torch.compile"
_SHORT: Final = 200
ResultT = TypeVar("ResultT")


def environment(*, asked: bool) -> dict[str, str]:
    """Return the variable that makes an entry's processes use torch.compile, if `asked`."""
    return {VARIABLE: "1"} if asked else {}


def compiled(work: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """Return work compiled anew by torch.compile if the variable is set, or else the same work."""
    if not os.environ.get(VARIABLE):
        return work
    import torch  # noqa: PLC0415  see above

    # Earlier shapes make later shapes dynamic, and torch stops compiling after eight shapes.
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()  # noqa: SLF001  nothing public counts
    done: Callable[..., ResultT] = torch.compile(work)
    return done


def not_compiled() -> str:
    """Return why the work that was compiled last ran uncompiled; empty: the work ran compiled."""
    if not os.environ.get(VARIABLE):
        return ""
    import torch  # noqa: PLC0415  see above

    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]  # noqa: SLF001  as above
    return "" if graphs else "torch.compile finds nothing in it to compile: leave out `compile`"


def lacking(error: BaseException, device: str) -> str:
    """Return why torch.compile does not work here, if the error is torch.compile's; else empty."""
    its_own = any(kind.__module__ == "torch._dynamo.exc" for kind in type(error).__mro__)
    return _trouble(device) if its_own else ""


@functools.cache
def _trouble(device: str) -> str:
    import torch  # noqa: PLC0415  see above

    try:
        torch.compiler.reset()
        torch.compile(torch.neg)(torch.ones(2, device=device))
    except Exception as error:  # noqa: BLE001  compilers and drivers may raise anything
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"torch.compile does not work here: {type(error).__name__}: {said[:_SHORT]}"
    return ""
