"""The command ``shardmath evaluate``: terms for every row of a table."""

from __future__ import annotations

import re

import click

from shardmath.cli.names import GPU, MODEL, NETWORK
from shardmath.cli.options import Gib, device, implementation_options, kernel_choices, risk_option
from shardmath.cli.titled import Titled
from shardmath.errors import InputError
from shardmath.reports.answers import answer
from shardmath.reports.waiting import say

_INTEGER = re.compile(r"-?[0-9]{1,30}")


@click.command(cls=Titled, short_help="Compute terms for every row of a table.", examples=(
    "layouts.csv --model llama-3.1-8b --gpu h100-80gb -o answers.parquet",
    "layouts.parquet --model llama-3.1-8b --gpu h100-80gb --term peak -o answers.parquet",
), work="reading the table")
@click.argument("table")
@click.option("-o", "--output", metavar="FILE", required=True, help="Parquet file to write.")
@click.option("--model", metavar="MODEL", type=MODEL,
              help="Name, or path of a config.json; columns take precedence.")
@click.option("--gpu", type=GPU, help="GPU by name (see `shardmath gpus`), or a cluster file.")
@click.option("--network", type=NETWORK,
              help="Network between nodes (see `shardmath networks`)  [default: the vendor's]")
@click.option("--gpu-memory", type=Gib(), metavar="GIB", help="Memory of a GPU that is not in the catalogue.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
              help="One value for all rows, or recompute=MODE. May be repeated.")
@click.option("--term", "terms", multiple=True, metavar="NAME",
              help="A term to compute; see `shardmath formula --list`. May be repeated.  [default: ends and peak]")
@click.option("--all-terms", is_flag=True, help="Compute every term.")
@click.option("--json", is_flag=True, help="Print a summary as JSON.")
@risk_option
@implementation_options
def evaluate(
    table: str, output: str, model: str | None, gpu: str | None, network: str | None, gpu_memory: float | None,
    pairs: tuple[str, ...], terms: tuple[str, ...], all_terms: bool, json: bool,
    risk: str | None, implementation: str | None, kernels: tuple[str, ...],
) -> None:
    """Compute terms for every row of TABLE (Parquet, CSV or Arrow) and write the rows with them as Parquet.

    Columns called like a parameter are its values, `implementation` and `schedule` choose the formulas of a row, others
    are passed through. TABLE may be what `shardmath sweep` has written: its results are computed anew.
    """
    from shardmath.commands.evaluate import SWEEP_TERMS
    from shardmath.commands.evaluate import evaluate as run
    from shardmath.commands.evaluate.files import write_parquet
    from shardmath.reports.progress import progress

    if all_terms and terms:
        raise InputError("term", terms[0], "must not be given together with --all-terms")
    chosen = None if gpu is None and gpu_memory is None else device(gpu, gpu_memory, None)
    with progress("rows") as report:
        reader = run(table, model, chosen, network=network, terms="all" if all_terms else terms or SWEEP_TERMS,
                     implementation=implementation, kernels=kernel_choices(kernels), risk=risk, progress=report,
                     **_values(pairs))
        written = write_parquet(reader, output)
    if json:
        return click.echo(answer("evaluate", written.to_dict()))
    counts = ", ".join(f"{count:,} {name}" for name, count in written.counts.items())
    say(f"{output}: {written.rows:,} rows: {counts}")
    if written.passed_through:
        say(f"passed through: {', '.join(written.passed_through)}")
    if written.left_out:
        say(f"results of the table that were left out, as they are computed anew: {', '.join(written.left_out)}")


def _values(pairs: tuple[str, ...]) -> dict[str, int | str]:
    """Return values by parameter name from ``name=value`` texts. Raises InputError for a text that is none."""
    values: dict[str, int | str] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError("set", pair, "must be written name=value")
        if name in values:
            raise InputError("set", pair, f"must give {name} once")
        values[name] = int(text) if _INTEGER.fullmatch(text) else text
    return values
