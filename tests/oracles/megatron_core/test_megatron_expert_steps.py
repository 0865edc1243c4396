"""Replayed layers with experts against Megatron-Core itself: tokens on their way, in the order of their allocation."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from oracles.instruments.traced import account_of
from oracles.megatron_core.grouped_linear import RECIPES
from oracles.megatron_core.megatron_cpu import Shape
from oracles.megatron_core.megatron_expert_steps import recorded

from shardmath.account.configured import configured
from shardmath.allocator.trace import Action, Event
from shardmath.models.model import Model
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

pytestmark = pytest.mark.slow
#: Parts of models that are drawn, dense layers among them.
DRAWN = {"layers": ("dense", "experts"), "mlp": ("swiglu",), "norms": ("pre",), "biases": ("qkv",)}
#: Tensors of sent or received tokens.
TOKENS = {
    "dispatch.sent", "dispatch.arrived", "experts.gate_up.input", "experts.gate_up", "experts.down.input",
    "dispatch.results", "dispatch.results_sorted", "dispatch.results_sorted_here", "dispatch.results_returned",
    "results.returned", "results.gradient",
    "dispatch.gradient_sent", "dispatch.gradient_unsorted", "dispatch.gradient", "experts.down.input_gradient",
    "dispatch.gate_up_gradient", "experts.input_gradient", "experts.sorted_gradient", "experts.unsorted_gradient",
    "experts.returned_gradient",
}


def drawn(draw: Random) -> Shape:
    """Draw sizes for which tokens that are sent have a number that no other dimension has."""
    ranks, each, chosen = draw.choice((1, 2, 4)), draw.choice((1, 2, 3)), draw.choice((2, 3, 4))
    experts = max(ranks * each, -(-chosen // ranks) * ranks)
    tokens = experts * draw.randint(11, 20)
    tokens += experts * (min(chosen, experts) * tokens == 48)  # features of queries, keys and values
    return {"E": experts, "q": min(chosen, experts), "h": 16 * draw.randint(1, 3), "fe": 8 * draw.randint(1, 6),
            "f": 64, "L": 1, "a": 2, "k": 2, "d": 8, "fs": draw.choice((0, 24)), "s": tokens, "b": 1, "u": 64,
            "t": 1, "e": ranks, "D": ranks, "sp": 0}


def job_of(
    shape: Shape, first_dense: int = 0, step: int = 1, mlp: str = "swiglu", **more: Any
) -> tuple[Any, Mapping[str, Any], Mapping[str, Any]]:
    """Return the evaluator of a model with layers of these sizes, values of its letters, and its account."""
    model = Model(
        name="drawn", source="", hidden_size=shape["h"], ffn_hidden_size=shape["f"], num_layers=shape["L"],
        first_dense_layers=first_dense, moe_layer_step=step,
        num_attention_heads=shape["a"], num_kv_heads=shape["k"], head_dim=shape["d"], vocab_size=shape["u"],
        tied_embeddings=False, qkv_bias=False, qk_norm=False,
        num_experts=shape["E"], moe_topk=shape["q"], moe_ffn_hidden_size=shape["fe"],
        shared_expert_ffn_hidden_size=shape["fs"], max_seq_length=8192, mlp=mlp)
    job = configured(
        model, "b300", seq_length=shape["s"], micro_batch_size=1, global_batch_size=shape["D"],
        data_parallel=shape["D"], expert_parallel=shape["e"], **more).job
    values = job.on_rank(0)
    return job.evaluator, values, account_of(job.evaluator, values)


def ours(shape: Shape, **more: Any) -> list[Event]:
    """Return the events of two steps of the model with one layer of these sizes."""
    evaluator, values, account = job_of(shape, **more)
    steps = Steps(Rows.of(evaluator, values, account), "1f1b", 1)
    events = steps.run()
    assert steps.trace.peak == int(account["stage.total"])  # no count
    return events


def on_their_way(events: Sequence[Event], rows: Container[str]) -> list[int]:
    """List the bytes of tensors of these rows as they are made, and with a minus as they are freed."""
    made = {event.key: event.size for event in events if event.action is Action.ALLOCATE and event.row in rows}
    return [made[event.key] * (1 if event.action is Action.ALLOCATE else -1) for event in events
            if event.key in made and event.action in (Action.ALLOCATE, Action.FREE)]


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_order_of_tokens_is_megatron_cores(draws: list[Random], recompute: str) -> None:
    """Every tensor of sent or received tokens is made and freed in the order in which Megatron-Core does it.

    A recomputed layer is compared from its second run on: the first keeps none of them.
    """
    for draw in draws:
        shape = drawn(draw)
        shapes = [str((shape["q"] * shape["s"], width)) for width in (shape["h"], shape["fe"], 2 * shape["fe"])]
        record, *_ = recorded(shape, draw, recompute == "full")
        theirs = on_their_way(record.events[record.restarted:] if recompute == "full" else record.events, shapes)
        step = on_their_way(ours(shape, recompute=recompute), TOKENS)
        step = step[:len(step) // 2]
        assert step[-len(theirs):] == theirs, shape
        assert (len(step) > len(theirs)) == (recompute == "full")
        assert len(theirs) >= 20
        assert sum(theirs) == 0


def coming_back(events: Sequence[Event], rows: Container[str], start: int = 0) -> list[tuple[str, int]]:
    """List tensors of these rows from an event on: made, freed, or freed late; and where late ones come back."""
    made = {event.key: event.size for event in events if event.action is Action.ALLOCATE and event.row in rows}
    used, held, steps = set(), False, list[tuple[str, int]]()
    for number, event in enumerate(events):
        step = None
        if event.action is Action.REACH:
            step, held = ("back", 0) if held else None, False
        elif event.action is Action.RECORD:
            used.add(event.key)
        elif event.key in made:
            is_freed, is_late = event.action is Action.FREE, event.key in used
            step = ("late" if is_late else "freed") if is_freed else "made", made[event.key]
            held |= is_freed and is_late
        if step and number >= start:
            steps.append(step)
    return steps


def shared_out(draw: Random) -> tuple[Shape, list[str], dict[str, Any]]:
    """Draw sizes with experts whose width two ranks share; return them, shapes of their tokens, and what asks for it.

    A token has more experts than ranks have shares of the sequence, so that no other tensor has as many rows.
    """
    shape = drawn(draw)
    while shape["q"] < 3:
        shape = drawn(draw)
    shape |= {"t": 2, "et": 2, "sp": 1, "fs": 0, "D": max(shape["D"], 2), "fe": shape["h"] + 8, "a": 4, "k": 4}
    shapes = [str((ranks * shape["q"] * shape["s"], shape["h"])) for ranks in (1, 2)]
    return shape, shapes, {"tensor_parallel": 2, "expert_tensor_parallel": 2, "sequence_parallel": True}


#: Tensors of tokens, as wide as those, where ranks share an expert's width: they gather them and sum results up.
GATHERED = TOKENS - {"experts.gate_up", "experts.down.input", "experts.down.input_gradient",
                     "dispatch.gate_up_gradient"} | {
    "tokens.gathered", "results.share", "dispatch.results_fp32", "dispatch.results_reduced", "results.share_gradient",
    "results.share_gradient_fp32", "dispatch.gradient_fp32", "results.sorted_gradient", "experts.gathered_gradient",
}


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_order_of_tokens_of_experts_that_ranks_share(draws: list[Random], recompute: str) -> None:
    """Tokens are gathered before they are sorted, and results summed in fp32 behind that."""
    for draw in draws:
        shape, shapes, asked = shared_out(draw)
        record, *_ = recorded(shape, draw, recompute == "full")
        theirs = coming_back(record.events, shapes, record.restarted if recompute == "full" else 0)
        events = ours({**shape, "s": 2 * shape["s"]}, recompute=recompute, kernels={"collectives": "own"}, **asked)
        step = coming_back(events, GATHERED)
        step = step[:len(step) // 2]
        if shape["e"] > 1:
            assert step.pop() == ("back", 0)
        assert step[-len(theirs):] == theirs, shape


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_tensors_that_are_sent_come_back_as_nccl_lets_them(draws: list[Random], recompute: str) -> None:
    """Where NCCL has a stream of its own, inputs and outputs of all-to-alls do when the host next reads numbers."""
    for draw in draws:
        shape = drawn(draw) | {"L": 2}
        shapes = [str((shape["q"] * shape["s"], width)) for width in (shape["h"], shape["fe"], 2 * shape["fe"])]
        record, *_ = recorded(shape, draw, recompute == "full", kinds=(1, 1))
        theirs = coming_back(record.events, shapes, record.restarted if recompute == "full" else 0)
        events = ours(shape, recompute=recompute, kernels={"collectives": "own"})
        step = coming_back(events, TOKENS)
        step = step[:len(step) // 2]
        is_late = shape["e"] > 1
        if is_late:
            assert step.pop() == ("back", 0)  # as the host reads the norm of gradients
        assert step[-len(theirs):] == theirs, shape
        assert any(word == "late" for word, _ in theirs) == any(word == "back" for word, _ in theirs) == is_late


def is_wide(shape: Shape) -> bool:
    """Tell whether tokens of experts are more than what norms and attention make behind them."""
    return shape["q"] * (shape["h"] + 3 * shape["fe"]) > 3 * shape["h"]


@pytest.mark.cases(8, 80)
def test_moments_of_experts_are_megatron_cores(draws: list[Random]) -> None:
    """The most that either pass of a layer has, with one expert for a token too, and where a layer is recomputed."""
    for draw in draws:
        shape = drawn(draw) | {"fs": draw.choice((0, 24))}
        if draw.random() < 0.5:
            shape["q"] = 1
        _, kept, forward, backward = recorded(shape, draw)
        _, kept_input, _, again = recorded(shape, draw, recompute=True)
        account, recomputed = (job_of(shape, recompute=part)[2] for part in ("none", "full"))
        tokens = shape["s"] * shape["b"]
        output = 2 * tokens * shape["h"]
        # On a GPU numbers of tokens are on the host; they are gone when shared results are added. One map of sorted
        # tokens is freed before the activation's gradient is made.
        counted = 1 < shape["e"] < shape["E"] and not (shape["q"] == 1 and shape["fs"])
        host = 8 * (shape["E"] + shape["E"] // shape["e"]) if counted else 0
        maps = 4 * tokens * shape["q"] if shape["E"] > shape["e"] else 0
        assert forward - host == account["stage.experts_forward"] - output, shape
        saved = recomputed["expert_layer.saved"] - recomputed["layer_input.saved"]
        assert recomputed["stage.recomputed_results.experts_forward"] == saved + output
        assert recomputed["stage.recomputed_experts.combine_backward"] == saved + output
        if is_wide(shape):
            moments = [account["stage.combine_backward"], account["stage.experts_backward"] - maps]
            assert backward == max(moments), shape
            # Routers that send tokens evenly save more than others: what is saved is what was counted above.
            moments.append(account["stage.experts_forward"] + host)
            assert again == kept - kept_input + output + max(moments), shape


@pytest.mark.cases(16, 160)
def test_layers_behind_free_or_hold_what_is_counted(draws: list[Random]) -> None:
    """Several layers have the peak of one of them, less what those behind it freed, and more by what they still hold.

    A dispatcher binds the graph of a recomputed layer, and so its input and the gradient of that.
    """
    for draw in draws:
        shape, step = drawn(draw) | {"f": 16 * draw.randint(1, 60)}, draw.choice((1, 1, 2, 3))
        shape["L"] = draw.randint(step + 1, 5)
        dense = draw.randrange(shape["L"] // step * step)
        kinds = [int(layer >= dense and (layer + 1) % step == 0) for layer in range(shape["L"])]
        recompute = draw.choice(("none", "full", "full"))
        records = [recorded(shape, draw, recompute == "full", kinds=(kind,)) for kind in (0, 1)]
        alone = [record[3] for record in records]
        *_, backward = recorded(shape, draw, recompute == "full", kinds=kinds)
        both = job_of(shape, dense, step, recompute=recompute)[2]
        one = job_of({**shape, "L": 1}, recompute=recompute)[2]
        behind = both["stage.experts_forward"] - one["stage.experts_forward"]
        assert behind == both["stage.combine_backward"] - one["stage.combine_backward"]
        assert behind == both["stage.experts_backward"] - one["stage.experts_backward"]
        peaks = [alone[1] + behind]
        if 0 in kinds:
            last = job_of({**shape, "L": 3}, 0, 2, recompute=recompute)[2]  # a dense layer with nothing behind it
            counted, most = (account["stage.mlp_gradients.layer_backward"] for account in (both, last))
            more = counted - most
            if recompute == "none":
                count = kinds[::-1].index(0)
                assert counted == max(0, most - count * both["expert_layer.saved"])
                record, kept, *_ = records[1]
                more = count * (record.left - kept)  # less than it saves: the dispatcher binds weights of tokens
            peaks.append(alone[0] + more)
        assert backward == max(peaks), (shape, kinds, recompute)


@pytest.mark.cases(6, 60)
def test_recomputed_layers_hold_inputs_and_gradients_between_steps(draws: list[Random]) -> None:
    """They are there in the optimizer step, too."""
    for draw in draws:
        shape, step = drawn(draw), draw.choice((1, 2))
        shape["L"] = draw.randint(step, 5)
        kinds = [int((layer + 1) % step == 0) for layer in range(shape["L"])]
        left, between = (dict(zip(("none", "full"), pair, strict=True)) for pair in (
            [recorded(shape, draw, recompute, kinds=kinds)[0].left for recompute in (False, True)],
            [job_of(shape, 0, step, recompute=mode)[2]["stage.optimizer_step"] for mode in ("none", "full")]))
        given = kinds[0] * 2 * shape["s"] * shape["h"]  # the first input, which is not made here
        assert left["full"] - left["none"] == between["full"] - between["none"] - given, (shape, kinds)


@pytest.mark.cases(8, 80)
def test_recomputed_experts_are_megatron_cores(draws: list[Random]) -> None:
    """Router and experts alone run again before they go backward: the most is in their second forward pass."""
    for draw in draws:
        shape = drawn(draw) | {"fs": draw.choice((0, 24))}
        if draw.random() < 0.3:
            shape["q"] = 1
        _, kept, forward, _ = recorded(shape, draw)
        _, kept_input, _, backward = recorded(shape, draw, modules=("moe",))
        plain, account = job_of(shape)[2], job_of(shape, recompute="moe")[2]
        output, maps = 2 * shape["s"] * shape["h"], 4 * shape["s"] * shape["q"] * (shape["E"] > shape["e"])
        dropped = plain["expert_layer.saved"] - account["expert_layer.saved"]
        # Routers that send tokens evenly save more than others: what is saved is what was counted.
        moments = forward + output, plain["stage.combine_backward"], plain["stage.experts_backward"] - maps
        assert backward == kept - kept_input + output + max(moments), shape
        assert account["stage.recomputed_results.experts_forward"] == dropped + output
        assert account["stage.recomputed_experts.combine_backward"] == dropped + output


def for_fp8(draw: Random) -> Shape:
    """Draw sizes of which no expert's tokens need padding in FP8."""
    shape = drawn(draw) | {"h": 128 * draw.randint(1, 2), "fe": 128 * draw.randint(1, 3), "d": 64, "f": 128}
    return shape | {"s": 128 * shape["E"] * draw.randint(1, 2), "fs": draw.choice((0, 128))}


@pytest.mark.cases(8, 80)
@pytest.mark.parametrize("weighting", [None, "fused", "separate"])
def test_moments_of_experts_in_fp8_are_megatron_cores(draws: list[Random], weighting: str | None) -> None:
    """The most that either pass has where experts quantise their inputs and gradients, with a gate and without."""
    without = {"weighting": weighting} if weighting else {}
    for number, draw in enumerate(draws):
        shape, recipe = for_fp8(draw), tuple(RECIPES)[number % len(RECIPES)]
        if draw.random() < 0.3:
            shape["q"] = 1
        _, _, forward, backward = recorded(shape, draw, recipe=RECIPES[recipe], weighting=weighting)
        account = job_of(shape, mlp="gelu" if weighting else "swiglu",
                         kernels={"fp8": recipe, "peak": "megatron_te", **without})[2]
        output = 2 * shape["s"] * shape["h"]
        # Numbers of tokens are on the host on a GPU: those of the rank's experts alone while these compute.
        computing, each = 3 * shape["fe"] > 2 * shape["h"], shape["E"] // shape["e"]
        host = 8 * each * (shape["e"] > 1) if computing else 8 * (shape["E"] + each) * (1 < shape["e"] < shape["E"])
        maps = 4 * shape["s"] * shape["q"] if shape["E"] > shape["e"] else 0
        assert forward - host == account["stage.experts_forward"] - output, (recipe, shape)
        moments = account["stage.combine_backward"], account["stage.experts_backward"] - maps
        assert backward == max(moments), (recipe, shape)
