"""Replayed steps of Hugging Face against Transformers itself: allocated bytes, exactly, and reserved ones."""

from __future__ import annotations

from random import Random
from statistics import median
from typing import Any

import pytest
from oracles.hugging_face.huggingface import Shape
from oracles.hugging_face.transformers_steps import Sharding, recorded, reducer_of, sharded
from oracles.instruments.traced import account_of, explained
from oracles.pytorch.allocation_orders import InPlace, last_passes, least, words
from oracles.pytorch.sharded_steps import STREAMS, by_stream
from stream_peaks import peaks_by_stream, peaks_by_terms

from shardmath.account.configured import Configuration, configured
from shardmath.account.replaying import replayed
from shardmath.allocator.trace import Action, replay
from shardmath.compiler.evaluators import terms_at
from shardmath.models.model import Model
from shardmath.steps.answers import Replay
from shardmath.steps.buckets import NAME
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps
from shardmath.steps.trace import GATHER, REDUCE

pytestmark = pytest.mark.slow


def drawn(draw: Random) -> tuple[str, Shape, dict[str, Any]]:
    """Draw a model with a vocabulary of half its width up to that of real ones, and a run of it."""
    k, each, heads = draw.choice((1, 2, 4)), draw.choice((1, 2, 4)), draw.choice((32, 64))
    hidden = k * each * draw.choice((32, 64, 96))
    shape = {"k": k, "a": k * each, "d": heads, "h": hidden, "f": 32 * draw.randint(4, 60), "b": draw.choice((1, 2)),
             "s": 512 * draw.choice((1, 2)), "u": draw.choice((1, 2, 16, 64)) * hidden // 2, "L": draw.randint(2, 5),
             "tied": draw.randint(0, 1)}
    run = {"full": draw.random() < 0.3, "holds": draw.random() < 0.5, "microbatches": draw.choice((1, 1, 2))}
    family, attention = draw.choice(("llama", "qwen2", "qwen3")), draw.choice(("sdpa", "eager"))
    if attention == "sdpa" and shape["L"] % 2:
        attention = "flash"  # in the order of sdpa
    return family, shape, run | {"attention": attention}


def model_of(family: str, shape: Shape) -> Model:
    return Model(
        name="drawn", source="", hidden_size=shape["h"], ffn_hidden_size=shape["f"], num_layers=shape["L"],
        num_attention_heads=shape["a"], num_kv_heads=shape["k"], head_dim=shape["d"], vocab_size=shape["u"],
        tied_embeddings=bool(shape["tied"]), qkv_bias=family == "qwen2", qk_norm=family == "qwen3", max_seq_length=8192)


def units_of(sharding: Sharding) -> dict[str, str]:
    """Return kernel choices of FSDP2's units and of what stays gathered; Accelerate's own are the usual ones."""
    if sharding.is_accelerates:
        return {} if sharding.reshard else {"reshard": "never"}
    return {"units": "root", "reshard": {True: "always", None: "default", False: "never"}[sharding.reshard]}


def run_of(
    family: str, shape: Shape, *, full: bool, holds: bool, microbatches: int = 1, ranks: int = 1,
    sharding: Sharding | None = None, lora_rank: int = 0, kernels: dict[str, str] | None = None,
    attention: str = "sdpa", documents: int = 1,
) -> Configuration:
    kernels = kernels or {} if sharding is None else {
        "data_parallel": "fsdp", "precision": {2: "bf16", 4: "mixed"}[sharding.weight],
        **units_of(sharding)}
    ranks = ranks if sharding is None else sharding.ranks
    model = model_of(family, shape)
    return configured(
        model, "b300", implementation="huggingface", seq_length=shape["s"], micro_batch_size=shape["b"],
        global_batch_size=shape["b"] * microbatches * ranks, recompute="full" if full else "none", data_parallel=ranks,
        gradients=None if sharding is None else {2: "bf16", 4: "fp32"}[sharding.reduced], torch_workspace_bytes=0,
        kernels={"peak": "torch", "loss": "huggingface" if holds else "huggingface_freed", "attention": attention,
                 **kernels},
        **({"lora_rank": lora_rank} if lora_rank else {}),
        **({"document_length": shape["s"] // documents} if documents > 1 else {}))


def steps_of(run: Configuration) -> Steps:
    """Return two steps of the first rank, written."""
    values = run.job.on_rank(0)
    steps = Steps(Rows.of(run.job.evaluator, values, terms_at(run.job.evaluator.terms, values)), "1f1b", 1)
    steps.run()
    return steps


def ours(family: str, shape: Shape, **run: Any) -> Replay:
    account = replayed(run_of(family, shape, **run))
    assert account.replay is not None, account.replay_unknown
    assert account.replay.allocated_bytes == account.peak_bytes
    return account.replay


@pytest.mark.cases(6, 100)
def test_allocated_bytes_are_those_of_transformers(draws: list[Random]) -> None:
    for draw in draws:
        family, shape, run = drawn(draw)
        theirs = recorded(family, shape, **run).peak
        assert explained(run_of(family, shape, **run)).peak_bytes == theirs, (family, shape, run)
        assert ours(family, shape, **run).allocated_bytes == theirs, (family, shape, run)


def assert_order(family: str, shape: Shape, run: dict[str, Any]) -> None:
    """Compare what is made and freed, to the end of the second step."""
    smallest = least(shape)
    mine = words(last_passes(steps_of(run_of(family, shape, **run)).trace.events), smallest)
    events = recorded(family, shape, **run, kind=InPlace).events
    made = [place for place, event in enumerate(events)
            if event.action is Action.ALLOCATE and event.size >= smallest]
    assert mine == words(events[made[-len(mine)]:], smallest), (family, shape, run)


@pytest.mark.cases(6, 100)
def test_order_is_that_of_transformers(draws: list[Random]) -> None:
    """Of every tensor that is larger than the numbers of a micro-batch's tokens."""
    for draw in draws:
        family, shape, run = drawn(draw)
        assert_order(family, shape, run)


@pytest.mark.cases(2, 30)
def test_steps_of_packed_documents(draws: list[Random]) -> None:
    """Peak and order of flash-attn within documents of one sequence, whose bounds each layer keeps."""
    for draw in draws:
        family, shape, run = drawn(draw)
        shape, documents = shape | {"b": 1}, draw.choice((2, 8, 64))
        run |= {"attention": "flash", "documents": documents}
        assert ours(family, shape, **run).allocated_bytes == recorded(family, shape, **run).peak, (family, shape, run)
        assert_order(family, shape, run)


#: Sizes from which a tensor is a bucket or a piece of the model here, not a buffer, a map or their exchange.
LEAST = 2**14


def buckets_of(family: str, shape: Shape, **run: Any) -> list[int]:
    """Return the bytes of all that the replay of two steps allocates for buckets, in its order."""
    events = steps_of(run_of(family, shape, ranks=2, **run)).trace.events
    return [event.size for event in events if event.row == NAME and event.size >= LEAST]


@pytest.mark.cases(3, 20)
def test_bytes_with_distributed_data_parallel_are_those_of_transformers(draws: list[Random]) -> None:
    """PyTorch's own reducer holds as many bytes; its map of used parameters is on the host too, which is a CPU here."""
    for draw in draws:
        family, shape, run = drawn(draw)
        shape |= {"s": shape["s"] // 8}
        theirs, mine = recorded(family, shape, **run, is_shared=True), ours(family, shape, **run, ranks=2)
        on_the_host = 0 if run["full"] else 4 * parameters_of(family, shape)
        assert mine.allocated_bytes == theirs.peak - on_the_host, (family, shape, run)
        assert mine.reserved_bytes == pytest.approx(replay(theirs.events).reserved_peak, rel=0.05), (family, shape, run)


def drawn_sharding(draw: Random) -> Sharding:
    weight = draw.choice((2, 4))
    reshard = draw.choice((None, None, True, False))
    return Sharding(draw.choice((1, 2, 2, 4, 8)), weight, draw.choice((2, weight)), reshard)


@pytest.mark.cases(6, 100)
def test_allocated_bytes_with_fsdp2_are_those_of_transformers(draws: list[Random]) -> None:
    """Ledger and replay: with few tokens the peak is where parameters are gathered or copied, or a layer is reduced."""
    for draw in draws:
        (family, shape, run), sharding = drawn(draw), drawn_sharding(draw)
        shape |= {"s": draw.choice((16, 64, 256, shape["s"]))}
        theirs = sharded(family, shape, sharding, **run).peak
        configuration = run_of(family, shape, sharding=sharding, **run)
        account = replayed(configuration)
        assert account.replay is not None, (account.replay_unknown, family, shape, sharding, run)
        peak = explained(configuration).peak_bytes
        assert peak == theirs == account.replay.allocated_bytes, (family, shape, sharding, run)


@pytest.mark.cases(3, 60)
def test_units_of_accelerate(draws: list[Random]) -> None:
    """Ledger and replay with the units that readers take."""
    for draw in draws:
        family, shape, run = drawn(draw)
        shape |= {"u": draw.choice((1, 4, 32)) * shape["h"], "s": draw.choice((16, 64, shape["s"]))}
        weight, reshard = draw.choice((2, 4)), draw.choice((True, True, False))
        sharding = Sharding(draw.choice((1, 2, 4, 8)), weight, draw.choice((2, weight)), reshard, is_accelerates=True)
        configuration = run_of(family, shape, sharding=sharding, **run)
        account = replayed(configuration)
        assert account.replay is not None, account.replay_unknown
        theirs, peak = sharded(family, shape, sharding, **run).peak, explained(configuration).peak_bytes
        assert peak == theirs == account.replay.allocated_bytes, (family, shape, sharding, run)


@pytest.mark.parametrize(("site", "sharding", "batch"), [
    ("backward_start", Sharding(8, 2, 2, True), 1), ("backward_start", Sharding(8, 2, 2, True), 2),
    ("head_reduce", Sharding(8, 4, 4, True, is_accelerates=True), 1)])
def test_moments_of_the_units_outside_of_the_layers(site: str, sharding: Sharding, batch: int) -> None:
    """All outside of the layers gathered again in front of the loss; the head's gradient reduced behind the norm's."""
    shape = {"k": 2, "a": 4, "d": 32, "h": 128, "f": 64, "b": batch, "s": 32 // batch, "u": 4096, "L": 2, "tied": 0}
    account = explained(run_of("llama", shape, sharding=sharding, full=False, holds=True))
    assert account.peak.site == site
    assert account.peak_bytes == sharded("llama", shape, sharding, full=False, holds=True).peak


def parameters_of(family: str, shape: Shape) -> int:
    """Count the parameters of a model, not their elements."""
    of_layer = 9 + {"llama": 0, "qwen2": 3, "qwen3": 2}[family]
    return of_layer * shape["L"] + 3 - shape["tied"]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("family", "tied"), [("llama", 0), ("qwen3", 1)])
def test_buckets_are_those_of_the_reducer(family: str, tied: int, full: bool) -> None:
    """Pieces of the broadcast, buckets of the first step and of the second, each with its bytes and in its order."""
    shape = {"k": 4, "a": 8, "d": 64, "h": 512, "f": 2048, "s": 16, "b": 1, "u": 16000, "L": 8, "tied": tied}
    theirs = reducer_of(family, shape, full=full)
    assert len(theirs) > (5 if full else 4)
    assert buckets_of(family, shape, full=full, holds=False) == theirs


#: Family, sequence, micro-batch and full recompute of each.
REAL = {
    "llama-3.2-1b": ("llama", ((4096, 1, False), (2048, 4, False), (8192, 2, True))),
    "qwen2.5-7b": ("qwen2", ((4096, 1, False), (8192, 2, True))),
}


#: Model, family, sequence, micro-batch, sharding and full recompute of each.
REAL_SHARDED = (
    ("llama-3.2-1b", "llama", 4096, 1, Sharding(2, 4, 4, None), False),
    ("qwen2.5-7b", "qwen2", 4096, 1, Sharding(8, 4, 4, None), True),
    ("qwen3-0.6b", "qwen3", 2048, 2, Sharding(4, 4, 4, False), False),
)


def shape_of(model: Model, sequence: int, batch: int) -> Shape:
    return {"k": model.num_kv_heads, "a": model.num_attention_heads, "d": model.head_dim, "s": sequence,
            "h": model.hidden_size, "f": model.ffn_hidden_size, "b": batch, "u": model.vocab_size,
            "L": model.num_layers, "tied": int(model.tied_embeddings)}


@pytest.mark.parametrize(("name", "family", "sequence", "batch", "sharding", "full"), REAL_SHARDED)
def test_memory_of_every_stream_with_fsdp2(
    name: str, family: str, sequence: int, batch: int, sharding: Sharding, full: bool,
) -> None:
    """Gathers and reductions have as much memory of their own as in FSDP2 itself, to the byte."""
    shape = shape_of(Model.named(name), sequence, batch)
    record = sharded(family, shape, sharding, full=full, holds=False)
    steps = steps_of(run_of(family, shape, sharding=sharding, full=full, holds=False))
    mine, theirs = replay(steps.trace.events), replay(record.events)
    assert steps.trace.peak == record.peak
    assert mine.reserved_peak == pytest.approx(theirs.reserved_peak, rel=0.015)
    own, real = by_stream(mine), by_stream(theirs)
    assert (own[GATHER], own[REDUCE]) == (real[STREAMS[GATHER]], real[STREAMS[REDUCE]])


@pytest.mark.cases(4, 60)
def test_largest_moment_of_every_stream_is_that_of_fsdp2(draws: list[Random]) -> None:
    """Terms of the ledger, where it has the peak of the step."""
    shown = 0
    for draw in draws:
        (family, shape, run), sharding = drawn(draw), drawn_sharding(draw)
        job = run_of(family, shape, sharding=sharding, **run).job
        numbers = account_of(job.evaluator, job.on_rank(0))
        record = sharded(family, shape, sharding, **run)
        if record.peak == numbers["stage.total"]:
            shown += 1
            theirs, moments = peaks_by_stream(record.events), peaks_by_terms(numbers)
            assert all(moments[stream] == theirs[number] for stream, number in STREAMS.items()), (
                family, shape, sharding, run)
    assert shown > 0.7 * len(draws)


def test_reserved_memory_of_real_models() -> None:
    """Through the same allocator; half of them within 3 %, where allocated x 1.03 is up to a fifth low."""
    errors, usual = [], []
    for name, (family, jobs) in REAL.items():
        model = Model.named(name)
        for sequence, batch, full in jobs:
            shape = shape_of(model, sequence, batch)
            predicted = ours(family, shape, full=full, holds=False)
            record = recorded(family, shape, full=full, holds=False)
            reserved = replay(record.events).reserved_peak
            assert predicted.allocated_bytes == record.peak
            errors.append(abs(predicted.reserved_bytes / reserved - 1))
            usual.append(abs(1.03 * record.peak / reserved - 1))
    assert median(errors) < 0.03
    assert max(errors) < 0.06 < max(usual)
