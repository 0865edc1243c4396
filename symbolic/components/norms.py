"""RMSNorm and LayerNorm: the two norms of a layer, the final one and that of the embedding; QK-norm per head."""

from __future__ import annotations

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ..work_rows import norm_work

_LOW = ("mixed", "bf16", "fp16", "fp32")
_RMS, _LAYER, _PLAIN, _UNBIASED = ("rms",), ("layer",), ("layer_plain",), ("layer_unbiased",)
_LAYERS = (*_LAYER, *_UNBIASED, *_PLAIN)
#: Kernels of Transformers, in single operations.
_WITH_SCALE = ("eager_scale", "eager_power")
_EAGER = ("eager", "eager_fp32", *_WITH_SCALE)
#: A scale that is not trained needs no normalised input.
_TRAINED = ("none",)


def norm_rows(
    prefix: str,
    module: str,
    tokens: tuple[Dimension, ...],
    width: Dimension,
    *,
    input_storage: str = "",
    output_storage: str = "",
    lifetime: Lifetime = Lifetime.IN_FLIGHT,
    when: Expr = ONE,
    kept: Expr = ONE,
    checkpoint: str = "",
    parallel_storage: str = "",
    projected: bool = False,
    scale: Dimension | None = None,
    shifted: bool = True,
    qk_norms: tuple[str, ...] = (),
    statistics: str = "",
) -> tuple[Tensor, ...]:
    """Return the rows of one norm over ``width``, applied to every element of ``tokens``.

    ``prefix`` starts the names of the rows; the storages say what other rows the input and the output
    are shared with. The norm exists ``when``, and what it saves is there if it is ``kept`` too. With parallel
    residuals the input lies in ``parallel_storage``, if that is named. A ``projected`` input is the output of a linear
    layer, which autocast makes in 16 bits. ``scale`` is the dimension of the scale where it is not ``width``, LayerNorm
    is not ``shifted`` without a bias, and the norm is there with these ``qk_norms``, or always. ``statistics`` is the
    module of what it keeps for each token, where that can be dropped without the input.
    PyTorch's LayerNorm is fused wherever it runs, so it has no eager variant.
    """
    shape, only = (*tokens, width), {"qk_norms": qk_norms} if qk_norms else {}
    low, high = ((*_LOW, "autocast"), ()) if projected else (_LOW, ("autocast",))

    def row(
        name: str, row_shape: tuple[Dimension, ...], size: int, source: str, meaning: str, *,
        storage: str = "", **options: tuple[str, ...],
    ) -> Tensor:
        return saved(
            prefix + name, (statistics or module) if row_shape == tokens else module, row_shape, size, source, meaning,
            storage=storage, lifetime=lifetime, when=when * kept, checkpoint=checkpoint, **only, **options,
        )

    def read(
        name: str, size: int, source: str, meaning: str, *, storage: str = "", **options: tuple[str, ...],
    ) -> tuple[Tensor, ...]:
        if not parallel_storage:
            return (row(name, shape, size, source, meaning, storage=storage, **options),)
        return (
            row(name, shape, size, source, meaning, storage=storage, residual=("sequential",), **options),
            row(f"{name}_of_layer", shape, size, source, f"{meaning}, that of the layer",
                storage=f"{parallel_storage}_fp32" if size == 4 else parallel_storage, residual=("parallel",),
                **options),
        )

    scales = (scale or width,)
    return (
        weight(prefix + "weight", module, scales, "megatron_core", "scale of the norm, on every rank", when,
               tokens=(), normalisation=(*_RMS, *_LAYER, *_UNBIASED), **only),
        *((Tensor(prefix + "bias", module, Role.WEIGHT, scales, 0, Lifetime.PERSISTENT, "megatron_core",
                  "shift of LayerNorm, on every rank", when=when, options={"normalisation": _LAYER, **only}),)
          if shifted else ()),
        *read("input", 2, "megatron_core", "bf16 input of the norm", storage=input_storage, norm=("fused",)),
        *read("input_layer_norm", 2, "pytorch", "bf16 input of PyTorch's LayerNorm", storage=input_storage,
              norm=(*_EAGER, "torch"), normalisation=_LAYER, precision=_LOW),
        *read("input_layer_norm_fp32", 4, "pytorch", "fp32 input of PyTorch's LayerNorm under autocast",
              storage=input_storage and f"{input_storage}_fp32", norm=("eager", "torch"), normalisation=_LAYER,
              precision=("autocast",)),
        row("output", shape, 2, "pytorch", "bf16 output of the norm, kept instead of its input",
            storage=output_storage, norm=("keeps_output",)),
        row("input_fp32", shape, 4, "transformers", "fp32 copy of the input (fp32 input under autocast)",
            norm=(*_EAGER, "torch"), normalisation=(*_RMS, *_PLAIN)),
        row("deviations", shape, 8, "transformers", "fp32 differences from the mean, made twice",
            norm=_WITH_SCALE, normalisation=_UNBIASED),
        row("normalised_fp32", shape, 4, "transformers", "fp32 normalised input, which the scale multiplies",
            norm=("eager_fp32", *_WITH_SCALE), normalisation=(*_RMS, *_UNBIASED), adapters=_TRAINED),
        row("scale_fp32", scales, 4, "transformers", "fp32 scale, or one plus it",
            norm=_WITH_SCALE, normalisation=(*_RMS, *_UNBIASED)),
        row("one_plus_scale", scales, 2, "transformers", "one plus the scale", norm=_WITH_SCALE,
            normalisation=_LAYER),
        row("normalised", shape, 2, "transformers", "bf16 input divided by its root mean square",
            norm=("eager",), normalisation=_RMS, precision=low, adapters=_TRAINED),
        *(row(f"normalised_{name}", shape, 4, "transformers", "fp32 input divided by its root mean square",
              norm=("eager",), normalisation=_RMS, precision=(name,)) for name in high),
        row("normalised_torch", shape, 4, "megatron_core", "fp32 input divided by its root mean square",
            norm=("torch",), normalisation=_RMS, adapters=_TRAINED),
        row("rms", tokens, 4, "megatron_core", "fp32 inverse root mean square", normalisation=_RMS),
        row("mean_square", tokens, 4, "transformers", "fp32 mean square, taken to a power", norm=("eager_power",),
            normalisation=_RMS),
        row("deviation", tokens, 4, "megatron_core", "fp32 inverse standard deviation", normalisation=_LAYERS),
        row("mean", tokens, 4, "megatron_core", "fp32 mean; not needed where the output is kept",
            norm=("fused", "torch", *_EAGER), normalisation=(*_LAYER, *_PLAIN)),
    )


COMPONENTS = (
    Component(
        "embedding_norm", "Norm behind the word embedding", 12, Place.FIRST,
        norm_rows("", "embedding_norm", (SEQUENCE_SP, BATCH), HIDDEN),
        options={"embedding_norm": ("norm",)},
        work=norm_work("norm", "embedding_norm"),
    ),
    Component(
        "attention_norm", "Norm before attention", 20, Place.LAYER,
        norm_rows("", "attention_norm", (SEQUENCE_SP, BATCH), HIDDEN, input_storage="layer.input",
                  output_storage="attention.normed"),
        options={"heads": ("grouped", "two_widths")},
        work=norm_work("norm", "attention_norm"),
    ),
    Component(
        "ffn_norm", "Norm before the MLP", 40, Place.DENSE,
        norm_rows("", "ffn_norm", (SEQUENCE_SP, BATCH), HIDDEN, output_storage="mlp.normed",
                  parallel_storage="layer.input", statistics="ffn_norm_statistics"),
        note="With parallel residuals it reads what the norm before attention has saved already.",
        options={"residual": ("sequential", "parallel")},
        work=norm_work("norm", "ffn_norm"),
    ),
    *(Component(
        f"{block}_post_norm", f"Norm after {words}", order, place,
        norm_rows("", f"{block}_post_norm", (SEQUENCE_SP, BATCH), HIDDEN),
        options={"norms": ("both",)},
        work=norm_work("norm", f"{block}_post_norm"),
    ) for block, words, order, place in (
        ("attention", "attention", 35, Place.LAYER), ("ffn", "the MLP", 54, Place.DENSE),
    )),
    Component(
        "final_norm", "Final norm", 70, Place.LAST,
        norm_rows(
            "", "final_norm", (SEQUENCE_SP, BATCH), HIDDEN,
            output_storage="head.normed", lifetime=Lifetime.ONCE,
        ),
        work=norm_work("norm", "final_norm"),
    ),
)
