"""Inputs made from others: tokens replaced, repeated, moved and nested, with all that has ever broken a reader."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_TOKENS = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*|[0-9][0-9_.eE+-]*|\s+|.", re.DOTALL)
#: Numbers at the edges of what is exact, legal or finite.
NUMBERS = (
    "0", "1", "2", "-1", "3", "7", "8", "64", "1.5", "1e9", "1e30", "1e309", "-0", "0x10", "0b1", "0o7", "1_000",
    "1:2:3", "inf", "-inf",
    "nan", "NaN", ".inf", ".nan", "Infinity", "1e-400", str(2**31), str(2**31 + 1), str(2**53), str(2**53 + 1),
    str(2**62),
    str(2**63), str(2**64), "-9223372036854775808", "9" * 30, "9" * 400, "9" * 4301, "１２", "٣", "²", "½",
)
#: Letters that look like others, that turn the line around, that end files, lines, strings and pages.
LETTERS = (
    "а", "ο", "ⅼ", "ｌ", "ﬁ", "İ", "ß", "\u202e", "\u2066", "\u200b", "\u00ad", "\ufeff", "\ufffe", "\ud7ff",
    "\U0010ffff", "\x00",
    "\x1b[31m", "\x07", "\x7f", "\x85", "\u2028", "\r", "\r\n", "\n", "\t", "\v", "%s", "%n", "{}", "{0}", "${HOME}",
          "$(id)", "`id`",
    "[red]", "[/]", "$\\frac$", "\\", "'", '"', "<", ">", "&", "</script><img src=x onerror=alert(1)>", "]]>", "<!--",
)
#: Inputs that other readers of the same formats have executed, or never came to an end with.
TRAPS = (
    "!!python/object/apply:os.system ['touch canary']", "!!python/name:os.system", "&a [*a, *a]", "*a", "<<: *a",
    "? [a]: b",
    "$(touch canary)", "`touch canary`", "; touch canary", "| touch canary", "> canary", "eval 'touch canary'",
    "source canary", "__import__('os').system('touch canary')", "${x:=$x$x}", "$((1/0))", "$((9**9**9))", "((((((((",
                                                                                                                   "[[[[[[[[",
    "{{{{{{{{", "{a: {a: {a: {a: ", "- - - - - - - - ", "a.a.a.a.a.a.a.a", '"' * 3, "'" * 3, "2001-13-45",
                              "0001-01-01T00:00:00+23:59",
    "!!binary x", "!!timestamp x", "!!set {a}", "!!omap [a]", "null", "~", "true", "false", "yes", "[]", "{}", "()",
    '""',
    "../../../etc/passwd", "/dev/zero", "/dev/stdin", "/dev/full", "/proc/self/mem", "CON", ".", "", "-", "--", "-h",
    "--help",
    "a" * 300, "a" * 5000, "(" * 100, "[" * 100, "{\"a\":" * 100, "- " * 100, "1+" * 200 + "1", "2**" * 40 + "2",
)
HOSTILE = tuple(text.encode("utf-8", "surrogatepass") for text in (*NUMBERS, *LETTERS, *TRAPS))
_ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "latin-1")


def mutated(data: bytes, chance: random.Random, words: Sequence[bytes] = (), others: Sequence[bytes] = ()) -> bytes:
    """Another input made from ``data``, with ``words`` of its format, or parts of ``others``."""
    tokens = _TOKENS.findall(data[: 1 << 16])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        tokens = _CHANGES[chance.randrange(len(_CHANGES))](tokens, chance, words, others)
    mutant = b"".join(tokens)
    if chance.random() < 0.02:
        mutant = _recoded(mutant, chance)
    return mutant


def _place(tokens: list[bytes], chance: random.Random) -> int:
    """Return a place of a token that is no white space, if there is one nearby."""
    for _ in range(4):
        place = chance.randrange(max(1, len(tokens)))
        if place < len(tokens) and not tokens[place].isspace():
            break
    return place


def _word(chance: random.Random, words: Sequence[bytes]) -> bytes:
    return chance.choice(words) if words and chance.random() < 0.4 else chance.choice(HOSTILE)


def _replace(tokens: list[bytes], chance: random.Random, words: Sequence[bytes],
             others: Sequence[bytes]) -> list[bytes]:
    place = _place(tokens, chance)
    return [*tokens[:place], _word(chance, words), *tokens[place + 1:]]


def _renumber(tokens: list[bytes], chance: random.Random, words: Sequence[bytes],
              others: Sequence[bytes]) -> list[bytes]:
    places = [place for place, token in enumerate(tokens) if token[:1].isdigit()]
    if not places:
        return _replace(tokens, chance, words, others)
    place = chance.choice(places)
    number = chance.choice((
        chance.choice(NUMBERS), str(chance.randrange(130)), str(1 << chance.randrange(70)), str(chance.uniform(-9,
                                                                                                               1e6)),
    ))
    return [*tokens[:place], number.encode(), *tokens[place + 1:]]


def _insert(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    place = _place(tokens, chance)
    return [*tokens[:place], _word(chance, words), *tokens[place:]]


def _remove(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    start = _place(tokens, chance)
    return [*tokens[:start], *tokens[start + chance.choice((1, 1, 2, 5, 50)):]]


def _repeat(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    start = _place(tokens, chance)
    part = tokens[start:start + chance.choice((1, 2, 5, 20))]
    return [*tokens[:start], *part * chance.choice((2, 2, 3, 50)), *tokens[start + len(part):]]


def _move(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    start = _place(tokens, chance)
    part = tokens[start:start + chance.choice((1, 2, 5, 20))]
    rest = [*tokens[:start], *tokens[start + len(part):]]
    to = _place(rest, chance)
    return [*rest[:to], *part, *rest[to:]]


def _join(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    if not others:
        return _repeat(tokens, chance, words, others)
    other = _TOKENS.findall(chance.choice(others)[: 1 << 14])
    start = _place(other, chance)
    place = _place(tokens, chance)
    return [*tokens[:place], *other[start:start + chance.choice((1, 5, 30))], *tokens[place:]]


def _flip(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    place = _place(tokens, chance)
    content = bytearray((tokens[place] if place < len(tokens) else b"") or b"x")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return [*tokens[:place], bytes(content), *tokens[place + 1:]]


def _cut(tokens: list[bytes], chance: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    return tokens[:_place(tokens, chance)]


def _recoded(content: bytes, chance: random.Random) -> bytes:
    """Return the same text in another encoding, with a mark in front or with other ends of lines."""
    text = content.decode("utf-8", "replace")
    return chance.choice((
        b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content.replace(b"\n", b"\r"), content + b"\x00",
        text.encode(chance.choice(_ENCODINGS), "replace"), b"\xff\xfe" + content,
    ))


_CHANGES = (_replace, _replace, _renumber, _renumber, _insert, _insert, _remove, _repeat, _move, _join, _flip, _cut)
