"""Layers that Megatron-Bridge makes itself: Gemma 2 and 3, EXAONE 4, K-EXAONE, OLMoE are read, others refused.

No flag of Megatron-LM says such a layer. Its settings are those of a Llama with the same dimensions; fields of the
model and kernels are put in behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.run import Run
from shardmath.formats.scripts.python_values import Class
from shardmath.formats.table import Words
from shardmath.models.class_kernels import bridge_kernels
from shardmath.models.model import Model

__all__ = ["EXAONE_4", "GEMMA_2", "GEMMA_3", "PACKING", "PARTS", "PATTERN", "PROVIDERS", "as_flags_say",
           "bridge_words", "refuse_attention", "with_own_layers"]

#: Families that are read, as ``config.json`` calls them.
GEMMA_2, GEMMA_3, EXAONE_4 = "gemma2", "gemma3_text", "exaone4"
#: Names of models whose attention raises an error for packed sequences, and what that attention is.
_UNPACKED = (
    (re.compile(r"gemma-2-"), "FlexAttention with bounded scores (Gemma 2)"),
    (re.compile(r"EXAONE-4\.0"), "Megatron-Core's own attention (EXAONE 4)"),
)
#: Names of models, the class of their attention that is counted, and what a release without that class has.
_ATTENTION = (
    (re.compile(r"gemma-2-"), "megatron.bridge.models.gemma.gemma2_provider.Gemma2FlexDotProductAttention",
     "bounded scores in single operations (Gemma 2 in Megatron-Bridge without FlexAttention)"),
)
#: Settings that pack sequences, which attention is told of with every batch.
PACKING = ("dataset.enable_offline_packing", "dataset.enable_in_batch_packing")
#: Classes of models whose usual settings are those of a model of the catalogue.
PROVIDERS = {"Gemma3ModelProvider": "google/gemma-3-1b-pt", "OlMoEModelProvider": "allenai/OLMoE-1B-7B-0924"}
#: Decoders of text by what of their layers is not counted.
PARTS = (
    (re.compile(r"EXAONE-4\.0-32B"), "layers with windows among those without (EXAONE 4 32B)"),
    (re.compile(r"K-EXAONE-2\.0"),
     "gates and windows by layer, shared predictions (K-EXAONE 2.0)"),
    (re.compile(r"Step-3\.5"), "gates of heads, and windows with another number of heads (Step 3.5)"),
    (re.compile(r"Gemma(?!3Model)"), "layers of this Gemma"),
)
#: Fields of a model that no flag says, with what all of them mean.
_SAID = {"norms": "pre", "qk_norms": "head", "dense_mtp_layers": False, "attention_softcapping": False,
         "logit_softcapping": False}
_WINDOW, _BASES, _ACTIVATION = "model.window_size", "model.rotary_base", "model.activation_func"
#: Layers with a window before each number of layers without one, which flags say as one number.
PATTERN, _STEP = "model.interleaved_attn_pattern", "model.window_attn_skip_freq"
#: Kernels of the rotary embedding, and the same with a table for layers with windows.
_TWICE = {"unfused": "unfused_twice", "fused": "fused_twice"}


def as_flags_say(model: Model) -> Model:
    """Return a model with the same dimensions and layers that flags can say."""
    if not _has_own_layers(model):
        return model
    unsaid = {"qk_norm": False} if model.model_type == EXAONE_4 else {}  # its layers name no norms of queries and keys
    return model.model_copy(update={"mlp": "swiglu", **_SAID, **unsaid})


def _has_own_layers(model: Model) -> bool:
    return model.model_type == GEMMA_3 or any(getattr(model, field) != value for field, value in _SAID.items())


def bridge_words(words: Mapping[str, Words], model: Model | None) -> dict[str, Words]:
    """Return settings as all models have them.

    Gemma 3 says a window as one number, the query's own token included, which layers have one by two numbers, and the
    base of the layers with a window before that of the others. Raises InputError for another pattern of layers.
    """
    said = dict(words)
    if model is None or model.model_type != GEMMA_3:
        return said
    window, pattern, bases = (words.get(key, ()) for key in (_WINDOW, PATTERN, _BASES))
    if len(window) == 1 and window[0].isdecimal():
        said[_WINDOW] = (str(int(window[0]) - 1), "0")
    if pattern:
        if len(pattern) != 2 or not pattern[0].isdecimal() or pattern[1] != "1":
            rule = "must be two numbers, of which the last is 1: others are not counted yet"
            raise InputError(PATTERN, " ".join(pattern), rule, "5 1")
        said[_STEP] = (str(int(pattern[0]) + 1),)
        del said[PATTERN]
    if len(bases) == 2:
        said[_BASES] = bases[1:]
    if words.get(_ACTIVATION) == ("fast_gelu",):
        said[_ACTIVATION] = ("silu",)
    return said


def refuse_attention(
    words: Mapping[str, Words | None], key: str, resolve: Callable[[str], Any],
) -> tuple[str, ...]:
    """Raise InputError for attention of the model named by ``key`` that is not counted, or takes no packed sequences.

    ``resolve`` returns what a dotted name is in the checkout around a recipe. Returns the settings that were asked.
    """
    name = " ".join(words.get(key) or ())
    for pattern, dotted, noun in _ATTENTION:
        if pattern.search(name) and not isinstance(resolve(dotted), Class):
            raise InputError(key, name, f"must be a decoder of text that is counted: {noun} are not counted yet")
    attention = next((noun for pattern, noun in _UNPACKED if pattern.search(name)), None)
    if attention is None:
        return ()
    for setting in PACKING:
        if words.get(setting) == ("true",):
            raise InputError(setting, "true", f"must be false: {attention} takes no packed sequences", "false")
    return PACKING


def with_own_layers(run: Run, model: Model | None) -> Run:
    """Return a run whose model has the layers of ``model``, which it was converted from, and their kernels."""
    if model is None or not _has_own_layers(model):
        return run
    kernels = run.arguments["kernels"]
    own = bridge_kernels(model.model_type, model.architecture)
    if model.model_type == GEMMA_3:
        own["rope"] = _TWICE[kernels.get("rope", "fused")]
    if model.model_type == EXAONE_4:  # Megatron-Core's own attention, with a softmax in 16 bits
        own = {"attention": "fused_softmax"}
    fields = {field: getattr(model, field) for field in ("mlp", "model_type", *_SAID)}
    return replace(run, model=run.model.model_copy(update=fields),
                   arguments={**run.arguments, "kernels": {**kernels, **own}})
