"""Tables of formats against what the programs install: every setting has a row, and defaults are the program's.

The classes are parsed, never imported. A program is looked for among the installed packages, and as an unpacked wheel
in the folder that the environment variable ``WHEELS`` names.
"""

from __future__ import annotations

import ast
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardmath.formats.options import Options
from shardmath.formats.table import FOLDER, row_of, table, translated
from shardmath.formats.trainers.reading import weights_of
from shardmath.formats.trainers.sharding import autocast_of
from validation import bridge_recipes

pytestmark = pytest.mark.oracle

#: By format: the distribution, its modules with settings, and classes in them that are no settings of a training run.
CLASSES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "transformers": ("transformers", ("transformers/training_args.py",), ()),
    "trl": ("trl", ("trl/trainer/base_config.py", "trl/trainer/sft_config.py", "trl/trainer/model_config.py"), ()),
    "trl_dpo": ("trl", ("trl/trainer/base_config.py", "trl/trainer/dpo_config.py", "trl/trainer/model_config.py"), ()),
    "trl_kto": ("trl", ("trl/trainer/base_config.py", "trl/trainer/kto_config.py", "trl/trainer/model_config.py"), ()),
    "trl_orpo": ("trl", ("trl/trainer/base_config.py", "trl/experimental/orpo/orpo_config.py",
                         "trl/trainer/model_config.py"), ()),
    "trl_cpo": ("trl", ("trl/trainer/base_config.py", "trl/experimental/cpo/cpo_config.py",
                        "trl/trainer/model_config.py"), ()),
    "trl_reward": ("trl", ("trl/trainer/base_config.py", "trl/trainer/reward_config.py",
                           "trl/trainer/model_config.py"), ()),
    "axolotl": ("axolotl", ("axolotl/utils/schemas/*.py",), (
        "SFTDataset", "DPODataset", "KTODataset", "PretrainingDataset", "StepwiseSupervisedDataset", "SyntheticDataset",
        "UserDefinedPrompterType", "UserDefinedDPOType", "UserDefinedKTOType", "VllmConfig", "TRLConfig", "EBFTConfig",
        "FSDPConfig", "PTQConfig", "QATConfig", "SpecialTokensConfig", "LrGroup", "DynamicCheckpointConfig",
        "RoleBoundarySpec", "FP8Config", "LoftQConfig", "SelectiveCheckpointingConfig", "AxolotlConfigWCapabilities")),
    "llamafactory": ("llamafactory", ("llamafactory/hparams/*args.py",), ()),
    "swift": ("ms-swift", ("swift/arguments/base_args/*.py", "swift/arguments/sft_args.py",
                           "swift/arguments/tuner_args.py", "swift/trainers/arguments.py"), ()),
    "accelerate": ("accelerate", ("accelerate/commands/config/config_args.py",), ("SageMakerConfig",)),
}
#: Defaults that a table states, as the classes have them: class, field, and the setting of the vocabulary.
DEFAULTS = (
    ("transformers", "TrainingArguments", "per_device_train_batch_size", "per_device_train_batch_size"),
    ("trl", "_BaseConfig", "gradient_checkpointing", "gradient_checkpointing"),
    ("trl", "SFTConfig", "max_length", "max_length"), ("trl", "ModelConfig", "lora_r", "lora_r"),
    ("axolotl", "AxolotlInputConfig", "sequence_len", "max_length"),
    ("llamafactory", "DataArguments", "cutoff_len", "max_length"),
    ("swift", "TrainArgumentsMixin", "per_device_train_batch_size", "per_device_train_batch_size"),
    ("swift", "TrainArgumentsMixin", "gradient_checkpointing", "gradient_checkpointing"),
)


def installed(name: str) -> Path:
    """The folder of a distribution; skips the test where there is none."""
    folder = os.environ.get("WHEELS")
    if folder:
        unpacked = Path(folder) / name.replace("-", "_")
        if unpacked.is_dir():
            return unpacked
    try:
        return Path(str(distribution(name).locate_file("")))
    except PackageNotFoundError:
        pytest.skip(f"{name} is neither installed nor unpacked in WHEELS")


def fields(path: Path) -> Iterator[tuple[str, str, ast.expr | None]]:
    """Class, name and default of every annotated field of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield node.name, item.target.id, default_of(item.value)


def default_of(value: ast.expr | None) -> ast.expr | None:
    if isinstance(value, ast.Call):
        stated = {keyword.arg: keyword.value for keyword in value.keywords}
        return stated.get("default", value.args[0] if value.args else None)
    return value


def settings_of(format: str) -> dict[tuple[str, str], ast.expr | None]:
    name, patterns, others = CLASSES[format]
    root = installed(name)
    modules = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    assert modules, f"{name} has none of {patterns}"
    return {(kind, field): default for path in modules for kind, field, default in fields(path)
            if kind not in others and not field.startswith("_") and field.islower()}


def test_recipes_of_megatron_bridge_are_those_of_its_wheel() -> None:
    root = installed("megatron-bridge")
    assert bridge_recipes.derived(root) == (FOLDER / "bridge_recipes.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", CLASSES)
def test_every_setting_of_the_program_has_a_row(format: str) -> None:
    known = table(format)
    rows = {*known.own, *known.idle, *known.means, *known.opposite, *known.words, *known.files, *known.uncounted,
            *known.refused}
    tables = {row.partition(".")[0] for row in rows if "." in row}
    missing = {field for _, field in settings_of(format)
               if row_of(field, rows) is None and f"{field}.*" not in rows and field not in tables}
    assert missing == set()


@pytest.mark.parametrize(("format", "kind", "field", "setting"), DEFAULTS)
def test_defaults_are_those_of_the_program(format: str, kind: str, field: str, setting: str) -> None:
    default = settings_of(format)[kind, field]
    assert default is not None
    assert str(ast.literal_eval(default)).lower() == table(format).defaults[setting]


class Settings(dict[str, Any]):
    """Settings by attribute, None where there are none, as Axolotl's own class of them has it."""

    __setattr__ = dict.__setitem__
    __getattr__ = dict.get


def function_of(path: Path, name: str, **around: object) -> Callable[..., None]:
    """A function of a module, made of its own source alone with what is ``around`` it."""
    source = next(node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                  if isinstance(node, ast.FunctionDef) and node.name == name)
    exec(compile(ast.Module([source], []), str(path), "exec"), around)
    return around[name]  # type: ignore[return-value]


@pytest.mark.parametrize("words", [*itertools.product(
    ("auto", True, False), (None, True, False), (None, True), (None, True), (None, True))], ids=str)
def test_types_of_axolotl_are_those_that_its_own_functions_resolve(words: tuple[Any, ...]) -> None:
    """All words of its five keys of precision, on a GPU that has bf16: type of the weights, and of the autocast."""
    root = installed("axolotl")
    gpu = SimpleNamespace(bfloat16="bfloat16", float16="float16", float32="float32")
    resolve = function_of(root / "axolotl/utils/config/__init__.py", "resolve_dtype", torch=gpu,
                          LOG=logging.getLogger(), is_torch_bf16_gpu_available=lambda: True)
    configure = function_of(root / "axolotl/core/builders/base.py", "_configure_precision_settings")
    stated = dict(zip(("bf16", "fp16", "bfloat16", "float16", "load_in_8bit"), words, strict=True))
    settings, training = Settings(stated), {}  # type: ignore[var-annotated]
    resolve(settings)
    configure(SimpleNamespace(cfg=settings), training)
    said = {key: (str(word).lower(),) for key, word in stated.items() if word is not None}
    options = translated(table("axolotl"), Options(said, shown=str)).options
    assert weights_of(options) == ("float32" if settings.torch_dtype == "float32" else "bfloat16")
    autocasts = [name for name in ("bf16", "fp16") if training[name]]
    assert autocast_of(options) in (autocasts or [""])  # with both of them Transformers starts nothing
