"""What a runner does wrong, told from what a patch does wrong.

Some words say what happened and not whose fault it was: a memory fault on a GPU can be
exactly what a patch causes, or mends. So words alone decide nothing. After them a kernel
that is known to be good runs again in a process of its own (`preflight`): where it fails
too, the runner is at fault, and nothing was learned of the patch; where it passes, the
fault is the check's own and counts as what it is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue, ValidationError

from contribbot.hardware.runner import absent_gpu
from contribbot.model.evidence import FaultKind, RunnerFault
from contribbot.model.outcome import ON_HARDWARE, Outcome, StageResult
from contribbot.verify.childrun import CheckRun, Trouble

#: Characters of a line that are quoted.
_QUOTED: Final = 300
#: What a run's trouble may be put down to, whatever it wrote.
_KINDS: Final[dict[Trouble, FaultKind]] = {
    Trouble.DISK_FULL: "disk-full", Trouble.NO_MEMORY: "out-of-memory",
    Trouble.TIMED_OUT: "gpu-hung",
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """Words by which a fault makes itself known.

    Attributes:
        kind: What kind of fault.
        pattern: The words.
        source: Where they come from.
    """

    kind: FaultKind
    pattern: re.Pattern[str]
    source: str


def _row(kind: FaultKind, pattern: str, source: str) -> Signature:
    return Signature(kind, re.compile(pattern), source)


#: The most telling first: what lies further down often follows from what lies above.
SIGNATURES: Final = (
    _row("driver-mismatch",
         r"(?:CUDA|HIP) driver version is insufficient|(?:cuda|hip)ErrorInsufficientDriver",
         "hip/hip_runtime_api.h (35), CUDA Runtime API (cudaError, 35)"),
    _row("driver-mismatch", r"Driver/library version mismatch",
         "NVML API (NVML_ERROR_LIB_RM_VERSION_MISMATCH), as nvidia-smi prints it"),
    _row("driver-mismatch",
         r"NVIDIA driver on your system is too old"
         r"|forward compatibility was attempted on non supported HW",
         "PyTorch, c10/cuda; CUDA Runtime API (cudaError, 804)"),
    _row("gpu-not-visible",
         r"no (?:CUDA|ROCm)-capable device|(?:cuda|hip)ErrorNoDevice\b",
         "CUDA Runtime API (cudaError, 100); HIP documentation, error codes (100)"),
    _row("gpu-not-visible", r"[Nn]o (?:CUDA|HIP) GPUs are available", "PyTorch, c10/cuda"),
    _row("gpu-not-visible",
         r"Unable to open /dev/kfd read-write|ROCk module is NOT loaded", "rocminfo"),
    _row("gpu-not-visible",
         r"device\(s\) is/are busy or unavailable|GPU is lost|has fallen off the bus",
         "CUDA Runtime API (cudaError, 46); NVML API (NVML_ERROR_GPU_IS_LOST); NVIDIA Xid 79"),
    _row("memory-fault", r"Memory access fault by GPU node",
         "ROCR-Runtime, its handler of faults in virtual memory; quoted in many reports"),
    _row("memory-fault", r"HSA_STATUS_ERROR_MEMORY_(?:FAULT|APERTURE_VIOLATION)",
         "hsa/hsa_ext_amd.h (41, 43)"),
    _row("memory-fault",
         r"an illegal memory access was encountered|(?:cuda|hip)ErrorIllegalAddress"
         r"|misaligned address|cudaErrorMisalignedAddress",
         "CUDA Runtime API (cudaError, 700, 716); hip/hip_runtime_api.h (700)"),
    _row("gpu-hung", r"HW Exception by GPU node.*reason\s*:\s*GPU Hang",
         "ROCR-Runtime, its handler of hardware exceptions; ROCm/rocm-libraries#8847"),
    _row("gpu-hung",
         r"the launch timed out and was terminated|(?:cuda|hip)ErrorLaunchTime[Oo]ut",
         "CUDA Runtime API (cudaError, 702); hip/hip_runtime_api.h (702)"),
    _row("out-of-memory",
         r"(?:CUDA|HIP)(?: error:)? out of memory|hipErrorOutOfMemory"
         r"|(?:cuda|hip)ErrorMemoryAllocation|Triton Error \[(?:CUDA|HIP)\]: .*out of memory"
         r"|(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED",
         "PyTorch, c10/cuda; hip/hip_runtime_api.h (2); CUDA Runtime API (cudaError, 2)"),
    _row("out-of-memory", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES", "hsa/hsa.h (0x1008)"),
    _row("out-of-memory",
         r"DefaultCPUAllocator: (?:not enough|can't allocate) memory|^MemoryError\b"
         r"|[Cc]annot allocate memory|std::bad_alloc|out of shared memory",
         "PyTorch, c10/core/impl and torch/utils/data; Python; C and C++ libraries"),
    _row("hip-error", r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices",
         "hip/hip_runtime_api.h (209); clr, hip_code_object.cpp"),
    _row("hip-error", r"no kernel image is available for execution",
         "CUDA Runtime API (cudaError, 209)"),
    _row("hip-error", r"HSA_STATUS_ERROR\b|HSA_STATUS_ERROR_[A-Z_]+",
         "hsa/hsa.h, hsa/hsa_ext_amd.h"),
    _row("hip-error", r"uncorrectable ECC error|(?:cuda|hip)ErrorECC\w+",
         "CUDA Runtime API (cudaError, 214); hip/hip_runtime_api.h (214)"),
    _row("hip-error",
         r"unspecified launch failure|(?:CUDA|HIP)(?: driver)? error: "
         r"|Triton Error \[(?:CUDA|HIP)\]|\b(?:cuda|hip)Error[A-Z]\w+",
         "CUDA Runtime API (cudaError); hip/hip_runtime_api.h (hipError_t); Triton, driver.c"),
)  # fmt: skip


class RunnerFaultError(Exception):
    """The runner is at fault, so that nothing can be learned of a patch here.

    Attributes:
        fault: What is wrong.
        preflight: What the known-good kernel came to, for the record.
    """

    def __init__(self, fault: RunnerFault, preflight: dict[str, JsonValue]) -> None:
        super().__init__(f"runner fault ({fault.kind}): {fault.said}")
        self.fault = fault
        self.preflight = preflight

    @property
    def details(self) -> dict[str, JsonValue]:
        """What the record keeps."""
        return {"runner_fault": self.fault.model_dump(), "preflight": self.preflight}


def sign_in(texts: Iterable[str]) -> RunnerFault | None:
    """Return what the words of some texts point to, by the most telling of them; or None."""
    rows = [row.strip() for text in texts for row in text.splitlines()]
    for signature in SIGNATURES:
        for row in rows:
            if signature.pattern.search(row):
                return fault(signature.kind, row)
    return None


def fault(kind: FaultKind, said: str) -> RunnerFault:
    """Return a fault with what was seen in one line."""
    line = next((row.strip() for row in said.splitlines() if row.strip()), "nothing was said")
    return RunnerFault(kind=kind, said=line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…")


def suspicion(run: CheckRun, output: str) -> RunnerFault | None:
    """Say what in a run could be the runner's doing; None where nothing could."""
    kind: FaultKind | None = _KINDS.get(run.trouble) if run.trouble else None
    if kind is not None:
        return fault(kind, run.told)
    if run.trouble is None and not run.failed:
        return None
    found = sign_in((*(one.message for one in run.failed), output))
    if found is None and run.trouble in {Trouble.CRASHED, Trouble.ENDED_EARLY}:
        return fault("preflight-failed", run.told)
    return found


def lacked(run: CheckRun) -> bool:
    """Say whether a run ended because this machine had no room, on its disk or in memory."""
    return run.suspicion is not None and run.trouble in {Trouble.DISK_FULL, Trouble.NO_MEMORY}


def suspicion_of_bench(
    outcome: Outcome, reason: str, *, lasting: bool, outputs: Iterable[str]
) -> RunnerFault | None:
    """Say what in a bench on a GPU could be the runner's doing; None where nothing could."""
    if outcome is Outcome.UNAVAILABLE:
        return sign_in([reason])
    if outcome is not Outcome.FAILED or lasting:
        return None
    kind: FaultKind = "gpu-hung" if "hung" in reason else "preflight-failed"
    return sign_in([reason, *outputs]) or fault(kind, reason)


def told_by(*runs: CheckRun) -> RunnerFault | None:
    """Return why runs that were judged unavailable were that, where it was the runner."""
    for run in runs:
        if lacked(run):
            return run.suspicion
        for failure in run.failed:
            if failure.fault == "memory":
                return fault("out-of-memory", failure.message)
            if failure.fault:
                return sign_in([failure.message]) or fault("gpu-not-visible", failure.message)
    return None


def details_of_absence(stage: str, target: str) -> dict[str, JsonValue]:
    """Return what the record keeps of a GPU that a planned job does not find; or nothing."""
    why = absent_gpu(target) if stage in ON_HARDWARE else ""
    return {"runner_fault": fault("gpu-not-visible", why).model_dump()} if why else {}


def fault_of(result: StageResult) -> RunnerFault | None:
    """Return the runner's fault that an outcome is put down to, or None."""
    with contextlib.suppress(ValidationError):
        return RunnerFault.model_validate(result.details.get("runner_fault"))
    return None


def at_fault(results: Iterable[StageResult]) -> bool:
    """Say whether any of some outcomes is put down to the runner."""
    return any(fault_of(one) is not None for one in results)
