"""A model is answered for where one class of a framework has all that it needs, by lines of the framework's source."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from families import read_config

import shardmath
from shardmath.catalogue.code import facts
from shardmath.cli.main import exit_code
from shardmath.commands.page.families import usual_config
from shardmath.configuration.choosing import answered_choices, choices_of, evaluator_for
from shardmath.configuration.defaults import default_implementation, has_architecture
from shardmath.configuration.model_classes import MODEL_CLASSES, NEEDS, UNCOUNTED, class_of, missing, needs_of
from shardmath.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
MODELS = tuple(tomllib.loads((ROOT / "catalogue" / "models.toml").read_text(encoding="utf-8")))
CLASSES = [(implementation, name) for implementation, classes in MODEL_CLASSES.items() for name in classes]
LLAMA = {"model_type": "llama", "hidden_size": 896, "intermediate_size": 2432, "num_hidden_layers": 4,
         "num_attention_heads": 14, "vocab_size": 32000, "max_position_embeddings": 4096}
#: Models that no class of a framework has, with what the nearest class lacks.
REFUSED: dict[tuple[str, str], tuple[str, str]] = {
    ("torchtitan", "qwen2.5-7b"): ("llama3", "biases of queries, keys and values"),
    ("torchtitan", "seed-oss-36b-instruct"): ("qwen3", "biases of queries, keys and values"),
    ("torchtitan", "qwen2.5-0.5b"): ("qwen3", "biases of queries, keys and values"),
    ("nanotron", "qwen3-8b"): ("llama", "norms of queries and keys"),
    ("nanotron", "mistral-nemo-base-2407"): ("llama", "heads of another width than hidden_size / num_attention_heads"),
}
#: The same of small models of a family.
FAMILIES: dict[tuple[str, str], tuple[str, str]] = {
    ("torchtitan", "dots1"): ("qwen3", "experts behind dense layers"),
    ("torchtitan", "granitemoeshared"): ("llama4", "shared experts whose width is no multiple of an expert's"),
    ("nanotron", "hunyuan_v1_dense"): ("llama", "norms of queries and keys"),
}
KEYS = {"dots1": {"first_k_dense_replace": 1},
        "granitemoeshared": {"intermediate_size": 512, "shared_intermediate_size": 768}}


@pytest.mark.parametrize(("implementation", "name"), CLASSES)
def test_lines_give_a_class_what_it_has_and_deny_nothing_of_it(implementation: str, name: str) -> None:
    stated = [fact for fact in facts() if (fact.framework, fact.model_class) == (implementation, name)]
    has = MODEL_CLASSES[implementation][name]
    assert {need for fact in stated for need in fact.has} == {*has}
    assert not {need for fact in stated for need in fact.lacks} & {*has}
    assert all({*fact.has, *fact.lacks} <= {*NEEDS} for fact in stated)


def test_every_fact_is_about_a_class_and_every_uncounted_class_is_known() -> None:
    assert {(fact.framework, fact.model_class) for fact in facts()} == {*CLASSES}
    assert {(implementation, name) for implementation, names in UNCOUNTED.items() for name in names} <= {*CLASSES}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("implementation", MODEL_CLASSES)
def test_an_answered_model_has_a_class_with_all_that_it_needs(implementation: str, name: str) -> None:
    model = shardmath.Model.named(name)
    own = class_of(implementation, model)
    complete = {*needs_of(model)} <= {*MODEL_CLASSES[implementation][own]}
    assert (missing(implementation, model) == "") == (complete and own not in UNCOUNTED.get(implementation, ()))
    if missing(implementation, model):
        assert not has_architecture(implementation, model)
        with pytest.raises(InputError, match="must be one that has"):
            evaluator_for(implementation, None, model, {})
        with pytest.raises(InputError, match=missing(implementation, model)):
            answered_choices(implementation, model)
    else:
        assert answered_choices(implementation, model) == choices_of(implementation, model)


@pytest.mark.parametrize(("implementation", "name"), REFUSED)
def test_a_model_that_no_class_has_is_refused_with_what_is_missing(
    implementation: str, name: str, capsys: pytest.CaptureFixture[str],
) -> None:
    own, lacks = REFUSED[implementation, name]
    run = [name, "--gpu", "h100-80gb", "--implementation", implementation]
    for words in (["explain", *run], ["sweep", *run, "--num-gpus", "8", "--gbs", "8"],
                  ["recommend", *run, "--num-gpus", "8", "--gbs", "8"]):
        assert exit_code(words) == 2
        printed = capsys.readouterr().err
        assert f"must be one that has {name}: its nearest model class, {own}, has no {lacks}" in printed
        assert "nearest legal: megatron or huggingface" in printed


@pytest.mark.parametrize(("implementation", "family"), FAMILIES)
def test_a_family_that_no_class_has_is_refused(tmp_path: Path, implementation: str, family: str) -> None:
    own, lacks = FAMILIES[implementation, family]
    assert missing(implementation, read_config(tmp_path, {**usual_config(family), **KEYS.get(family, {})})) == (
        f"its nearest model class, {own}, has no {lacks}")


def test_biases_after_attention_alone_go_to_transformers(tmp_path: Path) -> None:
    model = read_config(tmp_path, {**LLAMA, "attention_bias": True})
    assert default_implementation(model) == "huggingface"
    assert "has no bias after attention without biases in the MLP" in missing("megatron", model)
    assert default_implementation(read_config(tmp_path, {**LLAMA, "attention_bias": True, "mlp_bias": True})) == (
        "megatron")


def test_tied_embeddings_in_torchtitan_have_the_kernels_of_its_qwen3(tmp_path: Path) -> None:
    for tied in (False, True):
        model = read_config(tmp_path, {**LLAMA, "tie_word_embeddings": tied})
        assert choices_of("torchtitan", model).get("rope") == ("cast" if tied else None)


def test_the_qwen2_of_nanotron_is_not_counted_yet() -> None:
    assert missing("nanotron", shardmath.Model.named("qwen2.5-7b")) == (
        "what its model class qwen2 keeps is not counted yet")
