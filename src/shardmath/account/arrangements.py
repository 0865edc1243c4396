"""Search for the order of nodes in which the links that a layout uses are fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import exp, perm
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Orders that are tried one by one; of more, annealing looks for a fast one.
EVERY = 50_000
#: Moves of annealing, and its first and last temperature as shares of the time in the order of the file.
MOVES, HOT, COLD = 6_000, 0.02, 0.00005
#: Orders that are looked at together.
_TOGETHER = 4096
_SEED = 0

Letters = Mapping[str, int]


@dataclass(frozen=True)
class Wanted:
    """Links of a layout between places of nodes: for each group pairs (sender, receiver), and chains of stages.

    ``paths`` has for each pipeline the pairs of places between which it crosses.
    """

    rings: Mapping[str, tuple[tuple[int, int], ...]]
    paths: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class Arrangement:
    """An order of nodes: the node at each place, what follows from it, and whether no order is faster."""

    nodes: tuple[int, ...]
    letters: Letters
    seconds: float
    is_exact: bool
    tried: int


class Bandwidths:
    """Bandwidths of the links of a layout, for many orders of nodes at once."""

    def __init__(self, matrix: NDArray[np.int64], wanted: Wanted) -> None:
        import numpy as np

        self._matrix = matrix.astype(np.float64)
        self._rings = {name: np.array(pairs, np.int64).reshape(-1, 2) for name, pairs in wanted.rings.items() if pairs}
        self._paths = [np.array(pairs, np.int64).reshape(-1, 2) for pairs in wanted.paths if pairs]
        self.names = (*self._rings, *(("path",) if self._paths else ()))

    def of(self, orders: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return bytes/s of ``names``, a row for each order: the slowest link, and the slowest mean of a pipeline."""
        import numpy as np

        columns = [self._along(orders, pairs).min(axis=1) for pairs in self._rings.values()]
        if self._paths:
            columns.append(np.min([self._mean(orders, pairs) for pairs in self._paths], axis=0))
        if not columns:
            return np.zeros((len(orders), 0), np.int64)
        rows: NDArray[np.int64] = np.stack(columns, axis=1).astype(np.int64)
        return rows

    def roughness(self, order: NDArray[np.int64]) -> float:
        """Mean seconds of a byte over all links of an order, which tells orders apart that are equally fast."""
        import numpy as np

        pairs = [*self._rings.values(), *self._paths]
        return float(np.mean([np.mean(1 / self._along(order[None], own)) for own in pairs])) if pairs else 0.0

    def _along(self, orders: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        links: NDArray[np.float64] = self._matrix[orders[:, pairs[:, 0]], orders[:, pairs[:, 1]]]
        return links

    def _mean(self, orders: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        import numpy as np

        both = np.concatenate([self._along(orders, pairs), self._along(orders, pairs[:, ::-1])], axis=1)
        mean: NDArray[np.float64] = both.shape[1] / (1 / both).sum(axis=1)
        return mean


def arranged(
    matrix: NDArray[np.int64], wanted: Wanted, places: int, seconds: Callable[[Letters], float],
) -> Arrangement:
    """Return the fastest order of nodes at ``places``, by ``seconds`` of a step with given bandwidths.

    ``seconds`` must not grow with any bandwidth. Up to ``EVERY`` orders are all looked at, and the first of the fastest
    is the answer; of more, annealing with a fixed seed finds the same one in each run, which may not be the fastest.
    """
    import numpy as np

    nodes, links = len(matrix), Bandwidths(matrix, wanted)
    known: dict[tuple[int, ...], float] = {}

    def timed(row: Sequence[int]) -> float:
        key = tuple(int(value) for value in row)
        if key not in known:
            known[key] = seconds(dict(zip(links.names, key, strict=True)))
        return known[key]

    usual = np.arange(places)
    if perm(nodes, places) <= EVERY:
        order, tried = _first_of_the_fastest(nodes, places, links, timed), perm(nodes, places)
    elif not links.names:
        order, tried = usual, 1
    else:
        order, tried = _annealed(nodes, places, links, timed), MOVES
    row = links.of(order[None])[0]
    letters = {name: int(value) for name, value in zip(links.names, row, strict=True)}
    return Arrangement(tuple(order.tolist()), letters, timed(row), tried != MOVES or not links.names, tried)


def in_order(matrix: NDArray[np.int64], wanted: Wanted, order: Sequence[int]) -> Letters:
    """Return bandwidths by name in one order of nodes."""
    import numpy as np

    links = Bandwidths(matrix, wanted)
    return dict(zip(links.names, map(int, links.of(np.array([order]))[0]), strict=True))


def _first_of_the_fastest(
    nodes: int, places: int, links: Bandwidths, timed: Callable[[Sequence[int]], float],
) -> NDArray[np.int64]:
    """Of all orders, in their lexicographic order, the first that is fastest."""
    import numpy as np

    every = np.array(list(permutations(range(nodes), places)), np.int64)
    rows = np.concatenate([links.of(every[start:start + _TOGETHER]) for start in range(0, len(every), _TOGETHER)])
    unique, first = np.unique(rows, axis=0, return_index=True)
    times = {int(first[place]): timed(unique[place]) for place in _undominated(unique)}
    fastest = min(times.values())
    order: NDArray[np.int64] = every[min(place for place, time in times.items() if time == fastest)]
    return order


def _undominated(rows: NDArray[np.int64]) -> list[int]:
    """Return places of rows that no other row exceeds in one column without falling below it in another."""
    import numpy as np

    kept: list[int] = []
    for place in np.argsort(-rows.astype(np.float64).sum(axis=1), kind="stable").tolist():
        if not any((rows[other] >= rows[place]).all() for other in kept):
            kept.append(place)
    return kept


def _annealed(
    nodes: int, places: int, links: Bandwidths, timed: Callable[[Sequence[int]], float],
) -> NDArray[np.int64]:
    """Return a fast order: simulated annealing by exchanges, reversals and moves, as Pipette does it."""
    import numpy as np

    random = Random(_SEED)

    def cost(order: list[int]) -> tuple[float, float]:
        own = np.array(order[:places])
        return timed(links.of(own[None])[0]), links.roughness(own)

    current = list(range(nodes))
    now = best = cost(current)
    kept, first = list(current), now
    for move in range(MOVES):
        heat = HOT * (COLD / HOT) ** (move / MOVES)
        changed = _moved(current, places, random)
        then = cost(changed)
        worse = (then[0] - now[0]) / first[0] + _EQUAL * (then[1] - now[1]) / first[1]
        if worse <= 0 or random.random() < exp(-worse / heat):
            current, now = changed, then
            if now < best:
                best, kept = now, list(current)
    return np.array(kept[:places])


#: Weight of roughness beside time: just enough to tell equally fast orders apart.
_EQUAL = 0.001


def _moved(order: list[int], places: int, random: Random) -> list[int]:
    """Return the order with two nodes exchanged, a part reversed or a node moved; one of them is at a used place."""
    a, b = random.randrange(places), random.randrange(len(order))
    kind, changed = random.randrange(3), list(order)
    low, high = min(a, b), max(a, b)
    if kind == 0:
        changed[a], changed[b] = changed[b], changed[a]
    elif kind == 1:
        changed[low:high + 1] = changed[low:high + 1][::-1]
    else:
        changed.insert(b, changed.pop(a))
    return changed


def matrix_of(rows: Any) -> NDArray[np.int64]:
    """Return bandwidths between nodes as an array."""
    import numpy as np

    return np.array(rows, np.int64)
