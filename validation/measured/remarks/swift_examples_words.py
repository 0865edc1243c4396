"""Sentences about ms-swift's example scripts, and their seconds; every number in them is computed."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.account.judged import OUT
from validation.measured.case import GIB, PROCESS, Case
from validation.measured.claims import check
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import Pair, Summary, pairs
from validation.measured.remarks import gaps, swift_experts_words
from validation.measured.remarks.swift_experts_words import account_of, gap
from validation.measured.sets.swift_examples import CARD, MEGATRON, NAMED, PACKED, SHORTER, TRANSFORMERS
from validation.tables import markdown

#: Errors above this need a cause, or the words that none is known.
FAR = 0.1
#: Share of a measured figure that rounding may be.
_ROUNDING = 0.05


def remarks(cases: Sequence[Case]) -> list[str]:
    """Return the paragraphs. Raises ValueError if something that they say does not hold any more."""
    known = pairs(cases, PROCESS)
    clean = [pair for pair in known if pair.case.group in (MEGATRON, TRANSFORMERS)]
    return [_near(clean), *_far(clean), _bounds([pair for pair in known if pair.case.group == SHORTER]),
            _verdicts(cases)]


def details(cases: Sequence[Case]) -> list[str]:
    """Return the table of gaps of which no paragraph speaks, and that of seconds."""
    return [*gaps.of_pairs([pair for pair in pairs(cases, PROCESS) if _is_middling(pair)]), *_seconds(cases)]


def _is_middling(pair: Pair) -> bool:
    """Tell if no paragraph speaks of a row that is near enough, or needs more than predicted for longer sequences."""
    if pair.case.group == SHORTER:
        return pair.error < -_ROUNDING
    return abs(pair.error) <= FAR


def _seconds(cases: Sequence[Case]) -> list[str]:
    """Return the table of seconds of packed rows whose GPU is named."""
    lines = []
    for case in cases:
        if PACKED in case.traits and NAMED in case.traits and case.seconds is not None:
            time = account_of(case).time
            if time is not None:
                lines.append((case.id, case.gpu.name, f"{case.seconds:g}", f"{time.seconds:.1f}",
                              f"{time.seconds / case.seconds - 1:+.0%}"))
    return ["""Seconds of an iteration of packed rows whose GPU is named. Predictions have attention over full
sequences; documents that are packed attend to themselves alone, and no row says how long they are:""",
            markdown(("run", "GPU", "measured s", "predicted s", "error"), lines)] if lines else []


def _inside(pair: Pair) -> bool:
    """Tell if the figure, which is rounded to a whole GiB, can be within the stated range."""
    said = estimate(pair.case)
    assert isinstance(said, Estimate)
    low, high = said.range
    return low - GIB // 2 <= pair.measured.bytes <= high + GIB // 2


def _near(clean: Sequence[Pair]) -> str:
    near = sum(abs(pair.error) <= FAR for pair in clean)
    inside = sum(map(_inside, clean))
    dense = [pair for pair in clean if pair.case.group == MEGATRON and not _has_experts(pair.case)
             and "optimizer_offload_percent" not in pair.case.arguments]
    return f"""Of {len(clean)} packed rows {near} are within {FAR:.0%}, and {inside} within the stated range of the
        process with half a GiB for rounding. Dense models of Megatron-Core with their optimizer on the GPU
        ({len(dense)} rows) are {Summary.of([pair.error for pair in dense]).worst:.1%} off at worst. Rows with ZeRO-3
        and Liger need as much with 8K tokens as with 16K: their peak is the optimizer step, whose temporaries the
        ledger did not have with DeepSpeed before these rows; they were then counted in DeepSpeed itself."""


def _has_experts(case: Case) -> bool:
    return case.model is not None and case.model.num_experts > 0


def _far(clean: Sequence[Pair]) -> list[str]:
    far = [pair for pair in clean if abs(pair.error) > FAR]
    experts = [pair for pair in far if _has_experts(pair.case)]
    host = [pair for pair in far if "optimizer_offload_percent" in pair.case.arguments and pair not in experts]
    frozen = [pair for pair in far if pair.case.group == TRANSFORMERS and pair.error < 0]
    pairs_of_answers = [pair for pair in far if pair.case.group == TRANSFORMERS and pair.error > 0]
    check({
        "every far row is spoken of": len(experts + host + frozen + pairs_of_answers) == len(far),
        "preference training is the only one above": all(
            "reference" in pair.case.arguments["kernels"] for pair in pairs_of_answers),
        "one model with Liger on one GPU": all(
            pair.case.arguments["kernels"].get("loss") == "liger" and pair.case.layout == "one GPU"
            for pair in frozen),
    })
    text = swift_experts_words.experts(experts, [pair for pair in clean if _has_experts(pair.case)])
    for pair in host:
        account = account_of(pair.case)
        loading = next(item for item in account.outside if item.moment == "loading")
        process = loading.bytes + account.process.total - account.process.reserved
        check({"loading is the larger moment": account.process.total < process})
        text.append(f"""{gap(pair)}. With the optimizer on the host the largest moment is before the first step:
            Megatron-Core joins gate and up projections of a sharded checkpoint in new tensors, and all of them are
            alive at once ({loading.joined / GIB:.1f} GiB). A process would have {process / GIB:.1f} GiB then, as
            `explain` says (while loading: {loading.bytes / GIB:.1f} GiB).""")
    for pair in frozen:
        own = account_of(pair.case).peak.by_role["optimizer"] // 2
        text.append(f"""{gap(pair)}: with Liger's kernels on one GPU the moments of a step are not counted, among them
            temporaries of AdamW, {own / GIB:.1f} GiB here. The rest is not known.""")
    text += [f"""{gap(pair)}: ms-swift makes logits of labels alone (`use_logits_to_keep`), of which a script says
        nothing; all tokens have logits here, with a warning.""" for pair in pairs_of_answers]
    return text


def _bounds(shorter: Sequence[Pair]) -> str:
    below = [pair for pair in shorter if pair.error < -_ROUNDING]
    others = f" The others: {'; '.join(map(gap, below))}." if below else ""
    return f"""Of {len(shorter)} rows whose sequences are shorter than predicted for, {len(shorter) - len(below)} need
        no more than that, with {_ROUNDING:.0%} for rounding.{others}"""


def _verdicts(cases: Sequence[Case]) -> str:
    full = [(case, said) for case in cases if PACKED in case.traits and isinstance(said := estimate(case), Estimate)]
    out = [case.id for case, said in full if said.verdict == OUT]
    cards = [case for case, _ in full if case.group == CARD]
    return f"""All rows trained. {len(out) or 'None'} of the {len(full)} packed ones, {len(cards)} of which state only
        their card, should have run out of memory{': ' + '; '.join(out) if out else ''}."""
