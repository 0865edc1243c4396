"""Models from files: what a config.json says, and all that can be wrong with one."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.generated.definitions import WORDS
from shardmath.models.config_json import FAMILIES, WITH_TEXT
from shardmath.models.model import Model, load_model

#: What a config.json may call the activation of a gated MLP.
GATED = "'silu'" if len(WORDS["mlp"]) == 1 else f"one of {', '.join(map(repr, WORDS['mlp']))}"
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}
REMOVE = object()
SUPPORTED = f"must be one of {', '.join(sorted([*FAMILIES, *WITH_TEXT]))}"


def written(folder: Path, **changes: object) -> Path:
    """A config.json of Llama 3.1 8B with some keys changed or removed."""
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not REMOVE}
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


def test_from_config_equals_the_catalogue(tmp_path: Path) -> None:
    model = Model.from_config(written(tmp_path))
    catalogued = Model.named("llama-3.1-8b")
    assert model.model_dump(exclude={"name", "source"}) == catalogued.model_dump(exclude={"name", "source"})
    assert model.name == tmp_path.name
    assert load_model(str(tmp_path / "config.json")) == model


def test_the_name_is_the_files_own_if_it_has_one(tmp_path: Path) -> None:
    file = written(tmp_path).rename(tmp_path / "mine.json")
    assert Model.from_config(file).name == "mine"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_key_value_heads": REMOVE}, {"num_kv_heads": 32}),
        ({"num_key_value_heads": None}, {"num_kv_heads": 32}),
        ({"model_type": "mistral", "num_key_value_heads": REMOVE}, {"num_kv_heads": 8, "qkv_bias": False}),
        ({"model_type": "mistral", "num_key_value_heads": None}, {"num_kv_heads": 32}),
        ({"model_type": "mistral", "head_dim": None}, {"head_dim": 128}),
        ({"model_type": "mistral", "hidden_size": 5120, "head_dim": 128}, {"head_dim": 128}),
        ({"model_type": "qwen2", "num_key_value_heads": REMOVE}, {"num_kv_heads": 32, "qkv_bias": True}),
        ({"model_type": "qwen2"}, {"qkv_bias": True, "qk_norm": False, "head_dim": 128}),
        ({"model_type": "qwen3", "hidden_size": 2560}, {"head_dim": 128, "qk_norm": True, "qkv_bias": False}),
        ({"model_type": "qwen3", "hidden_size": 2560, "head_dim": 64}, {"head_dim": 64}),
        ({"hidden_size": 2048}, {"head_dim": 64}),
        ({"hidden_size": 2080}, {"head_dim": 65}),
        ({"tie_word_embeddings": REMOVE}, {"tied_embeddings": False}),
        ({"tie_word_embeddings": True}, {"tied_embeddings": True}),
        ({"attention_bias": True, "mlp_bias": True}, {"linear_bias": True, "qkv_bias": True, "mlp_bias": False}),
        ({"hidden_act": REMOVE, "attention_bias": REMOVE, "mlp_bias": REMOVE}, {}),
    ],
)
def test_defaults_are_those_of_transformers(
    tmp_path: Path, changes: dict[str, object], expected: dict[str, object]
) -> None:
    model = Model.from_config(written(tmp_path, **changes))
    assert model.model_dump(include=set(expected)) == expected


SIZES = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
]
NULLABLE = {"num_key_value_heads", "head_dim"}


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize(
    "value", [0, -1, 2**31 + 1, 1e30, 10**400, 4096.0, 0.5, "4096", True, [], {}, math.nan, math.inf]
)
def test_a_bad_size_is_refused_under_its_key(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Model.from_config(written(tmp_path, **{key: value}))
    assert caught.value.field == key  # and not a key that the value was combined with
    assert caught.value.rule.startswith("must be ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", [key for key in SIZES if key not in NULLABLE])
def test_null_and_missing_are_refused_under_their_key(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=rf"^{key} = None: must be an integer$"):
        Model.from_config(written(tmp_path, **{key: None}))
    with pytest.raises(InputError, match=rf"^{key} = absent: must be given$"):
        Model.from_config(written(tmp_path, **{key: REMOVE}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hidden_size": 0}, "hidden_size = 0: must be at least 1; nearest legal: 1"),
        ({"hidden_size": "4096"}, "hidden_size = '4096': must be an integer; nearest legal: 4096"),
        ({"vocab_size": 32000.0}, "vocab_size = 32000.0: must be an integer; nearest legal: 32000"),
        (
            {"num_key_value_heads": 5},
            "num_key_value_heads = 5: must divide num_attention_heads = 32; nearest legal: 4 or 8",
        ),
        (
            {"hidden_size": 4100},
            "hidden_size = 4100: must be a multiple of num_attention_heads = 32 where head_dim is absent; "
            "nearest legal: 4096 or 4128",
        ),
        ({"hidden_size": -100}, "hidden_size = -100: must be at least 1; nearest legal: 1"),
        ({"model_type": "qwen3", "head_dim": None}, "head_dim = None: must be an integer"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings = None: must be true or false"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1: must be true or false"),
        ({"hidden_act": "gelu"}, f"hidden_act = 'gelu': must be {GATED} in a gated MLP; nearest legal: 'silu'"),
        (
            {"model_type": "qwen2", "attention_bias": True},
            "attention_bias = True: must be false: transformers builds no such bias for this model_type; "
            "nearest legal: false",
        ),
        ({"attention_bias": None}, "attention_bias = None: must be true or false"),
        ({"model_type": "bert"}, f"model_type = 'bert': {SUPPORTED}"),
        ({"model_type": REMOVE}, "model_type = absent: must be there, as in every config.json of Transformers; "
                                 "nearest legal: llama"),
        ({"model_type": ["llama"]}, f"model_type = ['llama']: {SUPPORTED}"),
        (
            {"num_local_experts": 8},
            "num_local_experts = 8: must not be there: no model of this model_type has experts",
        ),
        (
            {"text_config": {}},
            "text_config = {}: must not be there: pass the config.json of the language model alone",
        ),
    ],
)
def test_wording(tmp_path: Path, changes: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        Model.from_config(written(tmp_path, **changes))
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "must not be empty"),
        (b" \n\n", "must not be empty"),
        (b'{\n  "hidden_size": 40', "must be complete JSON: .* at line 2, column "),
        (b"{'a': 1}", "must be complete JSON: .* at line 1, column 2"),
        (b"[1]", "must hold a JSON object, this is a list"),
        (b"7", "must hold a JSON object, this is a int"),
        (b"\xff\xfe\x00\x01", "must be UTF-8 text, this is binary"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "numbers and nesting of sane length"),
        (b'{"a": ' + b"[" * 10**5, "numbers and nesting of sane length"),
        (b" " * (2**24 + 1), "must be a config.json of at most 16777216 bytes"),
    ],
    ids=range(10),
)
def test_files_that_hold_something_else(tmp_path: Path, content: bytes, rule: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=rf"^model = .*: .*{rule}") as caught:
        load_model(file)
    assert str(caught.value).isprintable()


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert Model.from_config(file).hidden_size == 4096


def test_a_folder_is_refused_with_the_file_to_pass(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not of a folder$"):
        load_model(tmp_path)
    file = written(tmp_path)
    for look_up in (load_model, Model.from_config):
        with pytest.raises(InputError, match="not of a folder") as caught:
            look_up(tmp_path)
        assert caught.value.nearest == str(file)


def test_a_folder_of_results_does_not_hide_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "llama-3.1-8b"
    folder.mkdir()
    assert load_model("llama-3.1-8b") == Model.named("llama-3.1-8b")
    written(folder)  # now it may hold other dimensions than the catalogue: ask instead of guessing
    with pytest.raises(InputError, match="not of a folder"):
        load_model("llama-3.1-8b")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "broken.json").symlink_to(tmp_path / "gone")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for name in ("missing.json", "broken.json", "loop.json", "nul\0.json", "x" * 9999 + ".json"):
        with pytest.raises(InputError, match="must be the path of an existing file"):
            load_model(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match="must be a regular file"):
        load_model(tmp_path / "config.json")


def test_an_unreadable_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InputError, match="must be readable: Permission denied"):
        load_model(file)
