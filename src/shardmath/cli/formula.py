"""The command ``shardmath formula``: one term with its derivation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from shardmath.cli.encoding import shows
from shardmath.cli.options import implementation_options, kernel_choices
from shardmath.cli.titled import Titled
from shardmath.configuration.defaults import default_implementation
from shardmath.errors import ABSENT, InputError
from shardmath.reports.answers import answer
from shardmath.reports.waiting import say

if TYPE_CHECKING:
    from shardmath.commands.formula.run import Listed


@click.command(cls=Titled, short_help="Show a formula with its derivation.", examples=(
    "layer.saved --expand --assume 'sequence_parallel, recompute=none, t <= k'",
    "head.saved --implementation torchtitan --latex",
), work="deriving")
@click.argument("term", required=False)
@click.argument("further", nargs=-1, metavar="[WORD]...")
@implementation_options
@click.option("--assume", metavar="CONDITIONS", multiple=True, help="Show the formula where these hold, such as"
              " \"sequence_parallel, recompute=none, p > 1, t <= k\".")
@click.option("--expand", is_flag=True, help="Write out the terms in the formula.")
@click.option("--parts", is_flag=True, help="Write out the terms as named parts: for long formulas.")
@click.option("--list", "listing", is_flag=True, help="List all terms by component, or those with every WORD,"
              " and stop.")
@click.option("--latex", "form", flag_value="latex", help="Print the simplified form as LaTeX.")
@click.option("--python", "form", flag_value="python", help="Print the simplified form as Python.")
@click.option("--unicode", "form", flag_value="unicode", help="Print the simplified form as Unicode text.")
@click.option("--bibtex", "form", flag_value="bibtex", help="Print the sources of the formula as BibTeX.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def formula(
    term: str | None, further: tuple[str, ...], implementation: str | None, kernels: tuple[str, ...],
    assume: tuple[str, ...], expand: bool, parts: bool, listing: bool, form: str | None, json: bool,
) -> None:
    """Show the formula TERM: the tensors behind it and every step from them to the compiled form."""
    from shardmath.commands.formula.report import in_parts, show, show_terms
    from shardmath.commands.formula.run import Formulas, names
    from shardmath.commands.formula.run import formula as derive

    choices = kernel_choices(kernels)
    implementation = default_implementation(None) if implementation is None else implementation
    words = (*([term] if term else []), *further)
    term = " ".join(words)
    if listing:
        terms = tuple(item for item in names(implementation, choices) if _has(item, words))
        if not terms:
            raise InputError("term", term, f"must be words in the name, unit or meaning of a term of {implementation}")
        if json:
            return click.echo(answer("formulas", Formulas(implementation, choices, terms).to_dict()))
        return show_terms(terms)
    if not term:
        raise InputError("term", ABSENT, "must be given; `shardmath formula --list` has them all")
    if form == "bibtex":
        from shardmath.commands.formula.citing import bibliography

        return say(bibliography(term, implementation, choices).strip())
    derived = derive(term, implementation, choices, assume=assume, expand=expand)
    if parts:
        if expand:
            raise InputError("parts", "--expand", "must be one of --parts and --expand", "--parts")
        derived = in_parts(derived)
    if json:
        click.echo(answer("formula", derived.to_dict()))
    elif form is not None:
        text = getattr(derived.forms, form)
        say(text if shows(sys.stdout, text) else derived.steps[-1].form)
    else:
        show(derived)


def _has(term: Listed, words: tuple[str, ...]) -> bool:
    """Tell whether a term has all words in its name, group, unit or meaning."""
    text = f"{term.name} {term.group} {term.unit} {term.meaning}".lower()
    return all(word.lower() in text for word in words)
