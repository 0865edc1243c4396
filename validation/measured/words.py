"""Sentences about the rows of each table; every number in them is computed, and every claim is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from shardmath.account.judged import OUT, UNCERTAIN
from validation.measured.case import OUT_OF_MEMORY, PEAK, RESERVED, Case
from validation.measured.claims import check
from validation.measured.details import BEYOND
from validation.measured.estimates import Estimate, estimate, other_estimate
from validation.measured.metrics import Pair, Summary, confusion, contradicted, pairs, right_by_rule
from validation.measured.reading import rows
from validation.measured.remarks import cards_words, deepspeed_words, one_h100_words, swift_examples_words
from validation.measured.replays import NAME as REPLAYED_FILE
from validation.measured.replays import replay_of
from validation.measured.sets import hagemann, huggingface, known_to_run, megatron_tests, nanotron, simumax, torchtitan

#: Errors above this count as outliers, which a sentence has to account for.
OUTLIER = 0.05
#: Bytes that a run of Transformers may need beyond the ledger's, and those that need a reason.
_NEAR, _MORE = 2**23, 2**26
#: Error of a replay beyond which a block of logits is missing.
_BLOCK = 0.01


def remarks(name: str, cases: Sequence[Case]) -> list[str]:
    """Paragraphs about the estimated cases of a table.

    Raises ValueError if something that they say does not hold for these cases any more.
    """
    return REMARKS[name](cases) if name in REMARKS else []


def refusals(name: str, cases: Sequence[Case]) -> list[str]:
    """Paragraphs about the cases of a table that have no estimate, which may be none."""
    left = [case for case in cases if not isinstance(estimate(case), Estimate)]
    return REFUSALS[name](left) if left and name in REFUSALS else []


def _simumax(cases: Sequence[Case]) -> list[str]:
    compared = pairs(cases, PEAK)
    worst = max(compared, key=lambda pair: abs(pair.error))
    sites = sorted({pair.site for pair in compared if pair.case.group == simumax.DENSE})
    text = [f"""Nothing is fitted: the peak is weights, gradients and optimizer states, saved tensors in flight, and the
        largest of the moments of a step. The largest error is {worst.error:+.2%}, {worst.difference / 2**20:+,.1f}
        MiB ({worst.case.layout}, rank {worst.measured.rank})."""]
    if sites:
        text.append(f"Dense stages peak at: {', '.join(sites)}.")
    experts = [pair for pair in compared if pair.case.group == simumax.EXPERTS]
    if experts:
        low = min(pair.difference for pair in experts) / 2**20
        left = max(abs(pair.difference + _hidden_states(pair)) for pair in experts) / 2**20
        text.append(f"""Experts get equally many tokens here, as every one is padded to its capacity. What is missing at
            these stages is at most {max(-low, 0):,.0f} MiB. Most of it is one tensor of hidden states: core 0.14 sums a
            token's results up while it holds what it sent, and 0.16.1, which is counted, does not. With it no stage is
            more than {left:,.0f} MiB off.""")
    return text + _published_with_context(compared)


def _hidden_states(pair: Pair) -> int:
    """Bytes of the hidden states of a micro-batch, without parallel dimensions that cut them."""
    assert pair.case.model is not None
    arguments = pair.case.arguments
    return int(2 * arguments["seq_length"] * arguments["micro_batch_size"] * pair.case.model.hidden_size)


def _published_with_context(compared: Sequence[Pair]) -> list[str]:
    known = [pair for pair in compared if pair.published is not None and pair.measured.rank in (0, None)]
    context = [pair for pair in known if pair.case.arguments.get("context_parallel", 1) > 1]
    if not context:
        return []
    worst = max(float(pair.published or 0) / pair.measured.bytes for pair in context)
    return [f"""The published function does not divide anything by the context-parallel size: on the {len(context)}
        stages with CP it says up to {worst:.1f} times what was measured."""]


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
    return [*text, _left([pair for pair in dense if pair not in far]), *_container(cases)]


def _left(near: Sequence[Pair]) -> str:
    """Say the errors of all other peaks by tensor-parallel size, in MiB, as the models are small."""
    by_size: dict[int, list[int]] = {}
    for pair in near:
        by_size.setdefault(pair.case.arguments.get("tensor_parallel", 1), []).append(pair.difference)
    middle = "; ".join(f"TP {size}: {median(errors) / 2**20:+.1f}" for size, errors in sorted(by_size.items()))
    sizes = [pair.difference / 2**20 for pair in near]
    return f"""The other {len(near)} are {min(sizes):+.1f} to {max(sizes):+.1f} MiB off, in the middle {middle}. Why it
        is more with more tensor-parallel ranks is not explained. PyTorch's allocator, which gives a large tensor up to
        1 MiB more than it asks for, is not in the ledger."""


def _container(cases: Sequence[Case]) -> list[str]:
    left = [case for case in cases if case.group == megatron_tests.CONTAINER]
    compared = pairs(left, PEAK)
    if not compared:
        return []
    flash = [_other_error(pair, "flash attention") for pair in compared]
    known = [error for error in flash if error is not None]
    own = Summary.of([pair.error for pair in compared])
    beside = f" With flash attention it would be {Summary.of(known).median:.1%}." if known else ""
    return [f"""{len(compared)} deterministic runs of older containers leave the kernel of attention to Transformer
        Engine. Their values are those of unfused attention, which no flag says, so they stand apart: median
        {own.median:.2%} as unfused.{beside}"""]


def _nanotron(cases: Sequence[Case]) -> list[str]:
    return [*_reserved(cases), *_of_targets(cases), *_crashes(cases)]


def _reserved(cases: Sequence[Case]) -> list[str]:
    known = pairs(cases, RESERVED)
    said = [(pair, estimate(pair.case)) for pair in known]
    allocated = {pair: answer.peaks[pair.measured.rank or 0] / pair.measured.bytes - 1
                 for pair, answer in said if isinstance(answer, Estimate)}
    above = [pair for pair, error in allocated.items() if error > 0]
    check({
        "every measured run is replayed": all(isinstance(answer, Estimate) and answer.reserved is not None
                                              for _, answer in said),
        "what is above has more pipeline ranks than layers and head": all(
            pair.case.model is not None and pair.case.arguments["pipeline_parallel"] > pair.case.model.num_layers + 1
            for pair in above),
    })
    if not known:
        return []
    of_few = [allocated[pair] for pair in known if pair.case.group in nanotron.WITH_TARGET]
    factor = [1.03 * (1 + error) - 1 for error in of_few]
    text = [f"""Every number of the table is replayed ([replayed numbers](validation/{REPLAYED_FILE})). One number is
        fitted, to the runs with TP 2: after how many allocations a freed tensor comes back that communication used.
        Allocated memory alone would be off by {Summary.of(of_few).median:.1%} in the median with TP of 1 and 2, and
        allocated memory times 1.03 by {Summary.of(factor).median:.1%}. {len(known) - len(above)} of {len(known)}
        predictions of allocated memory are below the reserved memory, as they must be where the model is right.
        With TP of 4 and more, runs that differ in DP alone spread so far that no formula can be right; the mode of
        tensor parallelism is not in the table.""",
        """That number is how far the host runs ahead of the GPU: 900 allocations, about the 1,024 launches that wait
        in CUDA's queue at most. It fits micro-batches of four and more sequences, at TP 4 too, where the GPU is the
        slower one. With one sequence the host is, and many runs have what no such wait leaves. A trial with two
        clocks (the queue, and 34 us for a launch, which the step times of the same table give) had 149 of 208 numbers
        of TP 4 within 10% where the one number has 126, and 162 of 189 of TP 2 where it has 163, with a median error
        of 3.8% where it has 3.3%. So the one number stays, and with TP of 4 and small micro-batches it says too
        much."""]
    if above:
        names = "; ".join(f"{pair.case.id} ({pair.case.layout})" for pair in above)
        text.append(f"Above it, with more pipeline ranks than blocks to share out: {names}.")
    return [*text, *_counted()]


def _counted() -> list[str]:
    """Say what the counted allocations of some runs reserve, put through the rules of PyTorch's allocator."""
    runs = rows(nanotron.REPLAYED)
    errors = {row["run"]: float(row["reserved_gib"]) / float(row["published_gib"]) - 1 for row in runs}
    far = [f"{run} ({error:+.1%})" for run, error in errors.items() if abs(error) > 0.02]
    return [f"""Beside it, the allocations of {len(runs)} runs as nanotron's own modules make them, counted and put in
        their order through the rules of the allocator, reserve what the table has within 2% for
        {len(runs) - len(far)} of them; not explained: {'; '.join(far)}. Table: `tests/data/{nanotron.REPLAYED}`."""]


def _of_targets(cases: Sequence[Case]) -> list[str]:
    few = [pair for pair in pairs(cases, RESERVED) if pair.case.group in nanotron.WITH_TARGET]
    if not few:
        return []
    near = sum(abs(pair.error) <= OUTLIER for pair in few)
    low = sum(pair.error < -OUTLIER for pair in few)
    sites = ", ".join(sorted({pair.site for pair in few}))
    far = [pair for pair in few if abs(pair.error) > BEYOND]
    sharded = sum("ZeRO-1" in pair.case.traits for pair in far)
    staged = sum("stages" in pair.case.traits for pair in far)
    return [f"""{near} of the {len(few)} numbers with TP of 1 or 2 are within {OUTLIER:.0%}; {low} of the others are
        predicted too low and {len(few) - near - low} too high. Their peaks are predicted at: {sites}. Of the
        {len(far)} that are more than {BEYOND:.0%} off {sharded} have ZeRO-1 and {staged} several stages,
        and runs that differ in DP alone are near and far in turn: cause not known. Six runs of 1B on four stages lack
        0.85 to 1.13 of what a micro-batch saves, though four of them have no more micro-batches in a step than are in
        flight.""",
        """Tried, beside the second clock and the counts of nanotron's own modules: other addresses of segments (16
        runs, at most 0.02 GiB); messages between stages that come back up to 200 allocations later (9 runs, at most 0.3
        GiB); 30 micro-batches more than are in flight (10 runs, at most 1 GiB); the last activation of the warm-up,
        which a variable of nanotron's loop holds to the end of the passes (9 runs, nothing).""",
        """Tried too is what the sources say of the order: the host waits for the GPU with each message between stages,
        as nanotron reads sizes of tensors off the GPU (`_recv_meta` of `p2p.py`), and behind each step, which it logs;
        and PyTorch holds back what asynchronous gathers and reduce-scatters take and give (`_allgather_base` and
        `_reduce_scatter_base` of `ProcessGroupNCCL.cpp`), saved inputs of column-parallel layers among it. With the
        waits 133 of 189 numbers of TP 2 are within 10%, with what is held back 122, with both 143, and with what is
        held back and the one number fitted anew, to 450, 159: today 163. The waits bring all 12 far runs of TP 2 and
        PP 2 within 8%, but take the 45 runs of TP 2 and several stages with micro-batches of four and more sequences
        from -1.8% to -11.2% in the middle. What these hold instead is not known; the stages of the program that ran
        have other layers than those of the public one, too."""]


def _crashes(cases: Sequence[Case]) -> list[str]:
    crashed = [case for case in cases if case.status == OUT_OF_MEMORY]
    if not crashed:
        return []
    said = [estimate(case) for case in crashed]
    out = sum(isinstance(answer, Estimate) and answer.rule_80 == OUT for answer in said)
    return [f"""{len(crashed)} runs crashed, for reasons that are not recorded; {out} of them have an estimate on their
        fullest rank above the memory of the GPU."""]


def _torchtitan(cases: Sequence[Case]) -> list[str]:
    compared = pairs(cases, RESERVED)
    said = [(pair, estimate(pair.case)) for pair in compared]
    check({"every run is replayed": all(map(is_replayed, compared))})
    alone = [max(answer.peaks) / pair.measured.bytes - 1 for pair, answer in said if isinstance(answer, Estimate)]
    whole = [pair for pair in compared if pair.case.arguments["recompute"] == "full"]
    near = max(abs(pair.error) for pair in compared if pair not in whole)
    low, high = min(pair.error for pair in whole), max(pair.error for pair in whole)
    check({"runs without full recompute are met": near < 0.02, "the others are predicted too low": high < 0})
    return [f"""Every number of the table is replayed ([replayed numbers](validation/{REPLAYED_FILE})), and nothing is
        fitted. Allocated memory alone would be off by {Summary.of(alone).median:.1%} in the median. Compiled layers
        keep no activations that can be made again from projections, and of per-operation recompute not the output of
        the last product. The runs of June 2025 compiled the loss too; in those of December 2024 and January 2025 it
        was turned off, as their commits say. Float8 keeps 16-bit tensors.""",
        f"""The {len(compared) - len(whole)} runs with per-operation recompute are within {near:.1%}. The {len(whole)}
        with full recompute, compiled and in float8, are {-high:.1%} to {-low:.1%} too low: what they reserve beyond
        what is allocated is one more block of fp32 logits. Allocated bytes with one such block are
        {_with_logits(whole)} off. Why the block is not served from a hole is not known. {_whole_tried(whole[0])}"""]


def _with_logits(whole: Sequence[Pair]) -> str:
    """Return the errors of allocated bytes with one more block of fp32 logits. Raises ValueError if they are large."""
    errors = []
    for pair in whole:
        said, model, values = estimate(pair.case), pair.case.model, pair.case.arguments
        assert isinstance(said, Estimate)
        assert model is not None
        tokens = values["micro_batch_size"] * values["seq_length"] // values["context_parallel"]
        errors.append((max(said.peaks) + 4 * tokens * model.vocab_size) / pair.measured.bytes - 1)
    check({"one more block of logits explains full recompute": max(map(abs, errors)) < 0.03})
    return f"{min(errors):+.1%} to {max(errors):+.1%}"


def _whole_tried(pair: Pair) -> str:
    """Say what a replay of a run with full recompute gives with other readings."""
    values = pair.case.arguments
    errors = {}
    for words, changed in torchtitan.OF_FULL_RECOMPUTE.items():
        other = replay_of(replace(pair.case, arguments={**values, "kernels": {**values["kernels"], **changed}}))
        assert other is not None
        errors[words] = other[0] / pair.measured.bytes - 1
    listed = "; ".join(f"{words}: {error:+.1%}" for words, error in errors.items())
    return f"Tried for {pair.case.id}: {listed}."


def _huggingface(cases: Sequence[Case]) -> list[str]:
    compared = [pair for pair in pairs(cases, PEAK) if pair.case.group != huggingface.ADAPTERS]
    missing = [-pair.difference for pair in compared]
    near, more = sum(number < _NEAR for number in missing), sum(number > _MORE for number in missing)
    check({"no run needs less than the ledger has": min(missing) >= 0, "most lack little": 2 * near > len(missing)})
    replayed = [pair for pair in pairs(cases, RESERVED) if is_replayed(pair)]
    off = [pair for pair in replayed if abs(pair.error) > OUTLIER]
    own = Summary.of([pair.error for pair in replayed])
    far = [pair for pair in replayed if abs(pair.error) > _BLOCK]
    check({"those far off are low": all(pair.error < 0 for pair in far)})
    return [
        f"""{near} of {len(missing)} runs without adapters need less than {_NEAR >> 20} MiB more than the ledger has, of
        which two workspaces of cuBLAS are a part, 32 MiB for each thread that calls products. {more} need more than
        {_MORE >> 20} MiB: blocks of more than a MiB that are not split, as two recorded traces show.""",
        f"""{len(replayed)} runs are replayed in the order that the traces have, those with adapters in that of PEFT on
        tensors without memory: reserved memory is {own.median:.2%} off in the median,
        {len(replayed) - len(off)} are within {OUTLIER:.0%}, and the worst is {own.worst:.1%}. With all temporaries of
        a layer at once it was 2.0% in the median and 25% at worst, without adapters. {len(far)} are more than
        {_BLOCK:.0%} off, each low by about one block of 16-bit logits. Of one of them there is a trace:
        which of equal free blocks lies lowest decides it. The traces of six runs, replayed with the addresses that the
        driver gave, have PyTorch's reserved memory to the byte (`tests/data/snapshots`); with ascending ones that of
        Qwen2.5 3B lacks the same block.""",
    ]


def is_replayed(pair: Pair) -> bool:
    """Return whether the reserved memory that a pair predicts is a replay's."""
    answer = estimate(pair.case)
    return isinstance(answer, Estimate) and answer.reserved is not None


def _hagemann(cases: Sequence[Case]) -> list[str]:
    wrong = contradicted(cases)
    check({"nothing that trained is called out of memory": all(case.status == OUT_OF_MEMORY for case in wrong)})
    right = right_by_rule(confusion(cases))
    text = [f"""{right:.1%} of the runs went as the 80 % rule says if *uncertain* counts as out of memory. Nothing that
        trained is called out of memory."""]
    if wrong:
        often = Counter(map(_tokens, wrong)).most_common(1)[0][0]
        large = {case for case in wrong if _tokens(case) >= often}
        products = {case for case in wrong if hagemann.PRODUCTS in case.traits}
        logits = often * hagemann.MODEL.vocab_size * 4
        text.append(f"""Said to fit without fitting: {len(wrong)}. {len(large)} of them have micro-batches of {often:,}
            tokens or more; one more fp32 copy of their gathered logits would be {logits / 2**30:.1f} GiB,
            {logits / hagemann.GPU.memory_bytes:.0%} of the GPU. {len(products)} compute attention by matrix products,
            where the scores of a layer have further copies that nobody counted in this framework;
            {len(products - large)} of these have smaller micro-batches. {len(set(wrong) - large - products)} are
            neither. Fragmentation, communication buffers and the CUDA context are left out too, and are only known to
            be above zero.""")
    return text


def _tokens(case: Case) -> int:
    return int(case.arguments["seq_length"] * case.arguments["micro_batch_size"])


def _known(cases: Sequence[Case]) -> list[str]:
    said = {case: answer for case in cases if isinstance(answer := estimate(case), Estimate)}
    wrong = contradicted(cases)
    names = "; ".join(f"{case.id} ({case.layout})" for case in wrong)
    between = sum(answer.rule_80 == UNCERTAIN for answer in said.values())
    text = [f"Above the memory although they run: {names}." if wrong else "No recipe is above the memory of its GPU.",
            f"""{between} of {len(said)} are between 80 % and 100 % of it, which the 80 % rule calls uncertain: a vendor
            tunes its recipes to fill the GPU, so the rule would have refused recipes that run."""]
    in_16_bits = [(case, other) for case in said if known_to_run.AS_BF16 in case.others
                  and isinstance(other := other_estimate(case, known_to_run.AS_BF16), Estimate)]
    if in_16_bits:
        above = [case.id for case, other in in_16_bits if other.rule_80 == OUT]
        listed = f" ({', '.join(above)})" if above else ""
        text.append(f"""In 16 bits and with the moments of a step, {len(above)} of the {len(in_16_bits)} FP8 recipes
            that are estimated in FP8 would be above the memory{listed}.""")
    return text


def _known_refusals(left: Sequence[Case]) -> list[str]:
    text = []
    for reading, advice in ((known_to_run.AS_ZERO1, "are Llama 3.1 405B as Meta trained it"),):
        cases = [case for case in left if reading in case.others]
        said = [(case, other) for case in cases if isinstance(other := other_estimate(case, reading), Estimate)]
        if said:
            shares = ", ".join(f"{case.id} {other.share:.0%}" for case, other in said)
            text.append(f"""{len(cases)} of the rows without an estimate {advice}. The nearest that the ledger has,
                {reading}, would need of the GPU's memory: {shares}.""")
    return text


def _other_error(pair: Pair, name: str) -> float | None:
    said = other_estimate(pair.case, name)
    return said.of(pair.measured) / pair.measured.bytes - 1 if isinstance(said, Estimate) else None


REMARKS: Mapping[str, Callable[[Sequence[Case]], list[str]]] = {
    "simumax": _simumax, "megatron_tests": _megatron, "nanotron": _nanotron, "torchtitan": _torchtitan,
    "huggingface": _huggingface, "one_h100": one_h100_words.remarks,
    "bridge_cards": cards_words.remarks, "deepspeed_a800": deepspeed_words.remarks,
    "swift_examples": swift_examples_words.remarks,
    "hagemann": _hagemann, "known_to_run": _known,
}
REFUSALS: Mapping[str, Callable[[Sequence[Case]], list[str]]] = {"known_to_run": _known_refusals}
