"""Sizes of a layout as people see them: columns of a table, or a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Columns of a layout, with what they are called; those of ``_RARE`` only where one is not what is usual.
TITLES = {
    "tensor_parallel": "TP", "context_parallel": "CP", "pipeline_parallel": "PP", "virtual_pipeline": "VPP",
    "last_stage_layers": "last stage", "expert_parallel": "EP",
    "micro_batch_size": "mbs", "sequence_parallel": "SP", "recompute": "recompute",
}
_RARE = {"virtual_pipeline": 1, "last_stage_layers": 0, "expert_parallel": 1}


def shown_sizes(layouts: Iterable[Mapping[str, int | str]]) -> list[str]:
    """Names of the sizes that are shown of some layouts."""
    layouts = tuple(layouts)
    return [name for name in TITLES if name not in _RARE or any(layout[name] != _RARE[name] for layout in layouts)]


def sizes_of(layout: Mapping[str, int | str], names: Iterable[str]) -> list[str]:
    """Some sizes of a layout as text."""
    return [("on" if layout[name] else "off") if name == "sequence_parallel" else str(layout[name]) for name in names]


def in_words(layout: Mapping[str, int | str]) -> str:
    """A layout in one line; what is usual is left out."""
    on = int(layout["tensor_parallel"] != 1)
    usual = {**dict.fromkeys(TITLES, 1), **_RARE, "recompute": "none", "sequence_parallel": on}
    always = ("tensor_parallel", "pipeline_parallel", "micro_batch_size")
    names = [name for name in TITLES if name in layout]
    named = [f"{TITLES[name]} {value}" for name, value in zip(names, sizes_of(layout, names), strict=True)
             if name in always or layout[name] != usual[name]]
    return ", ".join(named)
