"""Prices of a GPU-hour: one number, or a number for each kind of GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from shardmath.errors import InputError, nearest_names
from shardmath.input.quantities import money
from shardmath.machines.cluster import Cluster
from shardmath.machines.gpu import Gpu

#: Name of the argument, and of the parameter that formulas have in its place.
PRICE, CENTS = "price", "cents_per_gpu_hour"
#: Largest price of a GPU-hour.
_MOST = 10**6
#: Hundredths of a unit of currency.
_HUNDREDTHS = 100


def prices_of(price: object, clusters: Sequence[Cluster]) -> list[Fraction | None]:
    """Return the price of a GPU-hour on each of some clusters, in units of currency; None where it is not known.

    ``price``: a number or its text (``2.1``, ``$2.10``), or such by names of GPUs or clusters; None takes those of the
    clusters. Raises InputError for a name of none of them, for no number, and for one number for several kinds.
    """
    own = [None if cluster.cents_per_gpu_hour is None else Fraction(cluster.cents_per_gpu_hour, _HUNDREDTHS)
           for cluster in clusters]
    if price is None:
        return own
    names = list(dict.fromkeys(cluster.gpu.name for cluster in clusters))
    if not isinstance(price, Mapping):
        amount = _amount(price)
        if len(names) > 1:
            rule = f"must be written GPU=PRICE for each of {', '.join(names)}"
            raise InputError(PRICE, price, rule, ", ".join(f"{name}={str(price).removesuffix('.0')}" for name in names))
        return [amount] * len(clusters)
    for name, number in price.items():
        places = [place for place, cluster in enumerate(clusters) if name in (cluster.name, cluster.gpu.name)]
        places = places or [place for place, cluster in enumerate(clusters) if _is_of(name, cluster)]
        if not places:
            rule = f"must be of a GPU of the job: {', '.join(names)}"
            raise InputError(PRICE, name, rule, nearest_names(str(name), names))
        for place in places:
            own[place] = _amount(number)
    return own


def priced(cluster: Cluster, price: object) -> Cluster:
    """Return a cluster with the price of a GPU-hour, of each kind if it has several; itself without a ``price``.

    Raises InputError as ``prices_of``, and for fractions of a hundredth.
    """
    if price is None:
        return cluster
    return cluster.with_cents([_cents(amount) for amount in prices_of(price, cluster.parts)])


def refuse_both(price: object, cents: object) -> None:
    """Raise InputError for a price that is given twice, by both names."""
    if price is not None and cents is not None:
        raise InputError(PRICE, price, f"must not be given together with {CENTS}")


def _amount(price: object) -> Fraction:
    """Return a price. A float is the decimal number that Python prints."""
    return money(PRICE, str(price) if isinstance(price, float) else price, "2.5", _MOST, 0)


def _cents(amount: Fraction | None) -> int | None:
    if amount is None:
        return None
    cents = amount * _HUNDREDTHS
    if cents.denominator != 1:
        rule = "must be whole hundredths of the currency"
        raise InputError(PRICE, float(amount), rule, f"{max(1, round(cents)) / _HUNDREDTHS:.2f}")
    return int(cents)


def _is_of(name: object, cluster: Cluster) -> bool:
    try:
        return Gpu.named(str(name)).name == cluster.gpu.name
    except InputError:
        return False
