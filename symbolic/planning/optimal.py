"""Parameters and tokens of least loss for a given compute, from a fitted loss (Hoffmann et al. 2022, approach 3).

``E + A / Psi^alpha + B / T^beta`` is least under ``6 Psi T = C`` where its derivative along that curve is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Integer, Rational, Symbol

from ..terms import TermSet, term_symbol
from .letters import quantities

tokens, Psi, flops, money = quantities("tokens Psi flops money")
least, Asize, Bdata, alpha, beta = quantities("least Asize Bdata alpha beta")
PER_TOKEN = Integer(6)


@dataclass(frozen=True)
class Fit:
    """Constants of a fitted loss, as printed in ``where`` of a source."""

    source: str
    where: str
    values: Mapping[Symbol, Rational]


def _fit(source: str, where: str, *printed: str) -> Fit:
    return Fit(source, where, dict(zip((least, Asize, Bdata, alpha, beta), map(Rational, printed), strict=True)))


#: Fitted losses, the one to use first.
FITS: tuple[Fit, ...] = (
    _fit("besiroglu2024", "the loss fitted anew", "1.8172", "482.01", "2085.43", "0.3478", "0.3658"),
    _fit("hoffmann2022", "equation 10", "1.69", "406.4", "410.7", "0.34", "0.28"),
)


def add(terms: TermSet) -> None:
    """Append the loss, the compute of a training, and the optimum for some compute."""
    planned = terms.add("plan.planned_flops", PER_TOKEN * Psi * tokens, "FLOP",
                        "training of some parameters on some tokens")
    terms.add("plan.bought_flops", planned * money / term_symbol("plan.cost"), "FLOP",
              "training that a budget buys at the same price and utilisation")
    terms.add("plan.loss", least + Asize / Psi**alpha + Bdata / tokens**beta, "nats", "loss after it")
    pairs, both = flops / PER_TOKEN, alpha + beta
    balance = terms.add("plan.balance", (alpha * Asize / (beta * Bdata)) ** (1 / both), "1",
                        "parameters at the optimum over the power of compute")
    terms.add("plan.optimal_parameters", balance * pairs ** (beta / both), "elements",
              "parameters of least loss for some compute")
    terms.add("plan.optimal_tokens", pairs ** (alpha / both) / balance, "tokens",
              "tokens of least loss for some compute")
