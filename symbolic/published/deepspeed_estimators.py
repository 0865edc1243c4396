"""DeepSpeed's own estimators of model states, estimate_zero2_ and estimate_zero3_model_states_mem_needs."""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..functions import Max
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "deepspeed_estimators"
Psi, largest, N, n, D = symbols("Psi Psil N n D")
#: Safety factor of the program on host memory.
_CAREFUL = Rational(3, 2)
#: The share of one node among all.
_NODE = n / N
_SIZES = ("stage.parameters", "stage.buffer_elements", "stage.shard_elements")
_P, _PADDED, _SHARE = map(term_symbol, _SIZES)
_STATES = ("stage.weight", "stage.gradient", "stage.optimizer")
_RANK = {**assume(PLAIN, t=1, c=1, p=1, r=0, w=4, zero1=1, zero2=1), "Psi": _P, "N": D}
_KERNELS = {"data_parallel": "deepspeed", "precision": "mixed"}


def _build() -> TermSet:
    terms = TermSet(NAME)

    def add(name: str, meaning: str, *summands: Expr) -> None:
        terms.add(f"{NAME}.{name}", sum(summands, Integer(0)), "bytes", meaning)

    gathered = 4 * largest
    add("zero2_gpu", "ZeRO-2, one GPU", 2 * Psi, 18 * Psi / N)
    add("zero2_gpu_documented", "the same as the documentation has it", 4 * Psi, 16 * Psi / N)
    add("zero2_gpu_offloaded", "ZeRO-2, one GPU, optimizer on the host", 2 * Psi)
    add("zero2_host", "ZeRO-2, one node's host, to make the model", product(4 * Psi, n, _CAREFUL))
    add("zero2_host_offloaded", "ZeRO-2, one node's host, with the optimizer",
        product(Psi, Max(4 * N, Integer(16)), _CAREFUL))
    add("zero3_gpu", "ZeRO-3, one GPU", gathered, 18 * Psi / N)
    add("zero3_gpu_optimizer_offloaded", "ZeRO-3, one GPU, optimizer on the host", gathered, 2 * Psi / N)
    add("zero3_gpu_offloaded", "ZeRO-3, one GPU, weights and optimizer on the host", gathered)
    add("zero3_host", "ZeRO-3, one node's host, to make the model layer by layer (zero_init)",
        product(4 * largest, n, _CAREFUL))
    add("zero3_host_whole", "ZeRO-3, one node's host, to make the model at once", product(4 * Psi, n, _CAREFUL))
    for name, bytes_, words in (("optimizer_offloaded", 16, "optimizer"), ("offloaded", 18, "weights and optimizer")):
        add(f"zero3_host_{name}", f"ZeRO-3, one node's host, with {words} (zero_init)",
            product(bytes_ * Psi, _NODE, _CAREFUL))
        add(f"zero3_host_{name}_whole", f"ZeRO-3, one node's host, with {words}, model made at once",
            product(Psi, Max(4 * n, bytes_ * _NODE), _CAREFUL))
    return terms


def _correspondence() -> tuple[Counterpart, ...]:
    whole = "weights, fp32 gradients and optimizer states of one GPU"
    both = "the program counts bf16 gradients beside the fp32 ones, of which DeepSpeed keeps one kind; padding"
    return (
        Counterpart(f"{NAME}.zero2_gpu", _STATES, f"{whole}, ZeRO-2", both, assume(_RANK, zero3=0),
                    2 * (_P - _PADDED) + (18 * _P - 4 * _PADDED) / D - 12 * _SHARE, _KERNELS, kept=_SIZES,
                    implementation="huggingface"),
        Counterpart(f"{NAME}.zero2_gpu_documented", _STATES, f"{whole}, ZeRO-2",
                    "the documentation has gradients whole on every GPU, which ZeRO-2 shares out",
                    assume(_RANK, zero3=0), 4 * _P - 2 * _PADDED + (16 * _P - 4 * _PADDED) / D - 12 * _SHARE, _KERNELS,
                    kept=_SIZES, implementation="huggingface"),
        Counterpart(f"{NAME}.zero3_gpu", _STATES, f"{whole}, ZeRO-3", f"{both}; the largest layer with its gradients,"
                    " gathered, is a moment of the pass in the ledger and no state; parameters that stay gathered have"
                    " no term in the program", assume(_RANK, zero3=1, pt=0),
                    4 * largest + (18 * _P - 6 * _PADDED) / D - 12 * _SHARE, _KERNELS, kept=_SIZES,
                    implementation="huggingface"),
    )


def _figures() -> tuple[Figure, ...]:
    """Return the tables of the page on memory for a model of 2851 million parameters on one node with 8 GPUs."""
    values = {"Psi": 2_851_000_000, "Psil": 32_000_000, "N": 8, "n": 8}
    documented = "the documented formula gives it"
    printed = {
        "zero2_host": "127.45", "zero2_host_offloaded": "127.45", "zero2_gpu_offloaded": "5.31",
        "zero2_gpu_documented": "15.93", "zero2_gpu": "15.93", "zero3_host_offloaded": "71.69",
        "zero3_host_offloaded_whole": "127.45", "zero3_gpu_offloaded": "0.12",
        "zero3_host_optimizer_offloaded": "63.72", "zero3_host_optimizer_offloaded_whole": "127.45",
        "zero3_gpu_optimizer_offloaded": "0.78", "zero3_host": "1.43", "zero3_host_whole": "127.45",
        "zero3_gpu": "6.09",
    }
    return tuple(
        Figure(f"{NAME}.{name}", values, digits, "GiB", 2**30, "docs/code-docs/source/memory.rst, 2851e6 parameters",
               documented if name == "zero2_gpu" else "")
        for name, digits in printed.items()
    )


SETS = (
    PublishedSet(
        NAME, "DeepSpeed's estimators", "deepspeed_estimators", _build(), _correspondence(),
        (
            "Model states alone, fp16 or bf16 with Adam; the program drops fractions of a byte, which these formulas"
            " keep.",
            "N GPUs in all and n on each node; host memory is that of one node, times the program's usual 1.5.",
            "Ψₗ are the parameters of the largest module, counted without those of its own modules.",
        ),
        implementation="huggingface", figures=_figures(),
    ),
)
