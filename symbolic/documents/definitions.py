"""Data for the generated definitions: what the running code knows about parameters and implementations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr, fraction

from ..accounts.lines import lines
from ..accounts.peak import CANDIDATES, OF_EXPERTS
from ..choices import ARCHITECTURE, AXES, EVERY_ABSENT
from ..efficiencies import EFFICIENCIES, ERROR_OF_EXPERTS
from ..implementations import IMPLEMENTATIONS, Implementation
from ..ledger import SITES, Held, Role
from ..overheads import OVERHEADS
from ..parallel.derived import MICROBATCHES, MODEL_RANKS, SEQUENCES
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.legality import fixed_values
from ..parallel.schedules import SCHEDULES, SPLIT_BACKWARD
from ..parameters import BY_LETTER, PARAMETERS, QUANTITIES
from ..printers.python import PythonPrinter
from ..published import memory_estimates
from ..recompute import MODES, REGIONS
from ..systems import SYSTEMS
from ..timing.step import SHOWN
from ..verdict import LIMITS, RANK_LIMITS, RULE_80, VERDICTS, rule_share
from ..workspaces import LIBRARIES, TORCH_WORKSPACES
from .evaluator import run_out, verdicts


def definitions() -> dict[str, Any]:
    """Data of ``definitions.py.jinja``."""
    switches = [BY_LETTER[region.switch].name for region in REGIONS]
    return {
        "parameters": PARAMETERS,
        "quantities": QUANTITIES,
        "implementations": [_implementation(item) for item in IMPLEMENTATIONS.values()],
        "axes": AXES,
        "asked": {BY_LETTER[letter].name: (axis.name, option)
                  for axis in AXES for option, letters in axis.asked.items() for letter in letters.split()},
        "hosts": {system.axis.name: {option: (BY_LETTER[letter].name if letter else "", lighter)
                                     for option, (letter, lighter) in system.on_host.items()}
                  for system in SYSTEMS if system.on_host},
        "needed": {axis.name: dict(axis.needs) for axis in AXES if axis.needs},
        "modes": {
            mode: {name: int(name in [BY_LETTER[letter].name for letter in letters]) for name in switches}
            for mode, letters in MODES.items()
        },
        "regions": {region.name: BY_LETTER[region.switch].name for region in REGIONS if region.modules},
        "within": {
            region.name: tuple(whole.name for whole in REGIONS
                               if region.modules and {*region.modules} < {*whole.modules})
            for region in REGIONS
        },
        "schedules": {name: item.chunks for name, item in SCHEDULES.items()},
        "split_backward": SPLIT_BACKWARD,
        "roles": tuple(Role),
        "sites": SITES,
        "spent": SHOWN,
        "held": tuple(item.name for item in Held),
        "lines": lines(),
        "copies": (*CANDIDATES, *OF_EXPERTS),
        "architecture": ARCHITECTURE,
        "degrees": tuple(rule.name for rule in SHAPE_RULES),
        "absent_degrees": tuple(rule.name for rule in SHAPE_RULES if rule.degree in EVERY_ABSENT),
        "absent_ranks": tuple(rule.name for rule in SHAPE_RULES
                              if rule.degree in EVERY_ABSENT and rule.degree in MODEL_RANKS.free_symbols),
        "published": memory_estimates(),
        "overheads": [
            {"name": BY_LETTER[item.letter].name, "low": item.low, "high": item.high} for item in OVERHEADS
        ],
        "libraries": LIBRARIES, "torch_workspaces": TORCH_WORKSPACES,
        "efficiencies": EFFICIENCIES,
        "error_of_experts": ERROR_OF_EXPERTS,
        "verdicts": verdicts(VERDICTS),
        "rule_80": verdicts(RULE_80),
        "limits": LIMITS, "rank_limits": RANK_LIMITS, "rule_share": float(rule_share()),
        "run_out": run_out(),
        "counts": [_count(name, meaning, size) for name, meaning, size in (
            ("model_ranks", "Count the ranks that hold one replica of the model together.", MODEL_RANKS),
            ("num_microbatches", "Count the micro-batches of one step and rank.", MICROBATCHES),
            ("sequences_at_once", "Count the sequences of one micro-batch on all ranks.", SEQUENCES),
        )],
    }


def _implementation(item: Implementation) -> dict[str, Any]:
    return {
        "name": item.name,
        "version": item.version,
        "title": item.title,
        "choices": dict(item.choices),
        "allowed": dict(item.allowed),
        "lacking": dict(item.lacking),
        "fixed": _named(fixed_values(item)),
        "defaults": _named({**item.defaults, **fixed_values(item), **item.forbidden}),
        "replayed": item.replayed,
        "partly": item.partly,
    }


def _count(name: str, meaning: str, size: Expr) -> dict[str, str]:
    """Return a whole number that follows from parameters, as the expression of a function of them.

    Degrees that formulas need not speak of are 1 unless they are given.
    """
    over, under = fraction(size)
    printer = PythonPrinter()
    body = printer.doprint(over) if under == 1 else f"{printer.doprint(over)} // ({printer.doprint(under)})"
    letters = sorted(size.free_symbols, key=lambda letter: (letter in EVERY_ABSENT, printer.doprint(letter)))
    arguments = ", ".join(f"{printer.doprint(letter)}: Any{' = 1' * (letter in EVERY_ABSENT)}" for letter in letters)
    return {"name": name, "meaning": meaning, "arguments": arguments, "body": body}


def _named(values: Mapping[str, int]) -> dict[str, int]:
    return {BY_LETTER[letter].name: value for letter, value in values.items()}
