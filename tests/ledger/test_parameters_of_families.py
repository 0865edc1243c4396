"""Parameters of every model of the catalogue against its released weights, and of every family part by part."""

import csv
from pathlib import Path

import pytest
from families import (
    CONFIGS,
    COUNTED,
    DATA,
    missing_rows,
    parameters_by_part,
    parameters_in_the_ledger,
    parameters_met,
    parameters_of_mtp,
    read_config,
)
from models.test_public_configs import CATALOGUED

from shardmath.catalogue import read
from shardmath.models.model import Model

# Parameters of the released weights, embeddings counted once where they are tied: as instantiated by
# transformers, as stated in the safetensors metadata on Hugging Face, or as listed by KerasHub's presets.
PUBLISHED = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-6.9b": 6_857_302_016,
    "opt-6.7b": 6_658_473_984,
    "bloom-7b1": 7_069_016_064,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "bloom-176b": 176_247_271_424,
    "tinyllama_v1.1": 1_100_048_384,
    "tinyllama-1.1b-chat-v1.0": 1_100_048_384,
    "open_llama_3b_v2": 3_426_473_600,
    "codellama-7b": 6_738_546_688,
    "codellama-13b": 13_016_028_160,
    "codellama-34b": 33_743_970_304,
    "smollm2-135m": 134_515_008,
    "mistral-7b-v0.2": 7_241_732_096,
    "pythia-1.4b": 1_414_647_808,
    "qwen1.5-moe-a2.7b-chat": 14_315_784_192,
}

#: Parameters of the encoder of images that Gemma 3 is released with, and the width of what it returns.
_ENCODER, _WIDTH = 416_866_032, 1152
# Parameters released, and of these those of an image encoder and its projector, as transformers' classes build them.
WITH_IMAGES = {
    "llama-4-scout-17b-16e": (108_641_793_536, 871_932_416),
    "llama-4-maverick-17b-128e": (401_583_781_376, 871_932_416),
    "gemma-3-4b": (4_300_079_472, _ENCODER + _WIDTH * (2560 + 1)),
    "gemma-3-12b": (12_187_325_040, _ENCODER + _WIDTH * (3840 + 1)),
}

# Stated in papers in billions: GPT-3 in table D.1 of arXiv 2005.14165, the largest two in table 1 of 2104.04473.
ROUNDED = {
    "gpt-3-175b": "174.6",
    "megatron-22b": "22",
    "megatron-175b": "175",
    "mt-nlg-530b": "529.6",
    "megatron-1t": "1008.0",
}


#: As Transformers' classes build them, which have no modules of further predictions.
WITHOUT_PREDICTIONS = {"k-exaone-236b-a23b": 236_571_150_336}

#: As the tests of published config.json files count them.
OF_PUBLIC_FILES = {name: 0 for name in CATALOGUED if name not in PUBLISHED}


def parameters(model: Model) -> int:
    return sum(parameters_by_part(model).values()) + parameters_of_mtp(model)


def test_every_catalogued_model_has_a_published_count() -> None:
    counts = (PUBLISHED, WITH_IMAGES, ROUNDED, WITHOUT_PREDICTIONS, {"deepseek-v3": 0}, OF_PUBLIC_FILES)
    assert sorted(read("models")) == sorted(name for names in counts for name in names)


@pytest.mark.parametrize("name", PUBLISHED)
def test_catalogue_matches_published_counts(name: str) -> None:
    assert parameters(Model.named(name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_language_models_released_with_an_image_encoder(name: str) -> None:
    released, of_images = WITH_IMAGES[name]
    assert parameters(Model.named(name)) + of_images == released


@pytest.mark.parametrize("name", WITHOUT_PREDICTIONS)
def test_models_that_transformers_builds_without_their_predictions(name: str) -> None:
    assert sum(parameters_by_part(Model.named(name)).values()) == WITHOUT_PREDICTIONS[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_catalogue_rounds_to_what_papers_state(name: str) -> None:
    digits = len(ROUNDED[name].partition(".")[2])
    assert f"{parameters(Model.named(name)) / 1e9:.{digits}f}" == ROUNDED[name]


def _blocks(*shapes: tuple[int, int]) -> int:
    """Blocks of 128 x 128 elements; each has one scale in the released FP8 weights."""
    return sum(-(-rows // 128) * -(-columns // 128) for rows, columns in shapes)


def test_deepseek_v3_is_released_with_more_than_its_parameters() -> None:
    """The files hold biases of the routers, scales of FP8 weights, and embedding and head again for the MTP module."""
    model = Model.named("deepseek-v3")
    main, mtp = sum(parameters_by_part(model).values()), parameters_of_mtp(model)
    assert main + 58 * model.num_experts == 671_026_419_200
    h, heads, lq, lk = model.hidden_size, model.num_attention_heads, model.q_lora_rank, model.kv_lora_rank
    attention = _blocks((lq, h), (heads * 192, lq), (lk + 64, h), (heads * 256, lk), (h, heads * 128))
    dense, expert = 3 * _blocks((h, model.ffn_hidden_size)), 3 * _blocks((h, model.moe_ffn_hidden_size))
    scales = 62 * attention + 3 * dense + 59 * 257 * expert
    again = 59 * model.num_experts + 2 * h * model.vocab_size
    assert main + mtp + again + scales == 684_531_386_000


@pytest.mark.parametrize("name", read("models"))
def test_the_ledger_has_every_parameter_of_the_catalogue(name: str) -> None:
    model = Model.named(name)
    if missing := missing_rows(model):
        pytest.skip(f"no rows for {', '.join(missing)}")
    assert parameters_in_the_ledger(model) == {"all": parameters(model), "active": parameters_met(model)}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_ledger_has_every_parameter_of_a_family(name: str, tmp_path: Path) -> None:
    model = read_config(tmp_path, CONFIGS[name])
    if missing := missing_rows(model):
        pytest.skip(f"no rows for {', '.join(missing)}")
    assert parameters_in_the_ledger(model) == {"all": parameters(model), "active": parameters_met(model)}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_families_match_what_transformers_builds(name: str, tmp_path: Path) -> None:
    counted = COUNTED[name]
    ours = parameters_by_part(read_config(tmp_path, CONFIGS[name]))
    assert ours == {part: int(counted[part]) for part in ours}
    assert sum(ours.values()) == int(counted["total"])


def test_every_counted_model_has_its_config() -> None:
    assert COUNTED.keys() == CONFIGS.keys()
    evidence = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert f"| parameters of {len(CONFIGS)} models | Hugging Face Transformers |" in evidence


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() & read("models").keys()))
def test_the_catalogue_says_what_the_file_says(name: str, tmp_path: Path) -> None:
    stated = Model.named(name)
    # Papers on GPT-3 and Megatron state no epsilon, which a file of Transformers always has.
    others = {"name", "source", "note", *(() if stated.norm_epsilon else ("norm_epsilon",))}
    assert read_config(tmp_path, CONFIGS[name]).model_dump(exclude=others) == stated.model_dump(exclude=others)


def test_the_counted_mixtral() -> None:
    with open(DATA / "parameter_counts.csv", newline="") as table:
        counted = next(row for row in csv.DictReader(table) if row["E"])
    model = Model.named(counted["model"])
    assert (model.num_experts, model.moe_topk) == (int(counted["E"]), int(counted["topk"]))
    assert parameters_in_the_ledger(model)["all"] == int(counted["total"])
    found = parameters_by_part(model)
    layers, experts = model.num_layers, found["router"] + found["experts"]
    assert found["embedding"] == int(counted["embedding"])
    assert found["attention"] == layers * int(counted["attn_per_layer"])
    assert experts == layers * int(counted["ffn_or_moe_per_layer"])
