"""Sentences about models with experts among ms-swift's example scripts; every number in them is computed."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.account.accounting import Explanation, explain
from validation.measured import uneven
from validation.measured.case import GIB, Case
from validation.measured.claims import check
from validation.measured.metrics import Pair

#: Share of its experts' tokens that the fullest rank of four gets at the most, in percent.
_ALL_TOKENS = 400
#: Bytes of a parameter's states in the distributed optimizer, and of those that are there before its first step.
_STATES, _MASTER = 12, 4
#: Runs of one model and its adapters that differ in tensor parallelism alone.
_WHOLE, _SHARED_OUT = "glm-4.5-air, EP 4, rank 32", "glm-4.5-air, TP 4, EP 4, rank 32"


def account_of(case: Case, **others: int) -> Explanation:
    """Account for a run with other arguments."""
    assert case.model is not None
    return explain(case.model, case.gpu, **{**case.arguments, **others})


def gap(pair: Pair) -> str:
    """Name a run, and what it is predicted beyond what was measured."""
    return f"{pair.case.id} {pair.difference / GIB:+.1f} GiB"


def experts(far: Sequence[Pair], every: Sequence[Pair]) -> list[str]:
    """Return paragraphs on rows with experts that are ``far`` off, among ``every`` one with experts."""
    if not far:
        return []
    check({"rows with experts are low": all(pair.error < 0 for pair in far)})
    return [f"Models with experts need more than predicted: {'; '.join(map(gap, far))}.", _uneven(far),
            _held_back(far), _neither(far, every)]


def _uneven(far: Sequence[Pair]) -> str:
    """Say what loads that differ from layer to layer do to reserved memory."""
    missing = {pair.case.id: -pair.difference for pair in far}
    reserved: dict[tuple[str, str], list[int]] = {}
    for item in uneven.stored():
        if item.collectives == uneven.CURRENT:
            reserved.setdefault((item.run, item.alloc_conf), []).append(item.reserved_bytes)
    added = {key: [size - even for size in sizes] for key, (even, *sizes) in reserved.items() if key[0] in missing}
    split = {run: sizes for (run, conf), sizes in added.items() if not conf}
    grown = max(max(sizes) for (_, conf), sizes in added.items() if conf)
    check({"rows without expandable segments are replayed": len(split) > 1,
           "segments that grow hardly mind": grown < GIB / 8,
           "others do, and explain no row alone": all(GIB < max(sizes) < missing[run] for run, sizes in split.items())})
    listed = "; ".join(f"{run} {', '.join(f'{size / GIB:.1f}' for size in sizes)} GiB" for run, sizes in split.items())
    return f"""A part of it are loads that differ. A replay has as many tokens for every expert. Here the load of a rank
        is drawn for each layer of each micro-batch ([draws](validation/{uneven.NAME}), standard deviations of
        {', '.join(map(str, uneven.SPREADS[1:]))}%): segments made for one layer do not fit the next, so without
        expandable segments more is reserved, though hardly more is allocated: {listed}. The true loads are not known.
        With expandable segments, which the other rows have, the same draws add {grown / GIB:.1f} GiB at most."""


def _held_back(far: Sequence[Pair]) -> str:
    """Say what tensors that NCCL holds back add to reserved memory."""
    missing = {pair.case.id: -pair.difference for pair in far}
    by_stream: dict[str, dict[tuple[str, int], int]] = {uneven.CURRENT: {}, uneven.OWN: {}}
    for item in uneven.stored():  # the allocator of a run stands first
        by_stream[item.collectives].setdefault((item.run, item.spread_percent), item.reserved_bytes)
    added = {(run, spread): size - by_stream[uneven.CURRENT][run, spread]
             for (run, spread), size in by_stream[uneven.OWN].items() if run in missing}
    even = {run: size for (run, spread), size in added.items() if not spread}
    drawn = [size / GIB for (_, spread), size in added.items() if spread]
    check({"all have a PyTorch that holds them back": all(
               pair.case.arguments["kernels"].get("collectives") == uneven.OWN for pair in far),
           "it explains no row alone": all(0 < size < missing[run] for run, size in even.items())})
    listed = "; ".join(f"{run} {size / GIB:.1f} GiB" for run, size in even.items())
    return f"""Another part are tensors that all-to-alls send and receive. Images of ms-swift have PyTorch 2.7 or an
        earlier one up to release 3.8, which all these rows have. There NCCL holds such tensors back until the host next
        waits for the GPU (`collectives=own`), which adds to replayed steps with even loads: {listed}. With drawn loads
        it adds {min(drawn):.1f} to {max(drawn):.1f} GiB, as a hole that comes back late is filled otherwise. From
        PyTorch 2.8 on nothing is held back."""


def _neither(far: Sequence[Pair], every: Sequence[Pair]) -> str:
    """Say what was tried and is not the cause."""
    trained = [pair.case for pair in every if "lora_rank" not in pair.case.arguments]
    skewed = max((account_of(case, expert_load_percent=_ALL_TOKENS).process.allocated
                  - account_of(case).process.allocated for case in trained), default=0)
    loading = {case.id: _loading(account_of(case)) for case in trained if "optimizer_offload_percent"
               not in case.arguments}
    whole, shared_out = (next(pair for pair in far if pair.case.id == name) for name in (_WHOLE, _SHARED_OUT))
    check({"loading is less than a step": all(size < account_of(case).process.allocated for case in trained
                                              if (size := loading.get(case.id)) is not None),
           "a fourth of the tokens lacks as much": abs(whole.difference / shared_out.difference - 1) < 1 / 8})
    return f"""The rest is not known. Not it: one rank that gets {_ALL_TOKENS // 100} times its share of all tokens,
        which adds {skewed / GIB:.1f} GiB at most to what is allocated where all is trained, as the loss of a vocabulary
        of 150,000 words and more is the larger moment; inside of layers with adapters moments are not counted. Tokens
        at all, for glm-4.5-air: with TP 4 a rank has a fourth of them, and {-shared_out.difference / GIB:.1f} GiB are
        missing instead of {-whole.difference / GIB:.1f} GiB, though these may be all that the card has. Loading:
        until July 23, 2025 gate and up projections of all experts were joined in new tensors, which with weights,
        gradients and fp32 weights are at most {max(loading.values()) / GIB:.1f} GiB where all is trained, less than a
        step needs; since then ms-swift joins those of frozen weights in place (`_patch_merge_fn`). Megatron-Core
        0.13, which rows since July 10 have: its layers with experts, recorded in 24 drawn shapes, save the same as
        those of 0.16 and hold the same between steps, and no moment is larger by more than one tensor of hidden
        states."""


def _loading(account: Explanation) -> int:
    """Return the bytes of weights, gradients and fp32 weights, with joined copies of experts' gate and up matrices."""
    lines = {line.term: line.bytes for line in account.peak.lines}
    roles = account.peak.by_role
    joined = 2 * lines["stage.experts.expert_weight"] // 3
    return int(roles["weight"] + roles["gradient"] + roles["optimizer"] * _MASTER // _STATES + joined)
