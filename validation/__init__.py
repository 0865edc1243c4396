"""Published runs against the formulas; ``fujii2024`` and ``report`` in here write what comes of it."""
