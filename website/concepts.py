"""``python -m website.concepts``: docs/concepts/*.svg, the tensors of a layer and the part of each that a rank keeps.

The parallel rules of the ledger say which dimension of a tensor they share out; evaluated rows say how many bytes are
left.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from sympy import Expr

from shardmath.account.configured import configured
from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.plots.picture import Panel, Picture, write_picture
from shardmath.plots.style import ROLE_COLOURS, SMALL, short
from shardmath.steps.rows import Row, Rows
from shardmath.symbolic.accounts.rows import kept_rows
from shardmath.symbolic.dimension import Dimension
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parallel.dimensions import SHAPE_RULES
from shardmath.symbolic.parameters import BY_LETTER
from shardmath.symbolic.printers.text import LinePrinter
from website import shares

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "concepts"
#: Pictures by name: a model, and how its tensors are shared out.
CONCEPTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tensor_parallel": ("llama-3.1-8b", {"tensor_parallel": 4, "sequence_parallel": False}),
    "sequence_parallel": ("llama-3.1-8b", {"tensor_parallel": 4, "sequence_parallel": True}),
    "context_parallel": ("llama-3.1-8b", {"context_parallel": 4}),
    "expert_parallel": ("mixtral-8x7b", {"expert_parallel": 4, "data_parallel": 4}),
}
#: Roles of what a layer keeps, with the heading of each.
ROLES = {"weight": "weights of a layer", "activation": "saved by a layer for its backward pass"}
#: Saved tensors of less than this share of the largest one are left out.
SMALLEST = 1 / 500
#: Cards in a line; inches of a card's height and of a heading.
_CARDS, _HEIGHT, _HEADING = 4, 1.1, 0.25
#: Width and height of the drawn tensor in the width of its card, and the height of a vector.
_SIDE, _VECTOR = 0.55, 0.1
#: Points of letters; the colours of what other ranks keep and of edges.
_LETTERS, OTHERS, EDGES = 6.8, "#E3E3E3", "#FFFFFF"


@dataclass(frozen=True)
class Card:
    """One tensor of a layer.

    ``shape`` has the sizes of its dimensions on one rank as text, ``parts`` the number of parts of each. ``whole``
    are its bytes, or elements of a weight, on a GPU that shares nothing out, ``own`` those of one rank.
    """

    name: str
    role: str
    shape: tuple[str, ...]
    parts: tuple[int, ...]
    whole: int
    own: int


def cards(name: str) -> list[Card]:
    """Return the tensors of a layer in the picture ``name``, in the order in which a token meets them."""
    model, sharing = CONCEPTS[name]
    (alone, _), (shared, evaluator) = _rows(model, {}), _rows(model, sharing)
    wholes = {row.name: row.size for row in alone.every}
    shapes = _shapes(evaluator)
    places = ("LAYER", "EXPERTS" if evaluator.choices["layers"] == "experts" else "DENSE")
    rows = [row for row in shared.every if row.role in ROLES and row.place in places and not row.of_layer]
    largest = max(wholes[row.name] for row in rows if row.role == "activation")
    return [_card(row, shapes[row.name], shared, wholes[row.name]) for row in rows
            if row.role == "weight" or wholes[row.name] >= SMALLEST * largest]


def _rows(model: str, sharing: Mapping[str, Any]) -> tuple[Rows, Evaluator]:
    """Evaluate the rows of the first rank. Raises InputError for a sharing that is not legal."""
    data = sharing.get("data_parallel", 1)
    job = configured(model=model, gpu="h100-80gb", global_batch_size=data, seq_length=8192, **sharing).job
    values = job.on_rank(0)
    return Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values), joined=False), job.evaluator


def _shapes(evaluator: Evaluator) -> dict[str, tuple[Dimension, ...]]:
    """Return the shape of every row by its name."""
    implementation = IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices)
    return {f"{row.component.name}.{row.tensor.name}": row.tensor.shape for row in kept_rows(implementation)}


def _card(row: Row, shape: Sequence[Dimension], rows: Rows, whole: int) -> Card:
    """Return the card of a row: a dimension has a part for every rank of a rule that shares it out."""
    known = {**rows.values, **rows.account}
    degrees = {rule.degree: int(known[BY_LETTER[str(rule.degree)].name]) for rule in SHAPE_RULES}
    splits = {rule.degree: rule.splits for rule in SHAPE_RULES}
    sizes, parts = [], []
    for dimension in shape:
        sharing = {degree: count for degree, count in degrees.items() if count > 1 and dimension in splits[degree]}
        sizes.append("/".join(_text(part) for part in (dimension.size, *sharing)))
        parts.append(prod(sharing.values()))
    return Card(row.name, row.role, tuple(sizes), tuple(parts), whole, row.size)


def _text(size: Expr) -> str:
    """Return the text of a size as a factor, with the letters of the papers."""
    line = LinePrinter().doprint(size).replace("*", "")
    return f"({line})" if size.is_Add else line


def picture(name: str) -> Picture:
    """Return the picture of a concept: a card for every tensor of a layer, by role."""
    model, sharing = CONCEPTS[name]
    drawn = cards(name)
    (rule,) = (rule for rule in SHAPE_RULES if rule.name == name)
    panels = [_panel([card for card in drawn if card.role == role], role) for role in ROLES]
    return Picture(f"{rule.title}: {model}, {short(sharing)}", "in colour: the part of one rank", tuple(panels))


def _panel(drawn: Sequence[Card], role: str) -> Panel:
    """Return the cards of a role, in lines."""
    lines = -(-len(drawn) // _CARDS)

    def draw(part: Any) -> None:
        axes = part.add_subplot()
        axes.set(xlim=(0, _CARDS), ylim=(lines, 0))
        axes.set_title(ROLES[role], fontsize=SMALL)
        axes.axis("off")
        for place, card in enumerate(drawn):
            _draw(axes, card, place % _CARDS + 0.5, place // _CARDS)

    return Panel(draw, _HEADING + lines * _HEIGHT, f"{ROLES[role]}, with the part of one rank")


def _draw(axes: Any, card: Card, middle: float, top: float) -> None:
    """Draw a tensor as its first and last dimensions, with the parts of every dimension as stripes."""
    from matplotlib.patches import Rectangle

    tall, side = len(card.shape) > 1, _SIDE
    high = side if tall else _VECTOR
    down, across = (prod(card.parts[:1]), prod(card.parts[1:])) if tall else (1, prod(card.parts))
    left, low = middle - side / 2, top + 0.08
    for row in range(down):
        for column in range(across):
            own = row == column == 0
            axes.add_patch(Rectangle(
                (left + side * column / across, low + high * row / down), side / across, high / down,
                facecolor=ROLE_COLOURS[card.role] if own else OTHERS, edgecolor=EDGES, linewidth=0.5,
            ))
    component, _, short = card.name.partition(".")
    axes.text(middle, low + high + 0.03, "\n".join((component, short, " × ".join(card.shape))), ha="center", va="top",
              fontsize=_LETTERS, linespacing=1.15)


def main() -> int:
    """Write every picture and remove others; return the exit code 0."""
    FOLDER.mkdir(exist_ok=True)
    drawn = {**{name: picture(name) for name in CONCEPTS}, **{name: shares.picture(name) for name in shares.SHARES}}
    for name, each in drawn.items():
        write_picture(each, str(FOLDER / f"{name}.svg"))
    for stale in set(FOLDER.iterdir()) - {FOLDER / f"{name}.svg" for name in drawn}:
        stale.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
