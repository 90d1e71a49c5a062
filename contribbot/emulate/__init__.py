"""AMD machine code, executed on a processor by the vendor's description of each instruction.

The results follow AMD's documents, not a measured chip (docs/emulate.md). `compile_hip`,
`compile_triton` and `load` give kernels, and `launch` executes one on arrays of this process;
`device` puts an emulated GPU in the place of torch's `cuda`, and `run` does so for a program.
Sizes are in bytes, work-items and workgroups. A kernel that breaks a rule raises `KernelError`,
a call that does not fit `RequestError`, and where no result follows `NoResultError`: of these a
gap of the model is an `UnmodelledError`. The root of all is `EmulatorError`.
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

#: The targets that are modelled.
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
