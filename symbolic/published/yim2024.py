"""Yim et al. 2024 (Pipette, arXiv:2405.18093): time of a step with 1F1B on links of unequal bandwidth.

The formulas are those of the program that the authors published with the paper
(``strategy/merge4/llm_train_strategy_assignment_total_v3.py``).
"""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..functions import Iverson
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "yim2024"
s, b, h, u, L, t, p, m, B, D, V = symbols("s b h u L t p m B D V")
yf, yb, Wn, dom, Yp, Yd = symbols("yf yb Wn dom Yp Yd")
_SLOWEST, _WHOLE, _LINK = "step.slowest_stage", "whole.microbatch_time", "pipeline.send_bandwidth"


def _build() -> TermSet:
    terms = new_terms(NAME, "m")

    def add(name: str, unit: str, meaning: str, expression: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", expression, unit, meaning)

    message = add("message", "bytes", "16-bit output of a stage for a micro-batch", product(Integer(2), s, b, h))
    passing = add("passing", "s", "a message forth and a gradient back over all links of a pipeline",
                  product(Integer(2), p - 1, message) / Yp)
    block = add("block", "s", "p micro-batches of 1F1B: one of them through all stages and back",
                total(product(p, total(yf, yb)), passing))
    straggler = add("straggler", "s", "filling of the pipeline", product(p - 1, total(yf, yb)))
    gradients = add("gradients", "bytes", "16-bit gradients of the first stage of a GPT model, as the program counts"
                    " them", product(Integer(2), total(product(u, h), product(Integer(16), L, h**2) / p)) / t)
    inner, outer = dom / t, D * t / dom
    data = add("data", "s", "gradients summed in each node, between nodes over the slowest link, in each node again",
               total(product(Integer(4), gradients, inner - 1) / (inner * Wn),
                     product(Integer(2), gradients, outer - 1) / (outer * Yd)))
    add("sending", "s", "what is sent between stages, of all micro-batches", product(m, passing) / p)
    add("step", "s", "one step", total(product(m, block) / p, straggler, data))
    return terms


def _beside() -> tuple[Counterpart, ...]:
    link, slowest, whole = map(term_symbol, (_LINK, _SLOWEST, _WHOLE))
    microbatches = B / (b * D)
    waits = total(microbatches * (p - 1) / p, -Iverson(p > 1) * (microbatches + p - 2))
    return (
        Counterpart(f"{NAME}.message", ("step.sent_bytes",), "output of a stage", "equal without sequence parallelism:"
                    " each tensor-parallel rank sends all of it", assume(PLAIN, c=1, sp=0), Integer(0)),
        Counterpart(f"{NAME}.straggler", ("step.bubble",), "waiting while the pipeline fills and drains", "the source"
                    " takes all stages to be equally long", {**PLAIN, "yf": slowest / 3, "yb": 2 * slowest / 3},
                    p * slowest - whole, kept=(_SLOWEST, _WHOLE)),
        Counterpart(f"{NAME}.sending", ("step.pipeline_waiting",), "waiting for what is sent between stages, without"
                    " latency", "the source lets p micro-batches wait for one message over every link; the ledger, each"
                    " micro-batch for one message over one link, the slowest",
                    {**assume(PLAIN, c=1, sp=0, ab=0, an=0, ax=0), "Yp": link}, 4 * s * b * h * waits / link,
                    kept=(_LINK,)),
    )


def _figures() -> tuple[Figure, ...]:
    """Get the program's answer for the job of its own script, with passes of 95 and 190 ms for its trained networks."""
    job = {"s": 1024, "b": 4, "h": 3072, "u": 50256, "L": 64, "t": 8, "p": 2, "D": 4, "B": 128, "dom": 8}
    links = {"Yp": 25 * 10**9, "Yd": 25 * 10**9, "Wn": 600 * 10**9}
    passes = {"yf": Rational(95, 1000), "yb": Rational(190, 1000)}
    where = "run of the authors' program: GPT 8.1B on 64 A100, their script's layout and links"
    return tuple(Figure(f"{NAME}.{term}", {**job, **links, **passes}, answer, "ms", Rational(1, 1000), where)
                 for term, answer in (("passing", "2.0133"), ("data", "74.7934"), ("step", "2647.846")))


SETS = (
    PublishedSet(
        NAME, "Yim et al. 2024, Pipette", "yim2024", _build(), _beside(),
        (
            "A step is m/p blocks, in each of which one micro-batch waits for all links: the hidden critical path of"
            " 1F1B. Links of one pipeline are added up one by one in the source; here they are p - 1 equal ones.",
            "Every data-parallel group waits for the slowest link of its ring between nodes; ranks of a node first sum"
            " among themselves, twice 2 (n - 1)/n of the gradients.",
            "The paper measures the time of a micro-batch and learns the memory of a GPU with a neural network: neither"
            " has a formula. 16 h² parameters in a layer are the program's; GPT has 12 h² and biases.",
        ),
        figures=_figures(),
        system="links",
    ),
)
