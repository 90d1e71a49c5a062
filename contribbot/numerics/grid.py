"""Grids of inputs for numerics checks: cells, drawn inputs, and the judgement of results."""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypedDict, TypeVar, Unpack, cast

import pytest
import torch

from contribbot.model.record import Digests, OutputRecord
from contribbot.numerics.compare import (
    CannotJudgeError,
    Limits,
    blocks,
    compare,
    compare_exact,
    digest,
    dtype_name,
    require_plain,
    require_references,
    widened,
)
from contribbot.numerics.tree_watch import TreeWatch, profiled

Value = TypeVar("Value")

#: Axes that change how values are stored, not the values.
_HOLDING = frozenset({"dtype", "layout"})
#: The longest message in a record, in characters, as a message may print a tensor.
_LONGEST = 500
#: The alignment in bytes that a kernel may expect.
_ALIGNMENT: Final = 16
#: From this rank on, the second last dimension counts heads.
_HEADS: Final = 3


@dataclass(frozen=True)
class Cell:
    """A combination of one value of each axis of a grid.

    Attributes:
        name: All values as text, such as `float16 7x64 packed scale=100.0`.
        values: The values, by axis.
        texts: The values as text, by axis.
    """

    name: str
    values: Mapping[str, object]
    texts: Mapping[str, str]


@dataclass
class Findings:
    """The judged results of a cell; `failed`: why the test ended before all seeds were judged."""

    cell: Cell
    failed: str = ""
    outputs: list[OutputRecord] = field(default_factory=list)
    digests: list[Digests] = field(default_factory=list)

    def judged_by(self, name: str, seed: int, *, inputs: str, references: str) -> None:
        """Note the digests for a result; raise ValueError if the seed judged the name before."""
        name = _plain(name)
        if any((judged.result, judged.seed) == (name, seed) for judged in self.digests):
            raise ValueError(f"{name}: judged twice with seed {seed}; give each result its name")
        self.digests.append(Digests(seed=seed, result=name, inputs=inputs, references=references))

    def overwritten(self, inputs: Iterable[str]) -> bool:
        """Note the inputs that the last computation overwrote; return whether there are any."""
        written = tuple(inputs)
        self.digests[-1] = self.digests[-1].model_copy(update={"written": written})
        return bool(written)

    def record(self, seeds: Iterable[int]) -> dict[str, object]:
        """Return the fields of a `CellRecord` except `test`."""
        by_name: dict[str, list[OutputRecord]] = {}
        for output in self.outputs:
            by_name.setdefault(output.name, []).append(output)
        failed = self.failed or self.complaint()
        return {
            "cell": self.cell.name,
            "axes": {**self.cell.texts},
            "seeds": [*seeds],
            "digests": [judged.model_dump() for judged in self.digests],
            "outputs": [_over_seeds(seen).model_dump(mode="json") for seen in by_name.values()],
            "failed": _plain(failed.partition("\n")[0][:_LONGEST]),
        }

    def complaint(self) -> str:
        """Return the fault of the worst result, or that no result was judged; empty: no fault."""
        if not self.outputs:
            return f"{self.cell.name}: nothing was judged"
        worst = max(self.outputs, key=_badness)
        if not worst.complaint:
            return ""
        return f"{self.cell.name} seed {worst.worst_seed}: {worst.name}: {worst.complaint}"


def _badness(output: OutputRecord) -> tuple[bool | float, ...]:
    """Return a sort key: a result that could not be compared is the worst."""
    return (bool(output.complaint) and not output.elements, *output.badness)


def _over_seeds(outputs: list[OutputRecord]) -> OutputRecord:
    """Return the worst seed's record of a result, with the counts over all seeds."""
    relative = [output.max_rel for output in outputs if output.max_rel is not None]
    counts = ("elements", "mismatches", "non_finite", "vacuous")
    sums = {name: sum(getattr(output, name) for output in outputs) for name in counts}
    worst, why = max(outputs, key=_badness), [output.why_vacuous for output in outputs]
    if worst.kind == "exact" and not all(why):
        # For an exact result it is enough that one seed would not accept zeros.
        sums["vacuous"], why = 0, []
    more = {"max_rel": max(relative, default=None), "why_vacuous": next(filter(None, why), "")}
    return worst.model_copy(update={**sums, **more})


class InputPlacement(TypedDict, total=False):
    """How an input is stored: in a dtype (None: that of the cell), and a layout of `LAYOUTS`."""

    dtype: torch.dtype | None
    layout: str


class Draw:
    """The parameter `draw` of a test: draws inputs for a seed of a cell, and judges results.

    The same calls in the same order draw the same values in every dtype (rounded), in
    every layout and on every device; another release of torch may draw other values.

    Attributes:
        seed: The number of the seed.
        device: The device of drawn tensors, on which results must be, too.
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
        named = sorted(pair for pair in cell.texts.items() if pair[0] not in _HOLDING)
        entropy = hashlib.sha256(repr((seed, named)).encode()).digest()
        # torch takes seeds of 63 bits.
        self._generator = torch.Generator().manual_seed(int.from_bytes(entropy[:8]) >> 1)

    def axis(self, name: str, kind: type[Value]) -> Value:
        """Return the cell's value of an axis.

        Args:
            name: The name of the axis.
            kind: The type that the value must have.

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
        self, *shape: int, mean: float = 0.0, std: float = 1.0, **placement: Unpack[InputPlacement]
    ) -> torch.Tensor:
        """Return values drawn from a normal distribution, in float64, then placed by `place`.

        Args:
            *shape: The shape of the returned tensor.
            mean: The mean.
            std: The standard deviation.
            **placement: The dtype and layout, as for `place`, with the errors of `place`.
        """
        drawn = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * std + mean, **placement)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, **placement: Unpack[InputPlacement]
    ) -> torch.Tensor:
        """Return values of `shape` drawn evenly from `low` to `high`, placed as by `normal`."""
        drawn = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return self.place(drawn * (high - low) + low, **placement)

    def integers(
        self, *shape: int, low: int, high: int, **placement: Unpack[InputPlacement]
    ) -> torch.Tensor:
        """Return integers (int64) of `shape` from `low` to below `high`, placed as by `normal`."""
        drawn = torch.randint(low, high, shape, generator=self._generator)
        placement.setdefault("dtype", torch.int64)
        return self.place(drawn, **placement)

    def place(
        self, values: torch.Tensor, *, dtype: torch.dtype | None = None, layout: str = "contiguous"
    ) -> torch.Tensor:
        """Return your values as an input: rounded to a dtype, on the device and in a layout.

        Args:
            values: The values, of any shape, on the CPU.
            dtype: The dtype; None: the value of the axis `dtype`.
            layout: How the input lies in memory, a name in `LAYOUTS`.

        Raises:
            LookupError: No dtype is given, and the grid has no axis `dtype`.
            ValueError: There is no such layout, or the layout needs more dimensions.
        """
        with profiled(None):
            placed = lay_out(values.to(dtype or self.dtype).to(self.device), layout)
            self._inputs.append(placed)
            self._drawn.append(digest(placed))
        return placed

    def judge(
        self, name: str, actual: object, *, reference: torch.Tensor, same_precision: torch.Tensor
    ) -> None:
        """Judge a result; if the error is too large, the test fails after the last seed.

        Args:
            name: A name for the result: `output`, `weights`, …
            actual: A function that returns the result, the only place where the tree under
                test runs; or the result, if no Python of the tree made the result. Give the
                function clones of inputs that the function may overwrite.
            reference: The right result in float64 (complex128), of any shape, on any device.
            same_precision: The result of plain code, in the result's dtype, of the same shape.

        Raises:
            CannotJudgeError: No fudge or floor is stated; an input was written to; or a reference
                is not finite, was written to, or could come from the tree (a function of the tree
                ran in the test, or gave the numbers at import).
            ValueError: This seed has judged a result of this name.
        """
        with profiled(None):
            require_references(reference, same_precision)
            output = compare(
                self._result(name, actual, reference, same_precision),
                reference=reference,
                same_precision=same_precision,
                limits=self._limits(),
                device=self.device,
                name=_plain(name),
                seed=self.seed,
            )
        self._findings.outputs.append(output)

    def judge_exact(self, name: str, actual: object, expected: torch.Tensor) -> None:
        """Compare a result bit by bit; if a bit differs, the test fails after the last seed.

        In one or more seeds, the expected tensor must hold more than zeros or one constant: else
        the cell shows nothing.

        Args:
            name: A name for the result.
            actual: As for `judge`.
            expected: The right result, of the same shape and dtype, on any device.

        Raises:
            CannotJudgeError: An input was written to; or the expected tensor is not finite, was
                written to, or could come from the tree.
            ValueError: This seed has judged a result of this name.
        """
        with profiled(None):
            require_plain("the expected tensor", expected)
            result = self._result(name, actual, expected)
            output = compare_exact(
                result, expected, device=self.device, name=_plain(name), seed=self.seed
            )
        self._findings.outputs.append(output)

    def _result(self, name: str, actual: object, *references: torch.Tensor) -> object:
        """Return the result; raise CannotJudgeError if inputs or references may be wrong."""
        if self._watch.ran:
            raise CannotJudgeError(
                f"{name}: {self._watch.ran}, so that a reference could "
                "come from the tree: run the tree only in a function that is judged, "
                f"draw.judge({name!r}, lambda: …)"
            )
        for reference in references:
            if source := _same_values(self._watch, reference):
                raise CannotJudgeError(
                    f"{name}: {source}, and a reference holds no other: compute it in the check"
                )
        inputs = [digest(tensor) for tensor in self._inputs]
        if self._written or not (callable(actual) or inputs == self._drawn):
            raise CannotJudgeError(
                f"{name}: an input was written to after it was drawn, so that a reference could "
                "be of other values: give what writes to it a clone"
            )
        before = digest(*references)
        self._findings.judged_by(name, self.seed, inputs=" ".join(inputs), references=before)
        if not callable(actual):
            return actual
        result: object = actual()
        self._written = self._findings.overwritten(
            f"input {number}, {dtype_name(tensor.dtype)} {tuple(tensor.shape)}"
            for number, (tensor, old) in enumerate(zip(self._inputs, inputs, strict=False), 1)
            if digest(tensor) != old
        )
        if before != digest(*references):
            raise CannotJudgeError(
                f"{name}: what is judged wrote to its reference: give it a clone"
            )
        return result


def _same_values(watch: TreeWatch, reference: torch.Tensor) -> str:
    """Return a value of the tree that a reference may be a copy of; empty: no such value."""
    parts = [reference[block] for block in blocks(tuple(reference.shape))]
    if watch.numbers and parts and not reference.is_complex():
        numbers = torch.tensor([*watch.numbers], dtype=torch.float64)
        if all(bool(torch.isin(widened(part).cpu(), numbers).all()) for part in parts):
            return watch.numbers[float(reference.flatten()[0])]
    for path, name, value in watch.values():
        if isinstance(value, torch.Tensor) and _equal(value, reference):
            return f"{path}: {name} has the same values"
    return ""


def _equal(tensor: torch.Tensor, reference: torch.Tensor) -> bool:
    """Return whether a tensor of two or more elements equals a reference."""
    if tensor.shape != reference.shape or tensor.numel() <= 1 or tensor.layout != torch.strided:
        return False
    return not tensor.is_meta and all(
        bool((widened(tensor[block]).cpu() == widened(reference[block]).cpu()).all())
        for block in blocks(tuple(reference.shape))
    )


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a copy of a dense tensor in a layout that callers of kernels use.

    Memory around a view is filled with NaN (integers: the largest value), so that a
    kernel that reads outside its rows gives a result that fails.

    Args:
        values: A dense tensor; the copy has the same shape, dtype and device.
        layout: A name in `LAYOUTS`; `expanded` repeats the first row in place of the others.

    Raises:
        ValueError: There is no such layout, or the layout needs more dimensions.
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
    """Return a new tensor full of NaN (integers: the maximum), so that a stray read shows."""
    memory = torch.empty(shape, dtype=like.dtype, device=like.device)
    if like.dtype == torch.bool:
        return memory.fill_(True)  # noqa: FBT003  a value to fill with
    if not (like.is_floating_point() or like.is_complex()):
        return memory.fill_(torch.iinfo(like.dtype).max)
    if like.element_size() == 1:
        # 8-bit floats: torch may convert NaN to something else; 0xff and, for the
        # unsigned-zero kinds (fnuz), 0x80 are NaN by definition.
        memory.view(torch.uint8).fill_(0x80 if "fnuz" in str(like.dtype) else 0xFF)
        return memory
    return memory.fill_(float("nan"))


def _contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def _packed(values: torch.Tensor) -> torch.Tensor:
    """Return a copy in the middle of a packed tensor, as K lies between Q and V."""
    # In (…, heads, width) the heads are packed, in (rows, width) the columns.
    dim = values.dim() - (2 if values.dim() >= _HEADS else 1)
    size, shape = values.shape[dim], [*values.shape]
    shape[dim] = 3 * size
    return _guarded(tuple(shape), values).narrow(dim, size, size).copy_(values)


def _wide_rows(values: torch.Tensor) -> torch.Tensor:
    return _guarded((*values.shape[:-1], 2 * values.shape[-1]), values)


def _shifted(values: torch.Tensor, by: int) -> torch.Tensor:
    """Return a contiguous copy that begins `by` elements after the start of the storage."""
    return _guarded((by + values.numel(),), values)[by:].view(values.shape).copy_(values)


#: For each layout: the least number of dimensions, and the function that makes a copy.
LAYOUTS: Final[dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]]] = {
    # Rows one after the other, at the start of the storage.
    "contiguous": (0, _contiguous),
    # The middle third of a packed tensor: of the heads (rank 3 or more), or of the columns.
    "packed": (1, _packed),
    # The last two dimensions swapped in memory.
    "transposed": (2, lambda values: _contiguous(values.transpose(-1, -2)).transpose(-1, -2)),
    # Each row followed by a gap as long as itself; the last stride is 1.
    "row-stride": (1, lambda values: _wide_rows(values)[..., : values.shape[-1]].copy_(values)),
    # Every second element: the last stride is 2.
    "strided": (1, lambda values: _wide_rows(values)[..., ::2].copy_(values)),
    # One row, repeated with stride 0. Only the first row's values remain.
    "expanded": (1, lambda values: _contiguous(values[:1]).expand(values.shape)),
    # Contiguous, 64 bytes into the storage: aligned.
    "offset": (0, lambda values: _shifted(values, 4 * _ALIGNMENT // values.element_size())),
    # Contiguous, one element into the storage: aligned only to an element.
    "misaligned": (0, lambda values: _shifted(values, 1)),
}


class _Reporter(Protocol):
    """The part of contribbot's pytest plugin that a grid uses."""

    folders: Sequence[str]
    imports: TreeWatch | None

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None: ...


#: A test function: the first parameter is `draw`, the others are pytest fixtures.
Test = Callable[..., None]


class Grid:
    """The cells of a check: every combination of the values of some axes.

    Args:
        axes: The values of each axis, by the axis's name. A mapping gives the values names:
            `{"mask": {"none": None, "causal": build_causal}}`. Values of the axes
            `dtype`, `shape` and `layout` are shown alone; others are shown as `axis=value`.
        seeds: The number of seeds, counted from 0, or the seeds. Each cell runs with each seed.
        where: A function that says whether to keep a cell; None: keep all.
        device: The device of inputs and results: `cpu`, or `cuda`, which is torch's name for
            AMD's GPUs as well.

    Raises:
        ValueError: There is no cell or no seed, or a name occurs twice.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[object] | Mapping[str, object]],
        *,
        seeds: int | Sequence[int] = 3,
        where: Callable[[Cell], bool] | None = None,
        device: str = "cpu",
    ) -> None:
        self.seeds = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
        self.device = torch.device(device)
        named = [_named(axis, values) for axis, values in axes.items()]
        combinations = itertools.product(*named)
        cells = (_cell(dict(zip(axes, pairs, strict=True))) for pairs in combinations)
        self.cells = tuple(cell for cell in cells if where is None or where(cell))
        _require_distinct("cell", [cell.name for cell in self.cells])
        _require_distinct("seed", [str(seed) for seed in self.seeds])

    def each_cell(self, test: Test) -> Test:
        """Return a pytest test with a case for each cell; all seeds run before a case fails.

        Args:
            test: The test function; its first parameter must be named `draw`.

        Raises:
            TypeError: The first parameter has another name.
        """
        parameters = [*inspect.signature(test).parameters.values()]
        if not parameters or parameters[0].name != "draw":
            raise TypeError(f"{test.__name__}: the first parameter must be `draw`")
        fixtures = [each.name for each in parameters[1:] if each.default is each.empty]

        @functools.wraps(test)
        def run(draw: Cell, request: pytest.FixtureRequest, **others: object) -> None:
            values = {**others, "request": request}
            arguments = {name: values[name] for name in fixtures}
            self._run(draw, request, test, lambda drawn: test(drawn, **arguments))

        # pytest reads the names of fixtures from the signature.
        kind = inspect.Parameter.KEYWORD_ONLY
        asked = dict.fromkeys(["draw", *fixtures, "request"])
        parameters = [inspect.Parameter(name, kind) for name in asked]
        vars(run)["__signature__"] = inspect.Signature(parameters)
        cells = [pytest.param(cell, id=cell.name) for cell in self.cells]
        return cast("Test", pytest.mark.parametrize("draw", cells)(run))

    def _run(
        self, cell: Cell, request: pytest.FixtureRequest, test: Test, body: Callable[[Draw], None]
    ) -> None:
        __tracebackhide__ = True
        limits = functools.cache(lambda: Limits.stated(Path(inspect.getfile(test))))
        findings = Findings(cell)
        plugin = request.config.pluginmanager.get_plugin("contribbot-reporter")
        reporter = cast("_Reporter | None", plugin)
        watch = (reporter and reporter.imports) or TreeWatch(reporter.folders if reporter else ())
        watch.compare_names(getattr(test, "__globals__", {}))
        try:
            for seed in self.seeds:
                draw = Draw(
                    cell, seed, device=self.device, limits=limits, findings=findings, watch=watch
                )
                with watch.testing():
                    body(draw)
        except BaseException as error:  # also a skip, after which the other seeds do not run
            findings.failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            if reporter is not None:
                reporter.cell(request.node.nodeid, findings.record(self.seeds))
        if complaint := findings.complaint():
            raise AssertionError(complaint)


def _named(axis: str, values: Sequence[object] | Mapping[str, object]) -> list[tuple[str, object]]:
    """Return pairs of name and value for the values of an axis."""
    if isinstance(values, Mapping):
        return [(_plain(f"{axis}={name}"), value) for name, value in values.items()]
    prefix = "" if axis in {"dtype", "shape", "layout"} else f"{axis}="
    return [(_plain(f"{prefix}{_text(value)}"), value) for value in values]


def _text(value: object) -> str:
    if isinstance(value, torch.Size | tuple | list):
        return "x".join(map(str, value)) or "scalar"
    return dtype_name(value) if isinstance(value, torch.dtype) else str(value)


def _cell(pairs: Mapping[str, tuple[str, object]]) -> Cell:
    return Cell(
        name=" ".join(text for text, _ in pairs.values()),
        values={axis: value for axis, (_, value) in pairs.items()},
        texts={axis: text.removeprefix(f"{axis}=") for axis, (text, _) in pairs.items()},
    )


def _plain(text: str) -> str:
    """Return a text with lone surrogates escaped, as JSON readers refuse them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _require_distinct(what: str, names: list[str]) -> None:
    if not names:
        raise ValueError(f"a grid without a {what} shows nothing")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what}s are named {name!r}")
