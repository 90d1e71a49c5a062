"""What the drivers, ROCm's runtime and torch say of each GPU, and what they do not."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import MachineError
from contribbot.model.base import Many, Model

#: The kernel driver's list of AMD devices (Linux amdkfd, sysfs).
KFD: Final = Path("sys/class/kfd/kfd/topology/nodes")
#: Seconds for a tool: a driver that hangs keeps it for ever.
SECONDS: Final = 20.0
#: What nvidia-smi is asked for; a name may hold commas, so it comes last.
_QUERY: Final = (
    "compute_cap", "driver_version", "pci.bus_id", "memory.total", "clocks.max.sm", "clocks.sm",
    "power.limit", "name",
)  # fmt: skip
#: What a GPU's properties have to say.
_WANTED: Final = (
    "gfx_target_version", "simd_count", "simd_per_cu", "wave_front_size", "lds_size_in_kb",
)  # fmt: skip
_CHILD: Final = Path(__file__).with_name("torch_child.py")
#: Seconds: importing torch reads gigabytes, and a GPU's runtime may hang.
_TORCH_SECONDS: Final = 120.0
_PCI: Final = re.compile(r"([0-9A-Fa-f]+):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\.")


def wave_size(target: str) -> int:
    """Return how many lanes a wave of an AMD target has, as torch and Triton compile for it."""
    # The last two characters are minor version and stepping: gfx9 has one digit before.
    return 64 if len(target) <= len("gfx90a") else 32


class GpuFacts(Model):
    """What one source says of one GPU; None or empty: it does not say."""

    source: str
    vendor: Literal["amd", "nvidia"]
    target: str = ""
    name: str = ""
    address: str = ""  # on PCI, as `domain:bus:device` in hexadecimal
    node: int | None = None  # of the kernel driver's topology
    units: int | None = None  # compute units, or multiprocessors
    wavefront: int | None = None  # lanes
    lds: int | None = None  # bytes that a workgroup can have
    memory: int | None = None  # bytes
    clock: int | None = None  # MHz, the highest
    clock_now: int | None = None  # MHz
    power_cap: int | None = None  # W
    driver: str = ""


#: The GPUs that a source lists, and in a line each what it does not say.
Survey = tuple[list[GpuFacts], list[str]]


def text_of(file: Path) -> str:
    """Return what a file of the system says; empty: this container was not given it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def target_of(version: int) -> str:
    """Return the target of the driver's decimal number: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def kfd_gpus(nodes: Path, root: Path = Path("/")) -> Survey:
    """Read the AMD GPUs from the kernel driver's topology; processors have no SIMDs there."""
    gpus: list[GpuFacts] = []
    unknown: list[str] = []
    folders = (folder for folder in nodes.glob("[0-9]*") if folder.name.isdecimal())
    for folder in sorted(folders, key=lambda folder: int(folder.name)):
        label = f"KFD node {folder.name}"
        try:
            facts = _properties(folder / "properties")
        except OSError as error:
            # A container sees all nodes of its host, and may read those that it was given.
            unknown.append(f"{label}: {error.strerror or error}")
            continue
        if facts.get("gfx_target_version") or facts.get("simd_count"):
            gpus.append(_kfd_gpu(folder, label, facts, root))
            if lacking := [name for name in _WANTED if not facts.get(name)]:
                unknown.append(f"{label}: no {', '.join(lacking)} in its properties")
        elif not facts.keys() & {"gfx_target_version", "simd_count"}:
            unknown.append(f"{label}: its properties are empty or cut off")
    return gpus, unknown


def _properties(file: Path) -> dict[str, int]:
    """Read `name value` lines; the last one of a file that was cut off may be half a number."""
    whole, _, _ = file.read_text(encoding="utf-8", errors="replace").rpartition("\n")
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", whole, re.MULTILINE)}


def _kfd_gpu(folder: Path, label: str, facts: dict[str, int], root: Path) -> GpuFacts:
    # Linux: Documentation/gpu/amdgpu, "HWMON Interfaces": microwatts and hertz.
    device = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
    simds, each = facts.get("simd_count"), facts.get("simd_per_cu")
    version, place = facts.get("gfx_target_version"), facts.get("location_id")
    return GpuFacts(
        source=label, vendor="amd", node=int(folder.name), name=text_of(folder / "name"),
        target=target_of(version) if version else "",
        address="" if place is None else f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:"
        f"{place >> 3 & 0x1F:02x}",
        units=simds // each if simds and each else None,
        wavefront=facts.get("wave_front_size") or None,
        lds=facts.get("lds_size_in_kb", 0) * 1024 or None,
        memory=_local_memory(folder) or None,
        clock=facts.get("max_engine_clk_fcompute") or None,
        clock_now=_sensor(device, "freq1_input"),
        power_cap=_sensor(device, "power1_cap"),
        driver=text_of(root / "sys/module/amdgpu/version"),
    )  # fmt: skip


def _local_memory(folder: Path) -> int:
    """Return the bytes of a node's own memory; heap 0 is the host's (amdkfd, kfd_crat.h)."""
    total = 0
    for file in folder.glob("mem_banks/*/properties"):
        with contextlib.suppress(OSError):
            bank = _properties(file)
            total += bank.get("size_in_bytes", 0) if bank.get("heap_type", 1) else 0
    return total


def _sensor(device: Path, name: str) -> int | None:
    values = (text_of(file) for file in sorted(device.glob(f"hwmon/hwmon*/{name}")))
    return next((int(value) // 10**6 for value in values if value.isdecimal()), None)


def rocminfo_gpus(path: str, root: Path = Path("/")) -> Survey:
    """Read the GPUs that ROCm's runtime lists: what it says after all variables had their say."""

    def read(text: str) -> list[GpuFacts]:
        agents = re.split(r"^\s*Agent \d+\s*$", text, flags=re.MULTILINE)[1:]
        if not agents:
            raise ValueError("it prints no agent")
        module = re.match(r"\s*ROCk module version (\S+) is loaded", text)
        driver = module[1] if module else ""
        return [_agent(agent, driver) for agent in agents if _first(agent, "Device Type") == "GPU"]

    return _ask(["rocminfo"], f"{path}:{root / 'opt/rocm/bin'}", read)


def _agent(agent: str, driver: str) -> GpuFacts:
    lds = re.search(r"Segment: +GROUP\s+Size: +(\d+)", agent)
    pool = re.search(r"Segment: +GLOBAL; FLAGS: COARSE GRAINED\s+Size: +(\d+)", agent)
    return GpuFacts(
        source="rocminfo", vendor="amd", driver=driver, node=_number(_first(agent, "Node")),
        target=name if re.fullmatch("gfx[0-9a-f]+", name := _first(agent, "Name")) else "",
        name=_first(agent, "Marketing Name"),
        units=_number(_first(agent, "Compute Unit")),
        wavefront=_number(_first(agent, "Wavefront Size")),
        lds=int(lds[1]) * 1024 if lds else None,
        memory=int(pool[1]) * 1024 if pool else None,
        clock=_number(_first(agent, "Max Clock Freq. (MHz)")),
    )  # fmt: skip


def _first(agent: str, name: str) -> str:
    """Return the first value of a name; those of pools and ISAs come after the agent's own."""
    found = re.search(rf"^ *{re.escape(name)}:[ \t]*(\S.*?)? *$", agent, re.MULTILINE)
    return (found[1] or "") if found else ""


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def nvidia_gpus(path: str | None = None) -> Survey:
    """Read the GPUs that NVIDIA's driver lists."""

    def read(text: str) -> list[GpuFacts]:
        rows = (re.split(r"\s*,\s*", line.strip(), maxsplit=len(_QUERY) - 1)
                for line in text.splitlines())  # fmt: skip
        # "No devices were found" and the like are no such rows.
        return [_nvidia_gpu(row) for row in rows if re.match(r"\d+\.\d+$", row[0]) and row[2:]]

    query = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    return _ask(query, path, read)


def _nvidia_gpu(row: list[str]) -> GpuFacts:
    said = dict(zip(_QUERY[:-1], row[:-1], strict=False))
    pci = _PCI.match(said.get("pci.bus_id", ""))
    return GpuFacts(
        source="nvidia-smi", vendor="nvidia", name=row[-1], driver=said.get("driver_version", ""),
        target=f"sm_{row[0].replace('.', '')}",
        address=f"{int(pci[1], 16):04x}:{pci[2].lower()}" if pci else "",
        memory=(_number(said.get("memory.total", "")) or 0) * 2**20 or None,
        clock=_number(said.get("clocks.max.sm", "")),
        clock_now=_number(said.get("clocks.sm", "")),
        power_cap=_number(said.get("power.limit", "")),
    )  # fmt: skip


def _ask(argv: list[str], path: str | None, read: Callable[[str], list[GpuFacts]]) -> Survey:
    """Run a tool and read what it prints; whatever goes wrong is one line."""
    program = shutil.which(argv[0], path=path)
    if program is None:
        return [], []
    try:
        text = process.run([program, *argv[1:]], timeout=SECONDS).stdout.decode(errors="replace")
        return read(text), []
    except MachineError as error:
        return [], [error.message.replace(process.describe([program, *argv[1:]]), argv[0])]
    except ValueError as error:
        return [], [f"{argv[0]}: {error}"]


class TorchAccount(Model):
    """What torch says of itself and of the GPUs."""

    version: str = ""
    hip: str = ""  # the release of HIP that it was built for
    cuda: str = ""
    kernels: Many[str] = ()  # the targets that its own kernels were compiled for
    devices: Many[GpuFacts] = ()
    direct: Many[GpuFacts] = ()  # what CUDA's driver says past torch, in the same process
    #: What is not torch's own: a function, and where its code is from; a result, and its type.
    foreign: dict[str, str] = Field(default_factory=dict)
    error: str = ""

    @property
    def vendor(self) -> str:
        """Whose GPUs it can use; empty: none."""
        return "amd" if self.hip else "nvidia" if self.cuda else ""

    @property
    def build(self) -> str:
        """What it was built for, in words."""
        return f"HIP {self.hip}" if self.hip else f"CUDA {self.cuda}" if self.cuda else "CPU alone"


def ask_torch(
    environment: Mapping[str, str], *, first: str = "", seconds: float = _TORCH_SECONDS
) -> TorchAccount:
    """Ask torch in an environment; `first` is `MODULE[:FUNCTION]` that a program begins with."""
    path = (environment.get("PYTHONPATH", ""), process.own_path())
    env = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        file = Path(folder) / "answer.json"
        # -P: modules beside the script must not stand before torch's.
        argv = [sys.executable, "-B", "-P", str(_CHILD), str(file), *([first] if first else [])]
        done = process.supervise(argv, cwd=Path.cwd(), env=env, timeout=seconds)
        try:
            return TorchAccount.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            last = "".join(done.output.decode("utf-8", "replace").split("\n")[-2:]).strip()
            late = f"not finished after {seconds:g} s"
            died = f"killed by {process.signal_name(-done.returncode)}"
            how = died if done.returncode < 0 else f"exit status {done.returncode}: {last[:200]}"
            return TorchAccount(error=late if done.timed_out else how)
