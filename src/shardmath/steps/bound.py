"""Tensors that recomputed layers with experts hold until the next forward pass, because a dispatcher binds their graph.

Megatron-Core's dispatcher keeps the weights of the last tokens. In a recomputed layer these end a graph that begins
with the layer's input, so input and gradient stay: ``tests/oracles/megatron_core/test_megatron_expert_steps.py`` counts
them.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from shardmath.steps.rows import Rows
from shardmath.steps.trace import Trace

#: Chunk and layer.
Place = tuple[int, int]
EXPERTS = "expert_layer"
INPUT, GRADIENT = "layer_input.input", "residual_gradient.gradient_beside_experts"


class Bound:
    """Inputs and gradients that stay, by the layer that holds them."""

    def __init__(self, rows: Rows, trace: Trace) -> None:
        self._trace, self._size = trace, rows.sizes.get(GRADIENT, 0)
        self._is_used = bool(rows.values["recompute_full"]) and rows.choices["layers"] == "experts"
        self._same = rows.same
        self._held: dict[Place, list[int]] = {}
        self._behind: Place | None = None
        self._place: Place = 0, 0
        self._has_experts = False

    def enter(self, kind: str, chunk: int, layer: int) -> None:
        """Say which layer is at work, and of which kind it is."""
        self._place, self._has_experts = (chunk, layer), kind == EXPERTS

    @property
    def layer(self) -> int:
        """Number of the layer at work in its chunk, from 0."""
        return self._place[1]

    @property
    def is_first(self) -> bool:
        """True if the first layer is at work."""
        return self._place == (0, 0)

    def bind_input(self, held: MutableMapping[str, int]) -> None:
        """Take the input of a layer with experts, under the name that it is saved by, from what the layer frees."""
        if self._is_used and self._has_experts:
            name = next(row for row in held if self._same.get(row, row) == INPUT)
            self._held[self._place] = [held.pop(name)]

    def bind_gradient(self, here: MutableMapping[str, int]) -> None:
        """End the backward pass of a layer: the one behind holds the gradient that this one had, if it has experts."""
        if self._behind is not None:
            self._held[self._behind].append(here.pop(GRADIENT))
        self._behind = self._place if self._is_used and self._has_experts else None

    def end(self) -> None:
        """End the backward pass of a chunk: the first layer holds the gradient of its input."""
        if self._behind is not None:
            self._held[self._behind].append(self._trace.allocate(self._size, GRADIENT))
        self._behind = None

    def unbind(self) -> None:
        """Free what the layer at work held since the pass before."""
        self._trace.free_all(self._held.pop(self._place, []))
