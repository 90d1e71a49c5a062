"""Observe Triton launches on the emulated GPU; capture and replay a launch with its memory."""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import functools
import hashlib
import importlib
import os
import sys
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from pydantic import ValidationError
from torch.testing._comparison import default_tolerances
from triton.runtime.jit import JITFunction

from contribbot.emulate import outcomes
from contribbot.emulate.code_object import Kernel
from contribbot.emulate.dispatch import location
from contribbot.emulate.driver import TritonLaunch
from contribbot.emulate.emulated_tensor import (
    UNWRITTEN,
    EmulatedTensor,
    is_unwritten,
    mark_written,
    place,
)
from contribbot.emulate.errors import KernelError, NoResultError
from contribbot.emulate.gpu import active_gpu
from contribbot.emulate.memory import MEMORY, PAGE, U8, Buffer
from contribbot.emulate.workgroup import Hazard, LaunchWatch
from contribbot.errors import MachineError, UsageError
from contribbot.files import write_atomically
from contribbot.sweep.findings import (
    Capture,
    CapturedArgument,
    CapturedStorage,
    CapturedTensor,
    ExpectedTensor,
    KernelCode,
    KernelUse,
    packed_launch,
    read_launch,
)

#: Larger launches (bytes of tensors) are not watched, and captured only if most bytes are 0.
_MOST: Final = 1 << 28
_TOO_LARGE: Final = f"its tensors have more than {_MOST >> 20} MiB"
_RECENT: Final = 4  # the number of a test's last launches, one of which a comparison may be about
#: The options of Triton's AMD back end that a capture stores.
_OPTIONS: Final = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


class NotCapturedError(Exception):
    """A launch cannot be captured, for the reason in the message."""


@dataclass(frozen=True)
class Snapshot:
    """A launch, with the bytes that `restore` puts into each reachable buffer."""

    launch: TritonLaunch
    before: Mapping[Buffer, U8]
    known: Mapping[Buffer, NDArray[np.bool_] | None]
    large: bool = False

    @classmethod
    def of(cls, launch: TritonLaunch) -> Snapshot | None:
        """Return the snapshot of a launch that is to run; None: the launch is too large."""
        buffers = reachable(launch)
        if sum(buffer.size for buffer in buffers) > _MOST:
            return None
        for buffer in buffers:
            if not is_unwritten(buffer):
                buffer.known = None
            elif buffer.known is None:
                buffer.known = np.zeros(buffer.size, np.bool_)
        known = {each: None if each.known is None else each.known.copy() for each in buffers}
        return cls(launch, {each: content(each).copy() for each in buffers}, known)

    @classmethod
    def after(cls, launch: TritonLaunch) -> Snapshot:
        """Return the snapshot of a large launch after its run, with zeros in changed buffers."""
        before = {
            each: np.zeros(each.size, np.uint8) if MEMORY.changed(each) else content(each).copy()
            for each in reachable(launch)
        }
        return cls(launch, before, dict.fromkeys(before), large=True)

    def run(self) -> list[Buffer]:
        """Run the launch, again after hazards; return the changed buffers, or raise KernelError."""
        if self.large:
            self.launch.run()
            return []
        hazards, fault = watched(self)
        changed = [each for each in self.before if MEMORY.changed(each)]
        if hazards:
            _check(self, hazards, fault)
        if fault:
            raise fault
        return changed

    def reduced(self, fault: KernelError) -> Snapshot:
        """Return the snapshot with zeros in each buffer whose bytes the fault does not need."""
        after = {each: content(each).copy() for each in self.before}
        found = self
        try:
            for buffer in sorted(self.before, key=lambda each: -each.size):
                zeros = {buffer: np.zeros(buffer.size, np.uint8)}
                tried = replace(found, before={**found.before, **zeros})
                if found.before[buffer].any() and tried.ends_with(fault):
                    found = tried
        finally:
            for buffer, bytes_ in after.items():
                content(buffer)[:] = bytes_
        return found

    def ends_with(self, fault: KernelError) -> bool:
        """Restore the bytes, run the launch, and return whether fault and line are the same."""
        self.restore()
        try:
            self.run()
        except KernelError as error:
            return (error.fault, error.place.line) == (fault.fault, fault.place.line)
        except NoResultError:  # other bytes lead to no result, which is not the same fault
            pass
        return False

    def restore(self, *, flipped: bool = False) -> None:
        """Restore the bytes of all buffers; `flipped`: invert the unwritten bytes."""
        for buffer, before in self.before.items():
            known = self.known[buffer]
            content(buffer)[:] = before
            buffer.known = None if known is None else known.copy()
            if known is not None and flipped:
                content(buffer)[~known] ^= 0xFF


def content(buffer: Buffer) -> U8:
    """Return a buffer's bytes as an array that shares the memory."""
    pointer = ctypes.cast(buffer.host, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (buffer.size,))


def reachable(launch: TritonLaunch) -> list[Buffer]:
    """Return the buffers that a launch's pointers reach, also pointers in 64-bit tensors."""
    found = dict[int, Buffer]()

    def add(address: int) -> Buffer | None:
        buffer = MEMORY.find(address)
        if buffer is not None and buffer.size:
            found[buffer.row] = buffer
        return buffer

    for kind, value, _ in launch.flat():
        if kind.startswith("*") and (tensor := contents_of(value)) is not None:
            if not tensor.numel():
                continue
            buffer = add(place(tensor).base)
            if buffer and kind.lstrip("*k") in {"i64", "u64"} and buffer.size % 8 == 0:
                for page in np.unique(content(buffer).view(np.uint64) >> PAGE):
                    add(int(page) << PAGE)
    return [*found.values()]


def contents_of(value: object) -> torch.Tensor | None:
    """Return the CPU tensor with the contents of a kernel's argument; None: no tensor."""
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, EmulatedTensor):
        return value.contents
    return value if isinstance(value, torch.Tensor) else None


@dataclass
class LaunchObserver:
    """Observes the launches of a test: hazards, digests of results, and the last launches."""

    faulty: Snapshot | None = None
    fault: KernelError | None = None
    recent: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=_RECENT))
    launches: Counter[str] = field(default_factory=Counter)
    bits: dict[str, bytes] = field(default_factory=dict)
    compared: ExpectedValues | None = None
    known: dict[int, Kernel] = field(default_factory=dict)  # the reported kernels, by id
    code: list[KernelCode] = field(default_factory=list)

    def reset(self) -> None:
        """Forget the launches of the last test."""
        self.faulty = self.fault = self.compared = None
        for each in (self.recent, self.launches, self.bits):
            each.clear()

    def __call__(self, launch: object) -> None:
        """Run a launch; KernelError: a fault, or `_check` gets another result."""
        assert isinstance(launch, TritonLaunch)  # noqa: S101  the driver passes only this type
        name = launch.kernel.name
        self.launches[name] += 1
        if id(launch.kernel) not in self.known:
            self.known[id(launch.kernel)] = launch.kernel
            self.code.append(_code(launch))
        snapshot = Snapshot.of(launch)
        if snapshot is None:
            try:
                launch.run()
            except KernelError as error:
                if self.faulty is None:
                    self.faulty, self.fault = Snapshot.after(launch), error
                raise
            for buffer in filter(MEMORY.changed, reachable(launch)):
                mark_written(buffer)
            return
        self.recent.append(snapshot)
        try:
            changed = snapshot.run()
        except KernelError as error:
            if self.faulty is None:
                self.faulty, self.fault = snapshot, error
            raise
        total = hashlib.blake2b(self.bits.get(name, b""), digest_size=8)
        for buffer in changed:
            # Bytes that no write has set count as 0.
            known = 1 if buffer.known is None else buffer.known
            total.update((content(buffer) * known).data)
        self.bits[name] = total.digest()

    def new_code(self) -> list[KernelCode]:
        """Return the resources of the kernels that are new since the last call of this method."""
        code, self.code = self.code, []
        return code

    def suspect(self) -> Snapshot | None:
        """Return the last launch that reaches the compared tensors, or else the last launch."""
        tensors = (self.compared.actual, self.compared.expected) if self.compared else ()
        places = {
            found.untyped_storage().data_ptr()
            for each in tensors
            if (found := contents_of(each)) is not None
        }
        near = [each for each in self.recent if places & {b.host for b in each.before}]
        last = [*self.recent][-1:]
        return next(iter([*near[-1:], *last]), None)

    def kept(
        self, folder: Path, snapshot: Snapshot | None, said: str, line: str
    ) -> tuple[str, str]:
        """Write a launch into `captures/`; return the file name and "", or "" and why not."""
        if snapshot is None:
            return "", _TOO_LARGE
        if snapshot is self.faulty and self.fault is not None:
            snapshot = self.faulty = snapshot.reduced(self.fault)
        try:
            raw = capture(
                snapshot,
                said=said,
                line=line,
                compared=None if snapshot is self.faulty else self.compared,
            )
        except NotCapturedError as error:
            return "", str(error)
        except ValidationError as error:  # a name that is not valid
            return "", outcomes.line_of(str(error))
        name = f"{hashlib.sha256(raw).hexdigest()[:16]}.zip"
        try:
            write_atomically(folder / "captures" / name, raw)
        except OSError as error:
            return "", f"it cannot be written: {error.strerror}"
        return name, ""

    def uses(self) -> tuple[KernelUse, ...]:
        """Return the test's kernels with their numbers of launches and digests of the results."""
        return tuple(
            KernelUse(kernel=name, launches=number, bits=self.bits.get(name, b"").hex())
            for name, number in self.launches.items()
        )


def _code(launch: TritonLaunch) -> KernelCode:
    """Return the resources of a launch's kernel, and a digest of constants, types and options."""
    kernel, source = launch.kernel, launch.source
    pairs = zip(source.signature.values(), launch.args, strict=True)
    constants = [
        repr(getattr(value, "value", value)) for kind, value in pairs if kind == "constexpr"
    ]
    parts = [str(kind) for kind in source.signature.values()], constants, _options(launch)
    return KernelCode(
        target=kernel.target,
        kernel=kernel.name,
        variant=hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:12],
        registers=kernel.metadata.vgpr_count,
        spills=kernel.metadata.vgpr_spill_count,
        lds=kernel.descriptor.group_segment + kernel.shared,
        scratch=kernel.descriptor.private_segment,
    )


def _options(launch: TritonLaunch) -> dict[str, int]:
    return {
        name: value
        for name in _OPTIONS
        if isinstance(value := getattr(launch.metadata, name, None), int)
    }


def watched(
    snapshot: Snapshot, *, reverse: bool = False
) -> tuple[Sequence[Hazard], KernelError | None]:
    """Run a launch and record accesses; return the hazards, and the fault or None."""
    watch, fault = LaunchWatch(reverse=reverse), None
    for buffer in snapshot.before:
        MEMORY.watch(buffer, np.zeros(2 * buffer.size, np.uint32))
    try:
        snapshot.launch.run(watch)
    except KernelError as error:
        fault = error
    finally:
        for buffer in snapshot.before:
            buffer.touched = None
            if buffer.row and MEMORY.find(buffer.base) is buffer:
                MEMORY.watch(buffer, None)
    return watch.hazards, fault


def _check(snapshot: Snapshot, hazards: Sequence[Hazard], fault: KernelError | None) -> None:
    """Run a launch with waves reversed or unwritten bytes inverted; KernelError: another result."""
    first = {each: content(each).copy() for each in snapshot.before}
    known = {each: None if each.known is None else each.known.copy() for each in snapshot.before}
    try:
        for kind in sorted({hazard.kind for hazard in hazards}):
            snapshot.restore(flipped=kind == "unwritten")
            try:
                _, other = watched(snapshot, reverse=kind == "race")
            except NoResultError:  # the run has no result to compare with the first run
                continue
            differ, row = _difference(first, known, fault, other)
            if differ:
                of_kind = [hazard for hazard in hazards if hazard.kind == kind]
                where = next((each for each in of_kind if each.row == row), of_kind[0])
                place_ = location(snapshot.launch.kernel, where.at)
                raise where.error(place_, MEMORY, differ) from fault
    finally:
        for buffer, bytes_ in first.items():
            content(buffer)[:] = bytes_
            buffer.known = known[buffer]


def _difference(
    first: Mapping[Buffer, U8],
    known: Mapping[Buffer, NDArray[np.bool_] | None],
    fault: KernelError | None,
    other: KernelError | None,
) -> tuple[str, int]:
    """Return how a second run differs (empty: not at all), and the buffer's row number or 0."""
    if fault or other:
        if fault and other:
            return "", 0
        said = f"it ends with {other.fault}" if other else "it does not end so"
        return (f"{said} ({fault})" if fault else said), 0
    for buffer, bytes_ in first.items():
        changed = content(buffer) != bytes_
        if (mask := known[buffer]) is not None:
            changed &= mask
        if number := int(np.count_nonzero(changed)):
            return f"{number} bytes of {buffer.name} come out otherwise", buffer.row
    return "", 0


# --- The file of a captured launch -----------------------------------------------------------


@dataclass(frozen=True)
class ExpectedValues:
    """A comparison that a test made: actual and expected tensor, and the tolerances."""

    actual: torch.Tensor
    expected: torch.Tensor
    rtol: float
    atol: float


@contextlib.contextmanager
def watched_comparisons(observer: LaunchObserver) -> Iterator[None]:
    """Record the last tensors that a `with` block compares by assert_close, allclose or equal."""

    def seeing(compare: Callable[..., object], *, exact: bool) -> Callable[..., object]:
        @functools.wraps(compare)
        def compared(*args: object, **kwargs: object) -> object:
            pair = [*args, *kwargs.values()][:2]
            if all(isinstance(each, torch.Tensor) for each in pair) and len(pair) == 2:  # noqa: PLR2004  a pair
                actual, expected = pair
                assert isinstance(actual, torch.Tensor)  # noqa: S101  for mypy
                assert isinstance(expected, torch.Tensor)  # noqa: S101  for mypy
                near = (0.0, 0.0) if exact else default_tolerances(actual, expected)
                rtol, atol = (
                    float(given) if isinstance(given := kwargs.get(name), (int, float)) else default
                    for name, default in zip(("rtol", "atol"), near, strict=True)
                )
                observer.compared = ExpectedValues(actual, expected, rtol, atol)
            return compare(*args, **kwargs)

        return compared

    with contextlib.ExitStack() as stack:
        for owner, name in ((torch.testing, "assert_close"), (torch, "allclose"), (torch, "equal")):
            seen = seeing(getattr(owner, name), exact=name == "equal")
            stack.enter_context(mock.patch.object(owner, name, seen))
        yield


def capture(snapshot: Snapshot, *, said: str, line: str, compared: ExpectedValues | None) -> bytes:
    """Return a launch as the bytes of a zip file; NotCapturedError: the message has the reason."""
    launch, blobs = snapshot.launch, list[bytes]()
    function = launch.source.fn
    if not isinstance(function, JITFunction) or "<locals>" in function.fn.__qualname__:
        raise NotCapturedError("the kernel is defined inside a function")
    buffers = [*snapshot.before]
    storages = []
    for buffer, before in snapshot.before.items():
        known, zero = snapshot.known[buffer], not before.any()
        blobs += [
            b"" if zero else before.tobytes(),
            b"" if known is None else np.packbits(known).tobytes(),
        ]
        storages.append(CapturedStorage(size=buffer.size, zero=zero, unwritten=known is not None))
    if sum(map(len, blobs)) > _MOST:
        raise NotCapturedError(f"{_TOO_LARGE} that matter")
    numbers = {buffer.host: number for number, buffer in enumerate(buffers)}
    arguments = tuple(
        _argument(str(name), value, numbers)
        for name, value in zip(launch.source.signature, launch.args, strict=True)
    )
    expected = None
    if compared is not None and (found := _expected(compared, numbers)) is not None:
        expected, blob = found
        blobs.append(blob)
    told = Capture(
        target=launch.kernel.target,
        file=_file(function.fn.__code__.co_filename),
        module=function.fn.__module__,
        kernel=function.fn.__qualname__,
        grid=launch.grid,
        options=_options(launch),
        arguments=arguments,
        storages=tuple(storages),
        expected=expected,
        said=said,
        line=line,
    )
    return packed_launch(told, blobs)


def _file(path: str) -> str:
    """Return a source file's path relative to the current folder or to a folder of `sys.path`."""
    bases = [Path.cwd(), *map(Path, filter(None, sys.path))]
    found = [os.path.relpath(path, base) for base in bases if Path(path).is_relative_to(base)]
    return found[0] if found else path


def _tensor(tensor: torch.Tensor, storage: int) -> CapturedTensor:
    return CapturedTensor(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        offset=int(tensor.storage_offset()),
        storage=storage,
    )


def _argument(name: str, value: object, numbers: Mapping[int, int]) -> CapturedArgument:
    if isinstance(value, torch.Tensor):
        tensor = contents_of(value)
        assert tensor is not None  # noqa: S101  for mypy
        if not tensor.numel():
            return CapturedArgument(name=name, tensor=_tensor(tensor, -1))
        number = numbers.get(tensor.untyped_storage().data_ptr())
        if number is not None:
            return CapturedArgument(name=name, tensor=_tensor(tensor, number))
    value = getattr(value, "value", value)  # the value of a tl.constexpr
    if isinstance(value, triton.language.dtype):
        return CapturedArgument(name=name, dtype=str(value.name))
    if value is None or isinstance(value, (bool, int, float, str)):
        return CapturedArgument(name=name, literal=repr(value))
    if isinstance(value, tuple) and all(isinstance(x, (bool, int, float, str)) for x in value):
        return CapturedArgument(name=name, literal=repr(value))
    raise NotCapturedError(f"its argument {name} is a {type(value).__name__}")


def _expected(
    compared: ExpectedValues, numbers: Mapping[int, int]
) -> tuple[ExpectedTensor, bytes] | None:
    for seen, other in ((compared.actual, compared.expected), (compared.expected, compared.actual)):
        tensor, wanted = contents_of(seen), contents_of(other)
        if tensor is None or wanted is None or tensor.shape != wanted.shape or not tensor.numel():
            continue
        number = numbers.get(tensor.untyped_storage().data_ptr())
        if number is None:
            continue
        dtype = str(wanted.dtype).removeprefix("torch.")
        raw = wanted.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return ExpectedTensor(
            tensor=_tensor(tensor, number), dtype=dtype, rtol=compared.rtol, atol=compared.atol
        ), raw
    return None


@dataclass(frozen=True)
class CapturedLaunch:
    """A captured launch: the description `told`, and the contents of the storages in `blobs`."""

    told: Capture
    blobs: tuple[bytes, ...]

    @classmethod
    def read(cls, path: Path) -> CapturedLaunch:
        """Return the launch in a file of a sweep, or of a patch's checks."""
        return cls(*read_launch(path))

    def replay(self, kernel: object) -> None:
        """Launch a kernel as captured; KernelError: a fault; AssertionError: wrong numbers."""
        while not isinstance(kernel, JITFunction):
            inner: object = getattr(kernel, "fn", None)
            if inner is None:
                raise MachineError(f"{self.told.kernel}: the tree has no such Triton kernel")
            kernel = inner
        gpu = active_gpu()
        if gpu is None:
            raise MachineError("no GPU is emulated here", hint="run it as a check of [[emulated]]")
        storages = [*self._storages()]
        given = {each.name: _given(each, storages) for each in self.told.arguments}
        with gpu.observed(LaunchObserver()):
            kernel[self.told.grid](**given, **self.told.options)
        if (wanted := self.told.expected) is not None:
            dtype: torch.dtype = getattr(torch, wanted.dtype)
            raw = torch.frombuffer(bytearray(self.blobs[-1]), dtype=dtype)
            torch.testing.assert_close(
                _view(wanted.tensor, storages).cpu().to(dtype),
                raw.view(wanted.tensor.shape),
                rtol=wanted.rtol,
                atol=wanted.atol,
                equal_nan=True,
            )

    def _storages(self) -> Iterator[torch.Tensor]:
        for number, storage in enumerate(self.told.storages):
            raw, mask = self.blobs[2 * number : 2 * number + 2]
            made = torch.zeros(storage.size, dtype=torch.uint8)
            if not storage.zero:
                made = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
            made = made.to("cuda")
            if storage.unwritten and isinstance(made, EmulatedTensor):
                UNWRITTEN.add(made.untyped_storage())
                known = np.unpackbits(np.frombuffer(mask, np.uint8), count=storage.size)
                place(made.contents).known = known.astype(np.bool_)
            yield made


def _view(told: CapturedTensor, storages: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, told.dtype)
    if told.storage < 0:
        return torch.empty_strided(told.shape, told.strides, dtype=dtype, device="cuda")
    raw = storages[told.storage]
    whole = raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return whole.as_strided(told.shape, told.strides, told.offset)


def _given(told: CapturedArgument, storages: Sequence[torch.Tensor]) -> object:
    if told.tensor is not None:
        return _view(told.tensor, storages)
    if told.dtype:
        return triton.language.dtype(told.dtype)
    return (
        float(told.literal)
        if told.literal.lstrip("-") in {"inf", "nan"}
        else ast.literal_eval(told.literal)
    )


def replay(path: str | Path, tree: Path) -> None:
    """Launch a tree's kernel as captured in a file; raise the errors of `CapturedLaunch.replay`."""
    launch = CapturedLaunch.read(Path(path))
    told = launch.told
    launch.replay(tree_kernel(tree / told.file, told.module, told.kernel))


#: The names under which upstreams import Triton's modules.
_TRITON: Final = {
    "triton": "triton",
    "tl": "triton.language",
    "libdevice": "triton.language.extra.libdevice",
    "tldevice": "triton.language.extra.libdevice",
}


class KernelSource:
    """A tree's Python file, executed in part: the kernel, and the names that the kernel uses."""

    def __init__(self, path: Path, root: Path, loaded: dict[Path, KernelSource]) -> None:
        self._path, self._root, self._loaded = path, root, loaded
        loaded[path] = self
        try:
            self._tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError) as error:
            raise UsageError(f"{path}: cannot be read as Python: {error}") from error
        self._module = types.ModuleType(".".join(path.relative_to(root).with_suffix("").parts))

    def find(self, name: str) -> object:
        """Return the value of a top-level name; UsageError: the file does not define the name."""
        if not hasattr(self._module, name):
            self._define(name)
        return getattr(self._module, name)

    def without_defaults(self, name: str) -> KernelSource:
        """Remove the defaults of a function, because a launch passes each argument."""
        node = self._nodes.get(name)
        if isinstance(node, ast.FunctionDef):
            node.args.defaults = []
            node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
        return self

    @cached_property
    def _nodes(self) -> dict[str, ast.stmt]:
        return {name: node for node in _statements(self._tree.body) for name in _names(node)}

    def _define(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            raise UsageError(f"{self._path}: the file has no {name}")
        if isinstance(node, ast.ImportFrom):
            setattr(self._module, name, self._imported(node, name))
            return
        if isinstance(node, ast.FunctionDef):
            # The launch already has the choices of autotuning and heuristics.
            node.decorator_list = [each for each in node.decorator_list if "jit" in ast.dump(each)]
        for used in _used(node) & self._nodes.keys() - {name}:
            if not hasattr(self._module, used):
                self._define(used)
        code = compile(ast.Module([node], []), str(self._path), "exec")
        exec(code, vars(self._module))  # noqa: S102  the tree's code, which a check runs

    def _imported(self, node: ast.ImportFrom, name: str) -> object:
        """Return the object of an import: from Triton, the tree or an installed package."""
        if name in _TRITON:
            return importlib.import_module(_TRITON[name])
        asked = next(each.name for each in node.names if name in {each.asname, each.name})
        package = [*self._path.relative_to(self._root).parts][: -node.level] if node.level else []
        parts = [*package, *(node.module or "").split(".")]
        base = self._root.joinpath(*filter(None, parts))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                source = self._loaded.get(path) or KernelSource(path, self._root, self._loaded)
                return source.find(asked)
        return getattr(importlib.import_module(".".join(filter(None, parts))), asked)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those within `if` and `try`."""
    for node in body:
        yield node
        for name in ("orelse", "body"):
            if isinstance(node, (ast.If, ast.Try)):
                yield from _statements(getattr(node, name))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _used(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names - vars(builtins).keys()


def tree_kernel(path: Path, module: str, name: str) -> object:
    """Return a Triton kernel by its name in a tree's file, which is executed in part."""
    root = path.parents[len(module.split(".")) - 1]
    kernel = KernelSource(path, root, {}).without_defaults(name).find(name)
    # Triton reads the function's text, and the defaults in it.
    if (update := getattr(kernel, "_unsafe_update_src", None)) is not None:
        update(_without_names(getattr(kernel, "src", "")))
    return kernel


def _without_names(source: str) -> str:
    """Return a function's text, on the same lines, with 0 for each default that is no constant."""
    lines = source.encode().split(b"\n")
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101  Triton has read the function
    given = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    for node in reversed(given):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        if not isinstance(node, ast.Constant):
            rest = lines[last][node.end_col_offset :]
            lines[first : last + 1] = [
                lines[first][: node.col_offset] + b"0",
                *[b""] * (last - first - 1),
                *([rest] if last > first else []),
            ]
            if last == first:
                lines[first] += rest
    return b"\n".join(lines).decode()
