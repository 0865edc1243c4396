"""Data of ``nest.py.jinja``: the plan of a nest as the lines of its loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ..nests.graph import LE, NAME, Node, ordered
from ..nests.grouping import ALIVE
from ..nests.order import LANES
from ..nests.plan import Check, Level, Plan, group_axes
from ..nests.problem import ESTIMATE, Best, Front, Histogram, NestAxis, Question, Rows
from ..nests.skipping import HIGH, LOW, end_name
from ..printers.nest import NUMBA, NUMPY, Dialect, NestPrinter

#: Rows of the table start this many entries apart: a little more than what they hold, so that the rows of one entry
#: do not fall on the same lines of a cache.
_APART = 8
#: Entries that the table of a nest for all sizes has room for.
_ROOM = 4096
#: The row of a block that tells which turns are passed over, as nothing fits in them.
_PASSED = "passed"


def nest(title: str, key: str, plan: Plan, *, dialect: Dialect = NUMBA, literal: bool = False) -> dict[str, Any]:
    """Prepare a nest. With ``literal``, sizes of axes are written as numbers, and the nest is for no others."""
    return {"key": key, **_Writer(plan, dialect, literal).data(title)}


class _Writer:
    """Writes the lines of one plan."""

    def __init__(self, plan: Plan, dialect: Dialect, literal: bool) -> None:
        self.plan, self.dialect, self.literal = plan, dialect, literal
        self.printer = NestPrinter(dialect, plan.names)
        self.depth = len(plan.levels) - 1
        entries = plan.order.entries
        self.stride = (-(-entries // 8) * 8 if literal else _ROOM) + _APART
        self.after_estimate = _using(plan.problem.roots, ESTIMATE)
        self.pens = [number for number, level in enumerate(plan.levels[:-1]) if level.table_checks]

    def data(self, title: str) -> dict[str, Any]:
        plan, order = self.plan, self.plan.order
        outer = list(order.outer)
        given = self._given()
        rows = [plan.names[node] for node, _ in sorted(plan.rows.items(), key=lambda item: item[1])]
        rows += [name for number in self.pens if (name := _alive(number)) not in rows]
        if plan.problem.questions:
            rows.append(ESTIMATE)
        return {
            "title": title,
            "axes": [axis.name for axis in plan.problem.axes],
            "outer": [axis.name for axis in outer],
            "fused": [axis.name for axis in order.fused],
            "shard_axes": len(order.shard),
            "outer_parameters": [parameter for axis in outer for parameter in axis.parameters],
            "conditions": [name for name, _ in plan.problem.conditions],
            "tried": [step.number for level in plan.levels for step in (*level.before, *level.table)
                      if isinstance(step, Check)],
            "scalars": self._scalars(), "columns": self._columns(),
            "before": [{"check": False, **end} for end in self._ends()] + self._before(plan.levels[0]),
            "before_rows": self._before_rows(),
            "given": given,
            "rows": [{"name": name, "place": number * self.stride} for number, name in enumerate(rows)],
            "stride": self.stride, "room": self.stride - _APART,
            "literal": self.literal, "entries": self._size_of_table(),
            "shard_index": self._shard_index(order.shard),
            "shards": self._product(order.shard, 0),
            "below": [{"name": f"below_{number}", "source": self._product(
                (*order.loops[number - 1:], *order.block), len(order.shard) + number - 1)}
                for number in range(1, self.depth)],
            "block": self._block() if order.block else None,
            "top": self._level(1),
            "questions": [self._question(question) for question in plan.problem.questions],
            "verdicts": len(plan.problem.verdicts),
        }

    # Before the loops: whole columns in NumPy, or numbers.

    def _leaves(self) -> list[Node]:
        return [node for node in ordered(self.plan.problem.roots)
                if node.op == NAME and node.value not in (ESTIMATE, ALIVE) and self.plan.place[node][0] == 0]

    def _scalars(self) -> list[str]:
        ends = {end["name"] for end in self._ends()}
        names = [str(node.value) for node in self._leaves() if not self.plan.place[node][1]]
        return [name for name in names if name not in ends]

    def _ends(self) -> list[dict[str, str]]:
        """Smallest and largest values of the table's parameters, as far as they are needed."""
        leaves = {str(node.value) for node in self._leaves()}
        parameters = [parameter for axis in self.plan.order.fused for parameter in axis.parameters]
        return [
            {"name": name, "source": f"{function}({parameter})"}
            for parameter in parameters for end, function in ((LOW, "np.min"), (HIGH, "np.max"))
            if (name := end_name(parameter, end)) in leaves
        ]

    def _columns(self) -> list[str]:
        needed = {str(node.value) for node in self._leaves() if self.plan.place[node][1]}
        ended = {end["source"].partition("(")[2].rstrip(")") for end in self._ends()}
        parameters = [parameter for axis in self.plan.order.fused for parameter in axis.parameters]
        return [parameter for parameter in parameters if parameter in needed | ended]

    def _before(self, level: Level) -> list[dict[str, Any]]:
        printer = NestPrinter(NUMPY, self.plan.names)
        steps = []
        for step in (*level.before, *level.table):
            node = step.node if isinstance(step, Check) else step
            fused = self.plan.place[node][1]
            if isinstance(step, Check):
                steps.append({"check": True, "fused": fused, "number": step.number,
                              "source": printer.doprint(node) if node not in self.plan.names else
                              self.plan.names[node]})
            else:
                steps.append({"check": False, "name": self.plan.names[node], "source": printer.doprint(node)})
        return _with_alive(steps, 0, NUMPY) if 0 in self.pens else steps

    def _before_rows(self) -> list[dict[str, Any]]:
        """The rows that are filled before the loops."""
        own = [self._loaded(node) for node, _ in sorted(self.plan.rows.items(), key=lambda item: item[1])
               if self.plan.place[node][0] == 0]
        alive = {"name": _alive(0), "test": ""}
        return [*own, alive] if 0 in self.pens and alive not in own else own

    def _loaded(self, node: Node) -> dict[str, Any]:
        """A variable that comes from an array of numbers: a condition is one that is not 0."""
        return {"name": self.plan.names[node], "test": " != 0.0" if node.is_condition else ""}

    def _given(self) -> list[dict[str, Any]]:
        """What is the same for all configurations and used inside the loops."""
        plan, found = self.plan, dict[Node, None]()
        for number, level in enumerate(plan.levels):
            if number == 0:
                continue
            for step in (*level.before, *level.table):
                self._collect(step.node if isinstance(step, Check) else step, found)
        skip = () if plan.problem.skip is None else (plan.problem.skip,)
        for node in (plan.problem.estimate, *plan.problem.verdicts, *skip, *self._keys()):
            self._collect(node, found, own=True)
        return [self._loaded(node) for node in found]

    def _collect(self, root: Node, found: dict[Node, None], *, own: bool = False) -> None:
        names, place = self.plan.names, self.plan.place
        pending = [root] if own or root not in names else list(root.args)
        while pending:
            node = pending.pop()
            if node in names:
                if place[node] == (0, False):
                    found[node] = None
            else:
                pending.extend(node.args)

    def _keys(self) -> list[Node]:
        return [node for question in self.plan.problem.questions for node in question.keys]

    # The loops.

    def _size(self, position: int, axis: NestAxis) -> str:
        return str(axis.size) if self.literal else f"sizes[{position}]"

    def _size_of_table(self) -> str:
        return str(self.plan.order.entries) if self.literal else "entries"

    def _product(self, axes: Sequence[NestAxis], start: int) -> str:
        return " * ".join(self._size(start + number, axis) for number, axis in enumerate(axes)) or "1"

    def _shard_index(self, axes: Sequence[NestAxis]) -> list[dict[str, str]]:
        """Places on each axis from the number of a shard, the last axis running fastest."""
        lines = []
        for number in range(len(axes) - 1, -1, -1):
            size = self._size(number, axes[number])
            lines.append({"name": f"i_{axes[number].name}", "size": size})
        return lines

    def _block(self) -> dict[str, Any]:
        """The loops that are one: the conditions on their turns, what is computed for the legal ones, and handed on."""
        plan, order, level = self.plan, self.plan.order, self.plan.levels[-1]
        parameters = [parameter for axis in order.block for parameter in axis.parameters]
        stores = [plan.names[node] for node in level.handed if node.op != NAME]
        tests = [step.node for step in level.before if isinstance(step, Check)]
        skip = () if plan.problem.skip is None else (plan.problem.skip,)
        made = [*stores, *([_PASSED] if skip else [])]
        stride = -(-order.turns // LANES) * LANES + _APART
        return {
            "axes": [axis.name for axis in order.block], "parameters": parameters, "stride": stride,
            "turns": order.turns, "padded": stride - _APART,
            "tried": self._stage(level, tests, parameters), "stores": stores,
            "computed": self._stage(level, [*(node for node in level.handed if node.op != NAME), *skip], parameters),
            "loads": [self._loaded(node) | {
                "place": f"block[{plan.names[node].upper()} + turn" if node.op == NAME else
                f"made[{plan.names[node].upper()} + place"} for node in level.handed],
            "rows": [{"name": name, "place": number * stride} for names in (parameters, made)
                     for number, name in enumerate(names)],
            "made": len(made),
        }

    def _stage(self, level: Level, roots: Sequence[Node], parameters: Sequence[str]) -> dict[str, Any]:
        """What is read and done for a turn to know ``roots``."""
        needed = set(ordered(roots))
        tests = [step for step in level.before if isinstance(step, Check) and step.node in roots]
        return {
            "reads": [name for name in parameters if any(node.op == NAME and node.value == name for node in needed)],
            "steps": [self._step(step) for step in level.before if step in tests or step in needed],
        }

    def _level(self, number: int) -> dict[str, Any]:
        plan = self.plan
        level, order = plan.levels[number], plan.order
        axes = order.levels[number - 1]
        position = 0 if number == 1 else len(order.shard) + number - 2
        parameters = [parameter for axis in (*order.outer, *order.block) for parameter in axis.parameters]
        alive_row = max((pen for pen in self.pens if pen < number), default=None)
        innermost = number == self.depth
        late = [step for step in level.table if step in self.after_estimate]
        steps = [self._step(step) for step in level.table if step not in self.after_estimate]
        stores = [plan.names[node] for node in level.stores if node in plan.rows and node not in late]
        if number in self.pens:
            steps, stores = _with_alive(steps, number, self.dialect), [*stores, _alive(number)]
        return {
            "number": number, "innermost": innermost,
            "axis": None if number == 1 else {"name": f"i_{axes[0].name}", "size": self._size(position, axes[0])},
            "values": [
                {"name": parameter, "row": parameters.index(parameter), "index": f"i_{axis.name}"}
                for axis in axes for parameter in axis.parameters
            ],
            "before": [self._step(step) for step in level.before],
            "lost": [step.number for step in level.before if isinstance(step, Check)],
            "alive": "alive" if not [pen for pen in self.pens if 0 < pen < number] else f"alive_{alive_row}_count",
            "alive_row": None if alive_row is None else _alive(alive_row),
            "table": bool(level.table) or innermost,
            "loads": [self._loaded(node) for node in level.loads],
            "steps": steps,
            "checks": [check.number for check in level.table_checks],
            "stores": stores,
            "below": "1" if innermost else f"below_{number}",
            "estimate": self._source(plan.problem.estimate) if innermost else "",
            "late": [self._step(step) for step in late],
            "late_stores": [plan.names[node] for node in level.stores if node in plan.rows and node in late],
            "skip": self._skip(level) if innermost else "",
            "met": [self._source(node) for node in plan.problem.verdicts] if innermost else [],
            "inner": None if innermost else self._level(number + 1),
        }

    def _skip(self, level: Level) -> str:
        """When the table need not be looked at; where entries break conditions in it, it always is."""
        skip = self.plan.problem.skip
        return "" if skip is None or level.table_checks else self._source(skip)

    def _step(self, step: Node | Check) -> dict[str, Any]:
        if isinstance(step, Check):
            return {"check": True, "number": step.number, "source": self._source(step.node)}
        return {"check": False, "name": self.plan.names[step], "source": self.printer.doprint(step)}

    def _source(self, node: Node) -> str:
        return self.plan.names.get(node) or self.printer.doprint(node)

    # Questions.

    def _question(self, question: Question) -> dict[str, Any]:
        among = None if question.among is None else f"met_{question.among - 1}"
        among_row = "row[ESTIMATE + i] < INFINITY" if question.among is None else " or ".join(
            self._in_scan(node) for node in self.plan.problem.verdicts[:question.among])
        name = question.name.replace("-", "_")
        base: dict[str, Any] = {"name": name, "among": among, "kind": type(question).__name__.lower(),
                                "among_row": f"({among_row})", "bounded": isinstance(question, Best | Front),
                                "edge": None}
        keys = [self._key(node) for node in question.keys]
        if isinstance(question, Histogram):
            return {**base, "keys": keys}
        base |= {"keys": keys, "first": next((number for number, key in enumerate(keys) if key["fused"]), None)}
        if isinstance(question, Rows):
            return {**base, "verdicts": [self._in_scan(node) for node in self.plan.problem.verdicts]}
        if base["first"] is not None and question.keys[base["first"]].value == ESTIMATE:
            base["edge"] = self._edge(question.among)
        if isinstance(question, Front):
            return base
        return {**base, "group": self._group(question), "per": list(question.per)}

    def _edge(self, among: int | None) -> str | None:
        """The largest estimate that has one of the first verdicts, if it is one number for all entries."""
        if among is None:
            return "LARGEST"
        edges = []
        for verdict in self.plan.problem.verdicts[:among]:
            if verdict.op != LE or verdict.args[0].value != ESTIMATE or self.plan.place[verdict.args[1]][1]:
                return None
            edges.append(self._source(verdict.args[1]))
        return reduce("larger({}, {})".format, edges)

    def _key(self, node: Node) -> dict[str, Any]:
        fused = self.plan.place[node][1]
        name = self.plan.names.get(node) or self.printer.doprint(node)
        return {"fused": fused, "name": name, "row": name.upper() if fused else None}

    def _in_scan(self, node: Node) -> str:
        """A condition on one entry, after the table loop: what differs between entries comes from rows."""
        def named(inner: Node) -> str | None:
            if not self.plan.place[inner][1]:
                return self.plan.names.get(inner)
            if inner in self.plan.rows or inner.value == ESTIMATE:
                return f"row[{self.plan.names[inner].upper()} + i]"
            return None

        return NestPrinter(self.dialect, named).doprint(node)

    def _group(self, question: Best) -> str:
        """The number of the group of a configuration, the last axis running fastest."""
        text = ""
        for position in group_axes(question, self.plan.order):
            axis = self.plan.order.outer[position]
            index = f"i_{axis.name}"
            text = f"({text}) * {self._size(position, axis)} + {index}" if text else index
        return text or "0"


def _using(roots: Sequence[Node], name: str) -> set[Node]:
    """What is computed from a name."""
    found: set[Node] = set()
    for node in ordered(roots):
        if any(arg in found or (arg.op == NAME and arg.value == name) for arg in node.args):
            found.add(node)
    return found


def _alive(number: int) -> str:
    """The row that tells which entries broke no condition up to a level."""
    return f"{ALIVE}_{number}"


def _with_alive(steps: list[dict[str, Any]], number: int, dialect: Dialect) -> list[dict[str, Any]]:
    """The steps of a level with that row, behind its last condition."""
    last = max(place for place, step in enumerate(steps) if step["check"])
    source = f"{dialect.prefix}select(kept, -INFINITY, INFINITY)"
    return [*steps[:last + 1], {"check": False, "name": _alive(number), "source": source}, *steps[last + 1:]]
