"""Models, GPUs and evaluators of the page, as plain data for JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any

from shardmath.account.accounting import exists
from shardmath.account.replaying import refuse_unreplayed_kernels
from shardmath.catalogue import read
from shardmath.commands.page.exports import described, machine_of
from shardmath.commands.page.kernels import SHOWN
from shardmath.commands.page.settings import overlaps_of, settings_of
from shardmath.commands.page.typesetting import letters_of
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import following
from shardmath.configuration.job import without_effect
from shardmath.configuration.risk import parts_for
from shardmath.configuration.settings import as_model, libraries
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import DEFAULTS, IMPLEMENTATIONS, LINES, PARAMETERS, RECOMPUTE_MODES, SITES
from shardmath.input.parameters import limits as legal_range
from shardmath.input.parameters import model_values
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.steps.rows import PARTS, PLACES
from shardmath.steps.script import OF_FORWARD, has_units
from shardmath.steps.step import limits, refuse_unreplayed

#: Parameters of a layout where nothing is said of them.
_SINGLE = {"virtual_pipeline": 1, "expert_parallel": 1, **RECOMPUTE_MODES["none"]}
#: Probabilities of running out that can be chosen; the first is the usual one.
_ACCEPTED = ("1%", "0.1%", "0.5%", "2%", "5%", "10%", "20%", "50%")


def models(asked: Sequence[str | PathLike[str]], only: bool = False) -> list[Model]:
    """Return the models ``asked`` for, by name or path, and unless ``only`` they are wanted those of the catalogue.

    Raises InputError for an unknown model and a file that is none, and where no model is left.
    """
    if only and not asked:
        raise InputError("models", ABSENT, "must be given with --only: a name of `shardmath models`, or a config.json")
    known = () if only else map(Model.named, read("models"))
    return list({model.name: model for model in (*map(as_model, asked), *known)}.values())


def model_data(model: Model) -> dict[str, Any]:
    """Return a model for the page."""
    return {"name": model.name, "source": model.source, "note": model.note, "values": model_values(model),
            "fields": described(model)}


def gpu_data() -> list[dict[str, Any]]:
    """Return the GPUs of the catalogue, each with the parameters that it and its servers set."""
    return [_gpu(Gpu.named(name)) for name in read("gpus")]


def _gpu(gpu: Gpu) -> dict[str, Any]:
    cluster = Cluster.named(gpu)
    memory = {"gpu_memory": gpu.memory_bytes, "node_size": gpu.domain_size, **libraries(gpu)}
    try:
        figures, unknown = cluster.values(), ""
    except InputError as error:
        figures, unknown = {}, str(error)
    try:
        inside = figures or cluster.values(num_gpus=1)
    except InputError:
        inside = {}
    return {"name": gpu.name, "source": gpu.source, "values": {**memory, **inside},
            "machine": machine_of(gpu),
            "error": cluster.error(with_experts=False), "error_of_experts": cluster.error(with_experts=True),
            "has_measured_steps": gpu.has_measured_steps,
            "fp8": _fp8(cluster), "networks": _networks(gpu, {**memory, **inside}),
            "timed": "everywhere" if figures else "in a node" if inside else "nowhere", "unknown": unknown}


def _fp8(cluster: Cluster) -> int | str:
    """Return the peak of FP8 products in FLOP/s, or say why there is none."""
    try:
        return cluster.values("fp8", 1)["matmul_flops"]
    except InputError as error:
        return str(error) if error.field == "precision" else ""


def _networks(gpu: Gpu, usual: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return what each network of the catalogue sets otherwise than the ``usual`` values; those without figures not."""
    changed = {}
    for name in read("networks"):
        try:
            values = Cluster.named(gpu, name).values()
        except InputError:  # a figure of the GPU itself is not known
            continue
        changed[name] = {key: value for key, value in values.items() if value != usual.get(key)}
    return changed


def risk_data() -> dict[str, int]:
    """Return the share of the memory that a process may take, in millionths, by the accepted risk."""
    return {risk: parts_for(risk) for risk in _ACCEPTED}


def evaluator_data(evaluator: Evaluator) -> dict[str, Any]:
    """Return the data of an evaluator besides its formulas: fixed values, and the lines of an account."""
    terms = evaluator.terms.TERMS
    lines = {name: LINES[name] for name in terms if name in LINES}
    own = {name: value for name, value in evaluator.defaults.items() if PARAMETERS[name][4] == "machine"}
    usual = IMPLEMENTATIONS[evaluator.implementation]["choices"]
    return {
        "implementation": evaluator.implementation,
        "title": evaluator.title(),
        "defaults": {**DEFAULTS, **_SINGLE, **evaluator.defaults},
        "fixed": {**without_effect(evaluator), **evaluator.fixed},
        "machine": own, "choices": {axis: evaluator.choices[axis] for axis in SHOWN},
        "changed": {axis: option for axis, option in evaluator.choices.items() if usual[axis] != option},
        "fp8": evaluator.choices["fp8"] != "none",
        "settings": settings_of(evaluator), "off": overlaps_of(evaluator),
        "following": following(evaluator, {}),
        "momentsCounted": evaluator.choices["peak"] != "saved",
        "untimed": _untimed(evaluator),
        "replay": _replay(evaluator),
        "lines": [(name, component, *_kind(role, moment)) for name, (component, role, moment, _) in lines.items()],
        "sites": {
            name: {"meaning": meaning, "freed": sorted(
                component for term, (component, role, moment, _) in lines.items()
                if role == "activation" and not moment and not exists(term, name)
            )}
            for name, (meaning, _) in SITES.items() if f"stage.{name}.all" in terms
        },
    }


def _kind(role: str, moment: str) -> tuple[str, ...]:
    """Return the role of a line that exists always, the moment of a transient, or both of what is left at a moment."""
    return (role, moment) if moment and role != "transient" else (moment or role,)


def is_drawn(data: Mapping[str, Any]) -> bool:
    """Tell whether the page replays the steps of an evaluator with this data."""
    return not isinstance(data["replay"], str)


def _replay(evaluator: Evaluator) -> dict[str, Any] | str:
    """Rows, scripts, sums and limits, also of uneven stages, of the replay of a step; in words why there is none."""
    choices = {**evaluator.choices, "stages": "even"}
    try:
        refuse_unreplayed(choices, dict.fromkeys(PARAMETERS, 0))
        refuse_unreplayed_kernels(evaluator.implementation, choices)
    except InputError as error:
        return f"{error.field} {error.rule}"
    rows = evaluator.rows
    even = [*limits(choices)]
    uneven = [limit for limit in limits({**choices, "stages": "uneven"}) if limit not in even]
    return {"rows": rows.ROWS, "scripts": rows.SCRIPTS, "sums": rows.SUMS, "same": rows.SAME, "joined": rows.JOINED,
            "limits": [limit._asdict() for limit in even],
            "limits_of_uneven": [limit._asdict() for limit in uneven],
            "units": has_units(rows.SCRIPTS), "reshard": choices["reshard"], "modules": rows.MODULES,
            "frozen": rows.FROZEN,
            "experts": choices["layers"] == "experts",
            "places": PLACES, "parts": PARTS, "forward": OF_FORWARD}


def _untimed(evaluator: Evaluator) -> str:
    """Say why there are no formulas of step time; empty where there are."""
    try:
        evaluator.refuse_untimed()
    except InputError as error:
        return str(error)
    return ""


def parameter_data(taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """Unit, limits, meaning and letter (MathML) of every parameter of those ``taken``, by name."""
    letters = letters_of(taken)
    return {
        name: {"unit": unit, "kind": kind, "meaning": meaning, "limits": legal_range(name),
               "letter": letters.get(name, "")}
        for name, (_, unit, _, _, kind, meaning) in PARAMETERS.items() if name in taken
    }
