"""Tensor parallelism on three axes: AxoNN's 4D algorithm, whose fourth dimension is data parallelism.

Projections lie on a grid of x times y times z ranks. x is the usual tensor parallelism; y shares out the other side of
every weight, which is transposed in every second layer; z shares out sequences, and what x and y leave of a weight.
Embedding, head and loss are shared out over x times y, norms are whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Integer, true

from ..axis import Axis
from ..ledger import IN_LAYER
from ..parallel.rules import Rule
from ..parallel.weights import is_linear
from ..parameters import symbols
from ..rates import ring_time
from ..terms import TermSet, product, total
from .system import Aspect, Choices, Part, System

NAME = "tensor_axes"
L, w = symbols("L w")


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "one":
        return ()
    return (Rule("node", "t", true, "may exceed node_size"),)


def _whole_on_z(terms: TermSet) -> Expr:
    """Return elements of rank r that ranks of the third axis have in common: all but the matrices of projections."""
    assert terms.base is not None
    return total(*(
        product(L if row.component.place in IN_LAYER else Integer(1), row.expression)
        for name, term in terms.base.terms.items() if name.endswith(".parameters")
        for row in term.rows if not is_linear(row.component, row.tensor)
    ))


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    """Return the sum of gradients that z ranks share, once per step: vocabulary matrices, norms and biases."""
    if choices[NAME] == "one":
        return ()
    size = terms.add("stage.depth_bytes", product(w, _whole_on_z(terms)), "bytes",
                     "rank r: gradients that the ranks of the third tensor axis have in common")
    terms.add("stage.depth_waiting", ring_time("tensor_z", Integer(2), product(Integer(2), size)), "s",
              "rank r: gradients summed over the third tensor axis, once for every step")
    return (Part("depth_waiting", "stage.depth_waiting", "waiting for gradients over the third tensor axis"),)


SYSTEM = System(
    Axis(NAME, "axes of tensor parallelism", {
        "one": "one: the columns, then the rows of two projections (Megatron-LM)",
        "three": "three: rows, columns and shares of every weight (AxoNN's 4D algorithm)",
    }, absent={"one": ("ty", "tz")}, asked={"three": "ty tz"},
       needs={"three": {"peak": "saved", "weight_gradient": "separate"}}),
    ("megatron",),
    words="three axes of tensor parallelism", changes=(Aspect.RANKS,),
    counted={
        "layers": ("dense",), "heads": ("grouped",), "fp8": ("none",), "adapters": ("none",), "peak": ("saved",),
        "capping": ("none",), "dropout": ("none",), "loss": ("vocab_parallel",), "precision": ("mixed", "fp16"),
        "weight_gradient": ("separate",),
    },
    rules=_rules,
    fixed=lambda choices: {} if choices[NAME] == "one" else {"c": 1, "p": 1, "sp": 0, "zero1": 0},
    time=_time,
    spent={"depth": "gradients over the third tensor axis, at the end of a step"},
)
