"""Graphs: reading and writing, benchmark datasets, splits, the degree cap, statistics."""

from graphveil.graph.adjacency import cap_degree, column_sums
from graphveil.graph.datasets import csbm, dataset_names, load_dataset
from graphveil.graph.fingerprint import GraphView
from graphveil.graph.graph import Direction, Graph
from graphveil.graph.io import read_graph, write_graph
from graphveil.graph.splits import random_split
from graphveil.graph.statistics import statistics
from graphveil.graph.summary import ReadReport

__all__ = [
    "Direction",
    "Graph",
    "GraphView",
    "ReadReport",
    "cap_degree",
    "column_sums",
    "csbm",
    "dataset_names",
    "load_dataset",
    "random_split",
    "read_graph",
    "statistics",
    "write_graph",
]
