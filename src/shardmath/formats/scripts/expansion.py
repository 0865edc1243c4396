"""Words of a bash script: parameters, arrays, sums and tests put in, from a tree of the script and known variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.scripts.arithmetic import UnknownError, Value, expr, number

#: Around the name of what has no value; no script has these characters (private use, taken out before it is parsed).
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
#: Between words of an array; in double quotes ${NAME[*]} is one word, with spaces between them.
_BREAK = None
_SPACES = re.compile(r"[ \t\n]+")
#: Characters, and parts, of one argument; a few references to long values could ask for more than there is memory.
LONGEST = 2**18
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([\n$`"\\])')


#: A part of a word, and whether it stands in quotes.
Piece = tuple[str | None, bool]


def plain(text: str) -> str:
    """Return the text without the characters that mark what has no value."""
    return text.replace(_OPEN, "").replace(_CLOSE, "").replace("\r\n", "\n")


def marked(word: str) -> tuple[str, ...]:
    """Return the names without a value in a word: ``TP`` for an unset $TP, ``$(date)`` for a command's output."""
    return tuple(_MARK.findall(word))


def whole_name(word: str) -> str:
    """Return the name of the variable without a value that is all of a word; nothing for other words."""
    names = marked(word)
    return names[0] if len(names) == 1 and not names[0].startswith("$") and not _MARK.sub("", word) else ""


def unmarked(word: str) -> str:
    """Return the word as somebody wrote it, with ${NAME} for what has no value."""
    return _MARK.sub(lambda match: match[1] if match[1].startswith("$") else f"${{{match[1]}}}", word)


def behind_unknown(word: str) -> str:
    """Return the part of a path behind the folder that only a run could tell; the word itself if all of it is known."""
    return _MARK.split(word)[-1].lstrip("/") if marked(word) else word


def empty_unless_set(word: str) -> str | None:
    """Get the word with unset variables empty, as in a bare environment; None where the output of a command matters."""
    if any(name.startswith("$") for name in marked(word)):
        return None
    return _MARK.sub("", word)


def words(node: Any, known: Mapping[str, Value]) -> list[str]:
    """Return the words that an argument becomes: unquoted values fall apart at white space, empty ones vanish."""
    expanded: list[str] = []
    open_word: str | None = None
    for piece, quoted in _affordable(_pieces(node, known, False)):
        parts = [piece or ""] if quoted else _SPACES.split(piece or "")
        breaks = [True] if piece is _BREAK else [False, *[True] * (len(parts) - 1)]
        for part, apart in zip(parts, breaks, strict=True):
            if apart and open_word is not None:
                expanded.append(open_word)
                open_word = None
            if part or (quoted and piece is not _BREAK):
                open_word = (open_word or "") + part
    return expanded if open_word is None else [*expanded, open_word]


def text(node: Any, known: Mapping[str, Value]) -> str:
    """Return the one text that an argument becomes inside of an assignment."""
    return "".join(" " if piece is _BREAK else piece for piece, _ in _affordable(_pieces(node, known, True)))


def here_document(node: Any, known: Mapping[str, Value]) -> str:
    """Return the text of a here document that is not quoted, its parameters put in but for those without a value."""
    def pieces() -> Iterator[Piece]:
        whole, start, end = node.text, node.start_byte, 0
        for child in node.named_children:
            if child.type in ("simple_expansion", "expansion"):
                yield whole[end:child.start_byte - start + len(_BEFORE.match(child.text)[0])].decode(), True
                yield from _pieces(child, known, True)
                end = child.end_byte - start
        yield whole[end:].decode(), True

    return unmarked("".join(" " if piece is _BREAK else piece for piece, _ in _affordable(pieces())))


def _affordable(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the same pieces. Raises InputError once they are longer than ``LONGEST``."""
    length = 0
    for piece, quoted in pieces:
        length += len(piece or "") + 1
        if length > LONGEST:
            rule = f"must not make a word of more than {LONGEST} characters"
            raise InputError("script", unmarked(piece or ""), rule)
        yield piece, quoted


def _pieces(node: Any, known: Mapping[str, Value], quoted: bool) -> Iterator[Piece]:
    """Yield parts of a word with whether each is quoted; ``_BREAK`` stands between elements of a quoted array."""
    kind, written = node.type, node.text.decode()
    if kind == "concatenation":
        for child in node.named_children:
            yield from _pieces(child, known, quoted)
    elif kind == "string":
        yield from _quoted(node, known)
    elif kind in ("simple_expansion", "expansion"):
        yield from _expanded(node, known, quoted)
    elif kind == "arithmetic_expansion":
        try:
            inner = node.named_children
            yield str(number(inner[0], known, lambda part: text(part, known))) if inner else "0", True
        except UnknownError:
            yield mark(written), True
    elif kind == "command_substitution":
        yield _sum_of(node, known), True
    elif kind == "process_substitution":
        yield mark("$(...)"), True
    elif kind in ("raw_string", "ansi_c_string"):
        yield written[written.find("'") + 1:-1], True
    else:
        # White space that is not escaped stands in an unquoted default alone, which falls apart at it.
        plain_word = _ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], written)
        yield plain_word, quoted or "\\" in written


#: Nodes of the grammar that can have white space and the ends of continued lines in front, and these.
_BEFORE: Any = re.compile(rb"[\s\\]*")
_EXPANSIONS = ("simple_expansion", "expansion", "arithmetic_expansion", "command_substitution")


def _sum_of(node: Any, known: Mapping[str, Value]) -> str:
    """Return the output of ``expr``, of whose words all are known; a mark for that of any other command."""
    commands = node.named_children
    if len(commands) == 1 and commands[0].type == "command":
        name, *others = (word for child in commands[0].named_children for word in words(child, known))
        try:
            return str(expr(others)) if name == "expr" else mark("$(...)")
        except UnknownError:
            pass
    return mark("$(...)")


def _quoted(node: Any, known: Mapping[str, Value]) -> Iterator[Piece]:
    """Return the text between double quotes, with the white space between expansions that the grammar leaves out.

    White space with the end of a continued line is part of the expansion behind it.
    """
    if _is_empty_list(node, known):
        return
    whole, start, end = node.text, node.start_byte, 1
    for child in node.named_children:
        yield _unescaped(whole[end:child.start_byte - start].decode()), True
        if child.type in _EXPANSIONS:
            yield _unescaped(_BEFORE.match(child.text)[0].decode()), True
        if child.type == "string_content":
            yield _unescaped(child.text.decode()), True
        else:
            yield from _pieces(child, known, True)
        end = child.end_byte - start
    yield _unescaped(whole[end:-1].decode()), True


def _is_empty_list(node: Any, known: Mapping[str, Value]) -> bool:
    """Tell whether a quoted word is an array without elements, which yields no word."""
    inner = node.named_children
    if len(inner) != 1 or len(node.text) != len(inner[0].text) + 2 or inner[0].type != "expansion":
        return False
    targets = [child for child in inner[0].named_children if child.type == "subscript"]
    name, index = _name_and_index(targets[0]) if targets else ("", "")
    return index == "@" and len(inner[0].named_children) == 1 and not isinstance(known.get(name, []), str) and not (
        known.get(name))


def _unescaped(written: str) -> str:
    return _ESCAPED_IN_QUOTES.sub(lambda match: "" if match[1] == "\n" else match[1], written)


def _expanded(node: Any, known: Mapping[str, Value], quoted: bool) -> Iterator[Piece]:
    """Yield the value of a parameter; all elements of an array where they are asked for."""
    named, unknown = node.named_children, (mark(node.text[len(_BEFORE.match(node.text)[0]):].decode()), quoted)
    if not named or (node.type == "expansion" and node.children[1].type in ("#", "!")):
        yield unknown
        return
    target, operator = named[0], next((c.type for c in node.children[2:] if not c.is_named and c.type != "}"), "")
    name, index = _name_and_index(target)
    if index and index not in "@*":
        try:
            place = number(target.child_by_field_name("index"), known, lambda part: text(part, known))
        except UnknownError:
            yield unknown
            return
        index = str(place)
    elements = _elements(known.get(name), index)
    absent = not elements or (operator.startswith(":") and not any(elements))
    if (operator in _DEFAULTS and absent) or (operator in _ALTERNATIVES and not absent):
        yield "", quoted
        for child in named[1:]:
            yield from _pieces(child, known, quoted)
    elif operator in _ALTERNATIVES:
        yield "", quoted
    elif operator not in ("", *_DEFAULTS, *_CHECKS):
        yield unknown
    elif name not in known and not (index and index in "@*"):  # no environment has an array
        yield mark(name), quoted
    else:
        for place, element in enumerate(elements):
            if place:
                yield " " if quoted and index == "*" else _BREAK, True
            yield element, quoted


def _elements(value: Value | None, index: str) -> list[str]:
    """Return the values of a parameter: all elements of an array for @, else its value; none if unset."""
    elements = value if isinstance(value, list) else [] if value is None else [value]
    if index and index in "@*":
        return elements
    place = int(index[:9] or 0)
    return elements[place:][:1]


#: ${NAME:-default}, ${NAME:+alternative} and ${NAME:?message}, with and without the colon.
_DEFAULTS, _ALTERNATIVES, _CHECKS = (":-", "-", ":=", "="), (":+", "+"), (":?", "?")


def _name_and_index(target: Any) -> tuple[str, str]:
    """Return the name of a parameter, and the text of its index if it has one."""
    if target.type != "subscript":
        return target.text.decode(), ""
    name, index = target.child_by_field_name("name"), target.child_by_field_name("index")
    return (name.text.decode() if name is not None else ""), (index.text.decode() if index is not None else "")


def mark(name: str) -> str:
    """Return a word for what has no value, from which ``marked`` finds its name again."""
    return f"{_OPEN}{'$(...)' if name.startswith('$(') else ''.join(name.split())[:40]}{_CLOSE}"
