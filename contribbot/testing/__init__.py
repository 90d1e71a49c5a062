"""The library for checks: `from contribbot.testing import import_file`.

A check runs the tree's real code, which imports the rest of SGLang or vLLM, and packages that may
not be installed on your machine. `import_file` imports only the file that you name:

```python
from contribbot.testing import answers, import_file

area = import_file("python/sglang/srt/layers/layernorm.py")

layernorm = import_file(
    "python/sglang/srt/layers/layernorm.py",
    real=["sglang.srt.layers.utils"],
    given={
        "sglang.srt.utils": {
            **answers("is_cuda", "is_cpu", "is_npu", "is_xpu", answer=False),
            **answers("is_hip", answer=True),
        },
    },
)
```

All other modules of the tree, and all packages that are not installed, are *stand-ins*: whatever
the file imports from a stand-in exists, so that the import succeeds. As soon as the check would
depend on a stand-in (call it, decide or compute by it, use a subclass of it), the stand-in
raises `StandInError`, which names the module, the attribute and two remedies:

- `real`: modules of the tree to import for real, with their submodules;
- `given`: values for attributes of a module; its other attributes stay stand-ins.

`contribbot verify` counts a check with a `StandInError` as one that could not run (*unavailable*),
not as failed. An import in a `try` that handles `ImportError` fails, as it does where
the package is not installed. PyTorch's files are imported unchanged, with the installed torch.

The library also has:

- `tree()`: returns the folder of the tree under test.
- `answers(…, answer=…)`: returns functions that always return one answer, for `given`.
- `expect_device("cuda")`: a `with` block in which nothing may run on the CPU, or be copied from
  or to the CPU.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    import torch
    from pydantic_core import CoreSchema


__all__ = [
    "StandInError",
    "UnwrittenCheckError",
    "answers",
    "expect_device",
    "import_file",
    "tree",
    "unwritten",
]

_OPTIONAL: Final = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
#: The module through which vLLM's kernels import Triton, and the module's names for Triton.
_TRITON_UTILS: Final = ".triton_utils"
_TRITON: Final = {
    "triton": "triton",
    "tl": "triton.language",
    "tldevice": "triton.language.extra.libdevice",
    "gluon": "triton.experimental.gluon",
    "gl": "triton.experimental.gluon.language",
}
_LOGARITHMS: Final = {"LOG2E": math.log2(math.e), "LOGE2": math.log(2)}


class StandInError(Exception):
    """Raised where a check uses a stand-in's value: `name` of the attribute, and its `module`."""

    contribbot_broken = True

    def __init__(self, name: str, module: str, use: str) -> None:
        frame = next(filter(is_tested, _frames()), None)
        place = f" at {frame.f_globals['__name__']}:{frame.f_lineno}" if frame else ""
        own = module.partition(".")[0] in TESTED
        more = f"real=[{module!r}], or " if own else "install it, or "
        if module.endswith(_TRITON_UTILS):
            more = ""  # the module asks for a GPU's driver
        attribute = re.match(r"\w+", name.removeprefix(f"{module}."))
        example = f"{attribute[0]!r}: …" if attribute and name != module else "…"
        super().__init__(
            f"{name}{place}: the check {use} it, and {module} is a stand-in: "
            f"{more}given={{{module!r}: {{{example}}}}} of import_file"
        )
        self.name = name
        self.module = module


#: The top-level packages under test, such as `sglang`, or a script's name.
TESTED: Final[set[str]] = set()
#: Modules of the tree that are imported for real, with their submodules.
REAL: Final[set[str]] = set()
#: The real attributes of stand-ins for modules, by the module's name.
GIVEN: Final[dict[str, Mapping[str, object]]] = {}


def is_tested(frame: FrameType) -> bool:
    """Return whether a frame runs code of the tree under test."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in TESTED


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  who asks is what decides
    while frame is not None:
        yield frame
        frame = frame.f_back


def _importing() -> bool:
    """Return whether a module of the tree is being imported, further up the call stack."""
    return any(frame.f_code.co_name == "<module>" and is_tested(frame) for frame in _frames())


class StandIn:
    """A stand-in for an attribute of a module, or for a value made from a stand-in at import."""

    def __init__(self, name: str, module: str) -> None:
        self._name = name
        self.module = module
        # Registries read the names of their entries.
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"

    def refuse(self, use: str) -> NoReturn:
        """Raise StandInError: a check depends on this stand-in."""
        __tracebackhide__ = True
        raise StandInError(self._name, self.module, use)

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self._name}.{name}", self.module)

    def __call__(self, *args: object, **_: object) -> StandIn:
        # At import, a stand-in may be a decorator, or make a value that stays unused.
        if not _importing():
            self.refuse("calls")
        of = getattr(args[0], "__qualname__", "…") if len(args) == 1 else "…"
        return StandIn(f"{self._name}({of})", self.module)

    def __getitem__(self, _key: object) -> StandIn:
        if not _importing():
            self.refuse("takes an item of")
        return StandIn(f"{self._name}[…]", self.module)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        def refuse(_cls: object, *_args: object, **_kwargs: object) -> NoReturn:
            self.refuse("makes an object of a class below")

        plain = classmethod(lambda _cls, **_kwargs: None)
        generic = classmethod(lambda cls, _key: cls)
        base = {"__new__": refuse, "__init_subclass__": plain, "__class_getitem__": generic}
        return (type(self._name.rpartition(".")[2], (), base),)

    @staticmethod
    def __get_pydantic_core_schema__(*_: object) -> CoreSchema:
        """Return a schema for any value: a pydantic model may have a field of this type."""
        from pydantic_core import core_schema  # noqa: PLC0415  few trees have such a model

        return core_schema.any_schema()

    def __instancecheck__(self, _instance: object) -> bool:
        return False  # no object is an instance of a stand-in

    def __subclasscheck__(self, _cls: type) -> bool:
        return False

    def __or__(self, _other: object) -> StandIn:
        return self  # for annotations such as `Name | None`

    __ror__ = __or__

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        # The standard library calls this method, too: typing.TypeVar tests a bound.
        if is_tested(sys._getframe(1)) or not _importing():  # noqa: SLF001  the caller decides
            self.refuse("decides by")
        return True

    def __eq__(self, other: object) -> bool:
        # typing compares the parts of an annotation.
        if self is not other and not _importing():
            self.refuse("compares")
        return self is other


def _refusing(use: str) -> Callable[..., NoReturn]:
    def refuse(self: StandIn, *_: object) -> NoReturn:
        self.refuse(use)

    return refuse


for _use, _names in {
    "goes through": "iter next len contains reversed await aiter",
    "computes with": (
        "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul "
        "rmatmul and rand xor rxor lshift rshift neg pos abs invert int float index complex round"
    ),
    "compares": "lt le gt ge",
    "enters": "enter exit aenter aexit",
    "changes": "setitem delitem",
}.items():
    for _name in _names.split():
        setattr(StandIn, f"__{_name}__", _refusing(_use))


class _EmulatedPlatform(StandIn):
    """vLLM's `current_platform` for an emulated GPU."""

    device_type = "cuda"
    is_rocm = is_cuda_alike = staticmethod(lambda: True)
    is_cuda = is_cpu = is_xpu = is_tpu = is_hpu = staticmethod(lambda: False)

    @staticmethod
    def is_fp8_fnuz() -> bool:
        return os.environ["CONTRIBBOT_DEVICE"].startswith("gfx94")

    def fp8_dtype(self) -> torch.dtype:
        import torch  # noqa: PLC0415  the import takes seconds

        return torch.float8_e4m3fnuz if self.is_fp8_fnuz() else torch.float8_e4m3fn


class StandInModule(ModuleType):
    """A stand-in for a module, whose attributes are the tree's submodules or stand-ins."""

    __path__: list[str]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        inside = f"{self.__name__}.{name}"
        if self.__name__.endswith(_TRITON_UTILS) and importlib.util.find_spec("triton"):
            if name in _TRITON:
                return importlib.import_module(_TRITON[name])
            if name == "HAS_TRITON" or name in _LOGARITHMS:
                return _LOGARITHMS.get(name, True)
        if name == "current_platform" and os.environ.get("CONTRIBBOT_DEVICE"):
            return _EmulatedPlatform(inside, self.__name__)
        if self.__path__ and importlib.machinery.PathFinder.find_spec(inside, self.__path__):
            return importlib.import_module(inside)
        return StandIn(inside, self.__name__)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = StandInModule(spec.name)
        vars(module).update(GIVEN.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: a stand-in has no code."""


def _spec(name: str, below: Sequence[str] | None = ()) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
    spec.submodule_search_locations = [*(below or ())]
    return spec


class _Tree(importlib.abc.MetaPathFinder):
    """The first finder: finds stand-ins for the tree's modules that are not in `REAL`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in GIVEN:
            return _spec(fullname)
        if fullname.partition(".")[0] not in TESTED or is_real(fullname):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        return _spec(fullname, found.submodule_search_locations) if found else None

    @staticmethod
    def find_distributions(
        context: importlib.metadata.DistributionFinder.Context,
    ) -> Iterable[importlib.metadata.Distribution]:
        """Yield the metadata of the tree's package, which may read its version at import."""
        version = os.environ.get("CONTRIBBOT_VERSION")
        if context.name in TESTED and version:
            yield _Distribution(
                f"Metadata-Version: 2.1\nName: {context.name}\nVersion: {version}\n"
            )


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a package that is not installed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(os.environ["CONTRIBBOT_TREE"], path)


class _Elsewhere(importlib.abc.MetaPathFinder):
    """The last finder: finds stand-ins for missing modules that the tree imports."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in TESTED or _optional():
            return None
        return _spec(fullname)


def is_real(name: str) -> bool:
    """Return whether a module of the tree is imported for real."""
    return any(f"{name}.".startswith(f"{module}.") for module in REAL)


def install() -> None:
    """Install the finders `_Tree` and `_Elsewhere` in `sys.meta_path`, once in a process."""
    if not any(isinstance(finder, _Tree) for finder in sys.meta_path):
        sys.meta_path[:] = [_Tree(), *sys.meta_path, _Elsewhere()]


def _optional() -> bool:
    """Return whether the current import may fail: in a `try`, by find_spec, or outside the tree."""
    machinery = []
    for frame in _frames():
        if "importlib" not in frame.f_code.co_filename and frame.f_code.co_filename != __file__:
            break
        machinery.append(frame.f_code.co_filename)
    if not is_tested(frame) or any("util" in file for file in machinery):
        return True
    return any(
        start <= frame.f_lineno <= end
        for frame in _frames()
        if is_tested(frame)
        for start, end in _tried(frame.f_code.co_filename)
    )


@functools.cache
def _tried(file: str) -> list[tuple[int, int]]:
    """Return the ranges of lines of a file in which a failed import is handled."""
    found = []
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        handles = False
        if isinstance(node, ast.Try):
            kinds = [kind for handler in node.handlers for kind in _caught(handler)]
            handles = not _OPTIONAL.isdisjoint(kinds)
        elif isinstance(node, ast.With):
            handles = any("suppress(" in ast.unparse(item) for item in node.items)
        if handles and isinstance(node, ast.Try | ast.With):
            found.append((node.body[0].lineno, node.body[-1].end_lineno or 0))
    return found


def _caught(handler: ast.ExceptHandler) -> list[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(kind).rpartition(".")[2] if kind else "BaseException" for kind in kinds]


class UnwrittenCheckError(Exception):
    """Raised by `unwritten`: `contribbot new` began the check, and nobody has written it."""

    contribbot_broken = True


def unwritten(what: str) -> NoReturn:
    """Fail a check that is not written yet; `contribbot verify` calls the check *unavailable*.

    Args:
        what: The next step, for whoever reads the failure.

    Raises:
        UnwrittenCheckError: Always.
    """
    __tracebackhide__ = True
    raise UnwrittenCheckError(f"write the check: {what}")


def tree() -> Path:
    """Return the folder of the tree under test.

    Raises:
        FileNotFoundError: `CONTRIBBOT_TREE` does not name a folder. contribbot sets the variable;
            to run a check by yourself, use `contribbot check`.
    """
    root = os.environ.get("CONTRIBBOT_TREE", "")
    if not root or not Path(root).is_dir():
        raise FileNotFoundError(f"CONTRIBBOT_TREE={root}: no folder; run `contribbot check NAME`")
    return Path(root)


def answers(*names: str, answer: object) -> dict[str, Callable[..., object]]:
    """Return functions that give one answer for all arguments, by name, for `import_file(given=…)`.

    Args:
        *names: The names of the functions, such as `is_hip`.
        answer: The value that each function returns.
    """
    return {name: lambda *_args, **_kwargs: answer for name in names}


def import_file(
    path: str,
    *,
    real: Iterable[str] = (),
    given: Mapping[str, Mapping[str, object] | ModuleType | None] | None = None,
) -> ModuleType:
    """Import a Python file of the tree under test, with stand-ins for other modules of the tree.

    Args:
        path: The file's path in the tree: `python/sglang/srt/layers/layernorm.py`. A file outside
            the tree's Python roots (a script, a test) is imported by the file's bare name.
        real: Modules of the tree that are imported for real too, with their submodules:
            `sglang.srt.layers.utils`. All other modules of the package are stand-ins; for a file
            outside the Python roots, only modules of the packages that `real` and `given` name.
        given: Replacements for modules of the tree or of other packages, by name: a module; some
            attributes of a module, whose other attributes are stand-ins; or None for a module
            whose import fails.

    Returns:
        The module. The file is executed once in a process.

    Raises:
        FileNotFoundError: The tree has no such file.
        StandInError: The import itself depends on the value of a stand-in.
        ValueError: `path`, or a module of `real` or `given`, is imported already in another way.
    """
    file, real = tree() / path, [*real]
    if not file.is_file():
        top = path.partition("/")[0]
        if (tree() / top).exists():
            raise FileNotFoundError(f"{path}: the tree has no such file")
        raise FileNotFoundError(
            f"{path}: the tree has no {top} at all; a git source has it (docs/recipes.md)"
        )
    name, found = _module(path)
    if found is not None and not found.is_relative_to(tree()):
        # With an overlay, Python imports the installed package with the tree's files laid over.
        return importlib.import_module(name)
    TESTED.add(name.partition(".")[0])
    # A script or test may import packages of the tree.
    TESTED.update(
        module.partition(".")[0] for module in (*real, *(given or {})) if _of_tree(module)
    )
    install()
    for module, content in (given or {}).items():
        _give(module, content)
    for module in (*real, name):
        if isinstance(sys.modules.get(module), StandInModule):
            raise ValueError(  # noqa: TRY004  a wrong order of imports, not a wrong type
                f"{module} is a stand-in since an earlier import: name it there"
            )
        REAL.add(module)
    if found is None:
        return _script(name, file)
    imported = importlib.import_module(name)
    if not Path(str(imported.__file__)).samefile(file):
        raise ValueError(f"{name} is {imported.__file__}, and not {file}")
    return imported


def _module(path: str) -> tuple[str, Path | None]:
    """Return the name of a file's module, and the path at which Python finds the file, or None."""
    parts = Path(path).with_suffix("").parts
    for start in range(len(parts)):
        for folder in filter(None, sys.path):
            place = Path(folder, *Path(path).parts[start:])
            if place.is_file() and all(map(str.isidentifier, parts[start:])):
                return ".".join(parts[start:]).removesuffix(".__init__"), place
    return parts[-1], None


def _of_tree(module: str) -> bool:
    """Return whether a module's package lies in the tree, and not in an overlay."""
    package = module.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(package)
    places = [*(spec.submodule_search_locations or []), spec.origin] if spec else []
    return any(place and Path(place).is_relative_to(tree()) for place in places)


def _script(name: str, file: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None  # noqa: S101  the file's name ends with .py
        assert spec.loader is not None  # noqa: S101  as above
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _give(name: str, content: Mapping[str, object] | ModuleType | None) -> None:
    loaded = sys.modules.get(name)
    if content is None or isinstance(content, ModuleType):
        if name in sys.modules and loaded is not content:
            raise ValueError(f"{name} was imported before: give it with the first import_file")
        sys.modules[name] = content  # type: ignore[assignment]  # None: the import fails
        return
    if name in sys.modules and not isinstance(loaded, StandInModule):
        raise ValueError(f"{name} was imported before: give it with the first import_file")
    GIVEN[name] = {**GIVEN.get(name, {}), **content}
    vars(loaded or ModuleType(name)).update(content)


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
        device: The device of all operators: `"cuda"` (any such GPU, under ROCm too), `"cuda:1"`.
        allow: The exceptions: names of operators (`aten::nonzero`), or places (`path.py:12`), each
            a pattern of `fnmatch`, in which `*` is any text.

    Raises:
        AssertionError: Something ran or was copied elsewhere, and the message lists each operator
            with line and count; or no operator ran on the device, so that nothing is shown.
        ValueError: The device is the CPU, from which nothing can fall back.
    """
    import torch  # noqa: PLC0415  the import takes seconds

    from contribbot.fallback.audit import Audit  # noqa: PLC0415  as above

    if torch.device(device).type == "cpu":
        raise ValueError("expect_device: name an accelerator; nothing falls back from the CPU")
    __tracebackhide__ = True
    audit, patterns = Audit(str(device), strict=True), [*allow]
    with audit:
        yield
    if audit.fault:
        raise AssertionError(f"not all of it was watched: {audit.fault}")
    left = [
        f"{place.file}:{place.line}: {place.kind} {place.operator}, {counts.count} x: {place.code}"
        for place, counts in audit.places.items()
        for texts in [(place.operator, f"{place.file}:{place.line}")]
        if not any(fnmatch(text, pattern) for pattern in patterns for text in texts)
    ]
    if left:
        raise AssertionError("\n  ".join([f"not all of it ran on {device}:", *left]))
    if not audit.gpu_operators:
        raise AssertionError(f"no operator ran on {device}, so nothing is shown")
