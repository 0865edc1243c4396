"""Memory that torchtune's README, tutorials and pull requests state, with the settings of their recipes."""

from __future__ import annotations

from typing import Any

from shardmath.errors import InputError
from shardmath.formats.described import read_settings
from shardmath.formats.table import table as format_named
from shardmath.machines.gpu import Gpu
from validation.measured.case import GIB, PEAK, Case, Measured
from validation.measured.reading import rows, whole
from validation.measured.sets.swift_examples import words_of

TABLE = "torchtune.csv"
SOURCE = "https://github.com/meta-pytorch/torchtune"
FULL, ADAPTERS = "full training", "adapters"
#: Where a tutorial names no GPU.
GPU = "a100-80gb"
#: The log divided by 1e9 until August 15, 2024 (d0b89e206), and by 2^30 since then.
UNITS = {"GB": 10**9, "GiB": GIB}
#: Recipes cut off the last token's logits until then (release 0.3), before the cross entropy.
UNSHIFTED = "2024-09"
#: States of a paged optimizer lie in managed memory, which PyTorch's allocator does not count.
PAGED, _SGD = "bitsandbytes.optim.Paged", {"optimizer": "sgd"}
#: Other readings of a row, as kernels that differ.
OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "eager": ("the loss in single operations", {"loss": "torchtune_chunks"}),
    "some": ("logits of some tokens at a time", {"loss": "liger"}),
    "freed": ("logits that the recipe frees", {"loss": "torchtune"}),
    "fused": ("an optimizer in one kernel", {"optimizer_kernel": "fused"}),
    "foreach": ("an optimizer over all parameters at once", {"optimizer_kernel": "foreach"}),
    "states": ("states in PyTorch's allocator", {"optimizer": "adamw"}),
}
#: Causes of gaps, by their names in the table: what torchtune's source does at the commit of a row, or what rows say
#: of each other.
CAUSES = {
    "repeated": "keys and values are kept repeated for all query heads, 1.75 GiB here, which is not counted",
    "kernel": "weights, gradients and moments alone are 23.9 of the 24.9 GiB, so the optimizer had no temporaries of"
              " all parameters, though no setting says so",
    "compiled": "layers are compiled, which is counted in the loss alone",
    "apart": "the source has three figures of these settings, 20.2, 22.3 and 24.1 GB",
    "less": "the figure is less than shards of weights and inputs of all layers with the stated batch",
}
HALF = "half of the sequences"
_RECOMPUTE = "with recompute"


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    settings, place = row["settings"], f"blob/{row['commit']}/{row['path']}" if row["commit"] else row["path"]
    known: dict[str, Any] = {
        "id": row["id"], "group": ADAPTERS if "lora" in settings else FULL, "source": f"{SOURCE}/{place}",
        "gpu": Gpu.named(row["gpu"] or GPU),
        "measured": (Measured(PEAK, round(float(row["figure"]) * UNITS[row["unit"]])),),
    }
    if row["missing"]:
        return Case(model=None, arguments={}, refusal=f"not said: {row['missing']}", **known)
    try:
        run = read_settings(format_named("torchtune"), row["id"], words_of(settings), whole(row["num_gpus"]))
    except InputError as error:
        return Case(model=None, arguments={}, refusal=f"{error.field}: {error.rule}", **known)
    arguments = run.changed({})
    arguments["data_parallel"] = arguments.pop("num_gpus")
    arguments["kernels"] |= _of_release(row)
    return Case(model=run.model, arguments=arguments, others=_readings(row["readings"].split(), arguments),
                causes=tuple(CAUSES[name] for name in row["causes"].split()), **known)


def _of_release(row: dict[str, str]) -> dict[str, str]:
    """Return kernels of a row that no setting says: the loss of its release, and states where they are not counted."""
    loss = {"loss": "torchtune_shifted"} if row["date"] < UNSHIFTED else {}
    return loss | (_SGD if PAGED in row["settings"] else {})


def _readings(names: list[str], arguments: dict[str, Any]) -> dict[str, dict[str, Any]]:
    others = {words: {**arguments, "kernels": {**arguments["kernels"], **kernels}}
              for name in names if name in OTHERS for words, kernels in (OTHERS[name],)}
    if "half" in names:
        others[HALF] = {**arguments, **{size: arguments[size] // 2 for size in ("micro_batch_size",
                                                                               "global_batch_size")}}
    if "recompute" in names:
        others[_RECOMPUTE] = {**arguments, "recompute": "full"}
    return others
