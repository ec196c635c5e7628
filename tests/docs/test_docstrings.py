"""`help` explains what a user gives to public classes and functions."""

import dataclasses
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import graphveil as gv
from graphveil import accounting, auditing, experiments, graph, report
from graphveil.auditing.verify import Verification, check_certificate, verify
from graphveil.evaluation import Evaluation, evaluate
from graphveil.methods import METHODS, method_class
from graphveil.methods.spending import make_plan

MODEL = ("fit", "plan", "save", "predict", "predict_proba", "predict_on", "predict_new", "score", "set_params")
GRAPH = ("from_edge_index", "from_pyg", "from_scipy", "from_networkx", "with_split")
FUNCTIONS = [
    *(getattr(gv.DPDGC, name) for name in MODEL),
    *(getattr(gv.Graph, name) for name in GRAPH),
    *(gv.load, gv.read_graph, gv.write_graph, gv.load_dataset, gv.audit, make_plan),
    *(accounting.compose, accounting.calibrate),
    *(accounting.gaussian_delta, accounting.gaussian_epsilon, accounting.gaussian_mu),
    *(accounting.Composition.epsilon, accounting.Composition.delta, accounting.Composition.rdp_epsilon),
    *(gv.Plan.calibrated, gv.Plan.with_noise, gv.Certificate.from_json, gv.Certificate.of),
    *(gv.Graph.reads, accounting.Gaussian.from_noise, graph.statistics, graph.column_sums, method_class),
]
VALUES = [gv.Edge, gv.KNeighbor, gv.Node, gv.PublicFacts, gv.Plan, gv.Certificate, gv.Graph]
VALUES += [accounting.Gaussian, accounting.SampledGaussian, accounting.RandomizedResponse]
VALUES += [accounting.Composition, accounting.Calibration]

EXPORTED = [getattr(package, name) for package in (auditing, experiments, report) for name in package.__all__]
OWN = [*(thing for thing in EXPORTED if inspect.isfunction(thing)), verify, check_certificate, evaluate]
FUNCTIONS += [function for function in OWN if function not in FUNCTIONS]
VALUES += [thing for thing in EXPORTED if dataclasses.is_dataclass(thing) and isinstance(thing, type)]
VALUES += [Verification, Evaluation, graph.ReadReport]
# What says how much was spent, or how much was spent at least.
GUARANTEES = [gv.audit, auditing.AuditReport, auditing.lower_bound, auditing.threshold_bound, auditing.gaussian_bound]
GUARANTEES += [auditing.one_run_bound, verify]


def on_the_api_page():
    """The functions of docs/api.md with an argument: by themselves, and those that it lists as members."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    for name, options in re.findall(r"^::: ([\w.]+)$(.*?)(?=^:::|^##|\Z)", text, re.MULTILINE | re.DOTALL):
        members = re.search(r"members: \[(.*?)\]", options)
        shown = [f"{name}.{each.strip()}" for each in members[1].split(",") if each.strip()] if members else []
        for each in (name, *shown):
            thing = pkgutil.resolve_name(each)
            if inspect.isroutine(thing) and set(inspect.signature(thing).parameters) - {"self"}:
                yield pytest.param(thing, id=each)


def explained(text: str) -> set[str]:
    """The names that the Args sections of a docstring explain."""
    arguments: set[str] = set()
    for section in re.findall(r"^Args:\n((?:(?: {4}.*)?\n?)*)", inspect.cleandoc(text), re.MULTILINE):
        for names in re.findall(r"^ {4}([\w, ]+): \S", section, re.MULTILINE):
            arguments |= set(names.split(", "))
    return arguments


@pytest.mark.parametrize("name", [method.class_name for method in METHODS.values()])
def test_help_explains_each_parameter_of_a_method_once(name):
    cls = getattr(gv, name)
    fields = {field.name for field in dataclasses.fields(cls)}
    assert explained(cls.__doc__) == fields
    for field in fields:
        assert len(re.findall(rf"^ {{4}}{field}: ", cls.__doc__, re.MULTILINE)) == 1, field


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_functions_explain_their_arguments(function):
    given = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert explained(function.__doc__) == given


@pytest.mark.parametrize("function", on_the_api_page())
def test_functions_on_the_api_page_explain_their_arguments(function):
    assert explained(function.__doc__) == set(inspect.signature(function).parameters) - {"self", "cls"}


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_values_explain_their_fields(cls):
    assert explained(cls.__doc__) == {field.name for field in dataclasses.fields(cls)}


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.__qualname__)
def test_functions_say_what_they_return(function):
    assert "\nReturns:\n    " in inspect.getdoc(function)
    raises = "raise InvalidInput" in inspect.getsource(function)
    assert not raises or "\nRaises:\n    " in inspect.getdoc(function)


@pytest.mark.parametrize("thing", GUARANTEES, ids=lambda thing: thing.__qualname__)
def test_what_is_about_privacy_states_its_guarantee(thing):
    assert "\nFormal guarantee: " in inspect.getdoc(thing)
