"""A pipeline whose stages have machines of their own: memory of each, and the time of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from shardmath.account.judged import fullness_of
from shardmath.account.kinds import Fleet
from shardmath.account.placement import Placement
from shardmath.account.stage_links import placed_stages
from shardmath.account.stages import in_chunks
from shardmath.account.time import StepTime, step_time
from shardmath.compiler.evaluators import Evaluator, find, terms_at, times_at
from shardmath.generated.definitions import LIMITS, RANK_LIMITS
from shardmath.input.parameters import UNEVEN

#: Places of the stages that terms of the whole pipeline name.
_NAMED = {"first": 0, "second": 1, "penultimate": -2, "last": -1}


@dataclass(frozen=True)
class Pipeline:
    """All values of each stage by name, and the fleet that they are on."""

    evaluator: Evaluator
    stages: tuple[Mapping[str, int], ...]
    fleet: Fleet

    @cached_property
    def numbers(self) -> tuple[Mapping[str, int | Fraction], ...]:
        """Terms of memory of each stage."""
        return tuple(terms_at(self.evaluator.terms, stage) for stage in self.stages)

    @cached_property
    def fullest(self) -> int:
        """The stage whose process takes most of its GPU; the first of several."""
        return max(range(len(self.stages)), key=lambda rank: (
            fullness_of(self.numbers[rank], self.stages[rank]["gpu_memory"]), -rank))

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each chunk, in the order of the model; of each stage where a GPU has one chunk."""
        return in_chunks([stage["stage_layers"] for stage in self.stages], self.stages[0])

    def values(self, asked: Mapping[str, int]) -> dict[str, int]:
        """Return the values of the asked stage, with the memory of the fullest one for verdicts."""
        own = {**self.stages[asked["pipeline_rank"]], "gpu_memory": self.stages[self.fullest]["gpu_memory"]}
        return {**own, **{name: asked[name] for name in UNEVEN}}

    def terms(self, rank: int) -> dict[str, int | float | Fraction]:
        """Return every term of a stage, and of the whole pipeline, by name."""
        last, fullest = len(self.stages) - 1, self.numbers[self.fullest]
        totals = {f"{name}.total": self.numbers[max(-last - 1, min(place, last))]["stage.total"]
                  for name, place in _NAMED.items()}
        return {**self.numbers[rank], **times_at(self.evaluator.times, self.stages[rank]), **totals,
                "peak": fullest["stage.total"], "process.peak": fullest["process.total"],
                **dict(zip(LIMITS, (fullest[name] for name in RANK_LIMITS), strict=True))}

    def placed(self) -> tuple[Pipeline, Placement | None]:
        """Return the pipeline with its nodes placed by measured links, and their order; itself without such links."""
        if self.evaluator.choices["links"] != "measured":
            return self, None
        stages, placement = placed_stages(self.evaluator, self.fleet, self.stages)
        return replace(self, stages=tuple(stages)), placement

    def placed_seconds(self) -> float:
        """Return seconds of a step with the nodes placed, of a pipeline that was counted with the fastest links."""
        own = self.evaluator
        evaluator = find(own.implementation, {**own.choices, "links": "measured"})
        return placed_stages(evaluator, self.fleet, self.fleet.timed(evaluator, self.stages))[1].seconds

    def time(self) -> StepTime:
        """Return the time of a step."""
        evaluator, stages = self.evaluator, self.stages
        time = step_time(evaluator, stages[0], stages)
        numbers = [times_at(evaluator.times, values) for values in stages]
        known = (all(values[name] for values in stages) for name in ("power_milliwatts", "cents_per_gpu_hour"))
        energy, cost = (
            sum(stage[f"step.{name}_per_token"] for stage in numbers) / len(numbers) if is_known else 0.0
            for name, is_known in zip(("energy", "cost"), known, strict=True)
        )
        alike = {name: value for name, value in time.machine.items() if all(own[name] == value for own in stages)}
        return replace(time, joules_per_token=energy, cost_per_token=cost, machine=alike)
