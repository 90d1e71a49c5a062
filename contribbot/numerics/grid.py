"""A grid of inputs; each of its cells is one pytest test."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest
import torch

from contribbot.numerics.draw import Cell, Draw, Findings, TreeWatch
from contribbot.numerics.imports import ImportWatch
from contribbot.numerics.limits import Limits
from contribbot.numerics.tensors import dtype_name
from contribbot.numerics.words import plain


class _Reporter(Protocol):
    """The part of contribbot's pytest plugin that knows the tree, and takes cells."""

    folders: Sequence[str]
    imports: ImportWatch | None

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None: ...


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
        """Make a pytest test of each cell; all seeds run before it fails.

        Args:
            test: The function; its first parameter is named `draw`.

        Raises:
            TypeError: It is not.
        """
        parameters = [*inspect.signature(test).parameters.values()]
        if not parameters or parameters[0].name != "draw":
            raise TypeError(f"{test.__name__}: the first parameter must be `draw`")
        fixtures = {other.name: other for other in parameters[1:]}
        wants_request = "request" in fixtures

        @functools.wraps(test)
        def run(draw: Cell, request: pytest.FixtureRequest, **others: object) -> None:
            if wants_request:
                others["request"] = request
            self._run(draw, request, test, lambda drawn: test(drawn, **others))

        kind = inspect.Parameter.KEYWORD_ONLY
        fixtures.setdefault("request", inspect.Parameter("request", kind))
        asked = [other.replace(kind=kind) for other in (parameters[0], *fixtures.values())]
        # pytest reads the fixtures of a test there.
        vars(run)["__signature__"] = inspect.Signature(asked)
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
        watch = TreeWatch(reporter.folders, reporter.imports) if reporter else TreeWatch()
        watch.compare_names(getattr(test, "__globals__", {}))
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


def _cell(pairs: Mapping[str, tuple[str, object]]) -> Cell:
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
