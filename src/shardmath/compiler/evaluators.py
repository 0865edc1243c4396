"""Find the generated evaluator of an implementation, or derive one for other kernel choices."""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from shardmath.errors import InputError, close_names, nearest_listed, nearest_names
from shardmath.files.cached import cached_module, cached_text, key_of, source_of, sources_digest
from shardmath.generated.definitions import ARCHITECTURE, CHOICES, IMPLEMENTATIONS, NEEDED, UNTIMED
from shardmath.input.meant import option_of
from shardmath.input.naming import LISTED, nearest_implementation, nearest_terms

if TYPE_CHECKING:
    from fractions import Fraction

    from shardmath.symbolic.implementations import Implementation

#: An axis whose option is that of the cluster, which no kernel choice changes.
_OF_CLUSTER = "gpus"
#: Options of the axis ``peak``: saved tensors alone, and the moments of PyTorch's own step.
_SAVED, _MOMENTS = "saved", "torch"


class Evaluator(NamedTuple):
    """An implementation with its kernel choices, and what the running code needs to know of it.

    ``defaults`` and ``fixed`` are values by parameter name. ``name`` is the module's, without package; ``folder`` is
    where its files are in the cache, None if they are in the package. Terms of the package are simplified; those that
    are derived on first use are printed as written, which is quicker.
    """

    implementation: str
    name: str
    choices: dict[str, str]
    fixed: dict[str, int]
    defaults: dict[str, int]
    folder: str | None

    @property
    def terms(self) -> ModuleType:
        """The module of plain Python: every term, every rule, exact on fractions."""
        return self._load("")

    @property
    def times(self) -> ModuleType:
        """The module of plain Python for the time of a step; see ``terms``.

        Raises InputError as ``refuse_untimed`` does.
        """
        self.refuse_untimed()
        return self._load("_time")

    @property
    def rows(self) -> ModuleType:
        """The module of single rows: the size of each, and the order in which a step allocates them."""
        return self._load("_rows")

    @property
    def is_timed(self) -> bool:
        """True if there are formulas of the time of a step."""
        try:
            self.refuse_untimed()
        except InputError:
            return False
        return True

    def refuse_untimed(self) -> None:
        """Raise InputError as the function of that name does."""
        refuse_untimed(self.choices)

    def title(self, without: Collection[str] = ()) -> str:
        """Return the implementation with choices that differ from its own: not the model's, nor what goes with others.

        Axes in ``without`` are left out too.
        """
        usual = IMPLEMENTATIONS[self.implementation]["choices"]
        implied = {
            pair for axis, option in self.choices.items() for pair in NEEDED.get(axis, {}).get(option, {}).items()
        }
        made = [f"{axis}={option}" for axis, option in sorted(self.choices.items())
                if option != usual[axis] and axis not in (*ARCHITECTURE, *without) and (axis, option) not in implied]
        return f"{self.implementation} with {', '.join(made)}" if made else self.implementation

    @property
    def kernel(self) -> ModuleType:
        """The module for Numba: rules and peak for columns of layouts."""
        return _remembered(self._load("_kernel"))

    def kernel_for(self, outputs: Sequence[str], columns: Collection[str]) -> ModuleType:
        """Get the module for Numba of the terms ``outputs``, where the parameters ``columns`` differ from row to row.

        That of the package, or of a sweep, where it has them; else one is derived, and kept for the next time.
        Raises InputError for an unknown term.
        """
        for name in outputs:
            self.unit_and_meaning(name)
        modules, inputs = [self.terms], {*self.terms.INPUTS, "gpu_memory"}  # which the verdict is about
        if self.choices["stages"] != "listed" and tuple(outputs) == find(self.implementation).kernel.OUTPUTS:
            usual = self.kernel  # of an explicit list there is none: there is nothing to sweep
            if not set(columns) & set(usual.SCALARS):
                return usual
        if not set(outputs) <= self.terms.TERMS.keys():
            modules.append(self.times)
            inputs |= {*self.times.INPUTS}
        columns = sorted({*columns} & inputs)

        def source() -> str:
            from shardmath.symbolic.compiled import derive_kernel

            chosen = in_ledger(self.implementation, self.choices)
            return derive_kernel(chosen, outputs, columns, "\n".join(map(source_of, modules)))

        key = _key(self.implementation, self.choices, list(outputs), columns)
        return _remembered(cached_module("kernels", key, source))

    def unit_and_meaning(self, term: str) -> tuple[str, str]:
        """Return the description of a term of memory or time. Raises InputError for an unknown one."""
        if term in self.terms.TERMS:
            known_term: tuple[str, str] = self.terms.TERMS[term]
            return known_term
        if not self.is_timed and term in find(self.implementation).times.TERMS:
            self.refuse_untimed()
        known = self.times.TERMS if self.is_timed else {}
        if term not in known:
            raise InputError("term", term, f"must be a term of {self.implementation}",
                             nearest_terms(term, {**self.terms.TERMS, **known}) or LISTED)
        timed: tuple[str, str] = known[term]
        return timed

    def _load(self, part: str) -> ModuleType:
        """Return the module of a part by the end of its name, derived on first use outside of the package."""
        if self.folder is None:
            return import_module(f"shardmath.generated.{self.name}{part}")
        return cached_module(self.folder, f"{self.name}{part}", lambda: self._derive(part))

    def _derive(self, part: str) -> str:
        from shardmath.symbolic.plain import derive_memory, derive_rows, derive_time

        chosen = in_ledger(self.implementation, self.choices)
        if part == "_kernel":
            from shardmath.symbolic.compiled import derive_layouts

            return derive_layouts(chosen, source_of(self.terms))
        return {"": derive_memory, "_rows": derive_rows, "_time": derive_time}[part](chosen)


def terms_at(module: ModuleType, values: Mapping[str, int]) -> dict[str, int | Fraction]:
    """Return every term of a plain evaluator by name, exact, at the ``values`` of its inputs; others are passed over.

    A term is a whole number wherever its divisions leave no rest, and else a fraction.
    """
    numbers: dict[str, int | Fraction] = module.terms(*(operator.index(values[name]) for name in module.INPUTS))
    return numbers


def times_at(module: ModuleType, values: Mapping[str, int]) -> dict[str, float]:
    """Return every term of an evaluator of time by name, in floats: exact fractions take seven times as long."""
    numbers: dict[str, float] = module.terms(*(float(values[name]) for name in module.INPUTS))
    return numbers


def _remembered(kernel: ModuleType) -> ModuleType:
    from shardmath.compiler.native.kernels import remembered

    return remembered(kernel)


def refuse_untimed(choices: Mapping[str, str]) -> None:
    """Raise InputError for a choice with work of which no time is counted."""
    for axis, options in UNTIMED.items():
        option = choices[axis]
        if option in options:
            raise InputError(axis, option, f"has no step time: {options[option]} are not counted yet")


def find(implementation: str, kernels: Mapping[str, str] | None = None) -> Evaluator:
    """Return the evaluator of ``implementation``, with some kernel choices made differently.

    Raises InputError for an unknown implementation, axis or option.
    """
    changed = changed_choices(implementation, kernels)
    if changed:
        return _derived(implementation, changed)
    known = IMPLEMENTATIONS[implementation]
    return Evaluator(implementation, implementation, known["choices"], known["fixed"], known["defaults"], None)


def fixing(evaluator: Evaluator, name: str) -> str:
    """Name what leaves the parameter ``name`` one value: the implementation, and the choice that does so alone.

    All choices that differ from the implementation's are named where several do so together.
    """
    known = IMPLEMENTATIONS[evaluator.implementation]
    if name in known["fixed"]:
        return evaluator.implementation
    changed = {axis: option for axis, option in evaluator.choices.items() if known["choices"][axis] != option}
    causes = [f"{axis} = {option}" for axis, option in changed.items() if _fixes(evaluator, name, {axis: option})]
    return f"{evaluator.implementation} and {causes[0] if causes else ', '.join(map(' = '.join, changed.items()))}"


def _fixes(evaluator: Evaluator, name: str, kernels: Mapping[str, str]) -> bool:
    try:
        return name in find(evaluator.implementation, kernels).fixed
    except InputError:  # not counted without the other choices
        return False


def with_moments(implementation: str, kernels: Mapping[str, str]) -> dict[str, str]:
    """Return ``kernels`` with the moments of a step, unless a peak is chosen, or they are not counted so.

    Of implementations whose own peak is saved tensors alone, as moments are not counted with all of their options.
    Where they are counted for some values of parameters alone they have to be asked for.
    Raises InputError as ``find`` does for an implementation, axis or option.
    """
    changed, known = changed_choices(implementation, kernels), IMPLEMENTATIONS[implementation]
    has_both = known["choices"]["peak"] == _SAVED and _MOMENTS in known["allowed"].get("peak", ())
    is_partly = any(kernels.get(axis) in options for axis, options in known["partly"].items())
    if not has_both or is_partly or "peak" in kernels:
        return dict(kernels)
    folder = f"evaluators/{_key(implementation, {**known['choices'], **changed})}"
    return {**kernels, "peak": cached_text(folder, "peak.txt", lambda: _peak(implementation, changed))}


def _peak(implementation: str, changed: Mapping[str, str]) -> str:
    """Return the option of ``peak`` with the moments of a step, or with saved tensors where these are not counted."""
    try:
        counted(implementation, {**changed, "peak": _MOMENTS})
    except InputError:
        return _SAVED
    return _MOMENTS


def changed_choices(implementation: str, kernels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Get the kernel choices in ``kernels``, and those that go with them, that differ from those of ``implementation``.

    Raises InputError for an unknown implementation, axis or option.
    """
    if implementation not in IMPLEMENTATIONS:
        raise InputError("implementation", implementation, "must be a known implementation",
                         nearest_implementation(implementation, IMPLEMENTATIONS))
    known = IMPLEMENTATIONS[implementation]
    chosen = with_needs(_checked(kernels or {}))
    for axis, (options, reason) in known["lacking"].items():
        if chosen.get(axis) in options:
            raise InputError(axis, chosen[axis], f"must be an option that {implementation} has: {reason}",
                             " or ".join(name for name in CHOICES[axis][1] if name not in options))
    for axis, option in chosen.items():
        allowed = known["allowed"].get(axis, CHOICES[axis][1])
        if option not in allowed:
            raise InputError(axis, option, f"must be one of {', '.join(allowed)} with {implementation}",
                             nearest_names(option, allowed))
    return {axis: option for axis, option in chosen.items() if known["choices"][axis] != option}


def with_needs(kernels: Mapping[str, str]) -> dict[str, str]:
    """Return kernel choices with those that go with them, which are not chosen otherwise."""
    chosen = dict(kernels)
    for axis, options in NEEDED.items():
        chosen |= {name: option for name, option in options.get(chosen.get(axis, ""), {}).items() if name not in chosen}
    return chosen


def _checked(kernels: Mapping[str, str]) -> Mapping[str, str]:
    for axis, option in kernels.items():
        if axis not in CHOICES:
            raise InputError("kernel", axis, "must be a known choice",
                             nearest_listed(axis, CHOICES, "shardmath kernels"))
        options = CHOICES[axis][1]
        if option not in options:
            raise InputError(f"kernel {axis}", option, f"must be one of {', '.join(options)}",
                             option_of(axis, option) or close_names(option, options))
    return kernels


def _derived(implementation: str, changed: Mapping[str, str]) -> Evaluator:
    """Get the evaluator for choices that have none in the package; what is derived of it is kept for the next time."""
    known = IMPLEMENTATIONS[implementation]
    choices = {**known["choices"], **changed}
    folder = f"evaluators/{_key(implementation, choices)}"
    text = cached_text(folder, "evaluator.json", lambda: _description(implementation, changed))
    name, fixed, forbidden = json.loads(text)
    return Evaluator(implementation, name, choices, fixed, {**known["defaults"], **fixed, **forbidden}, folder)


def _description(implementation: str, changed: Mapping[str, str]) -> str:
    """Return the name of an evaluator with other choices, and values by parameter name, as JSON.

    They are the values that it fixes, and the switches that it forbids. Raises InputError for choices that are not
    counted together.
    """
    from shardmath.symbolic.parallel.legality import fixed_values
    from shardmath.symbolic.parameters import BY_LETTER

    chosen = counted(implementation, changed)
    values = [{BY_LETTER[letter].name: value for letter, value in own.items()}
              for own in (fixed_values(chosen), chosen.forbidden)]
    return json.dumps([chosen.name, *values])


def counted(implementation: str, changed: Mapping[str, str]) -> Implementation:
    """Return the implementation in the ledger with other choices. Raises InputError for those not counted together."""
    from shardmath.symbolic.parallel.uncounted import refuse_impossible

    chosen = in_ledger(implementation, changed)
    try:
        refuse_impossible(chosen.choices)
    except ValueError as refused:
        said = str(refused).lower().replace("-", "_")
        spoken_of = {axis for axis, option in changed.items() if axis in said or option in said}
        asked = ", ".join(f"{axis}={changed[axis]}" for axis in sorted(spoken_of or changed))
        rule = f"must be a combination that has been counted; {refused}"
        raise InputError("kernel", asked, rule, " or ".join(_counted_without(implementation, changed))) from refused
    return chosen


def _counted_without(implementation: str, changed: Mapping[str, str]) -> Iterator[str]:
    """Single choices that make a combination one that is counted: those of the implementation itself."""
    from shardmath.symbolic.parallel.uncounted import refuse_impossible

    usual = IMPLEMENTATIONS[implementation]["choices"]
    for axis in changed:
        if axis not in (*ARCHITECTURE, _OF_CLUSTER) and changed[axis] != usual[axis]:
            try:
                refuse_impossible(in_ledger(implementation, {**changed, axis: usual[axis]}).choices)
            except ValueError:
                continue
            yield f"{axis}={usual[axis]}"


def in_ledger(implementation: str, choices: Mapping[str, str]) -> Implementation:
    """Return the implementation in the ledger with these choices, imported only where something is derived."""
    from shardmath.symbolic.implementations import IMPLEMENTATIONS as SYMBOLIC

    return SYMBOLIC[implementation].with_choices(**choices)


def _key(implementation: str, choices: Mapping[str, str], *more: object) -> str:
    """Return the digest of a derived module's inputs: its choices, ``more``, and the sources of its derivation."""
    return key_of(sources_digest(), implementation, sorted(choices.items()), *more)
