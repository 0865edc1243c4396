"""Rotary embedding of a model: how the frequencies are scaled for long sequences. No tensor's size follows from it."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Lt
from pydantic import AllowInfNan, BaseModel, ConfigDict, Field

__all__ = ["LARGEST", "Factor", "Kind", "RopeScaling"]

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
