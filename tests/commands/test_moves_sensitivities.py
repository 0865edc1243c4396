"""Exact sensitivities: dual numbers through the evaluators against quotients of exact fractions, on random layouts."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from random_layouts import legal_rows

from shardmath.account.accounting import every_line, explain, explanation
from shardmath.account.configured import configured
from shardmath.commands.moves.duals import Dual, Frozen, StepsError, slopes_along, terms_beside
from shardmath.commands.moves.formulas import slope_formulas
from shardmath.commands.moves.peaks import Peak
from shardmath.commands.moves.sensitivities import Sensitivity, sensitivities
from shardmath.compiler.evaluators import find
from shardmath.models.model import load_model
from shardmath.symbolic.implementations import IMPLEMENTATIONS

RANDOM = settings(max_examples=12 if FULL else 5)
#: Small against the distance of any number here to where its branch ends.
NEAR = Fraction(1, 10**15)
#: Symbols that are moved in every implementation.
MOVED = ("hidden_size", "num_attention_heads", "num_kv_heads", "head_dim", "ffn_hidden_size", "num_layers",
         "vocab_size", "seq_length", "global_batch_size", "micro_batch_size", "tensor_parallel", "context_parallel",
         "pipeline_parallel", "data_parallel", "vocab_multiple", "gradient_bytes")
#: Those of them at whose legal values no branch ends.
SMOOTH = ("hidden_size", "head_dim", "ffn_hidden_size", "num_layers", "seq_length", "gradient_bytes")


def exact(module: ModuleType, values: dict[str, Any]) -> dict[str, Fraction]:
    """The evaluator on fractions: it knows nothing of dual numbers."""
    found: dict[str, Fraction] = module.terms(*(Fraction(values[name]) for name in module.INPUTS))
    return found


def legal(data: st.DataObject, name: str) -> tuple[ModuleType, dict[str, int]]:
    """A random legal configuration of an implementation, on a random rank."""
    module = find(name).terms
    return module, data.draw(legal_rows(IMPLEMENTATIONS[name], module))


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@RANDOM
@given(data=st.data())
def test_limits_and_slopes_are_those_of_exact_quotients(name: str, data: st.DataObject) -> None:
    """What is left of a term after its limit and its slope vanishes with the square of the step."""
    module, values = legal(data, name)
    moved, side = data.draw(st.sampled_from(MOVED)), data.draw(st.sampled_from((-1, 1)))
    try:
        agrees_with_quotients(module, values, moved, side)
    except StepsError:
        return


def agrees_with_quotients(module: ModuleType, values: dict[str, int], moved: str, side: int) -> None:
    """Raises StepsError where there is no limit."""
    found = terms_beside(module, values, {moved: side})
    near, nearer = (
        exact(module, {**values, moved: values[moved] + side * step}) for step in (NEAR, NEAR / 1000)
    )
    for term, dual in found.items():
        rest, less = (
            abs(terms[term] - dual.value - dual.slope * step) for terms, step in ((near, NEAR), (nearer, NEAR / 1000))
        )
        assert less <= 2 * rest / 10**6, term
        assert rest <= NEAR * 10**6 * (1 + abs(dual.slope)), term


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@RANDOM
@given(data=st.data())
def test_derivatives_are_central_quotients(name: str, data: st.DataObject) -> None:
    """Where both sides agree there is a derivative: exactly the quotient of an affine term, the limit of any other."""
    module, values = legal(data, name)
    moved = data.draw(st.sampled_from(MOVED))
    try:
        above, below = (terms_beside(module, values, {moved: side}) for side in (1, -1))
    except StepsError:
        return
    here = exact(module, values)
    after, before = (exact(module, {**values, moved: values[moved] + step}) for step in (NEAR, -NEAR))
    checked = 0
    for term, value in here.items():
        if above[term].value == below[term].value == value and above[term].slope == -below[term].slope:
            quotient = (after[term] - before[term]) / (2 * NEAR)
            if after[term] - 2 * value + before[term] == 0:
                assert above[term].slope == quotient, term
                checked += 1
            else:
                assert abs(above[term].slope - quotient) <= NEAR * (1 + abs(quotient)), term
    assert checked


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@RANDOM
@given(data=st.data())
def test_slopes_are_derivatives_of_terms_without_steps(name: str, data: st.DataObject) -> None:
    """Saved tensors are not rounded: their slopes are their derivatives. The value is always the term's."""
    module, values = legal(data, name)
    moved, side = data.draw(st.sampled_from(SMOOTH)), data.draw(st.sampled_from((-1, 1)))
    here, slopes = exact(module, values), slopes_along(module, values, {moved: side})
    assert {term: dual.value for term, dual in slopes.items()} == here
    assert slopes["stage.total"].slope == slopes["stage.static"].slope + slopes["stage.moment"].slope
    beside = terms_beside(module, values, {moved: side})
    for term in (term for term in here if term.endswith(".saved")):
        assert beside[term] == Dual(slopes[term].value, slopes[term].slope), term


def test_padding_is_passed_over_by_slopes_and_not_by_derivatives() -> None:
    module = find("megatron").terms
    values = _values("megatron", tensor_parallel=2)
    padded = slopes_along(module, values, {"vocab_size": 1})["padded_vocab_size"]
    assert (padded.value, padded.slope) == (128_256, 1)
    # 128256 is a multiple of 256: one token more needs 256 more rows, one less none fewer.
    beside = [terms_beside(module, values, {"vocab_size": side})["padded_vocab_size"] for side in (-1, 1)]
    assert [(dual.value, dual.slope) for dual in beside] == [(128_256, 0), (128_512, 0)]


def test_what_exists_for_integers_alone_has_no_derivative() -> None:
    module, values = find("megatron").terms, _values("megatron", num_gpus=16)
    with pytest.raises(StepsError):
        terms_beside(module, values, {"data_parallel": 1})
    assert slopes_along(module, values, {"data_parallel": 1})["stage.optimizer"].slope < 0


def test_dual_numbers_are_ordered_as_what_they_stand_for() -> None:
    below, above = Dual(3, -1), Dual(3, 1)
    assert below < 3 < above <= Dual(3, 1)
    assert above > below >= Dual(3, -2)
    assert Dual(3) == 3
    assert Frozen(3, 1) == 3
    assert not Frozen(3, 1) > 3
    assert max(below, above) is above
    assert (above % 3, 7 % Dual(2)) == (Dual(0, 1), Dual(1))
    assert [(1 / Dual(2, 1)).slope, (Dual(2, 1) ** 3).slope, (5 - above).slope] == [Fraction(-1, 4), 12, -1]
    assert len({Dual(1, 2), Dual(1, 2)}) == 1


def _values(implementation: str, **arguments: Any) -> dict[str, int]:
    job = configured("llama-3.1-8b", "h100-80gb", implementation=implementation, **arguments).job
    return job.on_rank(0)


def _of(*, model: str = "llama-3.1-8b", **arguments: Any) -> tuple[Peak, dict[str, Sensitivity]]:
    peak = Peak(configured(model, "h100-80gb", **arguments).job)
    return peak, {item.name: item for item in sensitivities(peak, {})}


@pytest.mark.slow
def test_sensitivities_are_ranked_and_agree_with_the_differences() -> None:
    peak, found = _of(tensor_parallel=4, pipeline_parallel=4, num_gpus=64, global_batch_size=512)
    total = peak.bytes(peak.job.values)
    assert [abs(item.elasticity) for item in found.values()] == sorted(
        (abs(item.elasticity) for item in found.values()), reverse=True)
    for name in ("seq_length", "micro_batch_size", "gradient_bytes"):
        item = found[name]
        assert item.derivative == item.slope == item.below or item.below is None
        assert item.slope is not None
        assert item.elasticity == item.value * item.slope / total
        for step in filter(None, (item.smaller, item.larger)):
            assert step.bytes == item.slope * (step.after - item.value)
            assert step.bytes == peak.bytes({**peak.job.values, name: step.after}) - total
    switch = found["recompute_full"]
    assert (switch.slope, switch.derivative, switch.smaller) == (None, None, None)
    assert switch.larger is not None
    assert switch.elasticity == Fraction(switch.larger.bytes, total)
    padded = found["hidden_size"]
    assert padded.derivative is None
    assert padded.slope is not None
    assert padded.larger is not None
    assert padded.larger.bytes > padded.slope > 0


@pytest.mark.slow
def test_with_gpus_fixed_data_parallelism_gives_way() -> None:
    """Along a curve of the same number of GPUs: the chain rule over both sizes."""
    _, found = _of(tensor_parallel=2, num_gpus=16, global_batch_size=512)
    tensor, data = found["tensor_parallel"], found["data_parallel"]
    assert tensor.slope is not None
    assert data.slope is not None
    assert tensor.gpus_fixed == tensor.slope - Fraction(data.value, tensor.value) * data.slope
    assert data.gpus_fixed is None


@pytest.mark.slow
def test_a_full_pipeline_bends_where_it_is_just_filled() -> None:
    """With as many micro-batches as stages, fewer of them are in flight, and more are not."""
    _, found = _of(pipeline_parallel=4, num_gpus=16, global_batch_size=16)
    batch = found["global_batch_size"]
    assert batch.slope is None
    assert batch.above == 0
    assert batch.below is not None
    assert batch.below > 0
    assert batch.elasticity > 0


@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", ["seq_length", "hidden_size", "num_kv_heads", "num_layers", "micro_batch_size",
                                  "tensor_parallel", "gradient_bytes", "vocab_size", "distributed_optimizer"])
def test_formulas_say_what_dual_numbers_do(implementation: str, name: str) -> None:
    """SymPy's derivatives of the terms, line by line, are those of the generated code, and add up to the total's."""
    sizes: dict[str, Any] = {} if implementation == "huggingface" else {"tensor_parallel": 4}
    found = configured("llama-3.1-8b", "h100-80gb", implementation=implementation, num_gpus=8, **sizes)
    job, peak = found.job, explanation(found).peak
    if name in job.evaluator.fixed:
        return
    slopes = slopes_along(job.evaluator.terms, job.on_rank(peak.rank), {name: 1})
    formulas = slope_formulas(job, peak.rank, name)
    assert {line.term: line.slope for line in formulas.lines} == {
        line.term: slopes[line.term].slope for line in every_line(job.evaluator, job.on_rank(peak.rank))
        if slopes[line.term].slope}
    assert formulas.slope == slopes["stage.total"].slope
    assert all(line.formula and line.latex for line in formulas.lines)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [(7, 9, 9, 7), (8, 8, 8, 8)])
def test_an_explicit_list_of_layers_moves_like_what_each_rank_holds(layout: tuple[int, ...]) -> None:
    arguments: dict[str, Any] = {"pipeline_parallel": 4, "num_gpus": 16, "global_batch_size": 64}
    job = configured("llama-3.1-8b", "h100-80gb", pipeline_layout=layout, **arguments).job
    peak = Peak(job, layout)
    found = {item.name: item for item in sensitivities(peak, {})}
    assert "num_layers" not in found
    assert "pipeline_parallel" not in found
    item = found["seq_length"]
    assert item.larger is not None
    assert item.larger.bytes == item.slope * (item.larger.after - item.value)
    if len(set(layout)) == 1:
        _, even = _of(**arguments)
        assert {name: known for name, known in even.items() if name in found} == found


#: Mixtral where every kind of parallelism is on, and what of it moves: what is smooth, and what exists for integers.
EXPERTS: dict[str, Any] = {"tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 2, "data_parallel": 4,
                           "global_batch_size": 64, "seq_length": 4096}
OF_EXPERTS = ("num_experts", "moe_topk", "moe_ffn_hidden_size", "expert_parallel", "expert_tensor_parallel",
              "expert_load_percent", "tensor_parallel", "seq_length", "num_layers", "hidden_size")


@pytest.mark.slow
@pytest.mark.parametrize("side", [-1, 1])
def test_experts_move_as_exact_quotients_say(side: int) -> None:
    job = configured("mixtral-8x7b", "h100-80gb", **EXPERTS).job
    limits = []
    for moved in OF_EXPERTS:
        for rank in (0, 1):
            try:
                agrees_with_quotients(job.evaluator.terms, job.on_rank(rank), moved, side)
            except StepsError:
                continue
            limits.append(moved)
    assert {*limits} >= {"moe_ffn_hidden_size", "seq_length", "hidden_size", "expert_load_percent"}


@pytest.mark.slow
def test_differences_with_experts_are_those_of_explain() -> None:
    """The next legal value of every size, and of what a model with experts is like, against ``explain`` of that."""
    model = load_model("mixtral-8x7b")
    peak, found = _of(model="mixtral-8x7b", **EXPERTS)
    total = peak.bytes(peak.job.values)
    assert total == explain(model, "h100-80gb", **EXPERTS).peak.total
    shape = {name for name in OF_EXPERTS if hasattr(model, name)}
    own = {**EXPERTS, "expert_tensor_parallel": peak.job.values["expert_tensor_parallel"]}
    checked = set()
    for name in (*OF_EXPERTS, "micro_batch_size", "data_parallel", "pipeline_parallel", "context_parallel"):
        for step in filter(None, (found[name].smaller, found[name].larger)):
            changed = model.model_copy(update={name: step.after}) if name in shape else model
            again = explain(changed, "h100-80gb", **{**own, **({} if name in shape else {name: step.after})})
            assert again.peak.total - total == step.bytes, name
            checked.add(name)
    assert checked >= {*OF_EXPERTS, "micro_batch_size", "data_parallel", "pipeline_parallel"}
