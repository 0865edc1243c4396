"""GPU-hours of a training and what follows from them: money, energy and CO2, as Touvron et al. (2023) count them."""

from __future__ import annotations

from ..terms import TermSet, term_symbol
from .duration import HOUR
from .letters import quantities

gpus, watts, price, intensity = quantities("gpus watts price intensity")
_KILO = 1000


def add(terms: TermSet) -> None:
    """Append the formulas of amounts. GPUs that wait for a restart are paid for, and draw what the others do."""
    hours = terms.add("plan.gpu_hours", gpus * term_symbol("plan.seconds") / HOUR, "GPU-hours",
                      "time of all GPUs, with failures")
    terms.add("plan.cost", hours * price, "currency", "price of the GPU-hours")
    energy = terms.add("plan.energy", hours * watts / _KILO, "kWh", "energy of the GPUs with their building")
    terms.add("plan.carbon", energy * intensity / _KILO, "kg", "CO2-equivalent of that energy")
