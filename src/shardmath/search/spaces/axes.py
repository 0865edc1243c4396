"""The axes of a part: candidates listed, with the value of every symbol that each sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmath.configuration.defaults import default_seq_length
from shardmath.configuration.settings import libraries, recompute_switches
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS
from shardmath.input.parameters import LARGEST, model_values
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.spaces.asking import gpus
from shardmath.search.spaces.candidates import DivisorsOf, listed
from shardmath.search.spaces.declared import Axis, Space
from shardmath.search.spaces.symbols import SETTERS, value_of

#: Divisors are looked for of so many values at most.
_BASES = 256


def axes_of(space: Space, models: Sequence[Model], fixed: Mapping[str, int]) -> tuple[Axis, ...]:
    """Return all axes of ``space`` for models that share an evaluator, in declared order; the implementation is none.

    ``fixed`` has the values of symbols that are not on an axis. Raises InputError for candidates that are none.
    """
    by_symbol: dict[str, Axis] = {}
    for name in space.axes:
        _add(name, space, models, fixed, by_symbol, ())
    return tuple(by_symbol[name] for name in space.axes if name in by_symbol)


def _add(
    name: str, space: Space, models: Sequence[Model], fixed: Mapping[str, int], by_symbol: dict[str, Axis],
    waiting: tuple[str, ...],
) -> None:
    """Put axis ``name`` into ``found``, after those whose divisors it has."""
    declared = space.axes[name]
    if name in by_symbol or name == "implementation":
        return
    if isinstance(declared, DivisorsOf):
        field = f"axes.{name}"
        if name in waiting:
            circle = " <- ".join((*waiting[waiting.index(name):], name))
            raise InputError(field, declared.symbol, f"must not be a divisor of itself: {circle}")
        base = axis_of(declared.symbol, space)
        if base is not None:
            _add(base, space, models, fixed, by_symbol, (*waiting, name))
            of: Sequence[int] = sorted(set(by_symbol[base].values[declared.symbol]))
        elif declared.symbol in space.derived or declared.symbol not in fixed:
            raise InputError(f"{field}.divisors_of", declared.symbol, "must be fixed or an axis")
        else:
            of = (fixed[declared.symbol],)
        if not 1 <= of[0] <= of[-1] <= LARGEST or len(of) > _BASES:
            rule = f"must have at most {_BASES} values from 1 to 2^31, where its divisors are candidates"
            raise InputError(f"{field}.divisors_of", declared.symbol, rule)
        values = tuple(value_of(field, name, value) for value in declared.values(field, of))
        by_symbol[name] = Axis(name, values, {name: values})
    else:
        by_symbol[name] = _listed(name, listed(f"axes.{name}", declared), space, models)


def axis_of(symbol: str, space: Space) -> str | None:
    """Return the name of the axis that sets ``symbol``, if one does."""
    if symbol in space.axes:
        return symbol
    return next((name for name in space.axes if symbol in SETTERS.get(name, ())), None)


def is_declared(symbol: str, space: Space) -> bool:
    """Return True for a symbol that the space itself says something of, by its own name."""
    return any(symbol in names for names in (space.axes, space.fixed, space.derived))


def _listed(name: str, values: Sequence[Any], space: Space, models: Sequence[Model]) -> Axis:
    if name == "model":
        return _axis(name, [model.name for model in models], _of_models(models, space))
    if name == "gpu":
        devices = gpus(space, frozenset())
        own = not is_declared("node_size", space)
        return _axis(name, [gpu.name for gpu in devices], [_of_gpu(gpu, own) for gpu in devices])
    if name == "gpu_memory_gib":
        return _axis(name, values, [{"gpu_memory": Gpu.custom(value).memory_bytes} for value in values])
    if name == "recompute":
        switches = [recompute_switches(str(mode)) for mode in values]
        for place, mode in enumerate(values):
            if switches[place] in switches[:place]:
                raise InputError("recompute", mode, "must not be there twice")
        return _axis(name, values, switches)
    checked = [value_of(f"axes.{name}", name, value) for value in values]
    return _axis(name, checked, [{name: value} for value in checked])


def _axis(name: str, labels: Sequence[int | str], values: Sequence[Mapping[str, int]]) -> Axis:
    return Axis(name, tuple(labels), {symbol: tuple(value[symbol] for value in values) for symbol in values[0]})


def _of_models(models: Sequence[Model], space: Space) -> list[dict[str, int]]:
    """Return the shapes of models, and the lengths of their sequences where nothing is declared and these differ."""
    lengths = [default_seq_length(model) for model in models]
    usual = is_declared("seq_length", space) or len(set(lengths)) == 1
    return [{**model_values(model), **({} if usual else {"seq_length": length})}
            for model, length in zip(models, lengths, strict=True)]


def _of_gpu(gpu: Gpu, with_node_size: bool) -> dict[str, int]:
    usual = {name: DEFAULTS[name] for name in SETTERS["gpu"] if name in DEFAULTS}
    own = {"node_size": gpu.domain_size} if with_node_size else {}
    return {**usual, **libraries(gpu), "gpu_memory": gpu.memory_bytes, **own}
