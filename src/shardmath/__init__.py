"""The memory and the time of sharded LLM training: exact formulas, what fits into a GPU, what is fastest, and why.

``explain`` accounts for one configuration, byte by byte, and ``compare`` sets several side by side; ``sweep`` tries
every legal layout of a model on a cluster, ``layouts`` hands them out, ``recommend`` says which few to run and why,
``scale`` looks at many numbers of GPUs, ``plan`` says what a whole training takes on them; ``explore`` tries every
configuration of a declared space; ``evaluate`` computes terms for every row of a table. Everything is imported on
first use, so that importing the package costs nothing. Sizes are in bytes, times in seconds; a wrong input raises
``InputError``, one line with the nearest legal value.

Example:
    >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
    >>> account.verdict, account.peak_bytes
    ('fits', 29367792640)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation, explain
    from shardmath.commands.compare import Comparison, compare
    from shardmath.commands.evaluate import evaluate
    from shardmath.commands.explore import Explored, explore
    from shardmath.commands.fit import Fits, fit
    from shardmath.commands.formula import Formula, formula
    from shardmath.commands.moves import Moves, moves
    from shardmath.commands.phases import Phases, phases
    from shardmath.commands.plan import Plan, plan
    from shardmath.commands.prove import Proof, prove
    from shardmath.commands.recommend import Advice, recommend
    from shardmath.commands.scale import Scaling, scale
    from shardmath.commands.sweep import SweepResult, layouts, sweep
    from shardmath.errors import InputError, InputWarning
    from shardmath.machines import Cluster, Gpu, read_cluster
    from shardmath.models import Model, load_model

__version__ = "0.1.0"

_HOMES = {
    "Advice": "commands.recommend",
    "Cluster": "machines",
    "Comparison": "commands.compare",
    "Explanation": "account.accounting",
    "Explored": "commands.explore",
    "Fits": "commands.fit",
    "Formula": "commands.formula",
    "Gpu": "machines",
    "InputError": "errors",
    "InputWarning": "errors",
    "Model": "models",
    "Moves": "commands.moves",
    "Phases": "commands.phases",
    "Plan": "commands.plan",
    "Proof": "commands.prove",
    "Scaling": "commands.scale",
    "SweepResult": "commands.sweep",
    "compare": "commands.compare",
    "evaluate": "commands.evaluate",
    "explain": "account.accounting",
    "explore": "commands.explore",
    "fit": "commands.fit",
    "formula": "commands.formula",
    "layouts": "commands.sweep",
    "load_model": "models",
    "moves": "commands.moves",
    "phases": "commands.phases",
    "plan": "commands.plan",
    "prove": "commands.prove",
    "read_cluster": "machines",
    "recommend": "commands.recommend",
    "scale": "commands.scale",
    "sweep": "commands.sweep",
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
    "Phases",
    "Plan",
    "Proof",
    "Scaling",
    "SweepResult",
    "__version__",
    "compare",
    "evaluate",
    "explain",
    "explore",
    "fit",
    "formula",
    "layouts",
    "load_model",
    "moves",
    "phases",
    "plan",
    "prove",
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
    return sorted(__all__)
