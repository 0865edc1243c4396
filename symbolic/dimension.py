"""Named axes of tensor shapes; ``dimensions`` lists them."""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Integer

#: The condition of a row that always exists.
ONE = Integer(1)


@dataclass(frozen=True)
class Dimension:
    """One named axis of tensor shapes, with its size on a single unsharded rank.

    ``shardmath.symbolic.parallel`` says how parallel dimensions shard it. A dimension of
    weights that ranks gather for a product is the dimension ``gathered`` in that product.
    """

    name: str
    size: Expr
    meaning: str
    gathered: Dimension | None = None
