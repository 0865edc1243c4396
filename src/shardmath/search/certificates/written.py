"""Write the certificate of a search: its answers with exact keys, and boxes that show that there are no better ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from shardmath.errors import InputError
from shardmath.search.certificates import KIND, VERSION
from shardmath.search.certificates.exact import exactly
from shardmath.search.certificates.posed import digest_of, enclosure_of, questions_of
from shardmath.search.certificates.tree import Closing, grown
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Space
from shardmath.search.spaces.files import plain


def certificate(space: Space, orders: Sequence[Sequence[str]], answers: Mapping[str, Iterable[Configuration]],
                gaps: Mapping[str, float]) -> str:
    """Return the certificate of the ``answers`` to a space; ``orders`` has the axes of each part as they are cut.

    ``gaps`` are shares of keys by question: no other configuration is better by more, 0 where the search was complete.
    Raises InputError if bounds with outward rounding do not show that there are no better ones.
    """
    parts, questions = space.parts(), questions_of(space)
    rows: dict[str, list[dict[str, Any]]] = {}
    known: list[list[tuple[Fraction, ...]]] = []
    for number, question in enumerate(questions):
        configurations = list(answers[question.name])
        points = [exactly(item.part, item.part.places(item.number), questions) for item in configurations]
        if any(point is None for point in points):
            raise InputError("certificate", question.name, "must have legal answers alone")
        known.append([point.keys[number] for point in points if point is not None])
        rows[question.name] = [
            {"part": item.part.number, "number": item.number, "keys": [str(key) for key in keys]}
            for item, keys in zip(configurations, known[-1], strict=True)
        ]
    closings = Closing.of(questions, known, gaps)
    trees = [grown(enclosure_of(part, questions, order), closings)
             for part, order in zip(parts, orders, strict=True)]
    cuts = [{"order": list(order), "boxes": tree.boxes, "tree": tree.text}
            for order, tree in zip(orders, trees, strict=True)]
    document = {KIND: VERSION, "formulas": digest_of(parts), "space": plain(space), "answers": rows,
                "gaps": dict(gaps), "parts": cuts}
    return json.dumps(document, indent=1) + "\n"
