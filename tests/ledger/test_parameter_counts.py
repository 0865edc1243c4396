"""Parameters of the model, of a token and of a rank: what an account says of them, and their sums over ranks."""

from __future__ import annotations

from random import Random

import pytest
from counted import DEFAULTS
from families import parameters_by_part, parameters_met, parameters_of_mtp

from shardmath import explain
from shardmath.models.model import Model
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON

TERMS = ("stage.all_parameters", "model.all_parameters", "model.active_parameters")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout"), [
    ("llama-3.2-1b", {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2}),
    ("qwen2.5-7b", {"pipeline_parallel": 2, "virtual_pipeline": 2, "global_batch_size": 8}),
    ("mixtral-8x7b", {"expert_parallel": 4, "data_parallel": 4, "pipeline_parallel": 2}),
    ("deepseek-v3",
     {"expert_parallel": 8, "data_parallel": 8, "pipeline_layout": "15,15,15,16", "pipeline_parallel": 4}),
])
def test_parameters_of_an_account(name: str, layout: dict[str, int]) -> None:
    model = Model.named(name)
    found = explain(model, "h200", **layout)  # type: ignore[arg-type]
    whole = sum(parameters_by_part(model).values()) + parameters_of_mtp(model)
    assert (found.parameters.total, found.parameters.active) == (whole, parameters_met(model))
    document = found.to_dict()
    assert document["parameters"] == {"total": whole, "active": parameters_met(model)}
    assert [rank["parameters"] for rank in document["ranks"]] == [rank.parameters for rank in found.ranks]
    # Norms are whole on every tensor-parallel rank, all else is shared out.
    t, e = found.inputs["tensor_parallel"], found.inputs["expert_parallel"]
    assert sum(rank.parameters for rank in found.ranks) * t * e >= whole


@pytest.mark.slow
def test_a_published_model_in_words() -> None:
    """DeepSeek-V3 is 671 billion parameters, 37 of which are active, and 11.5 more for its further prediction."""
    model = Model.named("deepseek-v3")
    counts = explain(model, "h200", data_parallel=64, expert_parallel=64).parameters
    assert counts.total - parameters_of_mtp(model) == 671_026_404_352
    without = model.model_copy(update={"num_mtp_layers": 0})
    assert round(parameters_met(without) / 1e9) == 38  # 37 without the embedding


@pytest.mark.parametrize("case", range(60))
def test_ranks_add_up_to_the_model(case: int) -> None:
    """Every parameter is on one stage, but for a shared embedding; experts are shared out evenly."""
    draw = Random(f"parameters {case}")
    experts, latent, p = draw.randint(0, 1), draw.randint(0, 1), draw.choice((1, 2, 3))
    e, tied, mtp = draw.choice((1, 2, 4)) if experts else 1, draw.randint(0, 1), draw.randint(0, 1) if experts else 0
    known = {
        **DEFAULTS, "p": p, "L": p * 2 * draw.randint(1, 3), "h": draw.randint(1, 64), "a": 4, "k": 4, "d": 6, "u": 50,
        "g": 1, "f": draw.randint(1, 90), "fe": draw.randint(1, 40), "fs": draw.randint(0, 20), "E": 4 * e, "q": 3,
        "ld": draw.randint(0, 2), "step": 1, "D": e, "e": e, "et": 1, "tied": tied, "mtp": mtp,
        "bias": draw.randint(0, 1), "qkn": draw.randint(0, 1), "lq": 5, "lk": 7, "dr": 2, "dv": 3, "s": 4, "B": e,
    }
    chosen = MEGATRON.with_choices(layers="experts" if experts else "dense", heads="latent" if latent else "grouped")
    terms = build(chosen)
    names = [*TERMS, *(name for name in ("stage.expert_parameters",) if name in terms)]
    ranks = [evaluate(terms.closure(names), {**known, "r": r}) for r in range(p)]
    own = sum(rank["stage.all_parameters"] + (e - 1) * rank.get("stage.expert_parameters", 0) for rank in ranks)
    again = (p > 1) * (tied + mtp)  # on the last stage, and with a further prediction beside the head
    assert own == ranks[0]["model.all_parameters"] + again * known["u"] * known["h"]
    assert len({rank["model.all_parameters"] for rank in ranks}) == 1
    layers = known["L"] - known["ld"] + mtp if experts else 0
    idle = layers * (known["E"] - known["q"]) * 3 * known["h"] * known["fe"]
    assert ranks[0]["model.all_parameters"] - ranks[0]["model.active_parameters"] == idle
