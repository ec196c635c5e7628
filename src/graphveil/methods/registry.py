"""All methods by name. Nothing else lists them, and listing them does not load PyTorch.

A method of another package takes part by an entry point of the group `graphveil.methods` that names a `Method`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphveil.errors import InvalidInput

if TYPE_CHECKING:
    from graphveil.methods.estimator import NodeClassifier
    from graphveil.methods.spending import Spend

GROUP = "graphveil.methods"


@dataclass(frozen=True)
class Method:
    """A method: its name, where its class is, and what it spends.

    Args:
        name: On the command line and on certificates.
        path: Of the class, as "package.module:Class". It is loaded when it is first used.
        plan_path: Of the function that says what the method spends, likewise; its module must not load PyTorch. The
            class has the same function as its attribute `spend`.
    """

    name: str
    path: str
    plan_path: str

    @property
    def class_name(self) -> str:
        return self.path.partition(":")[2]

    def load(self) -> type[NodeClassifier]:
        """The class."""
        loaded: type[NodeClassifier] = _load(self.path)
        return loaded

    @property
    def spend(self) -> Spend:
        """What the method spends."""
        loaded: Spend = _load(self.plan_path)
        return loaded


# graphveil's own methods.
METHODS = {
    method.name: method
    for method in (
        Method("dpdgc", "graphveil.methods.auto:DPDGC", "graphveil.methods.auto_plan:spend_dpdgc"),
        Method("gap", "graphveil.methods.gap:GAP", "graphveil.methods.gap_plan:spend"),
        Method("progap", "graphveil.methods.progap:ProGAP", "graphveil.methods.gap_plan:spend_progap"),
        Method("mlp", "graphveil.methods.mlp:MLP", "graphveil.methods.mlp_plan:spend"),
        Method("sage", "graphveil.methods.sage:SAGE", "graphveil.methods.sage_plan:spend_sage"),
        Method("randedge", "graphveil.methods.sage:RandEdge", "graphveil.methods.sage_plan:spend_randedge"),
        Method("dp-sage", "graphveil.methods.dp_sage:DPSAGE", "graphveil.methods.dp_sage_plan:spend"),
        Method("auto", "graphveil.methods.auto:Auto", "graphveil.methods.auto_plan:spend"),
    )
}


def method_named(name: str) -> Method:
    """The method with this name, graphveil's own or one of another package."""
    method = METHODS.get(name) or _others().get(name)
    if method is None:
        raise InvalidInput("method", name, f"must be one of {', '.join([*METHODS, *_others()])}")
    return method


def method_class(name: str) -> type[NodeClassifier]:
    """The class of a method by its name on the command line."""
    return method_named(name).load()


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@cache
def _others() -> dict[str, Method]:
    """Methods of other packages."""
    from importlib.metadata import entry_points  # slow to load, and most commands need none

    loaded = (point.load() for point in entry_points(group=GROUP))
    return {method.name: method for method in loaded if method.name not in METHODS}
