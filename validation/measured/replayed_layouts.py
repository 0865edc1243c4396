"""Layouts whose replayed steps stand for measured runs: those that constants are fitted to, and drawn ones that judge.

No layout that judges is one of the others: lengths and numbers of GPUs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, product
from random import Random
from typing import Any

from shardmath.account.configured import configured
from shardmath.allocator.settings import Settings
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.reserved import replayed_rank

GPU = "h100-80gb"
#: Drawn layouts that judge the constants of an implementation.
JUDGING = 80
#: Tokens of a micro-batch up to which they are few.
FEW = 1024
#: Ways to count a peak: with all moments of PyTorch's own step, and saved tensors alone.
PEAKS = ("torch", "saved")

Layout = Mapping[str, Any]


@dataclass(frozen=True)
class Layouts:
    """Layouts of an implementation, as arguments of ``configured``.

    ``fitting`` are those that constants are fitted to, for each way to count a ``fitted`` peak; ``draw`` draws another
    one.
    """

    fitting: tuple[Layout, ...]
    draw: Callable[[Random], Layout]
    fitted: tuple[str, ...] = PEAKS


@dataclass(frozen=True)
class Step:
    """A replayed step: its layout, its terms by the way to count its peak, and what it reserves, in bytes."""

    layout: Layout
    terms: Mapping[str, Mapping[str, int | Fraction]]
    reserved: int

    @property
    def has_few_tokens(self) -> bool:
        """True if a micro-batch has few tokens, beside which weights and gradients are large."""
        return bool(self.layout["micro_batch_size"] * self.layout["seq_length"] <= FEW)

    @property
    def group(self) -> str:
        """The kind of data parallelism and of batch, in words."""
        few, kind = self.has_few_tokens, {"ddp": "DDP", "fsdp": "FSDP2"}[self.layout["kernels"]["data_parallel"]]
        return f"{kind}, {'up to' if few else 'more than'} {FEW:,} tokens"


def _layout(implementation: str, model: str, tensor: int, batch: tuple[int, int, int, int], mode: str,
            **kernels: str) -> Layout:
    """Return a layout; ``batch``: data-parallel ranks, sequence length, sequences of a micro-batch, micro-batches."""
    data, length, sequences, count = batch
    return {"model": model, "implementation": implementation, "tensor_parallel": tensor, "num_gpus": tensor * data,
            "seq_length": length, "micro_batch_size": sequences, "global_batch_size": sequences * data * count,
            "recompute": mode, "kernels": kernels}


_MODELS = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b")
_BATCHES = ((8, 4096, 1, 1), (64, 8192, 2, 2), (256, 512, 1, 1))
#: Kinds of data parallelism and precision of weights that are replayed in Hugging Face: FSDP2 with one unit outside of
#: the layers.
_ONE_UNIT = {"data_parallel": "fsdp", "units": "root"}
_SHARDED = ({"data_parallel": "ddp", "precision": "bf16"}, {**_ONE_UNIT, "precision": "bf16"},
            {**_ONE_UNIT, "precision": "mixed"})


def _batch(draw: Random) -> tuple[int, int, int, int]:
    """Draw a batch: as often few tokens on many ranks as many tokens."""
    if draw.random() < 0.5:
        return draw.choice((32, 128, 512)), draw.choice((256, 384, 768, 1024)), 1, draw.choice((1, 1, 2))
    length, sequences = draw.choice((1536, 2048, 3072, 6144)), draw.choice((1, 2, 4))
    return draw.choice((2, 4, 16, 32)), length, sequences, draw.choice((1, 1, 2))


def _of_torchtitan(draw: Random) -> Layout:
    return _layout("torchtitan", draw.choice(("llama-3.2-3b", *_MODELS)), draw.choice((1, 1, 2, 4, 8)), _batch(draw),
                   draw.choice(("none", "selective", "full")), data_parallel="fsdp",
                   reshard=draw.choice(("default", "default", "always")))


def _of_hugging_face(draw: Random) -> Layout:
    models = (*_MODELS, "llama-3.2-3b", "llama-2-13b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-0.6b", "qwen3-14b",
              "qwen3-32b")
    sharded = draw.choice((*_SHARDED, *_SHARDED[1:]))
    return _layout("huggingface", draw.choice(models), 1, _batch(draw), draw.choice(("none", "full")), **sharded)


#: Implementations whose steps are replayed for a fit.
LAYOUTS: dict[str, Layouts] = {
    "torchtitan": Layouts(tuple(
        _layout("torchtitan", model, tensor, batch, mode, data_parallel="fsdp")
        for model, tensor, batch, mode in product(_MODELS, (1, 2, 8), _BATCHES, ("none", "selective", "full"))
    ), _of_torchtitan),
    "huggingface": Layouts(tuple(
        _layout("huggingface", model, 1, batch, mode, **sharded)
        for model, sharded, batch, mode in product(_MODELS, _SHARDED, _BATCHES, ("none", "full"))
    ), _of_hugging_face, ("torch",)),
}


def replayed(layout: Layout) -> Step:
    """Replay a step of the first rank. Raises InputError for one that is not replayed."""
    jobs = {peak: configured(gpu=GPU, **{**layout, "kernels": {**layout["kernels"], "peak": peak}}).job
            for peak in PEAKS}
    terms = {peak: terms_at(job.evaluator.terms, job.on_rank(0)) for peak, job in jobs.items()}
    own = jobs["torch"]
    step = replayed_rank(own.evaluator, own.on_rank(0), terms["torch"], Settings())
    return Step(layout, terms, step.reserved_bytes)


@cache
def fitting(implementation: str) -> tuple[Step, ...]:
    """Return the steps that constants are fitted to."""
    return tuple(map(replayed, LAYOUTS[implementation].fitting))


@cache
def judging(implementation: str) -> tuple[Step, ...]:
    """Return drawn steps; those that are not replayed are drawn anew."""
    return tuple(islice(_drawn(implementation), JUDGING))


def _drawn(implementation: str) -> Iterator[Step]:
    draw = Random(11)
    while True:
        try:
            yield replayed(LAYOUTS[implementation].draw(draw))
        except InputError:
            continue
