"""Flags of Megatron-LM for attention windows, sinks and bounded gates, read and written.

A window of Megatron-Core is a number of earlier tokens, without the query's own, which ``Model`` counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardmath.errors import InputError
from shardmath.formats.megatron.layout import layer_pattern
from shardmath.formats.options import Options
from shardmath.models.windows import step_of

if TYPE_CHECKING:
    from shardmath.models.model import Model

__all__ = ["attention_flags", "attention_of", "is_bounded"]

#: Bounds and offset of GPT-OSS, in Megatron-Bridge too; no byte depends on them.
_BOUND, _OFFSET = "7.0", "1.0"
_SOFTMAX = ("vanilla", "off-by-one", "learnable")


def attention_of(options: Options, layers: int) -> dict[str, Any]:
    """Return the fields of ``Model`` that the flags mean. Raises InputError that blames a flag."""
    softmax = options.word("softmax-type", _SOFTMAX[0], _SOFTMAX)
    if softmax == "off-by-one":
        options.warnings.append(f"{options.shown('softmax-type')} off-by-one: counted as without")
    return {**_windows(options, layers), "attention_sinks": softmax == "learnable"}


def is_bounded(options: Options) -> bool:
    """Tell whether the gate is that of GPT-OSS. Raises InputError for one that is not counted yet."""
    options.asked |= {"activation-func-clamp-value", "glu-linear-offset"}
    clamp = [name for name in ("activation-func-clamp-value", "glu-linear-offset") if name in options.words]
    if not options.is_on("quick-geglu"):
        if clamp:
            options.warnings.append(f"{', '.join(map(options.shown, clamp))}: counted without it")
        return False
    bound = options.shown("activation-func-clamp-value")
    if "activation-func-clamp-value" not in options.words:
        raise options.error("quick-geglu", f"must be given with {bound}: without it is not counted yet")
    if not options.size("num-experts", 0):
        experts = options.shown("num-experts")
        raise options.error("quick-geglu", f"must be given with {experts}: dense layers with it are not counted yet")
    if options.is_on("no-bias-gelu-fusion"):
        raise options.error("no-bias-gelu-fusion", f"must not be given with {options.shown('quick-geglu')}: its steps"
                                                   " are not counted yet")
    return True


def _windows(options: Options, layers: int) -> dict[str, int]:
    """Return window and step of the layers without one."""
    words = re.findall(r"[^\s,\[\]()]+", " ".join(options.all("window-size")))
    pattern = "".join(options.all("window-attn-skip-freq", ())).strip("'\"")
    if not words or words[0].lower() in ("null", "none"):
        return {}
    try:
        before, after = (int(word) for word in words)
    except ValueError:
        raise options.error("window-size", "must be two integers, such as 127,0") from None
    if before < 0:
        return {}
    if after > 0:
        rule = "must end with 0: attention to later tokens is not counted yet"
        raise options.error("window-size", rule, f"{before},0")
    step = _step(options, pattern, layers)
    return {} if step == 1 else {"attention_window": before + 1, "full_attention_step": step}


def _step(options: Options, pattern: str, layers: int) -> int:
    """Return N where every N-th layer has no window; 0 for none."""
    if not pattern or pattern.lower() in ("null", "none"):
        return 0
    if pattern.isascii() and pattern.isdecimal() and int(pattern[:9]):
        return int(pattern[:9]) if int(pattern[:9]) <= layers else 0
    try:
        windowed = layer_pattern(pattern)
    except ValueError as error:
        raise options.error("window-attn-skip-freq", str(error)) from None
    step = step_of(["sliding_attention" if has else "full_attention" for has in windowed[:layers]])
    if step is None or len(windowed) < layers:
        rule = "must leave out every n-th of all layers: others are not counted yet"
        raise options.error("window-attn-skip-freq", rule)
    return step


def attention_flags(model: Model) -> Iterator[tuple[str, ...]]:
    """Yield the flags of windows, sinks and the gate. Raises InputError for what Megatron-LM has no flag for."""
    if model.attention_window:
        yield "window-size", f"{model.attention_window - 1},0"
        if model.full_attention_step:
            yield "window-attn-skip-freq", str(model.full_attention_step)
    if model.attention_sinks:
        yield "softmax-type", "learnable"
    if model.mlp == "swiglu_clamped":
        yield ("quick-geglu",)
        yield "activation-func-clamp-value", _BOUND
        yield "glu-linear-offset", _OFFSET
    elif model.mlp == "geglu":
        raise InputError("mlp", model.mlp, "must be another one: Megatron-LM has no flag for it", "swiglu")
