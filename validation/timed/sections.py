"""The part of docs/validation.md about step time: targets, every table with its baselines, constants, misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from shardmath.commands.calibrate.fitting import FURTHER
from validation.measured.sections import paragraph
from validation.measured.sections import targets as table_of_targets
from validation.tables import markdown
from validation.timed.alone import section as alone
from validation.timed.cases import Table, fujii2024, hagemann2023, tables, torchtitan_runs
from validation.timed.generations import section as generations
from validation.timed.metrics import Ranking, spread
from validation.timed.results import CALIBRATED, RANDOM, RULE, TIMES, USUAL, Result, result
from validation.timed.targets import targets
from validation.timed.words import ABOUT, ASSUMED, CAVEATS, INTRODUCTION, TITAN, misses

#: By table, the other reading of what its source does not say.
_OTHERWISE: Mapping[str, tuple[str, Callable[[], Table]]] = {
    "fujii2024": ("With the pipeline as the last dimension of the mesh, Megatron-Core's own order:",
                  partial(fujii2024, 0)),
    "hagemann2023": ("With as many layers on every stage:", partial(hagemann2023, balanced=False)),
}


def section() -> str:
    """Return the whole part. Raises ValueError if a sentence in it would not be true."""
    results = [result(table) for table in tables()]
    parts = ["## Step time", *map(paragraph, INTRODUCTION), table_of_targets(targets(results)),
             "![Mean regret by the way in which a layout is chosen](validation/time_regret.svg)"]
    for item in results:
        parts += _table(item)
    parts += [*generations(), *alone(), "### torchtitan on H100", paragraph(TITAN), titan()]
    parts += ["### What to keep in mind", caveats()]
    return "\n\n".join(parts)


def _table(outcome: Result) -> list[str]:
    table = outcome.table
    parts = [
        f"### {table.title}", paragraph(ABOUT[table.name]),
        f"{len(table.runs)} runs in {len(outcome.fits)} groups. {ASSUMED[table.name]}",
        f"![{table.title}: predicted over measured time](validation/time_{table.name}.svg)",
        ways(outcome.rankings), by_group(outcome), constants(outcome),
        "The constants of each group: [`time_constants.csv`](validation/time_constants.csv).",
        *map(paragraph, misses(outcome)),
    ]
    if table.name in _OTHERWISE:
        words, other = _OTHERWISE[table.name]
        rankings = result(other()).rankings
        parts += [words, ways({name: rankings[name] for name in (USUAL, CALIBRATED)})]
    return parts


def ways(rankings: Mapping[str, Ranking]) -> str:
    """Return one line for every way to choose a layout."""
    lines = []
    for name, ranking in rankings.items():
        mean, high, middle = (f"{share:.2%}" for share in spread(list(ranking.regret.values())))
        times = (f"{ranking.error:.1%}", f"{ranking.bias:+.1%}") if name in TIMES else ("", "")
        order = (f"{ranking.kendall:.2f}", f"{ranking.spearman:.2f}") if name != RANDOM else ("", "")
        few = f"{spread(list(ranking.best_of_few.values()))[2]:.2%}" if name in TIMES else ""
        lines.append((name, *times, *order, f"{ranking.ordered:.1%}", mean, high, middle, few))
    heads = ("chosen by", "median error", "signed", "Kendall", "Spearman", "pairs in order", "regret: mean",
             "90th percentile", "median", "best of three: median")
    return markdown(heads, lines)


def by_group(outcome: Result) -> str:
    """Regret of every group."""
    shown = [outcome.rankings[name].regret for name in (USUAL, CALIBRATED, RULE, RANDOM)]
    lines = [
        (group, len(measured), f"{1000 * measured.min():.2f}", *(f"{regrets[group]:.1%}" for regrets in shown))
        for group, (_, measured) in outcome.rankings[USUAL].by_group.items()
    ]
    heads = ("group", "runs", "fastest, ms for a sequence", "regret: uncalibrated", "calibrated on other groups",
             "rule", "random")
    return markdown(heads, lines)


def constants(outcome: Result) -> str:
    """Return the fitted parameters: where they started, from all runs, and the range over the groups left out."""
    lines = []
    for name, start in outcome.fit.usual.items():
        folds = [item.parameters[name] for item in outcome.fits.values()]
        value = 0 if name in FURTHER else start
        lines.append((f"`{name}`", f"{value:,}", f"{outcome.fit.parameters[name]:,}",
                      f"{min(folds):,} to {max(folds):,}"))
    return markdown(("constant", "usual", "fitted to all groups", "fitted to all but one"), lines)


def constants_file() -> str:
    """Get the constants that every group was predicted with, as CSV: those fitted to all other groups of its table."""
    lines = ["table,group,constant,value"]
    for table in tables():
        for group, fit in result(table).fits.items():
            lines += [f'{table.name},"{group}",{name},{value}' for name, value in fit.parameters.items()]
    return "\n".join(lines) + "\n"


def titan() -> str:
    """List every run of torchtitan in bf16, uncalibrated."""
    lines = []
    for case, run, cluster in torchtitan_runs():
        values = run.values(cluster)
        module = run.job.evaluator.times
        numbers = module.terms(**{name: float(values[name]) for name in module.INPUTS})
        seconds = numbers["step.time"]
        lines.append((case.id, case.group, run.job.values["num_gpus"], f"{run.seconds:.3f}", f"{seconds:.3f}",
                      f"{seconds / run.seconds - 1:+.1%}"))
    return markdown(("run", "kernels", "GPUs", "measured s", "predicted s", "error"), lines)


def caveats() -> str:
    """Return the caveats on the origin of the numbers."""
    return "\n".join(f"* {paragraph(text)}".replace("\n", "\n  ") for text in CAVEATS)
