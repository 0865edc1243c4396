"""Weights of routers that Transformers leaves in fp32 beside 16-bit others, with their gradients and moments.

So it does on one GPU and in DistributedDataParallel, whether a model is made or read from files. FSDP2 refuses them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from families import read_config
from oracles.hugging_face import test_expert_family_bytes as families
from oracles.hugging_face.family_steps import recorded
from oracles.hugging_face.huggingface import token_ids
from oracles.hugging_face.huggingface_experts import deepseek, for_grouped_products, random_shape
from oracles.hugging_face.test_expert_family_steps import drawn
from oracles.hugging_face.test_family_steps import assert_moments_behind_the_head, ours
from oracles.instruments.ledger import ledger
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from shardmath.configuration.choosing import choices_of, evaluator_for
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

pytestmark = pytest.mark.slow

#: Families with such routers that have oracles of whole steps.
WIDE = ("glm4_moe", "dots1", "hunyuan_v1_moe", "ernie4_5_moe", "solar_open", "deepseek_v3", "deepseek_v2")
FAMILIES = {family.__name__: family for family, _ in families.FAMILIES}
#: Those of DeepSeek-V2, DeepSeek-V3 and Kimi K2, whose file names the classes of DeepSeek-V3.
LATENT = ("deepseek",)


def _model(draw: Random, family: str) -> tuple[Any, dict[str, Any]]:
    """Draw a config.json; return it with a model as ``from_config`` makes it in bf16."""
    if family in LATENT:
        drawn_model, _ = deepseek(draw, for_grouped_products(random_shape(draw)))
        made = drawn_model.config
        made.first_k_dense_replace = min(made.first_k_dense_replace, made.num_hidden_layers - 1)
        config = {**made.to_dict(), "dtype": None, "rope_scaling": None, "rope_parameters": None}
        return AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16), {**config, "num_nextn_predict_layers": 0}
    keys = FAMILIES[family](draw)
    made = AutoConfig.for_model(family, **keys, use_cache=False, pad_token_id=None, bos_token_id=None,
                                eos_token_id=None)
    return AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16), {"model_type": family, **keys}


def _trained(model: Any) -> list[tuple[str, Any]]:
    """Return what has gradients: not ERNIE's corrections, which have none, but are no buffers where they are loaded."""
    return [(name, each) for name, each in model.named_parameters() if "correction_bias" not in name]


def _bytes(tensors: Any) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


@pytest.mark.cases(2, 60)
@pytest.mark.parametrize("family", [*FAMILIES, *LATENT])
def test_bytes_of_weights_gradients_and_moments(draw: Random, family: str, tmp_path: Path) -> None:
    model, config = _model(draw, family)
    read = read_config(tmp_path, config)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.bfloat16()
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.bfloat16)
    chosen = choices_of("huggingface", read)
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()} | {"s": 4, "b": 1}
    weights, gradients, moments = ledger(
        HUGGINGFACE.with_choices(**{**chosen, "peak": "saved"}), "stage.weight", "stage.gradient", "stage.optimizer",
        **shape)
    for each in (model, loaded):
        trained = [parameter for _, parameter in _trained(each)]
        optimizer = torch.optim.AdamW(trained)
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
        assert [_bytes(trained), _bytes(parameter.grad for parameter in trained), _bytes(states)] == [
            weights, gradients, moments], config
        wide = {name for name, parameter in _trained(each) if parameter.dtype == torch.float32}
        assert bool(wide) == (chosen.get("router_weights") == "fp32")
        assert all(".gate." in name for name in wide), wide


@pytest.mark.cases(2, 20)
@pytest.mark.parametrize("family", WIDE)
def test_moments_with_distributed_data_parallel(draw: Random, family: str, tmp_path: Path) -> None:
    """PyTorch's own reducer has buckets in both precisions; its map of used parameters is on the host too."""
    config, run = drawn(draw, family)
    run |= {"sequence": draw.choice((16, 64, 256))}
    counted = ours(tmp_path, config, **run, ranks=2, is_sharded=False)
    record = recorded(config, **run, is_shared=True)
    on_the_host = 0 if run["full"] else 4 * _parameters(config)
    record.norm, record.layers = record.norm - on_the_host, record.layers - on_the_host
    assert_moments_behind_the_head(counted, record, config, run)


def _parameters(config: dict[str, Any]) -> int:
    """Count the parameters of a model that are trained, not their elements."""
    keys = {name: value for name, value in config.items() if name != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **keys))
    return sum(parameter.requires_grad for parameter in model.parameters())


def test_units_of_fsdp2_have_one_precision(tmp_path: Path) -> None:
    """So nothing but a cast of routers makes a layer a unit, and the ledger counts them in 16 bits there."""
    draw = Random(1)
    model, config = _model(draw, "dots1")
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh)
        with pytest.raises(AssertionError, match="uniform original parameter dtype"):
            model(input_ids=token_ids({"s": 4, "b": 1, "u": 1}))
    finally:
        dist.destroy_process_group()
    read = read_config(tmp_path, config)
    for kernels in ({"data_parallel": "fsdp"}, {"data_parallel": "fsdp", "precision": "mixed"},
                    {"data_parallel": "deepspeed"}, {"precision": "autocast"}):
        assert evaluator_for("huggingface", kernels, read, {}).choices["router_weights"] == "as_others"
    assert evaluator_for("huggingface", None, read, {}).choices["router_weights"] == "fp32"
