"""Fill the page: data, evaluators, style and behaviour in one HTML text."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from shardmath.account.time import EQUAL
from shardmath.commands.page.catalogue import (
    evaluator_data,
    gpu_data,
    is_drawn,
    model_data,
    models,
    parameter_data,
    risk_data,
)
from shardmath.commands.page.exports import format_data, refusals, usual_fields, writer_script
from shardmath.commands.page.families import config_data, family_models, reader_script
from shardmath.commands.page.imports import flag_data, program_data
from shardmath.commands.page.kernels import Asked, combination_of, kernel_data, variants_of
from shardmath.commands.page.settings import setting_data
from shardmath.commands.page.spaces import part_data, parts_of
from shardmath.commands.page.typesetting import formulas_of, script_of, source_data
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.errors import InputError
from shardmath.formats.writers import WRITERS
from shardmath.generated.definitions import IMPLEMENTATIONS, OVERHEADS, ROLES, SHORT, SPENT
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.reports.policy import with_policy
from shardmath.search.choosing import ALIKE, FASTER, MOST, OTHERS, RISKS, SLOWER, SMALLER
from shardmath.search.distinct import MAY_BE_IDLE
from shardmath.search.spaces.usual import BY_TIME, DATA_PARALLEL

#: The cluster that spaces are read for; candidates depend on no figure of it but the size of a server.
_CLUSTER = "h100-80gb"
_START = "llama-3.1-70b"
#: Implementations of models that stand for families of files; torchtitan needs eleven sets of formulas for each.
_OF_FAMILIES = ("megatron", "huggingface")
Progress = Callable[[int, int], None]


def page(
    asked: Sequence[str | PathLike[str]] = (), only: bool = False, progress: Progress | None = None,
    kernels: Asked | None = None,
) -> str:
    """Return the page as HTML, beginning with the first model that is ``asked`` for, by name or path.

    It has the models asked for and, unless ``only`` those are wanted, all of the catalogue; of the first model, and of
    those with the same formulas, other kernels too: each offered option, and all combinations of ``kernels``. Raises
    InputError for an unknown model, axis or option.
    """
    from shardmath.files.rendering import rendered

    chosen = models(asked, only)
    cluster = Cluster.named(_CLUSTER)
    evaluators: dict[str, Evaluator] = {}
    parts: dict[str, int] = {}
    functions: dict[str, int] = {}
    listed = [_with_parts(model, cluster, evaluators, parts, functions) for model in chosen]
    families = [] if only else family_models(chosen)
    listed += [{**_with_parts(model, cluster, evaluators, parts, functions, _OF_FAMILIES), "of_family": True}
               for model in families]
    first = chosen[0] if asked else next(model for model in chosen if model.name == _START)
    variants = _variants(first, cluster, kernels or {}, evaluators)
    lines = Lines()
    scripts: dict[str, list[int]] = {}
    described: dict[str, dict[str, Any]] = {}
    formulas: dict[str, dict[str, int]] = {}
    for done, (name, evaluator) in enumerate(evaluators.items()):
        if progress is not None:
            progress(done, len(evaluators))
        described[name] = evaluator_data(evaluator)
        scripts[name] = lines.of(script_of(evaluator, is_drawn(described[name])))
        formulas[name] = {term: lines.place(json.dumps(item)) for term, item in formulas_of(evaluator).items()}
    scripts |= {"writers": lines.of(writer_script()), "readers": lines.of(reader_script())}
    data = {
        "start": first.name,
        "variants": variants, "kernels": kernel_data([key for own in variants.values() for key in own]),
        "models": listed,
        "parts": [json.loads(part) for part in parts],
        "gpus": gpu_data(), "risks": risk_data(),
        "parameters": parameter_data(evaluators.values()),
        "implementations": {name: item["title"] for name, item in IMPLEMENTATIONS.items()},
        "settings": setting_data(),
        "roles": ROLES, "spent": SPENT, "short": SHORT, "overheads": OVERHEADS,
        "evaluators": described,
        "choosing": {"slower": SLOWER, "faster": FASTER, "smaller": SMALLER, "most": MOST, "others": OTHERS,
                     "alike": ALIKE,
                     "risks": RISKS, "equal": EQUAL, "idle": sorted(MAY_BE_IDLE)},
        "sources": source_data(),
        "config": config_data(),
        "flags": flag_data(), "programs": program_data(),
        **format_data(), "fields": usual_fields(),
        "kernels_of": {name: item["choices"] for name, item in IMPLEMENTATIONS.items()},
        "unwritten": _unwritten([*chosen, *families], first, variants),
        "scripts": scripts, "formulas": formulas, "lines": list(lines),
    }
    return with_policy(rendered("page/page.html", {
        "packed": packed(data), "functions": list(functions), "data_parallel": DATA_PARALLEL,
        "ranking": [key.replace(".", "_") for key in BY_TIME],
    }, header="Written by `shardmath page`."), makes_scripts=True)


def _with_parts(
    model: Model, cluster: Cluster, evaluators: dict[str, Evaluator], parts: dict[str, int],
    functions: dict[str, int], implementations: Iterable[str] = IMPLEMENTATIONS,
) -> dict[str, Any]:
    """Return a model with the places of its parts by implementation; what is new is added to what is known."""
    places: dict[str, list[int]] = {}
    for implementation in implementations:
        try:
            own = parts_of(model, cluster, implementation)
        except InputError:  # the framework has no such model
            continue
        for space, part in own:
            evaluators[part.evaluator.name] = part.evaluator
            text = json.dumps(part_data(space, part, model, cluster.node_size, functions))
            places.setdefault(implementation, []).append(parts.setdefault(text, len(parts)))
    return {**model_data(model), "parts": places, "implementation": default_implementation(model),
            "seq_length": default_seq_length(model)}


def _variants(
    model: Model, cluster: Cluster, kernels: Asked, evaluators: dict[str, Evaluator],
) -> dict[str, dict[str, dict[str, str]]]:
    """Return names of evaluators with other kernels by that of the usual one, by combination, by implementation."""
    variants: dict[str, dict[str, dict[str, str]]] = {}
    for implementation in IMPLEMENTATIONS:
        for key, changed in variants_of(model, cluster, implementation, kernels):
            variants.setdefault(implementation, {})[key] = {usual: item.name for usual, item in changed.items()}
            evaluators |= {item.name: item for item in changed.values()}
    return variants


def _unwritten(models: Iterable[Model], first: Model, variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return why formats cannot say models, by model, implementation, format and combination of kernels."""
    reasons: dict[str, dict[str, Any]] = {}
    for model in models:
        for implementation in sorted({format.implementation for format in WRITERS.values()}):
            keys = ["", *(variants.get(implementation, {}) if model == first else ())]
            if known := refusals(model, implementation, map(combination_of, keys)):
                reasons.setdefault(model.name, {})[implementation] = known
    return reasons


class Lines:
    """Lines of texts, each kept once; a text is the places of its lines."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __iter__(self) -> Any:
        return iter(self._places)

    def of(self, text: str) -> list[int]:
        """Return the text as runs of lines that follow one another: the place of the first, and how many there are."""
        runs: list[int] = []
        for line in text.splitlines():
            place = self._places.setdefault(line, len(self._places))
            if runs and place == runs[-2] + runs[-1]:
                runs[-1] += 1
            else:
                runs += [place, 1]
        return runs

    def place(self, line: str) -> int:
        """Return the place of one line."""
        return self._places.setdefault(line, len(self._places))


def packed(data: Mapping[str, Any]) -> str:
    """Plain data as text for a page: JSON, compressed, in base 64. The page reads it with a DecompressionStream."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
