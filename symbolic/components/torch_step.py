"""Small tensors of PyTorch's own training step: counters of AdamW, the loss and its gradient, shifted labels."""

from __future__ import annotations

from typing import Any

from sympy import Integer

from ..choices import ADAPTED, BY_NAME, ENDS, TORCHTUNE_CHUNKS, TRANSFORMERS_ROUTERS
from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HEADS, HIDDEN, KV_HEADS, LAYER_TENSORS, SEQUENCE, SEQUENCE_SP, SHIFTED_SEQUENCE, VOCAB
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, transient
from ..parameters import symbols
from .head import IS_EMBEDDING
from .mlp_rows import MLP_BIAS

b, bias, lbias, obias, hbias, qkn = symbols("b bias lbias obias hbias qkn")
fs, sgate, lq, zero3 = symbols("fs sgate lq zero3")
#: Letters of biases: of queries, keys and values, and behind attention.
_QKV_BIAS, _OUTPUT_BIAS = bias + lbias - bias * lbias, obias + lbias - obias * lbias

_TORCH: Any = {"peak": ("torch",)}
#: Where the optimizer has a counter for every parameter, on the GPU.
_APART_STATES: Any = {**_TORCH, "data_parallel": ("ddp", "fsdp"), "zero_offload": ("none",)}
_IN_PARTS: Any = {**_TORCH, "data_parallel": ("deepspeed",)}
#: Rows of weights that are frozen beside adapters.
_TRAINED: Any = {"adapters": ("none",)}
_HUGGINGFACE = ("huggingface", "huggingface_freed")
_AFTER_LOSS = ("head_backward", "layer_backward", "embedding_backward")
_START = ("backward_start",)
_GRADIENT = ("head_backward",)
#: Losses whose backward pass goes through the head once, for all tokens.
_AT_ONCE: Any = {**_TORCH, "loss": BY_NAME["loss"].without(*TORCHTUNE_CHUNKS)}


def _steps(
    name: str, shape: tuple[Dimension, ...], meaning: str, when: Any = ONE, lifetime: Lifetime = Lifetime.ONCE,
    tensors: int = 1, **options: tuple[str, ...],
) -> Tensor:
    return Tensor(
        name, "optimizer", Role.BUFFER, shape, 4 * tensors, lifetime, "pytorch", meaning, when=when,
        options={**_APART_STATES, **options},
    )


def _counters(name: str, tensors: int, meaning: str, when: Any = ONE, **options: Any) -> Tensor:
    return _steps(name, (), f"fp32 step counters of {meaning}", when, tensors=tensors, **options)


_GATED, _UNGATED = ("swiglu", "geglu"), ("gelu", "relu", "relu2", "xielu")
_SCALED, _SHIFTED, _UNSCALED = ("rms", "layer_unbiased"), ("layer",), ("layer_plain",)
_APART, _JOINT = ("separate", "gate_up"), ("fused", "qkv")
_ONE_AFTER_THE_OTHER, _ONE_NORM = ("sequential", "parallel"), ("parallel_one",)


def _of_mlps() -> tuple[Tensor, ...]:
    """Return the counters of dense MLPs of Transformers."""
    return tuple(
        _counters(f"{kind}_{name}", tensors, f"the MLP's {name}", when, mlp=mlp, projections=projections)
        for kind, mlp, projections, tensors in (
            ("gated", _GATED, ("separate", "qkv"), 3), ("gated_joint", _GATED, ("fused", "gate_up"), 2),
            ("ungated", _UNGATED, (*_APART, *_JOINT), 2))
        for name, when in (("matrices", ONE), ("biases", MLP_BIAS)))


def _of_experts() -> tuple[Tensor, ...]:
    """Return the counters of routers and experts of Transformers, whose matrices of all experts are one tensor."""
    return (
        _counters("router", 1, "the router"),
        _counters("experts", 2, "both matrices of all experts"),
        _counters("expert_biases", 3, "biases of the router and of all experts", lbias, mlp=("swiglu_clamped",)),
        _counters("shared", 3, "shared experts", Iverson(fs > 0), projections=("separate", "qkv")),
        _counters("shared_joint", 2, "shared experts", Iverson(fs > 0), projections=("fused", "gate_up")),
        _counters("shared_gate", 1, "the gate of shared experts", sgate * Iverson(fs > 0)),
    )


def _of_layers() -> tuple[Tensor, ...]:
    """Return the counters of a layer of Transformers, by its parts."""
    return (
        _counters("projections", 4, "the projections of attention", projections=_APART),
        _counters("latent_keys", 1, "the norm of compressed keys and values", heads=("latent",)),
        _counters("latent_queries", 2, "the norm and one more projection of compressed queries", Iverson(lq > 0),
                  heads=("latent",)),
        _counters("fused_projections", 2, "the projections of attention", projections=_JOINT),
        _counters("projection_biases", 3, "biases of q, k and v", _QKV_BIAS, projections=_APART),
        _counters("fused_bias", 1, "the bias of q, k and v", _QKV_BIAS, projections=_JOINT),
        _counters("output_bias", 1, "the bias of the output projection", _OUTPUT_BIAS),
        *(_counters(f"{name}_{kind}", tensors, f"{name} of norms", norms=norms, residual=residual, normalisation=kinds)
          for name, kinds in (("scales", (*_SCALED, *_SHIFTED)), ("shifts", _SHIFTED))
          for kind, norms, residual, tensors in (
              ("of_two", ("pre", "post"), _ONE_AFTER_THE_OTHER, 2), ("of_four", ("both",), _ONE_AFTER_THE_OTHER, 4),
              ("of_one", ("pre",), _ONE_NORM, 1))),
        _counters("sinks", 1, "the sinks of attention", sinks=("trained",)),
        _counters("slopes", 2, "the slopes of xIELU", mlp=("xielu",)),
        _counters("head_norms", 2, "norms of queries and keys", qkn, normalisation=_SCALED),
        *(_steps(f"norms_of_{name}", heads, f"fp32 step counters of norms of {name}, one module for each head", qkn,
                 normalisation=_SHIFTED, qk_norms=("heads",))
          for name, heads in (("queries", (HEADS,)), ("keys", (KV_HEADS,)))),
    )


def _of_adapters(name: str, projections: int, *adapters: str, words: str = "") -> tuple[Tensor, ...]:
    """Return the counters of the adapters of some projections: two matrices each."""
    return (_counters(f"adapters_of_{name}", 2 * projections, f"adapters of {words or name}", adapters=adapters),)


COMPONENTS = (
    Component(
        "layer_steps", "Step counters of a layer", 61, Place.LAYER,
        (
            _steps("layer", (LAYER_TENSORS,), "fp32 step counters of AdamW", layers=("dense",)),
            _counters("grouped", 6, "projections of attention and both norms", layers=("experts",), heads=("grouped",)),
            _counters("head_norms", 2, "norms of queries and keys", qkn, layers=("experts",), heads=("grouped",)),
            _counters("latent", 7, "projections of latent attention and norms", heads=("latent",), layers=("experts",)),
            _counters("latent_queries", 2, "the norm and one more projection of compressed queries", Iverson(lq > 0),
                      heads=("latent",), layers=("experts",)),
        ),
        options={**_TORCH, "router": ("torchtitan",)},
    ),
    *(Component(name, title, 61, place, rows, options={**_TORCH, "router": ("torchtitan",), "layers": ("experts",)})
      for name, title, place, rows in (
          ("dense_steps", "Step counters of a dense MLP beside experts", Place.DENSE,
           (_counters("matrices", 3, "the MLP's matrices"),)),
          ("padded_steps", "Step counters of routers and padded experts", Place.EXPERTS,
           (_counters("matrices", 4, "the router and the stacked matrices of all experts"),
            _counters("shared", 3, "shared experts", Iverson(fs > 0)))))),
    *(Component(name, title, 61, place, rows, options={**_TORCH, "router": TRANSFORMERS_ROUTERS, **options})
      for name, title, place, rows, options in (
          ("layer_part_steps", "Step counters of a layer's parts", Place.LAYER, _of_layers(), _TRAINED),
          ("mlp_steps", "Step counters of a dense MLP", Place.DENSE, _of_mlps(), _TRAINED),
          ("adapter_steps", "Step counters of adapters of attention", Place.LAYER, (
              *_of_adapters("q_v", 2, *ADAPTED, words="q and v"),
              *_of_adapters("k", 1, *(option for option in ADAPTED if option != "q_v")),
              *_of_adapters("o_proj", 1, "attention", "all_linear", words="the output projection")),
           {"adapters": ADAPTED}),
          ("mlp_adapter_steps", "Step counters of adapters of a dense MLP", Place.DENSE,
           _of_adapters("mlp", 3, "all_linear", words="gate, up and down projection"), {"adapters": ("all_linear",)}),
          ("expert_steps", "Step counters of routers and experts", Place.EXPERTS, _of_experts(),
           {"layers": ("experts",)}))),
    Component(
        "first_steps", "Step counters of the first stage", 62, Place.FIRST,
        (_steps("embedding", (), "fp32 step counter of the embedding"),
         _counters("positions", 1, "the table of positions", positions=("learned",))),
        options={**_TORCH, **_TRAINED},
    ),
    Component(
        "last_steps", "Step counters and scalars of the last stage", 95, Place.LAST,
        (
            # Once, however many micro-batches are in flight.
            _steps("final_norm", (), "fp32 step counter of the final norm", lifetime=Lifetime.SHARED,
                   normalisation=(*_SCALED, *_SHIFTED), **_TRAINED),
            _steps("head", (), "fp32 step counter of the head", Integer(1) - IS_EMBEDDING, Lifetime.SHARED,
                   **_TRAINED),
            _steps("head_bias", (), "fp32 step counter of the bias of the logits", hbias, Lifetime.SHARED,
                   **_TRAINED),
            _steps("final_shift", (), "fp32 step counter of the final norm's shift", lifetime=Lifetime.SHARED,
                   normalisation=_SHIFTED, **_TRAINED),
            _steps("part", (), "fp32 step counter of the rank's part of all parameters", lifetime=Lifetime.SHARED,
                   **_IN_PARTS),
            Tensor("norm", "optimizer", Role.BUFFER, (), 4, Lifetime.SHARED, "deepspeed",
                   "fp32 norm of the last step's gradients", options=_IN_PARTS),
            Tensor("norm_of_parts", "optimizer", Role.BUFFER, (), 4, Lifetime.SHARED, "deepspeed",
                   "the rest of the same in stage 3, which takes it in fp64", when=zero3, options=_IN_PARTS),
            transient("scaled_loss", "loss", (), 8, "deepspeed",
                      "fp32 loss over the number of micro-batches, and its gradient",
                      ("loss_backward", *_AFTER_LOSS, "norm_backward"), **_IN_PARTS),
            transient("loss_while_part_reduced", "loss", (), 12, "deepspeed",
                      "fp32 loss and its gradient, and the loss over the number of micro-batches",
                      ("last_reduce",), **_IN_PARTS),
            transient("loss", "loss", (), 8, "pytorch", "fp32 loss and its gradient", _AFTER_LOSS, **_TORCH),
            transient("loss_at_norm", "loss", (), 8, "pytorch", "fp32 loss and its gradient", ("norm_backward",),
                      router=TRANSFORMERS_ROUTERS),
            transient("loss_while_reduced", "loss", (), 8, "pytorch", "fp32 loss and its gradient", ("last_reduce",),
                      data_parallel=("fsdp",), pipeline=("own",)),
            transient("loss_while_head_reduced", "loss", (), 8, "pytorch", "fp32 loss and its gradient",
                      ("head_reduce",), data_parallel=("fsdp",), units=ENDS, pipeline=("own",)),
            transient("loss_at_start", "loss", (), 8, "pytorch", "fp32 loss and its gradient", _START,
                      data_parallel=("fsdp",), units=("root",)),
            transient("labels_at_start", "loss", (SEQUENCE, BATCH), 8, "transformers",
                      "int64 labels shifted by one token",
                      _START, when=Iverson(b > 1), loss=_HUGGINGFACE, data_parallel=("fsdp",)),
            transient("padded_labels_at_start", "loss", (SHIFTED_SEQUENCE, BATCH), 8, "transformers",
                      "int64 labels with one more, of which the shifted ones are a view",
                      _START, when=Iverson(b <= 1), loss=_HUGGINGFACE, data_parallel=("fsdp",)),
            transient("logits_gradient", "head", (SEQUENCE, BATCH, VOCAB), 2, "pytorch", "bf16 gradient of the logits",
                      _GRADIENT, **_AT_ONCE),
            transient("weight_gradient", "head", (VOCAB, HIDDEN), 2, "pytorch", "bf16 gradient of the head's weight",
                      _GRADIENT, **_AT_ONCE, **_TRAINED),
            transient("bias_gradient", "head", (VOCAB,), 2, "pytorch", "bf16 gradient of the bias of the logits",
                      _GRADIENT, when=hbias, **_TORCH, **_TRAINED),
            transient("input_gradient", "head", (SEQUENCE, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the head's input", _GRADIENT, **_AT_ONCE),
            transient("norm_gradient", "head", (SEQUENCE_SP, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the final norm's input", ("head_reduce",),
                      data_parallel=("fsdp",), units=ENDS, pipeline=("own",)),
            transient("embedding_gradient", "embedding", (SEQUENCE_SP, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the embedding's output", ("embedding_backward",), **_TORCH,
                      pipeline=("own",)),
        ),
        options=_TORCH,
    ),
)
