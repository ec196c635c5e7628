"""Random numbers: a keystream, normals that are rounded to a lattice, and `NoiseSource`, which hands them out."""

from graphveil.noise.source import NoiseSource

__all__ = ["NoiseSource"]
