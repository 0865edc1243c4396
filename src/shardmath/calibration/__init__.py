"""Calibration: a few named efficiencies of a machine, fitted to measured steps within their physical ranges."""
