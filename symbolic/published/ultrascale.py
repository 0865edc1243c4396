"""The Ultra-Scale Playbook (Hugging Face 2025): memory of weights, gradients, optimizer states and activations."""

from __future__ import annotations

from sympy import Expr, Integer

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import GPT, GPT_RANK, PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "ultrascale"
s, b, h, a, u, L, p, m, Psi, D = symbols("s b h a u L p m Psi D")
_SIZES = ("stage.parameters", "stage.buffer_elements", "stage.shard_elements")
_P, _PADDED, _SHARE = map(term_symbol, _SIZES)
_STATES = ("stage.weight", "stage.gradient", "stage.optimizer")
_RANK = {**assume(PLAIN, t=1, c=1, p=1, r=0), "Psi": _P}
_DROPOUT = {**GPT, "positions": "learned", "dropout": "masks", "attention": "fused_softmax"}


def _build() -> TermSet:
    terms = TermSet(NAME)

    def states(name: str, bytes_: int, meaning: str) -> Expr:
        return terms.add(f"{NAME}.{name}", bytes_ * Psi, "bytes", f"{meaning}, mixed precision")

    def shared(name: str, meaning: str, *summands: Expr) -> None:
        terms.add(f"{NAME}.{name}", total(*summands), "bytes", f"states of one GPU, {meaning}, k = 12")

    terms.add(f"{NAME}.parameters", total(h * u, product(L, total(12 * h**2, 13 * h)), 2 * h), "elements",
              "parameters of a transformer, without positions")
    parts = [states(name, bytes_, meaning) for name, bytes_, meaning in (
        ("weight", 2, "weights"), ("gradient", 2, "gradients"), ("master_weight", 4, "fp32 weights"),
        ("optimizer", 8, "momentum and variance of Adam"))]
    whole = terms.add(f"{NAME}.states", total(*parts), "bytes", "all of these")
    accumulated = states("fp32_gradient", 4, "fp32 gradients, which some libraries keep besides")
    terms.add(f"{NAME}.states_fp32_gradients", total(whole, accumulated), "bytes", "all with fp32 gradients")
    shared("zero1", "ZeRO-1", 2 * Psi, 2 * Psi, 12 * Psi / D)
    shared("zero2", "ZeRO-2", 2 * Psi, 14 * Psi / D)
    shared("zero3", "ZeRO-3", 16 * Psi / D)
    terms.add(f"{NAME}.activations", product(L, s, b, h, total(Integer(34), 5 * a * s / h)), "bytes",
              "activations of all layers, no recompute")
    return terms


def _correspondence() -> tuple[Counterpart, ...]:
    whole = "weights, gradients and optimizer states"
    fp32 = "the source keeps bf16 gradients beside the fp32 ones"
    return (
        Counterpart(f"{NAME}.parameters", ("model.all_parameters",), "parameters of a GPT model", "equal, with tied"
                    " embeddings and no table of positions", assume(GPT_RANK, tied=1), Integer(0), GPT),
        Counterpart(f"{NAME}.states", _STATES, whole, "equal without sharding", assume(_RANK, zero1=0, w=2),
                    Integer(0), kept=_SIZES[:1]),
        Counterpart(f"{NAME}.states_fp32_gradients", _STATES, f"{whole}, fp32 gradients",
                    f"{fp32}; Megatron-Core adds up in fp32 what a product gives", assume(_RANK, zero1=0, w=4), 2 * _P,
                    kept=_SIZES[:1]),
        Counterpart(f"{NAME}.states_fp32_gradients", _STATES, f"{whole}, nanotron on several ranks", "equal: bf16"
                    " gradients lie in the buckets of DistributedDataParallel", assume(_RANK, zero1=0, w=4, D=2),
                    Integer(0), implementation="nanotron"),
        Counterpart(f"{NAME}.zero1", _STATES, f"{whole}, ZeRO-1", "padding to equal shares",
                    assume(_RANK, zero1=1, w=2), 4 * (_P - _PADDED) + 12 * (_P / D - _SHARE), kept=_SIZES),
        Counterpart(f"{NAME}.zero3", _STATES, f"{whole}, FSDP2", "padding of every parameter",
                    assume(_RANK, zero1=1, zero2=1, zero3=1), 8 * (2 * _P - _PADDED) / D - 8 * _SHARE, kept=_SIZES,
                    implementation="torchtitan"),
        Counterpart(f"{NAME}.activations", ("layer.saved",), "activations of L GPT layers", "the source leaves out the"
                    " fp32 mean and deviation of the norms", assume(GPT_RANK, drop=1, adrop=1), -16 * s * b * L,
                    _DROPOUT, L),
        Counterpart(f"{NAME}.activations", ("layer.saved",), "activations of L Llama layers", "made for unfused softmax"
                    " and dropout; a Llama with f = 4h and FlashAttention keeps no scores and no masks, but a gate",
                    {**GPT_RANK, "lbias": Integer(0)},
                    L * (5 * a * s**2 * b - 6 * s * b * h - 4 * s * b * a - 8 * s * b), scale=L),
    )


def _figures() -> tuple[Figure, ...]:
    """Return the table of model states: 16 and 20 bytes for each parameter."""
    printed = {1: ("16", "20"), 7: ("112", "140"), 70: ("1120", "1400"), 405: ("6480", "8100")}
    return tuple(
        Figure(f"{NAME}.{name}", {"Psi": billions * 10**9}, digits, "GB", 10**9, f"table of model states, {billions}B")
        for billions, both in printed.items()
        for name, digits in zip(("states", "states_fp32_gradients"), both, strict=True)
    )


SETS = (
    PublishedSet(
        NAME, "The Ultra-Scale Playbook", "ultrascale", _build(), _correspondence(),
        (
            "Mixed precision with Adam; Ψ is N in the source, and D the data-parallel degree.",
            "Activations are those of Korthikanti et al. 2022 for all layers on one GPU: GPT with dropout, GELU, f = 4h"
            " and unfused attention.",
            "Embedding and head have no activations in the source; CUDA context, buffers and fragments are left out.",
        ),
        figures=_figures(),
    ),
)
