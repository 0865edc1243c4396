"""Pictures of dimensions that share out whole layers or states: what each rank keeps, or each stage of ZeRO leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import shardmath
from shardmath.plots.picture import Panel, Picture
from shardmath.plots.style import ROLE_COLOURS, SMALL

MODEL, GPU, RANKS = "llama-3.1-8b", "h100-80gb", 4
#: Pictures by name, with their heading.
SHARES: Mapping[str, str] = {
    "pipeline_parallel": f"Pipeline parallelism (PP): {MODEL}, PP {RANKS}",
    "zero": f"Data parallelism and ZeRO: {MODEL}, DP {RANKS}",
}
_KINDS = {"weight": "weights", "gradient": "gradients", "optimizer": "optimizer states",
          "activation": "saved activations"}
_GIB = 2**30
#: Inches of a line of boxes and of a heading; width and height of a box in its column and line; points of letters.
_HEIGHT, _HEADING, _SIDE, _LETTERS = 1.0, 0.25, 0.55, 6.8
OTHERS, EDGES = "#E3E3E3", "#FFFFFF"


@dataclass(frozen=True)
class Share:
    """One box: its role and column, the bytes of a rank, those of a full box, and a note."""

    role: str
    column: str
    own: int
    whole: int
    note: str = ""


@cache
def shares(name: str) -> tuple[Share, ...]:
    """Return the boxes of a picture, by role and column."""
    return _of_pipeline() if name == "pipeline_parallel" else _of_zero()


def _of_pipeline() -> tuple[Share, ...]:
    """Compare the ranks of a pipeline: weights with those of all ranks, activations with those of the fullest rank."""
    ranks = shardmath.explain(MODEL, GPU, pipeline_parallel=RANKS, num_gpus=RANKS, global_batch_size=2 * RANKS).ranks
    whole = {"weight": sum(rank.by_role["weight"] for rank in ranks),
             "activation": max(rank.by_role["activation"] for rank in ranks)}
    notes = {"weight": lambda _: "", "activation": lambda rank: f"{rank.in_flight} in flight"}
    return tuple(Share(role, f"rank {rank.rank}", rank.by_role[role], whole[role], notes[role](rank))
                 for role in whole for rank in ranks)


def _of_zero() -> tuple[Share, ...]:
    """Compare the stages of ZeRO with stage 0, where every rank keeps everything."""
    stages = [shardmath.explain(MODEL, GPU, implementation="huggingface", num_gpus=RANKS, global_batch_size=2 * RANKS,
                                recompute="full", zero_stage=stage).ranks[0].by_role for stage in range(4)]
    return tuple(Share(role, f"stage {stage}", roles[role], stages[0][role])
                 for role in ("weight", "gradient", "optimizer") for stage, roles in enumerate(stages))


def picture(name: str) -> Picture:
    """Return the picture: a line of boxes for each role."""
    boxes = shares(name)
    roles = dict.fromkeys(box.role for box in boxes)
    panels = [_panel([box for box in boxes if box.role == role], _KINDS[role]) for role in roles]
    return Picture(SHARES[name], "in colour: what a rank keeps", tuple(panels))


def _panel(boxes: Sequence[Share], heading: str) -> Panel:
    def draw(part: Any) -> None:
        axes = part.add_subplot()
        axes.set(xlim=(0, len(boxes)), ylim=(1, 0))
        axes.set_title(heading, fontsize=SMALL)
        axes.axis("off")
        for place, box in enumerate(boxes):
            _draw(axes, box, place + 0.5)

    return Panel(draw, _HEADING + _HEIGHT, f"{heading}, what a rank keeps")


def _draw(axes: Any, box: Share, middle: float) -> None:
    """Draw a box that is filled from below, with its column and bytes under it."""
    from matplotlib.patches import Rectangle

    left, top = middle - _SIDE / 2, 0.05
    filled = _SIDE * box.own / box.whole
    for low, high, colour in ((top, _SIDE - filled, OTHERS), (top + _SIDE - filled, filled, ROLE_COLOURS[box.role])):
        axes.add_patch(Rectangle((left, low), _SIDE, high, facecolor=colour, edgecolor=EDGES, linewidth=0.5))
    words = (box.column, f"{box.own / _GIB:.1f} GiB", box.note)
    axes.text(middle, top + _SIDE + 0.03, "\n".join(word for word in words if word), ha="center", va="top",
              fontsize=_LETTERS, linespacing=1.15)
