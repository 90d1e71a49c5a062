"""A grid of inputs; each of its cells is one pytest test."""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

import pytest
import torch

from contribbot.numerics.compare import (
    CannotJudgeError,
    Limits,
    compare,
    compare_exact,
    digest,
    dtype_name,
    plain,
    require_plain,
    require_references,
)
from contribbot.numerics.records import Cell, Findings
from contribbot.numerics.treewatch import TreeWatch, unwatched

#: From this rank on, the last dimension but one counts heads.
_HEADS: Final = 3
#: Bytes that a kernel may expect data to be aligned to.
_ALIGNMENT: Final = 16


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a tensor of the given values with a memory layout of its own.

    Memory beside a view is filled with NaN (integers: their largest value), so that a
    kernel that reads past its rows gives a result that cannot pass.

    Args:
        values: A dense tensor.
        layout: A name in `LAYOUTS`.

    Raises:
        ValueError: There is no such layout, or the tensor has too few dimensions for it.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}")
    least, build = LAYOUTS[layout]
    if values.dim() < least:
        raise ValueError(
            f"layout {layout} needs {least} dimension{'s' if least > 1 else ''}, "
            f"shape {tuple(values.shape)} has {values.dim()}"
        )
    return build(values)


def _guarded(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return memory that no correct kernel reads; its contents spoil a result."""
    memory = torch.empty(shape, dtype=like.dtype, device=like.device)
    if like.dtype == torch.bool:
        return memory.fill_(True)  # noqa: FBT003  a value to fill with
    if not (like.is_floating_point() or like.is_complex()):
        return memory.fill_(torch.iinfo(like.dtype).max)
    if like.element_size() == 1:
        # 8-bit floats: torch may convert NaN to something else; 0xff and, for the
        # unsigned-zero kinds (fnuz), 0x80 are NaN by definition.
        code = 0x80 if "fnuz" in str(like.dtype) else 0xFF
        memory.view(torch.uint8).fill_(code)
        return memory
    return memory.fill_(float("nan"))


def _contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Lie between two neighbours in a packed projection, as Q, K and V do."""
    # Of (…, heads, width) the heads are packed, of (rows, width) the columns.
    dim = values.dim() - (2 if values.dim() >= _HEADS else 1)
    size = values.shape[dim]
    shape = [*values.shape]
    shape[dim] = 3 * size
    view = _guarded(tuple(shape), values).narrow(dim, size, size)
    return view.copy_(values)


def _row_stride(values: torch.Tensor) -> torch.Tensor:
    """Have rows that are whole, and a gap after each."""
    width = values.shape[-1]
    view = _guarded((*values.shape[:-1], 2 * width), values)[..., :width]
    return view.copy_(values)


def _strided(values: torch.Tensor) -> torch.Tensor:
    """Take every second element of rows."""
    view = _guarded((*values.shape[:-1], 2 * values.shape[-1]), values)[..., ::2]
    return view.copy_(values)


def _transposed(values: torch.Tensor) -> torch.Tensor:
    """Have the last two dimensions the other way round in memory."""
    return _contiguous(values.transpose(-1, -2)).transpose(-1, -2)


def _expanded(values: torch.Tensor) -> torch.Tensor:
    """Repeat the first row, with a stride of 0; the values of the others are lost."""
    return _contiguous(values[:1]).expand(values.shape)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Lie behind some elements at the start of the storage."""
    memory = _guarded((by + values.numel(),), values)
    return memory[by:].view(values.shape).copy_(values)


def _offset(values: torch.Tensor) -> torch.Tensor:
    return _shifted(values, 4 * _ALIGNMENT // values.element_size())


def _misaligned(values: torch.Tensor) -> torch.Tensor:
    return _shifted(values, 1)


#: Each layout: the dimensions that it needs, and how it is made.
LAYOUTS: Final[dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]]] = {
    # Rows one after the other, at the start of their own memory.
    "contiguous": (0, _contiguous),
    # The middle third of a packed tensor: of the heads (rank 3 and more), else of the columns.
    "packed": (1, _packed),
    # The last two dimensions swapped in memory.
    "transposed": (2, _transposed),
    # Each row followed by a gap as long as itself; the last stride is 1.
    "row-stride": (1, _row_stride),
    # Every second element: the last stride is 2.
    "strided": (1, _strided),
    # One row, repeated with stride 0. Only the first row's values remain.
    "expanded": (1, _expanded),
    # Contiguous, 64 bytes into the storage: aligned.
    "offset": (0, _offset),
    # Contiguous, one element into the storage: aligned to the element and no more.
    "misaligned": (0, _misaligned),
}


Value = TypeVar("Value")

#: Axes that change how the same values are held, not which they are.
_HOLDING = frozenset({"dtype", "layout"})


class Draw:
    """Draws the inputs of one seed of one cell, and judges the results.

    The same calls in the same order draw the same values in every dtype (rounded), in
    every layout and on every device; with another torch they may be others.

    Attributes:
        seed: The seed.
        device: Where tensors are put, and where results must lie.
    """

    def __init__(
        self,
        cell: Cell,
        seed: int,
        *,
        device: torch.device,
        limits: Callable[[], Limits],
        findings: Findings,
        watch: TreeWatch | None = None,
    ) -> None:
        self.seed = seed
        self.device = device
        self._watch = watch or TreeWatch()
        self._inputs: list[torch.Tensor] = []
        self._drawn: list[str] = []
        self._written = False
        self._values = cell.values
        self._limits = limits
        self._findings = findings
        told = sorted(pair for pair in cell.texts.items() if pair[0] not in _HOLDING)
        digest = hashlib.sha256(repr((seed, told)).encode()).digest()
        # torch takes seeds of 63 bits.
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)

    def axis(self, name: str, kind: type[Value]) -> Value:
        """Return the cell's value on an axis.

        Args:
            name: The axis.
            kind: Its type.

        Raises:
            LookupError: The grid has no such axis.
            TypeError: The value is of another type.
        """
        if name not in self._values:
            raise LookupError(f"no axis {name!r}; there are {', '.join(self._values)}")
        value = self._values[name]
        if not isinstance(value, kind):
            raise TypeError(f"axis {name}: {value!r} is no {kind.__name__}")
        return value

    @property
    def dtype(self) -> torch.dtype:
        """The value of the axis `dtype`."""
        return self.axis("dtype", torch.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The value of the axis `shape`."""
        return self.axis("shape", tuple)

    @property
    def layout(self) -> str:
        """The value of the axis `layout`."""
        return self.axis("layout", str)

    def normal(
        self,
        *shape: int,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw from a normal distribution.

        Args:
            *shape: The shape.
            mean: The mean.
            std: The standard deviation.
            dtype: The dtype; None: that of the cell.
            layout: How it lies in memory, a name in `LAYOUTS`.
        """
        drawn = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * std + mean, dtype=dtype, layout=layout)

    def uniform(
        self,
        *shape: int,
        low: float = 0.0,
        high: float = 1.0,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw evenly from `low` to `high`; other arguments as for `normal`."""
        drawn = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * (high - low) + low, dtype=dtype, layout=layout)

    def integers(
        self,
        *shape: int,
        low: int,
        high: int,
        dtype: torch.dtype = torch.int64,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Draw integers from `low` to below `high`; other arguments as for `normal`."""
        drawn = torch.randint(low, high, shape, generator=self._generator)
        return self.place(drawn, dtype=dtype, layout=layout)

    def place(
        self,
        values: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: str = "contiguous",
    ) -> torch.Tensor:
        """Round values of your own to a dtype, move them to the device and lay them out.

        Args:
            values: The values, on the CPU.
            dtype: The dtype; None: that of the cell.
            layout: How it lies in memory, a name in `LAYOUTS`.
        """
        with unwatched():
            placed = lay_out(values.to(dtype or self.dtype).to(self.device), layout)
            self._inputs.append(placed)
            self._drawn.append(digest(placed))
        return placed

    def judge(
        self,
        name: str,
        actual: object,
        *,
        reference: torch.Tensor,
        same_precision: torch.Tensor,
    ) -> None:
        """Judge a result; the test fails after the last seed.

        Args:
            name: What the result is called: `output`, `weights`, …
            actual: A function that returns the result, the only place where the tree under
                test runs; or the result, if nothing of the tree's Python made it.
            reference: The same in float64 (complex128), on any device.
            same_precision: The same from plain code in the result's dtype, on any device.

        Raises:
            CannotJudgeError: The references can judge nothing, could come from the tree, or
                were written to.
            ValueError: This seed has judged a result of this name.
        """
        with unwatched():
            require_references(reference, same_precision)
            result = self._result(name, actual, reference, same_precision)
            seen = compare(
                result,
                reference=reference,
                same_precision=same_precision,
                limits=self._limits(),
                device=self.device,
            )
        self._findings.add(name, self.seed, seen)

    def judge_exact(self, name: str, actual: object, expected: torch.Tensor) -> None:
        """Compare a result bit by bit; the test fails after the last seed.

        Args:
            name: What the result is called.
            actual: As for `judge`.
            expected: What it must be.

        Raises:
            CannotJudgeError: What is expected is not finite, could come from the tree, or was
                written to.
            ValueError: This seed has judged a result of this name.
        """
        with unwatched():
            require_plain("the expected tensor", expected)
            result = self._result(name, actual, expected)
            seen = compare_exact(result, expected, device=self.device)
        self._findings.add(name, self.seed, seen)

    def _result(self, name: str, actual: object, *references: torch.Tensor) -> object:
        """Note what a result is judged by, then compute it, which may change nothing of that."""
        if self._watch.ran:
            raise CannotJudgeError(
                f"{name}: {self._watch.ran} ran in the test itself, so that a reference could "
                "come from the tree: run the tree only in a function that is judged, "
                f"draw.judge({name!r}, lambda: …)"
            )
        inputs = [digest(tensor) for tensor in self._inputs]
        if self._written or not (callable(actual) or inputs == self._drawn):
            raise CannotJudgeError(
                f"{name}: an input was written to after it was drawn, so that a reference could "
                "be of other values: give what writes to it a clone"
            )
        all_inputs = hashlib.sha256(" ".join(inputs).encode()).hexdigest()[:16]
        before = digest(*references)
        self._findings.judged_by(name, self.seed, inputs=all_inputs, references=before)
        if not callable(actual):
            return actual
        result = actual()
        known = self._inputs[: len(inputs)]
        self._written = inputs != [digest(tensor) for tensor in known]
        if before != digest(*references):
            raise CannotJudgeError(
                f"{name}: what is judged wrote to its reference: give it a clone"
            )
        return result


class _Reporter(Protocol):
    """The part of contribbot's pytest plugin that knows the tree, and takes cells."""

    folders: Sequence[str]

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None: ...


Where = Callable[[Cell], bool]
#: A test; its first parameter is `draw`, others are pytest's to fill.
Test = Callable[..., None]


class Grid:
    """Cells: every combination of the values of some axes.

    Args:
        axes: The values of each axis, by its name. A mapping gives the values names:
            `{"mask": {"none": None, "causal": build_causal}}`. Values of the axes
            `dtype`, `shape` and `layout` name themselves; others read `axis=value`.
        seeds: How many, counted from 0; or which. Each is one random input a cell.
        where: Which cells there are; None: all.
        device: Where inputs go and results must lie: `cpu`, or `cuda`, which is ROCm's
            name for its GPUs in torch as well.

    Raises:
        ValueError: There is no cell or no seed, or two of a name.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[object] | Mapping[str, object]],
        *,
        seeds: int | Sequence[int] = 3,
        where: Where | None = None,
        device: str = "cpu",
    ) -> None:
        self.seeds = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
        self.device = torch.device(device)
        named = [_named(axis, values) for axis, values in axes.items()]
        cells = [_cell(tuple(axes), chosen) for chosen in itertools.product(*named)]
        self.cells = tuple(cell for cell in cells if where is None or where(cell))
        _require_distinct("cell", [cell.name for cell in self.cells])
        _require_distinct("seed", [str(seed) for seed in self.seeds])

    def each_cell(self, test: Test) -> Test:
        """Make a pytest test of each cell; all seeds run before it fails.

        Args:
            test: The function; its first parameter is named `draw`.

        Raises:
            TypeError: It is not.
        """
        parameters = [*inspect.signature(test).parameters.values()]
        if not parameters or parameters[0].name != "draw":
            raise TypeError(f"{test.__name__}: the first parameter must be `draw`")
        file = Path(inspect.getfile(test))
        wants_request = any(one.name == "request" for one in parameters)

        @functools.wraps(test)
        def run(cell: Cell, request: pytest.FixtureRequest, **others: object) -> None:
            if wants_request:
                others["request"] = request
            self._run(cell, request, file, lambda draw: test(draw, **others))

        kind = inspect.Parameter.KEYWORD_ONLY
        asked = [
            *(inspect.Parameter(name, kind) for name in ("cell", "request")),
            *(one.replace(kind=kind) for one in parameters[1:] if one.name != "request"),
        ]
        # What pytest reads to know which fixtures the test wants.
        vars(run)["__signature__"] = inspect.Signature(asked)
        cells = [pytest.param(cell, id=cell.name) for cell in self.cells]
        return cast("Test", pytest.mark.parametrize("cell", cells)(run))

    def _run(
        self, cell: Cell, request: pytest.FixtureRequest, file: Path, body: Callable[[Draw], None]
    ) -> None:
        __tracebackhide__ = True
        limits = functools.cache(lambda: Limits.stated(file))
        findings = Findings(cell)
        plugin = request.config.pluginmanager.get_plugin("contribbot-reporter")
        reporter = cast("_Reporter | None", plugin)
        watch = TreeWatch(reporter.folders if reporter else ())
        try:
            for seed in self.seeds:
                draw = Draw(
                    cell, seed, device=self.device, limits=limits, findings=findings, watch=watch
                )
                with watch.watching():
                    body(draw)
        except BaseException as error:  # also a skip, which leaves the other seeds unseen
            findings.failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            if reporter is not None:
                reporter.cell(request.node.nodeid, findings.record(self.seeds))
        findings.require_good()


def _named(axis: str, values: Sequence[object] | Mapping[str, object]) -> list[tuple[str, object]]:
    """Pair the values of an axis with their names."""
    if isinstance(values, Mapping):
        return [(plain(f"{axis}={name}"), value) for name, value in values.items()]
    return [(plain(_text(axis, value)), value) for value in values]


def _text(axis: str, value: object) -> str:
    if isinstance(value, torch.dtype):
        text = dtype_name(value)
    elif isinstance(value, torch.Size | tuple | list):
        text = "x".join(map(str, value)) or "scalar"
    else:
        text = str(value)
    return text if axis in {"dtype", "shape", "layout"} else f"{axis}={text}"


def _cell(axes: tuple[str, ...], chosen: Iterable[tuple[str, object]]) -> Cell:
    pairs = dict(zip(axes, chosen, strict=True))
    return Cell(
        name=" ".join(text for text, _ in pairs.values()),
        values={axis: value for axis, (_, value) in pairs.items()},
        texts={axis: text.removeprefix(f"{axis}=") for axis, (text, _) in pairs.items()},
    )


def _require_distinct(what: str, names: list[str]) -> None:
    if not names:
        raise ValueError(f"a grid without a {what} shows nothing")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what}s are named {name!r}")
