"""Quantities of a plan that no layout has: rates, prices, failures, and constants of fitted losses."""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Symbol


@dataclass(frozen=True)
class Quantity:
    """One symbol of a plan: a positive real number, or one that may be 0 where ``can_be_zero``."""

    letter: str
    name: str
    unit: str
    meaning: str
    latex: str = ""
    can_be_zero: bool = False

    @property
    def symbol(self) -> Symbol:
        """The SymPy symbol, called like the letter."""
        return Symbol(self.letter, nonnegative=True) if self.can_be_zero else Symbol(self.letter, positive=True)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("tokens", "tokens", "tokens", "tokens of the whole training", "T"),
    Quantity("gpus", "gpus", "GPUs", "GPUs of the job", "N"),
    Quantity("rate", "rate", "tokens/s", "tokens that all GPUs together train in a second", "X"),
    Quantity("mfu", "mfu", "share", "model FLOPs utilisation at that rate", r"\mu"),
    Quantity("err", "error_per_mille", "per mille", "of the measured time, which nine of ten predictions were within",
             r"\epsilon", can_be_zero=True),
    Quantity("limit", "deadline", "s", "seconds until the training must end", r"T_{\max}"),
    Quantity("events", "interruptions", "interruptions", "unexpected interruptions of a published training", "I"),
    Quantity("exposure", "gpu_days", "GPU-days", "GPU-days in which they happened", "G"),
    Quantity("pause", "pause", "s", "seconds that training waits for each checkpoint", r"\delta"),
    Quantity("restart", "restart", "s", "seconds from a failure until training goes on", "R", can_be_zero=True),
    Quantity("watts", "watts", "W", "mean power of one GPU with its share of the building", "w"),
    Quantity("price", "price", "currency", "price of one GPU for an hour", r"\chi", can_be_zero=True),
    Quantity("intensity", "intensity", "g/kWh", "CO2-equivalent of electricity", r"\kappa", can_be_zero=True),
    Quantity("money", "money", "currency", "budget of the training", r"\chi_{\max}"),
    Quantity("moregpus", "more_gpus", "GPUs", "GPUs of the next larger job", "N'"),
    Quantity("morerate", "more_rate", "tokens/s", "its tokens per second", "X'"),
    Quantity("morewatts", "more_watts", "W", "its mean power of one GPU", "w'"),
    Quantity("Psi", "parameters", "elements", "parameters of the model", r"\Psi"),
    Quantity("flops", "flops", "FLOP", "FLOPs of the whole training", "C"),
    Quantity("least", "irreducible_loss", "nats", "loss of an ideal model with infinite data", "E"),
    Quantity("Asize", "size_factor", "nats", "factor of the loss of a finite model", "A"),
    Quantity("Bdata", "data_factor", "nats", "factor of the loss of finite data", "B"),
    Quantity("alpha", "size_exponent", "1", "exponent of parameters", r"\alpha"),
    Quantity("beta", "data_exponent", "1", "exponent of tokens", r"\beta"),
)
BY_LETTER: dict[str, Quantity] = {item.letter: item for item in QUANTITIES}
SYMBOLS: tuple[Symbol, ...] = tuple(item.symbol for item in QUANTITIES)


def quantities(letters: str) -> tuple[Symbol, ...]:
    """Return the symbols of several letters, given with spaces between them. Raises KeyError for unknown ones."""
    return tuple(BY_LETTER[letter].symbol for letter in letters.split())
