"""Files of other programs that the page writes: the writers of the commands in JavaScript, and what these refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardmath.account.accounting import explain
from shardmath.commands.page.kernels import key_of
from shardmath.commands.page.translating import translated
from shardmath.configuration.settings import libraries
from shardmath.errors import InputError
from shardmath.formats import writers
from shardmath.formats.torchtitan.reading import FLAVORS, titan_model
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Words for people of the formats, in the order of the menu.
_TITLES = {
    "megatron": "Megatron-LM, launch script", "nemo": "Megatron-Bridge, YAML", "bridge": "Megatron-Bridge, recipe",
    "torchtitan": "torchtitan, TOML", "trl": "TRL, YAML", "accelerate": "Accelerate, YAML",
    "deepspeed": "DeepSpeed, JSON",
}
#: A small job, to see what of a model and its kernels no setting of a format says.
_SMALL = {"gpu": "h100-80gb", "num_gpus": 1, "global_batch_size": 1}
#: Rank of adapters in it.
_RANK = 8


def writer_script() -> str:
    """Return JavaScript with the writers of all formats."""
    from shardmath.files.rendering import text_of

    functions = {name: format.write for name, format in writers.WRITERS.items()}
    parts = text_of("page/python.js"), translated(functions, {titan_model: "titanModel", libraries: "librariesOf"})
    return "\n".join(("(globalThis.shardmath ??= {}).writers = (() => {", *parts,
                      "return { WRITERS, InputError, touched };", "})();"))


def format_data() -> dict[str, Any]:
    """Return the formats by name, and models as a program of them has them."""
    return {
        "formats": {name: {"title": _TITLES[name], "implementation": format.implementation, "suffix": format.suffix}
                    for name, format in writers.WRITERS.items()},
        "beside": sorted(writers.BESIDE),
        "flavors": {name: described(titan_model(name)) for flavors in FLAVORS.values() for name in flavors.values()},
    }


def described(model: Model) -> dict[str, Any]:
    """Return all fields of a model that are not as usual."""
    return model.model_dump(exclude_defaults=True)


def usual_fields() -> dict[str, Any]:
    """Return the defaults of the fields of a model."""
    return {name: info.default for name, info in Model.model_fields.items() if not info.is_required()}


def machine_of(gpu: Gpu) -> dict[str, Any]:
    """Return what writers ask of a GPU."""
    return {"architecture": gpu.architecture, "domain_size": gpu.domain_size, "node_size": gpu.node_size,
            "libraries": libraries(gpu)}


def refusals(model: Model, implementation: str, combinations: Iterable[Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return why a format cannot say a model with changed kernels, by the format and the combination.

    Combinations that are not counted have no reason.
    """
    reasons: dict[str, dict[str, str]] = {}
    for kernels in combinations:
        try:
            adapted = {"lora_rank": _RANK} if "adapters" in kernels else {}
            account = explain(model, implementation=implementation, kernels=dict(kernels), **adapted, **_SMALL)
        except InputError:
            continue
        for name, format in writers.WRITERS.items():
            if format.implementation == implementation:
                try:
                    writers.written(name, account)
                except InputError as error:
                    reasons.setdefault(name, {})[key_of(kernels)] = str(error)
    return reasons
