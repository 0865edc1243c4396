"""A machine for programs of bounds: every instruction works on a block of boxes, which stays in the nearest cache.

Compiled once for all spaces (``compiler.native``). Slots have a row for the least values of a block and one for the
largest; a condition has 0 or 1 in both: whether it surely holds, and whether it may hold. ``programs`` writes the
programs, and says of every instruction what it takes.
"""

from typing import Any

import numpy as np

#: Instructions: each is a row of ``code``: operation, slot of the result, up to three arguments or flags, a number, and
#: the ends of the result that are needed.
FILL, LEND, ROWS, OUTER_ROWS, GATHER = 0, 1, 2, 3, 4
ADD, ADD_NUMBER, MULTIPLY, SCALE, FLIP, TIMES_POSITIVE, TIMES, TIMES_UNBOUNDED = 5, 6, 7, 8, 9, 10, 11, 12
DIVIDE, DIVIDE_NUMBER, DIVIDE_ANY, CEIL, FLOOR, MAXIMUM, MINIMUM = 13, 14, 15, 16, 17, 18, 19
SELECT, MULTIPLE, EQUAL, DIVIDES, AT_MOST, LESS, NOT = 20, 21, 22, 23, 24, 25, 26
#: Ends of a result that are needed: the least values, the largest, or both.
LOWER, UPPER, BOTH = 1, 2, 3
#: The place of a free axis.
FREE = -1
#: The slot of a key that is that of the parent.
PARENTS = -1
#: Flags of DIVIDE_ANY: the dividend may be without an end, is nowhere below 0, the divisor is above 0.
UNBOUNDED, NOT_NEGATIVE, POSITIVE = 1, 2, 4
INFINITE = float("inf")


def smaller(left: float, right: float) -> float:
    """Return the smaller number, and what is no number if either is none."""
    return left if (left < right) | (left != left) else right  # noqa: PLR0124


def larger(left: float, right: float) -> float:
    """Return the larger number, and what is no number if either is none."""
    return left if (left > right) | (left != left) else right  # noqa: PLR0124


def smaller_number(left: float, right: float) -> float:
    """Return the smaller of those that are numbers."""
    return left if (left <= right) | (right != right) else right  # noqa: PLR0124


def larger_number(left: float, right: float) -> float:
    """Return the larger of those that are numbers."""
    return left if (left >= right) | (right != right) else right  # noqa: PLR0124


def finite_times(left: float, right: float) -> float:
    """Multiply ends of finite values: 0 times an end that is infinite is 0."""
    return 0.0 if (left == 0.0) | (right == 0.0) else left*right


def multiple(left: float, right: float) -> float:
    """Return the least common multiple of two whole numbers that are not negative."""
    first = np.int64(left)
    second = np.int64(right)
    product = first
    while second > 0:
        rest = first % second
        first = second
        second = rest
    if first == 0:
        return 0.0
    return product // first * right


def run(  # noqa: PLR0915
    code: Any, start: int, stop: int, n: int, low: Any, high: Any, numbers: Any, table_low: Any, table_high: Any,
    at: Any, outer_at: Any, firsts: Any, steps: Any, axis: int, parents: Any, chosen: Any, rows: Any, places: Any,
    outer_low: Any, outer_high: Any,
) -> None:
    """Run the instructions from ``start`` to ``stop`` on ``n`` boxes.

    ``at`` says for each table where it has each box. Parents of boxes are at ``rows`` of ``outer_low``,
    ``outer_high`` and ``outer_at``; in them ``axis`` is free, on which boxes have ``places``. For parents themselves,
    ``chosen`` are rows of ``parents``. Behind the row of a free axis a table has that of its first place by ``firsts``,
    and all others by ``steps`` more; GATHER says how many numbers further the next row begins. An end that is not
    needed may be left as it was.
    """
    for step in range(start, stop):
        op = code[step, 0]
        o = code[step, 1]
        a = code[step, 2]
        b = code[step, 3]
        c = code[step, 4]
        number = numbers[code[step, 5]]
        lower = code[step, 6] != UPPER
        upper = code[step, 6] != LOWER
        if op == ADD:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j] + low[b, j]
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j] + high[b, j]
        elif op == ADD_NUMBER:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j] + number
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j] + number
        elif op == MULTIPLY:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j]*low[b, j]
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j]*high[b, j]
        elif op == SCALE:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j]*number
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j]*number
        elif op == FLIP:
            if lower:
                for j in range(n):
                    low[o, j] = high[a, j]*number
            if upper:
                for j in range(n):
                    high[o, j] = low[a, j]*number
        elif op == TIMES_POSITIVE:
            if lower:
                for j in range(n):
                    low[o, j] = smaller(low[a, j]*low[b, j], low[a, j]*high[b, j])
            if upper:
                for j in range(n):
                    high[o, j] = larger(high[a, j]*low[b, j], high[a, j]*high[b, j])
        elif op == TIMES:
            if lower:
                for j in range(n):
                    p = low[a, j]*low[b, j]
                    q = low[a, j]*high[b, j]
                    r = high[a, j]*low[b, j]
                    s = high[a, j]*high[b, j]
                    low[o, j] = smaller(smaller(smaller(p, q), r), s)
            if upper:
                for j in range(n):
                    p = low[a, j]*low[b, j]
                    q = low[a, j]*high[b, j]
                    r = high[a, j]*low[b, j]
                    s = high[a, j]*high[b, j]
                    high[o, j] = larger(larger(larger(p, q), r), s)
        elif op == TIMES_UNBOUNDED:
            if lower:
                for j in range(n):
                    p = finite_times(low[a, j], low[b, j])
                    q = finite_times(low[a, j], high[b, j])
                    r = finite_times(high[a, j], low[b, j])
                    s = finite_times(high[a, j], high[b, j])
                    low[o, j] = smaller(smaller(smaller(p, q), r), s)
            if upper:
                for j in range(n):
                    p = finite_times(low[a, j], low[b, j])
                    q = finite_times(low[a, j], high[b, j])
                    r = finite_times(high[a, j], low[b, j])
                    s = finite_times(high[a, j], high[b, j])
                    high[o, j] = larger(larger(larger(p, q), r), s)
        elif op == LEND:
            if lower:
                for j in range(n):
                    low[o, j] = outer_low[a, rows[j]]
            if upper:
                for j in range(n):
                    high[o, j] = outer_high[a, rows[j]]
        elif op == GATHER:
            if lower:
                for j in range(n):
                    low[o, j] = table_low[a + at[b, j]*c]
            if upper:
                for j in range(n):
                    high[o, j] = table_high[a + at[b, j]*c]
        elif op == ROWS:
            first = firsts[a, axis]
            further = steps[a, axis]
            for j in range(n):
                at[a, j] = outer_at[a, rows[j]] + first + places[j]*further
        elif op == OUTER_ROWS:
            for j in range(n):
                at[a, j] = 0
            for other in range(steps.shape[1]):
                first = firsts[a, other]
                further = steps[a, other]
                if further != 0:
                    for j in range(n):
                        place = parents[chosen[j], other]
                        at[a, j] += first + place*further if place != FREE else 0
        elif op == FILL:
            for j in range(n):
                low[o, j] = number
                high[o, j] = number
        elif op == MAXIMUM:
            if lower:
                for j in range(n):
                    low[o, j] = larger(low[a, j], low[b, j])
            if upper:
                for j in range(n):
                    high[o, j] = larger(high[a, j], high[b, j])
        elif op == MINIMUM:
            if lower:
                for j in range(n):
                    low[o, j] = smaller(low[a, j], low[b, j])
            if upper:
                for j in range(n):
                    high[o, j] = smaller(high[a, j], high[b, j])
        elif op == DIVIDE:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j]/high[b, j]
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j]/low[b, j]
        elif op == DIVIDE_NUMBER:
            if lower:
                for j in range(n):
                    low[o, j] = low[a, j]/number
            if upper:
                for j in range(n):
                    high[o, j] = high[a, j]/number
        elif op == DIVIDE_ANY:
            divide_any(n, low, high, o, a, b, c)
        elif op == CEIL:
            if lower:
                for j in range(n):
                    low[o, j] = np.ceil(low[a, j])
            if upper:
                for j in range(n):
                    high[o, j] = np.ceil(high[a, j])
        elif op == FLOOR:
            if lower:
                for j in range(n):
                    low[o, j] = np.floor(low[a, j])
            if upper:
                for j in range(n):
                    high[o, j] = np.floor(high[a, j])
        elif op == SELECT:
            if lower:
                for j in range(n):
                    least = low[c, j] if high[a, j] == 0.0 else smaller(low[b, j], low[c, j])
                    low[o, j] = low[b, j] if low[a, j] != 0.0 else least
            if upper:
                for j in range(n):
                    most = high[c, j] if high[a, j] == 0.0 else larger(high[b, j], high[c, j])
                    high[o, j] = high[b, j] if low[a, j] != 0.0 else most
        elif op == MULTIPLE:
            for j in range(n):
                if (low[a, j] == high[a, j]) & (low[b, j] == high[b, j]):
                    exact = multiple(low[a, j], low[b, j])
                    low[o, j] = exact
                    high[o, j] = exact
                else:
                    low[o, j] = larger(low[a, j], low[b, j])
                    high[o, j] = high[a, j]*high[b, j]
        elif op == EQUAL:
            for j in range(n):
                single = (low[a, j] == high[a, j]) & (low[b, j] == high[b, j])
                low[o, j] = 1.0 if single & (low[a, j] == low[b, j]) else 0.0
                high[o, j] = 0.0 if (low[a, j] > high[b, j]) | (low[b, j] > high[a, j]) else 1.0
        elif op == DIVIDES:
            for j in range(n):
                single = (low[a, j] == high[a, j]) & (low[b, j] == high[b, j])
                quotient = low[b, j]/low[a, j]
                whole = np.floor(quotient) == quotient
                low[o, j] = 1.0 if single & whole else 0.0
                high[o, j] = 0.0 if single & (not whole) else 1.0
        elif op == AT_MOST:
            for j in range(n):
                low[o, j] = 1.0 if high[a, j] <= low[b, j] else 0.0
                high[o, j] = 0.0 if low[a, j] > high[b, j] else 1.0
        elif op == LESS:
            for j in range(n):
                low[o, j] = 1.0 if high[a, j] < low[b, j] else 0.0
                high[o, j] = 0.0 if low[a, j] >= high[b, j] else 1.0
        elif op == NOT:
            for j in range(n):
                low[o, j] = 1.0 - high[a, j]
                high[o, j] = 1.0 - low[a, j]


def divide_any(n: int, low: Any, high: Any, o: int, a: int, b: int, flags: int) -> None:
    """Bound quotients by something positive; there are no bounds where it may be 0 or less."""
    without_end = flags % 2 == 1
    not_negative = flags // NOT_NEGATIVE % 2 == 1
    positive = flags // POSITIVE == 1
    for j in range(n):
        below = low[a, j]
        above = high[a, j]
        least = low[b, j]
        most = high[b, j]
        if without_end:  # nothing is known of the quotient of an infinite end
            known = (below > -INFINITE) & (below < INFINITE) & (above > -INFINITE) & (above < INFINITE)
            below = below if known else -INFINITE
            above = above if known else INFINITE
        first = below/most if not_negative else smaller_number(below/most, below/least)
        last = above/least if not_negative else larger_number(above/least, above/most)
        if not positive:
            single = (least == most) & (least != 0.0)  # a single value, even below 0
            first = first if least > 0.0 else -INFINITE
            last = last if least > 0.0 else INFINITE
            first = smaller_number(below/least, above/least) if single else first
            last = larger_number(below/least, above/least) if single else last
        low[o, j] = first
        high[o, j] = last


def counted(n: int, low: Any, high: Any, counting: Any, kept: Any, rows: Any, places: Any, still: Any) -> int:
    """Move boxes that may count to the front, and return how many these are."""
    left = 0
    for j in range(n):
        counts = 0.0
        for question in range(counting.shape[0]):
            counts = larger(counts, high[counting[question], j])
        if counts > 0.0:
            rows[left] = rows[j]
            places[left] = places[j]
            still[left] = j
            left += 1
    if left < n:
        for k in range(kept.shape[0]):
            slot = kept[k]
            for j in range(left):
                low[slot, j] = low[slot, still[j]]
                high[slot, j] = high[slot, still[j]]
    return left


def children(
    parents: Any, axis: int, size: int, idle: Any, checked: Any, starts: Any, members: Any, firsts: Any, steps: Any,
    legal: Any, code: Any, stages: Any, numbers: Any, table_low: Any, table_high: Any, low: Any, high: Any,
    outer_low: Any, outer_high: Any, at: Any, outer_at: Any, chosen: Any, rows: Any, places: Any, still: Any,
    counting: Any, kept: Any, keys: Any, every: int, parents_low: Any, parents_may: Any,
    result_rows: Any, result_places: Any, result_low: Any, result_high: Any, result_may: Any, result_sure: Any,
) -> int:
    """Bound the children along an axis that may have a configuration that counts, and return their number.

    ``idle`` has pairs of an axis and a place at which only the first child counts. ``checked`` are tables whose
    ``legal`` rows, from ``starts`` on, say which children have a legal configuration; ``members`` are the number of
    axes of each table, and these. ``stages`` are four places in
    ``code``: of instructions for parents, for children, and for those that count. ``counting``, ``kept`` and ``keys``
    are slots: of what counts for each question, of all that later stages need of earlier ones, and of the keys. Without
    ``every`` end nothing is known of the largest values of keys, and of what surely counts. ``parents_low`` are the
    least values of keys of parents, and ``parents_may`` says for which questions they may count.
    """
    done = 0
    parent = 0
    width = low.shape[1]
    while parent < parents.shape[0]:
        m = 0
        n = 0
        while parent < parents.shape[0] and n + size <= width:
            last = size
            for k in range(idle.shape[0]):
                last = 1 if parents[parent, idle[k, 0]] == idle[k, 1] else last
            for k in range(checked.shape[0]):
                table = checked[k]
                begin = starts[table] + firsts[table, axis]
                for member in range(members[table, 0]):
                    other = members[table, 1 + member]
                    begin += (firsts[table, other] + parents[parent, other]*steps[table, other]
                              if parents[parent, other] != FREE else 0)
                outer_at[table, 0] = begin
            before = n
            for place in range(last):
                k = 0
                while k < checked.shape[0] and legal[outer_at[checked[k], 0] + place*steps[checked[k], axis]] != 0:
                    k += 1
                if k == checked.shape[0]:
                    rows[n] = m
                    places[n] = place
                    n += 1
            if n > before:
                chosen[m] = parent
                m += 1
            parent += 1
        if n == 0:
            continue
        run(code, stages[0], stages[1], m, outer_low, outer_high, numbers, table_low, table_high, outer_at, at, firsts,
            steps, axis, parents, chosen, rows, places, low, high)
        run(code, stages[1], stages[2], n, low, high, numbers, table_low, table_high, at, outer_at, firsts, steps,
            axis, parents, chosen, rows, places, outer_low, outer_high)
        left = counted(n, low, high, counting, kept, rows, places, still)
        if left == 0:
            continue
        run(code, stages[2], stages[3], left, low, high, numbers, table_low, table_high, at, outer_at, firsts, steps,
            axis, parents, chosen, rows, places, outer_low, outer_high)
        for j in range(left):
            row = chosen[rows[j]]
            result_rows[done] = row
            result_places[done] = places[j]
            for key in range(keys.shape[0]):
                result_low[done, key] = low[keys[key], j] if keys[key] != PARENTS else parents_low[row, key]
                result_high[done, key] = high[keys[key], j] if every != 0 else INFINITE
            for question in range(counting.shape[0]):
                result_may[done, question] = parents_may[row, question] if high[counting[question], j] > 0.0 else 0
                result_sure[done, question] = 1 if (every != 0) & (low[counting[question], j] > 0.0) else 0
            done += 1
    return done


def beaten(front: Any, low: Any, first: int, may: Any) -> None:
    """Set ``may`` to 0 for boxes in which every configuration is beaten by a point of a front.

    Points are sorted by their first key. Keys of a box begin with column ``first`` of ``low``.
    """
    for box in range(low.shape[0]):
        point = 0
        while may[box] != 0 and point < front.shape[0] and low[box, first] >= front[point, 0]:
            key = 1
            while key < front.shape[1] and low[box, first + key] >= front[point, key]:
                key += 1
            if key == front.shape[1]:
                may[box] = 0
            point += 1
