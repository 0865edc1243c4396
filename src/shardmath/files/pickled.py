"""Plain data of a pickle, read by a machine of its own: it has no opcode that imports, builds or calls anything."""

from __future__ import annotations

import os
import struct
from typing import Any

from shardmath.errors import InputError

#: Bytes of a file, opcodes in it, and bytes of one integer: beyond all that PyTorch writes.
LARGEST, MOST, LONGEST = 2**30, 10**8, 16
#: Byte that every pickle of protocol 2 or later begins with, and the function that writes those read here.
_PICKLE, _WRITER = b"\x80", "that torch.cuda.memory._dump_snapshot wrote"
#: How other files begin that people have of a snapshot, and what to do with them.
_OTHERS = {b"\x1f\x8b": "gzip packed it; unpack it first", b"PK\x03\x04": "it is a zip archive; unpack it first",
           b"SQLite format 3\0": "it is what _dump_snapshot_sqlite wrote"}
#: Opcodes that import, build or call something, by name.
_CALLS = {ord("c"): "GLOBAL", 0x93: "STACK_GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST",
          ord("o"): "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x82: "EXT1", ord("P"): "PERSID", ord("Q"): "BINPERSID"}
_MARK = object()
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_CONSTANTS: dict[int, Any] = {ord("N"): None, 0x88: True, 0x89: False}
#: Opcodes of a whole number and of text: code and struct of what follows.
_NUMBERS = {ord("K"): struct.Struct("<B"), ord("M"): struct.Struct("<H"), ord("J"): struct.Struct("<i"),
            ord("G"): struct.Struct(">d")}
_LENGTHS = {0x8C: struct.Struct("<B"), ord("X"): struct.Struct("<I"), 0x8D: struct.Struct("<Q")}
_FILLS = tuple(map(ord, "uetsa"))
_EMPTY = {ord("}"): dict, ord("]"): list}
_PUTS, _GETS = {ord("q"): 1, ord("r"): 4}, {ord("h"): 1, ord("j"): 4}


def read_plain(field: str, path: str | os.PathLike[str]) -> Any:
    """Return the dicts, lists, tuples, texts and numbers of the pickle at ``path``.

    Raises InputError, which blames ``field``, for what is no regular file, no pickle of protocol 2 to 5, too large, or
    has anything else in it, such as a class or a function.
    """
    text = os.fspath(path)
    if not os.path.isfile(text):
        raise InputError(field, text, f"must be the path of a pickle {_WRITER}")
    try:
        if os.path.getsize(text) > LARGEST:
            raise InputError(field, text, f"must be a pickle of at most {LARGEST} bytes")
        with open(text, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(field, text, f"must be readable: {error.strerror}") from None
    if content[:1] != _PICKLE:
        kind = next((words for start, words in _OTHERS.items() if content.startswith(start)),
                    "it is another kind of file")
        raise InputError(field, text, f"must be a pickle {_WRITER}: {kind}")
    try:
        return _run(content)
    except _ForeignError as error:
        raise InputError(field, text, f"must hold plain data alone, and {error}") from None
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error):
        raise InputError(field, text, "must be a complete pickle of protocol 2 to 5") from None


class _ForeignError(Exception):
    """An opcode, or a size, that no plain data needs."""


def _run(content: bytes) -> Any:
    """Execute the opcodes on a stack with marks; the memo is a dict, so no index can make it large."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    place = 0
    for _ in range(MOST):
        code = content[place]
        place += 1
        if (behind := _value(code, content, place, stack)) is not None:
            place = behind
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code == ord("("):
            stack.append(_MARK)
        elif code in _FILLS:
            _fill(code, stack)
        elif code == ord(")"):
            stack.append(())
        elif code in _TUPLES:
            stack[-_TUPLES[code]:] = [tuple(stack[-_TUPLES[code]:])]
        elif code == 0x94:
            memo[len(memo)] = stack[-1]
        elif code in _PUTS:
            memo[int.from_bytes(content[place: place + _PUTS[code]], "little")] = stack[-1]
            place += _PUTS[code]
        elif code in _GETS:
            stack.append(memo[int.from_bytes(content[place: place + _GETS[code]], "little")])
            place += _GETS[code]
        elif code == 0x80:
            place += 1
        elif code == 0x95:
            place += 8
        elif code == ord("."):
            (value,) = stack
            return value
        else:
            name = f", {_CALLS[code]}: nothing is imported or called here" if code in _CALLS else ""
            raise _ForeignError(f"byte {place - 1} is the opcode {code:#04x}{name}")
    raise _ForeignError(f"it has more than {MOST} opcodes")


def _value(code: int, content: bytes, place: int, stack: list[Any]) -> int | None:
    """Push a constant, a number or a text that begins behind its opcode; return the place behind it."""
    if code in _CONSTANTS:
        stack.append(_CONSTANTS[code])
        return place
    if code in _NUMBERS:
        stack.append(_NUMBERS[code].unpack_from(content, place)[0])
        return place + _NUMBERS[code].size
    if code in _LENGTHS:
        length: int = _LENGTHS[code].unpack_from(content, place)[0]
        place += _LENGTHS[code].size
        if length > len(content) - place:
            raise ValueError
        stack.append(content[place: place + length].decode("utf-8", "surrogatepass"))
        return place + length
    if code == 0x8A:
        length = content[place]
        if length > LONGEST:
            raise _ForeignError(f"byte {place} begins an integer of {length} bytes")
        stack.append(int.from_bytes(content[place + 1: place + 1 + length], "little", signed=True))
        return place + 1 + length
    return None


def _fill(code: int, stack: list[Any]) -> None:
    """Put what lies above a mark, or one item, into the list or the dictionary below it; or make a tuple of it."""
    if code == ord("a"):
        value = stack.pop()
        stack[-1].extend((value,))
    elif code == ord("s"):
        value, key = stack.pop(), stack.pop()
        stack[-1].update({key: value})
    else:
        items = _popped(stack)
        if code == ord("t"):
            stack.append(tuple(items))
        elif code == ord("e"):
            stack[-1].extend(items)
        else:
            stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _popped(stack: list[Any]) -> list[Any]:
    """Take all above the uppermost mark, and the mark."""
    for place in range(len(stack) - 1, -1, -1):
        if stack[place] is _MARK:
            items = stack[place + 1:]
            del stack[place:]
            return items
    raise ValueError
