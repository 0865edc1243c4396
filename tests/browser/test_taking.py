"""What the page takes in and gives away: pasted files and links, kept layouts, exported files."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from browser_cases import written_link

import shardmath
from shardmath.errors import shortened
from shardmath.formats.writers import written

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
      [...document.querySelectorAll("#notice li:has(code)")].map((group) => [
        group.querySelector("summary")?.textContent ?? group.firstChild.textContent.slice(0, -2),
        [...group.querySelectorAll("code")].map((item) => item.textContent)]))""")
    return groups


def place(tab: Any) -> dict[str, Any]:
    """The state after a pasted model got its layout."""
    state: dict[str, Any] = tab.evaluate("""async () => {
      const isWaiting = () => placing || !("ready" in document.documentElement.dataset);
      while (isWaiting()) await new Promise((resolve) => setTimeout(resolve, 20));
      return structuredClone(state);
    }""")
    return state


@pytest.mark.parametrize("family", CONFIGS)
def test_a_config_is_read_as_by_the_commands(family: str, opened: Callable[..., Any], tmp_path: Path) -> None:
    """A pasted model has the fastest layout that fits, whatever the page had before."""
    config = {"model_type": family, **CONFIGS[family]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    job = {"num_gpus": 8, "global_batch_size": 64, "seq_length": 2048}
    first = shardmath.recommend(tmp_path / "config.json", "h100-80gb", **job).choices[0]
    tab = opened("#" + urlencode({**job, "tensor_parallel": 8, "pipeline_parallel": 1, "recompute": "full"}))
    paste(tab, json.dumps(config))
    state = place(tab)
    layout = {name: first.layout[name] for name in state["numbers"] if name in first.layout}
    assert {name: state["numbers"][name] for name in layout} == layout
    assert state["recompute"] == first.layout["recompute"]
    expected = shardmath.explain(tmp_path / "config.json", "h100-80gb", recompute=state["recompute"], **layout, **job)
    assert {name: state["numbers"][name] for name in SIZES} == {name: expected.inputs[name] for name in SIZES}
    assert tab.inner_text("#tile-memory .figure").startswith(f"{expected.peak.total / 2**30:.2f}")
    assert f"Read: {family} model" in tab.inner_text("#notice")
    assert "Its layout is the fastest that fits." in tab.inner_text("#notice")


def test_a_pasted_model_that_fits_nowhere_has_the_layout_of_least_memory(opened: Callable[..., Any]) -> None:
    tab = opened("#gpu=rtx-4090-24gb&num_gpus=1&global_batch_size=8&pipeline_parallel=1&tensor_parallel=1")
    paste(tab, config_of("llama", num_hidden_layers=88))
    state = place(tab)
    assert "No layout fits: this is the one of least memory." in tab.inner_text("#notice")
    assert state["recompute"] == "full"


def test_a_layout_that_is_chosen_meanwhile_stays(opened: Callable[..., Any]) -> None:
    tab = opened("#num_gpus=8&global_batch_size=64&tensor_parallel=2&pipeline_parallel=1")
    tab.evaluate("searchBeside = () => {}")  # a search that takes long
    paste(tab, config_of("llama"))
    assert "Its layout follows from the search below." in tab.inner_text("#notice")
    tab.fill("#number-tensor_parallel", "4")
    tab.wait_for_selector("html[data-ready]")
    tab.evaluate("stopSearch()")
    assert place(tab)["numbers"]["tensor_parallel"] == 4


def test_flags_of_a_launch_script(opened: Callable[..., Any]) -> None:
    tab = opened()
    state = paste(tab, FLAGS)
    asked = {"tensor_parallel": 2, "pipeline_parallel": 4, "num_layers": 16, "hidden_size": 2048,
             "ffn_hidden_size": 8192, "num_kv_heads": 8, "head_dim": 64, "seq_length": 4096, "micro_batch_size": 2,
             "global_batch_size": 256, "sequence_parallel": 1, "vocab_size": 128256}
    assert {name: state["numbers"][name] for name in asked} == asked
    assert (state["implementation"], state["recompute"]) == ("megatron", "none")
    assert "Sizes alone are read: --max-position-embeddings = absent: must be given" in tab.inner_text("#notice")
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
    keys = {"rms_norm_eps": 1e-5, "bos_token_id": 1, "frobnicate": 3, "attention_dropout": 0.1,
            "quantization_config": None, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "architectures": ["LlamaModel"]}
    state = paste(tab, config_of("llama", **keys))
    assert tab.eval_on_selector_all("#notice li", "items => items.map((item) => item.textContent)") == [
        "architectures = ['LlamaModel']: counted is the causal language model, with a head over the vocabulary",
        "attention_dropout = 0.1: masks of dropout are counted with --attention-dropout alone",
        "what these keys change is not counted yet: frobnicate",
        "Without effect on memory and time (1)bos_token_id = 1",
    ]
    scaling = {"kind": "linear", "factor": 2, "original_length": 0}
    assert state["file"] == {"max_seq_length": 2048, "rope_base": 10_000, "rope_scaling": scaling}


def test_written_files_have_what_the_pasted_file_says(opened: Callable[..., Any], tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
    keys = {"rope_theta": 123_456, "rms_norm_eps": 1e-6, "rope_scaling": scaling}
    (tmp_path / "config.json").write_text(config_of("llama", **keys), encoding="utf-8")
    job = {"num_gpus": 8, "tensor_parallel": 2, "pipeline_parallel": 1, "global_batch_size": 64, "seq_length": 2048}
    tab = opened("#" + urlencode(job))
    paste(tab, config_of("llama", **keys))
    job["micro_batch_size"] = place(tab)["numbers"]["micro_batch_size"]
    for name in ("tensor_parallel", "pipeline_parallel"):
        tab.fill(f"#number-{name}", str(job[name]))
    tab.select_option("select[data-name=recompute]", "none")
    tab.check("[data-check=sequence_parallel]")
    tab.wait_for_selector("html[data-ready]")
    account = shardmath.explain(tmp_path / "config.json", "h100-80gb", **job)
    again = opened(written_link(tab))
    expected = written("megatron", account).replace(account.model.name, "config.json")
    for page in (tab, again):
        assert page.evaluate("writtenFile('megatron')") == expected


@pytest.mark.parametrize("file", [
    '{"rope_base": "1; ls"}', '{"rope_scaling": {"kind": "$(ls)"}}', '{"name": 1}', "[1]", "x"])
def test_a_link_brings_no_words_into_a_script(opened: Callable[..., Any], file: str) -> None:
    tab = opened("#" + urlencode({"file": file}))
    assert tab.evaluate("state.file") == {}
    assert f"file = {shortened(file)}: must be as the page writes it" in tab.inner_text("#notice")


def test_what_cannot_be_read_changes_nothing(opened: Callable[..., Any]) -> None:
    tab = opened()
    before = written_link(tab)
    for text, said in (("hello", "Nothing here is a link"), ("{", "This is no JSON"),
                       ('{"model_type": "mamba"}', "model_type = 'mamba': must be a family that is read: it is llama"),
                       ('{"model_type": "gpt9"}', "model_type = 'gpt9': must be one of apertus, "),
                       ('{"model_type": "llama"}', "hidden_size = absent: must be given."),
                       (config_of("llama", attention_bias=True), "model_type = llama: must have the kernels of a "),
                       (config_of("llama", num_experts=8), "num_experts = 8: must not be there"),
                       (config_of("llama", vocab_size=0), "vocab_size = 0: must be at least 1; nearest legal: 1."),
                       (f"{FLAGS} --batch-size 8", "--batch-size = '8': must not be given: Megatron-LM no "),
                       (f"{FLAGS} --num-layers 1.5", "--num-layers = '1.5': must be an integer"),
                       (FLAGS.replace("_gpt", "_t5"), "script = 'pretrain_t5.py': must train a GPT: T5 ")):
        paste(tab, text)
        assert tab.inner_text("#unread").startswith(said)
        tab.click("[data-close=importer]")
    assert written_link(tab) == before


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
    again = opened(written_link(tab))
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
    texts = [item.text for item in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Memory of each pipeline rank", "rank 1", "Memory over one step", "all of the GPU", "computing"} < {*texts}
    assert "var(" not in tab.evaluate("picture()")
    assert tab.evaluate("async () => { await loadFormulas(); return bibliography(); }").count("@misc{") > 1


def test_the_theme_can_be_switched(opened: Callable[..., Any]) -> None:
    tab = opened(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(ground)
    assert tab.get_attribute("#theme", "aria-pressed") == "true"
    tab.click("#theme")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)" != dark
    assert tab.get_attribute("#theme", "aria-pressed") == "false"
