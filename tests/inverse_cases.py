"""Random legal configurations asked backwards, and the same answers by looking at every legal value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from random import Random
from typing import Any

import numpy as np

from shardmath.commands.fit.symbols import KEPT
from shardmath.compiler.evaluators import Evaluator, find
from shardmath.compiler.inverses.posed import Question
from shardmath.files.cached import source_of
from shardmath.generated.definitions import DEFAULTS, PARAMETERS

#: Implementations with their architectures, by name.
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "megatron": ("megatron", {}), "huggingface": ("huggingface", {}), "torchtitan": ("torchtitan", {}),
    "nanotron": ("nanotron", {}), "megatron_experts": ("megatron", {"layers": "experts"}),
    "huggingface_experts": ("huggingface", {"layers": "experts"}),
}
LARGEST = ("micro_batch_size", "seq_length", "num_layers", "hidden_size", "ffn_hidden_size", "vocab_size")
EXPERTS = ("num_experts", "moe_ffn_hidden_size", "moe_topk")


@dataclass(frozen=True)
class Case:
    """A configuration, by parameter name, and what it is asked for: a value of ``name`` up to ``last``."""

    kind: str
    values: Mapping[str, int]
    name: str
    largest: bool
    multiples: Mapping[str, Fraction]
    last: int
    limit: int

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the configuration."""
        return evaluator_of(self.kind)

    def question(self) -> Question:
        """The case as the mathematics takes it."""
        return Question(source_of(self.evaluator.terms), "peak", self.values, self.name, 1, self.last, self.multiples)

    def at(self, value: int) -> dict[str, int] | None:
        """The configuration with another value; None if what goes along is not whole."""
        along = {name: times * value for name, times in self.multiples.items()}
        if any(size.denominator != 1 for size in along.values()):
            return None
        return {**self.values, self.name: value, **{name: int(size) for name, size in along.items()}}

    def legal(self, value: int) -> bool:
        """Whether the evaluator's rules allow a value."""
        values, module = self.at(value), self.evaluator.terms
        return values is not None and all(module.rules_met(**{name: values[name] for name in module.INPUTS}))

    def peak(self, value: int) -> Fraction:
        """The peak in bytes, on exact fractions, by the plain evaluator."""
        values, module = self.at(value), self.evaluator.terms
        assert values is not None
        return Fraction(module.terms(**{name: Fraction(values[name]) for name in module.INPUTS})["peak"])


def evaluator_of(kind: str) -> Evaluator:
    """The evaluator of a kind of configurations."""
    implementation, choices = KINDS[kind]
    return find(implementation, choices)


def cases(seed: int, count: int, kinds: Mapping[str, Any] = KINDS, most: int = 1 << 14) -> Iterator[Case]:
    """Draw ``count`` cases, in turn of every kind."""
    random = Random(seed)
    names = list(kinds)
    for number in range(count):
        yield _drawn(random, names[number % len(names)], most)


def _drawn(random: Random, kind: str, most: int) -> Case:
    evaluator = evaluator_of(kind)
    while True:
        values = _values(random, kind, evaluator)
        module = evaluator.terms
        if all(module.rules_met(**{name: values[name] for name in module.INPUTS})):
            break
    name = random.choice((*LARGEST, "data_parallel", *(EXPERTS if "experts" in kind else ())))
    multiples: dict[str, Fraction] = {}
    if name == "hidden_size":
        keep = KEPT[random.choice(list(KEPT))]
        multiples = {other: Fraction(values[other], values[name]) for other in keep if values[other]}
    if name == "data_parallel":
        multiples["num_gpus"] = Fraction(values["num_gpus"], values[name])
    if name in ("data_parallel", "micro_batch_size") and random.random() < 0.5:
        multiples["global_batch_size"] = Fraction(values["global_batch_size"], values[name])
    case = Case(kind, values, name, name != "data_parallel", multiples, most, 0)
    legal = case.question().legal
    start = legal.next(max(1, int(most ** random.random())), 1) or values[name]
    limit = int(case.peak(start) * Fraction(random.choice((1000, 1000, 999, 1001, random.randint(900, 1100))), 1000))
    return Case(kind, values, name, case.largest, multiples, most, limit + random.choice((0, -1, 1)))


def _values(random: Random, kind: str, evaluator: Evaluator) -> dict[str, int]:
    fixed = evaluator.fixed

    def one_of(name: str, *options: int) -> int:
        return fixed.get(name, random.choice(options))

    t, c, p = (one_of(f"{axis}_parallel", *sizes) for axis, sizes in (
        ("tensor", (1, 2, 4, 8)), ("context", (1, 1, 2, 4)), ("pipeline", (1, 1, 2, 3, 4, 8))))
    if kind == "torchtitan":
        p = 1
    D, b, k = random.choice((1, 2, 3, 4, 8, 12, 64)), random.choice((1, 1, 2, 3, 4)), random.choice((1, 2, 3, 8, t))
    a = lcm(k, t) * random.randint(1, 3)
    d = random.choice((64, 80, 128, 4, 3)) * (1 if k % t == 0 or t % k == 0 else t)
    values = {
        **DEFAULTS, "hidden_size": random.choice((random.randint(1, 9000), a * d, a * 128)), "num_attention_heads": a,
        "num_kv_heads": k, "head_dim": d, "ffn_hidden_size": t * random.randint(1, 2000),
        "num_layers": p * random.randint(1, 9), "vocab_size": random.randint(1, 200_000),
        "seq_length": 2 * c * t * random.randint(1, 600), "micro_batch_size": b, "data_parallel": D,
        "global_batch_size": b * D * random.choice((1, p, 2 * p, 60, 840)), "tensor_parallel": t, "context_parallel": c,
        "pipeline_parallel": p, "num_gpus": t * c * p * D, "node_size": random.choice((8, 16)), "pipeline_rank": 0,
        "vocab_multiple": one_of("vocab_multiple", 1, 37, 128), "gradient_bytes": one_of("gradient_bytes", 2, 4),
        "distributed_optimizer": one_of("distributed_optimizer", 0, 1, 1), "sharded_gradients": one_of(
            "sharded_gradients", 0, 1), "sharded_weights": one_of("sharded_weights", 0, 1),
        "data_parallel_replicas": random.choice((1, 1, 1, 2)), "gpu_memory": 80 << 30,
        "sequence_parallel": one_of("sequence_parallel", 0, 1) if t > 1 else 0,
        **{name: random.randint(0, 1) for name in ("tied_embeddings", "qkv_bias", "qk_norm")},
        **{name: one_of(name, 0, 0, 1)
           for name in ("recompute_full", "recompute_core_attention", "recompute_mlp")},
    }
    if "experts" in kind:
        e = one_of("expert_parallel", 1, 2, 4)
        values |= {
            "expert_parallel": e, "num_experts": e * random.randint(2, 16), "moe_topk": random.randint(1, 2),
            "data_parallel_replicas": 1,
            "moe_ffn_hidden_size": t * random.randint(1, 400), "expert_tensor_parallel": one_of(
                "expert_tensor_parallel", 1, t), "shared_expert_ffn_hidden_size": t * random.choice((0, 0, 100)),
            "first_dense_layers": random.choice((0, 0, 1)), "moe_layer_step": random.choice((1, 1, 2)),
            "expert_load_percent": random.choice((100, 100, 150)),
        }
    return {name: value for name, value in values.items() if PARAMETERS[name][4] != "derived"}


def searched(case: Case) -> int | None:
    """The answer by looking at all values up to the last, with the compiled evaluator: exact below 2**53."""
    evaluator = case.evaluator
    kernel = evaluator.kernel_for(("peak",), (case.name, *case.multiples))
    at = np.arange(1, case.last + 1)
    columns: dict[str, Any] = {case.name: at}
    whole = np.ones(len(at), bool)
    for name, times in case.multiples.items():
        product = at * times.numerator
        whole &= product % times.denominator == 0
        columns[name] = np.maximum(product // times.denominator, 1)
    rule, verdict = np.empty(len(at), np.int8), np.empty(len(at), np.int8)
    out = np.empty((1, len(at)), np.float64)
    scalars = [float(case.values[name]) for name in kernel.SCALARS]
    given = [np.broadcast_to(columns.get(name, case.values[name]), at.shape).astype(np.float64)
             for name in kernel.COLUMNS]
    kernel.evaluate(0, len(at), *scalars, *given, rule, verdict, out)
    fitting = at[(rule == 0) & whole & (out[0] <= case.limit)]
    return None if not len(fitting) else int(fitting[-1 if case.largest else 0])
