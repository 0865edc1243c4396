"""Transformers whose layers are walked operation by operation: the words of a step, with passes from their tapes.

Passes of layers and of the final norm follow from the operations (``accounts/layers/scripts.py``). Here stands what is
around them: the embedding, the head, and the units of FSDP2.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..axis import fits
from ..parallel.walked_layers import not_walked
from . import attended, transformers

#: Options with which embedding, head and step are those below.
_STEP: Mapping[str, tuple[str, ...]] = {
    "peak": ("torch",), "loss": ("huggingface", "huggingface_freed"), "data_parallel": ("ddp", "fsdp"),
    "precision": ("bf16", "mixed"), "units": ("root", "ends"), "pipeline": ("own",), "optimizer_step": ("after",),
    "adapters": ("none",), "base_weights": ("full",), "documents": ("one",), "dropout": ("none",),
    "positions": ("rotary", "partial"), "capping": ("none",), "norms": ("pre",), "residual": ("sequential",),
    "normalisation": ("rms",), "gathered_input": ("dropped",), "embedding_norm": ("none",), "zero_offload": ("none",),
}
#: Layers whose words are written out.
_WRITTEN = tuple({**transformers.LAYERS, **own} for own in attended.OPTIONS.values())
#: Tensors that pass between points, of those of written layers.
PASSING = ("positions", "tied.gradient", "tied.embedding_gradient", "units.apart", "units.joined")
_EVENTS: Mapping[str, str] = {
    "step_begin": "",
    "embedding_forward": "save begin =positions share use:step_workspace.forward",
    **{f"{kind}_{way}": f"tape:{kind}_{way}" for kind in ("layer", "expert_layer") for way in ("forward", "backward")},
    "head_forward": "tape:final_norm_forward read:head.input -positions =loss.held_by_caller =loss.logits_in_model",
    "head_backward": "=last_steps.loss grad:head =tied.gradient use:step_workspace.backward return"
                     " -last_steps.logits_gradient free:head.input added tape:final_norm_backward free",
    "norm_backward": "",
    "embedding_backward": "unshare +tied.embedding_gradient if:tied.gradient:returned grad:embedding returned"
                          " -tied.gradient -tied.embedding_gradient added free -last_steps.loss",
    "backward_end": "-loss.held_by_caller sum",
    "optimizer_step": "+* -* -all",
}


def is_taped(choices: Mapping[str, str]) -> bool:
    """Tell whether the passes of layers are those of tapes."""
    return fits(_STEP, choices) and not not_walked(choices) and not any(fits(own, choices) for own in _WRITTEN)


def scripts(choices: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the events at the points that differ from those of layers that are written out."""
    if not is_taped(choices):
        return {}
    events = {**transformers.EVENTS["fused"], **_EVENTS}
    if choices["data_parallel"] == "fsdp":
        events = transformers.with_units(choices["units"], events)
    return {point: tuple(words.split()) for point, words in events.items()}


def walked(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Name the sums of terms that these words make one by one."""
    if not is_taped(choices):
        return ()
    own, sharded = (names for _, names in transformers.WALKED)
    return (*own, *(sharded if choices["data_parallel"] == "fsdp" else ()))
