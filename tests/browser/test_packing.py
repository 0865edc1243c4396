"""The page's decoder of .lzma files gives what Python packed, with all settings of the format."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from shardmath.commands.page.writing import packed_small

#: Lengths of each of the texts, from the decoder of the page, and whether it gave them back.
DECODED = """(files) => files.map((file) => {
  const bytes = decompressed(Uint8Array.from(atob(file), (character) => character.charCodeAt(0)));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
})"""


def contents(random: Random) -> Iterator[bytes]:
    """Draw bytes: none, few, without any order, of few kinds, and with copies at every distance."""
    yield b""
    yield b"a"
    yield b"a" * 70_000
    for _ in range(40):
        words = [random.randbytes(random.choice((1, 3, 9, 300))) for _ in range(random.choice((2, 50, 500)))]
        yield b"".join(random.choice(words) for _ in range(random.choice((1, 30, 2_000))))


def test_the_page_decodes_what_python_packs(opened: Callable[..., Any]) -> None:
    random = Random(1)
    texts = list(contents(random))
    files = []
    for text in texts:
        literal = random.randint(0, 4)
        filters = [{"id": lzma.FILTER_LZMA1, "preset": random.randint(0, 9), "lc": literal,
                    "lp": random.randint(0, 4 - literal), "pb": random.randint(0, 4)}]
        content = bytearray(lzma.compress(text, lzma.FORMAT_ALONE, filters=filters))
        content[5:13] = len(text).to_bytes(8, "little")
        files.append(base64.b64encode(content).decode())
    decoded = opened().evaluate(DECODED, files)
    assert [base64.b64decode(text) for text in decoded] == texts


@pytest.mark.parametrize("data", [{}, {"text": "é" * 100, "numbers": [1.5, 2**52]}])
def test_what_the_page_unpacks_is_a_file_of_lzma(data: dict[str, Any], opened: Callable[..., Any]) -> None:
    text = packed_small(data)
    assert json.loads(lzma.decompress(base64.b64decode(text), lzma.FORMAT_ALONE)) == data
    made = "([text]) => { document.body.append(element('div', { id: 'made' }, text)); return unpacked('made'); }"
    assert opened().evaluate(made, [text]) == data
