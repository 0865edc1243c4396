"""Flags of Megatron-LM for modules whose saved tensors wait on the host, read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardmath.formats.options import Options

__all__ = ["flags_of", "kernels_of"]

_SWITCH, _MODULES = "fine-grained-activation-offloading", "offload-modules"
_COUNTED = "expert_fc1"
#: Numbers of other flags with which it is counted: those that Megatron-LM has without them.
_USUAL = {"min-offloaded-tensor-size": 2**20, "activation-offload-fraction": 1,
          "delta-offload-bytes-across-pp-ranks": 0}


def kernels_of(options: Options) -> dict[str, str]:
    """Return the choice of the module, for a model with experts. Raises InputError for what is not counted."""
    if not options.is_on(_SWITCH):
        return {}
    if {*options.all(_MODULES)} != {_COUNTED}:
        raise options.error(_MODULES, f"must be {_COUNTED} alone: other offloaded modules are not counted yet")
    for name, usual in _USUAL.items():
        if options.real(name, usual) != usual:
            raise options.error(name, f"must be {usual}: offloaded modules with another number are not counted yet")
    return {"module_offload": _COUNTED}


def flags_of(choices: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the flags of a choice."""
    if choices["module_offload"] != "none":
        yield (_SWITCH,)
        yield _MODULES, choices["module_offload"]
