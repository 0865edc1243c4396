"""Recipes in Python: what is followed, what is not, and what Megatron-Bridge takes from them when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.bridge.reading import of_recipe
from shardmath.formats.bridge.wheel import wheel
from shardmath.formats.run import Run
from shardmath.formats.scripts.python_file import Interpreter
from shardmath.formats.scripts.python_values import UNKNOWN, Built
from shardmath.models.model import Model

START = """
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config, llama3_8b_peft_config
from megatron.bridge.training.mixed_precision import bf16_with_fp8_delayed_scaling_mixed, get_mixed_precision_config
from megatron.bridge.peft.lora import LoRA
import torch
"""


def run(folder: Path, body: str, name: str = "llama3_8b_pretrain_config", **given: str) -> Run:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "mine.py").write_text(f"{START}\ndef main(args):\n    cfg = {name}()\n{lines}    return cfg\n")
    return read(folder / "mine.py", {key.replace("__", "."): value for key, value in given.items()})


@pytest.mark.parametrize(("body", "name", "value"), [
    ("cfg.model.tensor_model_parallel_size = 2\ncfg.model.sequence_parallel = cfg.model.tensor_model_parallel_size > 1",
     "sequence_parallel", True),
    ("cfg.train.micro_batch_size = 2 * 2", "micro_batch_size", 4),
    ("for size in (1, 2):\n    cfg.train.micro_batch_size = size", "micro_batch_size", 2),
    ("for size in args.sizes:\n    cfg.train.micro_batch_size = size", "micro_batch_size", 1),  # a note says so
    ("if args.large:\n    cfg.train.micro_batch_size = 8", "micro_batch_size", 1),  # nor what is not decided
    ("if cfg.train.global_batch_size == 512:\n    cfg.train.global_batch_size = 64", "global_batch_size", 64),
    ("cfg.ddp.grad_reduce_in_fp32 = False", "gradients", "fp32"),  # that of the precision wins
    ("cfg.mixed_precision = get_mixed_precision_config('bf16_mixed')\ncfg.mixed_precision.grad_reduce_in_fp32 = False",
     "gradients", "bf16"),
    ("cfg.ddp.use_distributed_optimizer = False", "distributed_optimizer", True),  # the optimizer has it on
    ("cfg.ddp.use_distributed_optimizer = False\ncfg.optimizer.use_distributed_optimizer = False",
     "distributed_optimizer", False),
    ("cfg.mixed_precision = bf16_with_fp8_delayed_scaling_mixed()", "fp8_amax_history_len", 1024),
    ("cfg.optimizer.optimizer_cpu_offload = True\ncfg.optimizer.optimizer_offload_fraction = 0.25",
     "optimizer_offload_percent", 25),
    ("cfg.optimizer.use_precision_aware_optimizer = True\ncfg.optimizer.exp_avg_dtype = torch.bfloat16",
     "exp_avg_bytes", 2),
    ("cfg.peft = LoRA(dim=4)", "lora_rank", 4),
])
def test_what_is_assigned_to_a_recipe(body: str, name: str, value: Any, tmp_path: Path) -> None:
    found = run(tmp_path, body)
    assert found.arguments[name] == value
    assert found.unknown == ()


@pytest.mark.parametrize(("body", "kernels", "weights"), [
    ("cfg.optimizer.use_precision_aware_optimizer = True", {"optimizer": "precision_aware_core"}, None),
    # Its flag is on where one of the two holds, and weights are then those of Transformer Engine.
    ("cfg.optimizer.use_precision_aware_optimizer = True\n"
     "cfg.mixed_precision = get_mixed_precision_config('bf16_mixed')\n"
     "cfg.mixed_precision.fp8_recipe = 'delayed'", {}, 2),
    ("cfg.optimizer.use_precision_aware_optimizer = True\ncfg.optimizer.main_params_dtype = torch.float16", {}, 2),
    ("cfg.optimizer.optimizer_cpu_offload = True", {"optimizer_offload": "cpu_moments"}, None),
    ("cfg.optimizer.optimizer_cpu_offload = True\ncfg.optimizer.use_precision_aware_optimizer = True", {}, None),
])
def test_whose_the_fp32_weights_are(
    body: str, kernels: dict[str, str], weights: int | None, tmp_path: Path,
) -> None:
    """The recipe of FP8 is `tensorwise` unless something else is said, and decides without any FP8."""
    found = run(tmp_path, body).arguments
    own = {axis: found["kernels"][axis] for axis in ("optimizer", "optimizer_offload") if axis in found["kernels"]}
    assert (own, found.get("main_param_bytes")) == (kernels, weights)


def test_a_model_of_ones_own_size(tmp_path: Path) -> None:
    found = run(tmp_path, "cfg.model.num_layers = 4\ncfg.model.hidden_dropout = 0.1")
    assert (found.model.num_layers, found.model.hidden_size, found.arguments["hidden_dropout"]) == (4, 4096, 1)


def test_every_key_is_under_what_was_made_of_it(tmp_path: Path) -> None:
    found = run(tmp_path, "cfg.model.made_up = 1\ncfg.model.cuda_graph_impl = 'none'\ncfg.train.train_iters = 3")
    assert found.unknown == ("model.made_up",)
    assert "model.tensor_model_parallel_size" in found.understood
    assert "model.cuda_graph_scope" in found.without_effect
    assert not [text for text in found.warnings if "CUDA graphs" in text]


def test_settings_and_the_choice_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(f"{START}\ndef a_config():\n    return llama3_8b_pretrain_config()\n\n"
                                     "def b_config():\n    return llama3_8b_peft_config()\n")
    assert "lora_rank" in read(tmp_path / "two.py", {"recipe": "b_config"}).arguments
    sized = read(tmp_path / "two.py", {"recipe": "a_config", "model.context_parallel_size": "4"})
    assert sized.arguments["context_parallel"] == 4
    with pytest.raises(InputError, match="must name one of the functions with --set recipe=NAME: a_config, b_config"):
        read(tmp_path / "two.py")
    with pytest.raises(InputError, match="must be a function of the file"):
        read(tmp_path / "two.py", {"recipe": "c_config"})


@pytest.mark.parametrize(("text", "field", "rule"), [
    ("def main(:\n", "model", "must be complete Python: it has a fault in line 1"),
    ("print('hello')\n", "model", "must make a ConfigContainer of Megatron-Bridge"),
    (START + "cfg = llama3_8b_pretrain_config(micro_batch_size=2)\n", "recipe", "must be called without arguments"),
    (START + "cfg = llama3_8b_pretrain_config()\ncfg.model.hf_model_id = 'google/gemma-2-2b'\n", "model.hf_model_id",
     "must be"),
    ("x = " + "(" * 5000 + ")" * 5000, "model", "must be complete Python"),
    ("def f():\n    return f()\nf()\n", "model", "must make a ConfigContainer"),
    ("x = ['a'] * 10**12\n" * 3, "model", "must make a ConfigContainer"),
])
def test_refused_files(text: str, field: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "mine.py")
    assert caught.value.field == field
    assert rule in str(caught.value)


def test_scripts_that_start_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node=8 --nnodes 2 run_recipe.py --recipe"
                                     " qwen3_30b_a3b_pretrain_config train.global_batch_size=64\n")
    found = read(tmp_path / "run.sh")
    assert (found.model.num_experts, found.arguments["num_gpus"], found.arguments["global_batch_size"]) == (128, 16, 64)
    assert found.arguments["recompute"] == "full"


@pytest.mark.parametrize(("recipe", "name"), [
    ("qwen2_72b_sft_config", "qwen2-72b"), ("gpt_oss_120b_sft_config", "gpt-oss-120b"),
    ("moonlight_16b_pretrain_config", "moonlight-16b-a3b"), ("glm45_355b_pretrain_config", "glm-4.5"),
    ("glm45_air_106b_pretrain_config", "glm-4.5-air"),
])
def test_a_recipe_has_the_model_that_it_names(recipe: str, name: str) -> None:
    theirs, ours = of_recipe("x", recipe, "x", {}).model.model_dump(), Model.named(name).model_dump()
    apart = {"name", "source", "note", "max_seq_length", "rope_scaling", "model_type"}
    assert {key: value for key, value in theirs.items() if key not in apart} == {
        key: value for key, value in ours.items() if key not in apart}


def test_most_recipes_of_the_wheel_are_read() -> None:
    """All but hybrid models, Ministral, models that are classes of their own, Gemma 2, and GPT-3 (its vocabulary)."""
    refused = set()
    for recipe in wheel()["recipes"]:
        try:
            of_recipe("x", recipe, "x", {})
        except InputError:
            refused.add(recipe)
    apart = ("_", "nemotron", "ministral", "qwen3_next", "gemma2", "kimi", "gpt3")
    assert {recipe for recipe in refused if not recipe.startswith(apart)} == {
        "moonlight_16b_sft_config", "moonlight_16b_peft_config", "gemma3_1b_pretrain_config"}  # no shape, or no kernels


CHECKOUT = {
    "mega/__init__.py": "",
    "mega/recipes/common.py": (
        "from .sizes import *\n"
        "from megatron.bridge.training.config import ConfigContainer, TrainingConfig\n"
        "def _base():\n"
        "    return ConfigContainer(model=None, train=TrainingConfig(global_batch_size=BATCH, micro_batch_size=2),\n"
        "        mixed_precision='bf16_mixed')\n"
        "def quickly(cfg, size=1):\n"
        "    for name, value in {'tensor_model_parallel_size': size}.items():\n"
        "        setattr(cfg.model, name, value)\n"
        "    if cfg.model.context_parallel_size > 1:\n"
        "        raise ValueError('no')\n"
        "    cfg.train.global_batch_size //= 2\n"),
    "mega/recipes/sizes.py": "BATCH = 64\n_HIDDEN = 1\n",
    "mega/recipes/h100/qwen.py": (
        "from copy import deepcopy\n"
        "from megatron.bridge import AutoBridge\n"
        "from mega.recipes.common import _base, quickly\n"
        "def qwen3_8b_config():\n"
        "    cfg = _base()\n"
        "    cfg.model = AutoBridge.from_hf_pretrained(f'Qwen/Qwen3-{8}B').get_model_config()\n"
        "    cfg.model.seq_length = 4096\n"
        "    quickly(cfg, size=2)\n"
        "    other = deepcopy(cfg)\n"
        "    other.model.tensor_model_parallel_size = 8\n"
        "    return cfg\n"),
    "mega/recipes/qwen.py": "from mega.recipes.h100.qwen import qwen3_8b_config as short_config\n",
}


@pytest.mark.parametrize(("file", "recipe"), [("h100/qwen.py", "qwen3_8b_config"), ("qwen.py", "short_config")])
def test_functions_of_a_checkout_are_followed(file: str, recipe: str, tmp_path: Path) -> None:
    for name, text in CHECKOUT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    taken = read(tmp_path / "mega" / "recipes" / file, {"recipe": recipe})
    assert (taken.model.num_layers, taken.arguments["tensor_parallel"], taken.arguments["global_batch_size"],
            taken.arguments["micro_batch_size"]) == (36, 2, 32, 2)
    assert taken.warnings == ()


@pytest.mark.parametrize(("body", "field"), [
    ("cfg.model.tensor_model_parallel_size = args.tp", "model.tensor_model_parallel_size"),
    ("cfg.mixed_precision = my_precision(args)", "mixed_precision"),
    ("cfg.model = my_model()", "model"),
])
def test_what_only_running_it_could_tell_is_refused(body: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be known without running the file") as caught:
        run(tmp_path, f"from elsewhere import my_precision, my_model\n{body}")
    assert caught.value.field == field


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    assert run(tmp_path, "if args.large:\n    cfg.train.micro_batch_size = 8").warnings == (
        "line 9: the condition `args.large` is not known without running the file: what depends on it is left out",)
    taken = run(tmp_path, "from elsewhere import tune\ntune(cfg)\ncfg.train.train_iters = args.steps")
    assert taken.warnings == (
        "tune is a function of another file, which is not here: settings that it changes are not read",)
    sized = run(tmp_path, "cfg.train.global_batch_size = args.batch", train__global_batch_size="16")
    assert sized.arguments["global_batch_size"] == 16


_GEMMA_3 = "from megatron.bridge.models.gemma import Gemma3ModelProvider\ncfg.model = Gemma3ModelProvider"


def test_layers_of_gemma_3_are_those_of_its_own_class(tmp_path: Path) -> None:
    """By the name of the model it converts, and by its class, whose window has the query's own token in it."""
    named = of_recipe("x", "gemma3_1b_sft_config", "x", {})
    of_class = run(tmp_path, f"{_GEMMA_3}(num_layers=26, window_size=512, seq_length=4096, activation_func='fast_gelu',"
                             " interleaved_attn_pattern=(5, 1), rotary_base=(10000, 1000000))\n"
                             "cfg.model.apply_rope_fusion = True")
    apart = {"name", "source", "note", "max_seq_length"}
    for made, rope in ((named, "unfused_twice"), (of_class, "fused_twice")):
        assert made.model.model_dump(exclude=apart) == Model.named("gemma-3-1b").model_dump(exclude=apart)
        assert {axis: made.arguments["kernels"][axis] for axis in ("swiglu", "rope")} == {
            "swiglu": "unfused", "rope": rope}
        assert made.unknown == ()


def test_the_pattern_of_windows_is_that_of_the_class(tmp_path: Path) -> None:
    made = run(tmp_path, f"{_GEMMA_3}(window_size=64, seq_length=4096, interleaved_attn_pattern=(2, 1))")
    assert (made.model.attention_window, made.model.full_attention_step) == (64, 3)
    with pytest.raises(InputError, match="interleaved_attn_pattern"):
        run(tmp_path, f"{_GEMMA_3}(seq_length=4096, interleaved_attn_pattern=(2, 2))")


def test_olmoe_has_norms_of_whole_queries_and_keys(tmp_path: Path) -> None:
    """Of a class whose usual settings are those of the model of the catalogue, and of the wheel's recipe."""
    apart = {"name", "source", "note", "max_seq_length"}
    for made in (of_recipe("x", "olmoe_7b_pretrain_config", "x", {}),
                 run(tmp_path, "from megatron.bridge.models.olmoe import OlMoEModelProvider\n"
                               "cfg.model = OlMoEModelProvider(expert_model_parallel_size=8, seq_length=4096)")):
        assert made.model.model_dump(exclude=apart) == Model.named("olmoe-1b-7b-0924").model_dump(exclude=apart)
        assert made.arguments["kernels"]["balance"] == "loss"
        assert made.unknown == ()


def test_exaone_4_has_norms_behind_alone_and_none_of_queries_and_keys(tmp_path: Path) -> None:
    """Its layers name no norms of queries and keys, and attention of Megatron-Core's own."""
    made = run(tmp_path, "cfg.model.hf_model_id = 'LGAI-EXAONE/EXAONE-4.0-1.2B'\ncfg.model.seq_length = 4096")
    model = Model.named("exaone-4.0-1.2b").model_copy(update={"qk_norm": False})
    apart = {"name", "source", "note", "max_seq_length", "rope_scaling"}
    assert made.model.model_dump(exclude=apart) == model.model_dump(exclude=apart)
    assert made.arguments["kernels"]["attention"] == "fused_softmax"


def test_gemma_2_has_the_attention_of_the_checkout_around_a_recipe(tmp_path: Path) -> None:
    """Where its class is there, scores are bounded in FlexAttention, which packed sequences are refused with."""
    provider = tmp_path / "megatron" / "bridge" / "models" / "gemma" / "gemma2_provider.py"
    provider.parent.mkdir(parents=True)
    provider.write_text("class Gemma2FlexDotProductAttention:\n    pass\n")
    body = "cfg.model.hf_model_id = 'google/gemma-2-9b'\ncfg.model.seq_length = 4096"
    made = run(tmp_path, body)
    apart = {"name", "source", "note", "max_seq_length"}
    assert made.model.model_dump(exclude=apart) == Model.named("gemma-2-9b").model_dump(exclude=apart)
    assert (made.arguments["kernels"]["attention"], made.arguments["kernels"]["swiglu"]) == ("flex", "unfused")
    packed = f"{body}\ncfg.dataset.enable_offline_packing = True"
    with pytest.raises(InputError, match=r"Gemma 2.* takes no packed sequences"):
        run(tmp_path, packed)
    assert run(tmp_path, packed, dataset__enable_offline_packing="false").model == made.model


def test_packed_sequences_are_refused_with_attention_that_takes_none(tmp_path: Path) -> None:
    packed = "cfg.dataset.enable_in_batch_packing = True\ncfg.model.hf_model_id = "
    with pytest.raises(InputError, match=r"EXAONE 4.* takes no packed sequences"):
        run(tmp_path, f"{packed}'LGAI-EXAONE/EXAONE-4.0-1.2B'")
    assert run(tmp_path, f"{packed}'Qwen/Qwen3-8B'").unknown == ()


def test_packed_sequences_are_as_long_as_their_data_set_packs_them(tmp_path: Path) -> None:
    """``GPTSFTPackedDataset`` pads and cuts to this size, whatever the lengths of data set and model are."""
    body = ("from megatron.bridge.data.builders.gpt_sft import GPTSFTDatasetConfig\n"
            "from megatron.bridge.data.packing.config import PackedSequenceSpecs\n"
            "cfg.model.seq_length = 4096\n"
            "packed = PackedSequenceSpecs(packed_sequence_size=8192)\n"
            "cfg.dataset = GPTSFTDatasetConfig(seq_length=4096, enable_offline_packing=True,"
            " offline_packing_specs=packed)")
    assert run(tmp_path, body).arguments["seq_length"] == 8192
    assert run(tmp_path, body, dataset__enable_offline_packing="false").arguments["seq_length"] == 4096
    asked = run(tmp_path, body, dataset__offline_packing_specs__packed_sequence_size="2048")
    assert asked.arguments["seq_length"] == 2048


@pytest.mark.parametrize(("size", "length"), [("8192", 8192), ("0", 4096), ("-1", 4096)])
def test_packed_sequences_of_earlier_releases_need_no_switch(size: str, length: int, tmp_path: Path) -> None:
    """Up to 0.3 a data set packs as soon as the size is above 0 (``FinetuningDatasetBuilder``)."""
    body = ("from megatron.bridge.data.datasets.packed_sequence import PackedSequenceSpecs\n"
            "cfg.model.seq_length = cfg.dataset.seq_length = 4096\n"
            f"cfg.dataset.packed_sequence_specs = PackedSequenceSpecs(packed_sequence_size={size})")
    assert run(tmp_path, body).arguments["seq_length"] == length
    asked = run(tmp_path, body, dataset__packed_sequence_specs__packed_sequence_size="2048")
    assert asked.arguments["seq_length"] == 2048
    said = [text.startswith("packed documents are counted as full") for text in run(tmp_path, body).warnings]
    assert sum(said) == (length == 8192)
    exaone = f"{body}\ncfg.model.hf_model_id = 'LGAI-EXAONE/EXAONE-4.0-1.2B'"
    if length == 8192:
        with pytest.raises(InputError, match=r"EXAONE 4.* takes no packed sequences"):
            run(tmp_path, exaone)


def test_a_dense_layer_predicts_further_tokens_of_k_exaone(tmp_path: Path) -> None:
    """The class of its model makes that layer without experts; the settings that it has of its own are in force."""
    made = run(tmp_path, "cfg.model.hf_model_id = 'LGAI-EXAONE/K-EXAONE-236B-A23B'\ncfg.model.seq_length = 4096")
    apart = {"name", "source", "note", "max_seq_length"}
    assert made.model.model_dump(exclude=apart) == Model.named("k-exaone-236b-a23b").model_dump(exclude=apart)
    kernels = made.arguments["kernels"]
    assert (kernels["balance"], kernels["weight_gradient"], kernels["rope"]) == ("bias", "separate", "unfused")


@pytest.mark.parametrize(("name", "noun"), [
    ("google/gemma-2-2b", "bounded scores in single operations (Gemma 2 in Megatron-Bridge without FlexAttention)"),
    ("LGAI-EXAONE/EXAONE-4.0-32B", "layers with windows among those without (EXAONE 4 32B)"),
    ("LGAI-EXAONE/K-EXAONE-2.0-750B-A37B", "gates and windows by layer, shared predictions (K-EXAONE 2.0)"),
    ("stepfun-ai/Step-3.5-Flash", "gates of heads, and windows with another number of heads (Step 3.5)"),
])
def test_layers_that_are_not_counted_are_named(name: str, noun: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, f"cfg.model.hf_model_id = {name!r}")
    assert caught.value.rule == f"must be a decoder of text that is counted: {noun} are not counted yet"


@pytest.mark.parametrize(("name", "noun"), [
    ("Qwen/Qwen3-VL-8B-Instruct", "models of images or sound"), ("Qwen/Qwen3.5-9B", "models with linear attention"),
    ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "hybrid models"), ("zai-org/GLM-5.2", "sparse attention"),
])
def test_models_of_another_kind_are_refused_by_name(name: str, noun: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=noun):
        run(tmp_path, f"cfg.model.hf_model_id = {name!r}")


@pytest.mark.parametrize(("body", "noun"), [
    ("cfg.model = FluxBridge().provider_bridge(hf)", "diffusion models"),
    ("cfg.model.hf_model_id = os.environ.get('HERE')", "diffusion models"),
    ("raise NotImplementedError('no')", "diffusion models"),
])
def test_the_name_of_a_recipe_says_the_kind_of_a_model_that_is_not_known(body: str, noun: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{START}\nfrom elsewhere import FluxBridge\ndef flux_12b_config():\n    cfg = llama3_8b_pretrain_config()\n"
        f"    {body}\n    return cfg\n")
    if "raise" in body:
        (tmp_path / "mine.py").write_text(f"def flux_12b_config():\n    {body}\n")
    with pytest.raises(InputError, match=f"recipe = 'flux_12b_config'.*{noun}"):
        read(tmp_path / "mine.py", {"recipe": "flux_12b_config"})


def test_a_vocabulary_of_a_tokenizer_without_files(tmp_path: Path) -> None:
    found = run(tmp_path, "from x import TokenizerConfig\ncfg.model.hf_model_id = None\ncfg.model.vocab_size = None\n"
                "cfg.tokenizer = TokenizerConfig(tokenizer_type='NullTokenizer', vocab_size=32000)\n"
                "cfg.model.num_layers, cfg.model.hidden_size, cfg.model.num_attention_heads = 2, 512, 8")
    assert (found.model.vocab_size, found.model.num_layers) == (32001, 2)


def test_layers_on_the_host_need_their_switch(tmp_path: Path) -> None:
    body = "cfg.model.cpu_offloading_num_layers = 4"
    left = run(tmp_path, body)
    assert "cpu_offloading_num_layers" not in left.arguments
    assert "model.cpu_offloading_num_layers" in left.without_effect
    assert run(tmp_path, f"{body}\ncfg.model.cpu_offloading = True").arguments["cpu_offloading_num_layers"] == 4


def test_values_of_python() -> None:
    scope = Interpreter("x", lambda name, arguments, keywords: Built(name, dict(keywords))).module(
        "from m import C\n"
        "a = C(x=1 + 2, y=[1] * 3, z={'k': (1, 2)}['k'][1])\n"
        "b = a.x if a.y else None\n"
        "c = 'AB'.lower() in ('ab', 'cd') and not None\n"
        "d = getattr(a, 'gone', 7)\n"
        "e, f = open('x'), -b\n"
        "g = 1 / 0\n"
        "from typing import cast\nh = cast(C, a).x\n")
    assert (scope["a"].fields, scope["b"], scope["c"], scope["d"], scope["f"], scope["h"]) == (
        {"x": 3, "y": [1, 1, 1], "z": 2}, 3, True, 7, -3, 3)
    assert scope["e"] is scope["g"] is UNKNOWN
