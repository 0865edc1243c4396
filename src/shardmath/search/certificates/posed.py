"""Subjects of a certificate: the questions of a space, a digest of its formulas, and bounds of its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from shardmath.compiler.nests.posing import posed
from shardmath.search.boxes.switched import switched
from shardmath.search.certificates.enclosure import Enclosure
from shardmath.search.certificates.memory import keep_freed_memory
from shardmath.search.certificates.rounding import rounded_upward
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Best, Front, Part, Space

Questions = tuple[Best | Front, ...]


def questions_of(space: Space) -> Questions:
    """Return the questions of a space that branch and bound answers."""
    return tuple(question for question in space.questions if isinstance(question, Best | Front))


def digest_of(parts: Sequence[Part]) -> str:
    """Return a digest of all formulas and numbers that answers depend on."""
    described = [
        [evaluator_source(part), [[axis.name, axis.labels, dict(axis.values)] for axis in part.axes], part.labels,
         sorted(part.fixed.items()), part.derived, [[item.name, item.text] for item in part.constraints]]
        for part in parts
    ]
    return hashlib.sha256(json.dumps([described, verdict_source()]).encode()).hexdigest()


def enclosure_of(part: Part, questions: Questions, order: Sequence[str]) -> Enclosure:
    """Return bounds of a part whose axes are cut in this order."""
    problem, _ = posed(posing_of(part, questions, literal=True), evaluator_source(part), verdict_source())
    problem = switched(problem, part)
    axes = [axis.name for axis in part.axes]
    keep_freed_memory()
    with rounded_upward():
        return Enclosure(part, problem, [axes.index(name) for name in order])
