"""Sizes of what lives in Megatron-LM at moments of a step and depends on the rank, or on what was freed before.

Read in Megatron-LM's schedules and layers and in Transformer Engine's linear modules; exact for 1F1B. With
several chunks per rank, the gradients that a rank has sent and received are counted as in 1F1B.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Gt, Integer, Le

from ...components.mlp_rows import MLP_BIAS
from ...dimension import Dimension
from ...dimensions import BATCH, FFN, HIDDEN, HIDDEN_COLUMNS, SEQUENCE, SEQUENCE_SP
from ...functions import Iverson, Max, Min
from ...implementations import Implementation
from ...ledger import Place
from ...parallel.groups import GROUPS, group_of
from ...parallel.pipeline import (
    chunks,
    ends,
    has_lighter_chunks,
    instances,
    is_one_chunk,
    lighter_chunks,
    missing,
)
from ...parallel.schedules import SCHEDULES
from ...parallel.weights import without_experts
from ...parameters import symbols
from ...recompute import REGIONS, has_norm_inside
from ...terms import TermSet, product, total
from .. import expert_layers
from ..predictions import held_by_layers
from ..recomputed import recomputed_layer
from ..rows import components_of, is_expert, kept_rows, local_shape, saved_by, weight_tensors
from ..units import is_layer_input, when
from . import quantised as quantised_moments

e, m, nr, nf, nl, ns, r, ts, drop, rmlp, Hc = symbols("e m nr nf nl ns r ts drop rmlp Hc")

_WHOLE = (SEQUENCE, BATCH, HIDDEN)
_SHARE = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)
#: Schedules whose loop binds the input of the micro-batch before.
BOUND_INPUTS = ("1f1b", "interleaved")
_MLP = next(region for region in REGIONS if region.name == "mlp")
#: Modules of the norm behind an MLP.
_BEHIND: Mapping[str, tuple[str, ...]] = {"pre": (), "post": _MLP.behind, "both": ("ffn_post_norm",)}


def _bf16(shape: tuple[Dimension, ...]) -> Expr:
    return product(Integer(2), *local_shape(shape))


def _steady(implementation: Implementation) -> Expr:
    """1 if the rank runs two or more forward-backward pairs, so that the second finds what the first left bound."""
    return Iverson(Gt(m * chunks(implementation.choices), nr))


def _at_end(rank: Expr, implementation: Implementation) -> Expr:
    """1 if rank r is ``rank`` and has a single chunk, so that nothing comes from beyond it."""
    return product(Iverson(Eq(r, rank)), is_one_chunk(implementation.choices))


def sent_gradient(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the gradient sent to the stage before, which the schedule's loop binds until it has the next one."""
    first, _ = ends(implementation.choices)
    return product(_bf16(_SHARE), 1 - _at_end(first, implementation), _steady(implementation))


def received_gradient(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the gradient received for the micro-batch before, which the loop binds through the next forward pass."""
    _, last = ends(implementation.choices)
    return product(_bf16(_SHARE), 1 - _at_end(last, implementation), _steady(implementation))


def input_before(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the input of the micro-batch whose backward pass was the last, during the next forward pass.

    The loop binds its output until that pass has returned, the output its graph, and the graph the input as a leaf.
    With several chunks these are variables of a function that has returned.
    """
    first, _ = ends(implementation.choices)
    one_chunk = is_one_chunk(implementation.choices)
    return product(_bf16(_SHARE), 1 - Iverson(Eq(r, first)), one_chunk, _steady(implementation))


def last_input(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the last input of every chunk and its gradient: the block of layers holds both."""
    first, _ = ends(implementation.choices)
    return product(2 * _bf16(_SHARE), chunks(implementation.choices) - Iverson(Eq(r, first)))


def listed_roots(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the roots of second moments that PyTorch's AdamW makes of the largest list of parameters, in fp32.

    Norms and biases, which have no weight decay, are a smaller list of their own, and with expert parallelism routed
    experts are one. A rank with shards of parameters has at most as many elements of matrices as its shard has.
    """
    choices, lists = implementation.choices, []
    for group in (item for item in GROUPS if f"stage.{item.prefix}shard_elements" in terms and not item.frozen):
        matrices = total(*(
            product(instances(component.place, choices), when(tensor, implementation), elements)
            for component, tensor, elements in weight_tensors(implementation)
            if len(without_experts(tensor.shape)) > 1
            and group_of(component, tensor, is_expert(tensor), choices) is group
        ))
        lists.append(Min(matrices, terms[f"stage.{group.prefix}shard_elements"].symbol))
    together = product(Iverson(Eq(e, 1)), total(*lists)) if len(lists) > 1 else Integer(0)
    return product(Integer(4), Max(*lists, together))


def exchanged(terms: TermSet, implementation: Implementation) -> Expr:
    """Output, gradient to be received, and the one before it, which is bound until the new one has arrived."""
    _, last = ends(implementation.choices)
    return product(_bf16(_SHARE), 1 - _at_end(last, implementation), 2 + _steady(implementation))


def mlp_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest of the moments of the backward pass of a dense MLP, less what is freed by then.

    In the down projection the gathered gradient of its output and the gradient of its input; in the activation
    the gradient of its input (that of its output takes the place of the projection's input, now freed);
    in the up projection that one, the gathered input, and the input's gradient with its sum over ranks,
    when all that the MLP saved is freed. A norm inside of it makes the gradients of its weights, and that of its input
    in place of its output, which are more where nothing is gathered. Before them a norm behind the MLP makes the
    gradients of its input and scale.
    """
    choices = implementation.choices
    largest = (_plain_gradients if choices["fp8"] == "none" else quantised_moments.mlp_gradients)(implementation)
    if choices["layers"] == "experts":  # where that is less, the layers behind have had more
        least = product(Integer(-1), rmlp, _made_again(implementation)) - recomputed_layer(terms, implementation)
        largest = Max(least, largest - expert_layers.passed(terms, implementation))
    return product(expert_layers.dense_at_work(implementation), largest)


def _plain_gradients(implementation: Implementation) -> Expr:
    """Return the same without layers of experts and in 16 bits."""
    choices, gathered = implementation.choices, Iverson(ts > 1)
    features = _features_of_activation(implementation)
    activation = of_input = _bf16((SEQUENCE, BATCH, features))
    if choices["mlp"] == "relu":  # its output, the down projection's input, is not freed before its backward pass
        activation = total(activation, _bf16(_INNER))
    down = total(gathered * _bf16(_WHOLE), _bf16(_INNER))
    if choices["dropout"] != "none":  # another gradient, less the mask that made it
        down = total(down, drop * _bf16(_SHARE) / 2)
    # Megatron's own layers gather into the buffer that is never freed.
    copies = {"megatron_te": 1 + gathered, "megatron_local": Integer(1)}[choices["peak"]]
    behind, modules = Integer(0), _BEHIND[choices["norms"]]
    if modules:  # the norm behind the MLP has made another gradient, and has freed what it saved
        behind, freed = total(_bf16(_SHARE), _bf16((HIDDEN,))), saved_by(modules, Place.DENSE, implementation)
        down, activation = total(down, _bf16(_SHARE), -freed), total(activation, -freed)
    saved = saved_by((*_MLP.modules, *_MLP.behind * (choices["norms"] == "post")), Place.DENSE, implementation)
    up = total(of_input, copies * _bf16(_WHOLE), gathered * _bf16(_SHARE), -saved)
    if has_norm_inside(choices):
        vectors = 2 if choices["normalisation"] == "layer" else 1
        up = total(up, product(1 - gathered, vectors, _bf16((HIDDEN,))))
    if choices["weight_gradient"] == "separate":
        down = total(down, _bf16((HIDDEN, FFN)))
        up = total(up, _bf16((features, HIDDEN)))
    return Max(down, activation, up, behind, *_bias_gradient(choices, features, activation))


def _bias_gradient(choices: Mapping[str, str], features: Dimension, activation: Expr) -> tuple[Expr, ...]:
    """Return the moment of the first bias: a fused activation makes its gradient beside that of its input.

    The gradient of the activation's output is gone by then, and what was saved is not. With one matrix before the
    activation the bias has no more elements than that gradient, so that the moment is never the largest.
    """
    if choices["biases"] == "qkv" or (choices["mlp"], choices["swiglu"]) != ("swiglu", "fused"):
        return ()
    return (product(MLP_BIAS, total(activation, _bf16((features,)), -_bf16(_INNER))),)


def _features_of_activation(implementation: Implementation) -> Dimension:
    """Return the outputs of the projection before the activation, which is one matrix here.

    Raises ValueError for an MLP that has several, or none.
    """
    features = [
        row.tensor.shape[0] for row in kept_rows(implementation)
        if row.component.place is Place.DENSE and row.tensor.tokens and row.tensor.shape[1] is HIDDEN_COLUMNS
    ]
    if len(features) != 1:
        raise ValueError(f"not counted yet: moments of mlp = {implementation.choices['mlp']} with {len(features)}"
                         " projections before its activation")
    return features[0]


def recomputed_mlp(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the recomputed saved tensors of the MLP; ``mlp_gradients`` subtracts the freed part."""
    return product(expert_layers.dense_at_work(implementation), rmlp, _made_again(implementation))


def _made_again(implementation: Implementation) -> Expr:
    """Return what the second forward pass of an MLP makes and its checkpoint holds: saved tensors, and the output."""
    modules = _MLP.dropped(implementation.choices)
    return total(saved_by(modules, Place.DENSE, implementation), _bf16(_SHARE))


def waiting_losses(terms: TermSet, implementation: Implementation) -> Expr:
    """Saved by the losses of the micro-batches that wait for their backward pass."""
    _, last = ends(implementation.choices)
    return product(Iverson(Eq(r, last)), ns - 1, terms["loss.saved"].symbol)


def fuller_chunks(terms: TermSet, implementation: Implementation) -> Expr:
    """On the last rank, the layer that other chunks have more: as many of them are in flight when no loss is kept."""
    choices = implementation.choices
    _, lighter = lighter_chunks(choices)
    least = SCHEDULES[choices["schedule"]].least_last
    return product(lighter, nl - least, _missing_layer(terms, implementation))


def _missing_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Saved for a micro-batch by the layer that a chunk has less than the others."""
    layers, inputs = missing(implementation.choices)
    kind = "expert_layer" if implementation.choices["layers"] == "experts" else "layer"
    kept = [terms[f"{part.name}.saved"].symbol for part in components_of(implementation)
            if is_layer_input(part) and f"{part.name}.saved" in terms]
    return total(product(layers, terms[f"{kind}.saved"].symbol), *(product(inputs, each) for each in kept))


def waiting_activations(terms: TermSet, implementation: Implementation) -> Expr:
    """On the first stage, all saved activations but those of the layers of the micro-batch at work, freed by now."""
    choices = implementation.choices
    first, _ = ends(choices)
    freed = held_by_layers(terms, implementation)
    freed += [
        product(Hc, terms[f"{part.name}.saved"].symbol) for part in components_of(implementation)
        if is_layer_input(part) and f"{part.name}.saved" in terms
    ]
    inner = terms["stage.inner_activations"].symbol
    in_flight = SCHEDULES[choices["schedule"]].first_backward
    done = Integer(0) if in_flight is None else Max(Integer(0), nr - in_flight)
    of_chunk = total(*freed) / nr
    if has_lighter_chunks(choices):  # the first chunk is the one at work, and has a layer less than the others
        lighter, _ = lighter_chunks(choices)
        missing_layer = product(lighter, _missing_layer(terms, implementation))
        of_chunk += missing_layer * nf / nr
        beside = 0 if in_flight is None else Iverson(Le(in_flight, nr)) * (m - nf)
        inner = total(inner, missing_layer, -missing_layer * beside)
    return product(Iverson(Eq(r, first)), total(inner, -(1 + done) * of_chunk))
