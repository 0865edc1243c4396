"""What people train today: published config.json files, each read to the last parameter or refused by what is missing.

The table has the keys that decide shapes. ``parameters`` are those of the language model as Transformers builds it on
the meta device, without modules that predict further tokens, or those of the released weights where the code is not in
Transformers; ``released`` those that the released files state, images included, 0 where none is at hand, with
``buffers`` that are released too: biases of experts, which no gradient changes. ``answer`` is ``read``, or words of the
refusal.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from families import CONFIGS, DATA, parameters_by_part, parameters_in_the_ledger, read_config

from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.models.model import Model

PUBLIC: dict[str, dict[str, Any]] = json.loads((DATA / "public_configs.json").read_text())
READ = [name for name, row in PUBLIC.items() if row["answer"] == "read"]
#: Models of the catalogue that one of these files describes, with its name.
CATALOGUED = {
    name: repository for name, fields in read("models").items() for repository in PUBLIC
    if repository in fields["source"].replace(",", " ").split()
}

#: Files of all models of the catalogue that have one here.
FILES = {
    **{name: config for name, config in CONFIGS.items() if name in read("models")},
    **{name: PUBLIC[repository]["config"] for name, repository in CATALOGUED.items()},
}


def test_most_public_models_are_read() -> None:
    """Sixty of seventy-five is the aim; a row that is read once stays so."""
    assert len(READ) >= 60


@pytest.mark.parametrize("name", READ)
def test_every_parameter(name: str, tmp_path: Path) -> None:
    row = PUBLIC[name]
    model = read_config(tmp_path, row["config"]).model_copy(update={"num_mtp_layers": 0})
    parameters = parameters_in_the_ledger(model)["all"]
    assert parameters == row["parameters"]
    assert row["released"] == 0 or parameters <= row["released"]
    if "vision_config" not in row["config"] and row["released"]:
        assert parameters + row.get("buffers", 0) == row["released"]


@pytest.mark.parametrize("name", FILES)
def test_the_catalogue_says_what_the_file_says(name: str, tmp_path: Path) -> None:
    stated, file = Model.named(name), read_config(tmp_path, FILES[name])
    others = {"name", "source", "note", *(() if file.rope_scaling else ("rope_scaling",))}  # the row may leave it out
    others |= {"norm_epsilon"} if stated.norm_epsilon is None else set()  # papers without a file leave it out
    assert file.model_dump(exclude=others) == stated.model_dump(exclude=others)


@pytest.mark.parametrize("name", CATALOGUED)
def test_the_catalogue_has_the_parameters_of_the_file(name: str) -> None:
    assert sum(parameters_by_part(Model.named(name)).values()) == PUBLIC[CATALOGUED[name]]["parameters"]


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - READ))
def test_a_refusal_names_what_is_missing(name: str, tmp_path: Path) -> None:
    row = PUBLIC[name]
    with pytest.raises(InputError) as caught:
        read_config(tmp_path, row["config"])
    assert row["answer"] in str(caught.value)
