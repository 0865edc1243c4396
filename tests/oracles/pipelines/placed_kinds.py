"""Ranks on nodes of several kinds of GPUs, numbered one by one: the links that each stage and each pipeline uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

#: Sizes of a layout: TP, CP, PP, DP.
Sizes = tuple[int, int, int, int]
#: Kinds: GPUs, and GPUs of a node.
Kinds = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Placed:
    """A layout with its ranks on nodes; ``matrix`` has 10^6 bytes/s of all GPUs of a node."""

    kinds: Kinds
    matrix: Sequence[Sequence[int]]
    order: Sequence[int]
    sizes: Sizes

    def rank(self, stage: int, data: int, context: int, tensor: int) -> int:
        """Return Megatron-LM's number of a rank: TP varies first, then CP, DP and PP."""
        t, c, _, d = self.sizes
        return ((stage * d + data) * c + context) * t + tensor

    def node(self, rank: int) -> tuple[int, int]:
        """Return the node of a rank, and the GPUs of it: kinds follow each other, each with nodes of its own size."""
        before, place = 0, 0
        for gpus, size in self.kinds:
            if rank < before + gpus:
                return self.order[place + (rank - before) // size], size
            before, place = before + gpus, place + -(-gpus // size)
        raise AssertionError(rank)

    def link(self, sender: int, receiver: int) -> int | None:
        """Return bytes/s of one rank to another, where all GPUs of the larger node share a link; None in a node."""
        (a, size), (b, other) = self.node(sender), self.node(receiver)
        return None if a == b else self.matrix[a][b] * 10**6 // max(size, other)

    def fastest(self) -> int:
        """Return bytes/s of one rank over the fastest link."""
        ranks = range(sum(gpus for gpus, _ in self.kinds))
        return max(self.link(a, b) or 0 for a, b in permutations(ranks, 2))

    def slowest_of_rings(self, stage: int) -> dict[str, int]:
        """Return bytes/s of the slowest link of each group of a stage that leaves a node."""
        t, c, _, d = self.sizes
        slowest: dict[str, int] = {}
        rings = [("tensor", [self.rank(stage, j, k, x) for x in range(t)]) for j, k in product(range(d), range(c))]
        rings += [("context", [self.rank(stage, j, k, x) for k in range(c)]) for j, x in product(range(d), range(t))]
        rings += [("data", [self.rank(stage, j, k, x) for j in range(d) for k in range(c)]) for x in range(t)]
        for group, ranks in rings:
            for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True):
                if (speed := self.link(a, b)) is not None:
                    slowest[group] = min(slowest.get(group, speed), speed)
        return slowest

    def pipelines(self) -> list[list[tuple[int | None, int | None]]]:
        """Return bytes/s over each border of each pipeline, of outputs and of gradients; None inside a node."""
        t, c, p, d = self.sizes
        return [[(self.link(a, b), self.link(b, a)) for a, b in pairwise([self.rank(i, j, k, x) for i in range(p)])]
                for j, k, x in product(range(d), range(c), range(t))]


def orders(kinds: Kinds) -> Iterator[tuple[int, ...]]:
    """Yield every order of nodes in which those of a kind stay among themselves."""
    start, of_kinds = 0, []
    for gpus, size in kinds:
        nodes = -(-gpus // size)
        of_kinds.append(permutations(range(start, start + nodes)))
        start += nodes
    for order in product(*of_kinds):
        yield tuple(node for nodes in order for node in nodes)
