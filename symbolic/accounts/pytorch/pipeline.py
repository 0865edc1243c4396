"""torch.distributed.pipelining with FSDP2: what a rank with stages of a pipeline keeps besides its saved tensors.

Parameters that were gathered for the first micro-batch stay until the last one is done, and so do whole gradients:
they are summed up unsharded, as wide as they are reduced, and reduced once for each chunk at the end. A stage has
buffers for what it receives of every micro-batch, forth and back, from the first step on.
"""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr, Ge, Integer, Le

from ...dimensions import ALL_POSITIONS, BATCH, HEAD_DIM, HIDDEN, SEQUENCE, SEQUENCE_SP, VOCAB
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import Place
from ...parallel.pipeline import chunks, instances, layers_by_chunk
from ...parallel.schedules import SCHEDULES, SPLIT_BACKWARD
from ...parameters import symbols
from ...terms import TermSet, product
from ..rows import local_shape
from .gathered import COMPUTE, REDUCING, SHARDS, freed_with_a_layer, gradient_bytes, outside, per_layer

p, r, m, w, Lr, nr, nf, nl, Gr = symbols("p r m w Lr nr nf nl Gr")

#: Bytes of a loss, and of the number of labels that it is kept with.
_SCALAR = Integer(4)
#: Schedules that PyTorch runs itself, action by action, for one chunk per rank; others it lowers to a list of actions.
SINGLE = ("1f1b", "gpipe")
_SINGLE: Any = {"pipeline": ("torch",), "schedule": SINGLE}
_LOWERED: Any = {"pipeline": ("torch",), "schedule": tuple(name for name in SCHEDULES if name not in SINGLE)}
#: Those of the schedules with split backward passes that split them at their peak.
_SPLIT: Any = {"pipeline": ("torch",), "schedule": tuple(name for name in SPLIT_BACKWARD if name != "dualpipev")}
_TORCH: Any = {"pipeline": ("torch",)}


def _first(implementation: Implementation) -> Expr:
    return instances(Place.FIRST, implementation.choices)


def _last(implementation: Implementation) -> Expr:
    return instances(Place.LAST, implementation.choices)


def _hidden() -> Expr:
    """Return the bytes that one stage sends to the next for a micro-batch."""
    return product(COMPUTE, *local_shape((SEQUENCE_SP, BATCH, HIDDEN)))


def _logits() -> Expr:
    return product(COMPUTE, *local_shape((SEQUENCE, BATCH, VOCAB)))


def _buffers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return inputs of all chunks but the model's first, and gradients of all outputs but its last's."""
    count = 2 * chunks(implementation.choices) - _first(implementation) - _last(implementation)
    return m * count * _hidden()


def _batch(terms: TermSet, implementation: Implementation) -> Expr:
    """int64 ids and labels of all micro-batches, which every rank reads."""
    return 2 * m * product(Integer(8), *local_shape((SEQUENCE, BATCH)))


def _more_tables(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the bytes of further rotary tables: every chunk has that of the whole model."""
    return (chunks(implementation.choices) - 1) * product(Integer(4), *local_shape((ALL_POSITIONS, HEAD_DIM)))


def _handed_on(terms: TermSet, implementation: Implementation) -> Expr:
    """Return outputs of chunks in flight, less the inputs, which lie in the buffers that are there anyway."""
    outputs = nf
    if implementation.choices["schedule"] == "interleaved":  # with two rounds, sums come when the first one is over
        outputs -= Iverson(Le(m, 2 * Gr))
    return (outputs * _first(implementation) - nl * _last(implementation)) * _hidden()


def _input_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return a backward pass of inputs leaves its result with its input to the end of the step.

    Two stages that follow each other on one rank hand it on in the buffer of the former.
    """
    folded = Iverson(Eq(r, p - 1)) if implementation.choices["schedule"] == "zbv" else Integer(0)
    return m * (chunks(implementation.choices) - _first(implementation) - folded) * _hidden()


def _logits_kept(terms: TermSet, implementation: Implementation) -> Expr:
    return nl * _last(implementation) * _logits()


def _other_logits(terms: TermSet, implementation: Implementation) -> Expr:
    """While the loss is computed, the ledger has the logits of its own micro-batch already."""
    return (nl - 1) * _last(implementation) * _logits()


def _losses(terms: TermSet, implementation: Implementation) -> Expr:
    """Return losses of all micro-batches but one, which stay until the end of the step."""
    return _SCALAR * (m - 1) * _last(implementation)


def _gathered(terms: TermSet, implementation: Implementation) -> Expr:
    return COMPUTE * terms["stage.aligned"].symbol


def _summed(terms: TermSet) -> Expr:
    return w * terms["stage.parameters"].symbol


def _chunk(terms: TermSet, implementation: Implementation) -> Expr:
    """Saved tensors of the layers of one micro-batch and chunk."""
    return terms["stage.inner_activations"].symbol / nr


def _ends(terms: TermSet) -> Expr:
    """Saved tensors of final norm, head and loss of one micro-batch, with its number of labels."""
    return terms["stage.end_activations"].symbol / nl + _SCALAR


def _dropped(choices: Any) -> Expr:
    """1 if no forward pass follows the first backward pass, so that fewer are in flight in the second one."""
    return Integer(1) if choices["schedule"] == "gpipe" else Iverson(Le(m, p - r))


def _sent(implementation: Implementation) -> Expr:
    """Return the gradient that was sent last, which PyTorch's loop of 1F1B holds until it sends the next one."""
    if implementation.choices["schedule"] == "1f1b":
        return (1 - _first(implementation)) * _hidden()
    return Integer(0)


def _backward_of_loss(terms: TermSet, implementation: Implementation) -> Expr:
    """In the second backward pass whole gradients exist; in the first one more micro-batch may be in flight."""
    drop = _dropped(implementation.choices)
    later = _summed(terms) + _sent(implementation)
    held = _chunk(terms, implementation) + _ends(terms) + _logits() - _hidden()
    return _last(implementation) * Max(Integer(0), later - drop * held)


def _forward_of_loss(terms: TermSet, implementation: Implementation) -> Expr:
    if implementation.choices["schedule"] == "gpipe":
        return Integer(0)
    return (1 - _dropped(implementation.choices)) * (_summed(terms) + _sent(implementation))


def _summed_always(terms: TermSet, implementation: Implementation) -> Expr:
    return _summed(terms)


def _unsummed(terms: TermSet, implementation: Implementation) -> Expr:
    """bf16 gradients of a weight-backward pass, which are added to the sums by the chunk's next backward pass.

    The model's first chunk has none: it has no inputs to work out gradients of, so its backward pass is not split.
    In the others a layer's gradients are these, not temporaries.
    """
    layer = per_layer(terms, "parameters")
    whole = _first(implementation) * (outside(terms, implementation, "parameters", Place.FIRST)
                                      + Lr / chunks(implementation.choices) * layer)
    return COMPUTE * (terms["stage.parameters"].symbol - whole - (1 - _first(implementation)) * layer)


def _waiting_ends(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the tensors of final norm, head and loss for the other micro-batches in flight on the last stage."""
    return (nl - 1) * _last(implementation) * _ends(terms)


def _waiting_losses(terms: TermSet, implementation: Implementation) -> Expr:
    return (nl - 1) * _last(implementation) * (terms["loss.saved"].symbol + _SCALAR)


def _waiting_counts(terms: TermSet, implementation: Implementation) -> Expr:
    """Return numbers of labels of the other micro-batches in flight."""
    return (nl - 1) * _last(implementation) * _SCALAR


def _layers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the top layer of the first or the second backward pass, or the last one of the first."""
    layer, at_last = per_layer(terms, "parameters"), _last(implementation)
    drop = _dropped(implementation.choices)
    freed = freed_with_a_layer(terms, implementation)
    ends = w * at_last * outside(terms, implementation, "parameters", Place.LAST)
    ends_held = at_last * (_ends(terms) + _logits() - _hidden())
    held = _chunk(terms, implementation) + ends_held + _only_first(implementation)
    second = _summed(terms) + _sent(implementation) - drop * held
    below = Iverson(Ge(Lr, 2)) * (ends + (Lr - 1) * (w * layer - freed))
    return Max(second, ends, below)


def _only_first(implementation: Implementation) -> Expr:
    return _first(implementation) * _hidden()


def _embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the embedding's own gradient, when the micro-batch has nothing else left; others are in flight."""
    gradient = COMPUTE * outside(terms, implementation, "parameters", Place.FIRST)
    others = terms["stage.inner_activations"].symbol - _chunk(terms, implementation)
    return _first(implementation) * (_summed(terms) + others + gradient + _hidden())


def _reduced(terms: TermSet, implementation: Implementation) -> Expr:
    """Get the input of a reduction beside what is not reduced yet: embedding, then layers, then final norm and head."""
    whole, parameters = terms["stage.aligned"].symbol, terms["stage.parameters"].symbol
    layer, made = per_layer(terms, "aligned"), REDUCING * gradient_bytes(implementation.choices) / SHARDS
    embedding = outside(terms, implementation, "aligned", Place.FIRST)
    embedded = outside(terms, implementation, "parameters", Place.FIRST)
    head = outside(terms, implementation, "aligned", Place.LAST)
    headed = outside(terms, implementation, "parameters", Place.LAST)
    at_first, at_last = _first(implementation), _last(implementation)
    rest = whole - embedding
    return Max(
        at_first * (w * parameters + COMPUTE * rest + w * embedding),
        w * (parameters - embedded) + COMPUTE * (rest - layer) + w * layer + made * embedding,
        at_last * (w * headed + w * head + made * rest - made * head),
    )


def _reduced_chunk(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the embedding's bytes while it is reduced, last of all chunks; tensors in flight outweigh other ends."""
    each = sum(layers_by_chunk(implementation.choices)[0], Integer(0))
    embedding = outside(terms, implementation, "aligned", Place.FIRST)
    whole = outside(terms, implementation, "parameters", Place.FIRST) + each * per_layer(terms, "parameters")
    layers = each * per_layer(terms, "aligned")
    made = REDUCING * gradient_bytes(implementation.choices) / SHARDS
    others = made * (terms["stage.aligned"].symbol - embedding - layers)
    return _first(implementation) * (w * whole + COMPUTE * layers + w * embedding + others)


def _left_over(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the last output that the loop made and the last gradient that it sent."""
    at_last = _last(implementation)
    sent = (1 - _first(implementation)) * _hidden()
    return at_last * (_logits() + _SCALAR) + (1 - at_last) * _hidden() + sent


_RUNNING = ("after_forward", "loss_forward", "loss_backward", "head_backward", "layer_backward", "embedding_backward")
_BACKWARD = ("loss_backward", "head_backward")
_EVERYWHERE = (*_RUNNING, "last_reduce", "optimizer_step")

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    ("stage_buffers", "Buffers for received inputs and gradients", _EVERYWHERE, _buffers, _TORCH),
    ("stage_input_gradients", "Gradients of received inputs", _EVERYWHERE, _input_gradients, _SPLIT),
    ("stage_batch", "Ids and labels of the step", _EVERYWHERE, _batch, _TORCH),
    ("stage_tables", "Tables of further chunks", _EVERYWHERE, _more_tables, _TORCH),
    ("stage_outputs", "Outputs of chunks in flight, less inputs in buffers", _RUNNING, _handed_on, _TORCH),
    ("stage_logits", "Logits of micro-batches in flight", ("after_forward", *_BACKWARD, "layer_backward"),
     _logits_kept, _TORCH),
    ("stage_logits_before", "Logits of other micro-batches in flight", ("loss_forward",), _other_logits, _TORCH),
    ("stage_losses", "Losses of other micro-batches", (*_RUNNING, "last_reduce"), _losses, _TORCH),
    ("stage_gathered", "Gathered parameters", _RUNNING, _gathered, _TORCH),
    ("stage_loss_gradients", "Whole gradients, and the one sent last", ("after_forward", "loss_forward"),
     _forward_of_loss, _SINGLE),
    ("stage_head_gradients", "Whole gradients, and the one sent last", _BACKWARD, _backward_of_loss, _SINGLE),
    ("stage_gradients", "Whole gradients", ("after_forward", "loss_forward", *_BACKWARD, "layer_backward"),
     _summed_always, _LOWERED),
    ("stage_unsummed", "Gradients not yet summed up", ("layer_backward",), _unsummed, _SPLIT),
    ("stage_waiting", "Final norm, head and loss of other micro-batches", ("layer_backward",), _waiting_ends, _TORCH),
    ("stage_waiting_counts", "Numbers of labels of other micro-batches",
     ("after_forward", "loss_forward", "loss_backward"), _waiting_counts, _TORCH),
    ("stage_waiting_losses", "Losses' tensors of other micro-batches", ("head_backward",), _waiting_losses, _TORCH),
    ("stage_layers", "Whole gradients, and the one sent last, less what is freed", ("layer_backward",), _layers,
     _SINGLE),
    ("stage_embedding", "Whole gradients, the embedding's and micro-batches in flight", ("embedding_backward",),
     _embedding, _TORCH),
    ("stage_reduced", "Whole gradients and gathered parameters while they are reduced", ("last_reduce",), _reduced,
     _SINGLE),
    ("stage_reduced", "Whole gradients and gathered parameters of the first chunk while it is reduced",
     ("last_reduce",), _reduced_chunk, _LOWERED),
    ("stage_left_over", "Output and gradient that were sent last", ("last_reduce",), _left_over, _SINGLE),
)
