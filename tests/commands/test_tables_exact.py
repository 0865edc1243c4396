"""Terms of random rows against the plain evaluator in fractions: every term, every implementation, any columns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from random_layouts import Batch, batches

from shardmath import InputError, evaluate
from shardmath.compiler.evaluators import Evaluator, find, with_moments
from shardmath.compiler.exactness import EXACT
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parameters import PARAMETERS

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
FEW = settings(max_examples=15 if FULL else 5)
EVERY_PEAK = pytest.mark.parametrize(
    ("name", "kernels"), [*((name, {}) for name in IMPLEMENTATIONS), ("huggingface", {"peak": "saved"})],
    ids=[*IMPLEMENTATIONS, "saved"])
#: One small dense model on one rank of every kind but data parallelism.
DENSE = {"num_attention_heads": 3, "num_kv_heads": 3, "head_dim": 8, "num_layers": 2, "vocab_size": 1001,
         "seq_length": 16, "gpu_memory": 2**36, "node_size": 8, "tied_embeddings": 0, "qkv_bias": 0, "qk_norm": 0,
         "distributed_optimizer": 1, "gradient_bytes": 4, "tensor_parallel": 1, "context_parallel": 1,
         "pipeline_parallel": 1, "micro_batch_size": 1, "sequence_parallel": 0, "pipeline_rank": 0,
         "recompute_full": 0, "recompute_core_attention": 0, "recompute_mlp": 0}
#: Columns that describe the model and the job, so that nothing but switches is the same for all rows.
MODEL = ("hidden_size", "num_attention_heads", "num_kv_heads", "head_dim", "ffn_hidden_size", "num_layers",
         "vocab_size", "seq_length", "global_batch_size", "num_gpus", "gpu_memory")


def jobs(name: str, count: int = 40) -> st.SearchStrategy[Batch]:
    """Random layouts of an implementation."""
    return batches(IMPLEMENTATIONS[name], count)


def scalars(evaluator: Evaluator, batch: Batch) -> dict[str, int]:
    """What the evaluator takes of the job: a value of another parameter may choose other formulas.

    Values that the implementation does not have are refused, so they are not asked for.
    """
    known = {**batch.scalars, **evaluator.fixed}
    return {name: known[name] for name in evaluator.kernel.SCALARS if name in known}


def of_stages(name: str, kernels: dict[str, str]) -> tuple[Evaluator, Evaluator]:
    """The evaluators of rows with one stage, and with more than one."""
    chosen = with_moments(name, kernels)
    return find(name, chosen), find(name, {**chosen, "pipeline": "torch"} if name == "torchtitan" else chosen)


def check(
    evaluators: Sequence[Evaluator], rows: list[dict[str, Any]], asked: list[dict[str, int]], terms: tuple[str, ...]
) -> int:
    """Compare rows of an answer with rules, verdicts and terms in fractions; return how many are legal.

    ``evaluators`` are that of rows with one stage and that of rows with several.
    """
    legal = 0
    for row, values in zip(rows, asked, strict=True):
        module = evaluators[values["pipeline_parallel"] > 1].terms
        inputs = {"virtual_pipeline": 1, **values}
        met = module.rules_met(**{name: inputs[name] for name in module.INPUTS})
        if not all(met):
            name, field, text = module.RULES[met.index(False)]
            assert (row["rule"], row["rule_text"]) == (name, f"{field} {text}")
            assert {row[name] for name in ("verdict", "rule_80", *terms)} == {None}
            continue
        legal += 1
        exact = module.terms(*(inputs[name] for name in module.INPUTS))
        assert row["rule"] is row["rule_text"] is None
        assert {name: row[name] for name in terms} == {name: int(exact[name]) for name in terms}
        peak, memory = exact["peak"], inputs["gpu_memory"]
        fits = exact["process.peak"] <= inputs["process_parts"] * (memory // 10**6), 5 * peak <= 4 * memory
        rest = "uncertain" if peak <= memory else "out of memory"
        assert (row["verdict"], row["rule_80"]) == tuple("fits" if one else rest for one in fits)
    return legal


@EVERY_PEAK
def test_the_usual_terms_of_random_jobs(name: str, kernels: dict[str, str]) -> None:
    evaluators = of_stages(name, kernels)
    legal = 0

    @FEW
    @given(jobs(name))
    def compare(batch: Batch) -> None:
        nonlocal legal
        table = {column: values.astype(np.int64) for column, values in batch.columns.items()}
        values = scalars(evaluators[0], batch)
        answer = evaluate(table, implementation=name, kernels=kernels, **values).read_all()
        asked = [{**row, **values} for row in batch.rows()]
        legal += check(evaluators, answer.to_pylist(), asked, ("first.total", "last.total", "peak"))

    compare()
    assert legal > 20


@EVERY_PEAK
def test_every_term_of_random_jobs_and_ranks(name: str, kernels: dict[str, str]) -> None:
    evaluators = of_stages(name, kernels)
    terms = tuple(term for term in evaluators[0].terms.TERMS if term in evaluators[1].terms.TERMS)
    legal = 0

    @FEW
    @given(jobs(name, 20), st.integers(0, 2**32 - 1))
    def compare(batch: Batch, seed: int) -> None:
        nonlocal legal
        ranks = np.random.default_rng(seed).integers(0, batch.columns["pipeline_parallel"])
        table = {**batch.columns, "pipeline_rank": ranks}
        values = scalars(evaluators[0], batch)
        answer = evaluate(table, implementation=name, kernels=kernels, terms="all", **values).read_all()
        asked = [{**row, **values, "pipeline_rank": int(rank)} for row, rank in zip(batch.rows(), ranks, strict=True)]
        legal += check(evaluators, answer.to_pylist(), asked, terms)

    compare()
    assert legal > 20


@pytest.mark.parametrize(("name", "kernels"), [
    ("megatron", {}), ("megatron", {"optimizer": "precision_aware"}), ("nanotron", {}), ("torchtitan", {}),
], ids=["megatron", "precision_aware", "nanotron", "torchtitan"])
def test_shares_among_odd_numbers_of_ranks(name: str, kernels: dict[str, str]) -> None:
    """A share of a tensor may be a fraction of bytes; what is computed from it is whole again, to the byte."""
    evaluator = find(name, kernels)
    terms = tuple(term for term in evaluator.terms.TERMS if term.startswith("stage.") and ".optimizer" in term)
    random = Random(7)
    layouts = [{"hidden_size": random.randrange(1, 3000), "ffn_hidden_size": random.randrange(1, 3000),
                "data_parallel": random.choice((3, 5, 7, 12, 97, 1000))} for _ in range(300)]
    others = {item.name: item.default for item in PARAMETERS if item.default is not None} | evaluator.defaults
    asked = [{**others, **DENSE, **row, "num_gpus": row["data_parallel"],
              "global_batch_size": row["data_parallel"]} for row in layouts]
    columns = (*layouts[0], "num_gpus", "global_batch_size")
    table = {column: [row[column] for row in asked] for column in columns}
    answer = evaluate(table, implementation=name, kernels=kernels, terms=terms, **DENSE).read_all().to_pylist()
    assert {row["rule"] for row in answer} == {None}
    shares = 0
    for row, inputs in zip(answer, asked, strict=True):
        exact = evaluator.terms.terms(**{key: Fraction(inputs[key]) for key in evaluator.terms.INPUTS})
        assert {term: row[term] for term in terms} == {term: int(exact[term]) for term in terms}
        shares += any(exact[term].denominator > 1 for term in terms)
        parts = [term for term in terms if term.endswith(".optimizer") and term.count(".") > 1]
        if "stage.padding.optimizer" in parts:
            assert sum(exact[term] for term in parts) == exact["stage.optimizer"]
    assert shares > len(layouts) / 2


@FEW
@given(st.lists(jobs("megatron", 1), min_size=8, max_size=20))
def test_a_table_of_models(drawn: list[Batch]) -> None:
    evaluator = find("megatron")
    fixed = scalars(evaluator, drawn[0])
    asked = [{**row, **{name: row[name] if name in MODEL else value for name, value in fixed.items()}}
             for batch in drawn for row in batch.rows()]
    table = {name: [row[name] for row in asked] for name in (*MODEL, *drawn[0].columns)}
    terms = ("peak", "swiglu.saved", "padded_vocab_size", "stage.optimizer")
    values = {name: value for name, value in fixed.items() if name not in MODEL}
    answer = evaluate(table, terms=terms, **values).read_all()
    check((evaluator, evaluator), answer.to_pylist(), asked, terms)


@pytest.mark.parametrize("layers", [2**11, 2**13])
def test_what_would_not_be_exact_is_refused(layers: int) -> None:
    table = {"num_layers": [16, 16, layers], "hidden_size": [2**16] * 3, "ffn_hidden_size": [2**16] * 3}
    reader = evaluate(table, "llama-3.2-1b", "h100-80gb")
    if layers == 2**11:
        assert EXACT > max(reader.read_all()["peak"].to_pylist()) > EXACT / 8
    else:
        with pytest.raises(InputError, match=r"row 2"):
            reader.read_all()
