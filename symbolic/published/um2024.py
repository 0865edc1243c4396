"""Um et al. 2024 (Metis, USENIX ATC): time of a step on stages of unequal speed.

The formulas are those of the planner that the authors published with the paper (``model/cost_estimator.py``).
"""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..functions import Iverson
from ..parameters import symbols
from ..terms import TermSet, product, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "um2024"
s, b, h, p, m, D, B = symbols("s b h p m D B")
Tx, Ta, Xx, Xa, To, Yp, Yd, yt, Yg = symbols("Tx Ta Xx Xa To Yp Yd yt Yg")
_PICO = Integer(10) ** 12
_MIXED = {"gpus": "mixed", "stages": "listed"}
_PASSES = B / (b * D)


def _build() -> TermSet:
    terms = new_terms(NAME, "m")

    def add(name: str, unit: str, meaning: str, expression: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", expression, unit, meaning)

    execution = add("execution", "s", "m - 1 micro-batches on the slowest stage, and one on all of them",
                    total(product(m - 1, Tx), Ta) / _PICO)
    message = add("message", "bytes", "output of a stage for a micro-batch", product(Integer(2), s, b, h))
    sending = add("sending", "s", "one message over every border between stages", product(p - 1, message) / Yp)
    optimizer = add("optimizer", "s", "the optimizer on the stage that takes longest", To / _PICO)
    turning = add("turning", "s", "from the forward to the backward pass of the last stage, and making of batches",
                  product(m, yt))
    data = add("data", "s", "gradients of the fullest stage, summed by a ring of its GPUs",
               product(Integer(2), (D - 1) / D, Yg) / Yd)
    add("step", "s", "one step", total(execution, turning, optimizer, data, sending))
    return terms


def _beside() -> tuple[Counterpart, ...]:
    each = Xx / _PICO
    return (
        Counterpart(f"{NAME}.execution", ("step.slowest_stage", "step.bubble"),
                    "one micro-batch on all stages; the other m - 1 on the slowest one are the same", "equal: one"
                    " micro-batch runs through all stages", assume(PLAIN, B=1, b=1, D=1), Integer(0), _MIXED),
        Counterpart(f"{NAME}.sending", ("step.pipeline_waiting",), "waiting for what is sent between stages that are"
                    " equally far apart", "the source sends one output over every border in a step; the ledger, for"
                    " each micro-batch one output and one gradient over the slowest border",
                    {**assume(PLAIN, c=1, sp=0), "Xa": (p - 1) * Xx, "Yp": 2 * s * b * h / each},
                    (p - 1) * each - 2 * Iverson(p > 1) * (_PASSES + p - 2) * each, _MIXED),
        Counterpart(f"{NAME}.optimizer", ("step.optimizer",), "the optimizer on the stage that takes longest",
                    "equal; the source measures it", {}, Integer(0), _MIXED),
    )


def _figures() -> tuple[Figure, ...]:
    """Return costs of plans for eight GPUs, of the authors' results, from the measured layers of their samples."""
    nano, empty, link = 10**9, {"s": 1, "h": 1, "B": 128, "Yp": 10**15}, 10 * 2**30
    where = "results/homo_cost_model of the planner's repository"
    plans = (
        ({"b": 1, "p": 8, "D": 1, "Tx": 29_918_074_608, "Ta": 236_763_238_907, "To": 9_827_244_282,
          "yt": Rational(56_947_732, nano), "Yg": 595_603_456, "Yd": link}, "11335.4956", "TP 1, PP 8"),
        ({"b": 4, "p": 1, "D": 4, "Tx": 509_191_274_643, "Ta": 509_191_274_643, "To": 39_308_977_127,
          "yt": Rational(103_419_710, nano), "Yg": 1_202_751_488, "Yd": link}, "5108.2192", "TP 2, DP 4"),
    )
    return tuple(Figure(f"{NAME}.step", {**empty, **letters}, printed, "ms", Rational(1, 1000), f"{where}, {plan}")
                 for letters, printed, plan in plans)


SETS = (
    PublishedSet(
        NAME, "Um et al. 2024, Metis", NAME, _build(), _beside(),
        (
            "Times of stages are sums of measured layers. What passes between the forward and the backward pass of the"
            " last stage is measured too, and so are the making of batches and the optimizer.",
            "A stage of the source may have GPUs of several kinds, among which it shares out the sequences of a"
            " micro-batch by speed; the ledger's stages have one kind each.",
            "The ledger has no time between the two passes of the last stage, nor of making batches. It sums gradients"
            " on the ring of each stage with the links of its own kind, and with what overlaps; the source on one link,"
            " of the stage that has most of them.",
            "Memory is measured layer by layer, and compared with that of one kind of GPU.",
            "The costs that the authors print are those of plans of one kind. They were made without a sequence length,"
            " so that nothing is sent between stages in them.",
        ),
        figures=_figures(),
        system="gpus",
    ),
)
