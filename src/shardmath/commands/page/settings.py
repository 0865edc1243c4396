"""Rarely changed parameters on the page: their groups, words for values, and switches that go off with others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.defaults import GRADIENTS_AHEAD, impossible_overlaps
from shardmath.configuration.settings import GRADIENT_BYTES
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import MACHINE, OTHERS

#: Titles of groups by the kind of parameter, in the order of the page.
_GROUPS = {"training": "Training", "cluster": "Memory of a process", "machine": "Machine"}
#: Parameters that are fields of a run rather than further parameters.
_FIELDS = ("gradient_bytes", "distributed_optimizer", "vocab_multiple")
#: Parameters that controls of the page set under other names.
_CONTROLLED = ("process_parts", "cents_per_gpu_hour")
#: Switches that decide which overlaps a run can have.
_DECIDING = ("single_bucket", GRADIENTS_AHEAD, "distributed_optimizer")
#: Words of the command line for values, and the option that takes them.
_WORDS = {"gradient_bytes": ("--gradients", GRADIENT_BYTES)}


def setting_data() -> dict[str, Any]:
    """Return the rarely changed parameters by group, and words for values."""
    known = {*OTHERS, *MACHINE, *_FIELDS} - {*_CONTROLLED}
    groups = {title: [name for name, row in PARAMETERS.items() if row[4] == kind and name in known]
              for kind, title in _GROUPS.items()}
    return {"groups": groups, "words": {name: {"option": option, "values": values}
                                        for name, (option, values) in _WORDS.items()},
            "deciding": _DECIDING}


def settings_of(evaluator: Evaluator) -> list[str]:
    """Return the rarely changed parameters that some formula of an evaluator has and that it leaves open."""
    taken = {*evaluator.terms.INPUTS, *(evaluator.times.INPUTS if evaluator.is_timed else ())}
    groups: dict[str, Sequence[str]] = setting_data()["groups"]
    return [name for names in groups.values() for name in names if name in taken and name not in evaluator.fixed]


def overlaps_of(evaluator: Evaluator) -> dict[str, list[str]]:
    """Return the overlaps that are off unless somebody asks for them, by the values of the deciding switches."""
    off = {}
    for values in product((0, 1), repeat=len(_DECIDING)):
        switches = dict(zip(_DECIDING, values, strict=True))
        off["".join(map(str, values))] = [*impossible_overlaps(evaluator, switches, (), switches)]
    return off
