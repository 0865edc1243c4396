"""Sentences about Megatron-Bridge's model cards: what their numbers show, and the cause of each that is far off."""

from __future__ import annotations

from collections.abc import Sequence

from validation.measured.case import PEAK, STEADY, Case
from validation.measured.claims import check
from validation.measured.estimates import Estimate, other_estimate
from validation.measured.metrics import Pair, pairs
from validation.measured.sets import bridge_cards as cards

#: Bytes of an offloaded element that leave the GPU, and the parameters that the optimizer of a rank updates there.
_MOMENTS, _STATES = 8, 12


def remarks(cases: Sequence[Case]) -> list[str]:
    """Return paragraphs. Raises ValueError if one would not be true."""
    peaks, steady = pairs(cases, PEAK), pairs(cases, STEADY)
    far = [pair for pair in peaks if abs(pair.error) > cards.NEAR]
    check({
        "every row far off is named, and no other is": {pair.case.id for pair in far} == set(cards.BEYOND),
        "those far off are low, and have experts that get tokens as the router chooses": all(
            pair.error < 0 and pair.case.model is not None and pair.case.model.num_experts
            and pair.case.group != cards.BALANCED for pair in far),
    })
    return [_optimizer(peaks), _host(steady), _adapters(peaks), _far(far, peaks), _reserved()]


def _of(compared: Sequence[Pair], group: str) -> list[Pair]:
    return [pair for pair in compared if pair.case.group == group]


def _worst(compared: Sequence[Pair]) -> str:
    return f"{max((pair.error for pair in compared), key=abs):+.1%}"


def _optimizer(peaks: Sequence[Pair]) -> str:
    balanced = _of(peaks, cards.BALANCED)
    other = [said.of(pair.measured) / pair.measured.bytes - 1 for pair in balanced
             if isinstance(said := other_estimate(pair.case, cards.AS_MEGATRON), Estimate)]
    check({"all would be too low": len(other) == len(balanced) and max(other) < -cards.NEAR})
    return f"""With tokens shared out evenly by force the {len(balanced)} peaks are at most {_worst(balanced)} off.
        Graphs of the router, a second micro-batch in flight and HybridEP differ between them; the first two are
        not counted. These runs ask for Transformer Engine's precision-aware optimizer. Megatron-Bridge copies
        an FP8 recipe to the optimizer's settings whatever the precision is, by which Megatron-Core keeps fp32
        weights itself and copies 16-bit gradients (`optimizer=precision_aware_core`). As Megatron-LM starts
        such a run they would be {-max(other):.1%} to {-min(other):.1%} too low."""


def _host(steady: Sequence[Pair]) -> str:
    least = min(steady, key=lambda pair: pair.measured.bytes).measured.bytes
    most = max(steady, key=lambda pair: pair.measured.bytes).measured.bytes
    states = most - least
    return f"""Moving the whole optimizer to the host saves {states / cards.GIGABYTE:.1f} · 10⁹ bytes. That is
        {_MOMENTS} bytes for every parameter that a rank updates, not {_STATES}: fp32 weights stay. All
        {len(steady)} numbers are {min(pair.error for pair in steady):+.1%} to {max(pair.error for pair in steady):+.1%}
        off. Of that 0.4 · 10⁹ bytes are tensors of experts that are counted as bound until Python collects its
        garbage, which these recipes do by hand."""


def _adapters(peaks: Sequence[Pair]) -> str:
    own = [pair for pair in _of(peaks, cards.ADAPTERS) if not (pair.case.model and pair.case.model.num_experts)]
    check({"one dense model has adapters": len(own) == 1})
    return f"""Adapters of a dense model are {own[0].error:+.1%} off; moments of a step are not counted with them. The
        skill states neither GPUs nor the lengths of the models with experts. GPUs are the fewest of each
        layout, lengths those that the saving by gathering inputs once more gives: 48 layers keep 1.6 · 10⁹
        bytes of inputs at 8,192 tokens, 36 layers 0.8 · 10⁹ at 4,096."""


def _far(far: Sequence[Pair], peaks: Sequence[Pair]) -> str:
    named = "; ".join(f"{pair.case.id} ({pair.error:+.1%}): {cards.BEYOND[pair.case.id]}" for pair in far)
    after = [pair for pair in _of(peaks, cards.NATURAL) if pair not in far]
    check({"other runs of Moonlight peak in the optimizer step": all(pair.site == "optimizer_step" for pair in after)})
    low, high = (abs(pick(pair.difference for pair in after)) / cards.GIGABYTE for pick in (max, min))
    return f"""More than {cards.NEAR:.0%} off are {len(far)}, all too low: {named}. A rank whose experts get a fifth to
        a third more tokens than the mean would explain the adapters; nothing in the cards shows it. The other
        {len(after)} runs of Moonlight peak where no token is, in the optimizer step, as predicted: so recompute saves
        nothing more there, which the skill finds and does not explain. They lack {low:.2f} to {high:.2f} · 10⁹ bytes.
        Its cause is not known. Not it: blocks that the allocator leaves whole, as segments grow; copies of 16-bit
        moments, which Transformer Engine has not made since February 2026 and which would be 16 · 10⁹."""


def _reserved() -> str:
    return """No run that is counted states its reserved memory in more than one digit, so no replay stands here."""
