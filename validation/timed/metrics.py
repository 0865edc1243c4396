"""How good predicted step times are: their error, the order that they give, and what following them would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
#: Two runs whose measured times differ by less are not told apart: that is noise of the measurement.
APART = 1.05
#: How many first choices a user may try.
FEW = 3


@dataclass(frozen=True, eq=False)
class Ranking:
    """Predicted and measured seconds of a sequence, of the runs of some groups."""

    predicted: Numbers
    measured: Numbers
    groups: tuple[str, ...]

    @cached_property
    def by_group(self) -> dict[str, tuple[Numbers, Numbers]]:
        """Predicted and measured seconds of every group."""
        labels = np.array(self.groups)
        return {
            group: (self.predicted[labels == group], self.measured[labels == group])
            for group in dict.fromkeys(self.groups)
        }

    @property
    def error(self) -> float:
        """The median size of predicted over measured time less 1."""
        return float(np.median(np.abs(self.predicted / self.measured - 1)))

    @property
    def high(self) -> float:
        """The 90th percentile of the size of predicted over measured time less 1."""
        return float(np.percentile(np.abs(self.predicted / self.measured - 1), 90))

    @property
    def bias(self) -> float:
        """The median of predicted over measured time less 1."""
        return float(np.median(self.predicted / self.measured - 1))

    @property
    def regret(self) -> dict[str, float]:
        """Of every group how much slower the run that is predicted to be fastest was than the fastest.

        Of runs that are predicted alike it is their mean.
        """
        return {group: regret(*numbers) for group, numbers in self.by_group.items()}

    @property
    def best_of_few(self) -> dict[str, float]:
        """The same of the fastest of the first three choices."""
        return {
            group: float(measured[np.argsort(predicted, kind="stable")[:FEW]].min() / measured.min() - 1)
            for group, (predicted, measured) in self.by_group.items()
        }

    @property
    def ordered(self) -> float:
        """Share of pairs of a group at least 5 % apart that are predicted in the right order; half of equal ones."""
        right = total = 0.0
        for predicted, measured in self.by_group.values():
            slower = measured[:, None] >= APART * measured[None, :]
            order = np.sign(predicted[:, None] - predicted[None, :])
            right += float((slower * (1 + order) / 2).sum())
            total += float(slower.sum())
        return right / total

    @property
    def kendall(self) -> float:
        """Kendall's rank correlation, mean of the groups with several runs."""
        from scipy.stats import kendalltau

        return float(np.mean([kendalltau(*numbers)[0] for numbers in self.by_group.values() if len(numbers[0]) > 1]))

    @property
    def spearman(self) -> float:
        """Spearman's rank correlation, mean of the groups with several runs."""
        from scipy.stats import spearmanr

        return float(np.mean([spearmanr(*numbers)[0] for numbers in self.by_group.values() if len(numbers[0]) > 1]))


def regret(predicted: Numbers, measured: Numbers) -> float:
    """Return the mean slowdown of the runs with the least prediction against the fastest."""
    return float(measured[predicted == predicted.min()].mean() / measured.min() - 1)


def spread(shares: Sequence[float]) -> tuple[float, float, float]:
    """Mean, 90th percentile and median."""
    return float(np.mean(shares)), float(np.percentile(shares, 90)), float(np.median(shares))
