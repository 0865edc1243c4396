"""A section of docs/validation.md: how often runs failed beside the predicted probability, and its diagram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from shardmath.plots.picture import in_black, svg_of
from shardmath.plots.style import COLUMN, INK, MARKERS, SMALL, STYLE
from shardmath.symbolic.run_out import FITS_BELOW, SCALE, STEEPNESS, process_limit
from validation.measured import outside
from validation.measured.metrics import Target
from validation.measured.outcomes import FUJII, UNRECORDED, Outcome, brier, chances, fitted, outcomes
from validation.measured.sections import paragraph, targets
from validation.tables import markdown

NAME = "run_out.svg"
#: Ends of the classes of probability.
EDGES = (0.0, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99, 1.0)
#: Inches.
HEIGHT = 3.3
#: Tables of which the target is about.
OF_TARGET = (FUJII, "hagemann")
#: Tables of runs with Megatron-LM.
OF_MEGATRON = ("simumax", "hagemann", FUJII)


def section() -> str:
    """Return the section. Raises ValueError if the constants of the ledger are not those that the runs give."""
    runs, constants = outcomes(), fitted(outcomes())
    if (constants.scale, constants.steepness) != (100 * SCALE, STEEPNESS):
        raise ValueError(f"symbolic/run_out.py has {SCALE} and {STEEPNESS}, the runs give {constants}")
    recorded = [run for run in runs if run.table != UNRECORDED]
    others = [run for run in runs if run.table == UNRECORDED]
    shift = constants.background / 100
    return "\n\n".join([
        "## Probability of running out of memory",
        paragraph(f"""{len(runs)} runs that trained or failed, with the probability that `explain` gives each of them.
        Its two constants ({float(SCALE)} and {STEEPNESS}) are those with which these outcomes are most probable; they
        are fitted to the same runs, so the second table fits them without one table each and judges that one. What
        nanotron's runs
        crashed for is not recorded: each is taken to crash for another reason with {shift:.0%}, which is fitted
        too. Recipes that are known to run were chosen because they run, and pull the probability down."""),
        f"![Reliability of the probability of running out](validation/{NAME})",
        targets(targets_of(runs)),
        by_table(runs),
        without_each(runs),
        paragraph(f"""Classes of probability, of the {len(recorded)} runs whose outcome is recorded. *fits* is the
        first one, a process of at most {float(process_limit(FITS_BELOW)):.0%} of the GPU:"""),
        classes(recorded),
        paragraph(f"The {len(others)} runs of nanotron, with their background of other crashes:"),
        classes(others, lambda chance: shift + (1 - shift) * chance),
        paragraph(f"""No limit on predicted bytes can say *fits* to every run that trained and to none that failed:
        {len(twins(runs))} of the failed runs of Fujii and Hagemann are predicted to need as many, to the byte, as one
        of their table that trained; below they stand with their kernels of attention. The limit is on the safe side,
        so it says *uncertain* to runs that the 80 % rule lets pass. {between(runs)}"""),
        by_twins(runs),
        paragraph("""A curve of its own for each stack was tried, and not taken: fitted to the other tables of
        Megatron-LM, and judged by the one left out, it is better on one table and worse on two. No other stack has a
        second table."""),
        by_stack(runs),
        *_with_contexts(runs),
    ])


def _with_contexts(runs: Sequence[Outcome]) -> list[str]:
    """Return the fits with one context for all GPUs and with those of the catalogue.

    Raises ValueError if one says to a run with a recorded outcome that failed that it fits.
    """
    usual = outside.CONSTANTS["context"].typical
    ways = {f"{usual >> 20} MiB everywhere": [replace(run, process=run.process + usual - run.context) for run in runs],
            "that of each GPU": list(runs)}
    lines = []
    for words, own in ways.items():
        constants = fitted(own)
        chance = chances(own, constants)
        recorded = [place for place, run in enumerate(own) if run.table != UNRECORDED]
        said = [run for run, probability in zip(own, chance, strict=True) if probability < FITS_BELOW]
        wrong = sum(run.ran_out for run in said if run.table != UNRECORDED)
        if wrong:
            raise ValueError(f"words about contexts must be written anew: {constants}, {wrong}")
        lines.append((words, sum(run.context != usual for run in own), constants.scale / 100,
                      constants.steepness, f"{brier(chance, own):.5f}",
                      f"{brier(chance[recorded], [own[place] for place in recorded]):.5f}", *_split(said), wrong))
    return [
        paragraph(f"""The CUDA context is that of [each GPU](#outside-of-pytorchs-allocator). Beside it stands a fit
        with {usual >> 20} MiB on all, as it was before. No run with a recorded outcome that failed is said to fit
        either way."""),
        markdown(("context", "runs with another", "scale", "steepness", "Brier score", "outcome recorded",
                  "fits: trained", "failed", "of them recorded"), lines),
    ]


def by_stack(runs: Sequence[Outcome]) -> str:
    """Return Brier scores of tables left out: of one curve for all, and of one for Megatron-LM's tables."""
    lines = []
    for table in OF_MEGATRON:
        own = [run for run in runs if run.table == table]
        rest = [run for run in runs if run.table != table]
        alike = [run for run in rest if run.table in OF_MEGATRON]
        both = [fitted(some) for some in (rest, alike)]
        scores = [f"{brier(chances(own, constants), own):.4f}" for constants in both]
        lines.append((table, *scores, both[1].scale / 100, both[1].steepness))
    return markdown(("left out", "one curve: Brier score", "of the stack: Brier score", "scale", "steepness"), lines)


def between(runs: Sequence[Outcome]) -> str:
    """Say which shares of the memory trained and failed runs of the target need, and what follows for any limit."""
    own = [run for run in runs if run.table in OF_TARGET]
    trained, failed = (sorted((run for run in own if run.ran_out is same), key=_share) for same in (False, True))
    rule = sum(not run.ran_out for run in own if run.fits_by_rule)
    below = sum(_share(run) < _share(failed[0]) for run in trained)
    limit = _share(trained[rule - 1])
    answer = (f"So no limit meets both targets at once: one that lets no failed run fit lets {below} trained runs fit"
              f" at most, which is less than {rule}." if below < rule else
              f"A limit just below it meets both targets: {below} trained runs fit, and {rule} are asked.")
    return (f"Of {len(trained)} trained runs {below} need less than every failed one, whose least process takes"
            f" {_share(failed[0]):.0%} of the memory ({failed[0].table}, {failed[0].name}). A limit for {rule} trained"
            f" runs would be at {limit:.0%}, and say *fits* to {sum(_share(run) <= limit for run in failed)} failed"
            f" ones. {answer} The runs that contradict each other:")


def _share(run: Outcome) -> float:
    return run.process / run.memory


def by_table(runs: Sequence[Outcome]) -> str:
    """Return runs of each table: how many failed, how many should have, and who is said to fit by both."""
    lines = []
    for table in _tables(runs):
        own = [run for run in runs if run.table == table]
        chance = [run.probability for run in own]
        fits, rule = [[run for run in own if says(run)] for says in (_fits, _by_rule)]
        lines.append((table, len(own), sum(run.ran_out for run in own), f"{sum(chance):.1f}",
                      f"{brier(chance, own):.4f}", *_split(fits), *_split(rule)))
    return markdown(("table", "runs", "failed", "expected", "Brier score", "fits: trained", "failed",
                     "80 % rule fits: trained", "failed"), lines)


def without_each(runs: Sequence[Outcome]) -> str:
    """Constants fitted without a table, judged by it."""
    lines = []
    for table in _tables(runs):
        own, rest = ([run for run in runs if (run.table == table) is same] for same in (True, False))
        constants = fitted(rest)
        chance = chances(own, constants)
        fits = [run for run, probability in zip(own, chance, strict=True) if probability < FITS_BELOW]
        lines.append((table, constants.scale / 100, constants.steepness, f"{chance.sum():.1f}",
                      f"{brier(chance, own):.4f}", *_split(fits)))
    heads = ("fitted without", "scale", "steepness", "expected", "Brier score", "fits: trained", "failed")
    return markdown(heads, lines)


def classes(runs: Sequence[Outcome], seen: Callable[[float], float] = lambda chance: chance) -> str:
    """Mean prediction and share of failures of every class; ``seen`` adds what else a failure may be."""
    lines = []
    for low, high, own in _classes(runs):
        mean = np.mean([seen(run.probability) for run in own])
        failed = sum(run.ran_out for run in own)
        words = "1" if low == high else f"{low:.0%} to {high:.0%}"
        lines.append((words, len(own), f"{mean:.1%}", failed, f"{failed / len(own):.1%}"))
    return markdown(("probability", "runs", "predicted", "failed", "share"), lines)


def picture() -> str:
    """Return the reliability diagram as SVG: share of failed runs over the predicted one, with 90 % intervals."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    runs = outcomes()
    background = fitted(runs).background / 100
    groups = (
        ("outcome recorded", [run for run in runs if run.table != UNRECORDED], 0.0),
        ("nanotron, with other crashes", [run for run in runs if run.table == UNRECORDED], background),
    )
    with rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        axes.plot((0, 1), (0, 1), color=INK, linewidth=0.6, zorder=0)
        for place, (label, own, shift) in enumerate(groups):
            points = [_point(members, shift) for _, _, members in _classes(own)]
            predicted, share, below, above = zip(*points, strict=True)
            axes.errorbar(predicted, share, yerr=(below, above), linestyle="none", marker=MARKERS[place], markersize=4,
                          markerfacecolor="none", markeredgewidth=0.7, elinewidth=0.5, capsize=2,
                          label=f"{label} ({len(own)})", gid=f"group-{place}")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xlabel="predicted probability of running out",
                 ylabel="share of runs that failed")
        axes.legend(fontsize=SMALL, loc="upper left")
        return in_black(svg_of(figure))


def _point(runs: Sequence[Outcome], background: float) -> tuple[float, float, float, float]:
    """Mean prediction, share that failed, and how far Wilson's 90 % interval reaches below and above it."""
    mean = float(np.mean([background + (1 - background) * run.probability for run in runs]))
    count, share, z = len(runs), sum(run.ran_out for run in runs) / len(runs), 1.645
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return mean, share, max(0.0, share - middle + reach), max(0.0, middle + reach - share)


def _classes(runs: Sequence[Outcome]) -> list[tuple[float, float, list[Outcome]]]:
    """Return runs by class of probability, without empty classes; those that are certain have one of their own."""
    ends = (*pairwise(EDGES), (1.0, 1.0))
    inside = [[run for run in runs if low <= run.probability < high or low == high == run.probability]
              for low, high in ends]
    return [(low, high, own) for (low, high), own in zip(ends, inside, strict=True) if own]


def targets_of(runs: Sequence[Outcome]) -> list[Target]:
    """Return the goals of the verdict, and what it reached."""
    own = [run for run in runs if run.table in OF_TARGET]
    failed = sum(run.ran_out for run in own if run.is_said_to_fit)
    trained, rule = (sum(not run.ran_out for run in own if says(run)) for says in (_fits, _by_rule))
    return [
        Target("Fujii and Hagemann: failed runs that are said to fit", "none", str(failed), not failed),
        Target("Fujii and Hagemann: trained runs that are said to fit", f"{rule}, as by the 80 % rule", str(trained),
               trained >= rule),
    ]


def twins(runs: Sequence[Outcome]) -> list[tuple[Outcome, list[Outcome]]]:
    """Return failed runs of the target, each with those of its table that trained with as many bytes."""
    trained: dict[tuple[str, int, int], list[Outcome]] = {}
    for run in runs:
        if not run.ran_out:
            trained.setdefault((run.table, run.allocated, run.memory), []).append(run)
    pairs = [(run, trained.get((run.table, run.allocated, run.memory), [])) for run in runs
             if run.ran_out and run.table in OF_TARGET]
    return [(run, alike) for run, alike in pairs if alike]


def by_twins(runs: Sequence[Outcome]) -> str:
    """Return failed runs beside one that trained with as many bytes."""
    return markdown(("table", "failed", "trained", "allocated by both, bytes", "process, share of the memory"), [
        (run.table, run.name, alike[0].name, f"{run.allocated:,}", f"{_share(run):.1%}") for run, alike in twins(runs)])


def _tables(runs: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(run.table for run in runs))


def _split(runs: Sequence[Outcome]) -> tuple[int, int]:
    """Count the runs that trained and those that failed."""
    failed = sum(run.ran_out for run in runs)
    return len(runs) - failed, failed


def _fits(run: Outcome) -> bool:
    return run.is_said_to_fit


def _by_rule(run: Outcome) -> bool:
    return run.fits_by_rule
