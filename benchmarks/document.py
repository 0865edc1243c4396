"""docs/benchmarks.md: what is measured and how, around the output of a run."""

from __future__ import annotations

from benchmarks.contenders.lambdified import BLOCK
from benchmarks.native import FAST, IEEE
from benchmarks.roofline import CHAINS
from shardmath.compiler.engine import CHUNK
from shardmath.compiler.native.options import MARGIN

_TEXT = f"""# Speed, side by side

Written by `python -m benchmarks.run --document docs/benchmarks.md`, which measures everything below in
one run. `make bench` prints the same tables, `--json FILE` writes them as data. Seconds depend on the
machine and on what else it does; the ratios within one run are what can be compared.

```text
@output
```

## What is measured

The job is the sweep of the README. The columns are those that the sweep makes (float64); the rows are
drawn with replacement, with a fixed seed, from its candidates. There are two sets, because an evaluator
may leave early at a candidate that breaks a rule:

* **legal**: legal layouts only, so that every evaluator does its full work for every row. This is the
  rate to quote.
* **mixed**: candidates as the sweep meets them, most of which break a rule.

Before anything is timed, all evaluators run on the same rows, and their answers must be equal: the bytes
of legal layouts to the last byte, broken rules and verdicts of every row. Otherwise the run ends with a
layout that differs. Only *another formula* is not compared: its estimate is another one. What needs
something that is not installed is left out, with a line at the top.

Every evaluator is ready before the clock starts: compiled, lambdified, parsed. They are timed in turn,
round by round, each right after a run of its own that is not timed, and allocate their outputs each time.
`best` is the shortest of the rounds; rates and ratios are made from it. The ratios are to SymPy lambdify on
one thread: the peak in whole *columns* or in *blocks*, and the *whole* answer in blocks. `peak MiB` is the
largest resident set of a fresh process which loads the legal columns, makes the evaluator and runs it once;
the interpreter and all packages that it loads are in it.

`computes` says what an evaluator gives: the *whole answer* of a sweep (the first broken rule, the
verdict, the bytes of both end ranks and of the peak) or the *peak* alone. Compare like with like: with
`/ whole` what shardmath replaces, with `/ blocks` how far a machine gets with the peak and nothing else.

* **shardmath, generated and compiled**: the generated Numba function for columns of layouts, in chunks of up
  to {CHUNK:,} rows; all cores are threads, as the function releases the interpreter lock.
* **shardmath, columns of 16 bits**: the same function for narrow columns of integers, which were there before the
  clock starts: fewer bytes to read.
* **C, gcc -O3**: the same plan, printed as one C loop, with OpenMP; blocks of rows are narrowed
  to one-byte results in a second loop, as gcc does not keep one loop with both in registers. Two builds:
  `{" ".join(IEEE)}`, and `{" ".join(FAST)}`, which may compute reciprocals, sums and
  products otherwise. The first one is exact for every job.
* **SymPy lambdify, cse=True**: the peak as one expression through `sympy.lambdify` to NumPy, with common
  subexpressions found by SymPy. *columns* is how one would write it, and much of its time goes into fresh
  memory; *blocks* takes {BLOCK:,} rows at a time, so that intermediate columns stay in the cache. Its whole
  answer computes the rules, the verdict and both ends as well.
* **SymPy lambdify, statement per term**: one statement for every named term, as in the generated code.
  The expanded expression above is exact in floating point only because all divisors of this job are
  powers of two; this form stays in integers wherever a layout is legal.
* **JAX, jit**: the same expressions through `sympy.lambdify` to JAX, compiled by XLA for the processor in
  float64, if it is installed; it takes all cores.
* **NumExpr, one expression**: the same expression for NumExpr's virtual machine and threads, if it is
  installed.
* **shardmath, generated plain Python**: the generated function of plain Python in a loop, on a sample of
  the layouts.
* **Megatron-LM's published function, plain Python**: the formulas of theoretical_memory_usage.py as
  shardmath derives them, also in a loop on a sample. They are another estimate, with fewer terms and no rules.

The table *between columns and outputs that lie in memory* is the flat evaluator's roofline: columns and
outputs far larger than the caches, which exist before the clock starts. They are placed as shardmath.compiler.placing
places them: each begins with a line of the cache, and each in another part of a page. Arrays as NumPy places them, all
16 bytes behind a line, cost every contender a fifth of its rate. The bytes of a layout are those of
its columns and outputs, each counted once, and the copies' are counted once read and once written; reading a
line of memory before it is written, which a plain store does and NumPy's copy may avoid, is not counted. The
share is of the faster copy on as many threads: NumPy's, or a loop with a factor, compiled by Numba.
Multiply-adds are counted over {CHAINS} independent chains in C, two operations each, for the
widths of vectors that the processor says it has.

Loop nests sweep declared spaces: `LARGE` and `SMALL` of benchmarks/nests.py, with every rule, the memory of every rank
that can have the peak, verdicts, counts per rule and the ten best. *Entries* is the size of the table of fused axes
that the innermost loop runs over; eight entries are forced on the generator. The nests in C are printed from the same
plan and built with -O3 -march=native -ffast-math -fno-reciprocal-math for vectors of both widths; `/ C` is to the
faster one. Their answers are equal. *Passing over what cannot fit* skips tables whose lower bound is above the memory:
it evaluates less, so that its rate is lower and its time shorter.

Nests of spaces with 10⁸ configurations and more are compiled with options that were measured on the processor: the
width of vectors, gathers, adding by masks, unrolling and interleaving. A small loop of a nest's shape is compiled with
each, and run in turn; what takes at most {MARGIN:.0%} of the time of the usual options, at its best and in most rounds,
replaces them. The line `compiler` at the top names the choice. No option changes a number. The flat evaluator is
compiled as Numba has it for the processor: Numba takes other options for a whole process only (`NUMBA_CPU_FEATURES`).

*Proofs* leave out of an estimate the ranks and moments that are never the largest. They and passing over tables take
time to derive, change what there is to compile, and shorten each run: the table has both, for spaces that are cut from
`LARGE`. From 10⁸ configurations on both together are about even at the first use of a dense model, and gain with every
further one; below they save milliseconds. Formulas of models with experts are longer, and proofs about them take
seconds, which only spaces of some 10¹⁰ configurations give back. The thresholds in `compiler/nesting.py` and in the
`posing` of nests follow from that.

*Backends*: Numba compiles every nest (`shardmath explore --backend numba`) to the same numbers and at about the same
rate, and takes many times as long for it as LLVM given the same loops. So LLVM compiles nests, Numba the flat
evaluators and CUDA, and spaces that NumPy goes through within a second are compiled by nothing.

*Branch and bound*: `python -m benchmarks.whole_space` sweeps every configuration of one large space, which is
docs/spaces/llama-70b-512.toml with fewer candidates, and compares the answers. On 24 November 2026: 36,427,776,000
configurations, 163,814 boxes in 4.2 s of a processor, the sweep in 11.2 s of one. The ten best distinct values and all
53 points of the front were equal. The whole file has forty times as many configurations; branch and bound takes three
times as long for them.

*Calculon*: `python -m benchmarks.beside_calculon CHECKOUT` runs the search of another estimator for a few GPUs, from
a clone of its repository (commit caa4b11), and sweeps as many layouts as it tries for GPT-3 175B on 64 GPUs:
3,232,128, by its own count. It is no package of an index, and computes other formulas over another space, so only
rates stand side by side. On 27 November 2026, beside other work: its search for GPT-3 13B on 4 GPUs, 42,104
executions, was stopped after 68 seconds of a processor, so it had done fewer than 620 a second. The sweep went
through 3,210,480 layouts in 0.0042 seconds of one.

The commands run as fresh processes from start to exit, with files already in the system's cache. A first use finds
nothing in the user's cache, which is a folder of its own; the repeated sweeps find what the first one left.

## Repeat it

    make bench
    .venv/bin/python -m benchmarks.run --json run.json
    .venv/bin/python -m benchmarks.run --layouts 10000 --repeats 3 --no-startup
    .venv/bin/python -m benchmarks.run --document docs/benchmarks.md
"""


def document(output: str) -> str:
    """Return the document around the printed tables."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return _TEXT.replace("@output", "\n".join(lines))
