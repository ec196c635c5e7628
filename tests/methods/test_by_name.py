"""The one list of methods: their classes, what they spend, and methods of other packages."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import graphveil as gv
from graphveil import methods
from graphveil.errors import InvalidInput
from graphveil.methods import METHODS, Method, method_class
from graphveil.methods.baselines import MLP
from graphveil.methods.spending import make_plan
from graphveil.privacy.facts import PublicFacts
from support.votes import forget_methods

FACTS = PublicFacts(nodes=200, train_nodes=150, features=4, classes=3)


@pytest.mark.parametrize("name", METHODS)
def test_a_class_spends_what_is_registered(name):
    cls = METHODS[name].load()
    assert cls.method == name
    assert cls.spend is METHODS[name].spend
    assert getattr(gv, METHODS[name].class_name) is cls


class Borrowed(MLP):
    method = "borrowed"


BORROWED = Method("borrowed", f"{__name__}:Borrowed", "graphveil.methods.baseline_plans:spend_mlp")


@pytest.fixture
def packages(monkeypatch):
    """Entry points of other packages, by name and value."""

    def install(*points):
        found = [EntryPoint(name, value, methods.GROUP) for name, value in points]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == methods.GROUP else [])
        forget_methods()

    yield install
    forget_methods()


def test_a_method_of_another_package(packages):
    packages(("borrowed", f"{__name__}:BORROWED"))
    assert method_class("borrowed") is Borrowed
    assert make_plan("borrowed", gv.KNeighbor(1), FACTS, epsilon=2.0).method == "borrowed"
    with pytest.raises(InvalidInput, match=r"must be one of dpdgc, .*, borrowed"):
        method_class("magic")


def test_a_package_that_cannot_be_used_is_named_and_leaves_the_others_alone(packages):
    own, broken = f"{__name__}:BORROWED", "no_such_package:METHOD"
    packages(("borrowed", own), ("broken", broken), ("named", own), ("twice", own), ("twice", broken), ("gap", broken))
    assert method_class("borrowed") is Borrowed
    assert method_class("gap").method == "gap"
    for name, why in {
        "broken": r"cannot be loaded from no_such_package:METHOD: ModuleNotFoundError",
        "named": r"must be a graphveil\.methods\.Method of this name",
        "twice": r"is a method of several packages",
    }.items():
        with pytest.raises(InvalidInput, match=why) as caught:
            method_class(name)
        assert "\n" not in str(caught.value)


WITHOUT_CODE = Method("empty", f"{__name__}:Nothing", "no_such_module:spend")
OF_ANOTHER_NAME = Method("renamed", f"{__name__}:Borrowed", "graphveil.methods.baseline_plans:spend_mlp")


def test_code_that_is_not_where_a_package_says_is_named(packages):
    packages(("empty", f"{__name__}:WITHOUT_CODE"), ("renamed", f"{__name__}:OF_ANOTHER_NAME"))
    with pytest.raises(InvalidInput, match=r"method = 'empty': cannot be loaded from .*:Nothing: AttributeError"):
        method_class("empty")
    with pytest.raises(InvalidInput, match=r"cannot be loaded from no_such_module:spend: ModuleNotFoundError"):
        make_plan("empty", gv.KNeighbor(1), FACTS, epsilon=2.0)
    with pytest.raises(InvalidInput, match=r"must be a NodeClassifier whose `method` is this name"):
        method_class("renamed")


def test_plans_do_not_load_torch():
    code = "import sys; from graphveil.methods import auto_plan, baseline_plans; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
