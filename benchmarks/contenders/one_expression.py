"""NumExpr, if it is installed: the term ``peak`` as one expression for its virtual machine."""

from __future__ import annotations

import re
from functools import reduce
from importlib.util import find_spec

from sympy import Expr, Integer

from benchmarks.contenders import CORES, PEAK, Contender, LeftOutError
from benchmarks.data import IMPLEMENTATION, Columns, Job, Outputs
from shardmath.symbolic.accounts import build
from shardmath.symbolic.printers.python import PythonPrinter, identifier
from shardmath.symbolic.simplify import computed


def contenders(job: Job) -> list[Contender]:
    """Return one contender. Raises LeftOutError without NumExpr."""
    if find_spec("numexpr") is None:
        raise LeftOutError("NumExpr: it is not installed")
    import numexpr

    source = _inlined("peak", {name: f"{float(job.values[name])!r}" for name in job.evaluator.kernel.SCALARS})
    names = job.evaluator.kernel.COLUMNS
    numexpr.set_num_threads(CORES)

    def run(columns: Columns) -> Outputs:
        known = {name: columns[name] for name in names}
        return {"peak": numexpr.evaluate(source, known, {}, optimization="none")}

    run(job.space.columns(0, 2))
    return [Contender("NumExpr, one expression", PEAK, CORES, run)]


class _Printer(PythonPrinter):
    """Prints what NumExpr understands: numbers are float64, choices are ``where``."""

    def _print_Integer(self, expr: Integer) -> str:
        return f"{int(expr)}.0"

    def _print_Iverson(self, expr: Expr) -> str:
        return f"where({self._print(expr.args[0])}, 1.0, 0.0)"

    def _print_CeilDiv(self, expr: Expr) -> str:
        over, under = (self._print(part) for part in expr.args)
        return f"ceil(({over})/({under}))"

    def _print_LeastCommonMultiple(self, expr: Expr) -> str:
        number, power = f"({self._print(expr.args[0])})", int(expr.args[1])
        text = f"{number}*{power}.0"
        for bit in range(1, power.bit_length()):
            part = f"{number}/{2**bit}.0"
            text = f"where(floor({part}) == {part}, {number}*{power >> bit}.0, {text})"
        return text

    def _print_Max(self, expr: Expr) -> str:
        parts = map(str, map(self._print, expr.args))
        return reduce(lambda left, right: f"where({left} > {right}, {left}, {right})", parts)

    def _print_Min(self, expr: Expr) -> str:
        parts = map(str, map(self._print, expr.args))
        return reduce(lambda left, right: f"where({left} < {right}, {left}, {right})", parts)


def _inlined(name: str, numbers: dict[str, str]) -> str:
    """Return the source of a term with all that it needs put in; NumExpr finds common subexpressions itself."""
    terms, printer = build(IMPLEMENTATION), _Printer()
    known = dict(numbers)
    for term in terms.closure([name]):
        source = printer.doprint(computed(terms, term.name))
        known[identifier(term.symbol)] = f"({_put_in(source, known)})"
    return known[identifier(terms[name].symbol)]


def _put_in(source: str, known: dict[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda word: known.get(word[0], word[0]), source)
