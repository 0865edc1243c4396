"""Fill the page: data, evaluators, style and behaviour in one HTML text."""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any

from shardmath.account.time import EQUAL
from shardmath.commands.page.catalogue import (
    gpu_data,
    model_data,
    models,
    parameter_data,
    risk_data,
)
from shardmath.commands.page.exports import format_data, usual_fields, writer_script
from shardmath.commands.page.families import config_data, family_models, reader_script
from shardmath.commands.page.imports import flag_data
from shardmath.commands.page.kernels import Asked, kernel_data
from shardmath.commands.page.refusals import refusal_script
from shardmath.commands.page.settings import setting_data
from shardmath.commands.page.shares import Asking, Derived, Progress, Share, shares_of
from shardmath.commands.page.typesetting import source_data
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.generated.definitions import IMPLEMENTATIONS, ROLES, SHORT, SPENT
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.reports.policy import with_policy
from shardmath.search.choosing import ALIKE, FASTER, MOST, OTHERS, RISKS, SLOWER, SMALLER
from shardmath.search.distinct import MAY_BE_IDLE
from shardmath.search.spaces.usual import BY_TIME, DATA_PARALLEL

#: The cluster that spaces are read for; candidates depend on no figure of it but the size of a server.
_CLUSTER = "h100-80gb"
_START = "llama-3.1-70b"
#: Objects inside each other whose entries evaluators share: their data, the replay in it, its rows.
_NESTED = 3
#: Implementations of models that stand for families of files; torchtitan needs eleven sets of formulas for each.
_OF_FAMILIES = ("megatron", "huggingface")
#: Bytes of a .lzma file that hold the size of its content.
_SIZE = slice(5, 13)


def page(
    asked: Sequence[str | PathLike[str]] = (), only: bool = False, progress: Progress | None = None,
    kernels: Asked | None = None,
) -> str:
    """Return the page as HTML, beginning with the first model that is ``asked`` for, by name or path.

    It has the models asked for and, unless ``only`` those are wanted, all of the catalogue; of the first model, and of
    those with the same formulas, other kernels too: each offered option, and all combinations of ``kernels``. Raises
    InputError for an unknown model, axis or option.
    """
    chosen = models(asked, only)
    families = [] if only else family_models(chosen)
    first = chosen[0] if asked else next(model for model in chosen if model.name == _START)
    asking = Asking(chosen, families, _OF_FAMILIES, first, kernels or {}, Cluster.named(_CLUSTER))
    shares = shares_of(asking, [*IMPLEMENTATIONS], progress)
    parts: dict[str, int] = {}
    functions: dict[str, int] = {}
    listed = [_with_parts(model, shares, parts, functions) for model in chosen]
    listed += [{**_with_parts(model, shares, parts, functions), "of_family": True} for model in families]
    variants = {name: share.variants for name, share in shares.items() if share.variants}
    derived = _in_order([*chosen, *families], shares)
    lines, formula_lines, described = Lines(), Lines(), Lines()
    evaluators = {name: described.of(in_lines(item.data, _NESTED)) for name, item in derived.items()}
    at_once = {part["evaluator"] for part in shares[default_implementation(first)].parts[first.name]}
    scripts = {name: lines.of(derived[name].script) for name in derived if name in at_once}
    there = len(lines)
    later = {name: lines.of(derived[name].script) for name in derived if name not in at_once}
    later |= {"writers": lines.of(writer_script()), "refusals": lines.of(refusal_script())}
    formulas = {name: {term: formula_lines.place(json.dumps(formula)) for term, formula in item.formulas.items()}
                for name, item in derived.items()}
    data = {
        "start": first.name,
        "variants": variants, "kernels": kernel_data([key for own in variants.values() for key in own]),
        "models": listed,
        "parts": [json.loads(part) for part in parts],
        "gpus": gpu_data(), "risks": risk_data(),
        "parameters": parameter_data(frozenset().union(*(item.inputs for item in derived.values()))),
        "implementations": {name: item["title"] for name, item in IMPLEMENTATIONS.items()},
        "settings": setting_data(),
        "roles": ROLES, "spent": SPENT, "short": SHORT,
        "evaluators": evaluators, "described": list(described),
        "choosing": {"slower": SLOWER, "faster": FASTER, "smaller": SMALLER, "most": MOST, "others": OTHERS,
                     "alike": ALIKE,
                     "risks": RISKS, "equal": EQUAL, "idle": sorted(MAY_BE_IDLE)},
        "sources": source_data(),
        "config": config_data(),
        "flags": flag_data(),
        **format_data(), "fields": usual_fields(),
        "kernels_of": {name: item["choices"] for name, item in IMPLEMENTATIONS.items()},
        "unwritten": _unwritten([*chosen, *families], shares),
        "scripts": scripts, "lines": list(lines)[:there],
    }
    return with_policy(shown(data, {
        "scripts": {"scripts": later, "lines": list(lines)[there:]},
        "formulas": {"formulas": formulas, "formula_lines": list(formula_lines)},
        "readers": {"script": reader_script()},
    }, list(functions)), makes_scripts=True)


def shown(data: Any, later: Mapping[str, Any] = MappingProxyType({}), functions: Sequence[str] = ()) -> str:
    """Return a page with its data; ``later`` is what it unpacks when it is asked for, by the names of the template."""
    from shardmath.files.rendering import rendered

    return rendered("page/page.html", {
        "packed": packed(data),
        **{name: packed_small(later[name]) if name in later else "" for name in ("scripts", "formulas", "readers")},
        "functions": functions, "data_parallel": DATA_PARALLEL,
        "ranking": [key.replace(".", "_") for key in BY_TIME],
    }, header="Written by `shardmath page`.")


def _with_parts(
    model: Model, shares: Mapping[str, Share], parts: dict[str, int], functions: dict[str, int],
) -> dict[str, Any]:
    """Return a model with the places of its parts by implementation; what is new is added to what is known."""
    places: dict[str, list[int]] = {}
    for implementation, share in shares.items():
        for part in share.parts.get(model.name, ()):
            text = json.dumps(_with_places(part, functions))
            places.setdefault(implementation, []).append(parts.setdefault(text, len(parts)))
    return {**model_data(model), "parts": places, "implementation": default_implementation(model),
            "seq_length": default_seq_length(model)}


def _with_places(part: Mapping[str, Any], functions: dict[str, int]) -> dict[str, Any]:
    """Return a part with the places of its functions; new ones are added to those known."""
    def placed(name: str, names: Sequence[str], function: str) -> tuple[str, Sequence[str], int]:
        return name, names, functions.setdefault(function, len(functions))

    return {**part, **{key: [placed(*item) for item in part[key]] for key in ("derived", "constraints")}}


def _in_order(models: Iterable[Model], shares: Mapping[str, Share]) -> dict[str, Derived]:
    """Return what was derived, beginning with the first model: those of one model share most lines."""
    names = [part["evaluator"] for model in models for share in shares.values()
             for part in share.parts.get(model.name, ())]
    names += [name for share in shares.values() for changed in share.variants.values() for name in changed.values()]
    derived = {name: item for share in shares.values() for name, item in share.derived.items()}
    return {name: derived[name] for name in names}


def _unwritten(models: Iterable[Model], shares: Mapping[str, Share]) -> dict[str, Any]:
    """Return why formats cannot say models, by model, implementation, format and combination of kernels."""
    reasons: dict[str, dict[str, Any]] = {}
    for model in models:
        for implementation in sorted(shares):
            if known := shares[implementation].unwritten.get(model.name):
                reasons.setdefault(model.name, {})[implementation] = known
    return reasons


class Lines:
    """Lines of texts, each kept once; a text is the places of its lines."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __iter__(self) -> Any:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def of(self, text: str) -> str:
        """Return the text as runs of lines that follow one another: the place of the first, and how many there are."""
        runs: list[int] = []
        for line in text.splitlines():
            place = self._places.setdefault(line, len(self._places))
            if runs and place == runs[-2] + runs[-1]:
                runs[-1] += 1
            else:
                runs += [place, 1]
        return " ".join(map(str, runs))

    def place(self, line: str) -> int:
        """Return the place of one line."""
        return self._places.setdefault(line, len(self._places))


def in_lines(value: object, depth: int) -> str:
    """Return JSON with a line for each entry of objects that are nested less than ``depth`` deep."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    entries = ",\n".join(f"{json.dumps(key)}:{in_lines(item, depth - 1)}" for key, item in value.items())
    return f"{{{entries}}}"


def packed(data: Mapping[str, Any]) -> str:
    """Return data as text for a page: JSON, deflated, in base 64. The page reads it with a DecompressionStream."""
    return _in_base_64(zlib.compress(_json(data), 9))


def packed_small(data: Mapping[str, Any]) -> str:
    """Return data as text for a page: JSON as a .lzma file, in base 64. ``templates/page/lzma.js`` reads it."""
    text = _json(data)
    filters = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]
    content = bytearray(lzma.compress(text, lzma.FORMAT_ALONE, filters=filters))
    content[_SIZE] = len(text).to_bytes(8, "little")  # in place of "unknown"
    return _in_base_64(content)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _in_base_64(content: bytes | bytearray) -> str:
    return base64.b64encode(content).decode()
