"""Rows of the ledger: one tensor that a rank keeps, and its component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sympy import Expr

from .axis import fits
from .dimension import ONE, Dimension
from .sources import BY_KEY
from .work import Work


class Role(Enum):
    """Why a rank keeps a tensor."""

    WEIGHT = "weight"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    ACTIVATION = "activation"
    INPUT = "input"
    BUFFER = "buffer"
    TRANSIENT = "transient"


class Lifetime(Enum):
    """How long a tensor lives.

    ``IN_FLIGHT`` tensors exist once for every micro-batch in flight on the rank, ``ONCE`` tensors
    once however many are in flight, ``SHARED`` ones once however many layers the stage has, ``SITE``
    tensors only at the named moments of a step.
    """

    PERSISTENT = "persistent"
    IN_FLIGHT = "in flight"
    ONCE = "once"
    SHARED = "once for all layers"
    SITE = "site"


class Place(Enum):
    """Which pipeline ranks hold a component, and how often."""

    LAYER = "every layer"
    DENSE = "every layer with a dense MLP"
    EXPERTS = "every layer with experts"
    WINDOWED = "every layer with a window"
    WHOLE = "every layer without a window"
    STAGE = "every stage once"
    FIRST = "first stage"
    LAST = "last stage"
    MTP = "every layer of multi-token prediction, on the last stage"


#: Places inside of a transformer layer; their rows are dropped where the layer is recomputed.
IN_LAYER = (Place.LAYER, Place.DENSE, Place.EXPERTS, Place.WINDOWED, Place.WHOLE)


class Held(Enum):
    """Which saved activations exist at a moment of a step."""

    ALL = "those of the layers in flight and of head and loss"
    HEAD = "those of the layers in flight and of the head"
    LAYERS = "those of the layers in flight"
    NOTHING = "none"


@dataclass(frozen=True)
class Site:
    """One moment of a step at which a rank may peak: what it is, and which activations exist then."""

    meaning: str
    held: Held


#: The moments of a step at which a rank may peak. A peak has one of them, never their sum.
SITES: Mapping[str, Site] = {
    "layer_gathered": Site("parameters of a layer are gathered in a forward pass", Held.NOTHING),
    "after_forward": Site("the forward pass of the last stage has returned", Held.ALL),
    "loss_forward": Site("inside the forward pass of the loss", Held.ALL),
    "backward_start": Site("parameters are gathered again, before the backward pass of the loss", Held.ALL),
    "loss_backward": Site("inside the backward pass of the loss", Held.ALL),
    "head_backward": Site("inside the backward pass of the LM head", Held.HEAD),
    "stage_exchange": Site("an output is sent to the next stage and a gradient received from it", Held.LAYERS),
    "norm_backward": Site("inside the backward pass of the final norm", Held.LAYERS),
    "head_reduce": Site("gradients of final norm and LM head are reduced", Held.LAYERS),
    "layer_backward": Site("inside the backward pass of a layer", Held.LAYERS),
    "experts_forward": Site("routed experts have computed and their results are sent back", Held.LAYERS),
    "combine_backward": Site("gradients of the experts' results have been sent to the experts", Held.LAYERS),
    "experts_backward": Site("inside the backward pass of the experts' activation", Held.LAYERS),
    "embedding_backward": Site("inside the backward pass of the embedding", Held.NOTHING),
    "last_reduce": Site("the last gradients are reduced", Held.NOTHING),
    "optimizer_step": Site("inside the optimizer step", Held.NOTHING),
}


#: Bytes of a number of 16 bits.
_HALF = 2


@dataclass(frozen=True, eq=False)
class Tensor:
    """One row of the ledger.

    ``shape`` names its dimensions, ``bytes`` is the size of one element. ``storage`` names the
    memory that the tensor lives in: rows with the same storage are counted once, at the first of
    them that is kept. ``options`` restricts the row to implementations that chose one of the given
    kernel variants. ``when`` is a 0/1 expression for a condition of the configuration itself.
    ``checkpoint`` names the recompute region that keeps the row as its input. ``module`` is the part
    of the component that saves it, as counting programs report it. ``tokens`` are what a matrix of weights is
    multiplied with; a table that is looked up has none.
    """

    name: str
    module: str
    role: Role
    shape: tuple[Dimension, ...]
    bytes: int
    lifetime: Lifetime
    source: str
    meaning: str
    storage: str = ""
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checkpoint: str = ""
    sites: tuple[str, ...] = ()
    tokens: tuple[Dimension, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a row that cites nothing or lives at a moment that does not exist."""
        if self.source not in BY_KEY:
            raise ValueError(f"row {self.name}: unknown source {self.source!r}")
        if bool(self.sites) != (self.lifetime is Lifetime.SITE) or not set(self.sites) <= set(SITES):
            raise ValueError(f"row {self.name}: sites {self.sites} do not go with {self.lifetime}")

    def in_precision(self, choices: Mapping[str, str]) -> Tensor:
        """Return the row as wide as the precision makes it: numbers of 16 bits have twice as many in fp32."""
        if choices["precision"] != "fp32" or self.bytes != _HALF:
            return self
        return replace(self, bytes=2 * _HALF, meaning=self.meaning.replace("bf16", "fp32"))

    def chosen(self, choices: Mapping[str, str]) -> bool:
        """Return True if an implementation with these kernel choices has the row."""
        return fits(self.options, choices)


@dataclass(frozen=True, eq=False)
class Component:
    """A part of the model: its place on the pipeline, the tensors it keeps, and what it does beside its weights.

    ``order`` sorts the components as a token meets them. ``options`` restricts the component to
    implementations that chose one of the given variants, as ``Tensor.options`` does a row.
    """

    name: str
    title: str
    order: int
    place: Place
    tensors: tuple[Tensor, ...]
    note: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    work: tuple[Work, ...] = ()

    def chosen(self, choices: Mapping[str, str]) -> bool:
        """Return True if an implementation with these choices has the component."""
        return fits(self.options, choices)


def weight(
    name: str,
    module: str,
    shape: tuple[Dimension, ...],
    source: str,
    meaning: str,
    when: Expr = ONE,
    *,
    tokens: tuple[Dimension, ...] = (),
    **options: tuple[str, ...],
) -> Tensor:
    """Return the row of a trained parameter; a matrix multiplies ``tokens`` x inputs and is (outputs, inputs).

    Its gradient and optimizer rows follow from it; see ``parallel.data``. The size of an element is
    a matter of the precision, so the row carries none.
    """
    return Tensor(
        name, module, Role.WEIGHT, shape, 0, Lifetime.PERSISTENT, source, meaning, when=when, options=options,
        tokens=tokens,
    )


def saved(
    name: str,
    module: str,
    shape: tuple[Dimension, ...],
    bytes: int,
    source: str,
    meaning: str,
    *,
    lifetime: Lifetime = Lifetime.IN_FLIGHT,
    storage: str = "",
    when: Expr = ONE,
    checkpoint: str = "",
    sites: tuple[str, ...] = (),
    **options: tuple[str, ...],
) -> Tensor:
    """Return a row for a tensor that autograd saves for the backward pass."""
    return Tensor(
        name, module, Role.ACTIVATION, shape, bytes, lifetime, source, meaning,
        storage=storage, when=when, options=options, checkpoint=checkpoint, sites=sites,
    )


def transient(
    name: str,
    module: str,
    shape: tuple[Dimension, ...],
    bytes: int,
    source: str,
    meaning: str,
    sites: tuple[str, ...],
    *,
    when: Expr = ONE,
    **options: tuple[str, ...],
) -> Tensor:
    """Return a row for a tensor that lives only at some moments and is not saved for the backward pass."""
    return Tensor(
        name, module, Role.TRANSIENT, shape, bytes, Lifetime.SITE, source, meaning,
        options=options, sites=sites, when=when,
    )
