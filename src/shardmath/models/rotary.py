"""Rotary embedding: frequencies scaled for long sequences, and their keys in a ``config.json``. No size follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Lt
from pydantic import AllowInfNan, BaseModel, ConfigDict, Field

from shardmath.errors import InputError, inside, nearest_names

__all__ = ["LARGEST", "Factor", "Kind", "RopeScaling", "rotary_of"]

Kind = Literal["linear", "dynamic", "yarn", "longrope", "llama3"]
"""Kinds of scaling, as Transformers names them."""

LARGEST = 2**31
"""Above every base and factor; it keeps slips out of the arithmetic."""

Factor = Annotated[float, Ge(0), Lt(LARGEST), AllowInfNan(False)]


class RopeScaling(BaseModel):
    """How the frequencies of the rotary embedding are scaled; 0 for a figure that the source does not state.

    ``factor``: by which the longest sequence grew. ``original_length``: tokens of a sequence before that. ``llama3``
    scales frequencies between ``low_frequency_factor`` and ``high_frequency_factor`` of the original length, ``yarn``
    those between ``beta_slow`` and ``beta_fast`` rotations of it, with the temperatures ``mscale`` and
    ``mscale_all_dim`` of latent attention.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: Kind
    factor: Factor = 0.0
    original_length: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    low_frequency_factor: Factor = 0.0
    high_frequency_factor: Factor = 0.0
    beta_fast: Factor = 0.0
    beta_slow: Factor = 0.0
    mscale: Factor = 0.0
    mscale_all_dim: Factor = 0.0


#: Figures of ``RopeScaling`` by their keys in a file.
_FIGURES = {
    "factor": "factor", "low_freq_factor": "low_frequency_factor", "high_freq_factor": "high_frequency_factor",
    "beta_fast": "beta_fast", "beta_slow": "beta_slow", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim",
}
#: Angles of text, time, height and width in parts of a head, which are plain for text.
_OF_IMAGES = "mrope"
_ORIGINAL = "original_max_position_embeddings"
_PLAIN = "default"
_KINDS = get_args(Kind)


def rotary_of(base: object, parameters: object, key: str, base_key: str = "rope_theta") -> dict[str, Any]:
    """Return ``rope_base`` and ``rope_scaling`` of ``Model``.

    ``base`` is what the file or its class says outside of ``parameters``, which stand under ``key`` and win. Raises
    InputError that blames a key.
    """
    if parameters is None:
        return {"rope_base": _number(base_key, base), "rope_scaling": None}
    if not isinstance(parameters, Mapping):
        raise InputError(key, parameters, "must be a table or null")
    with inside(key):
        if "rope_theta" in parameters:
            base, base_key = parameters["rope_theta"], "rope_theta"
            return {"rope_base": _number(base_key, base), "rope_scaling": _scaling(parameters)}
        scaling = _scaling(parameters)
    return {"rope_base": _number(base_key, base), "rope_scaling": scaling}


def _scaling(parameters: Mapping[str, object]) -> RopeScaling | None:
    kind_key = "rope_type" if "rope_type" in parameters else "type"
    kind = parameters.get(kind_key, _PLAIN)
    if kind in (_PLAIN, _OF_IMAGES):
        return None
    if kind not in _KINDS:
        near = nearest_names(kind, [_PLAIN, *_KINDS]) if isinstance(kind, str) else None
        raise InputError(kind_key, kind, f"must be one of {', '.join([_PLAIN, *_KINDS])}", near)
    figures = {field: _number(name, parameters[name], 0) for name, field in _FIGURES.items()
               if parameters.get(name) is not None}
    length = parameters.get(_ORIGINAL)
    if length is not None and not (type(length) is int and 0 < length <= LARGEST):
        raise InputError(_ORIGINAL, length, f"must be an integer from 1 to {LARGEST}")
    return RopeScaling(kind=kind, original_length=length or 0, **figures)  # type: ignore[arg-type]


def _number(key: str, value: object, least: float = 1) -> float:
    if type(value) not in (int, float) or not least <= value < LARGEST:  # type: ignore[operator]
        raise InputError(key, value, f"must be a number from {least} to {LARGEST}")
    return float(value)  # type: ignore[arg-type]
