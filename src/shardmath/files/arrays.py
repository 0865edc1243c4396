"""Arrays by name as one file with a digest of all of them, read back exactly or not at all. Any NumPy reads them."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.generic]]
_DIGEST = "digest"
_END = ".npy"
_WRONG = (ValueError, TypeError, KeyError, EOFError, SyntaxError, RuntimeError, MemoryError, OverflowError,
          zipfile.BadZipFile, zlib.error, struct.error)


class DamagedError(ValueError):
    """A file that is not as ``write_arrays`` has written it."""


def write_arrays(file: IO[bytes], arrays: Arrays, *, compressed: bool = False) -> None:
    """Write arrays without objects."""
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    members = {name: _bytes_of(array) for name, array in arrays.items()}
    members[_DIGEST] = _bytes_of(np.array(_digest(members.items())))
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}{_END}"), content, kind)


def read_arrays(path: Path, largest: int | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays in a file, of ``largest`` bytes together at most.

    Raises DamagedError for any other file, and OSError for one that cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DamagedError
        try:
            with zipfile.ZipFile(file) as archive:
                if largest is not None and sum(info.file_size for info in archive.infolist()) > largest:
                    raise DamagedError
                members = {info.filename.removesuffix(_END): _content(archive, info) for info in archive.infolist()}
            stated = str(_array_of(members.pop(_DIGEST)))
            if stated != _digest(members.items()):
                raise DamagedError
            return {name: _array_of(content) for name, content in members.items()}
        except _WRONG:
            raise DamagedError from None


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Content of one part of a file, whose header may state a smaller size."""
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise DamagedError
    return content


def _bytes_of(array: NDArray[np.generic]) -> bytes:
    buffer = BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def _array_of(content: bytes) -> NDArray[Any]:
    """Return one array, which has as many numbers as it says."""
    buffer = BytesIO(content)
    version = np.lib.format.read_magic(buffer)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, kind = readers[version](buffer)
    if kind.hasobject or any(size < 0 for size in shape):
        raise DamagedError
    count = 1
    for size in shape:
        count *= size
    if count * kind.itemsize != len(content) - buffer.tell():
        raise DamagedError
    array = np.frombuffer(content, kind, count, buffer.tell()) if count and kind.itemsize else np.zeros(count, kind)
    return array.reshape(shape, order="F" if fortran else "C").copy()


def _digest(members: Iterable[tuple[str, bytes]]) -> str:
    content = hashlib.sha256()
    for name, data in sorted(members):
        content.update(f"{name} {len(data)}\n".encode() + data)
    return content.hexdigest()
