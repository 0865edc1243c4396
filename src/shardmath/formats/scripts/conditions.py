"""Conditions of a bash script: what is decided without running it, with unset variables empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from shardmath.formats.scripts.arithmetic import UnknownError, Value, integer
from shardmath.formats.scripts.expansion import empty_unless_set, marked, text, whole_name

LONGEST_PATTERN = 200
"""Characters of a pattern that is compared; some patterns take time that grows without bound."""


def holds(node: Any, known: Mapping[str, Value]) -> bool | None:
    """Tell whether the command of a condition succeeds; None if unknown."""
    if node.type == "list":
        left, right = holds(node.children[0], known), holds(node.children[-1], known)
        return _both(left, right) if node.children[1].type == "&&" else _not(_both(_not(left), _not(right)))
    if node.type == "negated_command":
        return _not(holds(node.named_children[-1], known)) if node.named_children else None
    if node.type == "test_command":
        return _truth(node.named_children[0], known) if node.named_children else None
    if node.type == "command" and node.text in (b"true", b":", b"false"):
        return bool(node.text != b"false")
    return None


def branch(node: Any) -> tuple[list[Any], list[Any]]:
    """Return the condition and the body of an if, elif or else."""
    condition: list[Any] = []
    body: list[Any] = []
    into = body if node.type == "else_clause" else condition
    for child in node.children:
        if child.type in ("elif_clause", "else_clause"):
            break
        if child.type == "then":
            into = body
        elif child.is_named and child.type != "comment":
            into.append(child)
    return condition, body


def below(node: Any) -> Iterator[Any]:
    """Yield a part of a script and everything in it."""
    waiting = [node]
    while waiting:
        node_below = waiting.pop()
        yield node_below
        waiting += node_below.named_children


def unset_and_compared(condition: Any, known: Mapping[str, Value]) -> tuple[str, str] | None:
    """Return the name of an unset variable and the word that a condition compares all of it with; None for others."""
    test = condition.named_children[0] if condition.type == "test_command" and condition.named_children else None
    if test is None or test.type != "binary_expression":
        return None
    left, operator, right = (test.child_by_field_name(name) for name in ("left", "operator", "right"))
    if left is None or operator is None or right is None or operator.text not in (b"=", b"=="):
        return None
    word, other = text(left, known), text(right, known)
    name = whole_name(word)
    return (name, other) if name and other and not marked(other) else None


def matches(value: str, pattern: str) -> bool:
    """Tell whether a value matches a pattern with * and ?."""
    return len(pattern) <= LONGEST_PATTERN and fnmatchcase(value, re.sub(r"\*+", "*", pattern))


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _not(decided: bool | None) -> bool | None:
    return None if decided is None else not decided


def _truth(node: Any, known: Mapping[str, Value]) -> bool | None:
    """Tell whether a test holds with unset variables empty; None if unknown (files, output of commands)."""
    if node.type == "parenthesized_expression":
        return _truth(node.named_children[0], known) if node.named_children else None
    if node.type == "unary_expression":
        return _unary(node, known)
    if node.type == "binary_expression":
        left, operator, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
        if left is None or operator is None or right is None:
            return None
        sign = operator.text.decode()
        if sign in ("&&", "||"):
            first, second = _truth(left, known), _truth(right, known)
            wanted = sign == "||"  # that value of one side decides
            if first is wanted or second is wanted:
                return wanted
            return None if first is None or second is None else not wanted
        return _compared(sign, left, right, known)
    value = empty_unless_set(text(node, known))
    return None if value is None else bool(value)


def _unary(node: Any, known: Mapping[str, Value]) -> bool | None:
    sign, inner = node.children[0].text.decode(), node.children[-1]
    if sign == "!":
        truth = _truth(inner, known)
        return None if truth is None else not truth
    if sign in ("-z", "-n"):
        value = empty_unless_set(text(inner, known))
        return None if value is None else (not value) == (sign == "-z")
    return None


def _compared(sign: str, left: Any, right: Any, known: Mapping[str, Value]) -> bool | None:
    first, other = (empty_unless_set(text(node, known)) for node in (left, right))
    if first is None or other is None:
        return None
    if sign in ("==", "=", "!="):
        if right.type in ("string", "raw_string"):
            same = first == other
        elif len(other) > LONGEST_PATTERN:
            return None
        else:
            same = fnmatchcase(first, re.sub(r"\*+", "*", other))
        return same == (sign != "!=")
    if sign in _TESTS:
        try:
            return bool(_TESTS[sign](integer(first or "0"), integer(other or "0")))
        except UnknownError:
            return None
    return None


_TESTS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": eq, "-ne": ne, "-lt": lt, "-le": le, "-gt": gt, "-ge": ge, "<": lt, ">": gt,
}
