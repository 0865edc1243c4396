"""States of each optimizer per parameter, besides its weight, gradient and master weight.

Step counters are left out: PyTorch keeps them on the host unless the optimizer is fused or capturable, others
keep a plain number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sympy import Expr, Integer

from ..functions import CeilDiv, Divides, Iverson
from ..ledger import Role
from ..parameters import symbols
from .weights import State, Weight, elements, matrices, one, others

m1, m2 = symbols("m1 m2")

#: Elements that share one scale of an 8-bit state; smaller tensors than 16 of these blocks are not quantised.
BLOCK = Integer(256)
SMALLEST_QUANTISED = Integer(4096)

#: Bytes of a moment: fp32 where the weights or their master copies are, else the precision of the weights.
MOMENTS: Mapping[str, tuple[str, int, str]] = {
    "mixed": ("fp32", 4, "megatron_core"),
    "bf16": ("bf16", 2, "pytorch"),
    "autocast": ("fp32", 4, "pytorch"),
    "fp32": ("fp32", 4, "pytorch"),
    "fp16": ("fp32", 4, "megatron_core"),
}


def _state(
    name: str, size: int | Expr, meaning: str, source: str, count: Callable[[Weight], Expr] | None = None
) -> State:
    return State(name, Role.OPTIMIZER, Integer(size) if isinstance(size, int) else size, meaning, source, count)


def _adamw(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("exp_avg", size, f"{name} first moment", source),
        _state("exp_avg_sq", size, f"{name} second moment", source),
    )


def _precision_aware(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("exp_avg", m1, "first moment in fp32, 16 bits or FP8, which has a scale for every tensor",
               "transformer_engine"),
        _state("exp_avg_sq", m2, "second moment in fp32, 16 bits or FP8, which has a scale for every tensor",
               "transformer_engine"),
    )


def _quantised(weight: Weight) -> Expr:
    """With bitsandbytes: it quantises every tensor that is not small."""
    return Iverson(weight.elements > SMALLEST_QUANTISED - 1)


def _quantised_by_trainer(weight: Weight) -> Expr:
    """With Transformers' trainer: it asks bitsandbytes for 32 bits for embeddings."""
    return Integer(0) if weight.is_embedding else _quantised(weight)


def _quantised_by_torchao(weight: Weight) -> Expr:
    """With torchao: it quantises tensors that are not small and consist of whole blocks."""
    return _quantised(weight) * Iverson(Divides(BLOCK, weight.elements))


def _blocks(weight: Weight) -> Expr:
    return CeilDiv(weight.elements, BLOCK)


def _times(condition: Callable[[Weight], Expr], count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    return lambda weight: condition(weight) * count(weight)


def _unless(condition: Callable[[Weight], Expr], count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    return lambda weight: (1 - condition(weight)) * count(weight)


def _bitsandbytes(condition: Callable[[Weight], Expr], wide: str, source: str) -> tuple[State, ...]:
    """Return the moments of AdamW in 8 bits where ``condition`` holds, in fp32 for all else: ``wide`` in words."""
    return (
        _state("codes", 2, "both moments in 8 bits", "bitsandbytes", _times(condition, elements)),
        _state("scales", 8, "fp32 scales of both moments, for every 256 elements", "bitsandbytes",
               _times(condition, _blocks)),
        _state("unquantised", 8, f"fp32 moments of {wide}", source, _unless(condition, elements)),
    )


def _adamw_8bit(name: str, size: int, source: str) -> tuple[State, ...]:
    return _bitsandbytes(_quantised_by_trainer, "embeddings and of tensors of less than 4096 elements", "transformers")


def _adamw_8bit_alone(name: str, size: int, source: str) -> tuple[State, ...]:
    return _bitsandbytes(_quantised, "tensors of less than 4096 elements", "bitsandbytes")


def _adamw_8bit_torchao(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("codes", 2, "both moments in 8 bits", "torchao", _times(_quantised_by_torchao, elements)),
        _state("scales", 8, "fp32 scales of both moments, for every 256 elements", "torchao",
               _times(_quantised_by_torchao, _blocks)),
        _state("tables", 2048, "fp32 tables of the 256 values of both moments, for every quantised tensor", "torchao",
               _times(_quantised_by_torchao, one)),
        _state("unquantised", 2 * size, f"{name} moments of tensors that are small or not of whole blocks", "torchao",
               _unless(_quantised_by_torchao, elements)),
    )


def _factored(weight: Weight) -> Expr:
    """Rows and columns of a matrix; vocabulary matrices are factored as well."""
    return weight.shape[0] + weight.shape[1] if len(weight.shape) == 2 else Integer(0)


def _unfactored(weight: Weight) -> Expr:
    return Integer(0) if len(weight.shape) == 2 else weight.elements


def _adafactor(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("statistics", 4, "fp32 second moments of the rows and columns of a matrix", "transformers", _factored),
        _state("variance", 4, "fp32 second moment of a vector", "transformers", _unfactored),
        _state("rms", 4, "fp32 root mean square of the parameter", "transformers", one),
    )


def _adafactor_torch(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("statistics", size, f"{name} second moments of the rows and columns of a matrix", "pytorch", _factored),
        _state("variance", size, f"{name} second moment of a vector", "pytorch", _unfactored),
    )


def _muon(name: str, size: int, source: str) -> tuple[State, ...]:
    return (
        _state("momentum", size, f"{name} momentum of a matrix", source, matrices(elements)),
        _state("exp_avg", size, f"{name} first moment of vectors and vocabulary matrices", source, others(elements)),
        _state("exp_avg_sq", size, f"{name} second moment of vectors and vocabulary matrices", source,
               others(elements)),
    )


def _momentum(name: str, size: int, source: str) -> tuple[State, ...]:
    return (_state("momentum", size, f"{name} momentum", source),)


def _nothing(name: str, size: int, source: str) -> tuple[State, ...]:
    return ()


@dataclass(frozen=True)
class Optimizer:
    """One optimizer: all that the ledger, the implementations and the readers of launch files know of it.

    ``states`` makes its states from name, bytes and source of a moment. ``frameworks`` are the implementations that
    have it. ``whole_tensors``: its states follow from whole tensors, so the distributed optimizer, which cuts through
    them, has none. ``shardable``: it works on the sharded matrices of FSDP2. ``parts``: it was counted on the parts of
    DeepSpeed's ZeRO, vectors that are cut through tensors. ``dealt``: each rank updates some whole parameters and
    gets the others. ``word``: the value of Megatron-LM's ``--optimizer``.
    """

    meaning: str
    states: Callable[[str, int, str], tuple[State, ...]]
    frameworks: tuple[str, ...]
    whole_tensors: bool = False
    shardable: bool = True
    parts: bool = True
    dealt: bool = False
    word: str = ""


_BOTH = ("megatron", "huggingface")

#: Every optimizer by name: the options of the axis ``optimizer``.
OPTIMIZERS: Mapping[str, Optimizer] = {
    "adamw": Optimizer(
        "two moments, as wide as the precision says", _adamw, (*_BOTH, "torchtitan", "nanotron"), word="adam"),
    "precision_aware": Optimizer(
        "AdamW of Transformer Engine: moments and master weights of any width (Megatron-Core)",
        _precision_aware, ("megatron",), shardable=False, parts=False),
    "precision_aware_core": Optimizer(
        "the same with fp32 master weights of Megatron-Core, which copies 16-bit gradients (Megatron-Bridge; FP8"
        " recipes but delayed scaling)",
        _precision_aware, ("megatron",), shardable=False, parts=False),
    "adamw_8bit": Optimizer(
        "bitsandbytes as Transformers' trainer makes it: moments in 8 bits, a scale for every 256; embeddings and small"
        " tensors in fp32",
        _adamw_8bit, ("huggingface",), whole_tensors=True, shardable=False),
    "adamw_8bit_alone": Optimizer(
        "bitsandbytes by itself: the same with embeddings in 8 bits (torchtune)",
        _adamw_8bit_alone, ("huggingface",), whole_tensors=True, shardable=False),
    "adamw_8bit_torchao": Optimizer(
        "torchao: moments in 8 bits for tensors of whole blocks, a table for each; others as in adamw",
        _adamw_8bit_torchao, ("huggingface",), whole_tensors=True),
    "adafactor": Optimizer(
        "Hugging Face Transformers: fp32 statistics of rows and columns, whole second moments of vectors",
        _adafactor, ("huggingface",), whole_tensors=True, shardable=False),
    "adafactor_torch": Optimizer(
        "PyTorch: the same as wide as the precision says",
        _adafactor_torch, ("huggingface",), whole_tensors=True, shardable=False),
    "muon": Optimizer(
        "one moment for matrices, AdamW for vectors and vocabulary matrices",
        _muon, _BOTH, whole_tensors=True, parts=False, word="muon"),
    "dist_muon": Optimizer(
        "muon whose parameters are dealt whole to the data-parallel ranks (Megatron-Core)",
        _muon, ("megatron",), whole_tensors=True, shardable=False, parts=False, dealt=True, word="dist_muon"),
    "sgd_momentum": Optimizer("one moment (SGD)", _momentum, _BOTH, word="sgd"),
    "sgd": Optimizer("nothing (SGD without momentum)", _nothing, _BOTH),
}

WHOLE_TENSORS = tuple(name for name, item in OPTIMIZERS.items() if item.whole_tensors)
NOT_SHARDED = tuple(name for name, item in OPTIMIZERS.items() if not item.shardable)
#: Optimizers whose moments are of any width.
ANY_WIDTH = tuple(name for name, item in OPTIMIZERS.items() if item.states is _precision_aware)
DEALT = tuple(name for name, item in OPTIMIZERS.items() if item.dealt)
IN_PARTS = tuple(name for name, item in OPTIMIZERS.items() if item.parts)


def optimizers_of(framework: str) -> tuple[str, ...]:
    """Return the optimizers that an implementation has."""
    return tuple(name for name, item in OPTIMIZERS.items() if framework in item.frameworks)


def optimizer_states(choices: Mapping[str, str]) -> tuple[State, ...]:
    """Return the states of the chosen optimizer in the chosen precision."""
    return OPTIMIZERS[choices["optimizer"]].states(*MOMENTS[choices["precision"]])
