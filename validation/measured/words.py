"""Sentences about the rows of each table; every number in them is computed, and every claim is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from validation.measured import megatron_tests, simumax
from validation.measured.case import OUT_OF_MEMORY, PEAK, RESERVED, Case
from validation.measured.estimates import OUT, Estimate, estimate, other_estimate
from validation.measured.metrics import Pair, Summary, confusion, contradicted, pairs, right_by_rule

#: Errors above this count as outliers, which a sentence has to account for.
OUTLIER = 0.05


def remarks(name: str, cases: Sequence[Case]) -> list[str]:
    """Paragraphs about the estimated cases of a table.

    Raises ValueError if something that they say does not hold for these cases any more.
    """
    return REMARKS[name](cases) if name in REMARKS else []


def check(claims: Mapping[str, bool]) -> None:
    """Raise ValueError with the claims that do not hold."""
    untrue = [words for words, holds in claims.items() if not holds]
    if untrue:
        raise ValueError(f"not true any more, so the remarks must be written anew: {'; '.join(untrue)}")


def _simumax(cases: Sequence[Case]) -> list[str]:
    found = pairs(cases, PEAK)
    worst = max(found, key=lambda pair: abs(pair.error))
    sites = sorted({pair.site for pair in found if pair.case.group == simumax.DENSE})
    text = [f"""Nothing is fitted: the peak is weights, gradients and optimizer states, saved tensors in flight, and the
        largest of the moments of a step. The farthest number is {worst.difference / 2**20:+,.1f} MiB off
        ({worst.case.layout}, rank {worst.measured.rank})."""]
    if sites:
        text.append(f"Dense stages peak at: {', '.join(sites)}.")
    return text


def _megatron(cases: Sequence[Case]) -> list[str]:
    dense = pairs([case for case in cases if case.group == megatron_tests.DENSE], PEAK)
    if not dense:
        return []
    far = [pair for pair in dense if abs(pair.error) > OUTLIER]
    deferred = [pair for pair in far if megatron_tests.DEFERRED in pair.case.traits]
    compiled = [pair for pair in far if {megatron_tests.COMPILED, megatron_tests.OLD} <= pair.case.traits]
    resumed = [pair for pair in far if megatron_tests.RESUMED in pair.case.traits and pair not in deferred]
    check({
        "every outlier defers the embedding's gradient, compiled its loss in an older container, or is resumed":
            len(far) == len(deferred) + len(compiled) + len(resumed),
        "deferred rows are predicted too low": all(pair.error < 0 for pair in deferred),
    })
    text = [f"""{len(far)} of {len(dense)} dense peaks are more than {OUTLIER:.0%} off. Weight gradient of the embedding
        deferred, which keeps the logits' gradients of two micro-batches and is no mode of the ledger:
        {len(deferred)}. Loss compiled in an older container, whose compiler kept more: {len(compiled)}. Run resumed
        from a checkpoint, with what loading left: {len(resumed)}."""]
    return text + _container(cases)


def _container(cases: Sequence[Case]) -> list[str]:
    left = [case for case in cases if case.group == megatron_tests.CONTAINER]
    found = pairs(left, PEAK)
    if not found:
        return []
    flash = [_other_error(pair, "flash attention") for pair in found]
    known = [error for error in flash if error is not None]
    own = Summary.of([pair.error for pair in found])
    beside = f" With flash attention it would be {Summary.of(known).median:.1%}." if known else ""
    return [f"""{len(found)} deterministic runs of older containers leave the kernel of attention to Transformer
        Engine. Their values are those of unfused attention, which no flag says, so they stand apart: median
        {own.median:.2%} as unfused.{beside}"""]


def _nanotron(cases: Sequence[Case]) -> list[str]:
    found = pairs(cases, RESERVED)
    above = [pair for pair in found if pair.error > 0]
    check({"what is above has more pipeline ranks than layers and head": all(
        pair.case.model is not None and pair.case.arguments["pipeline_parallel"] > pair.case.model.num_layers + 1
        for pair in above)})
    text = [f"""Errors are those of reduce-scatter. {len(found) - len(above)} of {len(found)} predictions of allocated
        memory are below the reserved memory, as they must be where the model is right."""]
    if above:
        names = "; ".join(f"{pair.case.id} ({pair.case.layout})" for pair in above)
        text.append(f"Above it, with more pipeline ranks than blocks to share out: {names}.")
    crashed = [case for case in cases if case.status == OUT_OF_MEMORY]
    said = [estimate(case) for case in crashed]
    out = sum(isinstance(answer, Estimate) and answer.verdict == OUT for answer in said)
    if crashed:
        text.append(f"""{len(crashed)} runs crashed, for reasons that are not recorded; {out} of them have an estimate
            on their fullest rank above the memory of the GPU.""")
    return text


def _torchtitan(cases: Sequence[Case]) -> list[str]:
    found = pairs(cases, RESERVED)
    below = sum(pair.error < 0 for pair in found)
    return [f"""{below} of {len(found)} predictions of allocated memory are below the reserved memory, as they must be
        where the model is right."""]


def _hagemann(cases: Sequence[Case]) -> list[str]:
    wrong = contradicted(cases)
    check({"nothing that trained is called out of memory": all(case.status == OUT_OF_MEMORY for case in wrong)})
    longest = sum("full recompute" in case.traits for case in wrong)
    right = right_by_rule(confusion(cases))
    return [f"""{right:.1%} of the runs went as the 80 % rule says if *uncertain* counts as out of memory. Nothing that
        trained is called out of memory. Said to fit without fitting: {len(wrong)}, of which {longest} recompute every
        layer. What the estimate leaves out, that is fragmentation, communication buffers and the CUDA context, is
        only known to be above zero."""]


def _known(cases: Sequence[Case]) -> list[str]:
    wrong = contradicted(cases)
    if not wrong:
        return ["No recipe is called out of memory."]
    names = "; ".join(f"{case.id} ({case.layout})" for case in wrong)
    return [f"Called out of memory although they run: {names}."]


def _other_error(pair: Pair, name: str) -> float | None:
    said = other_estimate(pair.case, name)
    return said.of(pair.measured) / pair.measured.bytes - 1 if isinstance(said, Estimate) else None


REMARKS: Mapping[str, Callable[[Sequence[Case]], list[str]]] = {
    "simumax": _simumax, "megatron_tests": _megatron, "nanotron": _nanotron, "torchtitan": _torchtitan,
    "hagemann": _hagemann, "known_to_run": _known,
}
