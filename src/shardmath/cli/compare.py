"""The command ``shardmath compare``: configurations side by side, and by which tensors they differ."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shardmath.cli.meant import with_hyphens
from shardmath.cli.names import MODEL, is_launch_file
from shardmath.cli.options import Count, configuration_options
from shardmath.cli.titled import Titled
from shardmath.errors import InputError
from shardmath.reports.answers import answer

if TYPE_CHECKING:
    from shardmath.account.configured import Configuration

#: Options of the machine that a configuration keeps although a file of its own describes it.
_OF_MACHINE = ("gpu", "gpu_memory", "network", "node_size")
#: Of these only one can be given.
_EXCLUSIVE = ({"gpu", "gpu_memory"},)


@click.command("against", add_help_option=False, context_settings={"token_normalize_func": with_hyphens})
@click.argument("model", required=False)
@configuration_options
def _against(**options: Any) -> None:
    """Parse the options of one ``--against``."""


@click.command(cls=Titled, short_help="Compare configurations, tensor by tensor.", examples=(
    'llama-3.1-8b --gpu a100-80gb --tp 4 --against "--tp 2 --pp 2"',
    'llama-3.1-8b --gpu a100-80gb --against "--implementation torchtitan" --against published',
), work="accounting")
@click.argument("model", type=MODEL)
@configuration_options
@click.option("--against", "against", multiple=True, metavar="OPTIONS", required=True,
              help="Options of another configuration in quotes, such as '--tp 4', with its own MODEL where that"
                   " differs; or published, for published formulas. May be repeated.")
@click.option("--rank", type=Count(), help="Pipeline rank to compare  [default: the peak rank of each]")
@click.option("--all", "everything", is_flag=True, help="Show every term and every tensor.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--plot", metavar="FILE", help="Draw the memory of every configuration by role: .png, .svg or .html.")
def compare(
    model: str, against: tuple[str, ...], rank: int | None, everything: bool, json: bool, plot: str | None,
    **options: Any,
) -> None:
    """Set MODEL in one layout beside others, term by term, and explain each difference by tensor.

    MODEL is a name, the path of a config.json, or of a launch script or configuration. OPTIONS replace those of MODEL;
    all others stay. OPTIONS with a launch script keep only the GPU and the network of MODEL.
    """
    from shardmath.commands.compare import posed
    from shardmath.commands.compare.plot import picture
    from shardmath.commands.compare.report import show
    from shardmath.commands.compare.run import PUBLISHED
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    first = click.get_current_context()
    others = [
        text if text == PUBLISHED else (text, _merged(first, text, model, options)) for text in against
    ]
    comparison = posed(lambda: _configuration(model, options), others, rank)
    if plot is not None:
        write_picture(picture(comparison), plot)
    if json:
        click.echo(answer("compare", comparison.to_dict()))
    else:
        show(comparison, everything)


def _configuration(model: str, options: Mapping[str, Any]) -> Configuration:
    from shardmath.account.configured import configured
    from shardmath.cli.runs import configuration_arguments

    chosen, gpu, arguments = configuration_arguments(model, options)
    return configured(chosen, gpu, **arguments)


def _merged(
    first: click.Context, text: str, model: str, options: Mapping[str, Any],
) -> Callable[[], Configuration]:
    """Return the configuration that ``text`` describes where it differs from the first.

    Its context knows which options were given here or there, as those win over a file.
    Raises InputError for a text that is no options.
    """
    context = _parsed(text)
    own = _given(context)
    kept = dict(options)
    if context.params["model"] is not None:
        kept["settings"] = ()
        if is_launch_file(context.params["model"]):
            kept = {name: value for name, value in options.items() if name in _OF_MACHINE}
    for names in _EXCLUSIVE:
        if own & names:
            kept |= dict.fromkeys(names & kept.keys())
    merged = {**context.params, **kept, **{name: context.params[name] for name in own}}
    for name in ("kernels", "settings"):
        merged[name] = (*kept.get(name, ()), *context.params[name])
    for name in _given(first) & kept.keys():
        context.set_parameter_source(name, ParameterSource.COMMANDLINE)
    chosen = merged.pop("model") or model

    def configuration() -> Configuration:
        with context.scope():
            return _configuration(chosen, merged)

    return configuration


def _parsed(text: str) -> click.Context:
    from shardmath.commands.compare.run import PUBLISHED

    if get_close_matches(text.strip().lower(), [PUBLISHED], cutoff=0.8):
        raise InputError("against", text, f"must be options, a model with options, or {PUBLISHED}", PUBLISHED)
    known = {word for option in _against.params for word in option.opts}
    if re.match(r"\w+=", text) or f"--{text.partition(' ')[0]}" in known:
        options = re.sub(r"(?<![^ ,])([a-z]\w*)[= ]", lambda name: f"--{with_hyphens(name[1])} ", text)
        raise InputError("against", text, "must be options as on a command line", f'"{options.replace(",", " ")}"')
    try:
        return _against.make_context("against", shlex.split(text))
    except ValueError as error:
        raise InputError("against", text, f"must be options as on a command line: {error}") from None
    except click.UsageError as error:
        said = " ".join(error.format_message().split())
        raise InputError("against", text, f"must be options of a configuration: {said}") from None


def _given(context: click.Context) -> set[str]:
    """Return the names of options on the command line."""
    return {name for name in context.params
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE} - {"model"}
