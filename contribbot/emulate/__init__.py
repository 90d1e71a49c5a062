"""AMD machine code, executed on a processor by the vendor's description of each instruction.

What comes out is what AMD's documents say, not what a chip did (docs/emulate.md).
"""

from contribbot.emulate.code_object import Kernel, compile_hip, compile_triton, load
from contribbot.emulate.faults import KernelError, SourceLocation, UnmodelledError
from contribbot.emulate.launch import Argument, Launched, Uninitialised, launch

__all__ = [
    "Argument",
    "Kernel",
    "KernelError",
    "Launched",
    "SourceLocation",
    "Uninitialised",
    "UnmodelledError",
    "compile_hip",
    "compile_triton",
    "launch",
    "load",
]
