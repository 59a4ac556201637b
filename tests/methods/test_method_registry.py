"""The registry of methods: its facts are those of the classes, and need no PyTorch."""

import subprocess
import sys

import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.errors import SettingsError
from fedegoists.methods import METHOD_ENTRIES
from fedegoists.methods.method_registry import check_method


@pytest.mark.parametrize("name", METHOD_ENTRIES)
def test_an_entry_is_about_the_class_of_its_name(name):
    method = METHOD_ENTRIES[name].load()
    assert method.key == name
    # Whatever is given the benefit graph has a place for it, and only that.
    takes_benefit = "benefit" in method.__dataclass_fields__
    assert takes_benefit == (METHOD_ENTRIES[name].benefit != "unused")


def test_methods_and_estimators_are_listed_without_pytorch():
    code = (
        "import sys; from fedegoists.methods import METHOD_ENTRIES as m; "
        "from fedegoists.benefit import ESTIMATOR_ENTRIES as e; "
        "print(len(m), len(e), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        str(len(METHOD_ENTRIES)),
        str(len(ESTIMATOR_ENTRIES)),
        "False",
    ]


def test_unknown_names_and_tuning_of_nothing_are_refused():
    check_method("fedavg+ft")
    for name in ("fedmagic", "local+ft", "fedavg+ft+ft"):
        with pytest.raises(SettingsError, match=f"unknown method '{name}'".replace("+", r"\+")):
            check_method(name)
