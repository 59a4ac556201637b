"""OR-Tools, imported when needed: the import takes a while, and it may be missing."""

from types import ModuleType

from fedegoists.errors import MissingDependencyError

_MISSING = "method 'best' needs OR-Tools: pip install ortools. Without it, method 'stable' works"


def load_solver() -> ModuleType:
    """Import OR-Tools' CP-SAT; the error says how to install it."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingDependencyError(_MISSING) from None
    module: ModuleType = cp_model
    return module


def load_linear_solver() -> ModuleType:
    """Import OR-Tools' linear solvers; the error says how to install them."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError:
        raise MissingDependencyError(_MISSING) from None
    module: ModuleType = pywraplp
    return module
