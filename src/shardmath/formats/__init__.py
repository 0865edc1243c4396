"""Files that people launch training with, read as one neutral ``Run`` and written for a chosen layout.

    >>> from shardmath import formats
    >>> run = formats.read("pretrain.sh")                        # doctest: +SKIP
    >>> run.explain("h100-80gb", num_gpus=64).peak.total         # doctest: +SKIP

``read`` knows launch scripts, flag lists and functional tests of Megatron-LM, job configurations of torchtitan, YAML of
NeMo and Megatron-Bridge, and all formats with a table in ``tables/``; ``written`` writes some. No file is executed.
"""

from shardmath.formats.readers import describes_a_run, read
from shardmath.formats.run import Run
from shardmath.formats.writers import FORMATS, written

__all__ = ["FORMATS", "Run", "describes_a_run", "read", "written"]
