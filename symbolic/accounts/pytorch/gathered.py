"""FSDP2: parameters that are gathered at the moments of a step, and the buffers that carry them and their gradients.

A unit is what is gathered at once: a layer, or what lies outside of the layers. An all-gather fills a buffer
from which the parameters are copied out; in the forward pass the buffer stays until the next unit has been
copied out, in the backward pass the next unit's is filled while a unit works. The input of a reduce-scatter
stays until the next one. All that is gathered is padded as its shards are.

Buffers of all-gathers and outputs of reduce-scatters lie in memory of streams of their own (``torch_streams``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sympy import Eq, Expr, Ge, Gt, Integer, Symbol

from ...choices import BY_NAME, ENDS, TRANSFORMERS_ROUTERS
from ...components.tables import SOME_WHOLE, SOME_WINDOWED
from ...dimension import Dimension
from ...dimensions import BATCH, HEAD_DIM, HIDDEN, HIDDEN_FEATURES, KV_FEATURES, RANK, SEQUENCE, SEQUENCE_SP
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import IN_LAYER, Lifetime, Place, Role
from ...parallel.data import are_apart, bytes_per_element, gradients_stay, states
from ...parallel.pipeline import LAYERS, instances
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..rows import components_of, kept_rows, local_shape
from ..units import is_layer_input

D, c, R, w, m, Lr, Ldr, Ler, rfull, rn, tied, wstep = symbols("D c R w m Lr Ldr Ler rfull rn tied wstep")

#: Components whose saved tensors are tables of the rotary embedding.
_TABLES = ("tables", "latent_shared_tables")
#: Bytes of a gathered element: parameters are computed with in bf16.
COMPUTE = Integer(2)
#: 1 if earlier micro-batches of the step have left gradients.
ACCUMULATED = Iverson(m > 1)
#: 1 if a reduced gradient is memory of its own: not if it is added to that of earlier micro-batches and freed; with
#: replicas, the all-reduce over them holds it until the end of the backward pass all the same.
OWN_MEMORY = 1 - ACCUMULATED * Iverson(Eq(R, 1))
#: Ranks that share the parameters.
SHARDS = D * c / R
#: 1 where parameters are gathered: one rank alone copies each of them, without a buffer.
SEVERAL = Iverson(Gt(D * c, R))
#: Factors of what lies in memory of the streams that gather and that reduce: 1, or 0 for the default stream alone.
GATHERING, REDUCING = Symbol("gathering", nonnegative=True), Symbol("reducing", nonnegative=True)
#: 1 if every n-th layer has no window.
ALTERNATING = Iverson(Ge(wstep, 2))
#: 1 where parameters are gathered into a buffer.
BUFFERED = GATHERING * SEVERAL


def per_layer(terms: TermSet, kind: str) -> Expr:
    """Return a sum over one layer: the larger one where there are two kinds of layers."""
    return Max(*(sum_of(terms, layer, kind) for layer in LAYERS if f"{layer}.{kind}" in terms))


def outside(terms: TermSet, implementation: Implementation, kind: str, *places: Place) -> Expr:
    """Return a sum over the components of rank r that are not in its layers; with ``places``, over those there."""
    return sum((
        instances(part.place, implementation.choices) * terms[f"{part.name}.{kind}"].symbol
        for part in components_of(implementation)
        if part.place not in IN_LAYER and f"{part.name}.{kind}" in terms and (not places or part.place in places)
    ), Integer(0))


def kinds_of_layers(terms: TermSet) -> tuple[tuple[str, Expr], ...]:
    """Return the kinds of layers with their numbers, as a backward pass meets them: those with experts before dense."""
    if "expert_layer.saved" not in terms:
        return (("layer", Lr),)
    return (("expert_layer", Ler), ("layer", Ldr))


def sum_of(terms: TermSet, layer: str, kind: str) -> Expr:
    """Return a sum over one layer of a kind, its experts included."""
    return sum((terms[f"{layer}.{part}"].symbol for part in (kind, f"expert_{kind}") if f"{layer}.{part}" in terms),
               Integer(0))


def gathered_of(terms: TermSet, layer: str) -> Expr:
    """Return the 16-bit elements that are gathered of one layer, or of all with ``stage``, frozen ones too."""
    return sum_of(terms, layer, "aligned") + sum_of(terms, layer, "frozen_aligned")


def gathered_outside(terms: TermSet, implementation: Implementation, *places: Place) -> Expr:
    """Return the same of the components of rank r that are not in its layers; with ``places``, of those there."""
    return sum((outside(terms, implementation, kind, *places) for kind in ("aligned", "frozen_aligned")), Integer(0))


def freed_with_a_layer(terms: TermSet, implementation: Implementation, layer: str = "") -> Expr:
    """Saved tensors that exist no more when a layer's backward pass is over; without a kind of the larger one."""
    whole = sum_of(terms, layer, "saved") if layer else per_layer(terms, "saved")
    inputs = sum((
        terms[f"{part.name}.saved"].symbol for part in components_of(implementation)
        if is_layer_input(part) and f"{part.name}.saved" in terms
    ), Integer(0))
    share = Integer(1) / rn if implementation.choices["recompute_method"] == "every" else Integer(1)
    return whole - rfull * share * (whole - inputs)


def held_by_whole_layers(implementation: Implementation) -> Expr:
    """Return masks and tables that recomputed layers without windows hold beside a first layer that has one."""
    held = (row.expression for row in kept_rows(implementation)
            if row.tensor.lifetime is Lifetime.SHARED and row.tensor.when.has(SOME_WHOLE))
    return rfull * SOME_WINDOWED * total(*held)


def gradient_bytes(choices: Mapping[str, str]) -> Expr:
    """Return bytes of one element of a gradient that the optimizer gets."""
    return bytes_per_element(states(choices), Role.GRADIENT)


def _all(terms: TermSet) -> Expr:
    return COMPUTE * gathered_of(terms, "stage")


def _layer(terms: TermSet) -> Expr:
    """Return the last layer."""
    return COMPUTE * gathered_of(terms, kinds_of_layers(terms)[0][0])


def _root(terms: TermSet, implementation: Implementation) -> Expr:
    return COMPUTE * gathered_outside(terms, implementation)


def _last(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the unit of final norm and head, and of the embedding where it is in it."""
    joined = 1 - are_apart(implementation.choices)
    embedding = joined * COMPUTE * gathered_outside(terms, implementation, Place.FIRST)
    return _norm_and_head(terms, implementation) + embedding


def _residual() -> Expr:
    """Return the rank's share of hidden states of 16 bits, or of their gradient."""
    return product(COMPUTE, *local_shape((SEQUENCE_SP, BATCH, HIDDEN)))


def _norm_and_head(terms: TermSet, implementation: Implementation) -> Expr:
    return COMPUTE * gathered_outside(terms, implementation, Place.LAST, Place.MTP)


def _embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the unit of the embedding alone, if that is one."""
    return are_apart(implementation.choices) * COMPUTE * gathered_outside(terms, implementation, Place.FIRST)


def _first(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the unit that a forward pass begins with: the embedding, or all that lies outside of the layers."""
    return _embedding(terms, implementation) + _with_layers(terms, implementation)


def _with_layers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return all that lies outside of the layers, if it is one unit, which is gathered beside each of them."""
    return (1 - are_apart(implementation.choices)) * _root(terms, implementation)


def _buffer(terms: TermSet, implementation: Implementation) -> Expr:
    return BUFFERED * _layer(terms)


def _last_buffer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the buffer of the last unit, which stays until the model is done, of which the loss is a part.

    It is that of the last layer where final norm and head are gathered with the embedding.
    """
    apart = are_apart(implementation.choices)
    return BUFFERED * (apart * _norm_and_head(terms, implementation) + (1 - apart) * _layer(terms))


def _everything(terms: TermSet, implementation: Implementation) -> Expr:
    return _all(terms)


def _root_twice(terms: TermSet, implementation: Implementation) -> Expr:
    return (1 + BUFFERED) * _root(terms, implementation)


def _prefetched(terms: TermSet, implementation: Implementation) -> Expr:
    """Buffer of the last layer, which is gathered when the head's backward pass begins."""
    if implementation.choices["reshard"] == "never":
        return Integer(0)
    return BUFFERED * Iverson(Ge(Lr, 1)) * _layer(terms)


def _head_gathered(terms: TermSet, implementation: Implementation) -> Expr:
    return _last(terms, implementation) + _prefetched(terms, implementation)


def _for_the_norm(terms: TermSet, implementation: Implementation) -> Expr:
    """Norm and head are one unit: gradients are reduced after the norm's backward pass, which needs its saved input.

    The head's gradient is freed when the output of the reduce-scatter is there, the norm's before; on one rank both
    are freed before. That of a matrix which is the embedding too waits for the embedding's.
    """
    apart = are_apart(implementation.choices)
    unit = outside(terms, implementation, "aligned", Place.LAST, Place.MTP)
    made = COMPUTE * (outside(terms, implementation, "parameters", Place.LAST, Place.MTP)
                      + (1 - apart) * outside(terms, implementation, "parameters", Place.FIRST))
    freed_before = SEVERAL * COMPUTE * terms["final_norm.parameters"].symbol + (1 - SEVERAL) * made
    own = _last(terms, implementation)
    others = _all(terms) - own if implementation.choices["reshard"] == "never" else Integer(0)
    residual = _residual()
    saved = terms["final_norm.saved"].symbol * instances(Place.LAST, implementation.choices)
    reduced = _reduced(implementation.choices, unit)
    return others + _prefetched(terms, implementation) + made + Max(
        own + saved + residual, apart * (w * unit + Max(Integer(0), reduced - freed_before)),
    )


def reduced_bytes(reduced: Expr, kept: Expr) -> Expr:
    """Return bytes of an element of a reduce-scatter's output, and of the kept gradient beside it if that is cast."""
    return reduced + kept * (1 - Iverson(Eq(reduced, kept)))


def _reduced(choices: Mapping[str, str], elements: Expr) -> Expr:
    """Return the output of a reduce-scatter with the gradient that it is cast to."""
    return REDUCING * reduced_bytes(w, gradient_bytes(choices)) * elements / SHARDS


def reduced_ends(terms: TermSet, implementation: Implementation) -> Expr:
    """Return elements of reduced gradients of final norm and head with memory of their own, if they are a unit."""
    apart = are_apart(implementation.choices)
    return OWN_MEMORY * apart * outside(terms, implementation, "aligned", Place.LAST, Place.MTP)


@dataclass(frozen=True)
class _Kind:
    """Layers of a kind as the backward pass meets them, in bytes: of one, of what others have left, and of what comes.

    ``own``: a layer's parameters. ``reducing``: its gradients that are reduced. ``change``: what it has left once it is
    passed, less what it has freed. ``passed``: the same of all kinds before. ``behind``: what is reduced when the first
    of this kind is at work. ``ahead``: what is gathered while the last of this kind is. ``still``: all that is gathered
    when the first of this kind is at work, if nothing is freed after the forward pass.
    """

    number: Expr
    own: Expr
    reducing: Expr
    change: Expr
    passed: Expr
    behind: Expr
    ahead: Expr
    still: Expr


def _kinds(terms: TermSet, implementation: Implementation) -> list[_Kind]:
    choices, kinds = implementation.choices, kinds_of_layers(terms)
    apart = are_apart(choices)
    kept = _kept(choices)
    behind = apart * w * outside(terms, implementation, "aligned", Place.LAST, Place.MTP)
    passed, still = Integer(0), _all(terms) - apart * _norm_and_head(terms, implementation)
    result = []
    for place, (layer, number) in enumerate(kinds):
        elements = sum_of(terms, layer, "aligned")
        own, reducing = COMPUTE * gathered_of(terms, layer), w * elements
        change = kept * OWN_MEMORY * elements / SHARDS - freed_with_a_layer(terms, implementation, layer)
        ahead = _embedding(terms, implementation)
        for later, count in reversed(kinds[place + 1:]):
            ahead = if_any(count, COMPUTE * gathered_of(terms, later), ahead)
        result.append(_Kind(number, own, reducing, change, passed, behind, ahead, still))
        passed, still, behind = passed + number * change, still - number * own, if_any(number, reducing, behind)
    return result


def _kept(choices: Mapping[str, str]) -> Expr:
    """Return bytes of one element of a reduced gradient that stays until the optimizer step."""
    return REDUCING * Integer(gradients_stay(choices)) * gradient_bytes(choices)


def if_any(number: Expr, some: Expr, none: Expr) -> Expr:
    """Return one of two expressions, the first one where a number is not 0."""
    there = Iverson(Ge(number, 1))
    return there * some + (1 - there) * none


def passed_layers(terms: TermSet, implementation: Implementation) -> tuple[Expr, ...]:
    """Return gathered layers and reduced gradients, less what is freed, when a layer of each kind goes backward.

    Of the layers of a kind, the last two and the first two can be the peak's: what is between changes evenly.
    With every layer passed, its saved tensors are gone and its reduced gradients are there; with the last one without a
    window also what such layers hold.
    """
    held, reduced = _held(terms, implementation)
    gone = held_by_whole_layers(implementation)

    def moment(kind: _Kind) -> Expr:
        def at(before: Expr, next_is_own: Expr, reducing: Expr) -> Expr:
            gathered = kind.still - before * kind.own
            if implementation.choices["reshard"] != "never":
                gathered = held + kind.own + BUFFERED * (next_is_own * kind.own + (1 - next_is_own) * kind.ahead)
            return gathered + reducing + reduced + before * kind.change

        none, first, number = Integer(0), Integer(1), kind.number
        last_whole = ALTERNATING * Iverson(Gt(number, wstep)) * at(number - wstep, first, kind.reducing)
        return kind.passed + Max(
            at(none, Iverson(Ge(number, 2)), kind.behind),
            Iverson(Ge(number, 2)) * at(first, Iverson(Ge(number, 3)), kind.reducing),
            Iverson(Ge(number, 3)) * (at(number - 2, first, kind.reducing) - Iverson(Gt(wstep, 2)) * gone),
            Iverson(Ge(number, 2)) * (at(number - 1, none, kind.reducing) - gone),
            *([] if gone == 0 else [last_whole]),
        )
    return tuple(map(moment, _kinds(terms, implementation)))


def copied_out(terms: TermSet, implementation: Implementation) -> tuple[Expr, ...]:
    """Return the same when the first layer of each kind is copied out of its buffer, and nothing is gathered ahead.

    Parameters that stay gathered are not. The layer's own backward pass has not begun: the gradient of its output is
    there.
    """
    if implementation.choices["reshard"] == "never":
        return tuple(Integer(0) for _ in kinds_of_layers(terms))
    held, reduced = _held(terms, implementation)
    gone = held_by_whole_layers(implementation)
    gradient = _residual()

    def moment(kind: _Kind) -> Expr:
        several = Iverson(Ge(kind.number, 2))
        reducing = several * kind.reducing + (1 - several) * kind.behind
        return (held + (1 + BUFFERED) * kind.own + gradient + reducing + reduced + kind.passed
                + several * ((kind.number - 1) * kind.change - gone))
    return tuple(map(moment, _kinds(terms, implementation)))


def gathered_ahead(terms: TermSet, implementation: Implementation) -> tuple[Expr, ...]:
    """Return the same when the next layer is gathered behind one of each kind: its share is cast for that.

    The layer's own backward pass has not begun: the gradient of its output is there. What is between the first two
    layers and the last two of a kind changes evenly.
    """
    if implementation.choices["reshard"] == "never":
        return tuple(Integer(0) for _ in kinds_of_layers(terms))
    held, reduced = _held(terms, implementation)
    gradient = _residual()

    def moment(kind: _Kind) -> Expr:
        def at(before: Expr, ahead: Expr, reducing: Expr) -> Expr:
            return before * kind.change + reducing + BUFFERED * (ahead + ahead / SHARDS)
        none, first, number = Integer(0), Integer(1), kind.number
        several, more = Iverson(Ge(number, 2)), Iverson(Ge(number, 3))
        return (held + kind.own + gradient + reduced + kind.passed + Max(
            at(none, if_any(number - 1, kind.own, kind.ahead), kind.behind),
            several * at(first, if_any(number - 2, kind.own, kind.ahead), kind.reducing),
            more * at(number - 2, kind.own, kind.reducing), more * at(number - 1, kind.ahead, kind.reducing)))
    return tuple(map(moment, _kinds(terms, implementation)))


def while_reduced(terms: TermSet, implementation: Implementation) -> tuple[Expr, ...]:
    """Return the same while gradients of a layer of each kind are reduced: its saved tensors and parameters are gone.

    They are there beside the input of their reduction, then the last of them beside that and its output. The gradient
    of the layer's input is there, and what is gathered ahead. What is between the first layers and the last of a kind
    changes evenly. The first layer of the model has freed the tables of positions.
    """
    choices = implementation.choices
    held, reduced = _held(terms, implementation)
    gradient = _residual()
    kinds, layers = _kinds(terms, implementation), [layer for layer, _ in kinds_of_layers(terms)]
    tables = _saved(terms, *_TABLES)

    def moment(kind: _Kind, layer: str, others: Expr) -> Expr:
        made = COMPUTE * sum_of(terms, layer, "parameters")
        saved = freed_with_a_layer(terms, implementation, layer)

        def at(before: Expr, next_is_own: Expr) -> Expr:
            gathered = kind.still - (before + 1) * kind.own
            if choices["reshard"] != "never":
                gathered = held + BUFFERED * (next_is_own * kind.own + (1 - next_is_own) * kind.ahead)
            return gathered + before * kind.change

        none, first, number = Integer(0), Integer(1), kind.number
        several = Iverson(Ge(number, 2))
        last = at(number - 1, none) - (1 - Iverson(Ge(others, 1))) * tables
        largest = last + several * Max(Integer(0), at(none, first) - last, at(number - 2, first) - last)
        output = _reduced(choices, sum_of(terms, layer, "aligned"))
        return (kind.passed + reduced + gradient - saved + kind.reducing + largest
                + Max(made, SEVERAL * product(COMPUTE, *local_shape(_last_trained(choices))) + output))
    return tuple(moment(kind, layer, sum((later.number for later in kinds[place:]), Integer(0)))
                 for place, (kind, layer) in enumerate(zip(kinds, layers, strict=True), start=1))


def _last_trained(choices: Mapping[str, str]) -> tuple[Dimension, ...]:
    """Return the shape of the last trained parameter of a layer: a norm's weight, or the second matrix of an adapter.

    Norms stand behind attention and MLP in the modules of a layer.
    """
    if choices["adapters"] == "none":
        return (HIDDEN,)
    return (HIDDEN_FEATURES if choices["adapters"] in ("attention", "all_linear") else KV_FEATURES, RANK)


def _saved(terms: TermSet, *components: str) -> Expr:
    """Return what components of a stage save, as far as they are there."""
    names = (f"stage.{name}.activation" for name in components)
    return total(*(terms[name].symbol for name in names if name in terms))


def _held(terms: TermSet, implementation: Implementation) -> tuple[Expr, Expr]:
    """Return what is gathered beside layers, and reduced gradients of the unit of final norm and head."""
    reduced = _kept(implementation.choices) * reduced_ends(terms, implementation) / SHARDS
    return _with_layers(terms, implementation), reduced


def _before_the_embedding(terms: TermSet, implementation: Implementation) -> Expr:
    return _first(terms, implementation) + w * _of_first_layer(terms, lambda layer: sum_of(terms, layer, "aligned"))


def _of_first_layer(terms: TermSet, elements: Callable[[str], Expr]) -> Expr:
    """Return elements of the first layer, which ``elements`` has of a layer of each kind."""
    first = Integer(0)
    for layer, number in kinds_of_layers(terms):
        first = if_any(number, elements(layer), first)
    return first


def gathered_with_the_first_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what is there when the first layer is gathered: what is saved, its input, gradients of micro-batches.

    It is copied out of its buffer while that of the unit before is there. The input is the output of the embedding,
    which recompute keeps, and which is saved where it is frozen.
    """
    choices = implementation.choices
    before = _first(terms, implementation)
    held = before if choices["reshard"] == "never" else _with_layers(terms, implementation)
    saved = _saved(terms, "embedding", *_TABLES)
    first = COMPUTE * _of_first_layer(terms, lambda layer: gathered_of(terms, layer))
    gathered = held + BUFFERED * before + (1 + BUFFERED) * first
    positions = Integer(0) if choices["router"] == "torchtitan" else (1 - rfull) * _positions()
    own = Integer(1) if choices["adapters"] == "none" else rfull
    return gathered + saved + positions + _of_earlier(terms) + own * _residual()


def held_by_model(choices: Mapping[str, str]) -> Expr:
    """Return what a model of Transformers holds in its forward pass: numbers of positions, and the first layer's input.

    With recompute both are saved anyway, and the input is where the embedding is frozen.
    """
    if choices["router"] == "torchtitan":
        return Integer(0)
    return (1 - rfull) * (_positions() + (_residual() if choices["adapters"] == "none" else Integer(0)))


def _positions() -> Expr:
    return product(Integer(8), *local_shape((SEQUENCE,)))


def _of_earlier(terms: TermSet) -> Expr:
    """Return gradients of earlier micro-batches."""
    return REDUCING * ACCUMULATED * terms["stage.gradient"].symbol


def gathered_in_the_last_layer(terms: TermSet, implementation: Implementation, buffers: int = 1) -> Expr:
    """Return what is gathered in the forward pass of the last layer, a number of its buffer, and earlier gradients."""
    own = _layer(terms)
    if implementation.choices["reshard"] == "never":
        gathered = _all(terms) - are_apart(implementation.choices) * _norm_and_head(terms, implementation)
    else:
        gathered = own + _with_layers(terms, implementation)
    return gathered + buffers * BUFFERED * own + _of_earlier(terms)


def gathered_at_the_end(terms: TermSet, implementation: Implementation) -> tuple[Expr, Expr]:
    """Return what is gathered when final norm and head are copied out of their buffer, and when the norm computes.

    All parameters stay gathered; the buffer of the last layer is there until the last unit has been copied out.
    """
    beside, last = _of_earlier(terms), _last_buffer(terms, implementation)
    return (_all(terms) + _buffer(terms, implementation)
            + are_apart(implementation.choices) * BUFFERED * _norm_and_head(terms, implementation) + beside,
            _all(terms) + last + beside)


def _copied_out_in_forward_pass(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the same when the last layer with experts, or the unit behind it, is copied out of its buffer.

    The buffer of the unit before is there, what is saved by then, and 16-bit tables that the layer is called with.
    """
    layer = COMPUTE * sum_of(terms, "expert_layer", "aligned")
    before = if_any(Ldr, COMPUTE * sum_of(terms, "layer", "aligned"), _first(terms, implementation))
    several = Iverson(Ge(Ler, 2))
    before = several * layer + (1 - several) * before
    residual = _residual()
    tables = Integer(0)
    if implementation.choices["rope"] == "cast":
        tables = 2 * product(COMPUTE, *local_shape((SEQUENCE, HEAD_DIM)))
    saved = terms["stage.inner_activations"].symbol
    own = (1 - rfull) * (residual + tables - sum_of(terms, "expert_layer", "saved"))
    at_layer = own + BUFFERED * before + gathered_in_the_last_layer(terms, implementation)
    last, apart = _last(terms, implementation), are_apart(implementation.choices)
    others = _all(terms) - last if implementation.choices["reshard"] == "never" else Integer(0)
    at_end = residual + others + BUFFERED * layer + (1 + apart * BUFFERED) * last + _of_earlier(terms)
    return Iverson(Ge(Ler, 1)) * (saved + Max(at_layer, at_end))


def _last_reduced(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the input of the last reduce-scatter, then its output; the last gradient of the unit stays to the end.

    One rank alone frees it before.
    """
    joined = 1 - are_apart(implementation.choices)
    elements, embedding = (outside(terms, implementation, kind, Place.FIRST) for kind in ("aligned", "parameters"))
    elements += joined * outside(terms, implementation, "aligned", Place.LAST, Place.MTP)
    embedding *= COMPUTE
    others = joined * COMPUTE * outside(terms, implementation, "parameters", Place.LAST, Place.MTP)
    is_first = implementation.choices["units"] == "root"  # of the unit's parameters
    held = (1 - tied) * embedding if is_first else embedding
    return w * elements + Max(embedding + others, SEVERAL * held + _reduced(implementation.choices, elements))


_FSDP: Any = {"data_parallel": ("fsdp",), "pipeline": ("own",)}
_ROOT: Any = {**_FSDP, "units": ("root",)}
_ENDS: Any = {**_FSDP, "units": ENDS}
_DENSE: Any = {"layers": ("dense",)}
#: Of Transformers, which its routers tell, every operation of the final norm is known.
_OF_TRANSFORMERS: Any = {"router": TRANSFORMERS_ROUTERS}
#: Where layers are units of FSDP2, and all other steps.
LAYER_UNITS: Any = _FSDP
NOT_UNITS: Any = (
    {"pipeline": ("torch",)}, {"pipeline": ("own",), "data_parallel": BY_NAME["data_parallel"].without("fsdp")})
_FREED: Any = {"reshard": ("always", "default")}
_NEVER: Any = {**_FSDP, "reshard": ("never",)}
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_NORM = ("norm_backward",)
_HEAD = ("head_backward", *_NORM)

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    ("gathered", "Gathered parameters", (*_FORWARD, *_BACKWARD, *_HEAD), _root, {**_ROOT, **_FREED}),
    ("gathered", "Gathered parameters", ("after_forward", *_FORWARD, *_BACKWARD), _last,
     {**_ENDS, "reshard": ("default",)}),
    ("gathered", "Gathered parameters", ("after_forward", *_FORWARD, *_BACKWARD, "head_backward"), _everything, _NEVER),
    ("gathered_at_norm", "Gathered parameters", _NORM, _everything, {**_NEVER, **_OF_TRANSFORMERS}),
    ("gathered_at_norm", "Gathered parameters, and the last layer's buffer", _NORM, _head_gathered,
     {**_ENDS, **_FREED, **_OF_TRANSFORMERS}),
    ("gather_buffer", "Buffer of the last layer's parameters", (*_FORWARD, *_BACKWARD, *_HEAD), _buffer,
     {**_ROOT, **_FREED}),
    ("gather_buffer", "Buffer of the last layer's parameters", _FORWARD, _buffer, {**_ROOT, "reshard": ("never",)}),
    ("gather_buffer", "Buffer of the last unit's parameters", _FORWARD, _last_buffer,
     {**_ENDS, "gathered_input": ("dropped",)}),
    *(("gathered_forward", "Gathered parameters, their buffers, and what is saved", ("layer_gathered",),
       gathered_with_the_first_layer, {**options, "adapters": ("none",)}) for options in (
           {**_ROOT, "layers": ("experts",)}, {**_FSDP, **_DENSE, **_FREED})),
    ("gathered_last", "Gathered parameters, their buffers, and what is saved", ("layer_gathered",),
     _copied_out_in_forward_pass, {**_ENDS, "layers": ("experts",)}),
    ("gathered_after", "Gathered parameters", ("after_forward",), _root, {**_ROOT, "reshard": ("default",)}),
    ("gathered_start", "Gathered parameters and their buffer", ("backward_start",), _root_twice,
     {**_ROOT, "reshard": ("always",)}),
    ("gathered_head", "Gathered parameters, and the last layer's buffer", ("head_backward",), _head_gathered,
     {**_ENDS, **_FREED}),
    ("gathered_norm", "Gathered parameters, the norm's input and gradients of norm and head", ("head_reduce",),
     _for_the_norm, _ENDS),
    ("gathered_embedding", "Gathered parameters, and gradients of the first layer", ("embedding_backward",),
     _before_the_embedding, _FSDP),
    ("reduced_last", "Gradients outside of the layers while they are reduced", ("last_reduce",), _last_reduced, _FSDP),
)
