"""Certificates of a search by branch and bound: written once, and checked with arithmetic of their own."""

from __future__ import annotations

import os

#: The first key of a certificate, and the version of its form.
KIND, VERSION = "certificate", "shardmath/certificate/2"
#: Characters in which a certificate says that it is one.
_BEGINNING = 40


def is_certificate(path: str) -> bool:
    """Tell whether a file says that it is a certificate; nothing that checks one is imported for it."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return f'"{KIND}"'.encode() in file.read(_BEGINNING)
    except OSError:
        return False
