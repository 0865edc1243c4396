"""Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054): model states in mixed precision with Adam, and their traffic."""

from __future__ import annotations

from sympy import Expr, Integer

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "rajbhandari2020"
Psi, D = symbols("Psi D")
#: Terms of the ledger that stay letters: parameters of the rank, the same with padding, and the padded share.
_SIZES = ("stage.parameters", "stage.buffer_elements", "stage.shard_elements")
_P, _PADDED, _SHARE = map(term_symbol, _SIZES)
_STATES = ("stage.weight", "stage.gradient", "stage.optimizer")
_GRADIENTS, _WEIGHTS = "stage.reduced_bytes", "stage.gathered_bytes"
#: One rank of data parallelism alone, bf16 gradients; the source's number of parameters is the ledger's.
_RANK = {**assume(PLAIN, t=1, c=1, p=1, r=0, w=2), "Psi": _P}
_SHARED = {stage: assume(_RANK, zero1=1, zero2=int(stage > 1), zero3=int(stage > 2)) for stage in (1, 2, 3)}
_DEEPSPEED = {"data_parallel": "deepspeed", "precision": "mixed"}
#: Traffic of a ring for 2 bytes, in elements.
_RING = (D - 1) / (2 * D)


def _build() -> TermSet:
    terms = TermSet(NAME)

    def states(name: str, meaning: str, *summands: Expr) -> None:
        terms.add(f"{NAME}.{name}", total(*summands), "bytes", f"model states of one GPU, {meaning}")

    def volume(name: str, times: int, meaning: str) -> None:
        terms.add(f"{NAME}.{name}", times * Psi, "elements", f"traffic of one GPU in a step, {meaning}")

    K = terms.add(f"{NAME}.multiplier", Integer(12), "bytes", "optimizer states of one parameter, K in the source:"
                  " fp32 weight, momentum and variance (section 3.1)")
    states("baseline", "plain data parallelism (section 3.1)", 2 * Psi, 2 * Psi, product(K, Psi))
    states("zero1", "optimizer states shared out, P_os (section 5.1)", 4 * Psi, product(K, Psi) / D)
    states("zero2", "gradients shared out too, P_os+g (section 5.2)", 2 * Psi, product(total(Integer(2), K), Psi) / D)
    states("zero3", "weights shared out too, P_os+g+p (section 5.3)", product(total(Integer(4), K), Psi) / D)
    volume("volume", 2, "plain data parallelism (section 7.1)")
    volume("volume_zero2", 2, "P_os+g (section 7.2.1)")
    volume("volume_zero3", 3, "P_os+g+p (section 7.2.2)")
    return terms


def _states() -> tuple[Counterpart, ...]:
    whole = "weights, gradients and optimizer states of one GPU"
    fsdp = (
        "FSDP2 pads the first dimension of every parameter to a multiple of the ranks; its 16 bytes are fp32 weights,"
        " gradients and two moments, without a bf16 copy"
    )
    return (
        Counterpart(f"{NAME}.baseline", _STATES, whole, "equal", assume(_RANK, zero1=0), Integer(0), kept=_SIZES[:1]),
        Counterpart(f"{NAME}.zero1", _STATES, f"{whole}, ZeRO-1", "Megatron-Core pads its buffer to equal shares, which"
                    " all ranks hold of weights and gradients", _SHARED[1],
                    4 * (_P - _PADDED) + 12 * (_P / D - _SHARE), kept=_SIZES),
        Counterpart(f"{NAME}.zero2", _STATES, f"{whole}, ZeRO-2", "DeepSpeed pads its buffer to an even number of"
                    " elements for every rank", _SHARED[2],
                    2 * (_P - _PADDED) + 2 * (_P - _PADDED) / D + 12 * (_P / D - _SHARE), _DEEPSPEED, kept=_SIZES,
                    implementation="huggingface"),
        Counterpart(f"{NAME}.zero3", _STATES, f"{whole}, ZeRO-3", "DeepSpeed pads every parameter to a multiple of the"
                    " ranks; without the small ones that it keeps gathered", assume(_SHARED[3], pt=0),
                    4 * (_P - _PADDED) / D + 12 * (_P / D - _SHARE), _DEEPSPEED, kept=_SIZES,
                    implementation="huggingface"),
        Counterpart(f"{NAME}.zero3", _STATES, f"{whole}, FSDP2", fsdp, _SHARED[3],
                    8 * (2 * _P - _PADDED) / D - 8 * _SHARE, kept=_SIZES, implementation="torchtitan"),
    )


def _volumes() -> tuple[Counterpart, ...]:
    kept = _SIZES[:2]
    ring = "a ring of D ranks sends (D - 1)/D of what it makes whole, where the source has all of it"
    padded = f"{ring}; padding is sent too"
    return (
        Counterpart(f"{NAME}.volume", (_GRADIENTS, _GRADIENTS), "gradients all-reduced", ring,
                    assume(_RANK, zero1=0), 2 * _P / D, scale=_RING, kept=kept[:1]),
        Counterpart(f"{NAME}.volume_zero2", (_GRADIENTS, _WEIGHTS), "gradients reduced, weights gathered", padded,
                    _SHARED[1], 2 * _P - 2 * _PADDED * (D - 1) / D, scale=_RING, kept=kept),
        Counterpart(f"{NAME}.volume_zero3", (_WEIGHTS, _WEIGHTS, _GRADIENTS), "weights gathered twice, gradients"
                    " reduced", f"{padded}; of one micro-batch, where FSDP does the same for each", _SHARED[3],
                    3 * _P - 3 * _PADDED * (D - 1) / D, scale=_RING, kept=kept, implementation="torchtitan"),
    )


def _figures() -> tuple[Figure, ...]:
    """Figure 1 of the source: 7.5 billion parameters on 64 GPUs, K = 12."""
    printed = {"baseline": "120", "zero1": "31.4", "zero2": "16.6", "zero3": "1.9"}
    return tuple(
        Figure(f"{NAME}.{name}", {"Psi": 7_500_000_000, "D": 64}, digits, "GB", 10**9, "figure 1")
        for name, digits in printed.items()
    )


SETS = (
    PublishedSet(
        NAME, "Rajbhandari et al. 2020, ZeRO", "rajbhandari2020", _build(), (*_states(), *_volumes()),
        (
            "Mixed precision with Adam: 2 bytes of weight, 2 of gradient and K = 12 of optimizer states per parameter.",
            "D is the data-parallel degree, N_d in the source; Ψ are the parameters of one replica of the model.",
            "Activations, buffers and fragmentation are not part of these formulas, nor is padding.",
        ),
        figures=_figures(),
    ),
)
