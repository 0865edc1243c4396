"""Singh et al. 2023 (AxoNN, arXiv:2305.13525): traffic of projections on three axes, and achieved FLOP/s.

The communication model is the program with which the authors choose layouts of their large runs
(``examples/comm_model.py`` of Megatron-AxoNN).
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Rational

from ..functions import CeilDiv
from ..parameters import symbols
from ..terms import TermSet, product, total
from .sets import GPT_RANK, Counterpart, Figure, PublishedSet, assume

NAME = "singh2023"
t, ty, tz, D, B, b, s, h, L, g, u, X, Fm = symbols("t ty tz D B b s h L g u X Fm")
#: Tokens of one rank in a step.
_TOKENS = B * s / (D * tz)
#: Outputs of the four projections of a GPT layer, over h, as the source has them: its 4h -> h counts as h -> 4h.
_PLAIN, _TRANSPOSED = (3, 4), (1, 4)
_OUTPUTS = Integer(sum((*_PLAIN, *_TRANSPOSED)))


def _volume(ranks: Expr, twice: int, once: int, others: Expr) -> tuple[Expr, ...]:
    """All-reduces in bf16: of outputs in the forward pass and its recompute, of inputs in the backward pass."""
    return Integer(2), L, _TOKENS, h, total(Integer(4 * twice), Integer(2 * once)), (ranks - 1) / (ranks * others)


def _build() -> TermSet:
    terms = TermSet(NAME)

    def add(name: str, unit: str, meaning: str, *factors: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", product(*factors), unit, meaning)

    weights = _OUTPUTS * h**2 / (t * ty)
    add("rows", "bytes", "sent by a GPU to those of its row group, x, in a step with full recompute",
        *_volume(t, sum(_TRANSPOSED), len(_PLAIN), ty))
    add("columns", "bytes", "sent to those of its column group, y",
        *_volume(ty, sum(_PLAIN), len(_TRANSPOSED), t))
    add("depth", "bytes", "sent to those of its depth group, z, for each micro-batch: bf16 weights gathered twice,"
        " gradients scattered", Integer(6), L, weights, (tz - 1) / tz)
    add("data", "bytes", "sent to data-parallel GPUs: fp32 gradients summed", Integer(8), L, weights / tz, (D - 1) / D)
    add("parameters", "elements", "parameters of the projections of a GPT model", _OUTPUTS, L, h**2)
    add("utilisation", "share", "FLOP/s that a GPU achieves over its peak", X / Fm)
    return terms


#: A GPT model without biases on three axes, with full recompute.
_GPT: Mapping[str, Expr] = {
    **assume({letter: value for letter, value in GPT_RANK.items() if letter not in ("t", "lbias")}, rfull=1, p=1, w=4,
             zero1=0, tied=1, r=0),
}
_CHOICES = {"tensor_axes": "three", "peak": "saved", "weight_gradient": "separate", "normalisation": "layer",
            "mlp": "gelu"}
_WAYS = ("forward", "repeated", "backward")


def _beside() -> tuple[Counterpart, ...]:
    steps = B / (b * D * tz)

    def sent(
        name: str, group: str, meaning: str, remark: str, difference: Expr, ranks: Expr, times: Expr,
    ) -> Counterpart:
        return Counterpart(
            f"{NAME}.{name}", tuple(f"stage.{group}_{way}_bytes" for way in _WAYS), meaning, remark, _GPT,
            difference, _CHOICES, times * (ranks - 1) / ranks,
        )

    each = 2 * L * _TOKENS * h
    return (
        sent("rows", "tensor", "all-reduces of x", "the source takes the outputs of the projection 4h -> h for 4h wide,"
             " and all-reduces them in the forward pass and its recompute: they are h wide",
             12 * each * (t - 1) / (t * ty), t, steps),
        sent("columns", "tensor_y", "collectives of y", "for the same reason the source takes gradients of that"
             " projection's inputs for h wide; it has no gathers of the residual stream, which norms need whole",
             -6 * each * (ty - 1) / ty * (1 + 1 / t), ty, steps),
        sent("depth", "tensor_z", "collectives of z", "the source keeps weights that recompute gathers for the backward"
             " pass; AxoNN gathers them once more unless that is asked for",
             -2 * _OUTPUTS * L * h**2 * (tz - 1) / (t * ty * tz), tz, Integer(1)),
        Counterpart(f"{NAME}.data", ("stage.reduced_bytes",), "gradients of data-parallel ranks",
                    "the source leaves out the embedding, positions apart, and norms", _GPT,
                    -8 * (D - 1) / D * (h * g * CeilDiv(u, g * t * ty) + 2 * h * (2 * L + 1)), _CHOICES,
                    2 * (D - 1) / D),
    )


def _figures() -> tuple[Figure, ...]:
    percent, peta = Rational(1, 100), 10**15
    return (
        Figure(f"{NAME}.utilisation", {"X": Rational(182 * peta, 1024), "Fm": 312 * 10**12}, "57", "%", percent,
               "abstract of arXiv:2305.13525: 80 billion parameters on 1024 A100, 182 PFLOP/s"),
        *(Figure(f"{NAME}.parameters", {"L": layers, "h": width}, printed, "billion", 10**9,
                 f"model-table.md of Megatron-AxoNN, GPT-{printed}B", remark)
          for layers, width, printed, remark in (
              (24, 4096, "5", ""), (32, 5120, "10", ""), (32, 7168, "20", ""),
              (38, 9216, "40", "38.7 billion: names are rounded, and count the embedding"),
              (56, 9216, "60", "57.1 billion: the same"), (42, 12288, "80", "76.1 billion: the same"),
              (84, 12288, "160", "152.2 billion: the same"), (96, 16384, "320", "309.2 billion: the same"),
              (192, 16384, "640", "618.5 billion: the same"),
          )),
    )


SETS = (
    PublishedSet(
        NAME, "Singh et al. 2023, AxoNN", "megatron_axonn", _build(), _beside(),
        (
            "x, y, z are the row, column and depth groups of the source, Gr, Gc and Gd; GPT with f = 4h, keys and"
            " values for every head, full recompute, one all-reduce as 2 (n - 1)/n of its bytes.",
            "The source divides each volume by a measured bandwidth, and adds up the times: nothing overlaps.",
            "The weights of depth are gathered anew for each micro-batch of gradient accumulation.",
        ),
        figures=_figures(),
        system="tensor_axes",
    ),
)
