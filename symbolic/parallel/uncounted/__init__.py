"""Combinations of choices that have not been counted, by what of them is not."""

from __future__ import annotations

from collections.abc import Mapping

from ...systems import refusals
from .adapters import of_adapters
from .models import of_models, of_routers, of_two_widths
from .precisions import of_fp8, of_fp32
from .programs import of_compiled, of_deepspeed, of_megatron_fsdp, of_optimizers, of_pipelines


def refuse_impossible(choices: Mapping[str, str]) -> None:
    """Refuse combinations of choices that have not been counted.

    Raises ValueError with the combination.
    """
    if reasons := uncounted_in(choices):
        raise ValueError(f"not counted yet: {reasons[0]}")


def uncounted_in(choices: Mapping[str, str]) -> list[str]:
    """Return the combinations among these choices that have not been counted."""
    refused = (
        *of_models(choices), *of_routers(choices), *of_two_widths(choices), *of_fp32(choices), *of_pipelines(choices),
        *of_optimizers(choices), *of_fp8(choices), *of_adapters(choices), *of_deepspeed(choices),
        *of_megatron_fsdp(choices), *of_compiled(choices), *refusals(choices),
    )
    return [text for text, holds in refused if holds]
