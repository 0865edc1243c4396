"""Plan a training in phases: every phase by itself, the changes between them, and each layout in all phases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardmath.account.accounting import Explanation, explanation
from shardmath.account.configured import Configuration, configured
from shardmath.account.judged import FITS
from shardmath.account.time import as_cluster
from shardmath.commands.phases.answers import KeptLayout, LayoutChange, Phase, Phases
from shardmath.commands.phases.change import Arranged, change
from shardmath.commands.phases.plan import Plan, PlannedPhase, plan_of, read_plan
from shardmath.commands.recommend import recommend
from shardmath.configuration.defaults import default_implementation
from shardmath.configuration.risk import RISK, risk_of, with_parts
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError, inside
from shardmath.input.arguments import typed
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.search.sizes import as_arguments_of_explain


@dataclass(frozen=True)
class _Training:
    """Model, cluster and framework of all phases."""

    model: Model
    cluster: Cluster
    num_gpus: int
    implementation: str
    risk: float | str | None

    def configured(self, phase: PlannedPhase, layout: Mapping[str, Any]) -> Configuration:
        """Return a phase with a layout. Raises InputError for layouts that are not legal."""
        return configured(self.model, self.cluster, num_gpus=self.num_gpus, implementation=self.implementation,
                          seq_length=phase.seq_length, global_batch_size=phase.global_batch_size, risk=self.risk,
                          **layout)

    def best(self, phase: PlannedPhase) -> dict[str, Any]:
        """Return the fastest layout that fits. Raises InputError if there is none."""
        advice = recommend(self.model, self.cluster, self.num_gpus, global_batch_size=phase.global_batch_size,
                           seq_length=phase.seq_length, implementation=self.implementation, risk=self.risk)
        best = next((choice for choice in advice.choices if choice.verdict == FITS), None)
        if best is None:
            raise InputError("layout", "best", "must be given, or another risk: nothing fits of what recommend tries")
        return as_arguments_of_explain(best.layout)


@typed
def phases(plan: str | os.PathLike[str] | Mapping[str, Any], risk: float | str | None = None) -> Phases:
    """Show a training in phases: the path of a plan file, or what it holds as plain data.

    ``risk``: accepted probability of running out of memory, in place of the plan's.

    Raises InputError for a plan that is wrong, for layouts that are not legal, where nothing fits a phase whose layout
    is the best one, where a figure of the machine is not known, and for changes that are not counted.

    Example:
        >>> short = {"tokens": 10**12, "global_batch_size": 512, "seq_length": 8192, "layout": {"tensor_parallel": 4}}
        >>> long = {**short, "tokens": 10**10, "layout": {"tensor_parallel": 8}}
        >>> job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 64}
        >>> answer = shardmath.phases({**job, "phases": [{"name": "short", **short}, {"name": "long", **long}]})
        >>> [(phase.name, phase.verdict) for phase in answer.phases]
        [('short', 'fits'), ('long', 'fits')]
    """
    planned = plan_of(plan) if isinstance(plan, Mapping) else read_plan(plan)
    model = as_model(planned.model)
    training = _Training(model, as_cluster(planned.gpu, planned.network), planned.num_gpus,
                         planned.implementation or default_implementation(model),
                         planned.risk if risk is None else risk)
    layouts: list[Mapping[str, Any]] = []
    configurations, accounts = [], []
    for index, phase in enumerate(planned.phases):
        with inside(f"phases[{index}]"):
            layouts.append(training.best(phase) if phase.layout is None else phase.layout)
            configurations.append(training.configured(phase, layouts[-1]))
            accounts.append(_phase(phase, layouts[-1], explanation(configurations[-1]), planned))
    changes = tuple(_changes(planned, list(zip(configurations, layouts, strict=True))))
    seconds = sum(phase.seconds for phase in accounts) + sum(item.seconds for item in changes)
    risk = risk_of(with_parts({RISK: training.risk}))
    return Phases(model, training.cluster, planned.num_gpus, risk, tuple(accounts), changes,
                  tuple(_kept(planned, training, layouts)), seconds, _gpu_hours(planned, seconds))


def _phase(planned: PlannedPhase, layout: Mapping[str, Any], account: Explanation, plan: Plan) -> Phase:
    seconds = _seconds(planned, account)
    assert account.time is not None
    return Phase(
        planned.name, planned.tokens, planned.seq_length, planned.global_batch_size, planned.layout is None,
        {name: value if isinstance(value, str) else int(value) for name, value in layout.items()
         if isinstance(value, str | int)},
        account.inputs["data_parallel"], account.peak_bytes, account.peak.share, account.verdict,
        account.rule_80, account.run_out_probability, account.time.tokens_per_second, account.time.mfu,
        account.time.error, seconds, _gpu_hours(plan, seconds),
    )


def _seconds(planned: PlannedPhase, account: Explanation) -> float:
    if account.time is None:
        raise InputError("gpu", account.gpu.name, f"must have a known time of a step: {account.time_unknown}")
    from shardmath.symbolic.timing import phases as formulas

    seconds: float = formulas.value(formulas.PHASE, {
        formulas.tokens: planned.tokens, formulas.rate: account.time.tokens_per_second})
    return seconds


def _gpu_hours(plan: Plan, seconds: float) -> float:
    from shardmath.symbolic.timing import phases as formulas

    hours: float = formulas.value(formulas.GPU_HOURS, {formulas.N: plan.num_gpus, formulas.seconds: seconds})
    return hours


def _changes(plan: Plan, arranged: list[Arranged]) -> list[LayoutChange]:
    storage = plan.write_bandwidth, plan.read_bandwidth
    changes = []
    for index in range(1, len(arranged)):
        old, new = arranged[index - 1], arranged[index]
        if _arrangement(old) == _arrangement(new):
            continue
        with inside(f"phases[{index}].layout"):
            changes.append(change(plan.phases[index].name, old, new, storage))
    return changes


def _arrangement(arranged: Arranged) -> dict[str, Any]:
    """Return all that says where parameters lie; sequences, batch and recompute change nothing there."""
    free = ("seq_length", "global_batch_size", "micro_batch_size", "sequence_parallel", "microbatch_group")
    configuration, layout = arranged
    values = configuration.job.values
    kept = {name: value for name, value in values.items() if name not in free and not name.startswith("recompute")}
    choices = {f"choice {axis}": option for axis, option in configuration.job.evaluator.choices.items()
               if not axis.startswith("recompute")}
    return {**kept, **choices, "listed": str(layout.get("pipeline_layout"))}


def _kept(plan: Plan, training: _Training, layouts: list[Mapping[str, Any]]) -> list[KeptLayout]:
    """Try the layout of each phase in all phases, each different layout once."""
    answers, tried = [], list[Mapping[str, Any]]()
    for owner, layout in zip(plan.phases, layouts, strict=True):
        if layout not in tried:
            tried.append(layout)
            answers.append(_in_all(plan, training, owner, layout))
    return answers if len(answers) > 1 else []


def _in_all(plan: Plan, training: _Training, owner: PlannedPhase, layout: Mapping[str, Any]) -> KeptLayout:
    total, worst = 0.0, (0.0, "")
    for phase in plan.phases:
        try:
            account = explanation(training.configured(phase, layout))
        except InputError as error:
            return KeptLayout(owner.name, None, f"{phase.name}: {error.field} {error.rule}", "")
        if account.verdict == "out of memory":
            reason = f"{phase.name}: {account.verdict}, {account.peak.share:.1%} of the memory"
            return KeptLayout(owner.name, None, reason, "")
        worst = max(worst, (account.run_out_probability, account.verdict))
        total += _seconds(phase, account)
    return KeptLayout(owner.name, total, "", worst[1])
