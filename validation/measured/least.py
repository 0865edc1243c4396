"""The least memory with which the steps of known runs replay, retries included: a file, and a section of the page.

PyTorch raises an error only when a request fails after all free segments went back to the driver. So a run that is
counted exactly fails where this least is more than the GPU has. All rows take minutes: the page reads the file, which
``make validate`` writes anew, and a test replays some of its rows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from io import StringIO
from pathlib import Path

from shardmath.account.accounting import explanation
from shardmath.account.configured import Configuration, configured
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import Event, replay
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.generated.definitions import run_out_probability
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.reserved import PER
from shardmath.symbolic.run_out import FITS_BELOW, OFFERED
from validation import beside_recipes
from validation.estimates import arguments_of
from validation.measured.case import OUT_OF_MEMORY
from validation.measured.claims import check
from validation.measured.outcomes import FUJII, Outcome, brier, chances, fitted
from validation.measured.sections import paragraph
from validation.measured.sets import hagemann, known_to_run
from validation.runs import GPU, MODEL, read
from validation.tables import markdown

NAME = "least.csv"
FILE = Path(__file__).resolve().parents[2] / "docs" / "validation" / NAME
HAGEMANN, RECIPES = "hagemann", "recipes"
#: The least is known to this share of it, or to so many bytes; longer traces are replayed without a bound only.
NEAR, STEP, LONG = 0.006, 2**25, 60_000

#: NVIDIA's recipes that need more than the GPU offers, by the run.
_OF_NVIDIA = {"nemo-rec/h100-14": "Llama 3 8B on 8 H100", "nemo-rec/h100-25": "Nemotron-4 340B on 256"}
_HEADS = ("bytes", "least share of a failed run", "trained runs below it", "fitted to Hagemann, Brier score of Fujii",
          "fitted to Fujii, Brier score of Hagemann")


@dataclass(frozen=True)
class Least:
    """A run and its fullest rank, in bytes; replayed ones are 0 where its steps are not replayed."""

    table: str
    run: str
    ran_out: int
    memory: int
    allocated: int
    process: int
    beside: int
    reserved: int
    least: int

    @property
    def formula(self) -> int:
        """Reserved bytes by the formula of searches."""
        return self.process - self.beside

    def outcome(self, bytes: int) -> Outcome:
        """Return the run as one whose process has ``bytes`` beside those outside of PyTorch."""
        return Outcome(self.table, self.allocated, bytes + self.beside, self.memory, bool(self.ran_out))


#: Bytes that may decide if a run fails, by words.
PREDICTORS: Mapping[str, Callable[[Least], int]] = {
    "allocated": lambda run: run.allocated, "reserved, by the formula": lambda run: run.formula,
    "reserved, replayed": lambda run: run.reserved, "least that replays": lambda run: run.least,
}


def _runs() -> Iterator[tuple[str, str, bool, Configuration]]:
    for run in read():
        if run.data_parallel is not None and run.status != "not_run":
            yield FUJII, f"{run.num_gpus} GPUs, {run.layout}", run.status == "dash", configured(
                MODEL, GPU, **arguments_of(run))
    for case in hagemann.read():
        assert case.model is not None
        yield HAGEMANN, case.id, case.status == OUT_OF_MEMORY, configured(case.model, case.gpu, **case.arguments)
    recipes = {case.id: case for case in known_to_run.read()}
    for name in beside_recipes.SITUATIONS:
        case = recipes[name]
        assert case.model is not None
        yield RECIPES, name, False, configured(case.model, case.gpu, **beside_recipes.arguments_of(case))


def replayed() -> str:
    """Replay every run that may fit; return the text of the file. Runs that cannot be allocated are left out."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Least))
    for run in _runs():
        if (answer := least_of(*run)) is not None:
            writer.writerow(astuple(answer))
    return text.getvalue()


def least_of(table: str, run: str, ran_out: bool, configuration: Configuration) -> Least | None:
    """Replay the fullest rank of a run; None where more is allocated than the GPU has."""
    account, job = explanation(configuration), configuration.job
    memory, allocated = account.gpu.memory_bytes, account.peak.total
    if allocated > memory:
        return None
    values = job.on_rank(account.peak_rank)
    numbers = terms_at(job.evaluator.terms, values)
    sizes = memory, allocated, account.process.total, int(numbers["process.beside"])
    try:
        refuse_unreplayed_job(job)
    except InputError:
        return Least(table, run, int(ran_out), *sizes, 0, 0)
    group = values["microbatch_group"] or values["pipeline_parallel"]
    steps = Steps(Rows.of(job.evaluator, values, numbers), job.evaluator.choices["schedule"], group)
    events = steps.run()
    reserved = replay(events, Settings()).reserved_peak
    return Least(table, run, int(ran_out), *sizes, reserved, _least(events, steps.trace.peak, reserved))


def _least(events: Sequence[Event], low: int, high: int) -> int:
    """Find the least memory with which a trace replays, between what it allocates and what it reserves at will."""
    if len(events) >= LONG:
        return 0
    while high - low > max(STEP, NEAR * high):
        middle = (low + high) // 2
        if replay(events, Settings(capacity_bytes=middle)).failed_at is None:
            high = middle
        else:
            low = middle
    return high


@cache
def stored() -> tuple[Least, ...]:
    """Return the runs of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Least(row["table"], row["run"], *(int(row[field.name]) for field in fields(Least)[2:]))
                     for row in csv.DictReader(file))


def section() -> str:
    """Return the section. Raises ValueError if a sentence in it would not be true."""
    known = [run for run in stored() if run.table != RECIPES and run.least]
    recipes = [run for run in stored() if run.table == RECIPES]
    trained, failed = ([run for run in known if run.ran_out == out] for out in (0, 1))
    judged = {words: _judged(known, bytes) for words, bytes in PREDICTORS.items()}
    formula, least = judged["reserved, by the formula"], judged["least that replays"]
    edge = [run for run in recipes if _chance(run, run.formula) >= FITS_BELOW]
    first = min(edge, key=_share)
    tight = float(OFFERED) / (max(share.high for share in MEGATRON.reserved.shares) / int(PER))
    likelier = [run for run in edge if run.least and _chance(run, run.least) > _chance(run, run.formula)]
    check({
        "the least tells most apart": least.below == max(own.below for own in judged.values()) > formula.below,
        "curves of it are worse together": sum(least.scores) > sum(formula.scores),
        "some recipes need more, some less": 0 < len(likelier) < sum(run.least > 0 for run in edge),
        "none would fit with the least": all(_chance(run, run.least) >= FITS_BELOW for run in edge if run.least),
        "every recipe that does not fit needs more than a failed run": all(_beyond(failed, run) for run in edge),
    })
    return "\n\n".join([
        "## What a run needs at least",
        paragraph(f"""PyTorch raises an error only when a request fails after all free segments went back to
        the driver. So the limit of a run is neither what it allocates nor what it reserves where there is room, but the
        least memory with which its steps replay, retries included. [The file](validation/{NAME}) has it for
        {len(known)} runs of Fujii and Hagemann that may fit, {len(failed)} of which failed. Each line below takes one
        kind of bytes, adds those outside of PyTorch, and fits a curve to one of the two papers, which the
        other judges."""),
        markdown(_HEADS, [(words, f"{own.least:.1%}", f"{own.below} of {len(trained)}",
                           *(f"{score:.4f}" for score in own.scores)) for words, own in judged.items()]),
        paragraph(f"""The least tells most runs apart: {least.below} of {len(trained)} trained ones need less
        than every failed one, by the formula {formula.below}. Yet curves of it that are fitted to one paper are worse
        for the other, both together: Hagemann's framework is their own, and {_too_large(trained)} of the runs that
        trained there would need more than the GPU offers. So the probability stays as it is, by the formula, which
        searches can pay too."""),
        "### Recipes that ran, and why they do not fit",
        paragraph(f"""{len(edge)} of the {len(recipes)} [recipes beside the fastest
        layouts](beside-recipes.md) have a probability above {float(FITS_BELOW):.0%}. Below are the parts, as shares of
        the GPU's memory. Where steps are replayed, the least is {_between(recipes)} beyond what is allocated. With it
        in place of the formula {len(likelier)} of {sum(run.least > 0 for run in edge)} would be likelier to run out,
        the others less, and none would fit: neither what is reserved nor what lies outside decides, but the curve, and
        that is made by runs which failed with less. The last column counts those of Fujii and Hagemann whose process is
        predicted to take a smaller share than the recipe's. {', '.join(run.run for run in _above(recipes))} would
        need more than the GPU offers: Meta's own program, read as Megatron-LM, and NVIDIA's recipes for
        {' and '.join(f"{words} ({_lacking(recipes, run):.1%} of the memory)" for run, words in _OF_NVIDIA.items())}.
        Their rows say nothing of the allocator's settings."""),
        markdown(("recipe", "allocated", "reserved: formula", "replayed", "least", "outside", "runs out",
                  "with the least", "failed with less"), [_line(run, failed) for run in recipes]),
        paragraph(f"""A limit that lets the first of them fit, {first.run}, would be at {_share(first):.1%}
        and say *fits* to {_beyond(failed, first)} of the {len(failed)} failed runs. The spread of Megatron-Core's own
        reserved memory, as [measured](#reserved-memory-by-a-formula), is far smaller: with it alone the limit would be
        at {tight:.1%}, and {sum(_share(run) <= tight for run in failed)} failed runs would fit. {_of_fujii(failed)} No
        failed run of the recipes' programs is in the tables, and without failures nobody can say how near the edge they
        are: `--risk` is for those who can try."""),
    ])


@dataclass(frozen=True)
class _Judged:
    """The share of the memory that the least failed run needs, trained runs below it, and scores of the papers."""

    least: float
    below: int
    scores: tuple[float, float]


def _judged(known: Sequence[Least], bytes: Callable[[Least], int]) -> _Judged:
    share = {run: (bytes(run) + run.beside) / run.memory for run in known}
    edge = min(share[run] for run in known if run.ran_out)
    own = {table: [run.outcome(bytes(run)) for run in known if run.table == table] for table in (FUJII, HAGEMANN)}
    return _Judged(edge, sum(share[run] < edge for run in known if not run.ran_out), (
        _score(own[HAGEMANN], own[FUJII]), _score(own[FUJII], own[HAGEMANN])))


def _score(fitted_to: Sequence[Outcome], judges: Sequence[Outcome]) -> float:
    return brier(chances(judges, fitted(fitted_to)), judges)


def _share(run: Least) -> float:
    return run.process / run.memory


def _chance(run: Least, reserved: int) -> float:
    return run_out_probability(run.allocated, reserved + run.beside, run.memory)


def _beyond(failed: Sequence[Least], run: Least) -> int:
    """Count the failed runs whose process takes a smaller share of the memory than that of a run."""
    return sum(_share(other) < _share(run) for other in failed)


def _too_large(trained: Sequence[Least]) -> int:
    """Count the trained runs whose least is more than the GPU offers; all are Hagemann's."""
    large = [run for run in trained if run.least + run.beside > OFFERED * run.memory]
    check({"they are Hagemann's": {run.table for run in large} == {HAGEMANN}})
    return len(large)


def _above(recipes: Sequence[Least]) -> list[Least]:
    """Return the recipes whose least is more than the GPU offers; all but NVIDIA's are of the Llama 3 paper."""
    above = [run for run in recipes if run.least + run.beside > OFFERED * run.memory]
    of_nvidia = [run.run for run in above if not run.run.startswith("llama3-paper")]
    check({"some are NVIDIA's, the others of the paper": of_nvidia == [*_OF_NVIDIA] and len(above) > len(of_nvidia)})
    return above


def _lacking(recipes: Sequence[Least], name: str) -> float:
    """Return the share of the memory that a recipe needs beyond what the GPU offers."""
    run, = (run for run in recipes if run.run == name)
    lacking: float = (run.least + run.beside) / run.memory - float(OFFERED)
    return lacking


def _of_fujii(failed: Sequence[Least], share: float = 0.8) -> str:
    """Say what the failed runs of Megatron-LM with little memory have in common."""
    early = [run for run in failed if run.table == FUJII and _share(run) < share]
    check({"they split the sequence": all("CP 1," not in run.run for run in early)})
    return (f"Fujii's are of Megatron-LM too: {len(early)} of them failed below {share:.0%}. All of these split the"
            " sequence over GPUs, and the authors say that some are older than the setting"
            " `TORCH_NCCL_AVOID_RECORD_STREAMS`, but not which, so none is excused.")


def _between(recipes: Sequence[Least]) -> str:
    over = [run.least / run.allocated - 1 for run in recipes if run.least]
    return f"{min(over):.1%} to {max(over):.1%}"


def _line(run: Least, failed: Sequence[Least]) -> tuple[object, ...]:
    sizes = [f"{size / run.memory:.1%}" if size else "" for size in (
        run.allocated, run.formula, run.reserved, run.least, run.beside)]
    least = f"{_chance(run, run.least):.1%}" if run.least else ""
    return run.run, *sizes, f"{_chance(run, run.formula):.1%}", least, _beyond(failed, run)
