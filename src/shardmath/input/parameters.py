"""Check values of parameters: integers in range, and layouts that keep every rule."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import DEFAULTS, LIBRARIES, PARAMETERS, SHORT
from shardmath.input.meant import parameter_of, truth
from shardmath.input.quantities import length

#: The largest value of any parameter. Products of them stay exact in 64-bit floating point.
LARGEST = 2**31
#: Parameters that few people set, which a job takes by name.
OTHERS: tuple[str, ...] = tuple(name for name in DEFAULTS if PARAMETERS[name][4] not in ("model", "machine"))
#: Parameters of the machine that have a usual value: efficiencies, latencies, overlaps.
MACHINE: tuple[str, ...] = tuple(name for name in DEFAULTS if PARAMETERS[name][4] == "machine")
#: Parameters of a run's memory that follow from the GPU, beside its memory.
OF_GPU = (*LIBRARIES["hopper"], "context_bytes")
#: Parameters that only formulas for uneven stages have.
UNEVEN = ("first_stage_layers", "last_stage_layers", "account_for_embedding", "account_for_loss")
#: Names of parameters as people type them, by parameter.
TYPED: Mapping[str, str] = {
    **{name: short.lower() for name, short in SHORT.items() if PARAMETERS[name][3] != 1},
    "num_gpus": "gpus", "seq_length": "seq",
}

#: Digits in groups of three, as people write large numbers.
_GROUPED = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)
#: Words behind a number of tokens.
_BEHIND = re.compile(r"\s*(i?b|tok(en)?s?)$", re.ASCII | re.IGNORECASE)
_WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.])")
_BY_LETTER = {**{short: name for name, short in TYPED.items()}, **{row[0]: name for name, row in PARAMETERS.items()}}


def long_name(name: str) -> str:
    """Return the long name of a parameter named by its letter or as people type it; any other text as it is."""
    return name if name in PARAMETERS else _BY_LETTER.get(name, name)


def long_names(formula: str) -> str:
    """Return a formula with long names for letters and for names as people type them."""
    return _WORDS.sub(lambda word: long_name(word[0]), formula)


def nearest_parameter(name: str, known: Collection[str]) -> str:
    """Return the parameter that ``tp`` or another program's name stands for, else those spelled most like ``name``."""
    meant = next((long for long, short in TYPED.items() if short == name.lower() and long in known), None)
    return meant or parameter_of(name, known, TYPED) or nearest_names(name, known)


def limits(name: str) -> tuple[int, int]:
    """Return the smallest and the largest legal value of the parameter ``name``."""
    _, unit, minimum, maximum, kind, _ = PARAMETERS[name]
    if kind == "machine" or (kind == "cluster" and unit == "bytes"):
        return minimum, 2**53 if maximum is None else maximum
    return minimum, LARGEST if maximum is None else maximum


def checked(name: str, value: object) -> int:
    """Return ``value`` as an integer that is legal for the parameter ``name`` on its own.

    Raises InputError that names the parameter, the value, the range and the nearest legal value.
    """
    minimum, largest = limits(name)
    rule = f"must be an integer from {minimum} to {largest}"
    if isinstance(value, bool) and (minimum, largest) == (0, 1):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(name, value, rule, _nearest_integer(name, value))
    if not minimum <= value <= largest:
        raise InputError(name, value, rule, str(min(max(value, minimum), largest)))
    return value


def other_values(others: Mapping[str, int]) -> dict[str, int]:
    """Return values of parameters that few people set. Raises InputError for an unknown name and an illegal value."""
    for name in others:
        if name not in OTHERS:
            raise InputError("parameter", name, "must be a parameter of the job", nearest_parameter(name, OTHERS))
    return {name: checked(name, value) for name, value in others.items()}


def _nearest_integer(name: str, value: object) -> str | None:
    """Return the integer that a value stands for, the first of several, or how to find one that is left open."""
    if isinstance(value, str) and value.strip().lower() == "auto" and PARAMETERS[name][4] in ("layout", "training"):
        return "the one that `shardmath recommend` finds"
    if isinstance(value, str) and not _GROUPED.fullmatch(value):
        value = value.partition(",")[0]
    meant = meant_integer(name, value.replace(",", "") if isinstance(value, str) else value)
    return None if meant is None else str(meant)


def meant_integer(name: str, value: object) -> int | None:
    """Return the legal integer that stands for a value of the parameter ``name``: for 4.0, "4", "8k" tokens or "on"."""
    minimum, largest = limits(name)
    tokens = length(_BEHIND.sub("", value)) if isinstance(value, str) and PARAMETERS[name][1] == "tokens" else None
    if tokens is not None:
        meant = tokens
    elif (minimum, largest) == (0, 1) and (said := truth(value)) is not None:
        meant = int(said)
    else:
        try:
            meant = round(float(value))  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(meant, minimum), largest)


def refuse_illegal(evaluator: ModuleType, inputs: Mapping[str, int]) -> None:
    """Raise InputError for the first rule that the configuration breaks.

    ``evaluator`` is a generated module of terms; ``inputs`` has a value for each of its inputs.
    """
    values = {name: inputs[name] for name in evaluator.INPUTS}
    met = evaluator.rules_met(**values)
    for (_, field, text), kept in zip(evaluator.RULES, met, strict=True):
        if not kept:
            raise InputError(field, values[field], with_numbers(text, values))


def with_numbers(rule: str, values: Mapping[str, int]) -> str:
    """Return a rule followed by the values of the parameters that it names."""
    numbers = ", ".join(f"{name} = {values[name]}" for name in PARAMETERS if name in rule and name in values)
    return f"{rule} ({numbers})" if numbers else rule


def model_values(model: Any) -> dict[str, int]:
    """Return the parameters of a model by name, as integers."""
    return {
        name: int(getattr(model, name))
        for name, (_, _, _, _, kind, _) in PARAMETERS.items()
        if kind == "model"
    }
