"""One fit on several processes, started by `torchrun -m graphveil train` (docs/scale.md).

Each process owns a block of the nodes: their rows of W and of every other table, their columns of A, their features
and labels. A step exchanges what the training rows read and the clipped gradients of it, some rows at a time; gradients
of W, its noise and the optimiser's state never leave their process. Noise has its place in one keystream, whichever
process draws it.
"""

from graphveil.distributed.checkpoint import ShardedCheckpoint
from graphveil.distributed.fitting import check_supported, fit, save
from graphveil.distributed.group import Group, JobEnded
from graphveil.distributed.shard import Shard

__all__ = ["Group", "JobEnded", "Shard", "ShardedCheckpoint", "check_supported", "fit", "save"]
