"""The names of the operations that nodes of a graph stand for."""

NUMBER, NAME, TRUTH = "number", "name", "truth"
ADD, MUL, DIV, CEIL_DIV, FLOOR_DIV, LCM, MAX, MIN, SELECT = (
    "add", "mul", "div", "ceil_div", "floor_div", "lcm", "max", "min", "select",
)
EQ, LE, LT, DIVIDES, AND, OR, NOT = "eq", "le", "lt", "divides", "and", "or", "not"
#: Parts of divisions with shared reciprocals: a corrected product, its rounding, common factors.
QUOTIENT, CEIL, FLOOR, NEAREST, WHOLE, COMMON = "quotient", "ceil", "floor", "nearest", "whole", "common"
#: A product with a reciprocal that is a little too small, rounded up.
ROUNDED_UP = "rounded_up"
CONDITIONS = frozenset((TRUTH, EQ, LE, LT, DIVIDES, WHOLE, AND, OR, NOT))
