"""Check a certificate: answers in exact fractions, every closed box with outward rounding, and drawn configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from shardmath.errors import InputError
from shardmath.files.reading import json_object, read_text
from shardmath.search.certificates import KIND, VERSION
from shardmath.search.certificates.enclosure import Enclosure
from shardmath.search.certificates.exact import Exact, exactly
from shardmath.search.certificates.posed import Questions, digest_of, enclosure_of, questions_of
from shardmath.search.certificates.tree import Closing, Tree, refuse_open, refuse_outside
from shardmath.search.spaces import Best, Part
from shardmath.search.spaces.files import space_of

#: Bytes of a certificate at most; those that are written here have far fewer.
LARGEST = 1 << 24
#: Configurations of a part that are drawn near its answers, and computed in exact fractions.
_DRAWN = 100

_Key = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Checked:
    """A certificate that holds: answers by question, configurations of the space, boxes, and exact computations.

    ``gaps`` are shares by which others may be better than the answers, 0 where these are the best.
    """

    answers: Mapping[str, int]
    size: int
    boxes: int
    exact: int
    gaps: Mapping[str, float]


def checked_file(path: str) -> Checked:
    """Check the certificate at ``path``. Raises InputError for the first thing that does not hold."""
    return checked(json_object("certificate", path, read_text("certificate", path, "a certificate", LARGEST),
                               "a certificate"))


def checked(document: Mapping[str, Any]) -> Checked:
    """Check a certificate. Raises InputError for the first thing that does not hold."""
    if document.get(KIND) != VERSION:
        raise InputError(KIND, document.get(KIND), "must be a version that is read here", VERSION)
    space = space_of(_field(document, "space", dict))
    parts, questions = space.parts(), questions_of(space)
    if document.get("formulas") != digest_of(parts):
        rule = "must be the digest of the formulas and numbers that this version has for the space"
        raise InputError(f"{KIND}.formulas", document.get("formulas"), rule)
    answers, cuts = _field(document, "answers", dict), _field(document, "parts", list)
    if [*answers] != [question.name for question in questions] or len(questions) < len(space.questions):
        raise InputError(f"{KIND}.answers", [*answers], "must be those to all questions of the space")
    if len(cuts) != len(parts):
        raise InputError(f"{KIND}.parts", len(cuts), "must be as many as the space has", str(len(parts)))
    points: dict[_Key, Exact] = {}
    known = [_proved(place, answers[question.name], parts, questions, points)
             for place, question in enumerate(questions)]
    gaps = _gaps(_field(document, "gaps", dict), questions)
    closings, boxes = Closing.of(questions, known, gaps), 0
    for part, cut in zip(parts, cuts, strict=True):
        boxes += _refuse_unproved(part, cut, questions, closings, points)
    return Checked({question.name: len(keys) for question, keys in zip(questions, known, strict=True)},
                   sum(part.size for part in parts), boxes, len(points), gaps)


def _gaps(document: Mapping[str, Any], questions: Questions) -> dict[str, float]:
    """Return the gap of every question. Raises InputError for what is no share."""
    names = [question.name for question in questions]
    if [*document] != names:
        raise InputError(f"{KIND}.gaps", [*document], f"must have {', '.join(names)}")
    for name, gap in document.items():
        if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 <= gap < float("inf"):
            raise InputError(f"{KIND}.gaps.{name}", gap, "must be a number that is not below 0")
    return {name: float(gap) for name, gap in document.items()}


def _proved(
    place: int, rows: Any, parts: Sequence[Part], questions: Questions, points: dict[_Key, Exact],
) -> list[tuple[Fraction, ...]]:
    """Return the exact keys of the answers to a question. Raises InputError for answers that are none."""
    question = questions[place]
    field, known = f"{KIND}.answers.{question.name}", list[tuple[Fraction, ...]]()
    for row in rows if isinstance(rows, list) else [rows]:
        try:
            part = parts[row["part"]]
            places = part.places(row["number"])
        except (TypeError, KeyError, IndexError):
            raise InputError(field, row, "must be the number of a configuration of the space") from None
        point = exactly(part, places, questions)
        if point is None or not point.counts[place]:
            raise InputError(field, row["number"], f"must be a configuration that counts: {question.among}")
        if row.get("keys") != [str(key) for key in point.keys[place]]:
            raise InputError(field, row.get("keys"), "must be the exact keys", ", ".join(map(str, point.keys[place])))
        points[part.number, places] = point
        known.append(point.keys[place])
    floats = [tuple(map(float, keys)) for keys in known]
    if isinstance(question, Best):
        if len(known) > question.count or any(better >= worse for better, worse in pairwise(floats)):
            raise InputError(field, len(known), f"must be {question.count} at most, each better than the next")
    elif any(all(map(float.__le__, left, right)) for left, right in permutations(floats, 2)):
        raise InputError(field, len(known), "must not have one that another beats")
    return known


def _refuse_unproved(
    part: Part, cut: Any, questions: Questions, closings: Sequence[Closing], points: dict[_Key, Exact],
) -> int:
    """Raise InputError unless all boxes of a part are closed, and what is drawn agrees; return the boxes."""
    names = [axis.name for axis in part.axes]
    order = cut.get("order") if isinstance(cut, dict) else None
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(names):
        raise InputError(f"{KIND}.order", order, f"must have the axes {', '.join(names)}")
    sizes = dict(zip(names, (axis.size for axis in part.axes), strict=True))
    tree = Tree.read(str(cut.get("tree")), [sizes[name] for name in order])
    enclosure = enclosure_of(part, questions, order)
    _draw(part, questions, closings, points, enclosure)
    legal = [(places, point) for (number, places), point in points.items() if number == part.number]
    if legal:
        refuse_outside(enclosure, np.asarray([places for places, _ in legal], np.int16),
                       np.asarray([point.counts for _, point in legal], np.bool_),
                       [[key for keys in point.keys for key in keys] for _, point in legal])
    refuse_open(enclosure, closings, tree)
    return tree.boxes


def _draw(
    part: Part, questions: Questions, closings: Sequence[Closing], points: dict[_Key, Exact], enclosure: Enclosure,
) -> None:
    """Add legal configurations near the answers.

    Raises InputError for one that should be an answer and is none, or that differs from the one that stands for it.
    """
    starts = [places for number, places in points if number == part.number] or [(0,) * len(part.axes)]
    chance = np.random.default_rng(part.size)
    for _ in range(_DRAWN):
        places = list(starts[chance.integers(len(starts))])
        for axis in chance.choice(len(places), min(2, len(places)), replace=False).tolist():
            places[axis] = int(chance.integers(part.axes[axis].size))
        key = part.number, tuple(places)
        point = points[key] if key in points else exactly(part, places, questions)
        first = enclosure.standing_for(places)
        if first != places and exactly(part, first, questions) != point:
            raise InputError(KIND, _shown(part, places), f"must be like {_shown(part, first)}, which stands for it")
        if point is None:
            continue
        points[key] = point
        keys = np.asarray([[float(key) for own in point.keys for key in own]])
        for closing, counts in zip(closings, point.counts, strict=True):
            if counts and not closing.closes(keys, keys)[0]:
                rule = f"must not be better than the answers to {closing.question.name}"
                raise InputError(KIND, _shown(part, places), rule)


def _shown(part: Part, places: Sequence[int]) -> str:
    number = 0
    for axis, place in zip(part.axes, places, strict=True):
        number = number * axis.size + place
    return ", ".join(map(str, part.labels_at(number).values()))


def _field(document: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        raise InputError(f"{KIND}.{name}", value, f"must be a JSON {'object' if kind is dict else 'array'}")
    return value
