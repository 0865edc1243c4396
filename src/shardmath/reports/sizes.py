"""Sizes of a layout as people see them: columns of a table, or a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardmath.generated.definitions import ABSENT_DEGREES, SHORT
from shardmath.input.parameters import UNEVEN
from shardmath.reports.tables import chance, gib
from shardmath.search.layout import USUAL_SCHEDULES
from shardmath.search.sizes import programs_in

#: Columns of a layout, with what they are called; those of ``_RARE`` only where one is not what is usual.
TITLES = {
    **{name: SHORT[name] for name in (
        "tensor_parallel", *ABSENT_DEGREES, "context_parallel", "pipeline_parallel", "virtual_pipeline")},
    "first_stage_layers": "first stage", "last_stage_layers": "last stage",
    "account_for_embedding": "embedding counts", "account_for_loss": "loss counts", "schedule": "schedule",
    "pipeline_layout": "layers",
    **{name: SHORT[name] for name in (
        "expert_parallel", "expert_tensor_parallel", "micro_batch_size", "sequence_parallel")},
    "recompute": "recompute",
}
#: Columns of switches, where every one was tried and one is not as usual.
_SWITCHES = {
    "recompute_num_layers": "recompute layers", "microbatch_group": "group",
    "distributed_optimizer": "distributed optimizer", "overlap_grad_reduce": "overlapped reduction",
    "overlap_param_gather": "overlapped gathers", "optimizer_offload_percent": "optimizer % on host",
    "data_parallel_replicas": "replicas",
}
_ALL = {**TITLES, **_SWITCHES}
_RARE: Mapping[str, int] = {"virtual_pipeline": 1, **dict.fromkeys(ABSENT_DEGREES, 1), "expert_parallel": 1,
                            "expert_tensor_parallel": 1,
                            **dict.fromkeys(UNEVEN, 0)}

#: The tensor-parallel size of experts.
_ETP = "expert_tensor_parallel"
#: Sizes that are on or off, and how that is said.
_SWITCHED = ("sequence_parallel", "distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather")
_ON = ("off", "on")
#: Characters of a list of layers that a line has; a longer one is left out.
_LONG = 40


def shown_sizes(layouts: Iterable[Mapping[str, int | str]]) -> list[str]:
    """Return names of the sizes that are shown of some layouts."""
    layouts = tuple(layouts)
    programs = dict.fromkeys(name for layout in layouts for name in programs_in(layout))
    return [*programs, *(name for name in _ALL if any(not _is_usual(name, layout) for layout in layouts))]


def title(name: str) -> str:
    """Return the title of a column of sizes, implementations or kernels."""
    return _ALL.get(name, name)


def _is_usual(name: str, layout: Mapping[str, int | str]) -> bool:
    """Check if a size is one that nobody mentions."""
    if name not in layout or name == "pipeline_layout":
        return not layout.get(name)
    if name == _ETP:
        return not _tells_experts(layout)
    return layout[name] in USUAL_SCHEDULES if name == "schedule" else name in _RARE and layout[name] == _RARE[name]


def _tells_experts(layout: Mapping[str, int | str]) -> bool:
    """Check if the tensor-parallel size of experts must be said: without it, Megatron-LM and we take that of TP."""
    return layout[_ETP] != 1 or (int(layout.get("expert_parallel", 1)) > 1 and layout["tensor_parallel"] != 1)


def sizes_of(layout: Mapping[str, int | str], names: Iterable[str]) -> list[str]:
    """Return some sizes of a layout as text; nothing for one that it does not have."""
    return [str(_ON[bool(layout[name])] if name in _SWITCHED and name in layout else layout.get(name, ""))
            for name in names]


def model_parallel(layout: Mapping[str, int]) -> tuple[int, int]:
    """Return ranks that share a model, and of equally many the largest micro-batch first."""
    ranks = layout["tensor_parallel"] * layout["pipeline_parallel"] * layout["context_parallel"]
    return ranks, -layout["micro_batch_size"]


def in_words(layout: Mapping[str, int | str]) -> str:
    """Return a layout in one line; what is usual is left out."""
    on, order = int(layout["tensor_parallel"] != 1), layout.get("schedule")
    usual = {**dict.fromkeys(TITLES, 1), **_RARE, "recompute": "none", "sequence_parallel": on,
             "schedule": order if order in USUAL_SCHEDULES else None}
    layers = str(layout.get("pipeline_layout", ""))
    usual["pipeline_layout"] = layers if len(layers) > _LONG else ""
    always = ("tensor_parallel", "pipeline_parallel", "micro_batch_size")
    names = [*programs_in(layout), *(name for name in _ALL if name in layout)]
    named = [f"{title(name)} {value}" for name, value in zip(names, sizes_of(layout, names), strict=True)
             if name in always or name not in usual or layout[name] != usual[name]
             or (name == _ETP and _tells_experts(layout))]
    return ", ".join(named)


def batch_in_words(sequences: int, seq_length: int) -> str:
    """Return the batch of a step in words."""
    return f"{sequences} {'sequence' if sequences == 1 else 'sequences'} of {seq_length} tokens"


def in_space(legal: int | None, size: int) -> str:
    """Return how many layouts were looked at: the legal ones, or all of a space that bounds answered."""
    return f"{size:.2g} layouts by bounds".replace("e+", " x 10^") if legal is None else (
        "1 legal layout" if legal == 1 else f"{legal:,} legal layouts")


def best_in_words(
    layout: Mapping[str, int | str], data_parallel: int, seconds: float | None, peak_bytes: int, verdict: str,
    run_out_probability: float,
) -> str:
    """Return the best layout in one sentence with its time, its memory and its verdict."""
    time = "" if seconds is None else f"{seconds:.2f} s a step, "
    return (f"Best: {in_words(layout)}, DP {data_parallel}: {time}{gib(peak_bytes)} GiB at the peak, {verdict}"
            f" (runs out with a probability of {chance(run_out_probability)})")
