"""Loading by name: what there is, and what is refused."""

import inspect
import subprocess
import sys

import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning import datasets
from fedegoists.learning.datasets import DatasetInfo, available, load


def test_what_there_is() -> None:
    assert [info.name for info in available()] == [
        "synthetic-weak",
        "synthetic-strong",
        "cifar10",
        "cifar100",
        "eicu-demo",
        "heart",
    ]
    for info in available():
        assert info.licence
        assert info.source
        assert "\n" not in info.summary


@pytest.mark.parametrize("info", available(), ids=lambda info: info.name)
def test_options_and_their_defaults_are_those_of_the_loader(info: DatasetInfo) -> None:
    loader = datasets._LOADERS[info.name][1]
    parameters = dict(inspect.signature(loader).parameters)
    assert parameters.pop("seed").default == 0
    parameters.pop("data_dir", None)
    assert {option.name: option.default for option in info.options} == {
        name: parameter.default for name, parameter in parameters.items()
    }


def test_unknown_names_and_options() -> None:
    with pytest.raises(
        SettingsError, match=r"^unknown data set 'cifar-10'; did you mean 'cifar10'"
    ):
        load("cifar-10")
    with pytest.raises(
        SettingsError, match=r"^unknown data set 'x'; data sets are synthetic-weak,"
    ):
        load("x")
    with pytest.raises(SettingsError, match=r"^unknown data set None"):
        load(None)  # type: ignore[arg-type]
    with pytest.raises(
        SettingsError, match=r"^cifar10 has no option 'participant'; did you mean 'participants'\?$"
    ):
        load("cifar10", participant=3)
    with pytest.raises(
        SettingsError, match=r"^heart has no option 'beta'; its options are impute$"
    ):
        load("heart", beta=3)


def test_neither_torch_nor_pictures_are_needed_to_import() -> None:
    code = (
        "import sys\n"
        "import fedegoists.learning.datasets, fedegoists.learning.plots\n"
        "heavy = {'torch', 'PIL', 'pyarrow', 'matplotlib', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
