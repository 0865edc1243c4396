"""``python -m validation.beside_recipes``: published recipes beside the fastest layouts, as docs/beside-recipes.md."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from shardmath import Explanation, explain, sweep
from shardmath.account.time import as_fast
from shardmath.models.model import Model
from shardmath.reports.sizes import in_words
from shardmath.search.sizes import AXES, FOLLOWING, as_arguments_of_explain
from validation.measured.case import Case
from validation.measured.reading import rows
from validation.measured.sets import known_to_run as known
from validation.pages import settle
from validation.tables import markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "beside-recipes.md"
#: Rows of the table of recipes: pre-training in 16 bits with ZeRO-1, and Llama 3.1 405B as Meta trained it.
SITUATIONS = (
    "nemo-rec/h100-8", "nemo-rec/h100-10", "nemo-rec/h100-12", "nemo-rec/h100-14", "nemo-rec/h100-16",
    "nemo-rec/h100-17", "nemo-rec/h100-19", "nemo-rec/h100-21", "nemo-rec/h100-23", "nemo-rec/h100-25",
    "nemo-rec/h100-45", "nemo-rec/h100-46", "nemo-rec/b200-6", "nemo-rec/b200-9", "llama3-paper/8192-cp1",
    "llama3-paper/16384-cp1",
)
#: Sizes of a recipe that a search chooses.
_CHOSEN = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
           "virtual_pipeline", "expert_parallel", "expert_tensor_parallel", "pipeline_layout", "recompute")
#: The least share of a step by which a part must differ to be named, and how many are.
_NAMED, _PARTS = 0.005, 3
#: The risk of the second search: a little more than the recipe's, from that of ``fits`` to the most that there is.
_MORE, _LEAST_RISK, _MOST_RISK = 1.0001, 0.01, 0.5


@dataclass(frozen=True)
class Found:
    """The fastest layout of a search, in words and as ``explain`` counts it."""

    words: str
    account: Explanation


@dataclass(frozen=True)
class Beside:
    """One situation: the recipe, the fastest that fits, and the fastest that is no likelier to run out."""

    case: Case
    recipe: Explanation
    fitting: Found | None
    as_likely: Found | None


def arguments_of(case: Case) -> Mapping[str, Any]:
    """Return the arguments of a recipe as Megatron-LM with ZeRO-1 runs it."""
    return case.others.get(known.AS_ZERO1, case.arguments)


@cache
def situations() -> tuple[Beside, ...]:
    """Return all situations, each searched with the recipe's own job and kernels."""
    cases = {case.id: case for case in known.read()}
    return tuple(_beside(cases[name]) for name in SITUATIONS)


def _beside(case: Case) -> Beside:
    assert case.model is not None
    arguments = dict(arguments_of(case))
    recipe = explain(case.model, case.gpu, **arguments)
    job = {name: value for name, value in arguments.items() if name not in _CHOSEN}
    risk = min(max(_LEAST_RISK, _MORE * recipe.run_out_probability), _MOST_RISK)
    return Beside(case, recipe, _fastest(case, recipe, job), _fastest(case, recipe, {**job, "risk": risk}))


def _fastest(case: Case, recipe: Explanation, job: Mapping[str, Any]) -> Found | None:
    best = sweep(case.model, case.gpu, recipe.inputs["num_gpus"], top=1, **job).best
    if not best:
        return None
    layout = {name: vars(best[0])[name] for name in (*AXES, *FOLLOWING)}
    account = explain(case.model, case.gpu, num_gpus=recipe.inputs["num_gpus"],
                      **{**job, **as_arguments_of_explain(layout)})
    return Found(in_words(layout), account)


def seconds_of(account: Explanation) -> float:
    """Return the time of a step. Raises AssertionError where none is known."""
    assert account.time is not None, account.time_unknown
    return account.time.seconds


def difference(ours: Explanation, recipe: Explanation) -> str:
    """Say by which parts a step is longer or shorter than the recipe's, as shares of that."""
    assert ours.time is not None
    assert recipe.time is not None
    spent, before = ours.time.spent, recipe.time.spent
    moved = {part: (spent.get(part, 0) - before.get(part, 0)) / recipe.time.seconds for part in {**before, **spent}}
    named = sorted((part for part in moved if abs(moved[part]) >= _NAMED), key=lambda part: -abs(moved[part]))
    return ", ".join(f"{part} {moved[part]:+.1%}" for part in named[:_PARTS])


#: Why a recipe and the fastest layout of its own risk differ, by situation; those that are the same need none.
WHY: Mapping[str, str] = {
    "nemo-rec/h100-8": "with twice the stages a rank has half the gradients to reduce",
    "nemo-rec/h100-10": "with twice the stages a rank has half the gradients to reduce",
    "nemo-rec/h100-14": "tensor parallelism shares out a sequence as context parallelism does, and weights too",
    "nemo-rec/h100-17": "where activations of experts are computed again, a sequence needs 4 ranks for 8, which"
                        " exchange fewer keys and values; the recipe recomputes nothing",
    "nemo-rec/h100-19": "two sequences in a micro-batch make larger products, which the model of time has faster; half"
                        " the stages and half the chunks send less",
    "nemo-rec/h100-23": "there is memory for one sequence in a micro-batch",
    "nemo-rec/h100-25": "there is memory for half a sequence on a rank",
    "nemo-rec/h100-45": "a third of the chunks send a third as often between stages; recomputed norms make room",
    "nemo-rec/h100-46": "tokens of experts stay inside of a server; the recipe sends them over four, beside another"
                        " micro-batch, which is not assumed here",
    "nemo-rec/b200-6": "twice the stages with as many chunks: half the data-parallel ranks, and half the gradients",
    "llama3-paper/8192-cp1": "the paper's table says no chunks, so one is counted, which leaves ranks idle",
    "llama3-paper/16384-cp1": "the same; half the micro-batches leave ranks idle for longer",
}
#: Said before where the search must not have the recipe.
_EDGE = "the recipe is likelier to run out than 50 %; "

_TEXT = """# Published recipes beside the fastest layouts

Generated by `python -m validation.beside_recipes`; do not edit.

For {count} jobs that NVIDIA or Meta published a layout for, `sweep` searched all layouts with the recipe's own job,
kernels and program (Megatron-LM with ZeRO-1, in 16 bits): once with the usual risk of running out of memory (below
1 %), once with the risk that the recipe itself has by the same [probability](validation.md), at most 50 %. All ran.

* **At the recipe's own risk the search finds the recipe itself or one as fast in {equal} of {count}** (less than 3 %
  apart); the median difference is {median:+.1%}. Each larger one has its reason below.
* **Recipes of vendors run closer to the edge than `fits` allows**: {close} of {count} have a probability above 1 %,
  {likely} one above 50 %. A person who knows that a job runs, or can try it, raises `--risk`; `recommend` shows faster
  layouts of 5, 20 and 50 %.
  They are published because they run, so they say little about layouts as large that do not:
  [why they do not fit](validation.md#recipes-that-ran-and-why-they-do-not-fit).
* A negative difference is a layout that is predicted to be faster than the recipe. Nobody has measured it.

{fitting}

{as_likely}

{sources}
"""
_FITTING = ("job, sequences x tokens", "recipe", "seconds", "runs out", "fastest below 1 %", "difference")
_AS_LIKELY = ("job", "fastest at the recipe's own risk", "runs out", "difference", "of it in parts", "why")


def page() -> str:
    """Return the page."""
    items = situations()
    gaps = [gap_of(item) for item in items]
    chances = [item.recipe.run_out_probability for item in items]
    links = {row["id"]: (row["source"], row["framework"]) for row in rows(known.TABLE)}
    sources = dict.fromkeys(links[item.case.id] for item in items)
    return _TEXT.format(
        count=len(items), equal=sum(map(is_equal, items)), median=median(gaps),
        close=sum(chance >= _LEAST_RISK for chance in chances), likely=sum(chance > _MOST_RISK for chance in chances),
        fitting=markdown(_FITTING, [tuple(_fitting(item)) for item in items]),
        as_likely=markdown(_AS_LIKELY, [tuple(_as_likely(item)) for item in items]),
        sources="\n".join(f"* {name}: {source}" for source, name in sources),
    )


def gap_of(item: Beside) -> float:
    """Return by which share of the recipe's step the fastest of its own risk takes longer."""
    assert item.as_likely is not None
    return seconds_of(item.as_likely.account) / seconds_of(item.recipe) - 1


def is_equal(item: Beside) -> bool:
    """Tell whether recipe and search are equally fast."""
    assert item.as_likely is not None
    ours, recipe = seconds_of(item.as_likely.account), seconds_of(item.recipe)
    return as_fast(max(ours, recipe), min(ours, recipe))


def is_same(item: Beside) -> bool:
    """Tell whether the search found the recipe itself."""
    assert item.as_likely is not None
    ours, recipe = item.as_likely.account, item.recipe
    return (ours.peak.total, seconds_of(ours)) == (recipe.peak.total, seconds_of(recipe))


def _fitting(item: Beside) -> Iterator[object]:
    recipe, ours = item.recipe, item.fitting
    yield from (_job(item), _recipe(item), f"{seconds_of(recipe):.2f}", f"{recipe.run_out_probability:.1%}")
    yield from ("nothing fits", "") if ours is None else (
        ours.words, f"{seconds_of(ours.account) / seconds_of(recipe) - 1:+.1%}")


def _as_likely(item: Beside) -> Iterator[object]:
    ours = item.as_likely
    assert ours is not None
    if is_same(item):
        yield from (_job(item), "the recipe", f"{ours.account.run_out_probability:.1%}", "0", "", "")
        return
    yield from (_job(item), ours.words, f"{ours.account.run_out_probability:.1%}", f"{gap_of(item):+.1%}",
                difference(ours.account, item.recipe),
                _EDGE * (item.recipe.run_out_probability > _MOST_RISK) + WHY[item.case.id])


def _job(item: Beside) -> str:
    assert isinstance(item.case.model, Model | str)
    name = item.case.model if isinstance(item.case.model, str) else item.case.model.name
    values, gpu = item.recipe.inputs, item.recipe.gpu.name
    return f"{name}, {values['num_gpus']} x {gpu}, {values['global_batch_size']} x {values['seq_length']}"


def _recipe(item: Beside) -> str:
    arguments = arguments_of(item.case)
    values = {**item.recipe.inputs, "recompute": arguments.get("recompute", "none")}
    sizes = {name: values.get(name, 1) for name in AXES}
    layers = arguments.get("pipeline_layout")
    listed = f", chunks of {layers[0]} to {max(layers)} layers" if layers else ""
    return in_words(sizes) + listed


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or say how it differs; 1 if it does."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what would change")
    return settle({PAGE: page()}, parser.parse_args(arguments).check)


if __name__ == "__main__":
    sys.exit(main())
