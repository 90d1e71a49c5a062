"""Watch torch's operators: find work that fell back to the CPU, and copies from and to the GPU."""
# The watched program loads this file by path, and may have another Python and torch: import
# nothing else here.

from __future__ import annotations

import contextlib
import enum
import functools
import linecache
import re
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from time import perf_counter_ns
from types import FrameType
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch


class Group(enum.Enum):
    """Kinds of aten's operators by name; operators without a kind here are plain work."""

    PLAIN = ""
    #: Makes or reshapes a tensor, without work and without a read; views count as this, too.
    SHAPE = (
        "empty empty_strided empty_like zeros zeros_like ones ones_like full full_like arange"
        " scalar_tensor new_empty new_zeros new_ones new_full is_pinned detach_ resize_ set_"
        " record_stream"
    )
    COPY = "_to_copy to clone contiguous _pin_memory"
    COPY_INTO = "copy_ _foreach_copy_"
    LIFT = "lift_fresh"  # the end of torch.tensor(…), whose copies are not seen
    READ = "_local_scalar_dense item is_nonzero equal allclose"  # returns a Python value
    #: Reads from the GPU the size of a result, or whether the work succeeded.
    ASK = (
        "nonzero nonzero_numpy argwhere masked_select _unique _unique2 unique_dim bincount"
        " unique_consecutive unique_dim_consecutive _linalg_check_errors"
    )
    INDEX = "index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put"


#: Compared by identity for each operator: an enum's hash and attributes are slow Python code.
_PLAIN, _SHAPE, _COPY, _READ = Group.PLAIN, Group.SHAPE, Group.COPY, Group.READ
_SHORT: Final = (_PLAIN, _COPY, _READ, Group.LIFT)
_GROUPS: Final = {f"aten::{name}": group for group in Group for name in group.value.split()}
#: Bytes that an operator reads from the GPU to know a size or a flag.
_WORD: Final = 8
#: The rounds from which uploads count as a loop.
_LOOP: Final = 3
#: Paths of code that is not the program's: torch and contribbot, packages, then Python.
_HIDDEN: Final = tuple(f"{path}/" for path in (*torch.__path__, Path(__file__).parent))
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_PYTHON: Final = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))


class CallSite(NamedTuple):
    """A line of the program, with the kind of an event and the operator."""

    kind: str
    operator: str
    file: str
    line: int


@dataclass
class Counts:
    """How often an event happened at a place, and the cost of all these events."""

    count: int = 0
    bytes: int = 0
    nanoseconds: int = 0
    #: Events with other GPU work between them; the GPU's operators before the last event.
    rounds: int = 0
    work: int = -1


def worth_a_line(place: CallSite, counts: Counts) -> bool:
    """Return whether to report a place; a few uploads are not reported."""
    return place.kind != "upload" or counts.rounds >= _LOOP


class Call(NamedTuple):
    """A call of an operator: the arguments, the result, and the host's nanoseconds."""

    operator: str
    group: Group
    arguments: dict[str, object]
    result: object
    spent: int


class Audit(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Looks at each operator that runs in a thread to which this mode is pushed."""

    # `device`: the accelerator's type; empty: all but the CPU and `meta`. `strict`: all work on
    # the CPU counts, even on data that never was on the GPU.

    def __init__(self, device: str = "", *, strict: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types there
        self.fault = ""
        self.gpu_operators = 0
        self.places: dict[CallSite, Counts] = {}
        self._strict = strict
        # A string instead of torch.device, for back ends that register after torch is imported.
        self._type, _, self._number = device.partition(":")
        # Keyed by id, because an operator's hash is Python code; holding it keeps its id unique.
        self._groups: dict[int, tuple[object, Group]] = {}
        #: CPU storages whose data came from the GPU.
        self._derived: dict[int, StorageWeakRef] = {}
        self._purge_at = 1024

    # Without the first method, torch.compile skips all code under a mode; without the second,
    # torch wraps the mode's method for the compiler, which doubles the cost.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that torch.compile works as without this mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def push(self) -> None:  # type: ignore[override]  # torch's is deprecated, and means another thing
        """Watch the current thread from now on."""
        # `with` would also set global flags of torch, which make torch take other paths.
        _python_dispatch._push_mode(self)  # noqa: SLF001  no public way

    def pop(self) -> None:
        """Stop watching the current thread."""
        _python_dispatch._pop_mode()  # noqa: SLF001  no public way

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the operator; look closer unless it is plain work on one device."""
        began = perf_counter_ns()
        _, group = self._groups.get(id(func)) or self._group(func)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if group is _SHAPE:
            return result
        # A cheap test for nearly all operators, which costs less than the dispatch.
        first = args[0] if args else None
        if not isinstance(first, Tensor):
            first = next(_tensors(args), None)
        made = result if isinstance(result, Tensor) else first
        alike = first is not None and made is not None and first.is_cpu is made.is_cpu
        if alike and first is not None and group in _SHORT and not self._strict:
            if first.is_cpu and (group is _READ or not self._derived):
                return result
            if not first.is_cpu and (group is _PLAIN or group is _COPY):
                self.gpu_operators += 1
                return result
        # Fake tensors, with which torch.compile traces, do no work.
        if not self.fault and not any(kind.__module__.startswith("torch._sub") for kind in types):
            spent = perf_counter_ns() - began
            schema = func._schema  # noqa: SLF001  the only way
            names = [argument.name for argument in schema.arguments]
            arguments = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            try:
                self._look(Call(schema.name, group, arguments, result, spent))
            except Exception as error:  # noqa: BLE001  an error here must not end the program
                self.fault = f"{schema.name}: {error!r}"
        return result

    def _group(self, func: torch._ops.OpOverload) -> tuple[object, Group]:
        schema = func._schema  # noqa: SLF001  the only way
        group = _GROUPS.get(schema.name, Group.SHAPE if func.is_view else Group.PLAIN)
        if (schema.name, schema.overload_name) == ("aten::repeat_interleave", "Tensor"):
            group = Group.ASK
        return self._groups.setdefault(id(func), (func, group))

    def _look(self, call: Call) -> None:
        """Count what an operator did: a copy, a read, or work, judged by its tensors' devices."""
        given, made = [*_tensors(call.arguments.values())], [*_tensors([call.result])]
        if any(tensor.is_meta and not self._is_away(tensor) for tensor in (*given, *made)):
            return
        away = [tensor for tensor in given if self._is_away(tensor)]
        moved = isinstance(call.result, Tensor) and self._is_away(call.result) is not bool(away)
        if call.group is Group.COPY_INTO:
            into, source, *_ = call.arguments.values()
            for target, origin in zip(_tensors([into]), _tensors([source]), strict=False):
                self._copy(call, target, origin)
        elif call.group is _READ:
            for tensor in away[:1]:
                self._found("download", call, tensor.element_size())
        elif call.group is Group.LIFT:
            for tensor in away:
                self._upload(call, tensor)
        elif moved and given:
            self._copy(call, made[0], (away or given)[0])
        elif away or any(map(self._is_away, made)):
            self._work(call)
        else:
            self._on_host(call, given, made)

    def _copy(self, call: Call, made: Tensor, source: Tensor) -> None:
        """Count a copy to the GPU, from the GPU, or on the CPU."""
        if self._is_away(made):
            if not self._is_away(source):
                self._upload(call, made, source)
        elif self._is_away(source):
            if not self._streams(call, made):
                self._found("download", call, _size(made))
            self._derive(made)
        else:
            self._on_host(call, [source], [made])

    def _work(self, call: Call) -> None:
        """Count work of the GPU, and copies that it waits for: of a size, a mask or an index."""
        self.gpu_operators += 1
        if call.group is Group.ASK:
            self._found("download", call, _WORD)
        elif call.group is Group.INDEX:
            values = call.arguments.get("values")
            # Filling a mask with one number needs no count of the mask's elements.
            fills = isinstance(values, Tensor) and values.is_cpu and values.numel() == 1
            for index in _tensors([call.arguments.get("indices")]):
                if not self._is_away(index):
                    self._upload(call, index, index)
                elif index.dtype in {torch.bool, torch.uint8} and not fills:
                    self._found("download", call, _WORD)

    def _on_host(self, call: Call, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Count the CPU's work as a fallback if the GPU had the data, or in strict mode."""
        # A sparse tensor has no storage of its own.
        derived = any(
            tensor.untyped_storage()._cdata in self._derived  # noqa: SLF001  a storage's identity
            for tensor in given
            if tensor.layout is torch.strided
        )
        copies = call.group in {_COPY, Group.COPY_INTO}
        if not copies and (derived or (self._strict and given)):
            self._found("fallback", call, sum(map(_size, made)))
        for tensor in made if derived else ():
            self._derive(tensor)

    def _upload(self, call: Call, made: Tensor, source: Tensor | None = None) -> None:
        if source is None or not self._streams(call, source):
            self._found("upload", call, _size(made))

    def _streams(self, call: Call, host: Tensor) -> bool:
        """Return whether a copy is asynchronous: non-blocking, with pinned memory."""
        # See CUDA Runtime API, "API synchronization behavior"; `strict` counts such copies too.
        asked = bool(call.arguments.get("non_blocking")) and not self._strict
        return asked and host.is_pinned()

    def _found(self, kind: str, call: Call, size: int) -> None:
        """Count an event at the innermost line of the program."""
        found = _line(sys._getframe(1))  # noqa: SLF001  what inspect uses
        if found is None:
            # Autograd's threads have no Python frames: the main thread waits in backward().
            main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  as above
            found = _line(main)
        file, line, via = found or ("?", 0, "")
        node: torch.autograd.graph.Node | None = torch._C._current_autograd_node()  # noqa: SLF001  no public way
        operator = call.operator if node is None else f"{call.operator} in {node.name()}"
        place = CallSite(kind, operator + via, file, line)
        counts = self.places.setdefault(place, Counts())
        counts.count += 1
        counts.bytes += size
        counts.nanoseconds += call.spent
        if counts.work != self.gpu_operators:
            counts.work = self.gpu_operators
            counts.rounds += 1

    def _is_away(self, tensor: Tensor) -> bool:
        if not self._type:
            return not tensor.is_cpu and not tensor.is_meta
        device = tensor.device
        return device.type == self._type and self._number in {"", str(device.index)}

    def _derive(self, tensor: Tensor) -> None:
        """Note that a tensor's storage holds data that came from the GPU."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        # The weak reference keeps the storage's address from being used again.
        self._derived[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # noqa: SLF001  torch has no types there
        if len(self._derived) >= self._purge_at:
            self._derived = {
                key: reference
                for key, reference in [*self._derived.items()]
                if not reference.expired()  # type: ignore[no-untyped-call]  # the same
            }
            self._purge_at = max(1024, 2 * len(self._derived))


def _line(frame: FrameType | None) -> tuple[str, int, str] | None:
    """Return file and line of the innermost frame of the program, and the package called there."""
    package: tuple[str, int] | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        owner = _owner(file)
        main = owner == "text" and frame.f_globals.get("__name__") == "__main__"
        if owner == "program" or main:
            via = f" by {_PACKAGES.sub('', package[0])}:{package[1]}" if package else ""
            return file, frame.f_lineno, via
        if owner == "package" and package is None:
            package = file, frame.f_lineno
        frame = frame.f_back
    # No frame of a program: the program is itself an installed package.
    return None if package is None else (*package, "")


@functools.cache
def _owner(file: str) -> str:
    """Return the owner of a file: torch, package, text (compiled code), python or program."""
    if file.startswith(_HIDDEN) or "/torchinductor_" in file:
        return "torch"
    if _PACKAGES.match(file):
        return "package"
    if file.startswith("<"):
        return "text"
    return "python" if file.startswith(_PYTHON) else "program"


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; `nbytes` is not defined for a sparse tensor."""
    return tensor.numel() * tensor.element_size()


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


@contextlib.contextmanager
def expect_device(device: torch.device | str, *, allow: Iterable[str] = ()) -> Iterator[None]:
    """Fail if an operator in the block runs elsewhere, or something is copied to or from the CPU.

    ```python
    with expect_device("cuda", allow=["aten::_local_scalar_dense", "*/sampling.py:*"]):
        layer(x).sum().backward()
    ```

    This check is stricter than `contribbot fallback`: all work on the CPU counts, even on data
    that never was on the GPU, and so does a single upload. Views and new tensors are no work. The
    audit watches this thread, and autograd's threads while they work for this thread; nothing
    inside an operator or a compiled graph is seen (docs/fallback.md).

    Args:
        device: Where all operators must run: `"cuda"` (any such GPU, under ROCm too), `"cuda:1"`.
        allow: The exceptions: names of operators (`aten::nonzero`), or places (`path.py:12`), each
            a pattern of `fnmatch`, in which `*` is any text.

    Raises:
        AssertionError: Something ran or was copied elsewhere, and the message lists each operator
            with line and count; or no operator ran on the device, so that nothing is shown.
        ValueError: The device is the CPU, from which nothing can fall back.
    """
    if torch.device(device).type == "cpu":
        raise ValueError("expect_device: name an accelerator; nothing falls back from the CPU")
    __tracebackhide__ = True
    audit = Audit(str(device), strict=True)
    patterns = [*allow]
    audit.push()
    try:
        yield
    finally:
        audit.pop()
    if audit.fault:
        raise AssertionError(f"not all of it was watched: {audit.fault}")
    left = [
        f"{place.file}:{place.line}: {place.kind} {place.operator},"
        f" {counts.count} x: {linecache.getline(place.file, place.line).strip()}"
        for place, counts in audit.places.items()
        if not any(
            fnmatch(text, pattern)
            for pattern in patterns
            for text in (place.operator, f"{place.file}:{place.line}")
        )
    ]
    if left:
        raise AssertionError("\n  ".join([f"not all of it ran on {device}:", *left]))
    if not audit.gpu_operators:
        raise AssertionError(f"no operator ran on {device}, so nothing is shown")
