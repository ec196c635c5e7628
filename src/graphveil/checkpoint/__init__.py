"""A fit that is not finished, as a folder: a killed fit goes on from it and spends nothing twice.

    DIR/
      checkpoint.json               what was asked for, what the ledger has counted, the stages so far with checksums
      artifact.json                 once saving has begun: the one artifact that the fit becomes
      stage-NNN-STEPS.safetensors   a released value, or a training as it was after so many steps

Everything in it is for the owner alone, and neither seed nor key is in it. docs/checkpoint.md says how to use it,
docs/theory.md, section 9.3, why redoing what a kill has destroyed costs nothing.
"""

from graphveil.checkpoint.checkpoint import AlreadySaved, Checkpoint

__all__ = ["AlreadySaved", "Checkpoint"]
