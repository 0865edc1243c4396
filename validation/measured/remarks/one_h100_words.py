"""Sentences about the steps of Megatron-Core and FSDP2 on one H100; every number in them is computed."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.models.model import Model
from validation.measured.case import GIB, PEAK, RESERVED, Case
from validation.measured.claims import check
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import Pair, Summary, pairs
from validation.measured.replays import replays
from validation.measured.sets.one_h100 import EXPERTS, FLASH, FSDP2, UNFUSED

MIB = 2**20
#: Errors of allocated memory above this need a cause, and those of reserved memory.
GAP = 0.03
#: Bytes that a run may need beyond the ledger's without a reason, as blocks of up to 1 MiB are not split.
_BLOCKS = 2**22


def remarks(cases: Sequence[Case]) -> list[str]:
    """Return the paragraphs. Raises ValueError if something that they say does not hold any more."""
    return [_allocated(pairs(cases, PEAK)), *_reserved(pairs(cases, RESERVED))]


def _of(known: Sequence[Pair], *groups: str) -> list[Pair]:
    return [pair for pair in known if pair.case.group in groups]


def _mib(known: Sequence[Pair]) -> str:
    return " and ".join(f"{pair.difference / MIB:+,.0f} MiB" for pair in known)


def _allocated(known: Sequence[Pair]) -> str:
    exact = [pair for pair in known if abs(pair.difference) < _BLOCKS]
    normed = [pair for pair in _of(known, FLASH) if pair.case.model is not None and pair.case.model.qk_norm]
    scores, sharded = _of(known, UNFUSED), _of(known, FSDP2)
    keys = [_tokens(pair.case) * _model(pair).num_kv_heads * _model(pair).head_dim * 2 * _model(pair).num_layers
            for pair in normed]
    own = Summary.of([pair.error for pair in known])
    check({
        "no gap above the limit": own.worst < GAP,
        "all others have a reason": len(exact) + len(normed + scores) == len(known),
        "norms of keys": all(abs(pair.difference - size) < _BLOCKS for pair, size in zip(normed, keys, strict=True)),
        "scores are low": all(pair.difference < 0 for pair in scores),
    })
    worst = Summary.of([pair.error for pair in sharded]).worst
    return f"""Allocated memory is {own.median:.2%} off in the median and {own.worst:.1%} at worst, so no gap is above
        {GAP:.0%}; {len(exact)} of {len(known)} runs are within {_BLOCKS // MIB} MiB. The others: Qwen3's norm of the
        keys keeps a view of the fused projection here, which the ledger counts once more, as Transformer Engine copies
        it ({_mib(normed)}, of which the keys of all layers are {sum(keys) / MIB:+,.0f}). Unfused attention peaks in
        the backward pass of a layer's scores, whose gradients have no rows ({_mib(scores)}). FSDP2 is {worst:.2%} off
        at worst: because of these runs the ledger has workspaces of cuBLAS there too, and on one rank, which copies
        each parameter by itself, no buffer of gathered ones."""


def _reserved(known: Sequence[Pair]) -> list[str]:
    dense, experts, sharded = _of(known, FLASH, UNFUSED), _of(known, EXPERTS), _of(known, FSDP2)
    far = [pair for pair in dense if abs(pair.error) > GAP]
    fullest = max(dense, key=_holes)
    logits = 4 * _tokens(fullest.case) * _model(fullest).vocab_size
    own, formula = (Summary.of(errors) for errors in (
        [pair.error for pair in dense], [_by_formula(pair) for pair in dense]))
    check({
        "dense steps and FSDP2's are replayed, and no others": {pair.case.id for pair in known} & {*replays()} == {
            pair.case.id for pair in dense + sharded},
        "replays are nearer than the formula": own.median < formula.median and own.worst < formula.worst,
        "what is far off has scores": all(pair.case.group == UNFUSED and pair.error < 0 for pair in far),
        "the largest holes are a block of logits": 1 <= _holes(fullest) / logits < 1.1 and abs(fullest.error) < 0.01,
        "FSDP2 is met": all(abs(pair.error) < 0.002 for pair in sharded),
        "the formula is near for FSDP2": all(abs(_by_formula(pair)) < 0.04 for pair in sharded),
    })
    return [f"""Reserved memory of the {len(dense)} dense steps of Megatron-Core, replayed, is {own.median:.1%} off in
        the median and {own.worst:.1%} at worst; nothing is fitted to them. The formula of searches, which has the
        shares of SimuMax's stages, would be {formula.median:.1%} and {formula.worst:.1%} off: one micro-batch on one
        GPU leaves fewer holes than a pipeline's first stage. Above {GAP:.0%}: {'; '.join(map(_with_scores, far))},
        whose gradients have no rows. The step that reserves most beyond what it allocates, {_holes(fullest) / GIB:.2f}
        GiB, is met to {fullest.error:+.1%}: its fp32 logits of {logits / GIB:.2f} GiB find no freed block that is
        whole.""",
            f"""Steps with experts are {' and '.join(f'{pair.error:+.1%}' for pair in experts)} off by the
        formula: local layers with experts are not replayed yet.""",
            f"""The {len(sharded)} steps of FSDP2 are replayed too:
        {', '.join(f'{pair.error:+.2%}' for pair in sharded)} off, with nothing fitted. The order is that of
        Transformers on one GPU, around which units are gathered and reduced as PyTorch's source has it.
        By the formula of searches they are {', '.join(f'{_by_formula(pair):+.1%}' for pair in sharded)} off: it adds
        what reductions hold in memory of their own stream, whose blocks serve no other."""]


def _holes(pair: Pair) -> int:
    """Return the bytes that a step reserves beyond those that it allocates, both as measured."""
    return pair.measured.bytes - _peak(pair.case)


def _by_formula(pair: Pair) -> float:
    """Return the error that the formula of searches has for a step that is replayed."""
    said = estimate(pair.case)
    assert isinstance(said, Estimate)
    return said.usual / pair.measured.bytes - 1


def _with_scores(pair: Pair) -> str:
    scores = 4 * _model(pair).num_attention_heads * pair.case.arguments["seq_length"] ** 2
    return (f"that with {_tokens(pair.case):,} tokens, recompute {pair.case.arguments['recompute']} and unfused"
            f" attention ({pair.error:+.1%}, {_mib([pair])}), {-pair.difference / scores:.1f} times a layer's fp32"
            " scores")


def _peak(case: Case) -> int:
    return next(measured.bytes for measured in case.measured if measured.quantity == PEAK)


def _tokens(case: Case) -> int:
    return int(case.arguments["seq_length"] * case.arguments["micro_batch_size"])


def _model(pair: Pair) -> Model:
    assert pair.case.model is not None
    return pair.case.model
