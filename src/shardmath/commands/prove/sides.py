"""The sides of a claim: expressions over terms, each term at settings of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmath.commands.prove.claim import FREE, Claim, bracketed, with_settings
from shardmath.compiler.evaluators import Evaluator, find
from shardmath.compiler.expressions.graph import Graph, Node
from shardmath.compiler.expressions.source import FormulaError, parse
from shardmath.configuration.settings import WORDS
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS, PARAMETERS
from shardmath.input.naming import nearest_implementation
from shardmath.input.parameters import long_name
from shardmath.input.quantities import separated

_HOLE = "_side"


@dataclass(frozen=True)
class Setting:
    """An evaluator, and parameters that a claim sets: nodes of the claim's graph by name."""

    evaluator: Evaluator
    values: Mapping[str, Node]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of all parameters of terms of memory and time."""
        names = dict.fromkeys(self.evaluator.terms.INPUTS)
        return tuple({**names, **dict.fromkeys(self.evaluator.times.INPUTS)} if self.evaluator.is_timed else names)


@dataclass
class Sides:
    """The two sides over names: parameters, and terms as ``number of a setting|term``."""

    implementation: str
    kernels: Mapping[str, str]
    graph: Graph = field(default_factory=Graph)
    settings: list[Setting] = field(default_factory=list)
    _known: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)

    def of(self, claim: Claim) -> tuple[Node, Node]:
        """Return the left and the right side. Raises InputError for what is no formula of known terms."""
        return self._side(claim.left, ()), self._side(claim.right, ())

    def conditions(self, region: str, claim: Claim) -> list[Node]:
        """Return the conditions of a region, one for each part between commas, at both ends of a moved parameter."""
        numbers = [self._setting(())]
        if claim.moved:
            numbers.append(self._setting(with_settings(claim.right)[1]))
        return [self._condition(part, number) for part in separated("region", region) for number in numbers]

    def _condition(self, text: str, number: int) -> Node:
        name, equals, value = text.partition("=")
        if equals and name.strip() in WORDS:
            values = WORDS[name.strip()](value.strip())
            own = self.settings[number].values
            return self.graph.logic("and", [
                self.graph.binary("eq", own.get(key, self.graph.name(key)), self.graph.number(number))
                for key, number in values.items() if key in self.settings[0].inputs])
        if equals and not value.startswith("=") and name[-1:] not in ("<", ">", "!"):
            text = f"{name} == {value}"
        words = text.split()
        if words[1:2] == ["divides"]:
            text = f"divides({words[0]}, {' '.join(words[2:])})"
        node = self._parsed(text, number, {})
        return node if node.is_condition else self.graph.negation(self.graph.binary("eq", node, self.graph.number(0)))

    def _side(self, text: str, outer: tuple[tuple[str, str], ...]) -> Node:
        body, own = with_settings(text)
        settings = tuple({**dict(outer), **dict(own)}.items())
        holes: dict[str, Node] = {}
        for start, end in reversed(list(bracketed(body))):
            name = f"{_HOLE}{len(holes)}"
            holes[name] = self._side(body[start:end], settings)
            body = f"{body[:start]}{name}{body[end:]}"
        return self._parsed(body, self._setting(settings), holes)

    def _parsed(self, text: str, number: int, holes: Mapping[str, Node]) -> Node:
        try:
            return parse(text.replace("^", "**"), self.graph, lambda name: holes.get(name) or self._name(name, number))
        except FormulaError as error:
            cause = error.__context__
            if isinstance(cause, InputError):
                raise cause from None
            raise InputError("claim", error.part, f"{error.rule}; in: {text}") from None

    def _name(self, name: str, number: int) -> Node:
        """Return a parameter by name or letter, or a term of a setting."""
        setting = self.settings[number]
        evaluator, long = setting.evaluator, long_name(name)
        if name in FREE:
            return self.graph.name(name)
        if long in setting.inputs:
            return setting.values.get(long, self.graph.name(long))
        if long in evaluator.terms.TERMS or (evaluator.is_timed and long in evaluator.times.TERMS):
            return self.graph.name(f"{number}|{long}")
        known = [*setting.inputs, *evaluator.terms.TERMS, *(evaluator.times.TERMS if evaluator.is_timed else ())]
        raise InputError("claim", name, f"must be a term or a parameter of {evaluator.implementation}, or one of"
                                        f" {', '.join(FREE[:2])}", nearest_names(long, known))

    def _setting(self, settings: tuple[tuple[str, str], ...]) -> int:
        """Return the number of settings, which are made where nobody had them yet."""
        if settings not in self._known:
            self._known[settings] = len(self.settings)
            implementation, kernels, values = self.implementation, dict(self.kernels), dict[str, Node]()
            for name, text in settings:
                if name == "implementation":
                    implementation = text
                elif _is_choice(name, text):
                    kernels[name] = text
            if implementation not in IMPLEMENTATIONS:
                raise InputError("implementation", implementation, "must be a known implementation",
                                 nearest_implementation(implementation, IMPLEMENTATIONS))
            evaluator = find(implementation, kernels)
            base = Setting(evaluator, {})
            self.settings.append(base)
            for name, text in settings:
                if name != "implementation" and not _is_choice(name, text):
                    values |= self._values(name, text, len(self.settings) - 1)
            self.settings[self._known[settings]] = Setting(evaluator, self._complete(base, values))
        return self._known[settings]

    def _values(self, name: str, text: str, number: int) -> dict[str, Node]:
        if name in WORDS:
            inputs = self.settings[number].inputs
            return {key: self.graph.number(value) for key, value in WORDS[name](text).items() if key in inputs}
        long = long_name(name)
        if long not in self.settings[number].inputs:
            raise InputError("with", name, "must be a parameter", nearest_names(long, self.settings[number].inputs))
        return {long: self._parsed(text, number, {})}

    def _complete(self, setting: Setting, values: Mapping[str, Node]) -> dict[str, Node]:
        """As many GPUs as the ranks of a layout, unless they are set."""
        own = dict(values)
        if "num_gpus" not in own:
            own["num_gpus"] = self.graph.mul([own.get(name, self.graph.name(name)) for name in _DEGREES])
        return own


_DEGREES = ("data_parallel", "context_parallel", "pipeline_parallel", "tensor_parallel")


def _is_choice(name: str, text: str) -> bool:
    """Return True for a kernel choice; ``data_parallel`` is a choice and a parameter."""
    return name in CHOICES and (name not in PARAMETERS or text in CHOICES[name][1])

