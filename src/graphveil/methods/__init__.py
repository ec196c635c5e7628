"""All methods by name, each with what it spends. Listing them does not load PyTorch: plans need none.

A method of another package takes part by an entry point of the group `graphveil.methods`: its name is the method's
name, and its value a `Method`. examples/graphveil-votes is such a package. What packages above do for a model (save it,
keep an unfinished fit) is attached here by `graphveil`: methods do not import packages that import them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphveil.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from graphveil.methods.estimator import NodeClassifier
    from graphveil.methods.spending import Spend

__all__ = ["METHODS", "Attached", "Method", "attach", "attached", "method_class", "method_named", "other_names"]

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
        loaded: type[NodeClassifier] = _load(self.name, self.path)
        if getattr(loaded, "method", None) != self.name:
            raise InvalidInput("method", self.name, f"{self.path} must be a NodeClassifier whose `method` is this name")
        return loaded

    @property
    def spend(self) -> Spend:
        """What the method spends."""
        loaded: Spend = _load(self.name, self.plan_path)
        return loaded


# graphveil's own methods.
METHODS = {
    method.name: method
    for method in (
        Method("dpdgc", "graphveil.methods.dpdgc:DPDGC", "graphveil.methods.auto_plan:spend_dpdgc"),
        Method("gap", "graphveil.methods.gap:GAP", "graphveil.methods.baseline_plans:spend_gap"),
        Method("caribou", "graphveil.methods.gap:Caribou", "graphveil.methods.baseline_plans:spend_gap"),
        Method("progap", "graphveil.methods.gap:ProGAP", "graphveil.methods.baseline_plans:spend_progap"),
        Method("mlp", "graphveil.methods.baselines:MLP", "graphveil.methods.baseline_plans:spend_mlp"),
        Method("sage", "graphveil.methods.baselines:SAGE", "graphveil.methods.baseline_plans:spend_sage"),
        Method("randedge", "graphveil.methods.baselines:RandEdge", "graphveil.methods.baseline_plans:spend_randedge"),
        Method("dp-sage", "graphveil.methods.baselines:DPSAGE", "graphveil.methods.baseline_plans:spend_dp_sage"),
        Method("auto", "graphveil.methods.dpdgc:Auto", "graphveil.methods.auto_plan:spend"),
    )
}


def method_named(name: str) -> Method:
    """The method with this name, graphveil's own or one of another package.

    Args:
        name: Its name on the command line.

    Returns:
        The method.

    Raises:
        InvalidInput: There is no such method, or the package that has it cannot be used.
    """
    method = METHODS.get(name) or (_load_other(name) if name in _points() else None)
    if method is None:
        known = ", ".join([*METHODS, *other_names()])
        raise InvalidInput("method", name, f"must be one of {known}, or of a package that is not installed here")
    return method


def method_class(name: str) -> type[NodeClassifier]:
    """The class of a method.

    Args:
        name: The method's name, as `graphveil train --method` takes it.

    Returns:
        The class, a `NodeClassifier`.

    Raises:
        InvalidInput: There is no such method, or its package cannot be loaded.
    """
    return method_named(name).load()


def other_names() -> tuple[str, ...]:
    """The names of methods that other packages have, without loading them; one of graphveil's own names is not used."""
    return tuple(name for name in _points() if name not in METHODS)


def _load(method: str, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _not_loaded(method, path, error) from error


def _not_loaded(method: str, path: str, error: Exception) -> InvalidInput:
    said = " ".join(str(error).split())[:200]
    return InvalidInput("method", method, f"cannot be loaded from {path}: {type(error).__name__}: {said}")


@cache
def _points() -> dict[str, list[EntryPoint]]:
    """Entry points of other packages by name, in order of the names."""
    from importlib.metadata import entry_points  # slow to load, and most commands need none

    points: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        points.setdefault(point.name, []).append(point)
    return points


@cache
def _load_other(name: str) -> Method:
    """The method that the entry point with this name gives."""
    point, *more = _points()[name]
    if more:
        values = ", ".join(each.value for each in (point, *more))
        raise InvalidInput("method", name, f"is a method of several packages ({values}); remove all but one of them")
    try:
        method = point.load()
    except Exception as error:  # whatever the code of another package raises
        raise _not_loaded(name, point.value, error) from error
    if not isinstance(method, Method) or method.name != name:
        raise InvalidInput("method", name, f"{point.value} must be a graphveil.methods.Method of this name")
    return method


def __getattr__(name: str) -> Any:
    for method in METHODS.values():
        if method.class_name == name:
            return method.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Attached:
    """Functions of the packages above.

    Args:
        save: Writes a fitted model to a new folder: `save(model, folder, budget=...)`.
        open_checkpoint: Opens a folder that keeps an unfinished fit: `open_checkpoint(folder, every=..., resume=...)`.
    """

    save: Callable[..., None]
    open_checkpoint: Callable[..., AbstractContextManager[Any]]


_attached: list[Attached] = []


def attach(functions: Attached) -> None:
    """Let models be saved, and their unfinished fits be kept, by these functions."""
    _attached.append(functions)


def attached() -> Attached:
    """The functions that were attached last."""
    return _attached[-1]
