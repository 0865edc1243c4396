"""Rules of precisions, optimizers, adapters and systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sympy import And, Eq, Expr, Ge, Integer, Or, Symbol
from sympy.logic.boolalg import Boolean

from ..choices import PAIRED, TRANSFORMERS_ROUTERS
from ..components.quantised import PACKED
from ..functions import Divides
from ..parameters import symbol, symbols
from ..systems import SYSTEMS
from .optimizers import ANY_WIDTH
from .rules import Rule

m1, m2, wm, rl = symbols("m1 m2 wm rl")
L, p, t, c, ts, s, doc, b, h, A, f, rfull, rcore, rmlp = symbols("L p t c ts s doc b h A f rfull rcore rmlp")
a, k, fe, et, fs, lq, lk, mtp = symbols("a k fe et fs lq lk mtp")
rnorm, ract, rshared, rmoe, zero3 = symbols("rnorm ract rshared rmoe zero3")

#: Elements of a token, and tokens of a rank, that FP8 and FP4 come in: as matrix products need them, and whole tiles
#: of scales.
_FP8_SIZES: Mapping[str, tuple[int, int]] = {
    "delayed": (16, 8), "current": (16, 8), "block": (128, 128), "mx": (128, 128), "nvfp4": (128, 128),
}

#: Elements of hidden states and inside of MLPs and experts where saved tensors alone are counted, padding and all.
_FP8_PARTS: Mapping[str, int] = {"mx": 32, "nvfp4": 64}


def state_rules(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of the choices that are not the usual ones."""
    return (*_optimizer(choices), *_fp8(choices), *_adapters(choices), *_pairs(choices), *_documents(choices),
            *_whole_norms(choices),
            *(rule for system in SYSTEMS for rule in system.rules(choices)))


def _one_of(letter: Symbol, values: tuple[int, ...]) -> Boolean:
    return Or(*(Eq(letter, value) for value in values))


def _optimizer(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["optimizer"] not in ANY_WIDTH:
        return ()
    moments = (
        Rule("first_moment", "m1", _one_of(m1, (1, 2, 4)), "must be 4, 2 or 1"),
        Rule("second_moment", "m2", _one_of(m2, (1, 2, 4)), "must be 4, 2 or 1"),
    )
    if choices["optimizer"] == "precision_aware_core":
        return moments
    return (*moments, Rule("master_weight", "wm", _one_of(wm, (2, 4)), "must be 4 or 2"))


def _pairs(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["loss"] not in ("reward", *PAIRED):
        return ()
    return (Rule("pairs", "b", Divides(Integer(2), b), f"must be even with loss = {choices['loss']}: of every pair both"
                 " sequences"),)


def _documents(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["documents"] == "one":
        return ()
    return (
        Rule("document_length", "doc", And(Ge(doc, 1), Ge(s, doc)),
             "must be from 1 to seq_length with packed documents"),
        Rule("packed_batch", "b", Eq(b, 1), "must be 1 with packed documents, which are one sequence: give all their"
             " tokens as seq_length"),
        Rule("packed_context", "c", Eq(c, 1),
             "must be 1: packed documents with context parallelism are not counted yet"),
    )


def _whole_norms(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of norms over all heads in Megatron-Bridge, whose scales are those of all queries."""
    if choices["qk_norms"] != "width" or choices["router"] in TRANSFORMERS_ROUTERS:
        return ()
    return (
        Rule("whole_norms_ranks", "t", Eq(t, 1), "must be 1 with norms of whole queries and keys (Megatron-Bridge)"),
        Rule("whole_norms_heads", "k", Eq(k, a),
             "must be num_attention_heads with norms of whole queries and keys (Megatron-Bridge)"),
    )


def _fp8(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    recipe = choices["fp8"]
    if recipe == "none":
        return ()
    elements, tokens = _FP8_SIZES[recipe]
    with_padding = elements if choices["peak"] != "saved" else _FP8_PARTS.get(recipe, elements)
    sizes: tuple[tuple[str, Expr, str], ...] = (
        ("h", h, "must be a multiple of {} for FP8"),
        ("a", A / t, "times head_dim must give every rank a multiple of {} for FP8"),
        ("f", f / t, "must give every rank a multiple of {} for FP8"),
    )
    return (
        *(Rule(f"fp8_{letter}", letter, Divides(Integer(multiple), size), text.format(multiple))
          for letter, size, text in (*sizes, *_inner_sizes(choices))
          for multiple in (with_padding if letter in _PADDED else elements,)),
        *(_FP4 if recipe in PACKED else ()),
        *(_SHARED_FP8 if choices["data_parallel"] == "megatron_fsdp" else ()),
        Rule("fp8_recompute", "rcore", Eq(rcore, 0), "must be 0 with FP8, where it is not counted yet"),
        *(_delayed(choices) if recipe == "delayed" else ()),
        Rule("fp8_tokens", "s", Divides(tokens * c * ts, s * b),
             f"times micro_batch_size must give every rank a multiple of {tokens} tokens for FP8"),
    )


#: Sizes of which the padding of scales is counted.
_PADDED = ("h", "f", "fe", "fs")

_FP4 = (Rule("fp4_mtp", "mtp", Or(Eq(mtp, 0), And(Eq(rfull, 0), Eq(rmoe, 0))), "must be 0 with NVFP4 and recompute of"
             " whole layers or of router and experts: not counted yet"),)

_SHARED_FP8 = (Rule("fp8_shared", "zero3", Eq(zero3, 1), "must be 1 with FP8 in Megatron-FSDP: FP8 weights that every"
                    " rank has whole are not counted yet"),)

#: Switches of recompute after which layers of Transformer Engine keep a 16-bit input and quantise it once more.
_READ_AGAIN = ("rnorm", "ract")


def _delayed(choices: Mapping[str, str]) -> Iterator[Rule]:
    """Yield the rules of scales from earlier steps, of which a checkpoint keeps copies for its second forward pass."""
    yield Rule("fp8_rmlp", "rmlp", Eq(rmlp, 0), "must be 0 with delayed scaling: copies of scales for the second"
               " forward pass are not counted yet")
    for letter in _READ_AGAIN if _has_parts_apart(choices) else ():
        yield Rule(f"fp8_{letter}", letter, Eq(symbol(letter), 0), "must be 0 with delayed scaling: layers that read a"
                   " recomputed tensor again cannot quantise it a second time (Transformer Engine)")


def _has_parts_apart(choices: Mapping[str, str]) -> bool:
    """Tell whether layers have norms that stand alone, or experts, which can be recomputed by themselves."""
    return choices["layers"] == "experts" or choices["heads"] == "latent"


def _inner_sizes(choices: Mapping[str, str]) -> tuple[tuple[str, Expr, str], ...]:
    """Return sizes of experts and of latent attention that FP8 products need as multiples, with the rule for each."""
    experts: tuple[tuple[str, Expr, str], ...] = (
        ("fe", fe / et, "must give every rank a multiple of {} for FP8"),
        ("fs", fs / t, "must give every rank a multiple of {} for FP8"),
    )
    latent: tuple[tuple[str, Expr, str], ...] = (
        ("lq", lq, "must be a multiple of {} for FP8"), ("lk", lk, "must be a multiple of {} for FP8"),
    )
    return (*(experts if choices["layers"] == "experts" else ()), *(latent if choices["heads"] == "latent" else ()))


def _adapters(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["adapters"] == "none":
        return ()
    return (
        Rule("adapter_rank", "rl", Ge(rl, 1), "must be 1 or more with adapters"),
        Rule("adapter_ranks", "rl", Divides(t, rl), "must be a multiple of tensor_parallel"),
        Rule("adapter_rows", "t", Divides(t, h), "must divide hidden_size with adapters"),
        Rule("adapter_recompute", "rmlp", Eq(rmlp, 0), "must be 0 with adapters"),
        *(_expert_adapters(choices) if choices["layers"] == "experts" else ()),
    )


def _expert_adapters(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of adapters beside experts."""
    return (
        Rule("adapter_expert_ranks", "rl", Divides(et, rl), "must be a multiple of expert_tensor_parallel"),
        Rule("adapter_expert_rows", "et", Divides(et, h), "must divide hidden_size with adapters"),
        *(Rule(f"adapter_recompute_{switch}", str(switch), Eq(switch, 0), "must be 0 with adapters: not counted yet")
          for switch in (rnorm, ract, rshared, rmoe)),
    )
