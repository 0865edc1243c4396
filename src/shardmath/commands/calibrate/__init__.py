"""Calibration: a few named efficiencies of a machine, fitted to measured steps within their physical ranges."""

from shardmath.commands.calibrate.calibrate import Calibration, Judged, calibrate
from shardmath.commands.calibrate.files import read_runs

__all__ = ["Calibration", "Judged", "calibrate", "read_runs"]
