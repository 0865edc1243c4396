"""Elements that each rank must receive when a training changes its layout: exact, rank by rank.

Elements lie on one line: the embedding by rows, the layers one after another, the final norm, the head. Of a layer the
elements that tensor parallelism divides come first, in the order of the divided axis; every rank of a stage holds the
others. A rank keeps its intervals of the line in this order. Optimizer states are cut into equal pieces, one for each
rank that shares them, the last one shorter. Padding is made anew and never sent.

Rank numbers are those of Megatron-LM: tensor parallelism first, then context, data and pipeline parallelism. A GPU
keeps its number. Nothing here needs SymPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

#: Elements from ``start`` up to, and without, ``stop``.
Interval = tuple[int, int]


@dataclass(frozen=True)
class Tensors:
    """Parameters of a model without padding, in elements; ``tied``: the head is the embedding."""

    vocabulary: int
    hidden: int
    layers: int
    divided: int
    whole: int
    tied: bool

    @classmethod
    def of_layers(cls, vocabulary: int, hidden: int, layers: int, alone: int, halved: int, *, tied: bool) -> Tensors:
        """Return the parameters of a model whose layer has ``alone`` on one rank, ``halved`` on each of two."""
        return cls(vocabulary, hidden, layers, 2 * (alone - halved), 2 * halved - alone, tied)

    @property
    def layer(self) -> int:
        """Elements of one layer."""
        return self.divided + self.whole


@dataclass(frozen=True)
class Mesh:
    """Degrees of a layout.

    ``layers``: layers of every chunk of the model, in their order. ``rows``: rows of the padded embedding on a rank.
    ``shared``: optimizer states are shared out.
    """

    tensor: int
    context: int
    data: int
    pipeline: int
    layers: tuple[int, ...]
    rows: int
    shared: bool

    @property
    def ranks(self) -> int:
        """Ranks of the layout."""
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Ranks that hold the same weights."""
        return self.context * self.data

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return the tensor rank, the index among the ranks that hold the same weights, and the stage."""
        return rank % self.tensor, rank // self.tensor % self.replicas, rank // (self.tensor * self.replicas)


@dataclass(frozen=True)
class Received:
    """Elements that a rank must receive, weights and states apart."""

    weights: int
    states: int


@cache
def weights(tensors: Tensors, mesh: Mesh, tensor_rank: int, stage: int) -> tuple[Interval, ...]:
    """Return the intervals of the weights of a rank, in the order in which it keeps them."""
    return tuple(interval for interval in _weights(tensors, mesh, tensor_rank, stage) if interval[0] < interval[1])


def _weights(tensors: Tensors, mesh: Mesh, tensor_rank: int, stage: int) -> Iterator[Interval]:
    first_layer = tensors.vocabulary * tensors.hidden
    final_norm = first_layer + tensors.layers * tensors.layer
    head = 0 if tensors.tied else final_norm + tensors.hidden
    vocabulary = tuple(min(tensors.vocabulary, row * mesh.rows) * tensors.hidden
                       for row in (tensor_rank, tensor_rank + 1))
    if stage == 0:
        yield vocabulary[0], vocabulary[1]
    part, ends = tensors.divided // mesh.tensor, [0, *accumulate(mesh.layers)]
    for chunk in range(stage, len(mesh.layers), mesh.pipeline):
        for layer in range(ends[chunk], ends[chunk + 1]):
            start = first_layer + layer * tensors.layer
            yield start + tensor_rank * part, start + (tensor_rank + 1) * part
            yield start + tensors.divided, start + tensors.layer
    if stage == mesh.pipeline - 1:
        yield final_norm, final_norm + tensors.hidden
        if not tensors.tied or stage > 0:
            yield head + vocabulary[0], head + vocabulary[1]


def states(tensors: Tensors, mesh: Mesh, rank: int) -> list[Interval]:
    """Return the intervals of the parameters whose optimizer states a rank keeps."""
    tensor_rank, index, stage = mesh.place(rank)
    own = weights(tensors, mesh, tensor_rank, stage)
    return _piece(own, index, mesh.replicas) if mesh.shared else list(own)


def _piece(intervals: Sequence[Interval], index: int, pieces: int) -> list[Interval]:
    """Return the piece ``index`` of intervals cut into equal ones, the last of which may be shorter."""
    length = -(-elements(intervals) // pieces)
    low, high, passed = index * length, (index + 1) * length, 0
    cut = []
    for start, stop in intervals:
        begin, end = max(start, start + low - passed), min(stop, start + high - passed)
        if begin < end:
            cut.append((begin, end))
        passed += stop - start
    return cut


def elements(intervals: Sequence[Interval]) -> int:
    """Count the elements of disjoint intervals."""
    return sum(stop - start for start, stop in intervals)


def shared_elements(first: Sequence[Interval], other: Sequence[Interval]) -> int:
    """Count the elements in both of two sets of disjoint intervals."""
    left, right = sorted(first), sorted(other)
    count = i = j = 0
    while i < len(left) and j < len(right):
        count += max(0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return count


def received(tensors: Tensors, old: Mesh, new: Mesh) -> Iterator[Received]:
    """Yield what each rank must receive: what it keeps in the new layout and did not keep in the old one."""
    for rank in range(new.ranks):
        counts = []
        for of_rank in (_weights_of, states):
            own = of_rank(tensors, new, rank)
            counts.append(elements(own) - shared_elements(own, of_rank(tensors, old, rank)))
        yield Received(*counts)


def _weights_of(tensors: Tensors, mesh: Mesh, rank: int) -> Sequence[Interval]:
    tensor_rank, _, stage = mesh.place(rank)
    return weights(tensors, mesh, tensor_rank, stage)


def loaded(tensors: Tensors, mesh: Mesh) -> Received:
    """Return what all ranks together read from a checkpoint, each the weights and states that it keeps."""
    ranks = range(mesh.ranks)
    return Received(sum(elements(_weights_of(tensors, mesh, rank)) for rank in ranks),
                    sum(elements(states(tensors, mesh, rank)) for rank in ranks))


def saved(tensors: Tensors) -> int:
    """Return the elements of the model, each of which a checkpoint has once."""
    heads = 1 if tensors.tied else 2
    return heads * tensors.vocabulary * tensors.hidden + tensors.layers * tensors.layer + tensors.hidden
