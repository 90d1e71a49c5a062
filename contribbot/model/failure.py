"""Failures of a run other than a check's assertions, and the party to blame, without pydantic."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final, Self


class Blame(enum.Enum):
    """The party to blame for a failed run, judged by this run alone."""

    TREE = enum.auto()
    CHECK = enum.auto()
    MACHINE = enum.auto()


_BROKEN: Final = "the check is broken on the {side}: {detail}"
_DIED: Final = "the check did not end well on the {side}: {detail}"
_GAVE_UP: Final = "on the {side}, {detail}"


class RunFailure(enum.StrEnum):
    """A failure of a run: its word in records, the party to blame, and a sentence for people."""

    blame: Blame
    sentence: str

    def __new__(cls, word: str, blame: Blame, sentence: str = _BROKEN) -> Self:
        """Return a member with a word, the party to blame and a sentence to format."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.blame, member.sentence = blame, sentence
        return member

    TIMED_OUT = "timed out", Blame.TREE, _DIED
    #: The run ended without a result of pytest, or wrote too much output.
    CRASHED = "crashed", Blame.TREE, _DIED
    FIXTURE = "fixture", Blame.TREE
    #: The tree imports a name that its module lacks, or a module that is not valid Python.
    OWN_IMPORT = "own import", Blame.TREE, "the {side} imports what it does not have: {detail}"
    #: The check has a mistake, or lacks a file or module that it needs.
    MISTAKE = "check", Blame.CHECK
    IMPORTS = "imports", Blame.CHECK, "the {side} imports what is not installed here: {detail}"
    NETWORK = "network", Blame.CHECK, "it needs the network on the {side}: {detail}"
    READ_ONLY = "read-only", Blame.CHECK, "it writes where no check may on the {side}: {detail}"
    #: Emulated code has an instruction that the emulator does not know.
    UNMODELLED = "unmodelled", Blame.CHECK, "on the {side} it is not known: {detail}"
    #: The pytest session was stopped before all tests had run.
    STOPPED = "stopped", Blame.CHECK
    EMPTY = "empty", Blame.CHECK
    #: The check wrote into the tree, or a report that cannot be read.
    MEDDLED = "meddled", Blame.CHECK, _DIED
    NOT_VISIBLE = "gpu-not-visible", Blame.MACHINE, _GAVE_UP
    HUNG = "gpu-hung", Blame.MACHINE, _GAVE_UP
    MEMORY_FAULT = "memory-fault", Blame.MACHINE, _GAVE_UP
    HIP_ERROR = "hip-error", Blame.MACHINE, _GAVE_UP
    NO_MEMORY = "out-of-memory", Blame.MACHINE, _GAVE_UP
    DISK_FULL = "disk-full", Blame.MACHINE, _GAVE_UP
    DRIVER = "driver-mismatch", Blame.MACHINE, _GAVE_UP
    PREFLIGHT = "preflight-failed", Blame.MACHINE, _GAVE_UP


#: Failures that an exception of the check or tree shows, and that say nothing about the patch.
RAISED: Final = frozenset(
    {
        RunFailure.OWN_IMPORT,
        RunFailure.MISTAKE,
        RunFailure.IMPORTS,
        RunFailure.NETWORK,
        RunFailure.READ_ONLY,
        RunFailure.UNMODELLED,
    }
)

#: Patterns of error messages for each fault of a machine, the most specific fault first: a later
#: message is often a consequence of an earlier fault.
SIGNATURES: Final[dict[RunFailure, tuple[str, ...]]] = {
    RunFailure.DRIVER: (
        # hip/hip_runtime_api.h (35), CUDA Runtime API (cudaError, 35).
        r"(?:CUDA|HIP) driver version is insufficient|(?:cuda|hip)ErrorInsufficientDriver",
        # NVML API (NVML_ERROR_LIB_RM_VERSION_MISMATCH), as nvidia-smi prints it.
        r"Driver/library version mismatch",
        # PyTorch, c10/cuda; CUDA Runtime API (cudaError, 804).
        r"NVIDIA driver on your system is too old",
        r"forward compatibility was attempted on non supported HW",
    ),
    RunFailure.NOT_VISIBLE: (
        # CUDA Runtime API (cudaError, 100); HIP documentation, error codes (100).
        r"no (?:CUDA|ROCm)-capable device|(?:cuda|hip)ErrorNoDevice\b",
        # PyTorch, c10/cuda.
        r"[Nn]o (?:CUDA|HIP) GPUs are available",
        # rocminfo.
        r"Unable to open /dev/kfd read-write|ROCk module is NOT loaded",
        # CUDA Runtime API (cudaError, 46); NVML API (NVML_ERROR_GPU_IS_LOST); NVIDIA Xid 79.
        r"device\(s\) is/are busy or unavailable|GPU is lost|has fallen off the bus",
    ),
    RunFailure.MEMORY_FAULT: (
        # ROCR-Runtime, its handler of faults in virtual memory; quoted in many reports.
        r"Memory access fault by GPU node",
        # hsa/hsa_ext_amd.h (41, 43).
        r"HSA_STATUS_ERROR_MEMORY_(?:FAULT|APERTURE_VIOLATION)",
        # CUDA Runtime API (cudaError, 700, 716); hip/hip_runtime_api.h (700).
        r"an illegal memory access was encountered|(?:cuda|hip)ErrorIllegalAddress",
        r"misaligned address|cudaErrorMisalignedAddress",
    ),
    RunFailure.HUNG: (
        # ROCR-Runtime, its handler of hardware exceptions; ROCm/rocm-libraries#8847.
        r"HW Exception by GPU node.*reason\s*:\s*GPU Hang",
        # CUDA Runtime API (cudaError, 702); hip/hip_runtime_api.h (702).
        r"the launch timed out and was terminated|(?:cuda|hip)ErrorLaunchTime[Oo]ut",
    ),
    RunFailure.NO_MEMORY: (
        # PyTorch, c10/cuda; hip/hip_runtime_api.h (2); CUDA Runtime API (cudaError, 2).
        r"(?:CUDA|HIP)(?: error:)? out of memory|hipErrorOutOfMemory",
        r"(?:cuda|hip)ErrorMemoryAllocation|Triton Error \[(?:CUDA|HIP)\]: .*out of memory",
        r"(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED",
        # hsa/hsa.h (0x1008).
        r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        # PyTorch, c10/core/impl and torch/utils/data; Python; C and C++ libraries.
        r"DefaultCPUAllocator: (?:not enough|can't allocate) memory|^MemoryError\b",
        r"[Cc]annot allocate memory|std::bad_alloc|out of shared memory",
    ),
    RunFailure.HIP_ERROR: (
        # hip/hip_runtime_api.h (209); clr, hip_code_object.cpp.
        r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices",
        # CUDA Runtime API (cudaError, 209).
        r"no kernel image is available for execution",
        # hsa/hsa.h, hsa/hsa_ext_amd.h.
        r"HSA_STATUS_ERROR\b|HSA_STATUS_ERROR_[A-Z_]+",
        # CUDA Runtime API (cudaError, 214); hip/hip_runtime_api.h (214).
        r"uncorrectable ECC error|(?:cuda|hip)ErrorECC\w+",
        # CUDA Runtime API (cudaError); hip/hip_runtime_api.h (hipError_t); Triton, driver.c.
        r"unspecified launch failure|(?:CUDA|HIP)(?: driver)? error: ",
        r"Triton Error \[(?:CUDA|HIP)\]|\b(?:cuda|hip)Error[A-Z]\w+",
    ),
}


#: The number of characters to search at each end of a line.
_LONGEST: Final = 10_000


def sign_in(texts: Iterable[str]) -> tuple[RunFailure, str] | None:
    """Return the most specific fault whose message is in some texts, and the message's line."""
    # Search long lines only at their ends, and equal lines once: floods of output take seconds.
    lines = (row.strip() for text in texts for row in text.splitlines())
    rows = dict.fromkeys(part for row in lines for part in (row[:_LONGEST], row[-_LONGEST:]))
    return next(
        (
            (kind, row)
            for kind, patterns in SIGNATURES.items()
            for pattern in patterns
            for row in rows
            if re.search(pattern, row)
        ),
        None,
    )
