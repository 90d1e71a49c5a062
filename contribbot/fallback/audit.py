"""The rules: which operators fell back to the CPU, and which copies a program makes in passing.

It runs in the program that is watched, whose Python and torch may be others than contribbot's:
it imports nothing but them, and is loaded by its path.
"""

from __future__ import annotations

import enum
import functools
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, _tensor_str
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch

if TYPE_CHECKING:
    from contribbot.fallback.ledger import Ledger


class Group(enum.Enum):
    """What the rules make of an operator, whatever its tensors."""

    PLAIN = enum.auto()
    SHAPE = enum.auto()  # a view, or a new tensor: no work, and nothing is read
    COPY = enum.auto()  # on one device: no work
    COPY_INTO = enum.auto()
    LIFT = enum.auto()  # the end of torch.tensor(…): what was copied before is not seen
    READ = enum.auto()  # returns a number of Python's
    COUNTED = enum.auto()  # reads from the GPU how large its result is, or whether it went well
    INDEX = enum.auto()


_GROUPS: Final[Mapping[str, Group]] = {
    **dict.fromkeys(
        ("empty", "empty_strided", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full",
         "full_like", "scalar_tensor", "arange", "new_empty", "new_zeros", "new_ones", "new_full",
         "is_pinned", "detach_", "resize_", "set_", "record_stream"), Group.SHAPE,
    ),
    **dict.fromkeys(("_to_copy", "to", "clone", "contiguous", "_pin_memory"), Group.COPY),
    **dict.fromkeys(("copy_", "_foreach_copy_"), Group.COPY_INTO),
    "lift_fresh": Group.LIFT,
    **dict.fromkeys(
        ("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose"), Group.READ
    ),
    **dict.fromkeys(
        ("nonzero", "nonzero_numpy", "argwhere", "masked_select", "_unique", "_unique2",
         "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount",
         "_linalg_check_errors"), Group.COUNTED,
    ),
    **dict.fromkeys(
        ("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_",
         "_unsafe_index_put"), Group.INDEX,
    ),
}  # fmt: skip
#: What the GPU is asked for where an operator has to know a size or a flag.
_WORD: Final = 8
#: Operators that a value is followed through.
_LINEAGE: Final = 32
#: Whose lines are not the program's: torch's and this room's, then Python's.
_HIDDEN: Final = tuple(f"{path}/" for path in (*torch.__path__, Path(__file__).parent))
_PYTHON: Final = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
#: Where packages are installed, on Debian too.
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")


class Owner(enum.Enum):
    """Whose a file is."""

    PROGRAM = enum.auto()
    PACKAGE = enum.auto()
    OTHERS = enum.auto()
    NOBODY = enum.auto()  # a text that was compiled: the program's in __main__


class Call:
    """An operator that was run: with what, what came of it, and the host's nanoseconds."""

    def __init__(
        self, operator: str, group: Group, arguments: dict[str, object], result: object, spent: int
    ) -> None:
        self.operator, self.group, self.arguments = operator, group, arguments
        self.result, self.spent = result, spent
        self.given, self.made = [*_tensors(arguments.values())], [*_tensors([result])]


class Audit(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Looks at each operator of the threads that it is pushed to.

    `device` is the accelerator's type; without it, all that is neither the CPU nor `meta`. With
    `strict`, work on the CPU counts whatever its data is, and so does a single upload.
    """

    def __init__(self, ledger: Ledger, device: str = "", *, strict: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types there
        self.active = True
        self.ledger, self._cells, self._place = ledger, ledger.cells, ledger.place
        # Not torch.device: a back end may be registered after torch is imported.
        self._type, _, self._number = device.partition(":")
        self._strict = strict
        # By identity: an operator's own hash is Python code. It is held, so that none is reused.
        self._groups: dict[int, tuple[object, Group]] = {}
        #: Storages on the CPU whose data came from the GPU, and the places that made it.
        self._derived: dict[int, tuple[StorageWeakRef, frozenset[int]]] = {}
        self._purge_at = 1024
        self._owners: dict[str, Owner] = {}

    # torch.compile leaves out what runs under a mode, unless that says this; and torch wraps a
    # mode's method for its compiler, which doubles the price, unless it says that.
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work as without this mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def push(self) -> None:  # type: ignore[override]  # torch's is deprecated, and means another thing
        """Watch this thread from now on."""
        # Not `with`: that sets flags for all of torch, by which some of it goes another way.
        _python_dispatch._push_mode(self)  # noqa: SLF001  no public way

    def pop(self) -> None:
        """Watch this thread no longer."""
        _python_dispatch._pop_mode()  # noqa: SLF001  no public way

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the operator, and look at it where it may be more than work of the GPU's."""
        began = perf_counter_ns()
        result: object = func(*args, **kwargs) if kwargs else func(*args)
        known = self._groups.get(id(func))
        group = known[1] if known else self._group(func)
        if group is Group.SHAPE:
            return result
        if group is Group.PLAIN and not self._strict:
            probe = result
            if type(probe) is tuple or type(probe) is list or probe is None:
                probe = next(_tensors([result, args]), None)
            if isinstance(probe, Tensor) and not probe.is_cpu:
                self._cells[0] += 1
                return result
        # What torch.compile traces with is no work.
        if self.active and not any(kind.__module__.startswith("torch._sub") for kind in types):
            named = dict(zip(_names(func), args, strict=False))
            spent = perf_counter_ns() - began
            name = func._schema.name  # noqa: SLF001  with the overload it has another
            try:
                self._look(Call(name, group, {**named, **(kwargs or {})}, result, spent))
            except Exception as error:  # noqa: BLE001  the program must not end by its audit
                self.active = False
                self.ledger.add(self.ledger.place("fault", f"{name}: {error!r}", "", 0), 0, 0)
        return result

    def _group(self, func: torch._ops.OpOverload) -> Group:
        schema = func._schema  # noqa: SLF001  the only way
        name = schema.name.removeprefix("aten::")
        group = _GROUPS.get(name, Group.SHAPE if func.is_view else Group.PLAIN)
        if name == "repeat_interleave" and schema.overload_name == "Tensor":
            group = Group.COUNTED
        self._groups[id(func)] = (func, group)
        return group

    def _look(self, call: Call) -> None:
        if any(each.is_meta and not self._is_away(each) for each in (*call.given, *call.made)):
            return
        away = [tensor for tensor in call.given if self._is_away(tensor)]
        match call.group:
            case Group.COPY_INTO:
                self._copy_into(call)
            case Group.READ if away:
                self._found("download", call, away[0].element_size())
            case Group.READ:
                pass
            case Group.COUNTED if away:
                self._found("download", call, _WORD)
            case Group.LIFT:
                for tensor in away:
                    self._upload(call, tensor)
            case Group.INDEX if away:
                self._index(call)
            case _:
                self._compute(call, away)

    def _copy_into(self, call: Call) -> None:
        into, source, *_ = call.arguments.values()
        for made, given in zip(_tensors([into]), _tensors([source]), strict=False):
            if self._is_away(made) and not self._is_away(given):
                self._upload(call, made, given)
            elif self._is_away(given) and not self._is_away(made):
                self._download(call, made)
            elif not self._is_away(made):
                self._on_host(call, [given], [made])

    def _index(self, call: Call) -> None:
        """Look at an index: a mask's true values are counted first, one on the CPU is copied."""
        self._cells[0] += 1
        for index in _tensors([call.arguments.get("indices")]):
            if not self._is_away(index):
                self._upload(call, index, index)
            elif index.dtype in {torch.bool, torch.uint8}:
                self._found("download", call, _WORD)

    def _compute(self, call: Call, away: Sequence[Tensor]) -> None:
        """Look at an operator by where its tensors are."""
        if not away and call.given and any(map(self._is_away, call.made)):
            self._upload(call, call.made[0], call.given[0])
        elif away and isinstance(call.result, Tensor) and not self._is_away(call.result):
            self._download(call, call.result)
        elif away or any(map(self._is_away, call.made)):
            self._cells[0] += 1
        else:
            self._on_host(call, call.given, call.made)

    def _on_host(self, call: Call, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Look at work of the CPU: a fallback, where its data came from the GPU."""
        found = [entry for tensor in given if (entry := self._lineage(tensor)) is not None]
        lineage = frozenset[int]().union(*found)
        if call.group is not Group.COPY and (found or (self._strict and given)):
            slot = self._found("fallback", call, sum(tensor.nbytes for tensor in made))
            lineage |= {slot} if len(lineage) < _LINEAGE else set()
        for tensor in made if found else ():
            self._derive(tensor, lineage)

    def _download(self, call: Call, made: Tensor) -> None:
        self._found("download", call, made.nbytes)
        self._derive(made, frozenset())

    def _upload(self, call: Call, made: Tensor, source: Tensor | None = None) -> None:
        """Count an upload, and that it brings back what was worked on."""
        lineage = None if source is None else self._lineage(source)
        streams = call.arguments.get("non_blocking") and source is not None and source.is_pinned()
        slot = self._found("streamed" if streams else "upload", call, made.nbytes)
        for place in (*lineage, slot) if lineage is not None else ():
            self.ledger.returned(place)

    def _found(self, kind: str, call: Call, size: int) -> int:
        """Count it at the innermost line of the program; return where its cells begin."""
        found = self._line(sys._getframe(1))  # noqa: SLF001  what inspect uses
        if found is None:
            # A thread of autograd's has no frames: the program waits in backward() meanwhile.
            main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  as above
            found = self._line(main)
        file, line, via = found or ("?", 0, "")
        node: torch.autograd.graph.Node | None = torch._C._current_autograd_node()  # noqa: SLF001  no public way
        operator = call.operator if node is None else f"{call.operator} in {node.name()}"
        place = self.ledger.place(kind, operator + via, file, line)
        return self.ledger.add(place, size, call.spent)

    def see_texts(self) -> Callable[[], None]:
        """See tensors that are made a text, which torch hides from modes; return what ends it."""
        texts = vars(_tensor_str)
        as_text: Callable[..., str] = texts["_str"]

        @functools.wraps(as_text)
        def _str(tensor: Tensor, **options: object) -> str:
            began = perf_counter_ns()
            text = as_text(tensor, **options)
            if self.active and self._is_away(tensor):
                call = Call("print", Group.READ, {}, None, perf_counter_ns() - began)
                self._found("download", call, tensor.nbytes)
            return text

        texts["_str"] = _str
        return functools.partial(texts.__setitem__, "_str", as_text)

    def _is_away(self, tensor: Tensor) -> bool:
        if not self._type:
            return not tensor.is_cpu and not tensor.is_meta
        device = tensor.device
        return device.type == self._type and self._number in {"", str(device.index)}

    def _lineage(self, tensor: Tensor) -> frozenset[int] | None:
        """Return the places that worked on a tensor's data since it came from the GPU, if so."""
        if not self._derived:
            return None
        entry = self._derived.get(tensor.untyped_storage()._cdata)  # noqa: SLF001  its identity
        return None if entry is None else entry[1]

    def _derive(self, tensor: Tensor, lineage: frozenset[int]) -> None:
        storage = tensor.untyped_storage()
        # While it is referred to, however weakly, no other storage has its address.
        held = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch has no types there
        self._derived[storage._cdata] = held, lineage  # noqa: SLF001  see above
        if len(self._derived) >= self._purge_at:
            self._derived = {
                key: entry for key, entry in [*self._derived.items()]
                if not entry[0].expired()  # type: ignore[no-untyped-call]  # the same
            }  # fmt: skip
            self._purge_at = max(1024, 2 * len(self._derived))

    def _line(self, frame: FrameType | None) -> tuple[str, int, str] | None:
        """Return the innermost line of the program itself, and of a package that it runs by it."""
        package: tuple[str, int] | None = None
        while frame is not None:
            file = frame.f_code.co_filename
            owner = self._owners.get(file)
            if owner is None:
                owner = self._owners[file] = _owner(file)
            main = owner is Owner.NOBODY and frame.f_globals.get("__name__") == "__main__"
            if owner is Owner.PROGRAM or main:
                via = f" by {_PACKAGES.sub('', package[0])}:{package[1]}" if package else ""
                return file, frame.f_lineno, via
            if owner is Owner.PACKAGE and package is None:
                package = file, frame.f_lineno
            frame = frame.f_back
        # A program that is itself installed.
        return None if package is None else (*package, "")


def _owner(file: str) -> Owner:
    # Packages lie within Python's own folder.
    if file.startswith(_HIDDEN):
        return Owner.OTHERS
    if _PACKAGES.match(file):
        return Owner.PACKAGE
    if file.startswith("<"):
        return Owner.NOBODY
    return Owner.OTHERS if file.startswith(_PYTHON) else Owner.PROGRAM


def _names(func: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in func._schema.arguments]  # noqa: SLF001  the only way


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
