"""Norms and rotary embedding in flags of Megatron-LM, both ways; no tensor's size follows from them.

Defaults are those of ``megatron/training/arguments.py`` (release 0.16.1), and of ``MLATransformerConfig`` for what no
flag says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardmath.errors import InputError
from shardmath.models.rotary import LARGEST, RopeScaling

if TYPE_CHECKING:
    from shardmath.formats.options import Options
    from shardmath.models.model import Model

#: Meaning of --use-rope-scaling with any factor: Llama 3's frequencies.
_LLAMA3: dict[str, Any] = {
    "kind": "llama3", "original_length": 8192, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0,
}
#: The factor of the model that pretrain_gpt.py builds, whatever --rope-scaling-factor says.
BUILT_FACTOR = 8.0
#: YaRN of latent attention, where no flag says otherwise.
_YARN: dict[str, Any] = {"kind": "yarn", "original_length": 4096, "beta_fast": 32.0, "beta_slow": 1.0}
_EPSILON, _BASE = 1e-5, 10_000

#: Flags of the rotary embedding, which models with learned positions have not.
FLAGS = ("rotary-base", "use-rope-scaling", "rope-scaling-factor", "rotary-seq-len-interpolation-factor", "rope-type",
         "rotary-scaling-factor", "mscale", "mscale-all-dim")


def norm_epsilon_of(options: Options) -> float:
    """Return the epsilon of the norms; two flags set it."""
    return options.real("norm-epsilon", options.real("layernorm-epsilon", _EPSILON))


def rotary_of(options: Options, latent: bool) -> dict[str, Any]:
    """Base and scaling of the rotary embedding, as fields of ``Model``."""
    base = _figure(options, "rotary-base", _BASE, 1)
    if latent:
        return {"rope_base": base, "rope_scaling": _yarn_of(options)}
    if options.is_on("use-rope-scaling"):
        factor = _figure(options, "rope-scaling-factor", BUILT_FACTOR)
        return {"rope_base": base, "rope_scaling": RopeScaling(factor=factor, **_LLAMA3)}
    linear = _figure(options, "rotary-seq-len-interpolation-factor", 0)
    return {"rope_base": base, "rope_scaling": RopeScaling(kind="linear", factor=linear) if linear else None}


def rotary_part_of(options: Options, width: int) -> int:
    """Return a head's rotary elements, 0 for all: a share rounded to pairs. Raises InputError for a wrong share."""
    share = options.real("rotary-percent", 1.0)
    if not 1 <= width * share <= width:
        raise options.error("rotary-percent", "must leave at least one element of a head, and be at most 1")
    turned = (int(width * share) + 1) // 2 * 2
    return turned if turned < width else 0


def _yarn_of(options: Options) -> RopeScaling | None:
    """YaRN of latent attention, which scales nothing with a factor of 1."""
    factor = _figure(options, "rotary-scaling-factor", 1.0)
    mscale, all_dim = _figure(options, "mscale", 1.0), _figure(options, "mscale-all-dim", 0.0)
    if options.word("rope-type", "yarn", ("rope", "yarn")) == "rope" or factor == 1:
        return None
    return RopeScaling(factor=factor, mscale=mscale, mscale_all_dim=all_dim, **_YARN)


def _figure(options: Options, flag: str, default: float, least: int = 0) -> float:
    """Return the number of a flag, in the range that a rotary embedding has."""
    figure = options.real(flag, default)
    if not least <= figure < LARGEST:
        raise options.error(flag, f"must be a number from {least} to {LARGEST}")
    return figure


def rotary_flags(model: Model) -> Iterator[tuple[str, ...]]:
    """Yield flags of norm and rotary embedding. Raises InputError for a scaling that no flag says."""
    if model.norm_epsilon is not None:
        yield "norm-epsilon", f"{model.norm_epsilon:g}"
    if not model.rope_base:
        return
    if not model.rope_base.is_integer():
        raise InputError("write", "megatron", f"must be a format that can say rope_base = {model.rope_base:g}")
    yield "rotary-base", f"{model.rope_base:.0f}"
    if model.qk_rope_head_dim and not model.kv_lora_rank:
        yield "rotary-percent", f"{model.qk_rope_head_dim / model.head_dim:.15g}"
    scaling = model.rope_scaling
    if scaling is None:
        return
    figures = scaling.model_dump(exclude_defaults=True)
    if model.kv_lora_rank and figures.items() >= _YARN.items():
        yield "rotary-scaling-factor", f"{scaling.factor:g}"
        yield "mscale", f"{scaling.mscale:g}"
        yield "mscale-all-dim", f"{scaling.mscale_all_dim:g}"
    elif not model.kv_lora_rank and figures.items() >= _LLAMA3.items():
        yield ("use-rope-scaling",)
        yield "rope-scaling-factor", f"{scaling.factor:g}"
    else:
        said = ", ".join(f"{name} = {value}" for name, value in figures.items())
        raise InputError("write", "megatron", f"must be a format that can say rope_scaling with {said}")
