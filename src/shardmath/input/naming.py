"""Find an entry of the catalogue by the name that somebody gave it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from shardmath.errors import COMPARED, InputError, nearest_names

Entry = TypeVar("Entry")
#: A number of GPUs before the name of one.
_COUNTED = re.compile(r"^\s*\d+\s*x\s*")
#: Programs and libraries by the implementation whose kernels they have.
_PROGRAMS = {
    "huggingface": "hf transformers trainer accelerate deepspeed peft trl axolotl llamafactory llama-factory",
    "megatron": "mcore megatron-core megatron-lm megatron-bridge nemo nemo2 nemo-2 te transformer-engine",
    "torchtitan": "fsdp fsdp2 pytorch torch titan",
}


def by_name(
    field: str, noun: str, name: str, known: Mapping[str, Entry], ignored: Collection[str] = ()
) -> Entry:
    """Return the entry called ``name``, or the only one whose name begins with its words.

    Case, separators and the words in ``ignored`` do not matter. Raises InputError, which blames ``field``, calls the
    entry ``what`` and lists the candidates.
    """
    words = _words(str(name), ignored)
    candidates = [key for key in known if words and _words(key, ignored)[: len(words)] == words]
    if len(candidates) == 1:
        return known[candidates[0]]
    if candidates:
        raise InputError(field, name, f"must say which {noun} is meant", " or ".join(candidates))
    raise InputError(field, name, f"must be a {noun} of the catalogue",
                     _nearest(_words(_COUNTED.sub("", str(name)), ignored), known, ignored))


def nearest_implementation(name: str, known: Iterable[str]) -> str:
    """Return the implementation with the kernels of another program or library, else those that are spelled alike."""
    plain = name[:COMPARED].lower().replace("_", "-")
    return next((own for own, others in _PROGRAMS.items() if plain in others.split()), "") or nearest_names(name, known)


def _nearest(words: list[str], known: Iterable[str], ignored: Collection[str]) -> str:
    """Join by "or" the names that begin with the same words, or with words most like these; all if none does."""
    for number in range(len(words) - 1, 0, -1):
        if same := [key for key in known if _words(key, ignored)[:number] == words[:number]]:
            others = {key: len({*words} & {*_words(key, ignored)}) for key in same}
            return " or ".join(key for key in same if others[key] == max(others.values()))
    beginnings: dict[str, list[str]] = {}
    for key in known:
        beginnings.setdefault("-".join(_words(key, ignored)[: len(words)]), []).append(key)
    close = difflib.get_close_matches("-".join(words)[:COMPARED], beginnings) if words else []
    return " or ".join(key for beginning in close for key in beginnings[beginning]) or ", ".join(sorted(known))


def _words(name: str, ignored: Collection[str]) -> list[str]:
    """Split off the parts that distinguish entries: ``NVIDIA H100 80 GB`` becomes ``h100``, ``80gb``."""
    joined = re.sub(r"(\d)[\s_-]+gb\b", r"\1gb", name.lower())
    return [word for word in re.split(r"[\s_/-]+", joined) if word and word not in ignored]
