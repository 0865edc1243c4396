"""The layout, the batch and the recompute that flags of Megatron-LM ask for, as arguments of ``explain``."""

from __future__ import annotations

import re
from typing import Any

from shardmath.formats.given import Given
from shardmath.models.model import Model

_LONGEST_LAYOUT = 2**14
#: Modules of --recompute-modules, and the regions that they are here.
MODULES = {
    "core_attn": "core_attention", "mlp": "mlp", "layernorm": "layernorm", "mla_up_proj": "mla_up_proj",
    "moe_act": "moe_act", "shared_experts": "shared_experts", "moe": "moe",
}
SIZES = {
    "tensor_parallel": "tensor-model-parallel-size", "context_parallel": "context-parallel-size",
    "pipeline_parallel": "pipeline-model-parallel-size", "expert_parallel": "expert-model-parallel-size",
    "data_parallel_replicas": "num-distributed-optimizer-instances",
    "first_stage_layers": "decoder-first-pipeline-num-layers", "last_stage_layers": "decoder-last-pipeline-num-layers",
    "microbatch_group": "microbatch-group-size-per-virtual-pipeline-stage",
    "cpu_offloading_num_layers": "cpu-offloading-num-layers",
}
SWITCHES = {
    "account_for_embedding": "account-for-embedding-in-pipeline-split",
    "account_for_loss": "account-for-loss-in-pipeline-split",
    "overlap_grad_reduce": "overlap-grad-reduce", "overlap_param_gather": "overlap-param-gather",
    "tp_comm_overlap": "tp-comm-overlap",
}


def layout_of(given: Given, model: Model, num_gpus: int | None) -> dict[str, Any]:
    """Sizes of groups, batch, stages and recompute. Raises InputError that blames a flag."""
    found: dict[str, Any] = {
        "seq_length": given.number("seq-length") or given.needed("encoder-seq-length"),
        "micro_batch_size": given.needed("micro-batch-size"),
    }
    found |= {name: given.needed(flag) for name, flag in SIZES.items() if given.number(flag) is not None}
    found |= {name: 1 for name, flag in SWITCHES.items() if given.is_on(flag)}
    if model.num_experts and (width := given.number("expert-tensor-parallel-size")) is not None:
        found["expert_tensor_parallel"] = width
    tensor = found.get("tensor_parallel", 1)
    found["sequence_parallel"] = given.is_on("sequence-parallel") and tensor > 1
    found |= _gpus(given, found, num_gpus)
    found |= _batch(given)
    found |= _stages(given, model, found)
    return found | _recompute(given, model)


def _gpus(given: Given, found: dict[str, Any], num_gpus: int | None) -> dict[str, Any]:
    ranks = 1
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        ranks *= found.get(name, 1)
    if num_gpus is None:
        return {}
    if ranks < 1 or num_gpus % ranks:
        given.warnings.append(f"the {num_gpus} GPUs of the launcher are not a multiple of TP * CP * PP = {ranks}:"
                              " their number is not used")
        return {}
    return {"num_gpus": num_gpus}


def _batch(given: Given) -> dict[str, Any]:
    stated, schedule = given.number("global-batch-size"), given.words.get("step-batch-size-schedule")
    given.asked.add("step-batch-size-schedule")
    if stated is None and schedule:
        last = schedule[-1].split()[-1:] or [""]
        size = last[0].rpartition(":")[2]
        if not (size.isascii() and size.isdecimal() and len(size) < 12):
            raise given.error("step-batch-size-schedule", "must end in a number of sequences, such as 12B:1536")
        return {"global_batch_size": int(size)}
    return {} if stated is None else {"global_batch_size": stated}


def _stages(given: Given, model: Model, found: dict[str, Any]) -> dict[str, Any]:
    """Chunks of layers per rank, and layers of every stage where they are listed."""
    pipeline = found.get("pipeline_parallel", 1)
    layers, chunks = (given.number(name) for name in
                      ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"))
    if "pipeline-model-parallel-layout" in given:
        listed = _listed(given, model)
        if pipeline < 1 or len(listed) % pipeline:
            raise given.error("pipeline-model-parallel-layout", f"must have a multiple of {pipeline} stages")
        return {"pipeline_layout": listed, "virtual_pipeline": len(listed) // pipeline}
    if chunks is None and layers is not None:
        total = model.num_layers + found.get("account_for_embedding", 0) + found.get("account_for_loss", 0)
        if pipeline < 1 or layers < 1 or total % (pipeline * layers):
            rule = f"times {given.shown('pipeline-model-parallel-size')} must divide the {total} layers"
            raise given.error("num-layers-per-virtual-pipeline-stage", rule)
        chunks = total // pipeline // layers
    return {"virtual_pipeline": chunks} if chunks is not None and chunks != 1 else {}


def _listed(given: Given, model: Model) -> tuple[int, ...]:
    """Layers of every stage from a text such as ``Ett|(tt|)*2ttL``: E embedding, t layer, m MTP module, L loss."""
    name = "pipeline-model-parallel-layout"
    written = given.word(name).replace(",", "")
    for pattern in (r"\(([^()]+)\)\*([0-9]{1,5})", r"([EtmL|])\*([0-9]{1,5})"):
        pieces, place, length = [], 0, 0
        for part in re.finditer(pattern, written):
            length += len(part[1]) * int(part[2])
            if length > _LONGEST_LAYOUT:
                raise given.error(name, f"must have at most {_LONGEST_LAYOUT} layers and stages")
            pieces += [written[place:part.start()], part[1] * int(part[2])]
            place = part.end()
        written = "".join(pieces) + written[place:]
    whole = re.fullmatch(r"E[t|]*(m*)L", written)
    if whole is None or len(whole[1]) != model.num_mtp_layers:
        rule = "must begin with E, end in L with all m in the last stage, and have t and | between"
        raise given.error(name, rule)
    return tuple(stage.count("t") for stage in written.split("|"))


def _recompute(given: Given, model: Model) -> dict[str, Any]:
    kind = given.word("recompute-granularity", "none", ("none", "null", "full", "selective"))
    method = given.word("recompute-method", "uniform", ("uniform", "block", "none", "null"))
    layers, modules = given.number("recompute-num-layers"), given.all("recompute-modules", ("core_attn",))
    if given.is_on("recompute-activations"):
        kind = "selective"
    if given.is_on("moe-layer-recompute"):
        kind, modules = "selective", (*(modules if kind == "selective" else ()), "moe")
    if kind == "full":
        count = 1 if layers is None else layers
        block = {"kernels": {"recompute_method": "block"}} if method == "block" else {}
        return {"recompute": "full", **block, **({"recompute_num_layers": count} if count != 1 or block else {})}
    if kind != "selective":
        return {"recompute": "none"}
    regions = []
    for module in modules:
        if module not in MODULES:
            raise given.error("recompute-modules", f"must be some of {', '.join(MODULES)}: others are not counted yet")
        if module == "layernorm" and not (model.num_experts or model.kv_lora_rank):
            given.warnings.append(f"{given.shown('recompute-modules')} layernorm changes nothing in dense layers, whose"
                                  " norms are part of the projections")
        else:
            regions.append(MODULES[module])
    return {"recompute": "+".join(dict.fromkeys(regions)) or "none"}
