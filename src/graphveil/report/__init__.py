"""Reports: tables, figures and certificates of experiments, or of a single run, as one page that opens from disk.

Nothing here computes a result; everything is read from what `graphveil bench` and `graphveil train --out` wrote.
"""

from graphveil.evaluation import Evaluation, evaluate
from graphveil.report.charts import Chart, Point, Series, charts_of
from graphveil.report.writing import FORMATS, Experiment, RunFolder, html_report, read_folder, write_report

__all__ = [
    "FORMATS",
    "Chart",
    "Evaluation",
    "Experiment",
    "Point",
    "RunFolder",
    "Series",
    "charts_of",
    "evaluate",
    "html_report",
    "read_folder",
    "write_report",
]
