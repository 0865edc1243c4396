"""GELU MLP: up projection, GELU, down projection; the biases of both are those of all projections."""

from __future__ import annotations

from typing import Any

from ..dimensions import BATCH, FFN, HIDDEN, HIDDEN_COLUMNS, HIDDEN_PART, SEQUENCE, SEQUENCE_SP
from ..ledger import Component, Place, Tensor, saved, weight
from ..parameters import symbol
from ..work import Stream
from ..work_rows import column_parallel, grid_transfers, residual_work, row_parallel

lbias = symbol("lbias")

_LOW = ("mixed", "bf16", "fp16")
_CAST = ("autocast",)
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)
_TOKENS = (SEQUENCE, BATCH)
#: GELU in steps, as Transformers has it; under autocast a GPU takes third powers in fp32, and what follows from them.
_NEW, _FAST, _PYTHON = ("new",), ("fast",), ("python",)


def _activation() -> tuple[Tensor, ...]:
    """Return the rows that GELU saves: a fused kernel its input, separate steps the factors of products and powers."""
    def row(name: str, meaning: str, gelu: tuple[str, ...], size: int = 2, **more: Any) -> Tensor:
        return saved(name, "activation", _INNER, size, "transformers", meaning, gelu=gelu, **more)

    return (
        saved("hidden", "activation", _INNER, 2, "megatron_core",
              "input of GELU: before the bias where adding it is fused, after it elsewhere", gelu=("fused", *_FAST)),
        row("hidden_cubed", "input of GELU, of which the third power is taken", _NEW, precision=_LOW),
        row("hidden_cubed_fp32", "fp32 copy of the input, of which the third power is taken", _NEW, 4,
            precision=_CAST),
        row("half", "half of the input, factor of the output", (*_NEW, *_FAST, *_PYTHON)),
        row("scaled", "input times a constant, factor of the argument of tanh", _FAST),
        row("cubic", "input times a constant, factor of its square", _FAST),
        row("bracket", "1 and that square, factor of the argument of tanh", _FAST),
        row("erf_argument", "input divided by the square root of 2, argument of erf", _PYTHON),
        row("tanh", "tanh of its argument", _FAST),
        row("tanh_new", "tanh of its argument", _NEW, precision=_LOW),
        row("tanh_new_fp32", "fp32 tanh of its argument", _NEW, 4, precision=_CAST),
        row("one_plus", "1 + tanh or 1 + erf, factor of the output", (*_FAST, *_PYTHON)),
        row("one_plus_new", "1 + tanh, factor of the output", _NEW, precision=_LOW),
        row("one_plus_new_fp32", "fp32 1 + tanh, factor of the output", _NEW, 4, precision=_CAST),
    )


def _work() -> tuple[Stream, ...]:
    """Return the memory traffic of each variant of GELU."""
    return tuple(
        Stream(f"activation.{option}", "activation", _INNER, forward, backward, source, meaning, kernels,
               options={"gelu": (option,)})
        for option, forward, backward, kernels, source, meaning in (
            ("fused", 4, 8, 1, "megatron_core", "bias and GELU in one kernel"),
            ("new", 36, 56, 8, "transformers", "steps of gelu_new, with a third power"),
            ("fast", 42, 72, 9, "transformers", "steps of gelu_fast"),
            ("python", 22, 48, 5, "transformers", "steps of gelu_python, with erf"),
        )
    )


COMPONENTS = (
    Component(
        "gelu", "GELU MLP", 50, Place.DENSE,
        (
            weight("up.weight", "up", (FFN, HIDDEN_COLUMNS), "megatron_core", "up projection", tokens=_TOKENS),
            weight("up.bias", "up", (FFN,), "megatron_core", "bias of the up projection", lbias),
            weight("down.weight", "down", (HIDDEN_COLUMNS, FFN), "megatron_core", "down projection", tokens=_TOKENS),
            weight("down.bias", "down", (HIDDEN_PART,), "megatron_core",
                   "bias of the down projection, on every rank", lbias),
            saved("up.input", "up", _RESIDUAL, 2, "megatron_core", "input of the up projection",
                  storage="mlp.normed", precision=_LOW),
            saved("up.input_cast", "up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input", precision=_CAST),
            saved("up.weight_cast", "up", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the up weight",
                  precision=_CAST),
            *_activation(),
            saved("down.input", "down", _INNER, 2, "megatron_core", "input of the down projection"),
            saved("down.weight_cast", "down", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the down weight",
                  precision=_CAST),
        ),
        note="With and without Megatron-Core's fused bias and GELU the same bytes are kept.",
        options={"mlp": ("gelu",)},
        work=(
            *column_parallel("up", "up"), *_work(), *row_parallel("down", "down"),
            *residual_work("mlp_residual"), *grid_transfers("up", FFN, "down", FFN),
        ),
    ),
)
