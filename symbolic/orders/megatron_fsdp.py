"""Megatron-FSDP in Megatron-Core's step: when buckets of weights are gathered, and gradients fill theirs.

By the hooks of ``MegatronFSDP`` in megatron-core 0.16.1: a module gathers its weights before its forward pass. A layer
frees them behind it, gathers them when the gradient of its output is there, and frees them when that of its input is.
The first gradient of a bucket makes it, the last one sends it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import megatron, megatron_local
from .words import Script

FSDP: Mapping[str, tuple[str, ...]] = {"data_parallel": ("megatron_fsdp",)}
#: Event of the gradient of a projection's weight, which is a tensor of its own or lies in the bucket.
_WEIGHT = ".weight_gradient"
#: Modules whose weights have their gradients with those of a projection.
_NORMS: Mapping[str, str] = {"qkv": "/attention_norm/q_norm/k_norm", "gate_up": "/ffn_norm", "up": "/ffn_norm"}
_HEAD = "head/final_norm"
#: Events in which a recomputed layer runs forward again: with its own weights alone.
_RECOMPUTED = "if:recomputed.output:"
#: Words in place of those of the step without Megatron-FSDP, by point.
_WORDS: Mapping[str, Mapping[str, str]] = {
    "layer_backward": {"again": f"{_RECOMPUTED}open:layer again {_RECOMPUTED}close:layer reopen:layer turn:late"},
    "head_backward": {"+*": f"+* take:{_HEAD}"},
    "embedding_backward": {"+*": "+* take:embedding made:embedding"},
}
#: Words before those of the step without it, and behind them.
_AROUND: Mapping[str, tuple[str, str]] = {
    "embedding_forward": ("open:embedding", ""), "layer_forward": ("open:layer", "close:layer"),
    "head_forward": ("open:last", ""), "head_backward": ("", f"made:{_HEAD}"),
    "layer_backward": ("", "release:layer"), "last_reduce": ("shut", ""),
}


def _words(point: str, events: str) -> Iterator[str]:
    for word in events.split():
        yield _WORDS.get(point, {}).get(word, word)
        if word.endswith(_WEIGHT):
            projection = word[1:].removesuffix(_WEIGHT)
            own = f"{projection}{_NORMS.get(projection, '')}"
            yield f"take:{own}" if word[0] == "+" else f"made:{own}"


def _sharded(script: Script) -> Script:
    """Return the script of a point with Megatron-FSDP."""
    before, behind = _AROUND.get(script.point, ("", ""))
    events = " ".join((before, *_words(script.point, script.events), behind)).strip()
    return Script(script.point, events, {**script.options, **FSDP})


SCRIPTS: tuple[Script, ...] = (
    Script("backward_start", "turn", FSDP),
    *(_sharded(script) for script in (*megatron.SCRIPTS, *megatron_local.SCRIPTS)
      if script.point in {*_WORDS, *_AROUND} and script.options.get("layers") != ("experts",)),
)

#: Parameters of a layer in the order of its modules.
MODULES = (
    "attention.o_proj.weight", "attention.o_proj.bias", "attention_norm.weight", "attention_norm.bias",
    "attention.qkv.weight", "attention.qkv.bias", "attention.q_norm.weight", "attention.k_norm.weight",
    "ffn_norm.weight", "ffn_norm.bias", *(f"{mlp}.{name}.{part}" for mlp in ("swiglu", "gelu")
                                          for name in ("gate_up", "up", "down") for part in ("weight", "bias")),
)

#: Sums that the scripts make one by one.
WALKED = ((FSDP, ("gathered", "gathered_last", "unreduced_head", "unreduced_layers", "unreduced_embedding")),)
