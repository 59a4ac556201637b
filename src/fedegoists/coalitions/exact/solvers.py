"""OR-Tools, imported when needed: the import takes a while, and it may be missing."""

from importlib import import_module
from types import ModuleType

from fedegoists.errors import MissingDependencyError


def load_solver() -> ModuleType:
    """Import OR-Tools' CP-SAT; the error says how to install it."""
    return _load("ortools.sat.python.cp_model")


def load_linear_solver() -> ModuleType:
    """Import OR-Tools' linear solvers; the error says how to install them."""
    return _load("ortools.linear_solver.pywraplp")


def _load(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependencyError(
            "method 'best' needs OR-Tools: pip install ortools. Without it, method 'stable' works"
        ) from None
