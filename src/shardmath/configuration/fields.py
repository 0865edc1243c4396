"""The fields of a training run and of a search of layouts: each once, with meaning, unit, default and range.

The functions of the API, their documentation, the options of the command line and measured runs take them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from inspect import getdoc
from os import PathLike
from typing import Any, TypeVar

from shardmath.configuration.risk import RISK, with_parts
from shardmath.generated.definitions import (
    ABSENT_DEGREES,
    ABSENT_RANKS,
    ASKED,
    CHOICES,
    DEFAULTS,
    IMPLEMENTATIONS,
    PARAMETERS,
    RECOMPUTE_MODES,
)
from shardmath.input.parameters import OF_GPU

Kind = TypeVar("Kind", bound=type)

#: Tokens of a sequence, where a model's own limit does not forbid so many.
SEQ_LENGTH = 8192
#: The implementation of formulas, unless another is asked for.
FIRST = next(iter(IMPLEMENTATIONS))
#: Name of the field with further parameters.
OTHERS = "others"
_OWN = "the implementation's"
#: Defaults of parameters that follow from others, in words.
_FOLLOW = {"expert_tensor_parallel": "that of TP with megatron, else 1", **dict.fromkeys(OF_GPU, "that of the GPU")}


def declared(meaning: str = "", *, default: Any = None, absent: str = "") -> Any:
    """Declare a field; a parameter has its ``meaning`` in ``PARAMETERS``. ``absent`` says the default None in words."""
    return field(default=default, metadata={"meaning": meaning, "absent": absent})


@dataclass(frozen=True, kw_only=True)
class Training:
    """Fields of a run and of a search; None has a default that depends on the rest."""

    network: str | None = declared("network between nodes: a name of `shardmath networks`", absent="the vendor's")
    node_size: int | None = declared(absent="the GPU's usual server")
    seq_length: int | None = declared(absent=f"{SEQ_LENGTH}, or the rows of a shorter table of learned positions")
    schedule: str | None = declared(f"pipeline schedule: {', '.join(CHOICES['schedule'][1])}",
                                  absent="1f1b, or interleaved with several chunks per rank")
    gradients: str | None = declared("gradient precision, fp32 or bf16", absent=_OWN)
    distributed_optimizer: bool | None = declared(absent=_OWN)
    zero_stage: int | None = declared("ZeRO stage, 0 to 3; DeepSpeed's with huggingface", absent=_OWN)
    vocab_multiple: int | None = declared(absent=_OWN)
    implementation: str | None = declared(f"framework of the kernels: {', '.join(IMPLEMENTATIONS)}",
                                        absent="megatron; the first that has it for a model that Megatron-Core lacks")
    kernels: Mapping[str, str] | None = declared("kernel choices, option by axis; `shardmath kernels` lists them",
                                               absent=_OWN)
    risk: float | str | None = declared(
        "accepted probability of running out of memory, such as 5%: a layout fits below it", absent="1%")
    price: Mapping[str, float | str] | float | str | None = declared(
        "price of one GPU for an hour in your currency (2.1), or of each kind (h100-80gb=2.1)",
        absent="that of the cluster file")
    others: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Write an accepted risk as the parameter that formulas have. Raises InputError for one that is not legal."""
        if self.risk is not None:
            object.__setattr__(self, OTHERS, with_parts({**self.others, RISK: self.risk}))

    def asked(self, name: str) -> Any:
        """Return the value of a field, or of a further parameter; None where it has none."""
        return self.others.get(name) if name not in names_of(type(self)) else getattr(self, name)


@dataclass(frozen=True, kw_only=True)
class Layout(Training):
    """Fields of one configuration."""

    tensor_parallel: int = declared(default=1)
    context_parallel: int = declared(default=1)
    pipeline_parallel: int = declared(default=1)
    data_parallel: int | None = declared(absent="num_gpus / (TP x CP x PP), or 1")
    num_gpus: int | None = declared(absent="TP x CP x PP x DP")
    micro_batch_size: int = declared(default=1)
    global_batch_size: int | None = declared(absent="enough to fill the pipeline")
    sequence_parallel: bool | None = declared(absent=_OWN)
    recompute: str = declared(f"recompute mode: {', '.join(RECOMPUTE_MODES)}, or regions joined by +", default="none")
    pipeline_layout: Sequence[int] | str | None = declared("layers of each pipeline stage, in model order",
                                                           absent="even")
    anchor: str | PathLike[str] | None = declared(
        "measured run (JSON), whose constants of allocator, context and NCCL are taken")


def with_degrees(behind: str, typed: Callable[[str], Any], default: Callable[[str], Any]) -> Callable[[Kind], Kind]:
    """Return a decorator, below ``dataclass``, that declares the degrees that only systems have, behind a field.

    ``typed`` and ``default`` give the annotation and the default of a degree by its name.
    """

    def declare(kind: Kind) -> Kind:
        declared_fields = list(kind.__annotations__.items())
        place = 1 + list(kind.__annotations__).index(behind)
        degrees = [(name, typed(name)) for name in ABSENT_DEGREES]
        kind.__annotations__ = dict([*declared_fields[:place], *degrees, *declared_fields[place:]])
        for name in ABSENT_DEGREES:
            setattr(kind, name, default(name))
        return kind

    return declare


def _sizes_of_system(name: str) -> Any:
    """Declare sizes to try of a degree; those that multiply ranks are all tried with the option that has them."""
    return declared(absent=f"1, or all legal ones with {'='.join(ASKED[name])}" if name in ABSENT_RANKS else "1")


@dataclass(frozen=True, kw_only=True)
@with_degrees("pipeline_parallel", lambda name: "Sequence[int] | None", _sizes_of_system)
class Layouts(Training):
    """Fields of a search: sizes to try for each axis; None tries all legal ones."""

    implementation: str | Sequence[str] | None = declared(  # type: ignore[assignment]  # a run has one
        f"framework of the kernels, or several to try: {', '.join(IMPLEMENTATIONS)}",
        absent="megatron; the first that has it for a model that Megatron-Core lacks")
    kernels: Mapping[str, str | Sequence[str]] | None = declared(  # type: ignore[assignment]  # a run has one of each
        "kernel choices, an option or several to try by axis; `shardmath kernels` lists them", absent=_OWN)
    tensor_parallel: Sequence[int] | None = declared(absent="all legal ones")
    context_parallel: Sequence[int] | None = declared(absent="all legal ones")
    pipeline_parallel: Sequence[int] | None = declared(absent="all legal ones")
    micro_batch_size: Sequence[int] | None = declared(absent="all legal ones")
    sequence_parallel: Sequence[int] | None = declared(absent="all legal ones")
    expert_parallel: Sequence[int] | None = declared(absent="all legal ones")
    expert_tensor_parallel: int | Sequence[int] | None = declared(absent="all inside a node")
    virtual_pipeline: Sequence[int] | None = declared(absent="all that divide the layers")
    recompute: Sequence[str] | None = declared("recompute modes", absent="every distinct set of modules, and full")
    every_switch: bool = declared(
        "try every switch that leaves the numbers of a training as they are, by bounds, which count no layouts",
        default=False)
    top: int = declared("layouts to keep", default=10)


def names_of(kind: type[Training]) -> tuple[str, ...]:
    """Return the names of the fields, those that need no name first, without that of further parameters."""
    ordered = sorted(fields(kind), key=lambda item: item.kw_only is True)
    return tuple(item.name for item in ordered if item.name != OTHERS)


#: Sizes of a layout that are 1 unless they are asked for.
LAYOUT: Mapping[str, int] = {item.name: item.default for item in fields(Layout) if item.default == 1}


@dataclass(frozen=True)
class Shown:
    """A field or a further parameter as people see it."""

    name: str
    meaning: str
    default: str

    @property
    def sentence(self) -> str:
        """Return the meaning as a sentence, with the default."""
        default = f"  [default: {self.default}]" if self.default else ""
        return f"{self.meaning[:1].upper()}{self.meaning[1:]}.{default}"


def shown(name: str, kind: type[Training] | None = None) -> Shown:
    """Describe a field of ``kind``, or a further parameter."""
    item = next((item for item in fields(kind or Training) if item.name == name), None)
    if item is None:
        return Shown(name, PARAMETERS[name][5], _FOLLOW.get(name, str(DEFAULTS[name])))
    default = item.metadata.get("absent") or ("" if item.default in (None, MISSING) else str(item.default))
    return Shown(name, item.metadata.get("meaning") or PARAMETERS[name][5], default)


def documented(kind: type[Training]) -> str:
    """Return the documentation of a function that takes the fields of ``kind``."""
    return "\n".join([
        getdoc(kind) or "", "", "Arguments:",
        *(f"    {name}{_span(name)}: {shown(name, kind).sentence}" for name in names_of(kind)),
        "    others: further parameters by name, listed in ``shardmath.input.parameters``: OTHERS, MACHINE.", "",
        "Raises InputError for every value that is not legal.",
    ])


def _span(name: str) -> str:
    """Write unit and range of a parameter; nothing for other fields."""
    if name not in PARAMETERS:
        return ""
    _, unit, least, most, *_ = PARAMETERS[name]
    return f" ({unit})" if most == 1 else f" ({unit}, from {least}{'' if most is None else f' to {most}'})"
