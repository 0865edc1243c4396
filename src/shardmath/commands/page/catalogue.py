"""Models, GPUs and evaluators of the page, as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from shardmath.account.accounting import exists
from shardmath.catalogue import read
from shardmath.compiler.evaluators import Evaluator, changed_choices
from shardmath.configuration.choosing import choices_of, evaluator_for, following
from shardmath.configuration.job import without_effect
from shardmath.configuration.settings import as_model, libraries
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, IMPLEMENTATIONS, LINES, PARAMETERS, SITES
from shardmath.input.parameters import limits, model_values
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model


def models(asked: Sequence[str | PathLike[str]]) -> list[Model]:
    """The models ``asked`` for, by name or path, and all of the catalogue whose evaluators are in the package.

    Raises InputError for an unknown model and a file that is none.
    """
    known = [model for model in map(Model.named, read("models")) if _is_stored(model)]
    return list({model.name: model for model in (*map(as_model, asked), *known)}.values())


#: The evaluator of an implementation without a pipeline, and with one; often they are the same.
Pair = tuple[Evaluator, Evaluator]


def evaluators_of(chosen: Iterable[Model]) -> dict[str, dict[str, Pair]]:
    """The evaluators of every implementation that can train a model, by the names of model and implementation.

    One that is not in the package is derived, which takes some seconds.
    """
    return {model.name: _evaluators(model) for model in chosen}


def model_data(model: Model, evaluators: Mapping[str, Pair]) -> dict[str, Any]:
    """A model for the page, with the names of the evaluators of every implementation."""
    return {
        "name": model.name, "source": model.source, "note": model.note, "values": model_values(model),
        "evaluators": {name: [evaluator.name for evaluator in pair] for name, pair in evaluators.items()},
    }


def gpu_data() -> list[dict[str, Any]]:
    """The GPUs of the catalogue, each with the parameters that it sets."""
    known = map(Gpu.named, read("gpus"))
    return [
        {"name": gpu.name, "source": gpu.source,
         "values": {"gpu_memory": gpu.memory_bytes, "node_size": gpu.domain_size, **libraries(gpu)}}
        for gpu in known
    ]


def evaluator_data(evaluator: Evaluator) -> dict[str, Any]:
    """Return the data of an evaluator besides its formulas: fixed values, and the lines of an account."""
    terms = evaluator.terms.TERMS
    lines = {name: LINES[name] for name in terms if name in LINES}
    return {
        "title": IMPLEMENTATIONS[evaluator.implementation]["title"],
        "defaults": {**DEFAULTS, **evaluator.defaults},
        "fixed": {**without_effect(evaluator), **evaluator.fixed},
        "following": following(evaluator, {}),
        "momentsCounted": evaluator.choices["peak"] != "saved",
        "lines": [(name, component, moment or role) for name, (component, role, moment, _) in lines.items()],
        "sites": {
            name: {"meaning": meaning, "freed": sorted(
                component for term, (component, role, _, _) in lines.items()
                if role == "activation" and not exists(term, name)
            )}
            for name, (meaning, _) in SITES.items() if f"stage.{name}.all" in terms
        },
    }


def parameter_data(evaluators: Iterable[Evaluator]) -> dict[str, dict[str, Any]]:
    """Unit, limits and meaning of every parameter that an evaluator takes, by name."""
    taken = {name for evaluator in evaluators for name in evaluator.terms.INPUTS}
    return {
        name: {"unit": unit, "kind": kind, "meaning": meaning, "limits": limits(name)}
        for name, (_, unit, _, _, kind, meaning) in PARAMETERS.items() if name in taken
    }


def _is_stored(model: Model) -> bool:
    """Tell whether the evaluators of every implementation that has the model are in the package."""
    changes = []
    for implementation in IMPLEMENTATIONS:
        try:
            changes.append(changed_choices(implementation, choices_of(implementation, model)))
        except InputError:  # the framework has no such model
            continue
    return bool(changes) and not any(changes)


def _evaluators(model: Model) -> dict[str, Pair]:
    pairs = {}
    for implementation in IMPLEMENTATIONS:
        try:
            alone, staged = (evaluator_for(implementation, None, model, {}, staged=there) for there in (False, True))
        except InputError:  # the framework has no such model
            continue
        pairs[implementation] = alone, staged
    return pairs
