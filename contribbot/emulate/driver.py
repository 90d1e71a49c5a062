"""Triton's driver for the emulated GPU, which executes the code that Triton compiles for AMD."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol
from unittest import mock

import numpy as np
import torch

from contribbot.emulate.code_object import Kernel, load
from contribbot.emulate.decode import FACTS, LDS
from contribbot.emulate.dispatch import argument_buffer, declared_arguments, execute, put
from contribbot.emulate.emulated_tensor import EmulatedTensor, is_pinned, place
from contribbot.emulate.errors import (
    KernelError,
    NoResultError,
    RequestError,
    UnmodelledError,
)
from contribbot.emulate.gpu import EmulatedGpu
from contribbot.emulate.memory import U8
from contribbot.emulate.workgroup import LaunchWatch
from contribbot.emulator_host import INSTALL

try:
    import triton
    from triton.backends import Backend, backends
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import GPUDriver
    from triton.compiler import CompiledKernel
    from triton.runtime import _allocation, driver
    from triton.runtime.jit import JITFunction, TensorWrapper
except ImportError as error:
    raise NoResultError(f"triton cannot be imported here: {error}", hint=INSTALL) from error
try:
    from triton.backends.amd.driver import make_tensordesc_arg, ty_to_cpp
except ImportError as error:
    raise NoResultError(
        f"triton {triton.__version__} has no back end for AMD that is known here: {error}",
        hint="python -m pip install 'triton>=3.6,<3.10'",
    ) from error

#: How a Python number is packed, by Triton's type of the parameter; others are whole numbers.
_FLOATS: Final = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
#: The number of each target in this process, by which Triton caches compiled kernels.
_NUMBERS: Final[dict[str, int]] = {}
_CODE: Final = frozenset({".py", ".so", ".bc"})
_WIDTH: Final = re.compile(r"[iu](\d+)$")


class _CompiledMetadata(Protocol):
    target: GPUTarget
    warp_size: int
    num_warps: int
    num_stages: int
    profile_scratch_size: int
    profile_scratch_align: int


class _Source(Protocol):
    fn: JITFunction
    signature: Mapping[object, object]
    constants: Mapping[tuple[int, ...], object]
    attrs: Mapping[tuple[int, ...], Sequence[tuple[str, int]]]


@dataclass(frozen=True)
class TritonLaunch:
    """A launch: Triton's compiled kernel, the grid, and all arguments, also constants."""

    kernel: Kernel
    source: _Source
    metadata: _CompiledMetadata
    grid: tuple[int, int, int]
    packed: U8
    args: tuple[object, ...]

    def run(self, watch: LaunchWatch | None = None) -> None:
        """Execute the kernel for all workgroups of the grid."""
        block = (self.metadata.num_warps * self.metadata.warp_size, 1, 1)
        execute(self.kernel, self.grid, block, self.packed, self.kernel.shared, watch=watch)

    def flat(self) -> Iterator[tuple[str, object, str]]:
        """Yield type, value and name of each argument except constants; tuples are flattened."""
        for (name, kind), value in zip(self.source.signature.items(), self.args, strict=True):
            yield from _flat(kind, value, str(name))


def as_stated(source: _Source, metadata: _CompiledMetadata) -> str:
    """Return a call's function, signature and constants as the text of a `[[compile]]` entry."""
    names, types = [*map(str, source.signature)], []
    for number, (name, kind) in enumerate(source.signature.items()):
        multiple = dict(source.attrs.get((number,), ())).get("tt.divisibility")
        types.append(f'{name} = "{kind}{f":{multiple}" if multiple else ""}"')
    constants = [
        f"{names[place]} = {_toml(value)}"
        for (place, *_), value in source.constants.items()
        if value is not None
    ]
    return (
        f'function = "{source.fn.__qualname__}"\nsignature = {{ {", ".join(types)} }}\n'
        f"constants = {{ {', '.join(constants)} }}\n"
        f"num_warps = {metadata.num_warps}\nnum_stages = {metadata.num_stages}"
    )


def _toml(value: object) -> str:
    plain = isinstance(value, bool | int | float | str)
    return json.dumps(value if plain else f"tl.{repr(value).rpartition('.')[2]}")


class _Module(bytes):
    """A code object loaded by the emulated GPU; `CompiledKernel.__del__` must not unload it."""


def _keep_loaded() -> None:
    """Make Triton 3.8's `CompiledKernel.__del__`, which asks a driver, skip emulated kernels."""
    unload: Callable[[object], None] | None = getattr(CompiledKernel, "__del__", None)
    if unload is None:
        return

    def finalise(kernel: CompiledKernel) -> None:
        if not isinstance(getattr(kernel, "module", None), _Module):
            unload(kernel)

    CompiledKernel.__del__ = finalise


_keep_loaded()


class _Utils:
    """The functions of a driver's C module that Triton's runtime calls."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu

    def load_binary(
        self, name: str, content: bytes, shared: int, device: int
    ) -> tuple[_Module, Kernel, int, int, int]:
        """Load a kernel; return module, kernel, VGPRs, spilled VGPRs and largest workgroup size."""
        del device
        record = self._gpu.record
        kernel = replace(load(content)[name], shared=shared, ran=set(), record=record)
        self._gpu.kernels.append(kernel)
        said = kernel.metadata
        most = said.max_flat_workgroup_size
        return _Module(content), kernel, said.vgpr_count, said.vgpr_spill_count, most

    def get_device_properties(self, device: int) -> dict[str, int | str]:
        """Return the properties of the emulated GPU that Triton reads."""
        del device
        target, facts = self._gpu.target, FACTS[self._gpu.target]
        return {
            "max_shared_mem": LDS[target],
            "multiprocessor_count": facts.units,
            "arch": target + facts.features,
            "warpSize": facts.lanes,
            "max_num_regs": 65536,
            "max_threads_per_sm": 2048,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 4096,
            "cooperativeLaunch": 1,
        }


def _flat(kind: object, value: object, name: str) -> Iterator[tuple[str, object, str]]:
    """Yield type, value and name of a parameter's parts except constants; tuples are flattened."""
    if isinstance(kind, tuple):
        assert isinstance(value, tuple)  # noqa: S101  Triton has made both
        for place_, (inner, each) in enumerate(zip(kind, value, strict=True)):
            yield from _flat(inner, each, f"{name}[{place_}]")
    elif str(kind).startswith("tensordesc"):  # as pointer, shape and strides: not on gfx1250
        values = make_tensordesc_arg(value, None, None)
        rank, flags = (len(values) - 2) // 4, (len(values) - 1) % 4  # two flags since Triton 3.7
        base = f"*{str(kind).removeprefix('tensordesc<').partition('[')[0]}"
        kinds = [base, *2 * rank * ["i64"], *flags * ["i1"], *rank * ["i32"], *rank * ["i64"]]
        yield from ((inner, each, name) for inner, each in zip(kinds, values, strict=True))
    elif kind != "constexpr":
        yield str(kind), value, name


class TritonLauncher:
    """Launches a compiled kernel on the emulated GPU."""

    def __init__(self, gpu: EmulatedGpu, src: _Source, metadata: _CompiledMetadata) -> None:
        self._gpu, self._source, self._metadata = gpu, src, metadata
        self._parameters = [(str(name), kind) for name, kind in src.signature.items()]
        self._target = metadata.target.arch
        self._scratch = metadata.profile_scratch_size, metadata.profile_scratch_align
        # Triton's intermediate code has no attributes.
        self._stated = as_stated(src, metadata) if hasattr(src, "attrs") else ""

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        kernel: Kernel,
        _packed_metadata: Sequence[int],
        launch_metadata: object,
        enter: Callable[[object], None] | None,
        leave: Callable[[object], None] | None,
        *args: object,
    ) -> None:
        """Launch the kernel for all workgroups of a grid, as Triton's runtime asks."""
        if enter is not None:
            enter(launch_metadata)
        if x * y * z > 0:
            packed = self._packed(kernel, x * y * z, stream, args)
            launch = TritonLaunch(kernel, self._source, self._metadata, (x, y, z), packed, args)
            if not _BENCHMARK.dry:
                assert kernel.target == self._target, kernel  # noqa: S101  another target's
                _BENCHMARK.chosen = False
                gpu = self._gpu
                gpu.count_launch(self._stated)
                try:
                    if getattr(self._metadata, "launch_cooperative_grid", False):
                        raise UnmodelledError(f"{kernel.name}: no cooperative launch is modelled")
                    gpu.observer(launch) if gpu.observer else launch.run()
                except (KernelError, NoResultError) as error:
                    gpu.record.add(error)
                    raise
        if leave is not None:
            leave(launch_metadata)

    def _packed(self, kernel: Kernel, groups: int, stream: int, args: Sequence[object]) -> U8:
        packed, declared = argument_buffer(kernel), declared_arguments(kernel)
        parameters = zip(self._parameters, args, strict=True)
        given = (each for (name, kind), value in parameters for each in _flat(kind, value, name))
        for place_, (argument, each) in enumerate(zip(declared, given, strict=False)):
            put(packed, argument.offset, _raw(*each, place_))
        size, align = self._scratch
        if size:  # the last argument is a pointer to this memory
            allocate = _allocation._profile_allocator.get()  # noqa: SLF001  as Triton's launchers do
            address = _pointer(allocate(size * groups, align, stream), "the profiler's scratch")
            put(packed, declared[-1].offset, struct.pack("<Q", address))
        return packed


def _raw(kind: str, value: object, name: str, number: int) -> bytes:
    if kind.startswith("*"):
        return struct.pack("<Q", _pointer(value, f"argument {number} ({name})"))
    assert isinstance(value, (int, float))  # noqa: S101  Triton knows the type from it
    if kind == "bf16":  # rounded to nearest even, as in Triton's launchers
        return bytes(torch.tensor([value], dtype=torch.bfloat16).view(torch.uint8).tolist())
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            return struct.pack(_FLOATS[kind], np.float32(value) if "32" in kind else value)
    found = _WIDTH.match(kind)
    size = max(1, int(found[1]) // 8) if found else 8
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def _pointer(value: object, name: str) -> int:
    if isinstance(value, TensorWrapper):  # a tensor with another type than the original
        value = value.base
    if value is None or isinstance(value, int):
        return value or 0
    if isinstance(value, EmulatedTensor):
        address = value.data_ptr()
        if address:
            place(value.contents).name = name
        return address
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise RequestError(
                f"{name} is a tensor of a real GPU ({value.device}): make it where the GPU is "
                "emulated"
            )
        if not is_pinned(value):  # the message of Triton's own launchers
            raise ValueError(
                f"Pointer argument cannot be accessed from Triton (cpu tensor?): {name}"
            )
        place(value).name = name
        offset = value.storage_offset() * value.element_size()
        return place(value).base + int(offset)
    found: object = getattr(value, "data_ptr", lambda: value)()
    if not isinstance(found, int):
        raise TypeError(f"{name} must be a pointer or a tensor, {type(value).__name__} is given")
    return found


class _Benchmark:
    """Triton's benchmarker here: autotuning takes the first configuration that can be launched."""

    def __init__(self) -> None:
        self.dry = self.chosen = False
        self._rank = 1.0

    def __call__(
        self, call: Callable[[], object], *, quantiles: Sequence[float] | None = None, **_: object
    ) -> list[float] | float:
        """Return a longer time than all calls before; try `call` if none is chosen yet."""
        self._rank += 1
        if not self.chosen:
            self.dry = True
            try:
                call()
                self.chosen = True
            finally:
                self.dry = False
        return [self._rank] * len(quantiles) if quantiles else self._rank


_BENCHMARK: Final = _Benchmark()


def emulated_driver(gpu: EmulatedGpu) -> type[GPUDriver]:
    """Return the driver class of a GPU, for Triton's list of back ends."""
    target = gpu.target

    class EmulatedDriver(GPUDriver):  # type: ignore[misc]  # triton has no types
        """The driver that Triton's runtime asks about the emulated GPU."""

        def __init__(self) -> None:
            super().__init__()
            self.utils = _Utils(gpu)
            self.launcher_cls = functools.partial(TritonLauncher, gpu)
            self.get_current_stream = lambda *_: 0
            self.get_current_device = lambda: _NUMBERS.setdefault(target, len(_NUMBERS))

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("hip", target, FACTS[target].lanes)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> object:
            return torch.cuda

        def map_python_to_cpp_type(self, ty: str) -> str:
            return str(ty_to_cpp(ty))

        def get_benchmarker(self) -> _Benchmark:
            return _BENCHMARK

        def get_empty_cache_for_benchmark(self) -> torch.Tensor:
            return torch.empty(1, dtype=torch.int32)

        def clear_cache(self, cache: torch.Tensor) -> None:
            """Do nothing: emulated times mean nothing."""

    return EmulatedDriver


@functools.cache
def _release_key() -> str:
    """Return Triton's cache key: a digest of its version and its files' sizes and times."""
    root, facts = Path(triton.__file__).parent, [triton.__version__]
    for name in ("_C", "backends", "compiler", "language"):
        files = (path for path in sorted(root.glob(f"{name}/**/*.*")) if path.suffix in _CODE)
        facts += [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


@contextlib.contextmanager
def triton_driver(gpu: EmulatedGpu) -> Iterator[None]:
    """Make the emulated GPU Triton's active GPU during a block."""
    config, before = driver, backends["amd"]
    kept = config._default, config._active  # noqa: SLF001  the attributes have no public name
    backends["amd"] = Backend(before.compiler, emulated_driver(gpu))
    config._default = config._active = None  # noqa: SLF001
    try:
        with (
            # `triton.autotune(use_cuda_graph=True)` measures with this function.
            mock.patch.object(triton.testing, "do_bench_cudagraph", _BENCHMARK),
            # Triton's own function reads 500 MB in each process.
            mock.patch.object(triton.runtime.cache, "triton_key", _release_key),
        ):
            yield
    finally:
        backends["amd"] = before
        config._default, config._active = kept  # noqa: SLF001
