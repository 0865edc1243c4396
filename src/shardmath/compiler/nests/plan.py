"""The plan of a nest: what is computed, checked and kept in each loop, in a form that templates only print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..expressions import ops
from ..expressions.graph import Node, ordered
from .grouping import ALIVE, Place, places
from .order import Order, dependencies
from .problem import ESTIMATE, Best, Problem, Question

_LEAVES = frozenset((ops.NAME, ops.NUMBER, ops.TRUTH))


@dataclass(frozen=True)
class Check:
    """A condition, by its place in the list of all conditions."""

    number: int
    node: Node


@dataclass
class Level:
    """Steps at one depth: first for all entries of the table alike, then entry by entry.

    ``before`` and ``table`` hold nodes to compute and conditions to check, in this order; ``loads`` are rows of
    shallower levels that the table loop reads, ``stores`` rows that it fills for deeper ones. ``handed`` is what is
    kept of each turn of a block: on the level of its tests for the innermost level, and there for the table loop.
    """

    before: list[Node | Check] = field(default_factory=list)
    table: list[Node | Check] = field(default_factory=list)
    loads: list[Node] = field(default_factory=list)
    stores: list[Node] = field(default_factory=list)
    handed: list[Node] = field(default_factory=list)

    @property
    def table_checks(self) -> list[Check]:
        """Conditions on single entries."""
        return [step for step in self.table if isinstance(step, Check)]


@dataclass(frozen=True)
class Plan:
    """A nest: ``levels[0]`` comes before all loops, ``levels[1]`` stands in the loop over shards, and so on.

    ``names`` has the variable of every node that has one, ``rows`` the number of each row of the table.
    """

    problem: Problem
    order: Order
    levels: tuple[Level, ...]
    names: Mapping[Node, str]
    rows: Mapping[Node, int]
    place: Mapping[Node, Place]


def planned(problem: Problem, order: Order, known: Mapping[Node, str]) -> Plan:
    """Lay out the nest of ``problem``; ``known`` names some nodes, such as terms."""
    depth = len(order.levels)
    place = _places(problem, order, depth)
    forced = _named_for_questions(problem.questions)
    wanted = _with_variables(problem, place, forced, (depth, True))
    levels = tuple(Level() for _ in range(depth + 1))
    done: set[Node] = set()
    checks = [Check(number, node) for number, (_, node) in enumerate(problem.conditions)]
    for check in sorted(checks, key=lambda item: (place[item.node], item.number)):
        at = place[check.node]
        _schedule(check.node, wanted, place, levels, done)
        (levels[at[0]].table if at[1] else levels[at[0]].before).append(check)
    for root in problem.roots:
        _schedule(root, wanted, place, levels, done)
    rows = _rows(problem, order, levels, place, wanted)
    return Plan(problem, order, levels, _named(levels, problem, known, place), rows, place)


def _places(problem: Problem, order: Order, depth: int) -> dict[Node, Place]:
    place_of = places(problem, order)
    placed: dict[Node, Place] = {}
    masks = dependencies(problem.roots, problem.axes)
    pens = [place_of(masks[node]) for _, node in problem.conditions]
    for node, mask in masks.items():
        below = [placed[arg] for arg in node.args]
        at = place_of(mask)
        if node.op == ops.NAME and node.value == ESTIMATE:
            at = (depth, True)
        if node.op == ops.NAME and node.value == ALIVE:
            at = max(pen for pen in pens if pen[1])
        placed[node] = (max([at[0], *(item[0] for item in below)]), at[1] or any(item[1] for item in below))
    return placed


def _named_for_questions(questions: Iterable[Question]) -> set[Node]:
    """Return the nodes of the answers; each has a variable."""
    return {node for question in questions for node in question.keys if node.op not in _LEAVES}


def _with_variables(problem: Problem, place: Mapping[Node, Place], forced: set[Node], last: Place) -> set[Node]:
    """Return the nodes used more than once, or in another loop; the others stand where they are used."""
    uses: dict[Node, list[Place]] = {}
    for node in ordered(problem.roots):
        for arg in node.args:
            uses.setdefault(arg, []).append(place[node])
    for _, node in problem.conditions:
        uses.setdefault(node, []).append(place[node])
    uses.setdefault(problem.estimate, []).append(last)
    if problem.skip is not None:
        uses.setdefault(problem.skip, []).append((last[0], False))
    for node in (*problem.verdicts, *forced):
        uses.setdefault(node, []).append(last)
    return forced | {
        node for node, at in uses.items()
        if node.op not in _LEAVES and (len(at) > 1 or at[0] != place[node])
    }


def _schedule(
    root: Node, wanted: set[Node], place: Mapping[Node, Place], levels: tuple[Level, ...], done: set[Node],
) -> None:
    """Put what ``root`` needs into the levels, and itself if it has a variable."""
    for node in ordered([root]):
        if node in wanted and node not in done:
            done.add(node)
            depth, fused = place[node]
            (levels[depth].table if fused else levels[depth].before).append(node)


def _rows(
    problem: Problem, order: Order, levels: tuple[Level, ...], place: Mapping[Node, Place], wanted: set[Node],
) -> dict[Node, int]:
    """Give a row to what a deeper loop needs of a table, and note what each table loop loads and stores."""
    rows: dict[Node, int] = {}
    depth = len(order.levels)
    for number, level in enumerate(levels):
        own = dict.fromkeys(step for step in level.table if not isinstance(step, Check))
        referred = [step.node for step in level.table_checks]
        if number == depth:
            keys = [key for question in problem.questions for key in question.keys]
            referred += [problem.estimate, *problem.verdicts, *(key for key in keys if place[key][1])]
        referred += [arg for step in own for arg in step.args]
        if number == depth and order.tested:
            used = _used([*referred, *keys], wanted)
            computed = [arg for step in level.before if not isinstance(step, Check) for arg in step.args]
            level.handed = [node for node in used if place[node] in ((depth, False), (order.tested, False))]
            levels[order.tested].handed = [
                node for node in _used([*referred, *keys, *computed], wanted) if place[node] == (order.tested, False)
            ]
        needed = dict.fromkeys(
            node for node in _used(referred, wanted)
            if place[node][1] and node not in own and node.value != ESTIMATE
        )
        level.loads = [
            node for node in needed if place[node][0] < number or (node.op == ops.NAME and node.value != ALIVE)
        ]
        for node in level.loads:
            rows.setdefault(node, -1)
    for level in levels:
        level.stores = [step for step in level.table if not isinstance(step, Check) and step in rows]
    first = [node for node in rows if place[node][0] == 0]
    stored = [node for level in levels[1:] for node in level.stores]
    return {node: number for number, node in enumerate(dict.fromkeys([*first, *stored]))}


def _used(roots: Iterable[Node], wanted: set[Node]) -> list[Node]:
    """Return nodes with a variable, and names, that sources which mention ``roots`` refer to."""
    used: dict[Node, None] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node in wanted or node.op == ops.NAME:
            used[node] = None
        else:
            pending.extend(node.args)
    return sorted(used, key=lambda node: node.serial)


def _named(
    levels: tuple[Level, ...], problem: Problem, known: Mapping[Node, str], place: Mapping[Node, Place],
) -> dict[Node, str]:
    """Return a variable for every node that is computed: of the term that it is, or a number."""
    names: dict[Node, str] = {node: str(node.value) for node in ordered(problem.roots) if node.op == ops.NAME}
    names |= {node: f"{ALIVE}_{place[node][0]}" for node in names if node.value == ALIVE}
    taken = set(names.values())
    count = 0
    for level in levels:
        for step in (*level.before, *level.table):
            if isinstance(step, Check) or step in names:
                continue
            name = known.get(step, "")
            if not name or name in taken:
                count += 1
                name = f"x{count}"
            names[step] = name
            taken.add(name)
    return names


def group_axes(question: Best, order: Order) -> list[int]:
    """Return the axes that a question is asked for each value of, by their place among the outer axes."""
    outer = [axis.name for axis in order.outer]
    return [outer.index(name) for name in question.per]
