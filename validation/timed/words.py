"""The page's words on step time: method, assumptions, and causes of misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from shardmath.commands.calibrate.fitting import CONTENTION, STALL
from shardmath.commands.calibrate.runs import TimedRun
from validation.timed.cases import LARGEST, Table
from validation.timed.metrics import Ranking
from validation.timed.results import CALIBRATED, Result, result

#: Regret of a group that is named.
BAD = 0.05

INTRODUCTION = (
    """Seconds of an optimizer step are terms of the same mathematics, with parameters of the machine. *Uncalibrated*
        are shardmath's own defaults: peaks of datasheets and shares of them that are usual on that generation of
        GPUs. *Calibrated on other groups*: `shardmath calibrate` fitted its constants to the runs of all groups but
        the one that is predicted. A group are runs of the same model, number of GPUs and sequence length. Times are
        compared for one sequence, as a few batches of a group differ.""",
    """*Regret* is how much slower the layout that is predicted to be fastest was, as measured, than the fastest one
        of its group. *Pairs in order*: of all pairs of a group whose measured times are at least 5 % apart, the
        share whose order is predicted. Baselines: *random* is a layout chosen blindly. *Textbook constants* are the
        same formulas with half of the peak for every product, all of every bandwidth, and no latencies. The *rule*
        takes the best kernel, no recompute, the smallest TP times PP times CP, and then the largest micro-batch; the
        regret of what it leaves open is the mean, and pairs that it leaves open count half. *Ties by the rule*: of runs
        that are predicted within 3 % of the fastest that of the smallest TP times PP times CP is chosen, then that of
        the largest micro-batch.""",
)

ABOUT: Mapping[str, str] = {
    "fujii2024": """Llama 3.1 8B, 8192 tokens, 1024 sequences, Megatron-LM. Seconds follow from the TFLOP/s of the
        table, which Megatron-LM reckons with all of the square of attention.""",
    "hagemann2023": """Llama 13B with 128,000 tokens, five kernels, with and without recompute of every layer.
        Gradients are in bf16, made in tensors of their own and added up afterwards. FlashAttention 1 is reckoned 1.6
        times slower than its successor. Stages hold about as many parameters each, as the example of the authors'
        library asks for (Aleph-Alpha/scaling of 2024, `pipe_partition_method`): 9, 11, 11 and 9 layers on four, as
        the embedding and the head weigh two layers each. Memory, and the constants of a generation, are counted with as
        many layers on each.""",
    "nanotron": f"""Models of 1B and 3B, up to {LARGEST} GPUs, with and without ZeRO-1. Seconds follow from tokens
        per second of each GPU; the table's MFU contradicts it in places and is not used. Stages have the layers that
        nanotron shares out. Gradients are reduced while the last backward pass goes on; with ZeRO-1 behind it.""",
}
ASSUMED: Mapping[str, str] = {
    "fujii2024": "Network: 4 ports of HDR-200 for 8 GPUs, assumed.",
    "hagemann2023": "Network: a port of HDR-200 for each GPU, assumed.",
    "nanotron": "Network: 32 ports of 100 Gb/s for 8 GPUs (EFA), as AWS describes such servers.",
}
TITAN = """Llama 3.1 8B with FSDP2, bf16. The GPUs are H100 of 96 GB, whose memory is slower (2.4 TB/s) and whose
    power is limited to 500 W. Nothing is fitted. Eager runs have the norms of a PyTorch without a fused one. No
    evaluator has what the compiler makes: compiled runs stand beside fused norms with all else eager. FP8 has no
    evaluator either. There are too few runs for a regret."""

CAVEATS: tuple[str, ...] = (
    """The structure of the formulas (which terms there are, what hides what) was chosen with these tables in sight.
        Only the constants are cross-validated, so errors on a cluster of another kind can be larger.""",
    """Fujii et al. do not publish the order of their ranks. The pipeline before context and data parallelism (TP, PP,
        CP, DP) is inferred: it fits better than Megatron-Core's own order, which stands beside it. Hagemann et al. do
        not publish the layers of their stages: parameters alike on each, one of two ways of their library, is inferred
        likewise. The networks of
        Fujii et al. and of Hagemann et al. are assumed. A port for each GPU of Fujii et al., and half of one for each
        of Hagemann et al., leave the regrets as they are.""",
    """Constants that nothing in the runs tells apart share what is missing. A fitted share stays at or below the peak
        by its range, so none can hide a missing term by exceeding it; yet each also stands for what the formulas
        leave out.""",
    """FlashAttention 1 is slower by a factor of its own; bytes of eager kernels are counted in the ledger and not
        fitted. How attention by matrix products runs on A100 is the least certain of them.""",
)


def misses(outcome: Result) -> Sequence[str]:
    """Return known causes of a table's misses, in sentences that hold for the numbers."""
    return _MISSES[outcome.table.name](outcome)


def _fujii(outcome: Result) -> list[str]:
    regrets = outcome.rankings[CALIBRATED].regret
    worst = max(regrets, key=lambda group: regrets[group])
    return [_contention(outcome),
        f"""The largest regret is {regrets[worst]:.1%} ({worst}). The fastest layouts of these groups are so
        close to each other, and so far from the rest, that textbook constants and the rule find good ones too; what
        sets predictions apart here is their error and the order of all pairs."""]


def _contention(outcome: Result) -> str:
    """Say what the flows of many nodes cost, and what the errors are without it."""
    table, without = outcome.table, result(outcome.table, CONTENTION).rankings[CALIBRATED]
    layout = {"tensor_parallel": 2, "context_parallel": 4, "pipeline_parallel": 2, "micro_batch_size": 1}
    spent = {run.job.values["num_gpus"]: run.seconds * run.job.values["num_gpus"] for run in table.runs
             if layout.items() <= run.job.values.items()}
    few, many = min(spent), max(spent)
    return f"""Networks slow down as jobs grow: TP 2, CP 4 and PP 2 took {spent[many] / spent[few] - 1:.0%} more
        GPU time for a step on {many} GPUs than on {few}. A flow shares its slowest link with
        {outcome.fit.parameters[CONTENTION] / 1000:.2f} others in a large job (`{CONTENTION}`). Calibrated without this
        constant, the median error is {without.error:.1%} and the 90th percentile {without.high:.1%}.
        It is 0 unless a calibration on three sizes of a cluster fits it: the public rows of other networks, with
        adaptive routing or rails, do not ask for it."""


def _hagemann(outcome: Result) -> list[str]:
    ranking = outcome.rankings[CALIBRATED]
    errors = ranking.predicted / ranking.measured - 1
    lines = []
    for kernel in dict.fromkeys(outcome.table.kernels):
        own = [error for error, name in zip(errors, outcome.table.kernels, strict=True) if name == kernel]
        lines.append(f"{kernel} {median(own):+.1%} ({len(own)} runs)")
    return [
        f"""Signed median error by kernel: {"; ".join(lines)}. One set of constants serves all five kernels: what
        eager kernels move through memory is counted, how close each of them comes to the bandwidth differs.""",
        _staged(outcome),
    ]


def _staged(outcome: Result) -> str:
    """Say what pairs in the wrong order have in common: FlashAttention 2 on two stages or more, in larger batches."""
    ranking, table = outcome.rankings[CALIBRATED], outcome.table
    odd = np.array([
        kernel.startswith("flash_attention2") and run.job.values["pipeline_parallel"] > 1
        and run.job.values["micro_batch_size"] > 1 for kernel, run in zip(table.kernels, table.runs, strict=True)
    ])
    others = Ranking(ranking.predicted[~odd], ranking.measured[~odd],
                     tuple(group for group, left in zip(ranking.groups, odd, strict=True) if not left))
    second, first = (_growing(table, kernel) for kernel in ("flash_attention2", "flash_attentionv1.0.8"))
    *sizes, largest = second
    return f"""The order of pairs is missed by {odd.sum()} runs: FlashAttention 2, several stages, and micro-batches of
        more than one sequence. Without them {others.ordered:.1%} of pairs are in order. One layout of them, two stages
        with recompute, took {", ".join(f"{time:.1f}" for time in second.values())} ms for a sequence with micro-batches
        of {", ".join(map(str, sizes))} and {largest}, as if a pipeline of eight filled and drained; with FlashAttention
        1 the same layout took {min(first.values()):.1f} to {max(first.values()):.1f} ms. It is time of a step, not of
        a micro-batch: with twice the micro-batches (TP 2, or 32 GPUs) half as much is added. Neither the kernel nor
        stages cause it: the same authors' 30B and 65B on two to eight stages, with the same kernel and numbers of
        trials between these, took what pipelines of their own stages take, and so do these runs with 8192 tokens.
        FlashAttention 1 ran tens of thousands of trials earlier. The schedule of their code, as it was published in
        2024, fills a pipeline of its own stages alone. Cause not known; no constant is added for it. The same code sums
        gradients in fp32 on all ranks, with ZeRO-1 too. That is not counted: tried with as many modules on each stage,
        it changed the share of pairs and the errors by at most 0.2 points."""


def _growing(table: Table, kernel: str) -> dict[int, float]:
    """Return the milliseconds of a sequence by its micro-batch, of recompute on two stages of 2048 tokens."""
    chosen = {"tensor_parallel": 1, "pipeline_parallel": 2, "seq_length": 2048}
    own = {run.job.values["micro_batch_size"]: 1000 * run.seconds / run.job.values["global_batch_size"]
           for run, name, again in zip(table.runs, table.kernels, table.recomputed, strict=True)
           if again and name == kernel and chosen.items() <= run.job.values.items()}
    return dict(sorted(own.items()))


def _nanotron(outcome: Result) -> list[str]:
    twins: dict[tuple[object, ...], list[float]] = {}
    for run in outcome.table.runs:
        twins.setdefault(_but_for_zero(run), []).append(run.seconds)
    ratios = [max(pair) / min(pair) for pair in twins.values() if len(pair) > 1]
    text = [f"""{len(ratios)} layouts ran both with and without ZeRO-1, which hardly changes their work. Their times
        differ by {median(ratios) - 1:.0%} in the median and by a factor of {np.percentile(ratios, 90):.1f} in one of
        ten, up to {max(ratios):.0f}: some runs stalled for reasons that the table does not tell, and no formula
        predicts which."""]
    regrets = outcome.rankings[CALIBRATED].regret
    bad = [group for group, regret in regrets.items() if regret > BAD]
    if bad:
        named = " and ".join(f"{group} ({regrets[group]:.0%})" for group in bad)
        others = max(regret for group, regret in regrets.items() if group not in bad)
        text.append(f"""Regret above {BAD:.0%}, which makes the mean what it is: {named}. In the other groups it is at
            most {others:.1%}.""")
        text += [f"""First choice of {group}: {seconds:.2f} s, and the same layout with ZeRO-1 the other way
            {twin:.2f} s.""" for group in bad for seconds, twin in _twins_of_first(outcome, group)]
    without = result(outcome.table, STALL).rankings[CALIBRATED]
    stall = outcome.fit.parameters[STALL]
    text.append(f"""Tensor-parallel ranks whose pipeline crosses nodes lose {stall / 1000:.0f} us for each other rank
        in each collective (`{STALL}`). Nobody has explained it, so its default is 0 and only a calibration that
        asks for it sets it. Calibrated without it, the median error is {without.error:.1%} and
        {without.ordered:.1%} of pairs are in order.""")
    return text


def _but_for_zero(run: TimedRun) -> tuple[object, ...]:
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size", "global_batch_size")
    return (run.job.model.name, *(run.job.values[name] for name in names))


def _twins_of_first(outcome: Result, group: str) -> list[tuple[float, float]]:
    """Measured seconds of the run that is predicted to be fastest, and of its twin if there is one."""
    predicted = outcome.rankings[CALIBRATED].predicted
    own = [place for place, run in enumerate(outcome.table.runs) if run.group == group]
    first = outcome.table.runs[min(own, key=lambda place: float(predicted[place]))]
    return [(first.seconds, run.seconds) for run in outcome.table.runs
            if run is not first and _but_for_zero(run) == _but_for_zero(first)]


_MISSES = {"fujii2024": _fujii, "hagemann2023": _hagemann, "nanotron": _nanotron}
