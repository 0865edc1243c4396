"""Derive the table of Megatron-Bridge's recipes from its wheel: `python -m validation.bridge_recipes FOLDER`.

The folder is that of the unpacked wheel. Its modules are parsed and followed, never imported.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from shardmath.formats.bridge.reading import CONTAINER, SECTIONS, built_outside, words_of
from shardmath.formats.bridge.wheel import ABSENT
from shardmath.formats.scripts.python_file import Interpreter
from shardmath.formats.scripts.python_values import UNKNOWN, Built, Function
from shardmath.formats.table import FOLDER

RELEASE = "0.3.1"
HEAD = f"""# Settings of the recipes of Megatron-Bridge {RELEASE}, of its precisions by name, and of its bridges from
# Hugging Face: facts of the wheel megatron-bridge (NVIDIA, Apache License 2.0), derived by
# `python -m validation.bridge_recipes`.
# `usual` are those of most recipes; a recipe has those in which it differs. `null` is None, `absent` no setting at all.
"""
RECIPES, PRECISIONS = "megatron/bridge/recipes", "megatron/bridge/training/mixed_precision.py"
#: Bridges of families that the catalogue has.
BRIDGES = {
    "llama": "llama/llama_bridge.py", "qwen2": "qwen/qwen2_bridge.py", "qwen3": "qwen/qwen3_bridge.py",
    "qwen3_moe": "qwen/qwen3_moe_bridge.py", "deepseek_v2": "deepseek/deepseek_v2_bridge.py",
    "deepseek_v3": "deepseek/deepseek_v3_bridge.py", "glm45": "glm/glm45_bridge.py",
    "gpt_oss": "gpt_oss/gpt_oss_bridge.py", "olmoe": "olmoe/olmoe_bridge.py",
}
#: Settings of a bridge that no tensor follows from, and those that are the model's.
_NOT_KEPT = (
    "transformer_layer_spec", "autocast_dtype", "normalization", "gated_linear_unit", "position_embedding_type",
    "rotary_percent", "seq_length", "moe_layer_freq", "moe_shared_expert_intermediate_size", "rope_scaling",
    "rope_scaling_factor", "mtp_num_layers", "make_vocab_size_divisible_by",
)


class Wheel:
    """Modules of the unpacked wheel, followed when a function of them is called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, dict[str, Any]] = {}
        self.interpreter = Interpreter("wheel", self.outside)

    def module(self, dotted: str) -> dict[str, Any] | None:
        """Return the names of a module; None for one that is not in the wheel."""
        path = self.root / f"{dotted.replace('.', '/')}.py"
        if dotted not in self.modules and path.is_file():
            self.interpreter.statements = 0
            self.modules[dotted] = {}
            self.interpreter.module(path.read_text(encoding="utf-8"), self.modules[dotted])
        return self.modules.get(dotted)

    def outside(self, dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return the result of a function of another module of the wheel, or the object of a class."""
        above, _, name = dotted.rpartition(".")
        if name == "apply_flex_dispatcher_backend":  # asks the GPU; what it sets on Hopper is said by the reader
            return None
        if name == "get_mixed_precision_config" and arguments:
            name = str(arguments[0]).replace("-", "_")
        function = (self.module(above) or {}).get(name)
        if isinstance(function, Function):
            return self.interpreter.call(function, arguments, keywords)
        made = built_outside(dotted, arguments, keywords)
        if isinstance(made, Built) and name.startswith("GPTProvider"):
            made.fields = {**class_fields(self.root / f"{above.replace('.', '/')}.py", name), **made.fields}
        return UNKNOWN if made is None else made


def class_fields(path: Path, name: str) -> dict[str, Any]:
    """Plain defaults of a class and of those below it in the same file."""
    classes = {node.name: node for node in ast.parse(path.read_text(encoding="utf-8")).body
               if isinstance(node, ast.ClassDef)}
    fields: dict[str, Any] = {}
    if name not in classes:
        return fields
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id != "GPTModelProvider":
            fields |= class_fields(path, base.id)
    for item in classes[name].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Constant):
            fields[ast.unparse(item.target)] = item.value.value
    return fields


def recipes(wheel: Wheel) -> dict[str, dict[str, Any]]:
    """Return settings of all recipes that need no argument."""
    recipes_by_name: dict[str, dict[str, Any]] = {}
    for path in (wheel.root / RECIPES / "common.py", *sorted((wheel.root / RECIPES).glob("*/*.py"))):
        if path.stem == "__init__" or path.parent.name.endswith(("_vl", "utils", "vl_dataset")):
            continue
        module = wheel.module(str(path.relative_to(wheel.root).with_suffix("")).replace("/", "."))
        for name, function in (module or {}).items():
            base = path.stem == "common" and name.endswith("_common")
            if isinstance(function, Function) and ("_config" in name or base):
                wheel.interpreter.statements = 0
                made = wheel.interpreter.call(function)
                if isinstance(made, Built) and made.name == CONTAINER and "model" in made.fields:
                    recipes_by_name[name] = dict(plain(made))
    return recipes_by_name


def plain(configuration: Built) -> dict[str, Any]:
    """Return settings as JSON has them: words, and null."""
    return {key: value if value is None or len(value) != 1 else value[0] for key, value in words_of(configuration)}


def precisions(wheel: Wheel) -> dict[str, dict[str, Any]]:
    """Return settings of all precisions that have a name."""
    module = wheel.module(PRECISIONS.removesuffix(".py").replace("/", ".")) or {}
    options = {}
    for name, function in module.items():
        if isinstance(function, Function) and name.endswith("_mixed"):
            made = wheel.interpreter.call(function)
            if isinstance(made, Built):
                fields = plain(Built(CONTAINER, {"mixed_precision": made}))
                options[name] = {key.partition(".")[2]: value for key, value in fields.items() if value is not None}
    return options


def bridges(root: Path) -> dict[str, dict[str, Any]]:
    """Return the plain values that each bridge assigns to the provider of a model."""
    families = {}
    for family, path in BRIDGES.items():
        tree = ast.parse((root / "megatron/bridge/models" / path).read_text(encoding="utf-8"))
        method = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                      and node.name == "provider_bridge")
        families[family] = {
            item.targets[0].attr: item.value.value for item in method.body
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Attribute)
            and isinstance(item.value, ast.Constant) and item.targets[0].attr not in _NOT_KEPT}
    return families


def derived(root: Path) -> str:
    """Return the table as TOML: settings that most recipes share, and those in which each differs."""
    wheel = Wheel(root)
    all_recipes = {name: {key: _word(value) for key, value in own.items()} for name, own in recipes(wheel).items()}
    counts = Counter((key, value) for own in all_recipes.values() for key, value in own.items())
    usual = {key: value for (key, value), count in sorted(counts.items()) if count > len(all_recipes) / 2}
    rows = {name: {**{key: value for key, value in sorted(own.items()) if usual.get(key) != value},
                   **dict.fromkeys((key for key in usual if key not in own), ABSENT)}
            for name, own in sorted(all_recipes.items())}
    other = {part: {name: {key: _word(row[key]) for key in sorted(row)} for name, row in sorted(table.items())}
             for part, table in (("precisions", precisions(wheel)), ("bridges", bridges(root)))}
    return HEAD + tomli_w.dumps({"release": RELEASE, "usual": usual, "recipes": rows, **other})


def _word(value: Any) -> str:
    """Return the text of a value, words of a list with a space between, ``null`` for none."""
    if isinstance(value, list | tuple):
        return " ".join(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    assert SECTIONS
    (FOLDER / "bridge_recipes.toml").write_text(derived(Path(sys.argv[1])), encoding="utf-8")
