"""Files of families: the page makes the same models of them as the commands, or refuses them in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from families import CONFIGS
from oracles.extent import FULL, SEED

from shardmath.commands.page.families import usual_config
from shardmath.configuration.choosing import answered_choices
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.input.parameters import model_values
from shardmath.models.config_json import FAMILIES, model_of

PUBLIC = {name: item["config"] for name, item in json.loads(
    (Path(__file__).parents[1] / "data" / "public_configs.json").read_text(encoding="utf-8")).items()}
CASES = 20_000 if FULL else 2_000
#: Values of every type, for keys of every type.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, 7, 64, -1, 2**31, 2**31 + 1, 1.0, 0.5, 2.5, 1e-5, 1e-7, 4096.0, "4096", "x",
    "it's", "é", "gelu", "silu", [], {}, [1, 2], [2.0], ["full_attention"] * 4, ["sliding_attention"] * 4,
    ["sliding_attention", "full_attention"] * 2, {"rope_type": "yarn", "factor": 2.0}, {"type": "linear", "factor": -1},
    {"rope_type": "default", "rope_theta": 500_000, "partial_rotary_factor": 0.5}, {"a": {"b": 1}},
)
#: Models of files by the page, their kernels and remarks, or why there is none.
READ = """async (texts) => {
  await loadReaders();
  const { readConfig, kernelsOf, InputError } = shardmath.readers;
  return texts.map((text) => {
    try {
      const { model, remarks } = readConfig(text);
      return { model: JSON.parse(JSON.stringify(model)), remarks, kernels: JSON.parse(kernelsOf(model)) };
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      return { error: [error.field, error.rule, error.message] };
    }
  });
}"""
#: What the page takes over of a file, or why it does not.
TAKE = """async (texts) => {
  await loadReaders();
  return texts.map((text) => {
    fromLink("");
    try {
      fromConfig(text);
      const link = toLink();
      const { numbers, file } = state;
      const ignored = fromLink(link);
      return { numbers, file, ignored, again: [state.numbers, state.file] };
    } catch (error) {
      if (!(error instanceof Unread)) throw error;
      return { unread: error.message };
    }
  });
}"""
NAME = "this file"


def _expected(config: dict[str, Any]) -> dict[str, Any]:
    try:
        model, remarks = model_of(config, NAME, NAME)
    except InputError as error:
        return {"error": [error.field, error.rule, str(error)]}
    scaling = model.rope_scaling
    return {"model": {**model.model_dump(), "rope_scaling": scaling and scaling.model_dump(exclude_defaults=True)},
            "remarks": remarks, "kernels": [*map(_kernels, IMPLEMENTATIONS, [model] * len(IMPLEMENTATIONS))]}


def _kernels(implementation: str, model: Any) -> list[list[str]]:
    try:
        return sorted([axis, option] for axis, option in answered_choices(implementation, model).items())
    except InputError:
        return []


def _drawn(draw: Random) -> Iterator[dict[str, Any]]:
    """Yield files with some keys changed or left out."""
    files = [*map(usual_config, FAMILIES), *PUBLIC.values(), *CONFIGS.values()]
    for _ in range(CASES):
        config = dict(draw.choice(files))
        family = FAMILIES.get(config.get("model_type", ""))
        read = {key for field in family.model_fields for key in family.keys(field)} if family else set()
        keys = sorted({*config, *read})
        for key in draw.sample(keys, min(len(keys), draw.choice((1, 1, 1, 2)))):
            if draw.random() < 0.2:
                config.pop(key, None)
            else:
                config[key] = draw.choice(VALUES)
        yield config


def _same(read: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Tell whether the page answers as the commands; it names no nearest kind of scaled positions."""
    if "error" in expected and expected["error"][0].endswith("type"):
        return "error" in read and read["error"][:2] == expected["error"][:2]
    model = expected.get("model")
    if model is not None and model["rope_scaling"] is not None and read.get("model"):
        scaling = {name: value for name, value in read["model"]["rope_scaling"].items() if value}
        read = {**read, "model": {**read["model"], "rope_scaling": scaling}}
    return read == json.loads(json.dumps(expected))


def test_every_file_is_read_or_refused_as_by_the_commands(opened: Callable[..., Any]) -> None:
    tab = opened()
    configs = [*map(usual_config, FAMILIES), *PUBLIC.values(), *CONFIGS.values(), *_drawn(Random(SEED))]
    expected = [*map(_expected, configs)]
    for config, read, known in zip(configs, tab.evaluate(READ, [*map(json.dumps, configs)]), expected, strict=True):
        assert _same(read, known), (config, read, known)
    models = [item["model"] for item in expected if "model" in item]
    assert len(models) > CASES / 4
    assert sum("error" in item for item in expected) > CASES / 4


def test_the_page_takes_over_every_family(opened: Callable[..., Any], whole: Path) -> None:
    """All sizes of the published files and of each family's usual one, which the link holds too."""
    configs = {**{name: usual_config(name) for name in FAMILIES}, **PUBLIC}
    taken = opened(path=whole).evaluate(TAKE, [*map(json.dumps, configs.values())])
    unread = []
    for (name, config), item in zip(configs.items(), taken, strict=True):
        known = _expected(config)
        if "error" in known:
            assert item == {"unread": f"{known['error'][2]}."}, name
        elif "unread" in item:
            assert "must have the kernels of a model of this page" in item["unread"], name
            unread.append(name)
        else:
            model, _ = model_of(config, NAME, NAME)
            values = model_values(model)
            assert {size: item["numbers"][size] for size in values} == values, name
            assert item["ignored"] == [], name
            assert item["again"] == [item["numbers"], item["file"]], name
    assert not {*unread} & {*FAMILIES}
    assert sorted(unread) == NO_KERNELS


#: Published files with kernels that no model of the page has.
NO_KERNELS: list[str] = []
