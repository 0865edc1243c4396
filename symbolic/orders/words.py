"""The order in which a rank allocates and frees its tensors during a step: births and deaths, beside the rows.

A row of the ledger says at which moments a tensor exists. Here stands the order between moments, as scripts of
events at the points of a step. An event is a word:

* ``save``: all saved tensors of the point's components, in the ledger's order; ``save:NAME`` those of one component.
* ``free``: the same tensors, freed in reverse order; ``free:NAME`` those of one component.
* ``+NAME``: a tensor of ``PASSING`` or of the point's moment; ``+*`` all others of the moment that do
  not pass yet.
* ``-NAME``: it is freed; ``-*`` all of the moment are; ``-all`` all that still pass are.
* ``~NAME``: it is freed, and with tensor parallelism comes back when the stream of communication, which used it, has
  done so; ``^NAME`` is freed so by what is sent between stages.
* ``sent:NAME``: an all-to-all between ranks of experts used a tensor, or those of several ``NAME/NAME`` that there are,
  so it comes back late, whenever it is freed; ``wait`` is where the host waits for the GPU, so all such tensors do.
* ``grad:NAME``: 16-bit gradients of the weights of a component, kept until the micro-batch is done, where they are.
* ``receive``: a message from another stage has arrived, so what was sent before it comes back.
* ``use:NAME``: a buffer, or all of a component, the last first: made at the first use, and kept.
* ``=NAME``: a tensor that later points free by ``-NAME``, the oldest first.
* ``added``: such gradients of a later micro-batch have been added to those of the first; ``sum`` ends a micro-batch.
* ``next``: the input of the next instance, which ``save`` takes over, or ``-next`` frees; ``drop`` frees what nothing
  saves but the last such tensor, ``drop:all`` all, ``drop:NAME`` one.
* ``copied:NAME``: a copy of such a tensor takes its place, where what a model returns is copied.
* ``at:MOMENT``: the words behind it are about the tensors of another moment of the same layer.
* ``share``: tensors that all layers save together are made, ``share:NAME`` one of them; ``unshare`` frees them.
* ``again``: a recomputed instance runs forward once more, up to the word ``end``; ``again:kept`` holds its input.
* ``remake:NAME``: saved tensors of a component, or one, that selective recompute dropped are made again.
* ``bind``: a recomputed layer with experts holds its input, and the one behind the gradient that this one had, until
  ``unbind`` in its next forward pass.
* ``on:exchange``: what follows is made on the stream of context parallelism, where ranks are that; ``on:`` ends it.
* ``roots:STATE``: roots of a state, tensor by tensor, which an optimizer of lists makes and frees.
* ``later:EVENT`` is an event of all layers but the first; ``if:NAME:EVENT`` one where ``NAME``, which passes or is a
  row, has bytes.
* ``tape:PASS`` is a pass of a layer that is walked operation by operation (``accounts/layers/scripts.py``). ``begin``
  makes the residual stream, which each such layer hands to the next; ``read:NAME`` saves it as the head's input.
  ``return`` makes its gradient, ``returned`` frees that behind the embedding. The words of a pass are ``make:`` and
  ``let:`` of a tensor, ``grad:`` of a parameter, ``added``, ``keep:`` of what the pass is given, ``pass`` of its
  result, and ``take:`` and ``give:`` of the stream's gradient.
* ``zero:take``: a gradient goes into the bucket of DeepSpeed's ZeRO, which the first one makes; ``zero:reduce`` reduces
  that and keeps the tensors that the rank's part cuts, ``zero:widen`` makes their norms and an fp32 copy of the part,
  and ``zero:end`` frees the copy. In stage 3 ``zero:begin`` begins a pass of the model, ``zero:in:NAME`` and
  ``zero:out:NAME`` a module, or the one whose weight has that name, begins and ends, and ``zero:loose:NAME`` a
  recomputed layer's checkpoint lets go of a weight.
* ``open:UNIT``, ``close:UNIT``: FSDP2 gathers a unit of parameters before a forward pass and frees it behind it;
  ``finish`` frees the buffer of the last unit, when the model has done its forward pass;
  ``reopen:UNIT`` gathers it before the backward pass, and the unit before it into a buffer; ``reduce:UNIT`` frees it,
  and reduces the gradients that were made.
* Of Megatron-FSDP they gather the buckets of a unit, and others ahead. ``release:UNIT`` frees those behind a backward
  pass, ``shut`` all at the end of a step; ``turn`` begins a backward pass, ``turn:late`` where that begins in the last
  layer. ``take:MODULE/MODULE`` makes the buckets that gradients of modules lie in, ``made:MODULE/MODULE`` says that
  they are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, SEQUENCE, SEQUENCE_SP
from ..functions import Iverson
from ..parameters import symbol
from ..sources import BY_KEY

#: Hidden states of a micro-batch: all of its tokens, and the rank's share of them.
WHOLE, SHARE = (SEQUENCE, BATCH, HIDDEN), (SEQUENCE_SP, BATCH, HIDDEN)
#: Queries, and keys or values.
QUERY, KEY = (SEQUENCE, BATCH, HEADS, HEAD_DIM), (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)
#: Gradients of a layer with SwiGLU and grouped heads, kernel by kernel: names, shapes, meanings.
GRADIENTS = (
    ("down.input_gradient", (SEQUENCE, BATCH, FFN), "gradient of the down projection's input"),
    ("silu.gradient", (SEQUENCE, BATCH, FFN), "gradient of SiLU of the gate projection"),
    ("up.gradient", (SEQUENCE, BATCH, FFN), "gradient of the up projection"),
    ("gate.gradient", (SEQUENCE, BATCH, FFN), "gradient of the gate projection"),
    ("input.gradient", WHOLE, "gradient of a common input, from one of its projections"),
    ("context.gradient", QUERY, "gradient of the output of core attention"),
    ("v.gradient", KEY, "gradient of values"),
)
#: 1 where ranks have shares of hidden states.
SCATTERED = Iverson(symbol("ts") > 1)


@dataclass(frozen=True, eq=False)
class Passing:
    """A tensor that lives between moments only: at none of the ledger's moments does it make a peak."""

    name: str
    shape: tuple[Dimension, ...]
    bytes: int
    meaning: str
    source: str
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a tensor that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"tensor {self.name}: unknown source {self.source!r}")


def of_weight(
    name: str, shape: tuple[Dimension, ...], options: Mapping[str, tuple[str, ...]], when: Expr = ONE
) -> Passing:
    """Return the gradient of a weight of Megatron-Core that is made apart from the gradient buffer."""
    return Passing(f"{name}.weight_gradient", shape, 2, "gradient of a weight, until it is added to the buffer",
                   "megatron_core", when, {**options, "weight_gradient": ("separate",)})


@dataclass(frozen=True)
class Script:
    """The events at a point of a step, for implementations that chose one of the given variants."""

    point: str
    events: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Birth:
    """When the states of a role are made, and in which pieces.

    ``piece`` is ``tensor`` for one allocation for each parameter, ``whole`` for one buffer of all, ``bucket`` for
    buffers of 25 MiB, ``moved`` for a buffer of all that parameters, which are there before, move into when the buffer
    of gradients is made too, ``shard`` for a range of that buffer: parameters from the last to the first, and
    ``reducer`` for the buckets of PyTorch's DistributedDataParallel. ``late`` states are made by the first optimizer
    step.
    """

    state: str
    piece: str = "tensor"
    late: bool = False
