"""The emulated GPU as torch sees it: what asks for `cuda` gets tensors whose memory is the GPU's.

Their contents lie in this process's memory, torch's operators run on the processor, and
`torch.cuda` answers as a ROCm build of torch does on that GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import os
import re
import resource
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.library
from numpy.typing import NDArray
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

from contribbot.emulate.backward import run_backward
from contribbot.emulate.decode import LDS, check_target
from contribbot.emulate.faults import NotEmulatedError, UnmodelledError
from contribbot.emulate.memory import MEMORY, Buffer
from contribbot.emulate.record import RECORD
from contribbot.errors import MachineError, UsageError
from contribbot.hardware.gpus import wave_size

_DEVICE: Final = torch.device
_CPU: Final = torch.device("cpu")
_GPU: Final = torch.device("cuda", 0)


class _Facts(NamedTuple):
    """What a GPU says of itself: compute capability, compute units, features."""

    capability: tuple[int, int]
    units: int
    features: str = ""


#: From LLVM's AMDGPUUsage (features) and AMD's data sheets (compute units).
FACTS: Final = {
    "gfx90a": _Facts((9, 0), 104, ":sramecc+:xnack-"),
    "gfx942": _Facts((9, 4), 304, ":sramecc+:xnack-"),
    "gfx950": _Facts((9, 5), 256, ":sramecc+:xnack-"),
    "gfx1100": _Facts((11, 0), 96),
    "gfx1201": _Facts((12, 0), 64),
}
#: The version of ROCm that `torch.version.hip` tells: the one of torch 2.13's ROCm wheels.
_HIP: Final = "7.2.0"


# --- Operators -------------------------------------------------------------------------------

#: What torch says of it.
_NO_ROOM: Final = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_PIN: Final = torch.ops.aten._pin_memory.default  # noqa: SLF001  the operator's name


def _dispatch(
    func: torch._ops.OpOverload,
    types: Sequence[type],
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
) -> object:
    """Run an operator on the processor, and give its results the device that they should have."""
    del types
    kwargs = kwargs or {}
    # In inference mode `Tensor.to` comes here itself, with the device by place.
    asked = kwargs.get("device", next((x for x in args if isinstance(x, _DEVICE)), None))
    here = any(map(_is_ours, (*args, *kwargs.values())))
    ours = here if not isinstance(asked, _DEVICE) else asked.type == "cuda"
    pinned = bool(kwargs.pop("pin_memory", None))
    if func is torch.ops.aten.is_pinned.default:
        return not here and isinstance(args[0], torch.Tensor) and is_pinned(args[0])
    if func is _PIN:
        func, args, kwargs, pinned = torch.ops.aten.clone.default, args[:1], {}, True
    if not (here or ours):
        made = func(*args, **kwargs)
        if pinned and isinstance(made, torch.Tensor):
            _PINNED.add(made.untyped_storage())
        return made
    if key := _composite(func) or _python_kernel(func):
        with _mode():
            return func._op_dk(key, *args, **kwargs)  # noqa: SLF001  it has no other name
    if torch.Tag.inplace_view in func.tags:
        _reshape(func, args, kwargs)
    try:
        made = func(*map(_unwrapped, args), **{key: _unwrapped(x) for key, x in kwargs.items()})
    except RuntimeError as error:
        if found := _NO_ROOM.search(str(error)):
            raise OutOfRoomError(
                f"the emulated GPU has no room for {int(found[1]) / 2**30:.1f} GiB: its memory is "
                f"this machine's, which has {free_memory() / 2**30:.1f} GiB left; take smaller "
                "tensors"
            ) from error
        raise
    if RECORD.observer is not None:
        _note_writes(func, args, kwargs, made)
    written = _written(func)
    if len(written) == 1:  # what is changed in place is returned as it was given
        place_ = written[0]
        return args[place_] if isinstance(place_, int) else kwargs[place_]
    return _wrapped(made) if ours else made


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's has no types
    """Sees every operator, those that make tensors for a device too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to be skipped by it, it would have to be imported

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        return _dispatch(func, types, args, kwargs)


def _mode() -> TorchDispatchMode:
    return _Mode()  # type: ignore[no-untyped-call]  # torch's has no types


def _is_ours(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_ours, value))
    return isinstance(value, EmulatedTensor)


def _unwrapped(value: object) -> object:
    if isinstance(value, EmulatedTensor):
        return value.contents
    if isinstance(value, (list, tuple)):
        return type(value)(map(_unwrapped, value)) if not hasattr(value, "_fields") else value
    return _CPU if isinstance(value, _DEVICE) and value.type == "cuda" else value


def _wrapped(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_wrapped, value))
    return EmulatedTensor(value) if isinstance(value, torch.Tensor) else value


@functools.cache
def _written(func: torch._ops.OpOverload) -> tuple[int | str, ...]:
    """Return which arguments an operator changes and returns: by place, or by name."""
    schema = func._schema  # noqa: SLF001  torch documents it
    if not all(each.alias_info and each.alias_info.is_write for each in schema.returns):
        return ()
    if not schema.returns:
        return ()
    places = [
        argument.name if argument.kwarg_only else place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info and argument.alias_info.is_write
    ]
    return tuple(places)


def _note_writes(
    func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object], made: object
) -> None:
    """Keep which storages no operator has written to."""
    if func.overloadpacket in _EMPTY and isinstance(made, torch.Tensor):
        UNWRITTEN.add(made.untyped_storage())
        return
    for place_, argument in enumerate(func._schema.arguments):  # noqa: SLF001  see above
        if argument.alias_info and argument.alias_info.is_write:
            given = kwargs.get(argument.name, args[place_] if place_ < len(args) else None)
            for each in given if isinstance(given, (list, tuple)) else [given]:
                if isinstance(each, torch.Tensor):
                    UNWRITTEN.discard(each.untyped_storage())


def _reshape(
    func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Give tensors the shape that an operator gives to their contents in place."""
    try:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001  torch's own subclasses use it
            func(*args, **kwargs)
    except NotImplementedError as error:
        raise NotEmulatedError(f"{func} of the emulated GPU is not modelled") from error


@functools.cache
def _composite(func: torch._ops.OpOverload) -> torch._C.DispatchKey | None:
    """Return the key of an operator that calls others: in inference mode they come here whole."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001  it has no other name
    return key if func.has_kernel_for_dispatch_key(key) else None


def _python_kernel(func: torch._ops.OpOverload) -> torch._C.DispatchKey | None:
    """Return the key under which somebody registered a Python kernel for GPUs."""
    registered: set[str] = torch.library._impls  # noqa: SLF001  it has no other name
    found = (key for key, names in _names(func).items() if not registered.isdisjoint(names))
    return next(found, None)


@functools.cache
def _names(func: torch._ops.OpOverload) -> dict[torch._C.DispatchKey, list[str]]:
    """Return how torch.library notes an operator's kernels, by dispatch key."""
    namespace, _, name = func._schema.name.partition("::")  # noqa: SLF001
    keys = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CompositeExplicitAutograd  # noqa: SLF001
    names = [f"{namespace}/{name}", f"{namespace}/{name}.{func._overloadname}"]  # noqa: SLF001
    return {key: [f"{each}/{key.name}" for each in names] for key in keys}


class EmulatedTensor(torch.Tensor):
    """A tensor of the emulated GPU; `contents` holds its contents."""

    contents: torch.Tensor
    # Where no mode is: in threads that began before.
    __torch_dispatch__ = staticmethod(_dispatch)  # type: ignore[assignment]  # torch's stub
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001  as torch documents it

    @staticmethod
    def __new__(cls: type[EmulatedTensor], contents: torch.Tensor) -> EmulatedTensor:  # noqa: PYI034  it is no subclass's
        """Wrap a tensor of the processor."""
        if contents.layout is not torch.strided:
            raise NotEmulatedError(f"the emulated GPU has no {contents.layout} tensors")
        # Never an inference tensor: in inference mode, too, it may be a view of one that is none.
        with torch.inference_mode(mode=False):
            made: EmulatedTensor = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001
                cls, contents.size(), strides=contents.stride(), dtype=contents.dtype, device=_GPU,
                storage_offset=contents.storage_offset(),
            )  # fmt: skip
        made.contents = contents
        return made

    def data_ptr(self) -> int:
        """Return its address in the GPU's memory."""
        if not self.contents.numel():
            return 0
        offset = self.contents.storage_offset() * self.contents.element_size()
        return place(self.contents).base + int(offset)

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage of its contents."""
        return self.contents.untyped_storage()

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history."""
        found: torch.Tensor = torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]  # torch's stub
        return found

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]  # torch's stub
        self.contents = value.contents if isinstance(value, EmulatedTensor) else value

    def tolist(self) -> list[object]:
        """Return its elements."""
        elements: list[object] = self.contents.tolist()
        return elements

    def numpy(self, *, force: bool = False) -> NDArray[np.generic]:
        """Return its elements if that is forced."""
        if not force:
            raise TypeError(
                f"can't convert {_GPU} device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return self.contents.numpy(force=True)

    def is_pinned(self, device: object = None) -> bool:  # noqa: ARG002  torch's signature
        """Say no: memory of a GPU is not pinned."""
        return False

    def __repr__(self, **_: object) -> str:  # type: ignore[override]  # torch's has a keyword
        """Return what torch prints for a tensor of a GPU."""
        return f"{repr(self.contents)[:-1]}, device='{_GPU}')"

    def __deepcopy__(self, memo: dict[int, object]) -> EmulatedTensor:
        """Return a copy with memory of its own."""
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        assert isinstance(copied, EmulatedTensor)  # noqa: S101  for mypy
        return copied


# --- Memory ----------------------------------------------------------------------------------

#: Of each storage that has an address, by where it lies in this process.
_PLACED: Final[dict[int, tuple[weakref.ref[torch.UntypedStorage], Buffer]]] = {}
#: Storages of `torch.empty` that no operator has written to; kernels may have.
UNWRITTEN: Final[weakref.WeakSet[torch.UntypedStorage]] = weakref.WeakSet()
_EMPTY: Final = frozenset({
    torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty, torch.ops.aten.new_empty_strided,
})  # fmt: skip
#: Storages that are pinned: kernels may reach them.
_PINNED: Final[weakref.WeakSet[torch.UntypedStorage]] = weakref.WeakSet()


def place(tensor: torch.Tensor) -> Buffer:
    """Return the buffer of a tensor's storage, which it keeps as long as it lives."""
    storage = tensor.untyped_storage()
    host, size = storage.data_ptr(), storage.nbytes()
    known, buffer = _PLACED.get(host, (None, None))
    if known and buffer and known() is storage and buffer.size == size:
        return buffer
    if buffer:
        MEMORY.remove(buffer)
    buffer = Buffer("a tensor that is no argument", host, size)
    MEMORY.add(buffer)
    _PLACED[host] = weakref.ref(storage), buffer
    weakref.finalize(storage, _forget, host, buffer)
    return buffer


def is_unwritten(buffer: Buffer) -> bool:
    """Say whether a buffer is one of `torch.empty` that no operator has written to."""
    known, placed = _PLACED.get(buffer.host, (None, None))
    storage = known() if known and placed is buffer else None
    return storage is not None and storage in UNWRITTEN


def _forget(host: int, buffer: Buffer) -> None:
    if _PLACED.get(host, (None, None))[1] is buffer:
        del _PLACED[host]
        MEMORY.remove(buffer)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Say whether a kernel may reach a tensor of the processor."""
    return tensor.untyped_storage() in _PINNED


def free_memory() -> int:
    """Return how many bytes this machine has left."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 1 << 40
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if "MemAvailable" in line)


class OutOfRoomError(UnmodelledError, torch.OutOfMemoryError):
    """This machine has no memory for a tensor."""


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """Have an allocation fail that this machine has no memory for: it would kill us later."""
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
    """An event; no time of it means anything."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take what torch's takes."""

    def record(self, *args: object) -> None:
        """Do nothing: all that was asked for has been done."""

    synchronize = wait = record

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def elapsed_time(self, end: object) -> float:  # noqa: ARG002  torch's signature
        """Return 1 ms."""
        return 1.0


class Stream:
    """A stream: there is one, and it is never behind."""

    cuda_stream = 0
    device = _GPU
    device_index = 0
    priority = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take what torch's takes."""

    def __enter__(self) -> Stream:  # noqa: PYI034  there is one
        """Change nothing."""
        return self

    def __exit__(self, *args: object) -> None:
        """Change nothing."""

    def synchronize(self, *args: object) -> None:
        """Do nothing."""

    wait_stream = wait_event = synchronize

    def __eq__(self, other: object) -> bool:
        """Say yes: there is one."""
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        """Agree with equality."""
        return self.cuda_stream

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event."""
        return event or Event()

    def query(self) -> bool:
        """Say that nothing is to be done."""
        return True


class Graph:
    """A CUDA graph: a class, since annotations name it."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Refuse: nothing is captured here."""
        raise NotEmulatedError(
            "CUDA graphs are not emulated: run the same code without them (enforce_eager)"
        )


def _cuda(target: str) -> dict[str, object]:
    """Return what `torch.cuda` answers."""
    facts, total = FACTS[target], free_memory()
    properties = types.SimpleNamespace(
        name=f"{target}, emulated", gcnArchName=target + facts.features, major=facts.capability[0],
        minor=facts.capability[1], multi_processor_count=facts.units, warp_size=wave_size(target),
        total_memory=total, shared_memory_per_block=LDS[target], L2_cache_size=4 << 20,
        shared_memory_per_block_optin=LDS[target], regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, is_integrated=False, is_multi_gpu_board=False,
    )  # fmt: skip
    stream = Stream()

    def always(value: object) -> Callable[..., object]:
        return lambda *_args, **_kwargs: value

    return {
        "is_available": always(True), "is_initialized": always(True),
        "device_count": always(1), "_device_count_amdsmi": always(1), "current_device": always(0),
        "get_device_capability": always(facts.capability), "get_device_properties":
        always(properties), "get_device_name": always(properties.name),
        "get_arch_list": always([target]), "current_stream": always(stream),
        "default_stream": always(stream), "stream": always(stream), "device": Stream,
        "Event": Event, "Stream": Stream, "ExternalStream": Stream,
        "mem_get_info": lambda *_: (free_memory(), total), "memory_allocated": always(0),
        "max_memory_allocated": always(0), "memory_reserved": always(0),
        "max_memory_reserved": always(0), "memory_stats": always({}),
        "is_current_stream_capturing": always(False), "CUDAGraph": Graph, "graph": Graph,
        "graph_pool_handle": always((0, 0)),
        "is_bf16_supported": always(True), "get_sync_debug_mode": always(0),
        "can_device_access_peer": always(False),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "manual_seed": torch.default_generator.manual_seed,
        # Each a function of its own: torch.compile looks them up.
        **{name: always(None) for name in (
            "_lazy_init", "init", "synchronize", "set_device", "empty_cache", "manual_seed_all",
            "set_stream", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect",
            "seed", "seed_all", "set_sync_debug_mode",
        )},
    }  # fmt: skip


def _amdsmi(target: str) -> types.ModuleType:
    """Return a stand-in for AMD's system management library: vLLM takes the target from it."""
    module, total = types.ModuleType("amdsmi"), free_memory()
    names = {"target_graphics_version": target, "market_name": target, "device_id": ""}
    error: type[Exception] = type("AmdSmiException", (Exception,), {})

    def unknown(*_: object) -> None:
        raise error("the emulated GPU has no answer to this")

    for name in ("get_gpu_device_uuid", "topo_get_link_type", "topo_get_numa_node_number"):
        setattr(module, f"amdsmi_{name}", unknown)
    vars(module).update(
        __spec__=importlib.machinery.ModuleSpec("amdsmi", None), AmdSmiException=error,
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0), amdsmi_init=lambda *_: None,
        amdsmi_shut_down=lambda: None, amdsmi_get_processor_handles=lambda: [0],
        amdsmi_get_gpu_asic_info=lambda _: names, amdsmi_get_gpu_memory_total=lambda *_: total,
    )  # fmt: skip
    return module


class Generator(torch.Generator):
    """A generator: that of a GPU is the processor's."""

    def __new__(cls, device: object = "cpu") -> Generator:  # noqa: ARG004, PYI034
        """Make one of the processor."""
        return super().__new__(cls, device="cpu")  # type: ignore[call-arg]  # torch's stub lacks it


class _LikeDevice(type):
    """Of a class that stands for torch.device: also in torch's tables of types."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _DEVICE)

    def __eq__(cls, other: object) -> bool:
        return other is _DEVICE or other is cls

    def __hash__(cls) -> int:
        return hash(_DEVICE)


class DeviceByNumber(metaclass=_LikeDevice):
    """`torch.device`, where a number means a GPU: a build of torch for processors refuses it."""

    def __new__(cls, *args: object, **kwargs: object) -> torch.device:  # type: ignore[misc]
        """Return a real one."""
        if args and isinstance(args[0], int):
            args = ("cuda", *args)
        return _DEVICE(*args, **kwargs)  # type: ignore[call-overload, no-any-return]  # torch checks them


def _replacements(target: str) -> Iterator[tuple[object, str, object]]:
    """Yield what of torch is replaced: where, its name, by what."""
    for name, value in _cuda(target).items():
        yield torch.cuda, name, value
    yield torch, "Generator", Generator
    yield torch, "device", DeviceByNumber
    tensor = torch.tensor
    _device_constructors()  # by which a default device knows torch's own

    def pinnable(data: object, *, pin_memory: bool = False, **more: object) -> torch.Tensor:
        # torch's asks for pinned memory itself, where no mode sees it.
        made = tensor(data, **more)  # type: ignore[arg-type]  # torch checks them
        return made.pin_memory() if pin_memory else made

    yield torch, "tensor", pinnable
    yield torch, "Event", Event
    yield torch, "Stream", Stream
    yield torch.version, "hip", _HIP
    yield torch.version, "cuda", None
    accelerator = {
        "is_available": lambda: True, "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: _GPU, "current_device_index": lambda: 0,
        "set_device_index": lambda *_: None, "synchronize": lambda *_: None,
        "current_stream": lambda *_: Stream(), "empty_cache": lambda: None,
        "empty_host_cache": lambda: None,
        "device_index": contextlib.nullcontext, "set_stream": lambda _: None,
        "reset_peak_memory_stats": lambda *_: None, "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0, "memory_stats": lambda *_: {},
        "get_memory_info": lambda *_: (free_memory(), free_memory()),
        "memory_allocated": lambda *_: 0, "max_memory_allocated": lambda *_: 0,
    }  # fmt: skip
    for name, value in accelerator.items():
        if hasattr(torch.accelerator, name):
            yield torch.accelerator, name, value
    yield torch.autograd, "_engine_run_backward", run_backward
    if "torch._dynamo" in sys.modules:  # else it reads TORCHDYNAMO_DISABLE when it is imported
        yield sys.modules["torch._dynamo"].config, "disable", True
    run = threading.Thread.run

    def in_mode(thread: threading.Thread) -> None:
        with _mode():
            run(thread)

    yield threading.Thread, "run", in_mode


@functools.cache
def _guard() -> None:
    """Have torch take tensors of a GPU that is not there, as its fake tensors are.

    torch offers that for builds with CUDA. A build without has nobody in the place of CUDA's
    guard: for the length of the call, somebody stands there who answers 0 to every question.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    try:
        guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    except ValueError as error:
        raise MachineError(
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
        raise MachineError(f"torch {torch.__version__} takes no tensors of a GPU that is not there")


#: The GPU that is emulated now, or none.
_ACTIVE: Final[list[str]] = []


@contextlib.contextmanager
def device(target: str) -> Iterator[None]:
    """Make an emulated AMD GPU the device `cuda` of torch and Triton, for a while.

    Tensors that are made for `cuda` inside are the emulated GPU's; Triton kernels that are
    launched on them are compiled by Triton's AMD back end for the target, and their code objects
    executed. torch.compile runs its function as it is.

    Args:
        target: Such as `gfx942`.

    Raises:
        UsageError: The target is not modelled, or another one is emulated already.
        MachineError: What that takes is not installed.
    """
    check_target(target)
    if _ACTIVE:
        raise UsageError(f"{_ACTIVE[0]} is emulated already: one GPU at a time")
    from contribbot.emulate.driver import installed  # noqa: PLC0415  it imports triton

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
        # A module's parameters become new ones: the old ones' memory is not the GPU's.
        overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        modules, real = sys.modules, sys.modules.get("amdsmi")
        modules["amdsmi"] = _amdsmi(target)
        if real:
            stack.callback(modules.update, amdsmi=real)
        else:
            stack.callback(modules.pop, "amdsmi", None)
        stack.enter_context(installed(target))
        stack.enter_context(_mode())
        stack.callback(_ACTIVE.clear)
        _ACTIVE.append(target)
        yield
