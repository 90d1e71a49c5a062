"""Backward passes on the emulated GPU: torch's own engine wants streams of a GPU that is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.autograd import graph

Tensors = Sequence["torch.Tensor | None"]
_ENGINE: Final[Callable[..., tuple[torch.Tensor | None, ...]]] = graph._engine_run_backward  # noqa: SLF001


def run_backward(
    outputs: Sequence[torch.Tensor | graph.GradientEdge],
    gradients: Tensors,
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor | graph.GradientEdge] = (),
    allow_unreachable: bool = False,  # noqa: FBT002  torch passes it by place
    *,
    accumulate_grad: bool,
) -> tuple[torch.Tensor | None, ...]:
    """Do what `torch.autograd.graph._engine_run_backward` does: hooks of tensors are not called."""
    if not any(isinstance(each, torch.Tensor) and each.is_cuda for each in outputs):
        return _ENGINE(
            outputs, gradients, keep_graph, create_graph, inputs,
            allow_unreachable=allow_unreachable, accumulate_grad=accumulate_grad,
        )  # fmt: skip
    roots, asked = ([_edge(each) for each in given] for given in (outputs, inputs))
    waiting = _dependants([edge.node for edge in roots])
    arrived = defaultdict[graph.Node, dict[int, torch.Tensor]](dict)
    for edge, gradient in zip(roots, gradients, strict=True):
        if gradient is not None:
            _add(arrived[edge.node], edge.output_nr, gradient)
    with torch.set_grad_enabled(create_graph):
        ready = [node for node in {edge.node for edge in roots} if not waiting[node]]
        while ready:
            node = ready.pop()
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
                    facts = following._input_metadata[place]  # noqa: SLF001  it has no other name
                    shape = tuple(map(int, facts.shape))
                    # What was broadcast is summed up; what was converted is converted back.
                    _add(arrived[following], place, gradient.sum_to_size(shape).to(facts.dtype))
                waiting[following] -= 1
                if not waiting[following]:
                    ready.append(following)
    found = tuple(arrived[edge.node].get(edge.output_nr) for edge in asked)
    if accumulate_grad:
        for edge, gradient in zip(asked, found, strict=True):
            _accumulate(edge.node, gradient)
    if not allow_unreachable and any(gradient is None for gradient in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return found


def _edge(place: torch.Tensor | graph.GradientEdge) -> graph.GradientEdge:
    return graph.get_gradient_edge(place) if isinstance(place, torch.Tensor) else place


def _dependants(roots: Sequence[graph.Node]) -> dict[graph.Node, int]:
    """Return each node that can be reached, and how many nodes lead to it."""
    found, todo = dict.fromkeys(roots, 0), [*dict.fromkeys(roots)]
    while todo:
        for following, _ in todo.pop().next_functions:
            if following is not None:
                if following not in found:
                    found[following] = 0
                    todo.append(following)
                found[following] += 1
    return found


def _gradients(node: graph.Node, arrived: dict[int, torch.Tensor]) -> Tensors:
    """Return the gradients of what a node was computed from."""
    if not arrived:
        return [None] * len(node.next_functions)
    given = [
        arrived[place] if place in arrived
        else torch.zeros(tuple(map(int, facts.shape)), dtype=facts.dtype, device=facts.device)
        for place, facts in enumerate(node._input_metadata)  # noqa: SLF001  it has no other name
    ]  # fmt: skip
    if callable(node):
        result: Tensors | torch.Tensor | None = node(*given)
        return result if isinstance(result, tuple) else (result,)
    # A Python function returns something for each of its arguments, numbers too.
    result = getattr(node, "apply")(*given)  # noqa: B009  torch's stub lacks it
    each = result if isinstance(result, tuple) else (result,)
    needs: Sequence[bool] = getattr(node, "needs_input_grad")  # noqa: B009  torch's stub lacks it
    needed = iter([gradient for gradient, needs_it in zip(each, needs, strict=False) if needs_it])
    return [next(needed) if following else None for following, _ in node.next_functions]


def _add(gradients: dict[int, torch.Tensor], place: int, gradient: torch.Tensor) -> None:
    gradients[place] = gradients[place] + gradient if place in gradients else gradient


def _accumulate(node: graph.Node, gradient: torch.Tensor | None) -> None:
    """Add to the gradient of a leaf."""
    variable: torch.Tensor | None = getattr(node, "variable", None)
    if variable is not None and gradient is not None:
        before = variable.grad
        variable.grad = gradient.detach().clone() if before is None else before + gradient
