"""Sums of integers in a bash script: those of ``$((...))`` from a tree of it, and those of the command ``expr``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import add, mul, sub
from typing import Any

Value = str | list[str]
"""The value of a variable: a text, or an array of texts."""

#: Above every number of a launch script.
_LARGEST = 2**62


class UnknownError(Exception):
    """A number that is not known without running the script."""


_SUMS: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}


def number(node: Any, known: Mapping[str, Value], text: Callable[[Any], str]) -> int:
    """Return the value of a sum of integers; ``text`` gives that of what is neither. Raises UnknownError."""
    if node.type == "parenthesized_expression" and node.named_children:
        return number(node.named_children[0], known, text)
    if node.type == "unary_expression" and node.children[0].type in ("-", "+"):
        operand = number(node.children[-1], known, text)
        return -operand if node.children[0].type == "-" else operand
    if node.type == "binary_expression":
        left, operator, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
        sign = operator.text.decode() if operator is not None else ""
        if left is None or right is None:
            raise UnknownError
        return _computed(number(left, known, text), sign, number(right, known, text))
    if node.type == "variable_name":
        value = known.get(node.text.decode(), "")
        return integer(value if isinstance(value, str) else "".join(value[:1]))
    return integer(text(node))


def _computed(first: int, sign: str, other: int) -> int:
    if sign in ("/", "%") and other:
        quotient = abs(first) // abs(other) * (1 if (first < 0) == (other < 0) else -1)  # bash rounds towards 0
        return quotient if sign == "/" else first - other * quotient
    if sign in _SUMS and abs(result := _SUMS[sign](first, other)) <= _LARGEST:
        return result
    raise UnknownError


def expr(words: Sequence[str]) -> int:
    """Return what ``expr`` prints for a sum in words: products first, from the left. Raises UnknownError."""
    if len(words) % 2 == 0:
        raise UnknownError
    summands, signs = [integer(words[0])], []
    for sign, word in zip(words[1::2], words[2::2], strict=True):
        if sign in ("*", "/", "%"):
            summands.append(_computed(summands.pop(), sign, integer(word)))
        else:
            signs.append(sign)
            summands.append(integer(word))
    total = summands[0]
    for sign, summand in zip(signs, summands[1:], strict=True):
        total = _computed(total, sign, summand)
    return total


def integer(written: str) -> int:
    """Return the integer of a text. Raises UnknownError."""
    stripped = written.strip()
    if not re.fullmatch(r"-?[0-9]{1,18}", stripped, re.ASCII):
        raise UnknownError
    return int(stripped)
