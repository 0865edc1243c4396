"""Ask backwards: the last value of a symbol with which a configuration fits, and the formula for it."""

from shardmath.commands.fit.answers import FitAnswer, Fits
from shardmath.commands.fit.run import fit

__all__ = ["FitAnswer", "Fits", "fit"]
