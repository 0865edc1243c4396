"""Plan a training: days, money, energy and CO2 of every kind and number of GPUs, and which to choose."""

from shardmath.commands.plan.answers import Band, Gain, Offer, Optimum, Plan
from shardmath.commands.plan.run import plan

__all__ = ["Band", "Gain", "Offer", "Optimum", "Plan", "plan"]
