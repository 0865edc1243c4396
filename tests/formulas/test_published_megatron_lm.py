"""Megatron-LM's estimate: the formulas against a second transcription of the program in exact fractions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import all_published

(SET,) = (item for item in all_published() if item.source == "megatron_lm")


@dataclass(frozen=True)
class Arguments:
    """The arguments of the program that its dense path reads, under their names there."""

    num_layers: int = 32
    hidden_size: int = 4096
    ffn_hidden_size: int = 14336
    num_attention_heads: int = 32
    kv_channels: int = 128
    num_query_groups: int = 8
    padded_vocab_size: int = 128256
    untie_embeddings_and_output_weights: bool = True
    seq_length: int = 8192
    micro_batch_size: int = 1
    global_batch_size: int = 1024
    tensor_model_parallel_size: int = 2
    context_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_pipeline_model_parallel_size: int | None = None
    data_parallel_size: int = 4
    use_distributed_optimizer: bool = True
    sequence_parallel: bool = True
    recompute_granularity: str | None = "selective"

    @property
    def num_microbatches(self) -> Fraction:
        return Fraction(self.global_batch_size, self.micro_batch_size * self.data_parallel_size)

    @property
    def letters(self) -> dict[str, int]:
        return {
            "L": self.num_layers, "h": self.hidden_size, "f": self.ffn_hidden_size,
            "a": self.num_attention_heads, "d": self.kv_channels, "k": self.num_query_groups,
            "u": self.padded_vocab_size, "g": 1, "tied": int(not self.untie_embeddings_and_output_weights),
            "s": self.seq_length, "b": self.micro_batch_size, "B": self.global_batch_size,
            "t": self.tensor_model_parallel_size, "c": self.context_parallel_size,
            "p": self.pipeline_model_parallel_size, "V": self.virtual_pipeline_model_parallel_size or 1,
            "D": self.data_parallel_size, "zero1": int(self.use_distributed_optimizer),
            "sp": int(self.sequence_parallel), "rcore": int(self.recompute_granularity == "selective"),
            "rmlp": 0, "rfull": int(self.recompute_granularity == "full"),
        }


def weight_and_optimizer_memory(args: Arguments) -> Fraction:
    query_ratio = Fraction(args.kv_channels * args.num_attention_heads, args.hidden_size)
    gated = Fraction(3, 2)
    groups = Fraction(args.num_query_groups, args.num_attention_heads)
    attention = 2 * args.hidden_size * args.hidden_size * ((1 + groups) * query_ratio)
    mlp = 2 * args.hidden_size * args.ffn_hidden_size * gated
    layernorm = 2 * args.hidden_size
    final_layernorm = args.hidden_size
    embedding = args.hidden_size * args.padded_vocab_size
    sharded_in_block = (attention + mlp) * args.num_layers
    replicated_in_block = layernorm * args.num_layers + final_layernorm
    sharded = sharded_in_block / args.pipeline_model_parallel_size + embedding
    sharded /= args.tensor_model_parallel_size
    replicated = Fraction(replicated_in_block, args.pipeline_model_parallel_size)
    if args.untie_embeddings_and_output_weights and args.pipeline_model_parallel_size == 1:
        sharded += Fraction(embedding, args.tensor_model_parallel_size)
    bytes_per_parameter = (
        6 + Fraction(12, args.data_parallel_size) if args.use_distributed_optimizer else Fraction(18)
    )
    return (sharded + replicated) * bytes_per_parameter


def pipeline(args: Arguments, memory: Fraction) -> Fraction:
    p, chunks = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    if chunks is not None:
        memory *= 1 + Fraction(p - 1, p * chunks)
    if chunks is None and p > 1:
        memory *= min(Fraction(1), args.num_microbatches / p)
    return memory


def inputs(args: Arguments) -> int:
    tokens = args.seq_length * args.micro_batch_size * args.pipeline_model_parallel_size
    return 8 * tokens + tokens * args.hidden_size


def activation_memory(args: Arguments) -> Fraction:
    tokens = args.seq_length * args.micro_batch_size
    memory = tokens * args.hidden_size * (18 + 4 * Fraction(args.ffn_hidden_size, args.hidden_size))
    memory = pipeline(args, memory * args.num_layers + inputs(args))
    if args.pipeline_model_parallel_size == 1:
        memory += tokens * args.hidden_size * 4 * (1 + Fraction(args.padded_vocab_size, args.hidden_size))
    return memory / args.tensor_model_parallel_size


def activation_memory_without_sp(args: Arguments) -> Fraction:
    t, tokens = args.tensor_model_parallel_size, args.seq_length * args.micro_batch_size
    memory = tokens * args.hidden_size * (10 + Fraction(24, t)) * args.num_layers
    memory = pipeline(args, memory + inputs(args))
    if args.pipeline_model_parallel_size == 1:
        memory += (Fraction(tokens * args.padded_vocab_size, t) + tokens * args.hidden_size) * 2
    return memory * Fraction(105, 100)


def report(args: Arguments) -> tuple[Fraction, Fraction]:
    selective = args.sequence_parallel and args.recompute_granularity == "selective"
    activation = activation_memory(args) if selective else activation_memory_without_sp(args)
    return weight_and_optimizer_memory(args), activation


LARGE = Arguments(
    num_layers=80, hidden_size=8192, ffn_hidden_size=28672, num_attention_heads=64, seq_length=4096,
    tensor_model_parallel_size=8,
)
CASES = {
    "8B": Arguments(),
    "8B without distributed optimizer": Arguments(use_distributed_optimizer=False),
    "8B without sequence parallelism": Arguments(sequence_parallel=False),
    "8B without recompute": Arguments(recompute_granularity=None),
    "8B full recompute": Arguments(recompute_granularity="full"),
    "8B tied": Arguments(untie_embeddings_and_output_weights=False),
    "8B tied, stages": Arguments(untie_embeddings_and_output_weights=False, pipeline_model_parallel_size=2),
    "8B context parallel": Arguments(context_parallel_size=4, data_parallel_size=3, global_batch_size=96),
    "70B": replace(LARGE, pipeline_model_parallel_size=4),
    "70B few micro-batches": replace(LARGE, pipeline_model_parallel_size=16, global_batch_size=20),
    "70B interleaved": replace(
        LARGE, pipeline_model_parallel_size=4, virtual_pipeline_model_parallel_size=5, global_batch_size=8),
    "70B interleaved without sequence parallelism": replace(
        LARGE, pipeline_model_parallel_size=4, virtual_pipeline_model_parallel_size=2,
        sequence_parallel=False),
    "12B, A is not h": Arguments(
        num_layers=40, hidden_size=5120, ffn_hidden_size=14336, padded_vocab_size=131072, micro_batch_size=3,
        global_batch_size=36),
}


def values(args: Arguments, **changes: int) -> dict[str, Fraction]:
    found = evaluate(SET.terms.terms.values(), {**args.letters, **changes})
    return {name.rpartition(".")[2]: Fraction(int(value.p), int(value.q)) for name, value in found.items()}


@pytest.mark.parametrize("case", CASES)
class TestProgram:
    def test_weight_and_optimizer_memory(self, case: str) -> None:
        assert values(CASES[case])["static"] == weight_and_optimizer_memory(CASES[case])

    def test_both_activation_formulas(self, case: str) -> None:
        found = values(CASES[case])
        assert found["activations_with_sp"] == activation_memory(CASES[case])
        assert found["activations_without_sp"] == activation_memory_without_sp(CASES[case])

    def test_report(self, case: str) -> None:
        static, activation = report(CASES[case])
        found = values(CASES[case])
        assert (found["static"], found["activations"]) == (static, activation)
        assert found["total"] == static + activation


def test_parameters_of_llama_8b() -> None:
    assert values(CASES["8B"])["parameters"] == 8_030_261_248


def test_recompute_of_the_mlp_is_selective_too() -> None:
    args = Arguments(recompute_granularity=None)
    assert values(args, rmlp=1)["activations"] == activation_memory(args)


def test_context_parallelism_divides_nothing() -> None:
    one, four = (values(Arguments(context_parallel_size=size)) for size in (1, 4))
    assert one["total"] == four["total"]


def test_with_one_rank_a_layer_of_gpt_is_the_same_in_both_formulas() -> None:
    args = Arguments(ffn_hidden_size=4 * 4096, tensor_model_parallel_size=1)
    found = values(args)
    assert found["layer_activations"] == found["layer_activations_without_sp"] == 8192 * 4096 * 34
