"""Layers of Transformers as the operations of their forward passes, in which its classes have them.

What their backward passes make and free follows (``autograd``). Weights are those of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sympy import Expr, Integer, expand

from ..dimension import Dimension
from ..dimensions import BATCH, FFN, HEAD_DIM, HEADS, GATE_UP_FEATURES, HIDDEN, KV_HEADS, QKV_FEATURES, ROTARY_DIM, SEQUENCE
from ..functions import Iverson
from ..implementations import Implementation
from ..ledger import Role
from ..parameters import symbols
from ..terms import product
from .autograd import Backward, Size, Storage, Tape, Value, Walk
from .rows import kept_rows, local_shape, weight_tensors

a, s, qkn = symbols("a s qkn")

Shape = tuple[Dimension, ...]
_TOKENS: Shape = (SEQUENCE, BATCH)
_WHOLE: Shape = (*_TOKENS, HIDDEN)
_INNER: Shape = (*_TOKENS, FFN)
_QUERY: Shape = (*_TOKENS, HEADS, HEAD_DIM)
_KEY: Shape = (*_TOKENS, KV_HEADS, HEAD_DIM)
#: Of numbers of 16 and of 32 bits.
_LOW, _HIGH = 2, 4


def sized(expression: Expr) -> Size:
    """Return an expression as a sum of products with numbers."""
    return {term: int(number) for term, number in expand(expression).as_coefficients_dict().items() if number}


def _bytes(shape: Shape, bytes: int) -> Size:
    return sized(_product(shape, bytes))


def _product(shape: Shape, bytes: int = _LOW) -> Expr:
    return product(Integer(bytes), *local_shape(shape))


class Layer:
    """Operations of one layer on a tape; ``normed`` says whether queries and keys have norms."""

    def __init__(self, implementation: Implementation, normed: bool) -> None:
        self.choices = implementation.choices
        self._normed = normed
        self._weights = {
            f"{row.component.name}.{row.tensor.name}": row.expression.xreplace({qkn: Integer(int(normed))})
            for row in kept_rows(implementation) if row.tensor.role is Role.WEIGHT
        }
        self._elements = {f"{part.name}.{row.name}": size for part, row, size in weight_tensors(implementation)}
        self.tape = Tape(_bytes(_WHOLE, _LOW))
        self._part, self._counts = "", dict[str, int]()
        self._start = self._value("input", [], _WHOLE, backward=lambda walk, gradients: [])

    def run(self) -> Value:
        """Record the layer; return its output."""
        norms, residual = self.choices["norms"], self.choices["residual"]
        start = self._start
        before, after = norms in ("pre", "both"), norms in ("post", "both")
        names = ("attention_norm", "ffn_norm") if norms == "post" else ("attention_post_norm", "ffn_post_norm")
        normed = self.norm(start, "attention_norm", _WHOLE) if before else start
        attended = self.attention(normed)
        if residual == "parallel_one":
            return self.add(self.add(attended, self.mlp(normed)), start)
        attended = self.norm(attended, names[0], _WHOLE) if after else attended
        middle = self.add(start, attended)
        normed = self.norm(middle, "ffn_norm", _WHOLE) if before else middle
        out = self.mlp(normed)
        return self.add(middle, self.norm(out, names[1], _WHOLE) if after else out)

    # Operations.

    def _value(self, name: str, inputs: list[Value], shape: Shape, bytes: int = _LOW, *, backward: Backward,
               saved: list[Storage] | None = None) -> Value:
        number = self._counts[self._part] = self._counts.get(self._part, 0) + 1
        made = self.tape.record(f"{self._part} {number} {name}", inputs, saved or [], backward)
        return Value(Storage(_bytes(shape, bytes)), shape, bytes, made)

    def add(self, left: Value, right: Value) -> Value:
        """Add two tensors, to which the gradient goes as it is."""
        return self._value("add", [left, right], left.shape, left.bytes,
                           backward=lambda walk, gradients: [walk.share(gradients[0]), walk.share(gradients[0])])

    def simple(self, name: str, value: Value, shape: Shape | None = None, bytes: int | None = None, *,
               saved: list[Storage] | None = None, temporaries: int = 0) -> Value:
        """Record an operation of one input whose backward pass makes its gradient, and temporaries of its size."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            size = _bytes(value.shape, value.bytes)
            passing = [walk.make(size) for _ in range(temporaries)]
            result = walk.make(size)
            for each in reversed(passing):
                walk.drop(each)
            return [result]
        return self._value(name, [value], shape or value.shape, bytes or value.bytes, backward=backward, saved=saved)

    def cast(self, value: Value, bytes: int) -> Value:
        """Copy in another precision."""
        return self.simple("cast", value, bytes=bytes)

    def multiply(self, left: Value, right: Value) -> Value:
        """Multiply two tensors, of which the second one may have one number for each token."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = [walk.make(_bytes(left.shape, left.bytes)) for _ in range(2)]
            if right.shape != left.shape:
                reduced = walk.make(_bytes(right.shape, right.bytes))
                walk.drop(made[1])
                made[1] = reduced
            return made
        return self._value("multiply", [left, right], left.shape, left.bytes, backward=backward,
                           saved=[left.storage, right.storage])

    def scale(self, value: Value, weight: str) -> Value:
        """Multiply with a weight of 16 bits; of a wider product its gradient is rounded."""
        shape, width, elements = value.shape, value.bytes, self._weights[weight]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = [walk.make(_bytes(shape, width)) for _ in range(2)]
            if width == _LOW:
                walk.parameter(sized(_LOW * elements))
                walk.drop(made.pop())
                return made
            reduced = walk.make(sized(width * elements))
            walk.drop(made.pop())
            walk.parameter(sized(_LOW * elements))
            walk.drop(reduced)
            return made
        return self._value("scale", [value], shape, width, backward=backward, saved=[value.storage])

    def scale_wide(self, value: Value, weight: str) -> Value:
        """Multiply with an fp32 copy of a weight."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(_LOW * self._weights[weight]))
            return []
        return self.multiply(value, self._value("weight", [], value.shape[-1:], value.bytes, backward=backward))

    def linear(self, value: Value, weight: str, shape: Shape, bias: str = "") -> Value:
        """Multiply with a matrix, and add a bias, which may be part of one that several projections have."""
        added = self._weights.get(bias, Integer(0)) / self._elements.get(bias, Integer(1)) * product(
            *local_shape(shape[len(_TOKENS):]))

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(_LOW * self._weights[weight]))
            made = walk.make(_bytes(value.shape, _LOW))
            if added:
                walk.parameter(sized(_LOW * added))
            return [made]
        return self._value(weight, [value], shape, backward=backward, saved=[value.storage])

    # Parts of a layer.

    def norm(self, value: Value, name: str, shape: Shape) -> Value:
        """Record a norm."""
        before, self._part = self._part, name
        result = self._of_norm(value, name, shape)
        self._part = before
        return result

    def _of_norm(self, value: Value, name: str, shape: Shape) -> Value:
        kernel, normalisation, tokens = self.choices["norm"], self.choices["normalisation"], shape[:-1]
        weight = f"{name}.weight"
        if normalisation in ("layer", "layer_plain") or kernel == "fused":
            return self._fused_norm(value, name)
        wide = self.cast(value, _HIGH)
        squares = self.simple("power", wide, saved=[wide.storage], temporaries=2)
        mean = self.simple("mean", squares, tokens)
        root = Storage(_bytes(tokens, _HIGH))
        inverse = self.simple("rsqrt", mean, saved=[root], temporaries=2)
        inverse.storage = root
        normed = self.multiply(wide, inverse)
        if kernel == "eager":
            return self.scale(self.cast(normed, _LOW), weight)
        return self.cast((self.scale_wide if kernel == "eager_scale" else self.scale)(normed, weight), _LOW)

    def _fused_norm(self, value: Value, name: str) -> Value:
        plain = self.choices["normalisation"] == "layer_plain"
        value = self.cast(value, _HIGH) if plain else value
        tokens = value.shape[:-1]
        own = [self._weights[key] for key in (f"{name}.weight", f"{name}.bias") if key in self._weights]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(_bytes(value.shape, value.bytes))
            for elements in own:
                walk.parameter(sized(_LOW * elements))
            return [made]
        statistics = 1 if self.choices["normalisation"] == "rms" else 2
        saved = [value.storage, *(Storage(_bytes(tokens, _HIGH)) for _ in range(statistics))]
        if self.choices["norm"] == "eager_scale":
            saved.append(Storage(sized(_LOW * own[0])))
        out = self._value("norm", [value], value.shape, value.bytes, backward=backward, saved=saved)
        return self.cast(out, _LOW) if plain else out

    def attention(self, value: Value) -> Value:
        """Record attention with one kernel, and its projections."""
        query, key, values = self._projected(value)
        query, key = self._turned(query, key)
        made = [query, key, values]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            return [walk.make(_bytes(each.shape, _LOW)) for each in made]
        context, sums = Storage(_bytes(_QUERY, _LOW)), Storage(_bytes(_QUERY[:-1], _HIGH))
        out = self._value("core", made, _QUERY, backward=backward,
                          saved=[*(each.storage for each in made), context, sums])
        out.storage = context
        if self.choices["rope"].startswith("joined") and self.choices["attention"] == "sdpa":  # in heads, of which the output projection reads a copy
            out = self._value("tokens", [out], _QUERY, backward=lambda walk, gradients: [walk.share(gradients[0])])
            out.storage = Storage(sized(Iverson(a > 1) * Iverson(s > 1) * _product(_QUERY)))
        return self.linear(out, "attention.o_proj.weight", _WHOLE, "attention.o_proj.bias")

    def _projected(self, value: Value) -> tuple[Value, Value, Value]:
        """Record the projections; gradients of heads of queries and keys are brought back into order by a copy."""
        parts = (("q", _QUERY), ("k", _KEY), ("v", _KEY))
        if self.choices["projections"] == "fused":
            whole = self.linear(value, "attention.qkv.weight", (*_TOKENS, QKV_FEATURES), "attention.qkv.bias")
            outs = [self._slice(whole, shape) for _, shape in parts]
        else:
            outs = []
        for name, shape in parts:
            if self.choices["projections"] == "fused":
                out = outs.pop(0)
            else:
                out = self.linear(value, f"attention.{name}.weight", shape, "attention.qkv.bias")
            if name != "v":
                out = self.simple("heads", out)
                out = self.norm(out, f"attention.{name}_norm", shape) if self._normed else out
            outs.append(out)
        return outs[0], outs[1], outs[2]

    def _slice(self, value: Value, shape: Shape) -> Value:
        """Take a part, a view whose gradient stands among zeros."""
        part = self.simple("slice", value, shape)
        part.storage = value.storage
        return part

    def _turned(self, query: Value, key: Value) -> tuple[Value, Value]:
        """Record the rotary embedding: of all of a head, or of a part that is joined with the rest again."""
        rope = self.choices["rope"]
        if self.choices["positions"] == "learned":
            return query, key
        if rope.startswith("joined"):
            parts = [[self.simple("slice", value, value.shape[:-1] + part) for part in ((ROTARY_DIM,), (HEAD_DIM,))]
                     for value in (query, key)]
            joined = [self._joined(value.shape, [self._turn(turned), rest])
                      for value, (turned, rest) in zip((query, key), parts, strict=True)]
            return joined[0], joined[1]
        query, key = self._turn(query), self._turn(key)
        return (self.cast(query, _LOW), self.cast(key, _LOW)) if rope == "shared_fp32" else (query, key)

    def _joined(self, shape: Shape, parts: list[Value]) -> Value:
        return self._value("join", parts, shape,
                           backward=lambda walk, gradients: [walk.share(gradients[0]) for _ in parts])

    def _turn(self, value: Value) -> Value:
        """Record products with cosines and sines, the latter of halves exchanged, one with its sign turned."""
        bytes = _HIGH if self.choices["rope"] == "shared_fp32" else _LOW
        cosine = self._with_table(value, bytes)
        # A half is written as numbers of half as many bytes.
        first, second = (self.simple("slice", value, bytes=value.bytes // 2) for _ in range(2))
        joined = self._joined(value.shape, [self.simple("negative", second), first])
        return self.add(cosine, self._with_table(joined, bytes))

    def _with_table(self, value: Value, bytes: int) -> Value:
        """Multiply with a table; a wider one makes the product wider, and its gradient is rounded."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(_bytes(value.shape, bytes))
            if bytes != value.bytes:
                wide, made = made, walk.make(_bytes(value.shape, value.bytes))
                walk.drop(wide)
            return [made]
        return self._value("table", [value], value.shape, bytes, backward=backward)

    def mlp(self, value: Value) -> Value:
        """Record the MLP."""
        gated = self.choices["mlp"] in ("swiglu", "geglu")
        part = "swiglu" if gated else "gelu"
        if gated:
            inner = self._gated(value)
        else:
            inner = ACTIVATIONS[self.choices["mlp"]](self, self.linear(value, "gelu.up.weight", _INNER, "gelu.up.bias"))
        return self.linear(inner, f"{part}.down.weight", _WHOLE, f"{part}.down.bias")


    def _gated(self, value: Value) -> Value:
        if self.choices["projections"] in ("fused", "gate_up"):
            whole = self.linear(value, "swiglu.gate_up.weight", (*_TOKENS, GATE_UP_FEATURES), "swiglu.gate_up.bias")
            halves = self.tape.record("halves", [whole], [], lambda walk, gradients: [walk.make(whole.storage.size)], 2)
            gate, up = (Value(whole.storage, _INNER, _LOW, halves, place) for place in range(2))
        else:
            gate = self.linear(value, "swiglu.gate.weight", _INNER, "swiglu.gate_up.bias")
        activated = self.simple("activation", gate, saved=[gate.storage])
        if self.choices["projections"] not in ("fused", "gate_up"):
            up = self.linear(value, "swiglu.up.weight", _INNER, "swiglu.gate_up.bias")
        return self.multiply(activated, up)


def _gelu(layer: Layer, value: Value) -> Value:
    return layer.simple("activation", value, saved=[value.storage])


def _relu(layer: Layer, value: Value) -> Value:
    out = Storage(value.storage.size)
    result = layer.simple("activation", value, saved=[out])
    result.storage = out
    return result


def _relu2(layer: Layer, value: Value) -> Value:
    root = _relu(layer, value)
    return layer.simple("power", root, saved=[root.storage], temporaries=2)


#: Activations of MLPs without a gate.
ACTIVATIONS: Mapping[str, Callable[[Layer, Value], Value]] = {"gelu": _gelu, "relu": _relu, "relu2": _relu2}
