"""Tables of docs/coverage.md, family by family: derived from the reader, the implementations and what the oracles try.

A family of Transformers is counted where an oracle draws it. Of the other implementations the oracles draw parts of
models; a family is counted there if each of its parts is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import NamedTuple

from families import ALIASES, CONFIGS, DATA, read_config
from ledger import test_experts_counted, test_gpt_counted, test_latent_counted, test_torchtitan_experts
from oracles.hugging_face import (
    huggingface,
    huggingface_experts,
    public_families,
    test_expert_families,
    test_expert_family_bytes,
    test_expert_family_steps,
    test_explained,
    test_family_steps,
    test_gpt2,
    test_gpt_neox,
    test_huggingface_experts,
    test_huggingface_families,
    test_huggingface_layer,
)
from oracles.megatron_core import (
    megatron_layouts,
    test_megatron_bounded,
    test_megatron_expert_mlps,
    test_megatron_expert_steps,
    test_megatron_gpt,
    test_megatron_mlp_moments,
    test_megatron_stage,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from shardmath.compiler.evaluators import find
from shardmath.configuration import model_classes
from shardmath.configuration.choosing import choices_of
from shardmath.errors import InputError
from shardmath.generated.definitions import UNTIMED
from shardmath.models.config_json import FAMILIES, family_of
from shardmath.models.model import Model
from shardmath.symbolic.choices import ARCHITECTURE
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.parameters import BY_LETTER


def _file(module: object) -> str:
    path = Path(str(getattr(module, "__file__", "")))
    return str(path.relative_to(Path(__file__).resolve().parents[2]))


COUNTED, ESTIMATED, NOT_YET, CANNOT = "counted", "estimated", "not yet", "cannot"
#: Architecture, and what follows from it.
PARTS = (*ARCHITECTURE, "biases")
#: Switches of a model that are no choice: letters that an oracle draws, and fields of models.
SWITCHES: Mapping[str, str] = {"bias": "qkv_bias", "qkn": "qk_norm"}
#: Switches that change moments of a step alone.
SWITCHES_OF_MOMENTS = ("shared_expert_gate",)
#: Parts that change moments of a step in Megatron-Core, whose attention makes none.
OF_MOMENTS: Mapping[str, tuple[str, ...]] = {"megatron": ("mlp", "norms", "layers", "biases", "shared_expert_gate")}
#: Kernels of a framework's own model classes.
OF_CLASSES: Mapping[str, tuple[str, ...]] = {"torchtitan": ("rope",)}
#: Classes of Transformers under two names.
SAME_CLASSES: Mapping[str, str] = {"kimi_k2": "deepseek_v3"}


class Cell(NamedTuple):
    """Words for parameters, saved bytes, peak and time, and what is missing."""

    parameters: str
    saved: str
    peak: str
    time: str
    why: str


@dataclass(frozen=True)
class Oracle:
    """A file of tests, with the families whose saved bytes it counts, and the parts of models."""

    file: str
    families: frozenset[str] = frozenset()
    parts: frozenset[tuple[str, str]] = frozenset()


def oracles() -> dict[str, tuple[Oracle, ...]]:
    """Return the oracles of saved bytes by implementation, with all that they try."""
    drawn = {model.config.model_type for draw in map(Random, range(12))
             for make in test_huggingface_experts.MAKERS.values()
             for model, _ in [make(draw, huggingface_experts.random_shape(draw) | {"E": 8, "q": 2})]}
    return {
        "huggingface": (
            _of(test_huggingface_layer, huggingface.FAMILIES), _of(test_huggingface_families, public_families.FAMILIES),
            _of(test_huggingface_experts, drawn), _of(test_gpt2, ["gpt2"]), _of(test_gpt_neox, ["gpt_neox"]),
            _of(test_expert_family_bytes, {family.__name__ for family, _ in test_expert_family_bytes.FAMILIES}),
        ),
        "megatron": (
            _parts(test_megatron_stage, megatron_layouts.VARIANTS.values(), {
                field: ("true",) for letter, field in SWITCHES.items()
                if letter in megatron_layouts.random_layout(Random(0), "fused")}),
            _parts(test_megatron_gpt, test_megatron_gpt.VARIANTS.values(), test_megatron_gpt.DRAWN),
            _parts(test_megatron_bounded, [(test_megatron_bounded.BOUNDED,)]),
            _parts(test_megatron_expert_mlps, (), test_megatron_expert_mlps.DRAWN),
            _parts(test_gpt_counted, test_gpt_counted.VARIANTS.values()),
            _parts(test_experts_counted, test_experts_counted.VARIANTS.values()),
            _parts(test_latent_counted, test_latent_counted.VARIANTS.values()),
        ),
        "torchtitan": (
            Oracle("tests/ledger/test_torchtitan_counted.py", parts=_options([IMPLEMENTATIONS["torchtitan"]])),
            # Its rows of Qwen3 have norms of queries and keys.
            Oracle(_file(test_torchtitan_experts),
                   parts=_options(test_torchtitan_experts.counted()) | {("qk_norm", "true")}),
        ),
        "nanotron": (Oracle("tests/ledger/test_nanotron_runs.py", parts=_options([IMPLEMENTATIONS["nanotron"]])),),
    }


def peaks(saved: Mapping[str, tuple[Oracle, ...]]) -> dict[str, tuple[Oracle, ...]]:
    """Return the oracles of the most that is alive in a step by implementation, some of which count saved bytes too."""
    return {
        "huggingface": (
            _of(test_explained, huggingface.FAMILIES),
            _of(test_family_steps, (*test_family_steps.WALKED, *test_family_steps.APART)),
            _of(test_expert_family_steps, test_expert_family_steps.FAMILIES),
        ),
        "megatron": (
            _parts(test_megatron_mlp_moments, (), test_megatron_mlp_moments.DRAWN),
            _parts(test_megatron_expert_steps, (), test_megatron_expert_steps.DRAWN),
        ),
        "torchtitan": saved["torchtitan"][:1],
        "nanotron": saved["nanotron"],
    }


def _of(module: object, families: Iterable[str]) -> Oracle:
    return Oracle(_file(module), families=frozenset(families))


def _parts(module: object, variants: Iterable[tuple[object, ...]],
           drawn: Mapping[str, tuple[str, ...]] | None = None) -> Oracle:
    """The parts of Megatron-Core's variants, and those that are drawn."""
    implementations = [part for variant in variants for part in variant if isinstance(part, Implementation)]
    own = [each for each in implementations if each.framework == "megatron"]
    more = {(axis, option) for axis, options in (drawn or {}).items() for option in options}
    return Oracle(_file(module), parts=_options(own) | more)


def _options(implementations: Iterable[Implementation]) -> frozenset[tuple[str, str]]:
    return frozenset((axis, each.choices[axis]) for each in implementations for axis in (*PARTS, "rope"))


def models() -> dict[str, Model]:
    """Return one model of each family: a published one, the table's small one, or that of its class's defaults."""
    public = json.loads((DATA / "public_configs.json").read_text())
    configs = [*(row["config"] for row in public.values() if row["answer"] == "read"), *CONFIGS.values()]
    models_of: dict[str, Model] = {}
    with TemporaryDirectory() as folder:
        for config in configs:
            family, _, _ = family_of(config)
            if family not in models_of:
                models_of[family] = read_config(Path(folder), config)
        for family in FAMILIES.keys() - models_of - ALIASES.keys():
            models_of[family] = read_config(Path(folder), CONFIG_MAPPING[family]().to_dict())
    return models_of


def cell(
    implementation: str, family: str, model: Model, tried: Iterable[Oracle], of_peaks: Iterable[Oracle],
    parameters: bool,
) -> Cell:
    """Say what of a family is counted in an implementation, by oracles of saved bytes and of peaks."""
    for axis, (options, why) in IMPLEMENTATIONS[implementation].lacking.items():
        if (option := {**model.architecture, "biases": model.biases}[axis]) in options:
            return Cell(CANNOT, CANNOT, CANNOT, CANNOT, f"{axis} = {option}: {why}")
    lacks = model_classes.missing(implementation, model)
    if "has no" in lacks:
        return Cell(CANNOT, CANNOT, CANNOT, CANNOT, lacks)
    try:
        of_model = choices_of(implementation, model)
        chosen = find(implementation, of_model).choices
        refuse_impossible(chosen)
    except InputError as error:
        own = "router of its classes" if error.field == "implementation" else f"{error.field} = {error.value}"
        return Cell(NOT_YET, NOT_YET, NOT_YET, NOT_YET, own)
    except ValueError as error:
        return Cell(NOT_YET, NOT_YET, NOT_YET, NOT_YET, str(error).removeprefix("not counted yet: "))
    if lacks:
        return Cell(NOT_YET, NOT_YET, NOT_YET, NOT_YET, lacks)
    known = IMPLEMENTATIONS[implementation]
    refused = {letter: f"{name} = {int(getattr(model, name))}" for letter, value in known.fixed.items()
               if int(getattr(model, name := BY_LETTER[letter].name, value)) != value}
    if refused:
        is_there = bool(refused.keys() & known.uncounted.keys())
        word, why = (NOT_YET, "") if is_there else (CANNOT, ": no layer there has it")
        return Cell(word, word, word, word, ", ".join(refused.values()) + why)
    wanted = {(axis, chosen[axis]) for axis in (*PARTS, *OF_CLASSES.get(implementation, ()))}
    wanted |= {(field, "true") for field in SWITCHES.values() if getattr(model, field) and not model.linear_bias}
    missing = _untried(family, wanted, tried)
    saved = ESTIMATED if missing else COUNTED
    alive, reason = _peak(implementation, chosen)
    if alive and of_model.get("peak") == "saved":
        alive, reason = False, _SAVED_ALONE[implementation]
    wanted |= {(field, "true") for field in SWITCHES_OF_MOMENTS if getattr(model, field)}
    axes = OF_MOMENTS.get(implementation, (*PARTS, *SWITCHES.values(), "rope"))
    unmoved = _untried(family, {pair for pair in wanted if pair[0] in axes}, of_peaks)
    peak = NOT_YET if not alive else ESTIMATED if unmoved else saved
    why = [f"no oracle tries {', '.join(missing)}"] if missing else []
    if peak == ESTIMATED and not missing:
        why.append(f"no oracle of peaks tries {', '.join(unmoved)}")
    works = (UNTIMED.get(axis, {}).get(option) for axis, option in chosen.items())
    untimed = [f"no step time: {work}" for work in works if work]
    return Cell(COUNTED if parameters else ESTIMATED, saved, peak, NOT_YET if untimed else ESTIMATED,
                "; ".join([*why, *([reason] if reason else []), *untimed]))


def _untried(family: str, wanted: Iterable[tuple[str, str]], tried: Iterable[Oracle]) -> list[str]:
    """List what of a family none of the oracles tries: parts of models, or the family where oracles draw families."""
    listed = {name for oracle in tried for name in oracle.families}
    if listed:
        return [] if SAME_CLASSES.get(family, family) in listed else ["the family"]
    parts = {pair for oracle in tried for pair in oracle.parts}
    return [" = ".join(pair) for pair in sorted(set(wanted) - parts)]


#: Why saved tensors alone are the usual peak of models whose moments can be counted.
_SAVED_ALONE = {"torchtitan": "moments are counted with FSDP2 alone, if asked for: peak = torch"}


def _peak(implementation: str, chosen: Mapping[str, str]) -> tuple[bool, str]:
    """Tell whether the moments of a step are counted with these choices, and why not."""
    allowed = IMPLEMENTATIONS[implementation]
    for option in ("megatron_te", "torch"):
        if option in allowed.options("peak"):
            try:
                changed = allowed.with_choices(**{**chosen, "peak": option})
                if chosen["peak"] == "saved" and implementation == "megatron":
                    return False, "moments of a step are not counted: peak = saved"
                refuse_impossible(changed.choices)
            except ValueError as error:
                return False, str(error).removeprefix("not counted yet: ").split(":")[0]
            return True, ""
    return True, ""


def rows() -> Iterator[tuple[str, Cell, tuple[str, ...]]]:
    """Yield implementation, cell and the families of which it holds, in the order of the implementations."""
    known, tried = models(), oracles()
    of_peaks = peaks(tried)
    public = json.loads((DATA / "public_configs.json").read_text())
    counted = {row["config"]["model_type"] for row in public.values() if row["answer"] == "read"}
    counted |= {config["model_type"] for config in CONFIGS.values()}
    counted |= {name for oracle in tried["huggingface"] for name in oracle.families}
    counted |= {each.__name__ for each in test_expert_families.FAMILIES}
    readers = {FAMILIES[name] for name in counted & {*FAMILIES}}
    counted |= {name for name, reader in FAMILIES.items() if reader in readers}
    order = (COUNTED, ESTIMATED, NOT_YET, CANNOT)
    for implementation in IMPLEMENTATIONS:
        grouped: dict[Cell, list[str]] = defaultdict(list)
        for family in sorted(FAMILIES):
            model = known.get(family) or known[ALIASES[family]]
            oracles_of = tried[implementation], of_peaks[implementation]
            grouped[cell(implementation, family, model, *oracles_of, family in counted)].append(family)
        yield from ((implementation, each, tuple(names)) for each, names in sorted(
            grouped.items(), key=lambda item: (*map(order.index, item[0][:4]), item[0].why)))


def tables() -> str:
    """Return the tables of docs/coverage.md."""
    tried = oracles()
    of_peaks = peaks(tried)
    found: dict[str, list[tuple[Cell, tuple[str, ...]]]] = defaultdict(list)
    for implementation, each, families in rows():
        found[implementation].append((each, families))
    return "\n\n".join("\n".join((
        f"### `{name}`", "", "| families | parameters | saved bytes | peak | time | what is missing |",
        "|---|---|---|---|---|---|",
        *(f"| {', '.join(f'`{family}`' for family in families)} | {' | '.join(each[:4])} | {each.why or '-'} |"
          for each, families in lines),
        "", fill(f"Saved bytes: {_files(tried[name])}. Peak: {_files(of_peaks[name])}.", 120, break_on_hyphens=False),
    )) for name, lines in found.items())


def _files(oracles_of: Iterable[Oracle]) -> str:
    return ", ".join(f"`{oracle.file}`" for oracle in oracles_of)
