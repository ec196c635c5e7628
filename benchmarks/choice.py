"""What the default's choice of a branch loses, and whether its settings carry over to graphs that did not choose them.

Every branch is run on every graph, with one draw of the statistics and expectations. Then each setting of the rule is
asked which branch it would have followed. Leave-one-graph-out: for each graph the setting with the least regret on all
other graphs is taken, and its regret on this graph is reported.

    python -m benchmarks.choice citeseer actor dev/acm.npz --root data --out docs/results/choice
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import graphveil as gv
from graphveil.auditing.recording import Recorder, ledger_on_branch
from graphveil.execution import Ledger, LedgerLike
from graphveil.methods import defaults
from graphveil.methods.auto_plan import CLASS_SUMS
from graphveil.methods.class_sums import ClassSums
from graphveil.methods.expectation import chosen_branch
from graphveil.methods.link_statistics import CoLinkStatistics, LinkStatistics
from graphveil.noise import NoiseSource
from graphveil.privacy.plan import Plan

# The rule's numbers and what is tried for each, beside the library's own.
_OTHERS = {
    "WORTH_IT_POINTS": (0.0, 0.5, 1.0),
    "DOUBT": (0.0, 1.0, 1.5, 2.0),
    "SUMS_GROWTH": (1.2, 1.5, 1.8),
    "TRAINING_GROWTH": (1.1, 1.4),
}
_TRIED = {name: tuple(sorted({*values, getattr(defaults, name)})) for name, values in _OTHERS.items()}
_LEVELS: Sequence[tuple[str, dict[str, Any]]] = (
    ("N_1", {"level": gv.KNeighbor(1)}),
    ("N_5", {"level": gv.KNeighbor(5)}),
    ("node", {"level": gv.Node(100), "cap_degrees": True}),
)
_EPSILONS = (2.0, 4.0, 8.0, 16.0)


def settings() -> Iterator[tuple[float, ...]]:
    """All combinations of what is tried."""
    yield from itertools.product(*_TRIED.values())


def own() -> tuple[float, ...]:
    """The library's setting."""
    return tuple(getattr(defaults, name) for name in _TRIED)


def all_branches(graph: gv.Graph, level: dict[str, Any], epsilon: float, seed: int) -> dict[str, Any] | None:
    """The accuracy of each branch in percent, and the branch that each setting follows; None: there is one branch."""
    model = gv.Auto(epsilon=epsilon, seed=seed, show_progress=False, **level)
    plan = model.plan(graph)
    if len(plan.branches) < 2:
        return None
    accuracies: dict[str, float] = {}
    recorders: list[Recorder] = []
    for branch in plan.branches:

        def make(plan: Plan, source: NoiseSource) -> LedgerLike:
            recorders.append(Recorder(Ledger(plan, source)))
            return recorders[-1]

        model.execute(graph, plan, partial(ledger_on_branch, branch.name, make))
        accuracies[branch.name] = 100 * model.score(graph.test_mask)
    drawn = {entry.name: entry.got for entry in recorders[0].entries if entry.name in plan.names}
    counts = None
    if "statistics" in drawn:
        links = (CoLinkStatistics if plan.facts.directed else LinkStatistics).of(drawn["statistics"], plan)
        counts = links.priors * plan.facts.train_nodes
    priors = ClassSums.of(drawn[CLASS_SUMS], plan[CLASS_SUMS].noise, counts).priors
    followed, kept = [], own()
    for setting in (*settings(), kept):
        for number, value in zip(_TRIED, setting, strict=True):
            setattr(defaults, number, value)
        followed.append(chosen_branch(drawn["expectation"], priors, plan)[0])
    assert own() == kept
    return {"accuracies": accuracies, "followed": followed[:-1]}


def run(graphs: Sequence[str], root: Path, seeds: Sequence[int], runs: Path) -> None:
    """Append what is not there yet to the file of runs."""
    runs.parent.mkdir(parents=True, exist_ok=True)
    done = {_cell(row) for row in rows_of(runs)}
    for name, seed in itertools.product(graphs, seeds):
        graph = None
        for (level, options), epsilon in itertools.product(_LEVELS, _EPSILONS):
            cell = {"graph": Path(name).stem, "seed": seed, "level": level, "epsilon": epsilon}
            if _cell(cell) in done:
                continue
            graph = graph or _load(name, root, seed)
            found = all_branches(graph, options, epsilon, seed)
            if found is not None:
                with runs.open("a") as file:
                    file.write(json.dumps({**cell, **found}) + "\n")
                print(*cell.values(), found["accuracies"], flush=True)


def _load(name: str, root: Path, seed: int) -> gv.Graph:
    if name.endswith(".npz"):
        return gv.read_graph(root / name).with_split(seed)
    return gv.load_dataset(name, root=str(root), seed=seed)


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["graph"], row["seed"], row["level"], row["epsilon"]


def rows_of(runs: Path) -> list[dict[str, Any]]:
    """The runs of a file."""
    return [json.loads(line) for line in runs.read_text().splitlines()] if runs.exists() else []


def regrets(rows: Sequence[dict[str, Any]], setting: tuple[float, ...]) -> list[float]:
    """For each run, by how many points the best branch is ahead of the one that this setting follows."""
    place = list(settings()).index(setting)
    return [max(row["accuracies"].values()) - row["accuracies"][row["followed"][place]] for row in rows]


def page(rows: Sequence[dict[str, Any]], command: str) -> str:
    """The results in words and a table."""
    names = sorted({row["graph"] for row in rows})
    lines, chosen_elsewhere, by_library = [], [], []
    for name in names:
        here, others = ([row for row in rows if (row["graph"] == name) == same] for same in (True, False))
        best = min(settings(), key=lambda setting: mean(regrets(others, setting)))
        left_out, ours = regrets(here, best), regrets(here, own())
        alone = [max(row["accuracies"].values()) - row["accuracies"]["features"] for row in here]
        chosen_elsewhere += left_out
        by_library += ours
        numbers = ", ".join(f"{number:g}" for number in best)
        cells = (mean(alone), mean(ours), max(ours), mean(left_out), max(left_out))
        lines.append(f"| {name} | {len(here)} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {numbers} |")
    behind = sum(
        row["accuracies"]["features"] - row["accuracies"][row["followed"][list(settings()).index(own())]] > 1
        for row in rows
    )
    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
    return f"""# The choice of a branch, by leave-one-graph-out

{" ".join((__doc__ or "").split("    python")[0].split())}

    {command}

- {len(rows)} runs of all branches: N_1, N_5 and node level (D = 100), epsilon 2, 4, 8 and 16, seeds {seeds}.
- Regret is how many points of test accuracy the best branch is ahead of the one that is followed. The best branch is
  known only afterwards, with the noise of one fit each, so even a perfect rule has some.
- The library's setting: mean regret {mean(by_library):.2f}, largest {max(by_library):.1f}; more than 1 point behind the
  branch "features" in {behind} runs.
- Left out: for each graph the setting was chosen on the others among {len(list(settings()))}. Mean regret
  {mean(chosen_elsewhere):.2f}, largest {max(chosen_elsewhere):.1f}.

The regret of never reading the graph, of the library's setting (mean, largest), and of the one chosen elsewhere (mean,
largest), which is in the last column: {", ".join(_TRIED)}.

| graph | runs | never | library | largest | left out | largest | chosen elsewhere |
|---|--:|--:|--:|--:|--:|--:|---|
{chr(10).join(lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", help="names of datasets, or .npz files below the root")
    parser.add_argument("--root", type=Path, default=Path("data"), help="raw datasets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="of the splits and the noise")
    parser.add_argument("--out", type=Path, default=Path("docs/results/choice"), help="a folder; it goes on there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given.graphs, given.root, given.seeds, given.out / "runs.jsonl")
    words = ["python -m benchmarks.choice", *given.graphs, "--seeds", *map(str, given.seeds)]
    (given.out / "README.md").write_text(page(rows_of(given.out / "runs.jsonl"), " ".join(words)))


if __name__ == "__main__":
    main()
