"""Spell the signs that a stream cannot show: formulas, tables and names of files stay readable in every encoding."""

from __future__ import annotations

import codecs
import unicodedata
from io import TextIOWrapper
from typing import TextIO

#: Replacements of signs that an encoding lacks.
_SIGNS = {
    "×": "x", "→": "->", "≥": ">=", "≤": "<=", "≠": "!=", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "∣": "|",
    "·": "*", "−": "-", "–": "-", "—": "-", "✓": "yes", "ℓ": "l", "…": "...", "¬": "not ", "∧": "and", "∨": "or",
    "━": "-", "╸": "-", "╺": "-", "∞": "oo", "λ": "lambda",
}
_GREEK = "GREEK SMALL LETTER "
#: Kinds of letters that stand below or above the line, with the sign that says so on one line.
_RAISED = {"<sub>": "_", "<super>": "^"}
_ERRORS, _ASCII = "shardmath-spelled", "shardmath-ascii"


def spelled(text: str) -> str:
    """Return ``text`` in ASCII: names of Greek letters, ``_`` and ``^`` before what stands low or high, else codes."""
    written, before = "", ""
    for sign in text:
        kind, _, base = unicodedata.decomposition(sign).partition(" ")
        raised = _RAISED.get(kind, "")
        if raised:
            written += raised * (raised != before) + "".join(spelled(chr(int(code, 16))) for code in base.split())
        elif sign in _SIGNS:
            written += _SIGNS[sign]
        elif "\u2500" <= sign <= "\u257f":  # lines of boxes
            line = unicodedata.name(sign).removeprefix("BOX DRAWINGS ").split()
            written += {"HORIZONTAL": "-", "VERTICAL": "|"}.get(line[-1], "+") if len(line) == 2 else "+"
        elif unicodedata.name(sign, "").startswith(_GREEK):
            written += unicodedata.name(sign).removeprefix(_GREEK).lower()
        else:
            written += sign.encode("ascii", "backslashreplace").decode("ascii")
        before = raised
    return written


def spell_on(stream: TextIO | None) -> None:
    """Let ``stream`` spell what its encoding lacks, where it is one of bytes."""
    if isinstance(stream, TextIOWrapper):
        # click takes a stream in plain ASCII for one that is set wrongly, and writes UTF-8 to it.
        encoding = _ASCII if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
        stream.reconfigure(encoding=encoding, errors=_ERRORS)


def shows(stream: TextIO, text: str) -> bool:
    """Tell whether ``stream`` shows ``text`` as it is, so that what stands in columns stays there."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return spelled(error.object[error.start:error.end]), error.end


def _ascii_of_ours(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(known.encode, known.decode, known.streamreader, known.streamwriter,
                            known.incrementalencoder, known.incrementaldecoder, name=_ASCII)


codecs.register_error(_ERRORS, _replacement)
codecs.register(_ascii_of_ours)
