"""Sums of a product and a number in the source of loops: rounded once where the processor can do that.

Which sums those are follows from the source alone: no instruction leaves a compiler a choice that changes a number, so
numbers depend neither on the options of LLVM nor on who gives it the instructions.
"""

from __future__ import annotations

import ast

from ..expressions.formulas import tree_of

#: The function that such a sum becomes: of two factors and a number.
FUSED = "fused"


def with_fused_sums(source: str) -> ast.Module:
    """Return the tree of a module in which sums and differences of a product and a number are calls of ``FUSED``.

    These calls stand in no line, which Python's own compiler asks for.
    """
    return _Fusing().visit(tree_of(source))  # type: ignore[no-any-return]


class _Fusing(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub):
            for product, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                    return _sum_of(product, other, node)
        return node


def _sum_of(product: ast.BinOp, other: ast.expr, node: ast.BinOp) -> ast.expr:
    factor = product.left
    if isinstance(node.op, ast.Sub) and product is node.right:
        factor = ast.UnaryOp(ast.USub(), factor)
    elif isinstance(node.op, ast.Sub):
        other = ast.UnaryOp(ast.USub(), other)
    return ast.Call(ast.Name(FUSED, ast.Load()), [factor, product.right, other], [])
