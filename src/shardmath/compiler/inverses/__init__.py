"""The formulas asked backwards: for which values of one symbol an estimate stays within a limit, in closed form.

``laurent``, ``pieces``, ``enclosure`` and ``solve`` answer for one configuration, on exact fractions; ``coefficients``
gives the same polynomials in letters, of which ``formula`` makes what people read and ``kernel`` what is compiled.
"""
