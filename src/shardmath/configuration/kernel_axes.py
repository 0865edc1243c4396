"""Axes of kernels with their options, and the implementations that choose or have each option."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.answers import Answer
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS


@dataclass(frozen=True)
class KernelOption(Answer):
    """An option of an axis of kernels."""

    name: str
    """Option of ``--kernel AXIS=OPTION``."""
    meaning: str
    """Tensors that it keeps, or work that it does."""
    chosen_by: tuple[str, ...]
    """Implementations that choose it for a Llama model."""
    had_by: tuple[str, ...]
    """Implementations that have it."""


@dataclass(frozen=True)
class KernelAxis(Answer):
    """An axis of kernels."""

    name: str
    """Axis of ``--kernel AXIS=OPTION``."""
    meaning: str
    """Part of the model or of the training that it is about."""
    options: tuple[KernelOption, ...]
    """Its options."""


def kernel_axes() -> tuple[KernelAxis, ...]:
    """Return every axis of kernels."""
    return tuple(
        KernelAxis(axis, meaning, tuple(_option(axis, option, words) for option, words in options.items()))
        for axis, (meaning, options) in CHOICES.items()
    )


def _option(axis: str, option: str, meaning: str) -> KernelOption:
    chosen = [name for name, item in IMPLEMENTATIONS.items() if item["choices"][axis] == option]
    had = [name for name, item in IMPLEMENTATIONS.items() if option in item["allowed"].get(axis, (option,))]
    return KernelOption(option, meaning, tuple(chosen), tuple(had))
