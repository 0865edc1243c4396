"""Write a run in a format that a framework reads; what is written is read again, and must give the same account."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shardmath.errors import InputError, nearest_names
from shardmath.formats.bridge import writing as bridge_written
from shardmath.formats.megatron import script as megatron_script
from shardmath.formats.nemo import writing as nemo_written
from shardmath.formats.readers import read
from shardmath.formats.run import Run
from shardmath.formats.torchtitan import writing as torchtitan_written
from shardmath.formats.trainers import writing as trainer_written
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import OTHERS

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

_Writer = Callable[["Explanation", Sequence[int] | None], str]
#: Makes the settings that a file leaves to the program beside it, by name.
_Beside = Callable[["Explanation"], Mapping[str, str]]


def _nothing(explanation: Explanation) -> Mapping[str, str]:
    return {}


class Format(NamedTuple):
    """A format: the implementation that reads it, the end of its files, what writes it, and what it does not say."""

    implementation: str
    suffix: str
    write: _Writer
    beside: _Beside = _nothing


WRITERS: Mapping[str, Format] = {
    "megatron": Format("megatron", ".sh", megatron_script.script),
    "nemo": Format("megatron", ".yaml", nemo_written.configuration),
    "bridge": Format("megatron", ".py", bridge_written.recipe),
    "torchtitan": Format("torchtitan", ".toml", torchtitan_written.configuration),
    "trl": Format("huggingface", ".yaml", trainer_written.trl),
    "accelerate": Format("huggingface", ".yaml", trainer_written.accelerate, trainer_written.settings_beside),
    "deepspeed": Format("huggingface", ".json", trainer_written.deepspeed, trainer_written.settings_beside),
}
"""Formats that can be written, by name."""
FORMATS = tuple(WRITERS)
#: Implementations that have a format.
_WRITTEN = tuple(dict.fromkeys(known.implementation for known in WRITERS.values()))
#: Parameters that no file has: the machine's, and the balance of experts.
BESIDE = tuple(name for name in OTHERS if PARAMETERS[name][4] == "cluster" or name == "expert_load_percent")


def written(format: str | None, explanation: Explanation, layout: Sequence[int] | None = None) -> str:
    """Return the text of a file of ``format`` (one of ``FORMATS``) for the run that ``explanation`` accounts for.

    None is the implementation's first format. ``layout`` are the layers of every pipeline stage where they were listed.
    Raises InputError for an unknown format, and where no setting of the format says what the run does.
    """
    own = [name for name, known in WRITERS.items() if known.implementation == explanation.framework]
    if format is None:
        if not own:
            rule = f"must be {' or '.join(_WRITTEN)}: no file of {explanation.framework} is written yet"
            raise InputError("implementation", explanation.framework, rule)
        format = own[0]
    if format not in WRITERS:
        nearest = " or ".join(own) if format == explanation.framework else nearest_names(format, FORMATS)
        raise InputError("write", format, f"must be one of {', '.join(FORMATS)}", nearest)
    implementation, suffix, write, beside = WRITERS[format]
    if explanation.framework != implementation:
        rule = f"must be a format of the implementation, and this one is {implementation}'s"
        raise InputError("write", format, rule, " or ".join(own) or None)
    text = write(explanation, layout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"run{suffix}"
        file.write_text(text, encoding="utf-8")
        try:
            run = read(file, beside(explanation))
        except InputError as error:  # a reader that is not installed: nobody knows the name of that file
            raise error if error.value != str(file) else InputError("write", format, error.rule) from None
    cluster = explanation.cluster  # files name no machine; measured links and stages of their own are of the cluster
    machine = cluster if cluster.links or explanation.stages else explanation.gpu
    _refuse_another(format, explanation, run, run.explain(machine, **_machine(explanation, run)))
    return text


def _machine(explanation: Explanation, run: Run) -> dict[str, int]:
    """List the arguments that no file has: the machine, the balance of experts, and GPUs without a launcher."""
    unsaid = [name for name in ("num_gpus",) if name not in run.arguments]
    if explanation.stages:  # each has its own
        return {name: explanation.inputs[name] for name in unsaid}
    return {name: explanation.inputs[name] for name in [*unsaid, "node_size", *BESIDE]}


def _refuse_another(format: str, explanation: Explanation, run: Run, again: Explanation) -> None:
    """Raise InputError, with what differs, unless the file says the same run: model, settings, kernels and bytes."""
    asked, read_back = (_said(account) for account in (explanation, again))
    if explanation.model.norm_epsilon is None:  # no source states it, and a file has that of its program
        del asked["norm_epsilon"]
    differing = [f"{name} = {value}" for name, value in asked.items() if read_back.get(name) != value]
    if run.unknown:
        differing += [f"{name}, which its reader does not know" for name in run.unknown]
    if differing or explanation.ranks != again.ranks:
        raise InputError("write", format, f"must be a format that can say {', '.join(differing[:3])}")


def _said(account: Explanation) -> dict[str, object]:
    """Return all that a file says of a run, by name."""
    model = {name: value for name, value in account.model.model_dump().items() if name not in _NAMES}
    return {**model, **account.inputs, **account.choices, **account.switches}


#: Fields that change no count: words on a model, its longest sequence, and choices of Transformers alone.
_NAMES = ("name", "source", "note", "max_seq_length", "gelu", "own_router", "model_type")
