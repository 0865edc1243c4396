"""The peak of one configuration as a function of its symbols: in bytes, and beside a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import ModuleType

from shardmath.account.host import hosts_hold
from shardmath.commands.moves.duals import Dual, Number
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.job import Job
from shardmath.configuration.settings import ON_HOST
from shardmath.configuration.stages import ANY, listed
from shardmath.generated.definitions import LIMITS, RANK_LIMITS
from shardmath.input.parameters import limits

#: ``terms_beside`` or ``slopes_along``.
Beside = Callable[[ModuleType, Mapping[str, int], Mapping[str, Number]], Mapping[str, Dual]]
#: Values next to one's own that are tried one by one; beyond them its multiples are.
_NEAR = 1024
#: Sizes whose product is the number of GPUs.
SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")


@dataclass(frozen=True)
class Peak:
    """The peak over pipeline ranks of what ``job`` says, with other values of symbols.

    ``layout`` is its explicit list of layers of every stage, if it has one.
    """

    job: Job
    layout: tuple[int, ...] | None = None

    @property
    def module(self) -> ModuleType:
        """The evaluator of memory."""
        return self.job.evaluator.terms

    def bytes(self, values: Mapping[str, int]) -> int:
        """Return the peak at ``values`` of all symbols."""
        return int(max(
            terms_at(self.module, rank)[self._term] for rank in self._ranks(values)
        ))

    def limit(self, values: Mapping[str, int]) -> int:
        """Return the largest peak with which a configuration fits."""
        numbers = [terms_at(self.module, rank) for rank in self._ranks(values)]
        if not self.layout:
            return int(numbers[0][LIMITS[0]])
        totals = [own["stage.total"] for own in numbers]
        return int(max(totals) + min(own[RANK_LIMITS[0]] - size for own, size in zip(numbers, totals, strict=True)))

    def beside(self, function: Beside, along: Mapping[str, Number]) -> Dual:
        """Return the peak beside the job's own values; an explicit list of layers stays what each rank holds."""
        duals = [function(self.module, rank, along)[self._term] for rank in self._ranks(self.job.values)]
        return max(duals, key=lambda dual: (dual.value, dual.slope))

    def keeps_rules(self, values: Mapping[str, int]) -> bool:
        """Tell whether ``values`` are legal with the same evaluator, on as many GPUs as their sizes need.

        Offloaded tensors must have room on the hosts of these GPUs' servers.
        """
        known = {**values, "pipeline_rank": 0, **(ANY if self.layout else {})}
        known["num_gpus"] = 1
        for name in SIZES:
            known["num_gpus"] *= known[name]
        if not all(self.module.rules_met(*(known[name] for name in self.module.INPUTS))):
            return False
        if ON_HOST not in self.module.TERMS:
            return True
        stages = range(known["pipeline_parallel"])
        ranks = self._ranks(known) if self.layout else [{**known, "pipeline_rank": rank} for rank in stages]
        return hosts_hold(known, [terms_at(self.module, rank) for rank in ranks])

    def next_legal(self, name: str, step: int) -> int | None:
        """Return the next legal value of a symbol, others unchanged: larger, or smaller with ``step`` -1; None if none.

        Far from its own value only multiples of that, or its parts, are tried.
        """
        own, (least, most) = self.job.values[name], limits(name)
        near = range(own + step, own + step * (_NEAR + 1), step)
        far = (own << bits if step > 0 else own >> bits for bits in range(1, 32))
        legal: Iterator[int] = (
            candidate for candidate in chain(near, far)
            if least <= candidate <= most and candidate != own
            and self.keeps_rules({**self.job.values, name: candidate})
        )
        return next(legal, None)

    @property
    def _term(self) -> str:
        return "stage.total" if self.layout else "peak"

    def _ranks(self, values: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
        """Return values of every rank that has to be looked at: of one for all, unless layers are listed."""
        if not self.layout:
            return ({**values, "pipeline_rank": 0},)
        stages = self.job.by_rank if values is self.job.values else listed(self.job.evaluator, values, self.layout)
        return [{**values, **own, "pipeline_rank": rank} for rank, own in enumerate(stages)]
