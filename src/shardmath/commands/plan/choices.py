"""Choices among offers, gains of larger ones, and compute-optimal trainings beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmath.account.accounting import Explanation
from shardmath.commands.plan.answers import Gain, Offer, Optimum
from shardmath.generated import plan as formulas


def chosen(offers: Sequence[Offer]) -> tuple[int | None, int | None]:
    """Return the places of the fastest and of the cheapest offer that may meet deadline and budget."""
    able = [(place, offer) for place, offer in enumerate(offers) if offer.is_choice]
    days = [(offer.days.middle, place) for place, offer in able if offer.days is not None]
    costs = [(offer.cost.middle, place) for place, offer in able if offer.cost is not None]
    return min(days, default=(0, None))[1], min(costs, default=(0, None))[1]


def gains(offers: Sequence[Offer]) -> Iterator[Gain | None]:
    """Yield what the GPUs add that each offer has more than the one before it that fits; by the first phase."""
    before: Offer | None = None
    for offer in offers:
        if not offer.phases:
            yield None
            continue
        yield None if before is None else _gain(before, offer)
        before = offer


def _gain(less: Offer, more: Offer) -> Gain:
    (small, *_), (large, *_) = less.phases, more.phases
    counts = {"gpus": less.num_gpus, "rate": small.tokens_per_second,
              "more_gpus": more.num_gpus, "more_rate": large.tokens_per_second}
    added = formulas.per_added_gpu(**counts)
    watts = {"watts": small.watts_per_gpu, "more_watts": large.watts_per_gpu}
    return Gain(
        added, formulas.kept_per_gpu(gpus=less.num_gpus, per_added_gpu=added, rate=small.tokens_per_second),
        formulas.per_added_watt(**counts, **watts) if all(watts.values()) else None,
    )


def optima(alone: Explanation, tokens: int, budget: float | None, cheapest: Offer | None) -> Iterator[Optimum]:
    """Yield the optimum of each fit for the compute of the plan, and for that of the budget on the cheapest offer.

    The fits are of dense models: there is none for a model with experts.
    """
    size = alone.parameters.total
    if size != alone.parameters.active:
        return
    planned = formulas.planned_flops(parameters=size, tokens=tokens)
    computes = {"plan": planned}
    if budget is not None and cheapest is not None and cheapest.cost is not None and cheapest.cost.middle > 0:
        computes["budget"] = formulas.bought_flops(cost=cheapest.cost.middle, money=budget, planned_flops=planned)
    for compute, flops in computes.items():
        for source, (_, fit) in formulas.FITS.items():
            exponents = {name: fit[name] for name in ("data_exponent", "size_exponent")}
            balance = formulas.balance(**{name: fit[name] for name in fit if name != "irreducible_loss"})
            best = {name: getattr(formulas, f"optimal_{name}")(balance=balance, flops=flops, **exponents)
                    for name in ("parameters", "tokens")}
            yield Optimum(source, compute, flops, best["parameters"], best["tokens"], formulas.loss(**fit, **best),
                          formulas.loss(**fit, parameters=size, tokens=tokens))
