"""Read ``config.json`` on the page: keys and rules of families, and the reader of the commands in JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AliasChoices, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from shardmath.catalogue import read
from shardmath.commands.page.programs import REPLACED, settings_lines, table_data
from shardmath.commands.page.translating import Translation
from shardmath.configuration.choosing import answered_choices
from shardmath.errors import InputError, inside, nearest_names, shortened
from shardmath.generated.definitions import IMPLEMENTATIONS, PARAMETERS
from shardmath.models.config_json import FAMILIES, family_of, model_of
from shardmath.models.dense_families import Family, counted_instead
from shardmath.models.model import Model
from shardmath.models.remarks import WITHOUT_EFFECT
from shardmath.models.rules import refuse_contradictions

#: Usual values of fields that some family must have; no two sizes are the same.
_NEEDED: Mapping[str, Any] = {
    "hidden_size": 1024, "ffn_hidden_size": 2816, "num_layers": 12, "num_attention_heads": 8, "vocab_size": 32000,
    "max_seq_length": 4096, "num_experts": 16, "moe_topk": 2, "moe_ffn_hidden_size": 512,
    "shared_expert_ffn_hidden_size": 768, "kv_lora_rank": 448, "qk_nope_head_dim": 112, "qk_rope_head_dim": 48,
    "v_head_dim": 80, "num_mtp_layers": 1, "norm_topk_prob": True,
}
_LIMITS: Mapping[type, str] = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt"}
_KINDS: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}


def family_models(models: Iterable[Model]) -> list[Model]:
    """Return small models of families whose kernels no model has: their files need formulas of their own.

    One model stands for all files with the same kernels: the usual file of each family, and published files with other
    kernels than these, as far as their keys decide it.
    """
    kernels = {kernels_of(model) for model in models}
    small: dict[str, Model] = {}
    for model_type, keys in (*((name, {}) for name in FAMILIES), *published_keys()):
        name = "-".join((model_type, *keys))
        model, _ = model_of({**usual_config(model_type), **keys}, name, model_type)
        if kernels_of(model) not in kernels:
            small.setdefault(kernels_of(model), model)
    return list(small.values())


def published_keys() -> list[tuple[str, dict[str, Any]]]:
    """Return the families of published files whose kernels neither the catalogue nor usual files have, with the keys.

    A test derives the table from the published files.
    """
    families = []
    for row in read("public_kernels").values():
        keys = {**row["keys"], **dict.fromkeys(row.get("null", ()))}
        families.append((row["model_type"], keys))
    return families


def config_data() -> dict[str, Any]:
    """Return the fields of a file that change no number of the page, but files that it writes."""
    fields = fields_of(Model)
    return {"unsized": [name for name, field in fields.items() if name not in PARAMETERS
                        and (field.get("kind") in ("int", "float") or name == "rope_scaling")]}


def reader_script() -> str:
    """Return JavaScript that reads ``config.json`` and settings of other programs as the commands do."""
    from shardmath.files.rendering import text_of

    translation = Translation(
        {Family.keys.__func__: "", Family.read.__func__: "", inside: "inside", shortened: "shortened",  # type: ignore[attr-defined]
         nearest_names: "nearestNames", **REPLACED},
        {"FAMILIES": FAMILIES},
    )
    functions: dict[str, Callable[..., Any]] = {
        "read": model_of, "family": family_of, "kernels": answered_choices, "rules": refuse_contradictions}
    names = {name: translation.of(function) for name, function in functions.items()}
    kinds = {kind.__name__: kind for family in FAMILIES.values() for kind in reversed(family.__mro__)
             if issubclass(kind, Family)}
    methods = {name: translation.methods(kind) for name, kind in kinds.items()}
    properties = _named(translation.properties(Model))
    settings = settings_lines(translation)
    return "\n".join((
        "(globalThis.shardmath ??= {}).readers = (() => {",
        text_of("page/python.js"), text_of("page/families.js"), text_of("page/nested.js"),
        text_of("page/shell.js"), text_of("page/settings.js"),
        f"const TABLES = {json.dumps(table_data())};",
        f"const SPECS = {json.dumps({name: family_data(family) for name, family in FAMILIES.items()})};",
        f"const FIELDS = {json.dumps(fields_of(Model))};",
        f"const METHODS_OF = {{ {', '.join(f'{name}: {_named(own)}' for name, own in methods.items())} }};",
        f"const PROPERTIES = {properties};",
        f"const IMPLEMENTATIONS = {json.dumps([*IMPLEMENTATIONS])};",
        *translation.texts(),
        "const FAMILIES = new Map(Object.entries(SPECS).map(([name, data]) => [name, familyOf(data)]));",
        "modelOf.model_fields = mapOf(FIELDS);",
        f"const reader = {_named({**names, 'idle': json.dumps(sorted(WITHOUT_EFFECT))})};",
        *settings,
        "return { InputError, Unwritten, modelOf, readConfig, kernelsOf, readProgram, TABLES };", "})();",
    ))


def _named(functions: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'{name}: {function}' for name, function in functions.items())} }}"


def family_data(family: type[Family]) -> dict[str, Any]:
    """Return the fields and classes of a family, and the constants of these."""
    kinds = [kind for kind in family.__mro__ if issubclass(kind, Family)]
    return {
        "kinds": [kind.__name__ for kind in kinds], "fields": fields_of(family),
        "before": [*reversed(family.__pydantic_decorators__.model_validators)],
        "own": {name: getattr(family, name) for name in dict.fromkeys(
            name for kind in kinds for name in sorted(getattr(kind, "__class_vars__", ())))
            if isinstance(getattr(family, name), bool | int)},
        "derived": family.derived_from,
    }


def fields_of(record: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the fields of a record, each with its keys, default, kind and limits."""
    return {name: _field(name, info) for name, info in record.model_fields.items()}


def _field(name: str, info: FieldInfo) -> dict[str, Any]:
    alias = info.validation_alias
    keys = [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
    default = {} if info.is_required() else {"default": info.get_default(call_default_factory=True)}
    return {"keys": keys, **default, **_kind(info.annotation, info.metadata)}


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> dict[str, Any]:
    """Return the type of a value, whether it may be null, its limits, and the only values that it may have."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    null = type(None) in get_args(annotation)
    inner, more = (kinds[0], ()) if null and len(kinds) == 1 else (annotation, ())
    if hasattr(inner, "__metadata__"):
        inner, more = get_args(inner)[0], inner.__metadata__
    rules: dict[str, Any] = {"null": True} if null else {}
    for item in (part for outer in (*metadata, *more) for part in getattr(outer, "metadata", (outer,))):
        if isinstance(item, BeforeValidator):
            rules["only"] = item.func.__self__._asdict()  # type: ignore[union-attr]
        for bound, limit in _LIMITS.items():
            if isinstance(item, bound):
                rules[limit] = getattr(item, limit)
    if get_origin(inner) is list:
        rules |= {"kind": "list", "items": _kind(get_args(inner)[0])}
    elif inner in _KINDS:
        rules["kind"] = _KINDS[inner]
    return rules


def usual_config(model_type: str) -> dict[str, Any]:
    """Return a small file of a family: keys that it must have, heads that its defaults allow, and what is counted."""
    family = FAMILIES[model_type]
    needed = [name for name, info in family.model_fields.items() if info.is_required()]
    config = {"model_type": model_type, **{family.keys(name)[0]: _NEEDED[name] for name in needed}}
    usual = {"num_kv_heads": 8, "head_dim": 128, "tied_embeddings": False}
    config |= {family.keys(name)[0]: size for name, size in usual.items() if name in family.model_fields}
    return {**config, **counted_instead(family)}


def kernels_of(model: Model) -> str:
    """Return the choices of kernels for a model with each implementation, as one text."""
    choices = []
    for implementation in IMPLEMENTATIONS:
        try:
            choices.append(sorted(answered_choices(implementation, model).items()))
        except InputError:
            choices.append([])
    return repr(choices)
