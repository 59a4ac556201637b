"""Loading by name: what there is, and what is refused."""

import subprocess
import sys

import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.datasets import DatasetEntry, DatasetOptions, available, load


def test_what_there_is() -> None:
    assert [entry.name for entry in available()] == [
        "synthetic-weak",
        "synthetic-strong",
        "cifar10",
        "cifar100",
        "eicu-demo",
        "heart",
        "tcga-brca",
    ]
    for entry in available():
        assert entry.licence
        assert entry.source
        assert "\n" not in entry.summary


@pytest.mark.parametrize("entry", available(), ids=lambda entry: entry.name)
def test_every_option_has_a_default_and_a_description(entry: DatasetEntry) -> None:
    kind = entry.options_type()
    assert issubclass(kind, DatasetOptions)
    kind()  # all options have defaults
    assert all(field.description for field in kind.model_fields.values())


def test_the_registered_task_is_that_of_the_data() -> None:
    for entry in available():
        if entry.name.startswith("synthetic"):
            assert load(entry.name).task == entry.task


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
