"""Run backward passes of the emulated GPU, with the hooks of tensors and nodes.

torch's engine wants a thread of the device for each GPU; the emulated GPU has no such thread.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch.autograd import graph
from torch.autograd.function import _HookMixin

Gradients = Sequence["torch.Tensor | None"]
Hook = Callable[..., object]
_ENGINE: Final[Callable[..., tuple[torch.Tensor | None, ...]]] = graph._engine_run_backward  # noqa: SLF001
_REGISTER: Final = _HookMixin._register_hook  # noqa: SLF001
_KEY: Final = "contribbot.emulate"


@dataclass
class Watches:
    """The tensor hooks of an autograd node and its tensors with `retain_grad`, by output number."""

    hooks: dict[int, Mapping[int, Hook]] = field(default_factory=dict)
    retained: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)


def watches_of(node: graph.Node) -> Watches:
    """Return the `Watches` in an autograd node's metadata; the first call adds empty `Watches`."""
    metadata: dict[str, Watches] = getattr(node, "metadata")  # noqa: B009  torch's stub has a method there
    return metadata.setdefault(_KEY, Watches())


def run_backward(
    outputs: Sequence[torch.Tensor | graph.GradientEdge],
    gradients: Gradients,
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor | graph.GradientEdge] = (),
    allow_unreachable: bool = False,  # noqa: FBT002  torch passes it by position
    *,
    accumulate_grad: bool,
) -> tuple[torch.Tensor | None, ...]:
    """Run a backward pass and return the gradients of `inputs`, as `_engine_run_backward` does."""
    if not any(isinstance(each, torch.Tensor) and each.is_cuda for each in outputs):
        return _ENGINE(
            outputs,
            gradients,
            keep_graph,
            create_graph,
            inputs,
            allow_unreachable=allow_unreachable,
            accumulate_grad=accumulate_grad,
        )
    roots, asked = (
        [graph.get_gradient_edge(x) if isinstance(x, torch.Tensor) else x for x in edges]
        for edges in (outputs, inputs)
    )
    waiting = _dependants([edge.node for edge in roots])
    arrived = defaultdict[graph.Node, dict[int, torch.Tensor]](dict)
    for edge, gradient in zip(roots, gradients, strict=True):
        if gradient is not None:
            _add(arrived[edge.node], edge.output_nr, gradient)
    # As in torch: hooks do not change the gradient of an input that leads to another input.
    ends = {edge.node for edge in asked}
    inner = {node for node in ends if ends & _dependants(_following(node)).keys()}
    before_hooks = dict[graph.Node, dict[int, torch.Tensor]]()
    with torch.set_grad_enabled(create_graph):
        ready = [node for node in {edge.node for edge in roots} if not waiting[node]]
        while ready:
            node = ready.pop()
            if node in inner:
                before_hooks[node] = {**arrived[node]}
            _call_tensor_hooks(node, arrived[node])
            if not node.next_functions:
                if not inputs:
                    _accumulate(node, arrived[node].get(0))
                continue
            for (following, place), gradient in zip(
                node.next_functions, _gradients(node, arrived[node]), strict=True
            ):
                if following is None:
                    continue
                if gradient is not None:
                    facts = following._input_metadata[place]  # noqa: SLF001  no public name
                    shape = tuple(map(int, facts.shape))
                    # A broadcast operand's gradient is summed, a converted operand's cast.
                    _add(arrived[following], place, gradient.sum_to_size(shape).to(facts.dtype))
                waiting[following] -= 1
                if not waiting[following]:
                    ready.append(following)
    found = tuple(
        before_hooks.get(edge.node, arrived[edge.node]).get(edge.output_nr) for edge in asked
    )
    if accumulate_grad:
        for edge, gradient in zip(asked, found, strict=True):
            _accumulate(edge.node, gradient)
    if not allow_unreachable and any(gradient is None for gradient in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return found


def _dependants(roots: Sequence[graph.Node]) -> dict[graph.Node, int]:
    """Return the nodes reachable from `roots`, each with the number of edges to the node."""
    found, todo = dict.fromkeys(roots, 0), [*dict.fromkeys(roots)]
    while todo:
        for following in _following(todo.pop()):
            if following not in found:
                found[following] = 0
                todo.append(following)
            found[following] += 1
    return found


def _following(node: graph.Node) -> list[graph.Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _gradients(node: graph.Node, arrived: dict[int, torch.Tensor]) -> Gradients:
    """Run a node's hooks and backward function; return one gradient or None per next function."""
    if not arrived:
        return [None] * len(node.next_functions)
    outer: tuple[torch.Tensor | None, ...] = tuple(
        arrived[place]
        if place in arrived
        else torch.zeros(tuple(map(int, facts.shape)), dtype=facts.dtype, device=facts.device)
        for place, facts in enumerate(node._input_metadata)  # noqa: SLF001  no public name
    )
    for hook in _node_hooks(node.register_prehook):
        outer = _replaced(hook(outer), outer)
    if callable(node):
        result: Gradients | torch.Tensor | None = node(*outer)
        inner = tuple(result) if isinstance(result, tuple) else (result,)
    else:
        # A Python function returns a value for each argument, also for numbers.
        result = getattr(node, "apply")(*outer)  # noqa: B009  torch's stub lacks it
        each = result if isinstance(result, tuple) else (result,)
        needs: Sequence[bool] = getattr(node, "needs_input_grad")  # noqa: B009  torch's stub lacks it
        needed = iter([gradient for gradient, need in zip(each, needs, strict=False) if need])
        inner = tuple(next(needed) if edge else None for edge, _ in node.next_functions)
    for hook in _node_hooks(node.register_hook):
        inner = _replaced(hook(inner, outer), inner)
    return inner


def _replaced(
    answer: object, before: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients that a hook returned, or `before` for None; check their number."""
    if answer is None:
        return before
    after = answer if isinstance(answer, tuple) else (answer,)
    if len(after) != len(before):
        raise RuntimeError(
            f"hook has returned an incorrect number of values (got {len(after)}, but expected "
            f"{len(before)})"
        )
    return after


def _add(gradients: dict[int, torch.Tensor], place: int, gradient: torch.Tensor) -> None:
    gradients[place] = gradients[place] + gradient if place in gradients else gradient


def _accumulate(node: graph.Node, gradient: torch.Tensor | None) -> None:
    """Add a gradient to a leaf tensor's `grad`; call the hooks before and after the addition."""
    variable: torch.Tensor | None = getattr(node, "variable", None)
    if variable is None or gradient is None:
        return
    outer: tuple[torch.Tensor | None, ...] = (gradient,)
    for hook in _node_hooks(node.register_prehook):
        outer = _replaced(hook(outer), outer)
    if outer[0] is None:
        return
    _add_to(variable, outer[0])
    for hook in _node_hooks(node.register_hook):
        hook((), outer)
    after: Mapping[int, Hook] | None = variable._post_accumulate_grad_hooks  # noqa: SLF001  torch's own
    for hook in [*(after or {}).values()]:
        hook(variable)


def _add_to(tensor: torch.Tensor, gradient: torch.Tensor) -> None:
    before = tensor.grad
    tensor.grad = gradient.detach().clone() if before is None else before + gradient


def _call_tensor_hooks(node: graph.Node, arrived: dict[int, torch.Tensor]) -> None:
    """Apply a node's tensor hooks to the gradients in `arrived`; store retained gradients."""
    variable: torch.Tensor | None = getattr(node, "variable", None)
    watches = watches_of(node)
    hooks = watches.hooks
    if variable is not None:
        hooks = {0: variable._backward_hooks or {}}  # noqa: SLF001  no public name
    for place, each in hooks.items():
        for hook in [*each.values()] if place in arrived else ():
            answer = hook(arrived[place])
            if isinstance(answer, torch.Tensor):
                arrived[place] = answer
            elif answer is not None:
                raise TypeError(f"expected Variable, but hook returned '{type(answer).__name__}'")
    for place, reference in watches.retained.items():
        if place in arrived and (tensor := reference()) is not None:
            _add_to(tensor, arrived[place])


class _ProbeError(Exception):
    """Raised by `register_hook` for `_probe`; has a node's hooks, which torch does not expose."""

    def __init__(self, hooks: Mapping[int, Hook] | None) -> None:
        super().__init__()
        self.hooks = hooks


def _probe(*_: object) -> None:
    """A hook for which `register_hook` raises `_ProbeError` with the node's hooks."""


def register_hook(hooks: dict[int, Hook] | None, hook: Hook) -> tuple[dict[int, Hook], object]:
    """Replace torch's `_register_hook`, which C++ calls; for `_probe`, raise `_ProbeError`."""
    if hook is _probe:
        raise _ProbeError(hooks)
    return _REGISTER(hooks, hook)  # type: ignore[no-any-return, no-untyped-call]  # torch has no types


def _node_hooks(register: Callable[[Hook], object]) -> list[Hook]:
    """Return a node's hooks of one kind; `register` is the node's method that adds such a hook."""
    try:
        register(_probe)
    except _ProbeError as found:
        return [*(found.hooks or {}).values()]
    return []
