"""``python -m benchmarks.run``: measure everything in one run and print it side by side."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.backends import backend_costs
from benchmarks.data import draw, job
from benchmarks.document import document
from benchmarks.machine import machine
from benchmarks.memory import peaks
from benchmarks.nests import DifferentAnswersError, NestRate, memory, nest_rates
from benchmarks.proofs import proof_costs
from benchmarks.rates import DisagreementError, check, contenders, measure
from benchmarks.report import Run, show
from benchmarks.roofline import roofline
from benchmarks.startup import figures, imported
from benchmarks.targets import targets

_WIDTH = 170
#: Layouts in memory for every layout that is timed on its own: columns must be far larger than the caches.
_STREAMED = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; 1 if two evaluators disagree."""
    options = _parser().parse_args(arguments)
    described = machine()
    measured = job()
    batches = draw(measured, options.layouts)
    rivals, left_out = contenders(measured, min(options.sample, options.layouts))
    try:
        for batch in batches:
            check(rivals, batch)
    except DisagreementError as error:
        print(f"evaluators disagree: {error}", file=sys.stderr)
        return 1
    rates = [rate for batch in batches for rate in measure(rivals, batch, options.repeats)]
    peak, loaded = peaks(rivals, batches[0]) if options.memory else ({}, None)
    rates = [replace(rate, memory=peak.get(rate.key)) for rate in rates]
    reached = roofline(measured, rivals, batches[0], _STREAMED * options.layouts, options.repeats)
    nests: list[NestRate] = []
    nest_memory, proofs, backends = None, [], []
    if options.nests:
        try:
            nests, missing = nest_rates(options.nest_repeats)
        except DifferentAnswersError as error:
            print(f"nests disagree: {error}", file=sys.stderr)
            return 1
        left_out += missing
        nest_memory, proofs = memory(), proof_costs(options.nest_repeats)
        backends = backend_costs(options.nest_repeats)
    commands = figures(options.startup_repeats) if options.startup else []
    packages = imported() if options.startup else {}
    run = Run(described, batches, rates, loaded, reached, nests, nest_memory, proofs, backends, commands, packages,
              targets(rates, reached, nests, nest_memory, commands, packages),
              [*left_out, *reached.left_out], options.repeats)
    console = Console(record=True, width=None if sys.stdout.isatty() else _WIDTH)
    show(run, console)
    if options.json:
        Path(options.json).write_text(json.dumps(run.to_dict(), indent=2) + "\n")
    if options.document:
        Path(options.document).write_text(document(console.export_text()))
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--layouts", type=int, default=1_000_000, help="layouts of each set (a million)")
    parser.add_argument("--sample", type=int, default=2_000, help="layouts for the loop of plain Python")
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of every evaluator")
    parser.add_argument("--startup-repeats", type=int, default=5, help="timed runs of every command")
    parser.add_argument("--no-startup", dest="startup", action="store_false", help="leave out the commands")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="leave out resident sets")
    parser.add_argument("--no-nests", dest="nests", action="store_false", help="leave out loop nests")
    parser.add_argument("--nest-repeats", type=int, default=5, help="timed runs of every nest")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--document", metavar="FILE", help="write docs/benchmarks.md from this run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
