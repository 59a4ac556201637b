"""The registry of methods: its facts are those of the classes, and need no PyTorch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.errors import SettingsError
from fedegoists.federation import Describe, Gradient
from fedegoists.methods import METHOD_ENTRIES
from fedegoists.methods.method_registry import MethodEntry, check_method, methods_for
from tests.silos import FOR_NETWORKS, federation, initial


@pytest.mark.parametrize("name", METHOD_ENTRIES)
def test_an_entry_is_about_the_class_of_its_name(name):
    method = METHOD_ENTRIES[name].load()
    assert method.key == name
    # Whatever is given the benefit graph has a place for it, and only that.
    takes_benefit = "benefit" in method.__dataclass_fields__
    assert takes_benefit == (METHOD_ENTRIES[name].benefit != "unused")


def test_every_entry_says_what_the_server_sees():
    with pytest.raises(TypeError, match="server_sees"):
        MethodEntry("module:Class", "no word about what the server sees")
    assert {name: entry.server_sees for name, entry in METHOD_ENTRIES.items()} == {
        "local": "nothing",
        "fedavg": "sums",
        "fedprox": "sums",
        "scaffold": "single updates",
        "pfedme": "single updates",
        "pfedhn": "single updates",
        "feddisco": "sums",
        "pfedgraph": "single updates",
        "fedora": "single updates",
        "fedegoists": "gradients",
        "egomix": "sums",
        "fedavgm": "sums",
        "slowmo": "sums",
        "fedper": "sums",
        "fedrep": "sums",
        "fedbabu": "sums",
        "ditto": "sums",
        "apfl": "single updates",
        "fedala": "gradients",
        "feddbe": "gradients",
        "fedpac": "gradients",
        "fedfomo": "single updates",
        "bagging": "single updates",
    }


@pytest.mark.parametrize(
    ("name", "model"), [*((name, "mlp") for name in FOR_NETWORKS), ("fedpac", "cifar10-cnn")]
)
def test_an_entry_says_what_silos_are_asked_to_tell_of_their_data(name, model, monkeypatch):
    asked, probes, entry, silos = [], [], METHOD_ENTRIES[name], federation(model)
    call = silos.call

    def empty(gradient):
        """Whether the output layer is one at which gradients tell means and label counts."""
        views = silos.schema.unflatten(gradient.rows)
        return not views["output.weight"].any()

    def noted(requests, timeout=None):
        asked.extend(one for one in requests.values() if isinstance(one, Describe))
        probes.extend(one for one in requests.values() if isinstance(one, Gradient) and empty(one))
        return call(requests, timeout)

    monkeypatch.setattr(silos, "call", noted)
    method, coalitions = entry.load()(), [silos.participants]
    state = method.start(silos, coalitions, initial(model), 0)
    method.round(silos, coalitions, state, 0)
    assert bool(entry.told) == bool(asked or probes)
    assert ("direction" in entry.told) == any(one.direction for one in asked)
    assert ("members receive the mean" in entry.told) == bool(probes)


def test_methods_for_classes_are_not_among_all_methods_of_a_regression():
    everything, others = methods_for("network"), methods_for("network", "regression")
    assert set(everything) - set(others) == {"fedpac"}
    assert methods_for("network", "binary") == everything


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


TOGETHER = {"fedper": "personal_heads", "fedrep": "personal_heads", "fedbabu": "personal_heads"}


@pytest.mark.parametrize("name", METHOD_ENTRIES)
def test_two_rounds_of_every_method_are_worked_out_by_hand(name):
    """From its paper's formula, in numpy; or, for a hypernetwork, by automatic differentiation."""
    path = Path(__file__).with_name(f"test_{TOGETHER.get(name, name)}.py")
    text = path.read_text(encoding="utf-8")
    assert re.search(
        r"^def test_(two|three|four)_rounds_\w*by_(hand|automatic)", text, re.MULTILINE
    )
