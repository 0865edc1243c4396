"""Core attention in layers of Transformers: one kernel (PyTorch's sdpa, flash-attn), and single operations (eager)."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..components.attention import SCORES
from ..dimension import ONE, Dimension
from ..dimensions import BATCH, KEY_SEQUENCE, SEQUENCE
from ..functions import Iverson
from ..parameters import symbols
from .words import KEY, QUERY, Passing

a, b, k, rfull = symbols("a b k rfull")

#: Kernels of attention, with what else has to be chosen for the order of its operations.
OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fused": {"attention": ("sdpa", "flash")},
    "eager": {"attention": ("eager",), "softmax": ("fp32",), "sinks": ("none",), "capping": ("none",),
              "window": ("none",), "adapters": ("none",)},
}
#: A product of all heads reads copies of what has one token after another, but of one sequence or one head.
_COPIED = Iverson(b > 1) * Iverson(a > 1)
#: Eager attention repeats keys and values; those of one head by a view.
_GROUPED = Iverson(a > k)
_REPEATED = _GROUPED * Iverson(k > 1)


def passing(options: Mapping[str, tuple[str, ...]]) -> tuple[Passing, ...]:
    """Return the tensors of eager attention, and numbers of one byte that say how it has queries, keys and values."""
    def eager(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2) -> Passing:
        return Passing(name, shape, bytes, meaning, "transformers", when, {**options, **OPTIONS["eager"]})

    kept = (1 - _REPEATED) * (1 - _COPIED)
    return (
        eager("q.kept", (), "1 where the scores read the queries that are turned", 1 - _COPIED, 1),
        eager("kv.kept", (), "1 where products read the keys and values that are made first", kept, 1),
        eager("kv.repeated", (), "1 where keys and values are repeated by a copy", _REPEATED, 1),
        eager("kv.copied", (), "1 where each product copies the one that it reads", (1 - _REPEATED) * _COPIED, 1),
        eager("kv.alone", (), "1 where every query head has a key and a value", 1 - _GROUPED, 1),
        eager("mask.bool", (SEQUENCE, KEY_SEQUENCE), "bool mask of one sequence, of which all are made", bytes=1),
        eager("mask", (BATCH, SEQUENCE, KEY_SEQUENCE), "causal mask, which the model holds and recompute saves",
              1 - rfull),
        eager("q.turned", QUERY, "queries after RoPE, of which the scores read a copy", _COPIED),
        eager("k.turned", KEY, "keys after RoPE, of which the scores read a copy", 1 - kept),
        eager("v.projected", KEY, "values of which a product reads a copy", 1 - kept),
        eager("scores.product", SCORES, "products of queries and keys"),
        eager("scores.scaled", SCORES, "the same, scaled"),
        eager("scores.masked", SCORES, "the same, with the mask added"),
        eager("scores.fp32", SCORES, "fp32 copy of the same", bytes=4),
        eager("context.heads", QUERY, "output of core attention, one head after another", Iverson(a > 1)),
        eager("context.gradient_heads", QUERY, "copy of its gradient, one head after another", _COPIED),
        eager("scores.gradient", SCORES, "gradient of the softmax"),
        eager("scores.gradient_fp32", SCORES, "fp32 copy of the same", bytes=4),
        eager("softmax.product", SCORES, "fp32 product of the softmax and its gradient", bytes=4),
        eager("softmax.gradient", SCORES, "fp32 gradient of the scores", bytes=4),
        eager("masked.gradient", SCORES, "bf16 copy of the same"),
        eager("scaled.gradient", SCORES, "gradient of the products of queries and keys"),
        *(eager(f"{name}.repeated_gradient", QUERY, f"gradient of repeated {words}", _GROUPED)
          for name, words in (("k", "keys"), ("v", "values"))),
        eager("v.joined", KEY, "gradient of values, heads side by side", Iverson(k > 1)),
    )


def _each(word: str, name: str) -> str:
    """Return a word for keys or values, repeated by a copy or by a view."""
    return f"{word}:attention.{name}.repeated {word}:attention.{name}.one_head"


def _kept(name: str) -> str:
    """Return words that save keys or values as they are, where nothing copies them."""
    return f"if:kv.kept:save:attention.{name}.repeated if:kv.kept:save:attention.{name}.one_head"


class Kernel:
    """The words of a kernel, which reads queries, keys and values as they are.

    ``turned`` stands where RoPE has made queries and keys, ``left`` behind the output projection, ``dropped`` and
    ``ended`` before and behind the sum that ends a layer, ``values_joined`` where gradients of values are read.
    """

    values = "save:attention.v"
    turned: Mapping[str, str] = {name: f"save:attention.{name}" for name in "qk"}
    forward = "save:document_bounds save:attention.context save:attention.logsumexp drop:attention.logsumexp"
    left, dropped, ended = "drop:all", "drop:all", ""
    mask = unmask = values_joined = ""
    backward = ("+q.gradient +k.gradient +v.gradient {freed} free:attention.k free:attention.q free:attention.v"
                " free:attention.logsumexp free:attention.context")


class Eager(Kernel):
    """The same in single operations. The model holds the softmax in bf16 until its layer is done."""

    values = f"+v.projected {_kept('v')}"
    turned: Mapping[str, str] = {"q": "+q.turned if:q.kept:save:attention.q", "k": f"+k.turned {_kept('k')}"}
    forward = (
        "if:kv.repeated:save:attention.k.repeated if:kv.repeated:save:attention.v.repeated save:attention.q"
        " save:attention.k.repeated +scores.product if:q.turned:drop:attention.q"
        " if:kv.copied:drop:attention.k.repeated +scores.scaled -scores.product +scores.masked -scores.scaled"
        " +scores.fp32 save:attention.probabilities_fp32 -scores.fp32 save:attention.probabilities"
        " drop:attention.probabilities_fp32 -scores.masked save:attention.v.repeated +context.heads"
        " if:kv.copied:drop:attention.v.repeated save:attention.o_proj.input_transposed -context.heads"
        " if:kv.repeated:drop:attention.k.repeated if:kv.repeated:drop:attention.v.repeated")
    left = (f"drop:attention.o_proj.input_transposed drop:attention.q {_each('drop', 'k')} {_each('drop', 'v')}"
            " drop:attention.qkv.input -q.turned -k.turned -v.projected")
    dropped, ended = "drop:swiglu.gate_up.input drop:swiglu.down.input", " drop:all"
    mask, unmask = " =mask.bool =mask share:tables.mask.eager -mask.bool", " -mask"
    backward = (
        "free:attention.o_proj.input_transposed +context.gradient_heads if:q.turned:-context.gradient"
        " +v.repeated_gradient if:kv.alone:+v.gradient +scores.gradient -context.gradient_heads -context.gradient"
        f" {_each('free', 'v')} free:attention.probabilities +scores.gradient_fp32 -scores.gradient +softmax.gradient"
        " +softmax.product -softmax.product -scores.gradient_fp32 free:attention.probabilities_fp32"
        " +masked.gradient -softmax.gradient +scaled.gradient -masked.gradient +k.repeated_gradient"
        f" if:kv.alone:+k.gradient +q.gradient -scaled.gradient {_each('free', 'k')} free:attention.q"
        " if:v.repeated_gradient:+v.gradient -v.repeated_gradient"
        " if:k.repeated_gradient:+k.gradient -k.repeated_gradient")
    values_joined = "+v.joined if:v.joined:-v.gradient "


KERNELS: Mapping[str, type[Kernel]] = {"fused": Kernel, "eager": Eager}
