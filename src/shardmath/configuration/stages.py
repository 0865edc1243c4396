"""An explicit list of layers for every pipeline stage: what each rank then holds, from a walk of its schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.configuration.choosing import has_own_pipeline
from shardmath.errors import COMPARED, InputError
from shardmath.generated.definitions import num_microbatches
from shardmath.input.parameters import checked

#: Stages between first and last that can take longest, and the parameters of all that can.
_BETWEEN = ("longest_stage", "second_longest", "third_longest")
_OF_LONGEST = (*(f"{name}_layers" for name in _BETWEEN),
               *(f"{name}_experts" for name in ("first_stage", "last_stage", *_BETWEEN)))

#: Symbols that a list gives instead of a formula; any legal value serves to count a single layer.
ANY = dict.fromkeys((
    "stage_layers", *_OF_LONGEST, "in_flight", "in_flight_first", "in_flight_last", "in_flight_loss",
    "dense_layers", "expert_layers", "held_dense_layers", "held_expert_layers", "held_layer_inputs",
), 1)

#: Forward passes of a step on all stages, which a walk takes one by one: some seconds.
_ACTIONS = 2**20


def parsed(text: str) -> tuple[int, ...]:
    """Return layers of every stage in the order of the model, from numbers with commas between them.

    Raises InputError for anything else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 30 for part in parts):
        meant = ",".join(re.findall(r"\d+", text[:COMPARED])) or "4,5,5,4"
        raise InputError("pipeline_layout", text, "must be numbers of layers with commas between them", meant)
    return tuple(int(part) for part in parts)


def listed(evaluator: Evaluator, values: Mapping[str, int], layers: Sequence[int]) -> list[dict[str, int]]:
    """Return the inputs of every rank that follow from ``layers``, one number for each stage of the model.

    A rank has ``virtual_pipeline`` stages. Raises InputError if there are not as many numbers as stages, or
    they do not add up to the layers of the model.
    """
    p, V = values["pipeline_parallel"], values["virtual_pipeline"]
    _refuse_other_sums(values, layers, p * V)
    from shardmath.symbolic.parallel.walk import stage

    schedule, m = evaluator.choices["schedule"], num_microbatches(**values)
    if m * p * V > _ACTIONS:
        rule = f"must have at most {_ACTIONS} passes of a step in all its stages, to be walked through, not {m * p * V}"
        raise InputError("pipeline_layout", ",".join(map(str, layers)), rule)
    starts, experts = [0, *accumulate(layers)], experts_before(values)
    cost = costs(evaluator, values)
    ranks, both = [], []
    for rank in range(p):
        stages = [stage(schedule, p, rank, chunk) for chunk in range(V)]
        expert = [experts[starts[i + 1]] - experts[starts[i]] for i in stages]
        dense = [layers[i] - of_experts for i, of_experts in zip(stages, expert, strict=True)]
        ranks.append(on_rank(evaluator, values, rank, dense, expert, cost))
        both.append((sum(dense), sum(expert)))
    between = longest(both[1:-1])
    if len(between) > len(_BETWEEN):
        rule = (f"must have at most {len(_BETWEEN)} ranks between first and last of which no other has as many layers"
                f" of both kinds, not {len(between)}: not counted yet")
        raise InputError("pipeline_layout", ",".join(map(str, layers)), rule)
    known = dict.fromkeys(_OF_LONGEST, 0)
    for name, (plain, routed) in zip(("first_stage", "last_stage", *_BETWEEN), (both[0], both[-1], *between),
                                     strict=False):
        known |= {f"{name}_layers": plain + routed, f"{name}_experts": routed}
    return [{**rank, **known} for rank in ranks]


def longest(stages: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return layers of both kinds of those stages that can take longest: no other has as many of both kinds."""
    return sorted(own for own in set(stages) if not any(
        other != own and other[0] >= own[0] and other[1] >= own[1] for other in stages))


def on_rank(
    evaluator: Evaluator, values: Mapping[str, int], rank: int, dense: Sequence[int], expert: Sequence[int],
    cost: Mapping[str, int],
) -> dict[str, int]:
    """Return the inputs of a rank that follow from the layers of each of its chunks, and from what one layer costs."""
    from shardmath.symbolic.parallel.walk import held_at_peak, stage

    p, V, m = values["pipeline_parallel"], values["virtual_pipeline"], num_microbatches(**values)
    schedule, group = evaluator.choices["schedule"], values["microbatch_group"] or p
    if has_own_pipeline(evaluator.implementation):  # all micro-batches in equal rounds of p or more
        group = m // max(1, m // p)
    places = [stage(schedule, p, rank, chunk) for chunk in range(V)]
    on_last = p * V - 1 in places
    counts = {
        "dense": dense, "expert": expert, "first": [int(0 in places), *[0] * (V - 1)],
        "last": [*[0] * (V - 1), int(on_last)],
    }
    moment = held_at_peak(schedule, p, m, V, group, rank, counts, cost)
    peak = moment.in_flight
    return {
        **of_layers(values, sum(dense), sum(expert), peak["dense"], peak["expert"],
                    further_layers(evaluator, values) if on_last else (0, 0)),
        "in_flight": _in_flight(schedule, p, m, V, group, rank), "in_flight_first": peak["first"],
        "in_flight_last": peak["last"] if on_last else 1,  # formulas of one micro-batch divide by it
        "in_flight_loss": peak["last"] - moment.awaiting["last"],
    }


def of_layers(
    values: Mapping[str, int], dense: Any, expert: Any, dense_held: Any, expert_held: Any, further: tuple[int, int],
) -> dict[str, Any]:
    """Return a rank's inputs for numbers of layers of both kinds, or columns, and of those that predict further.

    Those ``held`` are layers times micro-batches in flight.
    """
    kept, (more, more_experts) = not values["recompute_full"], further
    return {
        "stage_layers": dense + expert, "dense_layers": dense + more, "expert_layers": expert + more_experts,
        "held_dense_layers": kept * (dense_held + more), "held_expert_layers": kept * (expert_held + more_experts),
        "held_layer_inputs": (not kept) * (dense_held + expert_held + more + more_experts),
    }


def further_layers(evaluator: Evaluator, values: Mapping[str, int]) -> tuple[int, int]:
    """Return the layers of further predictions of the last rank, with a dense MLP and with experts."""
    count = values["num_mtp_layers"]
    return (count, 0) if evaluator.choices["predictions"] == "dense" else (0, count)


def _in_flight(schedule: str, p: int, m: int, V: int, group: int, rank: int) -> int:
    from shardmath.symbolic.parallel.walk import held

    return held(schedule, p, m, V, group, rank, [1] * V)


def costs(evaluator: Evaluator, values: Mapping[str, int]) -> dict[str, int]:
    """Return bytes that one layer of each kind holds for a micro-batch, and the embedding, and head and loss."""
    numbers = terms_at(evaluator.terms, {**ANY, **values, "pipeline_rank": 0})
    whole = numbers["layer_input.saved"] if values["recompute_full"] else None
    return {
        "dense": int(numbers["layer.saved"] if whole is None else whole),
        "expert": int(numbers.get("expert_layer.saved", 0) if whole is None else whole),
        "first": int(sum(numbers.get(f"embedding.{kind}", 0) for kind in ("saved", "input"))),
        "last": int(sum(numbers.get(f"{part}.saved", 0) for part in ("final_norm", "head", "loss"))),
    }


def experts_before(values: Mapping[str, int]) -> tuple[int, ...]:
    """Return layers with experts among the first n ones of the model, for every n from 0 on."""
    if not values["num_experts"]:
        return (0,) * (values["num_layers"] + 1)
    return _before(values["num_layers"], values["first_dense_layers"], values["moe_layer_step"])


@cache
def _before(layers: int, first_dense_layers: int, moe_layer_step: int) -> tuple[int, ...]:
    from shardmath.symbolic.parallel.pipeline import experts_among

    return tuple(experts_among(0, layer, first_dense_layers, moe_layer_step) for layer in range(layers + 1))


def _refuse_other_sums(values: Mapping[str, int], layers: Sequence[int], stages: int) -> None:
    text = ",".join(map(str, layers))
    for count in layers:
        if count != 0:
            checked("num_layers", count)
    if len(layers) != stages:
        rule = f"must have {stages} numbers: pipeline_parallel * virtual_pipeline stages"
        raise InputError("pipeline_layout", text, rule)
    if sum(layers) != values["num_layers"]:
        raise InputError("pipeline_layout", text, f"must add up to num_layers = {values['num_layers']}",
                         f"a sum of {values['num_layers']} instead of {sum(layers)}")
