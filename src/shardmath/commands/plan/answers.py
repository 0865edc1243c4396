"""The answer of ``plan``: offers of GPUs with what they take, choices among them, and compute-optimal trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmath.answers import Answer, Drawn, Label
from shardmath.models.model import Model


@dataclass(frozen=True)
class Band(Answer):
    """A prediction with its band."""

    low: float
    """With the fastest steps that are likely and the fewest failures."""
    middle: float
    """The prediction."""
    high: float
    """With the slowest steps that are likely and the most failures."""


@dataclass(frozen=True)
class PhaseOffer(Answer):
    """The fastest layout of one phase on some GPUs."""

    tokens: int
    """Tokens of the phase."""
    seq_length: int
    """Tokens of a sequence."""
    layout: Mapping[str, Label]
    """Sizes of the layout."""
    data_parallel: int
    """Data-parallel size."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    tokens_per_second: float
    """Tokens per second of all GPUs, between failures."""
    mfu: float
    """Model FLOPs utilisation between failures."""
    watts_per_gpu: float
    """Mean power of one GPU with its share of the building; 0 if unknown."""


@dataclass(frozen=True)
class Gain(Answer):
    """Gain of the GPUs that an offer has more than the next smaller one of its kind."""

    per_gpu: float
    """Tokens per second for each added GPU."""
    kept: float
    """The same over the tokens per second of a GPU of the smaller offer."""
    per_watt: float | None
    """Tokens per second for each added watt, which are tokens per joule; null where the power is not known."""


@dataclass(frozen=True)
class Offer(Answer):
    """One kind and number of GPUs."""

    gpu: str
    """Kind of GPU, or name of the cluster."""
    num_gpus: int
    """GPUs of the job."""
    phases: tuple[PhaseOffer, ...]
    """Layouts of the phases; none if nothing fits in one of them."""
    reason: str
    """Why there are none; empty where there are."""
    goodput: float | None
    """Share of the time in which training advances; null where failures are not counted."""
    interval_seconds: float | None
    """Seconds from one checkpoint to the next; null where failures are not counted."""
    interruptions: float | None
    """Interruptions to expect; null where failures are not counted."""
    days: Band | None
    """Days of the training; null if nothing fits."""
    gpu_hours: Band | None
    """GPU-hours; null if nothing fits."""
    price: float | None
    """Price of one GPU for an hour in your currency; null if unknown."""
    cost: Band | None
    """Price of the training in your currency; null if nothing fits or the price is not known."""
    energy_kwh: Band | None
    """Energy in kWh; null if nothing fits or the power of the GPU is not known."""
    carbon_kg: Band | None
    """CO2-equivalent in kg; null where the energy or the electricity is not known."""
    deadline: str
    """met, perhaps (inside the band) or missed; empty without a deadline."""
    budget: str
    """met, perhaps (inside the band) or missed; empty without a budget or a price."""
    gain: Gain | None
    """Gain over the next smaller offer of the same kind; null for the smallest."""
    complete: bool = True
    """False where the search of a phase was stopped: then its layout is the best so far, if there is one."""
    gap: float | None = 0.0
    """Share of the step time of a phase that another layout that fits may save at most, the largest of all phases: 0
    where the search is complete; null where it was stopped before anything was found that fits, or before all programs
    had bounds."""

    @property
    def is_choice(self) -> bool:
        """True if it fits, and neither deadline nor budget are missed."""
        return bool(self.phases) and "missed" not in (self.deadline, self.budget)


@dataclass(frozen=True)
class Optimum(Answer):
    """Parameters and tokens of least loss for some compute, by one fitted loss."""

    source: str
    """Key of the source of the fit."""
    compute: str
    """Compute that it is for: of the plan, or of the budget spent on the cheapest choice."""
    flops: float
    """FLOPs, 6 for each parameter and token."""
    parameters: float
    """Parameters of the best model."""
    tokens: float
    """Tokens to train it on."""
    loss: float
    """Fitted loss of it in nats per token."""
    planned_loss: float
    """Fitted loss of the planned model and tokens."""


@dataclass(frozen=True)
class Plan(Drawn, room="plan", table="offers"):
    """A training on several kinds and numbers of GPUs.

    Sizes are in bytes, times in seconds unless the name of a field says days or hours, money in your currency.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> answer = shardmath.plan("llama-3.1-8b", "1T", ["h100-80gb"], num_gpus=[64, 128], price=2.5)
        >>> [(offer.num_gpus, offer.is_choice) for offer in answer.offers]
        [(64, True), (128, True)]
    """

    model: Model
    """Dimensions of the model."""
    tokens: int
    """Tokens of all phases."""
    batch_tokens: int
    """Tokens of a step."""
    deadline_days: float | None
    """Days until the training must end; null without a deadline."""
    budget: float | None
    """Most that it may cost in your currency; null without a budget."""
    failures: str
    """Source of the failure rate; empty where failures are not counted."""
    electricity: str
    """Source of the CO2-equivalent of electricity; empty where it is not known."""
    risk: float
    """Probability of running out of memory below which a layout is said to fit."""
    overlaps: tuple[str, ...]
    """Switches that hide traffic beside work, with which times are counted."""
    offers: tuple[Offer, ...]
    """Kinds of GPUs in the order in which they were asked for, each with its numbers ascending."""
    fastest: int | None
    """Place of the fastest offer that may meet deadline and budget, from 0; null without one."""
    cheapest: int | None
    """Place of the cheapest of them; null without a price."""
    optima: tuple[Optimum, ...]
    """Compute-optimal trainings; none for models with experts, which the fits do not cover."""
    complete: bool = True
    """False where the search of some offer was stopped."""
