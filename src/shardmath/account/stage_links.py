"""Where the nodes of several kinds of GPUs go: each among those of its kind, so that a step is shortest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shardmath.account.arrangements import Pool, Wanted, matrix_of, usual_order
from shardmath.account.kinds import SEND, Fleet, of_stages, seconds_of, terms_of_stages
from shardmath.account.placement import (
    LINK,
    Pair,
    Placement,
    chains_of,
    fastest,
    groups_of,
    neighbours,
    placement,
    rings_of,
)
from shardmath.compiler.evaluators import Evaluator, times_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def placed_stages(
    evaluator: Evaluator, fleet: Fleet, stages: Sequence[Mapping[str, int]],
) -> tuple[list[dict[str, int]], Placement]:
    """Return all values of each stage with the nodes of its kind in their fastest order, and that order.

    ``stages`` have all values of each stage, with the fastest link for every group.
    """
    links = fleet.cluster.links
    assert links is not None
    rows = links.of_gpus([kind.cluster.node_size for kind in fleet.cluster.kinds for _ in fleet.nodes(kind)])
    judged = StageLinks(evaluator, stages, fleet.node_of_rank, matrix_of(rows))
    pools = [Pool(fleet.nodes(kind), len(fleet.nodes(kind))) for kind in fleet.cluster.kinds]

    def seconds(figures: Mapping[str, float]) -> float:
        return times_at(evaluator.times, {**stages[0], **judged.figures(figures)})["step.time"]

    best, usual_seconds = fastest(judged, pools, seconds)
    least = times_at(evaluator.times, stages[0])["step.time"]
    answer = placement(links, rows, judged.wanted, fleet.node_of_rank, stages[0], (usual_order(pools), best),
                       (usual_seconds, least))
    figures = judged.figures(best.letters)
    return [{**stage, **letters, **figures}
            for stage, letters in zip(stages, judged.letters(best.nodes), strict=True)], answer


@dataclass(frozen=True)
class StageLinks:
    """Figures of all stages together for many orders of nodes: negative seconds, as an order of links is judged.

    A stage has the slowest link of its own groups, and a border between stages that of its own nodes; ``matrix`` has
    bytes/s of one GPU between nodes. Messages inside a node are as fast as the fastest link.
    """

    evaluator: Evaluator
    stages: Sequence[Mapping[str, int]]
    node_of_rank: Sequence[int]
    matrix: NDArray[np.int64]
    _known: dict[tuple[int, tuple[tuple[str, float], ...]], dict[str, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Ends of the names of the figures."""
        return tuple(of_stages(self.evaluator, [self._numbers(0, {})], [0.0], [0.0]))

    def figures(self, row: Mapping[str, float]) -> dict[str, int]:
        """Return the parameters of all stages together from a row of figures by name."""
        return seconds_of({name: -value for name, value in row.items()}, self.stages)

    @cached_property
    def wanted(self) -> Wanted:
        """Links between places of nodes that any stage uses, and the crossings of each pipeline."""
        rings: dict[str, set[Pair]] = {}
        for of_stage in self._rings:
            for group, pairs in of_stage.items():
                rings.setdefault(group, set()).update(pairs)
        paths = {tuple((a, b) for a, b in pairwise(chain) if a != b) for chain in self._chains}
        return Wanted({group: tuple(sorted(pairs)) for group, pairs in rings.items()},
                      tuple(sorted(path for path in paths if path)))

    def letters(self, order: Sequence[int]) -> list[dict[str, int]]:
        """Return the parameters of each stage's own links."""
        import numpy as np

        orders = np.array([order])
        return [{f"{group}{LINK}": int(self._along(orders, pairs).min()) for group, pairs in of_stage.items()}
                for of_stage in self._rings]

    def of(self, orders: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return negative seconds by ``names``, a row for each order."""
        import numpy as np

        numbers = []
        for rank, of_stage in enumerate(self._rings):
            slowest = [np.zeros(len(orders)), *(self._along(orders, pairs).min(axis=1) for pairs in of_stage.values())]
            unique, place = np.unique(np.stack(slowest, axis=1), axis=0, return_inverse=True)
            own = [self._numbers(rank, dict(zip(of_stage, row[1:].tolist(), strict=True))) for row in unique]
            numbers.append({name: np.array([each[name] for each in own])[place.ravel()]
                            for name in terms_of_stages(self.evaluator).values()})
        return np.stack([-value for value in of_stages(self.evaluator, numbers, *self._sends(orders)).values()], axis=1)

    def roughness(self, order: NDArray[np.int64]) -> float:
        """See ``Judged``."""
        import numpy as np

        return float(np.mean([np.mean(1 / self._along(order[None], pairs)) for pairs in self.wanted.rings.values()]))

    @cached_property
    def _chains(self) -> list[tuple[int, ...]]:
        return chains_of(self.stages[0], self.node_of_rank)

    @cached_property
    def _rings(self) -> list[dict[str, tuple[Pair, ...]]]:
        """By group, the pairs of places of nodes that send to each other for a stage; groups that leave a node."""
        rings, width = [], self.stages[0]["num_gpus"] // len(self.stages)
        last = len(self.stages) - 1
        for rank, stage in enumerate(self.stages):
            numbers = times_at(self.evaluator.times, stage)
            own = {group: rings_of(numbers, group, self.node_of_rank[rank * width:(rank + 1) * width])
                   for group in groups_of(self.evaluator) if group != "pipeline"}
            ends = [pair for chain in self._chains for place, pair in enumerate(neighbours(chain, stage))
                    if rank in (place, 0 if place == last else place + 1) and pair[0] != pair[1]]
            own["pipeline"] = {pair for a, b in ends for pair in ((a, b), (b, a))}
            rings.append({group: tuple(sorted(pairs)) for group, pairs in own.items() if pairs})
        return rings

    def _sends(self, orders: NDArray[np.int64]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return seconds of a message over each border: of the slowest link, and of the pipeline slowest in all.

        A border is passed in both directions, so that a pipeline takes the mean of both. Of several chunks of layers
        the last stage sends to the first one too.
        """
        import numpy as np

        last = len(self.stages) - 1
        around = self.stages[0]["virtual_pipeline"] > 1
        slowest, of_chain = [], np.zeros((len(self._chains), len(orders), last))
        for rank in range(last + around):
            following = 0 if rank == last else rank + 1
            pairs = [(chain[rank], chain[following]) for chain in self._chains]
            ways = [self._sending(self._along(orders, way), rank, following)
                    for way in (pairs, [(b, a) for a, b in pairs])]
            slowest.append(np.max(ways, axis=(0, 2)))
            if rank < last:
                of_chain[:, :, rank] = np.mean(ways, axis=0).T
        sums = of_chain.sum(axis=2)
        return slowest, [sums.max(axis=0)]

    def _sending(self, speeds: NDArray[np.float64], rank: int, following: int) -> NDArray[np.float64]:
        """Return seconds of a message between two stages at each speed, by the figures of the slower one."""
        import numpy as np

        unique, place = np.unique(speeds, return_inverse=True)
        seconds = [max(self._numbers(own, {"pipeline": int(speed)})[SEND] for own in (rank, following))
                   for speed in unique]
        return np.array(seconds)[place].reshape(speeds.shape)

    def _along(self, orders: NDArray[np.int64], pairs: Sequence[Pair]) -> NDArray[np.float64]:
        import numpy as np

        senders, receivers = np.array(pairs).T
        speeds = self.matrix[orders[:, senders], orders[:, receivers]].astype(np.float64)
        return np.where(speeds > 0, speeds, float(self.matrix.max()))

    def _numbers(self, rank: int, speeds: Mapping[str, float]) -> dict[str, float]:
        """Return terms of a stage's time with bandwidths of its groups."""
        key = rank, tuple(speeds.items())
        if key not in self._known:
            letters = {f"{group}{LINK}": int(speed) for group, speed in speeds.items()}
            self._known[key] = times_at(self.evaluator.times, {**self.stages[rank], **letters})
        return self._known[key]
