"""Read this machine's hardware and software, without importing torch or starting the GPU."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import sys
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import MachineError
from contribbot.git.repository import require_git
from contribbot.model.base import Many, Model
from contribbot.model.evidence import Container, Gpu, Machine, RunOf

#: Distributions whose version can change an outcome.
_PACKAGES: Final = (
    "numpy",
    "pytest",
    "torch",
    # Builds of triton and aiter have several distribution names.
    "triton",
    "triton-rocm",
    "pytorch-triton-rocm",
    "amd-triton",
    "aiter",
    "amd-aiter",
)


@functools.cache
def this_machine() -> Machine:
    """Return a description of this machine, made once in each process."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        git=require_git(),
        packages=_packages(),
        rocm=_rocm(),
        gpus=gpus(),
    )


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that programs on this machine can use, AMD's first."""
    # In a container, sysfs also shows the host's devices, which cannot be opened.
    amd = amd_gpus() if os.access(KFD_DEVICE, os.R_OK | os.W_OK) else ()
    return (*visible(amd, HIDING), *visible(nvidia_gpus(), (_CUDA,)))


def visible(found: tuple[Gpu, ...], names: tuple[str, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs that the first set variable of `names` lists by number; none is set: all."""
    # Stop at the first invalid number (CUDA C++ Programming Guide, "CUDA_VISIBLE_DEVICES").
    listed = next(filter(None, map(os.environ.get, names)), "")
    numbers = [number.strip() for number in listed.split(",") if listed]
    if not all(re.fullmatch(r"-?\d+", number) for number in numbers) or not numbers:
        return found  # a GPU may also be listed by its UUID
    known = itertools.takewhile(lambda number: 0 <= int(number) < len(found), numbers)
    return tuple(found[int(number)] for number in known)


_CUDA: Final = "CUDA_VISIBLE_DEVICES"
#: HIP reads CUDA's variable where HIP's own is empty (ROCm, "GPU isolation techniques"). Both
#: variables number the GPUs that `ROCR_VISIBLE_DEVICES` leaves visible.
HIDING: Final = ("HIP_VISIBLE_DEVICES", _CUDA)
#: The kernel driver's list of AMD devices (Linux amdkfd, sysfs), and the device file.
KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
KFD_DEVICE: Final = Path("/dev/kfd")
#: Seconds to wait for nvidia-smi, which hangs if the driver hangs.
_SECONDS: Final = 20.0


def text_of(file: Path) -> str:
    """Return the text of a system file; empty: the file cannot be read here."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def amd_gpus(nodes: Path = KFD) -> tuple[Gpu, ...]:
    """Return the AMD GPUs that the kernel driver lists, in the driver's order."""
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
    """Return the target for the driver's number: 90402 is gfx942, 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def nvidia_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists; empty: nvidia-smi is absent or fails."""
    if shutil.which("nvidia-smi") is None:
        return ()
    output = b""
    with contextlib.suppress(MachineError):  # the driver may not answer
        # The name comes last, as it may contain commas.
        query = "--query-gpu=compute_cap,driver_version,name", "--format=csv,noheader"
        output = process.run(["nvidia-smi", *query], timeout=_SECONDS).stdout
    text = output.decode(errors="replace")
    rows = re.findall(r"^(\d+)\.(\d+), ([^,]*), (.+)$", text, re.MULTILINE)
    return tuple(
        Gpu(vendor="nvidia", target=f"sm_{major}{minor}", name=name.strip(), driver=driver)
        for major, minor, driver, name in rows
    )


def _cpu_model() -> str:
    text = text_of(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or "unknown"


def _packages() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _rocm() -> str:
    roots = filter(None, (os.environ.get("ROCM_PATH", ""), "/opt/rocm"))
    return next(filter(None, (text_of(Path(root, ".info/version")) for root in roots)), "")


#: The free space in bytes below which a disk is full.
_ROOM: Final = 64 * 2**20


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has less than `_ROOM` (64 MiB) left."""
    probe = folder / uuid.uuid4().hex
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
    except OSError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    finally:
        probe.unlink(missing_ok=True)
    return False


#: The variable with the job's id in the plan (`gfx942-rocm7.1-1`), which starts with the target.
JOB: Final = "CONTRIBBOT_JOB"
IMAGE: Final = "CONTRIBBOT_IMAGE"
FLAGS: Final = "CONTRIBBOT_CONTAINER_FLAGS"
#: The variables that describe a run of GitHub Actions (its "Variables reference").
_RUN: Final = {
    "run_id": "GITHUB_RUN_ID",
    "attempt": "GITHUB_RUN_ATTEMPT",
    "job": JOB,
    "repository": "GITHUB_REPOSITORY",
    "commit": "GITHUB_SHA",
}

ModelT = TypeVar("ModelT", bound=Model)


def actions_run(environment: Mapping[str, str] = os.environ) -> RunOf | None:
    """Return the run of GitHub Actions that this process is part of, or None."""
    if not environment.get("GITHUB_RUN_ID"):
        return None
    facts = {field: environment.get(name, "") for field, name in _RUN.items()}
    facts["job"] = facts["job"] or environment.get("GITHUB_JOB", "")
    return _checked(RunOf, facts, _RUN)


def job_container(environment: Mapping[str, str] = os.environ) -> Container | None:
    """Return the container of this process, from the variables `IMAGE` and `FLAGS`, or None."""
    image = environment.get(IMAGE, "")
    if not image:
        return None
    try:
        flags = shlex.split(environment.get(FLAGS, ""))
    except ValueError as error:
        raise MachineError(f"{FLAGS}: {error}", hint="write the options as for a shell") from error
    return _checked(Container, {"image": image, "flags": flags}, {"image": IMAGE, "flags": FLAGS})


def _checked(
    model: type[ModelT], facts: Mapping[str, str | list[str]], names: Mapping[str, str]
) -> ModelT:
    try:
        return model.model_validate(facts, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = names[str(first["loc"][0])]
        what = f"{name}: {first['msg']}: {first['input']!r}"[:300]
        hint = "the record would name the wrong run: set it as the workflow does, or unset all"
        raise MachineError(what, hint=hint) from error


def absent_gpu(target: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a sentence that this runner lacks its job's GPU; empty: no job for the target."""
    if not environment.get(JOB, "").startswith(f"{target}-"):
        return ""
    listed = ", ".join(dict.fromkeys(gpu.target for gpu in gpus()))
    return f"this runner gives programs {listed or 'no GPU'}, and its job is for {target}"


#: Folders of a source tree from which Python imports nothing.
_NOT_IMPORTED: Final = frozenset({"__pycache__", "node_modules"})


def release_of(packages: Iterable[str]) -> str:
    """Return the installed releases of some packages as text, such as `torch 2.9.1`."""
    return ", ".join(f"{name} {version}" for name, version in releases(packages).items())


def releases(packages: Iterable[str]) -> dict[str, str]:
    """Return, for each package, the installed version of the distribution that provides it."""
    return {
        package: importlib.metadata.version(owner)
        for package in packages
        for owner in owners().get(package, ())[:1]
    }


@functools.cache
def owners() -> Mapping[str, list[str]]:
    """Return the distributions that provide each package; slow at the first call."""
    return importlib.metadata.packages_distributions()


def versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of the distributions that provide some modules, by distribution."""
    return {
        owner: importlib.metadata.version(owner)
        for module in modules
        for owner in owners().get(module.partition(".")[0], ())
    }


class Packages(Model):
    """The installed packages on which an outcome depends."""

    versions: dict[str, str] = Field(default_factory=dict)  # of each imported distribution
    absent: Many[str] = ()  # modules that an import did not find
    installed: str = ""  # the digest of all packages, if the imported packages are unknown

    @property
    def current(self) -> bool:
        """Whether the installed packages are still the packages of this list."""
        for name, version in self.versions.items():
            try:
                if importlib.metadata.version(name) != version:
                    return False
            except importlib.metadata.PackageNotFoundError:
                return False
        for name in self.absent:
            with contextlib.suppress(ImportError, ValueError):
                if importlib.util.find_spec(name):
                    return False
        return not self.installed or self.installed == installed_digest()


def imported_packages(
    modules: Collection[str], absent: Collection[str], *, programs: bool
) -> Packages:
    """Return the packages of some modules; `programs`: the digest of all installed packages."""
    return Packages(
        versions={} if programs else versions(sorted(modules)),
        absent=() if programs else tuple(sorted(absent)),
        installed=installed_digest() if programs else "",
    )


@functools.cache
def installed_digest(*, sources: bool = False) -> str:
    """Return a SHA-256 of all importable packages; `sources`: of editable ones and PYTHONPATH."""
    # Of a distribution, name and version count, read from the name of the folder that pip writes
    # (PEP 627); of an editable install and of PYTHONPATH, each Python file's path, size and time.
    total = hashlib.sha256()
    for folder in dict.fromkeys(map(Path, filter(None, sys.path))):
        if not os.path.isdir(folder):  # noqa: PTH112  skips a string that is no valid path
            continue
        for entry in sorted(folder.iterdir()):
            if not sources and entry.suffix in {".dist-info", ".egg-info", ".egg-link"}:
                total.update(os.fsencode(f"{entry.name}\n"))
            if entry.suffix == ".dist-info" and (root := _editable_root(entry)):
                _add_sources(total, root)
    for named in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        _add_sources(total, Path(named))
    return total.hexdigest()


def _editable_root(info: Path) -> Path | None:
    """Return the source folder of an editable install (PEP 610); None: not editable."""
    try:
        origin = json.loads((info / "direct_url.json").read_bytes())
        editable = origin["dir_info"]["editable"] is True
        return Path(unquote(urlsplit(origin["url"]).path)) if editable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _add_sources(total: hashlib._Hash, root: Path) -> None:
    """Add path, size and time of each .py, .so and .pth file below a folder to a digest."""
    if root in Path(__file__).parents:
        return  # contribbot's own source is in the key of every outcome
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n[0] != "." and n not in _NOT_IMPORTED)
        for name in sorted(files):
            if name.endswith((".py", ".so", ".pth")):
                path = os.path.join(folder, name)  # noqa: PTH118  twice as fast on thousands
                with contextlib.suppress(OSError):
                    stat = os.stat(path)  # noqa: PTH116  as above
                    total.update(os.fsencode(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n"))
