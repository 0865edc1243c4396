"""Functions of generated modules translated to LLVM: assignments, conditions and loops over ranges.

A function is translated once for each kind of arguments. What it returns is written behind its parameters; a variable
keeps the type of what it held first. Arrays that are handed over must not overlap.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from llvmlite import ir

from .expressions import Expressions
from .fusing import with_fused_sums
from .values import ADDRESS, FLOAT, INTEGER, TRUTH, Array, Kind, Value, kind_of, types_of, unflattened

_RETURNED = {"bool": TRUTH, "float": FLOAT, "int": INTEGER, "None": ir.VoidType()}


def translated(
    names: Mapping[str, object], text: str, name: str, kinds: Sequence[Kind], *, masks: bool = False,
) -> ir.Module:
    """Return a function of a module, with all that it calls, for arguments of some kinds.

    ``names`` are what the names of the module stand for, ``text`` is its source. With ``masks``, the processor can add
    to some parts of a vector only. Raises TypeError for what loops have no use for.
    """
    functions = {item.name: item for item in with_fused_sums(text).body if isinstance(item, ast.FunctionDef)}
    translator = _Translator(names, functions, masks)
    translator.function(name, tuple(kinds)).linkage = "external"
    return translator.module


class _Translator:
    """All functions of one module that are needed, by name and kinds of arguments."""

    def __init__(self, names: Mapping[str, object], functions: Mapping[str, ast.FunctionDef], masks: bool) -> None:
        self.module, self.names, self.masks = ir.Module(), names, masks
        self._trees = functions
        self._found: dict[tuple[str, tuple[Kind, ...]], ir.Function] = {}

    def function(self, name: str, kinds: tuple[Kind, ...]) -> ir.Function:
        """Return the function for arguments of some kinds."""
        key = (name, kinds)
        if key not in self._found:
            if name not in self._trees:
                raise TypeError(f"{name} is no function of the module")
            tree = self._trees[name]
            returned = _RETURNED[ast.unparse(tree.returns) if tree.returns else "None"]
            types = [inner for kind in kinds for inner in types_of(kind)]
            title = name if not self._found else f"{name}.{len(self._found)}"
            made = ir.Function(self.module, ir.FunctionType(returned, types), title)
            made.linkage = "internal"
            if not any(isinstance(node, ast.For | ast.While) for node in ast.walk(tree)):
                made.attributes.add("alwaysinline")
            for argument in made.args:
                if argument.type == ADDRESS:
                    argument.add_attribute("noalias")
            self._found[key] = made
            _Body(self, tree, made, kinds).write()
        return self._found[key]

    def called(self, builder: ir.IRBuilder, name: str, arguments: list[Value]) -> ir.Value:
        """Return the value of a call."""
        made = self.function(name, tuple(map(kind_of, arguments)))
        flat = [part for item in arguments for part in (item.flat if isinstance(item, Array) else (item,))]
        return builder.call(made, flat)


class _Body:
    """The statements of one function."""

    def __init__(
        self, translator: _Translator, tree: ast.FunctionDef, made: ir.Function, kinds: Sequence[Kind],
    ) -> None:
        self.tree, self.made, self.masks = tree, made, translator.masks
        #: For what is made room for once; it leads to the first statement when all is written.
        self._entry = made.append_basic_block()
        self._first = made.append_basic_block()
        #: Where ``continue`` leads to, in each loop around.
        self._next: list[ir.Block] = []
        self._one: ir.Value | None = None
        self.builder = ir.IRBuilder(self._first)
        self.reader = Expressions(
            self.builder, translator.names, lambda name, arguments: translator.called(self.builder, name, arguments),
        )
        values = list(made.args)
        for argument, kind in zip(tree.args.args, kinds, strict=True):
            self._bind(argument.arg, unflattened(kind, values))

    def write(self) -> None:
        """Translate all statements."""
        self._statements(self.tree.body)
        if not self.builder.block.is_terminated:
            if self.made.function_type.return_type != ir.VoidType():
                raise TypeError(f"{self.tree.name} must end with what it returns")
            self.builder.ret_void()
        ir.IRBuilder(self._entry).branch(self._first)

    def _statements(self, trees: Sequence[ast.stmt]) -> None:
        for tree in trees:
            if self.builder.block.is_terminated:
                break
            method = getattr(self, f"_{type(tree).__name__.lower()}", None)
            if method is None:
                raise TypeError(f"cannot compile {ast.unparse(tree)}")
            method(tree)

    def _expr(self, tree: ast.Expr) -> None:
        if not isinstance(tree.value, ast.Constant):  # a docstring
            self.reader.value(tree.value)

    def _assign(self, tree: ast.Assign) -> None:
        (target,) = tree.targets
        if isinstance(target, ast.Tuple) and isinstance(tree.value, ast.Tuple):
            values = [self.reader.number(item) for item in tree.value.elts]
            for item, value in zip(target.elts, values, strict=True):
                self._put(item, value)
        else:
            self._put(target, self.reader.value(tree.value))

    def _augassign(self, tree: ast.AugAssign) -> None:
        before, value = self.reader.number(tree.target), self.reader.number(tree.value)
        if self.masks and isinstance(tree.op, ast.Add) and (before.type, value.type) == (INTEGER, TRUTH):
            value = self.builder.select(value, self._unit(), ir.Constant(INTEGER, 0))
        self._put(tree.target, self.reader.combined(tree.op, before, value))

    def _unit(self) -> ir.Value:
        """Load the number 1 to count with from memory.

        Were it known, LLVM would make a vector of zeros and ones of every mask and add that. A number that it does not
        know is added where the mask is set, in one operation.
        """
        if self._one is None:
            place = self.made.module.globals.get("one")
            if place is None:
                place = ir.GlobalVariable(self.made.module, INTEGER, "one")
                place.initializer = ir.Constant(INTEGER, 1)
            with self.builder.goto_entry_block():
                self._one = self.builder.load(place, typ=INTEGER)
        return self._one

    def _put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Subscript) and isinstance(value, ir.Value):
            array = self.reader.value(target.value)
            assert isinstance(array, Array)
            places = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            place = self.reader.address(array, places)
            self.builder.store(self.reader.as_type(value, array.element), place)
        else:
            raise TypeError(f"cannot compile an assignment to {ast.unparse(target)}")

    def _bind(self, name: str, value: Value) -> None:
        others = self.reader.slots if isinstance(value, Array) else self.reader.arrays
        if name in others:
            raise TypeError(f"{name} is a number in one place and an array in another")
        if isinstance(value, Array):
            self.reader.arrays[name] = value
            return
        if name not in self.reader.slots:
            self.reader.slots[name] = (self.reader.stack(value.type), value.type)
        slot, held = self.reader.slots[name]
        self.builder.store(self.reader.as_type(value, held), slot)

    def _return(self, tree: ast.Return) -> None:
        if tree.value is None:
            self.builder.ret_void()
        else:
            wanted = self.made.function_type.return_type
            self.builder.ret(self.reader.as_type(self.reader.number(tree.value), wanted))

    def _continue(self, tree: ast.Continue) -> None:
        self.builder.branch(self._next[-1])

    def _if(self, tree: ast.If) -> None:
        yes, no, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(self.reader.truth(tree.test), yes, no)
        for block, body in ((yes, tree.body), (no, tree.orelse)):
            self.builder.position_at_end(block)
            self._statements(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)

    def _while(self, tree: ast.While) -> None:
        head, body, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.reader.truth(tree.test), body, after)
        self.builder.position_at_end(body)
        self._inside(tree.body, head)
        self.builder.position_at_end(after)

    def _for(self, tree: ast.For) -> None:
        """Translate a loop over a range, from 0 or a start, in steps of one."""
        assert isinstance(tree.target, ast.Name)
        assert isinstance(tree.iter, ast.Call)
        assert ast.unparse(tree.iter.func) == "range"
        *start, stop = (self.reader.number(arg) for arg in tree.iter.args)
        self._bind(tree.target.id, start[0] if start else ir.Constant(INTEGER, 0))
        slot = self.reader.slots[tree.target.id][0]
        head, body, step, after = (self.builder.append_basic_block() for _ in range(4))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        here = self.builder.load(slot, typ=INTEGER)
        self.builder.cbranch(self.builder.icmp_signed("<", here, stop), body, after)
        self.builder.position_at_end(body)
        self._inside(tree.body, step)
        self.builder.position_at_end(step)
        further = self.builder.add(self.builder.load(slot, typ=INTEGER), ir.Constant(INTEGER, 1), flags=("nsw",))
        self.builder.store(further, slot)
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def _inside(self, body: Sequence[ast.stmt], following: ir.Block) -> None:
        self._next.append(following)
        self._statements(body)
        self._next.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(following)
