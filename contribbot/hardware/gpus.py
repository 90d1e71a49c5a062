"""The GPUs that the drivers of AMD and NVIDIA list."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import MachineError
from contribbot.model.evidence import Gpu

#: The kernel driver's list of AMD devices (Linux amdkfd, sysfs), and what programs open.
KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
KFD_DEVICE: Final = Path("/dev/kfd")
#: Seconds for nvidia-smi: a driver that hangs keeps it for ever.
_SECONDS: Final = 20.0


def wave_size(target: str) -> int:
    """Return how many lanes a wave of an AMD target has, as torch and Triton compile for it."""
    # The last two characters are minor version and stepping: gfx9 has one digit before.
    return 64 if len(target) <= len("gfx90a") else 32


def text_of(file: Path) -> str:
    """Return the text of a file of the system; empty: this container was not given it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def amd_gpus(nodes: Path = KFD) -> tuple[Gpu, ...]:
    """Return the AMD GPUs of the kernel driver's topology, in its order; CPUs have no target."""
    driver = text_of(Path("/sys/module/amdgpu/version"))
    folders = [folder for folder in nodes.glob("[0-9]*") if folder.name.isdecimal()]
    gpus = []
    for folder in sorted(folders, key=lambda folder: int(folder.name)):
        properties = text_of(folder / "properties")
        version = re.search(r"^gfx_target_version (\d+)$", properties, re.MULTILINE)
        if version and int(version[1]):
            target = target_of(int(version[1]))
            name = text_of(folder / "name") or target
            gpus.append(Gpu(vendor="amd", target=target, name=name, driver=driver))
    return tuple(gpus)


def target_of(version: int) -> str:
    """Return the target of the driver's decimal number: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def nvidia_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver lists."""
    if shutil.which("nvidia-smi") is None:
        return ()
    output = b""
    with contextlib.suppress(MachineError):  # it is there, and its driver does not answer
        # A name may hold commas, so it comes last.
        query = ["nvidia-smi", "--query-gpu=compute_cap,driver_version,name",
                 "--format=csv,noheader"]  # fmt: skip
        output = process.run(query, timeout=_SECONDS).stdout
    rows = re.findall(
        r"^(\d+)\.(\d+), ([^,]*), (.+)$", output.decode(errors="replace"), re.MULTILINE
    )
    return tuple(
        Gpu(vendor="nvidia", target=f"sm_{major}{minor}", name=name.strip(), driver=driver)
        for major, minor, driver, name in rows
    )
