"""Probing this machine without importing torch and without starting a GPU runtime."""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from contribbot import process
from contribbot.errors import MachineError
from contribbot.git.repository import require_git
from contribbot.model.base import Model
from contribbot.model.evidence import Container, Gpu, Machine, RunOf

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


#: Bytes that a disk must still take for it not to be full.
_ROOM: Final = 64 * 2**20


def is_full(folder: Path) -> bool:
    """Say whether the disk of a folder takes nothing any more."""
    probe = folder / uuid.uuid4().hex
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
    except OSError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    finally:
        probe.unlink(missing_ok=True)
    return False


#: The job's id in the plan (`gfx942-rocm7.1-1`); it starts with the target.
JOB: Final = "CONTRIBBOT_JOB"
IMAGE: Final = "CONTRIBBOT_IMAGE"
FLAGS: Final = "CONTRIBBOT_CONTAINER_FLAGS"
#: The variables that give what a run is (GitHub's documentation, "Variables reference").
_RUN: Final = {
    "run_id": "GITHUB_RUN_ID",
    "attempt": "GITHUB_RUN_ATTEMPT",
    "job": JOB,
    "repository": "GITHUB_REPOSITORY",
    "commit": "GITHUB_SHA",
}
_CONTAINER: Final = {"image": IMAGE, "flags": FLAGS}

ModelT = TypeVar("ModelT", bound=Model)


def run_of(environment: Mapping[str, str] = os.environ) -> RunOf | None:
    """Return the run of GitHub Actions that this process is part of; None: of none."""
    if not environment.get("GITHUB_RUN_ID"):
        return None
    told = {field: environment.get(name, "") for field, name in _RUN.items()}
    told["job"] = told["job"] or environment.get("GITHUB_JOB", "")
    numbers = {
        field: int(told[field]) for field in ("run_id", "attempt") if told[field].isdecimal()
    }
    return _checked(RunOf, {**told, **numbers}, _RUN)


def container_of(environment: Mapping[str, str] = os.environ) -> Container | None:
    """Return the container that this process was started in; None: none was named."""
    image = environment.get(IMAGE, "")
    if not image:
        return None
    try:
        flags = shlex.split(environment.get(FLAGS, ""))
    except ValueError as error:
        raise MachineError(f"{FLAGS}: {error}", hint="write the options as for a shell") from error
    return _checked(Container, {"image": image, "flags": flags}, _CONTAINER)


def _checked(model: type[ModelT], told: dict[str, object], names: Mapping[str, str]) -> ModelT:
    try:
        return model.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        name = names[str(first["loc"][0])]
        raise MachineError(
            f"{name}: {first['msg']}: {first['input']!r}"[:300],
            hint=f"the record would name the wrong run: set {name} as the workflow does, or unset "
            f"{IMAGE if model is Container else 'GITHUB_RUN_ID'}",
        ) from error


def absent_gpu(target: str, environment: Mapping[str, str] = os.environ) -> str:
    """Say why a GPU is not there that this job was given to this runner for; or nothing.

    Elsewhere a machine without some GPU is an ordinary machine.
    """
    if not environment.get(JOB, "").startswith(f"{target}-"):
        return ""
    if target == "cuda":
        return "nvidia-smi finds no GPU: the driver or the container's access to it is missing"
    listed = ", ".join(dict.fromkeys(gpu.target for gpu in listed_amd_gpus()))
    if target in listed.split(", "):
        return (
            f"the driver lists {target}, and /dev/kfd cannot be opened: the container needs "
            "--device /dev/kfd --device /dev/dri and the group that owns them"
        )
    if listed:
        return f"this runner has {listed}, not {target}"
    return (
        "the amdgpu driver lists no GPU: it is not loaded, or the container was not given "
        "/dev/kfd and /dev/dri"
    )
