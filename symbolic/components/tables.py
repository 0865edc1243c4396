"""Tables and buffers that a stage keeps once: the rotary table, the attention mask, gathered inputs."""

from __future__ import annotations

from sympy import Eq, Expr

from ..choices import FALCON, FUSED_ROPE, MEGATRON_ROPE, TRANSFORMERS_ROUTERS, UNFUSED_ROPE
from ..dimension import ONE, Dimension
from ..dimensions import (
    ALL_POSITIONS,
    BATCH,
    DOCUMENT,
    FULL_HEAD_DIM,
    HALF_HEAD,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KEY_SEQUENCE,
    ROTARY_DIM,
    SEQUENCE,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved
from ..parameters import symbols

rfull, ts, win, wstep, L = symbols("rfull ts win wstep L")
_TABLE, _PART = (SEQUENCE, HEAD_DIM), (SEQUENCE, ROTARY_DIM)
#: Transformers' kernels: with one table for all layers, in 16 bits or in fp32, and with one for each layer beside it.
_OF_ALL, _FP32, _HALF = ("shared", "shared_first", "joined", "joined_held"), ("shared_fp32",), ("shared_half",)
_TWICE, _FP32_TWICE = ("shared_twice",), ("shared_fp32_twice",)
_OF_EACH, _FP32_OF_EACH = ("repeated", "joined_repeated"), ("repeated_fp32",)
_HUGGINGFACE = (*_OF_ALL, *_FP32, *_HALF, *_TWICE, *_FP32_TWICE, *_OF_EACH, *_FP32_OF_EACH)
#: Some layers have windows, and some have none.
SOME_WINDOWED = Iverson(win > 0) * (1 - Iverson(Eq(wstep, 1)))
SOME_WHOLE = 1 - Iverson(win > 0) * (Iverson(Eq(wstep, 0)) + Iverson(wstep > L))
_ANGLES = {"rope": MEGATRON_ROPE, "heads": ("grouped",)}
_ANGLES_TWICE = {"rope": (FUSED_ROPE[-1], UNFUSED_ROPE[-1]), "heads": ("grouped",)}
_ROTARY = (("rotary", "", HEAD_DIM), ("partial", "_part", ROTARY_DIM))


def _shared(
    words: str, size: int, precisions: tuple[str, ...], kernels: tuple[str, ...] = _OF_ALL, name_of: str = "",
    when: Expr = ONE, whole: Dimension = HEAD_DIM, heads: str = "grouped",
) -> tuple[Tensor, ...]:
    """Cosines and sines that all layers save, and that are gone when the backward pass is over."""
    return tuple(
        saved(f"rope.{name}{suffix}_{name_of or words}", "rope", table, size, "transformers",
              f"{words} {meaning}, shared by all layers", lifetime=Lifetime.SHARED, rope=kernels, when=when,
              positions=(positions,), heads=(heads,), precision=precisions)
        for positions, suffix, table in (("rotary", "", (SEQUENCE, whole)), ("partial", "_part", _PART))
        for name, meaning in (("cos", "cosines"), ("sin", "sines"))
    )


def _mask(name: str, size: int, precisions: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Return the mask of Hugging Face's eager attention; without recompute nothing keeps it after the forward pass."""
    return tuple(
        saved(f"{name}{suffix}", "mask", (BATCH, SEQUENCE, KEY_SEQUENCE), size, "transformers",
              f"causal mask of every sequence{words}, added to the scores, kept by the closures of full recompute",
              lifetime=Lifetime.SHARED, when=rfull * when, attention=("eager",), precision=precisions, window=(window,),
              router=TRANSFORMERS_ROUTERS)
        for suffix, words, when, window in (
            ("", "", ONE, "none"), ("_windowed", " within the window", SOME_WINDOWED, "sliding"),
            ("_whole", " without a window", SOME_WHOLE, "sliding"))
    )


def _gathered() -> tuple[Tensor, ...]:
    """Nanotron's global memory buffer: what its linear layers gather in both passes, made once and never freed."""
    return tuple(
        Tensor(name, "linear", Role.BUFFER, (SEQUENCE, BATCH, HIDDEN), 2, Lifetime.ONCE, "nanotron", meaning,
               when=Iverson(ts > 1), options={"data_parallel": ("torch_ddp",)})
        for name, meaning in (
            ("allgather", "input of column-parallel layers, gathered from the sequence-parallel ranks"),
            ("allgather2", "gradient of the output of row-parallel layers, gathered from them"),
        )
    )


COMPONENTS = (
    Component(
        "layer_tables", "Rotary tables that every layer builds", 59, Place.LAYER,
        (
            Tensor("rope.cached", "rope", Role.BUFFER, _TABLE, 2, Lifetime.ONCE, "nanotron",
                   "bf16 cosines and sines, each for half of the dimensions, that the layer's own module keeps"),
        ),
        options={"rope": ("cached",)},
    ),
    Component(
        "tables", "Tables of a stage", 60, Place.STAGE,
        (
            *(Tensor(f"rope.frequencies{layers}{end}{suffix}", "rope", Role.BUFFER, (length, width), 4, Lifetime.ONCE,
                     "megatron_core", f"fp32 rotary angles of every position{words}{more}",
                     options={**kernels, "positions": (positions,), "documents": (documents,)})
              for kernels, layers, more in (
                  (_ANGLES, "", ""), (_ANGLES_TWICE, "_windowed", ", for layers with windows"))
              for documents, end, length, words in (
                  ("one", "", SEQUENCE, ""), ("packed", "_document", DOCUMENT, " of the longest document"))
              for positions, suffix, width in _ROTARY),
            *_shared("bf16", 2, ("mixed", "bf16", "fp32")),
            *_shared("fp32", 4, ("autocast",)),
            *_shared("fp32", 4, ("mixed", "bf16"), _FP32, "wide"),
            *_shared("bf16", 2, ("mixed", "bf16"), _HALF, "half", whole=HALF_HEAD),
            *(row for kernels, words, size in ((_TWICE, "bf16", 2), (_FP32_TWICE, "fp32", 4))
              for name, when in (("windowed", SOME_WINDOWED), ("whole", SOME_WHOLE))
              for row in _shared(words, size, ("mixed", "bf16"), kernels, f"{name}_{words}", when)),
            *(row for name, width in (("windowed", HEAD_DIM), ("whole", FULL_HEAD_DIM))
              for row in _shared("bf16", 2, ("mixed", "bf16"), _TWICE, f"{name}_{width.name}", whole=width,
                                 heads="two_widths")),
            # Layers that repeat them keep what they repeat in the closures of full recompute alone.
            *_shared("bf16", 2, ("mixed", "bf16"), _OF_EACH, "repeated", rfull),
            *_shared("fp32", 4, ("mixed", "bf16"), _FP32_OF_EACH, "repeated_wide", rfull),
            *(Tensor(f"rope.inverse_frequencies{suffix}", "rope", Role.BUFFER, (width,), 4, Lifetime.ONCE,
                     "transformers",
                     f"fp32 inverse frequencies of every second dimension, and the original ones{words}",
                     when=when, options={"rope": ropes, "positions": (positions,), "peak": ("torch",),
                                         "heads": ("grouped",)})
              for suffix, width, when, words, ropes, positions in (
                  ("", HEAD_DIM, ONE, "", (*_OF_ALL, *_FP32, *_HALF, *_OF_EACH, *_FP32_OF_EACH), "rotary"),
                  ("_part", ROTARY_DIM, ONE, "", (*_OF_ALL, *_OF_EACH), "partial"),
                  ("_windowed", HEAD_DIM, SOME_WINDOWED, ", of layers with windows", (*_TWICE, *_FP32_TWICE),
                   "rotary"),
                  ("_whole", HEAD_DIM, SOME_WHOLE, ", of other layers", (*_TWICE, *_FP32_TWICE), "rotary"))),
            Tensor("embedding.scale", "embedding", Role.BUFFER, (), 2, Lifetime.ONCE, "transformers",
                   "bf16 scale of the embeddings (Gemma)", options={
                       "mlp": ("geglu",), "peak": ("torch",), "router": TRANSFORMERS_ROUTERS}),
            Tensor("rope.complex", "rope", Role.BUFFER, (ALL_POSITIONS, HEAD_DIM), 4, Lifetime.ONCE, "torchtitan",
                   "complex64 rotation of every position and pair of dimensions",
                   options={"rope": ("complex",), "heads": ("grouped",)}),
            Tensor("rope.angles_fp32", "rope", Role.BUFFER, (ALL_POSITIONS, HEAD_DIM), 8, Lifetime.ONCE, "torchtitan",
                   "fp32 cosines and sines of every position", options={"rope": ("cast",)}),
            *_gathered(),
            saved("position_ids", "rope", (SEQUENCE,), 8, "transformers",
                  "int64 positions, kept by the closures of full recompute", lifetime=Lifetime.SHARED, when=rfull,
                  rope=_HUGGINGFACE, positions=("rotary", "partial"), documents=("one",)),
            saved("position_ids_unshifted", "positions", (SEQUENCE, BATCH), 8, "transformers",
                  "int64 positions before they are added to, kept by the closures of full recompute",
                  lifetime=Lifetime.SHARED, when=rfull, positions=("learned",), position_ids=("shifted",)),
            saved("alibi", "core_attention", (BATCH, HEADS, KEY_SEQUENCE), 2, "transformers",
                  "slopes times places of keys, kept by the closures of full recompute", lifetime=Lifetime.SHARED,
                  when=rfull, positions=("alibi",)),
            *_mask("mask.eager", 2, ("mixed", "bf16", "fp32")),
            *_mask("mask.eager_fp32", 4, ("autocast",)),
            saved("mask.bool", "mask", (SEQUENCE, KEY_SEQUENCE), 1, "transformers",
                  "bool causal mask of all sequences, kept by the closures of full recompute",
                  lifetime=Lifetime.SHARED, when=rfull, attention=FALCON),
            Tensor("mask", "mask", Role.BUFFER, (SEQUENCE, KEY_SEQUENCE), 1, Lifetime.ONCE, "megatron_core",
                   "bool causal mask, shared by all layers", options={"attention": ("unfused",), "window": ("none",)}),
            Tensor("scores", "core_attention", Role.BUFFER, (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE), 2, Lifetime.ONCE,
                   "megatron_core", "global memory buffer that the scores are added to; never freed",
                   options={"attention": ("unfused", "fused_softmax")}),
        ),
    ),
)
