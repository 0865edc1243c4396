"""Names of models that have been trained further, or on other data: they have the shape of what they come from."""

from __future__ import annotations

from shardmath.errors import InputError
from shardmath.models.model import Model

__all__ = ["untrained", "untrained_model"]

#: Ends of such names, in small letters.
TRAINED = ("-instruct-2507", "-thinking-2507", "-unsloth-bnb-4bit", "-bnb-4bit", "-bnb-nf4-bf16", "-unsloth",
           "-instruct", "-chat", "-base", "-it", "-pt", "-deduped", "-fp16")
#: Part of such a name before a version, and the parts there in names of what they come from.
_INSTRUCTED, _VERSIONED = "-instruct-", ("-", "-base-")


def untrained(name: str) -> list[str]:
    """List the names that what a model was trained from may have, by its own in small letters."""
    ends = [name.removesuffix(end) for end in TRAINED if name.endswith(end)][:1]
    return [*ends, *(name.replace(_INSTRUCTED, sign) for sign in _VERSIONED if _INSTRUCTED in name)]


def untrained_model(name: str) -> Model | None:
    """Find the model of the catalogue that a model was trained from by its name; None if there is none."""
    return next((known for known in map(_known, untrained(name.lower())) if known is not None), None)


def _known(name: str) -> Model | None:
    try:
        return Model.named(name)
    except InputError:
        return None
