"""One stage of attention layers that runs the actions of a pipeline of slices, with all bytes counted between them.

Later slices read keys and values of former ones as leaves of their own graphs, which share their memory. Their
gradients wait in these leaves for the backward pass of the slice that made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from oracles.instruments.live import Live
from oracles.pipelines.token_pipeline import Action
from torch import nn

Pair = tuple[torch.Tensor, torch.Tensor]


class Attention(torch.autograd.Function):
    """Causal attention of a slice to itself and to former slices; saved are what a fused kernel saves."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, *pairs: torch.Tensor) -> torch.Tensor:
        """Keys, then values, of every slice up to this one."""
        half = len(pairs) // 2
        weights, result = _attend(query, torch.cat(pairs[:half]), torch.cat(pairs[half:]))
        ctx.save_for_backward(query, result, weights.float().logsumexp(-1), *pairs)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of the query and of all keys and values, from scores that are made again."""
        query, _, _, *pairs = ctx.saved_tensors
        again = [tensor.detach().requires_grad_() for tensor in (query, *pairs)]
        half = len(pairs) // 2
        with torch.enable_grad():
            _, result = _attend(again[0], torch.cat(again[1:1 + half]), torch.cat(again[1 + half:]))
        # Each in memory of its own, not parts of one tensor for all slices.
        return tuple(gradient.clone() for gradient in torch.autograd.grad(result, again, gradients[0]))


def _attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (heads, queries, keys) and what follows from them (queries, heads, width), of grouped heads."""
    groups = query.shape[1] // keys.shape[1]
    scores = torch.einsum("qhd,khd->hqk", query, keys.repeat_interleave(groups, 1))
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + keys.shape[0] - query.shape[0])
    weights = scores.masked_fill(hidden, float("-inf"))
    return weights, torch.einsum("hqk,khd->qhd", weights.softmax(-1), values.repeat_interleave(groups, 1))


class Layer(nn.Module):
    """Projections around attention, and the residual stream."""

    def __init__(self, heads: int, kv_heads: int, width: int) -> None:
        super().__init__()
        self.width, hidden = width, heads * width
        make: Any = {"bias": False, "dtype": torch.bfloat16}
        self.query, self.output = nn.Linear(hidden, hidden, **make), nn.Linear(hidden, hidden, **make)
        self.key, self.value = (nn.Linear(hidden, kv_heads * width, **make) for _ in range(2))

    def forward(self, tokens: torch.Tensor, former: Sequence[Pair]) -> tuple[torch.Tensor, Pair]:
        """Return the residual stream of a slice, and its keys and values."""
        query, key, value = (
            projection(tokens).view(len(tokens), -1, self.width) for projection in (self.query, self.key, self.value)
        )
        keys, values = (*(pair[0] for pair in former), key), (*(pair[1] for pair in former), value)
        attended = Attention.apply(query, *keys, *values)
        return tokens + self.output(attended.flatten(1)), (key, value)


class Slice(NamedTuple):
    """A slice in flight: its input and output, and by layer its keys and values, as made and as leaves for others.

    With recompute, ``inputs`` are those of its layers, and nothing is kept as made.
    """

    output: torch.Tensor
    inputs: list[torch.Tensor]
    made: list[Pair]
    leaves: list[Pair]


class Counted(NamedTuple):
    """Bytes that a slice keeps from its forward pass on, and those alive after each action."""

    of_slice: int
    after: list[int]


def run(
    actions: Sequence[Action], layers: int, tokens: int, heads: int, kv_heads: int, width: int, recompute: bool,
) -> Counted:
    """Run a stage's actions with slices of so many tokens."""
    torch.manual_seed(0)
    stage = nn.ModuleList(Layer(heads, kv_heads, width) for _ in range(layers))
    for weight in stage.parameters():
        weight.grad = torch.zeros_like(weight)
    flying: dict[tuple[int, int], Slice] = {}
    after: list[int] = []
    with Live(stage, [weight.grad for weight in stage.parameters()]) as live:
        for action in actions:
            place = (action.sequence, action.part)
            former = [flying[action.sequence, part] for part in range(action.part)]
            if not action.backward:
                given = torch.randn(tokens, heads * width, dtype=torch.bfloat16).requires_grad_()
                flying[place] = (_forth_without_graph if recompute else _forth)(stage, former, given)
                del given
            elif recompute:
                _back_again(stage, former, flying.pop(place))
            else:
                _back(flying.pop(place))
            del former
            after.append(live.now)
    assert not flying
    return Counted(after[0], after)


def _forth(stage: nn.ModuleList, former: Sequence[Slice], given: torch.Tensor) -> Slice:
    made, output = [], given
    for number, layer in enumerate(stage):
        output, pair = layer(output, [one.leaves[number] for one in former])
        made.append(pair)
    return Slice(output, [given], made, [_leaves(pair) for pair in made])


def _forth_without_graph(stage: nn.ModuleList, former: Sequence[Slice], given: torch.Tensor) -> Slice:
    """Keep the input, the keys and the values of every layer, and nothing else."""
    inputs, leaves = [given.detach()], []
    with torch.no_grad():
        for number, layer in enumerate(stage):
            output, pair = layer(inputs[-1], [one.leaves[number] for one in former])
            inputs.append(output)
            leaves.append(_leaves(pair))
    return Slice(inputs.pop(), inputs, [], leaves)


def _leaves(pair: Pair) -> Pair:
    key, value = (tensor.detach().requires_grad_() for tensor in pair)
    return key, value


def _back(one: Slice) -> None:
    """Give a slice the gradient of its output, and those that later slices left for its keys and values."""
    ends = [one.output, *(end for pair in one.made for end in pair)]
    _give(ends, [torch.ones_like(one.output), *(leaf.grad for pair in one.leaves for leaf in pair)])


def _back_again(stage: nn.ModuleList, former: Sequence[Slice], one: Slice) -> None:
    """The same layer by layer, from the last one on, each run again from its input."""
    gradient = torch.ones_like(one.output)
    for number in reversed(range(len(stage))):
        given = one.inputs.pop().requires_grad_()
        output, pair = stage[number](given, [other.leaves[number] for other in former])
        _give([output, *pair], [gradient, *(leaf.grad for leaf in one.leaves.pop())])
        assert given.grad is not None
        gradient = given.grad


def _give(ends: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    """Run a backward pass from the ends that have gradients."""
    known = [(end, gradient) for end, gradient in zip(ends, gradients, strict=True) if gradient is not None]
    torch.autograd.backward([end for end, _ in known], [gradient for _, gradient in known])
