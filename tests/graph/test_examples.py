"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import graphveil.graph

MODULES = [module.name for module in pkgutil.iter_modules(graphveil.graph.__path__, "graphveil.graph.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
