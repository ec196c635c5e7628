"""Experiments: the paper's table and figures as data, a runner that can be stopped and resumed, and a summary.

>>> from graphveil.experiments import SPECS
>>> len(SPECS["table2"].narrowed(levels=["N_1"], methods=["gap", "mlp"], seeds=2).runs())
28
"""

from graphveil.experiments.paper import SPECS, builtin_spec
from graphveil.experiments.results import Cell, Results, Row, Table, make_tables, read_results
from graphveil.experiments.runner import Progress, run_spec
from graphveil.experiments.spec import GraphRef, Run, Setting, Spec
from graphveil.experiments.spec_file import read_spec
from graphveil.experiments.summary import summary

__all__ = [
    "SPECS",
    "Cell",
    "GraphRef",
    "Progress",
    "Results",
    "Row",
    "Run",
    "Setting",
    "Spec",
    "Table",
    "builtin_spec",
    "make_tables",
    "read_results",
    "read_spec",
    "run_spec",
    "summary",
]
