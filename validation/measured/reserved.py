"""A section of docs/validation.md: reserved memory by the formula of searches, its fit, and how near it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from shardmath.account.configured import configured
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.reserved import BEYOND, KINDS, PER, Share
from validation.measured import replayed_layouts, stages
from validation.measured.case import RESERVED, Case
from validation.measured.replayed_layouts import FEW, LAYOUTS, PEAKS, Step
from validation.measured.sections import paragraph
from validation.measured.sets import nanotron, simumax, torchtitan
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
#: Words behind the name of an implementation for each way to count a peak, by saved tensors alone or by all moments.
SAVED = {"torch": "", "saved": ", saved tensors"}
#: How often an error on the low side counts in a fit to replays: what does not fit costs more than what is too small.
LOW = 2
#: An error on the low side that is told, of a drawn layout.
TOO_LOW = 0.05


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
    """Return all rows that are fitted to: measured ones, and replays, for two ways to count their peaks."""
    return (*_measured(simumax.read(quantity=RESERVED)), *_measured(nanotron.read()),
            *(row for stack, layouts in LAYOUTS.items() for peak in layouts.fitted
              for row in _replays(stack, peak, [
                  step for step in replayed_layouts.fitting(stack) if peak == "torch" or not step.has_few_tokens])))


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


def _replays(stack: str, peak: str, steps: Sequence[Step], by_group: bool = False) -> Iterator[Row]:
    """Yield rows of replayed steps for a way to count their peaks; ``by_group``: not by model."""
    for step in steps:
        yield Row(stack + SAVED[peak], step.group if by_group else step.layout["model"],
                  kind_of(step.layout["tensor_parallel"]), *_parts(stack, step.terms[peak]), step.reserved)


def fitted(own: Sequence[Row], low: int = 1) -> Fitted:
    """Find the weight and the shares with the least sum of errors, by trying all weights.

    An error on the low side counts ``low`` times.
    """
    streams, moment, reserved, kind = (np.array([getattr(row, name) for row in own], dtype=np.float64)
                                       for name in ("streams", "moment", "reserved", "kind"))
    best = (np.inf, Fitted(0, ()))
    for weight in WEIGHTS if moment.any() else (0,):
        shares: list[int] = []
        total = 0.0
        for place in range(len(KINDS)):
            mine = kind == place
            if not mine.any():  # of an implementation without tensor parallelism
                shares.append(shares[-1])
                continue
            rest = (reserved - weight / int(PER) * moment)[mine]
            share = max(int(PER), round(int(PER) * _cheapest(rest / streams[mine], (streams / reserved)[mine], low)))
            shares.append(share)
            if place < CHOOSING:
                error = (share / int(PER) * streams[mine] - rest) / reserved[mine]
                total += float(np.where(error < 0, -low * error, error).sum())
        best = min(best, (total, Fitted(weight, tuple(shares))), key=lambda item: item[0])
    return best[1]


def _cheapest(numbers: Floats, weights: Floats, low: int) -> float:
    """Return the number with the least weighted sum of distances, of which those to larger ones count ``low`` times.

    That is the median if ``low`` is 1.
    """
    order = np.argsort(numbers, kind="stable")
    below = np.cumsum(weights[order])
    return float(numbers[order][np.searchsorted(below, below[-1] * low / (1 + low))])


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


def left_out(own: Sequence[Row], low: int = 1) -> Floats:
    """Return predicted over reserved bytes, each group of rows predicted with constants fitted to the others."""
    over = np.zeros(len(own))
    groups = np.array([row.group for row in own])
    for group in dict.fromkeys(groups.tolist()):
        without = groups == group
        constants = fitted([row for row, out in zip(own, without, strict=True) if not out], low)
        over[without] = constants.predicted([row for row, out in zip(own, without, strict=True) if out])
    return over


def section() -> str:
    """Return the section. Raises ValueError if the constants of the ledger are not those that the rows give."""
    lines, words = [], []
    for stack in dict.fromkeys(row.stack for row in rows()):
        own, low = [row for row in rows() if row.stack == stack], _low(stack)
        constants, known = fitted(own, low), IMPLEMENTATIONS[name_of(stack)].reserved
        fresh = reserved_of(own, constants), constants.weight
        shares, weight = (known.saved, 0) if stack.endswith(SAVED["saved"]) else (known.shares, known.weight)
        if (shares, weight) != fresh:
            raise ValueError(f"symbolic/implementations.py has {shares, weight} for {stack}, the rows give {fresh}")
        over, out = constants.predicted(own), left_out(own, low)
        for place, (name, share) in enumerate(zip(KINDS, shares, strict=True)):
            mine = np.array([row.kind == place for row in own])
            if not mine.any():
                continue
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
        to the byte. Megatron-Core's shares are fitted to SimuMax's runs, nanotron's to the playbook's,
        {' and '.join(f"those of {stack} to replays of {len(layouts.fitting)} layouts" for stack, layouts
                      in LAYOUTS.items())}, a third of them with few tokens; an error on the low side counts twice
        there. torchtitan's are fitted once more against saved tensors alone (`peak=saved`), without few tokens, which
        is all that is counted of its experts; with adapters and with ZeRO-3, of which no drawn layout is, Hugging Face
        has Megatron-Core's. *Left out* predicts each group of rows (a model, with
        nanotron on a number of GPUs) with constants fitted to the others; the last columns are of that, and of
        allocated memory times 1.03. The range holds nine of ten sizes, per 1000 predicted."""),
        markdown(("framework", "layouts", "rows", "share per 1000", "range", "median error", "left out",
                  "left out: within 10 %", "x 1.03"), lines),
        *_judged_parts(),
        *stages.parts(),
        paragraph(f"""torchtitan's measured runs in bf16, which nothing is fitted to:
        {', '.join(f'{over - 1:+.1%}' for over in _known('torchtitan').predicted(judged()))}, the first and third
        without `torch.compile`. With TP of 4 and more, nanotron's runs that differ in DP alone spread so far that no
        formula can be right."""),
    ])


def _judged_parts() -> tuple[str, ...]:
    """Return a paragraph and a table: drawn layouts that no constant is fitted to, by the formula beside the replay."""
    lines = []
    for stack in LAYOUTS:
        for peak in PEAKS:
            drawn = tuple(_replays(stack, peak, replayed_layouts.judging(stack), by_group=True))
            for group in sorted({row.group for row in drawn}):
                own = [row for row in drawn if row.group == group]
                over = _known(own[0].stack).predicted(own)
                lines.append((own[0].stack, group, len(own), _median_error(over), f"{over.min() - 1:+.1%}",
                              f"{over.max() - 1:+.1%}", f"{np.mean(over < 1 - TOO_LOW):.1%}"))
    return paragraph(f"""Constants of replays are judged by {replayed_layouts.JUDGING} other layouts each, drawn with
        other lengths, numbers of GPUs and models, half of them with up to {FEW:,} tokens on many GPUs. Such steps leave
        few freed blocks in which gradients outside of the layers find room. *Too low* is the share of layouts whose
        reserved memory is more than {TOO_LOW:.0%} above the formula's. Saved tensors alone lack most of such a step.
        None has adapters, ZeRO-3, FSDP1 or pipelines: their constants are those that stand here."""), markdown(
        ("framework", "layouts", "rows", "median error", "lowest", "highest", "too low"), lines)


def name_of(stack: str) -> str:
    """Return the implementation of rows."""
    return stack.removesuffix(SAVED["saved"])


def _low(stack: str) -> int:
    """Return how often an error on the low side counts: more often where layouts are chosen, not found as they are."""
    return LOW if name_of(stack) in LAYOUTS else 1


def _known(stack: str) -> Fitted:
    """Return the constants of the ledger."""
    known = IMPLEMENTATIONS[name_of(stack)].reserved
    if stack.endswith(SAVED["saved"]):
        return Fitted(0, tuple(share.usual for share in known.saved))
    return Fitted(known.weight, tuple(share.usual for share in known.shares))


def _median_error(over: Floats) -> str:
    return f"{np.median(np.abs(over - 1)):.1%}"


def _near(over: Floats) -> float:
    return float(np.mean(np.abs(over - 1) <= 0.1))
