"""Ask backwards: the last value of a symbol with which a configuration fits, and the formula for it."""

from shardmath.commands.fit.answers import Answer, Fits
from shardmath.commands.fit.run import fit

__all__ = ["Answer", "Fits", "fit"]
