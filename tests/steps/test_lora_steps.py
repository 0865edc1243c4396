"""Steps with adapters of PEFT in Transformers, to the byte: peaks of whole steps, of final norm and of layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counted import table
from families import read_config
from oracles.instruments.traced import explained
from stream_peaks import peaks_by_terms

from shardmath.account.accounting import Explanation
from shardmath.account.configured import Configuration, configured
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.trace import GATHER, REDUCE

pytestmark = pytest.mark.slow

ROWS = table("lora_steps")


def configuration(row: dict[str, str], folder: Path) -> Configuration:
    """Return the run of a row. Rows with DistributedDataParallel have the buckets of several ranks."""
    ranks = 2 if row["data_parallel"] == "ddp" else int(row["ranks"])
    kernels = {axis: row[axis] for axis in ("adapters", "attention", "base_weights")}
    if row["data_parallel"] == "fsdp":
        kernels |= {"data_parallel": "fsdp", "units": "root", "reshard": row["reshard"]}
    batch = int(row["batch"])
    return configured(
        read_config(folder, {"model_type": row["family"], **json.loads(row["config"])}), "b300",
        implementation="huggingface", seq_length=int(row["sequence"]), micro_batch_size=batch, data_parallel=ranks,
        global_batch_size=batch * int(row["microbatches"]) * ranks, recompute=row["recompute"],
        lora_rank=int(row["rl"]), torch_workspace_bytes=0,
        kernels={"loss": "huggingface_freed", **kernels})


def account(row: dict[str, str], folder: Path) -> Explanation:
    """Account for the step of a row."""
    return explained(configuration(row, folder))


@pytest.mark.parametrize("place", range(len(ROWS)))
def test_peaks_of_steps_with_adapters(place: int, tmp_path: Path) -> None:
    """Moments of PyTorch's own step are the default with adapters.

    FSDP2 copies the last layer out of its buffer in what counts as the final norm's backward pass here. Granite scales
    its embedding's output, which autograd holds beside the inputs of recomputed layers, and the outputs of attention
    and MLP, whose gradient lives while a matrix of 4 bits is unpacked: these are missing (docs/limits.md).
    """
    row = ROWS[place]
    step = account(row, tmp_path)
    lasting = step.peak_bytes - max(step.peak.moments.values())
    layers = max(step.peak.moments[site] for site in ("layer_backward", "embedding_backward"))
    counted = {"peak": step.peak_bytes, "norm": lasting + step.peak.moments["norm_backward"],
               "layers": lasting + layers}
    recorded = {name: int(row[name]) for name in counted}
    if row["data_parallel"] == "fsdp":
        for sizes in (counted, recorded):
            sizes["layers"] = max(sizes["layers"], sizes.pop("norm"))
    tensor = 2 * json.loads(row["config"])["hidden_size"] * int(row["sequence"]) * int(row["batch"])
    is_scaled, in_4_bits = row["family"] == "granite", row["base_weights"] == "nf4"
    held = tensor * (is_scaled and row["recompute"] == "full")
    for name, size in counted.items():
        if is_scaled and step.peak.site == "layer_gathered" and name == "peak":  # a scaled embedding is held twice
            assert 0 <= recorded[name] - size <= 2 * tensor, row
            continue
        missing = {held, held + tensor} if is_scaled and in_4_bits and name != "norm" else {held}
        assert recorded[name] - size in missing, (name, row)


@pytest.mark.parametrize("row", [row for row in ROWS if row["data_parallel"] == "fsdp"])
def test_largest_moments_of_streams_with_adapters(row: dict[str, str], tmp_path: Path) -> None:
    """FSDP2 gathers frozen and trained weights, and reduces gradients of adapters alone."""
    job = configuration(row, tmp_path).job
    streams = peaks_by_terms(terms_at(job.evaluator.terms, job.on_rank(0)))
    assert (streams[GATHER], streams[REDUCE]) == (int(row["gathers"]), int(row["reduces"])), row


@pytest.mark.parametrize("kernels", [
    {"adapter_kind": "dora"}, {"adapter_precision": "fp32"},
    {"precision": "mixed"}, {"norm": "fused"}, {"optimizer_kernel": "loop"},
])
def test_moments_that_are_not_counted_are_refused_by_name(kernels: dict[str, str]) -> None:
    (axis, option), = kernels.items()
    with pytest.raises(InputError, match=f"{axis} = {option}"):
        configured("llama-3.2-1b", "b300", implementation="huggingface", lora_rank=8,
                   kernels={"peak": "torch", **kernels})
