"""Markdown tables of the runs: counts by verdict and status, what contradicts the rule, and every cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from validation.estimates import ESTIMATORS, RULE, Cell, contingency
from validation.runs import STATUSES

NO_LAYOUT = "no such layout"


def counts(cells: Sequence[Cell], estimator: str) -> str:
    """Return how many runs have which verdict and status."""
    table = contingency(cells, estimator)
    names: dict[str, str | None] = {**{verdict: verdict for verdict in RULE}, NO_LAYOUT: None}
    rows = [(name, [table[verdict, status] for status in STATUSES]) for name, verdict in names.items()]
    rows.append(("all", [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]))
    lines = [(name, *numbers, sum(numbers)) for name, numbers in rows]
    return markdown((f"verdict: {ESTIMATORS[estimator]}", *STATUSES, "all"), lines)


def contradictions(cells: Sequence[Cell], estimator: str) -> str:
    """Return the runs that went otherwise, each with what else ran with an estimate at least as large."""
    ok = [cell for cell in cells if cell.run.status == "ok"]
    lines = []
    for cell in cells:
        if cell.contradicts(estimator):
            larger = [other for other in ok
                      if other.estimates[estimator].bytes >= cell.estimates[estimator].bytes]
            beside = [other.run.layout for other in larger if other.run.num_gpus == cell.run.num_gpus]
            lines.append((cell.run.num_gpus, cell.run.layout, cell.run.data_parallel, said(cell, estimator),
                          cell.run.status, len(larger), "; ".join(beside) or "none"))
    return markdown(("GPUs", "layout", "DP", ESTIMATORS[estimator], "status",
                     "`ok` runs with at least this estimate", "of these, on as many GPUs"), lines)


def every_cell(cells: Iterable[Cell]) -> str:
    """Return a line for every run; a verdict that the run contradicts is bold."""
    heads = ("GPUs", "TP", "CP", "PP", "micro-batch", "DP", *ESTIMATORS.values(), "status", "TFLOP/s")
    return markdown(heads, [_line(cell) for cell in cells])


def said(cell: Cell, estimator: str) -> str:
    """Size, share and verdict of one estimate."""
    if estimator not in cell.estimates:
        return ""
    estimate = cell.estimates[estimator]
    verdict = f"**{estimate.verdict}**" if cell.contradicts(estimator) else estimate.verdict
    return f"{float(estimate.bytes / 2**30):.2f} GiB, {estimate.share:.1%}, {verdict}"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(str(value) for value in row)} |" for row in rows)


def _line(cell: Cell) -> tuple[object, ...]:
    run = cell.run
    copies = NO_LAYOUT if run.data_parallel is None else run.data_parallel
    return (
        run.num_gpus, run.tensor_parallel, run.context_parallel, run.pipeline_parallel, run.micro_batch_size,
        copies, *(said(cell, estimator) for estimator in ESTIMATORS), run.status, run.tflops,
    )
