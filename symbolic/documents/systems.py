"""Data for the supplement's section on systems: what each option of theirs changes in the terms and rules."""

from __future__ import annotations

from typing import Any

from sympy import Symbol

from ..accounts import build
from ..accounts.peak import CANDIDATES, OF_EXPERTS
from ..implementations import IMPLEMENTATIONS, Implementation
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.legality import fixed_values, rules_for
from ..parameters import BY_LETTER
from ..printers.latex import LatexPrinter
from ..published import all_published
from ..systems import SYSTEMS
from ..systems.system import System
from ..terms import TermSet
from ..timing import build_all, is_timed
from ..timing.step import candidates
from .beside import row_of
from .forms import Form, form_of
from .tex import cite, code, escape, lines, math, operations


def with_option(system: System, option: str) -> tuple[Implementation, Implementation]:
    """Return the first implementation that has a system, without it and with an option of it, all else chosen alike.

    What the option needs is chosen, and of axes with options that it was not counted with the first one that it was.
    """
    first = IMPLEMENTATIONS[system.frameworks[0]]
    needs = {axis: options[0] for axis, options in system.counted.items() if first.choices[axis] not in options}
    plain = first.with_choices(**{**needs, **system.axis.needs.get(option, {})})
    return plain, plain.with_choices(**{system.axis.name: option})


def changed_terms(system: System, option: str) -> tuple[str, ...]:
    """Return the terms that an option adds or changes, without the copies of rank r with a rank put in."""
    without, chosen = with_option(system, option)
    before, after = terms_of(without), terms_of(chosen)
    copies = {*CANDIDATES, *OF_EXPERTS, *(candidates(chosen) if is_timed(chosen) else ())}
    return tuple(
        name for name, term in after.terms.items()
        if term.owner not in copies and (name not in before or before[name].expression != term.expression)
    )


def is_alias(form: Form) -> bool:
    """Return True for a term that is only another name of one."""
    return isinstance(form.written if form.simplified is None else form.simplified, Symbol)


def systems() -> dict[str, Any]:
    """Prepare the section: rules and changed terms of every option, and what the system's papers count otherwise."""
    return {"systems": [
        {"title": code(system.axis.name), "meaning": escape(system.axis.meaning),
         "frameworks": ", ".join(map(code, system.frameworks)),
         "options": [_option(system, option) for option in system.axis.options if option != system.absent],
         "published": [
             {"title": escape(item.title), "source": cite(item.source),
              "rows": [row_of(item, pair) for pair in item.correspondence if pair.difference is not None]}
             for item in all_published() if item.system == system.axis.name
         ]}
        for system in SYSTEMS
    ]}


def _option(system: System, option: str) -> dict[str, Any]:
    _, chosen = with_option(system, option)
    terms, fixed = terms_of(chosen), fixed_values(chosen)
    printer = LatexPrinter(terms.terms.values())
    forms = [form for name in changed_terms(system, option) if not is_alias(form := form_of(terms, name, fixed))]
    own = {rule.name for rule in system.rules(chosen.choices)} | {
        rule.name for item in SHAPE_RULES if system.axis.name in item.options for rule in item.rules
    }
    return {
        "name": code(option), "meaning": escape(system.axis.options[option]),
        "needs": ", ".join(f"{code(axis)} = {code(name)}" for axis, name in system.axis.needs.get(option, {}).items()),
        "untimed": escape(system.axis.untimed.get(option, "")),
        "rules": [
            {"name": code(rule.name), "condition": math(rule.condition), "field": code(BY_LETTER[rule.field].name),
             "text": escape(rule.text)} for rule in rules_for(chosen) if rule.name in own
        ],
        "rows": [
            {"name": code(form.term.name), "lines": lines(printer, form), "operations": operations(form),
             "meaning": rf"{{\scriptsize {escape(form.term.meaning)} ({form.term.unit})}}"}
            for form in forms
        ],
    }


def terms_of(implementation: Implementation) -> TermSet:
    """Return all terms of memory, and those of time where there are any."""
    return build_all(implementation) if is_timed(implementation) else build(implementation)
