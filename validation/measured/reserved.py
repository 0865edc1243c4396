"""A section of docs/validation.md: reserved memory by the formula of searches, its fit, and how near it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from shardmath.account.configured import configured
from shardmath.allocator.settings import Settings
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.steps.reserved import replayed_rank
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.reserved import BEYOND, KINDS, PER, Share
from validation.measured import nanotron, simumax, stages, torchtitan
from validation.measured.case import RESERVED, Case
from validation.measured.sections import paragraph
from validation.tables import markdown

Floats = NDArray[np.float64]
#: Candidates of the weight of a moment, per mille.
WEIGHTS = range(0, 1501, 10)
#: Kinds of layouts that choose the weight: with more tensor-parallel ranks, runs that differ in DP alone spread most.
CHOOSING = 2
#: Share of the sizes beyond each end of a range.
ENDS = 0.05
#: Rows from which on a kind of layout has a range of its own.
FEWEST = 10
#: Name of torchtitan where saved tensors alone are counted, without moments of a step.
SAVED = "torchtitan, saved tensors"
#: Layouts of torchtitan that are replayed for the fit.
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b")
#: Data-parallel ranks, sequence length, sequences of a micro-batch, micro-batches.
BATCHES = ((8, 4096, 1, 1), (64, 8192, 2, 2))
MODES = ("none", "selective", "full")


@dataclass(frozen=True)
class Row:
    """One size to predict, in bytes: what is allocated, what the moment has, and what is reserved.

    ``streams``: largest moments of all streams, which is what is allocated where one stream has all memory.
    """

    stack: str
    group: str
    kind: int
    allocated: int
    streams: int
    moment: int
    reserved: int


@dataclass(frozen=True)
class Fitted:
    """Weight of the moment and share of each kind, per mille."""

    weight: int
    shares: tuple[int, ...]

    def predicted(self, rows: Sequence[Row]) -> Floats:
        """Return predicted over reserved bytes of rows."""
        return np.array([(self.shares[row.kind] * row.streams + self.weight * row.moment) / int(PER) / row.reserved
                         for row in rows])


def kind_of(tensor_parallel: int) -> int:
    """Return the number of the kind of a layout."""
    return sum(tensor_parallel >= start for start in KINDS.values()) - 1


@cache
def rows() -> tuple[Row, ...]:
    """Return all rows that are fitted to: measured ones, and replays of torchtitan, for two ways to count its peak."""
    return (*_measured(simumax.read(quantity=RESERVED)), *_measured(nanotron.read()),
            *sorted(_replays(), key=lambda row: row.stack))


def judged() -> tuple[Row, ...]:
    """Return torchtitan's measured runs in bf16, which nothing is fitted to."""
    return tuple(_measured(case for case in torchtitan.read() if case.group != torchtitan.FLOAT8))


def _measured(cases: Sequence[Case] | Iterator[Case]) -> Iterator[Row]:
    for case in cases:
        for measured in case.measured:
            if measured.quantity == RESERVED and case.model is not None:
                try:
                    yield _row(case.model, case, measured.rank or 0, measured.bytes)
                except InputError:
                    break


def _row(model: Model, case: Case, rank: int, reserved: int) -> Row:
    job = configured(model, case.gpu, **case.arguments).job
    numbers, stack = terms_at(job.evaluator.terms, job.on_rank(rank)), job.evaluator.implementation
    return Row(stack, f"{model.name}, {job.values['num_gpus']} GPUs", kind_of(job.values["tensor_parallel"]),
               *_parts(stack, numbers), reserved)


def _parts(stack: str, numbers: Mapping[str, int | Fraction]) -> tuple[int, int, int]:
    """Return what is allocated, the largest moments of all streams, and the moment, in bytes."""
    allocated = int(numbers["process.allocated"])
    return (allocated, allocated + int(numbers.get(BEYOND, 0)),
            sum(int(numbers.get(f"stage.{name}", 0)) for name in IMPLEMENTATIONS[stack].reserved.moment))


def _replays() -> Iterator[Row]:
    for name, tensor, (data, length, batch, count), mode in product(MODELS, (1, 2, 8), BATCHES, MODES):
        jobs = [configured(
            name, "h100-80gb", implementation="torchtitan", tensor_parallel=tensor, num_gpus=tensor * data,
            seq_length=length, micro_batch_size=batch, global_batch_size=batch * data * count,
            recompute=mode, kernels={"peak": peak},
        ).job for peak in ("torch", "saved")]
        (numbers, values), (saved, _) = (
            (terms_at(job.evaluator.terms, job.on_rank(0)), job.on_rank(0)) for job in jobs)
        reserved = replayed_rank(jobs[0].evaluator, values, numbers, Settings()).reserved_bytes
        for stack, account in (("torchtitan", numbers), (SAVED, saved)):
            yield Row(stack, name, kind_of(tensor), *_parts("torchtitan", account), reserved)


def fitted(own: Sequence[Row]) -> Fitted:
    """Find the weight and the shares with the least sum of errors, by trying all weights."""
    streams, moment, reserved, kind = (np.array([getattr(row, name) for row in own], dtype=np.float64)
                                       for name in ("streams", "moment", "reserved", "kind"))
    best = (np.inf, Fitted(0, ()))
    for weight in WEIGHTS if moment.any() else (0,):
        shares, total = [], 0.0
        for place in range(len(KINDS)):
            mine = kind == place
            rest = (reserved - weight / int(PER) * moment)[mine]
            share = max(int(PER), round(int(PER) * _median(rest / streams[mine], (streams / reserved)[mine])))
            shares.append(share)
            if place < CHOOSING:
                total += float(np.abs((share / int(PER) * streams[mine] - rest) / reserved[mine]).sum())
        best = min(best, (total, Fitted(weight, tuple(shares))), key=lambda item: item[0])
    return best[1]


def _median(numbers: Floats, weights: Floats) -> float:
    """Return the number with half of the weight below it: no other has a smaller weighted sum of distances."""
    order = np.argsort(numbers, kind="stable")
    below = np.cumsum(weights[order])
    return float(numbers[order][np.searchsorted(below, below[-1] / 2)])


def reserved_of(own: Sequence[Row], constants: Fitted) -> tuple[Share, ...]:
    """Return the shares with their ranges, as the ledger has them; kinds of few rows have the range of all."""
    shares = []
    for place, usual in enumerate(constants.shares):
        mine = [row for row in own if row.kind == place]
        over = sorted(1000 / constants.predicted(mine if len(mine) >= FEWEST else own))
        beyond = int(ENDS * (len(over) - 1))
        low, high = over[beyond], over[-1 - beyond]
        shares.append(Share(usual, min(int(PER), floor(low)), max(int(PER), ceil(high))))
    return tuple(shares)


def left_out(own: Sequence[Row]) -> Floats:
    """Return predicted over reserved bytes, each group of rows predicted with constants fitted to the others."""
    over = np.zeros(len(own))
    groups = np.array([row.group for row in own])
    for group in dict.fromkeys(groups.tolist()):
        without = groups == group
        constants = fitted([row for row, out in zip(own, without, strict=True) if not out])
        over[without] = constants.predicted([row for row, out in zip(own, without, strict=True) if out])
    return over


def section() -> str:
    """Return the section. Raises ValueError if the constants of the ledger are not those that the rows give."""
    lines, words = [], []
    for stack in dict.fromkeys(row.stack for row in rows()):
        own = [row for row in rows() if row.stack == stack]
        constants, known = fitted(own), IMPLEMENTATIONS[stack.split(",")[0]].reserved
        fresh = reserved_of(own, constants), constants.weight
        shares, weight = (known.saved, 0) if stack == SAVED else (known.shares, known.weight)
        if (shares, weight) != fresh:
            raise ValueError(f"symbolic/implementations.py has {shares, weight} for {stack}, the rows give {fresh}")
        over, out = constants.predicted(own), left_out(own)
        for place, (name, share) in enumerate(zip(KINDS, shares, strict=True)):
            mine = np.array([row.kind == place for row in own])
            flat = [1.03 * row.allocated / row.reserved for row in own if row.kind == place]
            lines.append((stack, name, int(mine.sum()), share.usual, f"{share.low} to {share.high}",
                          *map(_median_error, (over[mine], out[mine])), f"{_near(out[mine]):.1%}",
                          _median_error(np.array(flat))))
        if weight:
            names = " and ".join(f"`stage.{name}`" for name in known.moment)
            words.append(f"{weight} per 1000 bytes of {names} with {stack}")
    return "\n\n".join([
        "## Reserved memory by a formula",
        paragraph(f"""A replay is too slow for a search. Sweeps, `recommend` and `process.reserved` take a share of what
        is allocated, by framework and tensor-parallel ranks, and of what one moment holds that finds no freed block of
        its size: {'; '.join(words)}. With FSDP2 it is a share of the largest moments of three streams, each by itself,
        as none can use the memory of another: the default one's, that of gathers and that of reductions, all counted
        to the byte. Megatron-Core's shares are fitted to SimuMax's runs, nanotron's to the playbook's, torchtitan's to
        replays of {sum(row.stack == 'torchtitan' for row in rows())} layouts, and once more against saved tensors
        alone (`peak=saved`), which is all that is counted of its experts. *Left out*
        predicts each group of rows (a model, with nanotron on a number of GPUs) with constants fitted to the others;
        the last columns are of that, and of allocated memory times 1.03. Hugging Face has Megatron-Core's shares,
        which [its own runs](#transformers-on-one-h100) do not change yet. The range holds nine of ten sizes, per 1000
        predicted."""),
        markdown(("framework", "layouts", "rows", "share per 1000", "range", "median error", "left out",
                  "left out: within 10 %", "x 1.03"), lines),
        *stages.parts(),
        paragraph(f"""torchtitan's measured runs in bf16, which nothing is fitted to:
        {', '.join(f'{over - 1:+.1%}' for over in _torchtitan().predicted(judged()))}, the first and third without
        `torch.compile`. With TP of 4 and more, nanotron's runs that differ in DP alone spread so far that no formula
        can be right."""),
    ])


def _torchtitan() -> Fitted:
    known = IMPLEMENTATIONS["torchtitan"].reserved
    return Fitted(known.weight, tuple(share.usual for share in known.shares))


def _median_error(over: Floats) -> str:
    return f"{np.median(np.abs(over - 1)):.1%}"


def _near(over: Floats) -> float:
    return float(np.mean(np.abs(over - 1) <= 0.1))
