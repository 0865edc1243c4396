"""The compiler: from formulas to code, without SymPy. A nest of loops goes through eight stages.

1. read      ``expressions.formulas`` reads the terms and rules of an evaluator into one graph.
2. pose      ``nests.posing`` adds the axes, conditions and questions of a space: a ``Problem``.
3. prove     ``expressions.dominated`` leaves out what is provably never the largest, where that pays.
4. order     ``nests.order`` chooses the order of the loops, and which of them become a table.
5. skip      ``nests.skipping`` bounds the estimate over a table, so that tables that nothing in fits are passed over.
6. regroup   ``nests.grouping`` puts sums and products together by the loops that they change in.
7. plan      ``nests.plan`` computes every value in the outermost loop that it depends on.
8. print     ``printers`` write the lines of the loops, which a template frames: Python for LLVM, Numba and CUDA, or C.

``nesting`` calls them in this order, and ``native`` makes machine code of the result. Columns of layouts take a shorter
way: ``flat`` plans one loop over rows, and ``inverses`` solves for a symbol. ``evaluators`` finds the formulas of an
implementation with its kernel choices, and has them derived where they are not there yet.

Formulas come as the source of generated evaluators, which lies ready; only ``expressions.formulas`` reads it: 14 ms for
the tree of one with 1,500 lines, 8 ms for its peak. The same terms from the ledger take 0.65 s: 0.41 s to import it
and SymPy, 0.24 s to build them. Whatever else is parsed was typed by a user, but for nests: LLVM and Numba compile one
Python text of a nest, so that both compute the same.
"""
