"""`graphveil audit --all`: every method at every level, sound and broken, on several graphs, as a table.

Each finished row is stored at once, and a call that was stopped continues where it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphveil import validate
from graphveil.auditing import CANARIES, USUAL, audit, largest_degree
from graphveil.auditing.twins import TWINS
from graphveil.experiments.spec import is_defined_at
from graphveil.graph import Graph, csbm, load_dataset
from graphveil.methods import method_class, other_names
from graphveil.privacy.levels import Edge, KNeighbor, Level, Node, Public
from graphveil.process import __version__
from graphveil.storage import Journal, write_files

GRAPHS = ("csbm", "cora", "chameleon")
EPSILON = 4.0
_FEW = 20_000


@dataclass(frozen=True)
class Row:
    """One line of the table before it is run.

    Args:
        graph: The graph's name.
        method: The method's name.
        level: The level.
        epsilon: The budget; None at level none.
        twin: The broken twin, if it is one.
        options: Parameters of the method.
    """

    graph: str
    method: str
    level: Level
    epsilon: float | None
    twin: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """Identifies the row in the journal."""
        return "/".join(map(str, (self.graph, self.method, self.level, self.epsilon, self.twin, self.options)))


def rows(graph: str, largest_degree: int) -> Iterator[Row]:
    """Every method at every level that it protects, then every twin where its attack flags it, then no protection."""
    # One more than any node has, because a canary adds a link.
    node = Node(largest_degree + 1)
    promise = (("max_degree", node.max_degree),)
    for level in (Edge(), KNeighbor(1), KNeighbor(5), node):
        yield Row(graph, "dpdgc", level, EPSILON)
    for level in (KNeighbor(1), node):
        yield Row(graph, "dpdgc", level, EPSILON, options=(("table", "labels+neighbors"),))
    yield Row(graph, "dpdgc", KNeighbor(1), EPSILON, options=(("table", "readers+degrees"),))
    for level in (Edge(), KNeighbor(1), KNeighbor(5), node):
        yield Row(graph, "auto", level, EPSILON)
    yield Row(graph, "auto", KNeighbor(1), 1.0)  # a small budget
    yield Row(graph, "gap", Edge(), EPSILON)
    yield Row(graph, "gap", KNeighbor(1), EPSILON, options=promise)
    yield Row(graph, "gap", node, EPSILON)
    for level in (Edge(), node, replace(node, unit="zero-out")):
        yield Row(graph, "caribou", level, EPSILON)
    yield Row(graph, "caribou", KNeighbor(1), EPSILON, options=promise)
    yield Row(graph, "progap", Edge(), EPSILON)
    yield Row(graph, "progap", KNeighbor(1), EPSILON, options=promise)
    for level in (node, replace(node, unit="zero-out")):
        yield Row(graph, "progap", level, EPSILON)
    yield Row(graph, "mlp", Edge(), EPSILON)
    yield Row(graph, "mlp", KNeighbor(1), EPSILON)
    yield Row(graph, "randedge", Edge(), EPSILON)
    yield Row(graph, "dp-sage", KNeighbor(1), EPSILON, options=promise)
    yield Row(graph, "dp-sage", node, EPSILON)
    for level in (KNeighbor(1, unit="zero-out"), replace(node, unit="zero-out")):
        yield Row(graph, "auto", level, EPSILON)
    yield Row(graph, "gap", replace(node, unit="zero-out"), EPSILON)
    yield from _rows_of_other_packages(graph, node)
    for twin in TWINS.values():
        yield Row(graph, twin.method, twin.level, twin.epsilon, twin.name)
    for method in ("dpdgc", "sage", "mlp"):
        yield Row(graph, method, Public(), None)


def _rows_of_other_packages(graph: str, node: Node) -> Iterator[Row]:
    """Their methods, at the levels at which they protect something."""
    for method in other_names():
        promise = {"max_degree": node.max_degree} if method_class(method).sums_attributes else {}
        for level in (Edge(), KNeighbor(1), KNeighbor(1, unit="zero-out"), node, replace(node, unit="zero-out")):
            options = promise if isinstance(level, KNeighbor) else {}
            if is_defined_at(method, level, options):
                yield Row(graph, method, level, EPSILON, options=tuple(options.items()))


def run(
    out: Path, *, root: Path | None = None, seed: int = 0, quick: bool = False, graphs: tuple[str, ...] = GRAPHS
) -> Path:
    """Audit what is missing, and write the table.

    Args:
        out: The folder of audit.jsonl, which keeps finished rows, and audit.md.
        root: The folder of raw datasets.
        seed: The seed of all audits.
        quick: Only the built-in graph, few canaries, and no membership inference; the files are quick.jsonl, quick.md.
        graphs: The names of the graphs.

    Returns:
        The page.
    """
    validate.seed("seed", seed)
    if quick:
        graphs = graphs[:1]
    path = out / ("quick.jsonl" if quick else "audit.jsonl")
    with Journal(path) as journal:
        done = {record["key"] for record in journal.records}
        for name in graphs:
            graph = _graph(name, root)
            for row in rows(name, largest_degree(graph)):
                if row.key in done:
                    continue
                record = _run(row, graph, seed, quick)
                journal.append(record)
                print(f"{row.key}: {record['verdict']}, at least {record['lower_bound']:.3g}", file=sys.stderr)
        page = path.with_suffix(".md")
        write_files(out, {page.name: _page(journal.records, quick).encode()})
    return page


def _run(row: Row, graph: Graph, seed: int, quick: bool) -> dict[str, Any]:
    start = time.perf_counter()
    report = audit(
        row.method,
        row.level,
        row.epsilon,
        graph=graph,
        twin=row.twin,
        attacks=_attacks(row, quick),
        trials=_FEW if quick or (row.graph != GRAPHS[0] and row.twin is None) else None,
        fits=60 if quick and row.twin is None else None,
        seed=seed,
        **dict(row.options),
    )
    words = {"key": row.key, "options": dict(row.options), "seconds": round(time.perf_counter() - start, 1)}
    return report.to_dict() | words | {"graph": row.graph, "version": __version__}


def _attacks(row: Row, quick: bool) -> list[str] | None:
    if row.twin is not None:
        attack = TWINS[row.twin].attack
        return [attack, "joint"] if attack not in ("joint", "end-to-end") else [attack]
    if not quick:  # the arithmetic attack has graphs of its own, so it is run once
        return [*USUAL, "arithmetic"] if row.graph == GRAPHS[0] and not isinstance(row.level, Public) else None
    if isinstance(row.level, Public):
        return ["links"]
    return ["release", "table", "gradient", "response", "joint", "links"]


def _graph(name: str, root: Path | None) -> Graph:
    return csbm(0.5, n=1000, f=20, seed=0) if name == "csbm" else load_dataset(name, root=root, seed=0)


def _page(records: list[dict[str, Any]], quick: bool) -> str:
    words = " --quick" if quick else ""
    seeds = " and ".join(str(seed) for seed in sorted({row["seed"] for row in records}))
    versions = " and ".join(sorted({row["version"] for row in records}))
    few = f"{_FEW:,} canaries"
    many = f"{CANARIES:,} canaries on {GRAPHS[0]} and for broken variants, on other graphs at least {_FEW:,}"
    lines = [
        "# Audit",
        "",
        f"Written by `graphveil audit --all{words} --seed {seeds}`, version {versions}.",
        f"Attacks on mechanisms toss {few if quick else many}. They attack the plan; on another graph only "
        "the sizes in it differ.",
        "A lower bound above the claim is a violation. `docs/audit.md` says what is attacked and what a bound means.",
        "",
        "| graph | method | level | variant | claimed | at least | by | verdict | links AUC (TPR) | member AUC (TPR) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in records]
    sound = [row for row in records if row["twin"] is None and row["claimed_epsilon"] is not None]
    broken = [row for row in records if row["twin"] is not None]
    lines += [
        "",
        f"Sound: {sum(row['verdict'] == 'consistent' for row in sound)} of {len(sound)} consistent. "
        f"Broken: {sum(row['verdict'] == 'violated' for row in broken)} of {len(broken)} flagged. "
        "TPR: true positives at 0.1 % false positives.",
    ]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any]) -> str:
    level = {key: value for key, value in row["level"].items() if key != "name" and value is not None}
    words = ", ".join(f"{key} {value}" for key, value in level.items() if key != "attributes")
    worst = max(row["attacks"], key=lambda a: a["lower_bound"] - a["claimed_epsilon"], default=None)
    if row["verdict"] == "consistent":
        worst = max(row["attacks"], key=lambda a: a["lower_bound"], default=None)
    moved = [each for each in row.get("arithmetic", []) if each["verdict"] == "violated"]
    claimed = "none" if row["claimed_epsilon"] is None else f"{row['claimed_epsilon']:.3g}"
    if worst is not None and row["verdict"] == "violated":
        claimed = f"{worst['claimed_epsilon']:.3g}"
    cells = [
        row["graph"],
        row["method"] + (f" ({row['options']['table']})" if "table" in row["options"] else ""),
        row["level"]["name"] + (f" ({words})" if words else ""),
        _variant(row),
        claimed,
        "" if worst is None else f"{worst['lower_bound']:.3f}",
        f"arithmetic: {moved[0]['mechanism']}" if moved else _by(worst),
        row["verdict"] if row["claimed_epsilon"] is not None else "",
        _best_leak(row, "links"),
        _best_leak(row, "membership"),
    ]
    return "| " + " | ".join(cells) + " |"


def _by(attack: dict[str, Any] | None) -> str:
    return "" if attack is None else f"{attack['attack']}: {attack['target']}"


def _variant(row: dict[str, Any]) -> str:
    if row["twin"] is not None:
        return f"**{row['twin']}**"
    return "no protection" if row["claimed_epsilon"] is None else "sound"


def _best_leak(row: dict[str, Any], attack: str) -> str:
    leaks = [leak for leak in row["black_box"] if leak["attack"] == attack]
    if not leaks:
        return ""
    best = max(leaks, key=lambda leak: leak["auc"])
    return f"{best['auc']:.3f} ({best['tpr_at_0.1%_fpr']:.2%}, {best['statistic']})"
