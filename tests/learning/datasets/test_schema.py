"""What organisations agree on: accepted schemas, and what is wrong with others."""

from pathlib import Path
from typing import Any

import pytest

from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.datasets import Schema
from fedegoists.learning.typed_settings import validated

GOOD: dict[str, Any] = {
    "features": ["age", "income"],
    "target": "default",
    "task": "binary",
    "classes": ["no", "yes"],
}


def test_lists_become_tuples() -> None:
    schema = validated(Schema, GOOD, "schema")
    assert schema.features == ("age", "income")
    assert (schema.classes, schema.missing, schema.standardise) == (("no", "yes"), "error", True)
    assert schema.wanted.required == ("age", "income", "default")


def test_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(
        'features = ["age"]\ntarget = "ill"\ntask = "classification"\nclasses = [0, 1, 2]\n'
        'missing = "mean"\nstandardise = false\n'
    )
    assert Schema.from_toml(path) == Schema(
        features=("age",),
        target="ill",
        task="classification",
        classes=("0", "1", "2"),
        missing="mean",
        standardise=False,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": []}, r"features is \[\]: tuple should have at least 1 item"),
        ({"features": "age"}, "features is 'age': input should be a valid tuple"),
        ({"features": 3}, "features is 3: input should be a valid tuple"),
        ({"features": ["age", ""]}, "features is '': string should match pattern"),
        ({"features": ["age", 3]}, "features is 3: input should be a valid string"),
        ({"features": ["age", "age"]}, "'age' is twice in features; remove one"),
        ({"target": ""}, "target is '': string should match pattern"),
        ({"target": ["a"]}, r"target is \['a'\]: input should be a valid string"),
        ({"target": "age"}, "'age' is the target and a feature"),
        (
            {"task": "ranking"},
            "task is 'ranking': input should be 'classification', 'binary', 'regres",
        ),
        (
            {"missing": "median"},
            "missing is 'median': input should be 'error', 'mean' or 'indicate'",
        ),
        ({"standardise": 1}, "standardise is 1: input should be a valid boolean"),
        ({"classes": None}, "a binary task needs classes: the values of 'default'"),
        ({"classes": ["a"]}, "a binary task has two classes, not 1"),
        ({"classes": ["a", "b", "c"]}, "a binary task has two classes, not 3"),
        (
            {"classes": ["a"], "task": "classification"},
            "a classification task has at least two classes, not 1",
        ),
        ({"classes": ["a", "a"]}, "'a' is twice in classes; remove one"),
        ({"classes": [0.5, 1]}, "classes is 0.5: input should be a valid string"),
        ({"task": "regression"}, "a regression has no classes; leave them out"),
        ({"clases": []}, "unknown key 'clases'; keys are features, target, task, classes"),
    ],
)
def test_what_is_no_schema(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^schema: {message}"):
        validated(Schema, GOOD | changes, "schema")


@pytest.mark.parametrize("name", ["features", "target", "task"])
def test_a_setting_is_missing(name: str) -> None:
    settings = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(SettingsError, match=f"^schema: {name} is missing$"):
        validated(Schema, settings, "schema")


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    with pytest.raises(FileError, match=r"schema\.toml: no such file"):
        Schema.from_toml(path)
    path.write_text("features = [")
    with pytest.raises(SettingsError, match=r"schema\.toml: not TOML \(Invalid value"):
        Schema.from_toml(path)
    path.write_text("features = []\ntarget = 'y'\ntask = 'regression'\n")
    with pytest.raises(SettingsError, match=r"schema\.toml: features is \[\]: tuple"):
        Schema.from_toml(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": "age"}, "'age' is the group and a feature or the target"),
        ({"event": "died"}, 'task = "survival" and event = "…" go together'),
        ({"columns": {"ward": {}}}, r"\[columns.ward\]: 'ward' is not one of the features"),
        ({"columns": {"age": {"kind": "category"}}}, ".*'category' and categories .* go together"),
        ({"columns": {"age": {"categories": ["a", "a"]}}}, ".*category 'a' is there twice"),
        ({"columns": {"age": {"categories": ["other"]}}}, ".*'other' stands for all that are not"),
        ({"columns": {"age": {"format": "%Y"}}}, ".*format is for kind = 'date'"),
        ({"columns": {"age": {"kind": "date", "unit": "d"}}}, ".*unit and range are for numbers"),
        ({"columns": {"age": {"range": [5, 1]}}}, ".*smallest and the largest number, in this"),
        ({"columns": {"age": {"colour": 1}}}, "unknown key 'columns.age.colour'"),
        (
            {"features": ["age", "age missing"], "missing": "indicate"},
            "two inputs would be called 'age missing'",
        ),
    ],
)
def test_columns_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^schema: {message}"):
        validated(Schema, GOOD | changes, "schema")


def test_the_fractions_of_splits_sum_to_one():
    given = {"features": ("a",), "target": "y", "task": "regression"}
    assert Schema(**given).split == (0.7, 0.15, 0.15)
    assert Schema(**given, split=(0.5, 0.2, 0.3)).split == (0.5, 0.2, 0.3)
    for wrong in ((0.5, 0.2, 0.2), (0.9, 0.1, 0.0), (0.5, 0.5)):
        with pytest.raises(ValueError, match="split"):
            Schema(**given, split=wrong)
