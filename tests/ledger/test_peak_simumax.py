"""The peak of Megatron-LM against measured B200 runs: every stage, and term by term integers written down here.

Nothing is fitted. The measured numbers are PyTorch's largest allocated bytes of every GPU of a stage.
"""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from math import lcm
from pathlib import Path
from statistics import median

import pytest

from shardmath.account.accounting import Explanation, RankAccount, explain
from validation.measured.case import Case
from validation.measured.sets import simumax

pytestmark = pytest.mark.slow

CASES = {case.id: case for case in simumax.read()}
with (Path(__file__).parents[1] / "data" / simumax.TABLE).open(newline="") as file:
    ROWS = list(csv.DictReader(file))
DENSE = [row for row in ROWS if "llama" in row["model"]]
EXPERTS = [row for row in ROWS if "deepseek" in row["model"]]

#: The launchers' shapes: h, f, heads, groups of queries; both models have heads of 128.
SHAPES = {"llama-3-70b": (8192, 28672, 64, 8), "llama-3.1-405b": (16384, 53248, 128, 16)}
VOCABULARY, HEAD_DIM, MIB = 128257, 128, 2**20


def name(row: dict[str, str]) -> str:
    return f"{row['case']} stage {row['pipeline_rank']}"


@cache
def account(case: str) -> Explanation:
    found: Case = CASES[case]
    assert found.model is not None
    return explain(found.model, found.gpu, **found.arguments)


def rank_of(row: dict[str, str]) -> RankAccount:
    return account(row["case"]).ranks[int(row["pipeline_rank"])]


def error(row: dict[str, str]) -> float:
    """The relative error, of the nearer end where the GPUs of a stage differ."""
    least, most = int(row["least_peak_bytes"]), int(row["most_peak_bytes"])
    found = rank_of(row).total
    return (found - min(max(found, least), most)) / most


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_every_stage(row: dict[str, str]) -> None:
    assert abs(rank_of(row).total / int(row["most_peak_bytes"]) - 1) <= 0.005
    assert abs(error(row)) <= (0.00005 if row in DENSE else 0.002)


def test_all_stages_together() -> None:
    assert (len(DENSE), len(EXPERTS)) == (17, 6)
    assert median(abs(error(row)) for row in ROWS) <= 0.002
    assert median(abs(error(row)) for row in DENSE) <= 0.00001
    assert {rank_of(row).site for row in EXPERTS} == {"experts_forward"}


@pytest.mark.parametrize("row", DENSE, ids=name)
def test_what_is_left_is_what_an_allocator_does_not_split(row: dict[str, str]) -> None:
    """Dense stages: never above the measurement, and less than one MiB for a block that is not split, below it."""
    below = int(row["least_peak_bytes"]) - rank_of(row).total
    assert 0 <= below < 1.25 * MIB


def by_component(found: RankAccount) -> dict[str, int]:
    """Bytes by component; those of weights, gradients and optimizer states with one key."""
    sums: Counter[str] = Counter()
    for line in found.lines:
        key = "states" if line.role in ("weight", "gradient", "optimizer") else f"{line.component}.{line.role}"
        sums[key] += line.bytes  # type: ignore[assignment]
    return {key: int(size) for key, size in sums.items() if size}


def expected(row: dict[str, str]) -> dict[str, int]:
    """Every line of a dense stage in plain integers. T tokens of a rank, A and K widths of queries and keys."""
    h, f, heads, groups = SHAPES[row["model"]]
    size = {key: int(row[f"{key}_parallel"]) for key in ("tensor", "context", "pipeline", "data")}
    t, c, p, D = size.values()
    r, m, layers = int(row["pipeline_rank"]), int(row["num_microbatches"]), int(row["layers"]) // p
    T, A, K = int(row["seq_length"]) // c, heads * HEAD_DIM, groups * HEAD_DIM
    v = -(-VOCABULARY // (128 * t)) * 128 * t
    first, last, flight = r == 0, r == p - 1, layers * min(m, p - r)
    steady = m > min(m, p - r)  # a second forward-backward pair finds the gradient that the first one sent
    matrices = (h * (A + 2 * K) + A * h + 3 * h * f) // t
    parameters = layers * (matrices + 2 * h) + (first + last) * h * v // t + last * h
    unit = lcm(D * c, 128)
    assert all(size % 64 == 0 for size in (h, matrices, h * v // t))
    padded = -(-parameters // unit) * unit
    shapes = {((A + 2 * K) // t, h), (2 * f // t, h), (h, A // t), (h, f // t)}
    attention = {((A + 2 * K) // t, h), (h, A // t)}
    lines = {
        "states": 6 * padded + 12 * padded // (D * c),
        "attention_norm.activation": flight * (2 * h + 4) * T // t,
        "ffn_norm.activation": flight * (2 * h + 4) * T // t,
        # input, queries, keys, values, output and log-sum-exp
        "attention.activation": flight * (2 * h + 4 * A + 4 * K + 4 * heads + (2 * A if c > 1 else 0)) * T // t,
        "swiglu.activation": flight * (2 * h + 6 * f) * T // t,
        "tables.buffer": 4 * HEAD_DIM * T,
        "attention_dummies.buffer": sum(2 * rows * columns for rows, columns in attention),
        "mlp_dummies.buffer": sum(2 * rows * columns for rows, columns in shapes - attention),
        "engine_workspace.buffer": 32 * MIB + 1024,
        "sent_gradient.transient": 2 * h * T // t if steady and not first else 0,
    }
    if first:
        ids = min(m, p) * T
        lines |= {"embedding.input": 8 * ids} if t == 1 else {"embedding.activation": 9 * ids}
    if last:
        gathered = 2 * h * T if t > 1 else 0
        lines |= {
            "final_norm.activation": (2 * h + 4) * T // t,
            "head.activation": 2 * h * T // t,
            "head.buffer": 2 * h * v // t + gathered,
            "head_workspace.buffer": 2 * (2 * 4096 + 8 * 16) * 1024,
        }
        backward = {
            "loss.transient": 2 * v * T // t,  # the gradient, which took the place of the logits
            "head.transient": 2 * h * T + (2 * h * T // t if t > 1 else 0),
        }
        forward = {
            "loss.activation": 2 * v * T // t,
            "loss.transient": 16 * T + (12 * T * t if t > 1 else 0),  # loss, maxima, sums and logits of the labels
            "batch.transient": (28 if t * p > 1 else 20) * T,  # ids, labels, mask of the loss, positions
            "input_before.transient": 2 * h * T // t if steady and not first else 0,
        }
        lines |= max(forward, backward, key=lambda part: sum(part.values()))
    else:
        lines |= {
            "residual_gradient.transient": 2 * h * T // t,
            "mlp_gradients.transient": 4 * f * T // t,
        }
    return {key: size for key, size in lines.items() if size}


@pytest.mark.parametrize("row", DENSE, ids=name)
def test_every_line_of_a_dense_stage(row: dict[str, str]) -> None:
    found, oracle = by_component(rank_of(row)), expected(row)
    assert found == oracle
    assert rank_of(row).total == sum(oracle.values())
    last = "loss_forward" if "loss.activation" in oracle else "head_backward"
    assert rank_of(row).site == (last if "head.activation" in oracle else "layer_backward")
