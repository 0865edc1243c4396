"""Names that a space may declare: symbols of the mathematics, and names that each set several of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import PARAMETERS, RECOMPUTE_MODES
from shardmath.input.parameters import OF_GPU, checked

#: Every symbol that formulas take from outside. The others (``padded_vocab_size``) are terms.
SYMBOLS: tuple[str, ...] = tuple(name for name, entry in PARAMETERS.items() if entry[4] != "derived")
#: The symbols that describe a model.
SHAPE: tuple[str, ...] = tuple(name for name, entry in PARAMETERS.items() if entry[4] == "model")
#: The switches of recompute.
SWITCHES: tuple[str, ...] = tuple(RECOMPUTE_MODES["none"])
#: Names that are no symbols, and the symbols that each sets. A GPU's ``node_size`` may be declared otherwise.
SETTERS: Mapping[str, tuple[str, ...]] = {
    "implementation": (),
    "model": SHAPE,
    "gpu": ("gpu_memory", *OF_GPU),
    "gpu_memory_gib": ("gpu_memory",),
    "recompute": SWITCHES,
}
#: So many names are listed where none is close.
_FEW = 20
#: Possible axes.
AXES = (*SETTERS, *SYMBOLS)


def closest(name: object, known: Collection[str]) -> str | None:
    """Return the known names that are spelled most like ``name``; None if there are many and none is close."""
    nearest = nearest_names(str(name), known)
    return nearest if len(known) <= _FEW or ", " not in nearest else None


def refuse_unknown(section: str, name: object, known: tuple[str, ...]) -> None:
    """Raise InputError unless ``name`` is one of ``known``."""
    if name not in known:
        field = f"{section}.{name}"
        if name in PARAMETERS:
            raise InputError(field, name, "must not be declared: formulas derive it from other symbols")
        raise InputError(field, name, "must be a known symbol", closest(name, known))


def value_of(field: str, name: str, value: object) -> int:
    """Return ``value`` as one that the symbol ``name`` may have. Raises InputError for ``field``."""
    try:
        return checked(name, value)
    except InputError as error:
        raise InputError(field, error.value, error.rule, error.nearest) from None


def set_by(name: str) -> tuple[str, ...]:
    """Return the symbols whose values a declared name sets."""
    return SETTERS.get(name, (name,))
