"""What organisations agree on: accepted schemas, and what is wrong with others."""

from pathlib import Path
from typing import Any

import pytest

from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.datasets import Schema

GOOD: dict[str, Any] = {
    "features": ["age", "income"],
    "target": "default",
    "task": "binary",
    "classes": ["no", "yes"],
}


def test_lists_become_tuples() -> None:
    schema = Schema.from_mapping(GOOD)
    assert schema == Schema(("age", "income"), "default", "binary", ("no", "yes"), "error")
    assert schema.columns == ("age", "income", "default")


def test_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(
        'features = ["age"]\ntarget = "ill"\ntask = "classification"\nclasses = [0, 1, 2]\n'
        'missing = "mean"\nstandardise = false\n'
    )
    assert Schema.from_toml(path) == Schema(
        ("age",), "ill", "classification", ("0", "1", "2"), "mean", False
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": []}, "features is empty; name at least one column"),
        ({"features": "age"}, "features is 'age'; give a list of texts"),
        ({"features": 3}, "features is 3; give a list of texts"),
        ({"features": ["age", ""]}, "features holds ''"),
        ({"features": ["age", 3]}, "features holds 3"),
        ({"features": ["age", "age"]}, "'age' stands twice in features"),
        ({"target": ""}, "target is ''; name one column"),
        ({"target": ["a"]}, r"target is \['a'\]; name one column"),
        ({"target": "age"}, "'age' is the target and a feature"),
        ({"task": "ranking"}, "task is 'ranking'; choose one of classification, binary, regr"),
        ({"missing": "median"}, "missing is 'median'; choose one of error, mean"),
        ({"standardise": 1}, "standardise is 1; choose true or false"),
        ({"classes": None}, "a task of the kind binary needs classes: the values that 'default'"),
        ({"classes": ["a"]}, "a task of the kind binary has two classes, not 1"),
        ({"classes": ["a", "b", "c"]}, "a task of the kind binary has two classes, not 3"),
        (
            {"classes": ["a"], "task": "classification"},
            "a task of the kind class.* has at least two classes, not 1",
        ),
        ({"classes": ["a", "a"]}, "'a' stands twice in classes"),
        ({"classes": [0.5, 1]}, "classes holds 0.5"),
        ({"task": "regression"}, "a regression has no classes; leave them out"),
        ({"clases": []}, "unknown setting 'clases'; settings are features, target, task, classes"),
    ],
)
def test_what_is_no_schema(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^schema: {message}"):
        Schema.from_mapping(GOOD | changes)


@pytest.mark.parametrize("name", ["features", "target", "task"])
def test_a_setting_is_missing(name: str) -> None:
    settings = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(SettingsError, match=f"^schema: the setting '{name}' is missing$"):
        Schema.from_mapping(settings)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    with pytest.raises(FileError, match=r"schema\.toml: no such file"):
        Schema.from_toml(path)
    path.write_text("features = [")
    with pytest.raises(SettingsError, match=r"schema\.toml: not TOML \(Invalid value"):
        Schema.from_toml(path)
    path.write_text("features = []\ntarget = 'y'\ntask = 'regression'\n")
    with pytest.raises(SettingsError, match=r"schema\.toml: schema: features is empty"):
        Schema.from_toml(path)
