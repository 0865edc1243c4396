"""Tables of single rows in a section of docs/validation.md: those that are far off, wrong, or close to the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shardmath.account.configured import configured
from shardmath.account.judged import UNCERTAIN
from shardmath.compiler.evaluators import terms_at
from shardmath.generated.definitions import num_microbatches
from validation.measured.case import GIB, PEAK, RESERVED, STEADY, Case
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import Pair, Summary, contradicted, pairs
from validation.measured.remarks import gaps, swift_examples_words
from validation.measured.sets import hagemann, megatron_tests, nanotron
from validation.tables import markdown

MIB = 2**20
#: Rows of a table of outliers.
FARTHEST = 10
#: Errors of replayed numbers above this are listed one by one.
BEYOND = 0.1


def details(name: str, cases: Sequence[Case]) -> list[str]:
    """Tables about the estimated cases of a table, each after a line that says what it has."""
    return DETAILS[name](cases) if name in DETAILS else []


def farthest(pairs: Sequence[Pair], named: Sequence[str]) -> str:
    """Return the numbers with the largest errors, with those of ``named`` that are traits of their runs."""
    worst = sorted(pairs, key=lambda pair: -abs(pair.error))[:FARTHEST]
    lines = [
        (pair.case.id, pair.case.layout, f"{pair.measured.bytes / GIB:.3f}", f"{pair.predicted / GIB:.3f}",
         f"{pair.difference / MIB:+,.1f}", f"{pair.error:+.1%}",
         ", ".join(name for name in named if name in pair.case.traits))
        for pair in worst
    ]
    return markdown(("run", "layout", "measured GiB", "predicted GiB", "difference MiB", "error", "the run"), lines)


def _megatron(cases: Sequence[Case]) -> list[str]:
    named = (megatron_tests.DEFERRED, megatron_tests.COMPILED, megatron_tests.OLD, megatron_tests.RESUMED)
    lines = []
    for quantity in (PEAK, STEADY):
        known = pairs(cases, quantity)
        if known:
            lines += [f"Farthest of the {len(known)} numbers *{quantity}*:", farthest(known, named)]
    return lines


def _nanotron(cases: Sequence[Case]) -> list[str]:
    few = [pair for pair in pairs(cases, RESERVED) if pair.case.group in nanotron.WITH_TARGET]
    kinds = {f"{group}, {', '.join(sorted(traits))}": [pair for pair in few
                                                       if (pair.case.group, pair.case.traits) == (group, traits)]
             for group, traits in dict.fromkeys((pair.case.group, pair.case.traits) for pair in few)}
    lines = []
    for kind, own in kinds.items():
        summary = Summary.of([pair.error for pair in own])
        middle = sorted(pair.difference for pair in own)[len(own) // 2]
        lines.append((kind, summary.count, f"{summary.median:.2%}", f"{summary.worst:.2%}", f"{summary.bias:+.2%}",
                      f"{middle / MIB:+,.0f}"))
    if not lines:
        return []
    heads = ("runs with a target", "numbers", "median", "worst", "signed median", "middle difference MiB")
    return ["The numbers that have a target, by layout:", markdown(heads, lines), *_beyond(few)]


def _beyond(few: Sequence[Pair]) -> list[str]:
    """Name the runs that are far off, with the difference in the pieces that allocations come in."""
    far = [pair for pair in few if abs(pair.error) > BEYOND]
    if not far:
        return []
    lines = []
    for pair in far:
        values, model = pair.case.arguments, pair.case.model
        assert model is not None
        pieces = (f"{pair.difference / size:+.2f}" if size else "" for size in _pieces(pair))
        lines.append((
            pair.case.id, model.name, pair.case.layout, values["micro_batch_size"],
            "yes" if values["distributed_optimizer"] else "no", f"{pair.measured.bytes / GIB:.1f}",
            f"{pair.predicted / GIB:.1f}", f"{pair.error:+.1%}", *pieces,
        ))
    heads = ("run", "model", "layout", "micro-batch", "ZeRO-1", "measured GiB", "replayed GiB", "error",
             "in micro-batches", "in gathers", "in fp32 logits", "in hidden states")
    return [f"""The {len(far)} that are more than {BEYOND:.0%} off, and the difference as so many pieces: all that a
micro-batch saves on the rank; the tensor into which ZeRO-1 gathers parameters; fp32 logits of a micro-batch on a rank
that has them (4 s b v / t bytes); its hidden states (2 s b h):""", markdown(heads, lines)]


def _pieces(pair: Pair) -> tuple[int, int, int, int]:
    """Return bytes of a micro-batch's saved tensors, of the gather, of fp32 logits and of hidden states; 0 for none."""
    values, model = pair.case.arguments, pair.case.model
    assert model is not None
    job = configured(model, pair.case.gpu, **values).job
    at_work = job.on_rank(pair.measured.rank or 0)
    terms = terms_at(job.evaluator.terms, at_work)
    in_flight = min(num_microbatches(**at_work), at_work["pipeline_parallel"])
    tokens = values["micro_batch_size"] * values["seq_length"]
    logits = 4 * tokens * model.vocab_size // values["tensor_parallel"] if at_work["pipeline_parallel"] == 1 else 0
    return (int(terms["stage.activation"]) // in_flight, int(terms.get("stage.gathered_whole.optimizer_step", 0)),
            logits, 2 * tokens * model.hidden_size)


def _hagemann(cases: Sequence[Case]) -> list[str]:
    lines = []
    for case in contradicted(cases):
        said = estimate(case)
        assert isinstance(said, Estimate)
        arguments = case.arguments
        lines.append((case.id, case.layout, case.group, arguments["seq_length"] * arguments["micro_batch_size"],
                      "every layer" if hagemann.RECOMPUTED in case.traits else "no",
                      f"{said.share:.1%}", said.sites[said.peaks.index(max(said.peaks))]))
    heads = ("row", "layout", "sequences, kernel", "tokens of a micro-batch", "recompute", "share", "peak at")
    return ["The runs that are said to fit without fitting:", markdown(heads, lines)] if lines else []


def _known(cases: Sequence[Case]) -> list[str]:
    lines = []
    for case in cases:
        said = estimate(case)
        if isinstance(said, Estimate) and said.rule_80 == UNCERTAIN:
            lines.append((case.id, ", ".join(sorted(case.traits)), case.layout, f"{said.share:.1%}",
                          said.sites[said.peaks.index(max(said.peaks))]))
    heads = ("recipe", "precision, model", "layout", "share", "peak at")
    return ["Recipes between 80 % and 100 % of the memory:", markdown(heads, lines)] if lines else []


def _mist(cases: Sequence[Case]) -> list[str]:
    return [*gaps.table(cases, PEAK), "Reserved memory:", *gaps.table(cases, RESERVED)]


DETAILS: Mapping[str, Callable[[Sequence[Case]], list[str]]] = {
    "megatron_tests": _megatron, "nanotron": _nanotron, "hagemann": _hagemann, "known_to_run": _known,
    "swift_examples": swift_examples_words.details,
    **dict.fromkeys(("torchtune", "galvatron"), partial(gaps.table, quantity=PEAK)), "mist": _mist,
}
