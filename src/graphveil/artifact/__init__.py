"""A fitted model as a folder: what may be published, what stays with the owner of the data, and checksums of both.

    RUN/
      manifest.json               every file with its checksum and who may see it
      certificate.json, .txt      what was spent
      public/                     may be published: model_card.md, config.json, weights.safetensors
      owner/                      stays with the owner: state.safetensors, new_nodes.jsonl, nodes.json, naming.json,
                                  graph.json

No file holds A, X or the noise seed, nor labels that the level protects, and none is executed when it is read.
"""

from graphveil.artifact.contents import list_derived, problems
from graphveil.artifact.loading import load
from graphveil.artifact.saving import save

__all__ = ["list_derived", "load", "problems", "save"]
