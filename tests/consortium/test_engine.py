"""The registry of engines: names, what they need, and that choosing one loads nothing."""

import subprocess
import sys

import pytest

from fedegoists.consortium import engine
from fedegoists.consortium.engine import ENGINES, EngineKind, SiloAccess, engine_named
from fedegoists.errors import MissingDependencyError, SettingsError


def test_engines_are_found_by_name():
    assert list(ENGINES) == ["simulation", "flare"]
    assert engine_named("simulation") is ENGINES["simulation"]
    with pytest.raises(SettingsError, match="'pigeons'; engines are simulation, flare"):
        engine_named("pigeons")


def test_choosing_an_engine_loads_neither_torch_nor_flare():
    packages = {"torch", "nvflare", "pydantic"}
    code = f"import sys, {engine.__name__}; print({packages} & {{*sys.modules}})"
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert seen.stdout.strip() == "set()"


def test_a_missing_package_is_named_with_its_extra():
    kind = EngineKind("other", "nowhere", "a_package_that_is_not_there.engine", "other", local=True)
    with pytest.raises(MissingDependencyError, match=r"a_package.*pip install .*\[other\]"):
        kind.over_silos(None, SiloAccess("run"), lambda *_: None)
