"""`graphveil train`: fit a method on a dataset, on the user's own files, or on a built-in graph."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil import validate
from graphveil.cli.experiments import report_on
from graphveil.cli.guarantee import warn_of_delta
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
    command_line,
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
    given: dict[str, Any] = {"table": table, "steps": steps, "batch_size": batch_size, "max_degree": max_degree}
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
        **{name: value for name, value in given.items() if value is not None},
    )
    options = Options(
        graph=graph,
        load=partial(load_graph, graph, root, split_seed, directed, None if divided else mmap, tables),
        out=out,
        budget=budget,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
        as_json=as_json,
        declares=any(value is not None for value in tables.values()),
        ledger=account,
        positive=positive,
        threshold=threshold,
    )
    if divided:
        from graphveil.cli.train_sharded import train_sharded

        train_sharded(model, options)
    else:
        check_whole(graph)
        _train_here(model, options)


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
class Options:
    """The options of the command that are not parameters of the model.

    Args:
        graph: The word that names the graph.
        load: Loads it.
        out: The folder of the run.
        budget: Epsilon in all, later releases included.
        checkpoint: The folder that keeps the unfinished fit.
        every: Steps between two checkpoints as an int, seconds as a float.
        resume: Whether to go on with the fit in `checkpoint`.
        as_json: Whether to print JSON.
        declares: Whether options about tables are given, which a graph in parts does not need.
        ledger: The file that adds up all trainings on these people.
        positive: The class of interest, for scores.
        threshold: The probability from which on it is predicted.
    """

    graph: str
    load: Callable[[], Graph]
    out: Path | None = None
    budget: float | None = None
    checkpoint: Path | None = None
    every: float = 60.0
    resume: bool = False
    as_json: bool = False
    declares: bool = False
    ledger: BudgetLedger | None = None
    positive: str | None = None
    threshold: float | None = None


def _train_here(model: NodeClassifier, options: Options) -> None:
    """Fit in this process, save and print."""
    from graphveil.checkpoint import AlreadySaved, Checkpoint

    folder = options.checkpoint
    kept = None if folder is None else Checkpoint(folder, every=options.every, resume=options.resume)
    try:
        with kept or nullcontext():
            _fit_and_save(model, options, kept)
    except AlreadySaved as saved:
        show_saved(saved, options.as_json)


def _fit_and_save(model: NodeClassifier, options: Options, kept: Checkpoint | None) -> None:
    data = _checked_graph(model, options)
    start = time.perf_counter()
    model.fit(data, checkpoint=kept, ledger=options.ledger)
    seconds = time.perf_counter() - start
    test, val = (
        model.evaluate(mask, positive=options.positive, threshold=options.threshold)
        for mask in (data.test_mask, data.val_mask)
    )
    result = _result(model, data, scores_of(test, val), seconds, options.ledger)
    if options.out is not None:
        from graphveil.artifact.saving import save_somewhere

        save_somewhere(
            lambda place: _write(place, model, result, test, options.budget), options.out, options.checkpoint
        )
    if kept is not None:
        kept.discard()
    if options.as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    _show(data, result, test, model.certificate_, options.out)
    if options.ledger is not None:
        typer.echo(f"\n{options.ledger.path}\n{options.ledger.account}")


def _checked_graph(model: NodeClassifier, options: Options) -> Graph:
    """The graph. Whatever can be refused is refused here, before the fit."""
    from graphveil.artifact.saving import check_budget, check_new_run, check_space

    if options.out is not None:
        check_new_run(options.out)
    model.check_parameters()
    data = options.load()
    data.check_trainable()
    _check_scores(data, options)
    plan = model.plan(data)
    check_budget(options.budget, plan.epsilon)
    check_space(model, plan, options.out, options.checkpoint)
    if model.delta != "auto":
        warn_of_delta(plan)
    return data


def _check_scores(data: Graph, options: Options) -> None:
    """Refuse a class of interest that is not there, or a threshold without one."""
    from graphveil.evaluation import check_threshold

    names = data.class_names or tuple(map(str, range(data.num_classes)))
    if options.positive is not None and options.positive not in names:
        raise InvalidInput("positive", options.positive, f"must be one of the classes {', '.join(names[:20])}")
    check_threshold(options.threshold, options.positive is not None or data.num_classes == 2)


def _result(
    model: NodeClassifier, data: Graph, scores: dict[str, float | None], seconds: float, ledger: BudgetLedger | None
) -> dict[str, Any]:
    """What `--json` prints, and metrics.json holds."""
    from graphveil.process import peak_memory_mb

    certificate = model.certificate_
    return {
        "graph": data.name,
        "method": model.method,
        **scores,
        "graph_used": model.graph_used_,
        "epsilon": certificate.to_dict()["epsilon"],
        "delta": certificate.delta,
        "seconds": round(seconds, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        **({} if ledger is None else {"ledger": figures_of(ledger)}),
        **({} if data.counts is None else {"unused": list(data.counts.unused)}),
        "certificate": certificate.to_dict(),
    }


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


def show_saved(saved: AlreadySaved, as_json: bool) -> None:
    """Print the result of a run that an earlier call had finished and saved."""
    from graphveil.validate import decoding

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
    more = {"evaluation": None if test is None else test.to_dict(), "command": command_line()}
    metrics = json.dumps({**result, **more}, indent=2) + "\n"
    naming, probabilities = model.fitted_.naming, model.predict_proba()
    names = [naming.node(place) for place in range(len(probabilities))]
    predictions = csv_head(naming, probabilities.shape[1]) + csv_rows(naming, names, probabilities)
    also = {"metrics.json": metrics.encode(), "predictions.csv": predictions}
    save(model, out, budget=budget, also=also)
    report_on(out)
