"""The memory and the time of sharded LLM training: exact formulas, what fits into a GPU, what is fastest, and why.

``explain`` accounts for one configuration, byte by byte, and ``compare`` sets several side by side; ``sweep`` tries
every legal layout of a model on a cluster, ``recommend`` says which few to run and why, ``scale`` looks at many
numbers of GPUs; ``explore`` tries every configuration of a declared space; ``evaluate`` computes terms for every row of
a table. Everything is imported on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation, explain
    from shardmath.commands.compare import Comparison, compare
    from shardmath.commands.evaluate import evaluate
    from shardmath.commands.explore.answer import Explored
    from shardmath.commands.explore.run import explore
    from shardmath.commands.fit import Fits, fit
    from shardmath.commands.formula.run import Formula, formula
    from shardmath.commands.moves import Moves, moves
    from shardmath.commands.recommend import Advice, recommend
    from shardmath.commands.scale import Scaling, scale
    from shardmath.commands.sweep.answer import SweepResult
    from shardmath.commands.sweep.run import sweep
    from shardmath.errors import InputError, InputWarning
    from shardmath.machines import Cluster, read_cluster
    from shardmath.machines.gpu import Gpu
    from shardmath.models.model import Model, load_model

__version__ = "0.1.0"

_HOMES = {
    "Advice": "advice",
    "Comparison": "comparing",
    "compare": "comparing",
    "InputError": "errors",
    "InputWarning": "errors",
    "Explanation": "accounting",
    "explain": "accounting",
    "Explored": "explored",
    "explore": "exploring",
    "Formula": "formulas",
    "formula": "formulas",
    "Fits": "inverse",
    "fit": "inverse",
    "Gpu": "gpus",
    "Cluster": "machines",
    "read_cluster": "machines",
    "Model": "models",
    "load_model": "models",
    "Moves": "moving",
    "moves": "moving",
    "recommend": "advice",
    "SweepResult": "sweeps.result",
    "Scaling": "scaling",
    "scale": "scaling",
    "sweep": "sweeps.run",
    "evaluate": "tables",
}

__all__ = [
    "Advice",
    "Cluster",
    "Comparison",
    "Explanation",
    "Explored",
    "Fits",
    "Formula",
    "Gpu",
    "InputError",
    "InputWarning",
    "Model",
    "Moves",
    "Scaling",
    "SweepResult",
    "__version__",
    "compare",
    "evaluate",
    "explain",
    "explore",
    "fit",
    "formula",
    "load_model",
    "moves",
    "read_cluster",
    "recommend",
    "scale",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shardmath' has no attribute {name!r}")
    value = getattr(import_module(f"shardmath.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
