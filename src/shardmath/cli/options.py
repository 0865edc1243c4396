"""Option types and groups that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import click

from shardmath.catalogue import read
from shardmath.cli.names import (
    GPU,
    NETWORK,
    implementation_names,
    kernel_names,
    last_of,
    recompute_names,
    schedule_names,
)
from shardmath.cli.titled import under
from shardmath.configuration.fields import Layout, Layouts, Training, names_of, shown
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import (
    ABSENT_RANKS,
    ASKED,
    CHOICES,
    IMPLEMENTATIONS,
    PARAMETERS,
    RECOMPUTE_REGIONS,
)
from shardmath.input.meant import kernel_of
from shardmath.input.parameters import MACHINE, OF_GPU, OTHERS, TYPED, checked
from shardmath.input.quantities import length

Command = Callable[..., Any]


def _field_of(param: click.Parameter | None) -> str:
    return param.name if param is not None and param.name else "value"


class Count(click.ParamType):  # type: ignore[type-arg]
    """An integer; anything else is refused in our own words."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer that the text says. Raises InputError for another text."""
        if isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            field = _field_of(param)
            if field == "num_gpus" and value in read("gpus"):
                raise InputError(field, value, "must be a number, not a kind", f"--gpu {value}") from None
            if field in PARAMETERS:
                if meant := _meant_count(field, value):
                    raise InputError(field, value, "must be an integer", meant) from None
                if re.fullmatch(r"\d+(\.\d+)?[kKMBT]", value):
                    rule = f"must be an integer without a letter behind it: {PARAMETERS[field][1]}"
                    tokens = "the tokens of a step divided by --seq" if field == "global_batch_size" else None
                    raise InputError(field, value, rule, tokens) from None
                checked(field, _number(value))
            digits = re.search(r"\d{1,9}", value, re.ASCII)
            raise InputError(field, value, "must be an integer", digits and digits[0]) from None


def _meant_count(field: str, text: str) -> str | None:
    """Return the integer that a product means, and of GPUs those beside their kind, or the first of several."""
    if product := re.fullmatch(r"(\d{1,6})[x*](\d{1,6})", text):
        return str(int(product[1]) * int(product[2]))
    if field != "num_gpus":
        return None
    if kind := re.fullmatch(r"(\d{1,6})\s*x\s*([A-Za-z][\w.-]*)", text):
        return f"{kind[1]}, with --gpu {kind[2]}"
    several = re.fullmatch(r"(\d{1,9})(?:,\s*\d{1,9})+", text)
    thousands = re.fullmatch(r"\d{1,3}(?:,\d{3})+", text)
    return f"{several[1]}; `shardmath scale` takes several" if several and not thousands else None


class Tokens(Count):
    """An integer, or one with ``k`` or ``M`` behind it for 1024 tokens or their square."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer that the text says."""
        tokens = length(value) if isinstance(value, str) else None
        return tokens if tokens is not None else super().convert(value, param, ctx)


class Gib(click.ParamType):  # type: ignore[type-arg]
    """A number of GiB; a unit behind it is refused in our own words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that the text says. Raises InputError for another text."""
        try:
            return float(value)
        except ValueError:
            match = re.match(r"(\d{1,9}(?:\.\d{1,9})?)\s*([KMT]?)", value, re.IGNORECASE)
            nearest = match and f"{float(match[1]) * _GIB_OF[match[2].upper()]:g}"
            raise InputError(_field_of(param), value, "must be a number of GiB, without a unit", nearest) from None


#: GiB by the letter of a unit.
_GIB_OF = {"": 1, "K": 2**-20, "M": 2**-10, "T": 2**10}


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Integers with commas between them."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the integers that the text lists. Raises InputError for brackets and ranges."""
        if isinstance(value, tuple):
            return value
        if listed := _listed(value):
            field = _field_of(param)
            raise InputError(field, value, "must be integers with commas between them", listed)
        return tuple(Count().convert(part.strip(), param, ctx) for part in value.split(","))


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names that the text lists."""
        return value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(","))


def _listed(text: str) -> str | None:
    """Return the integers that brackets or a range mean: of a range its powers of two; None for other texts."""
    if re.fullmatch(r"[\[(][\d, ]+[\])]", text):
        return text[1:-1].replace(" ", "")
    bounds = re.fullmatch(r"(\d{1,9})(?:-|\.\.|:)(\d{1,9})", text)
    powers = [2**power for power in range(30) if int(bounds[1]) <= 2**power <= int(bounds[2])] if bounds else []
    return ",".join(map(str, powers)) or None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def kernel_choices(texts: tuple[str, ...]) -> dict[str, str]:
    """Kernel choices from ``axis=option`` texts. Raises InputError for a text without an equals sign."""
    return pairs("kernel", texts, "axis=option", lambda text: kernel_of(text) or "those of `shardmath kernels`")


def kernel_options(texts: tuple[str, ...]) -> dict[str, str | tuple[str, ...]]:
    """Kernel choices from ``axis=option,option`` texts, several options as a tuple. Raises InputError as ``pairs``."""
    split = {axis: tuple(map(str.strip, text.split(","))) for axis, text in kernel_choices(texts).items()}
    return {axis: options if len(options) > 1 else options[0] for axis, options in split.items()}


def pairs(
    field: str, texts: tuple[str, ...], form: str, meant: Callable[[str], str] = lambda text: "",
) -> dict[str, str]:
    """Return values by name from texts of the ``form`` name=value.

    Raises InputError for one without an equals sign, with what is ``meant``.
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            nearest = f"{text}=..." if text in CHOICES else meant(text)
            raise InputError(field, text, f"must be written {form}", nearest)
        values[name.strip()] = value.strip()
    return values


def _prices(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> str | dict[str, str] | None:
    """Prices from the texts of ``--price``: one number, or numbers by kind of GPU. Raises InputError for both."""
    texts = tuple(part for text in texts for part in (text.split(",") if "=" in text else [text]))
    alone = [text for text in texts if "=" not in text]
    if alone and len(texts) > 1:
        raise InputError("price", alone[0], "must be written GPU=PRICE where there are several", "h100-80gb=2.50")
    return alone[0] if alone else pairs("price", texts, "GPU=PRICE") or None


def device(gpu: str | None, gpu_memory: float | None, node_size: int | None) -> Any:
    """Return the GPU of ``--gpu`` or ``--gpu-memory``, or a cluster file's path. Raises InputError for none or both."""
    from shardmath.machines.files import is_cluster_file
    from shardmath.machines.gpu import Gpu

    if gpu_memory is not None:
        if gpu is not None:
            raise InputError("gpu_memory", gpu_memory, "must not be given together with --gpu")
        return Gpu.custom(gpu_memory) if node_size is None else Gpu.custom(gpu_memory, node_size)
    if gpu is None:
        raise InputError("gpu", ABSENT, "must be given: a name of `shardmath gpus`, or --gpu-memory in GiB")
    return gpu if is_cluster_file(gpu) else Gpu.named(gpu)


def _apply(options: list[Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: Switches that are on by default in some implementation.
ON = {name for item in IMPLEMENTATIONS.values() for name, value in item["defaults"].items()
      if value and name not in item["fixed"]}
#: Placeholders of values that are no numbers with a unit.
_METAVARS = {"schedule": "NAME", "pipeline_layout": "N,N,...", "anchor": "FILE", "zero_stage": "STAGE",
             "risk": "PERCENT", "recompute": "MODE,..."}
_COMPLETED = {
    "implementation": implementation_names, "schedule": schedule_names, "recompute": recompute_names,
}


def _field_options(kind: type[Training], *names: str) -> list[Command]:
    """Make one option per field of ``kind``, by the type of the field."""
    return [_field_option(kind, name) for name in names]


def _field_option(kind: type[Training], name: str) -> Command:
    field = next(item for item in fields(kind) if item.name == name)
    hint = str(field.type)
    flags = [*([f"--{TYPED[name]}"] if name in TYPED else []), f"--{name.replace('_', '-')}"]
    how: dict[str, Any] = {"shell_complete": _COMPLETED.get(name)}
    if hint.startswith("bool"):
        how, flags[-1] = {"default": None}, f"{flags[-1]}/--no-{flags[-1][2:]}"
    elif "Sequence[int] |" in hint and "str" not in hint:
        how = {"type": Counts(), "metavar": "N,N,..."}
    elif "Sequence[str]" in hint:
        how = {"type": Names(), "metavar": _METAVARS.get(name, "NAME,..."), "shell_complete": last_of(_COMPLETED[name])}
    elif hint.startswith("int"):
        how["type"] = Tokens() if name in ("seq_length", "document_length") else Count()
    elif name == "network":
        how["type"] = NETWORK
    if name in _METAVARS and "metavar" not in how:
        how["metavar"] = _METAVARS[name]
    if field.default not in (None, MISSING):
        how["default"] = field.default
    return click.option(*flags, name, help=shown(name, kind).sentence, **how)


def parameter_options(command: Command, names: Sequence[str] = OTHERS) -> Command:
    """Add one option per parameter of ``names``, called like it."""
    for name in reversed(names):
        _, unit, _, maximum, *_ = PARAMETERS[name]
        flags = [*([f"--{TYPED[name]}"] if name in TYPED else []), f"--{name.replace('_', '-')}", name]
        number: dict[str, Any] = {"type": Count(), "metavar": unit.upper()}
        kind = {"is_flag": True, "default": None} if maximum == 1 else number
        if maximum == 1 and (name in OF_GPU or name in ON):
            kind, flags[-2] = {"default": None}, f"{flags[-2]}/--no-{flags[-2][2:]}"
        command = click.option(*flags, help=shown(name).sentence, **kind)(command)
    return command


def _machine_options(command: Command) -> Command:
    """Add one option per machine parameter with a usual value, called like it."""
    for name in reversed(MACHINE):
        _, unit, _, maximum, _, meaning = PARAMETERS[name]
        kind: dict[str, Any] = {"type": Count(), "metavar": unit.upper(), "help": f"{meaning[0].upper()}{meaning[1:]}."}
        flag = f"--{name.replace('_', '-')}"
        if maximum == 1:
            kind, flag = {"default": None, "help": kind["help"]}, f"{flag}/--no-{flag[2:]}"
        command = click.option(flag, name, **kind)(command)
    return command


machine_options = under("Machine constants", _machine_options)

#: Option that chooses kernels.
_kernel_option = under(
    "Model and kernels",
    click.option("--kernel", "kernels", multiple=True, metavar="AXIS=OPTION", shell_complete=kernel_names,
                 help="Replace one kernel choice; `shardmath kernels` lists the axes. Searches try several: A,B."
                      " May be repeated."),
)
#: Options that choose an implementation and its kernels, or several in a search.
implementation_options = _apply([
    under("Model and kernels", *_field_options(Training, "implementation")), _kernel_option])
_programs_options = _apply([under("Model and kernels", *_field_options(Layouts, "implementation")), _kernel_option])

#: Options that write a launch file.
writing_options = _apply([
    click.option("--write", "format", metavar="FORMAT", help="Print a launch file: megatron, nemo, bridge, torchtitan,"
                                                             " trl, accelerate or deepspeed."),
    click.option("-o", "--output", metavar="FILE", help="File for --write  [default: standard output;"
                                                        " the report goes to standard error]"),
])

_cluster_options = under(
    "Cluster",
    click.option("--gpu", type=GPU, help="GPU: a name of `shardmath gpus`, or a cluster file."),
    *_field_options(Training, "network"),
    click.option("--gpu-memory", type=Gib(), metavar="GIB", help="Memory of a GPU outside the catalogue."),
    *_field_options(Training, "node_size"),
)
#: Option that says what GPUs cost.
price_option = click.option("--price", multiple=True, metavar="[GPU=]PRICE", callback=_prices,
                            help=shown("price", Training).sentence)

#: Option that says who runs the loops, and the same where few need it.
dask_option = click.option(
    "--dask", metavar="ADDRESS",
    help="Loop on the cluster of a Dask scheduler, or on processes here: local. Dask sends pickles over TCP: use a"
         " network of your own, or TLS (tls://HOST:PORT).")
rare_dask_option = under("Rarely set", dask_option)

#: Option that says what fits.
risk_option = under("Cluster", *_field_options(Training, "risk"))
_training_options = under("Training", *_field_options(
    Training, "seq_length", "schedule", "gradients", "distributed_optimizer", "zero_stage",
))

#: Options of the training run and the cluster.
run_options = _apply([_cluster_options, under("Cluster", price_option), risk_option, _training_options,
                      under("Rarely set", *_field_options(Training, "vocab_multiple"))])

#: Options of one layout.
_layout_options = under("Job and layout", *_field_options(
    Layout, *(name for name in names_of(Layout) if name not in names_of(Training)),
))

#: Option that changes a setting of the launch file before it is read.
settings_option = under(
    "Model and kernels",
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                 help="Change a setting of the launch file: a flag, key or variable. May be repeated."),
)

#: All options of one configuration; ``runs.configuration_arguments`` takes them.
configuration_options = _apply([
    _layout_options,
    run_options,
    under("Rarely set", parameter_options),
    machine_options,
    implementation_options,
    settings_option,
])


#: Parameters of a layout, and those of adapters and systems, with one value in a search.
LAYOUT_PARAMETERS = tuple(name for name in OTHERS
                          if (PARAMETERS[name][4] == "layout" or PARAMETERS[name][1] == "groups" or name in ASKED)
                          and name not in (*names_of(Layouts), *RECOMPUTE_REGIONS.values()))
#: Options that restrict the layouts of a search.
axis_options = _apply([
    under("Job and layout", *_field_options(Layouts, *(
        name for name in names_of(Layouts)
        if name not in (*names_of(Training), *ABSENT_RANKS, "top", "every_switch")))),
    under("Rarely set", *_field_options(Layouts, "every_switch", *ABSENT_RANKS),
          lambda command: parameter_options(command, LAYOUT_PARAMETERS)),
])


#: GPUs and sequences of a search that has one number of each.
job_options = under(
    "Job and layout",
    click.option("--gpus", "--num-gpus", "num_gpus", type=Count(), required=True, help="GPUs of the job."),
    click.option("--gbs", "--global-batch-size", "global_batch_size", type=Count(), required=True,
                 help="Sequences per step."),
)
#: All other options of a search; ``runs.search_arguments`` takes them.
search_options = _apply([run_options, axis_options, _programs_options, machine_options, settings_option])


def without_absent(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` without absent parameters that only some commands declare."""
    named = {"expert_tensor_parallel", *LAYOUT_PARAMETERS, *MACHINE}
    return {name: int(value) if name in LAYOUT_PARAMETERS else value for name, value in options.items()
            if name not in named or value is not None}
