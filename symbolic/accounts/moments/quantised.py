"""Sizes of what lives beside saved tensors where linear layers work in FP8 or FP4: quantised gradients, inputs.

Read in Transformer Engine 2.11. A gradient is quantised by rows and by columns, for the products that make the
gradients of input and weight, beside the 16-bit one that autograd holds. Of an input that is quantised both ways the
copy by columns stays; its 16-bit original lives as long as a variable of Megatron-Core's layer holds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ...choices import GATED, UNGATED
from ...components.experts.dispatch_peak import PRODUCT_GRADIENTS
from ...components.quantised import BLOCKS, MAGNITUDES, PACKED, PACKED_BYTES, PACKED_SCALES, PADDED
from ...dimension import Dimension
from ...dimensions import (
    BATCH,
    EXPERT_FFN,
    EXPERT_FFN_SCALES,
    EXPERT_GATE_UP,
    EXPERTS,
    FFN,
    FFN_SCALES,
    GATE_UP_FEATURES,
    HIDDEN,
    HIDDEN_SCALES,
    RECEIVED,
    SEQUENCE,
    SEQUENCE_SP,
)
from ...expert_layers import GATHERED, SEVERAL
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import Place
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..expert_layers import at_work
from ..predictions import predicts
from ..rows import kept_rows, local_shape, saved_by

ts, rmlp = symbols("ts rmlp")

Shape = tuple[Dimension, ...]

#: Rows of Megatron-Core that exist only when routed experts have returned, the last of them, and a map saved for them.
_BEHIND, _RETURNED, _NOT_YET = "results_", "results_returned", "unsort_map"


def plain(size: int, shape: Shape, implementation: Implementation) -> Expr:
    """Return the bytes of a tensor with elements of ``size`` bytes on one rank."""
    return product(Integer(size), *local_shape(shape, implementation.choices))


def quantised(
    tokens: Shape, width: Dimension, scales: tuple[int, Dimension], implementation: Implementation, *,
    tensors: Shape | None = None, ways: int = 2,
) -> Expr:
    """Return the bytes of a tensor in FP8 or FP4, by rows and by columns, with its scales.

    ``scales`` are a multiple and the dimension of the bytes of a token's scales of blocks. ``tensors`` has a dimension
    of as many tensors with an fp32 scale of their own, which both ways share; None where a saved copy has that scale.
    In FP4 each way has magnitudes of its own. Widths are multiples of 128 where moments are counted, so that no tile of
    scales has padding.
    """
    if implementation.choices["fp8"] in PACKED:
        times, each = scales
        packed = plain(ways * times * (PACKED_BYTES + PACKED_SCALES), (*tokens, each), implementation)
        if tensors is None:
            return packed
        size, magnitudes = MAGNITUDES[tensors]
        return total(packed, plain(ways * size, magnitudes, implementation))
    elements = plain(ways, (*tokens, width), implementation)
    if implementation.choices["fp8"] in BLOCKS:
        times, each = scales
        return total(elements, plain(ways * times, (*tokens, PADDED.get(each, each)), implementation))
    return elements if tensors is None else total(elements, plain(4, tensors, implementation))


def mlp_gradients(implementation: Implementation) -> Expr:
    """Return the largest of five moments of the backward pass of a dense MLP, less what is freed by then.

    In the down projection the quantised gradient of its output, gathered in FP8, and the gradient of its input; in the
    activation that one and the gradient of its own input; in the up projection this one, 16-bit and quantised, the
    gathered input, and the gradient of the input with its sum over ranks; in the norm of that projection the same
    without the gathered input, and the gradients of the norm's input and weights. An MLP that is recomputed has the
    down projection's forward pass before them: its input, 16-bit and by rows, and its output before ranks share it out.
    """
    tokens, choices = (SEQUENCE, BATCH), implementation.choices
    recipe, gated = choices["fp8"], choices["mlp"] in GATED
    features, scales, module = (GATE_UP_FEATURES, 2, "gate_up") if gated else (FFN, 1, "up")
    whole, inner, of_input = (plain(2, (*tokens, width), implementation) for width in (HIDDEN, FFN, features))
    beside = inner
    if recipe == "block":  # the gathered copy by columns is put in order before the product
        beside = Max(inner, product(Iverson(ts > 1), plain(1, (*tokens, HIDDEN), implementation)))
    down = total(quantised(tokens, HIDDEN, (1, HIDDEN_SCALES), implementation, tensors=()), beside)
    of_down = saved_by(("down",), Place.DENSE, implementation)
    activation = total(inner, of_input, -of_down)
    share, gathered = plain(2, (SEQUENCE_SP, BATCH, HIDDEN), implementation), _put_in_order(implementation)
    behind = total(of_input, quantised(tokens, features, (scales, FFN_SCALES), implementation, tensors=()), whole,
                   -of_down, -saved_by(("activation",), Place.DENSE, implementation))
    up = total(behind, product(Iverson(ts > 1), total(gathered, share)))
    vectors = 2 if choices["normalisation"] == "layer" else 1
    norm = total(behind, product(1 + Iverson(ts > 1), share), plain(2 * vectors, (HIDDEN,), implementation),
                 -saved_by((module,), Place.DENSE, implementation))
    if recipe in PACKED:  # gradients are gathered both ways before those of single ranks are freed
        own = quantised((SEQUENCE_SP, BATCH), HIDDEN, (1, HIDDEN_SCALES), implementation, tensors=())
        rows = quantised(tokens, HIDDEN, (1, HIDDEN_SCALES), implementation, ways=1)
        down = Max(down, product(Iverson(ts > 1), total(own, rows, gathered)))
    by_rows = quantised(tokens, FFN, (1, FFN_SCALES), implementation, tensors=() if recipe in PACKED else None, ways=1)
    kept = choices["mlp"] == "relu"  # the input is what ReLU has saved
    forward = total(Integer(0) if kept else inner, by_rows, product(Iverson(ts > 1), whole))
    return Max(down, activation, up, norm, product(rmlp, forward))


def _put_in_order(implementation: Implementation) -> Expr:
    """Return the most that the gathered copy by columns of a hidden state needs.

    A copy by rows is transposed, and one by columns in blocks of FP8 put in order. In FP4 both that copy, still in the
    order of ranks, and the empty one that is returned live until the elements are in order.
    """
    tokens, recipe = (SEQUENCE, BATCH), implementation.choices["fp8"]
    if recipe in PACKED:
        return plain(3 * PACKED_BYTES + 2 * PACKED_SCALES, (*tokens, HIDDEN_SCALES), implementation)
    gathered = quantised(tokens, HIDDEN, (1, HIDDEN_SCALES), implementation, ways=1)
    return gathered if recipe == "mx" else total(gathered, plain(1, (*tokens, HIDDEN), implementation))


def _in_quantised_layers(implementation: Implementation) -> Expr:
    """1 if the layer with experts that has most beside it works in FP8 or FP4, as the stage's last one may not."""
    if implementation.predicting is implementation:
        return at_work(implementation)
    return product(at_work(implementation), 1 - predicts(Place.EXPERTS, implementation))


def _is_weighted_apart(choices: Mapping[str, str]) -> bool:
    """Tell whether an activation without a gate is multiplied with the weights of tokens by itself."""
    return choices["mlp"] in UNGATED and choices["weighting"] == "separate"


def expert_inputs(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what lives beside results of experts in FP8 before they are sent back, less what lives then.

    The 16-bit tokens that experts read live until their results are ready to be sent. Beside them are the result of the
    activation and its copy by rows in the down projection, and behind it results as they are sorted and reduced. Before
    it an activation that is weighted apart has an fp32 product and its 16-bit copy.
    """
    received, inner = (RECEIVED,), plain(2, (RECEIVED, EXPERT_FFN), implementation)
    magnitudes = (EXPERTS,) if implementation.choices["fp8"] in PACKED else None
    by_rows = quantised(received, EXPERT_FFN, (1, EXPERT_FFN_SCALES), implementation, tensors=magnitudes, ways=1)
    tokens = plain(2, (RECEIVED, HIDDEN), implementation)
    if implementation.choices["dispatch"] == "alltoall":  # else they are tokens that arrived or are about to be sent
        tokens = product(SEVERAL + GATHERED - SEVERAL * GATHERED, tokens)
    elif implementation.choices["dispatch"] == "hybridep":  # they are tokens as they arrived
        tokens = Integer(0)
    rows = [row for row in kept_rows(implementation) if row.component.place is Place.EXPERTS]
    behind = {row.tensor.name: row.expression for row in rows if row.tensor.name.startswith(_BEHIND)}
    ready = [size for name, size in behind.items() if name != _RETURNED]
    not_yet = [-row.expression for row in rows if row.tensor.name == _NOT_YET]
    inside = [total(inner, by_rows, *not_yet), total(*ready)]
    if _is_weighted_apart(implementation.choices) and implementation.choices["router_precision"] == "fp32":
        inside.append(total(
            plain(4 + 2, (RECEIVED, EXPERT_FFN), implementation), -plain(2, (RECEIVED, HIDDEN), implementation),
            -saved_by(("experts_down",), Place.EXPERTS, implementation), *not_yet))
    before = total(tokens, Max(*inside))
    beyond = [terms[name].symbol for name in ("stage.combined_results.experts_forward",) if name in terms]
    return product(_in_quantised_layers(implementation), Max(Integer(0), before - total(*behind.values(), *beyond)))


def expert_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest of three moments of the backward pass of experts, less what is freed by then.

    In the down projection gradients of its output, 16-bit and quantised, and of its input; in the activation gradients
    of its result and of its input; in the up projection the latter, 16-bit and quantised, and gradients of its input.
    Where the activation is weighted apart, the product makes more than the activation.
    """
    received, each, precision = (RECEIVED,), (EXPERTS,), implementation.choices["router_precision"]
    gated = implementation.choices["mlp"] in GATED
    features, scales = (EXPERT_GATE_UP, 2) if gated else (EXPERT_FFN, 1)
    tokens, inner, of_input = (
        plain(2, (RECEIVED, width), implementation) for width in (HIDDEN, EXPERT_FFN, features))
    weights = plain({"fp32": 4, "bf16": 2}[precision], received, implementation)
    down = total(tokens, inner,
                 quantised(received, HIDDEN, (1, HIDDEN_SCALES), implementation, tensors=each))
    of_down = saved_by(("experts_down",), Place.EXPERTS, implementation)
    activation = total(inner, of_input, weights, -of_down)
    if _is_weighted_apart(implementation.choices):
        summed = weights if precision == "bf16" else Integer(0)
        apart = plain(PRODUCT_GRADIENTS[precision], (RECEIVED, EXPERT_FFN), implementation)
        activation = total(apart, summed, -of_down)
    of_activation = saved_by(("experts_activation", "experts_product"), Place.EXPERTS, implementation)
    up = total(tokens, of_input, weights, -of_down, -of_activation,
               quantised(received, features, (scales, EXPERT_FFN_SCALES), implementation, tensors=each))
    return product(_in_quantised_layers(implementation), Max(down, activation, up))
