"""Rows that a program of a framework can have: a model that is answered for, with choices that no rule refuses.

Which models there are say the published ``config.json`` files and the readers of their families; their model classes
decide the axes of ``choices_of``, as far as trainers do not. Of all others a framework has every option that it allows.
Megatron-LM makes models of flags, so that there each option of a model is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from families import ALIASES, CONFIGS, DATA, read_config
from sympy import Eq, Expr, Integer, Symbol

from shardmath.configuration.choosing import answered_choices
from shardmath.errors import InputError
from shardmath.formats.trainers.reading import LIGER
from shardmath.models.class_kernels import CLASS_KERNELS
from shardmath.models.model import Model
from shardmath.symbolic.axis import Axis, fits
from shardmath.symbolic.choices import AXES, BY_NAME, absent_values, values_without
from shardmath.symbolic.documents.formulas import options_with
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.ledger import Component, Tensor
from shardmath.symbolic.parallel.derived import definitions
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parallel.pipeline import instances
from shardmath.symbolic.parallel.uncounted import uncounted_in
from shardmath.symbolic.parameters import BY_LETTER, symbol
from shardmath.symbolic.recompute import keep

Domain = Mapping[str, tuple[str, ...]]
#: Axes of model classes that trainers choose by an argument, or as they share out weights, and one that is a word of
#: ``config.json``.
_TRAINERS = ("attention", "peak", "router_weights", "router_precision", "gelu")
#: Axes that decide which layouts are counted: with moments of a step and in a program's own pipeline fewer are.
_OF_LAYOUTS = ("peak", "pipeline")
#: Models with a file of their own for text, published without the biases of attention that their classes may have.
MAY_HAVE_BIASES = ("gemma4",)
#: Letters of switches that a model has on or off.
SWITCHES = tuple(letter for letter, parameter in BY_LETTER.items()
                 if parameter.is_switch and parameter.name in Model.model_fields)


def is_reachable(implementation: Implementation, item: Component, tensor: Tensor) -> bool:
    """Return True if a program of the framework may keep the tensor, with some kernels and in some legal layout."""
    if not (options := options_with(implementation, item, tensor)):
        return False
    needed = {name: allowed for name, allowed in options.items() if name in item.options or name in tensor.options}
    needed |= {axis.name: tuple(option for option in options[axis.name] if _is_spoken_of(tensor, axis, option))
               for axis in AXES if not all(_is_spoken_of(tensor, axis, option) for option in axis.absent)}
    return any(is_kept(implementation.with_choices(**dict(choices)), item, tensor, alike(implementation.name)[place])
               for place, choices in _found(implementation.name, tuple(needed.items())))


def _is_spoken_of(tensor: Tensor, axis: Axis, option: str) -> bool:
    """Return True if the tensor may be there without the letters that formulas do not speak of with an option."""
    return bool(tensor.when.xreplace(values_without(axis.absent.get(option, ()))).doit() != 0)


def is_kept(
    implementation: Implementation, item: Component, tensor: Tensor, of_models: Mapping[Expr, Expr],
) -> bool:
    """Return True if a rank keeps the tensor in some legal layout with these choices, and what models have alike."""
    choices = implementation.choices
    only = {**absent_values(choices), **only_values(implementation), **of_models}
    kept = tensor.when * instances(item.place, choices) * keep(item, tensor, choices)
    return bool(kept.xreplace(only).doit() != 0)


@cache
def only_values(implementation: Implementation) -> dict[Expr, Integer]:
    """Return letters with only one legal value under these choices: fixed ones, and those that a rule leaves one."""
    conditions = [rule.condition for rule in rules_for(implementation)]
    left = {each.lhs: each.rhs for each in conditions
            if isinstance(each, Eq) and isinstance(each.lhs, Symbol) and isinstance(each.rhs, Integer)}
    only = {**left, **{symbol(letter): Integer(value) for letter, value in fixed_values(implementation).items()}}
    derived = {symbol(letter): formula.xreplace(only).doit()
               for letter, formula in definitions(implementation.choices, implementation.framework).items()}
    return {**{letter: value for letter, value in derived.items() if isinstance(value, Integer)}, **only}


def _found(
    name: str, needed: tuple[tuple[str, tuple[str, ...]], ...],
) -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """Yield programs with legal choices that have the options that are needed, for each set of counted layouts."""
    for place, domain in enumerate(programs(name)):
        narrowed = {axis: tuple(option for option in domain[axis] if option in allowed) for axis, allowed in needed}
        if all(narrowed.values()):
            whole = {**domain, **narrowed}
            for chosen in product(*(whole[axis] for axis in _OF_LAYOUTS)):
                own = {axis: (option,) for axis, option in zip(_OF_LAYOUTS, chosen, strict=True)}
                yield from ((place, choices) for choices in _legal(
                    name, place, tuple(sorted({**narrowed, **own}.items()))))


def programs(name: str) -> tuple[Domain, ...]:
    """Return the options of each axis by model that the framework is answered for, the usual one first."""
    return tuple(domain for domain, _ in _answered(name))


@cache
def alike(name: str) -> tuple[Mapping[Expr, Expr], ...]:
    """Return by program what all of its models have alike; flags of Megatron-LM set any.

    These are switches that none has on, windows in all layers, and as many heads of keys as of queries.
    """
    return tuple(_alike(answered) if answered else {} for _, answered in _answered(name))


def _alike(answered: tuple[Model, ...]) -> dict[Expr, Expr]:
    known: dict[Expr, Expr] = {symbol(letter): Integer(0) for letter in (*SWITCHES, "wstep")
                               if not any(getattr(model, BY_LETTER[letter].name) for model in answered)}
    if all(model.attention_window for model in answered):
        known[symbol("win")] = Integer(max(model.attention_window for model in answered))
    if all(model.num_kv_heads == model.num_attention_heads for model in answered):
        known[symbol("k")] = symbol("a")
    return known


@cache
def _answered(name: str) -> tuple[tuple[Domain, tuple[Model, ...]], ...]:
    """Return the options of each axis of every program, and its models; flags of Megatron-LM make any."""
    implementation = IMPLEMENTATIONS[name]
    allowed = {axis.name: tuple(dict.fromkeys((implementation.choices[axis.name], *implementation.options(axis.name))))
               for axis in AXES}
    if name == "megatron":
        return ((allowed, ()),)
    others = dict(LIGER.values()) if name == "huggingface" else {}
    of_classes = {axis for kernels in CLASS_KERNELS.values() for axis in kernels} if name == "huggingface" else set()
    domains: dict[tuple[tuple[str, tuple[str, ...]], ...], list[Model]] = {}
    for model in models():
        try:
            chosen = answered_choices(name, model)
        except InputError:
            continue
        own = {axis: chosen.get(axis, implementation.choices[axis])
               for axis in {*chosen, *of_classes}.difference(_TRAINERS)}
        if fits(allowed, {**implementation.choices, **own}):
            kernels = {axis: tuple(dict.fromkeys((option, others.get(axis, option)))) for axis, option in own.items()}
            domains.setdefault(tuple((allowed | kernels).items()), []).append(model)
    return tuple((dict(domain), tuple(answered)) for domain, answered in domains.items())


@cache
def models() -> tuple[Model, ...]:
    """Return the models of published and small config.json files that are read, and such with biases of attention."""
    public = json.loads((DATA / "public_configs.json").read_text())
    configs = [*(row["config"] for row in public.values() if row["answer"] == "read"), *CONFIGS.values()]
    configs += [{**config, "model_type": name} for name, other in ALIASES.items() for config in configs
                if config["model_type"] == other]
    configs += [{**config, "text_config": {**config["text_config"], "attention_bias": True}} for config in configs
                if config["model_type"] in MAY_HAVE_BIASES]
    with TemporaryDirectory() as folder:
        return tuple(read_config(Path(folder), config) for config in configs)


@cache
def _legal(
    name: str, place: int, narrowed: tuple[tuple[str, tuple[str, ...]], ...],
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return choices of a program that no rule refuses; nothing if changes one after another lead to none.

    Every change is the one that leaves the fewest refusals.
    """
    domain = {**programs(name)[place], **dict(narrowed)}
    choices = _with_needs({axis: options[0] for axis, options in domain.items()}, domain)
    while reasons := uncounted_in(choices):
        best = min(_changes(choices, domain), key=lambda changed: len(uncounted_in(changed)), default=choices)
        if len(uncounted_in(best)) >= len(reasons):
            return ()
        choices = best
    return (tuple(choices.items()),)


def _changes(choices: Mapping[str, str], domain: Domain) -> Iterator[dict[str, str]]:
    return (_with_needs({**choices, axis: option}, domain) for axis, options in domain.items() for option in options
            if len(options) > 1 and option != choices[axis])


def _with_needs(choices: Mapping[str, str], domain: Domain) -> dict[str, str]:
    """Return the choices with those that go with their options, where these may be chosen."""
    made = dict(choices)
    for axis in BY_NAME.values():
        made |= {name: option for name, option in axis.needs.get(made[axis.name], {}).items() if option in domain[name]}
    return made
