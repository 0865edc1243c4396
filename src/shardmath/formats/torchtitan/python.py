"""Configurations of torchtitan in Python (``Trainer.Config``), followed and never run, as keys of its earlier TOML.

Classes as in ``torchtitan/config`` and ``torchtitan/models/llama3/config_registry.py`` of release 0.3.0 and of the main
branch (b5bcd76c6). Differences from 0.2.2, whose tensors are counted, are warnings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.bridge.wheel import words_from
from shardmath.formats.described import read_settings
from shardmath.formats.run import Run
from shardmath.formats.scripts.python_file import Interpreter
from shardmath.formats.scripts.python_values import UNKNOWN, Built, Function, Unknown
from shardmath.formats.table import Words, table

#: The class of a whole configuration.
_CONTAINER = "Trainer.Config"
#: Its fields whose own fields are keys of a table of the TOML.
_TABLES = ("training", "parallelism", "compile")
#: Classes of activation checkpointing, and the keys that they are.
_RECOMPUTE: Mapping[str, Mapping[str, Words]] = {
    "FullAC.Config": {"mode": ("full",)},
    "SelectiveAC.Config": {"mode": ("selective",), "selective_ac_option": ("op",)},
}
#: Arguments of ``model_registry`` that are keys of the TOML, or would be.
_OF_MODEL = {"flavor": "model.flavor", "moe_comm_backend": "parallelism.expert_parallel_comm_backend",
             "num_mtp_layers": "model.num_mtp_layers"}
_ADAMW, _OPTIMIZER = "default_adamw", "OptimizersContainer.Config"
#: Batches in tokens came with CUDA graphs, which are on unless they are switched off.
_TOKENS, _NO_GRAPHS = "training.num_tokens_per_microbatch_per_dp_rank", "training.disable_cuda_graphs"
_MODELS = re.compile(r"^from torchtitan\.models\.(\w+) import .*model_registry", re.MULTILINE)


def read(path: str, text: str, name: str, settings: Mapping[str, str]) -> Run:
    """Return the run of the configuration that a Python file makes. Raises InputError that blames a key."""
    interpreter = Interpreter(path, _outside)
    recipe = settings.get("recipe")
    made = interpreter.made(interpreter.module(text), _CONTAINER, recipe, ("",))
    if made is None:
        raise InputError("model", path, "must make a Trainer.Config of torchtitan: other Python files are not read yet")
    words = dict(_words_of(made, _family(path, text)))
    words |= {key: (value,) for key, value in settings.items() if key != "recipe"}
    notes: tuple[str, ...] = (
        "tensors are those of torchtitan 0.2.2: 0.3 has one matrix for queries, keys and values, and other attention",)
    if isinstance(loss := made.fields.get("loss"), Built) and loss.name == "ChunkedLossWrapper.Config":
        notes = (*notes, "loss is not counted yet in chunks: the logits of all tokens are counted")
    if _TOKENS in words and words.get(_NO_GRAPHS) != ("true",):
        notes = (*notes, f"{_NO_GRAPHS} = false: memory of CUDA graphs is not counted yet")
    run = read_settings(table("torchtitan"), path, words, notes=notes)
    return replace(run, understood=(*run.understood, *(("recipe",) if recipe else ())))


def _family(path: str, text: str) -> str:
    """Return the model that ``model_registry`` is of: as imported, or of the folder that the file lies in."""
    named = _MODELS.search(text)
    return named[1] if named else os.path.basename(os.path.dirname(os.path.abspath(path)))


def _outside(dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Make objects of classes of torchtitan, named with the class that they are configurations of."""
    parts = dotted.split(".")
    if parts[-1] == "model_registry":
        return Built("ModelSpec", {**keywords, **({"flavor": arguments[0]} if arguments else {})})
    if parts[-1] == "Config":
        return Built(".".join(parts[-2:]), dict(keywords), arguments)
    if parts[-1] == _ADAMW:
        return Built(_ADAMW)
    return Built(parts[-1], dict(keywords), arguments) if parts[-1][:1].isupper() else UNKNOWN


def _words_of(configuration: Built, family: str) -> Iterator[tuple[str, Words]]:
    specification = configuration.fields.get("model_spec")
    if isinstance(specification, Built):
        yield "model.name", (family,)
        for key, whole in _OF_MODEL.items():
            if key in specification.fields:
                yield whole, words_from(specification.fields[key]) or ()
        if (gemms := specification.fields.get("tp_gemm_backend", "default")) != "default":
            yield "model.tp_gemm_backend", words_from(gemms) or ()
        converters = specification.fields.get("converters")
        names = [converter.name.partition(".")[0] for converter in converters if isinstance(converter, Built)] if (
            isinstance(converters, list)) else []
        if names:
            yield "model.converters", tuple(names)
    for section in _TABLES:
        inner = configuration.fields.get(section)
        for key, value in inner.fields.items() if isinstance(inner, Built) else ():
            if not isinstance(value, Unknown | Built | Function) and (words := words_from(value)) is not None:
                yield f"{section}.{key}", words
    yield from _optimizer(configuration.fields.get("optimizer", Built(_ADAMW)))
    recompute = configuration.fields.get("activation_checkpoint", Built("SelectiveAC.Config"))
    if recompute is None:
        yield "activation_checkpoint.mode", ("none",)
    elif isinstance(recompute, Built) and recompute.name in _RECOMPUTE:
        yield from ((f"activation_checkpoint.{key}", words) for key, words in _RECOMPUTE[recompute.name].items())
    else:
        name = recompute.name if isinstance(recompute, Built) else "unknown"
        rule = f"must be one of {', '.join(_RECOMPUTE)}: others are not counted yet"
        raise InputError("activation_checkpoint", name, rule)


def _optimizer(made: object) -> Iterator[tuple[str, Words]]:
    """Yield keys of the optimizer, of which all groups of parameters have the same. Raises InputError for others."""
    if isinstance(made, Built) and made.name == _ADAMW:
        return
    groups = made.fields.get("param_groups") if isinstance(made, Built) and made.name == _OPTIMIZER else None
    names = {group.fields.get("optimizer_name") for group in groups if isinstance(group, Built)} if (
        isinstance(groups, list)) else set()
    if not isinstance(made, Built) or not names <= {"Adam", "AdamW"} or not names:
        shown = made.name if isinstance(made, Built) and not names else " ".join(sorted(map(str, names))) or "unknown"
        raise InputError("optimizer", shown, f"must be {_ADAMW}, or {_OPTIMIZER} of Adam and AdamW: others are not"
                                             " counted yet with torchtitan")
    yield "optimizer.name", ("AdamW",)
    if (kernel := words_from(made.fields.get("implementation", "fused"))) is not None:
        yield "optimizer.implementation", kernel
