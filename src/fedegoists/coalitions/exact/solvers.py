"""OR-Tools, imported when needed: the import takes a while, and it may be missing.

OR-Tools and Numba come with the extra ``exact``. Without them, up to 14 participants that belong
together are still solved with proof; more are left to a local search.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command

PACKAGES = {"numba": "Numba", "ortools": "OR-Tools"}
"""The packages of the extra ``exact``, with their names."""


def missing_packages() -> tuple[str, ...]:
    """Return the names of the packages of the extra ``exact`` that are not installed."""
    return tuple(name for package, name in PACKAGES.items() if not _installed(package))


@cache
def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # blocked, as a test does
        return False


def has_solver() -> bool:
    """Whether OR-Tools is installed."""
    return _installed("ortools")


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
        raise MissingDependencyError(f"this needs OR-Tools: {install_command('exact')}") from None
