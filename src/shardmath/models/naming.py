"""Find the model that a name means among those that are known."""

from __future__ import annotations

from collections.abc import Collection

from shardmath.errors import InputError, nearest_listed
from shardmath.input.naming import begun_with, nearest_by_words
from shardmath.models.further_trained import untrained


def model_called(name: str, known: Collection[str]) -> str:
    """Return the one of the ``known`` models that ``name`` means, as ``Model.named`` says.

    Raises InputError with the names that are meant or most alike.
    """
    plain = plain_name(name)
    begun = begun_by(plain, known)
    for other in untrained(plain):
        begun = begun or begun_by(other, known)
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise InputError("model", name, "must say which model is meant", " or ".join(begun))
    rule = "must be a model of the catalogue or the path of a config.json"
    raise InputError("model", name, rule, lambda: nearest_by_words(plain, known) or nearest_listed(
        plain, known, "shardmath models"))


def plain_name(name: str) -> str:
    """Return a name of a model in small letters, without the parts that only some repositories have."""
    return name.strip().lower().rsplit("/", 1)[-1].removeprefix("meta-").removesuffix("-hf")


def begun_by(plain: str, known: Collection[str]) -> list[str]:
    """List the models with a plain name, or whose names begin with its words."""
    if plain in known:
        return [plain]
    return [key for key in known if key.startswith(f"{plain}-")] or begun_with(plain, known)
