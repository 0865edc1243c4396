"""Data for the appendix's tables of what is kept for a parameter: precisions, optimizers, FP8, frozen weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..accounts import build
from ..choices import BY_NAME
from ..implementations import MEGATRON, Implementation
from ..parallel.data import PRECISIONS, states
from ..parallel.deepspeed import states_in
from ..parallel.fp8 import fp8_states, fp8_weight
from ..parallel.groups import GROUPS
from ..parallel.int8 import int8_states
from ..parallel.nf4 import nf4_states
from ..parallel.optimizers import OPTIMIZERS, optimizer_states
from ..parallel.weights import State
from .scope import Scope
from .tex import cite, code, escape, math

_PLAIN = MEGATRON.choices
_WEIGHT = tuple(state for state in PRECISIONS["bf16"] if state.name == "weight")


def kept_states(scope: Scope) -> dict[str, Any]:
    """Prepare tables of states, each in groups: of a precision, an optimizer, an FP8 recipe, a kind of weights.

    Where the document is not about everything there is one table, of what its main implementation keeps.
    """
    return _all_states() if scope.whole else {"state_tables": [_states_of(scope.main)]}


def _states_of(main: Implementation) -> dict[str, Any]:
    """Prepare the states of every group of parameters that an implementation has."""
    present = build(main).terms
    groups = {
        escape(group.words): states(main.choices, group)
        for group in GROUPS if f"stage.{group.prefix}parameters" in present
    }
    return _table("Parameters", "Bytes that a rank keeps for each.", groups)


def _all_states() -> dict[str, Any]:
    recipes = [name for name in BY_NAME["fp8"].options if name != "none"]
    return {"state_tables": [
        _table("Precision", "With AdamW's moments.", {
            **{code(name): states({**_PLAIN, "precision": name}) for name in PRECISIONS},
            f"{code('mixed')}, FSDP2": PRECISIONS["fp32"],
            f"{code('mixed')}, DeepSpeed": states_in("mixed"),
        }),
        _table("Optimizer", f"States beside weight, gradient and master weight, in the precision {code('mixed')}.", {
            code(name): optimizer_states({**_PLAIN, "optimizer": name}) for name in OPTIMIZERS
        }),
        _table("FP8", "Beside the 16-bit weights, or instead of them where weights are FP8 themselves.", {
            f"{code(recipe)}, {code(kind)}": (*(fp8_weight(choices) if kind == "primary" else ()), *fp8_states(choices))
            for recipe in recipes for kind in BY_NAME["fp8_weights"].options
            for choices in [{**_PLAIN, "fp8": recipe, "fp8_weights": kind}]
        }),
        _table("Frozen weights", "Base weights beside low-rank adapters, without gradient and optimizer states.", {
            code("nf4"): nf4_states(_WEIGHT, "ddp"), code("int8"): int8_states(_WEIGHT),
        }),
    ]}


def _table(title: str, words: str, groups: Mapping[str, Iterable[State]]) -> dict[str, Any]:
    rows = [{"name": name, "states": [_state(state) for state in kept]} for name, kept in groups.items()]
    return {"title": title, "words": words, "groups": [group for group in rows if group["states"]]}


def _state(item: State) -> dict[str, str]:
    return {
        "name": code(item.name), "role": item.role.value, "bytes": math(item.bytes), "meaning": escape(item.meaning),
        "source": cite(item.source),
    }
