"""What the page takes in and gives away: pasted files and links, kept layouts, exported files."""

from __future__ import annotations

import csv
import io
import json
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import shardmath
from shardmath.errors import InputError, InputWarning
from shardmath.input.parameters import model_values
from shardmath.models.config_json import read_model

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
              "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048, "hidden_act": "silu"},
    "qwen2": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
              "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "hidden_act": "silu",
              "tie_word_embeddings": True},
    "mixtral": {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 16, "num_attention_heads": 16,
                "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu",
                "num_local_experts": 4, "num_experts_per_tok": 2},
}
FLAGS = """torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \\
  --sequence-parallel --num-layers 16 --hidden-size=2048 --ffn-hidden-size 8192 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --kv-channels 64 --seq-length 4096 --micro-batch-size 2 \\
  --global-batch-size 256 --lr 1e-4 --swiglu --vocab-size 128256"""
SIZES = ("hidden_size", "ffn_hidden_size", "num_layers", "num_attention_heads", "num_kv_heads", "head_dim",
         "vocab_size", "tied_embeddings", "num_experts", "moe_topk", "moe_ffn_hidden_size")


def paste(tab: Any, text: str) -> dict[str, Any]:
    """The state after a text was pasted."""
    tab.click("#import")
    tab.fill("#pasted", text)
    tab.click("#take")
    tab.wait_for_selector("html[data-ready]")
    state: dict[str, Any] = tab.evaluate("structuredClone(state)")
    return state


def config_of(family: str, **keys: Any) -> str:
    """Return the text of a ``config.json`` of a family, with more keys."""
    return json.dumps({"model_type": family, **CONFIGS[family], **keys})


def notes(tab: Any) -> dict[str, list[str]]:
    """Return what the page says of a pasted text, by the title of each group."""
    groups: dict[str, list[str]] = tab.evaluate("""Object.fromEntries(
      [...document.querySelectorAll("#notice li")].map((group) => [
        group.querySelector("summary")?.textContent ?? group.firstChild.textContent.slice(0, -2),
        [...group.querySelectorAll("code")].map((item) => item.textContent)]))""")
    return groups


@pytest.mark.parametrize("family", CONFIGS)
def test_a_config_is_read_as_by_the_commands(family: str, opened: Callable[..., Any], tmp_path: Path) -> None:
    config = {"model_type": family, **CONFIGS[family]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    expected = shardmath.explain(tmp_path / "config.json", "h100-80gb", tensor_parallel=2, num_gpus=8,
                                 global_batch_size=64, seq_length=2048)
    tab = opened("#tensor_parallel=2&pipeline_parallel=1&num_gpus=8&global_batch_size=64&seq_length=2048")
    numbers = paste(tab, json.dumps(config))["numbers"]
    assert {name: numbers[name] for name in SIZES} == {name: expected.inputs[name] for name in SIZES}
    assert tab.inner_text("#tile-memory .figure").startswith(f"{expected.peak.total / 2**30:.2f}")
    assert f"Read: {family} model" in tab.inner_text("#notice")


PUBLIC = json.loads((Path(__file__).parents[1] / "data" / "public_configs.json").read_text(encoding="utf-8"))
READ = """(text) => {
  fromLink("");
  try {
    const { notes } = fromConfig(text);
    return { numbers: state.numbers, notes: Object.fromEntries(notes) };
  } catch (error) {
    if (!(error instanceof Unread)) throw error;
    return { unread: error.message };
  }
}"""


def test_each_published_config_is_read_as_by_the_commands_or_the_reason_is_said(
    opened: Callable[..., Any], whole: Path, tmp_path: Path, record_property: Any,
) -> None:
    tab, families = opened(path=whole), set()
    for name, item in PUBLIC.items():
        config = item["config"]
        told = tab.evaluate(READ, json.dumps(config))
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)
                values = model_values(read_model(path))
        except InputError:
            assert "unread" in told, name
            continue
        if "unread" in told:
            inner = config.get("text_config", config).get("model_type", config["model_type"])
            assert config["model_type"] in told["unread"] or inner in told["unread"], name
            assert any(why in told["unread"] for why in REASONS), (name, told["unread"])
            continue
        families.add(config["model_type"])
        ignored = told["notes"].get("Ignored: read by shardmath explain, not by this page", [])
        wrong = {size: (told["numbers"][size], values[size]) for size in SIZES if told["numbers"][size] != values[size]}
        assert not wrong or ignored, (name, wrong)
    assert len(families) > 38  # of 67 families; the others have a reason
    assert {"gemma3", "mistral3", "llava", "qwen3_vl", "internvl", "qwen3_vl_moe"} <= families
    record_property("families", len(families))


REASONS = ("no model of this page has its kernels", "sizes are computed from other keys")


def test_flags_of_a_launch_script(opened: Callable[..., Any]) -> None:
    tab = opened()
    state = paste(tab, FLAGS)
    asked = {"tensor_parallel": 2, "pipeline_parallel": 4, "num_layers": 16, "hidden_size": 2048,
             "ffn_hidden_size": 8192, "num_kv_heads": 8, "head_dim": 64, "seq_length": 4096, "micro_batch_size": 2,
             "global_batch_size": 256, "sequence_parallel": 1, "vocab_size": 128256}
    assert {name: state["numbers"][name] for name in asked} == asked
    assert (state["implementation"], state["recompute"]) == ("megatron", "none")
    assert notes(tab) == {
        "Ignored: read by shardmath explain, not by this page": ["--group-query-attention", "--swiglu"],
        "Without effect on memory and time (1)": ["--lr 1e-4"]}


def test_each_flag_is_taken_as_by_the_commands(opened: Callable[..., Any]) -> None:
    """A flag that the page does not take stands in the group of the commands: unknown, not counted, read by them."""
    tab = opened()
    more = ("--nnodes 2 --rdzv_id 7 --frobnicate 3 --cuda-graph-impl local --bf16 --recompute-granularity selective"
            " --num-experts $E")
    state = paste(tab, f"# --tensor-model-parallel-size 8\n{FLAGS} {more} --recompute-modules core_attn mlp")
    assert (state["numbers"]["tensor_parallel"], state["recompute"]) == (2, "core_attention+mlp")
    assert notes(tab) == {
        "Without a value, ignored": ["--num-experts $E"], "Not understood, ignored": ["--frobnicate 3"],
        "Not counted yet": ["--cuda-graph-impl local (memory of CUDA graphs)"],
        "Ignored: read by shardmath explain, not by this page": ["--group-query-attention", "--swiglu", "--bf16"],
        "Of the launcher, without effect (2)": ["--nnodes 2", "--rdzv_id 7"],
        "Without effect on memory and time (1)": ["--lr 1e-4"],
    }
    state = paste(tab, FLAGS.replace("torchrun", "torchrun --nproc-per-node 4 --nnodes 6"))
    assert state["numbers"]["num_gpus"] == 24
    assert not [item for items in notes(tab).values() for item in items if "nnodes" in item or "nproc" in item]


def test_each_key_of_a_config_is_taken_or_named(opened: Callable[..., Any]) -> None:
    tab = opened()
    keys = {"rms_norm_eps": 1e-5, "bos_token_id": 1, "attention_bias": True, "frobnicate": 3, "attention_dropout": 0.1,
            "rope_scaling": {"rope_type": "llama3"}, "quantization_config": None, "architectures": ["LlamaModel"]}
    paste(tab, config_of("llama", **keys))
    assert notes(tab) == {
        "Not understood, ignored": ["frobnicate = 3"],
        "Ignored: read by shardmath explain, not by this page": ["attention_bias = true"],
        "Left out": ["attention_dropout = 0.1 (masks of dropout are counted with --attention-dropout alone)",
                     'architectures = ["LlamaModel"] (counted is the causal language model)'],
        "Without effect on memory and time (1)": ["bos_token_id = 1"],
    }


def test_what_cannot_be_read_changes_nothing(opened: Callable[..., Any]) -> None:
    tab = opened()
    before = tab.url
    for text, said in (("hello", "Nothing here is a link"), ("{", "This is no JSON"),
                       ('{"model_type": "mamba"}', "model_type = mamba: must be another family: it is llama with"),
                       ('{"model_type": "glm"}', "model_type = glm: must be another family: sizes are computed"),
                       ('{"model_type": "gpt9"}', "model_type = gpt9: the page reads baichuan, "),
                       ('{"model_type": "llama"}', "hidden_size: must be given."),
                       (config_of("llama", num_experts=8), "num_experts = 8: must not be there"),
                       (config_of("llama", vocab_size=0), "vocab_size = 0: must be an integer from 1 to"),
                       (f"{FLAGS} --fp4-format e2m1", "--fp4-format: must not be given: FP4 is not counted yet"),
                       (f"{FLAGS} --num-layers 1.5", "--num-layers = 1.5: must be an integer from 1 to"),
                       (FLAGS.replace("_gpt", "_t5"), "pretrain_t5.py: must train a GPT: T5 is not counted yet")):
        paste(tab, text)
        assert tab.inner_text("#unread").startswith(said)
        tab.click("[data-close=importer]")
    assert tab.url == before


def test_two_layouts_side_by_side(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-8b&num_gpus=16&global_batch_size=64&tensor_parallel=4&pipeline_parallel=1")
    tab.click("#keep")
    tab.fill("#number-tensor_parallel", "2")
    tab.wait_for_selector("html[data-ready]")
    cells = [line.split("\t") for line in tab.inner_text("#compared").splitlines()]
    rows = {line[0]: line[1:] for line in cells}
    job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 16, "global_batch_size": 64}
    both = [shardmath.explain(**job, tensor_parallel=size) for size in (4, 2)]
    assert rows["TP"][:2] == ["4", "2"]
    assert rows["peak, GiB"][:2] == [f"{item.peak.total / 2**30:.2f}" for item in both]
    assert rows["step, s"][:2] == [f"{item.time.seconds:.2f}" for item in both]
    change = both[1].peak.total / both[0].peak.total - 1
    assert rows["peak, GiB"][2] == f"+{change:.1%} worse"
    again = opened(f"#{tab.url.partition('#')[2]}")
    assert again.inner_text("#compared") == tab.inner_text("#compared")
    again.click("#drop")
    assert not again.is_visible("#comparison")


def test_exports_say_what_the_page_says(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-8b&num_gpus=16&global_batch_size=64&tensor_parallel=4&pipeline_parallel=2"
                 "&virtual_pipeline=2&sequence_parallel=0&recompute=mlp&network=hdr-200&risk=5%25")
    tab.wait_for_selector("#best[aria-busy=false]", state="attached")
    arguments = shlex.split(tab.evaluate("commandOf(state)"))
    assert arguments[:3] == ["shardmath", "explain", "llama-3.1-8b"]
    asked = dict(zip(arguments[3::2], arguments[4::2], strict=False))
    assert {name: asked[name] for name in ("--tensor-parallel", "--pipeline-parallel", "--virtual-pipeline")} == {
        "--tensor-parallel": "4", "--pipeline-parallel": "2", "--virtual-pipeline": "2"}
    assert (asked["--network"], asked["--risk"]) == ("hdr-200", "5%")
    assert "--no-sequence-parallel" in arguments
    expected = shardmath.explain("llama-3.1-8b", "h100-80gb", num_gpus=16, global_batch_size=64, tensor_parallel=4,
                                 pipeline_parallel=2, virtual_pipeline=2, sequence_parallel=False, recompute="mlp")
    account = list(csv.DictReader(io.StringIO(tab.evaluate("accountCsv()"))))
    assert [(int(line["rank"]), line["term"]) for line in account if line["role"] == "weight"] == [
        (rank.rank, line.term) for rank in expected.ranks for line in rank.lines if line.role == "weight"]
    first = sum(float(line["bytes"]) for line in account if line["rank"] == "0")
    assert first == pytest.approx(expected.ranks[0].total)
    layouts = list(csv.DictReader(io.StringIO(tab.evaluate("layoutsCsv()"))))
    assert layouts[0]["role"] == "the fastest that fits"
    picture = ElementTree.fromstring(tab.evaluate("picture()"))
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) > 20
    assert "var(" not in tab.evaluate("picture()")
    assert tab.evaluate("bibliography()").count("@misc{") > 1


def test_the_theme_can_be_switched(opened: Callable[..., Any]) -> None:
    tab = opened(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(ground)
    assert tab.get_attribute("#theme", "aria-pressed") == "true"
    tab.click("#theme")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)" != dark
    assert tab.get_attribute("#theme", "aria-pressed") == "false"
