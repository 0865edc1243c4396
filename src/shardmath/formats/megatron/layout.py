"""Layers of every stage and kind in Megatron-LM: layouts of pipelines as text, and lists of zeros and ones."""

from __future__ import annotations

import re
from typing import Any

from shardmath.configuration.defaults import GRADIENTS_AHEAD, WEIGHTS_AHEAD
from shardmath.configuration.settings import CALLED
from shardmath.formats.options import Options
from shardmath.models.model import Model

_LONGEST_LAYOUT = 2**14
#: Modules of --recompute-modules, and the regions that they are here.
MODULES = {
    **CALLED, "mlp": "mlp", "layernorm": "layernorm", "mla_up_proj": "mla_up_proj",
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
    GRADIENTS_AHEAD: "overlap-grad-reduce", WEIGHTS_AHEAD: "overlap-param-gather",
    "tp_comm_overlap": "tp-comm-overlap",
    "overlap_cpu_optimizer_d2h_h2d": "overlap-cpu-optimizer-d2h-h2d",
}


def layout_of(options: Options, model: Model, num_gpus: int | None) -> dict[str, Any]:
    """Return sizes of groups, batch, stages and recompute. Raises InputError that blames a flag."""
    layout: dict[str, Any] = {
        "seq_length": options.number("seq-length") or options.number("encoder-seq-length")
                      or options.needed("seq-length"),
        "micro_batch_size": options.needed("micro-batch-size"),
    }
    layout |= {name: options.needed(flag) for name, flag in SIZES.items() if options.number(flag) is not None}
    layout |= {name: 1 for name, flag in SWITCHES.items() if options.is_on(flag)}
    # Megatron-LM overlaps nothing unless its flags say so.
    layout |= {name: 0 for name in (GRADIENTS_AHEAD, WEIGHTS_AHEAD) if name not in layout}
    if model.num_experts and (width := options.number("expert-tensor-parallel-size")) is not None:
        layout["expert_tensor_parallel"] = width
    tensor = layout.get("tensor_parallel", 1)
    layout["sequence_parallel"] = options.is_on("sequence-parallel") and tensor > 1
    layout |= _gpus(options, layout, num_gpus)
    layout |= _batch(options)
    layout |= _stages(options, model, layout)
    return layout | _recompute(options, model)


def _gpus(options: Options, layout: dict[str, Any], num_gpus: int | None) -> dict[str, Any]:
    ranks = 1
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        ranks *= layout.get(name, 1)
    if num_gpus is None:
        return {}
    if ranks < 1 or num_gpus % ranks:
        options.warnings.append(f"the {num_gpus} GPUs of the launcher are not a multiple of TP * CP * PP = {ranks}:"
                              " their number is not used")
        return {}
    return {"num_gpus": num_gpus}


def _batch(options: Options) -> dict[str, Any]:
    stated, schedule = options.number("global-batch-size"), options.words.get("step-batch-size-schedule")
    options.asked.add("step-batch-size-schedule")
    if stated is None and schedule:
        last = schedule[-1].split()[-1:] or [""]
        size = last[0].rpartition(":")[2]
        if not (size.isascii() and size.isdecimal() and len(size) < 12):
            raise options.error("step-batch-size-schedule", "must end in a number of sequences, such as 12B:1536")
        return {"global_batch_size": int(size)}
    return {} if stated is None else {"global_batch_size": stated}


def _stages(options: Options, model: Model, layout: dict[str, Any]) -> dict[str, Any]:
    """Return chunks of layers per rank, and layers of every stage where they are listed."""
    pipeline = layout.get("pipeline_parallel", 1)
    layers, chunks = (options.number(name) for name in
                      ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"))
    if "pipeline-model-parallel-layout" in options:
        listed = _listed(options, model)
        if pipeline < 1 or len(listed) % pipeline:
            raise options.error("pipeline-model-parallel-layout", f"must have a multiple of {pipeline} stages")
        return {"pipeline_layout": listed, "virtual_pipeline": len(listed) // pipeline}
    if chunks is None and layers is not None:
        total = model.num_layers + layout.get("account_for_embedding", 0) + layout.get("account_for_loss", 0)
        if pipeline < 1 or layers < 1 or total % (pipeline * layers):
            rule = f"times {options.shown('pipeline-model-parallel-size')} must divide the {total} layers"
            raise options.error("num-layers-per-virtual-pipeline-stage", rule)
        chunks = total // pipeline // layers
    return {"virtual_pipeline": chunks} if chunks is not None and chunks != 1 else {}


def _listed(options: Options, model: Model) -> tuple[int, ...]:
    """Read the layers of every stage from ``Ett|(tt|)*2ttL`` and the like: E embedding, t layer, m MTP, L loss."""
    name = "pipeline-model-parallel-layout"
    written = options.word(name).replace(",", "")
    for pattern in (r"\(([^()]+)\)\*([0-9]{1,5})", r"([EtmL|])\*([0-9]{1,5})"):
        pieces, place, length = [], 0, 0
        for part in re.finditer(pattern, written):
            length += len(part[1]) * int(part[2])
            if length > _LONGEST_LAYOUT:
                raise options.error(name, f"must have at most {_LONGEST_LAYOUT} layers and stages")
            pieces += [written[place:part.start()], part[1] * int(part[2])]
            place = part.end()
        written = "".join(pieces) + written[place:]
    whole = re.fullmatch(r"E[t|]*(m*)L", written)
    if whole is None or len(whole[1]) != model.num_mtp_layers:
        rule = "must begin with E, end in L with all m in the last stage, and have t and | between"
        raise options.error(name, rule)
    return tuple(stage.count("t") for stage in written.split("|"))


def _recompute(options: Options, model: Model) -> dict[str, Any]:
    kind = options.word("recompute-granularity", "none", ("none", "null", "full", "selective"))
    method = options.word("recompute-method", "uniform", ("uniform", "block", "none", "null"))
    layers, modules = options.number("recompute-num-layers"), options.all("recompute-modules", ("core_attn",))
    if options.is_on("recompute-activations"):
        kind = "selective"
    if options.is_on("moe-layer-recompute"):
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
            rule = f"must be some of {', '.join(MODULES)}: others are not counted yet"
            raise options.error("recompute-modules", rule)
        if module == "layernorm" and not (model.num_experts or model.kv_lora_rank):
            options.warnings.append(f"{options.shown('recompute-modules')} layernorm changes nothing in dense layers, "
                                    "whose norms are part of the projections")
        else:
            regions.append(MODULES[module])
    return {"recompute": "+".join(dict.fromkeys(regions)) or "none"}


__all__ = ["MOST_LAYERS", "layer_pattern"]

MOST_LAYERS = 10_000
_PATTERN = re.compile(r"\(?\s*\[([01](?:\s*,\s*[01])*)\s*\]\s*(?:\*\s*([0-9]{1,4}))?\s*\)?")


def layer_pattern(written: str) -> list[bool]:
    """Return the layers with experts: 0 and 1 of a list, of products and sums of lists; never run as code.

    Raises ValueError with the rule.
    """
    inner = written.strip()
    repeat = re.fullmatch(r"\((.*)\)\s*\*\s*([0-9]{1,4})", inner)
    terms, times = ([repeat[1]], int(repeat[2])) if repeat else ([inner], 1)
    terms = terms[0].strip().removeprefix("(").removesuffix(")").split("+") if repeat is None else terms[0].split("+")
    layers: list[bool] = []
    for term in terms:
        part = _PATTERN.fullmatch(term.strip())
        if part is None:
            raise ValueError("must be a number, or a list of 0 and 1 such as ([0]*3+[1]*58)")
        layers += [digit == "1" for digit in re.findall("[01]", part[1])] * int(part[2] or 1)
        if len(layers) * max(times, 1) > MOST_LAYERS:
            raise ValueError(f"must have at most {MOST_LAYERS} layers")
    return layers * times
