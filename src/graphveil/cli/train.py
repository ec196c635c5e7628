"""`graphveil train`: fit a method on a dataset, on the user's own files, or on a built-in graph."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil import validate
from graphveil.cli.options import (
    AsJson,
    Attributes,
    BatchSize,
    ClassPrior,
    ClassWeight,
    Delta,
    Directed,
    Download,
    K,
    LedgerLimit,
    LedgerPath,
    LevelName,
    MaxDegree,
    Method,
    Positive,
    Root,
    Shares,
    SplitSeed,
    Steps,
    TableW,
    Threshold,
    Unit,
    about_tables,
    check_whole,
    chosen_level,
    default_epsilon,
    default_method,
    fetch,
    load_graph,
    named_ledger,
    parse_class_words,
    parse_delta,
    parse_every,
    parse_named,
)
from graphveil.cli.plan import warn_of_delta
from graphveil.errors import InvalidInput
from graphveil.process import started_by_torchrun

if TYPE_CHECKING:
    from graphveil.checkpoint import AlreadySaved, Checkpoint
    from graphveil.evaluation import Evaluation
    from graphveil.graph import Graph
    from graphveil.methods.estimator import NodeClassifier
    from graphveil.privacy.budget import BudgetLedger
    from graphveil.privacy.certificate import Certificate

# Keys of metrics.json that `--json` does not print.
_ONLY_IN_FILE = ("evaluation", "command")


@about_tables
def train(
    graph: Annotated[
        str, typer.Argument(help="A dataset, a file, a folder or a table of nodes; else a built-in cSBM graph.")
    ] = "csbm",
    method: Method = None,
    level: LevelName = "k-neighbor",
    k: K = None,
    max_degree: MaxDegree = None,
    cap_degrees: Annotated[bool, typer.Option("--cap-degrees", help="Cut the graph to the promise.")] = False,
    reserve_readers: Annotated[
        int, typer.Option(help="How many of the promised readers of a node are kept free for new nodes.")
    ] = 0,
    unit: Unit = None,
    attributes: Attributes = True,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget (default 8, and 1 at level edge).")] = None,
    delta: Delta = "auto",
    public_edges: Annotated[int | None, typer.Option(help="A declared bound on the number of stored edges.")] = None,
    directed: Directed = None,
    mmap: Annotated[
        Path | None, typer.Option(help="Folder for mapped files: long tables of edges are read in parts.")
    ] = None,
    root: Root = None,
    download: Download = False,
    split_seed: SplitSeed = 0,
    seed: Annotated[int | None, typer.Option(help="Makes noise repeatable: for experiments only.")] = None,
    table: TableW = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    share: Shares = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    class_weight: ClassWeight = None,
    class_prior: ClassPrior = None,
    positive: Positive = None,
    threshold: Threshold = None,
    out: Annotated[Path | None, typer.Option(help="New folder for model, certificate, predictions, report.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="With --out: epsilon in all, later releases included (the fit's own).")
    ] = None,
    ledger: LedgerPath = None,
    ledger_limit: LedgerLimit = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps the unfinished fit; gone when the run is finished.")
    ] = None,
    checkpoint_every: Annotated[str, typer.Option(help="Steps between two checkpoints, or seconds: 60s.")] = "60s",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fit that --checkpoint keeps.")] = False,
    as_json: AsJson = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Train a model and print its accuracy and its certificate.

    Without a graph it trains on a built-in one, and needs neither files nor a network. What can be said about tables
    may also stand in a graph.json beside them (graphveil init, docs/data.md).

    Example: graphveil train my-graph/ --level k-neighbor --k 5 --epsilon 8 --out runs/first

    Example: graphveil train accounts.csv --edges transfers.csv --id-column account --label-column fraud --k 5
    """
    from graphveil.methods import method_class
    from graphveil.methods.spending import check_budget

    divided = started_by_torchrun()
    cls = method_class(method or default_method(table))
    chosen = chosen_level(level, k, max_degree, unit, attributes)
    check_budget(chosen, epsilon)
    _check_words(cls, level, table, out, budget, checkpoint, resume)
    account = named_ledger(ledger, ledger_limit, budget)
    validate.seed("split_seed", split_seed)
    every = parse_every(checkpoint_every)
    if download:
        fetch(graph, root)
    options: dict[str, Any] = {"table": table, "steps": steps, "batch_size": batch_size, "max_degree": max_degree}
    model = cls(
        level=chosen,
        epsilon=default_epsilon(level) if epsilon is None else epsilon,
        delta=parse_delta(delta),
        seed=seed,
        shares=parse_named("share", share),
        cap_degrees=cap_degrees,
        reserved_readers=reserve_readers,
        public_edges=public_edges,
        device=device,
        **parse_class_words(class_weight, class_prior),
        **{name: value for name, value in options.items() if value is not None},
    )
    if divided:
        from graphveil.cli.train_sharded import Options, train_sharded

        load = partial(load_graph, graph, root, split_seed, directed, tables=tables)
        declares = any(value is not None for value in tables.values())
        train_sharded(
            model, Options(graph, load, out, budget, checkpoint, every, resume, as_json, _command(), declares, account)
        )
        return
    check_whole(graph)
    from graphveil.checkpoint import AlreadySaved, Checkpoint

    kept = None if checkpoint is None else Checkpoint(checkpoint, every=every, resume=resume)
    try:
        with kept or nullcontext():
            load = partial(load_graph, graph, root, split_seed, directed, mmap, tables)
            _train(model, load, kept, out, budget, as_json, Asked(positive, threshold), account)
    except AlreadySaved as saved:
        show_saved(saved, as_json)


def _check_words(
    cls: type[NodeClassifier],
    level: str,
    table: str | None,
    out: Path | None,
    budget: float | None,
    checkpoint: Path | None,
    resume: bool,
) -> None:
    """Refuse options that do not go together."""
    from graphveil.artifact.saving import check_apart

    if budget is not None:
        if out is None or level == "none":
            raise InvalidInput("budget", budget, "belongs to --out, and to a level that protects something")
        validate.positive("budget", budget)
    if table is not None and not cls.chooses_table:
        raise InvalidInput("table", table, f"is an option of dpdgc, not of {cls.method}")
    if resume and checkpoint is None:
        raise InvalidInput("resume", resume, "name the folder to go on with: --checkpoint")
    if out is not None and checkpoint is not None:
        check_apart(out, checkpoint)


@dataclass(frozen=True)
class Asked:
    """What predictions are scored by: the class of interest, and the probability from which on it is predicted."""

    positive: str | None
    threshold: float | None

    def check(self, data: Graph) -> None:
        """Refuse a class that is not there, or a threshold for none, before anything is spent."""
        from graphveil.evaluation import check_threshold

        names = data.class_names or tuple(map(str, range(data.num_classes)))
        if self.positive is not None and self.positive not in names:
            raise InvalidInput("positive", self.positive, f"must be one of the classes {', '.join(names[:20])}")
        check_threshold(self.threshold, self.positive is not None or data.num_classes == 2)


def _train(
    model: NodeClassifier,
    load: Callable[[], Graph],
    kept: Checkpoint | None,
    out: Path | None,
    budget: float | None,
    as_json: bool,
    asked: Asked,
    account: BudgetLedger | None,
) -> None:
    """Fit in this process, save and print. Whatever can be refused is refused before the fit."""
    from graphveil.artifact.saving import check_budget, check_new_run, check_space
    from graphveil.process import peak_memory_mb

    if out is not None:
        check_new_run("out", out)
    model.check_parameters()
    data = load()
    data.check_trainable()
    asked.check(data)
    plan = model.plan(data)
    check_budget(budget, plan.epsilon)
    check_space(model, plan, out, None if kept is None else kept.folder)
    if model.delta != "auto":
        warn_of_delta(plan)
    start = time.perf_counter()
    model.fit(data, checkpoint=kept, ledger=account)
    seconds = time.perf_counter() - start
    certificate = model.certificate_
    test, val = (model.evaluate(mask, **asdict(asked)) for mask in (data.test_mask, data.val_mask))
    result = {
        "graph": data.name,
        "method": model.method,
        **scores_of(test, val),
        "graph_used": model.graph_used_,
        "epsilon": certificate.to_dict()["epsilon"],
        "delta": certificate.delta,
        "seconds": round(seconds, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        **({} if account is None else {"ledger": figures_of(account)}),
        **({} if data.counts is None else {"unused": list(data.counts.unused)}),
        "certificate": certificate.to_dict(),
    }
    if out is not None:
        save_somewhere(lambda place: _write(place, model, result, test, budget), out, kept)
    if kept is not None:
        kept.discard()
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        _show(data, result, test, certificate, out)
        if account is not None:
            typer.echo(f"\n{account.path}\n{account.account}")


def figures_of(ledger: BudgetLedger) -> dict[str, Any]:
    """What all trainings together have cost, without their plans."""
    account = ledger.account
    figures = {} if account is None else account.to_dict()
    return {name: figures[name] for name in ("epsilon", "delta", "limit", "used", "left") if name in figures}


def scores_of(test: Evaluation | None, val: Evaluation | None) -> dict[str, float | None]:
    """The scores that `--json` prints; None where there are no labels, or a score is not defined."""
    scores = dict[str, float | None]() if test is None else test.scores()
    return {
        "test_accuracy": scores.get("accuracy"),
        "val_accuracy": None if val is None else val.accuracy,
        "majority_accuracy": scores.get("majority_accuracy"),
        **{f"test_{name}": scores.get(name) for name in ("balanced_accuracy", "average_precision", "auc", "macro_f1")},
    }


def _show(
    data: Graph, result: dict[str, Any], test: Evaluation | None, certificate: Certificate, out: Path | None
) -> None:
    if data.counts is not None:
        typer.echo(str(data.counts))
    typer.echo(f"{data!r}")
    show_accuracies(result)
    for sentence in () if test is None else test.sentences():
        typer.echo(sentence)
    for sentence in certificate.learnt:
        typer.echo(sentence)
    typer.echo(f"trained in {result['seconds']:.1f} s, peak memory {result['peak_memory_mb']} MB\n\n{certificate}")
    if out is not None:
        typer.echo(f"\nwritten to {out}/: certificate.json, certificate.txt, predictions.csv, metrics.json")
        typer.echo(f"the model: {out}/public may be published, {out}/owner may not (public/model_card.md)")
        typer.echo(f"to look at: {out / 'report.html'}")


def save_somewhere(
    write: Callable[[Path], None], out: Path, kept: Checkpoint | None, places: Iterator[Path] | None = None
) -> None:
    """Write a finished run. If its place cannot be written, a checkpoint keeps it, or it is written to another place.

    Args:
        write: Writes the run to a folder.
        out: The folder that was asked for.
        kept: The checkpoint of the fit.
        places: Other folders to try.

    Raises:
        Unwritable: If the run is not in `out`; the message says where it is.
    """
    from graphveil.artifact.saving import other_places, saved_elsewhere
    from graphveil.storage.files import Unwritable

    try:
        write(out)
        return
    except Unwritable as error:
        failed = error
    if kept is not None:
        why = f"{failed.why}; the finished fit is kept in {kept.folder}: go on with --resume and another --out"
        raise Unwritable("out", str(out), why)
    for place in other_places() if places is None else places:
        try:
            write(place)
        except Unwritable:
            continue
        raise saved_elsewhere(failed, place)
    raise failed


def show_saved(saved: AlreadySaved, as_json: bool) -> None:
    """Print the result of a run that an earlier call had finished and saved."""
    from graphveil.storage.decoding import decoding

    metrics = saved.artifact / "metrics.json"
    if as_json and metrics.is_file():
        with decoding(metrics, "the scores of a run"):
            content = json.loads(metrics.read_text())
            result = {name: value for name, value in content.items() if name not in _ONLY_IN_FILE}
        typer.echo(json.dumps(result, indent=2))
    print(f"note: {saved}", file=sys.stderr)


def show_accuracies(result: dict[str, Any]) -> None:
    """Print the accuracies of those sets of nodes that have labels."""
    for name in ("test", "val"):
        value = result[f"{name}_accuracy"]
        if value is not None:
            majority = result.get("majority_accuracy") if name == "test" else None
            beside = "" if majority is None else f" (the majority class alone: {majority:.4f})"
            typer.echo(f"{name} accuracy {value:.4f}{beside}")


def _write(out: Path, model: Any, result: dict[str, Any], test: Evaluation | None, budget: float | None) -> None:
    """Write the run folder, with scores and predictions in it, completely or not at all."""
    from graphveil.artifact import save
    from graphveil.artifact.predictions import csv_head, csv_rows

    # What the report shows of the test nodes; like the scores, it is for the owner of the data.
    more = {"evaluation": None if test is None else test.to_dict(), "command": _command()}
    metrics = json.dumps({**result, **more}, indent=2) + "\n"
    naming, probabilities = model.fitted_.naming, model.predict_proba()
    names = [naming.node(place) for place in range(len(probabilities))]
    predictions = csv_head(naming, probabilities.shape[1]) + csv_rows(naming, names, probabilities)
    also = {"metrics.json": metrics.encode(), "predictions.csv": predictions}
    save(model, out, budget=budget, also=also)
    report_on(out)


def report_on(out: Path) -> None:
    """Write the report of a run. If that fails, the run is still complete, so it is only a note."""
    from graphveil.report import write_report

    try:
        write_report(out)
    except (InvalidInput, OSError) as error:
        print(f"note: the run is complete, its report is not: {error}; graphveil report {out}", file=sys.stderr)


def _command() -> str:
    return shlex.join(["graphveil", *_without_seed(sys.argv[1:])])


def _without_seed(words: list[str]) -> list[str]:
    """The words of the command without the seed: whoever knows it can subtract the noise."""
    words = [re.sub("^--seed=.*", "--seed=SEED", word) for word in words]
    return ["SEED" if before == "--seed" else word for before, word in zip(["", *words], words, strict=False)]
