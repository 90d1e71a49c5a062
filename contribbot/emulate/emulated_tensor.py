"""Tensors of the emulated GPU: CPU tensors hold the elements, and operators run on the CPU."""

from __future__ import annotations

import functools
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Final, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from contribbot.emulate.backward import watches_of
from contribbot.emulate.errors import NotEmulatedError, UnmodelledError
from contribbot.emulate.memory import MEMORY, Buffer

DEVICE: Final = torch.device
_CPU: Final = torch.device("cpu")
GPU: Final = torch.device("cuda", 0)

# --- Operators -------------------------------------------------------------------------------

_NO_ROOM: Final = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_PIN: Final = torch.ops.aten._pin_memory.default  # noqa: SLF001  the operator's name


#: Operators that change a tensor's storage: a tensor of the GPU has no storage of its own.
_STORAGE: Final = {torch.ops.aten.resize_, torch.ops.aten.resize_as_, torch.ops.aten.set_}


def _dispatch(
    func: torch._ops.OpOverload,
    types: Sequence[type],
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
) -> object:
    """Run an operator on the CPU, and return the results on the device that torch expects."""
    del types
    kwargs = kwargs or {}
    # In inference mode, `Tensor.to` is dispatched whole, with the device as a positional argument.
    asked = kwargs.get("device", next((x for x in args if isinstance(x, DEVICE)), None))
    here = any(map(_is_ours, (*args, *kwargs.values())))
    ours = here if not isinstance(asked, DEVICE) else asked.type == "cuda"
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
    if key := _python_kernel(func) or _composite(func):
        named = zip(func._schema.arguments, args, strict=False)  # noqa: SLF001  torch documents it
        # Some operators refuse an explicit None for an argument whose default is None.
        kwargs |= {each.name: value for each, value in named if not _defaults(each, value)}
        with operators():
            return func._op_dk(key, **kwargs)  # noqa: SLF001  no public name
    if torch.Tag.inplace_view in func.tags:
        _reshape(func, args, kwargs)
    kernel: Callable[..., object] = _OF_GPUS.get(func, func)
    try:
        made = kernel(*map(_unwrapped, args), **{key: _unwrapped(x) for key, x in kwargs.items()})
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) and "Could not run" in str(error):
            raise NotEmulatedError(f"{func} runs on real GPUs alone, and is not modelled") from None
        if found := _NO_ROOM.search(str(error)):
            raise OutOfRoomError(
                f"the emulated GPU has no room for {int(found[1]) / 2**30:.1f} GiB: its memory is "
                f"this machine's, which has {free_memory() / 2**30:.1f} GiB left; take smaller "
                "tensors"
            ) from error
        raise
    _note_writes(func, args, kwargs, made)
    written = _written(func)
    if len(written) == 1:  # an argument that is changed in place is itself the result
        place_ = written[0]
        return args[place_] if isinstance(place_, int) else kwargs[place_]
    return _wrapped(made) if ours else made


def _defaults(argument: torch._C.Argument, value: object) -> bool:
    return value is None and argument.has_default_value() and argument.default_value is None


def _product_of_type(product: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return `product` with a further last argument: the dtype of the computation."""

    def compute(*args: Any, **kwargs: object) -> torch.Tensor:
        *tensors, dtype = args
        return product(*(tensor.to(dtype) for tensor in tensors), **kwargs)

    return compute


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    causal: bool = False,  # noqa: FBT002  torch's signature
    _mask: bool = False,  # noqa: FBT002  torch's signature
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | int, ...]:
    """Compute flash attention with torch's CPU operator; sequence offsets and RNG state: empty."""
    made: tuple[torch.Tensor, torch.Tensor] = _ATTENTION(
        query, key, value, dropout, causal, scale=scale
    )
    none = (torch.empty(0, dtype=torch.int64) for _ in range(5))
    return (*made, next(none), next(none), query.shape[-2], key.shape[-2], *none)


def _flash_backward(*args: torch.Tensor, scale: float | None = None) -> object:
    """Return the gradients of flash attention; sequence offsets and RNG state are ignored."""
    return _ATTENTION_BACKWARD(*args[:6], *args[10:12], scale=scale)


def _in_float32(operator: Callable[..., Sequence[object]], rounded: int) -> Callable[..., object]:
    """Return an operator that takes float16 and bfloat16 in float32; `rounded` results go back."""

    def compute(*args: Any) -> object:
        kind = next(each.dtype for each in args if isinstance(each, torch.Tensor))
        short = kind in {torch.float16, torch.bfloat16}
        wide = (x.float() if short and isinstance(x, torch.Tensor) else x for x in args)
        return tuple(
            made.to(kind) if short and place < rounded and isinstance(made, torch.Tensor) else made
            for place, made in enumerate(operator(*wide))
        )

    return compute


def _softmax_of(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a softmax with `half_to_float`, which torch's operator supports only on GPUs."""

    def compute(x: torch.Tensor, dim: int, to_float: bool) -> torch.Tensor:
        return operator(x.float() if to_float else x, dim, False)

    return compute


def _softmax_gradient(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the gradient of a softmax with `half_to_float`, in the dtype of the input."""

    def compute(
        gradient: torch.Tensor, out: torch.Tensor, dim: int, dtype: torch.dtype
    ) -> torch.Tensor:
        return operator(gradient, out, dim, gradient.dtype).to(dtype)

    return compute


def _histogram(x: torch.Tensor, *args: Any) -> torch.Tensor:
    """Return `torch.histc` of a tensor, also of integers, which torch's CPU operator refuses."""
    return torch.histc(x if x.is_floating_point() else x.double(), *args).to(x.dtype)


_ATEN: Final = torch.ops.aten
_ATTENTION: Final = _ATEN._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001  an operator's name
_ATTENTION_BACKWARD: Final = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001  as above
#: CPU replacements for operators that torch has only for GPUs, computes there in another
#: precision, or defers to later operators (conjugates and negatives).
_OF_GPUS: Final[Mapping[torch._ops.OpOverload, Callable[..., object]]] = {
    **{
        getattr(getattr(_ATEN, name), overload): _product_of_type(getattr(torch, name))
        for name in ("mm", "bmm", "addmm", "baddbmm")
        for overload in ("dtype", "dtype_out")
        if hasattr(getattr(_ATEN, name), overload)  # since torch 2.8
    },
    _ATEN.native_layer_norm.default: _in_float32(_ATEN.native_layer_norm, 1),
    _ATEN.native_layer_norm_backward.default: _in_float32(_ATEN.native_layer_norm_backward, 3),
    _ATEN._softmax.default: _softmax_of(_ATEN._softmax),  # noqa: SLF001  an operator's name
    _ATEN._log_softmax.default: _softmax_of(_ATEN._log_softmax),  # noqa: SLF001  as above
    _ATEN._softmax_backward_data.default: _softmax_gradient(_ATEN._softmax_backward_data),  # noqa: SLF001  as above
    _ATEN._log_softmax_backward_data.default: _softmax_gradient(_ATEN._log_softmax_backward_data),  # noqa: SLF001  as above
    _ATEN.histc.default: _histogram,
    # Conjugates and negatives are computed at once: torch resolves its lazy bits before this mode.
    _ATEN._conj.default: _ATEN.conj_physical.default,  # noqa: SLF001  an operator's name
    _ATEN._neg_view.default: _ATEN.neg.default,  # noqa: SLF001  as above
    _ATEN._scaled_dot_product_flash_attention.default: _flash,  # noqa: SLF001  an operator's name
    _ATEN._scaled_dot_product_flash_attention_backward.default: _flash_backward,  # noqa: SLF001  as above
}


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's has no types
    """The torch dispatch mode that sends every operator to `_dispatch`, also tensor factories."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a mode that dynamo skips would have to import dynamo

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        return _dispatch(func, types, args, kwargs)


def operators() -> TorchDispatchMode:
    """Return the mode that runs the operators of a `with` block in `_dispatch`."""
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
    return _CPU if isinstance(value, DEVICE) and value.type == "cuda" else value


def _wrapped(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_wrapped, value))
    return EmulatedTensor(value) if isinstance(value, torch.Tensor) else value


@functools.cache
def _written(func: torch._ops.OpOverload) -> tuple[int | str, ...]:
    """Return the arguments that an operator changes and returns, by position or by name."""
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
    """Update `UNWRITTEN` after an operator: `torch.empty` adds a storage, a write removes one."""
    if func.overloadpacket in _EMPTY and isinstance(made, torch.Tensor):
        UNWRITTEN.add(made.untyped_storage())
        return
    for place_, argument in enumerate(func._schema.arguments):  # noqa: SLF001  as above
        if argument.alias_info and argument.alias_info.is_write:
            given = kwargs.get(argument.name, args[place_] if place_ < len(args) else None)
            for each in given if isinstance(given, (list, tuple)) else [given]:
                if isinstance(each, torch.Tensor):
                    UNWRITTEN.discard(each.untyped_storage())


def _reshape(
    func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Apply an operator such as `squeeze_` to the shapes of the tensors, not to their contents."""
    refused = NotEmulatedError(f"{func} of the emulated GPU is not modelled")
    if func.overloadpacket in _STORAGE:  # torch's CUDA kernel would run
        raise refused
    try:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001  torch's subclasses use it
            func(*args, **kwargs)
    except NotImplementedError as error:
        raise refused from error


@functools.cache
def _composite(func: torch._ops.OpOverload) -> torch._C.DispatchKey | None:
    """Return CompositeImplicitAutograd if an operator has a kernel for this key, else None."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001  no public name
    # `func.has_kernel_for_dispatch_key` also counts Python kernels, for which `_op_dk` crashes.
    name: str = func.name()  # type: ignore[no-untyped-call]  # torch has no types
    found = torch._C._dispatch_has_kernel_for_dispatch_key(name, key.name)  # noqa: SLF001  no public name
    return key if found else None


def _python_kernel(func: torch._ops.OpOverload) -> torch._C.DispatchKey | None:
    """Return the key under which a library has registered a Python kernel for GPUs, or None."""
    registered = torch.library._impls  # noqa: SLF001  no public name
    for key, names in _names(func).items():
        if any(name in registered and name not in _OF_TORCH for name in names):
            return key
    return None


#: Torch's CUDA wheels register such kernels, too, for example for `bmm.dtype`.
_OF_TORCH: Final = frozenset(name for name in torch.library._impls if name.startswith("aten/"))  # noqa: SLF001  no public name


@functools.cache
def _names(func: torch._ops.OpOverload) -> dict[torch._C.DispatchKey, list[str]]:
    """Return the names that torch.library gives to an operator's kernels, by dispatch key."""
    overload = func._overloadname  # noqa: SLF001
    name = func._schema.name.replace("::", "/")  # noqa: SLF001
    names = [f"{name}.{overload}", *([name] if overload == "default" else [])]
    keys = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CompositeExplicitAutograd  # noqa: SLF001
    return {key: [f"{each}/{key.name}" for each in names] for key in keys}


class EmulatedTensor(torch.Tensor):
    """A tensor of the emulated GPU; `contents` is the CPU tensor that holds the elements."""

    contents: torch.Tensor
    # Operators of threads that began before `operators()`, without the mode, arrive here.
    __torch_dispatch__ = staticmethod(_dispatch)  # type: ignore[assignment]  # torch's stub
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001  as torch documents it

    @staticmethod
    def __new__(cls: type[EmulatedTensor], contents: torch.Tensor) -> EmulatedTensor:  # noqa: PYI034  it is no subclass's
        """Return a tensor of the emulated GPU whose elements are in a CPU tensor."""
        if contents.layout is not torch.strided:
            raise NotEmulatedError(f"the emulated GPU has no {contents.layout} tensors")
        # A normal tensor in inference mode, too: the contents may be a view of a normal tensor.
        with torch.inference_mode(mode=False):
            made: EmulatedTensor = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001
                cls,
                contents.size(),
                strides=contents.stride(),
                dtype=contents.dtype,
                device=GPU,
                storage_offset=contents.storage_offset(),
            )
        made.contents = contents
        ALLOCATED.add(contents.untyped_storage())
        return made

    def data_ptr(self) -> int:
        """Return the tensor's address in the emulated GPU's memory; 0: no elements."""
        if not self.contents.numel():
            return 0
        offset = self.contents.storage_offset() * self.contents.element_size()
        return place(self.contents).base + int(offset)

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage of the tensor's contents."""
        return self.contents.untyped_storage()

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its autograd history."""
        found: torch.Tensor = torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]  # torch's stub
        return found

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]  # torch's stub
        self.contents = value.contents if isinstance(value, EmulatedTensor) else value

    def register_hook(self, hook: Callable[[torch.Tensor], object]) -> object:
        """Register a hook that backward passes call with the tensor's gradient."""
        first = self._backward_hooks is None
        handle: object = super().register_hook(hook)  # type: ignore[no-untyped-call]  # torch has no types
        if first and self.grad_fn is not None:
            watches_of(self.grad_fn).hooks[self.output_nr] = self._backward_hooks or {}
        return handle

    def retain_grad(self) -> None:
        """Make backward passes store the tensor's gradient in `grad`."""
        super().retain_grad()
        if self.grad_fn is not None:
            watches_of(self.grad_fn).retained[self.output_nr] = weakref.ref(self)

    def tolist(self) -> list[object]:
        """Return the tensor's elements as nested lists."""
        elements: list[object] = self.contents.tolist()
        return elements

    def numpy(self, *, force: bool = False) -> NDArray[np.generic]:
        """Return the elements as a NumPy array if `force` is set; else raise torch's TypeError."""
        if not force:
            raise TypeError(
                f"can't convert {GPU} device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return self.contents.numpy(force=True)

    def is_pinned(self, device: object = None) -> bool:  # noqa: ARG002  torch's signature
        """Return False: memory of a GPU is not pinned."""
        return False

    def __repr__(self, **_: object) -> str:  # type: ignore[override]  # torch's has a keyword
        """Return the text that torch prints for a tensor of a GPU."""
        return f"{repr(self.contents)[:-1]}, device='{GPU}')"

    def __format__(self, specification: str) -> str:
        """Format the number of a 0-dimensional tensor; torch refuses subclasses of Tensor."""
        if self.dim() == 0:
            return format(self.item(), specification)
        return object.__format__(self, specification)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        """Return the contents' parts for pickle; in files, `storage_tag` names the device."""
        if getattr(self, "_is_param", False):
            hooks: dict[int, object] = OrderedDict()
            parts = self.detach(), self.requires_grad, hooks
            return torch._utils._rebuild_parameter, parts  # noqa: SLF001  as torch's parameters
        contents = self.contents.detach().requires_grad_(self.requires_grad)
        made: tuple[object, ...] = contents.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]  # torch's has no types
        return made

    def __deepcopy__(self, memo: dict[int, object]) -> EmulatedTensor:
        """Return a copy with separate memory."""
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        assert isinstance(copied, EmulatedTensor)  # noqa: S101  for mypy
        return copied


def _parts(tensor: EmulatedTensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a tensor's parts for pickle to another process, which shares the contents' memory."""
    if getattr(tensor, "_is_param", False):
        hooks: dict[int, object] = OrderedDict()
        return torch._utils._rebuild_parameter, (tensor.detach(), tensor.requires_grad, hooks)  # noqa: SLF001  as torch's parameters
    return EmulatedTensor, (tensor.contents.detach(),)


ForkingPickler.register(EmulatedTensor, _parts)

# --- Memory ----------------------------------------------------------------------------------

#: Storages with an address and their buffers, by the storage's address in this process.
_PLACED: Final[dict[int, tuple[weakref.ref[torch.UntypedStorage], Buffer]]] = {}
#: Storages of `torch.empty` that no operator has written to; a kernel may have written to them.
UNWRITTEN: Final[weakref.WeakSet[torch.UntypedStorage]] = weakref.WeakSet()
_EMPTY: Final = {
    *(torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided),
    *(torch.ops.aten.new_empty, torch.ops.aten.new_empty_strided),
}
#: Pinned storages, which kernels may access.
_PINNED: Final[weakref.WeakSet[torch.UntypedStorage]] = weakref.WeakSet()


class Allocated:
    """The storages of the emulated GPU: their bytes now, and the peak of their bytes."""

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._storages = weakref.WeakSet[torch.UntypedStorage]()

    def __contains__(self, storage: object) -> bool:
        return storage in self._storages

    def add(self, storage: torch.UntypedStorage) -> None:
        """Count a storage once, until the storage is freed."""
        if storage not in self._storages:
            self._storages.add(storage)
            self.bytes += storage.nbytes()
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._free, storage.nbytes()).atexit = False

    def _free(self, size: int) -> None:
        self.bytes -= size

    def reset_peak(self, *_: object) -> None:
        """Set the peak to the present number of bytes."""
        self.peak = self.bytes

    def stats(self, *_: object) -> dict[str, int]:
        """Return the current and peak bytes under the names of `torch.cuda.memory_stats`."""
        return {
            f"{kind}_bytes.all.{name}": value
            for kind in ("allocated", "active", "reserved")
            for name, value in (("current", self.bytes), ("peak", self.peak))
        }


ALLOCATED: Final = Allocated()


def storage_tag(storage: torch.UntypedStorage) -> str | None:
    """Return torch.save's location tag for a storage of the emulated GPU; None: another device."""
    return str(GPU) if storage in ALLOCATED else None


def restored_storage(storage: torch.UntypedStorage, tag: str) -> torch.UntypedStorage | None:
    """Return a loaded storage, counted as the GPU's if its tag is `cuda`; None: another tag."""
    if not tag.startswith("cuda"):
        return None
    ALLOCATED.add(storage)
    return storage


def rebuilt_tensor(
    storage: torch.TypedStorage, offset: int, size: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return a tensor from a file, on the emulated GPU if its storage is the GPU's."""
    made = _REBUILD(storage, offset, size, strides)
    return EmulatedTensor(made) if made.untyped_storage() in ALLOCATED else made


_REBUILD: Final[Callable[..., torch.Tensor]] = torch._utils._rebuild_tensor  # noqa: SLF001  no public name


def place(tensor: torch.Tensor) -> Buffer:
    """Return the buffer of a tensor's storage; the buffer lives as long as the storage."""
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
    """Return whether no operator or unwatched launch has written to a `torch.empty` buffer."""
    storage = _storage(buffer)
    return storage is not None and storage in UNWRITTEN


def mark_written(buffer: Buffer) -> None:
    """Record that a kernel has written to a buffer whose bytes are not watched one by one."""
    if (storage := _storage(buffer)) is not None:
        UNWRITTEN.discard(storage)


def _storage(buffer: Buffer) -> torch.UntypedStorage | None:
    known, placed = _PLACED.get(buffer.host, (None, None))
    return known() if known and placed is buffer else None


def _forget(host: int, buffer: Buffer) -> None:
    if _PLACED.get(host, (None, None))[1] is buffer:
        del _PLACED[host]
        MEMORY.remove(buffer)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether a CPU tensor is pinned, so that kernels may access the tensor."""
    return tensor.untyped_storage() in _PINNED


def free_memory() -> int:
    """Return the number of free bytes of this machine's memory; 1 TiB: the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 1 << 40
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if "MemAvailable" in line)


class OutOfRoomError(UnmodelledError, torch.OutOfMemoryError):
    """This machine has too little free memory for a tensor of the emulated GPU."""
