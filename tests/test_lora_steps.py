"""Steps with adapters of PEFT in Transformers, to the byte: peaks of whole steps, of final norm and of layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counted import table
from families import read_config

from shardmath.account.accounting import Explanation, explanation
from shardmath.account.configured import configured
from shardmath.errors import InputError

pytestmark = pytest.mark.slow

ROWS = table("lora_steps")


def account(row: dict[str, str], folder: Path) -> Explanation:
    """Account for the step of a row. Rows with DistributedDataParallel have the buckets of several ranks."""
    ranks = 2 if row["data_parallel"] == "ddp" else 1
    batch = int(row["batch"])
    return explanation(configured(
        read_config(folder, {"model_type": row["family"], **json.loads(row["config"])}), "b300",
        implementation="huggingface", seq_length=int(row["sequence"]), micro_batch_size=batch, data_parallel=ranks,
        global_batch_size=batch * int(row["microbatches"]) * ranks, recompute=row["recompute"],
        lora_rank=int(row["rl"]), torch_workspace_bytes=0,
        kernels={"adapters": row["adapters"], "attention": row["attention"], "loss": "huggingface_freed"}))


@pytest.mark.parametrize("place", range(len(ROWS)))
def test_peaks_of_steps_with_adapters(place: int, tmp_path: Path) -> None:
    """Moments of PyTorch's own step are the default with adapters.

    Granite scales its embedding's output, which autograd holds beside the inputs of recomputed layers: one tensor is
    missing (docs/limits.md).
    """
    row = ROWS[place]
    step = account(row, tmp_path)
    lasting = step.peak_bytes - max(step.peak.moments.values())
    layers = max(step.peak.moments[site] for site in ("layer_backward", "embedding_backward"))
    counted = {"peak": step.peak_bytes, "norm": lasting + step.peak.moments["norm_backward"],
               "layers": lasting + layers}
    is_scaled = (row["family"], row["recompute"]) == ("granite", "full")
    hidden = json.loads(row["config"])["hidden_size"]
    missing = 2 * hidden * int(row["sequence"]) * int(row["batch"]) if is_scaled else 0
    assert counted == {name: int(row[name]) - missing for name in counted}, row


@pytest.mark.parametrize("kernels", [
    {"adapter_kind": "dora"}, {"base_weights": "nf4"}, {"adapter_precision": "fp32"}, {"data_parallel": "fsdp"},
    {"precision": "mixed"}, {"norm": "fused"}, {"optimizer_kernel": "loop"},
])
def test_moments_that_are_not_counted_are_refused_by_name(kernels: dict[str, str]) -> None:
    (axis, option), = kernels.items()
    with pytest.raises(InputError, match=f"{axis} = {option}"):
        configured("llama-3.2-1b", "b300", implementation="huggingface", lora_rank=8,
                   kernels={"peak": "torch", **kernels})
