"""Expert-parallel ranks with one batch: ``DistributedConfig`` of Transformers with ``tp_size`` and no plan for it.

All that is no routed expert is whole on the ranks of such a group, and does the same work there; each sends a slice of
the batch to the experts, which ``ep_size`` ranks share out (``AllToAllEP``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..axis import Axis
from ..functions import Divides
from ..parallel.rules import Rule
from ..parameters import symbols
from .system import Aspect, Choices, System

NAME = "shared_batches"
b, D, B, xb = symbols("b D B xb")


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "own":
        return ()
    return (Rule("batch", "b", Divides(b * D, B * xb),
                 "times data_parallel / shared_batch must divide global_batch_size"),)


SYSTEM = System(
    Axis(NAME, "batches of the ranks that share out experts", {
        "own": "every rank has its own",
        "shared": "several ranks have one, and send a slice of it each (tp_size of Transformers without a plan for it)",
    }, absent={"own": ("xb",)}, asked={"shared": "xb"}, rowless=("own", "shared"),
       needs={"shared": {"layers": "experts", "dispatch": "huggingface_sent"}},
       untimed={"shared": "work that several ranks do alike"}),
    ("huggingface",),
    words="one batch on several ranks", changes=(Aspect.RANKS,),
    counted={"layers": ("experts",), "dispatch": ("huggingface_sent",)},
    rules=_rules,
    fixed=lambda choices: {"xb": 1} if choices[NAME] == "own" else {},
)
