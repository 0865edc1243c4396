"""Claims as text: two sides with a relation, or a term that rises or falls with a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardmath.errors import InputError
from shardmath.input.quantities import separated

#: The name of the positive step from one value of a parameter to a larger one.
MORE = "more"
#: Names of positive integers that a claim and its region may use beside the parameters.
FREE = ("i", "j", MORE)
_RELATIONS = ("<=", ">=", "==", "<", ">", "=")
_TOKEN = re.compile(r"<=|>=|==|<|>|=|,|\(|\)|\bwith\b")
_MONOTONE = re.compile(r"^(?P<term>.+?)\s+(?:is\s+)?(?P<way>increasing|decreasing|rises|falls)\s+(?:in|with)\s+"
                       r"(?P<name>\w+)$")
_SHAPE = ('must be two sides with a relation, "first.total with zero_stage=1 <= first.total with zero_stage=0", or'
          ' "first.total rises with seq_length"')


@dataclass(frozen=True)
class Claim:
    """``left relation right``; with ``moved``, ``right`` is ``left`` at a larger value of that parameter."""

    left: str
    relation: str
    right: str
    moved: str = ""


def read_claim(text: str) -> Claim:
    """Read a claim. Raises InputError for a text that is none."""
    text = " ".join(text.split())
    monotone = _MONOTONE.match(text)
    if monotone is not None:
        term, name = monotone["term"], monotone["name"]
        relation = "<=" if monotone["way"] in ("increasing", "rises") else ">="
        later = f"({term}) with {name} = {name} + {MORE}"
        return Claim(term, relation, later, name)
    places = list(_relations(text))
    if len(places) != 1:
        raise InputError("claim", text, _SHAPE)
    ((start, end),) = places
    relation = text[start:end]
    left, right = text[:start].strip(), text[end:].strip()
    if not left or not right:
        raise InputError("claim", text, _SHAPE)
    return Claim(left, "=" if relation == "==" else relation, right)


def _relations(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of relations; the first equals sign behind ``with`` and behind a comma sets a parameter."""
    depth, setting = 0, False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "()":
            depth += 1 if word == "(" else -1
        elif depth:
            continue
        elif word in ("with", ","):
            setting = True
        elif word == "=" and setting:
            setting = False
        else:
            yield token.span()


def with_settings(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split an expression from what it sets: ``first.total with t = 2``. Raises InputError for half a setting."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "with" and not depth:
            return text[:token.start()].strip(), tuple(_settings(text[token.end():]))
    return text.strip(), ()


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for part in separated("with", text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError("with", part.strip(), "must be NAME = VALUE", "with zero_stage = 1")
        yield name.strip(), value.strip()


def bracketed(text: str) -> Iterator[tuple[int, int]]:
    """Yield outermost brackets with ``with`` inside, as places of their insides."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] == "(":
            depth += 1
            start = token.end() if depth == 1 else start
        elif token[0] == ")":
            depth -= 1
            if not depth and re.search(r"\bwith\b", text[start:token.start()]):
                yield start, token.start()
