"""Where noise comes from: a keystream, normals that are rounded to a lattice, and the source that hands them out."""

from graphveil.noise.source import NoiseSource

__all__ = ["NoiseSource"]
