"""The model card: what this model is, what protects whom, and which file is for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphveil.artifact.manifest import MANIFEST, Audience
from graphveil.privacy.certificate import Certificate
from graphveil.privacy.levels import Edge, Public, describe

_CONTENTS = {
    "certificate.json": "the certificate, for machines",
    "certificate.txt": "the certificate, for people",
    "metrics.json": "scores on private labels, which the certificate does not cover",
    "predictions.csv": "the predicted class and class probabilities of every node, by its name",
    "public/config.json": "method, settings, names of feature columns, declared names of classes and categories",
    "public/model_card.md": "this page",
    "public/weights.safetensors": "the trained weights",
    "owner/weights.safetensors": "the trained weights",
    "owner/state.safetensors": "logits and released rows, one for each node, and counts that later answers need",
    "owner/nodes.json": "names of the nodes",
    "owner/naming.json": "names of classes and categories that were found in the data",
    "owner/graph.json": "a salted fingerprint of the graph",
    "owner/new_nodes.jsonl": "what new nodes were told",
}


def model_card(
    certificate: Certificate, params: Mapping[str, Any], budget: float, files: Mapping[str, Audience]
) -> str:
    """Markdown without anything that the certificate does not cover: no scores, no data."""
    facts = certificate.facts
    settings = "\n".join(f"| `{name}` | `{value}` |" for name, value in params.items() if value is not None)
    listed = "\n".join(
        f"| `{name}` | {_CONTENTS.get(name, '')} | {audience} |" for name, audience in sorted(files.items())
    )
    spent = "no guarantee" if isinstance(certificate.level, Public) else _spent(certificate, budget)
    return f"""# Model card: {certificate.method}

A node classifier trained by graphveil on a graph of {facts.nodes} nodes ({facts.train_nodes} of them in training),
{facts.features} features and {facts.classes} classes. {describe(certificate.level)}

**Privacy:** {spent}.

## What may be published

{_publishing(certificate)}

| file | what | for |
|---|---|---|
{listed}
| `{MANIFEST}` | checksums of all files; those of private files can confirm a guess about them | owner |

No file holds the graph, its features or the seed of the noise, and none holds labels that the level protects.

## Use

    graphveil predict RUN --nodes 0,1,2          # nodes of the training graph: free, the same answer every time
    graphveil predict RUN --new nodes.csv        # nodes that joined later: noise is drawn once and kept
    graphveil verify RUN                         # checksums, the certificate's figures, audits

A new node's answer is kept in `owner/new_nodes.jsonl` before it is shown. Answer from one copy of this folder only:
two copies draw noise twice, and two draws for the same node can be averaged.

Not for decisions about people without a human who can overrule it. Accuracy is not stated here: scores on private
labels are not covered by the certificate.

## Settings

| setting | value |
|---|---|
{settings}

## Certificate

```
{certificate}
```
"""


def _spent(certificate: Certificate, budget: float) -> str:
    found = f"epsilon {certificate.epsilon:.4g} at delta {certificate.delta:.3g}"
    if budget > certificate.epsilon:
        found += f"; with further releases for changed new nodes at most {budget:.4g}"
    return found if certificate.secure else f"{found}; the noise was seeded, so this is for experiments only"


def _publishing(certificate: Certificate) -> str:
    if isinstance(certificate.level, Public):
        return "**Nothing.** The model was trained without noise: every file can give away the data it was trained on."
    published = "The folder `public/` and the two certificate files. Everything else stays with the owner of the data."
    if isinstance(certificate.level, Edge):
        return (
            f"{published} At this level the certificate covers every prediction, so predictions and released rows may "
            "be published too, where features and labels really are public, as the level assumes."
        )
    return (
        f"{published} A node's prediction, logits and released row are computed from its own features and links, and "
        "are for that node alone: handing it those is what the guarantee allows; publishing them for all nodes is not."
    )
