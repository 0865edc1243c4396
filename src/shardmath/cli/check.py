"""The command ``shardmath check``: one line and an exit code for a launch file or a certificate, for CI and Slurm."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from shardmath.cli.fitting import end_unless
from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options
from shardmath.cli.titled import Titled
from shardmath.errors import InputError
from shardmath.reports.waiting import say

FITS, UNCERTAIN = "fits", "uncertain"


@click.command(cls=Titled, short_help="Say in one line whether a launch file fits; exit 3 if it does not.", examples=(
    "job.sbatch --gpu h100-80gb",
    "llama3_8b.toml --gpu h200 --allow-uncertain",
), work="accounting")
@click.argument("model", metavar="FILE", type=MODEL)
@configuration_options
@click.option("--allow-uncertain", is_flag=True, help="Accept a run that may run out of memory too.")
def check(model: str, allow_uncertain: bool, **options: Any) -> None:
    """Say in one line whether the run that FILE launches fits, and end with exit code 3 if it does not.

    FILE is a launch script or configuration of any format of docs/formats.md, or a model with the options of its
    layout. Bad input ends with exit code 2, as everywhere. FILE may be a certificate that ``shardmath explore`` wrote:
    then its proof is checked, and one that does not hold is bad input.
    """
    from shardmath.search.certificates import is_certificate

    if is_certificate(model):
        from shardmath.search.certificates.checked import checked_file

        _refuse_options({**options, "allow_uncertain": allow_uncertain})
        proof = checked_file(model)
        answers = ", ".join(f"{count:,} of {name}{_within(proof.gaps[name])}" for name, count in proof.answers.items())
        say(f"{model}: proved: {answers} of {proof.size:,} configurations, by {proof.boxes:,} boxes and"
            f" {proof.exact:,} configurations in exact fractions")
        return
    from shardmath.account.accounting import explain
    from shardmath.cli.runs import configuration_arguments
    from shardmath.reports.tables import chance, gib

    chosen, gpu, arguments = configuration_arguments(model, options)
    account = explain(chosen, gpu, **arguments)
    peak, memory = account.peak, account.gpu.memory_gib
    line = (f"{model}: {account.verdict}: {gib(peak.total)} of {memory:g} GiB ({peak.share:.1%}) on pipeline rank"
            f" {peak.rank}, runs out with a probability of {chance(account.run_out_probability)}, by the 80 % rule"
            f" {account.rule_80}")
    if account.time is not None:
        line += f", {account.time.seconds:.2f} s a step"
    say(line)
    end_unless(account.verdict in ((FITS, UNCERTAIN) if allow_uncertain else (FITS,)))


def _within(gap: float) -> str:
    """Return by how much others may be better than the answers of a search that was stopped."""
    return f" (stopped: others are at most {gap:.2%} better)" if gap else ""


def _refuse_options(options: dict[str, Any]) -> None:
    """Raise InputError for an option on the command line: a certificate says all that it is about."""
    for name, value in options.items():
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(name, str(value), "must not be given with a certificate, which has its space")
