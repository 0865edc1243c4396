"""Megatron-Core's step with its own layers: dense ones with SwiGLU and flash attention, operation by operation.

The order is that of a step's trace on one H100 (``tests/data/snapshots``). Inputs are gathered over ranks into a buffer
that is never freed, and RoPE is made of PyTorch's operations.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Gt

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HALF_HEAD, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE
from ..functions import Iverson
from ..implementations import MEGATRON
from ..parameters import symbols
from .words import KEY, QUERY, SCATTERED, SHARE, WHOLE, Passing, Script

a, k = symbols("a k")
_LAYERS: Mapping[str, tuple[str, ...]] = {
    **(MEGATRON.replayed or {}), "peak": ("megatron_local",), "heads": ("grouped",),
}
_TURNED: Mapping[str, tuple[str, ...]] = {**_LAYERS, "rope": ("unfused",)}
_FLASH: Mapping[str, tuple[str, ...]] = {**_LAYERS, "attention": ("flash",)}


def _local(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(f"local.{name}", shape, 2, meaning, "megatron_core", when, _LAYERS)


def _turned(name: str, shape: tuple[Dimension, ...], meaning: str, bytes: int = 2) -> Passing:
    return Passing(f"local.{name}", shape, bytes, meaning, "megatron_core", options=_TURNED)


def _flash(name: str, shape: tuple[Dimension, ...], bytes: int, meaning: str, when: Expr = ONE) -> Passing:
    return Passing(f"local.{name}", shape, bytes, meaning, "dao2023", when, _FLASH)


def _rotated(name: str, heads: Dimension, shape: tuple[Dimension, ...]) -> tuple[Passing, ...]:
    return (
        _turned(f"{name}.cosine", shape, "product with cosines"),
        _turned(f"{name}.half", (SEQUENCE, BATCH, heads, HALF_HEAD), "half of each head with its sign turned"),
        _turned(f"{name}.rotated", shape, "halves of heads exchanged, and their gradient"),
        _turned(f"{name}.sine", shape, "product with sines"),
        _turned(f"{name}.sum", shape, "sum of both products, before parts of heads are joined"),
        _turned(f"{name}.joined", shape, "gradient before RoPE"),
    )


PASSING: tuple[Passing, ...] = (
    _local("query", QUERY, "queries cut out of the projection's output", Iverson(Gt(a, k))),
    _local("input_gradient", WHOLE, "gradient of a projection's gathered input", SCATTERED),
    _local("reduced", SHARE, "gradient of the input of a projection, the rank's share"),
    _turned("table", (SEQUENCE, HEAD_DIM), "fp32 cosines or sines", 4),
    *_rotated("q", HEADS, QUERY), *_rotated("k", KV_HEADS, KEY),
    _flash("attention.sums", (SEQUENCE, BATCH, HEADS), 4, "fp32 sums of products of the output with its gradient"),
    _flash("attention.q", QUERY, 4, "fp32 gradient of queries, summed up"),
    *(_flash(f"attention.{name}", QUERY, 2, f"gradient of {name} of every query head", Iverson(Gt(a, k)))
      for name in ("keys", "values")),
)


def _table(row: str) -> str:
    return f"+local.table +local.table -local.table save:attention.rope.{row} -local.table"


def _rope(name: str) -> str:
    return (f"{_table(f'{name}_cos')} {_table(f'{name}_sin')} +local.{name}.cosine +local.{name}.half"
            f" +local.{name}.rotated -local.{name}.half +local.{name}.sine -local.{name}.rotated +local.{name}.sum"
            f" -local.{name}.cosine -local.{name}.sine save:attention.{name} -local.{name}.sum")


def _rope_backward(name: str) -> str:
    return (f"+local.{name}.sine free:attention.rope.{name}_sin +local.{name}.half +local.{name}.rotated"
            f" -local.{name}.sine -local.{name}.half +local.{name}.cosine free:attention.rope.{name}_cos"
            f" -local.{name}.cosine +local.{name}.joined -{name}.gradient -local.{name}.rotated")


def _backward(projection: str, gradient: str, saved: str, norm: str) -> str:
    """Return the words of the backward pass of a projection and of the norm before it."""
    return (f"+local.input_gradient +local.reduced +{projection}.weight_gradient -{gradient} -local.input_gradient"
            f" free:{saved} -{projection}.weight_gradient +norm.gradient -local.reduced"
            f" free:{norm} -norm.gradient")


SCRIPTS: tuple[Script, ...] = (
    Script("layer_forward", "save:layer_input save:attention_norm -down.output save:attention.qkv.input"
           " save:attention.v.output +local.query"
           f" {_rope('q')} {_rope('k')} save:attention.context save:attention +o_proj.partial +o_proj.output"
           " -o_proj.partial -local.query save:ffn_norm.input -o_proj.output save:ffn_norm save:swiglu end"
           " +down.partial =down.output -down.partial", _LAYERS),
    Script("layer_backward", "+* again remake:swiglu +down.remade +output_gradient +down.input_gradient"
           " +down.weight_gradient -output_gradient free:swiglu.down.input -down.weight_gradient +gate_up.gradient"
           " -down.input_gradient free:swiglu.gate_up.output"
           f" {_backward('gate_up', 'gate_up.gradient', 'swiglu', 'ffn_norm')} use:mlp_dummies -down.remade"
           " +output_gradient +context.gradient +o_proj.weight_gradient -output_gradient -o_proj.weight_gradient"
           " +q.gradient +k.gradient +v.gradient +local.attention.sums +local.attention.q +local.attention.keys"
           " +local.attention.values -local.attention.values -local.attention.keys -local.attention.q"
           " -local.attention.sums -context.gradient free:attention.k free:attention.q free:attention.v.output"
           " free:attention.v free:attention.logsumexp free:attention.context"
           f" {_rope_backward('k')} {_rope_backward('q')} +qkv.gradient -local.q.joined -local.k.joined"
           " -q.gradient -k.gradient -v.gradient"
           f" {_backward('qkv', 'qkv.gradient', 'attention', 'attention_norm')} use:attention_dummies"
           " free -recomputed.output -*", _LAYERS),
    Script("optimizer_step", "+* roots:exp_avg_sq -*", {**_LAYERS, "optimizer_kernel": ("foreach",)}),
)

#: Sums that the scripts make one by one.
WALKED = (({**_LAYERS, "optimizer_kernel": ("foreach",)}, ("listed_roots",)),)
