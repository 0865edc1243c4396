"""Terms of random rows against the plain evaluator in fractions: every term, every implementation, any columns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_layouts import Batch, batches

from shardmath import InputError, evaluate
from shardmath.evaluators import Evaluator, find
from shardmath.exactness import EXACT
from shardmath.symbolic.implementations import IMPLEMENTATIONS

pytest.importorskip("pyarrow")
FEW = settings(max_examples=15)
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


def check(
    evaluator: Evaluator, rows: list[dict[str, Any]], asked: list[dict[str, int]], terms: tuple[str, ...]
) -> int:
    """Compare rows of an answer with rules, verdicts and terms in fractions; return how many are legal."""
    module = evaluator.terms
    legal = 0
    for row, inputs in zip(rows, asked, strict=True):
        met = module.rules_met(**{name: inputs[name] for name in module.INPUTS})
        if not all(met):
            assert row["rule"] == module.RULES[met.index(False)][0]
            assert [row[name] for name in ("verdict", *terms)] == [None] * (len(terms) + 1)
            continue
        legal += 1
        exact = module.terms(**{name: Fraction(inputs[name]) for name in module.INPUTS})
        assert row["rule"] is None
        assert {name: row[name] for name in terms} == {name: int(exact[name]) for name in terms}
        peak, memory = exact["peak"], inputs["gpu_memory"]
        verdict = "fits" if 5 * peak <= 4 * memory else "uncertain" if peak <= memory else "out of memory"
        assert row["verdict"] == verdict
    return legal


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_usual_terms_of_random_jobs(name: str) -> None:
    evaluator = find(name)
    legal = 0

    @FEW
    @given(jobs(name))
    def compare(batch: Batch) -> None:
        nonlocal legal
        table = {column: values.astype(np.int64) for column, values in batch.columns.items()}
        values = scalars(evaluator, batch)
        answer = evaluate(table, implementation=name, **values).read_all()
        asked = [{**row, **values} for row in batch.rows()]
        legal += check(evaluator, answer.to_pylist(), asked, ("first.total", "last.total", "peak"))

    compare()
    assert legal > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_every_term_of_random_jobs_and_ranks(name: str) -> None:
    evaluator = find(name)
    legal = 0

    @FEW
    @given(jobs(name, 20), st.integers(0, 2**32 - 1))
    def compare(batch: Batch, seed: int) -> None:
        nonlocal legal
        ranks = np.random.default_rng(seed).integers(0, batch.columns["pipeline_parallel"])
        table = {**batch.columns, "pipeline_rank": ranks}
        values = scalars(evaluator, batch)
        answer = evaluate(table, implementation=name, terms="all", **values).read_all()
        asked = [{**row, **values, "pipeline_rank": int(rank)} for row, rank in zip(batch.rows(), ranks, strict=True)]
        legal += check(evaluator, answer.to_pylist(), asked, tuple(evaluator.terms.TERMS))

    compare()
    assert legal > 20


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
    check(evaluator, answer.to_pylist(), asked, terms)


@pytest.mark.parametrize("layers", [2**11, 2**13])
def test_what_would_not_be_exact_is_refused(layers: int) -> None:
    table = {"num_layers": [16, 16, layers], "hidden_size": [2**16] * 3, "ffn_hidden_size": [2**16] * 3}
    reader = evaluate(table, "llama-3.2-1b", "h100-80gb")
    if layers == 2**11:
        assert EXACT > max(reader.read_all()["peak"].to_pylist()) > EXACT / 8
    else:
        with pytest.raises(InputError, match=r"row 2"):
            reader.read_all()
