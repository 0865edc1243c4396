"""Launch files on the command line: options take precedence over the file, and notes name each conflict."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shardmath.cli.meant import with_hyphens
from shardmath.cli.names import is_launch_file
from shardmath.cli.options import device, kernel_choices, kernel_options, pairs, without_absent
from shardmath.errors import InputError
from shardmath.input.parameters import MACHINE, OTHERS
from shardmath.reports.waiting import quiet, silence

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation
    from shardmath.formats import Run
    from shardmath.models.model import Model

#: Share of letters in order from which two keys are close.
_CLOSE = 0.8


def described(
    model: str, settings: Mapping[str, str], options: Mapping[str, Any],
) -> tuple[Model | str, dict[str, Any]]:
    """Return the model and the arguments of ``explain``; options of the command line win over those of a file.

    Raises InputError for a file that cannot be read, and for ``settings`` without one.
    """
    if is_launch_file(model):
        from shardmath.formats import read

        run = read(model, settings)
        asked = {name: value for name, value in options.items() if _asked(name, value)}
        _report(model, run, asked)
        return run.model, run.changed(asked)
    if settings:
        name, value = next(iter(settings.items()))
        known = name.replace("-", "_") in (*options, *OTHERS, *MACHINE)
        raise InputError("set", name, "must not be given: the model is not a file with settings",
                         f"--{with_hyphens(name)} {value}" if known else None)
    return model, dict(options)


def configuration_arguments(model: str, options: Mapping[str, Any]) -> tuple[Model | str, Any, dict[str, Any]]:
    """Return the model, the GPU and the other arguments of ``explain``, from all ``configuration_options``.

    Raises InputError for a file that cannot be read, and for options that are not legal.
    """
    others = {name: int(options[name]) for name in (*OTHERS, *MACHINE) if options[name] is not None}
    rest = {name: value for name, value in options.items() if name not in (*OTHERS, *MACHINE)}
    return _of_machine(model, {**rest, **others}, described)


def search_arguments(model: str, options: Mapping[str, Any]) -> tuple[Model | str, Any, dict[str, Any]]:
    """Return the model, the GPU and the other arguments of a search, from all ``search_options``.

    Raises InputError for a file that cannot be read, and for options that are not legal.
    """
    names = options["implementation"]
    single = {"implementation": names[0]} if names and len(names) == 1 else {}
    return _of_machine(model, without_absent({**options, **single}), _without_layout, kernel_options)


def _of_machine(
    model: str, options: dict[str, Any], read: Callable[..., tuple[Model | str, dict[str, Any]]],
    choices: Callable[[tuple[str, ...]], Mapping[str, object]] = kernel_choices,
) -> tuple[Model | str, Any, dict[str, Any]]:
    """Return the model, the GPU, and the arguments that ``read`` makes of the model and all other options."""
    gpu, gpu_memory, node_size = (options.pop(name) for name in ("gpu", "gpu_memory", "node_size"))
    settings, kernels = pairs("set", options.pop("settings"), "key=value"), choices(options.pop("kernels"))
    chosen, arguments = read(model, settings, {**options, "kernels": kernels})
    return chosen, device(gpu, gpu_memory, node_size), {**arguments, "node_size": node_size}


def _without_layout(
    model: str, settings: Mapping[str, str], options: Mapping[str, Any],
) -> tuple[Model | str, dict[str, Any]]:
    """Return the model and the arguments of a search: those of a file without its layout, replaced by options."""
    chosen, arguments = described(model, settings, options)
    if isinstance(chosen, str):
        return chosen, arguments
    from shardmath.configuration.defaults import GRADIENTS_AHEAD, WEIGHTS_AHEAD
    from shardmath.generated.definitions import PARAMETERS

    layout = {*_OF_LAYOUT, *(name for name, row in PARAMETERS.items() if row[4] == "layout")}
    layout |= {name for name in (GRADIENTS_AHEAD, WEIGHTS_AHEAD) if not arguments.get(name)}
    kept = {name: value for name, value in arguments.items() if name not in layout or _asked(name, options.get(name))}
    kept["kernels"] = {axis: option for axis, option in kept["kernels"].items() if axis != "recompute_method"}
    return chosen, kept


#: Arguments that say a layout, beside the parameters that do.
_OF_LAYOUT = ("num_gpus", "global_batch_size", "recompute", "pipeline_layout")


def as_file(format: str, explanation: Explanation, layout: object) -> str:
    """Return the run that ``explanation`` accounts for as the text of a file."""
    from shardmath.configuration.stages import parsed
    from shardmath.formats import written

    return written(format, explanation, parsed(layout) if isinstance(layout, str) else layout)  # type: ignore[arg-type]


def deliver(text: str, output: str | None, report: Callable[[], None]) -> None:
    """Put a written file where it can be used alone: into ``output``, else on the standard output, and say the rest.

    The report goes to the standard output where that is free, else to the standard error.
    """
    if output is None:
        click.echo(text, nl=False)
        with redirect_stdout(sys.stderr):
            report()
        return
    from shardmath.files.writing import whole_file

    file: Any
    with whole_file("output", output) as file:
        file.write(text)
    report()


def refuse_unwritten(format: str | None, **options: object) -> None:
    """Raise InputError for options of what is written, where they stand on the command line without a format for it."""
    for name, value in options.items():
        if format is None and _asked(name, value):
            raise InputError(name, value, "must be given with --write, which says the format")


def _asked(name: str, value: object) -> bool:
    """Tell whether an option stands on the command line."""
    if name == "kernels":
        return bool(value)
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _nearest_key(run: Run, key: str) -> str:
    """Return the key of the run's format that is spelled most like an unknown one; empty where none is close."""
    from difflib import get_close_matches

    from shardmath.formats.described import tables

    known = {name for table in tables() if table.name == run.format
             for names in (table.own, table.means, table.opposite, table.words, table.files) for name in names}
    free = sorted(known.difference(run.understood, run.without_effect))
    return next(iter(get_close_matches(key, free, n=1, cutoff=_CLOSE)), "")


def _report(path: str, run: Run, asked: Mapping[str, Any]) -> None:
    """Print the settings that were read, the unknown ones and the replaced ones to standard error."""
    name = os.path.basename(path)
    silence()
    lines = [f"note: {name}: {len(run.understood)} settings understood, {len(run.without_effect)} without effect on"
             " memory"]
    lines += [f"note: {option} = {value} wins over {run.arguments[option]} of {name}"
              for option, value in asked.items() if run.arguments.get(option, value) != value and option != "kernels"]
    kernels = run.arguments.get("kernels", {})
    lines += [f"note: {axis} = {option} wins over {kernels[axis]} of {name}"
              for axis, option in asked.get("kernels", {}).items() if kernels.get(axis, option) != option]
    lines += [f"warning: {text}" for text in run.warnings]
    nearest = {key: _nearest_key(run, key) for key in run.unknown}
    lines += [f"warning: {key} is not known here: its effect is not counted yet{near and f'; nearest: {near}'}"
              for key, near in nearest.items()]
    for line in lines if not quiet() else ():
        click.echo("".join(sign if sign.isprintable() else "?" for sign in line), err=True)
