"""Operations of PyTorch on a tape, each with what it saves and what its backward pass makes.

Sizes are those of the ledger's dimensions and weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from sympy import Expr, Integer, Symbol, expand

from ...dimension import Dimension
from ...dimensions import BATCH, HIDDEN, RANK, SEQUENCE
from ...implementations import Implementation
from ...ledger import Role
from ...parallel.nf4 import scales_bytes
from ...parameters import symbols
from ...terms import product
from ..rows import kept_rows, local_shape, weight_tensors
from .autograd import Backward, Size, Storage, Tape, Value, Walk

(qkn,) = symbols("qkn")

Shape = tuple[Dimension, ...]
TOKENS: Shape = (SEQUENCE, BATCH)
WHOLE: Shape = (*TOKENS, HIDDEN)
#: Bytes of numbers of 16, of 32 and of 64 bits.
LOW, HIGH, LONG = 2, 4, 8


def sized(expression: Expr) -> Size:
    """Return an expression as a sum of products with numbers."""
    return {term: int(number) for term, number in expand(expression).as_coefficients_dict().items() if number}


@cache
def _bytes_of(sizes: tuple[Expr, ...], bytes: int) -> Size:
    return sized(product(Integer(bytes), *sizes))


class Operations:
    """Operations of one layer on a tape; ``normed`` says whether queries and keys have norms.

    ``switched`` says of each of the layer's own ``switches`` whether it is on.
    """

    @classmethod
    def switches(cls, choices: Mapping[str, str]) -> tuple[Expr, ...]:
        """Return the switches that change the operations of such a layer, beside the norms of queries and keys."""
        return ()

    @classmethod
    def settled(cls, choices: Mapping[str, str]) -> Mapping[Symbol, Expr]:
        """Return letters that have one value wherever such operations are counted."""
        return {}

    def __init__(self, implementation: Implementation, normed: bool, *switched: bool) -> None:
        self.choices, self.normed, self.switched = implementation.choices, normed, switched
        self.frozen = implementation.choices["adapters"] != "none"
        known = {qkn: Integer(int(normed)), **self.settled(implementation.choices), **{
            switch: Integer(int(is_on))
            for switch, is_on in zip(type(self).switches(implementation.choices), switched, strict=False)}}
        self.weights = {
            f"{row.component.name}.{row.tensor.name}": row.expression.xreplace(known)
            for row in kept_rows(implementation) if row.tensor.role is Role.WEIGHT
        }
        self._elements = {f"{part.name}.{row.name}": size for part, row, size in weight_tensors(implementation)}
        self.tape = Tape(self.bytes_of(WHOLE, LOW))
        self.part, self._counts = "", dict[str, int]()
        self.start = self.value("input", [], WHOLE, backward=lambda walk, gradients: [])

    def bytes_of(self, shape: Shape, bytes: int) -> Size:
        """Return the size of a tensor."""
        return _bytes_of(local_shape(shape, self.choices), bytes)

    def value(self, name: str, inputs: list[Value], shape: Shape, bytes: int = LOW, *, backward: Backward,
               saved: list[Storage] | None = None) -> Value:
        """Record an operation with one output."""
        number = self._counts[self.part] = self._counts.get(self.part, 0) + 1
        made = self.tape.record(f"{self.part} {number} {name}", inputs, saved or [], backward)
        made.results.append(Value(Storage(self.bytes_of(shape, bytes)), shape, bytes, made))
        return made.results[0]

    def read(self, weight: str, shape: Shape, bytes: int = LOW, saved: list[Storage] | None = None) -> Value:
        """Record a parameter, or what is taken out of it, as a tensor; its backward pass makes the gradient."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(LOW * self.weights[weight]), weight)
            return []
        return self.value(weight, [], shape, bytes, backward=backward, saved=saved)

    def add(self, left: Value, right: Value) -> Value:
        """Add two tensors, to which the gradient goes as it is."""
        return self.value("add", [left, right], left.shape, left.bytes,
                           backward=lambda walk, gradients: [walk.share(gradients[0]), walk.share(gradients[0])])

    def simple(self, name: str, value: Value, shape: Shape | None = None, bytes: int | None = None, *,
               saved: list[Storage] | None = None, temporaries: int = 0, passed: bool = False, view: bool = False,
               kept: bool = False) -> Value:
        """Record an operation of one input whose backward pass makes its gradient, and temporaries of its size.

        ``passed``: the gradient is that of the output. ``view``: the output is a view of the input. ``kept``: the
        operation saves its output.
        """
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            if passed:
                return [walk.share(gradients[0])]
            size = self.bytes_of(value.shape, value.bytes)
            passing = [walk.make(size) for _ in range(temporaries)]
            result = walk.make(size)
            for each in reversed(passing):
                walk.drop(each)
            return [result]
        shape, bytes = shape or value.shape, bytes or value.bytes
        own = [Storage(self.bytes_of(shape, bytes))] if kept else []
        out = self.value(name, [value], shape, bytes, backward=backward, saved=[*(saved or []), *own])
        if view or kept:
            out.storage = value.storage if view else own[0]
        return out

    def making(self, *shapes: Shape) -> Backward:
        """Return a backward pass that makes a gradient of each shape."""
        return lambda walk, gradients: [walk.make(self.bytes_of(shape, LOW)) for shape in shapes]

    def cast(self, value: Value, bytes: int) -> Value:
        """Copy in another precision."""
        return self.simple("cast", value, bytes=bytes)

    def multiply(self, left: Value, right: Value) -> Value:
        """Multiply two tensors, of which the second one may have one number for each token."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = [walk.make(self.bytes_of(left.shape, left.bytes)) for _ in range(2)]
            walk.returned()
            if right.shape != left.shape:
                reduced = walk.make(self.bytes_of(right.shape, right.bytes))
                walk.drop(made[1])
                made[1] = reduced
            return made
        return self.value("multiply", [left, right], left.shape, left.bytes, backward=backward,
                           saved=[left.storage, right.storage])

    def difference(self, left: Value, right: Value) -> Value:
        """Subtract a tensor, whose gradient has its sign turned."""
        return self.value("difference", [left, right], left.shape, left.bytes, backward=lambda walk, gradients: [
            walk.share(gradients[0]), walk.make(self.bytes_of(right.shape, right.bytes))])

    def deviations(self, value: Value, mean: Value) -> Value:
        """Subtract the mean of every token."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            negative = walk.make(self.bytes_of(value.shape, value.bytes))
            reduced = walk.make(self.bytes_of(mean.shape, mean.bytes))
            walk.drop(negative)
            return [walk.share(gradients[0]), reduced]
        return self.value("subtract", [value, mean], value.shape, value.bytes, backward=backward)

    def scale(self, value: Value, weight: str) -> Value:
        """Multiply with a weight of 16 bits; of a wider product its gradient is rounded."""
        if self.frozen:
            return self.simple("scale", value)
        shape, width, elements = value.shape, value.bytes, self.weights[weight]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = [walk.make(self.bytes_of(shape, width)) for _ in range(2)]
            walk.returned()
            if width == LOW:
                walk.parameter(sized(LOW * elements), weight)
                walk.drop(made.pop())
                return made
            reduced = walk.make(sized(width * elements))
            walk.drop(made.pop())
            walk.parameter(sized(LOW * elements), weight)
            walk.drop(reduced)
            return made
        return self.value("scale", [value], shape, width, backward=backward, saved=[value.storage])

    def scale_wide(self, value: Value, weight: str) -> Value:
        """Multiply with an fp32 copy of a weight."""
        own = value.shape[-2:] if weight.endswith("heads_weight") else value.shape[-1:]
        scale = self.read(weight, own, value.bytes)
        if self.choices["normalisation"] == "rms":  # which adds 1
            scale = self.simple("shift", scale, passed=True)
        return self.multiply(value, scale)

    def core(self, read: list[Value], shape: Shape) -> Value:
        """Record attention in one kernel, which keeps its inputs, its output and a number of every token and head."""
        context, sums = Storage(self.bytes_of(shape, LOW)), Storage(self.bytes_of(shape[:-1], HIGH))
        out = self.value("core", read, shape, backward=self.making(*(each.shape for each in read)),
                         saved=[*(each.storage for each in read), context, sums])
        out.storage = context
        return out

    def linear(self, value: Value, weight: str, shape: Shape, bias: str = "") -> Value:
        """Multiply with a matrix, and add a bias, which may be part of one that several projections have.

        A frozen matrix saves nothing; what its adapter makes of the same input is scaled and added to the product. Of a
        matrix in 4 bits PEFT copies the product.
        """
        if not self.frozen:
            return self._trained(value, weight, shape, bias)
        in_4_bits = self.choices["base_weights"] == "nf4"
        result = self._unpacked(value, weight, shape) if in_4_bits else self.simple(weight, value, shape)
        component, _, name = weight.removesuffix(".weight").partition(".")
        first, second = (f"{component}_adapters.{name}.adapter_{side}" for side in "ab")
        if first not in self.weights:
            return result
        if in_4_bits:
            result = self.simple("copy", result, passed=True)
        between = self._trained(value, first, (*TOKENS, RANK))
        return self.add(result, self.simple("scaled", self._trained(between, second, shape)))

    def _unpacked(self, value: Value, weight: str, shape: Shape) -> Value:
        """Multiply with a matrix of 4 bits, which the backward pass unpacks with its scales before the product.

        A forward pass of few tokens reads the codes; one of many unpacks them too, when less is alive than there.
        """
        elements = self.weights[weight]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            scales, matrix = walk.make(sized(scales_bytes(elements))), walk.make(sized(LOW * elements))
            walk.drop(scales)
            made = walk.make(self.bytes_of(value.shape, LOW))
            walk.drop(matrix)
            return [made]
        return self.value(weight, [value], shape, backward=backward)

    def _trained(self, value: Value, weight: str, shape: Shape, bias: str = "") -> Value:
        added = self.weights.get(bias, Integer(0)) / self._elements.get(bias, Integer(1)) * product(
            *local_shape(shape[len(TOKENS):], self.choices))

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(LOW * self.weights[weight]), weight)
            made = walk.make(self.bytes_of(value.shape, LOW))
            walk.returned()
            if added:
                walk.parameter(sized(LOW * added), bias)
            return [made]
        return self.value(weight, [value], shape, backward=backward, saved=[value.storage])

    def halves(self, value: Value, shape: Shape, bytes: int | None = None) -> tuple[Value, Value]:
        """Split in two views, whose gradients are joined."""
        made = self.tape.record("halves", [value], [], lambda walk, gradients: [walk.make(value.storage.size)], 2)
        first, second = (Value(value.storage, shape, bytes or value.bytes, made, place) for place in range(2))
        return first, second

    def split(self, whole: Value, *shapes: Shape) -> list[Value]:
        """Split in views of which the backward pass joins the gradients."""
        parts = self.tape.record("split", [whole], [], lambda walk, gradients: [walk.make(whole.storage.size)],
                                 len(shapes))
        return [Value(whole.storage, shape, whole.bytes, parts, place) for place, shape in enumerate(shapes)]

    def slice(self, value: Value, shape: Shape) -> Value:
        """Take a part, a view whose gradient stands among zeros."""
        return self.simple("slice", value, shape, view=True)

    def joined(self, shape: Shape, parts: list[Value], bytes: int = LOW) -> Value:
        """Put parts together, of whose gradient each has a view."""
        return self.value("join", parts, shape, bytes,
                           backward=lambda walk, gradients: [walk.share(gradients[0]) for _ in parts])

    def with_table(self, value: Value, bytes: int, table: Sequence[Storage]) -> Value:
        """Multiply with a table; a wider one makes the product wider, and its gradient is rounded."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(self.bytes_of(value.shape, bytes))
            walk.returned()
            if bytes != value.bytes:
                wide, made = made, walk.make(self.bytes_of(value.shape, value.bytes))
                walk.drop(wide)
            return [made]
        return self.value("table", [value], value.shape, bytes, backward=backward, saved=[*table])
