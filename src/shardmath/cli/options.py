"""Option types and groups that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from shardmath.cli.names import (
    gpu_names,
    implementation_names,
    kernel_names,
    last_of,
    network_names,
    recompute_names,
    schedule_names,
)
from shardmath.cli.titled import under
from shardmath.configuration.defaults import IMPLEMENTATION_SHOWN, SEQ_LENGTH_SHOWN
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import CHOICES, DEFAULTS, IMPLEMENTATIONS, LIBRARIES, PARAMETERS, RECOMPUTE_MODES
from shardmath.input.parameters import MACHINE, OTHERS, UNEVEN, checked

Command = Callable[..., Any]


class Count(click.ParamType):  # type: ignore[type-arg]
    """An integer; anything else is refused in our own words."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The integer that the text says."""
        if isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            field = param.name if param is not None and param.name else "value"
            if field in PARAMETERS:
                checked(field, _number(value))
            raise InputError(field, value, "must be an integer") from None


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Integers with commas between them."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The integers that the text lists."""
        if isinstance(value, tuple):
            return value
        return tuple(Count().convert(part.strip(), param, ctx) for part in value.split(","))


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names that the text lists."""
        return value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(","))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def kernel_choices(texts: tuple[str, ...]) -> dict[str, str]:
    """Kernel choices from ``axis=option`` texts. Raises InputError for a text without an equals sign."""
    return pairs("kernel", texts, "axis=option")


def pairs(field: str, texts: tuple[str, ...], form: str) -> dict[str, str]:
    """Values by name from texts of the ``form`` name=value. Raises InputError for one without an equals sign."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(field, text, f"must be written {form}", f"{text}=..." if text in CHOICES else None)
        found[name.strip()] = value.strip()
    return found


def device(gpu: str | None, gpu_memory: float | None, node_size: int | None) -> Any:
    """The GPU that ``--gpu`` or ``--gpu-memory`` asks for, or the path of a cluster file."""
    from shardmath.machines.gpu import Gpu

    if gpu_memory is not None:
        if gpu is not None:
            raise InputError("gpu_memory", gpu_memory, "must not be given together with --gpu")
        return Gpu.custom(gpu_memory) if node_size is None else Gpu.custom(gpu_memory, node_size)
    if gpu is None:
        raise InputError("gpu", ABSENT, "must be given: a name of `shardmath gpus`, or --gpu-memory in GiB")
    return gpu if gpu.endswith(".toml") else Gpu.named(gpu)


def _apply(options: list[Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: Short names of options for parameters that have one.
_SHORT = {
    "virtual_pipeline": "--vpp", "expert_parallel": "--ep", "expert_tensor_parallel": "--etp",
}
#: Parameters that follow from the GPU.
OF_GPU = tuple(LIBRARIES["hopper"])
#: Defaults that are not a number of their own everywhere, in words.
EXPERT_TENSOR_PARALLEL = "that of TP with megatron, else 1"
_DEFAULTS = {"expert_tensor_parallel": EXPERT_TENSOR_PARALLEL, **dict.fromkeys(OF_GPU, "that of the GPU")}


def parameter_options(command: Command, names: Sequence[str] = OTHERS) -> Command:
    """Add one option per parameter of ``names``, called like it."""
    for name in reversed(names):
        _, unit, _, maximum, _, meaning = PARAMETERS[name]
        flags = [*([_SHORT[name]] if name in _SHORT else []), f"--{name.replace('_', '-')}", name]
        help_text = f"{meaning[0].upper()}{meaning[1:]}.  [default: {_DEFAULTS.get(name, DEFAULTS[name])}]"
        number: dict[str, Any] = {"type": Count(), "metavar": unit.upper()}
        kind = {"is_flag": True, "default": None} if maximum == 1 else number
        if maximum == 1 and name in OF_GPU:
            kind, flags[-2] = {"default": None}, f"{flags[-2]}/--no-{flags[-2][2:]}"
        command = click.option(*flags, help=help_text, **kind)(command)
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

#: Options that choose an implementation and its kernels.
implementation_options = under(
    "Model and kernels",
    click.option("--implementation", shell_complete=implementation_names,
                 help=f"Framework of the kernels: {', '.join(IMPLEMENTATIONS)}"
                      f"  [default: {IMPLEMENTATION_SHOWN}]"),
    click.option("--kernel", "kernels", multiple=True, metavar="AXIS=OPTION", shell_complete=kernel_names,
                 help="Replace one kernel choice; generated/formulas.md lists the axes. May be repeated."),
)

#: Options that write a launch file.
writing_options = _apply([
    click.option("--write", "format", metavar="FORMAT", help="Print a launch file: megatron, nemo or torchtitan."),
    click.option("-o", "--output", metavar="FILE", help="File for --write  [default: standard output;"
                                                        " the report goes to standard error]"),
])

_cluster_options = under(
    "Cluster",
    click.option("--gpu", shell_complete=gpu_names, help="GPU: a name of `shardmath gpus`, or a cluster file."),
    click.option("--network", shell_complete=network_names,
                 help="Network: a name of `shardmath networks`  [default: the vendor's]"),
    click.option("--gpu-memory", type=float, metavar="GIB", help="Memory of a GPU outside the catalogue."),
    click.option("--node-size", type=Count(), help="GPUs per node  [default: the GPU's usual server]"),
)
_training_options = under(
    "Training",
    click.option("--seq-length", type=Count(), help=f"Tokens per sequence.  [default: {SEQ_LENGTH_SHOWN}]"),
    click.option("--schedule", metavar="NAME", shell_complete=schedule_names,
                 help=f"Pipeline schedule: {', '.join(CHOICES['schedule'][1])}  [default: 1f1b, or interleaved with"
                      " several chunks per rank]"),
    click.option("--gradients", help="Gradient precision, fp32 or bf16  [default: the implementation's]"),
    click.option("--distributed-optimizer/--no-distributed-optimizer", default=None,
                 help="Shard optimizer states over DP x CP  [default: the implementation's]"),
    click.option("--zero-stage", type=Count(), metavar="STAGE",
                 help="ZeRO stage, 0 to 3; DeepSpeed's with huggingface  [default: the implementation's]"),
    click.option("--vocab-multiple", type=Count(),
                 help="Pad the vocabulary to a multiple of this times TP  [default: the implementation's]"),
)

#: Options of the training run and the cluster.
run_options = _apply([_cluster_options, _training_options])

#: Options of one layout.
_layout_options = under(
    "Job and layout",
    click.option("--tp", "--tensor-parallel", "tensor_parallel", type=Count(), default=1, show_default=True,
                 help="Tensor-parallel size."),
    click.option("--cp", "--context-parallel", "context_parallel", type=Count(), default=1, show_default=True,
                 help="Context-parallel size."),
    click.option("--pp", "--pipeline-parallel", "pipeline_parallel", type=Count(), default=1, show_default=True,
                 help="Pipeline-parallel size."),
    click.option("--dp", "--data-parallel", "data_parallel", type=Count(),
                 help="Data-parallel size  [default: --num-gpus / (TP x CP x PP), or 1]"),
    click.option("--num-gpus", type=Count(), help="GPUs of the job."),
    click.option("--micro-batch-size", type=Count(), default=1, show_default=True,
                 help="Sequences per micro-batch."),
    click.option("--global-batch-size", type=Count(),
                 help="Sequences per step  [default: enough to fill the pipeline]"),
    click.option("--sequence-parallel/--no-sequence-parallel", default=None,
                 help="Shard norms and residuals over TP  [default: the implementation's]"),
    click.option("--recompute", default="none", show_default=True, shell_complete=recompute_names,
                 help=f"Recompute mode: {', '.join(RECOMPUTE_MODES)}, or regions joined by +."),
    click.option("--pipeline-layout", metavar="N,N,...",
                 help="Layers of each pipeline stage, in model order  [default: even]"),
    click.option("--anchor", metavar="FILE",
                 help="Measured run (JSON) that fixes allocator, context and NCCL constants."),
)

#: Option that changes a setting of the launch file before it is read.
settings_option = under(
    "Model and kernels",
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                 help="Change a flag, key or variable of the launch file MODEL. May be repeated."),
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


def _axis(*names: str, meaning: str) -> Callable[[Command], Command]:
    return click.option(*names, type=Counts(), metavar="N,N,...", help=f"{meaning}  [default: all legal ones]")


#: Parameters of a layout that have one value in a search unless an option sets them.
LAYOUT_PARAMETERS = (*UNEVEN, "microbatch_group", "recompute_num_layers")
#: Options that restrict the layouts of a search.
axis_options = under(
    "Job and layout",
    _axis("--tp", "--tensor-parallel", "tensor_parallel", meaning="Tensor-parallel sizes to try."),
    _axis("--cp", "--context-parallel", "context_parallel", meaning="Context-parallel sizes to try."),
    _axis("--pp", "--pipeline-parallel", "pipeline_parallel", meaning="Pipeline-parallel sizes to try."),
    _axis("--micro-batch-size", meaning="Micro-batch sizes to try."),
    _axis("--sequence-parallel", meaning="Sequence parallelism to try: 0, 1."),
    _axis("--ep", "--expert-parallel", "expert_parallel", meaning="Expert-parallel sizes to try."),
    click.option("--etp", "--expert-tensor-parallel", "expert_tensor_parallel", type=Counts(), metavar="N,N,...",
                 help="Tensor-parallel sizes of routed experts to try  [default: all inside a node]"),
    click.option("--vpp", "--virtual-pipeline", "virtual_pipeline", type=Counts(), metavar="N,N,...",
                 help="Chunks of layers per pipeline rank to try  [default: all that divide the layers]"),
    click.option("--recompute", type=Names(), metavar="MODE,...", shell_complete=last_of(recompute_names),
                 help="Recompute modes to try  [default: every distinct set of modules, and full]"),
    lambda command: parameter_options(command, LAYOUT_PARAMETERS),
)


def without_absent(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` without absent parameters that only some commands declare."""
    named = {"expert_tensor_parallel", *LAYOUT_PARAMETERS, *MACHINE}
    return {name: int(value) if name in LAYOUT_PARAMETERS else value for name, value in options.items()
            if name not in named or value is not None}
