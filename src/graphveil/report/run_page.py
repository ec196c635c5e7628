"""The page of a single run: how good it is, what protects it, and how far its probabilities can be believed."""

from __future__ import annotations

from collections.abc import Sequence

from graphveil.evaluation.calibration import Evaluation
from graphveil.privacy.levels import Public
from graphveil.report.certificates import as_html
from graphveil.report.charts import Chart, Point, Series
from graphveil.report.experiments_page import figure
from graphveil.report.folders import RunFolder
from graphveil.report.markup import Html, element, together
from graphveil.report.page import code, note, page, section
from graphveil.report.tables import scrolling

FOR_THE_OWNER = (
    "Accuracy, confusion matrix and calibration are computed from labels that the certificate does not cover. They are "
    "for the owner of the data: publishing them spends privacy that nobody has counted."
)
# More classes than fit on a page are folded into one.
_MOST_CLASSES = 30


def run_page(run: RunFolder) -> str:
    metrics, certificate = run.metrics, run.certificate
    title = f"{certificate.method} on {metrics['graph']}"
    parts = [section("Certificate", as_html(certificate)), section("Noise by mechanism", _noise(run))]
    if run.evaluation is not None:
        parts.append(section("Confusion matrix", _confusion(_folded(run.evaluation))))
        parts.append(section("Calibration", *_calibration(run.evaluation)))
    if metrics.get("command"):
        parts.append(section("To do it again", code(str(metrics["command"]))))
    return page(
        f"graphveil run: {title}",
        element("header", element("h1", title), element("p", _lead(run), class_="lead"), _facts(run)),
        element("main", note(element("p", element("strong", "For the data owner. "), FOR_THE_OWNER)), *parts),
    )


def calibration_chart(evaluation: Evaluation) -> Chart:
    """How often the model is right, against how sure it says it is."""
    points = tuple(
        Point(100 * b.confidence, 100 * b.accuracy, 100 * b.interval[0], 100 * b.interval[1], b.count)
        for b in evaluation.bins
    )
    return Chart(
        kind="Calibration",
        name="calibration",
        title="Reliability diagram",
        x_label="mean confidence (%)",
        y_label="accuracy (%)",
        series=(Series("test nodes", "dpdgc", points),),
        diagonal=True,
        counted="nodes",
    )


def _lead(run: RunFolder) -> str:
    facts = run.certificate.facts
    shape = f"{facts.nodes} nodes, {facts.features} features, {facts.classes} classes"
    return f"{shape}; trained in {run.metrics['seconds']:.1f} s"


def _facts(run: RunFolder) -> Html:
    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.2f} %"

    certificate = run.certificate
    public = isinstance(certificate.level, Public)
    found = {
        "test accuracy": percent(run.metrics["test_accuracy"]),
        "validation accuracy": percent(run.metrics["val_accuracy"]),
        "epsilon": "no guarantee" if public else f"{certificate.epsilon:.4g}",
        **({} if public else {"delta": f"{certificate.delta:.3g}"}),
    }
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in found.items())
    return element("dl", *pairs, class_="facts")


def _noise(run: RunFolder) -> Html:
    mechanisms = run.certificate.mechanisms
    if not mechanisms:
        return element("p", "No noise was drawn: the model does not read what is protected, or nothing is protected.")
    shares = run.certificate.plan().shares()
    heads = ("mechanism", "kind", "sensitivity", "noise", "share of the budget", "why")
    rows = [
        (
            element("th", m.name, scope="row"),
            element("td", m.type),
            element("td", f"{m.sensitivity.worst:.4g}"),
            element("td", m.describe_noise()),
            element("td", _share(shares[m.name])),
            element("td", m.source),
        )
        for m in mechanisms
    ]
    top = element("tr", *(element("th", head, scope="col") for head in heads))
    body = (element("tr", *row) for row in rows)
    table = element("table", element("thead", top), element("tbody", *body), class_="words")
    about = "Shares are of mu², in which Gaussian noise adds up; randomised responses are paid beside it and have none."
    return together(scrolling(table, "Noise by mechanism"), element("p", about, class_="quiet"))


def _share(share: float) -> Html:
    bar = element("span", element("i", style=f"width:{100 * share:.1f}%"), class_="bar", aria_hidden="true")
    return together(f"{100 * share:.0f} %", bar) if share else Html("–")


def _confusion(evaluation: Evaluation) -> Html:
    names = evaluation.classes
    top = element("tr", element("th", "true class", scope="col"), *(element("th", n, scope="col") for n in names))
    body = [
        element("tr", element("th", name, scope="row"), *_confusion_row(row, index))
        for index, (name, row) in enumerate(zip(names, evaluation.confusion, strict=True))
    ]
    about = "Test nodes by true class (rows) and predicted class (columns); darker: a larger part of the true class."
    table = element("table", element("thead", top), element("tbody", *body), class_="confusion")
    return together(element("p", about, class_="quiet"), scrolling(table, "Confusion matrix"))


def _confusion_row(row: Sequence[int], own: int) -> list[Html]:
    total = max(sum(row), 1)
    return [
        element("td", str(n), style=f"--part:{60 * n / total:.0f}%", class_="right" if index == own else None)
        for index, n in enumerate(row)
    ]


def _calibration(evaluation: Evaluation) -> list[Html]:
    error = f"{100 * evaluation.calibration_error:.1f}"
    about = (
        "On the dashed line the model is right as often as it says; below it, it is too sure of itself. On average "
        f"confidence and accuracy of the {evaluation.count} test nodes differ by {error} points (expected calibration "
        "error, ten bins)."
    )
    return [element("p", about), element("div", figure(calibration_chart(evaluation), 1), class_="charts")]


def _folded(evaluation: Evaluation) -> Evaluation:
    """The largest classes, and all others together."""
    size = len(evaluation.classes)
    if size <= _MOST_CLASSES:
        return evaluation
    by_size = sorted(range(size), key=lambda index: -sum(evaluation.confusion[index]))
    kept = sorted(by_size[: _MOST_CLASSES - 1])
    groups = [[index] for index in kept] + [sorted(by_size[_MOST_CLASSES - 1 :])]
    confusion = tuple(
        tuple(sum(evaluation.confusion[i][j] for i in rows for j in columns) for columns in groups) for rows in groups
    )
    names = (*(evaluation.classes[index] for index in kept), f"{size - len(kept)} others")
    return Evaluation(names, confusion, evaluation.bins)
