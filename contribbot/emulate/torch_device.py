"""The emulated GPU in torch: code that asks for `cuda` gets tensors in the GPU's memory.

The contents of these tensors are in this process's memory, torch's operators run on the CPU,
and `torch.cuda` answers as a ROCm build of torch does on a real GPU of the target.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import os
import resource
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import torch
import torch.library
from torch.utils._device import _device_constructors

from contribbot.emulate.backward import register_hook, run_backward
from contribbot.emulate.decode import FACTS, LDS
from contribbot.emulate.driver import triton_driver
from contribbot.emulate.emulated_tensor import (
    ALLOCATED,
    DEVICE,
    GPU,
    EmulatedTensor,
    free_memory,
    operators,
    rebuilt_tensor,
    restored_storage,
    storage_tag,
)
from contribbot.emulate.errors import NoResultError, NotEmulatedError
from contribbot.emulate.gpu import HIP, EmulatedGpu


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """Make allocations beyond the free memory fail, before Linux kills the process for them."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    words = status.read_text(encoding="utf-8", errors="replace").split()
    limit = (int(words[words.index("VmData:") + 1]) << 10) + free_memory()
    if resource.RLIM_INFINITY not in {before, most}:
        limit = min(limit, before)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


# --- torch.cuda ------------------------------------------------------------------------------


class Event:
    """The emulated `torch.cuda.Event`: all work is done at once, and times mean nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Accept the arguments of torch's class."""

    def record(self, *args: object) -> None:
        """Do nothing: all work is done at once."""

    synchronize = wait = record

    def query(self) -> bool:
        """Return True: the event has happened."""
        return True

    def elapsed_time(self, end: object) -> float:  # noqa: ARG002  torch's signature
        """Return 1 ms."""
        return 1.0


class Stream:
    """The emulated `torch.cuda.Stream`: the only stream, which never has work left."""

    cuda_stream = 0
    device = GPU
    device_index = 0
    priority = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Accept the arguments of torch's class."""

    def __enter__(self) -> Stream:  # noqa: PYI034  there is one stream
        """Return the stream, and change nothing."""
        return self

    def __exit__(self, *args: object) -> None:
        """Change nothing."""

    def synchronize(self, *args: object) -> None:
        """Do nothing: no work is left."""

    wait_stream = wait_event = synchronize

    def __eq__(self, other: object) -> bool:
        """Return whether the other object is a stream: all streams are the same stream."""
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        """Return a hash that all streams share."""
        return self.cuda_stream

    def record_event(self, event: Event | None = None) -> Event:
        """Return the given event, or a new event."""
        return event or Event()

    def query(self) -> bool:
        """Return True: no work is left."""
        return True


class Graph:
    """The emulated `torch.cuda.CUDAGraph`, which cannot be made; annotations need a class."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Raise NotEmulatedError: no launches can be captured."""
        raise NotEmulatedError(
            "CUDA graphs are not emulated: run the same code without them (enforce_eager)"
        )


#: Functions of torch.cuda that do nothing.
_IGNORED: Final = """
    _lazy_init init synchronize set_device empty_cache manual_seed_all set_stream ipc_collect seed
    seed_all set_sync_debug_mode
"""


def _cuda(target: str) -> dict[str, object]:
    facts = FACTS[target]
    total = facts.gib << 30
    properties = types.SimpleNamespace(
        name=f"{target}, emulated",
        gcnArchName=target + facts.features,
        major=facts.capability[0],
        minor=facts.capability[1],
        multi_processor_count=facts.units,
        warp_size=facts.lanes,
        total_memory=total,
        shared_memory_per_block=LDS[target],
        L2_cache_size=4 << 20,
        shared_memory_per_block_optin=LDS[target],
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        is_integrated=False,
        is_multi_gpu_board=False,
    )
    stream = Stream()

    def always(value: object) -> Callable[..., object]:
        return lambda *_args, **_kwargs: value

    return {
        "is_available": always(True),
        "is_initialized": always(True),
        "device_count": always(1),
        "_device_count_amdsmi": always(1),
        "current_device": always(0),
        "get_device_capability": always(facts.capability),
        "get_device_properties": always(properties),
        "get_device_name": always(properties.name),
        "get_arch_list": always([target]),
        "current_stream": always(stream),
        "default_stream": always(stream),
        "stream": always(stream),
        "device": Stream,
        "Event": Event,
        "Stream": Stream,
        "ExternalStream": Stream,
        "mem_get_info": lambda *_: (min(free_memory(), total - ALLOCATED.bytes), total),
        "default_generators": (DefaultGenerator(),),
        "is_current_stream_capturing": always(False),
        "CUDAGraph": Graph,
        "graph": Graph,
        "graph_pool_handle": always((0, 0)),
        "is_bf16_supported": always(True),
        "get_sync_debug_mode": always(0),
        "get_allocator_backend": always("native"),
        "can_device_access_peer": always(False),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "manual_seed": torch.default_generator.manual_seed,
        # One function for each name, because torch.compile looks the functions up.
        **{name: always(None) for name in _IGNORED.split()},
        **_memory_counters(),
    }


def _memory_counters() -> dict[str, Callable[..., object]]:
    """Return the functions of torch.cuda and torch.accelerator that count bytes."""
    counters: dict[str, Callable[..., object]] = {
        name: lambda *_: ALLOCATED.bytes for name in ("memory_allocated", "memory_reserved")
    }
    counters |= {
        name: lambda *_: ALLOCATED.peak for name in ("max_memory_allocated", "max_memory_reserved")
    }
    resets = ("reset_peak_memory_stats", "reset_max_memory_allocated")
    return {
        **counters,
        **dict.fromkeys(resets, ALLOCATED.reset_peak),
        "memory_stats": ALLOCATED.stats,
    }


def _amdsmi(target: str) -> types.ModuleType:
    """Return a stand-in for AMD's system management library, from which vLLM reads the target."""
    module, total = types.ModuleType("amdsmi"), FACTS[target].gib << 30
    names = {"target_graphics_version": target, "market_name": target, "device_id": ""}
    error: type[Exception] = type("AmdSmiException", (Exception,), {})

    def unknown(*_: object) -> None:
        raise error("the emulated GPU has no answer to this")

    for name in ("get_gpu_device_uuid", "topo_get_link_type", "topo_get_numa_node_number"):
        setattr(module, f"amdsmi_{name}", unknown)
    vars(module).update(
        __spec__=importlib.machinery.ModuleSpec("amdsmi", None),
        AmdSmiException=error,
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0),
        amdsmi_init=lambda *_: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: [0],
        amdsmi_get_gpu_asic_info=lambda _: names,
        amdsmi_get_gpu_memory_total=lambda *_: total,
    )
    return module


class Generator(torch.Generator):
    """A `torch.Generator` on the CPU, for any device."""

    def __new__(cls, device: object = "cpu") -> Generator:  # noqa: ARG004, PYI034
        """Return a random number generator on the CPU, for any device."""
        return super().__new__(cls, device="cpu")  # type: ignore[call-arg]  # torch's stub lacks it


class DefaultGenerator(Generator):
    """The GPU's default generator: seed and offset stand for the state of the CPU's generator."""

    def __init__(self, *_: object) -> None:
        """Begin with seed 0 and offset 0; `get_state` takes the seed of the CPU's generator."""
        self._seed = self._offset = 0
        self._states: dict[tuple[int, int], torch.Tensor] = {}

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Seed the CPU's generator, and this object, which operators take as an argument."""
        super().manual_seed(seed)
        torch.default_generator.manual_seed(seed)
        return self

    def get_state(self) -> torch.Tensor:
        """Return seed and offset as bytes; the offset grows by 4 if numbers were drawn."""
        base = torch.default_generator
        seed, now = base.initial_seed(), base.get_state()
        seed -= seed >> 63 << 64
        if seed != self._seed:
            self._seed, self._offset = seed, 0
        elif not torch.equal(now, self._states.get((seed, self._offset), now)):
            self._offset += 4
        self._states[seed, self._offset] = now
        return torch.tensor([seed, self._offset], device="cpu").view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> DefaultGenerator:
        """Restore a state of `get_state`; an unknown offset of the present seed does nothing."""
        place = (seed, self._offset) = tuple(state.cpu().view(torch.int64).tolist())
        if place in self._states:
            torch.default_generator.set_state(self._states[place])
        elif seed != self._seed:
            torch.default_generator.manual_seed(seed)
        self._seed = seed
        self._states[place] = torch.default_generator.get_state()
        return self


class _LikeDevice(type):
    """The metaclass of `DeviceByNumber`, which equals torch.device, also in torch's tables."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, DEVICE)

    def __eq__(cls, other: object) -> bool:
        return other is DEVICE or other is cls

    def __hash__(cls) -> int:
        return hash(DEVICE)


class DeviceByNumber(metaclass=_LikeDevice):
    """A replacement of `torch.device`: a number means a GPU, also in a build without CUDA."""

    def __new__(cls, *args: object, **kwargs: object) -> torch.device:  # type: ignore[misc]
        """Return a `torch.device` of torch."""
        if args and isinstance(args[0], int):
            args = ("cuda", *args)
        return DEVICE(*args, **kwargs)  # type: ignore[call-overload, no-any-return]  # torch checks them


def _on_processor(data: object) -> object:
    """Return data for `torch.tensor`, with CPU tensors in place of the GPU's tensors."""
    if isinstance(data, (list, tuple)):
        return [*map(_on_processor, data)] if _has_tensor(data) else data
    return data.contents if isinstance(data, EmulatedTensor) else data


def _has_tensor(data: object) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_has_tensor, data))
    return isinstance(data, EmulatedTensor)


def _replacements(target: str) -> Iterator[tuple[object, str, object]]:
    """Yield the replacements in torch: owner, attribute name and new value."""
    for name, value in _cuda(target).items():
        for module in (torch.cuda, torch.cuda.memory):
            if module is torch.cuda or hasattr(module, name):
                yield module, name, value
    yield torch, "Generator", Generator
    yield torch, "device", DeviceByNumber
    tensor = torch.tensor
    _device_constructors()  # fill torch's cache before functions are replaced

    def pinnable(data: object, *, pin_memory: bool = False, **more: object) -> torch.Tensor:
        # torch's own function would pin the memory itself, which no mode sees.
        made = tensor(_on_processor(data), **more)  # type: ignore[arg-type]  # torch checks them
        return made.pin_memory() if pin_memory else made

    yield torch, "tensor", pinnable
    yield torch, "Event", Event
    yield torch, "Stream", Stream
    load = ctypes.CDLL.__init__

    def library(self: ctypes.CDLL, name: str | None, *more: object, **others: object) -> None:
        # With this library, programs such as vLLM find a GPU of NVIDIA, too.
        if name is not None and Path(name).name.startswith("libnvidia-ml."):
            raise OSError(f"{name}: {target} is emulated: no real GPU is used")
        load(self, name, *more, **others)  # type: ignore[arg-type]  # ctypes checks the arguments

    yield ctypes.CDLL, "__init__", library
    taggers = torch.serialization._package_registry  # noqa: SLF001  no public name
    ours = (0, storage_tag, restored_storage)
    yield torch.serialization, "_package_registry", [ours, *taggers]
    yield torch._utils, "_rebuild_tensor", rebuilt_tensor  # noqa: SLF001  files name its callers
    yield torch.version, "hip", HIP
    yield torch.version, "cuda", None
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: GPU,
        "current_device_index": lambda: 0,
        "set_device_index": lambda *_: None,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: Stream(),
        "empty_cache": lambda: None,
        "empty_host_cache": lambda: None,
        "device_index": contextlib.nullcontext,
        "set_stream": lambda _: None,
        "get_memory_info": torch.cuda.mem_get_info,
        **_memory_counters(),
    }
    for name, value in accelerator.items():
        if hasattr(torch.accelerator, name):
            yield torch.accelerator, name, value
    yield torch.autograd, "_engine_run_backward", run_backward
    yield torch.autograd.function._HookMixin, "_register_hook", staticmethod(register_hook)  # noqa: SLF001  C++ calls it by this name
    if "torch._dynamo" in sys.modules:  # else its import reads TORCHDYNAMO_DISABLE
        yield sys.modules["torch._dynamo"].config, "disable", True
    run = threading.Thread.run

    def in_mode(thread: threading.Thread) -> None:
        with operators():
            run(thread)

    yield threading.Thread, "run", in_mode


@functools.cache
def _guard() -> None:
    """Make torch accept `cuda` tensors without a GPU, by a stand-in for CUDA's device guard."""
    # A build of torch without CUDA has no guard; the stand-in answers 0 to every call.
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    try:
        guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    except ValueError as error:
        raise NoResultError(
            f"torch {torch.__version__} has no registry of devices where it is expected: "
            "emulation needs torch 2.11 to 2.13"
        ) from error
    nobody, zero = guards[1] is None, ctypes.CFUNCTYPE(ctypes.c_int8)(lambda: 0)
    functions = (ctypes.c_void_p * 64)(*[ctypes.cast(zero, ctypes.c_void_p).value] * 64)
    stand_in = ctypes.c_void_p(ctypes.addressof(functions))
    if nobody:
        guards[1] = ctypes.addressof(stand_in)
    torch._C._ensureCUDADeviceGuardSet()  # noqa: SLF001  torch's fake tensors call it
    if nobody and guards[1] == ctypes.addressof(stand_in):
        guards[1] = None
        raise NoResultError(
            f"torch {torch.__version__} takes no tensors of a GPU that is not there"
        )


@contextlib.contextmanager
def installed(gpu: EmulatedGpu) -> Iterator[None]:
    """Make an emulated GPU the GPU of torch and Triton during a block."""
    target = gpu.target
    _guard()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_memory_limit())
        stack.enter_context(mock.patch.dict(os.environ, {"TORCHDYNAMO_DISABLE": "1"}))
        for owner, name, value in _replacements(target):
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        lift = torch._C._only_lift_cpu_tensors()  # noqa: SLF001
        # torch.tensor makes its tensor on the processor, then moves it where the mode sees it.
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: SLF001
        stack.callback(torch._C._set_only_lift_cpu_tensors, lift)  # noqa: SLF001
        # A module's parameters become new tensors: the memory of the old tensors is not the GPU's.
        overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        modules, real = sys.modules, sys.modules.get("amdsmi")
        modules["amdsmi"] = _amdsmi(target)
        if real:
            stack.callback(modules.update, amdsmi=real)
        else:
            stack.callback(modules.pop, "amdsmi", None)
        stack.enter_context(triton_driver(gpu))
        stack.enter_context(operators())
        yield
