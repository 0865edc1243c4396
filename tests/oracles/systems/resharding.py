"""Every element of a model placed on every rank, one by one, and what a rank lacks when the layout changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Element = tuple[Any, ...]


class Layout(NamedTuple):
    """Degrees; the embedding of a rank has ``rows`` rows with padding."""

    tp: int
    cp: int
    dp: int
    pp: int
    chunks: int
    rows: int
    zero: bool


class Network(NamedTuple):
    """A small model: rows and columns of its embedding, layers, units of a layer's divided axis, other elements."""

    rows: int
    columns: int
    layers: int
    units: int
    others: int
    tied: bool


def placed(model: Network, layout: Layout) -> Iterator[tuple[list[Element], list[Element]]]:
    """Yield for every rank the elements of its weights, and of its states."""
    for stage in range(layout.pp):
        for copy in range(layout.dp * layout.cp):
            for tp in range(layout.tp):
                kept = list(_kept(model, layout, stage, tp))
                own = kept
                if layout.zero:
                    copies = layout.dp * layout.cp
                    piece = next(size for size in range(len(kept) + 1) if size * copies >= len(kept))
                    own = [element for place, element in enumerate(kept) if piece and place // piece == copy]
                yield kept, own


def _kept(model: Network, layout: Layout, stage: int, tp: int) -> Iterator[Element]:
    def rows(matrix: str) -> Iterator[Element]:
        for row in range(model.rows):
            if row // layout.rows == tp:
                yield from ((matrix, row, column) for column in range(model.columns))

    if stage == 0:
        yield from rows("embedding")
    order = [(chunk, rank) for chunk in range(layout.chunks) for rank in range(layout.pp)]
    for chunk in range(layout.chunks):
        for layer in range(model.layers):
            if order[layer * len(order) // model.layers] == (chunk, stage):
                for unit in range(model.units):
                    if unit * layout.tp // model.units == tp:
                        yield "divided", layer, unit
                yield from (("other", layer, index) for index in range(model.others))
    if stage == layout.pp - 1:
        yield from (("norm", column) for column in range(model.columns))
        if not (model.tied and stage == 0):
            yield from rows("embedding" if model.tied else "head")


def lacking(model: Network, old: Layout, new: Layout) -> list[tuple[int, int]]:
    """Count weights and states that each rank needs and does not have."""
    return [
        (len(set(weights) - set(old_weights)), len(set(states) - set(old_states)))
        for (old_weights, old_states), (weights, states) in zip(placed(model, old), placed(model, new), strict=True)
    ]
