"""Any config.json whatever makes a model or an InputError of one line, and does so at once."""

import json
from typing import Any

import pytest
from families import CONFIGS
from hypothesis import given
from hypothesis import strategies as st

from shardmath.errors import InputError
from shardmath.models.config_json import FAMILIES
from shardmath.models.model import Model

KEYS = sorted({key for config in CONFIGS.values() for key in config} | {"text_config", "rope_parameters", "head_dim"})
SMALL = {name: config for name, config in CONFIGS.items() if name.startswith("small")}
NUMBERS = st.integers() | st.sampled_from([0, 1, 2, 3, 2**31, 2**31 + 1, 10**400])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text() | st.sampled_from(sorted(FAMILIES)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def outcome(folder_factory: pytest.TempPathFactory, content: bytes) -> Model | InputError:
    """The model in a file of these bytes, or why there is none."""
    file = folder_factory.mktemp("model") / "config.json"
    file.write_bytes(content)
    try:
        found: Model | InputError = Model.from_config(file)
    except InputError as error:
        found = error
    assert str(found).isprintable()
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::shardmath.errors.InputWarning")
@given(st.sampled_from(sorted(SMALL)), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_any_values_make_a_model_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: dict[str, Any]
) -> None:
    found = outcome(tmp_path_factory, json.dumps({**SMALL[name], **changes}).encode())
    if isinstance(found, Model):
        assert found.num_attention_heads % found.num_kv_heads == 0
        assert Model(**found.model_dump()) == found


@pytest.mark.filterwarnings("ignore::shardmath.errors.InputWarning")
@given(st.sampled_from(sorted(SMALL)), st.sets(st.sampled_from(KEYS)))
def test_any_keys_may_be_missing(tmp_path_factory: pytest.TempPathFactory, name: str, gone: set[str]) -> None:
    found = outcome(tmp_path_factory, json.dumps({k: v for k, v in SMALL[name].items() if k not in gone}).encode())
    if isinstance(found, InputError) and found.rule == "must be given":
        assert found.field not in SMALL[name].keys() - gone


@given(st.binary(max_size=200))
def test_any_bytes_make_an_input_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert isinstance(outcome(tmp_path_factory, content), InputError)


@given(st.sampled_from(sorted(CONFIGS)), st.integers(0, 600))
def test_any_truncation_makes_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, length: int
) -> None:
    whole = json.dumps(CONFIGS[name]).encode()
    assert isinstance(outcome(tmp_path_factory, whole[: length % len(whole)]), InputError)
