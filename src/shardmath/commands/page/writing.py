"""Fill the page: data, evaluators, style and behaviour in one HTML text."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from shardmath.commands.page.catalogue import (
    evaluator_data,
    evaluators_of,
    gpu_data,
    model_data,
    models,
    parameter_data,
)
from shardmath.commands.page.typesetting import formulas_of, script_of
from shardmath.generated.definitions import RECOMPUTE_MODES, ROLES
from shardmath.reports.policy import with_policy
from shardmath.search.spaces.usual import BY_MEMORY, DATA_PARALLEL


def page(asked: Sequence[str | PathLike[str]] = ()) -> str:
    """The page as HTML, beginning with the first model that is ``asked`` for, by name or path.

    It knows the models asked for and all of the catalogue that the stored evaluators are about. Raises InputError
    for an unknown model.
    """
    from shardmath.files.rendering import rendered

    chosen = models(asked)
    by_model = evaluators_of(chosen)
    evaluators = {
        evaluator.name: evaluator for by_name in by_model.values() for pair in by_name.values() for evaluator in pair
    }
    data = {
        "start": chosen[0].name if asked else "llama-3.1-70b",
        "models": [model_data(model, by_model[model.name]) for model in chosen],
        "gpus": gpu_data(),
        "parameters": parameter_data(evaluators.values()),
        "modes": RECOMPUTE_MODES,
        "roles": ROLES,
        "evaluators": {name: evaluator_data(evaluator) for name, evaluator in evaluators.items()},
        "formulas": {name: formulas_of(evaluator) for name, evaluator in evaluators.items()},
    }
    return with_policy(rendered("page.html", {
        "data": data, "scripts": [script_of(evaluator) for evaluator in evaluators.values()],
        "data_parallel": DATA_PARALLEL, "ranking": BY_MEMORY,
    }, header="Written by `shardmath page`."))
