"""The symbols that can be asked for: which way is better, and what goes along with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardmath.configuration.job import Job, filling_batch
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import limits, long_name, nearest_parameter

#: Default symbols, in the order of the report.
USUAL = (
    "micro_batch_size", "seq_length", "num_layers", "hidden_size", "num_gpus", "model_parallel", "gpu_memory",
)
#: Degrees of parallelism that change which formulas hold, or what follows from the rest: their few legal values are
#: tried one by one.
DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
#: The product of two of them.
MODEL_PARALLEL = "model_parallel"
MEMORY = "gpu_memory"
#: Symbols of which more only makes memory grow, or shape the model.
LARGEST = (
    "micro_batch_size", "seq_length", "num_layers", "hidden_size", "ffn_hidden_size", "vocab_size", "num_experts",
    "moe_topk", "moe_ffn_hidden_size", "shared_expert_ffn_hidden_size", "num_attention_heads", "head_dim",
    "num_mtp_layers", "expert_load_percent", "q_lora_rank", "kv_lora_rank",
)
SMALLEST = ("num_gpus", "data_parallel", *DEGREES, MODEL_PARALLEL, MEMORY)
#: Sizes that grow with the width of the model, and what else does where one of the two is kept.
_WIDTHS = ("ffn_hidden_size", "moe_ffn_hidden_size", "shared_expert_ffn_hidden_size", "q_lora_rank", "kv_lora_rank")
KEPT: Mapping[str, tuple[str, ...]] = {
    "head_dim": (*_WIDTHS, "num_attention_heads", "num_kv_heads"),
    "heads": (*_WIDTHS, "head_dim", "v_head_dim", "qk_rope_head_dim"),
    "all": (),
}


@dataclass(frozen=True)
class Solved:
    """Goal of one symbol: its largest or smallest value.

    ``name`` is the parameter in the formulas, from ``first`` to ``last``; ``multiples`` are parameters that go along,
    each with what ``name`` is multiplied with, and ``counted`` is what one of ``name`` means in the symbol asked for:
    so many GPUs for each data-parallel rank.
    """

    symbol: str
    name: str
    largest: bool
    first: int
    last: int
    multiples: Mapping[str, Fraction]
    counted: int = 1


def known_symbol(symbol: str) -> str:
    """Return the long name of a symbol or letter. Raises InputError for one that cannot be asked for."""
    known = (*LARGEST, *SMALLEST)
    name = long_name(symbol)
    if name not in known:
        raise InputError("solve", symbol, "must be a symbol that can be solved for", nearest_parameter(symbol, known))
    return name


def solved_for(symbol: str, job: Job, asked: Mapping[str, Any], keep: str) -> Solved:
    """Return how ``symbol`` is solved for in a job with the arguments ``asked``.

    ``keep`` says what stays where the hidden size changes: a key of KEPT. Raises InputError for a symbol that the
    formulas do not have.
    """
    name = "data_parallel" if symbol == "num_gpus" else symbol
    values = job.values
    if name not in job.evaluator.terms.INPUTS or not values[name]:
        rule = f"must be a symbol of the formulas: {job.model.name} with {job.evaluator.implementation} has none"
        raise InputError("solve", symbol, rule)
    if name in job.evaluator.fixed:
        raise InputError("solve", symbol, f"must not be solved for: {job.evaluator.implementation} has"
                         f" {name} = {job.evaluator.fixed[name]} and nothing else")
    multiples: dict[str, Fraction] = {}
    if name == "hidden_size":
        multiples = {other: Fraction(values[other], values[name]) for other in KEPT[keep] if values[other]}
    if name == "data_parallel":
        multiples["num_gpus"] = Fraction(values["num_gpus"], values[name])
    if name in ("data_parallel", "micro_batch_size") and asked.get("global_batch_size") is None:
        per = filling_batch({**values, name: 1}, job.evaluator.choices["schedule"])
        multiples["global_batch_size"] = Fraction(per)
    counted = int(multiples["num_gpus"]) if symbol == "num_gpus" else 1
    first, last = limits(name)
    last = min((last, *(int(limits(other)[1] / times) for other, times in multiples.items())))
    return Solved(symbol, name, symbol in LARGEST, first, last, multiples, counted)


def unit_of(symbol: str) -> str:
    """Return the unit of a symbol."""
    return "ranks" if symbol == MODEL_PARALLEL else str(PARAMETERS[symbol][1])
