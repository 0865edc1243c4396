"""A new option costs one component file and one line; an option without rows is refused by its name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from shardmath import InputError
from shardmath.compiler.evaluators import find
from shardmath.symbolic.accounts.aggregates import AGGREGATES
from shardmath.symbolic.accounts.options import named_options, refuse_without_rows
from shardmath.symbolic.choices import ARCHITECTURE, AXES, BY_NAME
from shardmath.symbolic.implementations import IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.parallel.uncounted import refuse_impossible

ROOT = Path(__file__).resolve().parents[2]
#: What makes the file of GELU, which has three more activations, that of another MLP.
RENAMED = {
    '("gelu",), ("relu",), ("relu2",), ("xielu",)': '("cubed",), (), (), ()',
    '"gelu", "GELU MLP"': '"cubed", "Cubed ReLU MLP"',
}
OPTION = '        "gelu": "up and down projection with GELU",\n'

TERMS = """
from sympy import Symbol

from shardmath.symbolic.accounts import build
from shardmath.symbolic.implementations import MEGATRON

def terms(mlp):
    chosen = MEGATRON.with_choices(mlp=mlp, normalisation="layer", biases="linear", peak="megatron_te")
    named = lambda text: text.replace(mlp, "MLP")
    alike = lambda one: one.xreplace({name: Symbol(named(name.name)) for name in one.free_symbols})  # in one order
    return {named(name): named(str(alike(term.expression))) for name, term in build(chosen).terms.items()}

theirs, ours = terms("gelu"), terms("cubed")
assert ours == theirs, {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
assert {"stage.mlp_dummies.buffer", "stage.mlp_gradients.layer_backward", "MLP.saved"} <= ours.keys()
"""
#: Aggregates of one kind of model that others have nothing of, by name.
_OF_ONE_KIND = {
    "balance_forward": "dense layers have no balancing loss", "balance_backward": "dense layers have no balancing loss",
    **dict.fromkeys(("combined_results", "recomputed_experts", "recomputed_results", "quantised_inputs",
                     "quantised_gradients", "dense_behind"), "dense layers have no experts"),
    **dict.fromkeys(("bound_behind", "bound_at_first", "bound_in_the_end"),
                    "only a dispatcher of tokens binds a graph"),
    **dict.fromkeys(("passed_gradients", "layer_temporaries", "recomputed_layer"),
                    "layers_at_work has them for each kind of layer of models with experts"),
    "gathered_forward": "gathered_last has it for models with experts, where the embedding is a unit",
    "layers_at_work": "dense models without units of FSDP2 have a line for each of its parts",
    **dict.fromkeys(("layer_forward", "gathered_last"),
                    "gathered_forward has the forward pass of dense layers"),
    "received_gradient": "only the forward pass of experts is a moment at which it is still bound",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package whose axis ``mlp`` has an option more."""
    package = tmp_path / "shardmath"
    package.mkdir()
    shutil.copytree(ROOT / "symbolic", package / "symbolic", ignore=shutil.ignore_patterns("__pycache__"))
    others = [ROOT / name for name in ("generated", "templates", "catalogue")]
    for part in (*(ROOT / "src" / "shardmath").iterdir(), *others):
        (package / part.name).symlink_to(part)
    choices = package / "symbolic" / "choices.py"
    text = choices.read_text(encoding="utf-8")
    assert text.count(OPTION) == 1
    choices.write_text(text.replace(OPTION, OPTION + OPTION.replace("gelu", "cubed")), encoding="utf-8")
    return package


def run(package: Path) -> subprocess.CompletedProcess[str]:
    """Compare the terms of both MLPs in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", TERMS], cwd=package.parent, env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True, text=True, check=False,
    )


@pytest.mark.slow
def test_a_new_mlp_has_dummies_moments_and_all_other_terms(package: Path) -> None:
    text = (package / "symbolic" / "components" / "gelu.py").read_text(encoding="utf-8")
    for before, after in RENAMED.items():
        assert before in text
        text = text.replace(before, after)
    (package / "symbolic" / "components" / "cubed.py").write_text(text, encoding="utf-8")
    result = run(package)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_an_option_without_rows_is_refused_by_its_name(package: Path) -> None:
    result = run(package)
    assert "ValueError: mlp = cubed has no rows: add rows or a component that name it" in result.stderr


def test_every_option_is_named_by_a_row_or_said_to_need_none() -> None:
    named = named_options()
    for axis in AXES:
        assert set(axis.rowless) <= set(axis.options), axis.name
        assert {option for option in axis.options if (axis.name, option) not in named} <= set(axis.rowless), axis.name


def test_unknown_options_are_refused() -> None:
    for implementation in IMPLEMENTATIONS.values():
        refuse_without_rows(implementation.choices)
    with pytest.raises(ValueError, match="norm = power_norm has no rows"):
        refuse_without_rows({**MEGATRON.choices, "norm": "power_norm"})


def test_an_aggregate_of_one_kind_of_model_is_not_lost_for_others() -> None:
    """Where a moment was counted for one kind of model alone, the same moment of another kind is refused."""
    lost = set()
    for aggregate, axis in ((one, axis) for one in AGGREGATES for axis in one.options.keys() & {*ARCHITECTURE}):
        counted = {name: options[0] for name, options in aggregate.options.items()}
        for implementation, option in product(IMPLEMENTATIONS.values(), BY_NAME[axis].options):
            if option in aggregate.options[axis] or not _is_counted(implementation, counted):
                continue
            others = {**counted, axis: option}
            if _is_counted(implementation, others):
                choices = implementation.with_choices(**others).choices
                alike = (other for other in AGGREGATES if other.name == aggregate.name)
                if not any(all(choices[name] in options for name, options in other.options.items())
                           for other in alike):
                    lost.add(aggregate.name)
    assert lost == _OF_ONE_KIND.keys()


def _is_counted(implementation: Implementation, choices: dict[str, str]) -> bool:
    if any(option not in implementation.options(name) for name, option in choices.items()):
        return False
    try:
        refuse_impossible(implementation.with_choices(**choices).choices)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("axis", "option", "others"), [
    ("positions", "alibi", {"attention": "eager"}), ("router", "huggingface_mixer", {"layers": "experts"}),
    ("attention", "flash", {"heads": "latent"}),
])
def test_moments_of_pytorchs_own_step_are_refused_where_nobody_counted_them(
    axis: str, option: str, others: dict[str, str],
) -> None:
    with pytest.raises(InputError, match=f"{axis} = {option} with the moments of PyTorch's own step"):
        find("huggingface", {"peak": "torch", axis: option, **others})
