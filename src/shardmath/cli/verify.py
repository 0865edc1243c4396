"""The command ``shardmath verify``: programs that check a prediction, and their results beside it."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options
from shardmath.cli.titled import Titled
from shardmath.errors import ABSENT, InputError
from shardmath.reports.answers import answer
from shardmath.reports.waiting import say


@click.command(cls=Titled, short_help="Write a program that checks a prediction on one GPU or none.", examples=(
    "run.sh --gpu h100-80gb -o check.sh",
    "--read shardmath_result.json --table evidence.csv",
), work="accounting")
@click.argument("model", metavar="RUN", required=False, type=MODEL)
@configuration_options
@click.option("-o", "--output", metavar="FILE", help="Write the program into FILE  [default: print it]")
@click.option("--hook", is_flag=True, help="Write the hook that a training is started through.")
@click.option("--read", "result", metavar="RESULT", help="Compare the result of a program with its prediction.")
@click.option("--table", metavar="FILE", help="Append what --read has compared to a CSV file.")
@click.option("--json", is_flag=True, help="Print what --read has compared as JSON.")
def verify(
    model: str | None, output: str | None, hook: bool, result: str | None, table: str | None, json: bool,
    **options: Any,
) -> None:
    """Write a program that runs one rank of RUN and measures its peak, or compare its result with the prediction.

    RUN is a launch file, or a model with the options of its layout, as for ``shardmath explain``. Runs of Megatron-LM
    and torchtitan need one GPU, in a fake process group; models of Hugging Face with FSDP2 need none.
    """
    if result is not None:
        _refuse_beside_a_result({"run": model, "output": output, "hook": hook or None})
        return _compare(result, table, json)
    for name, value in (("table", table), ("json", json or None)):
        if value is not None:
            raise InputError(name, value, "must be given with --read, whose result it has")
    if model is None:
        raise InputError("run", ABSENT, "must be given: a launch file or a model; or --read RESULT")
    from shardmath.account.configured import configured
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.verify import programs
    from shardmath.files.writing import whole_file

    chosen, gpu, arguments = configuration_arguments(model, options)
    write = programs.hook if hook else programs.program
    text = write(configured(chosen, gpu, **arguments), chosen, gpu, arguments)
    file: Any
    with whole_file("output", output or "-") as file:
        file.write(text)
    if output not in (None, "-"):
        say(f"{output}: writes {programs.RESULT}; then: shardmath verify --read {programs.RESULT}")
    return None


def _compare(result: str, table: str | None, json: bool) -> None:
    from shardmath.commands.verify.report import show
    from shardmath.commands.verify.results import add_to_table, read_result

    compared = read_result(result)
    if table is not None:
        add_to_table(compared, table)
    if json:
        return click.echo(answer("verify", compared.to_dict()))
    return show(compared)


def _refuse_beside_a_result(arguments: dict[str, Any]) -> None:
    """Raise InputError for what a result has already."""
    for name, value in arguments.items():
        if value is not None:
            raise InputError(name, value, "must not be given with --read, whose result has its run")
