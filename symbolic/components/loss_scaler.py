"""The scaler of the loss in fp16 training: five numbers that Megatron-Core keeps on the GPU."""

from __future__ import annotations

from ..ledger import Component, Lifetime, Place, Role, Tensor


def _number(name: str, meaning: str) -> Tensor:
    return Tensor(name, "loss_scaler", Role.BUFFER, (), 4, Lifetime.ONCE, "megatron_core", meaning)


COMPONENTS = (
    Component(
        "loss_scaler", "Loss scaler", 95, Place.STAGE,
        (
            _number("scale", "fp32 factor of the loss"),
            _number("smallest", "fp32 smallest factor"),
            _number("growth", "fp32 growth of the factor"),
            _number("backoff", "fp32 decrease of the factor"),
            _number("overflow", "fp32 flag for gradients that are not finite"),
        ),
        options={"precision": ("fp16",)},
    ),
)
