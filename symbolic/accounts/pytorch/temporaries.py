"""PyTorch's temporaries: inside a layer's backward pass, the head's, and the optimizer step.

A layer's backward pass has several moments of which each can be the largest; what they need follows from the
order of operations, which was counted op by op. All sizes are those of one rank.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Ge, Integer

from ...choices import ADAPTED
from ...dimension import Dimension
from ...dimensions import BATCH, FFN, HEAD_DIM, HEADS, HIDDEN, SEQUENCE, SEQUENCE_SP
from ...functions import Iverson, Max, Min
from ...implementations import Implementation
from ...ledger import Place
from ...parallel.data import TIED, WIDE, states
from ...parallel.pipeline import instances
from ...parallel.walked_layers import WALKED, not_walked
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..layers.moments import moments as layer_moments
from ..layers.torchtitan import TitanExpertLayer, TitanLayer
from ..layers.transformers import Layer
from ..layers.transformers_experts import ExpertLayer
from ..recomputed import again
from ..rows import local_shape, weight_tensors
from .gathered import (
    COMPUTE,
    LAYER_UNITS,
    NOT_UNITS,
    SHARDS,
    copied_out,
    gathered_ahead,
    gathered_at_the_end,
    gathered_in_the_last_layer,
    gathered_with_the_first_layer,
    held_by_model,
    kinds_of_layers,
    outside,
    passed_layers,
    per_layer,
    sum_of,
    while_reduced,
)
from .gradients import while_passing

t, rfull, Lr = symbols("t rfull Lr")


def _bf16(*dimensions: Dimension) -> Expr:
    return product(COMPUTE, *local_shape(dimensions))


def _elements(implementation: Implementation, component: str, *names: str) -> Expr:
    """Return elements of some weights of a component, of all without names."""
    return sum((
        elements for part, tensor, elements in weight_tensors(implementation)
        if part.name == component and (not names or tensor.name in names)
    ), Integer(0))


def _in_a_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest of the moments of one layer's backward pass, beside all that the layer has saved."""
    if not not_walked(implementation.choices):
        return Max(*layer_moments(implementation))
    residual, inner = _bf16(SEQUENCE_SP, BATCH, HIDDEN), _bf16(SEQUENCE, BATCH, FFN)
    whole, query = _bf16(SEQUENCE, BATCH, HIDDEN), _bf16(SEQUENCE, BATCH, HEADS, HEAD_DIM)
    gathered = Iverson(t > 1) * whole
    statistics = product(Integer(4), *local_shape((SEQUENCE_SP, BATCH)))
    down = COMPUTE * _elements(implementation, "swiglu", "down.weight")
    mlp = COMPUTE * _elements(implementation, "swiglu")
    norm = COMPUTE * _elements(implementation, "ffn_norm", "weight")
    layer = COMPUTE * per_layer(terms, "parameters")
    saved = per_layer(terms, "saved")
    # The gradient of the output, which the top layer of a pipeline's stage has in a buffer for what is received.
    output_gradient = residual
    if implementation.choices["pipeline"] == "torch":
        output_gradient = residual * _last(implementation)
    moments = [
        output_gradient + 2 * gathered,  # the gradient of the output is gathered, in two copies
        output_gradient + gathered + inner + down,  # down projection: gradients of input and weight
        output_gradient + 2 * inner + down,  # product of gate and up, whose gradients replace the product
        output_gradient + 2 * whole - 3 * inner + mlp,  # gate projection, after up: two gradients of their input
    ]
    if implementation.choices["norm"] == "eager":
        moments += [
            # The norm's backward pass in fp32: its input, two gradients of it and four temporaries.
            13 * residual + mlp + norm - terms["swiglu.saved"].symbol - terms["ffn_norm.saved"].symbol,
            13 * residual + layer - saved,
        ]
    else:
        q_weight = COMPUTE * _elements(implementation, "attention", "q.weight")
        shared = 2 * residual + 3 * whole + query + statistics + layer - norm - saved
        moments += [
            shared,  # q projection, after v and k: gradients of their common input, of it and of the layer's output
            shared + whole - q_weight,  # before it: the sum of the gradients of v's and k's input
        ]
    return Max(*moments)


def _at_work(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest moment of a layer with experts or of a dense one, with what all layers have left by then."""
    choices, kinds = implementation.choices, kinds_of_layers(terms)
    is_shared = choices["data_parallel"] == "fsdp"
    left = passed_layers(terms, implementation) if is_shared else while_passing(terms, implementation)
    moments = []
    for (layer, number), other in zip(kinds, left, strict=True):
        has_experts = layer == "expert_layer"
        own = _alone(terms, implementation, layer)
        made_again = again(terms, implementation, Place.EXPERTS if has_experts else Place.DENSE, with_output=False)
        moments.append(product(Min(Integer(1), number), total(own, product(rfull, made_again), other)))
    ahead = (gathered_ahead,) if choices["router"] == "torchtitan" else ()
    for beside in (*_UNITS, *ahead) if is_shared else ():
        moments += [product(Min(Integer(1), number), moment)
                    for (_, number), moment in zip(kinds, beside(terms, implementation), strict=True)]
    return Max(*moments)


def _alone(terms: TermSet, implementation: Implementation, layer: str) -> Expr:
    """Return the temporaries of a layer, as a term of its own: all ranks have the same."""
    if implementation.choices["layers"] == "dense":
        own = _of_a_dense_layer(terms, implementation)
    elif layer == "layer" and implementation.choices["mlp"] == "swiglu_clamped":
        own = Integer(0)  # no model has such dense layers
    else:
        own = Max(*layer_moments(implementation, kind=_kind(implementation, layer)))
    if own == 0:
        return own
    return terms.add(f"{layer}.backward", own, "bytes",
                     "temporaries of a layer's backward pass, beside all that it saved")


def _kind(implementation: Implementation, layer: str) -> type[Layer]:
    """Return whose operations a layer with experts or a dense one beside them has."""
    if implementation.choices["router"] == "torchtitan":
        return TitanExpertLayer if layer == "expert_layer" else TitanLayer
    return ExpertLayer if layer == "expert_layer" else Layer


def _in_the_last_forward_pass(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the temporaries of the last layer with experts, whose forward pass finds all others' saved tensors.

    Its parameters are gathered, and the buffer that they came in is there until the next unit's are.
    """
    own = Max(*layer_moments(implementation, kind=_kind(implementation, "expert_layer"), is_forward=True))
    temporaries = terms.add("expert_layer.forward", own, "bytes",
                            "temporaries of a layer's forward pass, beside all that it saves")
    there = total(temporaries, gathered_in_the_last_layer(terms, implementation))
    return product(1 - rfull, Min(Integer(1), instances(Place.EXPERTS, implementation.choices)), there)


def _in_forward_pass(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest moment of a forward pass of layers that FSDP2 gathers, with what is saved.

    The first layer is gathered; the last of several is copied out of its buffer while that of the layer before is
    there; the last one computes. Its input is there, and what the model holds. Where all stays gathered, final norm and
    head are copied out too; where it does not, a trained model has more in its backward pass. Layers of torchtitan do
    not compute here: their temporaries are smaller than what comes and goes with the next unit, unless tokens are many.
    """
    choices = implementation.choices
    saved, several = terms["stage.inner_activations"].symbol, Iverson(Ge(Lr, 2))
    residual, held = _bf16(SEQUENCE_SP, BATCH, HIDDEN), held_by_model(choices)
    beside = total(held, product(1 - rfull, several, residual))
    of_layer = total(product(1 - rfull, sum_of(terms, "layer", "saved")),
                     *(product(rfull, terms[name].symbol) for name in _KEPT_BY_FORWARD if name in terms))
    copied_out = total(saved, beside, -of_layer, gathered_in_the_last_layer(terms, implementation, 2))
    moments = [gathered_with_the_first_layer(terms, implementation), several * copied_out]
    gathered = total(saved, beside, gathered_in_the_last_layer(terms, implementation))
    if choices["reshard"] == "never":
        copied, normed = gathered_at_the_end(terms, implementation)
        at_end = [copied]
        if choices["router"] != "torchtitan":
            moments.append(total(gathered, *_of_a_forward_pass(implementation)))
            at_end.append(total(normed, terms["final_norm.saved"].symbol,
                                Max(*layer_moments(implementation, Layer.run_final_norm, is_forward=True))))
        moments.append(total(saved, held, residual, Max(*at_end)))
    elif choices["adapters"] != "none":
        moments.append((1 - rfull) * total(gathered, Max(*layer_moments(implementation, is_forward=True))))
    return Max(*moments)


def _of_a_forward_pass(implementation: Implementation) -> tuple[Expr, Expr]:
    """Return the temporaries of a layer's forward pass, beside all that it saves: without recompute, and with it."""
    return (product(1 - rfull, Max(*layer_moments(implementation, is_forward=True))),
            product(rfull, Max(*layer_moments(implementation, is_forward=True, saves=False))))


def _of_a_dense_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return temporaries of the layers of a dense model, where they are counted."""
    is_counted = all(implementation.choices[axis] in options for axis, options in _COUNTED.items())
    return _in_a_layer(terms, implementation) if is_counted else Integer(0)


#: Dense layers whose temporaries are counted.
_COUNTED = {"mlp": WALKED["mlp"], "heads": WALKED["heads"]}
#: Terms of saved tensors that a recomputed layer keeps beside its input.
_KEPT_BY_FORWARD = ("saved_ops.saved", "saved_ops_mlp.saved")
#: Moments of a unit of FSDP2 beside those of a layer at work.
_UNITS = (copied_out, while_reduced)


def _in_the_final_norm(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest of the moments of the final norm's backward pass, with what it has saved."""
    return terms["final_norm.saved"].symbol + Max(*layer_moments(implementation, Layer.run_final_norm))


def _last(implementation: Implementation) -> Expr:
    return instances(Place.LAST, implementation.choices)


def _moment_bytes(implementation: Implementation) -> Expr:
    return next(state.bytes for state in states(implementation.choices) if state.name == "exp_avg")


def _ranks(implementation: Implementation) -> Expr:
    return SHARDS if implementation.choices["data_parallel"] == "fsdp" else Integer(1)


def _for_each(terms: TermSet, implementation: Implementation) -> Expr:
    elements, name = sum_of(terms, "stage", "buffer_elements"), f"router.{WIDE}exp_avg"
    own = _moment_bytes(implementation) * elements / _ranks(implementation)
    if name not in terms:
        return own
    return total(own, product(instances(Place.EXPERTS, implementation.choices), terms[name].symbol))


def _for_the_largest(terms: TermSet, implementation: Implementation) -> Expr:
    """Return two for the vocabulary matrix, and one for the parameter before it, the final norm's before the head."""
    kind = "aligned" if implementation.choices["data_parallel"] == "fsdp" else "parameters"
    matrix = Max(*(outside(terms, implementation, kind, place) for place in (Place.FIRST,)))
    before = (1 - TIED) * terms[f"final_norm.{kind}"].symbol
    return _moment_bytes(implementation) * (2 * matrix + before) / _ranks(implementation)


_STEP = ("optimizer_step",)
_ON_GPU: Any = {"zero_offload": ("none",)}

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    *(("layer_temporaries", "Temporaries of a layer's backward pass", ("layer_backward",), _in_a_layer,
         {**_COUNTED, "layers": ("dense",), **apart}) for apart in NOT_UNITS),
    *(("layers_at_work", "Layer at work: its temporaries, and what other layers have left", ("layer_backward",),
       _at_work, options) for options in ({"layers": ("experts",)}, {"layers": ("dense",), **LAYER_UNITS})),
    ("layer_forward", "Last layer in its forward pass: its temporaries, and what is gathered", ("experts_forward",),
     _in_the_last_forward_pass, {"layers": ("experts",), "router": ("torchtitan",), "pipeline": ("own",)}),
    *(("gathered_forward", "Gathered parameters, their buffers, and what is saved", ("layer_gathered",),
       _in_forward_pass, {**LAYER_UNITS, "layers": ("dense",), **options}) for options in (
           {"adapters": ADAPTED}, {"adapters": ("none",), "reshard": ("never",)})),
    ("norm_temporaries", "Final norm, and temporaries of its backward pass", ("norm_backward",), _in_the_final_norm,
     {axis: WALKED[axis] for axis in ("router", "precision", "norm", "normalisation")}),
    ("step_temporaries", "Temporaries of the optimizer step", _STEP, _for_each,
     {**_ON_GPU, "optimizer_kernel": ("foreach",)}),
    ("step_temporaries", "Temporaries of the optimizer step", _STEP, _for_the_largest,
     {**_ON_GPU, "optimizer_kernel": ("loop",)}),
)
