"""Find an entry of the catalogue by the name that somebody gave it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from shardmath.errors import COMPARED, InputError, listed_by, nearest_names

Entry = TypeVar("Entry")
#: A number of GPUs before the name of one.
_COUNTED = re.compile(r"^\s*\d+\s*x\s*")
#: Letters and numbers, which some write together and others apart.
_PART = re.compile(r"[a-z]+|[0-9]+(?:[.][0-9]+)*")
#: Signs that no name has: who writes one means something else.
_OTHER = re.compile(r"[^a-z0-9 ._-]")
#: Where terms are to be found that have no word of what was asked for.
LISTED = "those of `shardmath formula --list`"
#: Words that distinguish no term.
_FILLING = ("and", "are", "for", "how", "much", "one", "per", "the", "what")
#: Words for terms that have none of them in their names.
_ALSO = {"memory": "process peak", "throughput": "tokens second", "vram": "process peak"}
#: First parts of terms of a whole process, step or layer: of terms with the same words these are meant.
_WHOLE = ("", "step", "stage", "process", "spent", "layer")
#: Letters of a word that are compared: endings differ.
_STEM = 6
#: How much alike the name of a term must be written, so that its words are not looked for.
_ALIKE = 0.8
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
    entry ``noun`` and lists the candidates, or names the command that does.
    """
    words = _words(str(name), ignored)
    candidates = [key for key in known if words and _words(key, ignored)[: len(words)] == words] or begun_with(
        "-".join(words), known, ignored)
    if len(candidates) == 1:
        return known[candidates[0]]
    if candidates:
        raise InputError(field, name, f"must say which {noun} is meant", " or ".join(candidates))
    if "," in name:
        raise InputError(field, name, f"must be one {noun} of the catalogue", name.partition(",")[0].strip())
    raise InputError(field, name, f"must be a {noun} of the catalogue",
                     _nearest(_words(_COUNTED.sub("", str(name)), ignored), known, ignored) or listed_by(
                         f"shardmath {field}s", known))


def begun_with(name: str, known: Iterable[str], ignored: Collection[str] = ()) -> list[str]:
    """List the names that begin with the letters and numbers of ``name``: ``llama-3-8b`` begins with ``llama3``.

    One with these alone is the only one.
    """
    plain = name[:COMPARED].lower()
    asked = [] if _OTHER.search(plain) else [part for part in _PART.findall(plain) if part not in ignored]
    texts = {key: "-".join(_words(key, ignored)) for key in known}
    begun = [key for key, text in texts.items() if asked and _begins(text, asked)]
    return [key for key in begun if _PART.findall(texts[key]) == asked] or begun


def _begins(text: str, parts: Sequence[str]) -> bool:
    """Tell whether a name begins with parts, behind which it ends or has a sign: ``8`` is not the begin of ``8b``."""
    own = [*_PART.finditer(text)][: len(parts)]
    return [part[0] for part in own] == parts and not text[own[-1].end():][:1].isalnum()


def nearest_by_words(name: str, known: Iterable[str]) -> str:
    """Join by "or" the names with the first letters of ``name`` and most of its other parts."""
    first, *others = _PART.findall(name[:COMPARED].lower()) or [""]
    alike = {key: len({*others} & {*rest}) for key in known
             for begun, *rest in (_PART.findall(key),) if begun == first}
    most = max(alike.values(), default=0)
    return " or ".join(key for key, count in alike.items() if count == most)


def close_terms(asked: str, names: Iterable[str]) -> str:
    """Join by "or" the terms that are spelled much like ``asked``."""
    text = re.sub(r"\s+", ".", asked[:COMPARED].lower().strip())
    return " or ".join(difflib.get_close_matches(text, list(names), n=3, cutoff=_ALIKE))


def nearest_terms(asked: str, described: Mapping[str, tuple[str, ...]]) -> str:
    """Join by "or" the terms that are spelled most like ``asked``, else those with most of its words.

    ``described`` has the texts of a term (its unit and meaning) by its name. Empty where no term has a word of it.
    """
    if close := close_terms(asked, described):
        return close
    text = asked[:COMPARED].lower()
    words = [word for word in _stems(_ALSO.get(text.strip(), text)) if word not in _FILLING]
    ranked = []
    for name, texts in described.items():
        own, others = _stems(name), _stems(" ".join(texts))
        in_name, in_text = ([word for word in words if any(begun.startswith(word) for begun in stems)]
                            for stems in (own, others))
        if in_name:
            first = name.rpartition(".")[0]
            place = _WHOLE.index(first) if first in _WHOLE else len(_WHOLE)
            ranked.append((-len({*in_name, *in_text}), -len(in_name), len(own), place, len(name), name))
    return " or ".join([name for *_, name in sorted(ranked)[:3]] or difflib.get_close_matches(text, described, n=3))


def _stems(text: str) -> list[str]:
    """List the words of a text by what is alike in "activation" and "activations"."""
    return [word.removesuffix("s")[:_STEM] for word in re.findall("[a-z0-9]+", text.lower())]


def nearest_implementation(name: str, known: Iterable[str]) -> str:
    """Return the implementation with the kernels of another program or library, else those that are spelled alike."""
    plain = name[:COMPARED].lower().replace("_", "-")
    return next((own for own, others in _PROGRAMS.items() if plain in others.split()), "") or nearest_names(name, known)


def _nearest(words: list[str], known: Iterable[str], ignored: Collection[str]) -> str:
    """Join by "or" the names that begin with the same words, or with words most like these."""
    for number in range(len(words) - 1, 0, -1):
        if same := [key for key in known if _words(key, ignored)[:number] == words[:number]]:
            asked = {*_PART.findall("-".join(words))}
            others = {key: len(asked & {*_PART.findall("-".join(_words(key, ignored)))}) for key in same}
            return " or ".join(key for key in same if others[key] == max(others.values()))
    first = next(iter(_PART.findall("-".join(words))), "")
    if first.isdecimal() and (same := [key for key in known if first in _PART.findall(key)]):
        return " or ".join(same)
    beginnings: dict[str, list[str]] = {}
    for key in known:
        beginnings.setdefault("-".join(_words(key, ignored)[: len(words)]), []).append(key)
    close = difflib.get_close_matches("-".join(words)[:COMPARED], beginnings) if words else []
    return " or ".join(key for beginning in close for key in beginnings[beginning])


def _words(name: str, ignored: Collection[str]) -> list[str]:
    """Split off the parts that distinguish entries: ``NVIDIA H100 80 GB`` becomes ``h100``, ``80gb``."""
    joined = re.sub(r"(\d)[\s_-]+gb\b", r"\1gb", name.lower())
    return [word for word in re.split(r"[\s_/-]+", joined) if word and word not in ignored]
