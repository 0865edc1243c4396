"""One parameter as its rank keeps it, and a state: something kept for every parameter, or for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sympy import Expr, Gt, Integer

from ..dimension import Dimension
from ..dimensions import (
    FFN,
    GATE_UP_FEATURES,
    KV_FEATURES,
    OF_EXPERTS,
    QKV_FEATURES,
    QUERY_FEATURES,
    SCORE,
    SLOPE,
    SLOPES,
    VOCAB,
)
from ..functions import Iverson
from ..ledger import IN_LAYER, Component, Place, Role, Tensor
from ..sources import BY_KEY

#: Parts of a fused projection, and of rows of several parameters.
PARTS: Mapping[Dimension, tuple[Dimension, ...]] = {
    QKV_FEATURES: (QUERY_FEATURES, KV_FEATURES, KV_FEATURES),
    GATE_UP_FEATURES: (FFN, FFN),
    SLOPES: (SLOPE, SLOPE),
}

#: Modules whose weights are rows that are looked up.
EMBEDDINGS = ("embedding", "position_embedding")


@dataclass(frozen=True)
class Weight:
    """A parameter on one rank, or its shard: ``shape`` are its sizes there, without the number of experts.

    A rank's part of many parameters, cut without regard to them, is a vector. ``is_matrix`` is True for a matrix that
    is not a vocabulary matrix, ``is_linear`` for that of a linear layer inside of a transformer layer, other than the
    router, ``is_router`` for that of a router, ``is_adapter`` for any of an adapter, and ``is_embedding`` for rows that
    are looked up, by token or by position.
    """

    shape: tuple[Expr, ...]
    is_matrix: bool = False
    is_linear: bool = False
    is_router: bool = False
    is_adapter: bool = False
    is_embedding: bool = False

    @property
    def elements(self) -> Expr:
        """The elements of the parameter."""
        count: Expr = Integer(1)
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class State:
    """Something kept for parameters: the bytes of one unit of it, and why.

    Without ``count`` a unit is an element of any parameter, and the state is shared out and padded as the
    buffers of data parallelism are. With it, ``count`` gives the units for one parameter, whole or as FSDP
    shards it, and 0 for a parameter that has none; such a state is not shared out any further. With ``of_part`` it
    gives those of the rank's part of all parameters. ``resting`` are states that the optimizer step leaves alone,
    ``attached`` ones stay on the GPU where a parameter rests on the host.
    """

    name: str
    role: Role
    bytes: Expr
    meaning: str
    source: str
    count: Callable[[Weight], Expr] | None = None
    of_part: bool = False
    resting: bool = False
    attached: bool = False

    def __post_init__(self) -> None:
        """Refuse a state that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"state {self.name}: unknown source {self.source!r}")


def weight_of(component: Component, tensor: Tensor, shape: tuple[Expr, ...]) -> Weight:
    """Return the parameter of a row with its sizes on one rank.

    Megatron-Core marks vocabulary matrices, which Muon leaves to AdamW, but not the copy of the embedding for further
    predictions (``LanguageModule.setup_embeddings_and_output_layer``).
    """
    matrix = is_matrix(tensor) or component.name == "mtp_embedding"
    adapter = component.name.endswith("_adapters")
    looked_up = tensor.module in EMBEDDINGS
    return Weight(shape, matrix, is_linear(component, tensor), component.name == "router", adapter, looked_up)


def is_matrix(tensor: Tensor) -> bool:
    """Return True for matrices, of single experts too, that are not vocabulary matrices."""
    return len(without_experts(tensor.shape)) == 2 and VOCAB not in tensor.shape


def is_linear(component: Component, tensor: Tensor) -> bool:
    """Return True for the matrix of a linear layer of a transformer layer, other than routers, gates and adapters."""
    return (is_matrix(tensor) and component.place in (*IN_LAYER, Place.MTP) and tensor.module != "router"
            and SCORE not in tensor.shape and "adapters" not in component.options)


def shapes(tensor: Tensor, choices: Mapping[str, str]) -> tuple[tuple[Dimension, ...], ...]:
    """Return the shapes of the parameters that a row stands for: one, or one for each part of a fused projection."""
    if choices["projections"] == "separate" and tensor.shape and tensor.shape[0] in PARTS:
        return tuple((part, *tensor.shape[1:]) for part in PARTS[tensor.shape[0]])
    return (tensor.shape,)


def without_experts(shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """Return the shape of the parameter of a single expert."""
    return tuple(dimension for dimension in shape if dimension not in OF_EXPERTS)


def matrices(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    """Return the units of ``count`` for matrices that are not vocabulary matrices, none for all else."""
    return lambda weight: count(weight) if weight.is_matrix else Integer(0)


def others(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    """Return the units of ``count`` for vocabulary matrices and vectors, none for all else."""
    return lambda weight: Integer(0) if weight.is_matrix else count(weight)


def linears(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    """Return the units of ``count`` for linear layers of transformer layers, none for all else."""
    return lambda weight: count(weight) if weight.is_linear else Integer(0)


def of_routers(weight: Weight) -> Expr:
    """Return the elements of the weight of a router, none for all else."""
    return weight.elements if weight.is_router else Integer(0)


def of_adapters(weight: Weight) -> Expr:
    """Return the elements of a matrix of an adapter, none for all else."""
    return weight.elements if weight.is_adapter else Integer(0)


def elements(weight: Weight) -> Expr:
    """Return the elements of a parameter."""
    return weight.elements


def one(weight: Weight) -> Expr:
    """Return one unit for every parameter, none for one without elements, as of shared experts that are not there."""
    return Iverson(Gt(weight.elements, 0))
