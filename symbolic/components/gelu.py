"""MLPs without a gate: up projection, GELU, ReLU, its square or xIELU, down projection."""

from __future__ import annotations

from typing import Any

from ..dimensions import (
    BATCH,
    FFN,
    FFN_SCALES,
    HIDDEN,
    HIDDEN_COLUMNS,
    HIDDEN_PART,
    HIDDEN_SCALES,
    SEQUENCE,
    SEQUENCE_SP,
    SLOPES,
)
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ..work import Stream
from ..work_rows import column_parallel, grid_transfers, residual_work, row_parallel
from .mlp_rows import MLP_BIAS, mlp_input
from .quantised import EVERY, quantised

_GELU, _RELU, _RELU2, _XIELU = ("gelu",), ("relu",), ("relu2",), ("xielu",)
_LOW = ("mixed", "bf16", "fp16")
_CAST = ("autocast",)
_NONE = ("none",)
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)
_TOKENS = (SEQUENCE, BATCH)
#: GELU in steps, as Transformers has it; under autocast a GPU takes third powers in fp32, and what follows from them.
_NEW, _FAST, _PYTHON = ("new",), ("fast",), ("python",)


def _activation() -> tuple[Tensor, ...]:
    """Return the rows that GELU saves: a fused kernel its input, separate steps the factors of products and powers."""
    def row(name: str, meaning: str, gelu: tuple[str, ...], size: int = 2, **more: Any) -> Tensor:
        return saved(name, "activation", _INNER, size, "transformers", meaning, gelu=gelu, mlp=_GELU, **more)

    return (
        saved("hidden", "activation", _INNER, 2, "megatron_core",
              "input of GELU: before the bias where adding it is fused, after it elsewhere", gelu=("fused", *_FAST),
              mlp=_GELU),
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


def _others() -> tuple[Tensor, ...]:
    """Return the rows of squared ReLU, of which the root is kept, and of the steps of xIELU."""
    on: Any = {"mlp": _XIELU}
    return (
        saved("root", "activation", _INNER, 2, "transformers", "ReLU of the up projection, which is squared",
              mlp=_RELU2),
        saved("rectified", "activation", _INNER, 2, "megatron_core", "ReLU of the up projection", mlp=_RELU,
              fp8=EVERY),
        weight("slopes", "activation", (SLOPES,), "transformers", "slopes of xIELU, one for each sign", **on),
        Tensor("constants", "activation", Role.BUFFER, (SLOPES,), 2, Lifetime.ONCE, "transformers",
               "bf16 constants of xIELU: a factor, and a bound of its input", options={**on, "peak": ("torch",)}),
        saved("slopes_saved", "activation", (SLOPES,), 2, "transformers", "positive slopes of xIELU", **on),
        *(saved(name, "activation", _INNER, size, "transformers", meaning, **on) for name, size, meaning in (
            ("argument", 2, "input of xIELU"),
            ("sloped", 2, "input times its positive slope, factor of the square"),
            ("exponential", 2, "exponential of the input's negative part, less one"),
            ("difference", 2, "what the negative slope multiplies"),
            ("positive", 1, "bool mask of positive inputs"),
        )),
    )


def _work() -> tuple[Stream, ...]:
    """Return the memory traffic of each activation, and of each variant of GELU."""
    return tuple(
        Stream(f"activation.{name}", "activation", _INNER, forward, backward, source, meaning, kernels, options=options)
        for name, options, forward, backward, kernels, source, meaning in (
            ("fused", {"mlp": _GELU, "gelu": ("fused",)}, 4, 8, 1, "megatron_core", "bias and GELU in one kernel"),
            ("new", {"mlp": _GELU, "gelu": _NEW}, 36, 56, 8, "transformers", "steps of gelu_new, with a third power"),
            ("fast", {"mlp": _GELU, "gelu": _FAST}, 42, 72, 9, "transformers", "steps of gelu_fast"),
            ("python", {"mlp": _GELU, "gelu": _PYTHON}, 22, 48, 5, "transformers", "steps of gelu_python, with erf"),
            ("relu", {"mlp": _RELU}, 4, 6, 1, "transformers", "ReLU"),
            ("relu2", {"mlp": _RELU2}, 8, 16, 2, "transformers", "ReLU and its square"),
            ("xielu", {"mlp": _XIELU}, 45, 60, 12, "transformers", "steps of xIELU"),
        )
    )


COMPONENTS = (
    Component(
        "gelu", "GELU MLP", 50, Place.DENSE,
        (
            weight("up.weight", "up", (FFN, HIDDEN_COLUMNS), "megatron_core", "up projection", tokens=_TOKENS),
            weight("up.bias", "up", (FFN,), "megatron_core", "bias of the up projection", MLP_BIAS),
            weight("down.weight", "down", (HIDDEN_COLUMNS, FFN), "megatron_core", "down projection", tokens=_TOKENS),
            weight("down.bias", "down", (HIDDEN_PART,), "megatron_core",
                   "bias of the down projection, on every rank", MLP_BIAS),
            *mlp_input("up", "input of the up projection", fp8=_NONE),
            *quantised("up.input", "up", _RESIDUAL[:2], (HIDDEN, HIDDEN_SCALES), normed=True),
            saved("up.input_cast", "up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input", precision=_CAST),
            saved("up.weight_cast", "up", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the up weight",
                  precision=_CAST),
            *_activation(), *_others(),
            saved("down.input", "down", _INNER, 2, "megatron_core", "input of the down projection", fp8=_NONE),
            *quantised("down.input", "down", _TOKENS, (FFN, FFN_SCALES)),
            saved("down.weight_cast", "down", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the down weight",
                  precision=_CAST),
        ),
        note="With and without Megatron-Core's fused bias and GELU the same bytes are kept. ReLU keeps its output,"
        " which is the input of the down projection, or beside its copy in FP8.",
        options={"mlp": (*_GELU, *_RELU, *_RELU2, *_XIELU)},
        work=(
            *column_parallel("up", "up"), *_work(), *row_parallel("down", "down"),
            *residual_work("mlp_residual"), *grid_transfers("up", FFN, "down", FFN),
        ),
    ),
)
