"""Keys that matter and change no count are said; keys that are there twice are refused, in all JSON that is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import CONFIGS

from shardmath import InputError, InputWarning, explain, load_model
from shardmath.account.anchor import anchored
from shardmath.cli.main import exit_code
from shardmath.files.arrays import read_arrays, write_arrays
from shardmath.models.config_json import FAMILIES
from shardmath.models.dense_families import counted_instead
from shardmath.models.model import Model
from shardmath.search.nests.checkpoint import Checkpoint
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.running import Run
from shardmath.search.spaces import Best, Space

LLAMA = {**CONFIGS["small llama, head_dim"], "architectures": ["LlamaForCausalLM"]}
DEEPSEEK, GPT, LLAMA4 = (CONFIGS[f"small {name}"] for name in ("deepseek_v3", "gpt2, inner width",
                                                              "llama4_text, dense first"))


#: Families whose code is not in Transformers.
OWN_CODE = {"bailing_moe", "bailing_moe_v2", "baichuan", "exaone", "internlm2", "minicpm"}


def written(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


#: A config.json and what is said of it.
SAID: list[tuple[dict[str, Any], str]] = [
    ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]},
     "architectures = ['LlamaForSequenceClassification']: counted is the causal language model"),
    ({**LLAMA, "architectures": ["LlamaModel"]}, "architectures = ['LlamaModel']: counted is"),
    ({**LLAMA, "quantization_config": {"quant_method": "fp8"}}, "quantization_config is not applied: weights are"),
    ({**LLAMA, "auto_map": {"AutoModel": "modeling.X"}}, "auto_map: the code that it names is not read; counted is"),
    ({**LLAMA, "vision_config": {"depth": 2}}, "vision_config is not counted yet: the language model alone is"),
    ({**DEEPSEEK,
     "num_nextn_predict_layers": 1, "n_group": 1, "topk_group": 1},
     "num_nextn_predict_layers = 1: layers that predict further tokens"),
    ({**LLAMA, "attention_dropout": 0.1}, "attention_dropout = 0.1: masks of dropout are counted"),
    ({**GPT, "resid_pdrop": 0.1, "embd_pdrop": 0.2}, "resid_pdrop = 0.1, embd_pdrop = 0.2: masks of dropout are counted"
     " with --hidden-dropout alone"),
    ({**CONFIGS["small mistral"], "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]},
     "sliding_window = 9: attention is counted over whole"),
    ({**CONFIGS["small qwen2"], "sliding_window": 9, "use_sliding_window": True}, "sliding_window = 9: attention is"),
    ({**CONFIGS["small qwen3"], "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]},
     "sliding_window = 9: attention is"),
    ({**LLAMA4, "attention_chunk_size": 64}, "attention_chunk_size = 64: attention is counted over whole sequences"),
    ({**CONFIGS["small mixtral"], "output_router_logits": True}, "output_router_logits: the load-balancing loss is"),
    ({**CONFIGS["small mixtral"], "router_jitter_noise": 0.1}, "router_jitter_noise = 0.1 is not counted yet"),
    ({**LLAMA, "torch_dtype": "float32"}, "torch_dtype = float32: weights are counted in the precision"),
    ({**LLAMA, "mamba_d_state": 16, "x": 1}, "what these keys change is not counted yet: mamba_d_state, x"),
    ({**LLAMA4, "use_qk_norm": True},
     "the normalisation of queries and keys, which has no weights, is not counted yet"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "said"), SAID, ids=[said[:30] for _, said in SAID])
def test_what_matters_is_said(
    config: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path, config)
    with pytest.warns(InputWarning) as caught:
        load_model(path)
    assert [str(item.message)[13:13 + len(said)] for item in caught] == [said]
    assert exit_code(["explain", str(path), "--gpu", "h100-80gb", "--seq-length", "16"]) == 0
    assert capsys.readouterr().err == f"warning: {caught[0].message}\n"


#: Keys of published files that change nothing that is counted.
SILENT = {
    "architectures": ["LlamaForCausalLM"], "_name_or_path": "x", "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6,
    "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "initializer_range": 0.02, "use_cache": True, "transformers_version": "4.40.0", "attention_dropout": 0.0,
    "sliding_window": None, "quantization_config": None, "pretraining_tp": 1, "output_router_logits": False,
}


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("small") and "bias" not in name])
@pytest.mark.filterwarnings("error")
def test_what_does_not_matter_is_not_said(name: str, tmp_path: Path) -> None:
    """The reader's own keys, and those of every published file; MTP and norms without weights are named above."""
    config = {**CONFIGS[name], **SILENT}
    config.pop("num_nextn_predict_layers", None)
    if config["model_type"] == "deepseek_v3":
        config["num_nextn_predict_layers"] = 0
    if config["model_type"] == "llama4_text":
        config["use_qk_norm"] = False
    Model.from_config(written(tmp_path, config))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - OWN_CODE))
def test_every_key_that_transformers_writes_is_known(name: str, tmp_path: Path) -> None:
    """No key of a class of ``transformers`` itself is called unknown."""
    transformers = pytest.importorskip("transformers")
    classes = {"kimi_k2": "deepseek_v3"}
    made = transformers.CONFIG_MAPPING[classes.get(name, name)]().to_dict() | {"model_type": name}
    lacking = {
        "deepseek_v3": {"num_nextn_predict_layers": 0}, "kimi_k2": {"num_nextn_predict_layers": 0},
        "deepseek_v2": {"num_experts_per_tok": 2}, "glm4_moe": {"head_dim": 128},
        "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True},
    }
    added = {**counted_instead(FAMILIES[name]), **lacking.get(name, {})}
    with pytest.warns(InputWarning) as caught:
        Model.from_config(written(tmp_path, {**made, **added, "unheard_of": 1}))
    assert [str(item.message) for item in caught if "what these keys change" in str(item.message)] == [
        "config.json: what these keys change is not counted yet: unheard_of"]


def test_a_file_may_say_anything(tmp_path: Path) -> None:
    odd = {**LLAMA, **{f"key\x1b{number}": 0 for number in range(99)}, "architectures": ["x" * 10**5]}
    with pytest.warns(InputWarning) as caught:
        load_model(written(tmp_path, odd))
    assert max(len(str(item.message)) for item in caught) < 2000
    assert str(caught[1].message).endswith(" and 59 more")


TWICE = re.compile(r"must not be there twice$")


def test_a_key_of_a_model_is_there_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA)[:-1] + ', "hidden_size": 65}')
    with pytest.raises(InputError, match=r"^hidden_size = 65: must not be there twice$"):
        load_model(path)
    path.write_text(json.dumps(LLAMA)[:-1] + ', "rope_scaling": {"a": 1, "a": 1}}')
    assert exit_code(["explain", str(path), "--gpu", "h100-80gb"]) == 2
    assert capsys.readouterr().err == "error: a = 1: must not be there twice\n"


def test_a_key_of_a_measured_run_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text('{"run": {"model": "llama-3.2-1b", "gpu": "h100-80gb", "model": "llama-3-8b"}, "measured": {}}')
    with pytest.raises(InputError, match=r"^model = 'llama-3-8b': must not be there twice$"):
        anchored(path)
    with pytest.raises(InputError, match=TWICE):
        explain("llama-3.2-1b", "h100-80gb", anchor=path)


@pytest.mark.slow
def test_a_key_of_a_checkpoint_is_there_once(tmp_path: Path) -> None:
    space = Space(axes={"tensor_parallel": [1, 2]}, model="llama-3.2-1b", gpu="h100-80gb",
                  fixed={"num_gpus": 2, "global_batch_size": 2}, questions=(Best("best", ("peak",)),))
    (part,) = space.parts()
    state = Checkpoint(tmp_path / "state", [CompiledNest(part, space.questions)])
    state.save([Run(nest.empty()) for nest in state.nests])
    arrays = dict(read_arrays(state.path))
    for header, legal in ((str(arrays["header"]), True), (str(arrays["header"])[:-1] + ', "written": null}', False)):
        with open(state.path, "wb") as file:
            write_arrays(file, {**arrays, "header": np.array(header)}, compressed=True)
        if legal:
            assert len(state.load()) == 1
        else:
            with pytest.raises(InputError, match=r"must be a whole checkpoint"):
                state.load()
