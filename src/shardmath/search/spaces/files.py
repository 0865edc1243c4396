"""Spaces in files: one TOML or YAML file declares what a ``Space`` has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmath.catalogue import read
from shardmath.errors import InputError, nearest_names
from shardmath.files.nested import KINDS, LARGEST, parsed
from shardmath.files.reading import read_text
from shardmath.input.arguments import typed
from shardmath.machines.files import any_cluster, cluster_of
from shardmath.machines.files import plain as plain_cluster
from shardmath.search.spaces import candidates, questions
from shardmath.search.spaces.declared import Constraint, Space

_NAMES = ("model", "gpu", "network", "implementation", "schedule", "gradients")
_TABLES = ("axes", "fixed", "derived", "constraints", "questions", "kernels")
_KEYS = (*_NAMES, "cluster", "zero_stage", "risk", *_TABLES)


@typed
def read_space(path: str | os.PathLike[str]) -> Space:
    """Return the space that the file at ``path`` declares; its name ends in ``.toml``, ``.yaml`` or ``.yml``.

    Raises InputError for a file that cannot be read and for everything in it that is wrong; its field is then the
    path inside of the file, such as ``axes.tensor_parallel``.
    """
    text = os.fspath(path)
    kind = Path(text).suffix.lower()
    if kind not in KINDS:
        searched = f"shardmath sweep {text}" if text.lower() in read("models") else None
        raise InputError("space", text, "must be a file that ends in .toml, .yaml or .yml", searched)
    content = read_text("space", text, "a declared space", LARGEST)
    return space_of(parsed("space", text, kind, content))


def space_of(declared: object) -> Space:
    """Return the space that plain data declares: what a file holds. Raises InputError as ``read_space`` does."""
    if not isinstance(declared, Mapping):
        raise InputError("space", declared, f"must be a table with {', '.join(_KEYS)}")
    for key, value in declared.items():
        if key not in _KEYS:
            raise InputError(str(key), value, "must not be given: there is no such key",
                             nearest_names(str(key), _KEYS))
        if key in _NAMES and not isinstance(value, str):
            raise InputError(key, value, "must be text")
        if key in _TABLES and not isinstance(value, Mapping):
            raise InputError(key, value, "must be a table")
        for name in value if key in _TABLES else ():
            if not isinstance(name, str):
                raise InputError(f"{key}.{name}", name, "must be a name")
    own: dict[str, Any] = {key: declared[key] for key in declared if key not in ("constraints", "questions")}
    if isinstance(own.get("cluster"), Mapping):
        own["cluster"] = cluster_of(own["cluster"])
    return Space(
        **{"axes": {}, **own},
        constraints=tuple(Constraint(name, text) for name, text in declared.get("constraints", {}).items()),
        questions=tuple(questions.read(name, table) for name, table in declared.get("questions", {}).items()),
    )


def plain(space: Space) -> dict[str, Any]:
    """Return a space as plain data, from which ``space_of`` makes an equal one; models and GPUs by their names."""
    document: dict[str, Any] = {
        "model": getattr(space.model, "name", space.model), "gpu": getattr(space.gpu, "name", space.gpu),
        "network": space.network,
        "cluster": None if space.cluster is None else plain_cluster(any_cluster(space.cluster)),
        "implementation": space.implementation, "schedule": space.schedule, "gradients": space.gradients,
        "zero_stage": space.zero_stage, "risk": space.risk,
        "axes": {name: candidates.written(candidates.read(name, space.axes[name])) for name in space.axes},
        "fixed": dict(space.fixed), "derived": dict(space.derived),
        "kernels": {name: option if isinstance(option, str) else list(option)
                    for name, option in space.kernels.items()},
        "constraints": {constraint.name: constraint.text for constraint in space.constraints},
        "questions": {question.name: questions.written(question) for question in space.questions},
    }
    return {key: value for key, value in document.items() if value not in (None, {})}
