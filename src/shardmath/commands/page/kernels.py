"""Kernels, precisions and optimizers that the page offers beside the usual ones: each has formulas of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from shardmath.commands.page.spaces import part_data, parts_of
from shardmath.compiler.evaluators import Evaluator, changed_choices
from shardmath.errors import InputError
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS
from shardmath.machines import Cluster
from shardmath.models.model import Model

#: Axes of kernels that the page shows, each with the options of its own file; others are asked for by name.
OFFERED: Mapping[str, tuple[str, ...]] = {
    "precision": tuple(CHOICES["precision"][1]),
    "optimizer": tuple(CHOICES["optimizer"][1]),
    "fp8": tuple(CHOICES["fp8"][1]),
    "float8": tuple(CHOICES["float8"][1]),
    "attention": ("flash", "sdpa", "eager", "unfused", "fused_softmax"),
    "loss": ("vocab_parallel", "float", "huggingface_freed", "liger", "cut", "native_fused", "te_fused",
             "te_fused_fp32"),
    "norm": ("fused", "eager", "keeps_output"),
    "swiglu": ("fused", "unfused"),
    "data_parallel": ("fsdp", "torch_ddp", "deepspeed"),
}
#: Options that files of trainers have together.
TOGETHER: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "huggingface": (
        {"data_parallel": "deepspeed", "precision": "mixed"},
        {"loss": "liger", "norm": "fused", "swiglu": "fused"},
    ),
}
_LORA: Mapping[str, str] = {"adapters": "all_linear"}
_QLORA: Mapping[str, str] = {**_LORA, "base_weights": "nf4"}
_WIDE: Mapping[str, str] = {"adapter_precision": "fp32"}
_WIDE_QLORA: Mapping[str, str] = {**_QLORA, "adapter_precision": "fp32_uncopied"}
_LIGER: Mapping[str, str] = {"loss": "liger", "norm": "fused", "swiglu": "fused"}
#: Adapters that the page has for every model for which they are counted: of all linear layers, as files of trainers
#: ask for them. Those of Megatron-Core beside experts would take a quarter of an hour to derive.
ADAPTED: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "huggingface": (_LORA, _QLORA, {**_LORA, **_WIDE}, _WIDE_QLORA),
}
#: Further ones of the first model, and of those with the same formulas.
_FURTHER: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "huggingface": (
        {"adapters": "q_v"}, {**_LORA, "adapter_kind": "dora"}, {**_LORA, **_LIGER}, {**_QLORA, **_LIGER},
        {**_LORA, **_WIDE, "optimizer": "adamw_8bit"}, {**_WIDE_QLORA, "optimizer": "adamw_8bit"},
        {**_LORA, "data_parallel": "fsdp"}, {**_QLORA, "data_parallel": "fsdp"},
        {**_LORA, "data_parallel": "deepspeed", "precision": "mixed"},
    ),
    "megatron": (_LORA, {"adapters": "attention"}, {"adapters": "qkv"}),
}
#: Axes of adapters, which the page shows too; they are offered together alone.
_OF_ADAPTERS = ("adapters", "adapter_kind", "adapter_precision", "base_weights")
#: Axes that the page shows.
SHOWN: tuple[str, ...] = (*OFFERED, *_OF_ADAPTERS)
Asked = Mapping[str, str | Sequence[str]]


def combinations(implementation: str, asked: Asked) -> list[dict[str, str]]:
    """Return changes of the usual kernels: each offered option alone, some together, and all combinations asked for.

    Raises InputError for an axis and an option that no implementation has.
    """
    own = IMPLEMENTATIONS[implementation]

    def of(axis: str, options: Sequence[str]) -> list[str]:
        allowed = own["allowed"].get(axis, tuple(CHOICES[axis][1]))
        return [option for option in options if option in allowed and option != own["choices"][axis]]

    alone = [{axis: option} for axis, options in OFFERED.items() for option in of(axis, options)]
    changes = [[{}, *({axis: option} for option in of(axis, options))] for axis, options in _checked(asked).items()]
    several: list[dict[str, str]] = [{axis: option for change in chosen for axis, option in change.items()}
                                     for chosen in product(*changes)]
    together = (dict(item) for combined in (TOGETHER, ADAPTED, _FURTHER) for item in combined.get(implementation, ()))
    return list({key_of(item): item for item in (*alone, *together, *several) if item}.values())


def _checked(asked: Asked) -> dict[str, tuple[str, ...]]:
    """Return the options asked for by axis. Raises InputError for those that no implementation has."""
    options = {axis: (item,) if isinstance(item, str) else tuple(item) for axis, item in asked.items()}
    for axis, names in options.items():
        for name in names:
            if name not in CHOICES.get(axis, ("", {}))[1]:
                changed_choices(next(iter(IMPLEMENTATIONS)), {axis: name})
    return options


def key_of(changes: Mapping[str, str]) -> str:
    """Return the name of a combination of changes, as links have it."""
    return ",".join(f"{axis}={option}" for axis, option in sorted(changes.items()))


def combination_of(key: str) -> dict[str, str]:
    """Return the combination of a name, as ``key_of`` makes it."""
    return dict(pair.split("=") for pair in key.split(",") if pair)


def variants_of(
    model: Model, cluster: Cluster, implementation: str, changes: Sequence[Mapping[str, str]],
) -> Iterator[tuple[str, dict[str, Evaluator]]]:
    """Yield combinations of ``changes`` by name, each with its evaluator for every usual one of a model.

    Left out are those that are not counted, and those whose layouts are other ones.
    """
    try:
        usual = parts_of(model, cluster, implementation)
    except InputError:  # the framework has no such model
        return

    def layouts(parts: Any) -> list[dict[str, Any]]:
        return [{**part_data(space, part, model, cluster.node_size), "evaluator": ""} for space, part in parts]

    of_usual = layouts(usual)
    for change in changes:
        try:
            own = parts_of(model, cluster, implementation, change)
        except InputError:  # the combination is not counted yet
            continue
        if layouts(own) == of_usual:
            yield key_of(change), {before.evaluator.name: after.evaluator
                                   for (_, before), (_, after) in zip(usual, own, strict=True)}


def kernel_data(keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the axes that some combination changes, with their options: meanings in words."""
    changed = {pair.partition("=")[0] for key in keys for pair in key.split(",")}
    return {axis: {"meaning": CHOICES[axis][0], "options": CHOICES[axis][1]} for axis in CHOICES if axis in changed}
