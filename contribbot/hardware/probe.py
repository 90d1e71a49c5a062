"""Probing this machine without importing torch and without starting a GPU runtime."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import MachineError
from contribbot.model.machine import Gpu, Machine
from contribbot.store.repository import require_git

#: The kernel driver's list of AMD devices (Linux amdkfd, sysfs).
_KFD_DEVICE: Final = Path("/dev/kfd")
_KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
#: Libraries whose version can change an outcome.
_PACKAGES: Final = (
    "coverage", "numpy", "pytest", "torch",
    # The same modules come under several names, by who built them.
    "triton", "triton-rocm", "pytorch-triton-rocm", "amd-triton", "aiter", "amd-aiter",
)  # fmt: skip


@functools.cache
def this_machine() -> Machine:
    """Return what this machine is; probed once per process."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        git=require_git(),
        packages=_packages(),
        rocm=_rocm(),
        gpus=(*(amd_gpus(_KFD) if _usable(_KFD_DEVICE) else ()), *_nvidia_gpus()),
    )


def _usable(device: Path) -> bool:
    """Say whether a device can be opened: sysfs also shows those of the host."""
    return os.access(device, os.R_OK | os.W_OK)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or "unknown"


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _rocm() -> str:
    for root in (os.environ.get("ROCM_PATH", ""), "/opt/rocm"):
        version = Path(root) / ".info" / "version"
        if root and version.is_file():
            return version.read_text(encoding="utf-8").strip()
    return ""


def listed_amd_gpus() -> tuple[Gpu, ...]:
    """Return the AMD GPUs that the kernel's driver lists, also those that cannot be opened."""
    return amd_gpus(_KFD)


def amd_gpus(nodes: Path) -> tuple[Gpu, ...]:
    """Read the AMD GPUs from the kernel driver's topology.

    `gfx_target_version` is `major * 10000 + minor * 100 + stepping` in decimal
    (Linux amdkfd); a target's name writes minor and stepping in hexadecimal:
    90402 is gfx942, 90010 is gfx90a. Processors have 0 there.
    """
    found: list[Gpu] = []
    for properties in sorted(nodes.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            text = properties.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # a device that this container was not given
        pairs = dict(row.split(" ", 1) for row in text.splitlines() if " " in row)
        version = int(pairs.get("gfx_target_version", "0"))
        if not version:
            continue
        major, minor, stepping = version // 10000, version // 100 % 100, version % 100
        name_file = properties.with_name("name")
        name = name_file.read_text(encoding="utf-8").strip() if name_file.is_file() else ""
        target = f"gfx{major}{minor:x}{stepping:x}"
        found.append(Gpu(vendor="amd", target=target, name=name or target, driver=_amdgpu_driver()))
    return tuple(found)


def _amdgpu_driver() -> str:
    version = Path("/sys/module/amdgpu/version")
    return version.read_text(encoding="utf-8").strip() if version.is_file() else ""


def _nvidia_gpus() -> tuple[Gpu, ...]:
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=compute_cap,driver_version,name", "--format=csv,noheader"]
    try:
        rows = process.run(query, timeout=20).stdout.decode().splitlines()
    except MachineError:
        # The program is there and no GPU answers: then there is none to use.
        return ()
    found = []
    for row in rows:
        parts = [part.strip() for part in row.split(",", 2)]
        if len(parts) != len(query[1].split(",")):
            continue  # "No devices were found" and the like
        capability, driver, name = parts
        target = "sm_" + capability.replace(".", "")
        found.append(Gpu(vendor="nvidia", target=target, name=name, driver=driver))
    return tuple(found)
