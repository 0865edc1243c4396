"""Expressions of generated loops as instructions of LLVM.

Arithmetic is Python's, but for integers that must stay within 64 bits, divisions of integers that must not be negative,
and floats that are divided by zero without an error. A choice between two values computes both. Sums that are rounded
once are calls, see ``fusing``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from .fusing import FUSED
from .values import FLOAT, INTEGER, SMALL, TRUTH, Array, Value, constant

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">",
}
_ROUNDINGS = {"ceil": "llvm.ceil", "floor": "llvm.floor"}
_OF_THREE = ir.FunctionType(FLOAT, [FLOAT] * 3)
_TYPES = {"int64": INTEGER, "float64": FLOAT, "bool_": TRUTH}


class Expressions:
    """Writes expressions at the place of a builder; ``called`` is how functions of the same module are called."""

    def __init__(
        self, builder: ir.IRBuilder, names: Mapping[str, object], called: Callable[[str, list[Value]], Value],
    ) -> None:
        self.builder, self.known, self.called = builder, names, called
        #: Where each variable is, and what it holds.
        self.slots: dict[str, tuple[ir.Value, ir.Type]] = {}
        #: Arrays by name: those never change their place.
        self.arrays: dict[str, Array] = {}

    def value(self, tree: ast.expr) -> Value:
        """Return the value of one expression. Raises TypeError for what loops have no use for."""
        method = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if method is None:
            raise TypeError(f"cannot compile {ast.unparse(tree)}")
        return method(tree)

    def number(self, tree: ast.expr) -> ir.Value:
        """Return the value of an expression. Raises TypeError for an array."""
        value = self.value(tree)
        if isinstance(value, Array):
            raise TypeError(f"{ast.unparse(tree)} is no number")
        return value

    def truth(self, tree: ast.expr) -> ir.Value:
        """Tell whether an expression holds."""
        return self.as_type(self.number(tree), TRUTH)

    def as_type(self, value: ir.Value, wanted: ir.Type) -> ir.Value:
        """Return the same number as another type, which must hold it. Raises TypeError if that has no meaning."""
        if value.type == wanted:
            return value
        if (value.type, wanted) == (TRUTH, INTEGER):
            return self.builder.zext(value, INTEGER)
        if (value.type, wanted) == (TRUTH, FLOAT):
            return self.builder.uitofp(value, FLOAT)
        if (value.type, wanted) == (INTEGER, FLOAT):
            return self.builder.sitofp(value, FLOAT)
        if (value.type, wanted) == (INTEGER, SMALL):
            return self.builder.trunc(value, SMALL)
        raise TypeError(f"a {value.type} is no {wanted}")

    def address(self, array: Array, places: Sequence[ast.expr]) -> ir.Value:
        """Where one number of an array is."""
        return self._address(array, [self.number(place) for place in places])

    def stack(self, element: ir.Type, size: int = 1) -> ir.Value:
        """Room for some numbers, made once."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(element, size)

    def combined(self, operator: ast.operator, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the result of an operation on two numbers."""
        name = type(operator).__name__.lower()
        if isinstance(operator, ast.BitAnd | ast.BitOr):
            return getattr(self.builder, {"bitand": "and_", "bitor": "or_"}[name])(left, right)
        if FLOAT in (left.type, right.type) or isinstance(operator, ast.Div):
            left, right = self.as_type(left, FLOAT), self.as_type(right, FLOAT)
            operations = {"add": "fadd", "sub": "fsub", "mult": "fmul", "div": "fdiv"}
            return getattr(self.builder, operations[name])(left, right)
        left, right = self.as_type(left, INTEGER), self.as_type(right, INTEGER)
        operations = {"add": "add", "sub": "sub", "mult": "mul", "floordiv": "udiv", "mod": "urem"}
        flags = ("nsw",) if name in ("add", "sub", "mult") else ()
        return getattr(self.builder, operations[name])(left, right, flags=flags)

    def _address(self, array: Array, places: Sequence[ir.Value]) -> ir.Value:
        index = places[0]
        for place, size in zip(places[1:], array.shape[1:], strict=False):
            index = self.builder.add(self.builder.mul(index, size, flags=("nsw",)), place, flags=("nsw",))
        for size in array.shape[len(places):]:
            index = self.builder.mul(index, size, flags=("nsw",))
        return self.builder.gep(array.start, [index], inbounds=True, source_etype=array.element)

    def _constant(self, tree: ast.Constant) -> Value:
        return constant(tree.value)

    def _name(self, tree: ast.Name) -> Value:
        if tree.id in self.arrays:
            return self.arrays[tree.id]
        if tree.id in self.slots:
            slot, held = self.slots[tree.id]
            return self.builder.load(slot, typ=held)
        if tree.id not in self.known:
            raise TypeError(f"{tree.id} has no value yet")
        return constant(self.known[tree.id])

    def _attribute(self, tree: ast.Attribute) -> Value:
        array = self.value(tree.value)
        if tree.attr != "size" or not isinstance(array, Array) or len(array.shape) != 1:
            raise TypeError(f"cannot compile {ast.unparse(tree)}")
        return array.shape[0]

    def _subscript(self, tree: ast.Subscript) -> Value:
        places = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if isinstance(tree.value, ast.Attribute) and tree.value.attr == "shape":
            shape = self._array(tree.value.value).shape
            return shape[int(ast.literal_eval(tree.slice))]
        array = self._array(tree.value)
        start = self.address(array, places)
        if len(places) < len(array.shape):
            return Array(start, array.shape[len(places):], array.element)
        held = self.builder.load(start, typ=array.element)
        return self.builder.sext(held, INTEGER) if array.element == SMALL else held

    def _array(self, tree: ast.expr) -> Array:
        value = self.value(tree)
        if not isinstance(value, Array):
            raise TypeError(f"{ast.unparse(tree)} is no array")
        return value

    def _tuple(self, tree: ast.Tuple) -> Value:
        start = self.stack(FLOAT, len(tree.elts))
        array = Array(start, (constant(len(tree.elts)),), FLOAT)
        for place, item in enumerate(tree.elts):
            self.builder.store(self.as_type(self.number(item), FLOAT), self._address(array, [constant(place)]))
        return array

    def _unaryop(self, tree: ast.UnaryOp) -> Value:
        if isinstance(tree.op, ast.Not):
            return self.builder.not_(self.truth(tree.operand))
        operand = self.number(tree.operand)
        if not isinstance(tree.op, ast.USub):
            raise TypeError(f"cannot compile {ast.unparse(tree)}")
        if isinstance(operand, ir.Constant):
            return constant(-operand.constant)
        return self.builder.fneg(operand) if operand.type == FLOAT else self.builder.neg(operand)

    def _binop(self, tree: ast.BinOp) -> Value:
        return self.combined(tree.op, self.number(tree.left), self.number(tree.right))

    def _fused(self, left: ir.Value, right: ir.Value, other: ir.Value) -> ir.Value:
        """Return a product and a sum; of floats, with one rounding if that is quick."""
        if FLOAT not in (left.type, right.type):
            return self.combined(ast.Add(), self.combined(ast.Mult(), left, right), other)
        fused = self.builder.module.declare_intrinsic("llvm.fmuladd", [FLOAT], _OF_THREE)
        return self.builder.call(fused, [self.as_type(part, FLOAT) for part in (left, right, other)])

    def _compare(self, tree: ast.Compare) -> Value:
        (operator,), (other,) = tree.ops, tree.comparators
        left, right = self.number(tree.left), self.number(other)
        sign = _SIGNS[type(operator)]
        if FLOAT not in (left.type, right.type):
            return self.builder.icmp_signed(sign, self.as_type(left, INTEGER), self.as_type(right, INTEGER))
        compared = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        return compared(sign, self.as_type(left, FLOAT), self.as_type(right, FLOAT))

    def _boolop(self, tree: ast.BoolOp) -> Value:
        """Later conditions are looked at only where the earlier ones leave it open."""
        builder, decides = self.builder, isinstance(tree.op, ast.Or)
        after = builder.append_basic_block()
        values = []
        for operand in tree.values[:-1]:
            known = self.truth(operand)
            values.append(builder.block)
            further = builder.append_basic_block()
            builder.cbranch(known, *((after, further) if decides else (further, after)))
            builder.position_at_end(further)
        last = self.truth(tree.values[-1])
        end = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(TRUTH)
        for block in values:
            result.add_incoming(constant(decides), block)
        result.add_incoming(last, end)
        return result

    def _ifexp(self, tree: ast.IfExp) -> Value:
        condition, yes, no = self.truth(tree.test), self.number(tree.body), self.number(tree.orelse)
        if yes.type != no.type:
            yes, no = self.as_type(yes, FLOAT), self.as_type(no, FLOAT)
        return self.builder.select(condition, yes, no)

    def _call(self, tree: ast.Call) -> Value:
        if isinstance(tree.func, ast.Name) and tree.func.id == FUSED:
            return self._fused(*map(self.number, tree.args))
        if isinstance(tree.func, ast.Name) and tree.func.id != "len":
            return self.called(tree.func.id, [self.value(arg) for arg in tree.args])
        (only,) = tree.args
        if isinstance(tree.func, ast.Name):
            return self._array(only).shape[0]
        assert isinstance(tree.func, ast.Attribute)
        value = self.number(only)
        if tree.func.attr in _ROUNDINGS:
            rounding = self.builder.module.declare_intrinsic(_ROUNDINGS[tree.func.attr], [FLOAT])
            return self.builder.call(rounding, [value])
        wanted = _TYPES[tree.func.attr]
        return self.builder.fptosi(value, INTEGER) if (value.type, wanted) == (FLOAT, INTEGER) else self.as_type(
            value, wanted)
