"""Watch torch's operators: find work that fell back to the CPU, and copies from and to the GPU."""
# The watched program loads this file by path, and may have another Python and torch: import
# nothing else here.

from __future__ import annotations

import atexit
import enum
import functools
import json
import linecache
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from traceback import walk_stack
from types import FrameType
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor
from torch.multiprocessing.reductions import SharedCache, StorageWeakRef
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
_PACKAGES: Final = r".*/(?:site|dist)-packages/"
_TORCH: Final = [re.escape(f"{path}/") for path in (*torch.__path__, Path(__file__).parent)]
_PYTHON: Final = [re.escape(f"{sysconfig.get_path(f'{name}stdlib')}/") for name in ("", "plat")]
_OTHERS: Final = [*_TORCH, ".*/torchinductor_", f"(?P<package>{_PACKAGES})", "<", *_PYTHON]
#: Files that are not the program's: of torch, of a package, of text that was compiled, of Python.
_not_program: Final = functools.cache(re.compile("|".join(_OTHERS)).match)


class CallSite(NamedTuple):
    """A line of the program, with the kind of an event and the operator."""

    kind: str  # fallback, download, upload
    operator: str
    file: str
    line: int

    @property
    def code(self) -> str:
        """The text of the line."""
        return linecache.getline(self.file, self.line).strip()


@dataclass
class Counts:
    """The number of events at a call site, and the bytes and seconds of all these events."""

    count: int = 0
    bytes: int = 0
    seconds: float = 0.0
    #: Events with other GPU work between them; the GPU's operators before the last event.
    rounds: int = 0
    work: int = -1


class Call(NamedTuple):
    """A call of an operator: the arguments, the result, and the host's seconds."""

    operator: str
    group: Group
    arguments: dict[str, object]
    result: object
    seconds: float


class Audit(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Counts fallbacks and copies among the operators of each thread to which this mode is pushed.

    `device`: the accelerator's type; empty: all but the CPU and `meta`. `strict`: all work on the
    CPU counts, even on data that never was on the GPU.
    """

    def __init__(self, device: str = "", *, strict: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types there
        self.fault, self.gpu_operators = "", 0
        self.places: dict[CallSite, Counts] = {}
        self._strict = strict
        # A string instead of torch.device, for back ends that register after torch is imported.
        self._type, _, self._number = device.partition(":")
        # Keyed by id, because an operator's hash is Python code; holding it keeps its id unique.
        self._groups: dict[int, tuple[object, Group]] = {}
        #: CPU storages whose data came from the GPU. A weak reference keeps its key unique, too.
        self._derived = SharedCache()

    # Without the first method, torch.compile skips all code under a mode; without the second,
    # torch wraps the mode's method for the compiler, which doubles the cost.
    ignore_compile_internals = classmethod(lambda _cls: True)
    _should_skip_dynamo = classmethod(lambda _cls: False)

    def __enter__(self) -> Self:
        """Watch the current thread from now on."""
        # torch's own method also sets global flags, which make torch take other paths.
        _python_dispatch._push_mode(self)  # noqa: SLF001  no public way
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop watching the current thread."""
        _python_dispatch._pop_mode()  # noqa: SLF001  no public way

    def findings(self) -> dict[CallSite, Counts]:
        """Return the call sites to report; uploads in fewer than `_LOOP` rounds are left out."""
        places = self.places.items()
        return {at: n for at, n in places if at.kind != "upload" or n.rounds >= _LOOP}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run an operator; call `_look` unless the operator is plain work on one device."""
        began = perf_counter_ns()
        _, group = self._groups.get(id(func)) or self._group(func)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if group is _SHAPE:
            return result
        # A cheap test for nearly all operators, which costs less than the dispatch.
        first = args[0] if args and isinstance(args[0], Tensor) else next(_tensors(args), None)
        if first is not None and group in _SHORT and not self._strict:
            made = result if isinstance(result, Tensor) else first
            if first.is_cpu and made.is_cpu and (group is _READ or not self._derived):
                return result
            if not (first.is_cpu or made.is_cpu) and (group is _PLAIN or group is _COPY):
                self.gpu_operators += 1
                return result
        # Fake tensors, with which torch.compile traces, do no work.
        if not self.fault and not any(kind.__module__.startswith("torch._sub") for kind in types):
            seconds = (perf_counter_ns() - began) / 1e9
            schema = func._schema  # noqa: SLF001  the only way
            names = [argument.name for argument in schema.arguments]
            arguments = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            try:
                self._look(Call(schema.name, group, arguments, result, seconds))
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
        """Count a copy, a read or work of an operator, judged by the devices of its tensors."""
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
                self._found("upload", call, _size(tensor))
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
                self._transfer("upload", call, made, host=source)
        elif self._is_away(source):
            self._transfer("download", call, made, host=made)
            self._derive(made)
        else:
            self._on_host(call, [source], [made])

    def _transfer(self, kind: str, call: Call, made: Tensor, *, host: Tensor) -> None:
        """Count a copy between CPU and GPU; in strict mode also non-blocking with pinned memory."""
        # See CUDA Runtime API, "API synchronization behavior"; `strict` counts such copies too.
        if self._strict or not (call.arguments.get("non_blocking") and host.is_pinned()):
            self._found(kind, call, _size(made))

    def _work(self, call: Call) -> None:
        """Count work of the GPU, and copies that the work waits for: a size, a mask or an index."""
        self.gpu_operators += 1
        if call.group is Group.ASK:
            self._found("download", call, _WORD)
        elif call.group is Group.INDEX:
            values = call.arguments.get("values")
            # Filling a mask with one number needs no count of the mask's elements.
            fills = isinstance(values, Tensor) and values.is_cpu and values.numel() == 1
            for index in _tensors([call.arguments.get("indices")]):
                if not self._is_away(index):
                    self._transfer("upload", call, index, host=index)
                elif index.dtype in {torch.bool, torch.uint8} and not fills:
                    self._found("download", call, _WORD)

    def _on_host(self, call: Call, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Count the CPU's work as a fallback if the GPU had the data, or in strict mode."""
        derived = any(storage in self._derived for storage in map(_storage, given))
        copies = call.group in {_COPY, Group.COPY_INTO}
        if not copies and (derived or (self._strict and given)):
            self._found("fallback", call, sum(map(_size, made)))
        for tensor in made if derived else ():
            self._derive(tensor)

    def _found(self, kind: str, call: Call, size: int) -> None:
        """Count an event at the innermost line of the program, or at its call of backward()."""
        found = _line(sys._getframe(1))  # noqa: SLF001  what inspect uses
        if found is None:
            # Autograd's threads have no Python frames: the main thread waits in backward().
            found = _line(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001  as above
        file, line, via = found or ("?", 0, "")
        node: torch.autograd.graph.Node | None = torch._C._current_autograd_node()  # noqa: SLF001  no public way
        operator = call.operator if node is None else f"{call.operator} in {node.name()}"
        counts = self.places.setdefault(CallSite(kind, operator + via, file, line), Counts())
        counts.count += 1
        counts.bytes += size
        counts.seconds += call.seconds
        if counts.work != self.gpu_operators:
            counts.work = self.gpu_operators
            counts.rounds += 1

    def _is_away(self, tensor: Tensor) -> bool:
        if not self._type:
            return not tensor.is_cpu and not tensor.is_meta
        device = tensor.device
        return device.type == self._type and self._number in {"", str(device.index)}

    def _derive(self, tensor: Tensor) -> None:
        """Record that a tensor's storage holds data that came from the GPU."""
        if (key := _storage(tensor)) is not None:
            storage = tensor.untyped_storage()
            self._derived[key] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch's


def _storage(tensor: Tensor) -> int | None:
    """Return the identity of a tensor's storage; None: a sparse tensor has no storage."""
    if tensor.layout is not torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  a storage's identity


def _line(frame: FrameType | None) -> tuple[str, int, str] | None:
    """Return file, line and ` by PACKAGE:LINE` of the program's innermost frame; None: no frame."""
    package: tuple[str, int] | None = None
    for caller, line in walk_stack(frame) if frame else ():
        file = caller.f_code.co_filename
        found = _not_program(file)
        main = file.startswith("<") and caller.f_globals.get("__name__") == "__main__"
        if found is None or main:
            via = f" by {re.sub(_PACKAGES, '', package[0])}:{package[1]}" if package else ""
            return file, line, via
        if found["package"] and package is None:
            package = file, line
    # No frame of a program: the program is itself an installed package.
    return None if package is None else (*package, "")


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; `nbytes` is not defined for a sparse tensor."""
    return tensor.numel() * tensor.element_size()


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def watch_process(report: Path, device: str) -> None:
    """Watch this thread and all later threads, and write a report when this program ends."""
    audit, process = Audit(device), os.getpid()

    def write(**facts: object) -> None:
        report.write_text(json.dumps({"torch": torch.__version__, **facts}), encoding="utf-8")

    def in_thread(_frame: FrameType, _event: str, _argument: object) -> None:
        sys.setprofile(None)
        audit.__enter__()

    def at_end() -> None:
        if os.getpid() != process:
            return  # a forked process must not write the report
        found = audit.findings().items()
        rows = [{**place._asdict(), "code": place.code, **vars(counts)} for place, counts in found]
        fault = f"the watch ended by a fault of its own: {audit.fault}" if audit.fault else ""
        write(gpu_operators=audit.gpu_operators, unwatched=fault, findings=rows)

    write(unwatched="the program was ended by a signal or by os._exit, and its counts are lost")
    audit.__enter__()
    # The only public way to run code at the start of each thread, in that thread.
    threading.setprofile(in_thread)
    atexit.register(at_end)
