"""A model over many GPUs as a plot: throughput of a GPU, utilisation and energy, against the number of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.reports.files import whole_file
from shardmath.scaling import Point, Scaling

#: Formats that can be written, by the end of the file's name.
FORMATS = ("svg", "png")
_WIDTH, _HEIGHT = 3.4, 3.0
_STYLE: dict[Any, Any] = {"svg.hashsalt": "shardmath", "svg.fonttype": "none", "font.size": 8, "axes.linewidth": 0.6}


def refuse_unplottable(path: str) -> None:
    """Raise InputError unless ``path`` ends like a format that can be written, and there is a library for it."""
    suffix = Path(path).suffix.removeprefix(".")
    if suffix not in FORMATS:
        rule = f"must end with {' or '.join(f'.{name}' for name in FORMATS)}"
        raise InputError("plot", path, rule, nearest_names(suffix, FORMATS))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("plot", path, "needs matplotlib: install shardmath[plots]") from None


def write_plot(found: Scaling, path: str) -> None:
    """Write the plot; the file appears whole or not at all. SVG is the same on every run.

    Raises InputError where nothing fits at any size, and where no file can be written.
    """
    refuse_unplottable(path)
    points = [point for point in found.points if point.time is not None]
    if not points:
        raise InputError("plot", path, "must have something to show: nothing fits at any number of GPUs")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [
        ("tokens/s of a GPU", [point.tokens_per_second_per_gpu for point in points]),
        ("MFU, %", [100 * point.time.mfu for point in points if point.time is not None]),
    ]
    if found.cluster.gpu.power_watts:
        panels.append(("tokens/J", [point.tokens_per_joule for point in points]))
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH * len(panels), _HEIGHT), layout="constrained")
        for place, (label, values) in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), place)
            _draw(axes, points, label, values)
        figure.suptitle(f"{found.model.name} on {found.cluster.gpu.name}, {found.implementation}")
        suffix = Path(path).suffix.removeprefix(".")
        metadata = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
        with whole_file("plot", path, "wb") as file:
            figure.savefig(file, format=suffix, metadata=metadata, dpi=150)


def _draw(axes: Any, points: list[Point], label: str, values: list[float]) -> None:
    """One line over the numbers of GPUs, from 0 on, with the layout where it changes."""
    sizes = [point.num_gpus for point in points]
    axes.plot(sizes, values, marker="o", markersize=3.5, linewidth=0.9, color="black")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
    axes.set_ylim(0, 1.2 * max(values))
    axes.set(xlabel="GPUs", ylabel=label)
    before = ""
    for point, value in zip(points, values, strict=True):
        text = _short(point)
        if text != before:
            axes.annotate(text, (point.num_gpus, value), xytext=(0, 6), textcoords="offset points", fontsize=6,
                          ha="left", rotation=30)
        before = text


def _short(point: Point) -> str:
    """TP, CP and PP as far as they are not 1."""
    layout = point.layout or {}
    names = {"tensor_parallel": "TP", "context_parallel": "CP", "pipeline_parallel": "PP", "expert_parallel": "EP"}
    return " ".join(f"{short}{layout[name]}" for name, short in names.items() if layout.get(name, 1) != 1) or "DP"
