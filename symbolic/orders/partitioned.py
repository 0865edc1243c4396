"""DeepSpeed's ZeRO around layers of Transformers: buckets of gradients, and parameters that stage 3 gathers.

Stages 1 and 2 keep PyTorch's order. Stage 3 has its own linear layers, which make the gradient of the input before that
of the weight, and hooks before and behind every module, also those without weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..parameters import symbols
from . import attended
from .transformers import (
    ADDED_BIASED,
    EVENTS,
    LAYERS,
    TURNED_BACK,
    Layer,
    norm_of_heads,
    norm_of_heads_backward,
    scripts_of,
)
from .words import Passing, Script

qkn, zero3 = symbols("qkn zero3")

_OPTIONS: Mapping[str, tuple[str, ...]] = {**LAYERS, "data_parallel": ("deepspeed",), **attended.OPTIONS["fused"]}
PASSING = (Passing("stages.flat", (), 1, "1 in stages 1 and 2", "deepspeed", 1 - zero3, _OPTIONS),
           Passing("stages.gathered", (), 1, "1 in stage 3", "deepspeed", zero3, _OPTIONS),
           Passing("heads.normed", (), 1, "1 with norms of queries and keys", "deepspeed", qkn, _OPTIONS),
           Passing("heads.plain", (), 1, "1 without them", "deepspeed", 1 - qkn, _OPTIONS))

_TAKEN = {"added": "zero:take", ADDED_BIASED: ADDED_BIASED.replace("added", "zero:take")}
#: Events at points of a step in all stages, in place of those words, or alone.
_IN_PARTS: Mapping[str, Mapping[str, str]] = {
    "loss_backward": {"+loss.gradient_log_softmax": "=last_steps.scaled_loss +loss.gradient_log_softmax"},
    "embedding_backward": {"added": "zero:take -last_steps.loss -last_steps.scaled_loss"
                                    " =last_steps.loss_while_part_reduced zero:reduce",
                           "-last_steps.loss": "-last_steps.loss_while_part_reduced"},
    "last_reduce": {"": "zero:widen"}, "optimizer_step": {"-all": "-all zero:end"},
    "head_backward": _TAKEN, "layer_backward": _TAKEN,
    "backward_end": {"sum": ""},
}
_HEAD, _EMBEDDING = "head.weight", "embedding.weight"
#: Events of stage 3 in place of those words.
_IN_STAGE_3: Mapping[str, Mapping[str, str]] = {
    "embedding_forward": {"save": f"zero:begin zero:in:root zero:in:model zero:in:{_EMBEDDING} save",
                          "next": f"next zero:out:{_EMBEDDING}", "share": "zero:in:tables share zero:out:tables"},
    "layer_forward": {"save:layer_input": "zero:in:layer save:layer_input"},
    "head_forward": {"=loss.held_by_caller": f"zero:in:{_HEAD} =loss.held_by_caller",
                     "=loss.logits_in_model": f"=loss.logits_in_model zero:out:{_HEAD}"},
    "loss_backward": {"+loss.gradient_log_softmax": "zero:in:root +loss.gradient_log_softmax"},
    "head_backward": {"grad:head": f"zero:in:{_HEAD}", "=tied.gradient": "",
                      "+head.input_gradient": "+head.input_gradient grad:head =tied.gradient",
                      "added": f"added zero:out:{_HEAD} zero:in:model"},
    "embedding_backward": {"+tied.embedding_gradient": f"zero:in:{_EMBEDDING} +tied.embedding_gradient",
                           "added": f"added zero:out:{_EMBEDDING}"},
}


def _if_normed(words: str) -> str:
    """Return words of which those of DeepSpeed are played with norms of heads alone."""
    return " ".join(f"if:heads.normed:{word}" if word.startswith("zero:") else word for word in words.split())


class _Gathered(Layer):
    """The words of a layer in stage 3."""

    def module(self, name: str, words: str) -> str:
        return f"zero:in:{name} {words} zero:out:{name}"

    def norm(self, row: str, output: str) -> str:
        return self.module(f"{row}.weight", super().norm(row, output))

    def norm_backward(self, row: str, freed: str, result: str, last: str = "") -> str:
        words = super().norm_backward(row, freed, result, last)
        return self.module(f"{row}.weight", words.replace(" added", f" zero:loose:{row}.weight zero:take"))

    def backward(self) -> str:
        return f"zero:in:layer {super().backward()}"

    def _multiplied(self, weight: str, gradient: str, freed: str) -> str:
        """Return the words of a product: ``gradient`` makes that of its input, ``freed`` frees that of its output."""
        bias = weight.replace(".weight", ".bias")
        words = f"{gradient} grad:{weight} grad:{bias} zero:loose:{weight} {freed} zero:take"
        return self.module(weight, " ".join(words.split()))

    def _down_backward(self) -> str:
        # Its product is made once more before the checkpoint stops.
        again = "again:kept +output -output -attention.sum +down.input_gradient"
        return self._multiplied("swiglu.down.weight", again, "free:swiglu.down.input")

    def _up_backward(self) -> str:
        return self._multiplied("swiglu.up.weight", "+input.gradient", "-up.gradient")

    def _gate_backward(self) -> str:
        made = self._multiplied("swiglu.gate.weight", "+input.gradient", "-gate.gradient free:swiglu")
        return f"{made} +input.sum -input.gradient -input.gradient"

    def _attended_backward(self) -> str:
        return self._multiplied("attention.o_proj.weight", "+context.gradient", "")

    def _v_backward(self) -> str:
        return self._multiplied("attention.v.weight", "+input.gradient", "-v.gradient")

    def _turned(self, name: str) -> str:
        begins, *_, ends = self.module(f"attention.{name}.weight", "of").split()
        normed = self.module(f"attention.{name}_norm.weight", norm_of_heads(name))
        return (f"{begins} +{name}.linear {_if_normed(ends)} {_if_normed(normed)}"
                f" if:heads.plain:{ends} -{name}.linear")

    def _normed_backward(self, name: str) -> str:
        row = f"attention.{name}_norm.weight"
        words = norm_of_heads_backward(name).replace(" added", f" zero:loose:{row} zero:take")
        return (f"{_if_normed(self.module(row, words))} +{name}.joined -{name}.turned_back"
                f" -{name}_norm.input_gradient")

    def _k_backward(self) -> str:
        made = self._multiplied("attention.k.weight", "+input.gradient", TURNED_BACK["k"])
        return f"{made} +input.sum -input.gradient -input.gradient"

    def _q_backward(self) -> str:
        made = self._multiplied("attention.q.weight", "+input.gradient", f"{TURNED_BACK['q']} free:attention")
        return f"{made} -input.gradient"

    def _summed(self) -> str:
        return "-input.sum"


def _replaced(events: str, words: Mapping[str, str]) -> str:
    made = (words.get(word, word) for word in events.split())
    return " ".join(" ".join((*made, words.get("", ""))).split())


_FLAT = {point: _replaced(EVENTS["fused"].get(point, ""), _IN_PARTS.get(point, {}))
         for point in dict.fromkeys((*EVENTS["fused"], *_IN_PARTS))}
_STAGE_3 = {**EVENTS["fused"], **{script.point: script.events for script in scripts_of((), "fused", LAYERS, _Gathered)}}
_GATHERED = {point: _replaced(_replaced(_STAGE_3.get(point, ""), _IN_STAGE_3.get(point, {})), _IN_PARTS.get(point, {}))
             for point in _FLAT}


def _either(point: str) -> str:
    """Return the events of a point: those of the stages that differ, each with its condition."""
    flat, gathered = _FLAT[point], _GATHERED[point]
    if flat == gathered:
        return flat
    return " ".join(f"if:stages.{name}:{word}" for name, events in (("flat", flat), ("gathered", gathered))
                    for word in events.split())


SCRIPTS = tuple(Script(point, _either(point), _OPTIONS) for point in _FLAT)
