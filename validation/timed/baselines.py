"""Baselines of predictions: chance, textbook constants, and a rule that people follow without a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shardmath.account.time import EQUAL
from validation.timed.cases import Table
from validation.timed.metrics import Numbers

#: Half of the peak for every product, all of every bandwidth, no latency and no kernel that costs anything by itself.
TEXTBOOK = {
    "matmul_per_mille": 500, "attention_per_mille": 500, "hbm_per_mille": 1000, "node_per_mille": 1000,
    "network_per_mille": 1000, "node_latency_ns": 0, "network_latency_ns": 0, "collective_latency_ns": 0,
    "kernel_ns": 0, "launch_ns": 0, "attention_half_length": 0, "send_bandwidth": 10**15,
}
#: By how much the first of equal runs is put before them.
_BEFORE = 1e-6
#: Kernels of attention, the best first.
BEST_FIRST = ("flash", "flash_attention2 + RMS kernel", "flash_attention2", "flash_attentionv1.0.8", "fused", "torch")


def at_random(table: Table) -> Numbers:
    """Return all runs alike, so that the regret is that of a run chosen blindly."""
    return np.zeros(len(table.runs))


def by_rule(table: Table) -> Numbers:
    """Rank by the rule: best kernel, no recompute, smallest TP x PP x CP, then the largest micro-batch."""
    keys = [
        (BEST_FIRST.index(kernel), recomputed, _model_parallel(run.job.values), -run.job.values["micro_batch_size"])
        for run, kernel, recomputed in zip(table.runs, table.kernels, table.recomputed, strict=True)
    ]
    order = sorted(set(keys))
    return np.array([float(order.index(key)) for key in keys])


def by_ties(table: Table, predicted: Numbers) -> Numbers:
    """Predicted seconds; of runs of a group that are equally fast the rule's first one is put before the others.

    ``predicted`` are seconds of one sequence.
    """
    ordered, groups = predicted.copy(), np.array([run.group for run in table.runs])
    for group in dict.fromkeys(run.group for run in table.runs):
        fastest = predicted[groups == group].min()
        equal = np.flatnonzero((groups == group) & (predicted <= (1 + EQUAL) * fastest))
        values = {place: table.runs[place].job.values for place in equal}
        first = min(equal, key=lambda place: (_model_parallel(values[place]), -values[place]["micro_batch_size"],
                                              predicted[place]))
        ordered[first] = fastest * (1 - _BEFORE)
    return ordered


def _model_parallel(values: Mapping[str, int]) -> int:
    return values["tensor_parallel"] * values["pipeline_parallel"] * values["context_parallel"]
