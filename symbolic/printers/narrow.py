r"""Formulas of LaTeX cut into pieces that fit on a line: before signs, behind commas, before brackets.

Nothing is written anew but the growing of brackets: ``\left`` and ``\right`` stay together, ``\Bigl`` and ``\Bigr``
may stand on two lines.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

#: Letters that fill a line of a formula in a table of terms.
LINE = 36
_TOKEN = re.compile(r"\\(?:[a-zA-Z]+|.)|.", re.DOTALL)
#: Commands that take no room, and names of functions, which take more than a letter.
_UNSEEN = {
    r"\left": 0.4, r"\right": 0.4, r"\Bigl": 0.4, r"\Bigr": 0.4, r"\,": 0.35, r"\ ": 0.5, " ": 0.0,
    r"\text": 0.0, r"\operatorname": 0.0, r"\max": 3.6, r"\min": 3.4, r"\cdot": 1.3, r"\mid": 1.6,
    "(": 0.8, ")": 0.8, "[": 0.6, "]": 0.6, ",": 0.9, "+": 2.2, "-": 2.2, "=": 2.4, "<": 2.4, ">": 2.4,
    r"\geq": 2.4, r"\leq": 2.4, ";": 0.9, r"\lbrace": 0.8, r"\rbrace": 0.8,
}
_SCRIPT = 0.75
_OPENING = ("(", "[", r"\lbrace", r"\lceil", r"\lfloor")
_CLOSING = (")", "]", r"\rbrace", r"\rceil", r"\rfloor")


def narrow(text: str, room: float = LINE) -> list[str]:
    """Cut a formula where it is wider than ``room``, at as few brackets as that needs."""
    tokens = _TOKEN.findall(text)
    if width(text) <= room:
        return [text]
    places = _places(tokens)
    if not places:
        return [text]
    outermost = min(depth for _, depth in places)
    cuts = [0, *(place for place, depth in places if depth == outermost), len(tokens)]
    if outermost:
        tokens = _split_brackets(tokens)
    pieces = []
    for start, end in pairwise(cuts):
        piece = "".join(tokens[start:end]).strip()
        pieces.append(f"{{}} {piece}" if start and piece[0] in "+-" else piece)
    return [part for piece in pieces for part in narrow(piece, room)]


@cache
def width(text: str) -> float:
    """Return the room that a formula takes, in letters; of a fraction and of two scripts the wider part counts."""
    tokens, place, room = _TOKEN.findall(text), 0, 0.0
    while place < len(tokens):
        token = tokens[place]
        if token == r"\frac":
            over, place = _group(tokens, place + 1)
            under, place = _group(tokens, place)
            room += max(width(over), width(under)) + 0.5
        elif token in "^_":
            scripts = 0.0
            while place < len(tokens) and tokens[place] in "^_":
                script, place = _group(tokens, place + 1)
                scripts = max(scripts, _SCRIPT * width(script))
            room += scripts
        else:
            room += _UNSEEN.get(token, 0.0 if token in "{}" else 1.0)
            place += 1
    return room


def _group(tokens: list[str], place: int) -> tuple[str, int]:
    """Return the text in braces from ``place`` on, or the token there, and the place behind it."""
    if tokens[place] != "{":
        return tokens[place], place + 1
    depth, end = 1, place + 1
    while depth:
        depth += {"{": 1, "}": -1}.get(tokens[end], 0)
        end += 1
    return "".join(tokens[place + 1:end - 1]), end


def _places(tokens: list[str]) -> list[tuple[int, int]]:
    """Where a line may break, outside of all braces, with the number of brackets around it."""
    start = 3 if tokens[:3] == ["{", "}", " "] else 0  # of a piece that begins with a sign
    places, braces, brackets = [], 0, 0
    for place, token in enumerate(tokens):
        braces += {"{": 1, "}": -1}.get(token, 0)
        if braces:
            continue
        if token in _OPENING:
            brackets += 1
        elif token in _CLOSING:
            brackets -= 1
        elif not start < place < len(tokens) - 2:
            continue
        elif token in ("+", "-") and tokens[place - 1] == " " == tokens[place + 1]:
            places.append((place, brackets))
        elif token in (",", ";"):
            places.append((place + 1, brackets))
        elif token == r"\ " and tokens[place + 1] == r"\text":
            places.append((place, brackets))
        elif token == r"\," and tokens[place + 1] in (r"\left", r"\Bigl", r"\max", r"\min", "(", "[", r"\lbrace"):
            places.append((place + 1, brackets))
    return places


def _split_brackets(tokens: list[str]) -> list[str]:
    """Return brackets that do not grow, as they stand on two lines; those inside of a fraction stay."""
    split, braces = [], 0
    for token in tokens:
        braces += {"{": 1, "}": -1}.get(token, 0)
        split.append({r"\left": r"\Bigl", r"\right": r"\Bigr"}.get(token, token) if not braces else token)
    return split
