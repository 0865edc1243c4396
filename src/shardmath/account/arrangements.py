"""Search for the order of nodes in which the links that a layout uses are fastest."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations, product
from math import exp, perm, prod
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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

Letters = Mapping[str, float]


class Pool(NamedTuple):
    """Nodes that may stand at each other's places, of which so many ``places`` are taken."""

    nodes: range
    places: int


class Judged(Protocol):
    """Rows of figures by which orders of nodes are judged; larger ones never make a step longer."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the figures."""

    def of(self, orders: NDArray[np.int64]) -> NDArray[Any]:
        """Return figures by ``names``, a row for each order."""

    def roughness(self, order: NDArray[np.int64]) -> float:
        """Mean seconds of a byte over all links of an order, which tells orders apart that are equally fast."""


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


def arranged(links: Judged, pools: Sequence[Pool], seconds: Callable[[Letters], float]) -> Arrangement:
    """Return the fastest order of nodes, by ``seconds`` of a step with given figures of its links.

    ``seconds`` must not grow with any figure. Up to ``EVERY`` orders are all looked at, and the first of the fastest
    is the answer; of more, annealing with a fixed seed finds the same one in each run, which may not be the fastest.
    """
    import numpy as np

    known: dict[tuple[float, ...], float] = {}

    def timed(row: NDArray[Any]) -> float:
        key = tuple(row.tolist())
        if key not in known:
            known[key] = seconds(dict(zip(links.names, key, strict=True)))
        return known[key]

    number = prod(perm(len(pool.nodes), pool.places) for pool in pools)
    if number <= EVERY:
        order, tried = _first_of_the_fastest(pools, links, timed), number
    elif not links.names:
        order, tried = np.array(usual_order(pools)), 1
    else:
        order, tried = _annealed(pools, links, timed), MOVES
    row = links.of(order[None])[0]
    letters = dict(zip(links.names, row.tolist(), strict=True))
    return Arrangement(tuple(order.tolist()), letters, timed(row), tried != MOVES or not links.names, tried)


def usual_order(pools: Sequence[Pool]) -> tuple[int, ...]:
    """Return the nodes in the order of the cluster file, the first ones of each pool."""
    return tuple(node for pool in pools for node in pool.nodes[:pool.places])


def in_order(links: Judged, order: Sequence[int]) -> Letters:
    """Return figures by name in one order of nodes."""
    import numpy as np

    return dict(zip(links.names, links.of(np.array([order]))[0].tolist(), strict=True))


def _first_of_the_fastest(
    pools: Sequence[Pool], links: Judged, timed: Callable[[NDArray[Any]], float],
) -> NDArray[np.int64]:
    """Of all orders, in their lexicographic order, the first that is fastest."""
    import numpy as np

    of_pools = product(*(permutations(pool.nodes, pool.places) for pool in pools))
    every = np.array([[node for nodes in order for node in nodes] for order in of_pools], np.int64)
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
    pools: Sequence[Pool], links: Judged, timed: Callable[[NDArray[Any]], float],
) -> NDArray[np.int64]:
    """Return a fast order: simulated annealing by exchanges, reversals and moves, as Pipette does it."""
    import numpy as np

    random = Random(_SEED)
    starts = [0, *accumulate(len(pool.nodes) for pool in pools)]
    used = [start + place for pool, start in zip(pools, starts, strict=False) for place in range(pool.places)]

    def cost(order: list[int]) -> tuple[float, float]:
        own = np.array(order)[used]
        return timed(links.of(own[None])[0]), links.roughness(own)

    current = [node for pool in pools for node in pool.nodes]
    now = best = cost(current)
    kept, first = list(current), now
    for move in range(MOVES):
        heat = HOT * (COLD / HOT) ** (move / MOVES)
        changed = _moved(current, used, starts, random)
        then = cost(changed)
        worse = (then[0] - now[0]) / first[0] + _EQUAL * (then[1] - now[1]) / first[1]
        if worse <= 0 or random.random() < exp(-worse / heat):
            current, now = changed, then
            if now < best:
                best, kept = now, list(current)
    return np.array(kept)[used]


#: Weight of roughness beside time: just enough to tell equally fast orders apart.
_EQUAL = 0.001


def _moved(order: list[int], used: Sequence[int], starts: Sequence[int], random: Random) -> list[int]:
    """Return the order with two nodes of a pool exchanged, a part reversed or a node moved; one is at a used place."""
    a = used[random.randrange(len(used))]
    pool = bisect(starts, a)
    b = starts[pool - 1] + random.randrange(starts[pool] - starts[pool - 1])
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
