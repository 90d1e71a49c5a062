"""What puts the emulated GPU in place in a program: Python's `sitecustomize` calls it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from types import ModuleType
from typing import Final

from contribbot.emulate import outcomes
from contribbot.errors import ContribbotError, ExitCode, MachineError, install
from contribbot.fallback.after_import import AfterImport, run_hidden

#: Holds the GPU to the end of the process.
_STACK: Final = contextlib.ExitStack()


def _end() -> None:
    """Tell what ended the program, if that is none of its own, and take the GPU away."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, MachineError):
        outcomes.RECORD.ended(error)
    _STACK.close()


def start(target: str, folder: str) -> None:
    """Emulate a target from torch's import to the program's end; the folder has `sitecustomize`."""
    outcomes.write(kind="started")

    def begin(_torch: ModuleType) -> None:
        # Once torch is there: it takes seconds to import, and not every process wants it.
        try:
            from contribbot.emulate.device import device  # noqa: PLC0415  see above

            _STACK.enter_context(device(target))
        except Exception as error:  # noqa: BLE001  of any version of torch and triton
            if isinstance(error, ContribbotError):
                said = error.message + (f"; {error.hint}" if error.hint else "")
            else:
                said = f"{type(error).__name__}: {error}; {install('emulate')}"
            outcomes.write(kind="error", error=said)
            sys.stderr.flush()
            os._exit(ExitCode.MACHINE)  # nothing of the program may run as if it were emulated

    atexit.register(_end)
    AfterImport("torch", begin)
    run_hidden(folder)
