"""Runs that contradict the rule, and their known causes; every number is computed from the runs."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from validation import tables
from validation.estimates import FITS, OUT, Cell, estimated, estimates
from validation.runs import read

_PUBLISHED, _WHOLE, _LEDGER = "fujii2024", "fujii2024_norms", "ledger"


def discussion(cells: Sequence[Cell]) -> str:
    """Return the contradicting cells of both estimators, and the cells that contradict nothing.

    Raises ValueError if the words would not be true any more of these cells.
    """
    _check_words(cells)
    return "\n\n".join([
        "### Published estimator",
        tables.contradictions(cells, _PUBLISHED),
        *map(_paragraph, _published(cells)),
        "### Counted ledger",
        tables.contradictions(cells, _LEDGER),
        _paragraph(_ledger(cells)),
        "### Not contradictions",
        *map(_paragraph, _others(cells)),
    ])


def contradiction_counts() -> str:
    """Count the runs that contradict the rule, by estimator, in a sentence."""
    cells = estimated(read())
    ran = [cell for cell in cells if cell.estimates and cell.run.status in ("ok", "dash")]
    named = ((_PUBLISHED, "the published estimator"), (_LEDGER, "the ledger"))
    parts = [f"{sum(cell.contradicts(name) for cell in ran)} with {words}" for name, words in named]
    return f"Of {len(ran)} runs, these contradict it: {' and '.join(parts)}."


def _published(cells: Sequence[Cell]) -> list[str]:
    wrong = [cell for cell in cells if cell.contradicts(_PUBLISHED)]
    ran = [cell for cell in cells if cell.run.status == "ok"]
    with_context = [cell for cell in ran if cell.run.context_parallel > 1]
    twins = [cell for cell in wrong if any(_same_estimate(cell, other) for other in ran)]
    alone = [cell for cell in wrong if cell.run.data_parallel == 1]
    without = "; ".join(f"{_place(cell)}: {_unsharded(cell):.1%}" for cell in alone)
    other = max((cell for cell in with_context if cell.run.data_parallel == 1), key=_unsharded)
    return [
        f"""All {len(wrong)} are said to fit and have no result. The other way there is nothing: no run that
        trained has an estimate above {_most(ran, _PUBLISHED):.1%}, and none that is called *uncertain*
        trained. The paper's sentence, that training with an estimate below 80 % never runs out of memory,
        does not hold for this table as it stands, unless some dashes are no lack of memory. A few dashes
        below 80 % are older than the setting `TORCH_NCCL_AVOID_RECORD_STREAMS=1`, without which buffers
        of communication stay allocated for longer. Which ones is not recorded, so no cell is excused
        here.""",
        f"""No margin separates these cells from the others: for {len(twins)} of the {len(wrong)}, a run on as
        many GPUs trained with the same estimate to the byte. More CP and an equally larger micro-batch
        cancel in the formula, and so do CP and DP in the sharding of the optimizer states. What made
        these runs differ is not in the formula.""",
        f"""All {len(wrong)} have CP of {min(cell.run.context_parallel for cell in wrong)} or more. Neither
        estimator has a term for what context parallelism holds besides its share of the activations: keys
        and values on their way between ranks, partial outputs, communicators. That would fit, but it is
        not measured, and other runs with CP trained at up to {_most(with_context, _PUBLISHED):.1%}.""",
        f"""{len(alone)} of the {len(wrong)} have a single copy of the model (DP 1), so that the estimate
        rests on optimizer states sharded over CP alone. Without that sharding it would be {without}. This
        is arithmetic, not an explanation: the authors' formula and the counted buffers both shard over DP
        and CP, {_place(other)} would be at {_unsharded(other):.1%} and trained, and
        {len(wrong) - len(alone)} cells with more copies remain.""",
    ]


def _ledger(cells: Sequence[Cell]) -> str:
    wrong = [cell for cell in cells if cell.contradicts(_LEDGER)]
    more = [cell for cell in wrong if not cell.contradicts(_PUBLISHED)]
    ran = [cell for cell in cells if cell.run.status == "ok"]
    ratios = [float(cell.estimates[_LEDGER].bytes / cell.estimates[_PUBLISHED].bytes) - 1
              for cell in cells if cell.estimates]
    saved = [(cell, estimates(cell.run, saved_only=True)[_LEDGER]) for cell in cells if cell.estimates]
    moments = [float(cell.estimates[_LEDGER].bytes - only.bytes) / 2**30 for cell, only in saved]
    wrong_saved = sum((only.verdict, cell.run.status) in ((FITS, "dash"), (OUT, "ok")) for cell, only in saved)
    return f"""The same {len(wrong) - len(more)}, and {len(more)} more: as a forecast of these runs, the rule
        is worse with the ledger's bytes than with the published ones. The ledger differs from the
        published estimate by {min(ratios):+.1%} to {max(ratios):+.1%}. It counts the tensors that fused kernels
        keep, where the published formula also counts the output of SiLU, and an embedding term that is larger
        than token ids by a factor h. What lives besides saved tensors at the fullest moment of a step,
        {min(moments):.2f} to {max(moments):.2f} GiB, is in the ledger's figure; without it {wrong_saved} runs
        would contradict the rule instead of {len(wrong)}, so the figure here is the one that `explain` shows.
        Neither counts fragmentation and
        buffers of communication. The 80 % were found with the published formula. With the ledger the rule is a
        transfer that this table does not support: dashes begin at {_least(wrong, _LEDGER):.1%}, and no run
        trained above {_most(ran, _LEDGER):.1%}. All {len(ran)} runs that trained are said to fit."""


def _others(cells: Sequence[Cell]) -> list[str]:
    impossible = [cell for cell in cells if not cell.estimates]
    dashes = [cell for cell in impossible if cell.run.status == "dash"]
    skipped = [cell for cell in cells if cell.run.status == "not_run" and cell.estimates]
    both = [cell for cell in cells if cell.estimates]
    apart = max(abs(cell.estimates[_WHOLE].bytes - cell.estimates[_PUBLISHED].bytes) for cell in both)
    other = sum(cell.estimates[_WHOLE].verdict != cell.estimates[_PUBLISHED].verdict for cell in both)
    said = "; ".join(f"{_place(cell)}: {cell.estimates[_PUBLISHED].verdict}" for cell in skipped)
    return [
        f"""{len(impossible)} cells have fewer GPUs than TP times CP times PP. There is no such layout, and
        nothing to estimate. The table calls them not_run, except a dash at
        {"; ".join(map(_place, dashes))}.""",
        f"""{len(skipped)} cells that exist were not run. The verdicts on them are not tested: {said}.""",
        f"""The two readings of the published formula differ by at most {float(apart / 2**20):.1f} MiB, and in
        the verdict on {other} runs.""",
    ]


def _check_words(cells: Sequence[Cell]) -> None:
    """Check the words around the numbers, which a change of the ledger may falsify."""
    wrong = {name: [cell for cell in cells if cell.contradicts(name)] for name in (_PUBLISHED, _LEDGER)}
    both = [cell for cell in cells if cell.estimates]
    said = {
        "only dashes contradict the rule": all(
            cell.run.status == "dash" for name in wrong for cell in wrong[name]),
        "all with CP": all(cell.run.context_parallel > 1 for cell in wrong[_PUBLISHED]),
        "nothing uncertain trained": all(
            cell.run.status != "ok" or cell.estimates[_PUBLISHED].verdict == FITS for cell in both),
        "the ledger has the same contradictions and more": (
            {cell.run for cell in wrong[_PUBLISHED]} < {cell.run for cell in wrong[_LEDGER]}),
        "every run that trained fits by the ledger": all(
            cell.run.status != "ok" or cell.estimates[_LEDGER].verdict == FITS for cell in both),
    }
    untrue = [words for words, holds in said.items() if not holds]
    if untrue:
        raise ValueError(f"not true any more, so the discussion must be written anew: {'; '.join(untrue)}")


def _paragraph(text: str) -> str:
    return fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)


def _place(cell: Cell) -> str:
    return f"{cell.run.layout} on {cell.run.num_gpus} GPUs"


def _same_estimate(cell: Cell, other: Cell) -> bool:
    equal = other.estimates[_PUBLISHED].bytes == cell.estimates[_PUBLISHED].bytes
    return equal and other.run.num_gpus == cell.run.num_gpus


def _unsharded(cell: Cell) -> float:
    return estimates(cell.run, distributed_optimizer=False)[_PUBLISHED].share


def _most(cells: Sequence[Cell], estimator: str) -> float:
    return max(cell.estimates[estimator].share for cell in cells)


def _least(cells: Sequence[Cell], estimator: str) -> float:
    return min(cell.estimates[estimator].share for cell in cells)
