"""Write a run in a format that a framework reads; what is written is read again, and must give the same account."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shardmath.errors import InputError, nearest_names
from shardmath.formats import megatron_written, nemo_written, torchtitan_written
from shardmath.formats.readers import read
from shardmath.generated.definitions import PARAMETERS
from shardmath.parameters import OTHERS

if TYPE_CHECKING:
    from shardmath.accounting import Explanation

_Writer = Callable[["Explanation", Sequence[int] | None], str]
#: By format: the implementation that reads it, the end of its files, and what writes it.
_WRITERS: Mapping[str, tuple[str, str, _Writer]] = {
    "megatron": ("megatron", ".sh", megatron_written.script),
    "nemo": ("megatron", ".yaml", nemo_written.configuration),
    "torchtitan": ("torchtitan", ".toml", torchtitan_written.configuration),
}
FORMATS = tuple(_WRITERS)
"""Formats that can be written."""


def written(format: str, found: Explanation, layout: Sequence[int] | None = None) -> str:
    """The text of a file of ``format`` (one of ``FORMATS``) for the run that ``found`` accounts for.

    ``layout`` are the layers of every pipeline stage where they were listed. Raises InputError for an unknown format,
    and where no setting of the format says what the run does.
    """
    if format not in _WRITERS:
        raise InputError("write", format, f"must be one of {', '.join(FORMATS)}", nearest_names(format, FORMATS))
    implementation, suffix, write = _WRITERS[format]
    if found.implementation.partition("_")[0] != implementation:
        raise InputError("write", format, f"must be a format of the implementation, and this one is {implementation}'s")
    text = write(found, layout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"run{suffix}"
        file.write_text(text, encoding="utf-8")
        _refuse_another(format, found, read(file).explain(found.gpu, **_machine(found)))
    return text


def _machine(found: Explanation) -> dict[str, int]:
    """What no training program is told: the machine, and how evenly tokens go to experts."""
    names = [name for name in OTHERS if PARAMETERS[name][4] == "cluster" or name == "expert_load_percent"]
    return {name: found.inputs[name] for name in ["num_gpus", "node_size", *names]}


def _refuse_another(format: str, found: Explanation, again: Explanation) -> None:
    """Raise InputError, with what differs, unless both account for the same bytes."""
    if found.ranks == again.ranks and all(found.inputs[name] == again.inputs[name] for name in _TOLD):
        return
    asked, read_back = ({**account.inputs, **account.choices} for account in (found, again))
    differing = [f"{name} = {value}" for name, value in asked.items() if read_back.get(name) != value]
    raise InputError("write", format, f"must be a format that can say {', '.join(differing[:3])}")


#: Numbers that a file says although they may leave the bytes as they are.
_TOLD = ("seq_length", "global_batch_size", "micro_batch_size", "tensor_parallel", "context_parallel",
         "pipeline_parallel", "data_parallel", "expert_parallel", "num_layers", "vocab_size")
