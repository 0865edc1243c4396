"""Layers of Transformers as the operations of their forward passes, in the order that its classes have.

What their backward passes make and free follows (``autograd``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sympy import Expr, Integer

from ...components.attention import ONE_HEAD, SCORES, SCORES_AND_SINK
from ...dimensions import (
    FFN,
    GATE_UP_FEATURES,
    HEAD_DIM,
    HEADS,
    KV_FEATURES,
    KV_HEADS,
    QKV_FEATURES,
    QUERY_FEATURES,
    ROTARY_DIM,
    SEQUENCE,
)
from ...functions import Iverson
from ...parameters import symbols
from ...terms import product
from ..rows import local_shape
from . import transformers_latent as latent_of_transformers
from .autograd import Storage, Value, Walk
from .operations import HIGH, LONG, LOW, TOKENS, WHOLE, Operations, Shape, sized

a, k, s, acap = symbols("a k s acap")

INNER: Shape = (*TOKENS, FFN)
QUERY: Shape = (*TOKENS, HEADS, HEAD_DIM)
KEY: Shape = (*TOKENS, KV_HEADS, HEAD_DIM)


class Layer(Operations):
    """The operations of one layer."""

    tables: Sequence[Storage] = ()
    #: The part behind attention, as its norms are named.
    block = "ffn"

    @classmethod
    def switches(cls, choices: Mapping[str, str]) -> tuple[Expr, ...]:
        """As the base class says: attention in single operations may repeat keys and values, and bound scores."""
        if choices["heads"] == "latent":
            return latent_of_transformers.switches(choices)
        if choices["attention"] != "eager":
            return ()
        return (Iverson(a > k), ONE_HEAD, *((acap,) if choices["capping"] == "tanh" else ()))

    def run(self) -> Value:
        """Record the layer; return its output."""
        if self.choices["residual"] == "sequential":
            before = "latent" if self.choices["heads"] == "latent" else "attention"
            middle = self._block(before, self.attention, self.start)
            return self._block(self.block, self.mlp, middle)
        read = self.norm(self.start, "attention_norm", WHOLE)
        attended = self.attention(read)
        if self.choices["residual"] == "parallel":
            read = self.norm(self.start, f"{self.block}_norm", WHOLE)
        inner = self.mlp(read)
        return self.add(self.add(self.start, attended), inner)

    def _block(self, name: str, inner: Callable[[Value], Value], value: Value) -> Value:
        """Record attention or the MLP with its norms, and the sum with its input."""
        norms = self.choices["norms"]
        read = value if norms == "post" else self.norm(value, f"{name}_norm", WHOLE)
        out = inner(read)
        self.tape.name(read)
        if norms != "pre":
            out = self.norm(out, f"{name}_norm" if norms == "post" else f"{name}_post_norm", WHOLE)
        if (self.choices["heads"], self.choices["layers"]) == ("latent", "dense"):  # MiniCPM3
            out = self.simple("scaled", out)
        return self.add(value, out)

    def run_final_norm(self) -> Value:
        """Record the final norm instead; return its output."""
        return self.norm(self.start, "final_norm", WHOLE)

    def norm(self, value: Value, name: str, shape: Shape) -> Value:
        """Record a norm."""
        before, self.part = self.part, name
        result = self._of_norm(value, name, shape)
        self.tape.name(value)
        self.part = before
        return result

    def _of_norm(self, value: Value, name: str, shape: Shape) -> Value:
        kernel, normalisation, tokens = self.choices["norm"], self.choices["normalisation"], shape[:-1]
        weight = f"{name}weight" if name.endswith("_") else f"{name}.weight"
        if normalisation == "layer" and name.endswith("heads_"):
            return self._norms_of_heads(value, weight)
        if normalisation in ("layer", "layer_plain"):
            return self._layer_norm(value, name)
        wide = copy = self.cast(value, HIGH)
        names: list[Value] = []
        if normalisation == "layer_unbiased":
            center = self.simple("mean", wide, tokens)
            names.append(center)
            squared, wide = self.deviations(wide, center), self.deviations(wide, center)
        else:
            squared = wide
        squares = self.simple("power", squared, saved=[squared.storage], temporaries=2)
        mean = self.simple("mean", squares, tokens)
        if kernel != "eager_scale" or normalisation != "rms":  # which divide by one expression
            names.append(mean)
        inverse = self.simple("rsqrt", mean, kept=True, temporaries=2)
        normed = self.multiply(wide, inverse)
        self.tape.name(copy)
        if kernel == "eager":
            result = self.scale(self.cast(normed, LOW), weight)
        else:
            result = self.cast((self.scale_wide if kernel == "eager_scale" else self.scale)(normed, weight), LOW)
        self.tape.name(normed, *names)
        return result

    def _layer_norm(self, value: Value, name: str) -> Value:
        plain = self.choices["normalisation"] == "layer_plain"
        value = self.cast(value, HIGH) if plain else value
        tokens = value.shape[:-1]
        own = [key for key in (f"{name}.weight", f"{name}.bias") if key in self.weights]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(self.bytes_of(value.shape, value.bytes))
            for key in own:
                walk.parameter(sized(LOW * self.weights[key]), key)
            return [made]
        saved = [value.storage, *(Storage(self.bytes_of(tokens, HIGH)) for _ in range(2))]
        if self.choices["norm"] == "eager_scale":
            saved.append(Storage(sized(LOW * self.weights[own[0]])))
        out = self.value("norm", [value], value.shape, value.bytes, backward=backward, saved=saved)
        return self.cast(out, LOW) if plain else out

    def _norms_of_heads(self, value: Value, weight: str) -> Value:
        """Record a LayerNorm for each head: those of all but the first, then that, go backward and free statistics."""
        *tokens, heads, features = value.shape
        number, = local_shape((heads,))
        each = product(*local_shape((*tokens, features)))
        of_all = sized(LOW * number * each)
        split = self.tape.record("split", [value], [], lambda walk, gradients: [walk.make(of_all)], 2)
        parts = []
        for place, count in enumerate((Integer(1), number - 1)):
            def backward(walk: Walk, gradients: list[Storage], count: Expr = count) -> list[Storage]:
                made = walk.make(sized(LOW * count * each))
                walk.parameter(sized(LOW * count * self.weights[weight] / number), weight)
                return [made]
            statistics = [Storage(sized(HIGH * count * product(*local_shape(tuple(tokens))))) for _ in range(2)]
            part = Value(value.storage, value.shape, LOW, split, place)
            parts.append(self.value("norm", [part], value.shape, backward=backward, saved=[value.storage, *statistics]))
            parts[-1].storage = Storage(sized(LOW * count * each))
        return self.joined(value.shape, parts)

    def attention(self, value: Value) -> Value:
        """Record attention with one kernel, and its projections."""
        if self.choices["heads"] == "latent":
            return latent_of_transformers.attend(self, value)
        query, key, values = self._projected(value)
        parts, turned = self._turned(query, key)
        self.tape.name(query, key)
        if self._has_late_norms:
            turned = [self._normed(name, each) for name, each in zip("qk", turned, strict=True)]
        made = [*turned, values]
        if self.choices["attention"] == "eager":
            return self.linear(self._eager(*made), "attention.o_proj.weight", WHOLE, "attention.o_proj.bias")
        out = self.core(made, QUERY)
        if self.choices["rope"].startswith("joined") and self.choices["attention"] == "sdpa":
            # One head lies after another, and the output projection reads a copy.
            out = self.value("tokens", [out], QUERY, backward=lambda walk, gradients: [walk.share(gradients[0])])
            out.storage = Storage(sized(
                Iverson(a > 1) * Iverson(s > 1) * product(Integer(LOW), *local_shape(QUERY))))
        result = self.linear(out, "attention.o_proj.weight", WHOLE, "attention.o_proj.bias")
        self.tape.name(*made)
        if self.choices["rope"] == "joined_held":
            self.tape.name(query, key, *parts)
        return result

    def _eager(self, query: Value, key: Value, values: Value) -> Value:
        """Record attention in single operations: scores, their softmax in fp32, and the product with values."""
        repeated, viewed, *bounded = self.switched[-len(Layer.switches(self.choices)):]
        if repeated:
            parts = key, values
            key, values = (self.value("repeat", [part], QUERY, backward=self.making(KEY)) for part in parts)
            if viewed:
                key.storage, values.storage = (part.storage for part in parts)
        shares = self.shares(query, key, any(bounded))
        out = self.value("context", [shares, values], QUERY, backward=self.making(SCORES, QUERY),
                         saved=[shares.storage, values.storage])
        self.tape.name(key, values)
        return self.simple("tokens", out, passed=True)

    def shares(self, query: Value, key: Value, bounded: bool = False) -> Value:
        """Record the scores of queries and keys, and their softmax."""
        scores = self.value("scores", [query, key], SCORES, backward=self.making(QUERY, QUERY),
                            saved=[query.storage, key.storage])
        scores = self.simple("scale", scores)
        if bounded:
            scores = self.simple("scale", self.simple("tanh", self.simple("divide", scores), kept=True))
        scores = self.simple("mask", scores, passed=True)
        if self.choices["sinks"] == "trained":
            return self._shares_beside_sinks(scores)
        return self.cast(self.simple("softmax", self.cast(scores, HIGH), kept=True, temporaries=1), LOW)

    def _shares_beside_sinks(self, scores: Value) -> Value:
        """Record the softmax of scores and of one sink for each head, less the largest, and the view without sinks."""
        sinks = self.read("attention.sinks", (HEADS,))
        sinks.storage = Storage({})  # a view of the parameter
        both = self.joined(SCORES_AND_SINK, [scores, sinks])
        largest = self.simple("largest", both, SCORES[:-1], saved=[Storage(self.bytes_of(SCORES[:-1], LONG))])
        less = self.deviations(both, largest)
        self.tape.name(both)
        shares = self.slice(self.simple("softmax", less, kept=True, temporaries=1), SCORES)
        self.tape.name(scores)
        return shares

    def _projected(self, value: Value) -> tuple[Value, Value, Value]:
        """Record the projections; gradients of heads of queries and keys are brought back into order by a copy."""
        parts = (("q", QUERY), ("k", KEY), ("v", KEY))
        if self.choices["projections"] == "fused":
            whole = self.linear(value, "attention.qkv.weight", (*TOKENS, QKV_FEATURES), "attention.qkv.bias")
            if self.choices["biases"] == "linear":  # GPT-2 and GPT-NeoX
                return self._split(whole)
            slices = [self.slice(whole, shape) for _, shape in parts]
            outs = [self._in_order(name, part) for (name, _), part in zip(parts, slices, strict=True)]
        else:
            def projected(name: str, shape: Shape) -> Value:
                return self.linear(value, f"attention.{name}.weight", shape, f"attention.{name}.bias")
            if self.choices["qk_order"] == "all":
                made = [projected(*part) for part in parts]
                outs = [self._in_order(name, each) for (name, _), each in zip(parts, made, strict=True)]
            else:
                outs = [self._in_order(name, projected(name, shape)) for name, shape in parts]
        return outs[0], outs[1], outs[2]

    def _split(self, whole: Value) -> tuple[Value, Value, Value]:
        """Record one split into views of queries, keys and values, whose gradients it joins, by heads or features."""
        if self.choices["positions"] != "learned":
            whole = self.simple("heads", whole, view=True)
        parts = self.tape.record("split", [whole], [], lambda walk, gradients: [walk.make(whole.storage.size)], 3)
        query, key, value = (Value(whole.storage, shape, LOW, parts, place)
                             for place, shape in enumerate((QUERY, KEY, KEY)))
        return query, key, value

    def _in_order(self, name: str, value: Value) -> Value:
        """Record the order of heads of queries and keys, and their norms: of each head, or of all before.

        Without a rotation nothing changes the order; OPT scales its queries.
        """
        if name == "v" or (name == "k" and self.choices["positions"] == "learned"):
            return value
        norms = self.choices["qk_norms"] if self.normed else ""
        if norms == "width":
            features = QUERY_FEATURES if name == "q" else KV_FEATURES
            value = self.norm(value, f"attention.{name}_norm.all_", (*TOKENS, features))
        value = self.simple("heads", value, view=self.choices["positions"] != "learned")
        return value if norms in ("", "width") or self._has_late_norms else self._normed(name, value)

    @property
    def _has_late_norms(self) -> bool:
        return self.normed and self.choices["rope"] == "shared_first"

    def _normed(self, name: str, value: Value) -> Value:
        heads = ".heads_" * (self.choices["qk_norms"] == "heads")
        return self.norm(value, f"attention.{name}_norm{heads}", value.shape)

    def _turned(self, query: Value, key: Value) -> tuple[list[Value], list[Value]]:
        """Record the rotary embedding: of all of a head, or of a part that is joined with the rest again.

        Return what is turned, and what attention reads.
        """
        rope = self.choices["rope"]
        if self.choices["positions"] == "learned":
            return [], [query, key]
        if rope.startswith("joined"):
            width = ROTARY_DIM if self.choices["positions"] == "partial" else HEAD_DIM
            parts = [[self.slice(value, (*value.shape[:-1], part)) for part in (width, HEAD_DIM)]
                     for value in (query, key)]
            turned = [self.turn(part) for part, _ in parts]
            return turned, [self.joined(value.shape, [part, rest])
                            for value, part, (_, rest) in zip((query, key), turned, parts, strict=True)]
        if self.choices["normalisation"] == "layer_unbiased":  # Command R
            query, key = self.cast(query, HIGH), self.cast(key, HIGH)
        turned = [self.turn(query), self.turn(key)]
        made = [self.cast(value, LOW) for value in turned] if turned[0].bytes == HIGH else turned
        self.tape.name(query, key, *turned)
        return turned, made

    def turn(self, value: Value) -> Value:
        """Record products with cosines and sines, the latter of halves exchanged, one with its sign turned."""
        rope = self.choices["rope"]
        if rope == "shared_half":
            return self.turn_halves(value, *self.halves(value, value.shape, bytes=value.bytes // 2))
        bytes = HIGH if "fp32" in rope else value.bytes
        cosines, sines = self._tables(bytes)
        wide = self.cast(value, HIGH) if rope == "repeated_fp32" else value
        along = self.with_table(wide, bytes, cosines)
        # A half is written as numbers of half as many bytes.
        first, second = (self.simple("slice", value, bytes=value.bytes // 2, view=True) for _ in range(2))
        joined = self.joined(value.shape, [self.simple("negative", second), first], value.bytes)
        across = self.cast(joined, HIGH) if rope == "repeated_fp32" else joined
        return self.add(along, self.with_table(across, bytes, sines))

    def turn_halves(self, value: Value, first: Value, second: Value) -> Value:
        """Record the same of each half alone, with tables as wide as a half; a half has as many numbers of one byte."""
        def times(part: Value) -> Value:
            return self.with_table(part, part.bytes, ())
        made = [self.difference(times(first), times(second)), self.add(times(second), times(first))]
        out = self.joined(value.shape, made, value.bytes)
        self.tape.name(*made)
        return out

    def _tables(self, bytes: int) -> tuple[Sequence[Storage], Sequence[Storage]]:
        """Return the tables that a layer keeps, if it repeats those of all layers."""
        if "repeated" in self.choices["rope"] and not self.tables:
            width = ROTARY_DIM if self.choices["positions"] == "partial" else HEAD_DIM
            self.tables = [Storage(self.bytes_of((SEQUENCE, width), bytes)) for _ in range(2)]
        return self.tables[:1], self.tables[1:]

    def mlp(self, value: Value) -> Value:
        """Record the MLP."""
        gated = self.choices["mlp"] in ("swiglu", "geglu")
        part = "swiglu" if gated else "gelu"
        if gated:
            inner = self.gated(value, "swiglu", ("gate", "up"), INNER, (*TOKENS, GATE_UP_FEATURES),
                               "swiglu.gate_up.bias")
        else:
            hidden = self.linear(value, "gelu.up.weight", INNER, "gelu.up.bias")
            kernel = self.choices["mlp"] if self.choices["gelu"] == "fused" else self.choices["gelu"]
            inner = ACTIVATIONS[kernel](self, hidden)
            self.tape.name(hidden)
        return self.linear(inner, f"{part}.down.weight", WHOLE, f"{part}.down.bias")

    def gated(
        self, value: Value, part: str, names: tuple[str, str], inner: Shape, both: Shape, bias: str = "",
    ) -> Value:
        """Record the product of up projection and activated gate, which have ``names`` or are halves of one."""
        is_joint = self.choices["projections"] in ("fused", "gate_up")
        if is_joint:
            gate, up = self.halves(self.linear(value, f"{part}.gate_up.weight", both, bias), inner)
        else:
            gate = self.linear(value, f"{part}.{names[0]}.weight", inner, bias)
        activated = self.simple("activation", gate, saved=[gate.storage])
        if not is_joint:
            up = self.linear(value, f"{part}.{names[1]}.weight", inner, bias)
        return self.multiply(activated, up)


def _gelu(layer: Layer, value: Value) -> Value:
    return layer.simple("activation", value, saved=[value.storage])


def _gelu_new(layer: Layer, value: Value) -> Value:
    half = layer.simple("half", value)
    cube = layer.simple("scaled", layer.simple("power", value, saved=[value.storage], temporaries=2))
    argument, tangent = layer.simple("scaled", layer.add(value, cube)), Storage(value.storage.size)
    inner = layer.simple("tanh", argument, saved=[tangent])
    return layer.multiply(half, layer.simple("shift", inner, passed=True))


def _relu(layer: Layer, value: Value) -> Value:
    out = Storage(value.storage.size)
    result = layer.simple("activation", value, saved=[out])
    result.storage = out
    return result


def _relu2(layer: Layer, value: Value) -> Value:
    root = _relu(layer, value)
    return layer.simple("power", root, saved=[root.storage], temporaries=2)


def _gelu_fast(layer: Layer, value: Value) -> Value:
    half, scaled, cubic = (layer.simple("scaled", value) for _ in range(3))
    argument = layer.multiply(scaled, layer.simple("shift", layer.multiply(cubic, value), passed=True))
    tangent = Storage(value.storage.size)
    inner = layer.simple("tanh", argument, saved=[tangent])
    return layer.multiply(half, layer.simple("shift", inner, passed=True))


def _gelu_python(layer: Layer, value: Value) -> Value:
    half, argument = (layer.simple("scaled", value) for _ in range(2))
    inner = layer.simple("erf", argument, saved=[argument.storage], temporaries=4)
    return layer.multiply(half, layer.simple("shift", inner, passed=True))


def _xielu(layer: Layer, value: Value) -> Value:
    """Record xIELU: of positive inputs a square and a part of them, of others an exponential instead of the square."""
    def slope(walk: Walk, gradients: list[Storage]) -> list[Storage]:
        walk.parameter(sized(LOW * layer.weights["gelu.slopes"] / 2), "gelu.slopes")
        return []
    rising, falling = layer.value("slope", [], (), backward=slope), layer.value("slope", [], (), backward=slope)
    falling = layer.simple("shift", falling, passed=True)
    positive = layer.value("positive", [], value.shape, 1, backward=lambda walk, gradients: [])
    upper = layer.add(layer.multiply(layer.multiply(value, rising), value), layer.simple("scaled", value))

    def minimum(walk: Walk, gradients: list[Storage]) -> list[Storage]:
        equal, half = walk.make(layer.bytes_of(value.shape, 1)), walk.make(layer.bytes_of(value.shape, LOW))
        made = walk.make(layer.bytes_of(value.shape, LOW))
        walk.drop(half)
        walk.drop(equal)
        walk.drop(walk.make(layer.bytes_of(value.shape, 1)))
        return [made]
    least = layer.value("minimum", [value], value.shape, backward=minimum, saved=[value.storage])
    power = layer.simple("expm1", least, kept=True, temporaries=1)

    below = layer.difference(power, value)
    lower = layer.add(layer.multiply(below, falling), layer.simple("scaled", value))
    result = layer.value("chosen", [upper, lower], value.shape, backward=layer.making(value.shape, value.shape),
                         saved=[positive.storage])
    layer.tape.name(positive)
    return result


#: Activations of MLPs without a gate.
ACTIVATIONS: Mapping[str, Callable[[Layer, Value], Value]] = {
    "gelu": _gelu, "new": _gelu_new, "fast": _gelu_fast, "python": _gelu_python, "relu": _relu, "relu2": _relu2,
    "xielu": _xielu,
}
