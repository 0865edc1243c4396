"""Optimizer buffers that do not depend on the number of parameters: the tables of bitsandbytes."""

from __future__ import annotations

from ..ledger import Component, Lifetime, Place, Role, Tensor


def _table(name: str, meaning: str) -> Tensor:
    return Tensor(name, "optimizer_tables", Role.BUFFER, (), 1024, Lifetime.ONCE, "bitsandbytes", meaning)


COMPONENTS = (
    Component(
        "optimizer_tables", "Tables of the optimizer", 96, Place.STAGE,
        (
            _table("signed", "fp32 table of the 256 values of first moments, shared by all quantised tensors"),
            _table("unsigned", "fp32 table of the 256 values of second moments, shared by all quantised tensors"),
        ),
        options={"optimizer": ("adamw_8bit", "adamw_8bit_alone")},
        note="Models whose tensors all have less than 4096 elements have none.",
    ),
)
