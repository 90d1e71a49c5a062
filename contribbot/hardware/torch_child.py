"""Says what torch says of the GPUs, and whether its functions are its own, in a child python."""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import sys
import sysconfig
from pathlib import Path
from types import FunctionType, ModuleType

from contribbot.lifeline import guard_group

#: What programs ask torch for to decide what a GPU gets; each is a plain function of torch's.
_CORE = (
    "get_device_properties", "get_device_name", "get_device_capability", "device_count",
    "current_device", "set_device", "is_available", "get_arch_list", "mem_get_info", "synchronize",
)  # fmt: skip
#: Attributes that CUDA's driver tells of a GPU (cuda.h, CUdevice_attribute): no Python changes it.
_ATTRIBUTES = {"units": 16, "wavefront": 10, "lds": 97, "major": 75, "minor": 76, "domain": 50,
               "bus": 33, "device": 34}  # fmt: skip


def _origin(function: object) -> str:
    """Return where a function's code is from, `file:line`; of what is no function, its type."""
    if type(function) is functools._lru_cache_wrapper:  # noqa: SLF001  its name has no other
        function = function.__wrapped__
    if not isinstance(function, FunctionType):
        return f"{type(function).__module__}.{type(function).__qualname__}"
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def _foreign(torch: ModuleType) -> dict[str, str]:
    """Return the functions of `torch.cuda` whose code is not torch's, and where it is from."""
    found = {}
    own = str(Path(torch.__file__ or "").parent) + os.sep
    # Decorators and what a module imports are of Python, and of the package that extends `typing`.
    helpers = (own, sysconfig.get_path("stdlib") + os.sep)
    for name, value in vars(torch.cuda).items():
        origin = _origin(value)
        is_function = ":" in origin
        if name in _CORE:
            code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
            if not origin.startswith(own) or getattr(code, "co_name", name) != name:
                found[name] = origin
        elif is_function and not origin.startswith(helpers) and "typing_extensions" not in origin:
            found[name] = origin
    return found


def _devices(torch: ModuleType, foreign: dict[str, str]) -> list[dict[str, object]]:
    """Return the facts of each GPU as any program gets them, and note what torch did not make."""
    rows: list[dict[str, object]] = []
    hip = torch.version.hip is not None
    for index in range(torch.cuda.device_count()):
        said = torch.cuda.get_device_properties(index)
        arch = str(getattr(said, "gcnArchName", "")).partition(":")[0]
        hip = hip or arch.startswith("gfx")  # a namespace may claim it of any build
        pci = [_whole(said, f"pci_{part}_id") or 0 for part in ("domain", "bus", "device")]
        rows.append({
            "source": f"torch device {index}", "vendor": "amd" if hip else "nvidia",
            "target": arch if hip else f"sm_{said.major}{said.minor}", "name": str(said.name),
            "address": "{:04x}:{:02x}:{:02x}".format(*pci) if hasattr(said, "pci_bus_id") else "",
            "units": _whole(said, "multi_processor_count"), "wavefront": _whole(said, "warp_size"),
            "lds": _whole(said, f"shared_memory_per_block{'' if hip else '_optin'}"),
            "memory": _whole(said, "total_memory"),
        })  # fmt: skip
        # torch's is a C++ class: what else comes back is somebody's, whatever it claims.
        if not isinstance(said, getattr(torch._C, "_CudaDeviceProperties", ())):  # noqa: SLF001  it has no public name
            kind = f"{type(said).__module__}.{type(said).__qualname__}"
            foreign[f"get_device_properties({index})"] = kind
    return rows


def _whole(said: object, name: str) -> int | None:
    """Return a number; a namespace may hold anything, or nothing, under its name."""
    value = getattr(said, name, None)
    return value if isinstance(value, int) else None


def _cuda_driver() -> list[dict[str, object]]:
    """Return the facts of each GPU from CUDA's driver, past torch."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, value, device, name = (
        *(ctypes.c_int() for _ in range(3)),
        ctypes.create_string_buffer(99),
    )
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    rows: list[dict[str, object]] = []
    for index in range(count.value):
        said = {}
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 99, device)
        for attribute, number in _ATTRIBUTES.items():
            driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
            said[attribute] = value.value
        rows.append({
            "source": "libcuda", "vendor": "nvidia", "name": name.value.decode(),
            "target": f"sm_{said.pop('major')}{said.pop('minor')}",
            "address": f"{said.pop('domain'):04x}:{said.pop('bus'):02x}:{said.pop('device'):02x}",
            **said,
        })  # fmt: skip
    return rows


def _answer(first: str) -> dict[str, object]:
    answer: dict[str, object] = {"direct": _cuda_driver()}
    try:
        if first:
            sys.path.insert(0, str(Path.cwd()))
            module, _, function = first.partition(":")
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        torch = importlib.import_module("torch")
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()  # noqa: SLF001  get_arch_list asks it where a GPU is there
        answer |= {
            "version": torch.__version__, "hip": torch.version.hip or "",
            "cuda": torch.version.cuda or "", "kernels": (flags or "").split(),
            "foreign": (foreign := _foreign(torch)),
        }  # fmt: skip
        answer["devices"] = _devices(torch, foreign)
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        answer["error"] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return answer


def main() -> None:
    """Write one answer."""
    lifeline = os.environ.pop("CONTRIBBOT_LIFELINE", "")
    if lifeline:
        guard_group(int(lifeline))
    file, *first = sys.argv[1:]
    document = _answer(first[0] if first else "")
    Path(file).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
