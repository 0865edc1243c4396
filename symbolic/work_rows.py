"""Rows of work that several components have: norms, attention, gated activations, sharded projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sympy import Expr, Integer, Rational

from .dimension import ONE, Dimension
from .dimensions import ALL_KEYS, BATCH, HEADS, HIDDEN, HIDDEN_PART, KEY_SEQUENCE, KV_HEADS, SEQUENCE, SEQUENCE_SP
from .functions import Iverson, Max, Min
from .parallel.dimensions import SHAPE_RULES
from .parameters import symbols
from .work import BOTH_GRADIENTS, NONE, Kernel, Product, Ranks, Stream, Transfer, Work

sp, c, t, s, doc, win, Lw, Lr = symbols("sp c t s doc win Lw Lr")

_FLASH = ("flash", "flash_bshd", "sdpa", "flex")
_SCORES = (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE)
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_ALL_TOKENS = (SEQUENCE, BATCH, HIDDEN_PART)
#: A causal mask hides half of all pairs of tokens, and a window of the layers that have one those before it.
_CAUSAL = Rational(1, 2)
LAYERS_OF_STAGE = Max(Lr, Integer(1))
_WINDOWED = (LAYERS_OF_STAGE * s**2 - Lw * (s - Min(win, s))**2) / (2 * LAYERS_OF_STAGE * s**2)
#: Of a packed sequence every token attends to the earlier ones of its document.
_PACKED = doc / (2 * s)
_PACKED_WINDOWED = (
    (LAYERS_OF_STAGE * doc**2 - Lw * (doc - Min(win, doc))**2) / (2 * LAYERS_OF_STAGE * Max(doc, 1) * s))
#: Kernels that a tensor-parallel rank launches for a collective: its copies and the collective itself.
_COPIES = 3 * Iverson(t > 1)
#: Kernels of a context-parallel rank for each further part of the sequence: attention in two halves, corrections.
_PARTS = 20


def norm_work(
    name: str, module: str, shape: tuple[Dimension, ...] = _RESIDUAL, when: Expr = ONE,
) -> tuple[Work, ...]:
    """Return the work of a norm: bf16 in and out for a fused kernel, fp32 between the steps of PyTorch's own."""
    rms, layer = ("rms",), ("layer", "layer_plain", "layer_unbiased")
    eager = ("eager", "eager_fp32", "eager_scale", "eager_power")
    return (
        # Backward one kernel reads input and gradient once; PyTorch's LayerNorm reads both again for scale and shift.
        Stream(f"{name}.fused", module, shape, 4, 6, "transformer_engine", "input and output of the norm",
               when=when, options={"norm": ("fused", "keeps_output")}),
        Stream(f"{name}.layer_norm", module, shape, 4, 10, "pytorch", "input and output of PyTorch's LayerNorm",
               when=when, options={"norm": (*eager, "torch"), "normalisation": layer}),
        Stream(f"{name}.eager", module, shape, 36, 92, "transformers", "steps of an eager RMSNorm in fp32", 8,
               when=when, options={"norm": eager, "normalisation": rms}),
        Stream(f"{name}.torch", module, shape, 40, 104, "pytorch", "steps of torch.nn.RMSNorm in fp32", 8,
               when=when, options={"norm": ("torch",), "normalisation": rms}),
    )


def residual_work(name: str, module: str = "residual", when: Expr = ONE) -> tuple[Work, ...]:
    """Return the sum of the residual stream and what a block returns; its gradient is the sum of both ways."""
    return (
        Stream(name, module, _RESIDUAL, 6, 6, "korthikanti2022", "residual stream plus the output of the block",
               when=when),
    )


def gated_work(module: str, inner: tuple[Dimension, ...], **options: tuple[str, ...]) -> tuple[Work, ...]:
    """SiLU of the gate times the up projection, with these options of other axes."""
    return (
        Stream("activation.fused", module, inner, 6, 10, "megatron_core", "gate, up and their gated product",
               options={"swiglu": ("fused",), **options}),
        Stream("activation.eager", module, inner, 10, 18, "transformers", "SiLU and product, one after the other", 2,
               options={"swiglu": ("eager",), **options}),
        Stream("activation.unfused", module, inner, 14, 26, "megatron_core",
               "SiLU, offset and product, one after the other", 3, options={"swiglu": ("unfused",), **options}),
    )


def bounded_work(module: str, inner: tuple[Dimension, ...], **options: tuple[str, ...]) -> tuple[Work, ...]:
    """Return the work of a bounded gate: the gate times its sigmoid, times the bounded up projection plus 1."""
    return (
        Stream("activation.bounded", module, inner, 14, 26, "megatron_core", "bounds, a copy, and the gated product",
               3, options={"swiglu": ("fused",), **options}),
        Stream("activation.bounded_eager", module, inner, 30, 50, "transformers",
               "bounds, sigmoid, sum and two products, one after the other", 7,
               options={"swiglu": ("eager",), **options}),
    )


def ungated_work(
    module: str, inner: tuple[Dimension, ...], *, weighted: bool, **options: tuple[str, ...]
) -> tuple[Work, ...]:
    """Return the work of the activation; ``weighted``: also of its product with tokens' weights, fp32 if separate."""
    core = "megatron_core"
    if not weighted:
        return (Stream("activation.ungated", module, inner, 4, 6, core, "activation of the up projection",
                       options=options),)
    return (
        Stream("activation.ungated", module, inner, 4, 6, core, "activation of the up projection and its weights",
               options={**options, "weighting": ("fused",)}),
        Stream("activation.weighted", module, inner, 16, 40, core,
               "activation of the up projection, product with its weights, cast", 3,
               options={**options, "weighting": ("separate",)}),
    )


def attention_work(inner: Dimension, values: Dimension) -> tuple[Work, ...]:
    """Return scores of queries and keys of ``inner`` elements, softmax, and the sum of values of ``values`` elements.

    FlashAttention skips blocks of the causal mask and of windows, and makes the scores once more in its backward pass;
    other kernels compute all of them and move them through memory.
    """
    at = "core_attention"
    queries = (SEQUENCE, BATCH, HEADS)
    scored: Any = {"options": {"attention": ("eager", "unfused", "fused_softmax", "te_unfused", "sdpa_steps")}}
    masked: Any = {"options": {"attention": ("sdpa_masked",)}, "kernel": Kernel.ATTENTION}
    return (
        *(Product(f"{name}{suffix}", at, queries, sides, columns, "dao2023", meaning, backward=backward,
                  options={"attention": _FLASH, "window": (window,), "documents": (documents,)},
                  kernel=Kernel.ATTENTION, share=share)
          for window, documents, suffix, share in (
              ("none", "one", "", _CAUSAL), ("sliding", "one", ".windowed", _WINDOWED),
              ("none", "packed", ".packed", _PACKED), ("sliding", "packed", ".windowed_packed", _PACKED_WINDOWED))
          for name, sides, columns, meaning, backward in (
              ("scores", (inner,), (ALL_KEYS,), "queries times keys, without what the mask hides", 3),
              ("sums", (ALL_KEYS,), (values,), "probabilities times values", BOTH_GRADIENTS),
          )),
        Product("scores.whole", at, queries, (inner,), (ALL_KEYS,), "megatron_core", "queries times keys", **scored),
        Product("sums.whole", at, queries, (ALL_KEYS,), (values,), "megatron_core", "probabilities times values",
                **scored),
        Product("scores.masked", at, queries, (inner,), (ALL_KEYS,), "pytorch", "queries times keys", backward=3,
                **masked),
        Product("sums.masked", at, queries, (ALL_KEYS,), (values,), "pytorch", "probabilities times values",
                **masked),
        Stream("softmax.fused", at, _SCORES, 8, 10, "megatron_core", "16-bit scores, their scaled and masked softmax",
               options={"attention": ("fused_softmax", "te_unfused")}),
        Stream("softmax.steps", at, _SCORES, 28, 28, "transformers", "scale, mask, fp32 softmax and cast of the scores",
               5, options={"attention": ("eager",), "softmax": ("fp32",)}),
        Stream("softmax.steps_16", at, _SCORES, 12, 10, "transformers", "scale, mask and 16-bit softmax of the scores",
               3, options={"attention": ("eager",), "softmax": ("low",)}),
        Stream("softmax.steps_fp32", at, _SCORES, 18, 12, "pytorch", "mask and softmax of fp32 scores", 2,
               options={"attention": ("sdpa_steps",)}),
        Stream("softmax.unfused", at, _SCORES, 28, 32, "megatron_core", "cast, mask, softmax and cast of the scores",
               4, options={"attention": ("unfused",)}),
    )


def column_parallel(name: str, module: str, when: Expr = ONE, width: Dimension = HIDDEN_PART) -> tuple[Work, ...]:
    """Return the transfers of a column-parallel projection of tokens of ``width``.

    With sequence parallelism its input is gathered, and once more for the weights' gradient unless it was kept or they
    are frozen; the gradient of the input is summed over all ranks.
    """
    tokens = (SEQUENCE, BATCH, width)
    return (
        Transfer(name, module, Ranks.TENSOR, tokens, 2, sp, sp + 2 * (1 - sp), "korthikanti2022",
                 "input of the projection gathered, its gradient summed", beside=Kernel.MATMUL,
                 kernels=_COPIES, when=when, options={"gathered_input": ("dropped",)}),
        Transfer(f"{name}.again", module, Ranks.TENSOR, tokens, 2, NONE, NONE, "korthikanti2022",
                 "input of the projection gathered once more", hidden=sp, beside=Kernel.MATMUL, kernels=NONE, when=when,
                 options={"gathered_input": ("dropped",), "adapters": ("none",)}),
        Transfer(f"{name}.kept", module, Ranks.TENSOR, tokens, 2, sp, sp + 2 * (1 - sp), "torchtitan",
                 "input of the projection gathered and kept, its gradient summed", beside=Kernel.MATMUL,
                 kernels=_COPIES, when=when, options={"gathered_input": ("kept",)}),
    )


def row_parallel(name: str, module: str, when: Expr = ONE) -> tuple[Work, ...]:
    """Return the transfers of a row-parallel projection: its output is summed, its gradient gathered."""
    return (
        Transfer(name, module, Ranks.TENSOR, _ALL_TOKENS, 2, sp + 2 * (1 - sp), sp, "korthikanti2022",
                 "output of the projection summed, its gradient gathered", beside=Kernel.MATMUL, kernels=_COPIES,
                 when=when),
    )


def grid_transfers(first: str, outputs: Dimension, second: str, inputs: Dimension) -> tuple[Work, ...]:
    """Return what the ranks of further dimensions exchange for two projections, the second back to the residual stream.

    A projection has a name, and features: outputs of the first, inputs of the second.
    """
    return tuple(row for rule in SHAPE_RULES for row in rule.projected((first, outputs, second, inputs)))


def over_vocabulary(rows: Iterable[Work]) -> Iterator[Work]:
    """Yield the work of components that share out the vocabulary, as the dimensions that split it say."""
    for row in rows:
        if isinstance(row, Transfer) and row.ranks == Ranks.TENSOR:
            ways = [row]
            for rule in SHAPE_RULES:
                ways = [way for known in ways for way in rule.over_vocabulary(known)]
            yield from ways
        else:
            yield row


def context_exchange(width: Dimension, size: int) -> tuple[Work, ...]:
    """Keys and values that go round the context-parallel ranks or are gathered, or heads exchanged for tokens.

    ``size`` are the bytes of one key and its value for each element of ``width``, and those of a query and its output.
    The ring's c messages backward carry keys and values, then those with their gradients, then gradients alone: twice
    what the c - 1 messages forward carry. Each part that comes round is added to the outputs, or to gradients.
    """
    at, others = "core_attention", c - 1
    ring: Any = {"options": {"context": ("ring",)}}
    heads: Any = {"when": Iverson(c > 1), "options": {"context": ("all_to_all",)}}
    return (
        Transfer("ring", at, Ranks.CONTEXT, (ALL_KEYS, BATCH, KV_HEADS, width), size, ONE, Integer(2), "liu2023",
                 "keys and values passed round, with their gradients in the backward pass", when=Iverson(c > 1),
                 beside=Kernel.ATTENTION, kernels=_PARTS * others, sent=True, **ring),
        Stream("ring.outputs", at, (SEQUENCE, BATCH, HEADS, width), 12, 12, "transformer_engine",
               "outputs, or gradients of queries, with those of a further part of the keys", 0, when=others, **ring),
        Stream("ring.gradients", at, (SEQUENCE, BATCH, KV_HEADS, width), 0, 24, "transformer_engine",
               "gradients of keys and values with those of a further part of the queries", 0, when=others, **ring),
        Transfer("gathered_keys", at, Ranks.CONTEXT, (ALL_KEYS, BATCH, KV_HEADS, width), size, ONE, Integer(2),
                 "transformer_engine", "keys and values gathered in each pass, their gradients summed and scattered",
                 when=Iverson(c > 1), options={"context": ("all_gather",)}),
        Transfer("heads", at, Ranks.CONTEXT, (SEQUENCE, BATCH, HEADS, width), size, ONE, ONE, "jacobs2023",
                 "queries and outputs, heads exchanged for tokens", pairs=True, **heads),
        Transfer("kv_heads", at, Ranks.CONTEXT, (SEQUENCE, BATCH, KV_HEADS, width), size, ONE, ONE, "jacobs2023",
                 "keys and values, heads exchanged for tokens", pairs=True, **heads),
    )
