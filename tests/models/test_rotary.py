"""Norm epsilon, rotary base and scaling, and the scale of routed experts: of the catalogue and of config.json files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from families import CONFIGS, read_config

from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.models.rotary import RopeScaling

with open(Path(__file__).parents[1] / "data" / "rotary_figures.csv", newline="") as table:
    FIGURES = {row.pop("model"): row for row in csv.DictReader(table)}
LLAMA = CONFIGS["small llama, head_dim"]
NEOX = CONFIGS["small gpt_neox, parallel"]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
#: Papers on these models state neither.
WITHOUT_EPSILON = {"gpt-3-175b", "megatron-22b", "megatron-175b", "mt-nlg-530b", "megatron-1t"}


def figures(model: Model) -> dict[str, float | str]:
    """All figures that the table may have, by column."""
    scaling = {} if model.rope_scaling is None else model.rope_scaling.model_dump()
    own = {name: getattr(model, name) for name in ("norm_epsilon", "rope_base", "routed_scaling_factor")}
    return {**RopeScaling(kind="linear").model_dump(), "kind": "", **scaling, **own}


@pytest.mark.parametrize("name", FIGURES)
def test_the_catalogue_has_the_figures_of_other_programs(name: str) -> None:
    found, stated = figures(Model.named(name)), FIGURES[name]
    assert found["kind"] == stated["kind"]
    for column, value in stated.items():
        if value and column not in ("kind", "source"):
            assert found[column] == float(value), column


@pytest.mark.parametrize("name", read("models"))
def test_the_catalogue_leaves_out_what_no_source_states(name: str) -> None:
    model = Model.named(name)
    assert (model.norm_epsilon is None) == (name in WITHOUT_EPSILON)
    assert bool(model.rope_base) != bool(model.learned_positions or model.alibi)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name in read("models") and name not in WITHOUT_EPSILON])
def test_a_config_says_what_the_catalogue_says(name: str, tmp_path: Path) -> None:
    assert figures(read_config(tmp_path, CONFIGS[name])) == figures(Model.named(name))


@pytest.mark.parametrize(("config", "changes", "field", "value"), [
    (LLAMA, {}, "norm_epsilon", 1e-6), (LLAMA, {}, "rope_base", 10_000), (LLAMA, {}, "rope_scaling", None),
    (LLAMA, {"rms_norm_eps": 1e-5}, "norm_epsilon", 1e-5), (LLAMA, {"rope_theta": 500_000}, "rope_base", 500_000),
    (LLAMA, {"rope_theta": 5e5, "rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}, "rope_base", 7e4),
    (LLAMA, {"rope_scaling": LLAMA3}, "rope_scaling",
     RopeScaling(kind="llama3", factor=8, original_length=8192, low_frequency_factor=1, high_frequency_factor=4)),
    (LLAMA, {"rope_parameters": LLAMA3, "rope_theta": 5e5}, "rope_base", 5e5),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling", RopeScaling(kind="linear", factor=2)),
    (LLAMA, {"rope_scaling": {"type": "yarn", "factor": 4, "mscale": None}}, "rope_scaling",
     RopeScaling(kind="yarn", factor=4)),
    (NEOX, {"rotary_emb_base": 25_000}, "rope_base", 25_000),
    (NEOX, {"rope_parameters": {"rope_theta": 9, "partial_rotary_factor": 0.5}}, "rope_base", 9),
    (CONFIGS["small mixtral"], {}, "rope_base", 1e6), (CONFIGS["small mixtral"], {}, "norm_epsilon", 1e-5),
    (CONFIGS["small llama4_text, dense first"], {}, "rope_base", 500_000),
    (CONFIGS["small deepseek_v3"], {}, "routed_scaling_factor", 2.5),
    (CONFIGS["small gpt2, inner width"], {}, "rope_base", 0),
])
def test_keys_of_a_config(config: dict[str, Any], changes: dict[str, Any], field: str, value: object,
                          tmp_path: Path) -> None:
    assert getattr(read_config(tmp_path, {**config, **changes}), field) == value


@pytest.mark.parametrize(("changes", "line"), [
    ({"rope_theta": "big"}, "rope_theta = 'big': must be a number from 1 to 2147483648"),
    ({"rope_theta": 0}, "rope_theta = 0: must be a number from 1 to 2147483648"),
    ({"rope_scaling": 2}, "rope_scaling = 2: must be a table or null"),
    ({"rope_scaling": {"type": "yran"}}, "rope_scaling.type = 'yran': must be one of default, linear, dynamic, yarn,"
                                         " longrope, llama3; nearest legal: yarn"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": [4]}},
     "rope_parameters.factor = [4]: must be a number from 0 to 2147483648"),
    ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 0}},
     "rope_scaling.original_max_position_embeddings = 0: must be an integer from 1 to 2147483648"),
    ({"rms_norm_eps": 2.0}, "rms_norm_eps = 2.0: must be less than 1"),
])
def test_what_no_rotary_embedding_has_is_refused(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_config(tmp_path, {**LLAMA, **changes})
    assert str(caught.value) == line


@pytest.mark.parametrize(("name", "changes", "line"), [
    ("gpt2", {"rope_base": 10_000}, "rope_base = 10000.0: must be 0 with learned positions; nearest legal: 0"),
    ("llama-2-7b", {"rope_base": 0, "rope_scaling": {"kind": "linear"}},
     "rope_scaling = 'linear': must not be given without rope_base"),
    ("llama-2-7b", {"routed_scaling_factor": 2},
     "routed_scaling_factor = 2.0: must be 1 where num_experts is 0; nearest legal: 1"),
])
def test_contradictions(name: str, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        Model(**{**Model.named(name).model_dump(), **changes})
    assert str(caught.value) == line
