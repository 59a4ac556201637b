"""The page on own data: its schemas are schemas, and its data.py trains."""

import tomllib

import numpy as np
import pytest

from fedegoists.learning.datasets import ImageSchema, Schema, load
from fedegoists.learning.datasets.own import read_schema
from fedegoists.learning.model_registry import model_for
from tests.docs.pages import HowTo

PAGE = HowTo("how-to-own-data")


def test_every_schema_on_the_page_is_one(tmp_path):
    kinds = []
    for k, text in enumerate(PAGE.blocks("toml")):
        if "source" in tomllib.loads(text).get("data", {}):
            continue  # a consortium.toml
        path = tmp_path / f"{k}.toml"
        path.write_text(text)
        kinds.append(read_schema(path))
    assert [type(one) for one in kinds] == [Schema, ImageSchema, Schema]
    assert kinds[2].sequence.steps == 48


def test_the_data_py_of_the_page_gives_sequences(tmp_path):
    code = PAGE.blocks("python")[0]
    (tmp_path / "data.py").write_text(code)
    data = load(f"{tmp_path / 'data.py'}:load")
    assert data.participants == ("North", "South")
    assert data.shapes == ((24, 3), (2,))
    assert model_for(data, "lstm").name == "lstm"


def test_arrays_are_loaded_as_the_page_says():
    code = PAGE.blocks("python")[2]
    rng = np.random.default_rng(0)
    names = {}
    for side in ("north", "south"):
        names[f"x_{side}"] = rng.normal(size=(40, 2))
        names[f"y_{side}"] = np.where(np.arange(40) % 2, "yes", "no")
        names[f"patients_{side}"] = np.arange(40) // 2
    exec(compile(code, "how-to-own-data.md", "exec"), names)
    assert names["data"].participants == ("North", "South")


@pytest.mark.parametrize("kind", [Schema, ImageSchema])
def test_the_reference_has_every_key_of_a_schema(kind):
    section = HowTo("reference-files").text.split("\n## Schema")[1].split("\n## ")[0]
    for name, field in kind.model_fields.items():
        assert f"`{name}`" in section or f"`{name}." in section
        inner = [a for a in (field.annotation, *getattr(field.annotation, "__args__", ()))
                 if hasattr(a, "model_fields")]  # fmt: skip
        for settings in inner:
            assert all(f"`{key}`" in section for key in settings.model_fields)
