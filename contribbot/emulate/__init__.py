"""Execute AMD GPU machine code on the CPU, as AMD's documents describe each instruction.

The results follow AMD's documents, not a measured chip (docs/emulate.md). `compile_hip`,
`compile_triton` and `load` return kernels, and `launch` executes a kernel on arrays of this
process. `device` makes an emulated GPU torch's `cuda` in this process, `run` in another program.
Sizes are in bytes, work-items and workgroups. The base class of all errors is `EmulatorError`:
`KernelError` for a kernel that breaks a rule, `RequestError` for a call that does not fit, and
`NoResultError` if no result follows; its subclass `UnmodelledError` names an unmodelled feature.
"""

from typing import Final

from contribbot.emulate.code_object import Kernel, code_of, compile_hip, compile_triton, load
from contribbot.emulate.decode import TABLES
from contribbot.emulate.dispatch import Argument, Launched, Uninitialised, launch
from contribbot.emulate.emulation import (
    EmulationReport,
    TargetRun,
    device,
    exit_code,
    obstacles,
    run,
)
from contribbot.emulate.errors import (
    EmulatorError,
    KernelError,
    NoResultError,
    NotEmulatedError,
    RequestError,
    SourceLocation,
    UnmodelledError,
)
from contribbot.emulate.gpu import EmulatedGpu, active_gpu
from contribbot.emulate.outcomes import OUTCOMES, LaunchRecord, TestRow

#: The targets that the emulator has a model of.
TARGETS: Final = tuple(TABLES)

__all__ = [
    "OUTCOMES",
    "TARGETS",
    "Argument",
    "EmulatedGpu",
    "EmulationReport",
    "EmulatorError",
    "Kernel",
    "KernelError",
    "LaunchRecord",
    "Launched",
    "NoResultError",
    "NotEmulatedError",
    "RequestError",
    "SourceLocation",
    "TargetRun",
    "TestRow",
    "Uninitialised",
    "UnmodelledError",
    "active_gpu",
    "code_of",
    "compile_hip",
    "compile_triton",
    "device",
    "exit_code",
    "launch",
    "load",
    "obstacles",
    "run",
]
