"""A user's own data.py: what it returns becomes data, and what it does wrong is told."""

import pytest

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.errors import SettingsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.loader_files import load_by_function

CODE = """\
import numpy as np

def one(seed, count=40):
    rng = np.random.default_rng(seed)
    return {"inputs": rng.normal(size=(count, 3)), "targets": np.arange(count) % 2}

def load():
    return {"task": "binary", "classes": 2, "organisations": {"North": one(1), "South": one(2)}}

def at(organisation=None, folder=None, count=40):
    names = {"North": 1, "South": 2}
    chosen = names if organisation is None else [organisation]
    found = {name: one(names[name], count) for name in chosen}
    if folder is not None:
        found["folder"] = one(len(folder))
    return {"task": "binary", "classes": 2, "organisations": found}

def frames():
    import pandas as pd
    frame = pd.DataFrame({"age": range(40), "ill": ["no", "yes"] * 20})
    schema = {"features": ["age"], "target": "ill", "task": "binary", "classes": ["no", "yes"]}
    return {"schema": schema, "organisations": {"North": frame, "South": frame.assign(age=9 * frame.age)}}

def fails():
    raise KeyError("no such column")

def nothing():
    return None

def misspelt():
    return {**load(), "class": 2}

def asks(server):
    return load()

def wrong():
    return {"task": "binary", "classes": 2, "organisations": {"North": one(1, 5)}}
"""  # noqa: E501


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(CODE)
    return path


def test_what_a_function_returns_is_the_data(file):
    data = load(f"{file}:load")
    assert data.participants == ("North", "South")
    assert data.shapes == ((3,),)
    assert load(f"{file}:frames").preparation[0].columns == ("age",)


def test_a_silo_gets_its_own_data_alone(file):
    whole = load(f"{file}:load")
    for function in ("load", "at"):
        alone = load_by_function(f"{file}:{function}", organisation="South")
        assert alone.participants == ("South",)
        assert len(alone.samples) == 40
        assert alone.silos[0].sizes == whole.silo("South").sizes
    with pytest.raises(DataError, match="returned no data of 'West', but of: North, South"):
        load_by_function(f"{file}:load", organisation="West")


def test_folder_and_options_are_given_to_the_function(file):
    data = load(f"{file}:at", data_dir="abc", count=50)
    assert data.participants == ("North", "South", "folder")
    assert sum(data.silo("North").sizes) == 50
    with pytest.raises(
        SettingsError, match=r"data.py:load has no option 'count'; it takes nothing"
    ):
        load(f"{file}:load", count=50)


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("fails", SettingsError, "raised KeyError in line 25: 'no such column'"),
        ("nothing", DataError, "returned a NoneType; expected a dictionary with the keys organis"),
        ("misspelt", DataError, "returned the key 'class'; keys are organisations, task, classes"),
        ("asks", SettingsError, "data.py:asks needs 'server'; it can take organisation, folder"),
        ("wrong", DataError, "data.py:wrong: organisation 'North': 5 different samples are too f"),
        ("absent", SettingsError, "data.py has no function 'absent'"),
    ],
)
def test_errors_of_the_users_code_are_told(file, function, kind, message):
    with pytest.raises(kind, match=message):
        load(f"{file}:{function}")


def test_the_file_is_beside_the_consortium(file):
    path = file.with_name("consortium.toml")
    path.write_text('[data]\nsource = "data.py:load"\n')
    assert read_settings(path).data.source == f"{file.resolve()}:load"
    file.unlink()
    with pytest.raises(SettingsError, match="no such file; it is looked for beside"):
        load(read_settings(path).data.source)
