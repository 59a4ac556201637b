"""OR-Tools, imported when it is needed: it takes a while, and it may be missing."""

from typing import Any

from fedegoists.errors import MissingDependencyError

__all__ = ["load_linear_solver", "load_solver"]


def load_solver() -> Any:
    """Import OR-Tools' CP-SAT, or say how to get it."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingDependencyError(_MISSING) from None
    return cp_model


def load_linear_solver() -> Any:
    """Import OR-Tools' linear solvers, or say how to get them."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError:
        raise MissingDependencyError(_MISSING) from None
    return pywraplp


_MISSING = "method 'best' needs OR-Tools: pip install ortools. Without it, method 'stable' works"
