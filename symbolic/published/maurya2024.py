"""Maurya et al. 2024 (Deep Optimizer States, arXiv:2410.21316): subgroups of parameters that the GPU updates.

The formula of the paper for its stride could not be had. The set has what the authors' program does, a fork of
DeepSpeed (branch deep-optimizer-states, ``runtime/zero/stage3.py``), and numbers of the logs that they published.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Rational

from ..functions import FloorDiv, Min
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "maurya2024"
gk, sg, w, Psi = symbols("gk sg w Psi")
_GROUPS, _SHARE, _BUFFER = "stage.subgroups", "stage.shard_elements", "stage.buffer_elements"
_CHOSEN = {"optimizer_offload": "interleaved"}
#: Elements of the embedding of the logged model of 7B: its largest subgroup; and of all parameters.
_EMBEDDING, _LOGGED = 206_045_184, 5_948_833_792


def _build() -> TermSet:
    terms = TermSet(NAME)

    def add(name: str, expression: Expr, unit: str, meaning: str) -> Expr:
        return terms.add(f"{NAME}.{name}", expression, unit, meaning)

    share = add("share", 1 / gk, "share", "subgroups that the GPU updates")
    add("subgroup", product(Integer(16), sg), "bytes",
        "fp32 weight, gradient and both moments of a subgroup, in buffers on the GPU")
    add("gradients", product(Integer(2), Psi, share), "bytes",
        "16-bit gradients of the GPU's subgroups, which wait there for the update")
    add("moved", product(Integer(12), Psi, share), "bytes", "weights and moments that come to the GPU and go")
    add("host", product(Integer(16), Psi), "bytes", "fp32 weights, gradients and moments on the host")
    return terms


def _beside() -> tuple[Counterpart, ...]:
    groups, shard, buffer = map(term_symbol, (_GROUPS, _SHARE, _BUFFER))
    rank: Mapping[str, Expr] = assume(PLAIN, t=1, c=1, p=1, r=0)
    own = {**rank, "Psi": shard}
    return (
        Counterpart(f"{NAME}.share", ("stage.gpu_subgroups",), "subgroups that the GPU updates, over all",
                    "the ledger has whole ones: those behind the last k are the host's", rank,
                    1 / gk - FloorDiv(groups, gk) / groups, _CHOSEN, over=(_GROUPS,), kept=(_GROUPS,)),
        Counterpart(f"{NAME}.subgroup", ("stage.subgroup",), "states of a subgroup on the GPU", "none where a rank has"
                    " a subgroup or more", rank, 16 * sg - 16 * Min(sg, shard), _CHOSEN, kept=(_SHARE,)),
        Counterpart(f"{NAME}.gradients", ("stage.gradient",), "gradients on the GPU", "the program is DeepSpeed's"
                    " ZeRO-3, where the host takes gradients during the backward pass; Megatron-Core's buffer has all"
                    " of them through the step, with padding", own, 2 * shard / gk - w * buffer, _CHOSEN,
                    kept=(_SHARE, _BUFFER)),
        Counterpart(f"{NAME}.host", ("stage.host_optimizer_offload",), "states on the host", "the ledger has the pinned"
                    " 16-bit weights of a round besides", own, -2 * (gk - 1) * Min(sg, shard), _CHOSEN, kept=(_SHARE,)),
    )


def _figures() -> tuple[Figure, ...]:
    """Return labels of the authors' plots, and differences between the two logs of a model of 7B on one GPU."""
    plots, logs = "labels of the plots in their notebook", "log of 7B on one GPU"
    shares = {2: "50", 3: "33", 4: "25", 5: "20", 10: "10"}
    return (
        *(Figure(f"{NAME}.share", {"gk": stride}, digits, "%", Rational(1, 100), f"{plots}, k = {stride}")
          for stride, digits in shares.items()),
        Figure(f"{NAME}.subgroup", {"sg": _EMBEDDING}, "3.07", "GiB", 2**30,
               f"{logs}: allocated after the update buffers less before"),
        Figure(f"{NAME}.gradients", {"gk": 2, "Psi": _LOGGED}, "6.76", "GiB", 2**30,
               f"{logs}: allocated after the backward pass less before",
               "the program counts subgroups and not parameters, and each second one has the larger matrices; by size"
               " of each subgroup it is 6.76"),
    )


SETS = (
    PublishedSet(
        NAME, "Maurya et al. 2024, Deep Optimizer States", NAME, _build(), _beside(),
        (
            "The GPU updates each k-th subgroup; k is a flag of the program, which has no formula for it.",
            "The figures are read off logs and plots that the authors published with the paper, not off the paper.",
            "Ψ are the parameters of one rank, all of which are in subgroups of equal size.",
        ),
        figures=_figures(),
        system="optimizer_offload",
    ),
)
