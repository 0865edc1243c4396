"""The command ``shardmath prove``: a claim about formulas, proved, refuted or open."""

from __future__ import annotations

import click

from shardmath.cli.options import implementation_options, kernel_choices
from shardmath.cli.titled import Titled
from shardmath.configuration.defaults import default_implementation
from shardmath.errors import ABSENT, InputError
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Prove or refute a claim about formulas.", examples=(
    '"first.total rises with seq_length"',
    '"first.total with zero_stage=1 <= first.total with zero_stage=0" --region "data_parallel >= 2"',
), work="proving")
@click.argument("claim", required=False)
@click.option("--region", default="", metavar="CONDITIONS",
              help='Conditions of the claim, such as "tensor_parallel <= num_kv_heads, recompute=none".')
@implementation_options
@click.option("--list", "listing", is_flag=True, help="List the claims of the catalogue, and stop.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def prove(
    claim: str | None, region: str, implementation: str | None, kernels: tuple[str, ...], listing: bool, json: bool,
) -> None:
    """Prove CLAIM for all legal integers, refute it by some of them, or say that it is open.

    CLAIM is the name of a claim in the catalogue, two sides with a relation, or a term that rises or falls with a
    parameter. "TERM with NAME=VALUE, ..." is a term at other values.
    """
    from shardmath.commands.prove.listed import Claims, claims
    from shardmath.commands.prove.report import show, show_listed
    from shardmath.commands.prove.run import prove as proved
    from shardmath.commands.prove.run import prove_listed

    if listing:
        listed = tuple(claims().values())
        if json:
            return click.echo(answer("claims", Claims(listed).to_dict()))
        return show_listed([(item.name, item.verdict, item.belief) for item in listed])
    if claim is None:
        raise InputError("claim", ABSENT, "must be given; `shardmath prove --list` has those of the catalogue")
    if claim in claims():
        if region or implementation or kernels:
            raise InputError("claim", claim, "must be given alone: the catalogue has its region and implementation")
        proof = prove_listed(claim)
    else:
        chosen = default_implementation(None) if implementation is None else implementation
        proof = proved(claim, region, chosen, kernel_choices(kernels))
    if json:
        return click.echo(answer("prove", proof.to_dict()))
    return show(proof)
