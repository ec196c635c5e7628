"""`graphveil train`: fit a method on a dataset, on the user's own files, or on a built-in graph."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphveil import validate
from graphveil.cli.options import Categories, Classes, Directed
from graphveil.cli.plan import _delta, _named, warn_of_delta
from graphveil.errors import InvalidInput
from graphveil.evaluation.peak_memory import peak_memory_mb
from graphveil.job import started_by_torchrun
from graphveil.methods import method_class
from graphveil.methods.plans import check_budget
from graphveil.privacy.levels import make_level

if TYPE_CHECKING:
    from graphveil.checkpoint import AlreadySaved, Checkpoint
    from graphveil.graph import Graph
    from graphveil.methods.estimator import NodeClassifier

# In metrics.json beside what `--json` prints.
_ONLY_KEPT = ("evaluation", "command")


def train(
    graph: Annotated[str, typer.Argument(help="A dataset, a file or a folder; else a built-in cSBM graph.")] = "csbm",
    method: Annotated[
        str | None, typer.Option(help="auto (the default), dpdgc, gap, mlp, sage, randedge or dp-sage.")
    ] = None,
    level: Annotated[str, typer.Option(help="none, edge, k-neighbor or node.")] = "k-neighbor",
    k: Annotated[int | None, typer.Option(help="Neighbours that change together (k-neighbor; default 1).")] = None,
    max_degree: Annotated[int | None, typer.Option(help="Promise: nobody is read by more nodes than this.")] = None,
    cap_degrees: Annotated[bool, typer.Option("--cap-degrees", help="Cut the graph to the promise.")] = False,
    reserve_readers: Annotated[
        int, typer.Option(help="How many of the promised readers of a node are kept free for new nodes.")
    ] = 0,
    unit: Annotated[str | None, typer.Option(help="undirected or directed (level edge).")] = None,
    attributes: Annotated[bool, typer.Option(help="Features and labels are private.")] = True,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget (default 8, and 1 at level edge).")] = None,
    delta: Annotated[str, typer.Option(help="A number, or auto: by the number of protected units.")] = "auto",
    public_edges: Annotated[int | None, typer.Option(help="A declared bound on the number of stored edges.")] = None,
    directed: Directed = None,
    classes: Classes = None,
    categories: Categories = None,
    mmap: Annotated[
        Path | None, typer.Option(help="Folder for mapped files: long tables of edges are read in parts.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Raw datasets; else GRAPHVEIL_DATA, else ./data.")] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of the random split.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Makes noise repeatable: for experiments only.")] = None,
    table: Annotated[
        str | None, typer.Option(help="DPDGC's W: auto, trained, labels, readers, neighbors, posteriors; + joins.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each private training.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Poisson batches of this expected size.")] = None,
    share: Annotated[list[str] | None, typer.Option(help="NAME=PART: a mechanism's part of mu^2.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="New folder for model, certificate, predictions, report.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="With --out: epsilon in all, later releases included (the fit's own).")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps the unfinished fit; gone when the run is finished.")
    ] = None,
    checkpoint_every: Annotated[str, typer.Option(help="Steps between two checkpoints, or seconds: 60s.")] = "60s",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fit that --checkpoint keeps.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a model and print its accuracy and its certificate.

    Example: graphveil train cora --method dpdgc --level k-neighbor --k 1 --epsilon 16 --root data
    """
    divided = started_by_torchrun()
    method = method or ("auto" if table is None and not divided else "dpdgc")
    cls = method_class(method)
    if level == "k-neighbor" and k is None:
        k = 1
    promised = max_degree if level == "node" else None
    chosen = make_level(level, k=k, max_degree=promised, unit=unit, attributes=attributes)
    check_budget(chosen, epsilon)
    if epsilon is None and level != "none":
        epsilon = 1.0 if level == "edge" else 8.0
    if budget is not None and (out is None or level == "none"):
        raise InvalidInput("budget", budget, "belongs to --out, and to a level that protects something")
    if budget is not None:
        validate.positive("budget", budget)
    validate.seed("split_seed", split_seed)
    every = _every(checkpoint_every)
    if table is not None and method != "dpdgc":
        raise InvalidInput("table", table, f"is an option of dpdgc, not of {method}")
    if resume and checkpoint is None:
        raise InvalidInput("resume", resume, "name the folder to go on with: --checkpoint")
    options: dict[str, Any] = {"table": table, "steps": steps, "batch_size": batch_size, "max_degree": max_degree}
    model = cls(
        level=chosen,
        epsilon=epsilon,
        delta=_delta(delta),
        seed=seed,
        shares=_named("share", share),
        cap_degrees=cap_degrees,
        reserved_readers=reserve_readers,
        public_edges=public_edges,
        device=device,
        **{name: value for name, value in options.items() if value is not None},
    )
    declared = declared_words(classes, categories)
    from graphveil.artifact.destination import check_apart

    if out is not None and checkpoint is not None:
        check_apart(out, checkpoint)
    if divided:
        from graphveil.cli.train_sharded import Options, train_sharded

        load = partial(_load, graph, root, split_seed, directed, **declared)
        declares = any(value is not None for value in declared.values())
        options_of_job = Options(graph, load, out, budget, checkpoint, every, resume, as_json, _command(), declares)
        train_sharded(model, options_of_job)
        return
    from graphveil.checkpoint import AlreadySaved, Checkpoint

    kept = None if checkpoint is None else Checkpoint(checkpoint, every=every, resume=resume)
    try:
        with kept or nullcontext():
            load = partial(_load, graph, root, split_seed, directed, mmap, **declared)
            _train(model, load, kept, out, budget, as_json)
    except AlreadySaved as found:
        show_saved(found, as_json)


def _train(
    model: NodeClassifier,
    load: Callable[[], Graph],
    kept: Checkpoint | None,
    out: Path | None,
    budget: float | None,
    as_json: bool,
) -> None:
    """From the graph to the run; whatever can be refused is refused before the fit."""
    from graphveil.artifact.destination import check_budget, check_new_run, check_space

    if out is not None:
        check_new_run("out", out)
    model.check_parameters()
    data = load()
    data.check_trainable()
    plan = model.plan(data)
    check_budget(budget, plan)
    check_space(model, plan, out, None if kept is None else kept.folder)
    if model.delta != "auto":
        warn_of_delta(plan)
    start = time.perf_counter()
    model.fit(data, checkpoint=kept)
    seconds = time.perf_counter() - start
    certificate = model.certificate_
    result = {
        "graph": data.name,
        "method": model.method,
        "test_accuracy": _score(model, data.test_mask),
        "val_accuracy": _score(model, data.val_mask),
        "epsilon": certificate.to_dict()["epsilon"],
        "delta": certificate.delta,
        "seconds": round(seconds, 3),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "certificate": certificate.to_dict(),
    }
    if out is not None:
        save_somewhere(lambda place: _write(place, model, data, result, budget), out, kept)
    if kept is not None:
        kept.discard()
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    if data.counts is not None:
        typer.echo(str(data.counts))
    typer.echo(f"{data!r}")
    show_accuracies(result)
    typer.echo(f"trained in {seconds:.1f} s, peak memory {result['peak_memory_mb']} MB\n\n{certificate}")
    if out is not None:
        typer.echo(f"\nwritten to {out}/: certificate.json, certificate.txt, predictions.csv, metrics.json")
        typer.echo(f"the model: {out}/public may be published, {out}/owner may not (public/model_card.md)")
        typer.echo(f"to look at: {out / 'report.html'}")


def save_somewhere(
    write: Callable[[Path], None], out: Path, kept: Checkpoint | None, places: Iterator[Path] | None = None
) -> None:
    """Write a finished run. What it has spent is not lost if its place fails: a checkpoint keeps it, or another place.

    Both end with an error: what was asked for is not where it was asked for.
    """
    from graphveil.artifact.destination import other_places, said_where
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
        raise said_where(failed, place)
    raise failed


def show_saved(found: AlreadySaved, as_json: bool) -> None:
    """What the run that is there already says of itself."""
    from graphveil.storage.decoding import decoding

    metrics = found.artifact / "metrics.json"
    if as_json and metrics.is_file():
        with decoding(metrics, "the scores of a run"):
            result = {name: value for name, value in json.loads(metrics.read_text()).items() if name not in _ONLY_KEPT}
        typer.echo(json.dumps(result, indent=2))
    print(f"note: {found}", file=sys.stderr)


def show_accuracies(result: dict[str, Any]) -> None:
    """Those of the sets that have labels."""
    for name in ("test", "val"):
        value = result[f"{name}_accuracy"]
        if value is not None:
            typer.echo(f"{name} accuracy {value:.4f}")


def _every(text: str) -> float:
    """Steps as an int, seconds as a float."""
    number = text.removesuffix("s")
    try:
        return int(number) if number == text else float(number)
    except ValueError:
        raise InvalidInput("checkpoint_every", text, "must be a number of steps, or of seconds: 60s") from None


def declared_words(classes: str | None, categories: list[str] | None) -> dict[str, Any]:
    """What `--classes` and `--categories` declare, as arguments of `read_graph`; quotes as in CSV keep a comma."""
    found: dict[str, Any] = {"classes": None if classes is None else _listed("classes", classes), "categories": None}
    for word in categories or []:
        name, equals, values = word.partition("=")
        known = found["categories"] or {}
        if not name or not equals or name in known:
            raise InvalidInput("categories", word, "must be COLUMN=A,B,C, once for each column")
        found["categories"] = {**known, name: _listed("categories", values)}
    return found


def _listed(field: str, text: str) -> list[str]:
    values = [value.strip() for line in csv.reader([text], skipinitialspace=True) for value in line]
    if not values or not all(values):
        raise InvalidInput(field, text, "must be names with commas between")
    return values


def _load(
    name: str,
    root: Path | None,
    split_seed: int,
    directed: bool | None,
    mmap: Path | None = None,
    *,
    classes: Any = None,
    categories: Any = None,
) -> Graph:
    from graphveil.graph import load_dataset, read_graph
    from graphveil.graph.io import is_path

    path = Path(name)
    if (path / "part-00000").is_dir():
        raise InvalidInput("graph", name, "is divided into parts; start it with torchrun -m graphveil train")
    if is_path(name):
        return read_graph(path, directed=directed, seed=split_seed, mmap=mmap, classes=classes, categories=categories)
    for field, value in {"classes": classes, "categories": categories}.items():
        if value is not None:
            raise InvalidInput(field, value, f"belongs to folders of tables; {name} is a dataset")
    if mmap is not None:
        raise InvalidInput("mmap", str(mmap), f"belongs to folders of tables; {name} is a dataset")
    if directed is not None:
        raise InvalidInput("directed", directed, f"belongs to files; the dataset {name} declares itself")
    return load_dataset(name, root=root, seed=split_seed)


def _score(model: Any, mask: Any) -> float | None:
    return model.score(mask) if bool(mask.any()) else None


def _write(out: Path, model: Any, data: Graph, result: dict[str, Any], budget: float | None) -> None:
    """The model's folder with scores and predictions in it, everything or nothing."""
    from graphveil.artifact import save
    from graphveil.artifact.predictions import csv_head, csv_rows

    metrics = json.dumps({**result, **_evaluation(model, data)}, indent=2) + "\n"
    found = model.predict_proba()
    names = [model.fitted_.naming.node(place) for place in range(len(found))]
    predictions = csv_head(model.fitted_.naming, found.shape[1]) + csv_rows(model.fitted_.naming, names, found)
    also = {"metrics.json": metrics.encode(), "predictions.csv": predictions}
    save(model, out, budget=budget, also=also)
    report_on(out)


def report_on(out: Path) -> None:
    """The budget is spent and the run is kept, whatever becomes of its report."""
    from graphveil.report import write_report

    try:
        write_report(out)
    except (InvalidInput, OSError) as error:
        print(f"note: the run is complete, its report is not: {error}; graphveil report {out}", file=sys.stderr)


def _evaluation(model: Any, data: Graph) -> dict[str, Any]:
    """What the report shows of the test nodes; like the scores, for the owner of the data."""
    from graphveil.report import evaluate

    found = evaluate(data.labels[data.test_mask].numpy(), model.predict_proba(data.test_mask), data.class_names)
    return {"evaluation": None if found is None else found.to_dict(), "command": _command()}


def _command() -> str:
    return shlex.join(["graphveil", *_without_seed(sys.argv[1:])])


def _without_seed(words: list[str]) -> list[str]:
    """Whoever knows the seed can subtract the noise: nothing that is written tells it."""
    words = [re.sub("^--seed=.*", "--seed=SEED", word) for word in words]
    return ["SEED" if before == "--seed" else word for before, word in zip(["", *words], words, strict=False)]
